//! `[[retain]]`: personal data lives as long as policy says. With `deleted_at` it is about subjects (soft delete, grace,
//! hard delete with everything that hangs on them); without it about rows by their age. Invariants: nothing here is
//! shorter than the floor; what a key of one form would mean in the other is refused.

use std::time::Duration;

use serde_json::Value;

use super::expire::{read_batch, read_brake, read_cadence, read_set};
use super::field::Invalid;
use super::reader::wrong_type;
use super::{
    Action, AuditDetail, BatchSize, Brake, Cadence, EpochUnit, Expire, FieldErrors, Mode, Name, Reader, Scalar, Spec,
    Term, Warning, Window, Zone, read_name, warning,
};

/// What is kept, how long, and what goes with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Retain {
    /// Its name.
    pub name: Name,
    /// What it is for, in words.
    pub description: Option<String>,
    /// The table as it was typed; the catalog resolves it.
    pub table: String,
    /// No tenant, override, edit or request goes below it; counted from the soft delete, or from the column.
    pub floor: Option<Term>,
    /// Where the floor comes from: law and article.
    pub basis: Option<String>,
    /// The column that names the tenant.
    pub tenant: Option<String>,
    /// Whether tenants may have a retention of their own.
    pub tenant_override: bool,
    /// Where times without a zone are at home, and months are counted.
    pub zone: Zone,
    /// When batches may start.
    pub window: Option<Window>,
    /// How much at once.
    pub batch: BatchSize,
    /// No batch takes longer.
    pub batch_timeout: Duration,
    /// Whether it acts or only counts.
    pub mode: Mode,
    /// When a run is too large to be meant.
    pub brake: Brake,
    /// The role for statements on the user's tables.
    pub role: Option<String>,
    /// Whether it runs.
    pub enabled: bool,
    /// Subjects or rows.
    pub form: RetainForm,
}

/// The two forms.
#[derive(Debug, Clone, PartialEq)]
pub enum RetainForm {
    /// Root rows with a soft delete.
    Subjects(Box<Subjects>),
    /// Rows by their age.
    Direct(Direct),
}

/// Direct retention: the keys it shares with `[[expire]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Direct {
    /// The column with the time.
    pub column: String,
    /// What an integer column counts since 1970.
    pub unit: Option<EpochUnit>,
    /// How old a row becomes.
    pub older_than: Term,
    /// A condition besides age, in SQL.
    pub filter: Option<String>,
    /// When to look.
    pub cadence: Cadence,
    /// How much the audit keeps.
    pub audit: AuditDetail,
}

/// Subjects: what a deletion means.
#[derive(Debug, Clone, PartialEq)]
pub struct Subjects {
    /// The soft-delete column.
    pub deleted_at: String,
    /// From soft delete to hard delete.
    pub grace: Term,
    /// The status column, kept in step.
    pub status: Option<StatusColumn>,
    /// Columns of the root table that mirror the deletion.
    pub mirror: Mirror,
    /// While it is true a subject is blocked.
    pub unless: Option<String>,
    /// Actions of foreign keys, and links without one.
    pub children: Vec<Child>,
    /// What becomes of rows behind a foreign key that no entry names and that says nothing by itself.
    pub unnamed: Unnamed,
    /// How subjects are warned; absent: not at all.
    pub warning: Option<Warning>,
    /// How long a sealed copy of what was erased is kept; absent: there is none.
    pub snapshot_for: Option<Term>,
    /// How often the application's own soft deletes are looked for.
    pub mark_every: Duration,
    /// A trigger on the table tells Ebb of them at once.
    pub mark_at_once: bool,
    /// When subjects are erased.
    pub erase: Cadence,
}

/// `status = { column, deleted, active }`.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusColumn {
    /// Its name.
    pub column: String,
    /// Its value after a soft delete.
    pub deleted: String,
    /// Its value after a restore.
    pub active: String,
}

/// Columns of the root table that say how the deletion stands.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Mirror {
    /// When it will be erased.
    pub due: Option<String>,
    /// When the warning went out.
    pub notified: Option<String>,
    /// When erasing was last tried.
    pub attempted: Option<String>,
    /// Set whenever Ebb changes the row.
    pub touched: Option<String>,
}

