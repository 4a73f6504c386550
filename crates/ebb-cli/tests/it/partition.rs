//! `ebb partition …` as people type it, and as it is killed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ebb_testkit::{Node, TestDatabase, database, eventually, server};

use crate::faults::disk::SmallDisk;
use crate::shell::Shell;

const CONFIG: &str = "[http]\nlisten = \"127.0.0.1:0\"\n";

/// A table with everything that can belong to one.
async fn rich_table(db: &TestDatabase) {
    db.execute(
        "CREATE TABLE public.site (id int PRIMARY KEY);
         INSERT INTO public.site SELECT generate_series(1, 5);
         CREATE TABLE public.ingest (
             gone int, site_id int NOT NULL REFERENCES public.site (id) ON DELETE CASCADE, idempotency_key text NOT NULL,
             created_at timestamptz DEFAULT now(), expires_at timestamptz NOT NULL DEFAULT now() + interval '90 days',
             seq bigint GENERATED ALWAYS AS IDENTITY (START WITH 100 INCREMENT BY 2), n serial, billable boolean DEFAULT true CHECK (billable IS NOT NULL),
             upper_key text GENERATED ALWAYS AS (upper(idempotency_key)) STORED, payload jsonb,
             CONSTRAINT ingest_pkey PRIMARY KEY (site_id, idempotency_key), CONSTRAINT ingest_seq UNIQUE (seq, created_at)
         ) WITH (fillfactor = 90);
         ALTER TABLE public.ingest DROP COLUMN gone;
         CREATE INDEX idx_expires ON public.ingest (expires_at); CREATE UNIQUE INDEX idx_n ON public.ingest (n) WHERE billable;
         COMMENT ON TABLE public.ingest IS 'it''s ingest'; COMMENT ON COLUMN public.ingest.payload IS 'what came';
         COMMENT ON INDEX public.idx_n IS 'by number'; COMMENT ON CONSTRAINT ingest_pkey ON public.ingest IS 'the key'; COMMENT ON CONSTRAINT ingest_site_id_fkey ON public.ingest IS 'its site';
         ALTER TABLE public.ingest ENABLE ROW LEVEL SECURITY; CREATE POLICY everyone ON public.ingest FOR SELECT USING (billable);
         GRANT SELECT ON public.ingest TO PUBLIC;
         CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
         CREATE TRIGGER note BEFORE INSERT ON public.ingest FOR EACH ROW EXECUTE FUNCTION public.note();
         CREATE TRIGGER once AFTER UPDATE OF payload ON public.ingest FOR EACH STATEMENT EXECUTE FUNCTION public.note();
         ALTER TABLE public.ingest DISABLE TRIGGER once; COMMENT ON TRIGGER note ON public.ingest IS 'notes';
         CREATE STATISTICS public.st (ndistinct) ON site_id, upper_key FROM public.ingest;
         ALTER TABLE public.ingest ALTER COLUMN payload SET STATISTICS 500;
         CREATE VIEW public.v_ingest WITH (security_barrier = true) AS SELECT site_id, count(*) AS n FROM public.ingest GROUP BY site_id;
         CREATE PUBLICATION pub FOR TABLE public.ingest;
         INSERT INTO public.ingest (site_id, idempotency_key, created_at)
         SELECT s, 'k' || g, now() - g * interval '1 hour' FROM generate_series(1, 5) s, generate_series(1, 400) g",
    )
    .await;
}

