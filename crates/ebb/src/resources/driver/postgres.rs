//! Tables of one schema of a PostgreSQL database, Ebb's own or another. Identity is the oid: a table that was made again
//! under the same name has another. There is no modification time; an orphan has to be seen for as long as it must be old.
//! Invariant: a drop names the schema and asks for the oid in the same transaction, under the lock that the drop needs.

use std::str::FromStr;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use jiff_sqlx::Timestamp as Stamp;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Transaction};
use uuid::Uuid;

use super::{CALL_WITHIN, Driver, Dropped, Found, Owner, away};
use crate::config::{Env, Secret};
use crate::pg::{Database, Guard, Ident, Relation, Target, answered};
use crate::{Error, Result};

/// The table that says whose the schema is.
const MARKER: &str = "ebb_owner";

/// Tables of a schema.
pub struct PostgresDriver {
    database: Database,
    schema: String,
    role: Option<Ident>,
    location: String,
}

impl PostgresDriver {
    /// Tables of a schema of a database that is open already.
    pub fn own(database: &Database, schema: &str) -> Self {
        let location = format!("postgres own database, schema {schema}");
        Self { database: database.clone(), schema: schema.to_owned(), role: None, location }
    }

    /// With every statement under a role.
    pub(crate) fn under(self, role: Option<&str>) -> Self {
        Self { role: role.map(Ident::new), ..self }
    }

    pub(crate) fn open(
        own: &Database,
        url: Option<&str>,
        user: Option<&str>,
        password: Option<&Secret>,
        schema: &str,
    ) -> Result<Self> {
        let (database, place) = match url {
            None => (own.clone(), "own database".to_owned()),
            Some(url) => {
                let mut options = PgConnectOptions::from_str(url).map_err(|_| {
                    Error::config("the `url` cannot be read").with_hint("postgres://host:5432/database")
                })?;
                if let Some(user) = user {
                    options = options.username(user);
                }
                if let Some(password) = password {
                    options = options.password(&password.resolve(&Env::process())?);
                }
                let place = format!(
                    "{}:{}/{}",
                    options.get_host(),
                    options.get_port(),
                    options.get_database().unwrap_or_default()
                );
                (Database::open(Target::new(options, None), 2, "ebb/resources"), place)
            }
        };
        let location = format!("postgres {place}, schema {schema}");
        Ok(Self { database, schema: schema.to_owned(), role: None, location })
    }

