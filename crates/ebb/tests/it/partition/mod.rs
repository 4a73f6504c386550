//! Partitions by time: they exist before they are needed, whatever the column, and leave only when all of them is due.

mod adopt;
mod back;
mod besides;
mod fresh;
mod kept;
mod majors;
mod out;
mod outward;
mod reach;
mod referrers;
mod restored;
mod rights;
mod split;
mod upkeep;

use ebb::partition::adopt::Request;
use ebb::policy::Period;

/// Adopts a table by the month of `created_at`, with one month ahead of the current one's next.
fn request(table: &str) -> Request {
    Request {
        table: table.into(),
        column: "created_at".into(),
        unit: None,
        by: Period::Month,
        ahead: 2,
        keep: None,
        zone: "UTC".into(),
        policy: None,
        guard: Vec::new(),
        move_foreign_keys: false,
    }
}

/// One key to guard.
fn key(columns: &[&str]) -> Vec<Vec<String>> {
    vec![columns.iter().map(|&column| column.to_owned()).collect()]
}
