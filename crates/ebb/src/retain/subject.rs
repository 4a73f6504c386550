//! One subject, as people ask about it and for it. The SQL functions decide; this calls them, so that it makes no
//! difference whether SQL, HTTP or the command line asked.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use sqlx::{PgConnection, Postgres, Transaction};

use super::store::rows;
use super::store::{self, Deletion, Happened, Hold, Unmarked};
use super::{compile, look};
use crate::audit::Moment;
use crate::pg::Literal;
use crate::policy::{Kind, Mode, Policy, Retain, Subjects};
use crate::{Error, Result, control, policy};

/// Soft-deletes a subject; returns when it will be erased.
pub async fn delete(connection: &mut PgConnection, policy: &str, id: &str, by: &str) -> Result<Moment> {
    known(connection, policy).await?;
    store::call(connection, "SELECT ebb.delete_subject($1, $2, $3)", &[Some(policy), Some(id), Some(by)]).await
}

/// Takes a soft delete back; false when there is nothing to take back, or erasing was claimed.
pub async fn restore(connection: &mut PgConnection, policy: &str, id: &str, by: &str) -> Result<bool> {
    known(connection, policy).await?;
    store::call(connection, "SELECT ebb.restore_subject($1, $2, $3)", &[Some(policy), Some(id), Some(by)]).await
}

/// A verified request: erased as soon as floor and holds allow. Returns when that is.
pub async fn erase(connection: &mut PgConnection, policy: &str, id: &str, by: &str) -> Result<Moment> {
    known(connection, policy).await?;
    store::call(connection, "SELECT ebb.erase_subject($1, $2, $3)", &[Some(policy), Some(id), Some(by)]).await
}

/// Commits what was asked for one subject: a constraint or a trigger of its table that waits for the end may refuse it still.
pub async fn commit(tx: Transaction<'_, Postgres>) -> Result<()> {
    tx.commit().await.map_err(store::explain_end)
}

/// Stops everything about a subject until it is released, or until a moment.
pub async fn hold(
    connection: &mut PgConnection,
    policy: &str,
    id: &str,
    reason: &str,
    until: Option<&str>,
    by: &str,
) -> Result<()> {
    known(connection, policy).await?;
    let arguments = [Some(policy), Some(id), Some(reason), until, Some(by)];
    store::call::<String>(connection, "SELECT ebb.place_hold($1, $2, $3, $4::timestamptz, $5)::text", &arguments)
        .await?;
    Ok(())
}

/// Lifts a hold.
pub async fn release(connection: &mut PgConnection, policy: &str, id: &str, by: &str) -> Result<()> {
    known(connection, policy).await?;
    store::call::<String>(connection, "SELECT ebb.lift_hold($1, $2, $3)::text", &[Some(policy), Some(id), Some(by)])
        .await?;
    Ok(())
}

/// A subject that failed is tried again at once, and a warning that could not be delivered is made anew; false when there
/// is neither.
pub async fn retry(connection: &mut PgConnection, policy: &str, id: &str, by: &str) -> Result<bool> {
    known(connection, policy).await?;
    let (found, _) = store::look_subject(connection, policy, id).await?;
    let id = found.unwrap_or_else(|| id.to_owned());
    let failed = store::retry_subject(connection, policy, &id).await?;
    let unwarned = store::retry_warning(connection, policy, &id).await?;
    let Some(deletion) = failed.or(unwarned) else { return Ok(false) };
    // As the functions do it: whoever asks may be the subject.
    let sql = "SELECT ebb.note_subject('retry', $1, $2::uuid, $3)::text";
    store::call::<Option<String>>(connection, sql, &[Some(policy), Some(&deletion.to_string()), Some(by)]).await?;
    Ok(true)
}

/// How a subject stands.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Subject))]
pub struct Shown {
    /// Its policy.
    pub policy: String,
    /// Its id, as the database writes it.
    pub id: String,
    /// Whether its row is there.
    pub exists: bool,
    /// The soft delete by the application that has no deletion yet.
    pub unmarked: Option<Unmarked>,
    /// Its open deletion, or the last one.
    pub deletion: Option<Deletion>,
    /// The hold on it.
    pub hold: Option<Hold>,
    /// What would go with it, by table.
    pub would_erase: BTreeMap<String, u64>,
    /// What would only lose its link, by table.
    pub would_unlink: BTreeMap<String, u64>,
    /// Why neither was counted: it takes too long, there are too many rows, or the policy stands still.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncounted: Option<String>,
    /// What became of it so far, the earliest first.
    pub history: Vec<Happened>,
}

