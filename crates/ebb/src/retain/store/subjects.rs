//! Subjects as people ask about them and for them.

use sqlx::PgConnection;
use sqlx::postgres::PgDatabaseError;
use uuid::Uuid;

use crate::audit::Moment;
use crate::{Error, Result, sql};

/// A deletion as people see it.
#[derive(Debug, Clone, serde::Serialize, sqlx::FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[expect(missing_docs, reason = "the columns of ebb.v_deletions")]
pub struct Deletion {
    pub deletion: Uuid,
    pub subject_id: Option<String>,
    pub tenant: Option<String>,
    pub state: String,
    pub deleted_at: Moment,
    pub due_at: Moment,
    pub expedited: bool,
    pub on_hold: bool,
    pub hold_reason: Option<String>,
    pub hold_until: Option<Moment>,
    pub hold_since: Option<Moment>,
    pub warning: Option<String>,
    pub warned_at: Option<Moment>,
    pub warning_error: Option<String>,
    pub blocked: Option<String>,
    pub attempts: i32,
    pub next_try_at: Option<Moment>,
    pub error: Option<String>,
    pub rows: Option<i64>,
    pub opened_at: Moment,
    pub closed_at: Option<Moment>,
}

/// An open deletion in a list.
#[derive(Debug, Clone, serde::Serialize, sqlx::FromRow)]
pub struct OpenDeletion {
    /// Whose policy it is.
    pub policy: String,
    /// How it stands.
    #[serde(flatten)]
    #[sqlx(flatten)]
    pub deletion: Deletion,
}

/// Which open deletions to list.
#[derive(Debug, Clone, Default)]
pub struct OpenFilter {
    /// Only of this policy.
    pub policy: Option<String>,
    /// Only in this state: pending, warned, erasing or failed.
    pub state: Option<String>,
    /// Only of subjects whose id begins like that.
    pub id: Option<String>,
    /// At most so many.
    pub limit: i64,
    /// The last deletion of the page before.
    pub after: Option<Uuid>,
}

pub(crate) async fn list_open(connection: &mut PgConnection, filter: &OpenFilter) -> Result<Vec<OpenDeletion>> {
    let OpenFilter { policy, state, id, limit, after } = filter;
    let query = sql!("list_open" as OpenDeletion).bind(policy).bind(limit).bind(state).bind(id).bind(after);
    Ok(query.fetch_all(connection).await?)
}

pub(crate) async fn deletion_of(connection: &mut PgConnection, policy: &str, id: &str) -> Result<Option<Deletion>> {
    Ok(sql!("deletion_of" as Deletion).bind(policy).bind(id).fetch_optional(connection).await?)
}

/// A hold that is in force.
#[derive(Debug, Clone, serde::Serialize, sqlx::FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Hold {
    /// Why.
    pub reason: String,
    /// Until when; none: until it is lifted.
    pub until: Option<Moment>,
    /// Since when.
    pub placed_at: Moment,
    /// By whom, as they said.
    pub placed_by: String,
    /// Other policies that leave its rows alone meanwhile.
    pub binds: Vec<String>,
}

pub(crate) async fn hold_of(connection: &mut PgConnection, policy: &str, id: &str) -> Result<Option<Hold>> {
    Ok(sql!("hold_of" as Hold).bind(policy).bind(id).fetch_optional(connection).await?)
}

/// A subject on hold, deleted or not: a row of `ebb.v_holds`.
#[derive(Debug, Clone, serde::Serialize, sqlx::FromRow)]
pub struct HeldSubject {
    /// The hold's number.
    pub hold: i64,
    /// Whose policy it is.
    pub policy: String,
    /// Who.
    pub subject_id: String,
    /// Why.
    pub reason: String,
    /// Since when.
    pub since: Moment,
    /// Until when; none: until it is lifted.
    pub until: Option<Moment>,
    /// By whom, as they said.
    pub placed_by: String,
    /// Its open deletion, where there is one.
    pub deletion: Option<Uuid>,
    /// The state of that.
    pub state: Option<String>,
}

pub(crate) async fn list_holds(
    connection: &mut PgConnection,
    policy: Option<&str>,
    limit: i64,
    after: Option<i64>,
) -> Result<Vec<HeldSubject>> {
    Ok(sql!("list_holds" as HeldSubject).bind(policy).bind(limit).bind(after).fetch_all(connection).await?)
}

/// Something that happened to a subject.
#[derive(Debug, Clone, serde::Serialize, sqlx::FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = SubjectEvent))]
pub struct Happened {
    /// When.
    pub at: Moment,
    /// `deleted`, `erasure requested`, `to be erased again`, `warned`, `not warned`, `warning planned`, `restored`, `hold` or
    /// `release`.
    pub what: String,
    /// By whom, as they said.
    pub by: Option<String>,
    /// Why, where that is known.
    pub note: Option<String>,
    /// The deletion that it belongs to.
    pub deletion: Option<Uuid>,
}

/// The earliest first.
pub(crate) async fn history_of(
    connection: &mut PgConnection,
    policy: &str,
    id: &str,
    most: i64,
) -> Result<Vec<Happened>> {
    let query = sql!("history_of" as Happened).bind(policy).bind(id).bind(most);
    let mut history = query.fetch_all(connection).await?;
    history.reverse();
    Ok(history)
}

