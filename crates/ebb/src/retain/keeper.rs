//! Rows with a term of their own: a subject's row that another policy keeps for longer stays, without its link, until
//! that policy takes it. Invariants: what decides is the row's own age and tenant when a run begins, which ends where such a
//! policy changes; a row of which that cannot be said stays; a legal floor counts however short it is, and also where
//! somebody named the action.

use sqlx::PgConnection;

use super::store;
use super::store::rows::{SoftDelete, later};
use crate::pg::{Ident, Literal, Relation, catalog, expression};
use crate::policy::{self, Direct, EpochUnit, Kind, Policy, Retain, RetainForm, Term};
use crate::{Error, Result};

/// Another policy that keeps rows of a table.
#[derive(Debug, Clone)]
pub(crate) struct Keeper {
    pub(crate) table: u32,
    pub(crate) policy: String,
    pub(crate) retention: Term,
    pub(crate) floor: Option<Term>,
    /// It is switched off or left the file: it keeps nothing, and its subjects are still its own.
    disabled: bool,
    /// A tenant may have a longer term than others, or none that ends.
    longest: i128,
    /// Conditions on a row `n`; none where the rows are subjects themselves, who have a deletion of their own.
    rules: Option<Rules>,
}

#[derive(Debug, Clone)]
struct Rules {
    /// Its policy would take it.
    over: String,
    /// Its policy may not take it yet, whatever else it says.
    below_floor: String,
    /// Its policy would not take it at any time: its `where` leaves it out, or it has no time to count from.
    never: String,
}

impl Rules {
    /// Of a policy over one partition: rows of the others are not its own.
    fn within(self, partition: &Relation) -> Self {
        let leaves = format!(
            "SELECT t.relid FROM pg_catalog.pg_partition_tree({}::regclass) AS t",
            Literal(&partition.to_string())
        );
        Self {
            over: format!("(n.tableoid NOT IN ({leaves}) OR {})", self.over),
            below_floor: format!("(n.tableoid IN ({leaves}) AND {})", self.below_floor),
            never: format!("(n.tableoid NOT IN ({leaves}) OR {})", self.never),
        }
    }
}

impl Keeper {
    /// Whether the rows are subjects of that policy.
    pub(crate) fn is_of_subjects(&self) -> bool {
        self.rules.is_none()
    }

    /// Whether some of its rows may stay: a floor counts from the row's own time; where nobody named the action, its term
    /// where it is the longer one, and subjects always, because their time may not even have begun.
    pub(crate) fn outlasts(&self, grace: &Term, named: bool) -> bool {
        !self.disabled && (self.floor.is_some() || (!named && (self.rules.is_none() || self.longer(grace))))
    }

    fn longer(&self, grace: &Term) -> bool {
        self.longest > grace.approximate()
    }

    /// How long its rows stay, whoever else would take them.
    pub(crate) fn kept_for(&self, grace: &Term, named: bool) -> Term {
        let terms = [self.floor, (!named && (self.rules.is_none() || self.longer(grace))).then_some(self.retention)];
        terms.into_iter().flatten().max_by_key(Term::approximate).unwrap_or(self.retention)
    }

    /// What is true of the rows that stay; none: all of them do.
    pub(crate) fn stays(&self, grace: &Term, named: bool) -> Option<String> {
        let rules = self.rules.as_ref()?;
        Some(match !named && self.longer(grace) {
            true => format!("({}) IS NOT TRUE", rules.over),
            false => rules.below_floor.clone(),
        })
    }
}

/// What is true of rows that none of these policies would take at any time; none where they are subjects of one of them.
pub(crate) fn never(keepers: &[&Keeper]) -> Option<String> {
    let each: Option<Vec<String>> = keepers.iter().map(|keeper| Some(keeper.rules.as_ref()?.never.clone())).collect();
    each.filter(|each| !each.is_empty()).map(|each| each.join(" AND "))
}

/// What a look goes by: the policies that the database has, where its schema is there, and those that it will have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) installed: bool,
    pub(crate) planned: &'a [Retain],
}

impl Surroundings<'_> {
    /// The policies that the database has.
    pub(crate) const STORED: Self = Self { installed: true, planned: &[] };

    /// The same, or none where the schema is not there yet.
    pub(crate) async fn found(connection: &mut PgConnection) -> Result<Self> {
        Ok(Self { installed: store::installed(connection).await?, planned: &[] })
    }
}

/// The policies that keep rows of tables, besides this one.
pub(crate) async fn keepers(
    connection: &mut PgConnection,
    own: &Retain,
    among: Surroundings<'_>,
) -> Result<Vec<Keeper>> {
    let mut keepers = Vec::new();
    let stored = if among.installed { policy::store::all(connection).await? } else { Vec::new() };
    // One moment for all statements of a run, and for any role: what ends after it stays until its own policy takes it.
    let now = match among.installed {
        true => format!("timestamptz {}", Literal(&store::snapshots::clock(connection).await?.to_string())),
        false => "now()".to_owned(),
    };
    for stored in stored.iter().filter(|stored| stored.kind == Kind::Retain) {
        let Ok(Policy::Retain(other)) = stored.policy() else { continue };
        if other.name != own.name && (stored.enabled || other.subjects().is_some()) {
            let disabled = !stored.enabled;
            keepers.extend(keeper(connection, &other, true, &now).await?.map(|keeper| Keeper { disabled, ..keeper }));
        }
    }
    let known = |name: &str| stored.iter().any(|stored| stored.kind == Kind::Retain && stored.name == name);
    for other in among.planned.iter().filter(|other| other.enabled && other.name != own.name) {
        if !known(other.name.as_str()) {
            keepers.extend(keeper(connection, other, false, &now).await?);
        }
    }
    Ok(keepers)
}

