//! The one public error. It is opaque; callers ask `is_…` questions, people read the message and the hint.
//! Invariant: an error an operator can meet says what to do next.

use std::fmt;

/// What went wrong, and what to do about it.
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: Kind,
    message: String,
    /// The message one by one, where it is several.
    parts: Vec<String>,
    hint: Option<String>,
    key: Option<&'static str>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Config,
    Usage,
    Unknown,
    Refused,
    Fenced,
    Superseded,
    Unavailable,
    TooBig,
    Database,
    Failed,
}

/// What kept work from its end, as far as that says how to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It took longer than it may.
    Slow,
    /// It was more than can be held at once.
    TooBig,
    /// Somebody held what it needed, for a moment: a lock that was waited for too long, a deadlock, a conflict.
    Contended,
    /// What a row holds: the same over other rows may succeed.
    OfARow,
    /// The database is not there.
    Away,
    /// Something that neither less nor another try would mend.
    Other,
}

impl Trouble {
    /// Less at a time may succeed.
    pub(crate) fn is_too_much(self) -> bool {
        matches!(self, Self::Slow | Self::TooBig)
    }
}

/// The result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, message: message.into(), parts: Vec::new(), hint: None, key: None, source: None }))
    }

    /// The configuration, or a policy, does not make sense.
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(Kind::Config, message)
    }

    /// The same, for several reasons.
    pub(crate) fn several(parts: Vec<String>) -> Self {
        let mut error = Self::config(parts.join("; "));
        error.0.parts = parts;
        error
    }

    /// A caller asked for something that cannot be asked for.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// A caller named something that is not there.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::new(Kind::Unknown, message)
    }

    /// Ebb could do it and will not: a rule stands in the way.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(Kind::Refused, message)
    }

    /// The lease this work belongs to is somebody else's by now.
    pub fn fenced(message: impl Into<String>) -> Self {
        Self::new(Kind::Fenced, message)
    }

    /// The policy that this work follows has another version by now.
    pub fn superseded(message: impl Into<String>) -> Self {
        Self::new(Kind::Superseded, message)
    }

    /// The database cannot be reached for the moment.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Kind::Unavailable, message)
    }

    /// It is more than can be held at once.
    pub(crate) fn too_big(message: impl Into<String>) -> Self {
        Self::new(Kind::TooBig, message)
    }

    /// Anything else that went wrong.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Kind::Failed, message)
    }

    /// Adds what the operator can do.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Names the key of the policy that it is about, unless one is named already.
    pub(crate) fn at_key(mut self, key: &'static str) -> Self {
        self.0.key.get_or_insert(key);
        self
    }

    /// Adds what this error came from.
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Puts what was being done in front of the message.
    pub fn context(mut self, doing: impl fmt::Display) -> Self {
        self.0.parts.iter_mut().for_each(|part| *part = format!("{doing}: {part}"));
        self.0.message = format!("{doing}: {}", self.0.message);
        self
    }

    /// What kind of trouble it is to whoever does work in batches.
    pub(crate) fn trouble(&self) -> Trouble {
        let code = self.sqlstate().unwrap_or_default();
        match code.as_str() {
            // A statement, or a transaction: between two statements, while another batch was at work or this machine was not, or as a
            // whole, where somebody gave transactions a time (`transaction_timeout`, from PostgreSQL 17 on).
            "57014" | "25P03" | "25P04" => Trouble::Slow,
            "53200" => Trouble::TooBig,
            "55P03" | "40P01" | "40001" => Trouble::Contended,
            _ if self.0.kind == Kind::TooBig => Trouble::TooBig,
            _ if self.is_unavailable() => Trouble::Away,
            _ => match code.get(..2) {
                // Cardinality, data, constraints, functions in other languages, limits that a value exceeds (of an index, of the stack),
                // RAISE.
                Some("21" | "22" | "23" | "38" | "39" | "54" | "P0") => Trouble::OfARow,
                _ => Trouble::Other,
            },
        }
    }

    /// Whether it is about what a row holds: the same statement over other rows may succeed.
    pub(crate) fn is_of_a_row(&self) -> bool {
        self.trouble() == Trouble::OfARow
    }

    /// Whether one row is the reason, by what it holds or because somebody's function refuses it under whatever code.
    pub(crate) fn is_for_a_row(&self) -> bool {
        self.is_of_a_row() || self.is_raised()
    }

    /// The same in words that quote no row: what the server says of a value may be anybody's.
    pub(crate) fn without_values(mut self, what: &str) -> Self {
        let code = self.sqlstate().unwrap_or_default();
        self.0.message = format!("{what} (SQLSTATE {code})");
        self.0.kind = Kind::Failed;
        self
    }

    /// Whether it is in the server's words and those may quote a row. What constraints say names none.
    fn may_quote(&self) -> bool {
        let by_constraint = self.sqlstate().is_some_and(|code| code.starts_with("23"));
        self.0.kind == Kind::Database && (self.is_raised() || self.is_of_a_row() && !by_constraint)
    }

    /// In words that a log may keep: where the server's may quote a row, only their code.
    pub fn for_log(&self) -> String {
        match self.may_quote() {
            true => format!("SQLSTATE {}; the server's log has its words", self.sqlstate().unwrap_or_default()),
            false => self.to_string(),
        }
    }

    /// The same, where it may quote a row of `table`.
    pub(crate) fn discreet(self, table: &str) -> Self {
        match self.may_quote() {
            true => self
                .without_values(&format!("a row of {table} raises an error, in a condition or in a trigger"))
                .with_hint("the server's log has its words"),
            false => self,
        }
    }

    /// Whether somebody's function raised it, in words and under a code of its own choice.
    fn is_raised(&self) -> bool {
        let languages = ["pl_exec.c", "plpy_elog.c", "plpy_plpymodule.c", "plperl.c", "pltcl.c"];
        let source = self.0.source.as_ref().and_then(|source| source.downcast_ref::<sqlx::Error>());
        let file = source
            .and_then(sqlx::Error::as_database_error)
            .and_then(|error| error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>()?.file());
        file.is_some_and(|file| languages.iter().any(|language| file.ends_with(language)))
    }

    /// What went wrong, one by one.
    pub fn parts(&self) -> Vec<&str> {
        match self.0.parts.as_slice() {
            [] => vec![&self.0.message],
            parts => parts.iter().map(String::as_str).collect(),
        }
    }

    /// What the operator can do, where there is something.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The key of the policy that it is about, where that is known.
    pub fn key(&self) -> Option<&'static str> {
        self.0.key
    }

    /// The configuration or a policy is wrong.
    pub fn is_config(&self) -> bool {
        self.0.kind == Kind::Config
    }

    /// The call was wrong.
    pub fn is_usage(&self) -> bool {
        matches!(self.0.kind, Kind::Usage | Kind::Unknown)
    }

    /// The call was wrong because what it names is not there.
    pub fn is_unknown(&self) -> bool {
        self.0.kind == Kind::Unknown
    }

    /// A rule stands in the way.
    pub fn is_refused(&self) -> bool {
        self.0.kind == Kind::Refused
    }

    /// The lease was lost; whoever holds it now does the work.
    pub fn is_fenced(&self) -> bool {
        self.0.kind == Kind::Fenced
    }

    /// The policy was changed meanwhile; the work starts again under the new one.
    pub fn is_superseded(&self) -> bool {
        self.0.kind == Kind::Superseded
    }

    /// The database was out of reach; the same call may succeed later.
    pub fn is_unavailable(&self) -> bool {
        self.0.kind == Kind::Unavailable
    }

    /// Somebody held what it needed, for a moment.
    pub(crate) fn is_contended(&self) -> bool {
        self.trouble() == Trouble::Contended
    }

    /// The five-character SQLSTATE, when PostgreSQL said no.
    pub fn sqlstate(&self) -> Option<String> {
        let source = self.0.source.as_ref()?.downcast_ref::<sqlx::Error>()?;
        Some(source.as_database_error()?.code()?.into_owned())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.0.message)?;
        match &self.0.hint {
            Some(hint) => write!(f, " (hint: {hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        let (kind, message) = match &error {
            sqlx::Error::Database(db) => {
                let code = db.code().unwrap_or_default();
                // Class 08: connection; 57P01-3: the server goes down or comes up; 57P05, 25P03: it ended a session
                // that had been idle, as after a long pause of this machine; 25P04: one whose transaction took too long;
                // 53300: no slot free.
                // 25006: it is a replica now; whoever fails over comes back.
                let gone = code.starts_with("08")
                    || matches!(
                        &*code,
                        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25P04" | "53300" | READ_ONLY
                    );
                (if gone { Kind::Unavailable } else { Kind::Database }, db.message().to_owned())
            }
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::Protocol(_) => (Kind::Unavailable, error.to_string()),
            other => (Kind::Database, other.to_string()),
        };
        let hint = hint(&error, &message);
        let told = Error::new(kind, message).with_source(error);
        match hint {
            Some(hint) => told.with_hint(hint),
            None => told,
        }
    }
}

