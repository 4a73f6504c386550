//! `ebb doctor`: what stands in the way, each thing with evidence and the fix. A check is a small function that returns
//! findings. Invariants: looking changes nothing; a check that cannot look says so and hides no other; only fixes that
//! are reversible or harmless when repeated are ever run, and only when asked.

mod partitions;
mod rights;
mod schema;
mod server;
mod sinks;
mod store;
mod subjects;
mod tables;
mod work;

use jiff::Timestamp;
use serde::Serialize;
use sqlx::PgConnection;

use crate::policy::anchor;
use crate::policy::store::{Put, Source};
use crate::policy::{self, Expire, Policy, Retain, Stored, Wanted};
use crate::{Engine, Error, Result, pg, retain};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Works, and could be better or safer.
    Warn,
    /// Does not work, or will not.
    Fail,
}

/// What a check found.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Which check.
    pub check: &'static str,
    /// The policy, table or node it is about.
    pub about: Option<String>,
    /// What was seen.
    pub evidence: String,
    /// What helps.
    pub fix: Option<Fix>,
}

/// What helps.
#[derive(Debug, Clone, Serialize)]
pub struct Fix {
    /// `sql`, `command` or `advice`.
    pub kind: &'static str,
    /// The statements, the command, or words.
    pub text: String,
    /// Whether `ebb doctor --fix` runs it.
    pub safe: bool,
    #[serde(skip)]
    action: Option<Action>,
}

/// What `--fix` does.
#[derive(Debug, Clone)]
enum Action {
    /// Statements outside a transaction.
    Alone(Vec<String>),
    /// Statements in one transaction.
    Together(Vec<String>),
    /// A stopped policy starts again.
    Restart(String),
    /// The schema and its grants are brought up to date.
    Migrate,
}

impl Fix {
    fn command(text: impl Into<String>) -> Self {
        Self { kind: "command", text: text.into(), safe: false, action: None }
    }

    fn advice(text: impl Into<String>) -> Self {
        Self { kind: "advice", text: text.into(), safe: false, action: None }
    }

    /// SQL for a person to run.
    fn sql(text: impl Into<String>) -> Self {
        Self { kind: "sql", text: text.into(), safe: false, action: None }
    }

    fn run(mut self, action: Action) -> Self {
        (self.safe, self.action) = (true, Some(action));
        self
    }
}

fn lines(statements: &[String]) -> String {
    statements.iter().map(|statement| format!("{statement};")).collect::<Vec<_>>().join("\n")
}

impl Finding {
    fn new(severity: Severity, check: &'static str, about: Option<&str>, evidence: impl Into<String>) -> Self {
        Self { severity, check, about: about.map(str::to_owned), evidence: evidence.into(), fix: None }
    }

    fn ok(check: &'static str, evidence: impl Into<String>) -> Self {
        Self::new(Severity::Ok, check, None, evidence)
    }

    fn warn(check: &'static str, about: Option<&str>, evidence: impl Into<String>) -> Self {
        Self::new(Severity::Warn, check, about, evidence)
    }

    fn fail(check: &'static str, about: Option<&str>, evidence: impl Into<String>) -> Self {
        Self::new(Severity::Fail, check, about, evidence)
    }

    fn fix(mut self, fix: Fix) -> Self {
        self.fix = Some(fix);
        self
    }
}

/// What doctor is told.
#[derive(Debug, Clone)]
pub struct Questions {
    /// The policies of the file.
    pub wanted: Vec<Wanted>,
    /// This host's clock, read just now.
    pub host_time: Timestamp,
    /// The role that nodes run as; found out when absent.
    pub role: Option<String>,
    /// Whether the server is Ebb's own: then nobody else is on it.
    pub embedded: bool,
}

/// Everything that was found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Findings, in the order of the checks.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether any check failed.
    pub fn has_failed(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Fail)
    }

    /// The worst that one check found.
    pub fn worst(&self, check: &str) -> Option<Severity> {
        self.findings.iter().filter(|finding| finding.check == check).map(|finding| finding.severity).max()
    }
}

impl Engine {
    /// Looks for everything that stands in the way.
    pub async fn doctor(&self, questions: &Questions) -> Result<Report> {
        let mut findings = Vec::new();
        collect(&mut findings, "clock", server::skew(self, questions.host_time).await)?;
        let (found, migrated) = schema::schema(self).await?;
        findings.extend(found);
        let stored = if migrated { self.stored().await? } else { Vec::new() };
        let followed = followed(&stored, &questions.wanted, migrated);
        let policies: Vec<Expire> = followed.iter().filter_map(sweep).collect();
        let erasing: Vec<Retain> = followed.into_iter().filter_map(over_subjects).collect();
        if migrated {
            collect(&mut findings, "clock", schema::clock(self, &stored).await)?;
            collect(&mut findings, "policies", schema::drift(self, &questions.wanted).await)?;
            collect(&mut findings, "policies", work::stopped(self, &stored).await)?;
            collect(&mut findings, "work", work::held_up(self).await)?;
            collect(&mut findings, "work", work::stuck(self).await)?;
            collect(&mut findings, "sinks", sinks::sinks(self, &stored).await)?;
            collect(&mut findings, "runway", partitions::partitions(self, &stored).await)?;
            collect(&mut findings, "nodes", work::nodes(self).await)?;
            collect(&mut findings, "audit", work::audit(self).await)?;
            collect(&mut findings, "review", work::review(self).await)?;
        }
        collect(&mut findings, "subjects", subjects::subjects(self, &stored, &questions.wanted, migrated).await)?;
        collect(&mut findings, "tables", tables::tables(self, &policies, migrated).await)?;
        if migrated {
            collect(&mut findings, "interval", tables::intervals(self, &policies).await)?;
        }
        collect(&mut findings, "privileges", rights::rights(self, &policies, &erasing, questions, migrated).await)?;
        collect(&mut findings, "snapshots", server::snapshots(self).await)?;
        Ok(Report { findings })
    }

