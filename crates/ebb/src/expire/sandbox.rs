//! The sandbox of an expire policy: a function of the table's owner that holds the policy's whole condition and takes only
//! where to look. Invariants: through it nothing goes that the policy would not take at that cutoff, from no table that is
//! not the policy's or a leaf of it; whatever its triggers put off is done before it returns, with the owner's rights.

use sqlx::PgConnection;

use super::statement::{Careful, LOCK, Place, Range, Target, last, tid_array};
use crate::Result;
use crate::pg::catalog::{self, Leaf, Table};
use crate::pg::{Ident, Literal, Relation, sandbox};
use crate::policy::Expire;

/// What the functions take, besides the cutoff, which is of the column's type.
const PARAMETERS: [(&str, &str); 7] = [
    ("how", "text"),
    ("first", "text"),
    ("last", "text"),
    ("before", "text"),
    ("most", "bigint"),
    ("plain", "boolean"),
    ("skip_locked", "boolean"),
];

/// A sandbox that a run uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sandbox {
    function: Relation,
    /// The leaf that the run is about.
    leaf: u32,
}

/// The sandbox for a run, where there is one that the node may use. A policy with a role of its own has none: the role is
/// what somebody chose instead.
pub(crate) async fn find(
    connection: &mut PgConnection,
    policy: &str,
    table: &Table,
    leaf: u32,
    target: &Target,
) -> Result<Option<Sandbox>> {
    if target.role.is_some() {
        return Ok(None);
    }
    let function = plan(policy, table, target).function;
    let usable = sandbox::usable(connection, &function, table.oid, None).await?;
    Ok(usable.then_some(Sandbox { function, leaf }))
}

/// Whether a role may use the sandbox of a policy.
pub(crate) async fn is_usable_by(
    connection: &mut PgConnection,
    policy: &Expire,
    table: &Table,
    leaf: &Leaf,
    role: &str,
) -> Result<bool> {
    let target = super::target(connection, policy, table, leaf).await?;
    let function = plan(policy.name.as_str(), table, &target).function;
    sandbox::usable(connection, &function, table.oid, Some(role)).await
}

/// Looks whether a policy should have a sandbox and has it, and makes it where asked to and allowed to.
pub(crate) async fn look(connection: &mut PgConnection, policy: &Expire, create: bool) -> Result<Option<SandboxState>> {
    if policy.role.is_some() {
        return Ok(None);
    }
    let table = catalog::table(connection, &policy.table).await?;
    let leaves = catalog::leaves(connection, table.oid).await?;
    let Some(leaf) = leaves.first() else { return Ok(None) };
    if !sandbox::wanted(connection, table.oid).await? {
        return Ok(None);
    }
    let target = super::target(connection, policy, &table, leaf).await?;
    let mut plan = plan(policy.name.as_str(), &table, &target);
    plan.stale = sandbox::stale(connection, policy.name.as_str(), &plan.function).await?;
    let mut present = sandbox::usable(connection, &plan.function, table.oid, Some("ebb_node")).await?;
    let mut created = false;
    if !present && create {
        created = plan.create(connection).await?;
        present = created;
    }
    let state = SandboxState {
        policy: policy.name.to_string(),
        table: table.relation.label(),
        owner: table.owner.clone(),
        present,
        created,
        script: plan.script(),
    };
    Ok(Some(state))
}

/// The sandbox of a policy: there, just made, or missing with the script that makes it.
#[derive(Debug, Clone, serde::Serialize)]
pub struct SandboxState {
    /// The policy.
    pub policy: String,
    /// Its table.
    pub table: String,
    /// The table's owner, with whose rights rows go through it.
    pub owner: String,
    /// Whether nodes have it now.
    pub present: bool,
    /// Whether it was made just now.
    pub created: bool,
    /// What makes it.
    pub script: String,
}

/// The sandbox that a policy should have.
pub(crate) fn plan(policy: &str, table: &Table, target: &Target) -> sandbox::Plan {
    let body = body(table, target);
    let parameters =
        format!("leaf regclass, cutoff {}, {}", target.due.sql_type(), list(|name, ty| format!("{name} {ty}")));
    let function = sandbox::name(policy, &format!("{parameters}\n{body}"));
    let tag = format!("$ebb_{}$", function.name.as_str().rsplit('_').next().unwrap_or_default());
    let create = format!(
        "CREATE OR REPLACE FUNCTION {function}({parameters},\n    \
         OUT picked bigint, OUT rows bigint, OUT due_from timestamptz, OUT due_to timestamptz, OUT seen text,\n    \
         OUT keys text[], OUT dues timestamptz[], OUT again bigint)\n\
         LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {tag}\n{body}{tag}"
    );
    let arguments = format!("regclass, {}, {}", target.due.sql_type(), list(|_, ty| ty.to_owned()));
    sandbox::Plan { function, owner: Ident::new(&table.owner), arguments, create, stale: Vec::new() }
}

fn list(each: impl Fn(&str, &str) -> String) -> String {
    PARAMETERS.iter().map(|(name, ty)| each(name, ty)).collect::<Vec<_>>().join(", ")
}

