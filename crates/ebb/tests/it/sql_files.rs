//! Every query file is prepared by a real server, so that a wrong one cannot land.

use std::path::{Path, PathBuf};

use ebb_testkit::database;
use sqlx::{AssertSqlSafe, Executor, SqlSafeStr};

/// The files below a directory of src whose names end so.
fn files(dir: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|is| is == extension) {
            found.push(path);
        }
    }
}

fn sources(extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), extension, &mut found);
    found
}

#[tokio::test]
async fn every_query_file_is_understood_by_the_server() {
    let files = sources("sql");
    assert!(files.len() > 40, "{files:?}");
    let db = database().await;
    let mut wrong = Vec::new();
    for file in files {
        let sql = std::fs::read_to_string(&file).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if !sql.starts_with("-- ") {
            wrong.push(format!("{name} does not open with what it is for"));
        }
        let mut tx = db.open().read().await.unwrap();
        if let Err(error) = tx.prepare(AssertSqlSafe(sql).into_sql_str()).await {
            wrong.push(format!("{name}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A prepared statement stays with the pooler's server process, where the next one has the same name.
#[test]
fn no_statement_is_prepared_under_a_name() {
    let mut named = Vec::new();
    for file in sources("rs") {
        let source = std::fs::read_to_string(&file).unwrap();
        let code = source.split("#[cfg(test)]").next().unwrap();
        for (at, _) in code.match_indices("sqlx::query") {
            let sent = code[at..].find(".fetch").into_iter().chain(code[at..].find(".execute")).min();
            if sent.is_some_and(|sent| !code[at..at + sent].contains(".persistent(false)")) {
                named.push(format!("{}:{}", file.display(), code[..at].matches('\n').count() + 1));
            }
        }
    }
    assert!(named.is_empty(), "{named:#?}");
}

/// A label has quotes where SQL needs them: `ebb.relation_label`, or schema and name apart and [`ebb::pg::Relation`].
#[test]
fn no_query_makes_a_label_by_hand() {
    let mut files = sources("sql");
    let by_hand = |sql: &str| {
        let dense: String = sql.chars().filter(|c| !c.is_whitespace()).collect();
        dense.contains("||'.'||")
    };
    files.retain(|file| by_hand(&std::fs::read_to_string(file).unwrap()));
    assert!(files.is_empty(), "{files:#?}");
}
