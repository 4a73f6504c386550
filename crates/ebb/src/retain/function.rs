//! The one function of a policy that touches its root table on behalf of callers. It belongs to the table's owner where
//! that can be arranged, so that neither the caller nor Ebb needs rights on the table. Invariant: it changes only the
//! columns that the policy names, of the one row that the key names.

use sha2::{Digest, Sha256};
use sqlx::PgConnection;

use super::compile::Compiled;
use super::path::Path;
use super::store;
use super::store::rows::{Standing, id_sql};
use super::tree::Column;
use crate::pg::{Ident, Literal, quoted};
use crate::policy::Subjects;
use crate::{Error, Result};

/// The function's name.
pub(crate) fn name(policy: &str) -> String {
    named("subject", policy)
}

/// What the database calls something of a policy: after the policy where 63 bytes allow, otherwise after its beginning and
/// a fingerprint of the whole, so that no two policies share it. A policy's name is ASCII and has no `~`.
pub(super) fn named(what: &str, policy: &str) -> String {
    let name = format!("{what}:{policy}");
    if name.len() <= 63 {
        return name;
    }
    let fingerprint = hex::encode(&Sha256::digest(policy)[..6]);
    let beginning: String = name.chars().take(62 - fingerprint.len()).collect();
    format!("{beginning}~{fingerprint}")
}

