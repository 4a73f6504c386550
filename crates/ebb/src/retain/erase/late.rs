//! The look at what came late, as a phase of erasing: after everything that is due.

use std::collections::{BTreeMap, HashMap};

use serde_json::json;
use sqlx::PgConnection;

use super::unlink::Unlinked;
use super::{Done, Erase, is_of_the_batch};
use crate::Result;
use crate::audit::Moment;
use crate::retain::store::late::LateLink;
use crate::retain::store::rows::{self, Doomed, Taken};
use crate::retain::tree::EdgeAction;
use crate::retain::{entry, late, look, store};
use crate::spine::batch::Batch;

impl Erase {
    /// Looks once more behind the links of subjects that are gone, once whoever was under way then has ended.
    pub(super) async fn late(&mut self, batch: &mut Batch) -> Result<u64> {
        let some = batch.size.max(1);
        let found = store::late::next(batch.connection(), &self.policy, self.progress.after_late, some).await?;
        let Some(last) = found.last() else {
            self.progress.late_done = true;
            return Ok(0);
        };
        let horizon = last.horizon;
        self.progress.after_late = (horizon, last.id);
        let (found, lost): (Vec<LateLink>, Vec<LateLink>) = found.into_iter().partition(|link| link.here);
        if !lost.is_empty() {
            // Whoever was under way then has ended with the old cluster, and nothing tells their rows from those that came later.
            let ids: Vec<i64> = lost.iter().map(|link| link.id).collect();
            store::late::forget(batch.connection(), &ids).await?;
            tracing::warn!(
                policy = self.policy,
                subjects = ids.len(),
                "Links of erased subjects came with a restored dump: rows that came late behind them are not looked for"
            );
        }
        if found.is_empty() {
            return Ok(0);
        }
        let mut unlinked = Unlinked::after(found.iter().map(|link| &link.writers));
        let (roots, opened) = late::open(&self.key, &self.policy, &self.compiled.tree, &found);
        let connection = batch.connection();
        rows::savepoint(connection).await?;
        match self.take_late(connection, roots, (horizon, &mut unlinked)).await {
            Ok(taken) => {
                rows::end_savepoint(connection, true).await?;
                store::late::forget(connection, &opened).await?;
                self.record_late(batch, &found, &opened, taken).await
            }
            Err(error) if is_of_the_batch(&error) => Err(error),
            // A hold, a lock, a trigger: what came late is looked at by the next run.
            Err(error) => {
                rows::end_savepoint(connection, false).await?;
                rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
                // What a trigger or the server says may name whose they are.
                let sqlstate = error.sqlstate();
                tracing::warn!(policy = self.policy, sqlstate, "Rows that came late could not be erased");
                self.progress.skipped += 1;
                Ok(0)
            }
        }
    }

    async fn take_late(
        &self,
        connection: &mut PgConnection,
        roots: Doomed,
        (horizon, unlinked): (i64, &mut Unlinked),
    ) -> Result<Taken> {
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        let theirs = late::taken_over(connection, &self.compiled, &roots).await?;
        let mut ours = Doomed::with(roots.columns.len());
        for at in (0..roots.len()).filter(|at| !theirs.contains(&roots.subjects[*at])) {
            ours.push(roots.row(at), roots.subjects[at]);
        }
        let tree = late::narrowed(&self.compiled.tree, horizon);
        let doomed = look::collect(connection, &tree, ours, true).await?;
        for edge in tree.edges.iter().filter(|edge| edge.action == EdgeAction::Delete) {
            self.spares_behind(connection, edge, &doomed[edge.parent]).await?;
        }
        // The copy of whoever is gone was complete.
        let mut taken = Taken::default();
        self.remove(connection, &tree, &doomed, (&mut taken, unlinked)).await?;
        rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
        for (node, rows) in doomed.iter().enumerate() {
            self.forget_along(connection, node, rows, &[]).await?;
        }
        self.compiled.tree.path.settle(connection).await?;
        Ok(taken)
    }

    /// A record for each tenant of whom rows went. Returns how many rows.
    async fn record_late(&self, batch: &mut Batch, found: &[LateLink], opened: &[i64], taken: Taken) -> Result<u64> {
        let mut tenants: BTreeMap<Option<&str>, (Moment, BTreeMap<usize, i64>)> = BTreeMap::new();
        let found: HashMap<i64, &LateLink> = found.iter().map(|link| (link.id, link)).collect();
        for ((node, subject), rows) in taken.counts {
            let link = found[&opened[subject as usize]];
            let (_, tables) = tenants.entry(link.tenant.as_deref()).or_insert_with(|| (link.now, BTreeMap::new()));
            *tables.entry(node).or_default() += rows;
        }
        let mut all = 0;
        for (tenant, (now, tables)) in tenants {
            let mut entry = entry(batch, "erase_late", "ebb");
            entry.rows = tables.values().sum();
            entry.details = json!({ "tables": self.by_table(&tables), "erased_at": now });
            if let Some(tenant) = tenant {
                entry.details["tenant"] = tenant.into();
            }
            all += entry.rows.unsigned_abs();
            if entry.rows > 0 {
                entry.insert(batch.connection()).await?;
            }
        }
        Ok(all)
    }

    /// Remembers links without a foreign key: whoever is under way now may still add rows behind them.
    pub(super) async fn remember_links(&self, connection: &mut PgConnection, done: &[Done]) -> Result<()> {
        let (mut deletions, mut sealed) = (Vec::new(), Vec::new());
        if late::links(&self.compiled.tree).next().is_some() {
            for done in done {
                let values = &done.ready.row.values;
                if let Some(closed) = late::close(&self.key, &self.policy, &self.compiled.tree, values)? {
                    deletions.push(done.ready.candidate.id);
                    sealed.push(closed);
                }
            }
        }
        store::late::add(connection, &self.policy, &deletions, &sealed).await
    }
}
