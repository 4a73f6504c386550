//! What can be wrong with a policy. Invariant: every error carries the key it belongs to, so that a file can point at
//! the line and a command can name it.

use std::fmt;

use crate::Error;

/// Why a text is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub hint: Option<String>,
}

impl Invalid {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Invalid {}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        let error = Error::config(invalid.message);
        match invalid.hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}

/// What of an entry an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spot {
    /// The key itself: it should not be there.
    Key,
    /// What the key is set to.
    Value,
    /// What the key is set to, which must not be shown.
    Secret,
}

/// One thing wrong with one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The keys that lead to it; empty when the whole entry is meant (a key is missing).
    pub path: Vec<String>,
    /// Key or value.
    pub spot: Spot,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub hint: Option<String>,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A message about a key names it already; where it is may need saying.
        let end = self.path.len() - usize::from(self.spot == Spot::Key && !self.path.is_empty());
        if end > 0 {
            write!(f, "{}: ", self.path[..end].join("."))?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// Everything wrong with one policy; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldErrors(pub Vec<FieldError>);

impl fmt::Display for FieldErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for FieldErrors {}

impl From<FieldErrors> for Error {
    fn from(errors: FieldErrors) -> Self {
        Error::config(errors.to_string())
    }
}

/// The nearest of `known` to what was typed, if it is near enough to have been meant.
pub(crate) fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_ascii_lowercase();
    known
        .into_iter()
        .map(|word| (strsim::osa_distance(&typed, &word.to_ascii_lowercase()), word))
        .filter(|(distance, word)| *distance <= (word.len().max(typed.len()) / 3).clamp(1, 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

pub(crate) fn did_you_mean(word: &str) -> String {
    format!("did you mean `{word}`?")
}
