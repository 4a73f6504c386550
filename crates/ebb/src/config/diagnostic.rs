//! What is wrong with the configuration, shown where it is wrong. Invariant: no message shows a secret; masking keeps
//! every character's column, so that the carets still point right.

use std::ops::Range;

use crate::policy::{FieldError, Spot};

/// Bytes of the file.
pub(super) type Span = Range<usize>;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// These bytes of the file.
    File(Span),
    /// An environment variable.
    Variable(String),
    /// Neither: something is missing that has no place.
    Nowhere,
}

/// One thing to put right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Diagnostic {
    pub(super) message: String,
    pub(super) place: Place,
    pub(super) hint: Option<String>,
    /// Another place that belongs to it, and what is there.
    pub(super) other: Option<(Span, &'static str)>,
    /// The value at `place` must not be shown.
    pub(super) secret: bool,
}

impl Diagnostic {
    pub(super) fn new(place: Place, message: impl Into<String>) -> Self {
        Self { message: message.into(), place, hint: None, other: None, secret: false }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    pub(super) fn field(place: Place, error: FieldError) -> Self {
        Self { hint: error.hint, secret: error.spot == Spot::Secret, ..Self::new(place, error.message) }
    }
}

/// All of them as text, in the order of the file.
pub(super) fn render(mut all: Vec<Diagnostic>, label: &str, text: &str) -> String {
    all.sort_by_key(|diagnostic| match &diagnostic.place {
        Place::File(span) => span.start,
        _ => usize::MAX,
    });
    let mut shown: Vec<String> = Vec::new();
    for rendered in all.iter().map(|diagnostic| render_one(diagnostic, label, text)) {
        // One variable can be wrong for several entries.
        if !shown.contains(&rendered) {
            shown.push(rendered);
        }
    }
    shown.join("\n\n")
}

fn render_one(diagnostic: &Diagnostic, label: &str, text: &str) -> String {
    let mut out = format!("error: {}", diagnostic.message);
    let hint = diagnostic.hint.as_deref().unwrap_or_default();
    let span = match &diagnostic.place {
        Place::File(span) => span,
        Place::Variable(name) => {
            out.push_str(&format!("\n  --> environment variable {name}"));
            if !hint.is_empty() {
                out.push_str(&format!("\n   = {hint}"));
            }
            return out;
        }
        Place::Nowhere => {
            if !hint.is_empty() {
                out.push_str(&format!("\n   = {hint}"));
            }
            return out;
        }
    };
    let main = Line::at(text, span);
    let other = diagnostic.other.as_ref().map(|(span, what)| (Line::at(text, span), *what));
    let number = main.number.max(other.as_ref().map_or(0, |(line, _)| line.number));
    let width = number.to_string().len();
    out.push_str(&format!("\n{:width$}--> {label}:{}:{}", "", main.number, main.column));
    out.push_str(&format!("\n{:width$} |", ""));
    let mut shown = vec![(main, '^', hint, diagnostic.secret)];
    if let Some((line, what)) = other {
        shown.push((line, '-', what, false));
    }
    shown.sort_by_key(|(line, ..)| line.number);
    let mut last: Option<usize> = None;
    for (line, mark, what, secret) in shown {
        if last.is_some_and(|last| line.number > last + 1) {
            out.push_str("\n...");
        }
        last = Some(line.number);
        let source = if secret { line.masked() } else { mask_urls(&line.text) };
        let marks = mark.to_string().repeat(line.length);
        out.push_str(&format!("\n{:>width$} | {source}", line.number));
        let under = format!("\n{:width$} | {:indent$}{marks} {what}", "", "", indent = line.column - 1);
        out.push_str(under.trim_end());
    }
    out
}

/// A line of the file and the part of it that is meant, counted in characters.
struct Line {
    number: usize,
    column: usize,
    length: usize,
    text: String,
}

impl Line {
    fn at(text: &str, span: &Span) -> Self {
        let floor = |mut at: usize| {
            at = at.min(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let (start, end) = (floor(span.start), floor(span.end));
        let from = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let to = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let line = text[from..to].trim_end_matches('\r');
        Self {
            number: text[..start].matches('\n').count() + 1,
            column: text[from..start].chars().count() + 1,
            length: text[start..end.clamp(start, to)].trim_end().chars().count().max(1),
            text: line.replace('\t', " "),
        }
    }

    /// The line with the part that is meant made unreadable.
    fn masked(&self) -> String {
        let meant = self.column - 1..self.column - 1 + self.length;
        self.text.chars().enumerate().map(|(i, c)| if meant.contains(&i) { '*' } else { c }).collect()
    }
}

/// A line of a file with the passwords inside its URLs made unreadable.
fn mask_urls(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || c == '"' || c == '\'').unwrap_or(after.len());
        let (url, tail) = after.split_at(end);
        match (url.find(':'), url.rfind('@')) {
            (Some(colon), Some(at)) if colon < at => {
                out.push_str(&url[..=colon]);
                out.extend(url[colon + 1..at].chars().map(|_| '*'));
                out.push_str(&url[at..]);
            }
            _ => out.push_str(url),
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_error_points_at_its_line() {
        let text = "a = 1\ncolum = \"expires_at\"\n";
        let diagnostic = Diagnostic::new(Place::File(6..11), "unknown key `colum`").hint("did you mean `column`?");
        assert_eq!(
            render(vec![diagnostic], "ebb.toml", text),
            "error: unknown key `colum`\n --> ebb.toml:2:1\n  |\n2 | colum = \"expires_at\"\n  | ^^^^^ did you mean `column`?"
        );
    }

    #[test]
    fn two_places_are_shown_in_order() {
        let text = "a = 1\nb = 2\nc = 3\na = 4";
        let diagnostic =
            Diagnostic { other: Some((0..1, "first here")), ..Diagnostic::new(Place::File(18..19), "twice") };
        assert_eq!(
            render(vec![diagnostic.hint("again here")], "f", text),
            "error: twice\n --> f:4:1\n  |\n1 | a = 1\n  | - first here\n...\n4 | a = 4\n  | ^ again here"
        );
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(mask_urls("url = 'pg://u:p:w@h/d' # x"), "url = 'pg://u:***@h/d' # x");
        assert_eq!(mask_urls("url = \"http://host:80/a\""), "url = \"http://host:80/a\"");
        let secret = Diagnostic { secret: true, ..Diagnostic::new(Place::File(4..9), "no") };
        assert!(render(vec![secret], "f", "k = 'abc'").contains("1 | k = *****\n"));
    }

    proptest! {
        #[test]
        fn any_span_of_any_text_can_be_shown(text in "[a\u{e9}\r\n\t:/@ ]{0,40}", start in 0_usize..50, len in 0_usize..50) {
            render(vec![Diagnostic::new(Place::File(start..start + len), "x")], "f", &text);
        }
    }
}
