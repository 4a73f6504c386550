//! Claims of callers that come together share a transaction: one round trip and one commit for all of them, where each on its
//! own would take its own. Invariants: an outcome handed out is committed; nobody waits for a lock that somebody else's claim
//! needs: where a shared transaction would wait, or fails, its claims are made one by one.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Row;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::{Claim, Once, unknown_outcome};
use crate::pg::{Database, Warm};
use crate::token::Credential;
use crate::{Error, Result};

/// A transaction that takes no longer is waited for: whoever comes meanwhile shares the next one, which costs the server least.
/// One that takes longer waits for a lock or for the disk, and the next one goes past it.
const PATIENCE: Duration = Duration::from_millis(4);
/// Transactions at a time.
const LANES: usize = 8;
/// At most so many claims in one.
const MOST: usize = 256;
/// How many may wait for their turn before callers are held up.
const WAITING: usize = 4_096;
/// How long a shared transaction waits for a key that somebody holds.
const LOCK_WAIT_MS: u32 = 20;
/// No answer takes longer.
const WITHIN: Duration = Duration::from_secs(15);

/// Where callers hand in their claims. Cheap to clone; ends with its last clone.
#[derive(Debug, Clone)]
pub struct Shared {
    desk: mpsc::Sender<Asked>,
}

#[derive(Debug)]
struct Asked {
    claim: Value,
    answer: oneshot::Sender<Answer>,
}

#[derive(Debug)]
enum Answer {
    Outcome(String, Option<Value>),
    /// Nothing was claimed: the token that it names may not.
    Refused,
    /// Nothing was claimed: it has to be tried on its own.
    Alone,
    /// Nobody knows whether it was.
    Lost(String),
}

impl Shared {
    /// Needs a runtime.
    pub fn new(database: Database) -> Self {
        let (desk, asked) = mpsc::channel(WAITING);
        tokio::spawn(work(asked, Arc::new(Warm::new(database))));
        Self { desk }
    }

    async fn ask(&self, claim: Value) -> Answer {
        let (answer, answered) = oneshot::channel();
        match self.desk.send(Asked { claim, answer }).await {
            Ok(()) => answered.await.unwrap_or_else(|_| Answer::Lost("the claim was dropped".into())),
            Err(_) => Answer::Alone,
        }
    }
}

impl Once {
    /// Claims a key together with whatever else is claimed at this moment.
    pub async fn claim_with(&self, shared: &Shared, key: &str) -> Result<Claim> {
        let Some(claim) = self.ordinary(key) else { return self.claim(key).await };
        match self.shared(shared, claim).await? {
            Some(claim) => Ok(claim),
            None => self.claim(key).await,
        }
    }

    /// The same for whoever presents a token: it is checked where the claim is made, in one round trip, and nothing is claimed
    /// unless it may do what applications do. `None` where that has to be asked, and claimed, one after the other.
    pub async fn claim_by(&self, shared: &Shared, by: &Credential, key: &str) -> Result<Option<Claim>> {
        let Credential::Token { id, hash } = by else { return Ok(None) };
        let Some(mut claim) = self.ordinary(key) else { return Ok(None) };
        claim["token"] = json!(id);
        claim["hash"] = json!(hex::encode(hash));
        self.shared(shared, claim).await
    }

    async fn shared(&self, shared: &Shared, claim: Value) -> Result<Option<Claim>> {
        match shared.ask(claim).await {
            Answer::Alone | Answer::Refused => Ok(None),
            Answer::Lost(error) => Err(Error::unavailable(error)),
            Answer::Outcome(outcome, result) => Ok(Some(self.count(match outcome.as_str() {
                "first" => Claim::First,
                "duplicate" => Claim::Duplicate { result },
                "in_progress" => Claim::InProgress,
                "mismatch" => Claim::Mismatch,
                other => return Err(unknown_outcome(other)),
            }))),
        }
    }

    /// A claim that the database will not refuse: one that it does would cost all others of its transaction.
    fn ordinary(&self, key: &str) -> Option<Value> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        let named = (1..=63).contains(&self.namespace.len()) && self.namespace.bytes().all(plain);
        let fits = (1..=1024).contains(&key.len()) && !key.contains('\0');
        // A hundred years: anything above is looked at on its own.
        let ttl = self.ttl.map(|ttl| ttl.as_micros());
        let lasts = ttl.is_none_or(|ttl| (1..=3_153_600_000_000_000).contains(&ttl));
        let fingerprint = self.fingerprint.as_ref().map(hex::encode);
        (named && fits && lasts).then(|| {
            let ttl = ttl.and_then(|ttl| u64::try_from(ttl).ok());
            json!({ "namespace": self.namespace, "key": key, "ttl": ttl, "fingerprint": fingerprint })
        })
    }
}

/// Takes what waits, decides it, and looks again, until nobody can ask any more.
async fn work(mut asked: mpsc::Receiver<Asked>, warm: Arc<Warm>) {
    let lanes = Arc::new(Semaphore::new(LANES));
    while let Ok(lane) = lanes.clone().acquire_owned().await {
        let mut batch = Vec::new();
        if asked.recv_many(&mut batch, MOST).await == 0 {
            return;
        }
        let warm = warm.clone();
        let deciding = tokio::spawn(async move {
            answer(&warm, batch).await;
            drop(lane);
        });
        let _ = tokio::time::timeout(PATIENCE, deciding).await;
    }
}

/// Decides claims in one transaction, and tells each caller.
async fn answer(warm: &Warm, batch: Vec<Asked>) {
    let (claims, callers): (Vec<Value>, Vec<_>) = batch.into_iter().map(|asked| (asked.claim, asked.answer)).unzip();
    let mut answers: Vec<Answer> = match decide(warm, &claims).await {
        Ok(answers) => answers,
        Err(error) if error.sqlstate().is_some() => Vec::new(),
        Err(error) => claims.iter().map(|_| Answer::Lost(error.to_string())).collect(),
    };
    answers.resize_with(claims.len(), || Answer::Alone);
    for (caller, answer) in callers.into_iter().zip(answers) {
        let _ = caller.send(answer);
    }
}

async fn decide(warm: &Warm, claims: &[Value]) -> Result<Vec<Answer>> {
    let claims_hex = hex::encode(serde_json::to_vec(claims).map_err(|error| Error::failed(error.to_string()))?);
    let sql = format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {LOCK_WAIT_MS}; SET LOCAL statement_timeout = '10s'; \
         SELECT e.outcome, e.result FROM ebb.once_each(pg_catalog.convert_from('\\x{claims_hex}', 'UTF8')::pg_catalog.jsonb) AS e ORDER BY e.place"
    );
    let rows = warm.send(WITHIN, sql).await?;
    rows.iter()
        .map(|row| {
            let outcome: Option<String> = row.try_get(0)?;
            Ok(match outcome {
                Some(outcome) => Answer::Outcome(outcome, row.try_get(1)?),
                None => Answer::Refused,
            })
        })
        .collect()
}
