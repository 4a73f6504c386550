//! `ebb init`: a commented ebb.toml after a look at the database. Invariants: a file that exists is not touched unless
//! asked, and then kept under another name; what is proposed is commented out, so that writing it deletes nothing.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use ebb::config::{Config, Env};
use ebb::pg::survey::{self, Candidate};
use ebb::{Error, Result};

use super::{Context, Outcome, output};

/// Options of `ebb init`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write one of the examples instead of looking at the database.
    #[arg(long, value_enum)]
    example: Option<Example>,
    /// Write although there is a file; the old one is kept beside it.
    #[arg(long)]
    force: bool,
}

/// The examples of the manual.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Example {
    Idempotency,
    UuPdp,
    Partitioning,
    ScratchTables,
    Birthdays,
}

const IDEMPOTENCY: &str = include_str!("idempotency.toml");
const PARTITIONING: &str = include_str!("partitioning.toml");
const UU_PDP: &str = include_str!("uu-pdp.toml");
const SCRATCH_TABLES: &str = include_str!("scratch-tables.toml");
const BIRTHDAYS: &str = include_str!("birthdays.toml");
const HEAD: &str = include_str!("head.toml");

pub(crate) async fn run(path: Option<PathBuf>, args: Args, env: Env) -> Result<Outcome> {
    let path = path.unwrap_or_else(|| PathBuf::from("ebb.toml"));
    let example = args.example.map(example);
    let old = std::fs::read_to_string(&path).ok();
    if path.exists() && !args.force {
        return Err(Error::refused(format!("{} exists", path.display())).with_hint(
            "use --force to write a new one (the old one is kept beside it), or --config to write elsewhere",
        ));
    }
    let text = match example {
        Some(text) => text.to_owned(),
        None => {
            let database = old.as_deref().and_then(database_section);
            let seen = look(&path, old.is_some(), env).await?;
            compose(database, seen.as_deref())
        }
    };
    if path.exists() {
        let kept = kept_name(&path);
        std::fs::rename(&path, &kept).map_err(|error| failed(&kept, error))?;
        say!("kept the old file as {}", kept.display());
    }
    std::fs::write(&path, text).map_err(|error| failed(&path, error))?;
    let then = if example.is_some() { "change what differs" } else { "uncomment what fits" };
    say!("wrote {}; read it, {then}, then: ebb apply", path.display());
    Ok(Outcome::Done)
}

fn example(which: Example) -> &'static str {
    match which {
        Example::Idempotency => IDEMPOTENCY,
        Example::UuPdp => UU_PDP,
        Example::Partitioning => PARTITIONING,
        Example::ScratchTables => SCRATCH_TABLES,
        Example::Birthdays => BIRTHDAYS,
    }
}

/// What the database has; `None` when there is none to look at.
async fn look(path: &Path, exists: bool, env: Env) -> Result<Option<Vec<Candidate>>> {
    let config = match exists {
        true => Config::load(Some(path), &env).or_else(|error| {
            output::error(&error);
            eprintln!("the old file cannot be read; looking at the database of the environment instead");
            Config::from_str("", "ebb.toml", &env)
        })?,
        false => Config::from_str("", "ebb.toml", &env)?,
    };
    crate::log::init(&config.log);
    // An embedded server that nobody has started yet has nothing to look at.
    if config.database.url.is_none() && !Path::new(".ebb/data").exists() && !Path::new(".ebb/location").exists() {
        say!("no database is configured (DATABASE_URL is not set), so there is none to look at");
        return Ok(None);
    }
    let context = Context::open(config, env)?;
    let found = survey::candidates(context.engine.database()).await;
    context.close().await;
    let found = found?;
    say!(
        "looked at the database: {} with a column that says when a row is over",
        output::plural(found.len() as u64, "table")
    );
    Ok(Some(found))
}

fn compose(database: Option<&str>, seen: Option<&[Candidate]>) -> String {
    let mut text = match database {
        Some(section) => {
            HEAD.replace("[database]\n# url = \"env:DATABASE_URL\"\n", &format!("{}\n", section.trim_end()))
        }
        None => HEAD.to_owned(),
    };
    match seen {
        None => text += "\n# No database was there to look at. A policy looks like this:\n\n",
        Some([]) => text += "\n# No table has a column like expires_at or valid_until. A policy looks like this:\n\n",
        Some(_) => {
            text += "\n# What was found in the database. Uncomment what fits; `ebb plan` shows what it would do.\n"
        }
    }
    let mut names: Vec<String> = Vec::new();
    for candidate in seen.unwrap_or_default() {
        text += "\n";
        text += &propose(candidate, &mut names);
    }
    if seen.is_none_or(<[Candidate]>::is_empty) {
        text += "# [[expire]]\n# name = \"old-keys\"\n# table = \"public.idempotency_keys\"\n# column = \"expires_at\"\n# every = \"1h\"\n";
    }
    text
}

