//! Rows that stay lose their link and nothing else: no column that decides when they go, none that others refer to, and none that
//! nobody approved.

use ebb::policy::Term;
use ebb::retain::{OverrideChange, TenantTerms, set_override};

use super::users;
use crate::harness::Ebb;

/// Tenants with users and posts of four months ago, linked by both columns.
fn blog(key: &str) -> String {
    format!(
        "CREATE TABLE users (tenant_id text NOT NULL, id bigint PRIMARY KEY, deleted_at timestamptz, UNIQUE (tenant_id, id));
         CREATE TABLE posts (id bigint PRIMARY KEY, tenant_id text, author_id bigint, created_at timestamptz NOT NULL,
             FOREIGN KEY (tenant_id, author_id) REFERENCES users (tenant_id, id) {key});
         INSERT INTO users SELECT 'acme', n FROM generate_series(1, 2) n;
         INSERT INTO posts SELECT n, 'acme', 1, now() - interval '120 days' FROM generate_series(1, 3) n"
    )
}

const POSTS: &str = "\n[[retain]]\nname = \"posts\"\ntable = \"posts\"\ncolumn = \"created_at\"\nolder_than = \"90d\"\n\
    tenant = \"tenant_id\"\ntenant_override = true\nbrake = { share = \"off\" }\n";

async fn due(ebb: &Ebb) {
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    // Only the deletion grows older.
    ebb.db
        .execute(
            "UPDATE users SET deleted_at = deleted_at - interval '91 days' WHERE id = 1;
             UPDATE ebb.deletion SET deleted_at = deleted_at - interval '91 days', due_at = due_at - interval '91 days'",
        )
        .await;
}

#[tokio::test]
async fn rows_that_stay_keep_the_tenant_whose_term_they_have() {
    for key in ["ON DELETE CASCADE", "ON DELETE SET NULL"] {
        let ebb = Ebb::with(&blog(key)).await;
        ebb.apply(&(users("") + POSTS)).await;
        let mut tx = ebb.engine.database().read().await.unwrap();
        let year = OverrideChange::Set(TenantTerms { retention: Some(Term::days(365)), ..Default::default() });
        set_override(&mut tx, "posts", "acme", &year, true, "test").await.unwrap();
        tx.commit().await.unwrap();
        due(&ebb).await;
        ebb.once("users").await;
        ebb.once("posts").await;
        assert_eq!(ebb.list("id", "users").await, "2", "{key}");
        let left: String =
            ebb.db.scalar("SELECT string_agg((id, tenant_id, author_id)::text, ' ' ORDER BY id) FROM posts").await;
        assert_eq!(left, "(1,acme,) (2,acme,) (3,acme,)", "{key}");
        ebb.db.advance("300 days").await;
        ebb.once("posts").await;
        assert_eq!(ebb.list("id", "posts").await, "", "{key}: in its own time");
    }
}

#[tokio::test]
async fn a_link_that_cannot_end_without_the_tenant_is_refused() {
    let cases = [
        ("ON DELETE CASCADE", "ALTER TABLE posts ALTER author_id SET NOT NULL"),
        ("MATCH FULL ON DELETE SET NULL", "SELECT 1"),
        ("ON DELETE SET NULL (tenant_id)", "SELECT 1"),
    ];
    for (key, more) in cases {
        // ON DELETE SET NULL names columns from 15 on.
        let ebb = Ebb::with("SELECT 1").await;
        if key.contains('(')
            && ebb.db.scalar::<i32>("SELECT current_setting('server_version_num')::int").await < 150_000
        {
            continue;
        }
        ebb.db.execute(&blog(key)).await;
        ebb.db.execute(more).await;
        let refused = ebb.try_apply(&(users("") + &POSTS.replace("90d", "365d"))).await.unwrap_err();
        let says = "cannot end without tenant_id, and policy posts goes by that";
        assert!(refused.to_string().contains(says), "{key}: {refused}");
        assert!(refused.hint().is_some(), "{key}: {refused:?}");
    }
}

