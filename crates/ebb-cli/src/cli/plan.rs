//! `ebb plan`: what differs from the file and what is due now. Changes nothing.

use std::time::Duration;

use ebb::Result;
use ebb::plan::{Plan, PolicyPlan};

use super::{Context, Outcome, apply, output, words};

/// Options of `ebb plan`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the plan as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<Outcome> {
    let plan = context.engine.plan(&apply::wanted(context)).await?;
    if args.json {
        output::json(&plan)?;
    } else {
        print(&plan);
    }
    Ok(if plan.has_problems() { Outcome::Problems } else { Outcome::Done })
}

fn print(plan: &Plan) {
    apply::print(&plan.changes, false);
    say!();
    let rows = plan.policies.iter().map(|policy| line(policy, plan)).collect();
    let header = ["policy", "table", "due", "of", "space", "time", "next run"];
    output::table(&header, rows, "no expire policy is active, now or after `ebb apply`");
    for policy in &plan.policies {
        say!();
        details(policy);
    }
    if !plan.changes.is_empty() {
        say!("\nmake it so with: ebb apply");
    }
}

fn line(policy: &PolicyPlan, plan: &Plan) -> Vec<String> {
    let known = |text: Option<String>| text.unwrap_or_else(|| "?".into());
    let time = policy.estimated_seconds.map(|seconds| match policy.due_rows {
        Some(0) => "-".into(),
        _ => format!("~{}", words::span(Duration::from_secs_f64(seconds.clamp(0.0, 1e9)))),
    });
    let next = if policy.next_run.is_some_and(|next| next > plan.at) || policy.change.is_none() {
        policy.next_run.map_or("?".into(), |next| words::upcoming(next, plan.at))
    } else {
        "when applied".into()
    };
    vec![
        policy.policy.clone(),
        policy.table.clone(),
        known(policy.due_rows.map(|rows| words::about(rows, policy.exact))),
        known(policy.total_rows.map(|rows| words::about(rows, policy.exact))),
        known(policy.due_bytes.map(words::bytes)),
        known(time),
        if policy.paused.is_some() { "paused".into() } else { next },
    ]
}

fn details(policy: &PolicyPlan) {
    say!("{}", policy.policy);
    for shape in &policy.shape {
        say!("  {shape}");
    }
    if let (Some(rate), true) = (policy.rows_per_second, policy.due_rows > Some(0)) {
        let from = if policy.rate_measured { "as its last runs did" } else { "assumed; no run has shown better yet" };
        say!("  {} rows/s, {from}", words::about(rate as u64, false));
    }
    if policy.mode == "observe" {
        say!("  mode = \"observe\": it counts and deletes nothing");
    }
    if let Some(limit) = &policy.brake {
        say!("  the brake ({limit}) would stop it before its first batch");
        if let Some(remedy) = &policy.remedy {
            say!("  once it has, let it go on with: {remedy}");
        }
    }
    if let Some(paused) = &policy.paused {
        say!("  {paused}");
    }
    for problem in &policy.problems {
        say!("  {} {}", if problem.refused { "error:" } else { "!" }, problem.message);
        for line in problem.fix.iter().flat_map(|fix| fix.lines()) {
            say!("    {line}");
        }
    }
}