/// Another policy over its table; one that is stored may have tenants with terms of their own.
async fn keeper(connection: &mut PgConnection, other: &Retain, stored: bool, now: &str) -> Result<Option<Keeper>> {
    let Ok(table) = catalog::table(connection, &other.table).await else { return Ok(None) };
    let own = match stored && other.tenant_override {
        true => own_terms(connection, other).await?,
        false => OwnTerms::new(),
    };
    let rules = match &other.form {
        RetainForm::Direct(direct) => Some(rules(connection, (other, direct), &table, &own, now).await?),
        RetainForm::Subjects(_) => None,
    };
    let terms = own.iter().map(|(term, _)| term.map_or(i128::MAX, |term| term.approximate()));
    let longest = terms.chain([other.retention().approximate()]).max().unwrap_or_default();
    let (policy, retention, floor) = (other.name.to_string(), other.retention(), other.floor);
    let whole = store::partition_of(connection, table.oid).await?;
    let rules = rules.map(|rules| if whole.is_some() { rules.within(&table.relation) } else { rules });
    let table = whole.map_or(table.oid, |(whole, _)| whole);
    Ok(Some(Keeper { table, policy, retention, floor, disabled: false, longest, rules }))
}

/// Terms of tenants' own, each with who has it; none: nothing of them goes.
type OwnTerms = Vec<(Option<Term>, Vec<String>)>;

async fn own_terms(connection: &mut PgConnection, policy: &Retain) -> Result<OwnTerms> {
    let mut terms = OwnTerms::new();
    for own in store::overrides(connection, policy.name.as_str()).await? {
        let retention = own.spec.get("retention").and_then(|term| term.as_str()).map(str::parse::<Term>).transpose()?;
        let term = own.enabled.then(|| retention.unwrap_or_else(|| policy.retention()));
        match terms.iter_mut().find(|(known, _)| *known == term) {
            Some((_, tenants)) => tenants.push(own.tenant),
            None => terms.push((term, vec![own.tenant])),
        }
    }
    Ok(terms)
}

async fn rules(
    connection: &mut PgConnection,
    (policy, direct): (&Retain, &Direct),
    table: &catalog::Table,
    own: &OwnTerms,
    now: &str,
) -> Result<Rules> {
    let (relation, oid) = (&table.relation, table.oid);
    let about = |error: Error| error.context(format!("policy {}", policy.name));
    let column = catalog::column(connection, relation, oid, &direct.column).await.map_err(about)?;
    let tenant = match &policy.tenant {
        Some(tenant) => Some(catalog::column(connection, relation, oid, tenant).await.map_err(about)?.name),
        None => None,
    };
    let moment = moment(&column.name, &column.base_type, direct.unit, policy).map_err(about)?;
    let floor = later(&moment, &policy.floor.unwrap_or(Term::seconds(0)), &policy.zone);
    let ended = |term: &Term| format!("GREATEST({floor}, {}) <= {now}", later(&moment, term, &policy.zone));
    let ends = |floor_only: bool| {
        let whole = if floor_only { format!("{floor} <= {now}") } else { ended(&policy.retention()) };
        let Some(tenant) = tenant.as_ref().filter(|_| !own.is_empty()) else { return whole };
        let case = |(term, tenants): &(Option<Term>, Vec<String>)| {
            let names: Vec<String> = tenants.iter().map(|name| Literal(name).to_string()).collect();
            let over = match term {
                None => "false".to_owned(),
                Some(_) if floor_only => format!("{floor} <= {now}"),
                Some(term) => ended(term),
            };
            let same = format!("n.{tenant}::text COLLATE pg_catalog.\"C\" OPERATOR(pg_catalog.=)");
            format!("WHEN {same} ANY (ARRAY[{}]::text[]) THEN {over}", names.join(", "))
        };
        format!("CASE {} ELSE {whole} END", own.iter().map(case).collect::<Vec<_>>().join(" "))
    };
    let untimed = format!("n.{} IS NULL", column.name);
    let (over, never) = match &direct.filter {
        None => (ends(false), untimed),
        Some(typed) => {
            let filter = expression::filter(connection, relation, typed).await.map_err(about)?;
            (format!("{} AND ({filter})", ends(false)), format!("(({filter}) IS NOT TRUE OR {untimed})"))
        }
    };
    Ok(Rules { over, below_floor: format!("({}) IS NOT TRUE", ends(true)), never })
}

/// The moment from which a row's term counts.
fn moment(column: &Ident, base_type: &str, unit: Option<EpochUnit>, policy: &Retain) -> Result<String> {
    let value = format!("n.{column}");
    Ok(match (base_type, unit) {
        ("bigint" | "integer" | "smallint", Some(EpochUnit::Millis)) => {
            format!("pg_catalog.to_timestamp({value}::float8 / 1000::float8)")
        }
        ("bigint" | "integer" | "smallint", _) => format!("pg_catalog.to_timestamp({value}::float8)"),
        (other, _) => SoftDelete::of(other, column.as_str())?.moment(&value, &policy.zone),
    })
}
