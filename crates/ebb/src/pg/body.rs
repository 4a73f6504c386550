//! The text of a function that somebody wrote, read as words: what it assigns, what it updates. It is never run to find
//! out, because it can do anything; what it composes while it runs is not seen.

/// What of its row a trigger's function sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Column(String),
    /// All of it at once.
    Row,
}

/// `NEW.c := …`, `NEW.c = …`, `… INTO …, NEW.c`, or all of NEW; with where the value begins that is assigned.
pub(crate) fn assigned(words: &[String]) -> Vec<(Target, Option<usize>)> {
    let mut found = Vec::new();
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let target = |at: usize| match word(at + 1) {
        "." => (Target::Column(name(word(at + 2))), at + 3),
        _ => (Target::Row, at + 1),
    };
    for at in 0..words.len() {
        if begins(words, at) && word(at) == "new" {
            let (target, after) = target(at);
            if matches!(word(after), ":=" | "=") {
                found.push((target, Some(after + 1)));
            }
        }
        if word(at) == "into" && word(at.saturating_sub(1)) != "insert" {
            let targets = targets(words, at + 1).into_iter().filter(|&at| word(at) == "new");
            found.extend(targets.map(|at| (target(at).0, None)));
        }
    }
    found
}

/// Where each variable of a list after INTO begins; what is not joined to it by a comma is read, not set.
fn targets(words: &[String], from: usize) -> Vec<usize> {
    let is = |at: usize, mark: &str| words.get(at).is_some_and(|word| word == mark);
    let mut at = if is(from, "strict") { from + 1 } else { from };
    let mut found = vec![at];
    loop {
        at += 1;
        while is(at, ".") {
            at += 2;
        }
        if !is(at, ",") {
            return found;
        }
        at += 1;
        found.push(at);
    }
}

/// The tables that it updates, each with the columns that it sets there.
pub(crate) fn updated(words: &[String]) -> Vec<(String, Vec<String>)> {
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let mut found = Vec::new();
    for at in (0..words.len()).filter(|&at| word(at) == "update") {
        if !begins(words, at) && !matches!(word(at - 1), "(" | ")") {
            continue;
        }
        let mut table = at + 1 + usize::from(word(at + 1) == "only");
        while word(table + 1) == "." {
            table += 2;
        }
        // An alias may stand between, with or without AS.
        if let Some(set) = (table + 1..table + 5).find(|&at| word(at) == "set") {
            found.push((name(word(table)), set_columns(&words[set + 1..])));
        }
    }
    found
}

/// The columns of `a = …, (b, c) = …`, up to the end of the list.
fn set_columns(words: &[String]) -> Vec<String> {
    let (mut columns, mut depth, mut value) = (Vec::new(), 0, false);
    for word in words {
        match word.as_str() {
            ";" | "where" | "from" | "returning" if depth == 0 => break,
            "(" => depth += 1,
            ")" if depth == 0 => break,
            ")" => depth -= 1,
            "=" if depth == 0 => value = true,
            "," if depth == 0 => value = false,
            "," => {}
            column if !value => columns.push(name(column)),
            _ => {}
        }
    }
    columns
}

/// Whether a statement begins there.
fn begins(words: &[String], at: usize) -> bool {
    at == 0 || matches!(words[at - 1].as_str(), ";" | "begin" | "atomic" | "then" | "else" | "loop" | ">>")
}

/// A name as it is written: quoted it is what it is, and without quotes in lower case.
fn name(written: &str) -> String {
    written.strip_prefix('"').unwrap_or(written).to_owned()
}

/// The words and marks of a PL/pgSQL text, without comments and strings; a quoted name keeps its first quote. None where
/// something has no end: the server has read it otherwise.
pub(crate) fn words(body: &str) -> Option<Vec<String>> {
    let text: Vec<char> = body.chars().collect();
    let (mut words, mut at) = (Vec::new(), 0);
    let after =
        |from: usize, end: &[char]| (from..text.len()).find(|&at| text[at..].starts_with(end)).map(|at| at + end.len());
    while at < text.len() {
        let here: String = text[at..(at + 2).min(text.len())].iter().collect();
        let c = text[at];
        if here == "--" {
            at = after(at, &['\n']).unwrap_or(text.len());
        } else if here == "/*" {
            at = after(at + 2, &['*', '/'])?;
        } else if here.eq_ignore_ascii_case("e'") {
            at = after_escaped(&text, at + 2)?;
        } else if c == '\'' {
            at = after(at + 1, &['\''])?;
        } else if let Some(tag) = dollar_quote(&text[at..]) {
            at = after(at + tag.len(), tag)?;
        } else if c == '"' {
            let end = after(at + 1, &['"'])?;
            words.push(text[at..end - 1].iter().collect());
            at = end;
        } else if c.is_alphanumeric() || c == '_' {
            let end = (at..text.len()).find(|&at| !text[at].is_alphanumeric() && !"_$".contains(text[at]));
            let end = end.unwrap_or(text.len());
            words.push(text[at..end].iter().collect::<String>().to_lowercase());
            at = end;
        } else if here == ":=" || here == ">>" {
            words.push(here);
            at += 2;
        } else {
            if !c.is_whitespace() {
                words.push(c.to_string());
            }
            at += 1;
        }
    }
    Some(words)
}

/// Where a string ends in which a backslash takes the next character along, and a quote another one.
fn after_escaped(text: &[char], mut at: usize) -> Option<usize> {
    loop {
        match (text.get(at)?, text.get(at + 1)) {
            ('\\', _) | ('\'', Some('\'')) => at += 2,
            ('\'', _) => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// The mark that a string in dollar quotes begins with, and ends with.
fn dollar_quote(text: &[char]) -> Option<&[char]> {
    let end = text.strip_prefix(&['$'])?.iter().position(|c| !c.is_alphanumeric() && *c != '_')? + 1;
    (text[end] == '$' && !text[1].is_ascii_digit()).then_some(&text[..=end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_updates_is_told_with_its_columns() {
        let told = |body: &str| {
            let found = updated(&words(body).unwrap()).into_iter();
            found.map(|(table, columns)| format!("{table}({})", columns.join(","))).collect::<Vec<_>>().join(" ")
        };
        for (body, updates) in [
            ("BEGIN UPDATE profiles SET bio = NULL, note = f(a, b) WHERE id = NEW.id; END", "profiles(bio,note)"),
            ("UPDATE ONLY app.\"Notes\" AS n SET (a, b) = (SELECT x, y FROM z), c = 1", "Notes(a,b,c)"),
            ("IF x THEN UPDATE p q SET \"A\" = 1 FROM r; END IF; -- UPDATE s SET t = 1", "p(A)"),
            ("WITH gone AS (UPDATE p SET a = 1 RETURNING b) SELECT * FROM gone", "p(a)"),
            ("SELECT 1 FROM p FOR UPDATE; INSERT INTO p VALUES (1) ON CONFLICT (id) DO UPDATE SET a = 1;", ""),
            ("EXECUTE 'UPDATE p SET a = 1';", ""),
        ] {
            assert_eq!(told(body), updates, "{body}");
        }
    }
}
