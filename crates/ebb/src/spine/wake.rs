//! Waking a sleeping node: LISTEN where a session can be had, the tick everywhere else. Invariant: nothing depends on a
//! NOTIFY arriving; it only makes things sooner.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use super::{ANSWER_WITHIN, Shutdown};
use crate::control::CHANNEL;
use crate::pg::{Database, answered};
use crate::{Error, Result};

/// How long a NOTIFY to oneself may take before LISTEN counts as not working (a transaction pooler swallows it).
const ECHO_WITHIN: Duration = Duration::from_secs(2);

/// How long nothing may be heard before the connection is tried: one that was lost without a word stays silent.
const QUIET_FOR: Duration = Duration::from_secs(30);

/// How long to look only, before NOTIFY is tried again.
const DEAF_FOR: Duration = Duration::from_secs(60);
/// The longest between two tries to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Who is woken by which channel.
pub(crate) type Bells = Vec<(&'static str, Arc<Notify>)>;

/// Listens until shutdown, reconnecting by itself; says through `hears` whether NOTIFY gets through. Whoever waits is
/// woken, too, when that changes: what was said in between is seen by looking.
pub(crate) async fn listen(database: Database, bells: Bells, hears: watch::Sender<bool>, shutdown: Shutdown) {
    let mut pause = Duration::from_millis(200);
    let mut told = false;
    loop {
        let heard = tokio::select! {
            () = shutdown.stopping() => return,
            heard = listen_once(&database, &bells, &hears) => heard,
        };
        hears.send_replace(false);
        match heard {
            Ok(()) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::info!(
                        "NOTIFY does not get through to this node; looking every second instead. \
                        [database] direct_url is the way past a transaction pooler"
                    );
                }
                // A pooler stays one, but it may also have been a bad moment.
                pause = DEAF_FOR;
            }
            Err(error) => tracing::debug!(error = %error, "Lost the listening connection"),
        }
        if shutdown.sleep(pause).await {
            return;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Returns `Ok` when the connection is fine and NOTIFY does not arrive on it.
async fn listen_once(database: &Database, bells: &Bells, hears: &watch::Sender<bool>) -> Result<()> {
    // LISTEN behind a transaction pooler would stay with a process that serves others, and reach them.
    if !answered(ANSWER_WITHIN, database.has_sessions()).await? {
        return Ok(());
    }
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(database.session_options("ebb/listen"));
    let mut listener = answered(ANSWER_WITHIN, async {
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.listen_all(bells.iter().map(|(channel, _)| *channel)).await?;
        Ok(listener)
    })
    .await?;
    if !echoes(database, &mut listener).await? {
        return Ok(());
    }
    hears.send_replace(true);
    bells.iter().for_each(|(_, bell)| bell.notify_one());
    loop {
        match tokio::time::timeout(QUIET_FOR, listener.try_recv()).await {
            // None means the connection was lost and made again: what was said meanwhile is seen by looking.
            Ok(heard) => {
                let heard = heard?;
                let said = |channel: &str| heard.as_ref().is_none_or(|heard| heard.channel() == channel);
                bells.iter().filter(|(channel, _)| said(channel)).for_each(|(_, bell)| bell.notify_one());
            }
            // Whatever was said while the echo was waited for is looked for.
            Err(_) if echoes(database, &mut listener).await? => bells.iter().for_each(|(_, bell)| bell.notify_one()),
            Err(_) => return Err(Error::unavailable("the listening connection does not answer")),
        }
    }
}

async fn echoes(database: &Database, listener: &mut PgListener) -> Result<bool> {
    let word = Uuid::new_v4().to_string();
    answered(ANSWER_WITHIN, async {
        let mut tx = database.read().await?;
        sqlx::query("SELECT pg_notify($1, $2)").persistent(false).bind(CHANNEL).bind(&word).execute(&mut *tx).await?;
        Ok(tx.commit().await?)
    })
    .await?;
    let heard = tokio::time::timeout(ECHO_WITHIN, async {
        loop {
            if listener.recv().await?.payload() == word {
                return Ok::<_, sqlx::Error>(());
            }
        }
    });
    match heard.await {
        Ok(result) => result.map(|()| true).map_err(Into::into),
        Err(_) => Ok(false),
    }
}