/// Creates or replaces it; the owner of the table gets it where the caller may give it away. Whoever may do neither, such as a
/// node, leaves it as it is, provided that it is what it should be.
pub(crate) async fn create(
    connection: &mut PgConnection,
    policy: &str,
    subjects: &Subjects,
    compiled: &Compiled,
) -> Result<String> {
    let name = name(policy);
    let path = Path::of(connection, compiled.oid).await?;
    let body = body(subjects, compiled, &path);
    let current = store::generated(connection, &name).await?.is_some_and(|there| there == body);
    if !may_make(connection, policy, &name, current).await? {
        return Ok(name);
    }
    let definition = format!(
        "CREATE OR REPLACE FUNCTION ebb.{} (text, text, timestamptz, timestamptz)
         RETURNS TABLE (\"ebb:id\" text, \"ebb:deleted_at\" timestamptz, \"ebb:tenant\" text)
         LANGUAGE plpgsql SECURITY DEFINER SET search_path = {path} SET row_security = off SET timezone = 'UTC' AS {}",
        Ident::new(&name),
        quoted(&body),
    );
    store::define(connection, definition).await?;
    let call = format!("ebb.{}(text, text, timestamptz, timestamptz)", Ident::new(&name));
    let rights = format!(
        "REVOKE ALL ON FUNCTION {call} FROM PUBLIC;
         DO $ebb$ DECLARE who name; BEGIN
             -- Before it is given away: the functions that call it run as the owner of the schema.
             FOR who IN SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'ebb'
                        UNION SELECT rolname FROM pg_roles WHERE rolname = 'ebb_node' LOOP
                 EXECUTE format('GRANT EXECUTE ON FUNCTION {call} TO %I', who);
             END LOOP;
             BEGIN
                 ALTER FUNCTION {call} OWNER TO {owner};
             EXCEPTION WHEN insufficient_privilege THEN NULL;
             END;
         END $ebb$",
        owner = Ident::new(&compiled.owner),
    );
    store::define(connection, rights).await?;
    Ok(name)
}

/// Whether a function of a policy can be made anew here; refused where it cannot and would have to be.
pub(super) async fn may_make(
    connection: &mut PgConnection,
    policy: &str,
    name: &str,
    is_current: bool,
) -> Result<bool> {
    let lacking = store::lacks_to_define(connection, name).await?;
    if lacking.is_empty() || is_current {
        return Ok(lacking.is_empty());
    }
    let owners = lacking.join(" and ");
    Err(Error::refused(format!(
        "this needs the function ebb.{} to be made anew, with the rights of {owners}",
        Ident::new(name)
    ))
    .with_hint(format!(
        "make the same change as a member of {owners}: ebb policy set {policy} KEY=VALUE, or ebb apply"
    )))
}

/// Whether the function is there and is not what this version makes of its policy, its table and the rights around it.
pub(crate) async fn is_outdated(
    connection: &mut PgConnection,
    policy: &str,
    subjects: &Subjects,
    compiled: &Compiled,
) -> Result<bool> {
    let path = Path::of(connection, compiled.oid).await?;
    let there = store::generated(connection, &name(policy)).await?;
    Ok(there.is_some_and(|there| there != body(subjects, compiled, &path)))
}

fn body(subjects: &Subjects, compiled: &Compiled, path: &Path) -> String {
    let root = &compiled.root;
    let mirror = &subjects.mirror;
    let set =
        |column: &Option<String>, value: &str| column.as_ref().map(|name| format!("{} = {value}", Ident::new(name)));
    let touched = || set(&mirror.touched, "COALESCE($3, now())");
    let deleted_at = &root.deleted_at;
    let (key, named) = key(&root.key);
    let change = |columns: Vec<Option<String>>| match columns.into_iter().flatten().collect::<Vec<_>>() {
        columns if columns.is_empty() => "NULL".to_owned(),
        columns => format!("UPDATE {} AS n SET {} WHERE {key}", root.relation, columns.join(", ")),
    };
    let status = root.status.as_ref();
    let deleted = || status.map(|status| format!("{} = {}", status.column, Literal(&status.deleted)));
    let revived = || status.map(|status| status.revived("\"ebb:former\""));
    let due = |value: &str| set(&mirror.due, value);
    let untold = || [set(&mirror.notified, "NULL"), set(&mirror.attempted, "NULL")];
    let [unnotified, untried] = untold();
    // What the application soft-deleted itself: only what mirrors it, and nothing of a deletion before it.
    let mark = change(vec![deleted(), due("$4"), unnotified, untried]);
    let [unnotified, untried] = untold();
    // What the application took back itself: nothing says any more that it is deleted.
    let revive = change(vec![revived(), due("NULL"), unnotified, untried]);
    let now = root.time.value("$3", &root.zone);
    let hidden = Some(format!("{deleted_at} = COALESCE(n.{deleted_at}, {now})"));
    let [unnotified, untried] = untold();
    let delete = change(vec![hidden, deleted(), due("$4"), unnotified, untried, touched()]);
    let [unnotified, untried] = untold();
    let shown = Some(format!("{deleted_at} = NULL"));
    let restore = change(vec![shown, revived(), due("NULL"), unnotified, untried, touched()]);
    let due = match due("$4") {
        Some(due) => change(vec![Some(due), touched()]),
        None => change(vec![Some(format!("{deleted_at} = n.{deleted_at}"))]),
    };
    // What the subject may be called by: its key, and what its policy contacts it by. An address is its owner's wherever it
    // stands; a number or a name may be part of anybody's.
    let contact = subjects.warning.as_ref().map(|warning| &warning.contact);
    let contact = contact.into_iter().flat_map(|contact| [Some(&contact.email), contact.name.as_ref()]).flatten();
    let names = root.key.iter().map(|column| column.name.clone()).chain(contact.map(Ident::new));
    // A collation that takes texts for the same that differ cannot look for one in another.
    let text = |column: Ident| format!("lower(btrim(n.{column}::text COLLATE pg_catalog.\"default\"))");
    let names: Vec<String> = names.map(text).collect();
    format!(
        "
         -- Path: {path}
         DECLARE
             \"ebb:former\" text;
         BEGIN
             IF starts_with($1, 'is ') THEN
                 RETURN QUERY SELECT {id}, {moment}, {tenant} FROM {relation} AS n
                     WHERE {key} AND EXISTS (SELECT FROM unnest(ARRAY[{names}]) AS name
                         WHERE name = substr($1, 4) OR strpos(name, '@') > 0 AND strpos(substr($1, 4), name) > 0);
                 RETURN;
             END IF;
             \"ebb:former\" := NULLIF(substr($1, strpos($1, ' ') + 1), $1);
             CASE split_part($1, ' ', 1)
                 WHEN 'look' THEN NULL;
                 WHEN 'name' THEN
                     IF \"ebb:former\" = 'locked' THEN
                         RETURN QUERY SELECT {id}, NULL::timestamptz, NULL::text FROM {relation} AS n WHERE {key} FOR KEY SHARE OF n;
                     ELSE
                         RETURN QUERY SELECT {named}, NULL::timestamptz, NULL::text;
                     END IF;
                     RETURN;
                 WHEN 'former' THEN
                     RETURN QUERY SELECT {former}, NULL::timestamptz, NULL::text FROM {relation} AS n WHERE {key} FOR UPDATE OF n;
                     RETURN;
                 WHEN 'delete' THEN {delete};
                 WHEN 'restore' THEN {restore};
                 WHEN 'mark' THEN {mark};
                 WHEN 'revive' THEN {revive};
                 WHEN 'due' THEN {due};
             END CASE;
             RETURN QUERY SELECT {id}, {moment}, {tenant} FROM {relation} AS n WHERE {key} FOR UPDATE OF n;
         END
         ",
        relation = root.relation,
        id = id_sql(&root.key, "n"),
        moment = root.time.moment(&format!("n.{deleted_at}"), &root.zone),
        tenant = root.tenant.as_ref().map_or("NULL".to_owned(), |tenant| format!("n.{tenant}::text")),
        former = status.map_or("NULL".to_owned(), Standing::former),
        names = names.join(", "),
    )
}

/// That a row `n` is the one which the id `$2` names, and the id as the table writes it, whether there is such a row or not.
fn key(key: &[Column]) -> (String, String) {
    let value = |at: usize, column: &Column| match key.len() {
        1 => format!("$2::{}", column.sql_type),
        _ => format!("($2::jsonb ->> {at})::{}", column.sql_type),
    };
    let pairs: Vec<(String, &Column)> =
        key.iter().enumerate().map(|(at, column)| (value(at, column), column)).collect();
    let mut same: Vec<String> =
        pairs.iter().map(|(value, column)| column.operators.same(&format!("n.{}", column.name), value)).collect();
    let texts: Vec<String> = pairs.iter().map(|(value, _)| format!("{value}::text")).collect();
    let named = match texts.as_slice() {
        [one] => one.clone(),
        several => {
            same.push(format!("jsonb_array_length($2::jsonb) = {}", several.len()));
            format!("jsonb_build_array({})::text", several.join(", "))
        }
    };
    (same.join(" AND "), named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_policies_share_a_name_in_the_database() {
        assert_eq!(named("mark", "users"), "mark:users");
        let long = |last: char| format!("{}{last}", "p".repeat(62));
        for what in ["subject", "mark"] {
            let (one, other) = (named(what, &long('a')), named(what, &long('b')));
            assert!(one != other && one.len() == 63 && other.len() == 63, "{one} {other}");
        }
    }
}
