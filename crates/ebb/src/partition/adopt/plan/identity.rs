//! Identity columns: the sequence of one table goes on where that of the other was.

use super::comment;
use crate::partition::adopt::subject::Sequence;
use crate::pg::{Ident, Literal, Relation, block};

/// The new table's own sequence goes on where the old one was, under its name and with its grants.
pub(super) fn move_identity(identity: &Sequence, table: &Relation, parent: &Relation) -> Vec<String> {
    let (column, old) = (Ident::new(&identity.column_name), identity.relation());
    let new = format!("pg_get_serial_sequence({}, {})", Literal(&parent.to_string()), Literal(&identity.column_name));
    let mut sql = vec![
        // Changes nothing, but nobody draws a number from here on.
        format!("ALTER SEQUENCE {old} CACHE {}", identity.cache),
        format!("SELECT setval({new}, s.last_value, s.is_called) FROM {old} s"),
        format!("ALTER TABLE {table} ALTER COLUMN {column} DROP IDENTITY"),
        block(&format!(
            "BEGIN EXECUTE 'ALTER SEQUENCE ' || {new} || ' RENAME TO ' || {}; END",
            Literal(&Ident::new(&identity.name).to_string())
        )),
    ];
    sql.extend(grants(identity));
    sql.extend(identity.comment.iter().map(|text| comment("SEQUENCE", &old.to_string(), text)));
    sql
}

pub(super) fn move_identity_back(identity: &Sequence, table: &Relation, parent: &Relation, n: usize) -> Vec<String> {
    let (column, name) = (Ident::new(&identity.column_name), identity.relation());
    let hidden = Relation::new(&identity.schema_name, format!("{}_seq{n}", parent.name.as_str()));
    let always = if identity.identity == "a" { "ALWAYS" } else { "BY DEFAULT" };
    let cycle = if identity.cycle { "CYCLE" } else { "NO CYCLE" };
    let mut sql = vec![
        format!("ALTER SEQUENCE {name} CACHE {}", identity.cache),
        format!("ALTER SEQUENCE {name} RENAME TO {}", hidden.name),
        format!(
            "ALTER TABLE {table} ALTER COLUMN {column} ADD GENERATED {always} AS IDENTITY (SEQUENCE NAME {name} START WITH {} \
             INCREMENT BY {} MINVALUE {} MAXVALUE {} CACHE {} {cycle})",
            identity.start, identity.increment, identity.minimum, identity.maximum, identity.cache
        ),
        format!("SELECT setval({}, s.last_value, s.is_called) FROM {hidden} s", Literal(&name.to_string())),
    ];
    sql.extend(grants(identity));
    sql.extend(identity.comment.iter().map(|text| comment("SEQUENCE", &name.to_string(), text)));
    sql
}

/// Its grants and no others: a new sequence has those that the schema gives by default.
fn grants(identity: &Sequence) -> Vec<String> {
    let revoke = block(&format!(
        "DECLARE who text; BEGIN FOR who IN SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END \
         FROM pg_class s, aclexplode(s.relacl) a WHERE s.oid = {0}::regclass AND a.grantee <> s.relowner \
         LOOP EXECUTE format('REVOKE ALL ON SEQUENCE %s FROM %s', {0}::regclass, who); END LOOP; END",
        Literal(&identity.relation().to_string())
    ));
    [vec![revoke], identity.grants.clone()].concat()
}
