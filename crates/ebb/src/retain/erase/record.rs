//! What stays of an erasure: a record for each subject, without anything that was erased, and a sealed copy where the
//! policy asks for one; in the transaction that erases.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Done, Each, Erase, Gone as Went, Ready, pseudonym};
use crate::audit::Moment;
use crate::retain::snapshot::{Gone, Sealed};
use crate::retain::store::rows::{Copied, RootRow};
use crate::retain::store::{self, Candidate, Erasure, Look, Writers};
use crate::spine::batch::Batch;
use crate::{Error, Result};

impl Erase {
    /// The records of this batch, in its own transaction, without anything that was erased.
    pub(super) async fn record(&mut self, batch: &mut Batch, mut done: Vec<Done>) -> Result<u64> {
        let bytes: usize = done.iter().flat_map(|done| &done.gone.copied).map(|copied| copied.row.len()).sum();
        let sealed = self.keep(batch.connection(), &mut done).await?;
        let rows = self.close(batch, &done, &sealed).await?;
        self.remember_links(batch.connection(), &done).await?;
        if !done.is_empty() {
            let each = |all: f64| all / done.len() as f64;
            self.each = Each { rows: each(rows as f64), bytes: each(bytes as f64) };
        }
        self.progress.subjects += done.len() as u64;
        Ok(rows)
    }

    /// Somebody else deleted these subjects' rows: what Ebb has of them goes when they would have gone, by the terms of the
    /// tenant that they were last seen with; of whoever is claimed at once.
    pub(super) async fn record_gone(&mut self, batch: &mut Batch, gone: Vec<Candidate>) -> Result<()> {
        if gone.is_empty() {
            return Ok(());
        }
        let ids: Vec<Uuid> = gone.iter().map(|candidate| candidate.id).collect();
        let tenants = store::tenants_of(batch.connection(), &ids).await?;
        let looks = store::recheck(batch.connection(), &ids, &vec![None; ids.len()], &tenants).await?;
        let mut looks: HashMap<Uuid, Look> = looks.into_iter().map(|look| (look.id, look)).collect();
        let mut done = Vec::new();
        for candidate in gone {
            let Some(mut look) = looks.remove(&candidate.id) else { continue };
            if look.is_claimed() {
                look.due_at = candidate.due_at;
            }
            if look.held.is_none() && (look.is_claimed() || look.due_at <= look.now) {
                let ready = Ready { candidate, look, row: RootRow::default() };
                done.push(Done { ready, gone: Went { already: true, ..Went::default() } });
            }
        }
        let ids: Vec<&str> = done.iter().map(|done| done.ready.candidate.subject_id.as_str()).collect();
        for (subject, cancelled) in store::forget_events(batch.connection(), &self.policy, &ids).await? {
            done[subject as usize].gone.cancelled = cancelled;
        }
        self.close(batch, &done, &[]).await?;
        Ok(())
    }

    async fn close(&self, batch: &mut Batch, done: &[Done], sealed: &[Sealed]) -> Result<u64> {
        let mut erasures = Vec::with_capacity(done.len());
        let mut ids = Vec::with_capacity(done.len());
        let mut counts = Vec::with_capacity(done.len());
        let mut mine = 0;
        for (at, done) in done.iter().enumerate() {
            let rows: i64 = done.gone.tables.values().sum();
            let parts = done.ready.look.parts.as_object().into_iter().flatten();
            let before: i64 = parts.filter_map(|(_, rows)| rows.as_i64()).sum();
            ids.push(done.ready.candidate.id);
            counts.push(rows);
            mine += rows;
            erasures.push(Erasure {
                subject: pseudonym(&self.key, &self.policy, &done.ready.candidate.subject_id),
                rows: rows + before,
                due_at: done.ready.look.due_at,
                details: self.details(done, sealed.get(at))?,
            });
        }
        let (claim, run) = (batch.claim.clone(), batch.run);
        let about = (self.policy.as_str(), claim.policy_version, claim.unit.leaf.as_str());
        store::record_erasures(batch.connection(), about, (run, &claim.node), &erasures).await?;
        let mut writers = Writers::default();
        done.iter().for_each(|done| writers.join(&done.gone.writers));
        store::close_erased(batch.connection(), &ids, &counts, &writers).await?;
        Ok(mine.unsigned_abs())
    }

    /// Seals what went, where a copy is kept: one for each, in their order.
    async fn keep(&self, connection: &mut PgConnection, done: &mut [Done]) -> Result<Vec<Sealed>> {
        let Some(copier) = &self.copier else { return Ok(Vec::new()) };
        let gone = done.iter_mut().map(|done| Gone {
            deletion: done.ready.candidate.id,
            rows: self.named(std::mem::take(&mut done.gone.copied)),
            continues: done.ready.look.is_claimed(),
            last: true,
        });
        copier.keep(connection, gone.collect()).await
    }

    pub(super) fn named(&self, copied: Vec<Copied>) -> Vec<(&str, String)> {
        copied.into_iter().map(|copied| (self.names[copied.node].as_str(), copied.row)).collect()
    }

    pub(super) fn by_table(&self, counts: &BTreeMap<usize, i64>) -> BTreeMap<&str, i64> {
        let counts = counts.iter().filter(|(_, rows)| **rows > 0);
        counts.map(|(node, rows)| (self.names[*node].as_str(), *rows)).collect()
    }

    /// As text: it is written once for every subject, and read by the server alone.
    fn details(&self, done: &Done, sealed: Option<&Sealed>) -> Result<String> {
        let (look, gone) = (&done.ready.look, &done.gone);
        let details = Details {
            deletion: done.ready.candidate.id,
            soft_deleted_at: look.deleted_at,
            due_at: look.due_at,
            erased_at: look.now,
            expedited: look.expedited,
            tables: self.all_parts(&gone.tables, &look.parts),
            warned_at: look.warned_at,
            tenant: look.tenant_now.as_deref(),
            unlinked: self.all_parts(&gone.unlinked, &look.unlinked),
            snapshot: sealed.map(|sealed| json!({ "rows": sealed.rows, "until": sealed.until })),
            events_cancelled: gone.cancelled,
            already_gone: gone.already,
        };
        serde_json::to_string(&details).map_err(|error| Error::failed("a record cannot be written").with_source(error))
    }

    /// What went in this transaction, and what went before it where the subject was a large one.
    fn all_parts<'a>(&'a self, counts: &BTreeMap<usize, i64>, before: &'a Value) -> BTreeMap<&'a str, i64> {
        let mut tables = self.by_table(counts);
        for (table, rows) in before.as_object().into_iter().flatten() {
            *tables.entry(table).or_default() += rows.as_i64().unwrap_or(0);
        }
        tables
    }
}

/// What a record says besides its columns.
#[derive(Serialize)]
struct Details<'a> {
    deletion: Uuid,
    soft_deleted_at: Moment,
    due_at: Moment,
    erased_at: Moment,
    expedited: bool,
    tables: BTreeMap<&'a str, i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warned_at: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    unlinked: BTreeMap<&'a str, i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<Value>,
    #[serde(skip_serializing_if = "is_zero")]
    events_cancelled: i64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    already_gone: bool,
}

fn is_zero(count: &i64) -> bool {
    *count == 0
}
