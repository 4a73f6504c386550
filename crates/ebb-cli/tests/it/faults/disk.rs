//! A disk that is full: the run fails with the server's words, comes back by itself, and ends well when there is space.

use std::path::PathBuf;
use std::process::Command;

use ebb_testkit::{TempDir, database, eventually};
use serde_json::json;

use super::{SOON, apply, assert_accounted_for, due, insert_due, ledger_table, node, stop};

/// A file system of a few megabytes, where this process may mount one.
pub(crate) struct SmallDisk(pub(crate) PathBuf, #[expect(dead_code, reason = "goes away with the mount")] TempDir);

impl SmallDisk {
    pub(crate) fn mount(owner: &str) -> Option<Self> {
        let dir = TempDir::new();
        let path = dir.path().join("disk");
        std::fs::create_dir(&path).ok()?;
        let run = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        if !run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m,mode=0700", "none"]).arg(&path)) {
            return None;
        }
        let disk = Self(path, dir);
        run(Command::new("chown").arg(owner).arg(&disk.0)).then_some(disk)
    }

    /// Gives it more room.
    pub(crate) fn grow(&self) {
        let grown = Command::new("mount").args(["-o", "remount,size=256m"]).arg(&self.0).status();
        assert!(grown.unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_fails_the_run_and_space_brings_it_back() {
    let user = ebb::pg::binaries::server_user().unwrap();
    let Some(disk) = user.and_then(|user| SmallDisk::mount(&format!("{}:{}", user.uid, user.gid))) else {
        println!("not run: a small file system can only be mounted as root");
        return;
    };
    let db = database().await;
    let space = format!("small_{}", std::process::id());
    db.execute(&format!("CREATE TABLESPACE {space} LOCATION '{}'", disk.0.display())).await;
    // The ledger is on the small disk: a deletion that cannot be written down there does not happen.
    ledger_table(&db, "full", "").await;
    db.execute(&format!("ALTER TABLE public.full_gone SET TABLESPACE {space}; CREATE TABLE public.ballast (filler text) TABLESPACE {space}")).await;
    insert_due(&db, "full", 20_000).await;
    let fill =
        sqlx::query("INSERT INTO public.ballast SELECT repeat(md5(n::text), 30) FROM generate_series(1, 2000) AS n");
    fill.execute(db.pool()).await.unwrap();
    while sqlx::query("INSERT INTO public.ballast SELECT repeat(md5(n::text), 30) FROM generate_series(1, 100) AS n")
        .execute(db.pool())
        .await
        .is_ok()
    {}
    let policy = json!({ "table": "full", "column": "expires_at", "every": "1s", "brake": { "share": 1.0 } });
    apply(&db, &[("full", policy)]).await;
    let node = node("full", db.url());
    let failed =
        "SELECT count(*) FROM ebb.run WHERE policy = 'full' AND status = 'failed' AND error LIKE '%No space left%'";
    eventually(SOON, || async { db.scalar::<i64>(failed).await >= 2 }).await;
    assert!(due(&db, "full").await > 0);
    db.execute("DROP TABLE public.ballast").await;
    eventually(SOON, || async { due(&db, "full").await == 0 }).await;
    stop(node).await;
    assert_accounted_for(&db, "full", "full").await;
    db.execute("DROP TABLE public.full_gone").await;
    db.execute(&format!("DROP TABLESPACE {space}")).await;
}
