//! expire: whatever is past its time goes away, from any table, leaf by leaf, by the fastest way its layout allows.
//! Invariants: the cutoff is fixed when a run starts, so a run ends; a row goes only if the whole condition holds in
//! the statement that removes it; rows that others hold are passed by, tried once more at the end, never waited for.

pub(crate) mod brake;
pub(crate) mod due;
pub(crate) mod sandbox;
pub(crate) mod shape;
pub(crate) mod statement;
pub(crate) mod store;
pub(crate) mod work;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use sqlx::PgConnection;

use crate::audit::{Entry, Moment, RowEntry, SubjectKey};
use crate::gate::{self, Above};
use crate::pg::catalog::{self, Leaf, Table};
use crate::pg::{Ident, expression};
use crate::policy::{Action, AuditDetail, BatchSize, Expire};
use crate::spine::batch::Batch;
use crate::spine::pacing::Pacer;
use crate::spine::{Chore, Outcome, Recovery};
use crate::{Error, Result, Trouble};
use due::{Clock, Due};
use shape::Shape;
use store::{Act, Range, Stayed, Swept, Target};

/// How long a batch waits for a row that somebody holds before it passes by.
const LOCK_WAIT: Duration = Duration::from_millis(50);
/// A run steps around so many rows over which a trigger raises an error; more of them are no exception.
const RAISED: u64 = 1_000;

/// One run over one leaf.
pub(crate) struct Sweep {
    policy: Arc<Expire>,
    target: Target,
    leaf: u32,
    way: Way,
    shape: Shape,
    /// Ranges where somebody held rows; looked at once more at the end.
    passed_by: VecDeque<Range>,
    second_pass: bool,
    skip_locked: bool,
    skipped: u64,
    /// Rows that cannot go by themselves were met: batches go around them, and these are why.
    around: bool,
    stayed: Stayed,
    /// What the leaf is part of, where holds of other policies can concern it; those of Ebb's own tables concern nobody.
    gated: Option<Above>,
    /// The policies whose soft-deleted subjects its `where` leaves alone.
    apart_from: Vec<String>,
    /// Whose holds have kept rows in this run.
    kept_by: Option<String>,
    /// Rows on a page, for ways that count pages.
    rows_per_page: f64,
    /// Where the batch at work began: a commit that fails takes back what its statements did.
    began: Option<(Way, VecDeque<Range>, bool)>,
    subject_key: Option<Arc<SubjectKey>>,
}

/// How far the first pass has come.
#[derive(Debug, Clone)]
enum Way {
    Keys { from: Option<String> },
    Pages { next: u64, end: u64 },
    Rows { after: String },
    Done,
}

/// Checks everything that can be wrong with a policy over a table; the result is ready for SQL over `leaf`.
pub(crate) async fn target(
    connection: &mut PgConnection,
    policy: &Expire,
    table: &Table,
    leaf: &Leaf,
) -> Result<Target> {
    target_by(connection, policy, table, leaf, Clock::Ebb).await
}

/// The same by a stated clock.
pub(crate) async fn target_by(
    connection: &mut PgConnection,
    policy: &Expire,
    table: &Table,
    leaf: &Leaf,
    clock: Clock,
) -> Result<Target> {
    let column = catalog::column(connection, &leaf.relation, leaf.oid, &policy.column).await;
    let column = column.map_err(|error| error.at_key("column"))?;
    let due = Due::fix(connection, policy, &column, clock).await?;
    let role = policy.role.as_ref().map(Ident::new);
    store::as_role(connection, role.as_ref()).await?;
    let filter = match &policy.filter {
        None => None,
        Some(typed) => {
            let checked = expression::filter(connection, &table.relation, typed).await;
            let usable = checked.and_then(|filter| {
                filter.usable_on(&table.relation, &leaf.relation)?;
                Ok(filter)
            });
            Some(usable.map_err(|error| error.context(format!("`where` of {}", policy.name)).at_key("where"))?)
        }
    };
    let act = match &policy.action {
        Action::Delete => Act::Delete,
        Action::Set(changes) => {
            let mut checked = Vec::new();
            for (name, value) in changes {
                let column = catalog::column(connection, &leaf.relation, leaf.oid, name).await;
                let column = column.map_err(|error| error.at_key("action"))?.name;
                let change = expression::change(connection, &table.relation, &column, value)
                    .await
                    .and_then(|change| {
                        change.value.usable_on(&table.relation, &leaf.relation)?;
                        Ok(change)
                    })
                    .map_err(|error| error.context(format!("`set` of {name} in {}", policy.name)).at_key("action"))?;
                checked.push((column, change));
            }
            Act::Set(checked)
        }
    };
    store::back_from_role(connection, role.as_ref()).await?;
    let key = match policy.audit {
        AuditDetail::Batch => None,
        AuditDetail::Rows => Some(store::key_columns(connection, leaf.oid).await?),
    };
    Ok(Target { leaf: leaf.relation.clone(), due, filter, act, role, key, sandbox: None, held: Vec::new() })
}