/// Everything about the schema that can be told apart: as pg_dump writes it, and as the catalog has it, which also serves
/// servers that are newer than any pg_dump here.
async fn schema(db: &TestDatabase) -> (Option<String>, String) {
    let described = "WITH ours AS (SELECT * FROM pg_class WHERE relnamespace = 'public'::regnamespace)
        SELECT string_agg(line, E'\\n' ORDER BY line) FROM (
        SELECT concat_ws(' ', c.relname, c.relkind, c.relpersistence, c.relrowsecurity, c.relforcerowsecurity, c.relreplident, c.relispartition, c.relacl, c.reloptions,
                         obj_description(c.oid, 'pg_class'), pg_get_userbyid(c.relowner)) AS line FROM ours c
        UNION ALL SELECT concat_ws(' ', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated, a.attstattarget,
                                   pg_get_expr(d.adbin, d.adrelid), col_description(a.attrelid, a.attnum), a.attacl)
                  FROM ours c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        UNION ALL SELECT concat_ws(' ', c.relname, k.conname, pg_get_constraintdef(k.oid), k.convalidated, k.conislocal, k.coninhcount, obj_description(k.oid, 'pg_constraint'))
                  FROM ours c JOIN pg_constraint k ON k.conrelid = c.oid
        UNION ALL SELECT concat_ws(' ', pg_get_indexdef(x.indexrelid), x.indisvalid, x.indisreplident, x.indisclustered) FROM ours c JOIN pg_index x ON x.indrelid = c.oid
        UNION ALL SELECT concat_ws(' ', pg_get_triggerdef(t.oid), t.tgenabled, obj_description(t.oid, 'pg_trigger')) FROM ours c JOIN pg_trigger t ON t.tgrelid = c.oid AND NOT t.tgisinternal
        UNION ALL SELECT concat_ws(' ', c.relname, p.polname, p.polcmd, p.polpermissive, pg_get_expr(p.polqual, c.oid), pg_get_expr(p.polwithcheck, c.oid)) FROM ours c JOIN pg_policy p ON p.polrelid = c.oid
        UNION ALL SELECT pg_get_statisticsobjdef(oid) FROM pg_statistic_ext
        UNION ALL SELECT concat_ws(' ', viewname, definition) FROM pg_views WHERE schemaname = 'public'
        UNION ALL SELECT concat_ws(' ', c.relname, s.seqstart, s.seqincrement, s.seqcache, s.seqcycle,
                                   (SELECT concat_ws('.', p.refobjid::regclass, p.refobjsubid, p.deptype) FROM pg_depend p WHERE p.objid = c.oid AND p.deptype IN ('a', 'i') LIMIT 1))
                  FROM ours c JOIN pg_sequence s ON s.seqrelid = c.oid
        UNION ALL SELECT concat_ws(' ', p.pubname, p.pubviaroot, r.prrelid::regclass) FROM pg_publication p LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid) x";
    (dump(db), db.scalar(described).await)
}

/// The schema as pg_dump writes it; none where pg_dump is older than the server.
fn dump(db: &TestDatabase) -> Option<String> {
    let here = server().bin().join("pg_dump");
    let program = if here.exists() { here } else { Path::new("pg_dump").to_owned() };
    let output = Command::new(program).args(["--schema-only", "--schema=public", db.url()]).output().ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8(output.stdout).ok()?;
    // Newer ones write a random word around the dump.
    Some(text.lines().filter(|line| !line.starts_with("\\")).collect::<Vec<_>>().join("\n"))
}

async fn rows(db: &TestDatabase) -> String {
    db.scalar("SELECT count(*) || ' ' || md5(string_agg(t::text, '|' ORDER BY seq)) FROM public.ingest t").await
}

