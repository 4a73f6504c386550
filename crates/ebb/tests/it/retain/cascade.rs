//! Rows that stay never go by the server's own ON DELETE: whatever keeps their link to a subject fails that subject.

use super::users;
use crate::harness::Ebb;

/// Posts of five users, each with a reply that nothing says anything about.
const BLOG: &str = "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
    CREATE TABLE posts (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, body text);
    CREATE TABLE replies (id bigint PRIMARY KEY, post_id bigint NOT NULL REFERENCES posts ON DELETE CASCADE);
    CREATE INDEX ON posts (user_id); CREATE INDEX ON replies (post_id);
    INSERT INTO users SELECT n FROM generate_series(0, 4) n;
    INSERT INTO posts SELECT n, n % 5, 'b' FROM generate_series(1, 20) n;
    INSERT INTO replies SELECT id, id FROM posts";

fn posts(action: &str) -> String {
    users(&format!("children = [{{ table = \"posts\", column = \"user_id\", action = {action} }}]"))
}

/// A trigger that gives a post its author back.
fn stubborn(when: &str, does: &str) -> String {
    format!(
        "CREATE FUNCTION stubborn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {does}; RETURN NEW; END $$;
         CREATE TRIGGER stubborn {when} UPDATE OF user_id ON posts FOR EACH ROW
             WHEN (OLD.user_id = 2 AND NEW.user_id IS DISTINCT FROM 2) EXECUTE FUNCTION stubborn()"
    )
}

#[tokio::test]
async fn rows_that_stay_are_not_taken_by_a_cascade() {
    let before = stubborn("BEFORE", "NEW.user_id := OLD.user_id");
    let after = stubborn("AFTER", "UPDATE posts SET user_id = OLD.user_id WHERE id = NEW.id");
    let set_null = "ALTER TABLE posts DROP CONSTRAINT posts_user_id_fkey,
        ADD FOREIGN KEY (user_id) REFERENCES users ON DELETE SET NULL";
    let cases = [
        // An expression that leaves the link as it is, of one subject; the value of a subject that goes too.
        ("", "\"anonymize\", set = { user_id = \"greatest(user_id, 2)\", body = \"'x'\" }"),
        (set_null, "\"anonymize\", set = { user_id = \"greatest(user_id, 2)\", body = \"'x'\" }"),
        ("", "\"anonymize\", set = { user_id = \"2\", body = \"'x'\" }"),
        (before.as_str(), "\"nullify\""),
        (after.as_str(), "\"nullify\""),
        (before.as_str(), "\"anonymize\", set = { user_id = \"0\" }"),
    ];
    for (sql, action) in cases {
        let ebb = Ebb::with(&format!("{BLOG}; {sql}")).await;
        ebb.apply(&posts(action)).await;
        ebb.db.execute("SELECT ebb.delete_subject('users', '1'), ebb.delete_subject('users', '2')").await;
        ebb.db.advance("91 days").await;
        ebb.once("users").await;
        let left = [ebb.list("id", "users").await, ebb.list("user_id", "posts WHERE user_id = 2").await];
        assert_eq!(left[0], "0,2,3,4", "{action} {sql}");
        assert!(left[1].starts_with("2,2,2,2"), "{action} {sql}: {left:?}");
        let rows: i64 = ebb.db.scalar("SELECT (SELECT count(*) FROM posts) + (SELECT count(*) FROM replies)").await;
        assert_eq!(rows, 40, "{action} {sql}");
        let record: String =
            ebb.db.scalar("SELECT string_agg(details ->> 'unlinked', ' ') FROM ebb.audit WHERE action = 'erase'").await;
        assert_eq!(record, "{\"public.posts\": 4}", "{action} {sql}");
        let error: String =
            ebb.db.scalar("SELECT error FROM ebb.deletion WHERE subject_id = '2' AND attempts = 1").await;
        let said = ["rows of public.posts that stay would still refer to it by user_id", "a trigger keeps it"];
        assert!(said.iter().any(|said| error.contains(said)), "{action} {sql}: {error}");
    }
}

