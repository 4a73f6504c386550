//! Privileges: what the role that nodes run as needs for each duty, asked of the server and printed as GRANT statements.
//! A sweep needs USAGE of the schema; SELECT, DELETE and UPDATE of one column (to lock rows) on every leaf, since ONLY
//! asks each leaf for its own grants; SELECT on the parent; TEMPORARY to check a `where` or `set`. Erasing needs, of every
//! table of the tree, SELECT, DELETE where rows go, and UPDATE of what is set or locked by.

use std::collections::BTreeSet;

use sqlx::PgConnection;

use super::store::{self, Rights, Role};
use super::{Action, Finding, Fix, Questions, Severity, lines, unable};
use crate::pg::catalog::{self, Leaf, Table};
use crate::pg::{Ident, Relation};
use crate::policy::{Action as PolicyAction, Expire, Retain};
use crate::{Engine, Error, Result, expire, gate, retain};

/// PostgreSQL 17 knows MAINTAIN.
const MAINTAIN: i32 = 170_000;
/// PostgreSQL 16 knows memberships that only allow SET ROLE.
const SET_ONLY: i32 = 160_000;

pub(super) async fn rights(
    engine: &Engine,
    policies: &[Expire],
    subjects: &[Retain],
    questions: &Questions,
    migrated: bool,
) -> Result<Vec<Finding>> {
    let mut tx = engine.database().read().await?;
    let name = match &questions.role {
        Some(role) => role.clone(),
        None => store::default_role(&mut tx).await?,
    };
    let Some(role) = store::role(&mut tx, &name).await? else {
        return Err(Error::usage(format!("there is no role {name}")).with_hint("name the one that nodes log in with"));
    };
    let mut findings = roles(&role, questions, migrated);
    if migrated {
        findings.extend(own(&mut tx, &role).await?);
    }
    let tables = policies.iter().map(|policy| policy.table.as_str());
    let tables: Vec<&str> = tables.chain(subjects.iter().map(|policy| policy.table.as_str())).collect();
    let named = catalog::named(&mut tx, tables.iter().copied()).await?;
    let found = tables.iter().filter_map(|table| named.find(table).ok().flatten());
    let schemas: Vec<String> = found.map(|table| table.relation.schema.as_str().to_owned()).collect();
    findings.extend(store::open_schemas(&mut tx, &schemas).await?.iter().map(|schema| anybody_creates(schema)));
    tx.rollback().await?;
    let mut found = Vec::new();
    for policy in policies {
        let mut tx = engine.database().read().await?;
        found.extend(told(policy.name.as_str(), sweep(&mut tx, &role, policy).await)?);
        tx.rollback().await?;
    }
    for policy in subjects {
        let mut tx = engine.database().read().await?;
        found.extend(told(policy.name.as_str(), erasing(&mut tx, &role, policy).await)?);
        tx.rollback().await?;
    }
    let enough = found.iter().all(|finding| finding.check != "privileges");
    findings.extend(found);
    if enough && !(policies.is_empty() && subjects.is_empty()) {
        findings.push(Finding::ok("privileges", format!("{name} has what its policies need")));
    }
    Ok(findings)
}

fn told(policy: &str, found: Result<Vec<Finding>>) -> Result<Vec<Finding>> {
    match found {
        Err(error) if error.is_unavailable() => Err(error),
        // Checked with the tables; here there is nothing to grant.
        Err(error) if error.is_config() => Ok(Vec::new()),
        Err(error) => Ok(vec![unable("privileges", Some(policy), &error)]),
        found => found,
    }
}

/// Names of operators and functions in keys and expressions are looked up in such a schema too: whoever puts a better match there
/// has it run with the rights of a node, or of a table's owner.
fn anybody_creates(schema: &str) -> Finding {
    let text = format!("anybody may create functions and operators in schema {schema}, and have nodes run them");
    let fix = Fix::sql(format!("REVOKE CREATE ON SCHEMA {} FROM PUBLIC;", Ident::new(schema)));
    Finding::warn("schemas", Some(schema), text).fix(fix)
}

