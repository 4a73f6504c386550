//! `/v1/events`: something to be delivered later, and what became of it.

use axum::extract::State;
use axum::http::StatusCode;
use ebb::policy::{self, Kind, Missed, Term};
use ebb::schedule::{Cursor, Event, EventRow, Filter, Shown, State as EventState, Yearly};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::{App, By, Operate, Read};
use super::extract::{Json, Path, Query};
use super::problem::{Problem, Sort};
use super::{Surface, paging};

pub(super) fn router() -> OpenApiRouter<Surface> {
    OpenApiRouter::new().routes(routes!(add, list)).routes(routes!(show)).routes(routes!(retry)).routes(routes!(cancel))
}

/// An event.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct EventRequest {
    /// The sink, as in `[sinks.NAME]`.
    #[schema(min_length = 1, max_length = 63, pattern = "^[A-Za-z0-9_-]+$")]
    sink: String,
    /// When it is due, with an offset; at once when absent.
    #[schema(format = DateTime, example = "2030-01-01T09:00:00Z")]
    due_at: Option<String>,
    /// Every year instead.
    yearly: Option<YearlyRequest>,
    /// What it says: any JSON.
    #[serde(default)]
    payload: Option<Value>,
    /// Of several with this key, only the first is an event; a yearly one is moved.
    /// From 1 to 1,024 bytes.
    #[schema(min_length = 1)]
    dedupe_key: Option<String>,
    /// Do not deliver it later than this.
    #[schema(example = "24h", pattern = r"^[1-9][0-9]{0,3}(ms|s|m|h|d)$")]
    max_late: Option<String>,
    /// Whose it is: it goes when the subject is erased.
    subject: Option<SubjectOf>,
}

/// Whose an event is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SubjectOf {
    /// The retain policy.
    policy: String,
    /// The subject's id.
    id: String,
}

/// A day of the year, by the clocks of a zone.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct YearlyRequest {
    /// `MM-DD`.
    #[schema(example = "02-29", pattern = "^(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$")]
    day: String,
    /// The wall-clock time.
    #[schema(example = "09:00", pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    at: String,
    /// An IANA name.
    #[schema(example = "Asia/Jakarta")]
    zone: String,
    /// What becomes of occurrences at which no node was there: `all`, `latest` or `skip`.
    #[schema(pattern = "^(all|latest|skip)$")]
    missed: Option<String>,
    /// Where 29 February is in other years: `02-28` or `03-01`.
    #[schema(pattern = "^(02-28|03-01)$")]
    leap_day: Option<String>,
}

/// What was scheduled.
#[derive(Debug, Serialize, ToSchema)]
struct EventAnswer {
    /// The event's id; for a dedupe key that was used before, that of the event that has it.
    event: Uuid,
}

/// Schedule an event
#[utoipa::path(
    post, path = "/v1/events", tag = "events", request_body = EventRequest,
    responses(
        (status = 201, description = "It will be delivered", body = EventAnswer),
        (status = 404, description = "There is no such sink", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("app"))),
)]
async fn add(
    _by: By<App>,
    State(surface): State<Surface>,
    Json(request): Json<EventRequest>,
) -> Result<(StatusCode, axum::Json<EventAnswer>), Problem> {
    let sink = request.sink.clone();
    match schedule(&surface, request).await {
        Ok(event) => Ok((StatusCode::CREATED, axum::Json(EventAnswer { event }))),
        // Whatever else is wrong with it, nobody would deliver it.
        Err(problem) if problem.status() == StatusCode::UNPROCESSABLE_ENTITY && !has_sink(&surface, &sink).await? => {
            Err(Problem::not_found(format!("there is no sink {sink:?}")).hint("write [sinks.NAME] and run `ebb apply`"))
        }
        Err(problem) => Err(problem),
    }
}

async fn schedule(surface: &Surface, request: EventRequest) -> Result<Uuid, Problem> {
    let events = surface.engine.events();
    Ok(match meant(surface, request).await? {
        Meant::Once(event) => events.schedule(&event).await?,
        Meant::Yearly(yearly) => events.schedule_yearly(&yearly).await?,
    })
}

enum Meant {
    Once(Event),
    Yearly(Yearly),
}

