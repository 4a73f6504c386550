//! What stands in the way of deleting and restoring a subject, told where it is met and, where it can be known, before.

use ebb::doctor::Finding;
use ebb::retain::{self, Shown};

use super::told::questions;
use super::users;
use crate::harness::{Ebb, wanted};

/// Users whose trigger writes a log, in a schema where somebody else may create.
const LOGGED: &str = "
    DO $$ BEGIN CREATE ROLE creator; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
    GRANT CREATE ON SCHEMA public TO creator;
    CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz, updated_at timestamptz);
    CREATE TABLE user_log (user_id bigint);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO user_log VALUES (NEW.id); RETURN NEW; END $$;
    CREATE TRIGGER note AFTER UPDATE ON users FOR EACH ROW EXECUTE FUNCTION note();
    CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.updated_at := now(); RETURN NEW; END $$;
    CREATE TRIGGER stamp BEFORE UPDATE ON users FOR EACH ROW EXECUTE FUNCTION stamp();
    CREATE FUNCTION full_names() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO public.user_log VALUES (NEW.id); RETURN NEW; END $$;
    CREATE TRIGGER full_names AFTER UPDATE ON users FOR EACH ROW EXECUTE FUNCTION full_names();
    CREATE FUNCTION own_path() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS
        $$ BEGIN INSERT INTO user_log VALUES (NEW.id); RETURN NEW; END $$;
    CREATE TRIGGER own_path AFTER UPDATE ON users FOR EACH ROW EXECUTE FUNCTION own_path();
    INSERT INTO users SELECT n FROM generate_series(1, 5) n";

async fn delete(ebb: &Ebb, id: &str) -> ebb::Result<()> {
    let mut tx = ebb.engine.database().read().await.unwrap();
    retain::delete(&mut tx, "users", id, "test").await?;
    Ok(tx.commit().await?)
}

async fn show(ebb: &Ebb, id: &str) -> Shown {
    let mut tx = ebb.engine.database().read().await.unwrap();
    retain::show(&mut tx, "users", id).await.unwrap()
}

async fn doctor(ebb: &Ebb, config: &str) -> Vec<Finding> {
    ebb.engine.doctor(&questions(config)).await.unwrap().findings
}

#[tokio::test]
async fn a_trigger_that_will_not_find_a_name_is_told_of_before_anybody_meets_it() {
    let ebb = Ebb::with(LOGGED).await;
    let config = users("");
    let unseen = |findings: &[retain::Finding]| -> Vec<(String, Option<String>)> {
        let named = findings.iter().filter(|found| found.message.contains("without a schema"));
        named.map(|found| (found.message.clone(), found.fix.clone())).collect()
    };
    let plan = ebb.engine.plan(&wanted(&config).unwrap()).await.unwrap();
    let named = unseen(&plan.trees[0].findings);
    let [(message, fix)] = named.as_slice() else { panic!("{named:?}") };
    assert!(message.starts_with("trigger note names user_log without a schema"), "{message}");
    assert!(
        message.contains("search_path = pg_catalog, pg_temp") && message.ends_with("create in public"),
        "{message}"
    );
    assert_eq!(fix.as_deref(), Some("REVOKE CREATE ON SCHEMA \"public\" FROM creator"));
    assert!(!plan.has_problems(), "it is a warning");
    assert_eq!(ebb.engine.unseen_names(&wanted(&config).unwrap()).await.unwrap().len(), 1);

    ebb.apply(&config).await;
    let found = doctor(&ebb, &config).await;
    let found = found.iter().find(|found| found.evidence.contains("trigger note names user_log")).unwrap();
    let fix = serde_json::to_string(&found).unwrap();
    assert!(fix.contains("REVOKE CREATE ON SCHEMA \\\"public\\\" FROM creator;"), "{found:?}");
    // Whoever meets it all the same hears what helps, over SQL too.
    let refused = delete(&ebb, "1").await.unwrap_err();
    assert!(refused.is_refused() && refused.to_string().contains("\"user_log\" does not exist"), "{refused}");
    assert!(refused.to_string().contains("note()"), "it names whose trigger it is: {refused}");
    let hint = refused.hint().unwrap();
    assert!(hint.contains("search_path = pg_catalog, pg_temp") && hint.contains("ebb doctor"), "{hint}");
    ebb.db.execute("UPDATE users SET deleted_at = now() WHERE id = 3").await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    let refused = retain::restore(&mut tx, "users", "3", "test").await.unwrap_err();
    assert!(refused.is_refused() && refused.hint().is_some(), "{refused}");
    drop(tx);

    ebb.db.execute("REVOKE CREATE ON SCHEMA public FROM creator").await;
    assert_eq!(ebb.engine.unseen_names(&wanted(&config).unwrap()).await.unwrap().len(), 0);
    ebb.apply(&config).await;
    delete(&ebb, "1").await.unwrap();
    assert!(doctor(&ebb, &config).await.iter().all(|found| !found.evidence.contains("without a schema")));
}