impl Sandbox {
    /// The call that does a plain statement.
    pub(super) fn plain(&self, target: &Target, place: &Place) -> String {
        match place {
            Place::Pages { from, to } => self.call(target, ["pages", &page(*from), &page(*to), ""], None, true, false),
            Place::Values { from, to, before } => {
                let text = |value: &Option<String>| value.clone().unwrap_or_default();
                self.call(target, ["keys", from, &text(to), &text(before)], None, true, false)
            }
        }
    }

    /// The call that does a careful one.
    pub(super) fn careful(&self, target: &Target, range: &Range, skip_locked: bool) -> String {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        match range {
            Range::Pages { from, to } => {
                self.call(target, ["pages", &page(*from), &page(*to), ""], None, false, skip_locked)
            }
            Range::Rows { after, limit } => {
                self.call(target, ["rows", after, "", ""], Some(*limit), false, skip_locked)
            }
            Range::Keys { from, to, limit } => {
                self.call(target, ["keys", &text(from), &text(to), ""], Some(*limit), false, skip_locked)
            }
            Range::At { places } => self.call(target, ["at", &tid_array(places), "", ""], None, false, skip_locked),
        }
    }

    /// An empty text stands for none: no time and no address is written that way.
    fn call(&self, target: &Target, words: [&str; 4], most: Option<u64>, plain: bool, skip_locked: bool) -> String {
        let [how, first, last, before] =
            words.map(|word| if word.is_empty() { "NULL".to_owned() } else { Literal(word).to_string() });
        let most = most.map_or("NULL".to_owned(), |most| most.to_string());
        format!(
            "SELECT picked, rows, due_from, due_to, seen AS last, keys, dues, again FROM {}({}::oid::regclass, {}, \
             {how}, {first}, {last}, {before}, {most}, {plain}, {skip_locked})",
            self.function,
            self.leaf,
            target.due.cutoff_constant()
        )
    }
}

fn page(number: u64) -> String {
    format!("({number},0)")
}

/// A text with variables of the function in it, as the function puts it together.
fn spliced(text: &str) -> String {
    let parts = text.split('\u{1}').enumerate();
    let parts = parts.map(|(at, part)| if at % 2 == 1 { part.to_owned() } else { Literal(part).to_string() });
    parts.collect::<Vec<_>>().join(" || ")
}

fn body(table: &Table, target: &Target) -> String {
    let column = Literal(&target.due.column.to_string()).to_string();
    let constant =
        |name: &str| format!("quote_literal({name}) || {}", Literal(&format!("::{}", target.due.sql_type())));
    let careful = Careful {
        leaf: "\u{1}leaf::text\u{1}",
        cutoff: "$1",
        pick: "\u{1}place\u{1}",
        lock: "\u{1}lock\u{1}",
        last: "\u{1}seen\u{1}",
    };
    format!(
        "DECLARE
    -- Everything that a policy asks of a row; $1 is the cutoff.
    condition CONSTANT text := {condition};
    lock CONSTANT text := CASE WHEN skip_locked THEN '{LOCK}' ELSE '' END;
    place text;
BEGIN
    IF leaf <> {table}::regclass AND NOT EXISTS (
        WITH RECURSIVE above AS (
            SELECT i.inhparent FROM pg_inherits i WHERE i.inhrelid = leaf
            UNION SELECT i.inhparent FROM pg_inherits i JOIN above a ON a.inhparent = i.inhrelid)
        SELECT FROM above a WHERE a.inhparent = {table}::regclass)
    THEN
        RAISE insufficient_privilege USING MESSAGE = format('%s is no leaf of the policy''s table', leaf);
    END IF;
    CASE how
        WHEN 'pages' THEN place := format('ctid >= %L::tid AND ctid < %L::tid', first, last);
        WHEN 'rows' THEN place := format('ctid > %L::tid', first);
        WHEN 'at' THEN place := format('ctid = ANY(%L::tid[])', first);
        WHEN 'keys' THEN place := concat_ws(' AND ', 'true',
            {column} || ' >= ' || {first}, {column} || ' <= ' || {last}, {column} || ' < ' || {before});
    END CASE;
    IF plain THEN
        EXECUTE {plain} USING cutoff;
        GET DIAGNOSTICS rows = ROW_COUNT;
        picked := rows;
        again := 0;
    ELSE
        place := CASE how
            WHEN 'rows' THEN place || ' AND (' || condition || ') IS TRUE LIMIT ' || most
            WHEN 'keys' THEN place || ' AND ' || condition || ' ORDER BY 2 LIMIT ' || most
            ELSE place || ' AND ' || condition END;
        seen := CASE how WHEN 'rows' THEN '{last_row}' ELSE '{last_value}' END;
        EXECUTE {careful}
        INTO picked, rows, due_from, due_to, seen, keys, dues, again USING cutoff;
    END IF;
    -- What a trigger puts off to the end of the transaction would run with the caller's rights.
    SET CONSTRAINTS ALL IMMEDIATE;
END
",
        condition = Literal(&target.condition_at("$1")),
        table = Literal(&table.relation.to_string()),
        first = constant("first"),
        last = constant("last"),
        before = constant("before"),
        plain = spliced(&target.plain_over("\u{1}leaf::text\u{1}", "$1", "\u{1}place\u{1}")),
        last_row = last(&Range::Rows { after: String::new(), limit: 0 }),
        last_value = last(&Range::At { places: Vec::new() }),
        careful = spliced(&target.careful_over(careful)),
    )
}
