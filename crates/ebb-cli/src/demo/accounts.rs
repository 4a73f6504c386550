//! The demo's story of twelve deleted accounts: each is warned, one person changes her mind by the link in the warning, a
//! court holds one, the others are erased with a receipt each. Invariant: what it tells it has counted.

use std::time::Instant;

use ebb::audit::{self, TrustedKeys};
use ebb::{Error, Result, control};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::store::{self, Deletions};
use super::{DIR, Demo, LOOK_EVERY, PATIENCE};
use crate::cli::output;

/// How many deleted their account; `sql/accounts.sql` makes them, among forty.
const DELETED: i64 = 12;
const ACCOUNTS: i64 = 40;

impl Demo<'_> {
    /// Plays the story; false when it was stopped in the middle of it.
    pub(super) async fn accounts(&self, address: &str) -> Result<bool> {
        let database = self.context.engine.database();
        if !self.until(|seen| seen.warned == DELETED - 1).await? {
            return Ok(false);
        }
        say!("accounts: {} people heard that their account will be erased; a court holds one more", DELETED - 1);
        let token = self.context.engine.link_token(store::link(database, "1").await?)?;
        let answer = post(address, &format!("/restore/{token}")).await?;
        if !answer.starts_with("HTTP/1.1 200") {
            return Err(Error::failed(format!("the restore link answered {answer:?}")));
        }
        say!("accounts: one changed her mind, opened the link and pressed the button: her account is back");
        // What was promised in days elsewhere is three seconds here.
        if !self.until(|seen| seen.over).await? {
            return Ok(false);
        }
        let mut tx = database.read().await?;
        control::trigger(&mut tx, "accounts", Some("erase"), "demo").await?;
        tx.commit().await?;
        if !self.until(|seen| seen.erased == DELETED - 2).await? {
            return Ok(false);
        }
        let seen = store::deletions(database).await?;
        say!("accounts: {} erased, {} rows of three tables with them", seen.erased, output::count(seen.rows));
        Ok(true)
    }

    /// Waits until the deletions stand like that.
    async fn until(&self, stand: impl Fn(&Deletions) -> bool) -> Result<bool> {
        let begun = Instant::now();
        loop {
            let seen = store::deletions(self.context.engine.database()).await?;
            if stand(&seen) {
                return Ok(true);
            }
            if self.shutdown.is_stopping() {
                return Ok(false);
            }
            if begun.elapsed() > PATIENCE {
                return Err(Error::failed(format!("the deleted accounts do not come to their end: {seen:?}"))
                    .with_hint("EBB_LOG_LEVEL=info shows what the node does"));
            }
            self.shutdown.sleep(LOOK_EVERY).await;
        }
    }

    /// Verifies the receipt of every erased account without the database's word for it, and tells how the story ended. What
    /// does not add up comes back.
    pub(super) async fn accounts_told(&self) -> Result<Vec<String>> {
        let database = self.context.engine.database();
        let seen = store::deletions(database).await?;
        let keys = TrustedKeys::beside(&std::path::Path::new(DIR).join("ebb-audit.key"))?;
        let mut verified = 0_i64;
        for record in store::erasures(database).await? {
            let mut tx = database.read().await?;
            verified += i64::from(audit::receipt(&mut tx, record).await?.verify(&keys).is_ok());
        }
        say!(
            "accounts: of {DELETED} deleted ones {} erased, {} restored by its link, {} on hold; {verified} receipts verify",
            seen.erased,
            seen.restored,
            seen.held
        );
        let expected = (DELETED - 2, 1, 1, DELETED - 2, ACCOUNTS - (DELETED - 2));
        let counted = (seen.erased, seen.restored, seen.held, verified, seen.accounts);
        Ok(match counted == expected {
            true => Vec::new(),
            false => vec![format!("accounts: {counted:?}, and it should be {expected:?}")],
        })
    }
}

/// What a browser sends when somebody presses the button; the answer's first line.
async fn post(address: &str, path: &str) -> Result<String> {
    let failed = |error: std::io::Error| Error::failed(format!("the node does not answer: {error}"));
    let mut stream = TcpStream::connect(address).await.map_err(failed)?;
    let request = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.map_err(failed)?;
    Ok(String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned())
}
