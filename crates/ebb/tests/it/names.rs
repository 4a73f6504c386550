//! Names that need quoting simply work, in every place where a name goes.

use crate::harness::{Ebb, run_once, succeeded};

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn toml(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The same name with another first letter.
fn first_as(letter: char, name: &str) -> String {
    std::iter::once(letter).chain(name.chars().skip(1)).collect()
}

fn names() -> Vec<String> {
    let mut names: Vec<String> = [
        "with space",
        "with.dot",
        "with\"quote",
        "it's",
        "MixedCase",
        "grün_日本語",
        "semi;colon--",
        "$1",
        "%s{}",
        "back\\slash",
        "select",
        "a\"; DROP TABLE t; --",
        " edges ",
        "/*",
    ]
    .map(str::to_owned)
    .into();
    names.push("n".repeat(63));
    names.push(format!("{}x", "ü".repeat(31)));
    names
}

#[tokio::test]
async fn any_name_of_schema_table_and_column_works() {
    let ebb = Ebb::new().await;
    for name in names() {
        let (schema, table, column, status) = (first_as('S', &name), name.clone(), name.clone(), first_as('2', &name));
        let relation = format!("{}.{}", quoted(&schema), quoted(&table));
        let column_sql = quoted(&column);
        ebb.db
            .execute(&format!(
                "CREATE SCHEMA {schema_sql};
                 CREATE TABLE {relation} (id int PRIMARY KEY, {column_sql} timestamptz, {status} text DEFAULT 'open');
                 CREATE INDEX ON {relation} ({column_sql});
                 INSERT INTO {relation} SELECT n, now() - n * interval '1 minute' FROM generate_series(1, 20) n;
                 INSERT INTO {relation} SELECT 100 + n, now() + n * interval '1 minute' FROM generate_series(1, 20) n",
                schema_sql = quoted(&schema),
                status = quoted(&status),
            ))
            .await;
        let config = |more: &str| {
            format!(
                "[[expire]]\nname = \"t\"\ntable = {}\ncolumn = {}\nbrake = {{ share = \"off\" }}\n\
                 batch = {{ rows = 6, pause = \"0s\" }}\naudit = \"rows\"\n{more}",
                toml(&relation),
                toml(&column)
            )
        };
        // Set by name, filtered by name, then deleted.
        ebb.apply(&config(&format!("action = {{ set = {{ {} = \"'gone'\" }} }}", toml(&status)))).await;
        succeeded(&ebb.again().await, 20);
        ebb.apply(&config(&format!("where = {}", toml(&format!("{} = 'gone' AND id <> 7", quoted(&status)))))).await;
        succeeded(&ebb.again().await, 19);
        assert_eq!(ebb.list("id", &format!("{relation} WHERE id < 100")).await, "7", "{name:?}");
        let live: i64 = ebb.db.scalar(&format!("SELECT count(*) FROM {relation}")).await;
        assert_eq!(live, 21, "{name:?}");
    }
}

#[tokio::test]
async fn a_name_may_be_typed_as_people_type_it() {
    let ebb = Ebb::with(
        "CREATE TABLE t (id int, at timestamptz); CREATE TABLE \"My.Table\" (id int, \"At\" timestamptz);
         CREATE SCHEMA s; CREATE TABLE s.t2 (id int, at timestamptz)",
    )
    .await;
    for (table, column) in [
        ("t", "at"),
        ("T", "AT"),
        ("public.t", "at"),
        ("PUBLIC.T", "at"),
        ("\"public\".\"t\"", "at"),
        ("My.Table", "At"),
        ("public.My.Table", "At"),
        ("\"My.Table\"", "At"),
        ("s.t2", "at"),
        ("S.T2", "at"),
    ] {
        let config = format!("[[expire]]\nname = \"t\"\ntable = {}\ncolumn = {}", toml(table), toml(column));
        ebb.try_apply(&config).await.unwrap_or_else(|error| panic!("{table}: {error}"));
    }
    // As it is written comes before as it is folded.
    ebb.db.execute("CREATE TABLE \"T\" (id int, other int)").await;
    let error = ebb.try_apply("[[expire]]\nname = \"t\"\ntable = \"T\"\ncolumn = \"at\"").await.unwrap_err();
    assert!(error.to_string().contains("public.\"T\" has no column at"), "{error}");
}

#[tokio::test]
async fn a_name_without_a_schema_means_public_and_nothing_else() {
    let ebb = Ebb::with(
        "CREATE SCHEMA app; CREATE TABLE app.events (id int PRIMARY KEY, at timestamptz);
         CREATE SCHEMA \"Old\"; CREATE TABLE public.logs (id int PRIMARY KEY, at timestamptz);
         INSERT INTO public.logs VALUES (1, now() - interval '1 day')",
    )
    .await;
    let refused = |error: ebb::Error| (error.to_string(), error.hint().unwrap_or_default().to_owned());
    let expire = |table: &str| format!("[[expire]]\nname = \"t\"\ntable = {}\ncolumn = \"at\"\n", toml(table));
    for typed in ["events", "Events", "\"events\""] {
        let (said, hint) = refused(ebb.try_apply(&expire(typed)).await.unwrap_err());
        assert_eq!(
            (said.as_str(), hint.as_str()),
            (&*format!("policy t: there is no table {typed} in schema public"), "write app.events")
        );
    }
    ebb.db.execute("CREATE TABLE \"Old\".events (id int)").await;
    let (_, hint) = refused(ebb.try_apply(&expire("events")).await.unwrap_err());
    assert_eq!(hint, "write which: \"Old\".events, app.events");
    ebb.apply(&expire("app.events")).await;

    // A child of a tree, and a command.
    ebb.db
        .execute("CREATE TABLE users (id int PRIMARY KEY, deleted_at timestamptz); CREATE TABLE app.notes (owner int)")
        .await;
    let child = "children = [{ table = \"notes\", column = \"owner\", references = \"id\", action = \"delete\" }]";
    let users = format!(
        "[[retain]]\nname = \"users\"\ntable = \"users\"\ndeleted_at = \"deleted_at\"\ngrace = \"90d\"\n{child}"
    );
    let (said, hint) = refused(ebb.try_apply(&users).await.unwrap_err());
    assert!(said.ends_with("there is no table notes in schema public") && hint == "write app.notes", "{said} / {hint}");
    for (typed, found) in [
        ("events", "none"),
        ("logs", "logs"),
        ("LOGS", "logs"),
        ("app.events", "app.events"),
        ("Old.events", "\"Old\".events"),
    ] {
        let asked = format!("SELECT COALESCE(ebb.policy_table('{typed}')::regclass::text, 'none')");
        assert_eq!(ebb.db.scalar::<String>(&asked).await, found, "{typed}");
    }

    // It goes elsewhere, and the policy does not follow it there by itself.
    ebb.apply(&expire("logs")).await;
    ebb.db.execute("ALTER TABLE public.logs SET SCHEMA \"Old\"").await;
    let ended = run_once(&ebb.engine, &["t"]).await.unwrap();
    assert!(ended.runs.is_empty() && ended.stopped[0].0 == "t", "{ended:?}");
    assert_eq!(ebb.list("id", "\"Old\".logs").await, "1");
    let why: String = ebb.db.scalar("SELECT stopped FROM ebb.policy WHERE name = 't'").await;
    assert!(why.contains("there is no table logs in schema public"), "{why}");
}