/// The two roles, and what the node's role should and should not be.
fn roles(role: &Role, questions: &Questions, migrated: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    if role.superuser && !questions.embedded {
        let text =
            format!("nodes run as {}, a superuser: a trigger on a swept table runs with all its rights", role.name);
        findings.push(Finding::warn("roles", Some(&role.name), text).fix(Fix::sql(setup(role, migrated))));
    } else if !questions.embedded && (!role.has_ebb_owner || !role.has_ebb_node) {
        let text = "the roles ebb_owner (owns the schema, migrates) and ebb_node (runs) do not both exist";
        findings.push(Finding::warn("roles", None, text).fix(Fix::sql(setup(role, migrated))));
    } else if role.is_ebb_node {
        findings.push(Finding::ok("roles", format!("nodes run as {}, with the rights of ebb_node", role.name)));
    }
    if !role.reads_all_stats {
        let text = format!(
            "{} cannot see the sessions of others: it does not know when it is in their way, and doctor not who holds \
             old snapshots",
            role.name
        );
        let statement = format!("GRANT pg_read_all_stats TO {}", Ident::new(&role.name));
        let fix = Fix::sql(format!("{statement};")).run(Action::Together(vec![statement]));
        findings.push(Finding::warn("statistics", Some(&role.name), text).fix(fix));
    }
    findings
}

/// The statements that set up the two roles, for whoever may create roles.
fn setup(role: &Role, migrated: bool) -> String {
    let mut statements = Vec::new();
    if !role.has_ebb_owner {
        statements.push("CREATE ROLE ebb_owner NOLOGIN;".to_owned());
    }
    if !role.has_ebb_node {
        statements.push("CREATE ROLE ebb_node LOGIN;  -- and a way to log in: a password, a certificate".to_owned());
    }
    statements.push(format!("GRANT CREATE ON DATABASE {} TO ebb_owner;", Ident::new(&role.database)));
    if migrated {
        statements.push(HAND_OVER.to_owned());
    }
    statements.push("-- then, as a member of ebb_owner: ebb migrate (it grants ebb_node what a node needs)".to_owned());
    statements.join("\n")
}

const HAND_OVER: &str = "ALTER SCHEMA ebb OWNER TO ebb_owner;
DO $$ DECLARE statement text; BEGIN
  FOR statement IN
    SELECT format('ALTER TABLE %s OWNER TO ebb_owner', c.oid::regclass) FROM pg_class c
    WHERE c.relnamespace = 'ebb'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'i' AND c.relkind = 'S')
    UNION ALL
    SELECT format('ALTER ROUTINE %s OWNER TO ebb_owner', p.oid::regprocedure) FROM pg_proc p
    WHERE p.pronamespace = 'ebb'::regnamespace
  LOOP EXECUTE statement; END LOOP;
END $$;";

/// What the node needs of Ebb's own tables.
async fn own(connection: &mut PgConnection, role: &Role) -> Result<Vec<Finding>> {
    let lacking = store::own_rights(connection, &role.name).await?;
    if lacking.is_empty() || role.owns_schema {
        return Ok(Vec::new());
    }
    let text = format!("{} cannot use these tables of the ebb schema: {}", role.name, lacking.join(", "));
    let finding = Finding::fail("privileges", Some(&role.name), text);
    if role.is_ebb_node {
        return Ok(vec![finding.fix(Fix::command("ebb migrate").run(Action::Migrate))]);
    }
    let grant = format!("GRANT ebb_node TO {}", Ident::new(&role.name));
    Ok(vec![finding.fix(match role.has_ebb_node {
        true => Fix::sql(format!("{grant};")).run(Action::Together(vec![grant])),
        false => Fix::sql(format!(
            "CREATE ROLE ebb_node NOLOGIN;\n{grant};\n-- then, as the owner of the schema: ebb migrate"
        )),
    })])
}

