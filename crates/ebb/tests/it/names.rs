//! Names that need quoting simply work, in every place where a name goes.

use crate::harness::{Ebb, succeeded};

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
        ("t2", "at"),
        ("s.t2", "at"),
    ] {
        let config = format!("[[expire]]\nname = \"t\"\ntable = {}\ncolumn = {}", toml(table), toml(column));
        ebb.try_apply(&config).await.unwrap_or_else(|error| panic!("{table}: {error}"));
    }
    // As it is written comes before as it is folded.
    ebb.db.execute("CREATE TABLE \"T\" (id int, other int)").await;
    let error = ebb.try_apply("[[expire]]\nname = \"t\"\ntable = \"T\"\ncolumn = \"at\"").await.unwrap_err();
    assert!(error.to_string().contains("public.\"T\" has no column at"), "{error}");
    // Two schemas and none of them public: it must be said which.
    ebb.db.execute("CREATE SCHEMA r; CREATE TABLE r.t2 (id int, at timestamptz)").await;
    let error = ebb.try_apply("[[expire]]\nname = \"t\"\ntable = \"t2\"\ncolumn = \"at\"").await.unwrap_err();
    assert!(error.to_string().contains("could be any of"), "{error}");
}