/// One entry of `children`.
#[derive(Debug, Clone, PartialEq)]
pub struct Child {
    /// The table that refers.
    pub table: String,
    /// Its columns.
    pub columns: Vec<String>,
    /// The root's columns, for a link without a foreign key.
    pub references: Vec<String>,
    /// What becomes of its rows.
    pub action: ChildAction,
}

/// What becomes of a row whose parent is erased.
#[derive(Debug, Clone, PartialEq)]
pub enum ChildAction {
    /// It goes too.
    Delete,
    /// Its link becomes null.
    Nullify,
    /// It stays as it is.
    Keep,
    /// Columns are set to SQL expressions.
    Anonymize(Vec<(String, String)>),
}

/// What to do with a foreign key that nobody named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unnamed {
    /// The policy is refused: a foreign key is not consent.
    Refuse,
    /// Its rows go.
    Delete,
}

pub(super) const SCALARS: &[Scalar] = &[
    Scalar::Text("description"),
    Scalar::Text("table"),
    Scalar::Text("deleted_at"),
    Scalar::Text("grace"),
    Scalar::Text("floor"),
    Scalar::Text("basis"),
    Scalar::Text("tenant"),
    Scalar::Plain("tenant_override"),
    Scalar::Text("status.column"),
    Scalar::Text("status.deleted"),
    Scalar::Text("status.active"),
    Scalar::Text("mirror.due"),
    Scalar::Text("mirror.notified"),
    Scalar::Text("mirror.attempted"),
    Scalar::Text("mirror.touched"),
    Scalar::Text("unless"),
    Scalar::Text("children"),
    Scalar::Text("unnamed"),
    Scalar::Text("mark_every"),
    Scalar::Plain("mark_at_once"),
    Scalar::Text("erase_at"),
    Scalar::Text("column"),
    Scalar::Text("unit"),
    Scalar::Text("older_than"),
    Scalar::Text("where"),
    Scalar::Text("every"),
    Scalar::Text("at"),
    Scalar::Text("audit"),
    Scalar::Text("zone"),
    Scalar::Text("window"),
    Scalar::Plain("batch.rows"),
    Scalar::Text("batch.pause"),
    Scalar::Text("batch.timeout"),
    Scalar::Text("mode"),
    Scalar::Plain("brake.rows"),
    Scalar::Plain("brake.share"),
    Scalar::Text("role"),
    Scalar::Plain("enabled"),
    Scalar::Text("warn_before"),
    Scalar::Text("spread"),
    Scalar::Text("contact.email"),
    Scalar::Text("contact.name"),
    Scalar::Text("texts.service"),
    Scalar::Text("texts.support"),
    Scalar::Text("texts.subject"),
    Scalar::Text("texts.greeting"),
    Scalar::Text("texts.intro"),
    Scalar::Text("texts.closing"),
    Scalar::Text("notify"),
    Scalar::Text("on_undeliverable"),
    Scalar::Text("restore_url"),
    Scalar::Text("snapshot"),
    Scalar::Text("snapshot_for"),
];

/// Keys that make sense for subjects only, and those for rows only.
const OF_SUBJECTS: [&str; 18] = [
    "grace",
    "status",
    "mirror",
    "unless",
    "children",
    "unnamed",
    "mark_every",
    "mark_at_once",
    "erase_at",
    "warn_before",
    "spread",
    "contact",
    "notify",
    "on_undeliverable",
    "restore_url",
    "texts",
    "snapshot",
    "snapshot_for",
];
const OF_ROWS: [&str; 6] = ["column", "unit", "older_than", "where", "at", "audit"];

const HOUR: Duration = Duration::from_secs(3_600);
const YEAR: Duration = Duration::from_secs(366 * 86_400);

