//! The file as JSON, with the way back to its bytes. Invariant: for every value of the JSON the place it came from is
//! known, whether that is a span of the file or an environment variable.

use std::collections::HashMap;

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::{Diagnostic, Place, Span};
use crate::policy::Spot;

/// Keys, and numbers of list entries, from the top.
pub(super) type KeyPath = Vec<String>;

/// What was configured, and where.
#[derive(Debug)]
pub(super) struct Document {
    root: Value,
    spans: HashMap<KeyPath, Spans>,
    variables: HashMap<KeyPath, String>,
    text: String,
}

#[derive(Debug)]
struct Spans {
    key: Span,
    value: Span,
}

impl Document {
    pub(super) fn parse(text: &str) -> Result<Self, Vec<Diagnostic>> {
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut wrong: Vec<Diagnostic> = errors
            .iter()
            .map(|error| Diagnostic::new(error.span().map_or(Place::Nowhere, Place::File), error.message()))
            .collect();
        let mut walk = Walk { spans: HashMap::new(), path: Vec::new(), wrong: Vec::new(), text };
        let root = walk.table(table.get_ref());
        let spans = walk.spans;
        // After a syntax error the rest is guesswork: say only that.
        if wrong.is_empty() {
            wrong = walk.wrong;
        }
        let document = Self { root: Value::Object(root), spans, variables: HashMap::new(), text: text.to_owned() };
        if wrong.is_empty() { Ok(document) } else { Err(wrong) }
    }

    /// The value at a path.
    pub(super) fn get(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(&self.root, |at, key| match at {
            Value::Object(map) => map.get(*key),
            Value::Array(items) => items.get(key.parse::<usize>().ok()?),
            _ => None,
        })
    }

    /// The keys at the top.
    pub(super) fn sections(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.root.as_object().into_iter().flatten()
    }

    /// Sets a value from outside the file. Where the file has something else on the way, that is an error anyway.
    pub(super) fn set(&mut self, path: &[String], value: Value, variable: &str) {
        let Some((last, parents)) = path.split_last() else { return };
        let mut at = &mut self.root;
        for key in parents {
            let next = match at {
                Value::Object(map) => Some(map.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()))),
                Value::Array(items) => key.parse::<usize>().ok().and_then(|i| items.get_mut(i)),
                _ => None,
            };
            match next {
                Some(next) => at = next,
                None => return,
            }
        }
        if let Value::Object(map) = at {
            map.insert(last.clone(), value);
            self.variables.insert(path.to_vec(), variable.to_owned());
        }
    }

    /// The variable that set a value, if one did.
    pub(super) fn variable(&self, path: &[String]) -> Option<&str> {
        self.variables.get(path).map(String::as_str)
    }

    /// Where a key or value is; the nearest thing around it when it is not there at all.
    pub(super) fn place(&self, path: &[String], spot: Spot) -> Place {
        for end in (1..=path.len()).rev() {
            if let Some(variable) = self.variables.get(&path[..end]) {
                return Place::Variable(variable.clone());
            }
            if let Some(spans) = self.spans.get(&path[..end]) {
                let key = spot == Spot::Key && end == path.len();
                return Place::File(if key { spans.key.clone() } else { spans.value.clone() });
            }
        }
        Place::Nowhere
    }

    /// The line, counted from 1, on which a value starts.
    pub(super) fn line(&self, path: &[String]) -> Option<usize> {
        let spans = self.spans.get(path)?;
        Some(self.text.get(..spans.value.start)?.matches('\n').count() + 1)
    }
}

/// Turns TOML into JSON and notes where everything is.
struct Walk<'t> {
    spans: HashMap<KeyPath, Spans>,
    path: KeyPath,
    wrong: Vec<Diagnostic>,
    text: &'t str,
}

impl Walk<'_> {
    fn table(&mut self, table: &DeTable<'_>) -> Map<String, Value> {
        let mut map = Map::new();
        for (key, value) in table {
            let name = key.get_ref().to_string();
            let json = self.child(name.clone(), key.span(), value);
            map.insert(name, json);
        }
        map
    }

    fn child(&mut self, name: String, key: Span, value: &Spanned<DeValue<'_>>) -> Value {
        self.path.push(name);
        self.spans.insert(self.path.clone(), Spans { key, value: value.span() });
        let json = self.value(value);
        self.path.pop();
        json
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>) -> Value {
        let place = Place::File(value.span());
        match value.get_ref() {
            DeValue::String(text) => Value::from(text.as_ref()),
            DeValue::Boolean(flag) => Value::from(*flag),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Value::from(number),
                Err(_) => {
                    self.wrong.push(Diagnostic::new(place, "this number is too large"));
                    Value::Null
                }
            },
            DeValue::Float(number) => match number.as_str().parse::<f64>() {
                Ok(number) if number.is_finite() => Value::from(number),
                _ => {
                    self.wrong.push(Diagnostic::new(place, "this is no number that could be meant"));
                    Value::Null
                }
            },
            DeValue::Datetime(_) => {
                let typed = self.text.get(value.span()).unwrap_or_default();
                self.wrong.push(Diagnostic::new(place, "times are written in quotes").hint(format!("\"{typed}\"")));
                Value::Null
            }
            DeValue::Array(items) => {
                let items = items.iter().enumerate();
                Value::Array(items.map(|(i, item)| self.child(i.to_string(), item.span(), item)).collect())
            }
            DeValue::Table(table) => Value::Object(self.table(table)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> KeyPath {
        text.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn every_value_knows_its_place() {
        let text = "[http]\nlisten = 'x'\n[[expire]]\nbatch = { rows = 1_000 }\n";
        let mut document = Document::parse(text).unwrap();
        assert_eq!(document.get(&["expire", "0", "batch", "rows"]), Some(&Value::from(1000)));
        assert_eq!(document.place(&path("http.listen"), Spot::Key), Place::File(7..13));
        assert_eq!(document.place(&path("expire.0.every"), Spot::Value), Place::File(20..30));
        assert_eq!(document.line(&path("expire.0.batch.rows")), Some(4));
        document.set(&path("expire.0.batch.pause"), "1s".into(), "EBB_X");
        assert_eq!(document.get(&["expire", "0", "batch", "pause"]), Some(&Value::from("1s")));
        assert_eq!(document.place(&path("expire.0.batch.pause"), Spot::Value), Place::Variable("EBB_X".into()));
    }

    #[test]
    fn values_that_json_cannot_hold_are_refused() {
        for text in ["a = 99999999999999999999", "a = nan", "a = inf", "a = 02:00:00", "a = 2026-01-01"] {
            assert_eq!(Document::parse(text).unwrap_err().len(), 1, "{text}");
        }
        assert_eq!(Document::parse("a = \nb = \n").unwrap_err().len(), 2);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*", near in "[\\[\\]a={}\"'.,0-9\n ]{0,60}") {
            let _ = (Document::parse(&text), Document::parse(&near));
        }
    }
}
