//! The policy's block in ebb.toml. Invariant: nothing that people wrote is changed; a block is added at the end where the file
//! can be read with it, or the very same text is taken out again.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use ebb::config::{Config, Env, PolicySpec};
use ebb::policy::{Kind, Spec};
use ebb::{Error, Result};

use crate::cli::Context;

fn path(context: &Context) -> Option<PathBuf> {
    context.config.path.clone().filter(|path| path.exists())
}

/// The file gives this name to something else, and the next `ebb apply` would take the policy away again.
pub(crate) fn refuse_other(context: &Context, policy: &str, table: &str) -> Result<()> {
    let names = |known: &&PolicySpec| known.kind.is_work() && known.name == policy;
    let Some(known) = context.config.policies.iter().find(names) else { return Ok(()) };
    let its = known.spec.get("table").and_then(|table| table.as_str()).unwrap_or_default();
    let bare = table.strip_prefix("public.").unwrap_or(table);
    if known.kind == Kind::Partition && (its == table || its == bare) {
        return Ok(());
    }
    Err(Error::refused(format!("ebb.toml has a policy {policy} already, the {} policy of {its}", known.kind.as_str()))
        .with_hint(format!("choose another name: --name {}", table.replace('.', "_"))))
}

/// Adds the block, unless the file has the policy; prints it where there is no file, or none that can take it.
pub(crate) fn add(context: &Context, policy: &str, spec: &Spec) -> Result<()> {
    let block = ebb::partition::adopt::block(policy, spec);
    let Some(path) = path(context) else {
        say!("there is no ebb.toml here; put this into yours, so that the next `ebb apply` keeps it:\n\n{block}");
        return Ok(());
    };
    let names = |known: &PolicySpec| known.kind == Kind::Partition && known.name == policy;
    if context.config.policies.iter().any(names) {
        return Ok(());
    }
    let print = |why: String| {
        say!("{} {why}; put this into it, so that the next `ebb apply` keeps the policy:\n\n{block}", path.display())
    };
    match append(&path, names, &block) {
        Ok(Appended::Yes) => say!("added [[partition]] {policy} to {}", path.display()),
        Ok(Appended::There) => {}
        Ok(Appended::Unreadable) => {
            print("stays as it is: with a [[partition]] at its end it could not be read".into())
        }
        Err(error) => print(format!("cannot be written ({error})")),
    }
    Ok(())
}

enum Appended {
    Yes,
    /// The file has the policy by now.
    There,
    /// It could not be read any more: its policies are written in another form.
    Unreadable,
}

/// One run at a time, and to the file as it is by then: another one may have come first. What cannot be written as a whole is
/// not there, and what was there before stays.
fn append(path: &Path, names: impl Fn(&PolicySpec) -> bool, block: &str) -> std::io::Result<Appended> {
    let mut file = std::fs::OpenOptions::new().read(true).append(true).open(path)?;
    // Where the file system knows no locks, two runs at the same moment are not told apart.
    let _ = file.lock();
    let (mut text, before) = (String::new(), file.metadata()?.len());
    file.read_to_string(&mut text)?;
    let read = |text: &str| Config::from_str(text, "ebb.toml", &Env::process());
    if read(&text).is_ok_and(|config| config.policies.iter().any(names)) {
        return Ok(Appended::There);
    }
    let gap = if text.is_empty() || text.ends_with("\n\n") {
        ""
    } else if text.ends_with('\n') {
        "\n"
    } else {
        "\n\n"
    };
    let added = format!("{gap}{block}");
    if read(&(text + &added)).is_err() {
        return Ok(Appended::Unreadable);
    }
    file.write_all(added.as_bytes()).inspect_err(|_| {
        let _ = file.set_len(before);
    })?;
    Ok(Appended::Yes)
}

/// Takes the block out again where it stands as it was added; says so where it does not.
pub(crate) fn remove(context: &Context, policy: &str, spec: &Spec) -> Result<()> {
    let block = ebb::partition::adopt::block(policy, spec);
    let Some(path) = path(context) else { return Ok(()) };
    let text = std::fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
    if let Some(rest) = without(&text, &block) {
        std::fs::write(&path, rest).map_err(|error| failed(&path, &error))?;
        say!("took [[partition]] {policy} out of {}", path.display());
    } else if context.config.policies.iter().any(|known| known.name == policy) {
        say!("take [[partition]] {policy} out of {}: the table is not partitioned any more", path.display());
    }
    Ok(())
}

/// The text without a block and the empty line that kept it apart; none where the block is not there, or has grown.
fn without(text: &str, block: &str) -> Option<String> {
    let (before, after) = text.split_once(block)?;
    let says = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    if after.lines().find(says).is_some_and(|line| !line.trim_start().starts_with('[')) {
        return None;
    }
    let apart = before.is_empty() || before.ends_with("\n\n");
    let (before, after) = match after.strip_prefix('\n') {
        Some(after) if apart => (before, after),
        None if apart && after.is_empty() => (before.strip_suffix('\n').unwrap_or(before), after),
        _ => (before, after),
    };
    Some(format!("{before}{after}"))
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::failed(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn a_block_goes_and_nothing_that_people_wrote_does() {
        let block = "[[partition]]\nname = \"t\"\n";
        for (before, after, left) in [
            ("[a]\n\n", "", Some("[a]\n")),
            ("", "", Some("")),
            ("", "\n[b]\n", Some("[b]\n")),
            ("[a]\n\n", "\n[b]\n", Some("[a]\n\n[b]\n")),
            ("[a]\n\n", "\n# of b\n[b]\n", Some("[a]\n\n# of b\n[b]\n")),
            ("[a]\n", "[b]\n", Some("[a]\n[b]\n")),
            ("[a]\n\n", "# often\nevery = \"1h\"\n", None),
        ] {
            assert_eq!(without(&format!("{before}{block}{after}"), block).as_deref(), left, "{before:?} {after:?}");
        }
        assert_eq!(without("[a]\n", block), None);
    }
}
