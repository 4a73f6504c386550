//! The parts, unseen: made like the table, filled without an index, which is built once the rows are there.

use super::note::Noting;
use super::{BOUND, Composer, bounds};
use crate::partition::adopt::derived_checks;
use crate::partition::adopt::subject::{Index, outside_quotes};
use crate::partition::split::store::Hindrances;
use crate::pg::{Ident, Literal, Relation, block};
use crate::{Error, Result};

/// Where the pages of a batch go in the statement that copies it: last, behind every name.
const FROM: &str = "{from}";
const TO: &str = "{to}";

/// The statement that copies a batch, with its pages.
pub(crate) fn batch(statement: &str, from: i64, to: i64) -> String {
    let mut batch = statement.to_owned();
    for (mark, page) in [(TO, to), (FROM, from)] {
        if let Some(at) = batch.rfind(mark) {
            batch.replace_range(at..at + mark.len(), &page.to_string());
        }
    }
    batch
}

impl Composer<'_> {
    pub(super) fn prepare(&self) -> Vec<String> {
        let (table, column, staging, owner) =
            (&self.of.table, &self.of.column, &self.staging, Ident::new(&self.of.owner));
        let mut sql = vec![
            format!(
                "CREATE TABLE {staging} (LIKE {table} INCLUDING DEFAULTS INCLUDING GENERATED) PARTITION BY RANGE ({column})"
            ),
            format!("ALTER TABLE {staging} OWNER TO {owner}"),
            for_nobody(staging),
        ];
        let oid = |relation: &Relation| format!("{}::regclass", Literal(&relation.to_string()));
        for (part, period) in &self.parts {
            let (_, from, to) = period;
            sql.push(format!(
                "SELECT ebb.partition_table({}, {}, {})",
                oid(table),
                oid(&self.of.partition),
                Literal(part.name.as_str())
            ));
            sql.extend(self.free_owner(part));
            let above = from.as_ref().map_or(String::new(), |from| format!(" AND {column} >= {}", Literal(from)));
            sql.push(format!(
                "ALTER TABLE {part} ADD CONSTRAINT {BOUND} CHECK ({column} IS NOT NULL{above} AND {column} < {})",
                Literal(to)
            ));
            if let Some(from) = from {
                sql.push(derived_checks(part, column, &Literal(&self.of.kind).to_string(), from, to));
            }
            sql.push(format!("ALTER TABLE {staging} ATTACH PARTITION {part} {}", bounds(period)));
        }
        let (log, partition, note) = (&self.log, &self.of.partition, &self.note);
        sql.extend([
            format!("CREATE TABLE {log} AS SELECT {} FROM ONLY {partition} WITH NO DATA", self.key("")),
            format!("ALTER TABLE {log} ADD COLUMN ebb_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
            format!("ALTER TABLE {log} OWNER TO {owner}"),
            for_nobody(log),
            self.note_function(Noting::Keys),
            format!("ALTER FUNCTION {note}() OWNER TO {owner}"),
            format!("REVOKE EXECUTE ON FUNCTION {note}() FROM PUBLIC"),
        ]);
        sql
    }

    /// Writers write to the parts with the rights of their owner, whom nothing may keep from it until they are seen.
    fn free_owner(&self, part: &Relation) -> Vec<String> {
        let Hindrances { is_forced, lacking, .. } = &self.of.hindrances;
        let forced = is_forced.then(|| format!("ALTER TABLE {part} NO FORCE ROW LEVEL SECURITY"));
        let owner = Ident::new(&self.of.owner);
        let rights = (!lacking.is_empty()).then(|| format!("GRANT {} ON {part} TO {owner}", lacking.join(", ")));
        forced.into_iter().chain(rights).collect()
    }

    /// One batch; the pages are filled in. There is no index yet, so a row that is changed meanwhile can come twice.
    pub(super) fn copy(&self) -> String {
        let columns = self.plain_columns("");
        format!(
            "INSERT INTO {} ({columns}) SELECT {columns} FROM ONLY {} WHERE ctid >= '({FROM},0)' AND ctid < '({TO},0)'",
            self.staging, self.of.partition
        )
    }

    pub(super) fn stand_alone(&self) -> Vec<String> {
        let staging = &self.staging;
        let detach = self.parts.iter().map(|(part, _)| format!("ALTER TABLE {staging} DETACH PARTITION {part}"));
        detach.chain([format!("DROP TABLE {staging}")]).collect()
    }

    /// Whatever was changed since the copy began is noted, and comes back by the log: without it no key is there twice,
    /// and the indexes can be built.
    pub(super) fn take_out(&self) -> Vec<String> {
        let (log, same) = (&self.log, self.same("c", "l"));
        let delete = |(part, _): &(Relation, _)| format!("DELETE FROM ONLY {part} c USING {log} l WHERE {same}");
        self.parts.iter().map(delete).collect()
    }

    pub(super) fn indexes(&self, part: &Relation) -> Result<Vec<String>> {
        let mut sql = self.of.indexes.iter().map(|index| whole_index(index, part)).collect::<Result<Vec<_>>>()?;
        for definition in &self.of.local_indexes {
            let unique = if definition.starts_with("CREATE UNIQUE ") { "UNIQUE " } else { "" };
            sql.push(plain_index(unique, definition, part)?);
        }
        Ok(sql)
    }
}

fn whole_index(index: &Index, on: &Relation) -> Result<String> {
    match index.constraint() {
        Some(definition) => Ok(format!("ALTER TABLE {on} ADD {definition}")),
        None => {
            let unique = if index.is_unique { "UNIQUE " } else { "" };
            plain_index(unique, &index.definition, on)
        }
    }
}

fn plain_index(unique: &str, definition: &str, on: &Relation) -> Result<String> {
    let at = outside_quotes(definition, " USING ")
        .ok_or_else(|| Error::failed(format!("cannot read the index {definition}")))?;
    Ok(format!("CREATE {unique}INDEX ON {on}{}", &definition[at..]))
}

/// What the schema's default privileges gave to others, on a table that is nobody's business and on its sequence, is taken
/// back: no row-level security guards it.
fn for_nobody(table: &Relation) -> String {
    block(&format!(
        "DECLARE one record; BEGIN FOR one IN SELECT DISTINCT CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE '' END AS what, \
         c.oid::regclass AS name, CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(acl.grantee)) END AS who \
         FROM pg_class c, aclexplode(c.relacl) acl WHERE acl.grantee <> c.relowner AND (c.oid = {0}::regclass OR c.oid IN \
         (SELECT d.objid FROM pg_depend d WHERE d.refobjid = {0}::regclass AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i'))) \
         LOOP EXECUTE format('REVOKE ALL ON %s%s FROM %s', one.what, one.name, one.who); END LOOP; END",
        Literal(&table.to_string())
    ))
}

#[cfg(test)]
mod tests {
    use super::batch;

    #[test]
    fn pages_are_filled_in_whatever_the_tables_are_called() {
        let copy =
            r#"INSERT INTO "a{to}" SELECT * FROM ONLY "{from}" WHERE ctid >= '({from},0)' AND ctid < '({to},0)'"#;
        let filled = r#"INSERT INTO "a{to}" SELECT * FROM ONLY "{from}" WHERE ctid >= '(7,0)' AND ctid < '(9,0)'"#;
        assert_eq!(batch(copy, 7, 9), filled);
    }
}
