//! The last look before a call: whether somebody still wants what is about to be sent. Of an event about a person that is asked before
//! every call, of others once they have waited for a while. Invariant: a call of an event that was asked about starts only after an
//! answer that is younger than its turn; while a question is at the server the next ones gather, so that many cost one.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::claims::Held;
use crate::Result;
use crate::pg::{Database, answered};
use crate::schedule::store::{self, Claimed};
use crate::spine::ANSWER_WITHIN;

/// What was claimed so lately is as it was claimed.
const FRESH: Duration = Duration::from_secs(1);
/// The most that one question is about.
const MOST: usize = 1_000;
/// Where nobody answers, whoever asks again waits for so long.
const PAUSE: Duration = Duration::from_millis(500);

type Question = (Uuid, i64, oneshot::Sender<bool>);

/// Where calls ask.
#[derive(Clone)]
pub(super) struct Asker(mpsc::UnboundedSender<Question>);

impl Asker {
    /// Answers until the last one who could ask is gone.
    pub(super) fn new(database: Database) -> Self {
        let (sender, questions) = mpsc::unbounded_channel();
        tokio::spawn(answer(database, questions));
        Self(sender)
    }

    /// Whether an event is still wanted; `None` when nobody could say.
    pub(super) async fn wants(&self, event: &Claimed) -> Option<bool> {
        let (sender, answer) = oneshot::channel();
        self.0.send((event.id, event.token, sender)).ok()?;
        answer.await.ok()
    }
}

/// From when on an event is asked about before it is sent.
pub(super) fn ask_from(event: &Claimed, held: &Held) -> Instant {
    if event.of_subject { held.claimed_at } else { held.claimed_at + FRESH }
}

async fn answer(database: Database, mut questions: mpsc::UnboundedReceiver<Question>) {
    let mut asked = Vec::new();
    while questions.recv_many(&mut asked, MOST).await > 0 {
        let claims: Vec<(Uuid, i64)> = asked.iter().map(|(id, token, _)| (*id, *token)).collect();
        match answered(ANSWER_WITHIN, look(&database, &claims)).await {
            Ok(wanted) => {
                for (id, _, answer) in asked.drain(..) {
                    let _ = answer.send(wanted.contains(&id));
                }
            }
            Err(error) => {
                super::complain(&error, "Could not look whether events are still wanted");
                asked.clear();
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn look(database: &Database, claims: &[(Uuid, i64)]) -> Result<HashSet<Uuid>> {
    let mut tx = database.read().await?;
    let wanted = store::wanted(&mut tx, claims).await?;
    tx.commit().await?;
    Ok(wanted.into_iter().collect())
}