const READ_ONLY: &str = "25006";

/// Whether row-level security would have hidden rows; the server's messages are in its own language, its routines are not.
fn is_row_security(error: &sqlx::Error) -> bool {
    let error = error.as_database_error().and_then(|error| error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>());
    error.and_then(|error| error.routine()) == Some("check_enable_rls")
}

/// What to do about what the connection or the server says, wherever it comes up.
fn hint(error: &sqlx::Error, message: &str) -> Option<&'static str> {
    let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
    match &*code {
        READ_ONLY => Some(
            "this server is a read-only replica, or transactions are read-only here by default: point [database] url at \
             the primary, or lift default_transaction_read_only for this user",
        ),
        "42501" if is_row_security(error) => Some(
            "no grant helps: let the role see every row (ALTER ROLE … BYPASSRLS), or its owner (ALTER TABLE … NO FORCE ROW \
             LEVEL SECURITY)",
        ),
        "42501" => Some("`ebb doctor` prints the grants that each policy needs"),
        _ if message.contains("server does not support TLS") => Some(
            "the server has TLS off (ssl = on in postgresql.conf turns it on); sslmode=prefer in the URL goes on without it",
        ),
        _ if matches!(error, sqlx::Error::Tls(_)) || message.contains("certificate") => Some(
            "the server's certificate must be for the host name in the URL and signed by an authority in sslrootcert",
        ),
        _ => None,
    }
}
