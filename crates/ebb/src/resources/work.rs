//! resources as the spine sees it: the holders of the installation, and for each policy a dropper and a sweeper.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use sqlx::PgConnection;

use super::driver::Driver;
use super::dropper::{self, Dropper};
use super::holders::Holders;
use super::removal::Removal;
use super::store;
use super::sweeper::{self, Listing, Sweeper};
use crate::pg::Database;
use crate::policy::{BatchSize, Mode, Resources, Stored, human};
use crate::spine::brake;
use crate::spine::pacing::Pacer;
use crate::spine::unit::{ChoreKind, Unit};
use crate::spine::work::{Prepared, Status, Summary, Work};
use crate::words::plural;
use crate::{Error, Result};

/// How often dead holders are looked for.
const HOLDERS_EVERY: Duration = Duration::from_secs(5);
/// Resources in a batch, unless the policy says otherwise.
const AT_ONCE: u64 = 100;
/// The longest that a statement of the holders' pass may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// However much there is to do, a unit rests so long between two passes.
const AT_LEAST: Duration = Duration::from_secs(1);

/// The units of a policy. A driver that cannot be opened on this node is told by the runs that need it.
pub(crate) fn works(policy: Resources, stored: &Stored, database: &Database, table: u32) -> Vec<Arc<dyn Work>> {
    let policy = Arc::new(policy);
    let driver = Arc::new(super::driver::open(&policy, database));
    [ChoreKind::Drop, ChoreKind::Sweep]
        .into_iter()
        .map(|chore| {
            let leaf = match driver.as_ref() {
                Ok(driver) => driver.location(),
                Err(_) => policy.place.driver().to_owned(),
            };
            let unit = Unit { chore, policy: stored.name.clone(), leaf };
            Arc::new(ResourceWork {
                unit,
                policy: policy.clone(),
                stored: stored.clone(),
                driver: driver.clone(),
                table,
                soonest: Arc::default(),
            }) as Arc<dyn Work>
        })
        .collect()
}

/// A policy's dropper or sweeper.
struct ResourceWork {
    unit: Unit,
    policy: Arc<Resources>,
    stored: Stored,
    driver: Arc<Result<Arc<dyn Driver>>>,
    table: u32,
    soonest: Arc<Mutex<Option<Timestamp>>>,
}

impl ResourceWork {
    fn driver(&self) -> Result<Arc<dyn Driver>> {
        match self.driver.as_ref() {
            Ok(driver) => Ok(driver.clone()),
            // Another node may have what is missing here: the run fails, the policy goes on.
            Err(error) => {
                let refused = Error::refused(error.to_string());
                Err(match error.hint() {
                    Some(hint) => refused.with_hint(hint),
                    None => refused,
                })
            }
        }
    }

    async fn start(&self, connection: &mut PgConnection) -> Result<Prepared> {
        let driver = self.driver()?;
        let removal = Removal::new(self.policy.clone(), driver.clone());
        let (name, grace) = (self.stored.name.as_str(), self.policy.grace);
        let pacer = match self.policy.batch {
            BatchSize::Fixed { rows, pause } => Pacer::fixed(rows, pause),
            BatchSize::Adaptive => Pacer::fixed(AT_ONCE, Duration::ZERO),
        };
        if self.unit.chore == ChoreKind::Sweep {
            let installation = store::installation(connection).await?;
            let known = store::store_of(connection, name).await?.ok_or_else(|| super::unregistered(name))?;
            let here = super::confirmed_for(&driver.location(), &installation);
            let chore = Box::new(Sweeper {
                policy: self.policy.clone(),
                driver,
                removal,
                installation: installation.id,
                generation: known.generation,
                confirmed: known.confirmed_for.as_deref() == Some(here.as_str()),
                now: store::now(connection).await?,
                phase: sweeper::Phase::Ask,
                listing: Listing::default(),
            });
            return Ok(Prepared::Go { chore, pacer, due: None });
        }
        if self.policy.mode == Mode::Observe {
            let due = store::would_drop(connection, name, grace).await?;
            let note = format!("{} would go; mode = \"observe\" drops nothing", plural(due, "resource"));
            return Ok(match due {
                0 => Prepared::Idle,
                _ => Prepared::Ended { status: Status::Observed, due, note },
            });
        }
        if !store::anything(connection, name, grace).await? {
            *self.soonest.lock().unwrap_or_else(PoisonError::into_inner) =
                store::soonest(connection, name, grace).await?;
            return Ok(Prepared::Idle);
        }
        let weight = store::weigh(connection, name, grace).await?;
        if let Some(asks) = brake::check(connection, name, &self.policy.brake, weight, "resources").await? {
            return Ok(asks);
        }
        let (policy, phase, soonest) = (self.policy.clone(), dropper::Phase::Condemn, self.soonest.clone());
        let chore = Box::new(Dropper { policy, removal, phase, soonest });
        Ok(Prepared::Go { chore, pacer, due: None })
    }