impl Sweep {
    /// Fixes the cutoff and finds the way through the leaf.
    pub(crate) async fn prepare(
        connection: &mut PgConnection,
        policy: Arc<Expire>,
        table: &Table,
        leaf: &Leaf,
        subject_key: Option<Arc<SubjectKey>>,
    ) -> Result<Sweep> {
        let mut target = target(connection, &policy, table, leaf).await?;
        target.sandbox = sandbox::find(connection, policy.name.as_str(), table, leaf.oid, &target).await?;
        if target.key.is_some() && subject_key.is_none() {
            return Err(Error::config(format!("policy {} records rows, and there is no subject key", policy.name))
                .with_hint("set subject_key in [audit] and run `ebb apply`, which creates it"));
        }
        let pages = store::pages_now(connection, leaf.oid).await?;
        // Statistics of a column are shown to whoever may read it.
        store::as_role(connection, target.role.as_ref()).await?;
        let shape = shape::choose(connection, &policy, &target, leaf, pages).await?;
        store::back_from_role(connection, target.role.as_ref()).await?;
        let way = match (&shape, policy.batch) {
            (Shape::Keyset { .. }, _) => Way::Keys { from: None },
            (Shape::Physical { .. }, BatchSize::Adaptive) => Way::Pages { next: 0, end: pages },
            (Shape::Physical { .. }, BatchSize::Fixed { .. }) => Way::Rows { after: "(0,0)".into() },
        };
        Ok(Sweep {
            policy,
            target,
            leaf: leaf.oid,
            way,
            shape,
            passed_by: VecDeque::new(),
            second_pass: false,
            skip_locked: false,
            skipped: 0,
            around: false,
            stayed: Stayed::default(),
            gated: None,
            apart_from: Vec::new(),
            kept_by: None,
            rows_per_page: rows_per_page(leaf, pages),
            began: None,
            subject_key,
        })
    }

    /// From now on every batch passes the gate of its policy, and leaves alone subjects of these.
    pub(crate) fn gated(mut self, above: Above, apart_from: Vec<String>) -> Self {
        self.gated = Some(above);
        self.apart_from = apart_from;
        self
    }

    /// The pacer that fits the policy and the way.
    pub(crate) fn pacer(&self) -> Pacer {
        match (self.policy.batch, &self.way) {
            (BatchSize::Fixed { rows, pause }, _) => Pacer::fixed(rows, pause),
            (BatchSize::Adaptive, Way::Pages { .. }) => Pacer::adaptive(256, 1, 1 << 17),
            (BatchSize::Adaptive, _) => Pacer::adaptive(10_000, 10, 200_000),
        }
    }

