//! The one function of a policy that touches its root table on behalf of callers. It belongs to the table's owner where
//! that can be arranged, so that neither the caller nor Ebb needs rights on the table. Invariant: it changes only the
//! columns that the policy names, of the one row that the key names.

use sha2::{Digest, Sha256};
use sqlx::PgConnection;

use super::compile::Compiled;
use super::store;
use super::store::rows::{Standing, id_sql};
use crate::Result;
use crate::pg::{Ident, Literal};
use crate::policy::Subjects;

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

/// Creates or replaces it; the owner of the table gets it where the caller may give it away.
pub(crate) async fn create(
    connection: &mut PgConnection,
    policy: &str,
    subjects: &Subjects,
    compiled: &Compiled,
) -> Result<String> {
    let name = name(policy);
    store::define(connection, definition(&name, subjects, compiled)).await?;
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

fn definition(name: &str, subjects: &Subjects, compiled: &Compiled) -> String {
    let root = &compiled.root;
    let ident = |name: &Option<String>| name.as_ref().map(Ident::new);
    let set = |column: Option<Ident>, value: &str| column.map(|column| format!("{column} = {value}"));
    let status = |value: &str| {
        subjects.status.as_ref().map(|status| format!("{} = {}", Ident::new(&status.column), Literal(value)))
    };
    let touched = || set(ident(&subjects.mirror.touched), "COALESCE($3, now())");
    let deleted_at = &root.deleted_at;
    let list = |parts: Vec<Option<String>>| parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let key: Vec<String> = match root.key.as_slice() {
        [one] => vec![format!("n.{} = $2::{}", one.name, one.sql_type)],
        several => several
            .iter()
            .enumerate()
            .map(|(at, column)| format!("n.{} = ($2::jsonb ->> {at})::{}", column.name, column.sql_type))
            .chain([format!("jsonb_array_length($2::jsonb) = {}", several.len())])
            .collect(),
    };
    let key = key.join(" AND ");
    // The id as the table writes it, whether there is such a row or not.
    let named: Vec<String> = match root.key.as_slice() {
        [one] => vec![format!("$2::{}::text", one.sql_type)],
        several => several
            .iter()
            .enumerate()
            .map(|(at, column)| format!("($2::jsonb ->> {at})::{}::text", column.sql_type))
            .collect(),
    };
    let named = match named.as_slice() {
        [one] => one.clone(),
        several => format!("jsonb_build_array({})::text", several.join(", ")),
    };
    let (deleted, active) = match &subjects.status {
        Some(columns) => (status(&columns.deleted), status(&columns.active)),
        None => (None, None),
    };
    // What the application soft-deleted itself: only what mirrors it, and nothing of a deletion before it.
    let mark = list(vec![
        deleted.clone(),
        set(ident(&subjects.mirror.due), "$4"),
        set(ident(&subjects.mirror.notified), "NULL"),
        set(ident(&subjects.mirror.attempted), "NULL"),
    ]);
    let mark = match mark.is_empty() {
        true => "NULL".to_owned(),
        false => format!("UPDATE {} AS n SET {mark} WHERE {key}", root.relation),
    };
    // What the application took back itself: nothing says any more that it is deleted.
    let standing = subjects.status.as_ref().map(|status| Standing {
        column: Ident::new(&status.column),
        deleted: status.deleted.clone(),
        active: status.active.clone(),
    });
    let revive = list(vec![
        standing.map(|standing| standing.revived()),
        set(ident(&subjects.mirror.due), "NULL"),
        set(ident(&subjects.mirror.notified), "NULL"),
        set(ident(&subjects.mirror.attempted), "NULL"),
    ]);
    let revive = match revive.is_empty() {
        true => "NULL".to_owned(),
        false => format!("UPDATE {} AS n SET {revive} WHERE {key}", root.relation),
    };
    let delete = list(vec![
        Some(format!("{deleted_at} = COALESCE(n.{deleted_at}, {})", root.time.value("$3", &root.zone))),
        deleted,
        set(ident(&subjects.mirror.due), "$4"),
        touched(),
    ]);
    let restore = list(vec![
        Some(format!("{deleted_at} = NULL")),
        active,
        set(ident(&subjects.mirror.due), "NULL"),
        set(ident(&subjects.mirror.notified), "NULL"),
        set(ident(&subjects.mirror.attempted), "NULL"),
        touched(),
    ]);
    let due = match set(ident(&subjects.mirror.due), "$4") {
        Some(due) => list(vec![Some(due), touched()]),
        None => format!("{deleted_at} = n.{deleted_at}"),
    };
    // What the subject may be called by: its key, and what its policy contacts it by.
    let contact = subjects.warning.as_ref().map(|warning| &warning.contact);
    let contact = contact.into_iter().flat_map(|contact| [Some(&contact.email), contact.name.as_ref()]).flatten();
    let names = root.key.iter().map(|column| column.name.clone()).chain(contact.map(Ident::new));
    let names: Vec<String> = names.map(|column| format!("lower(btrim(n.{column}::text))")).collect();
    let names = names.join(", ");
    let tenant = root.tenant.as_ref().map_or("NULL".to_owned(), |tenant| format!("n.{tenant}::text"));
    format!(
        "CREATE OR REPLACE FUNCTION ebb.{name} (text, text, timestamptz, timestamptz)
         RETURNS TABLE (\"ebb:id\" text, \"ebb:deleted_at\" timestamptz, \"ebb:tenant\" text)
         LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, {schema}, public, pg_temp SET row_security = off
         SET timezone = 'UTC' AS $ebb$
         BEGIN
             IF starts_with($1, 'is ') THEN
                 RETURN QUERY SELECT {id}, {moment}, {tenant} FROM {relation} AS n
                     WHERE {key} AND substr($1, 4) IN ({names});
                 RETURN;
             END IF;
             CASE $1
                 WHEN 'look' THEN NULL;
                 WHEN 'name' THEN
                     RETURN QUERY SELECT {named}, NULL::timestamptz, NULL::text;
                     RETURN;
                 WHEN 'delete' THEN UPDATE {relation} AS n SET {delete} WHERE {key};
                 WHEN 'restore' THEN UPDATE {relation} AS n SET {restore} WHERE {key};
                 WHEN 'mark' THEN {mark};
                 WHEN 'revive' THEN {revive};
                 WHEN 'due' THEN UPDATE {relation} AS n SET {due} WHERE {key};
             END CASE;
             RETURN QUERY SELECT {id}, {moment}, {tenant} FROM {relation} AS n WHERE {key} FOR UPDATE OF n;
         END
         $ebb$",
        name = Ident::new(name),
        schema = root.relation.schema,
        relation = root.relation,
        id = id_sql(&root.key, "n"),
        moment = root.time.moment(&format!("n.{deleted_at}"), &root.zone),
    )
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