/// How much of a subject's history is shown.
const HISTORY: i64 = 100;

/// Looks at a subject; changes nothing.
pub async fn show(connection: &mut PgConnection, policy: &str, id: &str) -> Result<Shown> {
    let (retain, _) = known(connection, policy).await?;
    let subjects = retain.subjects().ok_or_else(|| no_subjects(policy))?;
    let (found, unmarked) = store::look_subject(connection, policy, id).await?;
    let exists = found.is_some();
    let id = found.unwrap_or_else(|| id.to_owned());
    let deletion = store::deletion_of(connection, policy, &id).await?;
    let hold = store::hold_of(connection, policy, &id).await?;
    if !exists && deletion.is_none() && hold.is_none() {
        return Err(Error::unknown(format!("policy {policy} knows no subject {}", Literal(&id))));
    }
    let history = store::history_of(connection, policy, &id, HISTORY).await?;
    let (mut counts, mut uncounted) = (Default::default(), None);
    if exists {
        // How it stands is told whatever its tree is like.
        rows::savepoint(connection).await?;
        let counted = would(connection, &retain, subjects, &id).await;
        rows::end_savepoint(connection, false).await?;
        match counted {
            Ok(counted) => counts = counted,
            Err(error) if error.is_unavailable() => return Err(error),
            Err(error) if error.sqlstate().as_deref() == Some("57014") => {
                uncounted = Some("to count its rows takes too long".to_owned());
            }
            Err(error) => uncounted = Some(error.to_string()),
        }
    }
    let (policy, (would_erase, would_unlink)) = (policy.to_owned(), counts);
    Ok(Shown { policy, id, exists, unmarked, deletion, hold, would_erase, would_unlink, uncounted, history })
}

/// What would go with a subject and what would only lose its link, by table.
async fn would(
    connection: &mut PgConnection,
    retain: &Retain,
    subjects: &Subjects,
    id: &str,
) -> Result<(BTreeMap<String, u64>, BTreeMap<String, u64>)> {
    let compiled = compile::compile(connection, retain, subjects).await?;
    let ids = compiled.root.named([id])?;
    let (taken, unlinked) = look::would(connection, &compiled, &ids).await?;
    let by_table = |counts: rows::Taken| {
        let mut tables: BTreeMap<String, u64> = BTreeMap::new();
        for ((node, _), rows) in counts.counts.into_iter().filter(|(_, rows)| *rows > 0) {
            *tables.entry(compiled.tree.nodes[node].relation.label()).or_default() += rows.unsigned_abs();
        }
        tables
    };
    Ok((by_table(taken), by_table(unlinked)))
}

/// The hold on a subject.
pub async fn held(connection: &mut PgConnection, policy: &str, id: &str) -> Result<Option<Hold>> {
    known(connection, policy).await?;
    // As it was typed without a look at the table, which may be called otherwise by now.
    if let Some(hold) = store::hold_of(connection, policy, id).await? {
        return Ok(Some(hold));
    }
    // Without a lock: whoever places or lifts a hold locks the deletion first.
    let id = named(connection, policy, id).await?;
    store::hold_of(connection, policy, &id).await
}

/// Why nothing is erased by a policy at the moment, whoever is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandsStill {
    /// `policy users is disabled`.
    pub why: String,
    /// What ends it.
    pub until: String,
}

/// Whether a policy is disabled, was stopped, or is paused, by itself or with everything else.
pub async fn stands_still(connection: &mut PgConnection, name: &str) -> Result<Option<StandsStill>> {
    let stored = policy::store::find(connection, name).await?;
    let still = |why: String, until: String| Ok(Some(StandsStill { why, until }));
    if let Some(reason) = &stored.stopped {
        return still(format!("policy {name} is stopped ({reason})"), "mend it and run `ebb apply`".to_owned());
    }
    if !stored.enabled {
        return still(format!("policy {name} is disabled"), format!("ebb policy set {name} enabled=true"));
    }
    let pauses = control::pauses(connection).await?;
    let paused = |what: &str| pauses.iter().find(|pause| pause.name == what);
    match (paused(control::ALL), paused(name)) {
        (Some(pause), _) => still(format!("everything is paused by {}", pause.paused_by), "ebb resume".to_owned()),
        (None, Some(pause)) => {
            still(format!("policy {name} is paused by {}", pause.paused_by), format!("ebb resume {name}"))
        }
        (None, None) => Ok(None),
    }
}