impl Retain {
    pub(super) fn parse(name: &str, spec: &Spec) -> Result<Self, FieldErrors> {
        let mut reader = Reader::new(spec);
        let r = &mut reader;
        let given = |key: &str| spec.get(key).is_some_and(|value| !value.is_null());
        let name = read_name(r, name);
        let description = r.text("description", "\"accounts after deletion\"");
        let table = r.required("table", "\"public.users\"");
        let floor = r.term("floor", "\"30d\"");
        let basis = r.text("basis", "\"UU PDP art. 43\"");
        let tenant = r.text("tenant", "\"tenant_id\"");
        let tenant_override = r.flag("tenant_override", false);
        let zone = r.parse("zone", "\"Asia/Jakarta\"").unwrap_or_else(Zone::utc);
        let window: Option<Window> = r.parse("window", "\"22:00-05:00\"");
        let (batch, batch_timeout) = read_batch(r);
        let mode = r.choice("mode", &[("enforce", Mode::Enforce), ("observe", Mode::Observe)]);
        let brake = read_brake(r);
        let role = r.text("role", "\"ebb_worker\"");
        let enabled = r.flag("enabled", true);
        if tenant_override && !given("tenant") {
            let invalid = Invalid::new("`tenant_override` needs `tenant`").hint("name the column that has the tenant");
            r.refuse("tenant_override", invalid);
        }
        let subjects = read_subjects(r, spec, window, floor);
        let direct = read_direct(r, spec, window, floor);
        let deleted_at = r.text("deleted_at", "\"deleted_at\"");
        let (foreign, why) = match deleted_at {
            Some(_) => (&OF_ROWS[..], "belongs to retention by age, and `deleted_at` makes this one about subjects"),
            None => (&OF_SUBJECTS[..], "belongs to subjects, which need `deleted_at`"),
        };
        let none = |key: &str| key == "snapshot" && spec.get(key).is_some_and(|value| value == "none");
        for key in foreign.iter().filter(|key| given(key) && !none(key)) {
            r.refuse(key, Invalid::new(format!("`{key}` {why}")).hint("take one of them out"));
        }
        if deleted_at.is_none() && !given("column") {
            let invalid = Invalid::new("neither `deleted_at` nor `column` is given");
            r.refuse_all(invalid.hint("add deleted_at = \"deleted_at\" and grace, or column and older_than"));
        }
        if deleted_at.is_some() && !given("grace") {
            r.refuse_all(Invalid::new("`grace` is missing").hint("add grace = \"90d\""));
        }
        if deleted_at.is_none() && given("column") && !given("older_than") {
            r.refuse_all(Invalid::new("`older_than` is missing").hint("add older_than = \"90d\""));
        }
        reader.finish()?;
        let form = match deleted_at {
            Some(deleted_at) => {
                subjects.map(|subjects| RetainForm::Subjects(Box::new(Subjects { deleted_at, ..subjects })))
            }
            None => direct.map(RetainForm::Direct),
        };
        let (Some(name), Some(table), Some(form)) = (name, table, form) else {
            return Err(super::whole("`name`, `table` and how long to retain are needed".into()));
        };
        Ok(Self {
            name,
            description,
            table,
            floor,
            basis,
            tenant,
            tenant_override,
            zone,
            window,
            batch,
            batch_timeout,
            mode: mode.unwrap_or(Mode::Enforce),
            brake,
            role,
            enabled,
            form,
        })
    }

    /// What a deletion means, where it is about subjects.
    pub fn subjects(&self) -> Option<&Subjects> {
        match &self.form {
            RetainForm::Subjects(subjects) => Some(subjects),
            RetainForm::Direct(_) => None,
        }
    }

    /// Whether anything goes by it: it is switched on, and does not only observe.
    pub fn erases(&self) -> bool {
        self.enabled && self.mode == Mode::Enforce
    }

    /// How long data is kept by default: the grace, or the age.
    pub fn retention(&self) -> Term {
        match &self.form {
            RetainForm::Subjects(subjects) => subjects.grace,
            RetainForm::Direct(direct) => direct.older_than,
        }
    }

    /// Direct retention as the sweep understands it, by the shortest term that anybody has and a condition that is true for rows
    /// whose own term has ended. Which of two terms is the longer one may depend on the month: the floor counts besides.
    pub(crate) fn as_expire(&self, older_than: Term, own_terms: Option<String>) -> Option<Expire> {
        let RetainForm::Direct(direct) = &self.form else { return None };
        let filter = match (&direct.filter, own_terms) {
            (None, own) => own,
            (Some(filter), None) => Some(filter.clone()),
            (Some(filter), Some(own)) => Some(format!("({filter}) AND ({own})")),
        };
        Some(Expire {
            name: self.name.clone(),
            description: self.description.clone(),
            table: self.table.clone(),
            column: direct.column.clone(),
            unit: direct.unit,
            older_than: Some(older_than),
            floor: self.floor.filter(|floor| !older_than.never_shorter(floor)),
            zone: self.zone.clone(),
            filter,
            action: Action::Delete,
            cadence: direct.cadence.clone(),
            window: self.window,
            batch: self.batch,
            batch_timeout: self.batch_timeout,
            mode: self.mode,
            brake: self.brake,
            audit: direct.audit,
            role: self.role.clone(),
            enabled: self.enabled,
        })
    }
}

