//! Metrics, with the names of the contract in one place. A recorder is installed by whoever runs the node; without one
//! every call here costs nothing.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use super::unit::Unit;
use super::work::Summary;

/// A run is over.
pub(crate) fn run_finished(unit: &Unit, summary: &Summary) {
    let (job, table) = (unit.chore.as_str(), unit.leaf.clone());
    metrics::histogram!("ebb_cleanup_job_duration_seconds", "job_type" => job, "table" => table.clone())
        .record(summary.took.as_secs_f64());
    metrics::counter!("ebb_cleanup_records_processed_total", "job_type" => job, "table" => table.clone(),
        "result" => summary.status.as_str())
    .increment(summary.rows);
    metrics::counter!("ebb_cleanup_runs_total", "job_type" => job, "table" => table.clone(),
        "result" => summary.status.as_str())
    .increment(1);
    for (result, passed_by) in [("skipped", summary.skipped), ("failed", summary.failed)] {
        if passed_by > 0 {
            metrics::counter!("ebb_cleanup_records_processed_total", "job_type" => job, "table" => table.clone(),
                "result" => result)
            .increment(passed_by);
        }
    }
}

/// A pass over a unit happened, idle or not.
pub(crate) fn passed(unit: &Unit, interval: Duration) {
    let now = jiff::Timestamp::now().as_second() as f64;
    let job = unit.chore.as_str();
    metrics::gauge!("ebb_cleanup_job_last_run_timestamp", "job_type" => job).set(now);
    metrics::gauge!("ebb_cleanup_job_interval_seconds", "job_type" => job).set(interval.as_secs_f64());
}

/// Due rows at the last look.
pub(crate) fn pending(unit: &Unit, rows: u64) {
    metrics::gauge!("ebb_cleanup_records_pending", "table" => unit.leaf.clone()).set(rows as f64);
}

/// The same for a table, whichever policies it has.
pub(crate) fn pending_in(table: &str, rows: u64) {
    metrics::gauge!("ebb_cleanup_records_pending", "table" => table.to_owned()).set(rows as f64);
}

/// The age of the oldest due row.
pub(crate) fn oldest_pending(table: &str, age: Duration) {
    metrics::gauge!("ebb_cleanup_oldest_pending_seconds", "table" => table.to_owned()).set(age.as_secs_f64());
}

/// One batch committed.
pub(crate) fn batch(took: Duration) {
    metrics::histogram!("ebb_batch_duration_seconds").record(took.as_secs_f64());
}

/// A unit rested for a reason. Counters count whole numbers, so fractions of a second wait here for their rest.
pub(crate) fn throttled(reason: &'static str, rested: Duration) {
    static RESTED: Mutex<BTreeMap<&'static str, Duration>> = Mutex::new(BTreeMap::new());
    let mut all = RESTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let total = all.entry(reason).or_default();
    *total += rested;
    metrics::counter!("ebb_throttle_seconds_total", "reason" => reason).absolute(total.as_secs());
}

/// This node holds a unit, or no longer does.
pub(crate) fn lease(unit: &Unit, held: bool) {
    metrics::gauge!("ebb_lease_held", "unit" => unit.to_string()).set(if held { 1.0 } else { 0.0 });
}

/// Audit records that are not sealed yet.
pub(crate) fn unsealed(records: u64) {
    metrics::gauge!("ebb_audit_unsealed").set(records as f64);
}

/// Subjects of a policy that could not be erased.
pub(crate) fn stuck(policy: &str, subjects: u64) {
    metrics::gauge!("ebb_subjects_stuck", "policy" => policy.to_owned()).set(subjects as f64);
}

/// Erasures before their time that the review has found.
pub(crate) fn premature(erasures: u64) {
    metrics::gauge!("ebb_audit_premature").set(erasures as f64);
}

/// What the tables of a policy take, indexes included.
pub(crate) fn storage(policy: &str, bytes: u64) {
    metrics::gauge!("ebb_storage_bytes", "policy" => policy.to_owned()).set(bytes as f64);
}

/// How long the partitions of a table last.
pub(crate) fn runway(table: &str, seconds: u64) {
    metrics::gauge!("ebb_partition_runway_seconds", "table" => table.to_owned()).set(seconds as f64);
}

/// What the sweeper found and what became of it: seen, dropped, spared.
pub(crate) fn orphans(policy: &str, result: &'static str, resources: u64) {
    metrics::counter!("ebb_orphans_total", "policy" => policy.to_owned(), "result" => result).increment(resources);
}

/// How many resources a policy has in a state.
pub(crate) fn resources(policy: &str, state: &str, resources: u64) {
    metrics::gauge!("ebb_resources", "policy" => policy.to_owned(), "state" => state.to_owned()).set(resources as f64);
}