    async fn look_after(&self, database: &Database, summary: &Summary) -> Result<()> {
        if summary.rows > 0 && self.unit.chore == ChoreKind::Drop {
            let mut tx = database.read().await?;
            brake::spend(&mut tx, &self.unit.policy, summary.rows).await?;
            tx.commit().await?;
        }
        Ok(())
    }
}

impl Work for ResourceWork {
    fn unit(&self) -> &Unit {
        &self.unit
    }

    fn stored(&self) -> Option<&Stored> {
        Some(&self.stored)
    }

    fn leaf(&self) -> u32 {
        self.table
    }

    fn timeout(&self) -> Duration {
        self.policy.batch_timeout
    }

    fn interval(&self) -> Duration {
        match self.unit.chore {
            ChoreKind::Sweep => self.policy.sweep_every,
            _ => self.policy.drop_every,
        }
    }

    fn closed_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.policy.window.as_ref()?.closed_until(now, self.policy.zone.rules())
    }

    fn next_at(&self, now: Timestamp, _: u64) -> Timestamp {
        let later = |after: Duration| now.saturating_add(after).unwrap_or(Timestamp::MAX);
        let mut next = later(self.interval());
        if self.unit.chore == ChoreKind::Drop
            && let Some(soonest) = *self.soonest.lock().unwrap_or_else(PoisonError::into_inner)
        {
            next = next.min(soonest.max(later(AT_LEAST)));
        }
        self.closed_until(next).unwrap_or(next)
    }

    fn prepare<'a>(&'a self, connection: &'a mut PgConnection) -> BoxFuture<'a, Result<Prepared>> {
        self.start(connection).boxed()
    }

    fn after_run<'a>(&'a self, database: &'a Database, summary: &'a Summary) -> BoxFuture<'a, Result<()>> {
        self.look_after(database, summary).boxed()
    }

    fn report(&self, summary: &Summary) {
        let (policy, chore, store) = (&summary.policy, self.unit.chore.as_str(), &summary.table);
        let (dropped, duration) = (summary.rows, human(Duration::from_millis(summary.took.as_millis() as u64)));
        let note = summary.note.as_deref().unwrap_or_default();
        match summary.status {
            Status::Success if dropped == 0 => tracing::debug!(policy, chore, store, duration, "Dropped resources"),
            Status::Success => tracing::info!(policy, chore, store, dropped, duration, "Dropped resources"),
            Status::Failed => {
                tracing::error!(
                    policy,
                    chore,
                    store,
                    error = note,
                    dropped_before_error = dropped,
                    "Failed to drop resources"
                )
            }
            Status::Observed => tracing::info!(policy, chore, store, due = summary.due, "Observed what would go"),
            Status::Braked => {
                tracing::warn!(policy, chore, store, due = summary.due, reason = note, "Stopped by the brake")
            }
            Status::Stopped => {
                tracing::info!(
                    policy,
                    chore,
                    store,
                    dropped,
                    reason = note,
                    "Stopped before the end; the rest goes next time"
                )
            }
        }
    }
}

/// The holders of the installation.
pub(crate) struct HoldersWork {
    unit: Unit,
    table: u32,
}

impl HoldersWork {
    pub(crate) fn new(table: u32) -> Self {
        let unit = Unit { chore: ChoreKind::Holders, policy: "keep".into(), leaf: "ebb.holder".into() };
        Self { unit, table }
    }
}

impl Work for HoldersWork {
    fn unit(&self) -> &Unit {
        &self.unit
    }

    fn leaf(&self) -> u32 {
        self.table
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }

    fn interval(&self) -> Duration {
        HOLDERS_EVERY
    }

    fn next_at(&self, now: Timestamp, _: u64) -> Timestamp {
        now.saturating_add(HOLDERS_EVERY).unwrap_or(Timestamp::MAX)
    }

    fn prepare<'a>(&'a self, connection: &'a mut PgConnection) -> BoxFuture<'a, Result<Prepared>> {
        async move {
            if !store::any_dead(connection).await? {
                return Ok(Prepared::Idle);
            }
            Ok(Prepared::Go { chore: Box::new(Holders), pacer: Pacer::adaptive(100, 1, 1000), due: None })
        }
        .boxed()
    }

    fn report(&self, summary: &Summary) {
        if summary.status == Status::Failed {
            tracing::error!(error = summary.note, "Could not end dead holders");
        }
    }
}
