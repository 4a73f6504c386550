//! The policy's block in ebb.toml. Invariant: nothing that people wrote is changed; a block is added at the end, or the
//! very same text is taken out again.

use std::io::Write;
use std::path::PathBuf;

use ebb::policy::Spec;
use ebb::{Error, Result};

use crate::cli::Context;

fn path(context: &Context) -> Option<PathBuf> {
    context.config.path.clone().filter(|path| path.exists())
}

/// The file gives this name to something else, and the next `ebb apply` would take the policy away again.
pub(crate) fn refuse_other(context: &Context, policy: &str, table: &str) -> Result<()> {
    let names = |known: &&ebb::config::PolicySpec| known.kind.is_work() && known.name == policy;
    let Some(known) = context.config.policies.iter().find(names) else { return Ok(()) };
    let its = known.spec.get("table").and_then(|table| table.as_str()).unwrap_or_default();
    let bare = table.strip_prefix("public.").unwrap_or(table);
    if known.kind == ebb::policy::Kind::Partition && (its == table || its == bare) {
        return Ok(());
    }
    Err(Error::refused(format!("ebb.toml has a policy {policy} already, the {} policy of {its}", known.kind.as_str()))
        .with_hint(format!("choose another name: --name {}", table.replace('.', "_"))))
}

/// Adds the block, unless the file has the policy; prints it where there is no file.
pub(crate) fn add(context: &Context, policy: &str, spec: &Spec) -> Result<()> {
    let block = ebb::partition::adopt::block(policy, spec);
    let Some(path) = path(context) else {
        say!("there is no ebb.toml here; put this into yours, so that the next `ebb apply` keeps it:\n\n{block}");
        return Ok(());
    };
    if context.config.policies.iter().any(|known| known.kind == ebb::policy::Kind::Partition && known.name == policy) {
        return Ok(());
    }
    let text = std::fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
    let gap = if text.is_empty() || text.ends_with("\n\n") {
        ""
    } else if text.ends_with('\n') {
        "\n"
    } else {
        "\n\n"
    };
    match append(&path, &format!("{gap}{block}")) {
        Ok(()) => say!("added [[partition]] {policy} to {}", path.display()),
        Err(error) => say!(
            "{} cannot be written ({error}); put this into it, so that the next `ebb apply` keeps the policy:\n\n{block}",
            path.display()
        ),
    }
    Ok(())
}

/// What cannot be written as a whole is not there, and what was there before stays.
fn append(path: &std::path::Path, text: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().append(true).open(path)?;
    let before = file.metadata()?.len();
    file.write_all(text.as_bytes()).inspect_err(|_| {
        let _ = file.set_len(before);
    })
}

/// Takes the block out again where it stands as it was added; says so where it does not.
pub(crate) fn remove(context: &Context, policy: &str, spec: &Spec) -> Result<()> {
    let block = ebb::partition::adopt::block(policy, spec);
    let Some(path) = path(context) else { return Ok(()) };
    let text = std::fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
    if let Some(at) = text.find(&block) {
        let rest = format!("{}{}", text[..at].trim_end_matches('\n'), &text[at + block.len()..]);
        let end = if rest.is_empty() || rest.ends_with('\n') { "" } else { "\n" };
        std::fs::write(&path, format!("{rest}{end}")).map_err(|error| failed(&path, &error))?;
        say!("took [[partition]] {policy} out of {}", path.display());
    } else if context.config.policies.iter().any(|known| known.name == policy) {
        say!("take [[partition]] {policy} out of {}: the table is not partitioned any more", path.display());
    }
    Ok(())
}

fn failed(path: &std::path::Path, error: &std::io::Error) -> Error {
    Error::failed(format!("{}: {error}", path.display()))
}
