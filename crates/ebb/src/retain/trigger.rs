//! Marking at once: a trigger on the root table tells Ebb when the application sets or clears the soft delete itself, or
//! changes the key: then holds and open deletions go along.
//! Invariants: the application needs no right on the ebb schema, and its statement does not fail because of Ebb; a table
//! has the trigger exactly while a policy asks for it; what the trigger misses, the marking chore finds.

use sqlx::PgConnection;

use super::compile::Compiled;
use super::function::{may_make, named};
use super::store::rows::id_sql;
use super::store::{self, triggers};
use crate::pg::{Ident, Literal, quoted};
use crate::policy::{Mode, Retain};
use crate::{Error, Result};

/// The name of a policy's trigger and, in the ebb schema, of its function.
fn name(policy: &str) -> String {
    named("mark", policy)
}

/// Puts the trigger where the policy wants it, and takes it away everywhere else.
pub(crate) async fn follow(connection: &mut PgConnection, policy: &Retain, compiled: &Compiled) -> Result<()> {
    let Some(subjects) = policy.subjects() else { return Ok(()) };
    if !subjects.mark_at_once || !policy.enabled || policy.mode != Mode::Enforce {
        return remove(connection, policy.name.as_str()).await;
    }
    let name = name(policy.name.as_str());
    let deleted_at = &compiled.root.deleted_at;
    let (there, elsewhere) = triggers::placed(connection, &name, compiled.oid, &watched(compiled)).await?;
    let mirror = &subjects.mirror;
    let mirrors = [&mirror.due, &mirror.notified, &mirror.attempted].iter().any(|column| column.is_some());
    let mirrors = mirrors || subjects.status.is_some();
    let body = body(policy.name.as_str(), compiled, mirrors);
    let current = there && !elsewhere && store::generated(connection, &name).await?.is_some_and(|there| there == body);
    if !may_make(connection, policy.name.as_str(), &name, current).await? {
        return Ok(());
    }
    if elsewhere {
        remove(connection, policy.name.as_str()).await?;
    }
    store::define(connection, definition(&name, &body)).await?;
    if current {
        return Ok(());
    }
    let relation = &compiled.root.relation;
    let statement = format!(
        "CREATE OR REPLACE TRIGGER {name} AFTER UPDATE ON {relation} FOR EACH ROW \
         WHEN ({} OR {}) EXECUTE FUNCTION ebb.{name}()",
        moved(compiled),
        changed(deleted_at),
        name = Ident::new(&name),
    );
    store::define(connection, statement).await.map_err(|error| match error.sqlstate().as_deref() {
        Some("42501") => Error::refused(format!("`mark_at_once` needs a trigger on {}: {error}", relation.label()))
            .with_hint(format!("run `ebb apply` as its owner, or: GRANT TRIGGER ON {relation} TO …")),
        _ => error.context("`mark_at_once`"),
    })
}

/// The function goes, and the trigger with it: that needs no right on the table.
pub(crate) async fn remove(connection: &mut PgConnection, policy: &str) -> Result<()> {
    let name = name(policy);
    if triggers::exists(connection, &name).await? {
        may_make(connection, policy, &name, false).await?;
        store::define(connection, format!("DROP FUNCTION ebb.{}() CASCADE", Ident::new(&name))).await?;
    }
    Ok(())
}

/// Whether a policy asks for a trigger that is not there, or is switched off.
pub(crate) async fn is_missing(connection: &mut PgConnection, policy: &Retain, compiled: &Compiled) -> Result<bool> {
    let wanted = policy.subjects().is_some_and(|subjects| subjects.mark_at_once) && policy.mode == Mode::Enforce;
    let name = name(policy.name.as_str());
    Ok(wanted && !triggers::fires(connection, &name, compiled.oid, &watched(compiled)).await?)
}

/// The columns whose changes it hears of.
fn watched(compiled: &Compiled) -> Vec<&str> {
    let root = &compiled.root;
    root.key.iter().map(|column| &column.name).chain([&root.deleted_at]).map(Ident::as_str).collect()
}

fn changed(column: &Ident) -> String {
    format!("OLD.{column} IS DISTINCT FROM NEW.{column}")
}

/// The key is written differently, whether or not it is equal to the one before: holds and deletions name subjects by what is written.
fn moved(compiled: &Compiled) -> String {
    let id = |row: &str| format!("({}) COLLATE pg_catalog.\"C\"", id_sql(&compiled.root.key, row));
    format!("{} IS DISTINCT FROM {}", id("OLD"), id("NEW"))
}

fn definition(name: &str, body: &str) -> String {
    let name = Ident::new(name);
    format!(
        "CREATE OR REPLACE FUNCTION ebb.{name}() RETURNS trigger
         LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC'
         SET datestyle = 'ISO, MDY' SET intervalstyle = 'postgres' SET bytea_output = 'hex' SET extra_float_digits = 1 AS {};
         REVOKE ALL ON FUNCTION ebb.{name}() FROM PUBLIC",
        quoted(body)
    )
}

fn body(policy: &str, compiled: &Compiled, mirrors: bool) -> String {
    let root = &compiled.root;
    let tenant = root.tenant.as_ref().map_or("NULL".to_owned(), |tenant| format!("NEW.{tenant}::text"));
    format!(
        "
         BEGIN
             IF {moved} THEN
                 PERFORM ebb.move_subject({policy}, {former}, {id});
             END IF;
             IF {marked} THEN
                 PERFORM ebb.mark_subject({policy}, {id}, {moment}, {tenant}, {mirrors});
             END IF;
             RETURN NULL;
         EXCEPTION WHEN OTHERS THEN
             RAISE LOG 'ebb: policy %: a soft delete or a new key is left to the marking chore and to ebb doctor (%)', {policy}, SQLSTATE;
             RETURN NULL;
         END
         ",
        policy = Literal(policy),
        id = id_sql(&root.key, "NEW"),
        former = id_sql(&root.key, "OLD"),
        moved = moved(compiled),
        marked = changed(&root.deleted_at),
        moment = root.time.moment(&format!("NEW.{}", root.deleted_at), &root.zone),
    )
}