/// What keeps a subject back although its time may have come: a hold, a policy that stands still, `unless`, or what the last
/// run met.
pub async fn waits_for(connection: &mut PgConnection, policy: &str, id: &str) -> Result<Option<String>> {
    let (retain, _) = known(connection, policy).await?;
    let subjects = retain.subjects().ok_or_else(|| no_subjects(policy))?;
    let id = named(connection, policy, id).await?;
    if let Some(hold) = store::hold_of(connection, policy, &id).await? {
        return Ok(Some(format!("on hold: {}", hold.reason)));
    }
    if let Some(still) = stands_still(connection, policy).await? {
        return Ok(Some(still.why));
    }
    if subjects.unless.is_some() {
        let compiled = compile::compile(connection, &retain, subjects).await?;
        let asked = look::unless(connection, &compiled, &[&id]).await?;
        if let Some((_, error)) = asked.fails.first() {
            return Ok(Some(error.to_string()));
        }
        if !asked.holds.is_empty() {
            return Ok(Some("`unless` holds".to_owned()));
        }
    }
    let deletion = store::deletion_of(connection, policy, &id).await?;
    // What a run noted of these may be over by now.
    let over = |why: &String| why.starts_with("on hold") || why.starts_with("`unless`");
    Ok(deletion.and_then(|deletion| deletion.blocked).filter(|why| !over(why)))
}

/// What time it is, by the database's clock.
pub async fn now(connection: &mut PgConnection) -> Result<Timestamp> {
    let now = store::snapshots::clock(connection).await?;
    now.timestamp().ok_or_else(|| Error::failed("the database does not know the time"))
}

/// Whether a policy only counts: nothing that is asked of it is erased.
pub async fn observes(connection: &mut PgConnection, policy: &str) -> Result<bool> {
    Ok(known(connection, policy).await?.0.mode == Mode::Observe)
}

/// The id as the table of a policy writes it, whether there is such a row or not; as it was typed where nobody knows the
/// policy any more.
pub async fn named(connection: &mut PgConnection, policy: &str, id: &str) -> Result<String> {
    if known(connection, policy).await.is_err() {
        return Ok(id.to_owned());
    }
    let sql = "SELECT (ebb.touch_subject($1, 'name', $2, NULL, NULL)).id";
    let named: Option<String> = store::call(connection, sql, &[Some(policy), Some(id)]).await?;
    Ok(named.unwrap_or_else(|| id.to_owned()))
}

/// An id as one argument of a command that somebody pastes into a shell.
pub fn argument(id: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_alphanumeric() || "-_.,:@+/%".contains(c);
    match !id.is_empty() && id.chars().all(plain) {
        true => Cow::Borrowed(id),
        false => Cow::Owned(format!("'{}'", id.replace('\'', r"'\''"))),
    }
}

/// The policy of a name, which must be about subjects.
async fn known(connection: &mut PgConnection, name: &str) -> Result<(Retain, i64)> {
    let stored = policy::store::find(connection, name).await?;
    if stored.kind != Kind::Retain {
        return Err(no_subjects(name));
    }
    match stored.policy()? {
        Policy::Retain(retain) if retain.subjects().is_some() => Ok((retain, stored.version)),
        _ => Err(no_subjects(name)),
    }
}

fn no_subjects(name: &str) -> Error {
    Error::unknown(format!("policy {name} is not about subjects"))
        .with_hint("a [[retain]] policy with deleted_at is; `ebb policy list` shows them")
}

#[cfg(test)]
mod tests {
    use super::argument;

    #[test]
    fn an_id_stays_one_argument_in_a_shell() {
        for plain in ["17", "0b9f-4c", "ayu@example.test", "müller"] {
            assert_eq!(argument(plain), plain);
        }
        assert_eq!(argument(r#"["eu", "17"]"#), r#"'["eu", "17"]'"#);
        assert_eq!(
            [argument("b b"), argument(""), argument("o'neill"), argument("$(x)")],
            ["'b b'", "''", r"'o'\''neill'", "'$(x)'"]
        );
    }
}