    /// What the run would take.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    fn range(&self, size: u64) -> Option<Range> {
        let size = size.max(1);
        if self.second_pass {
            return self.passed_by.front().cloned();
        }
        match &self.way {
            Way::Keys { from } => Some(Range::Keys { from: from.clone(), to: None, limit: size }),
            Way::Pages { next, end } => Some(Range::Pages { from: *next, to: (next + size).min(*end) }),
            Way::Rows { after } => Some(Range::Rows { after: after.clone(), limit: size }),
            Way::Done => None,
        }
    }

    async fn step(&mut self, batch: &mut Batch) -> Result<Outcome> {
        let Some(range) = self.range(batch.size) else { return Ok(Outcome::default()) };
        self.began = Some((self.way.clone(), self.passed_by.clone(), self.second_pass));
        if let Some(above) = &self.gated {
            self.target.held = above.held(gate::pass(batch.connection(), self.policy.name.as_str()).await?);
        }
        store::bound(batch.connection(), LOCK_WAIT).await?;
        let swept = self.sweep(batch.connection(), &range).await;
        let swept = swept.map_err(|error| gate::explain(error, &self.target.held))?;
        gate::still_apart(batch.connection(), &self.apart_from).await?;
        if !self.target.held.is_empty() {
            self.kept_by = Some(gate::whose(&self.target.held));
        }
        if swept.again > 0 {
            return Err(Error::config("`set` leaves rows as due as they were: they would change for ever")
                .with_hint("add a `where` that is false for a row that has been changed"));
        }
        if let Some(above) = self.gated.as_ref().filter(|_| swept.rows > 0) {
            above.stays(batch.connection(), self.leaf).await?;
        }
        if swept.rows > 0 {
            self.record(batch, &swept).await?;
        }
        if self.second_pass {
            self.after_second_look(batch, &range, &swept).await?;
        } else {
            if self.skip_locked {
                self.passed_by.push_back(looked_at(&range, &swept));
                self.skip_locked = false;
            }
            self.move_on(&range, &swept);
        }
        let more = !matches!(self.way, Way::Done) || self.begin_second_pass();
        if !more && self.stayed.any() {
            self.skipped = store::count_due_in_leaf(batch.connection(), &self.target, 100_000).await?;
        }
        Ok(Outcome { changed: swept.rows as u64, more })
    }

    async fn sweep(&mut self, connection: &mut PgConnection, range: &Range) -> Result<Swept> {
        let picked_first = !self.target.held.is_empty() && self.target.borrows_rights();
        if !self.around && !picked_first {
            return store::sweep(connection, &self.target, range, self.skip_locked).await;
        }
        let (swept, stayed) = store::sweep_around(connection, &self.target, range, self.skip_locked).await?;
        self.stayed.add(stayed);
        match self.stayed.raised > RAISED {
            true => Err(Error::failed(format!(
                "more than {RAISED} rows raise an error ({})",
                self.stayed.raises.as_deref().unwrap_or_default()
            ))
            .with_hint(
                "a trigger of the table, or of one that it reaches, refuses them; the server's log has its words",
            )),
            false => Ok(swept),
        }
    }

    /// Where the first pass goes on.
    fn move_on(&mut self, range: &Range, swept: &Swept) {
        let full = |limit: u64| swept.picked as u64 >= limit;
        self.way = match (&self.way, range) {
            (Way::Pages { end, .. }, Range::Pages { to, .. }) if to < end => Way::Pages { next: *to, end: *end },
            (Way::Rows { .. }, Range::Rows { limit, .. }) if full(*limit) => match &swept.last {
                Some(last) => Way::Rows { after: last.clone() },
                None => Way::Done,
            },
            (Way::Keys { from }, Range::Keys { limit, .. }) if full(*limit) && swept.last.is_some() => {
                // Rows that are due and do not go (a trigger keeps them), all of one value: only addresses get past.
                if swept.last == *from && swept.rows < swept.picked {
                    Way::Rows { after: "(0,0)".into() }
                } else {
                    Way::Keys { from: swept.last.clone() }
                }
            }
            _ => Way::Done,
        };
    }

    fn begin_second_pass(&mut self) -> bool {
        let any = !self.passed_by.is_empty();
        self.second_pass = any;
        self.skip_locked = any;
        any
    }

    /// After the second look at a range: what is still there stays for the next run, counted.
    async fn after_second_look(&mut self, batch: &mut Batch, range: &Range, swept: &Swept) -> Result<()> {
        let limit = match range {
            Range::Pages { .. } | Range::At { .. } => None,
            Range::Rows { limit, .. } | Range::Keys { limit, .. } => Some(*limit),
        };
        if limit.is_some_and(|limit| swept.picked as u64 >= limit && swept.rows > 0) {
            return Ok(());
        }
        self.passed_by.pop_front();
        if self.passed_by.is_empty() {
            self.skipped = store::count_due_in_leaf(batch.connection(), &self.target, 100_000).await?;
        }
        Ok(())
    }

    /// The record of this batch, in its own transaction.
    async fn record(&self, batch: &mut Batch, swept: &Swept) -> Result<()> {
        let claim = &batch.claim;
        let mut entry = Entry::new("expire", "ebb");
        entry.policy = Some(claim.unit.policy.clone());
        entry.policy_version = Some(claim.policy_version);
        entry.relation = Some(claim.unit.leaf.clone());
        entry.rows = swept.rows;
        entry.cutoff = Some(self.target.due.cutoff.into());
        entry.due_from = swept.due_from;
        entry.due_to = swept.due_to;
        entry.run = Some(batch.run);
        entry.node = Some(claim.node.clone());
        entry.details = serde_json::json!({ "as_of": Moment::from(self.target.due.as_of) });
        if let Action::Set(changes) = &self.policy.action {
            entry.details["set"] = changes.iter().map(|(column, _)| column.as_str()).collect();
        }
        match (&swept.keys, &swept.dues, &self.subject_key) {
            (Some(keys), Some(dues), Some(subject_key)) => {
                let rows: Vec<RowEntry> =
                    keys.iter().zip(dues).map(|(key, due)| RowEntry::new(subject_key, key, *due)).collect();
                entry.rows = 1;
                entry.insert_rows(batch.connection(), &rows).await?;
            }
            _ => {
                entry.insert(batch.connection()).await?;
            }
        }
        Ok(())
    }
}