fn read_subjects(r: &mut Reader<'_>, spec: &Spec, window: Option<Window>, floor: Option<Term>) -> Option<Subjects> {
    let grace = r.term("grace", "\"90d\"");
    below_floor(r, "grace", grace, floor);
    let status = r.table("status", "{ column = \"status\", deleted = \"deleted\", active = \"active\" }", |inner| {
        let column = inner.required("column", "\"status\"");
        let deleted = inner.required("deleted", "\"deleted\"");
        let active = inner.required("active", "\"active\"");
        Some(StatusColumn { column: column?, deleted: deleted?, active: active? })
    });
    let mirror = r.table("mirror", "{ due = \"scheduled_deletion_at\" }", |inner| Mirror {
        due: inner.text("due", "\"scheduled_deletion_at\""),
        notified: inner.text("notified", "\"deletion_notified_at\""),
        attempted: inner.text("attempted", "\"cleanup_attempted_at\""),
        touched: inner.text("touched", "\"updated_at\""),
    });
    let unless = r.text("unless", "\"exists (select from invoices i where i.user_id = users.id and i.open)\"");
    let children = read_children(r);
    let unnamed = r.choice("unnamed", &[("refuse", Unnamed::Refuse), ("delete", Unnamed::Delete)]);
    let warning = warning::read(r, spec, grace);
    let snapshot_for = read_snapshot(r);
    let mark_every = r.duration("mark_every", "\"1h\"", Duration::from_secs(1)..=YEAR);
    let mark_at_once = r.flag("mark_at_once", false);
    let erase = read_erase(r, spec, window);
    Some(Subjects {
        deleted_at: String::new(),
        grace: grace?,
        status: status.flatten(),
        mirror: mirror.unwrap_or_default(),
        unless,
        children,
        unnamed: unnamed.unwrap_or(Unnamed::Refuse),
        warning,
        snapshot_for,
        mark_every: mark_every.unwrap_or(HOUR),
        mark_at_once,
        erase,
    })
}

/// `snapshot = "sealed"` and `snapshot_for` belong together.
fn read_snapshot(r: &mut Reader<'_>) -> Option<Term> {
    let sealed = r.choice("snapshot", &[("none", false), ("sealed", true)]);
    let term = r.term("snapshot_for", "\"30d\"");
    match (sealed == Some(true), r.take("snapshot_for").is_some()) {
        (true, false) => {
            let invalid = Invalid::new("a sealed snapshot has an end, and `snapshot_for` is missing");
            r.refuse("snapshot", invalid.hint("add snapshot_for = \"30d\""));
            None
        }
        (false, true) => {
            let invalid = Invalid::new("`snapshot_for` says how long a sealed snapshot is kept, and there is none");
            r.refuse("snapshot_for", invalid.hint("add snapshot = \"sealed\", or take it out"));
            None
        }
        _ => term,
    }
}

fn read_direct(r: &mut Reader<'_>, spec: &Spec, window: Option<Window>, floor: Option<Term>) -> Option<Direct> {
    let column = r.text("column", "\"created_at\"");
    let unit = r.choice("unit", &[("s", EpochUnit::Seconds), ("ms", EpochUnit::Millis)]);
    let older_than = r.term("older_than", "\"90d\"");
    below_floor(r, "older_than", older_than, floor);
    let filter = r.text("where", "\"status in ('sent', 'cancelled')\"");
    let audit = r.choice("audit", &[("batch", AuditDetail::Batch), ("rows", AuditDetail::Rows)]);
    let cadence = read_cadence(r, spec, window);
    let audit = audit.unwrap_or(AuditDetail::Batch);
    Some(Direct { column: column?, unit, older_than: older_than?, filter, cadence, audit })
}

