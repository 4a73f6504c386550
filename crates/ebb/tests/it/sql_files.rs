//! Every query file is prepared by a real server, so that a wrong one cannot land.

use std::path::{Path, PathBuf};

use ebb_testkit::database;
use sqlx::{AssertSqlSafe, Executor, SqlSafeStr};

fn sql_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sql_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "sql") {
            found.push(path);
        }
    }
}

#[tokio::test]
async fn every_query_file_is_understood_by_the_server() {
    let mut files = Vec::new();
    sql_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
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
