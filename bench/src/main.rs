//! Side by side with what teams write by hand: `make bench`, or one part of it. Every number is a ratio of two things
//! measured in turns in the same run on the same server, so that a busy machine is busy for both.

mod bed;
mod flat;
mod footprint;
mod gentle;
mod http;
mod once;
mod partition;
mod resources;
mod retain;
mod schedule;
mod stall;
mod sweep;

use bed::{Goal, Result};

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let part = std::env::args().nth(1).unwrap_or_else(|| "all".into());
    match run(&part).await {
        Ok(goals) if goals.is_empty() => {
            eprintln!(
                "no benchmark is called {part}; there are all, sweep, gentle, flat, once, partition, resources, retain, schedule, http, footprint"
            );
            std::process::ExitCode::from(2)
        }
        Ok(goals) => report(&goals),
        Err(error) => {
            eprintln!("error: {error}");
            std::process::ExitCode::from(1)
        }
    }
}

async fn run(part: &str) -> Result<Vec<Goal>> {
    let mut goals = Vec::new();
    let wants = |name: &str| part == "all" || part == name;
    if wants("sweep") {
        goals.extend(sweep::run().await?);
    }
    if wants("gentle") {
        goals.extend(gentle::run().await?);
    }
    if wants("flat") {
        goals.extend(flat::run().await?);
    }
    if wants("once") {
        let ratios = once::run().await?;
        goals.extend(
            ratios.iter().map(|r| Goal::at_least(format!("once: {} claims / bare insert", r.name), r.ratio, r.least)),
        );
    }
    if wants("partition") || part.starts_with("partition-") {
        goals.extend(partition::run(part).await?);
    }
    if wants("resources") {
        goals.extend(resources::run().await?);
    }
    if wants("retain") || part.starts_with("retain-") {
        goals.extend(retain::run(part).await?);
    }
    if wants("schedule") || part.starts_with("schedule-") {
        goals.extend(schedule::run(part).await?);
    }
    if wants("http") || part.starts_with("http-") {
        goals.extend(http::run(part).await?);
    }
    if wants("footprint") {
        goals.extend(footprint::run().await?);
    }
    Ok(goals)
}

/// The table that docs/benchmarks.md carries. A goal that is missed is said, not hidden; noise is no failure.
fn report(goals: &[Goal]) -> std::process::ExitCode {
    println!("\n| what | measured | goal | |\n| --- | --- | --- | --- |");
    for goal in goals {
        println!("{goal}");
    }
    std::process::ExitCode::SUCCESS
}
