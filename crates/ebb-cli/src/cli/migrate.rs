//! `ebb migrate`: the schema, as its owner.

use super::{Context, Outcome};
use ebb::Result;

pub(crate) async fn run(context: &Context) -> Result<Outcome> {
    let migrated = context.engine.migrate().await?;
    match migrated.applied.as_slice() {
        [] => say!("the ebb schema is at version {}; nothing to do", migrated.version),
        applied => say!("applied {}; the ebb schema is at version {}", applied.join(", "), migrated.version),
    }
    if let Some(url) = context.embedded_url() {
        say!("the database is Ebb's own; reach it while a command runs with: psql '{url}'");
    }
    Ok(Outcome::Done)
}
