//! What is out of its table, or on its way: it goes also where others read all the time, one that cannot go keeps no other, and
//! its rows are still those of their subjects.

use std::time::Duration;

use ebb::partition::adopt::{Progress, adopt};
use ebb::partition::rollback;
use ebb::partition::split::{self, split};
use ebb::spine::Status;

use super::besides::doctor;
use super::upkeep::Traffic;
use crate::harness::{Ebb, execute, fetch, run_once};

/// Partitions of `public.p` by month, kept for one.
fn policy(more: &str) -> String {
    format!(
        "[[partition]]\nname = \"p\"\ntable = \"public.p\"\ncolumn = \"at\"\nby = \"month\"\nahead = 2\nkeep = \"1mo\"\nbrake = {{ share = \"off\" }}\n{more}\n"
    )
}

const USERS: &str = "[[retain]]\nname = \"users\"\ntable = \"public.users\"\ndeleted_at = \"deleted_at\"\ngrace = \"1h\"\nbrake = { share = \"off\" }\n";

/// Users, and what they did in February and March; it is May.
async fn with_users(refers: &str) -> Ebb {
    let ebb = Ebb::with(&format!(
        "CREATE TABLE public.users (id int PRIMARY KEY, deleted_at timestamptz, n int);
         INSERT INTO public.users SELECT generate_series(1, 9);
         CREATE TABLE public.p (id int, at timestamptz NOT NULL, user_id int {refers}, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
         CREATE INDEX ON public.p (user_id)"
    ))
    .await;
    ebb.set_clock("2026-02-10 00:00:00+00").await;
    ebb
}

async fn fill(ebb: &Ebb) {
    ebb.once("p").await;
    ebb.db
        .execute("INSERT INTO public.p SELECT u, m::timestamptz, u FROM generate_series(1, 9) u, unnest(ARRAY['2026-02-15', '2026-03-15', '2026-04-15']) m")
        .await;
}

async fn stopped(ebb: &Ebb) -> Option<String> {
    ebb.db.scalar("SELECT stopped FROM ebb.policy WHERE name = 'users'").await
}

/// Soft-deletes a user long ago, and lets the node erase whoever is due.
async fn erase(ebb: &Ebb, user: i32) {
    ebb.db
        .execute(&format!("UPDATE public.users SET deleted_at = ebb.now() - interval '2 days' WHERE id = {user}"))
        .await;
    let runs = ebb.once("users").await;
    assert_eq!(stopped(ebb).await, None, "{runs:?}");
    assert_eq!(
        ebb.db.scalar::<i64>(&format!("SELECT count(*) FROM public.users WHERE id = {user}")).await,
        0,
        "{runs:?}"
    );
}

#[tokio::test]
async fn what_upkeep_takes_out_is_still_its_subjects_and_stops_no_erasure() {
    let named = "children = [ { table = \"public.p\", column = \"user_id\", action = \"delete\" } ]";
    let linked =
        "children = [ { table = \"public.p\", column = \"user_id\", references = \"id\", action = \"delete\" } ]";
    for (refers, children) in
        [("REFERENCES public.users ON DELETE CASCADE", ""), ("REFERENCES public.users", named), ("", linked)]
    {
        let ebb = with_users(refers).await;
        ebb.apply(&format!("{}{USERS}{children}", policy("expired = \"detach\"\ndetached_for = \"10d\""))).await;
        fill(&ebb).await;
        erase(&ebb, 1).await;
        ebb.set_clock("2026-05-05 00:00:00+00").await;
        ebb.once("p").await;
        assert_eq!(ebb.list("id", "public.p_2026_03").await, "2,3,4,5,6,7,8,9", "it is out, {refers} {children}");
        assert!(ebb.list("id", "public.p").await.starts_with("2,3"), "and not of the table any more");
        erase(&ebb, 2).await;
        assert_eq!(ebb.list("id", "public.p_2026_03").await, "3,4,5,6,7,8,9", "{refers} {children}");
        // A hold binds there as before.
        ebb.db.execute("SELECT ebb.place_hold('users', '3', 'court')").await;
        ebb.set_clock("2026-05-20 00:00:00+00").await;
        let runs = ebb.once("p").await.runs;
        assert!(runs[0].note.as_ref().is_some_and(|note| note.contains("rows of subjects on hold")), "{runs:?}");
        ebb.db.execute("SELECT ebb.lift_hold('users', '3')").await;
        ebb.once("p").await;
        assert!(ebb.db.scalar::<bool>("SELECT to_regclass('public.p_2026_03') IS NULL").await);
        erase(&ebb, 4).await;
    }
}

#[tokio::test]
async fn what_adopting_splitting_and_rolling_back_prepare_stops_no_erasure() {
    let ebb = with_users("").await;
    ebb.db
        .execute(
            "CREATE TABLE public.t (id int PRIMARY KEY, created_at timestamptz NOT NULL, user_id int REFERENCES public.users ON DELETE CASCADE);
             CREATE INDEX ON public.t (user_id);
             INSERT INTO public.t SELECT u * 10 + m, make_date(2025, m, 5), u FROM generate_series(1, 9) u, generate_series(6, 12) m",
        )
        .await;
    ebb.apply(USERS).await;
    let engine = ebb.another(ebb.db.open());
    let begun = tokio::spawn(async move {
        let mut watch = |progress| {
            assert!(!matches!(&progress, Progress::Step(_, _, title) if title.contains("move the name")), "killed")
        };
        adopt(engine.database(), &super::request("public.t"), "test", &mut watch).await
    });
    assert!(begun.await.is_err());
    erase(&ebb, 1).await;
    adopt(ebb.engine.database(), &super::request("public.t"), "test", &mut |_| ()).await.unwrap();
    erase(&ebb, 2).await;
    let request = || split::Request { table: "public.t".into(), partition: None, since: None, max_lock: None };
    let engine = ebb.another(ebb.db.open());
    let begun = tokio::spawn(async move {
        let mut watch = |progress| {
            assert!(!matches!(&progress, Progress::Step(_, _, title) if title.contains("put the parts")), "killed")
        };
        split(engine.database(), &request(), &mut watch).await
    });
    assert!(begun.await.is_err());
    erase(&ebb, 3).await;
    split(ebb.engine.database(), &request(), &mut |_| ()).await.unwrap();
    erase(&ebb, 4).await;
    assert_eq!(ebb.list("user_id", "(SELECT DISTINCT user_id FROM public.t) t").await, "5,6,7,8,9");
    // Nor has anything else that is left of it whoever went.
    let tables = "SELECT array_agg(oid::regclass::text) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
                  AND EXISTS (SELECT FROM pg_attribute WHERE attrelid = pg_class.oid AND attname = 'user_id')";
    for table in ebb.db.scalar::<Vec<String>>(tables).await {
        let left: i64 = ebb.db.scalar(&format!("SELECT count(*) FROM ONLY {table} WHERE user_id <= 4")).await;
        assert_eq!(left, 0, "{table}");
    }
    let engine = ebb.another(ebb.db.open());
    let begun = tokio::spawn(async move {
        let mut watch = |progress| {
            assert!(!matches!(&progress, Progress::Step(_, _, title) if title.contains("move the name back")), "killed")
        };
        rollback(engine.database(), "public.t", "test", &mut watch).await
    });
    assert!(begun.await.is_err());
    erase(&ebb, 5).await;
    rollback(ebb.engine.database(), "public.t", "test", &mut |_| ()).await.unwrap();
    erase(&ebb, 6).await;
    assert_eq!(ebb.list("user_id", "(SELECT DISTINCT user_id FROM public.t) t").await, "7,8,9");
}

#[tokio::test]
async fn a_partition_that_somebody_takes_out_again_is_nobodys_but_theirs() {
    let ebb = with_users("").await;
    let detach = "expired = \"detach\"\ndetached_for = \"1d\"";
    ebb.apply(&policy(detach)).await;
    fill(&ebb).await;
    ebb.set_clock("2026-04-02 00:00:00+00").await;
    ebb.once("p").await;
    // Somebody wants it back, and for longer.
    ebb.db.execute("ALTER TABLE public.p ATTACH PARTITION public.p_2026_02 FOR VALUES FROM ('2026-02-01 00:00:00+00') TO ('2026-03-01 00:00:00+00')").await;
    ebb.apply(&policy(detach).replace("1mo", "2mo")).await;
    ebb.once("p").await;
    assert_eq!(ebb.list("relation", "ebb.detached").await, "", "it is a partition like any other");
    ebb.db.execute("ALTER TABLE public.p DETACH PARTITION public.p_2026_02").await;
    ebb.set_clock("2026-05-10 00:00:00+00").await;
    ebb.once("p").await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM public.p_2026_02").await, 9);
}

#[tokio::test]
async fn rows_go_at_once_and_their_table_later_where_what_it_refers_to_is_always_read() {
    let ebb = with_users("REFERENCES public.users").await;
    ebb.apply(&policy("")).await;
    fill(&ebb).await;
    ebb.set_clock("2026-05-05 00:00:00+00").await;
    let reads = "SELECT count(*), pg_sleep(0.2 + random() / 5) FROM public.users";
    let traffic = Traffic::of(&ebb, &[reads, reads, reads, reads, "SELECT count(*) FROM public.users"]).await;
    let runs = ebb.once("p").await.runs;
    let waited = traffic.ends().await[4];
    assert!(runs[0].status == Status::Success && runs[0].rows == 18, "{runs:?}");
    assert!(waited < Duration::from_millis(500), "a reader waited for {waited:?}");
    // Both, or the one for which no moment without readers came.
    let left = ebb.list("relname", "pg_class WHERE relname IN ('p_2026_02', 'p_2026_03')").await;
    for table in left.split(',').filter(|table| !table.is_empty()) {
        assert_eq!(ebb.list("id", &format!("public.{table}")).await, "");
        let emptied: bool = ebb
            .db
            .scalar(&format!("SELECT bool_and(details ->> 'emptied' = 'true') AND sum(rows) = 9 FROM ebb.audit WHERE action = 'drop_partition' AND relation LIKE '%{table}'"))
            .await;
        assert!(emptied, "{table}");
    }
    if let Some(first) = left.split(',').find(|table| !table.is_empty()) {
        let note = runs[0].note.clone().unwrap_or_default();
        let says = format!("{first} is empty, and goes when nobody reads what it refers to for a moment (pid ");
        assert!(note.contains(&says), "{note}");
    }
    ebb.once("p").await;
    let gone = "SELECT count(*) = 0 FROM pg_class WHERE relname IN ('p_2026_02', 'p_2026_03')";
    assert!(ebb.db.scalar::<bool>(gone).await);
    let kept: i64 = ebb.db.scalar("SELECT count(*) FROM ebb.detached").await;
    assert_eq!(
        (kept, ebb.db.scalar::<i64>("SELECT sum(rows)::int8 FROM ebb.audit WHERE action = 'drop_partition'").await),
        (0, 18)
    );
}

#[tokio::test]
async fn who_keeps_a_detach_from_ending_is_named_and_keeps_nothing_else() {
    let ebb = with_users("REFERENCES public.users ON DELETE CASCADE").await;
    ebb.apply(&format!(
        "{USERS}{}",
        policy("batch = { timeout = \"1s\" }\nexpired = \"detach\"\ndetached_for = \"1d\"")
    ))
    .await;
    fill(&ebb).await;
    ebb.set_clock("2026-04-02 00:00:00+00").await;
    ebb.once("p").await;
    ebb.set_clock("2026-05-02 00:00:00+00").await;
    let mut reader = ebb.client().await;
    execute(&mut reader, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM public.p").await;
    let pid: i32 = fetch(&mut reader, "SELECT pg_backend_pid()").await;
    for _ in 0..2 {
        let runs = ebb.once("p").await.runs;
        let note = runs[0].note.clone().unwrap_or_default();
        assert_eq!(runs[0].status, Status::Failed, "{note}");
        assert!(note.contains(&format!("gave way to others (pid {pid} has been in a transaction for ")), "{note}");
    }
    let left = "SELECT to_regclass('public.p_2026_02') IS NULL AND to_regclass('public.p_2026_07') IS NOT NULL";
    assert!(ebb.db.scalar::<bool>(left).await, "what is out goes, and what is missing is made");
    let pending = "SELECT count(*) FROM pg_inherits WHERE inhdetachpending";
    assert_eq!(ebb.db.scalar::<i64>(pending).await, 1);
    // Nobody sees the rows of one that is half out: whoever is erased waits until it is.
    ebb.db.execute("UPDATE public.users SET deleted_at = ebb.now() - interval '2 days' WHERE id = 1").await;
    let runs = ebb.once("users").await.runs;
    assert!(runs.iter().any(|run| run.note.as_ref().is_some_and(|note| note.contains("changes just now"))), "{runs:?}");
    execute(&mut reader, "COMMIT").await;
    assert_eq!(ebb.once("p").await.runs[0].status, Status::Success);
    assert_eq!(ebb.db.scalar::<i64>(pending).await, 0);
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM public.p_2026_03").await, 9, "out, for another day");
    erase(&ebb, 1).await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM public.p_2026_03").await, 8);
}

#[tokio::test]
async fn a_detach_that_nobody_watches_any_more_ends() {
    let ebb = with_users("").await;
    ebb.apply(&policy("")).await;
    fill(&ebb).await;
    ebb.set_clock("2026-04-02 00:00:00+00").await;
    let mut reader = ebb.client().await;
    execute(&mut reader, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM public.p").await;
    let engine = ebb.another(ebb.db.open());
    let run = tokio::spawn(async move { run_once(&engine, &["p"]).await });
    let detaching = "FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'ebb/detach' AND state = 'active' AND query LIKE 'ALTER TABLE%'";
    let watchers = "FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'ebb/detach' AND query NOT LIKE 'ALTER TABLE%'";
    ebb.until(&format!("SELECT EXISTS (SELECT {watchers}) {detaching}")).await;
    let pid: i32 = ebb.db.scalar(&format!("SELECT pid {detaching}")).await;
    ebb.db.execute(&format!("SELECT pg_terminate_backend(pid) {watchers}")).await;
    ebb.until(&format!("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid})")).await;
    run.abort();
    execute(&mut reader, "COMMIT").await;
}

#[tokio::test]
async fn one_that_cannot_be_dropped_keeps_no_other() {
    let ebb = with_users("").await;
    ebb.apply(&policy("")).await;
    fill(&ebb).await;
    ebb.db.execute("CREATE VIEW public.of_february AS SELECT * FROM public.p_2026_02").await;
    ebb.set_clock("2026-05-05 00:00:00+00").await;
    for tried in 1..3 {
        let runs = ebb.once("p").await.runs;
        let note = runs[0].note.clone().unwrap_or_default();
        assert_eq!(runs[0].status, Status::Failed, "{note}");
        assert!(
            note.contains("cannot drop table public.p_2026_02 because other objects depend on it"),
            "{tried}: {note}"
        );
        let left = ebb.list("relname", "pg_class WHERE relname ~ '^p_2026_0.$' AND relkind = 'r'").await;
        assert_eq!(left, "p_2026_02,p_2026_04,p_2026_05,p_2026_06,p_2026_07", "March went all the same");
    }
    ebb.db.execute("DROP VIEW public.of_february").await;
    assert_eq!(ebb.once("p").await.runs[0].status, Status::Success);
    assert!(ebb.db.scalar::<bool>("SELECT to_regclass('public.p_2026_02') IS NULL").await);
}

#[tokio::test]
async fn an_expired_partition_leaves_while_none_can_be_made() {
    let ebb = with_users("REFERENCES public.users").await;
    ebb.apply(&policy("expired = \"detach\"")).await;
    fill(&ebb).await;
    ebb.set_clock("2026-04-05 00:00:00+00").await;
    ebb.once("p").await;
    ebb.apply(&policy("").replace("1mo", "2mo")).await;
    ebb.set_clock("2026-05-05 00:00:00+00").await;
    // Writers of what it refers to keep partitions from being made, and what is out from nothing.
    let writes = "BEGIN; UPDATE public.users SET n = 1 WHERE id = 8; SELECT pg_sleep(0.3); COMMIT";
    let others = "BEGIN; UPDATE public.users SET n = 1 WHERE id = 9; SELECT pg_sleep(0.3); COMMIT";
    let third = "BEGIN; UPDATE public.users SET n = 1 WHERE id = 7; SELECT pg_sleep(0.3); COMMIT";
    let traffic = Traffic::of(&ebb, &[writes, others, third]).await;
    let runs = ebb.once("p").await.runs;
    let waited = traffic.ends().await;
    assert!(runs[0].rows == 9, "February went: {runs:?}");
    assert!(waited.iter().all(|one| *one < Duration::from_millis(900)), "{waited:?}");
}

#[tokio::test]
async fn rows_are_not_refused_because_others_write_all_the_time() {
    let ebb = with_users("REFERENCES public.users").await;
    ebb.apply(&policy("")).await;
    fill(&ebb).await;
    // Three days before the last partition ends: from here on others wait rather than be refused.
    ebb.set_clock("2026-04-28 00:00:00+00").await;
    let writes = [
        "BEGIN; UPDATE public.users SET n = 1 WHERE id = 7; SELECT pg_sleep(0.4); COMMIT",
        "BEGIN; UPDATE public.users SET n = 1 WHERE id = 8; SELECT pg_sleep(0.3); COMMIT",
        "BEGIN; UPDATE public.users SET n = 1 WHERE id = 9; SELECT pg_sleep(0.35); COMMIT",
    ];
    for by_hand in [false, true] {
        let traffic = Traffic::of(&ebb, &writes).await;
        if by_hand {
            ebb.db.execute("DROP TABLE public.p_2026_05, public.p_2026_06; SELECT ebb.ensure_partitions('p')").await;
        } else {
            let runs = ebb.once("p").await.runs;
            assert_eq!(runs[0].status, Status::Success, "{runs:?}");
        }
        let waited = traffic.ends().await;
        assert!(waited.iter().all(|one| *one < Duration::from_secs(4)), "{waited:?}");
        ebb.db
            .execute("INSERT INTO public.p VALUES (1000, '2026-05-03', 1); DELETE FROM public.p WHERE id = 1000")
            .await;
    }
}

#[tokio::test]
async fn every_gap_of_a_period_gets_its_partition_and_bounds_beyond_the_calendar_are_no_error() {
    let ebb = Ebb::with(
        "CREATE TABLE public.p (at timestamptz NOT NULL) PARTITION BY RANGE (at);
         CREATE TABLE public.p_a PARTITION OF public.p FOR VALUES FROM ('2026-02-12 00:00+00') TO ('2026-02-13 00:00+00');
         CREATE TABLE public.p_b PARTITION OF public.p FOR VALUES FROM ('2026-02-20 00:00+00') TO ('2026-03-02 00:00+00');
         CREATE TABLE public.e (at bigint NOT NULL) PARTITION BY RANGE (at);
         CREATE TABLE public.e_old PARTITION OF public.e FOR VALUES FROM (-9223372036854775808) TO (1769904000);
         CREATE TABLE public.e_far PARTITION OF public.e FOR VALUES FROM (4102444800) TO (9223372036854775807)",
    )
    .await;
    ebb.set_clock("2026-02-10 12:00:00+00").await;
    let e = policy("").replace("\"p\"", "\"e\"").replace("public.p", "public.e");
    ebb.apply(&format!("{}{e}", policy(""))).await;
    let finished = run_once(&ebb.engine, &["p", "e"]).await.unwrap();
    assert!(finished.runs.len() == 2 && finished.runs.iter().all(|run| run.status == Status::Success), "{finished:?}");
    ebb.db.execute("INSERT INTO public.p SELECT generate_series('2026-02-01 00:00+00'::timestamptz, '2026-04-30 00:00+00', '6 hours')").await;
    ebb.db.execute("INSERT INTO public.e VALUES (1771000000), (1775000000), (9000000000000000000)").await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    for listed in ebb::partition::list(&mut tx, None).await.unwrap() {
        assert_eq!((listed.missing, listed.runway_seconds / 86_400), (0, 79), "{listed:?}");
    }
}

#[tokio::test]
async fn what_a_policy_of_another_name_took_out_is_not_forgotten() {
    let ebb = with_users("").await;
    let detach = policy("expired = \"detach\"\ndetached_for = \"10d\"");
    ebb.apply(&detach).await;
    fill(&ebb).await;
    ebb.set_clock("2026-04-02 00:00:00+00").await;
    ebb.once("p").await;
    ebb.apply(&detach.replace("name = \"p\"", "name = \"q\"")).await;
    ebb.once("q").await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM public.p_2026_02").await, 9, "not before its time");
    ebb.set_clock("2026-04-15 00:00:00+00").await;
    ebb.once("q").await;
    assert!(ebb.db.scalar::<bool>("SELECT to_regclass('public.p_2026_02') IS NULL").await);
    // What was to stay for ever does, whatever the next one says.
    let for_ever = policy("expired = \"detach\"").replace("name = \"p\"", "name = \"q\"");
    ebb.apply(&for_ever).await;
    ebb.set_clock("2026-05-02 00:00:00+00").await;
    ebb.once("q").await;
    ebb.apply(&policy("")).await;
    ebb.once("p").await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM public.p_2026_03").await, 9);
}

/// A policy by age that no longer lets partitions go as a whole leaves one that is on its way where it is.
#[tokio::test]
async fn one_that_its_policy_no_longer_drops_is_named() {
    let ebb = Ebb::with(
        "CREATE TABLE visits (id int, at timestamptz NOT NULL) PARTITION BY RANGE (at);
         CREATE TABLE visits_1 PARTITION OF visits FOR VALUES FROM ('2024-01-01Z') TO ('2024-02-01Z')",
    )
    .await;
    let by_age = "[[expire]]\nname = \"visits\"\ntable = \"visits\"\ncolumn = \"at\"\nolder_than = \"90d\"\n";
    ebb.apply(by_age).await;
    ebb.db
        .execute(
            "ALTER TABLE visits DETACH PARTITION visits_1;
             INSERT INTO ebb.detached (relid, policy, parent, relation, lower_bound, upper_bound, state, detached_at)
             VALUES ('visits_1'::regclass, 'visits', 'public.visits', 'public.visits_1', '2024-01-01', '2024-02-01', 'detached', now())",
        )
        .await;
    let named = async || {
        let findings = doctor(&ebb, "partitions").await;
        findings.iter().any(|(_, evidence)| evidence.contains("public.visits_1 was taken out of public.visits"))
    };
    assert!(!named().await);
    ebb.apply(&format!("{by_age}where = \"id > 0\"")).await;
    assert!(named().await);
}

#[tokio::test]
async fn a_call_makes_no_more_partitions_than_writers_of_another_table_can_wait_for() {
    for (refers, all) in [("", true), ("REFERENCES public.users", false)] {
        let ebb = with_users(refers).await;
        ebb.apply(&policy("").replace("ahead = 2", "ahead = 400").replace("month", "day")).await;
        let began = std::time::Instant::now();
        let made: i32 = ebb.db.scalar("SELECT ebb.ensure_partitions('p')").await;
        assert!(made > 0 && (made == 401) == all, "{made} in {:?}", began.elapsed());
        let more: i32 = ebb.db.scalar("SELECT ebb.ensure_partitions('p')").await;
        assert_eq!(more > 0, !all);
    }
}
