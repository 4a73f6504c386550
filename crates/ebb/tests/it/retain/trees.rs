//! Random foreign-key graphs, erased to exactly what an independent recursive search reaches.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};

use super::users;
use crate::harness::Ebb;

/// A foreign key from one table to another (table 0 is `users`).
#[derive(Debug, Clone)]
struct Key {
    child: usize,
    parent: usize,
    on_delete: &'static str,
    deferrable: bool,
}

#[derive(Debug, Clone)]
struct Case {
    tables: usize,
    keys: Vec<Key>,
    /// For each table rows, for each row one parent row number for each key of the table (None: null).
    rows: Vec<Vec<Vec<Option<usize>>>>,
    doomed: BTreeSet<usize>,
    partitioned: BTreeSet<usize>,
    batch: u32,
}

const ROWS: usize = 8;

fn cases() -> impl Strategy<Value = Case> {
    (2_usize..7).prop_flat_map(|tables| {
        let key = (
            0..tables,
            0..tables,
            prop_oneof![3 => Just("CASCADE"), 1 => Just("SET NULL"), 1 => Just("NO ACTION"), 1 => Just("RESTRICT")],
            any::<bool>(),
        )
            .prop_map(|(child, parent, on_delete, deferrable)| Key { child, parent, on_delete, deferrable });
        let keys = prop::collection::vec(key, 1..9);
        let rows = prop::collection::vec(
            prop::collection::vec(prop::collection::vec(prop::option::weighted(0.7, 0..ROWS), 9), ROWS),
            tables,
        );
        (
            Just(tables),
            keys,
            rows,
            prop::collection::btree_set(0..ROWS, 1..4),
            prop::collection::btree_set(1..tables.max(2), 0..3),
            1_u32..5,
        )
            .prop_map(|(tables, keys, rows, doomed, partitioned, batch)| {
                // A partitioned table cannot be referred to by its id alone.
                let referred: BTreeSet<usize> = keys.iter().map(|key| key.parent).collect();
                let partitioned =
                    partitioned.into_iter().filter(|table| *table < tables && !referred.contains(table)).collect();
                Case { tables, keys, rows, doomed, partitioned, batch }
            })
    })
}

fn name(table: usize) -> String {
    if table == 0 {
        "public.users".into()
    } else {
        format!("{}.t{table}", if table.is_multiple_of(2) { "public" } else { "other" })
    }
}

