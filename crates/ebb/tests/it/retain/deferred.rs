//! Triggers that put their work off to the end of a transaction: they see what they would see there, and names as always.

use super::{SHOP, users};
use crate::harness::Ebb;

/// Nobody may leave an order without items; and one of the users cannot go.
const CHECKED: &str = "
    CREATE FUNCTION has_items() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF EXISTS (SELECT FROM public.orders WHERE id = OLD.order_id) AND NOT EXISTS (SELECT FROM public.items WHERE order_id = OLD.order_id) THEN
            RAISE 'an order without items'; END IF; RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER has_items AFTER DELETE ON items DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION has_items();
    CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF OLD.user_id = 2 THEN RAISE ''no''; END IF; RETURN OLD; END';
    CREATE TRIGGER keep BEFORE DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION keep();";

#[tokio::test]
async fn whoever_comes_after_one_that_failed_is_checked_when_all_of_it_is_gone() {
    let ebb = Ebb::with(&format!("{SHOP}{CHECKED}")).await;
    ebb.apply(&users("batch = { rows = 8, pause = \"0s\" }\nmirror = { attempted = \"cleanup_attempted_at\" }")).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 8) n").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.list("subject_id || ' ' || error", "ebb.deletion WHERE error IS NOT NULL").await, "2 no");
    assert_eq!(ebb.list("id", "users").await, "2,9,10,11,12");
}

#[tokio::test]
async fn a_row_that_is_put_back_at_the_end_is_noticed() {
    for (table, back) in
        [("users", "INSERT INTO public.users SELECT OLD.*"), ("sessions", "INSERT INTO public.sessions SELECT OLD.*")]
    {
        let sql = format!(
            "{SHOP} ALTER TABLE sessions DROP CONSTRAINT sessions_user_id_fkey;
             CREATE FUNCTION back() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {back}; RETURN NULL; END $$;
             CREATE CONSTRAINT TRIGGER back AFTER DELETE ON {table} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
                 WHEN (OLD.id IN (1, 10, 11)) EXECUTE FUNCTION back()"
        );
        let ebb = Ebb::with(&sql).await;
        ebb.apply(&users(
            "children = [{ table = \"sessions\", column = \"user_id\", references = \"id\", action = \"delete\" }]",
        ))
        .await;
        ebb.db.execute("SELECT ebb.delete_subject('users', '1'), ebb.delete_subject('users', '2')").await;
        ebb.db.advance("91 days").await;
        ebb.once("users").await;
        let told = ebb.list("subject_id || ' ' || error", "ebb.deletion WHERE error IS NOT NULL").await;
        let why =
            format!("1 a row of public.{table} is still there, or as it was: a trigger keeps it, or writes another");
        assert_eq!(told, why);
        assert_eq!((ebb.rows().await, ebb.erased().await.0), ((11, 33, 66, 44), 1), "{table}");
    }
}

#[tokio::test]
async fn marking_and_warning_let_triggers_at_the_end_find_what_they_name() {
    let note = "CREATE TABLE seen (what text);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen VALUES (NEW.status); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER note AFTER UPDATE OF status ON users DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();";
    let ebb = Ebb::with(&format!("{SHOP} GRANT CREATE ON SCHEMA public TO PUBLIC; {note}")).await;
    ebb.apply(&users("status = { column = \"status\", deleted = \"gone\", active = \"active\" }")).await;
    ebb.db.execute("UPDATE users SET deleted_at = ebb.now() WHERE id < 3").await;
    ebb.once("users").await;
    assert_eq!((ebb.state("1").await.as_str(), ebb.list("what", "seen").await.as_str()), ("pending", "gone,gone"));
    ebb.db.execute("UPDATE users SET deleted_at = NULL WHERE id = 1").await;
    ebb.once("users").await;
    assert_eq!(
        (ebb.state("1").await.as_str(), ebb.list("what", "seen").await.as_str()),
        ("restored", "active,gone,gone")
    );
}

#[tokio::test]
async fn what_a_trigger_writes_about_rows_that_go_goes_too_and_is_counted() {
    // Behind a foreign key or a link, with rows of its own or without, and by what refers to it in turn.
    let keys = [
        ("bigint REFERENCES users ON DELETE CASCADE", ""),
        ("bigint REFERENCES users", "children = [{ table = \"history\", column = \"user_id\", action = \"delete\" }]"),
        (
            "bigint",
            "children = [{ table = \"history\", column = \"user_id\", references = \"id\", action = \"delete\" }]",
        ),
    ];
    for (user, children) in keys {
        for lines in [false, true] {
            let below = if lines {
                "CREATE TABLE lines (history bigint NOT NULL REFERENCES history ON DELETE CASCADE);
                 CREATE FUNCTION line() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     INSERT INTO public.lines VALUES (NEW.id); RETURN NULL; END $$;
                 CREATE TRIGGER line AFTER INSERT ON history FOR EACH ROW EXECUTE FUNCTION line();"
            } else {
                ""
            };
            let ebb = Ebb::with(&format!(
                "{SHOP} CREATE TABLE history (id bigserial PRIMARY KEY, user_id {user}, what text); CREATE INDEX ON history (user_id);
                 {below}
                 CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     INSERT INTO public.history (user_id, what) VALUES (OLD.user_id, 'order ' || OLD.id); RETURN NULL; END $$;
                 CREATE TRIGGER note AFTER DELETE ON orders FOR EACH ROW EXECUTE FUNCTION note();
                 INSERT INTO history (user_id, what) SELECT id, 'came' FROM users"
            ))
            .await;
            ebb.apply(&users(children)).await;
            ebb.db.execute("SELECT ebb.delete_subject('users', '1'), ebb.delete_subject('users', '2')").await;
            ebb.db.advance("91 days").await;
            ebb.once("users").await;
            let told = ebb.list("error", "ebb.deletion WHERE error IS NOT NULL").await;
            assert_eq!((ebb.list("id", "users").await.as_str(), told.as_str()), ("3,4,5,6,7,8,9,10,11,12", ""));
            assert_eq!(ebb.list("user_id", "history").await, "3,4,5,6,7,8,9,10,11,12");
            let counted =
                "SELECT DISTINCT (details #>> '{tables,public.history}')::int8 FROM ebb.audit WHERE action = 'erase'";
            assert_eq!(ebb.db.scalar::<i64>(counted).await, 4, "what was there, and a row for each order");
            let lines = if lines { ebb.list("history", "lines").await } else { "3,4,5,6,7,8,9,10,11,12".to_owned() };
            assert_eq!(lines, "3,4,5,6,7,8,9,10,11,12");
        }
    }
}

#[tokio::test]
async fn what_writes_without_end_is_told_and_nothing_goes() {
    let ebb = Ebb::with(&format!(
        "{SHOP} CREATE TABLE history (id bigserial PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE);
         CREATE INDEX ON history (user_id); INSERT INTO history (user_id) VALUES (1);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO public.history (user_id) VALUES (OLD.user_id); RETURN NULL; END $$;
         CREATE TRIGGER note AFTER DELETE ON history FOR EACH ROW EXECUTE FUNCTION note()"
    ))
    .await;
    ebb.apply(&users("")).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1'), ebb.delete_subject('users', '2')").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    let told = ebb.list("subject_id || ' ' || error", "ebb.deletion WHERE error IS NOT NULL").await;
    let why = "1 a row of public.history is still there, or as it was: a trigger keeps it, or writes another";
    assert_eq!((told.as_str(), ebb.rows().await, ebb.erased().await.0), (why, (11, 33, 66, 44), 1));
}