/// What is written down must hold as written: a shorter term than the floor would be a promise that is not kept.
fn below_floor(r: &mut Reader<'_>, key: &'static str, term: Option<Term>, floor: Option<Term>) {
    if let (Some(term), Some(floor)) = (term, floor)
        && term.approximate() < floor.approximate()
    {
        let invalid = Invalid::new(format!("`{key}` {term} is below the floor {floor}"));
        r.refuse(key, invalid.hint(format!("at least \"{floor}\"")));
    }
}

/// `erase_at`, or `every`.
fn read_erase(r: &mut Reader<'_>, spec: &Spec, window: Option<Window>) -> Cadence {
    let at: Option<super::At> = r.parse("erase_at", "\"02:00\"");
    let given = |key: &str| spec.get(key).is_some_and(|value| !value.is_null());
    if given("erase_at") && given("every") {
        r.refuse("erase_at", Invalid::new("`every` and `erase_at` cannot both be given").hint("take one of them out"));
    }
    match (at, window) {
        (Some(at), Some(window)) if !window.covers(at.time) => {
            let invalid = Invalid::new(format!("it would start at {at}, when the window {window} is closed"));
            r.refuse("erase_at", invalid);
        }
        _ => {}
    }
    let every = spec.get("every").and_then(Value::as_str).and_then(|text| text.parse::<Term>().ok());
    let every = every.and_then(|term| term.as_duration().ok());
    at.map_or(Cadence::Every(every.unwrap_or(HOUR)), Cadence::At)
}

fn read_children(r: &mut Reader<'_>) -> Vec<Child> {
    let example = "[{ table = \"public.orders\", column = \"user_id\", action = \"nullify\" }]";
    let Some(value) = r.take("children") else { return Vec::new() };
    let Value::Array(items) = value else {
        r.refuse("children", wrong_type("children", "a list", value, example));
        return Vec::new();
    };
    let mut children = Vec::new();
    for item in items {
        let Value::Object(map) = item else {
            r.refuse("children", wrong_type("children", "a list of tables", item, example));
            continue;
        };
        let mut inner = Reader::new(map);
        let child = read_child(&mut inner);
        match inner.finish() {
            Ok(()) => children.extend(child),
            Err(errors) => errors.0.into_iter().for_each(|error| {
                let invalid = Invalid::new(error.message);
                r.refuse(
                    "children",
                    match error.hint {
                        Some(hint) => invalid.hint(hint),
                        None => invalid,
                    },
                );
            }),
        }
    }
    children
}

fn read_child(r: &mut Reader<'_>) -> Option<Child> {
    let table = r.required("table", "\"public.orders\"");
    let columns = names(r, "column", "\"user_id\"");
    if columns.is_empty() {
        r.refuse_all(Invalid::new("`column` is missing").hint("add column = \"user_id\""));
    }
    let references = names(r, "references", "\"id\"");
    if !references.is_empty() && references.len() != columns.len() {
        r.refuse("references", Invalid::new("`column` and `references` name different numbers of columns"));
    }
    let set = r.table("set", "{ email = \"null\" }", read_set);
    let words = [("delete", "delete"), ("nullify", "nullify"), ("keep", "keep"), ("anonymize", "anonymize")];
    let action = r.choice("action", &words);
    if action.is_none() && r.take("action").is_none() {
        r.refuse_all(Invalid::new("`action` is missing").hint("it is delete, nullify, keep or anonymize"));
    }
    let action = match (action?, set) {
        ("anonymize", Some(set)) => ChildAction::Anonymize(set),
        ("anonymize", None) => {
            r.refuse("action", Invalid::new("`anonymize` needs `set`").hint("add set = { email = \"null\" }"));
            return None;
        }
        (_, Some(_)) => {
            r.refuse("set", Invalid::new("`set` belongs to action = \"anonymize\""));
            return None;
        }
        ("delete", None) => ChildAction::Delete,
        ("nullify", None) => ChildAction::Nullify,
        _ => ChildAction::Keep,
    };
    Some(Child { table: table?, columns, references, action })
}