/// A commented policy for a table, with what was seen.
fn propose(candidate: &Candidate, names: &mut Vec<String>) -> String {
    let Candidate { table, column, column_type, others, leaves, rows, due, indexed } = candidate;
    let label = table.label();
    let number = |rows: &Option<u64>| rows.map_or("an unknown number of".to_owned(), output::count);
    let mut lines = vec![format!("{label}: about {} rows, {} of them past {column}.", number(rows), number(due))];
    if *leaves > 1 {
        lines.push(format!("It is partitioned: {leaves} tables hold its rows, and each is swept on its own."));
    }
    if *indexed {
        lines.push(format!("An index starts with {column}: a sweep reads only what is due."));
    } else {
        lines.push(format!("No index starts with {column}: every sweep would read the whole table. This helps:"));
        lines.push(format!("    CREATE INDEX CONCURRENTLY ON {table} ({});", ebb::pg::Ident::new(column)));
    }
    if let (Some(rows), Some(due)) = (rows, due)
        && *due > 10_000
        && due * 2 > *rows
    {
        lines.push(
            "More than half is due: the brake stops the first run and asks (`ebb resume NAME --allow ROWS`).".into(),
        );
    }
    if !others.is_empty() {
        lines.push(format!("It also has: {}.", others.join(", ")));
    }
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    lines.extend([
        "[[expire]]".to_owned(),
        format!("name = {}", quoted(&name(table.name.as_str(), names))),
        format!("table = {}", quoted(&label)),
        format!("column = {}", quoted(column)),
        "every = \"1h\"".to_owned(),
        "mode = \"observe\"                 # counts and deletes nothing; take it out when the numbers are right"
            .to_owned(),
    ]);
    if column_type != "timestamptz" {
        lines.push(format!(
            "zone = \"UTC\"                     # {column} is a {column_type}: where its times are at home"
        ));
    }
    // A name may contain anything, and a line of a comment ends where the line ends.
    lines.iter().map(|line| format!("# {}\n", line.replace(['\n', '\r'], " "))).collect()
}

/// A policy's name from a table's.
fn name(table: &str, taken: &mut Vec<String>) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let mut name: String = table.chars().map(|c| if fits(c) { c } else { '-' }).take(55).collect();
    if name.parse::<ebb::policy::Name>().is_err() {
        name = format!("{name}-expiry");
    }
    let mut unique = name.clone();
    for number in 2.. {
        if !taken.contains(&unique) {
            break;
        }
        unique = format!("{name}-{number}");
    }
    taken.push(unique.clone());
    unique
}

/// The lines of `[database]` of an old file, to be carried over.
fn database_section(text: &str) -> Option<&str> {
    let start = text.lines().scan(0, |at, line| {
        let here = *at;
        *at += line.len() + 1;
        Some((here, line))
    });
    let start = start.into_iter().find(|(_, line)| line.trim() == "[database]").map(|(at, _)| at)?;
    let rest = &text[start..];
    let end = rest[1..].find("\n[").map_or(rest.len(), |at| at + 2);
    Some(&rest[..end])
}

fn kept_name(path: &Path) -> PathBuf {
    let numbered = |number: usize| {
        let mut name = path.as_os_str().to_owned();
        name.push(if number == 0 { ".old".to_owned() } else { format!(".old.{number}") });
        PathBuf::from(name)
    };
    (0..).map(numbered).find(|path| !path.exists()).unwrap_or_else(|| numbered(0))
}

fn failed(path: &Path, error: std::io::Error) -> Error {
    Error::failed(format!("{} cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use ebb::pg::Relation;

    use super::*;

    fn uncommented(text: &str) -> String {
        let keys = |line: &&str| {
            let line = line.trim_start_matches("# ");
            line.starts_with('[')
                || line
                    .split_once(" = ")
                    .is_some_and(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        };
        text.lines().filter(keys).map(|line| format!("{}\n", line.trim_start_matches("# "))).collect()
    }

    fn read(text: &str) -> Config {
        Config::from_str(text, "ebb.toml", &Env::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn the_examples_of_the_repository_are_those_that_are_written() {
        for (which, in_repository) in [
            (Example::Idempotency, include_str!("../../../../../examples/idempotency.toml")),
            (Example::UuPdp, include_str!("../../../../../examples/uu-pdp.toml")),
            (Example::Partitioning, include_str!("../../../../../examples/partitioning.toml")),
            (Example::ScratchTables, include_str!("../../../../../examples/scratch-tables.toml")),
            (Example::Birthdays, include_str!("../../../../../examples/birthdays.toml")),
        ] {
            assert_eq!(example(which), in_repository, "{which:?}");
        }
    }

    #[test]
    fn what_is_written_reads_back_as_it_is_and_uncommented() {
        let candidate = |name: &str, indexed| Candidate {
            table: Relation::new("public", name),
            column: "expires_at".into(),
            column_type: "timestamp".into(),
            others: vec!["valid_until".into()],
            leaves: 3,
            rows: Some(300_000),
            due: Some(200_000),
            indexed,
        };
        let seen = [candidate("keys", true), candidate("My \"odd\"\ntable", false), candidate("audit", true)];
        let text = compose(None, Some(&seen));
        assert!(read(&text).policies.is_empty());
        let policies = read(&uncommented(&text)).policies;
        let names: Vec<&str> =
            policies.iter().filter(|p| p.kind == ebb::policy::Kind::Expire).map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["keys", "My--odd--table", "audit-expiry"]);
        read(&compose(None, None));
        read(&uncommented(&compose(None, Some(&[]))));
    }

    #[test]
    fn the_example_and_a_carried_over_database_are_valid() {
        assert!(!read(IDEMPOTENCY).policies.is_empty());
        let old = "[log]\nlevel = \"info\"\n\n[database]\nurl = \"postgres://a@b/c\"\n\n[[expire]]\nname = \"k\"\n";
        let section = database_section(old).unwrap();
        assert_eq!(section, "[database]\nurl = \"postgres://a@b/c\"\n\n");
        let text = compose(Some(section), None);
        assert!(read(&text).database.url.is_some(), "{text}");
    }
}
