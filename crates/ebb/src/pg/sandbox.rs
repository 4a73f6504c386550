//! Sandboxes: functions of a table's owner through which a node changes the table, so that a trigger on it runs with the
//! owner's rights and not with the node's, and the node needs no right to change it. Invariants: a function is used only
//! when it is SECURITY DEFINER, belongs to the table's owner, and that owner is neither a superuser nor able to become the
//! owner of the `ebb` schema; its name ends with a fingerprint of its text, so that one made for another condition is not found.

use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, PgConnection};

use super::Relation;
use crate::{Result, sql};

/// The schema they live in. Made with the first of them.
pub(crate) const SCHEMA: &str = "ebb_sandbox";

/// A sandbox that could be: its name, its parameters' types, its text, and whose it has to be.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) function: Relation,
    /// The owner of the table.
    pub(crate) owner: super::Ident,
    /// The types of its parameters, as SQL lists them.
    pub(crate) arguments: String,
    /// `CREATE FUNCTION …`.
    pub(crate) create: String,
    /// Those of earlier conditions, which go.
    pub(crate) stale: Vec<String>,
}

/// `ebb_sandbox."policy_fingerprint"`, for a text that depends on everything that the function does.
pub(crate) fn name(policy: &str, text: &str) -> Relation {
    let fingerprint = hex::encode(&Sha256::digest(text)[..6]);
    Relation::new(SCHEMA, format!("{}_{fingerprint}", prefix(policy)))
}

/// A name has 63 bytes, and a policy's is ASCII.
fn prefix(policy: &str) -> String {
    policy.chars().take(50).collect()
}

/// The sandboxes that a policy had for earlier conditions.
pub(crate) async fn stale(connection: &mut PgConnection, policy: &str, current: &Relation) -> Result<Vec<String>> {
    Ok(sql!("stale_sandboxes" scalar String)
        .bind(prefix(policy))
        .bind(current.name.as_str())
        .fetch_all(connection)
        .await?)
}

/// Whether a role (`None`: whoever asks) has this sandbox for a table and may use it.
pub(crate) async fn usable(
    connection: &mut PgConnection,
    function: &Relation,
    table: u32,
    role: Option<&str>,
) -> Result<bool> {
    let found = sql!("sandbox" scalar bool).bind(function.name.as_str()).bind(i64::from(table)).bind(role);
    Ok(found.fetch_one(connection).await?)
}

/// Whether the owner of a table may have a sandbox, and there is a node that is somebody else.
pub(crate) async fn wanted(connection: &mut PgConnection, table: u32) -> Result<bool> {
    Ok(sql!("sandbox_wanted" scalar bool).bind(i64::from(table)).fetch_one(connection).await?)
}

impl Plan {
    /// Everything that makes it, for whoever may do that: a superuser, or a member of the owner who may create the schema.
    pub(crate) fn script(&self) -> String {
        let Plan { function, owner, arguments, create, stale } = self;
        let called = format!("{function}({arguments})");
        let drops: String = stale.iter().map(|function| format!("DROP FUNCTION {function};\n")).collect();
        format!(
            "{drops}CREATE SCHEMA IF NOT EXISTS {SCHEMA};\n\
             GRANT USAGE ON SCHEMA {SCHEMA} TO ebb_node;\n\
             GRANT USAGE, CREATE ON SCHEMA {SCHEMA} TO {owner};\n\
             {create};\n\
             REVOKE ALL ON FUNCTION {called} FROM PUBLIC;\n\
             GRANT EXECUTE ON FUNCTION {called} TO ebb_node;\n\
             ALTER FUNCTION {called} OWNER TO {owner};\n\
             REVOKE CREATE ON SCHEMA {SCHEMA} FROM {owner};"
        )
    }

    /// Runs the script; false, and nothing done, where this user may not.
    pub(crate) async fn create(&self, connection: &mut PgConnection) -> Result<bool> {
        sqlx::raw_sql("SAVEPOINT ebb_sandbox").execute(&mut *connection).await?;
        let made = sqlx::raw_sql(AssertSqlSafe(self.script())).execute(&mut *connection).await;
        let end = match &made {
            Ok(_) => "RELEASE SAVEPOINT ebb_sandbox",
            Err(_) => "ROLLBACK TO SAVEPOINT ebb_sandbox; RELEASE SAVEPOINT ebb_sandbox",
        };
        sqlx::raw_sql(end).execute(connection).await?;
        match made {
            Ok(_) => Ok(true),
            Err(error) if error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("42501")) => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}