#[tokio::test]
async fn nor_are_those_of_a_large_subject_or_of_a_table_below() {
    let ebb = Ebb::with(&format!(
        "{BLOG}; ALTER TABLE replies ADD author bigint; CREATE TABLE likes (reply bigint REFERENCES replies ON DELETE CASCADE);
         CREATE INDEX ON likes (reply); INSERT INTO likes SELECT id FROM replies;
         INSERT INTO posts SELECT n, 2, 'b' FROM generate_series(100, 20100) n"
    ))
    .await;
    // Likes of what goes are to belong to reply 1, which goes itself with user 1.
    let likes = "{ table = \"likes\", column = \"reply\", action = \"anonymize\", set = { reply = \"1\" } }";
    let posts = "{ table = \"posts\", column = \"user_id\", action = \"anonymize\", set = { user_id = \"coalesce(user_id, 0)\" } }";
    ebb.apply(&users(&format!("children = [{likes}]"))).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.list("id", "users").await.as_str(), ebb.erased().await), ("0,1,2,3,4", (0, 0)));
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM likes").await, 20);

    ebb.apply(&users(&format!("children = [{posts}]"))).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '2')").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    let two = "SELECT state = 'erasing' AND attempts = 1 AND error LIKE 'rows of public.posts that stay%' FROM ebb.deletion WHERE subject_id = '2'";
    assert!(ebb.db.scalar::<bool>(two).await);
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM posts").await, 20_021);
}

#[tokio::test]
async fn nor_where_only_some_partitions_have_the_foreign_key() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE posts (user_id bigint, kind int) PARTITION BY LIST (kind);
         CREATE TABLE posts_1 PARTITION OF posts FOR VALUES IN (1); CREATE TABLE posts_2 PARTITION OF posts FOR VALUES IN (2);
         ALTER TABLE posts_1 ADD FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE;
         CREATE INDEX ON posts (user_id);
         INSERT INTO users SELECT generate_series(1, 3); INSERT INTO posts SELECT 1 + n % 3, 1 + n % 2 FROM generate_series(0, 11) n",
    )
    .await;
    let set = "set = { user_id = \"greatest(user_id, 2)\" }";
    ebb.apply(&users(&format!(
        "children = [{{ table = \"posts\", column = \"user_id\", references = \"id\", action = \"anonymize\", {set} }}]"
    )))
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1'), ebb.delete_subject('users', '2')").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!(
        (ebb.list("id", "users").await.as_str(), ebb.list("user_id", "posts").await.as_str()),
        ("2,3", "2,2,2,2,2,2,2,2,3,3,3,3")
    );
}

#[tokio::test]
async fn whoever_rows_are_given_to_is_named_before_it_goes_itself() {
    let ebb = Ebb::with(BLOG).await;
    let said = async |config: &str| {
        ebb.apply(config).await;
        let plan = ebb.engine.plan(&[]).await.unwrap();
        let of_posts = plan.trees[0].findings.iter().filter(|found| found.table == "public.posts");
        of_posts
            .map(|found| format!("{} ({})", found.message, found.fix.as_deref().unwrap_or_default()))
            .collect::<Vec<_>>()
    };
    let ghost = posts("\"anonymize\", set = { user_id = \"0\" }");
    let told = said(&ghost).await;
    assert!(told[0].contains("given to a row of public.users by user_id that is a subject itself"), "{told:?}");
    assert!(told[0].ends_with("(unless = \"users.id = 0\")"), "{told:?}");
    let protected =
        posts("\"anonymize\", set = { user_id = \"0\" }").replace("brake", "unless = \"users.id = 0\"\nbrake");
    assert_eq!(said(&protected).await, [""; 0]);
    // A hold protects it too.
    ebb.db.execute("SELECT ebb.place_hold('users', '0', 'the ghost')").await;
    assert_eq!(said(&ghost).await, [""; 0]);
    let told = said(&posts("\"anonymize\", set = { user_id = \"-1\" }")).await;
    assert!(told[0].contains("given to a row of public.users by user_id that is not there"), "{told:?}");
    assert_eq!(said(&posts("\"anonymize\", set = { user_id = \"greatest(user_id, 2)\" }")).await, [""; 0]);
}
