//! Subjects: what a deletion is, how it ends, and everything that must not happen on the way.

mod again;
mod along;
mod at_once;
mod cascade;
mod circles;
mod consent;
mod dead_receiver;
mod deferred;
mod events;
mod follow;
mod former;
mod gates;
mod grace;
mod late;
mod life;
mod mail;
mod meanwhile;
mod model;
mod named;
mod operators;
mod own_terms;
mod pair;
mod planned;
mod quoted;
mod refusal;
mod renamed;
mod replay;
mod review;
mod schema;
mod sealed;
mod slow;
mod spills;
mod standing;
mod terms;
mod together;
mod told;
mod trees;
mod unless;
mod unlinked;
mod warn;
mod withdrawn;
mod written;

use crate::harness::Ebb;

/// A shop: users with orders, items, sessions, a profile that refers by e-mail, and staff who look after orders.
pub(crate) const SHOP: &str = "
    CREATE TABLE users (id bigint PRIMARY KEY, tenant_id text, email text, name text, status text NOT NULL DEFAULT 'active',
        deleted_at timestamptz, scheduled_deletion_at timestamptz, deletion_notified_at timestamptz,
        cleanup_attempted_at timestamptz, updated_at timestamptz);
    CREATE TABLE orders (id bigint PRIMARY KEY, user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE,
        assigned_to bigint REFERENCES users ON DELETE SET NULL, total int);
    CREATE TABLE items (order_id bigint NOT NULL REFERENCES orders ON DELETE CASCADE, line int, PRIMARY KEY (order_id, line));
    CREATE TABLE sessions (id bigint PRIMARY KEY, user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE, ip text);
    CREATE INDEX ON orders (user_id); CREATE INDEX ON orders (assigned_to); CREATE INDEX ON sessions (user_id);
    INSERT INTO users (id, tenant_id, email, name)
        SELECT n, 't' || n % 3, 'secret-' || n || '@example.test', 'Secret Name ' || n FROM generate_series(1, 12) n;
    INSERT INTO orders SELECT u * 100 + n, u, 1 + u % 12, 5 FROM generate_series(1, 12) u, generate_series(1, 3) n;
    INSERT INTO items SELECT o.id, n FROM orders o, generate_series(1, 2) n;
    INSERT INTO sessions SELECT u * 10 + n, u, '10.0.0.' || u FROM generate_series(1, 12) u, generate_series(1, 4) n;";

/// The policy `users` over the shop, with more keys.
pub(crate) fn users(more: &str) -> String {
    let brake = if more.contains("brake") { "" } else { "brake = { share = \"off\" }" };
    format!(
        "[[retain]]\nname = \"users\"\ntable = \"public.users\"\ndeleted_at = \"deleted_at\"\ngrace = \"90d\"\n{brake}\n{more}"
    )
}

impl Ebb {
    /// A shop with the policy `users`.
    pub(crate) async fn shop(more: &str) -> Self {
        let ebb = Self::with(SHOP).await;
        ebb.apply(&users(more)).await;
        ebb
    }

    /// Rows of the shop by table: users, orders, items, sessions.
    pub(crate) async fn rows(&self) -> (i64, i64, i64, i64) {
        let count = |table: &'static str| {
            self.db.scalar::<i64>(match table {
                "users" => "SELECT count(*) FROM users",
                "orders" => "SELECT count(*) FROM orders",
                "items" => "SELECT count(*) FROM items",
                _ => "SELECT count(*) FROM sessions",
            })
        };
        (count("users").await, count("orders").await, count("items").await, count("sessions").await)
    }

    pub(crate) async fn state(&self, id: &str) -> String {
        self.db
            .scalar(&format!("SELECT COALESCE((SELECT state FROM ebb.deletion WHERE policy = 'users' AND subject_id = '{id}' ORDER BY opened_at DESC LIMIT 1), 'none')"))
            .await
    }

    /// What the audit says was erased, over all subjects.
    pub(crate) async fn erased(&self) -> (i64, i64) {
        sqlx::query_as("SELECT count(*), COALESCE(sum(rows), 0)::int8 FROM ebb.audit WHERE action = 'erase'")
            .fetch_one(self.db.pool())
            .await
            .unwrap()
    }
}

/// Searches every column of every ebb table for a word, as text and as bytes.
pub(crate) async fn found_in_ebb(ebb: &Ebb, word: &str) -> Vec<String> {
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'ebb'::regnamespace AND relkind = 'r'",
    )
    .fetch_all(ebb.db.pool())
    .await
    .unwrap();
    let mut found = Vec::new();
    for table in tables {
        let hits: i64 =
            ebb.db.scalar(&format!("SELECT count(*) FROM ebb.{table} t WHERE t::text ILIKE '%{word}%' OR t::text LIKE '%' || encode('{word}', 'hex') || '%'")).await;
        if hits > 0 {
            found.push(table);
        }
    }
    found
}
