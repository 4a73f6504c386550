//! A subject's id: its key as text, or a JSON array of texts where the key has several columns.

use super::{Doomed, Root};
use crate::pg::Ident;
use crate::retain::tree::Column;
use crate::{Error, Result};

/// The subject's id as text: the key itself, or a JSON array of texts where it has several columns.
pub(crate) fn id_sql(key: &[Column], alias: &str) -> String {
    match key {
        [one] => format!("{alias}.{}::text", one.name),
        several => {
            let parts: Vec<String> = several.iter().map(|column| format!("{alias}.{}::text", column.name)).collect();
            format!("pg_catalog.jsonb_build_array({})::text", parts.join(", "))
        }
    }
}

/// An id out of the key's columns, as the database writes it.
pub(crate) fn id_text(parts: &[Option<String>]) -> String {
    match parts {
        [one] => one.clone().unwrap_or_default(),
        several => {
            let parts: Vec<String> = several.iter().map(|part| serde_json::json!(part).to_string()).collect();
            format!("[{}]", parts.join(", "))
        }
    }
}

/// The key's columns out of an id.
pub(crate) fn id_parts(id: &str, columns: usize) -> Result<Vec<Option<String>>> {
    if columns == 1 {
        return Ok(vec![Some(id.to_owned())]);
    }
    let parts: Vec<String> = serde_json::from_str(id).map_err(|_| {
        Error::usage(format!("{id:?} is no id of {columns} columns"))
            .with_hint("write a JSON array of texts: [\"eu\", \"17\"]")
    })?;
    if parts.len() != columns {
        return Err(Error::usage(format!("{id:?} has {} parts, and the key {columns} columns", parts.len())));
    }
    Ok(parts.into_iter().map(Some).collect())
}

/// The id of a row of which these columns were read, where its whole key is among them.
pub(crate) fn named_by(row: &[Option<String>], read: &[Column], key: &[Ident]) -> Option<String> {
    let of = |name: &Ident| row[read.iter().position(|column| column.name == *name)?].clone();
    let parts: Vec<Option<String>> = key.iter().map(|name| of(name).map(Some)).collect::<Option<_>>()?;
    Some(id_text(&parts))
}

impl Root {
    /// Subjects by their ids, each at its position.
    pub(crate) fn named<'a>(&self, ids: impl IntoIterator<Item = &'a str>) -> Result<Doomed> {
        let mut named = Doomed::with(self.key.len());
        for (at, id) in ids.into_iter().enumerate() {
            named.push(id_parts(id, self.key.len())?, at as i32);
        }
        Ok(named)
    }
}