async fn meant(surface: &Surface, request: EventRequest) -> Result<Meant, Problem> {
    let max_late = request.max_late.as_deref().map(|text| length("max_late", text)).transpose()?;
    let subject = request.subject.map(|subject| (subject.policy, subject.id));
    let payload = request.payload.unwrap_or_else(|| serde_json::json!({}));
    let Some(yearly) = request.yearly else {
        let due_at = match request.due_at {
            Some(due_at) => time("due_at", &due_at)?,
            None => surface.engine.events().now().await?,
        };
        let mut event = Event::new(request.sink, due_at, payload);
        if let Some(key) = request.dedupe_key {
            event = event.dedupe(key);
        }
        if let Some(max_late) = max_late {
            event = event.max_late(max_late);
        }
        if let Some((policy, id)) = subject {
            event = event.subject(policy, id);
        }
        return Ok(Meant::Once(event));
    };
    if request.due_at.is_some() {
        return Err(Problem::field("due_at", "is for events that come once: leave it out of a yearly one"));
    }
    let day = yearly.day.split_once('-').and_then(|(month, day)| Some((month.parse().ok()?, day.parse().ok()?)));
    let (month, day) = day.ok_or_else(|| Problem::field("yearly.day", "is no day of the year, such as 02-29"))?;
    Ok(Meant::Yearly(Yearly {
        sink: request.sink,
        month,
        day,
        at: yearly.at.parse().map_err(|_| Problem::field("yearly.at", "is no time of day, such as 09:00"))?,
        zone: yearly.zone,
        payload,
        dedupe_key: request.dedupe_key,
        missed: match yearly.missed.as_deref() {
            None | Some("all") => Missed::All,
            Some("latest") => Missed::Latest,
            Some("skip") => Missed::Skip,
            Some(_) => return Err(Problem::field("yearly.missed", "is all, latest or skip")),
        },
        max_late,
        leap_day_in_march: match yearly.leap_day.as_deref() {
            None | Some("02-28") => false,
            Some("03-01") => true,
            Some(_) => return Err(Problem::field("yearly.leap_day", "is 02-28 or 03-01")),
        },
        subject,
    }))
}

/// A time as it is typed.
pub(super) fn time(field: &str, text: &str) -> Result<jiff::Timestamp, Problem> {
    text.parse().map_err(|_| Problem::field(field, "is no time with a zone, such as 2025-11-15T12:00:00Z"))
}

/// A duration as it is typed.
pub(super) fn length(field: &str, text: &str) -> Result<std::time::Duration, Problem> {
    let term: Term = text.parse().map_err(|invalid: policy::Invalid| Problem::field(field, invalid.message))?;
    term.as_duration().map_err(|invalid| Problem::field(field, invalid.message))
}

async fn has_sink(surface: &Surface, name: &str) -> Result<bool, Problem> {
    let mut tx = surface.engine.database().read().await?;
    let stored = policy::store::all(&mut tx).await?;
    tx.commit().await?;
    Ok(stored.iter().any(|stored| stored.kind == Kind::Sink && stored.name == name && stored.enabled))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Only of this sink.
    sink: Option<String>,
    /// Only in this state.
    #[param(pattern = "^(pending|running|failed|done|dead|cancelled|skipped)$")]
    state: Option<String>,
    /// Only delivered later than this, or already so late and not delivered yet.
    #[param(example = "5m", pattern = "^[1-9][0-9]{0,3}(s|m|h|d)$")]
    late: Option<String>,
    /// Only not delivered so long after their due time.
    #[param(example = "1h", pattern = "^[1-9][0-9]{0,3}(s|m|h|d)$")]
    stuck: Option<String>,
    /// At most so many; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// `next` of the page before.
    #[param(pattern = "^[of]\\.[0-9]{1,18}\\.[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")]
    after: Option<String>,
}

/// A page of events.
#[derive(Debug, Serialize, ToSchema)]
struct EventPage {
    /// First those that are open, in the order of their turn, then those that ended, the latest first.
    events: Vec<EventRow>,
    /// Leads to the next page.
    next: Option<String>,
}