/// The range that a batch really covered, for the second look.
fn looked_at(range: &Range, swept: &Swept) -> Range {
    match range {
        Range::Keys { from, limit, .. } => Range::Keys {
            from: from.clone(),
            to: swept.last.clone().filter(|_| swept.picked as u64 >= *limit),
            limit: *limit,
        },
        other => other.clone(),
    }
}

/// As the statistics have it; a table that nobody has counted is taken for a dense one.
fn rows_per_page(leaf: &Leaf, pages: u64) -> f64 {
    const DENSE: f64 = 100.0;
    if leaf.rows == 0 { DENSE } else { (leaf.rows as f64 / pages.max(1) as f64).max(1.0) }
}

impl Chore for Sweep {
    fn run_batch<'a>(&'a mut self, batch: &'a mut Batch) -> BoxFuture<'a, Result<Outcome>> {
        self.step(batch).boxed()
    }

    fn recover(&mut self, error: &Error) -> Recovery {
        if let Some((way, passed_by, second_pass)) = self.began.take() {
            (self.way, self.passed_by, self.second_pass) = (way, passed_by, second_pass);
            self.skip_locked |= self.second_pass;
        }
        match error.trouble() {
            // Somebody holds a row, or moved it to another partition: only this range again, passing by what is held.
            Trouble::Contended if !self.skip_locked => {
                self.skip_locked = true;
                Recovery::Again
            }
            Trouble::Slow | Trouble::TooBig | Trouble::Contended => Recovery::Smaller,
            // One row that must stay is no reason for the others to stay.
            _ if (store::is_referenced(error) || error.is_for_a_row()) && !self.around => {
                self.around = true;
                Recovery::Smaller
            }
            _ => Recovery::GiveUp,
        }
    }

    fn cutoff(&self) -> Option<Timestamp> {
        Some(self.target.due.cutoff)
    }

    fn shape(&self) -> Option<String> {
        Some(self.shape.to_string())
    }

    fn skipped(&self) -> u64 {
        self.skipped
    }

    fn rows_in(&self, size: u64) -> u64 {
        match self.way {
            Way::Pages { .. } => (size as f64 * self.rows_per_page).ceil() as u64,
            _ => size,
        }
    }

    fn note(&self) -> Option<String> {
        let referenced = self.stayed.referenced.as_ref().map(|why| format!("rows that others refer to stay ({why})"));
        let raised =
            self.stayed.raises.as_ref().map(|why| format!("rows over which a trigger raises an error stay ({why})"));
        let kept = self.kept_by.as_ref().map(|whose| format!("rows of subjects on hold stay (policy {whose})"));
        let said: Vec<String> = referenced.into_iter().chain(raised).chain(kept).collect();
        (!said.is_empty()).then(|| said.join("; "))
    }
}
