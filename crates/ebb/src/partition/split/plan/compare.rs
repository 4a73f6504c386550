//! Whether the parts are what the partition is, row by row, in one look.

use super::Composer;
use crate::partition::split::store::{Column, Told};
use crate::pg::Ident;

impl Composer<'_> {
    /// In one statement, and so of one moment: rows and sums of both sides, without the keys that are still noted.
    pub(super) fn compare(&self) -> String {
        let sums = |alias: &str, from: &str, group: &str| {
            let all: Vec<String> = self.of.columns.iter().map(|column| told(alias, column)).collect();
            format!(
                "SELECT {group} AS n, count(*) AS rows, COALESCE(sum(hash_record_extended(ROW({}), 0)), 0) AS sum FROM ONLY {from} {alias} \
                 WHERE NOT EXISTS (SELECT FROM {} l WHERE {})",
                all.join(", "),
                self.log,
                self.same(alias, "l")
            )
        };
        let bucket = format!("width_bucket(h.{}, {})", self.of.column, self.thresholds());
        let copies: Vec<String> =
            self.parts.iter().enumerate().map(|(n, (part, _))| sums("c", &part.to_string(), &n.to_string())).collect();
        format!(
            "WITH source AS ({} GROUP BY 1), copy AS ({}) \
             SELECT n, COALESCE(source.rows, 0), COALESCE(copy.rows, 0), COALESCE(source.sum, 0) = COALESCE(copy.sum, 0) \
             FROM source FULL JOIN copy USING (n) ORDER BY n",
            sums("h", &self.of.partition.to_string(), &bucket),
            copies.join(" UNION ALL ")
        )
    }
}

/// A column so that only equal bits are equal: 1.0 is not 1.00, whatever the type or a collation says.
fn told(alias: &str, column: &Column) -> String {
    let name = Ident::new(&column.name);
    match column.told {
        Told::Value => format!("{alias}.{name}"),
        Told::Letters => format!("{alias}.{name} COLLATE \"C\""),
        Told::Text => format!("{alias}.{name}::text"),
    }
}