/// A name, or several.
fn names(r: &mut Reader<'_>, key: &'static str, example: &str) -> Vec<String> {
    match r.take(key) {
        None => Vec::new(),
        Some(Value::String(_)) => r.text(key, example).into_iter().collect(),
        Some(Value::Array(items)) if items.iter().all(Value::is_string) && !items.is_empty() => {
            items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        Some(other) => {
            r.refuse(key, wrong_type(key, "a name or a list of names", other, example));
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(more: Value) -> Result<Retain, FieldErrors> {
        let mut spec = Spec::from_iter([("table".to_owned(), Value::from("public.users"))]);
        spec.extend(more.as_object().unwrap().clone());
        Retain::parse("users", &spec)
    }

    fn refusal(more: Value) -> String {
        parse(more).unwrap_err().to_string()
    }

    #[test]
    fn both_forms_are_read() {
        let subjects = parse(json!({ "deleted_at": "deleted_at", "grace": "90d", "erase_at": "02:00",
            "children": [{ "table": "orders", "column": ["a", "b"], "action": "nullify" },
                         { "table": "guests", "column": "email", "references": "email", "action": "anonymize",
                           "set": { "email": "null" } }] }))
        .unwrap();
        let read = subjects.subjects().unwrap();
        assert_eq!((read.children.len(), read.unnamed, read.mark_every), (2, Unnamed::Refuse, HOUR));
        assert!(matches!(read.erase, Cadence::At(_)) && subjects.as_expire(subjects.retention(), None).is_none());
        let direct =
            parse(json!({ "column": "created_at", "older_than": "90d", "floor": "30d", "where": "a" })).unwrap();
        assert_eq!(direct.as_expire(direct.retention(), Some("b".into())).unwrap().filter.unwrap(), "(a) AND (b)");
    }

    #[test]
    fn contradictions_are_refused() {
        let subjects = |more: Value| {
            let mut spec = json!({ "deleted_at": "deleted_at", "grace": "90d" });
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            refusal(spec)
        };
        assert!(refusal(json!({})).contains("neither `deleted_at` nor `column`"));
        assert!(refusal(json!({ "deleted_at": "d" })).contains("`grace` is missing"));
        assert!(refusal(json!({ "column": "c" })).contains("`older_than` is missing"));
        assert!(subjects(json!({ "older_than": "1d" })).contains("belongs to retention by age"));
        assert!(refusal(json!({ "column": "c", "older_than": "9d", "unless": "x" })).contains("belongs to subjects"));
        assert!(subjects(json!({ "floor": "91d" })).contains("`grace` 90d is below the floor 91d"));
        assert!(subjects(json!({ "floor": "3mo" })).contains("below the floor 3mo"));
        assert!(subjects(json!({ "tenant_override": true })).contains("needs `tenant`"));
        assert!(subjects(json!({ "children": [{ "table": "t", "column": "c" }] })).contains("`action` is missing"));
        assert!(
            subjects(json!({ "children": [{ "table": "t", "column": "c", "action": "anonymize" }] }))
                .contains("needs `set`")
        );
        assert!(subjects(json!({ "children": [{ "tabel": "t" }] })).contains("did you mean `table`?"));
        assert!(subjects(json!({ "every": "1h", "erase_at": "02:00" })).contains("cannot both be given"));
        assert!(subjects(json!({ "snapshot": "sealed" })).contains("`snapshot_for` is missing"));
        assert!(subjects(json!({ "snapshot_for": "30d" })).contains("and there is none"));
        assert!(subjects(json!({ "snapshot": "none", "snapshot_for": "30d" })).contains("and there is none"));
        assert!(subjects(json!({ "snapshot": "open" })).contains("`snapshot` cannot be"));
        let rows = json!({ "column": "c", "older_than": "9d", "snapshot": "sealed", "snapshot_for": "30d" });
        assert!(refusal(rows).contains("`snapshot` belongs to subjects"));
        assert!(parse(json!({ "column": "c", "older_than": "9d", "snapshot": "none" })).is_ok());
        let sealed = json!({ "deleted_at": "d", "grace": "90d", "snapshot": "sealed", "snapshot_for": "30d" });
        assert_eq!(parse(sealed).unwrap().subjects().unwrap().snapshot_for, Some(Term::days(30)));
    }
}