impl Case {
    fn sql(&self) -> String {
        let mut sql = String::from("CREATE SCHEMA other;");
        for table in 0..self.tables {
            let columns: String = self.keys_of(table).map(|(at, _)| format!(", k{at} int")).collect();
            let name = name(table);
            match self.partitioned.contains(&table) {
                true => sql += &format!("CREATE TABLE {name} (id int, deleted_at timestamptz{columns}, PRIMARY KEY (id)) PARTITION BY HASH (id);
                    CREATE TABLE {name}_0 PARTITION OF {name} FOR VALUES WITH (MODULUS 2, REMAINDER 0);
                    CREATE TABLE {name}_1 PARTITION OF {name} FOR VALUES WITH (MODULUS 2, REMAINDER 1);"),
                false => sql += &format!("CREATE TABLE {name} (id int PRIMARY KEY, deleted_at timestamptz{columns});"),
            }
            for row in 0..ROWS {
                sql += &format!("INSERT INTO {name} (id) VALUES ({row});");
            }
        }
        let mut constraints = String::new();
        for (at, key) in self.keys.iter().enumerate() {
            for (row, links) in self.rows[key.child].iter().enumerate() {
                if let Some(parent) = links[at] {
                    sql += &format!("UPDATE {} SET k{at} = {parent} WHERE id = {row};", name(key.child));
                }
            }
            let deferrable = if key.deferrable { "DEFERRABLE INITIALLY DEFERRED" } else { "" };
            constraints += &format!(
                "ALTER TABLE {} ADD FOREIGN KEY (k{at}) REFERENCES {} (id) ON DELETE {} {deferrable};",
                name(key.child),
                name(key.parent),
                key.on_delete
            );
        }
        sql + &constraints
    }

    fn keys_of(&self, table: usize) -> impl Iterator<Item = (usize, &Key)> {
        self.keys.iter().enumerate().filter(move |(_, key)| key.child == table)
    }

    /// Everything that would go with some subjects.
    fn reached(&self, subjects: impl Iterator<Item = usize>) -> BTreeSet<(usize, usize)> {
        let mut gone: BTreeSet<(usize, usize)> = subjects.map(|row| (0, row)).collect();
        loop {
            let before = gone.len();
            for (at, key) in self.keys.iter().enumerate().filter(|(_, key)| key.on_delete != "SET NULL") {
                for (row, links) in self.rows[key.child].iter().enumerate() {
                    if links[at].is_some_and(|parent| gone.contains(&(key.parent, parent))) {
                        gone.insert((key.child, row));
                    }
                }
            }
            if gone.len() == before {
                return gone;
            }
        }
    }

    /// What should be left: rows by table, with the links that remain. Knows nothing of components or orders. Who would
    /// take along a subject that lives stays.
    fn expected(&self) -> BTreeMap<String, Vec<Vec<Option<usize>>>> {
        let alone = |row: &&usize| {
            let reached = self.reached(std::iter::once(**row));
            reached.iter().all(|(table, row)| *table != 0 || self.doomed.contains(row))
        };
        let gone = self.reached(self.doomed.iter().filter(alone).copied());
        let mut left = BTreeMap::new();
        for table in 0..self.tables {
            let rows = (0..ROWS).filter(|row| !gone.contains(&(table, *row))).map(|row| {
                let links = self
                    .keys_of(table)
                    .map(|(at, key)| self.rows[table][row][at].filter(|parent| !gone.contains(&(key.parent, *parent))));
                std::iter::once(Some(row)).chain(links).collect()
            });
            left.insert(name(table), rows.collect());
        }
        left
    }

    async fn left(&self, ebb: &Ebb) -> BTreeMap<String, Vec<Vec<Option<usize>>>> {
        let mut left = BTreeMap::new();
        for table in 0..self.tables {
            let columns: String = self.keys_of(table).map(|(at, _)| format!(", k{at}")).collect();
            let sql = format!(
                "SELECT COALESCE(jsonb_agg(jsonb_build_array(id{columns}) ORDER BY id), '[]') FROM {}",
                name(table)
            );
            let rows: serde_json::Value = ebb.db.scalar(&sql).await;
            left.insert(name(table), serde_json::from_value(rows).unwrap());
        }
        left
    }
}

#[test]
fn random_graphs_are_erased_to_exactly_what_can_be_reached() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cases_wanted = std::env::var("EBB_TREES").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    let mut runner = TestRunner::new(Cases {
        cases: cases_wanted,
        failure_persistence: None,
        max_shrink_iters: 60,
        ..Cases::default()
    });
    let result = runner.run(&cases(), |case| {
        runtime.block_on(async {
            let ebb = Ebb::with(&case.sql()).await;
            let more = format!("unnamed = \"delete\"\nbatch = {{ rows = {}, pause = \"0s\" }}", case.batch);
            ebb.apply(&users(&more)).await;
            for row in &case.doomed {
                ebb.db.execute(&format!("SELECT ebb.delete_subject('users', '{row}')")).await;
            }
            let shown = {
                let mut tx = ebb.engine.database().read().await.unwrap();
                let first = case.doomed.iter().next().unwrap().to_string();
                ebb::retain::show(&mut tx, "users", &first).await.unwrap()
            };
            prop_assert!(shown.would_erase["public.users"] >= 1);
            ebb.db.advance("91 days").await;
            let finished = ebb.once("users").await;
            prop_assert!(!finished.has_failed(), "{finished:?}");
            prop_assert_eq!(case.left(&ebb).await, case.expected());
            let before = (case.tables * ROWS) as i64;
            let left: i64 = case.expected().values().map(|rows| rows.len() as i64).sum();
            // A record for each, and nothing is counted twice.
            let went = (ROWS - case.expected()["public.users"].len()) as i64;
            prop_assert_eq!(ebb.erased().await, (went, before - left));
            if case.doomed.len() == 1 && went == 1 {
                prop_assert_eq!(shown.would_erase.values().sum::<u64>() as i64, before - left);
            }
            Ok(())
        })
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
