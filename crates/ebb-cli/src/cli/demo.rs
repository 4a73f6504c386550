//! placeholder
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}
pub(crate) async fn run(_: Args, _: ebb::config::Env) -> ebb::Result<super::Outcome> {
    Ok(super::Outcome::Done)
}