#[tokio::test]
async fn a_wrong_id_is_the_callers_and_a_changed_table_is_not() {
    let ebb = Ebb::with(
        "CREATE DOMAIN code AS date CHECK (VALUE > '2000-01-01');
         CREATE TABLE users (id code PRIMARY KEY, deleted_at timestamptz); INSERT INTO users VALUES ('2026-01-01')",
    )
    .await;
    ebb.apply(&users("")).await;
    for wrong in ["soon", "2026-02-31", "1999-01-01", ""] {
        let error = delete(&ebb, wrong).await.unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("can have the id"), "{wrong}: {error}");
    }
    ebb.db.execute("ALTER TABLE users RENAME deleted_at TO gone_at").await;
    let error = delete(&ebb, "2026-01-01").await.unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("the table is not what policy users says"), "{error}");
    assert!(error.hint().unwrap().contains("ebb apply"), "{error:?}");
}

#[tokio::test]
async fn a_soft_delete_that_nobody_has_marked_yet_is_shown_with_its_date() {
    let ebb = Ebb::shop("").await;
    assert!(show(&ebb, "1").await.unmarked.is_none());
    ebb.db.execute("UPDATE users SET deleted_at = now() - interval '3 days' WHERE id < 3").await;
    let shown = show(&ebb, "1").await;
    let unmarked = shown.unmarked.expect("nobody has marked it");
    assert_eq!(unmarked.due_at.micros() - unmarked.deleted_at.micros(), 90 * 86_400_000_000, "{shown:?}");
    assert!(shown.deletion.is_none(), "{shown:?}");
    // A hold keeps marking away for as long as it lasts.
    ebb.db.execute("SELECT ebb.place_hold('users', '2', 'court')").await;
    ebb.once("users:mark").await;
    let (marked, held) = (show(&ebb, "1").await, show(&ebb, "2").await);
    assert!(marked.unmarked.is_none() && marked.deletion.unwrap().state == "pending");
    assert!(held.unmarked.is_some() && held.hold.is_some() && held.deletion.is_none(), "{held:?}");
    // Taken back, and deleted anew by the application: what was restored says nothing of it.
    ebb.db.execute("SELECT ebb.restore_subject('users', '1'); UPDATE users SET deleted_at = now() WHERE id = 1").await;
    let again = show(&ebb, "1").await;
    assert!(again.unmarked.is_some() && again.deletion.unwrap().state == "restored");
}

#[tokio::test]
async fn doctor_tells_a_disabled_policy_from_one_that_left_the_file() {
    let ebb = Ebb::shop("").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    let stranded = async |config: &str| {
        ebb.apply(config).await;
        let found = doctor(&ebb, config).await;
        let found = found.into_iter().find(|found| found.evidence.contains("1 open deletion")).unwrap();
        (found.evidence, format!("{:?}", found.fix))
    };
    let (evidence, fix) = stranded(&users("enabled = false")).await;
    assert!(evidence.starts_with("it is disabled"), "{evidence}");
    assert!(fix.contains("ebb policy set users enabled=true"), "{fix}");
    ebb.apply(&users("")).await;
    let (evidence, fix) = stranded("").await;
    assert!(evidence.starts_with("it is not in the file any more"), "{evidence}");
    assert!(fix.contains("put it back into the file"), "{fix}");
}