/// What a sweep needs of the user's table.
async fn sweep(connection: &mut PgConnection, node: &Role, policy: &Expire) -> Result<Vec<Finding>> {
    let name = policy.name.as_str();
    let table = catalog::table(connection, &policy.table).await?;
    let leaves = catalog::leaves(connection, table.oid).await?;
    let worker = match &policy.role {
        Some(worker) => worker.clone(),
        None => node.name.clone(),
    };
    let mut grants = BTreeSet::new();
    let mut findings = Vec::new();
    if worker != node.name {
        match become_worker(connection, node, &worker, name).await? {
            Err(missing) => return Ok(vec![missing]),
            Ok(grant) => grants.extend(grant),
        }
        // The way through the table is chosen by the node itself, from what the planner says.
        grants.extend(read_grants(connection, &node.name, &table, &leaves).await?);
    }
    if (policy.filter.is_some() || matches!(policy.action, PolicyAction::Set(_))) && !node.may_create_temp {
        let (database, role) = (Ident::new(&node.database), Ident::new(&node.name));
        grants.insert(format!("GRANT TEMPORARY ON DATABASE {database} TO {role}"));
    }
    grants.extend(read_grants(connection, &worker, &table, &leaves).await?);
    // While somebody is on hold, the node asks of each due row whose it is.
    for between in gate::reads(connection, name).await? {
        grants.extend(read_grants(connection, &node.name, &between, &[]).await?);
    }
    // Through a sandbox of the owner the node changes rows without the right to.
    let sandboxed = match leaves.first() {
        Some(leaf) if policy.role.is_none() => {
            expire::sandbox::is_usable_by(connection, policy, &table, leaf, &node.name).await.unwrap_or(false)
        }
        _ => false,
    };
    let (mut unvacuumed, mut hidden) = (Vec::new(), Vec::new());
    let mut owner = String::new();
    for leaf in &leaves {
        let column = catalog::column(connection, &leaf.relation, leaf.oid, &policy.column).await?.name;
        let rights = store::rights(connection, &worker, leaf.oid).await?;
        if !sandboxed {
            grants.extend(write_grant(policy, &worker, leaf, &column, &rights));
        }
        if rights.rls && !bypasses(connection, &worker).await? {
            hidden.push((leaf.relation.clone(), rights.owns));
        }
        let rights = store::rights(connection, &node.name, leaf.oid).await?;
        if !rights.may_vacuum {
            unvacuumed.push(leaf.relation.clone());
            owner = rights.owner;
        }
    }
    if !grants.is_empty() {
        let statements: Vec<String> = grants.into_iter().collect();
        let text = format!("{worker} lacks rights on {} that its sweep needs", table.relation.label());
        let fix = Fix::sql(lines(&statements)).run(Action::Together(statements));
        findings.push(Finding::fail("privileges", Some(name), text).fix(fix));
    }
    findings.extend(hidden.into_iter().map(|(leaf, owns)| hidden_rows(name, &worker, &leaf, owns)));
    if !unvacuumed.is_empty() {
        findings.push(not_vacuumed(name, node, &unvacuumed, &owner));
    }
    Ok(findings)
}

/// What the node needs to take on a policy's role; or that there is no such role.
async fn become_worker(
    connection: &mut PgConnection,
    node: &Role,
    worker: &str,
    policy: &str,
) -> Result<std::result::Result<Option<String>, Finding>> {
    Ok(match store::may_become(connection, &node.name, worker).await? {
        None => {
            let text = format!("role = \"{worker}\" does not exist");
            let fix = Fix::sql(format!("CREATE ROLE {} NOLOGIN;", Ident::new(worker)));
            Err(Finding::fail("privileges", Some(policy), text).fix(fix))
        }
        Some(false) => {
            // Without inheritance the node has the worker's rights only where it takes them on.
            let only = if node.server_version >= SET_ONLY { " WITH INHERIT FALSE, SET TRUE" } else { "" };
            Ok(Some(format!("GRANT {} TO {}{only}", Ident::new(worker), Ident::new(&node.name))))
        }
        Some(true) => Ok(None),
    })
}

/// What erasing, marking and warning need of the tables of a policy's tree.
async fn erasing(connection: &mut PgConnection, node: &Role, policy: &Retain) -> Result<Vec<Finding>> {
    let name = policy.name.as_str();
    let worker = policy.role.clone().unwrap_or_else(|| node.name.clone());
    let (mut grants, mut findings) = (BTreeSet::new(), Vec::new());
    if worker != node.name {
        match become_worker(connection, node, &worker, name).await? {
            Err(missing) => return Ok(vec![missing]),
            Ok(grant) => grants.extend(grant),
        }
    }
    for need in retain::needs(connection, policy).await? {
        let table = catalog::table(connection, &need.table.label()).await?;
        // Plans and marking look with the node's own rights.
        grants.extend(read_grants(connection, &node.name, &table, &[]).await?);
        grants.extend(read_grants(connection, &worker, &table, &[]).await?);
        let rights = store::rights(connection, &worker, table.oid).await?;
        let mut needed = Vec::new();
        if need.delete && !rights.may_delete {
            needed.push("DELETE".to_owned());
        }
        let lacks = |column: &&Ident| !rights.updatable.iter().any(|name| name == column.as_str());
        let mut columns: Vec<String> = need.update.iter().filter(lacks).map(ToString::to_string).collect();
        if columns.is_empty() && !rights.may_lock {
            columns.extend(need.lock.as_ref().map(ToString::to_string));
        }
        if !columns.is_empty() {
            needed.push(format!("UPDATE ({})", columns.join(", ")));
        }
        if !needed.is_empty() {
            grants.insert(format!("GRANT {} ON {} TO {}", needed.join(", "), need.table, Ident::new(&worker)));
        }
        if rights.rls && !bypasses(connection, &worker).await? {
            findings.push(hidden_rows(name, &worker, &need.table, rights.owns));
        }
    }
    if !grants.is_empty() {
        let statements: Vec<String> = grants.into_iter().collect();
        let text = format!("{worker} lacks rights that erasing the subjects of {} needs", policy.table);
        let fix = Fix::sql(lines(&statements)).run(Action::Together(statements));
        findings.push(Finding::fail("privileges", Some(name), text).fix(fix));
    }
    Ok(findings)
}