    /// Runs the fix of a finding, where it is safe. False when there is nothing that may be run.
    pub async fn fix(&self, finding: &Finding, by: &str) -> Result<bool> {
        let Some(action) = finding.fix.as_ref().and_then(|fix| fix.action.as_ref()) else { return Ok(false) };
        match action {
            Action::Alone(statements) => store::run_alone(self.database(), statements).await?,
            Action::Together(statements) => {
                let mut tx = self.database().read().await?;
                store::run_together(&mut tx, statements).await?;
                tx.commit().await?;
            }
            Action::Restart(name) => self.restart(name, by).await?,
            Action::Migrate => {
                self.migrate().await?;
            }
        }
        Ok(true)
    }

    /// Starts a stopped policy again, as it is, after the same check as when it was applied.
    async fn restart(&self, name: &str, by: &str) -> Result<()> {
        let mut tx = self.database().read().await?;
        policy::store::lock(&mut tx).await?;
        let stored = policy::store::find(&mut tx, name).await?;
        self.may_start(&mut tx, &stored.policy()?).await?;
        // Whoever made it what it is stays its source: a file may go on changing what came from a file.
        let history = policy::store::history(&mut tx, name).await?;
        let before = history.iter().find(|version| version.kind == stored.kind && version.source != "ebb");
        let source = match before.map(|version| version.source.as_str()) {
            Some("runtime") => Source::Runtime,
            _ => Source::File,
        };
        let put = Put {
            kind: stored.kind,
            name: &stored.name,
            spec: &stored.spec,
            enabled: stored.enabled,
            stopped: None,
            source,
            by,
        };
        policy::store::put(&mut tx, put).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn stored(&self) -> Result<Vec<Stored>> {
        let mut tx = self.database().read().await?;
        let stored = policy::store::all(&mut tx).await?;
        tx.commit().await?;
        Ok(stored)
    }

    /// Whether a policy would be accepted as things are now.
    async fn would_run(&self, stored: &Stored) -> Result<()> {
        let mut tx = self.database().read().await?;
        let checked = self.may_start(&mut tx, &stored.policy()?).await;
        tx.rollback().await?;
        checked
    }

    async fn may_start(&self, connection: &mut PgConnection, policy: &Policy) -> Result<()> {
        anchor::holds(connection, policy).await?;
        self.check(connection, policy, None).await?;
        match policy {
            Policy::Retain(retain) => retain::would_start(connection, retain).await,
            _ => Ok(()),
        }
    }
}

/// Adds what a check found; a check that cannot look is a finding itself, unless the database is away altogether.
fn collect(findings: &mut Vec<Finding>, check: &'static str, found: Result<Vec<Finding>>) -> Result<()> {
    match found {
        Ok(found) => findings.extend(found),
        Err(error) if error.is_unavailable() => return Err(error),
        Err(error) => findings.push(unable(check, None, &error)),
    }
    Ok(())
}

fn unable(check: &'static str, about: Option<&str>, error: &Error) -> Finding {
    let finding = Finding::fail(check, about, error.to_string());
    match error.hint() {
        Some(hint) => finding.fix(Fix::advice(hint)),
        None => finding,
    }
}

/// The policies that nodes follow; those of the file where nothing was applied yet.
fn followed(stored: &[Stored], wanted: &[Wanted], migrated: bool) -> Vec<Policy> {
    if migrated && !stored.is_empty() {
        return stored.iter().filter(|stored| stored.is_active()).filter_map(|stored| stored.policy().ok()).collect();
    }
    wanted.iter().map(|want| want.policy.clone()).collect()
}

/// A policy that takes rows by their time; retention by age is one.
fn sweep(policy: &Policy) -> Option<Expire> {
    match policy {
        Policy::Expire(expire) if expire.enabled => Some(expire.clone()),
        Policy::Retain(retain) if retain.enabled => retain.as_expire(retain.retention(), None),
        _ => None,
    }
}

fn over_subjects(policy: Policy) -> Option<Retain> {
    match policy {
        Policy::Retain(retain) if retain.enabled && retain.subjects().is_some() => Some(retain),
        _ => None,
    }
}

/// The latest version, for checks that compare.
fn latest() -> i32 {
    pg::latest_version()
}
