//! What policies lack of their tables, with the statement that makes it: indexes, columns; and what nobody has approved yet.

use serde::Serialize;

use super::{store, survey, to_be_active};
use crate::expire::due::Clock;
use crate::policy::{Policy, Wanted};
use crate::retain::MissingColumn;
use crate::{Engine, Result, pg};

/// An index that would help, and the statement that makes it.
#[derive(Debug, Clone, Serialize)]
pub struct MissingIndex {
    /// For which policy.
    pub policy: String,
    /// On which table.
    pub table: String,
    /// `CREATE INDEX CONCURRENTLY …`.
    pub statement: String,
}

impl Engine {
    /// The indexes that the wanted policies lack. A policy that cannot be looked at is somebody else's news.
    pub async fn missing_indexes(&self, wanted: &[Wanted]) -> Result<Vec<MissingIndex>> {
        let mut missing = Vec::new();
        let mut tx = self.database().read().await?;
        let clock = if pg::schema_version(&mut tx).await?.is_some() { Clock::Ebb } else { Clock::Server };
        tx.commit().await?;
        for sweep in to_be_active(wanted, &[]) {
            let (expire, _) = self.sweep(&sweep, matches!(clock, Clock::Ebb)).await?;
            let mut tx = self.database().read().await?;
            let survey = match survey::survey(&mut tx, &expire, clock).await {
                Err(error) if error.is_unavailable() => return Err(error),
                Err(_) => continue,
                Ok(survey) => survey,
            };
            let of_leaf = |leaf: &survey::Surveyed| {
                let table = leaf.leaf.relation.label();
                Some(MissingIndex { policy: expire.name.to_string(), table, statement: leaf.missing_index()? })
            };
            missing.extend(survey.leaves.iter().filter_map(of_leaf));
            tx.rollback().await?;
        }
        for want in wanted {
            let Policy::Retain(retain) = &want.policy else { continue };
            let mut tx = self.database().read().await?;
            match crate::retain::missing_index(&mut tx, retain).await {
                Err(error) if error.is_unavailable() => return Err(error),
                Ok(Some((table, statement))) => {
                    missing.push(MissingIndex { policy: want.name.clone(), table, statement });
                }
                _ => {}
            }
        }
        missing.dedup_by(|a, b| a.statement == b.statement);
        Ok(missing)
    }

    /// The columns that the wanted retain policies name and their tables lack.
    pub async fn missing_columns(&self, wanted: &[Wanted]) -> Result<Vec<MissingColumn>> {
        let mut missing = Vec::new();
        for want in wanted {
            let Policy::Retain(retain) = &want.policy else { continue };
            let mut tx = self.database().read().await?;
            match crate::retain::missing_columns(&mut tx, retain).await {
                Err(error) if error.is_unavailable() => return Err(error),
                // A table that is not there is somebody else's news.
                found => missing.extend(found.unwrap_or_default()),
            }
        }
        Ok(missing)
    }

    /// Adds a column: a change of the catalog alone, which waits for its lock no longer than a moment.
    pub async fn create_column(&self, column: &MissingColumn) -> Result<()> {
        store::create_column(self.database(), &column.statement).await.map_err(|error| error.context(&column.statement))
    }

    /// What triggers of the wanted policies' tables will not find when a subject is touched through Ebb, policy by policy.
    pub async fn unseen_names(&self, wanted: &[Wanted]) -> Result<Vec<(String, crate::retain::Finding)>> {
        let mut found = Vec::new();
        for want in wanted {
            let Policy::Retain(policy) = &want.policy else { continue };
            let mut tx = self.database().read().await?;
            match crate::retain::unseen(&mut tx, policy).await {
                Err(error) if error.is_unavailable() => return Err(error),
                // A table that cannot be looked at is told of elsewhere.
                Err(_) => {}
                Ok(unseen) => found.extend(unseen.into_iter().map(|finding| (want.name.clone(), finding))),
            }
        }
        Ok(found)
    }

    /// What hangs on the subjects of the wanted policies and was not approved yet, policy by policy.
    pub async fn unapproved(&self, wanted: &[Wanted]) -> Result<Vec<(String, Vec<String>)>> {
        let mut found = Vec::new();
        for want in wanted {
            let Policy::Retain(retain) = &want.policy else { continue };
            let mut tx = self.database().read().await?;
            if pg::schema_version(&mut tx).await?.is_none() {
                continue;
            }
            let differs = crate::retain::unapproved(&mut tx, retain).await?;
            if !differs.is_empty() {
                found.push((want.name.clone(), differs));
            }
        }
        Ok(found)
    }

    /// Makes an index without holding up writers, for as long as that takes.
    pub async fn create_index(&self, index: &MissingIndex) -> Result<()> {
        store::create_index(self.database(), &index.statement).await.map_err(|error| {
            let told = error.context(&index.statement);
            match told.hint() {
                Some(_) => told,
                None => told.with_hint(
                    "an index that failed half way is left invalid: \\d shows it, DROP INDEX CONCURRENTLY removes it",
                ),
            }
        })
    }
}