/// How the open deletions of a policy stand.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Backlog {
    pub(crate) policy: String,
    pub(crate) relation: String,
    /// Subjects whom the next run may take.
    pub(crate) due: i64,
    /// Since when the first of them.
    pub(crate) oldest_due: Option<Moment>,
    /// Subjects whose time has come, and who wait for something.
    pub(crate) blocked: i64,
    /// Deletions that are open, due or not.
    pub(crate) open: i64,
    /// Subjects on hold, deleted or not.
    pub(crate) on_hold: i64,
}

pub(crate) async fn backlog(connection: &mut PgConnection, most: i64) -> Result<Vec<Backlog>> {
    Ok(sql!("backlog" as Backlog).bind(most).fetch_all(connection).await?)
}

pub(crate) async fn list_waiting(
    connection: &mut PgConnection,
    policy: Option<&str>,
    limit: i64,
) -> Result<Vec<OpenDeletion>> {
    Ok(sql!("list_waiting" as OpenDeletion).bind(policy).bind(limit).fetch_all(connection).await?)
}

pub(crate) async fn retry_subject(connection: &mut PgConnection, policy: &str, id: &str) -> Result<Option<Uuid>> {
    Ok(sql!("retry_subject" scalar Uuid).bind(policy).bind(id).fetch_optional(connection).await?)
}

pub(crate) async fn retry_warning(connection: &mut PgConnection, policy: &str, id: &str) -> Result<Option<Uuid>> {
    Ok(sql!("retry_warning" scalar Uuid).bind(policy).bind(id).fetch_optional(connection).await?)
}

/// A soft delete that no deletion is of yet: marking has not come by, or a hold keeps it away.
#[derive(Debug, Clone, Copy, serde::Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Unmarked {
    /// When the row says that it was deleted.
    pub deleted_at: Moment,
    /// When it will be erased at the earliest.
    pub due_at: Moment,
}

/// The id of a subject as its table writes it, none when there is no such row, and whether it waits to be marked. Its row is
/// locked until the transaction ends.
pub(crate) async fn look_subject(
    connection: &mut PgConnection,
    policy: &str,
    id: &str,
) -> Result<(Option<String>, Option<Unmarked>)> {
    let query = sql!("look_subject" as (Option<String>, Option<Moment>, Option<Moment>)).bind(policy).bind(id);
    let (id, deleted_at, due_at) = query.fetch_one(connection).await.map_err(explain)?;
    let unmarked = deleted_at.zip(due_at).map(|(deleted_at, due_at)| Unmarked { deleted_at, due_at });
    Ok((id, unmarked))
}

/// Calls one of the functions that everybody uses: the same rules whoever asks.
pub(crate) async fn call<T>(connection: &mut PgConnection, sql: &'static str, arguments: &[Option<&str>]) -> Result<T>
where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
{
    let query = sqlx::query_scalar::<_, T>(sql).persistent(false);
    let query = arguments.iter().fold(query, |query, argument| query.bind(*argument));
    query.fetch_one(connection).await.map_err(explain)
}

/// What the functions refuse is a mistake of the caller's, or something about the table that only people can change.
pub(crate) fn explain(error: sqlx::Error) -> Error {
    let Some(database) = of_database(&error) else { return error.into() };
    // Where a policy's function touches its row. What the server says is in its language, names are not.
    let within = |name: &str| database.r#where().is_some_and(|place| place.contains(name));
    let at_table = within("ebb.\"subject:");
    let told = match database.code() {
        code if at_table && !is_trouble(code) => return refused_by_table(error),
        // A soft delete near the end of time, to which no term can be added.
        "22008" if within("ebb.retained_until") || within("ebb.later") => {
            return Error::refused("no term can be counted from the time of its soft delete: that is out of range")
                .with_hint("set its soft-delete column to the time at which it was deleted");
        }
        "P0002" | "42704" => Error::unknown(database.message()),
        "22P02" | "22023" | "22007" | "22008" => Error::usage(database.message()),
        "55000" => Error::refused(database.message()),
        "55P03" => return Error::from(error).with_hint("somebody is at work on that row: try again in a moment"),
        _ => return error.into(),
    };
    match database.hint() {
        Some(hint) => told.with_hint(hint),
        None => told,
    }
}

/// What waited for the end of a transaction that is about one subject comes from its table: Ebb's own wait for nothing.
pub(crate) fn explain_end(error: sqlx::Error) -> Error {
    match of_database(&error) {
        Some(database) if !is_trouble(database.code()) => refused_by_table(error),
        _ => error.into(),
    }
}

fn of_database(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

/// Whether it is the server's trouble, a lock or a right, and neither a constraint nor a trigger that somebody wrote.
fn is_trouble(code: &str) -> bool {
    ["08", "25", "40", "53", "57", "58", "XX"].iter().any(|class| code.starts_with(class))
        || matches!(code, "42501" | "55P03")
}

fn refused_by_table(error: sqlx::Error) -> Error {
    let Some(database) = of_database(&error) else { return error.into() };
    let told = Error::refused(format!("the table refused it: {}", database.message()));
    let told = told.with_hint(database.hint().unwrap_or_else(|| of_table(database.code())));
    told.with_source(error)
}

/// What helps where the table says nothing itself. Which value it is stays with the table: it may be somebody's address.
fn of_table(code: &str) -> &'static str {
    match code {
        "23505" => "another row has the same value by now: change one of the two, then try again",
        _ if code.starts_with("22") => {
            "a column cannot be what the policy, or a trigger, sets it to: change that, then try again"
        }
        _ if code.starts_with("23") => "a constraint of the table holds it back: change the row, then try again",
        _ => "a trigger of the table raised it: let it pass, then try again",
    }
}