async fn bypasses(connection: &mut PgConnection, role: &str) -> Result<bool> {
    Ok(store::role(connection, role).await?.is_some_and(|role| role.bypasses_rls))
}

/// Reading: the parent for counting, each leaf for picking.
async fn read_grants(
    connection: &mut PgConnection,
    role: &str,
    table: &Table,
    leaves: &[Leaf],
) -> Result<BTreeSet<String>> {
    let mut grants = BTreeSet::new();
    let relations = leaves.iter().map(|leaf| (leaf.oid, &leaf.relation));
    for (oid, relation) in relations.chain([(table.oid, &table.relation)]) {
        let rights = store::rights(connection, role, oid).await?;
        let to = Ident::new(role);
        if !rights.schema_usage {
            grants.insert(format!("GRANT USAGE ON SCHEMA {} TO {to}", relation.schema));
        }
        if !rights.may_select {
            grants.insert(format!("GRANT SELECT ON {relation} TO {to}"));
        }
    }
    Ok(grants)
}

/// Writing: DELETE and a column to lock by, or the columns that are set.
fn write_grant(policy: &Expire, role: &str, leaf: &Leaf, column: &Ident, rights: &Rights) -> Option<String> {
    let mut needed = Vec::new();
    match &policy.action {
        PolicyAction::Delete => {
            if !rights.may_delete {
                needed.push("DELETE".to_owned());
            }
            if !rights.may_lock {
                needed.push(format!("UPDATE ({column})"));
            }
        }
        PolicyAction::Set(changes) => {
            let missing: Vec<String> = changes
                .iter()
                .filter(|(name, _)| {
                    !rights.updatable.contains(name) && !rights.updatable.contains(&name.to_lowercase())
                })
                .map(|(name, _)| Ident::new(name).to_string())
                .collect();
            if !missing.is_empty() {
                needed.push(format!("UPDATE ({})", missing.join(", ")));
            }
        }
    }
    (!needed.is_empty()).then(|| format!("GRANT {} ON {} TO {}", needed.join(", "), leaf.relation, Ident::new(role)))
}

fn hidden_rows(policy: &str, role: &str, leaf: &Relation, owns: bool) -> Finding {
    let text = format!(
        "row-level security on {} applies to {role}: its work is an error there, since it would not see every due row",
        leaf.label()
    );
    let fix = match owns {
        true => format!(
            "ALTER TABLE {leaf} NO FORCE ROW LEVEL SECURITY;  -- or: ALTER ROLE {} BYPASSRLS;",
            Ident::new(role)
        ),
        false => format!("ALTER ROLE {} BYPASSRLS;", Ident::new(role)),
    };
    Finding::new(Severity::Fail, "row security", Some(policy), text).fix(Fix::sql(fix))
}

fn not_vacuumed(policy: &str, node: &Role, leaves: &[Relation], owner: &str) -> Finding {
    let named = match leaves {
        [leaf] => leaf.label(),
        leaves => format!("{} tables", leaves.len()),
    };
    let text = format!("{} may not VACUUM {named}: after a large purge the space waits for autovacuum", node.name);
    let role = Ident::new(&node.name);
    let fix = if node.server_version >= MAINTAIN {
        let statements: Vec<String> = leaves.iter().map(|leaf| format!("GRANT MAINTAIN ON {leaf} TO {role}")).collect();
        Fix::sql(lines(&statements)).run(Action::Together(statements))
    } else {
        Fix::advice(format!(
            "before PostgreSQL 17 only the owner may: GRANT {} TO {role}; gives it every right of the owner, so autovacuum \
             may be the better answer",
            Ident::new(owner)
        ))
    };
    Finding::warn("vacuum", Some(policy), text).fix(fix)
}