/// Events and what became of them
#[utoipa::path(
    get, path = "/v1/events", tag = "events", params(ListQuery),
    responses((status = 200, description = "A page of events", body = EventPage)),
    extensions(("x-ebb-role" = json!("read"))),
)]
async fn list(
    _by: By<Read>,
    State(surface): State<Surface>,
    Query(query): Query<ListQuery>,
) -> Result<axum::Json<EventPage>, Problem> {
    let state = query.state.map(|text| text.parse::<EventState>());
    let filter = Filter {
        sink: query.sink,
        state: state.transpose().map_err(|invalid| Problem::field("state", invalid.message))?,
        late: query.late.as_deref().map(|text| length("late", text)).transpose()?,
        stuck: query.stuck.as_deref().map(|text| length("stuck", text)).transpose()?,
        limit: paging::limit(query.limit)? as u32,
    };
    let after = query.after.map(|text| text.parse::<Cursor>()).transpose()?;
    let (events, next) = surface.engine.events().page(&filter, after).await?;
    Ok(axum::Json(EventPage { events, next: next.map(|next| next.to_string()) }))
}

/// One event with its occurrences, body and last answer
#[utoipa::path(
    get, path = "/v1/events/{id}", tag = "events",
    params(("id" = Uuid, Path, description = "The event, or one of its occurrences")),
    responses(
        (status = 200, description = "Everything known about it", body = Shown),
        (status = 404, description = "Nobody knows it", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("read"))),
)]
async fn show(
    _by: By<Read>,
    State(surface): State<Surface>,
    Path(id): Path<Uuid>,
) -> Result<axum::Json<Shown>, Problem> {
    found(&surface, id).await.map(axum::Json)
}

async fn found(surface: &Surface, id: Uuid) -> Result<Shown, Problem> {
    surface.engine.events().show(id).await?.ok_or_else(|| {
        Problem::not_found(format!("nobody knows an event {id}")).hint("history goes after `[keep] events`")
    })
}

/// Make an event ready again that failed or ended undelivered
#[utoipa::path(
    post, path = "/v1/events/{id}/retry", tag = "events",
    params(("id" = Uuid, Path, description = "An occurrence")),
    responses(
        (status = 204, description = "It is tried again at once, with all its attempts"),
        (status = 404, description = "Nobody knows it", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "There is nothing to try again", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("operate"))),
)]
async fn retry(by: By<Operate>, State(surface): State<Surface>, Path(id): Path<Uuid>) -> Result<StatusCode, Problem> {
    retry_event(&surface, id, by.name()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes an event ready again, or says why not.
pub(crate) async fn retry_event(surface: &Surface, id: Uuid, by: &str) -> Result<(), Problem> {
    if surface.engine.events().retry_by(Some(id), None, by).await? > 0 {
        return Ok(());
    }
    let shown = found(surface, id).await?;
    let state = shown.occurrences.first().map_or("recurring", |occurrence| occurrence.row.state.as_str());
    Err(Problem::new(Sort::Conflict, format!("{id} is {state}: there is nothing to try again"))
        .hint("failed events, dead letters, skipped and cancelled ones can be retried"))
}

/// Cancel an event that is not delivered yet, or a recurring one
#[utoipa::path(
    post, path = "/v1/events/{id}/cancel", tag = "events",
    params(("id" = Uuid, Path, description = "The event")),
    responses(
        (status = 204, description = "It will not be delivered"),
        (status = 404, description = "Nobody knows it", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It was delivered, or is being delivered at this moment; should that fail, it is not tried again", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("app"))),
)]
async fn cancel(by: By<App>, State(surface): State<Surface>, Path(id): Path<Uuid>) -> Result<StatusCode, Problem> {
    cancel_event(&surface, id, by.name()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Cancels an event, or says why not.
pub(crate) async fn cancel_event(surface: &Surface, id: Uuid, by: &str) -> Result<(), Problem> {
    if surface.engine.events().cancel_by(id, by).await? {
        return Ok(());
    }
    let shown = found(surface, id).await?;
    if shown.recurring.as_ref().is_some_and(|recurring| recurring.policy.is_some()) {
        return Err(Problem::new(Sort::Conflict, format!("{id} belongs to a [[schedule]]"))
            .hint("put `enabled: false` into that policy"));
    }
    let (state, hint) = shown.uncancelled();
    Err(Problem::new(Sort::Conflict, format!("{id} is {state}")).hint(hint))
}