    async fn begin(&self) -> Result<Transaction<'static, Postgres>> {
        let guard = Guard { statement: CALL_WITHIN, ..Guard::default() };
        let mut tx = self.database.begin(guard).await.map_err(|error| away(&self.location, error))?;
        if let Some(role) = &self.role {
            let sql = format!("SET LOCAL ROLE {role}");
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await.map_err(|error| {
                Error::refused(format!("{}: {}", self.location, Error::from(error))).with_hint(format!(
                    "`role` must exist, and the connecting user be a member of it: GRANT {role} TO …"
                ))
            })?;
        }
        Ok(tx)
    }

    fn relation(&self, name: &str) -> Relation {
        Relation::new(self.schema.clone(), name)
    }

    async fn require_schema(&self, connection: &mut PgConnection) -> Result<()> {
        let schema = Ident::new(self.schema.clone());
        let exists: bool = sqlx::query_scalar("SELECT to_regnamespace($1) IS NOT NULL")
            .persistent(false)
            .bind(schema.to_string())
            .fetch_one(connection)
            .await?;
        match exists {
            true => Ok(()),
            false => Err(Error::refused(format!("there is no schema {} in {}", self.schema, self.location))
                .with_hint(format!("CREATE SCHEMA {schema}"))),
        }
    }

    async fn look(&self, condition: &str, value: Look<'_>) -> Result<(Vec<Found>, Option<Timestamp>)> {
        let mut tx = self.begin().await?;
        self.require_schema(&mut tx).await?;
        let sql = format!(
            "SELECT c.relname::text, c.oid::text, pg_total_relation_size(c.oid), clock_timestamp()
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND {condition}
             ORDER BY c.relname"
        );
        let query = sqlx::query_as::<_, (String, String, Option<i64>, Stamp)>(AssertSqlSafe(sql)).persistent(false);
        let query = query.bind(&self.schema);
        let query = match value {
            Look::Prefix(prefix) => query.bind(prefix),
            Look::Names(names) => query.bind(names),
        };
        let rows = query.fetch_all(&mut *tx).await?;
        tx.commit().await?;
        let now = rows.first().map(|row| row.3.to_jiff());
        let found = rows.into_iter().map(|(name, oid, size, _)| Found {
            name,
            id: Some(oid),
            modified_at: None,
            size: size.and_then(|size| u64::try_from(size).ok()),
        });
        Ok((found.collect(), now))
    }

    async fn drop_table(&self, found: &Found) -> Result<Dropped> {
        let relation = self.relation(&found.name);
        let mut tx = self.begin().await?;
        let locked = sqlx::raw_sql(AssertSqlSafe(format!("LOCK TABLE ONLY {relation} IN ACCESS EXCLUSIVE MODE")))
            .execute(&mut *tx)
            .await;
        match locked.map_err(Error::from) {
            Ok(_) => {}
            Err(error) => return refusal(error),
        }
        let oid: Option<String> = sqlx::query_scalar("SELECT to_regclass($1)::oid::text")
            .persistent(false)
            .bind(relation.to_string())
            .fetch_one(&mut *tx)
            .await?;
        if oid != found.id {
            return Ok(Dropped::Later("it was made again under the same name".into()));
        }
        // RESTRICT: what somebody built on it (a view, a foreign key) is not taken along.
        let dropped = async {
            sqlx::raw_sql(AssertSqlSafe(format!("DROP TABLE {relation} RESTRICT"))).execute(&mut *tx).await?;
            tx.commit().await
        };
        match dropped.await.map_err(Error::from) {
            Ok(()) => Ok(Dropped::Accepted),
            Err(error) => refusal(error),
        }
    }

    async fn read_marker(&self, policy: &str) -> Result<Option<Owner>> {
        let mut tx = self.begin().await?;
        self.require_schema(&mut tx).await?;
        let marker = self.relation(MARKER);
        let exists: bool = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
            .persistent(false)
            .bind(marker.to_string())
            .fetch_one(&mut *tx)
            .await?;
        if !exists {
            return Ok(None);
        }
        // A marker without a line for this policy is still the installation's.
        let sql = format!(
            "SELECT installation, COALESCE(max(generation) FILTER (WHERE policy = $1), 0) FROM {marker} GROUP BY installation"
        );
        let row: Option<(Uuid, i64)> =
            sqlx::query_as(AssertSqlSafe(sql)).persistent(false).bind(policy).fetch_optional(&mut *tx).await?;
        Ok(row.map(|(installation, generation)| Owner { installation, generation }))
    }

    async fn write_marker(&self, policy: &str, owner: &Owner) -> Result<()> {
        let marker = self.relation(MARKER);
        let mut tx = self.begin().await?;
        let create = format!(
            "CREATE TABLE IF NOT EXISTS {marker} (installation uuid NOT NULL, policy text PRIMARY KEY,
                 generation bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())"
        );
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut *tx).await?;
        let put = format!(
            "INSERT INTO {marker} AS m (installation, policy, generation) VALUES ($1, $2, $3)
             ON CONFLICT (policy) DO UPDATE SET installation = EXCLUDED.installation,
                 generation = GREATEST(m.generation, EXCLUDED.generation), at = EXCLUDED.at"
        );
        sqlx::query(AssertSqlSafe(put))
            .persistent(false)
            .bind(owner.installation)
            .bind(policy)
            .bind(owner.generation)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(())
    }
}

enum Look<'a> {
    Prefix(&'a str),
    Names(&'a [String]),
}

/// What a server that says no means by it.
fn refusal(error: Error) -> Result<Dropped> {
    match error.sqlstate().as_deref() {
        // It is gone already.
        Some("42P01") => Ok(Dropped::Accepted),
        // Dependent objects; missing rights; not a table.
        Some("2BP01" | "42501" | "42809") => Ok(Dropped::Blocked(error.to_string())),
        Some(_) => Ok(Dropped::Later(error.to_string())),
        None => Err(error),
    }
}

impl Driver for PostgresDriver {
    fn location(&self) -> String {
        self.location.clone()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        each: &'a mut (dyn FnMut(Found) + Send),
    ) -> BoxFuture<'a, Result<Option<Timestamp>>> {
        answered(CALL_WITHIN * 2, async move {
            let (found, now) = self.look("starts_with(c.relname, $2)", Look::Prefix(prefix)).await?;
            found.into_iter().for_each(each);
            Ok(now)
        })
        .boxed()
    }

    fn find<'a>(&'a self, names: &'a [String]) -> BoxFuture<'a, Result<(Vec<Found>, Option<Timestamp>)>> {
        answered(CALL_WITHIN * 2, self.look("c.relname = ANY ($2::text[])", Look::Names(names))).boxed()
    }

    fn remove<'a>(&'a self, found: &'a Found) -> BoxFuture<'a, Result<Dropped>> {
        answered(CALL_WITHIN * 2, self.drop_table(found)).boxed()
    }

    fn owner<'a>(&'a self, policy: &'a str) -> BoxFuture<'a, Result<Option<Owner>>> {
        answered(CALL_WITHIN, self.read_marker(policy)).boxed()
    }

    fn mark<'a>(&'a self, policy: &'a str, owner: &'a Owner) -> BoxFuture<'a, Result<()>> {
        answered(CALL_WITHIN, self.write_marker(policy, owner)).boxed()
    }
}