#[tokio::test]
async fn a_column_of_another_key_is_emptied_only_where_no_other_ends_the_link() {
    let ebb = Ebb::with(&format!(
        "CREATE TABLE tenants (id text PRIMARY KEY); INSERT INTO tenants VALUES ('acme'); {};
         ALTER TABLE posts ADD FOREIGN KEY (tenant_id) REFERENCES tenants",
        blog("ON DELETE SET NULL")
    ))
    .await;
    ebb.apply(&users("")).await;
    due(&ebb).await;
    ebb.once("users").await;
    let left: String =
        ebb.db.scalar("SELECT string_agg((id, tenant_id, author_id)::text, ' ' ORDER BY id) FROM posts").await;
    assert_eq!(left, "(1,acme,) (2,acme,) (3,acme,)");
}

#[tokio::test]
async fn a_column_that_others_refer_to_is_not_written() {
    let badges = "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE profile (pid bigint PRIMARY KEY, user_id bigint UNIQUE REFERENCES users ON DELETE SET NULL, mail text UNIQUE);";
    let anonymize = "children = [{ table = \"profile\", column = \"user_id\", action = \"anonymize\", set = { user_id = \"null\", mail = \"null\" } }]";
    let cases = [
        ("CREATE TABLE badge (owner bigint REFERENCES profile (user_id) ON UPDATE CASCADE)", "", "user_id"),
        ("CREATE TABLE badge (owner bigint REFERENCES profile (user_id))", "", "user_id"),
        ("CREATE TABLE badge (mail text REFERENCES profile (mail) ON UPDATE CASCADE)", anonymize, "mail"),
    ];
    for (badge, more, column) in cases {
        let ebb = Ebb::with(&format!("{badges} {badge}")).await;
        let refused = ebb.try_apply(&users(more)).await.unwrap_err();
        let says =
            format!("public.profile: {column} of rows that stay is to be another, and public.badge refers to it");
        assert!(refused.to_string().contains(&says), "{badge}: {refused}");
        assert!(refused.hint().unwrap_or_default().contains("let public.badge refer to another column"), "{refused:?}");
    }
    // It comes later: nothing goes before somebody has looked.
    let ebb = Ebb::with(badges).await;
    ebb.apply(&users("")).await;
    ebb.db
        .execute(
            "INSERT INTO users VALUES (1); INSERT INTO profile VALUES (1, 1);
             CREATE TABLE badge (owner bigint REFERENCES profile (user_id) ON UPDATE CASCADE); INSERT INTO badge VALUES (1)",
        )
        .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.list("id", "users").await.as_str(), ebb.list("owner", "badge").await.as_str()), ("1", "1"));
}

#[tokio::test]
async fn what_becomes_null_is_approved_and_told() {
    let tables = "CREATE TABLE users (tenant_id text NOT NULL, id bigint PRIMARY KEY, deleted_at timestamptz, UNIQUE (tenant_id, id));
         CREATE TABLE orders (id bigint PRIMARY KEY, tenant_id text NOT NULL, agent_id bigint,
             CONSTRAINT agent FOREIGN KEY (tenant_id, agent_id) REFERENCES users (tenant_id, id) ON DELETE SET NULL);
         INSERT INTO users VALUES ('acme', 1); INSERT INTO orders VALUES (1, 'acme', 1)";
    let ebb = Ebb::with(tables).await;
    ebb.apply(&users("")).await;
    let edges = async || {
        let plan = ebb.engine.plan(&[]).await.unwrap();
        plan.trees[0].edges.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    let name = "public.orders (tenant_id, agent_id) -> public.users (tenant_id, id): nullify";
    assert_eq!(edges().await, format!("{name} agent_id"));

    ebb.db.execute("ALTER TABLE orders ALTER tenant_id DROP NOT NULL").await;
    assert_eq!(edges().await, format!("{name} tenant_id, agent_id"));
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    let stopped: String = ebb.db.scalar("SELECT COALESCE(stopped, '') FROM ebb.policy WHERE name = 'users'").await;
    assert!(stopped.contains(&format!("new: {name} tenant_id, agent_id")), "{stopped}");
    assert_eq!(ebb.list("tenant_id", "orders").await, "acme");

    // A tree that was approved before this was written down goes on as it is.
    ebb.apply(&users("")).await;
    ebb.db
        .execute(
            "UPDATE ebb.retain SET tree = jsonb_set(tree, '{edges}',
                 (SELECT jsonb_agg(e - 'emptied') FROM jsonb_array_elements(tree -> 'edges') e)) WHERE policy = 'users'",
        )
        .await;
    ebb.once("users").await;
    assert_eq!((ebb.list("id", "users").await.as_str(), ebb.list("id", "orders").await.as_str()), ("", "1"));
}
