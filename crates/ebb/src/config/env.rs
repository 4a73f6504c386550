//! The environment, and the variables in it that override the file: `EBB_SECTION_KEY` and `EBB_KIND_NAME_KEY`.
//! Invariant: a variable sets exactly one key or is an error; one that is meant for nothing of ours is left alone.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::diagnostic::{Diagnostic, Place};
use super::document::KeyPath;
use crate::policy::{Scalar, did_you_mean, nearest};

/// The environment as it was when the process started, or as a test wants it. An empty variable counts as unset.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Env(BTreeMap<String, String>);

impl Env {
    /// The environment of this process.
    pub fn process() -> Self {
        let text = |os: OsString| os.into_string().ok();
        std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect()
    }

    /// What a variable says.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Env {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let pairs = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        Self(pairs.filter(|(_, value): &(String, String)| !value.is_empty()).collect())
    }
}

impl std::fmt::Debug for Env {
    /// Names only: values may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A section or an entry that variables can change.
#[derive(Debug)]
pub(super) struct Target {
    /// Where it is in the document.
    pub(super) path: KeyPath,
    /// How people write it: `[http]`, `[[expire]] keys`.
    pub(super) label: String,
    /// What its variables start with: `HTTP`, `EXPIRE_KEYS`.
    pub(super) stem: String,
    /// The keys they can set.
    pub(super) scalars: &'static [Scalar],
}

/// A variable that sets a key.
#[derive(Debug)]
pub(super) struct Override {
    pub(super) variable: String,
    pub(super) path: KeyPath,
    pub(super) value: serde_json::Value,
}

/// Variables of ours that override nothing.
const APART: [&str; 3] = ["EBB_CONFIG", "EBB_LOG", "EBB_PG_BIN"];

/// Finds what each variable sets. `prefixes` are the words after which a variable can only be ours.
pub(super) fn overrides(env: &Env, targets: &[Target], prefixes: &[String]) -> (Vec<Override>, Vec<Diagnostic>) {
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    let ours = env.0.iter().filter(|(name, _)| name.starts_with("EBB_") && !APART.contains(&name.as_str()));
    for (variable, text) in ours {
        let matches: Vec<(&Target, Scalar)> = targets
            .iter()
            .flat_map(|target| target.scalars.iter().map(move |scalar| (target, *scalar)))
            .filter(|(target, scalar)| name_of(target, *scalar) == *variable)
            .collect();
        let place = Place::Variable(variable.clone());
        match matches[..] {
            [(target, scalar)] => {
                let path = target.path.iter().cloned().chain(scalar.path().split('.').map(str::to_owned)).collect();
                found.push(Override { variable: variable.clone(), path, value: scalar.value(text) });
            }
            [] => wrong.extend(unmatched(variable, targets, prefixes).map(|hint| {
                let diagnostic = Diagnostic::new(place, format!("{variable} matches no key"));
                hint.map_or(diagnostic.clone(), |hint| diagnostic.hint(hint))
            })),
            _ => {
                let meanings: Vec<String> =
                    matches.iter().map(|(target, scalar)| format!("`{}` of {}", scalar.path(), target.label)).collect();
                let message = format!("{variable} could mean {}", meanings.join(" or "));
                wrong.push(Diagnostic::new(place, message).hint("set it in the file, or rename one of them"));
            }
        }
    }
    (found, wrong)
}

fn name_of(target: &Target, scalar: Scalar) -> String {
    format!("EBB_{}_{}", target.stem, stem(scalar.path()))
}

/// The part of a variable's name that stands for a key or a name.
pub(super) fn stem(text: &str) -> String {
    text.to_ascii_uppercase().replace(['-', '.'], "_")
}

/// What to say about a variable that sets nothing: `None` to leave it alone.
fn unmatched(variable: &str, targets: &[Target], prefixes: &[String]) -> Option<Option<String>> {
    let rest = variable.strip_prefix("EBB_")?;
    let after = prefixes.iter().find_map(|prefix| rest.strip_prefix(prefix.as_str())?.strip_prefix('_'))?;
    // Kubernetes puts these into every container for a service called, say, ebb-http.
    let words: Vec<&str> = after.split('_').collect();
    let pair = |pair: &[&str]| matches!(pair, ["SERVICE", "HOST" | "PORT"]) || (pair[0] == "PORT" && number(pair[1]));
    if words.last() == Some(&"PORT") || words.windows(2).any(pair) {
        return None;
    }
    let known: Vec<String> =
        targets.iter().flat_map(|target| target.scalars.iter().map(|scalar| name_of(target, *scalar))).collect();
    Some(nearest(variable, known.iter().map(String::as_str)).map(did_you_mean))
}

fn number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &[Scalar] = &[Scalar::Text("every"), Scalar::Plain("batch.rows"), Scalar::Text("older_than")];

    fn targets(names: &[&str]) -> Vec<Target> {
        let target = |(i, name): (usize, &&str)| Target {
            path: vec!["expire".into(), i.to_string()],
            label: format!("[[expire]] {name}"),
            stem: format!("EXPIRE_{}", stem(name)),
            scalars: KEYS,
        };
        names.iter().enumerate().map(target).collect()
    }

    fn run(variable: &str, names: &[&str]) -> (Vec<Override>, Vec<Diagnostic>) {
        overrides(&[(variable, "7")].into_iter().collect(), &targets(names), &["EXPIRE".into(), "HTTP".into()])
    }

    #[test]
    fn a_variable_sets_one_key() {
        let (found, wrong) = run("EBB_EXPIRE_OLD_KEYS_BATCH_ROWS", &["old-keys"]);
        assert!(wrong.is_empty());
        assert_eq!(found[0].path, ["expire", "0", "batch", "rows"]);
        assert_eq!(found[0].value, serde_json::Value::from(7));
    }

    #[test]
    fn a_collision_is_an_error_once_the_variable_is_set() {
        let (found, wrong) = run("EBB_EXPIRE_A_B_EVERY", &["a-b", "a_b"]);
        assert!(found.is_empty());
        assert!(wrong[0].message.contains("could mean `every` of [[expire]] a-b or `every` of [[expire]] a_b"));
        assert!(run("EBB_OTHER", &["a-b", "a_b"]).1.is_empty());
    }

    #[test]
    fn a_misspelt_variable_is_an_error_and_a_foreign_one_is_not() {
        let (_, wrong) = run("EBB_EXPIRE_KEYS_EVRY", &["keys"]);
        assert_eq!(wrong[0].hint.as_deref(), Some("did you mean `EBB_EXPIRE_KEYS_EVERY`?"));
        for foreign in
            ["EBB_CONFIG", "EBB_LOG", "EBB_PG_BIN", "EBB_PORT", "EBB_HTTP_SERVICE_HOST", "EBB_HTTP_PORT_80_TCP"]
        {
            assert!(run(foreign, &["keys"]).1.is_empty(), "{foreign}");
        }
        assert_eq!(run("EBB_EXPIRE_REPORT_EVRY", &["report"]).1.len(), 1);
        assert!(!format!("{:?}", [("A", "hunter2")].into_iter().collect::<Env>()).contains("hunter2"));
    }
}
