//! The statements of a file, told apart as the server would: what stands in quotes, dollar quotes or comments ends none.

/// What a piece of SQL is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// Names, numbers, operators.
    Code,
    /// A string or a quoted name.
    Quoted,
    /// Said to people.
    Comment,
}

/// The statements of a text, without the semicolons; those that only have comments are left out.
pub(super) fn statements(text: &str) -> Vec<String> {
    let (mut all, mut statement, mut says) = (Vec::new(), String::new(), false);
    let mut end = |statement: &mut String, says: &mut bool| {
        let ended = std::mem::take(statement);
        if std::mem::take(says) {
            all.push(ended.trim().to_owned());
        }
    };
    for (piece, part) in pieces(text) {
        if piece != Piece::Code {
            says |= piece == Piece::Quoted;
            statement += part;
            continue;
        }
        for (n, code) in part.split(';').enumerate() {
            if n > 0 {
                end(&mut statement, &mut says);
            }
            says |= !code.trim().is_empty();
            statement += code;
        }
    }
    end(&mut statement, &mut says);
    all
}

/// The first parameter of a statement (`$1`), if it has one.
pub(super) fn parameter(statement: &str) -> Option<&str> {
    let code = pieces(statement).into_iter().filter(|(piece, _)| *piece == Piece::Code);
    code.filter_map(|(_, code)| {
        let at = code
            .match_indices('$')
            .map(|(at, _)| at)
            .find(|at| code[at + 1..].starts_with(|c: char| c.is_ascii_digit()))?;
        let digits = code[at + 1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(code.len() - at - 1);
        Some(&code[at..=at + digits])
    })
    .next()
}

/// What stands behind EXPLAIN and its options, whatever those are; all of it where there is no EXPLAIN.
pub(super) fn behind_explain(statement: &str) -> &str {
    let said =
        pieces(statement).into_iter().take_while(|(piece, part)| *piece == Piece::Comment || part.trim().is_empty());
    let code = statement[said.map(|(_, part)| part.len()).sum()..].trim_start();
    let Some(mut rest) = after(code, "explain") else { return statement };
    let query = |text: &str| {
        ["(", "select", "with", "values", "table"].iter().any(|word| after(text.trim_start(), word).is_some())
    };
    match rest.strip_prefix('(').filter(|inside| !query(inside)).and_then(|inside| inside.split_once(')')) {
        Some((_, rest)) => rest.trim_start(),
        None => {
            for option in ["analyze", "analyse", "verbose"] {
                rest = after(rest, option).unwrap_or(rest);
            }
            rest
        }
    }
}

/// What follows a word, in whatever case it is.
fn after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(word.len())?;
    let goes_on = word != "(" && rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    (head.eq_ignore_ascii_case(word) && !goes_on).then(|| rest.trim_start())
}

fn pieces(text: &str) -> Vec<(Piece, &str)> {
    let (mut pieces, mut rest, mut code) = (Vec::new(), text, 0);
    while let Some(c) = rest[code..].chars().next() {
        match other(rest, code) {
            None => code += c.len_utf8(),
            Some((piece, length)) => {
                pieces.push((Piece::Code, &rest[..code]));
                pieces.push((piece, &rest[code..code + length]));
                (rest, code) = (&rest[code + length..], 0);
            }
        }
    }
    pieces.push((Piece::Code, rest));
    pieces
}

/// What is not code and begins here, and how long it is.
fn other(text: &str, at: usize) -> Option<(Piece, usize)> {
    let (before, here) = (text[..at].chars().next_back(), &text[at..]);
    let part_of_a_name = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let until = |end: &str, from: usize| here[from..].find(end).map_or(here.len(), |found| from + found + end.len());
    if here.starts_with("--") {
        return Some((Piece::Comment, here.find('\n').unwrap_or(here.len())));
    }
    if here.starts_with("/*") {
        return Some((Piece::Comment, comment(here)));
    }
    if here.starts_with('\'') && matches!(before, Some('e' | 'E')) {
        return Some((Piece::Quoted, escaped(here)));
    }
    match here.chars().next()? {
        '\'' => Some((Piece::Quoted, until("'", 1))),
        '"' => Some((Piece::Quoted, until("\"", 1))),
        '$' if !part_of_a_name => {
            let tag = &here[..1 + here[1..].find('$')? + 1];
            let name = &tag[1..tag.len() - 1];
            let is_name = !name.starts_with(|c: char| c.is_ascii_digit())
                && name.chars().all(|c| c.is_alphanumeric() || c == '_');
            is_name.then(|| (Piece::Quoted, until(tag, tag.len())))
        }
        _ => None,
    }
}

/// How long a comment is; they nest.
fn comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_u32, 0);
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// How long a string with escapes is.
fn escaped(text: &str) -> usize {
    let mut escape = false;
    for (at, c) in text.char_indices().skip(1) {
        match (escape, c) {
            (true, _) => escape = false,
            (false, '\\') => escape = true,
            (false, '\'') => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_statement_by_statement() {
        assert_eq!(statements("-- only words;\nSELECT 1;\n\nSELECT 2\n;\n;"), ["-- only words;\nSELECT 1", "SELECT 2"]);
        let text = "SELECT ';', \"a;b\", E'\\';' /* ; /* ; */ */; SELECT $$ ; $$, $x$ $$; $x$, 'it''s;' -- ;\n, ä";
        assert_eq!(statements(text).len(), 2, "{:?}", statements(text));
        assert!(statements(" -- nothing\n /* ; */ ").is_empty());
        assert_eq!(statements("SELECT 'never ends;"), ["SELECT 'never ends;"]);
    }

    #[test]
    fn parameters_are_told_from_dollar_quotes() {
        assert_eq!(parameter("SELECT '$1', $$ $2 $$ WHERE a = $12 AND b"), Some("$12"));
        assert_eq!(parameter("SELECT a$1, '$1' -- $3"), Some("$1"));
        assert_eq!(parameter("SELECT $x$ $1 $x$"), None);
    }
}
