//! Reading a policy's keys. The file, `ebb policy set` and the database all hand over the same JSON map, and this
//! reader is the one path from it to a type. Invariant: everything wrong is reported at once, each with its key.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Map, Value};

use super::field::{FieldError, FieldErrors, Invalid, Spot, did_you_mean, nearest};
use super::term::{Term, human};

/// Takes keys out of one table and remembers what went wrong on the way.
pub(crate) struct Reader<'a> {
    map: &'a Map<String, Value>,
    path: Vec<String>,
    known: Vec<&'static str>,
    open: bool,
    errors: Vec<FieldError>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(map: &'a Map<String, Value>) -> Self {
        Self { map, path: Vec::new(), known: Vec::new(), open: false, errors: Vec::new() }
    }

    /// Ends the reading: a key nobody asked for is an error.
    pub(crate) fn finish(mut self) -> Result<(), FieldErrors> {
        self.close();
        if self.errors.is_empty() { Ok(()) } else { Err(FieldErrors(self.errors)) }
    }

    /// The value of a key; null means the same as leaving it out.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<&'a Value> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn error(&mut self, key: &str, spot: Spot, invalid: Invalid) {
        let mut path = self.path.clone();
        path.push(key.to_owned());
        self.errors.push(FieldError { path, spot, message: invalid.message, hint: invalid.hint });
    }

    /// Adds what was found by looking at a value that had the right type.
    pub(crate) fn refuse(&mut self, key: &str, invalid: Invalid) {
        self.error(key, Spot::Value, invalid);
    }

    /// A text, whatever it says.
    pub(crate) fn text(&mut self, key: &'static str, example: &str) -> Option<String> {
        let value = self.take(key)?;
        match value {
            Value::String(text) if text.contains('\0') => {
                self.refuse(key, Invalid::new(format!("`{key}` contains a NUL byte")));
                None
            }
            Value::String(text) if text.trim().is_empty() => {
                self.refuse(key, Invalid::new(format!("`{key}` is empty")).hint(format!("for example {example}")));
                None
            }
            Value::String(text) => Some(text.clone()),
            other => {
                self.refuse(key, wrong_type(key, "a text in quotes", other, example));
                None
            }
        }
    }

    /// A text that an entry cannot do without.
    pub(crate) fn required(&mut self, key: &'static str, example: &str) -> Option<String> {
        let text = self.text(key, example);
        if !matches!(self.map.get(key), Some(value) if !value.is_null()) {
            self.refuse_all(Invalid::new(format!("`{key}` is missing")).hint(format!("add {key} = {example}")));
        }
        text
    }

    /// A text that becomes a type.
    pub(crate) fn parse<T: FromStr<Err = Invalid>>(&mut self, key: &'static str, example: &str) -> Option<T> {
        match self.text(key, example)?.parse() {
            Ok(parsed) => Some(parsed),
            Err(invalid) => {
                self.refuse(key, invalid);
                None
            }
        }
    }

    /// A term of more than nothing.
    pub(crate) fn term(&mut self, key: &'static str, example: &str) -> Option<Term> {
        let term: Term = self.parse(key, example)?;
        if term.is_zero() {
            let message = format!("`{key}` must be more than nothing");
            self.refuse(key, Invalid::new(message).hint(format!("for example {example}")));
            return None;
        }
        Some(term)
    }

    /// A span of time of fixed length between two bounds.
    pub(crate) fn duration(
        &mut self,
        key: &'static str,
        example: &str,
        bounds: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let term: Term = self.parse(key, example)?;
        let checked = term.as_duration().and_then(|duration| {
            if bounds.contains(&duration) {
                return Ok(duration);
            }
            let end = if duration < *bounds.start() {
                format!("at least {}", human(*bounds.start()))
            } else {
                format!("at most {}", human(*bounds.end()))
            };
            Err(Invalid::new(format!("`{key}` must be {end}, not {term}")).hint(format!("for example {example}")))
        });
        checked.map_err(|invalid| self.refuse(key, invalid)).ok()
    }

    pub(crate) fn flag(&mut self, key: &'static str, default: bool) -> bool {
        match self.take(key) {
            None => default,
            Some(Value::Bool(flag)) => *flag,
            Some(other) => {
                self.refuse(key, wrong_type(key, "true or false", other, if default { "false" } else { "true" }));
                default
            }
        }
    }

    /// A whole number between two bounds.
    pub(crate) fn number(&mut self, key: &'static str, bounds: RangeInclusive<u64>) -> Option<u64> {
        let value = self.take(key)?;
        match value.as_u64() {
            Some(number) if bounds.contains(&number) => Some(number),
            None if !value.is_number() || value.is_f64() => {
                self.refuse(key, wrong_type(key, "a whole number", value, &bounds.start().max(&1).to_string()));
                None
            }
            _ => {
                let (low, high) = bounds.into_inner();
                self.refuse(key, Invalid::new(format!("`{key}` must be from {low} to {high}, not {value}")));
                None
            }
        }
    }

    /// A part of a whole: more than 0, at most 1.
    pub(crate) fn share(&mut self, key: &'static str) -> Option<f64> {
        let value = self.take(key)?;
        match value.as_f64() {
            Some(share) if share > 0.0 && share <= 1.0 => Some(share),
            Some(share) => {
                let invalid = Invalid::new(format!("`{key}` must be more than 0 and at most 1, not {value}"));
                let percent = share > 1.0 && share <= 100.0;
                self.refuse(
                    key,
                    if percent { invalid.hint(did_you_mean(&(share / 100.0).to_string())) } else { invalid },
                );
                None
            }
            None => {
                self.refuse(key, wrong_type(key, "a number", value, "0.5"));
                None
            }
        }
    }

    /// Whether the key says `"off"`, which asks for no limit.
    pub(crate) fn is_off(&mut self, key: &'static str) -> bool {
        self.take(key).and_then(Value::as_str) == Some("off")
    }

    /// One word out of a few.
    pub(crate) fn choice<T: Clone>(&mut self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let words = || choices.iter().map(|(word, _)| *word);
        let listed = words().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" or ");
        let typed = self.text(key, &listed)?;
        let found = choices.iter().find(|(word, _)| *word == typed).map(|(_, meaning)| meaning.clone());
        if found.is_none() {
            let hint = nearest(&typed, words()).map_or_else(|| format!("it is {listed}"), did_you_mean);
            self.refuse(key, Invalid::new(format!("`{key}` cannot be {typed:?}")).hint(hint));
        }
        found
    }

    /// A table inside this one. Its errors carry the longer path.
    pub(crate) fn table<T>(
        &mut self,
        key: &'static str,
        example: &str,
        read: impl FnOnce(&mut Reader<'a>) -> T,
    ) -> Option<T> {
        let value = self.take(key)?;
        let Value::Object(map) = value else {
            self.refuse(key, wrong_type(key, "a table", value, example));
            return None;
        };
        let mut path = self.path.clone();
        path.push(key.to_owned());
        let mut inner = Reader { map, path, known: Vec::new(), open: false, errors: Vec::new() };
        let result = read(&mut inner);
        inner.close();
        self.errors.append(&mut inner.errors);
        Some(result)
    }

    /// The entries of this table, for keys that users make up.
    pub(crate) fn entries(&self) -> &'a Map<String, Value> {
        self.map
    }

    /// Adds an error about this table as a whole.
    pub(crate) fn refuse_all(&mut self, invalid: Invalid) {
        let (path, spot) = (self.path.clone(), Spot::Value);
        self.errors.push(FieldError { path, spot, message: invalid.message, hint: invalid.hint });
    }

    /// Any key is fine in this table.
    pub(crate) fn accept_all(&mut self) {
        self.open = true;
    }

    fn close(&mut self) {
        if self.open {
            return;
        }
        for key in self.map.keys().filter(|key| !self.known.contains(&key.as_str())).cloned().collect::<Vec<_>>() {
            let invalid = Invalid::new(format!("unknown key `{key}`"));
            let hint = nearest(&key, self.known.iter().copied())
                .map_or_else(|| format!("known here: {}", self.known.join(", ")), did_you_mean);
            self.error(&key, Spot::Key, invalid.hint(hint));
        }
    }
}

/// "`every` must be a text in quotes, not the number 30".
pub(crate) fn wrong_type(key: &str, wanted: &str, found: &Value, example: &str) -> Invalid {
    let found = match found {
        Value::Null => "nothing".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(_) => "a text".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a table".to_owned(),
    };
    Invalid::new(format!("`{key}` must be {wanted}, not {found}")).hint(format!("for example {key} = {example}"))
}
