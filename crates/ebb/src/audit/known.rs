//! Which subject key is the database's. Invariants: the first that is used is, and stays it until its owner says that it is
//! lost; whoever has another makes no pseudonym and no link with it, and matches nothing.

use sqlx::PgConnection;

use super::{Entry, SubjectKey, store};
use crate::{Error, Result};

/// Makes a key the database's where it knows none yet, and refuses it where it knows another.
pub async fn use_subject_key(tx: &mut PgConnection, key: &SubjectKey) -> Result<()> {
    store::use_subject_key(tx, &key.key_id()).await?;
    same_subject_key(tx, key).await
}

/// Refuses a key where the database knows another. Changes nothing.
pub async fn same_subject_key(tx: &mut PgConnection, key: &SubjectKey) -> Result<()> {
    let here = key.key_id();
    match known_subject_key(tx).await? {
        Some((known, used_by)) if known != here => Err(Error::refused(format!(
            "the subject key here ({here}) is not the one that this database's pseudonyms and links are made with \
             ({known}, first used by {used_by})"
        ))
        .with_hint(
            "set subject_key in [audit] to that key, the same for every node; if it is lost for good: ebb apply --new-subject-key",
        )),
        _ => Ok(()),
    }
}

/// The id of the database's subject key and who used it first; none before its first use.
pub async fn known_subject_key(tx: &mut PgConnection) -> Result<Option<(String, String)>> {
    store::known_subject_key(tx).await
}

/// Makes another key the database's: the former one is lost. What was recorded with it cannot be matched any more.
pub async fn replace_subject_key(tx: &mut PgConnection, key: &SubjectKey, by: &str) -> Result<()> {
    let former = known_subject_key(tx).await?;
    if former.as_ref().is_none_or(|(known, _)| *known == key.key_id()) {
        return Ok(());
    }
    store::replace_subject_key(tx, &key.key_id(), by).await?;
    let mut entry = Entry::new("subject_key", by);
    entry.details = serde_json::json!({ "former": former.map(|(known, _)| known), "now": key.key_id() });
    entry.insert(tx).await?;
    Ok(())
}
