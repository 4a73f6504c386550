//! The demo's big table: an ordinary one becomes partitioned and its history is split, and the same question is asked
//! before and after. Invariant: what it prints about plans is what the server said.

use std::time::Instant;

use ebb::Result;
use ebb::partition::adopt::{self, Request};
use ebb::partition::{finish, split};
use ebb::policy::{Period, human};
use serde_json::Value;

use super::{rounded, store};
use crate::cli::Context;
use crate::cli::partition::file;

const TABLE: &str = "public.ingest";

/// Adopts and splits the table; says what reading one month of it took before, and takes now.
pub(super) async fn show(context: &Context) -> Result<()> {
    let database = context.engine.database();
    store::fill_ingest(database).await?;
    let before = reads(&store::plan_of_a_month(database).await?);
    let begun = Instant::now();
    let request = Request {
        table: TABLE.into(),
        column: "created_at".into(),
        unit: None,
        by: Period::Month,
        ahead: 3,
        keep: None,
        zone: "UTC".into(),
        policy: None,
        guard: Vec::new(),
        move_foreign_keys: false,
    };
    let adopted = adopt::adopt(database, &request, "demo", &mut |_| ()).await?;
    let wanted = split::Request { table: TABLE.into(), ..split::Request::default() };
    let made = split::split(database, &wanted, &mut |_| ()).await?;
    finish(database, TABLE, &mut |_| ()).await?;
    let after = reads(&store::plan_of_a_month(database).await?);
    say!(
        "{TABLE} was one table; it is adopted and split into {} months ({})",
        made.parts.len(),
        human(rounded(begun.elapsed()))
    );
    say!("  counting one month of it before: {before}");
    say!("  counting one month of it now:    {after}");
    file::add(context, &adopted.policy, &adopted.spec)
}

/// The scans of a plan, and how many pages they touched.
fn reads(plan: &Value) -> String {
    let mut scans = Vec::new();
    walk(plan, &mut scans);
    let root = &plan[0]["Plan"];
    let pages = ["Shared Hit Blocks", "Shared Read Blocks"].iter().filter_map(|key| root[*key].as_i64()).sum::<i64>();
    format!("{}, {} pages", scans.join(", "), crate::cli::output::count(pages))
}

fn walk(value: &Value, scans: &mut Vec<String>) {
    match value {
        Value::Object(node) => {
            if let (Some(kind), Some(table)) = (node.get("Node Type"), node.get("Relation Name")) {
                scans.push(format!("{} on {}", kind.as_str().unwrap_or_default(), table.as_str().unwrap_or_default()));
            }
            node.values().for_each(|inner| walk(inner, scans));
        }
        Value::Array(items) => items.iter().for_each(|inner| walk(inner, scans)),
        _ => {}
    }
}
