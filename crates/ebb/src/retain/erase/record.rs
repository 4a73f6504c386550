//! What stays of an erasure: a record for each subject, without anything that was erased, and a sealed copy where the
//! policy asks for one; in the transaction that erases.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sqlx::PgConnection;

use super::{Done, Erase, pseudonym};
use crate::Result;
use crate::retain::snapshot::{Gone, Sealed};
use crate::retain::store;
use crate::retain::store::Erasure;
use crate::retain::store::rows::Copied;
use crate::spine::batch::Batch;

impl Erase {
    /// The records of this batch, in its own transaction, without anything that was erased.
    pub(super) async fn record(&mut self, batch: &mut Batch, mut done: Vec<Done>) -> Result<u64> {
        let sealed = self.keep(batch.connection(), &mut done).await?;
        let mut erasures = Vec::with_capacity(done.len());
        let mut ids = Vec::with_capacity(done.len());
        let mut counts = Vec::with_capacity(done.len());
        for (at, done) in done.iter().enumerate() {
            let rows: i64 = done.tables.values().sum();
            let before: i64 =
                done.ready.look.parts.as_object().into_iter().flatten().filter_map(|(_, rows)| rows.as_i64()).sum();
            ids.push(done.ready.candidate.id);
            counts.push(rows);
            erasures.push(Erasure {
                subject: pseudonym(&self.key, &self.policy, &done.ready.candidate.subject_id),
                rows: rows + before,
                due_at: done.ready.look.due_at,
                details: self.details(done, sealed.get(at)),
            });
        }
        let (claim, run) = (batch.claim.clone(), batch.run);
        let about = (self.policy.as_str(), claim.policy_version, claim.unit.leaf.as_str());
        store::record_erasures(batch.connection(), about, (run, &claim.node), &erasures).await?;
        store::close_erased(batch.connection(), &ids, &counts).await?;
        self.remember_links(batch.connection(), &done).await?;
        self.progress.subjects += done.len() as u64;
        Ok(counts.iter().sum::<i64>().unsigned_abs())
    }

    /// Seals what went, where a copy is kept: one for each, in their order.
    async fn keep(&self, connection: &mut PgConnection, done: &mut [Done]) -> Result<Vec<Sealed>> {
        let Some(copier) = &self.copier else { return Ok(Vec::new()) };
        let gone = done.iter_mut().map(|done| Gone {
            deletion: done.ready.candidate.id,
            rows: self.named(std::mem::take(&mut done.copied)),
            continues: done.ready.look.state == "erasing",
            last: true,
        });
        copier.keep(connection, gone.collect()).await
    }

    pub(super) fn named(&self, copied: Vec<Copied>) -> Vec<(String, String)> {
        let nodes = &self.compiled.tree.nodes;
        copied.into_iter().map(|copied| (nodes[copied.node].relation.label(), copied.row)).collect()
    }

    pub(super) fn by_table(&self, counts: &BTreeMap<usize, i64>) -> Value {
        let mut tables: Map<String, Value> = Map::new();
        for (node, rows) in counts.iter().filter(|(_, rows)| **rows > 0) {
            tables.insert(self.compiled.tree.nodes[*node].relation.label(), (*rows).into());
        }
        tables.into()
    }

    fn details(&self, done: &Done, sealed: Option<&Sealed>) -> Value {
        let look = &done.ready.look;
        let mut details = json!({
            "deletion": done.ready.candidate.id,
            "soft_deleted_at": look.deleted_at,
            "due_at": look.due_at,
            "erased_at": look.now,
            "expedited": look.expedited,
            "tables": self.by_table(&done.tables),
        });
        // What went before, in parts, where the subject was a large one.
        for (table, rows) in look.parts.as_object().into_iter().flatten() {
            let before = details["tables"][table].as_i64().unwrap_or(0);
            details["tables"][table] = (before + rows.as_i64().unwrap_or(0)).into();
        }
        if let Some(warned_at) = look.warned_at {
            details["warned_at"] = warned_at.to_string().into();
        }
        if let Some(tenant) = &look.tenant_now {
            details["tenant"] = tenant.as_str().into();
        }
        if done.unlinked.values().any(|rows| *rows > 0) {
            details["unlinked"] = self.by_table(&done.unlinked);
        }
        if let Some(sealed) = sealed {
            details["snapshot"] = json!({ "rows": sealed.rows, "until": sealed.until });
        }
        if done.cancelled > 0 {
            details["events_cancelled"] = done.cancelled.into();
        }
        details
    }
}