/// Runs a command again and again, killed once at the beginning of every step, until it ends by itself.
async fn killed_at_every_step(shell: &Shell, db: &TestDatabase, args: &[&str], done: &str) -> usize {
    let config = shell.read("ebb.toml");
    let mut kills = 0;
    for step in 1.. {
        let mut node = Node::spawn(Path::new(env!("CARGO_BIN_EXE_ebb")), db.url(), &config, args);
        let (wanted, began) = (format!("step {step}/"), Instant::now());
        let ended = loop {
            assert!(began.elapsed() < Duration::from_secs(90), "neither a step nor an end:\n{}", node.output());
            let lines = node.lines();
            if lines.iter().any(|line| line.contains(done)) {
                break true;
            }
            // A step that an earlier try got through does not come again: any later one will do.
            let later = |line: &str| {
                let number = line
                    .strip_prefix("step ")
                    .and_then(|rest| rest.split('/').next())
                    .and_then(|n| n.parse::<usize>().ok());
                number.is_some_and(|number| number >= step)
            };
            if lines.iter().any(|line| line.contains(&wanted) || later(line)) {
                break false;
            }
            assert!(step < 60, "{}", node.output());
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        if ended {
            let status = node.wait_within(Duration::from_secs(60)).await;
            assert!(status.success(), "{}", node.output());
            return kills;
        }
        // Now at once, now in the middle, now after it.
        tokio::time::sleep(Duration::from_millis([0, 4, 25][step % 3])).await;
        node.kill9();
        kills += 1;
    }
    kills
}

#[tokio::test]
async fn killed_at_every_step_adopting_and_rolling_back_end_where_they_should() {
    let db = database().await;
    rich_table(&db).await;
    let shell = Shell::new(&db, CONFIG);
    let (before, all) = (schema(&db).await, rows(&db).await);
    for round in 1..=2 {
        let adopt = ["partition", "adopt", "public.ingest", "--column", "created_at", "--by", "month", "--ahead", "3"];
        let kills = killed_at_every_step(&shell, &db, &adopt, "is partitioned").await;
        assert!(kills > 3, "round {round}: killed {kills} times");
        assert_eq!(rows(&db).await, all, "round {round}: adopted");
        // Rows of a later partition, which a rollback must bring back.
        db.execute(
            "INSERT INTO public.ingest (site_id, idempotency_key, created_at)
             SELECT 1, 'later' || g, now() + interval '70 days' FROM generate_series(1, 300) g",
        )
        .await;
        let with_later = rows(&db).await;
        killed_at_every_step(
            &shell,
            &db,
            &["partition", "rollback", "public.ingest", "--yes"],
            "is an ordinary table again",
        )
        .await;
        assert_eq!(rows(&db).await, with_later, "round {round}: rolled back");
        assert!(shell.ok(&["partition", "finish", "public.ingest", "--yes"]).contains("as it was before"));
        assert_eq!(rows(&db).await, with_later, "round {round}: finished");
        assert_eq!(schema(&db).await, before, "round {round}: the schema is what it was");
        db.execute("DELETE FROM public.ingest WHERE idempotency_key LIKE 'later%'").await;
        assert_eq!(rows(&db).await, all);
    }
}

#[tokio::test]
async fn killed_at_every_step_foreign_keys_move_and_come_back() {
    let db = database().await;
    db.execute(
        "CREATE TABLE public.ingest (seq bigint PRIMARY KEY, created_at timestamptz NOT NULL);
         CREATE TABLE public.detail (ingest bigint NOT NULL REFERENCES public.ingest ON DELETE CASCADE, v text);
         CREATE INDEX ON public.detail (ingest);
         INSERT INTO public.ingest SELECT g, now() - g * interval '1 hour' FROM generate_series(1, 500) g;
         INSERT INTO public.detail SELECT g, 'v' FROM generate_series(1, 500) g",
    )
    .await;
    let shell = Shell::new(&db, CONFIG);
    let (before, all) = (schema(&db).await, rows(&db).await);
    let details = "SELECT count(*) FROM public.detail d JOIN public.ingest i ON i.seq = d.ingest";
    let adopt = [
        "partition",
        "adopt",
        "public.ingest",
        "--column",
        "created_at",
        "--by",
        "month",
        "--ahead",
        "3",
        "--move-foreign-keys",
    ];
    killed_at_every_step(&shell, &db, &adopt, "is partitioned").await;
    assert_eq!(rows(&db).await, all, "adopted");
    let valid: bool = db
        .scalar("SELECT convalidated FROM pg_constraint WHERE conname = 'detail_ingest_fkey' AND confrelid = 'public.ingest'::regclass")
        .await;
    assert!(valid, "the key that moved is proven");
    db.execute(
        "INSERT INTO public.ingest SELECT 1000 + g, now() + interval '70 days' FROM generate_series(1, 300) g;
         INSERT INTO public.detail SELECT 1000 + g, 'later' FROM generate_series(1, 300) g",
    )
    .await;
    let with_later = rows(&db).await;
    killed_at_every_step(
        &shell,
        &db,
        &["partition", "rollback", "public.ingest", "--yes"],
        "is an ordinary table again",
    )
    .await;
    assert_eq!((rows(&db).await, db.scalar::<i64>(details).await), (with_later, 800), "rolled back");
    shell.ok(&["partition", "finish", "public.ingest", "--yes"]);
    assert_eq!(schema(&db).await, before, "the schema is what it was");
    // And given up half way: every step that was taken is taken back.
    for step in 1..=10 {
        let config = shell.read("ebb.toml");
        let mut node = Node::spawn(Path::new(env!("CARGO_BIN_EXE_ebb")), db.url(), &config, &adopt);
        let (wanted, began) = (format!("step {step}/"), Instant::now());
        while !node.lines().iter().any(|line| line.contains(&wanted)) {
            assert!(began.elapsed() < Duration::from_secs(90), "no step {step}:\n{}", node.output());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        node.kill9();
        shell.ok(&["partition", "rollback", "public.ingest", "--yes"]);
        if db.scalar::<i64>("SELECT count(*) FROM ebb.adoption").await > 0 {
            shell.ok(&["partition", "finish", "public.ingest", "--yes"]);
        }
        assert_eq!(schema(&db).await, before, "given up at step {step}");
    }
    assert_eq!(db.scalar::<i64>(details).await, 800);
}

#[tokio::test]
async fn adopt_says_what_it_will_do_and_keeps_the_policy_in_the_file() {
    let db = database().await;
    rich_table(&db).await;
    let shell = Shell::new(&db, CONFIG);
    let adopt = ["partition", "adopt", "public.ingest", "--column", "created_at", "--by", "month", "--keep", "13mo"];
    let sql = shell.ok(&[&adopt[..], &["--sql"]].concat());
    for part in
        ["NOT VALID", "VALIDATE CONSTRAINT", "CREATE UNIQUE INDEX CONCURRENTLY", "ATTACH PARTITION", "lock_timeout"]
    {
        assert!(sql.contains(part), "{part} is not in\n{sql}");
    }
    let looked = shell.ok(&[&adopt[..], &["--dry-run"]].concat());
    assert!(looked.contains("ingest_pkey becomes unique by (site_id, idempotency_key, created_at)"), "{looked}");
    assert_eq!(db.scalar::<i64>("SELECT count(*) FROM ebb.adoption").await, 0, "looking changes nothing");
    // A file that cannot grow: the block is printed, and what is in the file stays.
    db.execute("CREATE TABLE public.small (created_at timestamptz NOT NULL)").await;
    let typed = shell.command(&["partition", "adopt", "public.small", "--column", "created_at", "--by", "month"]);
    let limited = "trap '' XFSZ; ulimit -f 0; exec \"$@\"";
    let mut full = Command::new("sh");
    full.args(["-c", limited, "sh"]).arg(typed.get_program()).args(typed.get_args()).current_dir(shell.dir.path());
    full.envs(typed.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let said = full.output().unwrap();
    let out = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success(), "{out}{}", String::from_utf8_lossy(&said.stderr));
    assert!(out.contains("cannot be written") && out.contains("table = \"public.small\""), "{out}");
    assert_eq!(shell.read("ebb.toml"), CONFIG);
    shell.ok(&["partition", "rollback", "public.small", "--yes"]);
    shell.ok(&adopt);
    assert!(
        shell.read("ebb.toml").contains("[[partition]]\nname = \"ingest\"\ntable = \"public.ingest\""),
        "{}",
        shell.read("ebb.toml")
    );
    assert!(shell.ok(&["apply"]).contains("the database has what the file says"));
    let listed = shell.json(&["partition", "list", "--json"]);
    assert_eq!(listed[0]["partitions"][0]["partition"], "public.ingest_history");
    assert!(listed[0]["runway_seconds"].as_i64().unwrap() > 300 * 86_400, "{listed}");
    assert!(shell.ok(&["partition", "list"]).contains("partitions reach"));
    assert!(shell.ok(&["partition", "maintain", "public.ingest"]).contains("0 missing ahead, 0 to go"));
    assert!(shell.ok(&["status"]).contains("ingest"));
    // Statements that lead only half way would take rows away from the table.
    let sql = shell.ok(&["partition", "rollback", "public.ingest", "--sql"]);
    for part in ["BEGIN;", "DETACH PARTITION", "INHERIT", "OVERRIDING SYSTEM VALUE", "SET state = 'rolled back'"] {
        assert!(sql.contains(part), "{part} is not in\n{sql}");
    }
    assert_eq!(shell.json(&["partition", "finish", "public.ingest", "--json"])["state"], "adopted");
    // Whatever would stop it stops a look at it.
    db.execute(
        "INSERT INTO public.ingest (site_id, idempotency_key, created_at) VALUES (1, 'k7', now() + interval '70 days')",
    )
    .await;
    let twice = shell.fails(1, &["partition", "rollback", "public.ingest", "--dry-run"]);
    assert!(twice.contains("these are there twice: (1,k7)"), "{twice}");
    db.execute("DELETE FROM public.ingest WHERE created_at > now() + interval '60 days'").await;
    assert!(shell.ok(&["partition", "rollback", "public.ingest", "--dry-run"]).contains("nothing was done"));
    shell.ok(&["partition", "rollback", "public.ingest", "--yes"]);
    assert!(!shell.read("ebb.toml").contains("[[partition]]"));
    shell.ok(&["partition", "finish", "public.ingest", "--yes"]);
    assert!(shell.fails(2, &["partition", "rollback", "public.ingest"]).contains("was not adopted"));
    assert!(shell.fails(2, &["partition", "list", "public.ingest"]).contains("no active partition policy"));
    let refused = shell.fails(3, &["partition", "adopt", "public.ingest", "--column", "payload", "--by", "month"]);
    assert!(refused.contains("in the way: column payload is jsonb, which tells no time"), "{refused}");
}

#[tokio::test]
async fn the_file_can_be_read_whoever_else_writes_to_it_and_however_it_is_written() {
    let db = database().await;
    db.execute("CREATE TABLE public.small (created_at timestamptz NOT NULL)").await;
    let inline = format!("partition = []\n\n{CONFIG}");
    let shell = Shell::new(&db, &inline);
    let adopt = ["partition", "adopt", "public.small", "--column", "created_at", "--by", "month", "--yes"];
    let said = shell.ok(&adopt);
    assert!(said.contains("could not be read") && said.contains("table = \"public.small\""), "{said}");
    assert_eq!(shell.read("ebb.toml"), inline);
    shell.ok(&["partition", "rollback", "public.small", "--yes"]);
    shell.ok(&["partition", "finish", "public.small", "--yes"]);
    // Another run adds the block while this one is at work.
    shell.write("ebb.toml", CONFIG);
    shell.ok(&adopt);
    let added = shell.read("ebb.toml");
    shell.ok(&["partition", "rollback", "public.small", "--yes"]);
    assert_eq!(shell.read("ebb.toml"), CONFIG);
    shell.ok(&["partition", "finish", "public.small", "--yes"]);
    let mut held = db.pool().begin().await.unwrap();
    sqlx::query("LOCK TABLE public.small IN ACCESS SHARE MODE").execute(&mut *held).await.unwrap();
    let run = shell.command(&adopt).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually(Duration::from_secs(60), || async { db.scalar::<i64>("SELECT count(*) FROM ebb.adoption").await == 1 })
        .await;
    shell.write("ebb.toml", &added);
    held.rollback().await.unwrap();
    let ended = run.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(shell.read("ebb.toml"), added);
    assert!(shell.ok(&["apply"]).contains("the database has what the file says"));
}

#[tokio::test]
async fn killed_at_every_step_a_split_ends_where_it_should_and_the_way_back_too() {
    let db = database().await;
    rich_table(&db).await;
    let shell = Shell::new(&db, CONFIG);
    let (before, all) = (schema(&db).await, rows(&db).await);
    shell.ok(&["partition", "adopt", "public.ingest", "--column", "created_at", "--by", "month", "--ahead", "3"]);
    let sql = shell.ok(&["partition", "split", "public.ingest", "--sql"]);
    for part in [
        "\"!ebb_split\" AFTER INSERT OR UPDATE OR DELETE",
        "INSERT INTO ebb.split",
        "WHERE ctid >= '(0,0)' AND ctid < '(4294967295,0)'",
        "hash_record_extended",
        "VALIDATE CONSTRAINT",
        "DETACH PARTITION",
        "lock_timeout",
    ] {
        assert!(sql.contains(part), "{part} is not in\n{sql}");
    }
    assert_eq!(db.scalar::<i64>("SELECT count(*) FROM ebb.split").await, 0, "looking changes nothing");
    let kills = killed_at_every_step(&shell, &db, &["partition", "split", "public.ingest", "--yes"], "is split").await;
    // Quick steps pass between two looks; how many do depends on the machine.
    assert!(kills > 3, "killed {kills} times");
    assert_eq!(rows(&db).await, all, "split");
    let parts: i64 = db.scalar("SELECT count(*) FROM pg_inherits WHERE inhparent = 'public.ingest'::regclass AND inhrelid::regclass::text LIKE '%ingest\\_2%'").await;
    assert!(parts >= 4, "{parts}");
    let same = "SELECT count(*) FROM (
        SELECT (SELECT count(*) FROM pg_index x WHERE x.indrelid = c.oid) AS indexes, (SELECT count(*) FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype <> 'n') AS constraints,
               (SELECT count(*) FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal) AS triggers, (SELECT count(*) FROM pg_policy p WHERE p.polrelid = c.oid) AS policies,
               c.relrowsecurity, c.relacl::text, c.reloptions, (SELECT count(*) FROM pg_statistic_ext s WHERE s.stxrelid = c.oid) AS statistics
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'public.ingest'::regclass GROUP BY 1, 2, 3, 4, 5, 6, 7, 8) x";
    assert_eq!(db.scalar::<i64>(same).await, 1, "the parts have what the partitions ahead have");
    assert!(shell.ok(&["partition", "split", "public.ingest", "--yes"]).contains("is split already"));
    killed_at_every_step(
        &shell,
        &db,
        &["partition", "rollback", "public.ingest", "--yes"],
        "is an ordinary table again",
    )
    .await;
    assert_eq!(rows(&db).await, all, "rolled back");
    assert!(shell.ok(&["partition", "finish", "public.ingest", "--yes"]).contains("as it was before"));
    assert_eq!(rows(&db).await, all, "finished");
    assert_eq!(schema(&db).await, before, "the schema is what it was");
    assert_eq!(db.scalar::<i64>("SELECT count(*) FROM ebb.split").await, 0);
}

#[tokio::test]
async fn a_disk_that_is_full_in_mid_split_leaves_a_table_that_works_and_a_split_that_goes_on() {
    let user = ebb::pg::binaries::server_user().unwrap();
    let Some(disk) = user.and_then(|user| SmallDisk::mount(&format!("{}:{}", user.uid, user.gid))) else {
        println!("not run: a small file system can only be mounted as root");
        return;
    };
    let db = database().await;
    let space = format!("split_{}", std::process::id());
    db.execute(&format!("CREATE TABLESPACE {space} LOCATION '{}'", disk.0.display())).await;
    // Fits once, but not twice.
    db.execute(&format!(
        "CREATE TABLE public.ingest (seq bigint, created_at timestamptz NOT NULL, v text, PRIMARY KEY (seq, created_at)) TABLESPACE {space};
         INSERT INTO public.ingest SELECT n, now() - n * interval '2 minutes', repeat('x', 60) FROM generate_series(1, 20000) n"
    ))
    .await;
    let shell = Shell::new(&db, CONFIG);
    shell.ok(&["partition", "adopt", "public.ingest", "--column", "created_at", "--by", "month", "--ahead", "2"]);
    let all = rows(&db).await;
    let said = shell.fails(1, &["partition", "split", "public.ingest", "--yes"]);
    assert!(said.contains("No space left on device") && said.contains("make space and run it again"), "{said}");
    assert_eq!(rows(&db).await, all, "the table is what it was");
    db.execute(
        "UPDATE public.ingest SET v = 'changed' WHERE seq IN (1, 19000); DELETE FROM public.ingest WHERE seq = 7",
    )
    .await;
    let all = rows(&db).await;
    assert!(shell.fails(1, &["partition", "split", "public.ingest", "--yes"]).contains("No space left"));
    disk.grow();
    assert!(shell.ok(&["partition", "split", "public.ingest", "--yes"]).contains("is split into"));
    assert_eq!(rows(&db).await, all);
    assert!(shell.ok(&["partition", "finish", "public.ingest", "--yes"]).contains("is final"));
    assert_eq!(rows(&db).await, all);
    db.execute("DROP TABLE public.ingest").await;
    db.execute(&format!("DROP TABLESPACE {space}")).await;
}

#[tokio::test]
async fn a_table_that_is_partitioned_already_only_gets_someone_to_look_after_it() {
    let db = database().await;
    db.execute("CREATE TABLE public.p (at timestamptz NOT NULL) PARTITION BY RANGE (at)").await;
    let shell = Shell::new(&db, CONFIG);
    let adopt = ["partition", "adopt", "public.p", "--column", "at", "--by", "month", "--ahead", "4", "--keep", "13mo"];
    assert!(shell.ok(&[&adopt[..], &["--dry-run"]].concat()).contains("nothing was done"));
    assert!(!shell.read("ebb.toml").contains("[[partition]]"));
    assert!(shell.ok(&adopt).contains("p looks after public.p from now on"));
    let file = shell.read("ebb.toml");
    assert!(
        file.contains(
            "[[partition]]\nname = \"p\"\ntable = \"public.p\"\ncolumn = \"at\"\nby = \"month\"\nahead = 4\nkeep = "
        ),
        "{file}"
    );
    assert!(shell.ok(&["apply"]).contains("the database has what the file says"));
    shell.ok(&["partition", "maintain", "public.p"]);
    assert_eq!(db.scalar::<i64>("SELECT count(*) FROM pg_inherits WHERE inhparent = 'public.p'::regclass").await, 5);
    // As a kill between the database and the file leaves it.
    shell.write("ebb.toml", CONFIG);
    shell.ok(&adopt[..7]);
    assert_eq!(shell.read("ebb.toml"), file, "it goes on with what the policy has");
    let other = [&adopt[..7], &["--ahead", "5"]].concat();
    assert!(shell.fails(1, &other).contains("policy p looks after public.p already"));
    let wrong = shell.fails(2, &["partition", "adopt", "public.p", "--column", "at", "--by", "month", "--guard", "at"]);
    assert!(wrong.contains("is partitioned already"), "{wrong}");
}

#[tokio::test]
async fn an_adoption_that_was_begun_is_looked_at_without_going_on_and_another_table_keeps_its_policy() {
    let db = database().await;
    db.execute(
        "CREATE SCHEMA b; CREATE TABLE public.t (id int PRIMARY KEY, at timestamptz NOT NULL); CREATE TABLE b.t (LIKE public.t INCLUDING ALL)",
    )
    .await;
    let shell = Shell::new(&db, CONFIG);
    let adopt = ["partition", "adopt", "public.t", "--column", "at", "--by", "month", "--ahead", "2"];
    // Somebody holds the table, so that it stays where it began.
    let mut holder = db.pool().begin().await.unwrap();
    sqlx::query("LOCK TABLE public.t IN ACCESS SHARE MODE").execute(&mut *holder).await.unwrap();
    let mut node = Node::spawn(Path::new(env!("CARGO_BIN_EXE_ebb")), db.url(), &shell.read("ebb.toml"), &adopt);
    let began = Instant::now();
    while !node.lines().iter().any(|line| line.contains("step 1/")) {
        assert!(began.elapsed() < Duration::from_secs(90), "it does not begin:\n{}", node.output());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    node.kill9();
    holder.rollback().await.unwrap();
    let looked = shell.json(&[&adopt[..], &["--json"]].concat());
    assert_eq!(looked["state"], "adopting", "{looked}");
    assert!(shell.ok(&[&adopt[..], &["--sql"]].concat()).contains("ATTACH PARTITION"));
    assert!(shell.ok(&[&adopt[..], &["--dry-run"]].concat()).contains("nothing was done"));
    let other = shell.fails(2, &["partition", "adopt", "public.t", "--column", "at", "--by", "day", "--ahead", "2"]);
    assert!(other.contains("was begun otherwise: by is \"month\", not \"day\""), "{other}");
    let kind = "SELECT relkind::text FROM pg_class WHERE oid = 'public.t'::regclass";
    assert_eq!(db.scalar::<String>(kind).await, "r", "looking goes on with nothing");
    assert!(shell.ok(&adopt).contains("is partitioned"));
    let taken = shell.fails(1, &["partition", "adopt", "b.t", "--column", "at", "--by", "month"]);
    assert!(taken.contains("--name b_t"), "{taken}");
    shell.ok(&["partition", "adopt", "b.t", "--column", "at", "--by", "month", "--ahead", "2", "--name", "b_t"]);
    assert!(shell.ok(&["apply"]).contains("the database has what the file says"));
    assert_eq!(shell.json(&["partition", "list", "--json"]).as_array().unwrap().len(), 2);
}
