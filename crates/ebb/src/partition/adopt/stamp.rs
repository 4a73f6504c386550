//! Whether a trigger gives a row its time. A row finds its partition before its triggers fire, so one that sets the
//! partition column has inserts refused. Told from the text of its function, which is not run: somebody's trigger can do
//! anything. What the text does not show, `Stamp::May` says.

/// What the text shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamp {
    No,
    /// It could, and why that cannot be told.
    May(&'static str),
    Yes,
}

/// What a trigger's function is written in, its text, and the trigger's own definition with its arguments.
pub(crate) fn stamp(language: &str, body: &str, definition: &str, column: &str) -> Stamp {
    let argument = definition
        .split_once(" EXECUTE FUNCTION ")
        .is_some_and(|(_, call)| call.contains(&format!("'{column}'")) || call.contains(&format!("('{column},")));
    match language {
        "plpgsql" => words(body)
            .map_or(Stamp::May("its function has a text that Ebb cannot read"), |words| assigned(&words, column)),
        // The server's own set no column but the one that they are told.
        "internal" if !argument => Stamp::No,
        "internal" | "c" if argument => Stamp::May("its function is told the column's name"),
        "c" => Stamp::May("its function has no text"),
        _ if argument || body.contains(column) => Stamp::May("its function names the column"),
        _ => Stamp::No,
    }
}

/// `NEW.c := …`, `NEW.c = …`, `… INTO …, NEW.c`; or all of NEW at once.
fn assigned(words: &[String], column: &str) -> Stamp {
    let mut found = Stamp::No;
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let is_new = |at: usize| word(at) == "new";
    let is_column = |at: usize| is_new(at) && word(at + 1) == "." && same(word(at + 2), column);
    for at in 0..words.len() {
        let begins = at == 0 || matches!(word(at - 1), ";" | "begin" | "then" | "else" | "loop" | ">>");
        let assigns = |at: usize| matches!(word(at), ":=" | "=");
        if begins && is_column(at) && assigns(at + 3) {
            return Stamp::Yes;
        }
        if begins && is_new(at) && assigns(at + 1) {
            found = Stamp::May("its function sets all of the row at once");
        }
        if word(at) == "into" && word(at.saturating_sub(1)) != "insert" {
            for at in targets(words, at + 1).into_iter().filter(|&at| is_new(at)) {
                if is_column(at) {
                    return Stamp::Yes;
                }
                if word(at + 1) != "." {
                    found = Stamp::May("its function sets all of the row at once");
                }
            }
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

/// A name as it is written: quoted it is what it is, and without quotes in lower case.
fn same(written: &str, column: &str) -> bool {
    written == column || written.strip_prefix('"').is_some_and(|quoted| quoted == column)
}

/// The words and marks of a PL/pgSQL text, without comments and strings; a quoted name keeps its first quote. None where
/// something has no end: the server has read it otherwise.
fn words(body: &str) -> Option<Vec<String>> {
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
    fn a_function_that_sets_the_column_is_told_by_its_text() {
        let told = |body: &str| stamp("plpgsql", body, "", "at");
        for body in [
            "BEGIN NEW.at := now(); RETURN NEW; END",
            "begin new . at = now(); return new; end",
            "BEGIN IF NEW.at IS NULL THEN NEW.\"at\":=now(); END IF; RETURN NEW; END",
            "BEGIN SELECT x, y INTO STRICT a, NEW.at FROM z; RETURN NEW; END",
            "BEGIN EXECUTE 'SELECT now()' INTO NEW.at USING 1; RETURN NEW; END",
            r"BEGIN RAISE DEBUG E'it\'s' || E'''\''; NEW.at := now(); RETURN NEW; END",
            "BEGIN RAISE DEBUG '%', $m$it's$m$ || $$'$$; NEW.at := now(); RETURN NEW; END",
            "BEGIN SELECT INTO STRICT a.b, NEW.at x, y FROM z; RETURN NEW; END",
            "BEGIN /* it's late */ NEW.v := 'NEW.v'; -- it's\n NEW.at := now(); RETURN NEW; END",
        ] {
            assert_eq!(told(body), Stamp::Yes, "{body}");
        }
        for body in [
            "BEGIN NEW := jsonb_populate_record(NEW, '{}'); RETURN NEW; END",
            "BEGIN NEW = NEW #= hstore('a', 'b'); RETURN NEW; END",
            "BEGIN SELECT * INTO NEW FROM z; RETURN NEW; END",
            r"BEGIN RAISE DEBUG 'it\'s with standard_conforming_strings off'; RETURN NEW; END",
        ] {
            assert!(matches!(told(body), Stamp::May(_)), "{body}");
        }
        for body in [
            "BEGIN IF NEW.at = OLD.at THEN RETURN NULL; END IF; RETURN NEW; END",
            "BEGIN -- NEW.at := now();\n NEW.v := NEW.at; RETURN NEW; END",
            "BEGIN INSERT INTO log SELECT NEW.at, NEW.*; RAISE NOTICE 'x; NEW.at := 1'; RETURN NEW; END",
            "BEGIN NEW.at_zone := 1; NEW.\"At\" := 2; RETURN NEW; END",
            "BEGIN SELECT NEW.at INTO seen; RETURN NEW; END",
            "BEGIN SELECT INTO seen NEW.at; SELECT INTO x.seen, y NEW.at, 1; RETURN NEW; END",
            r"BEGIN RAISE DEBUG E'\'; NEW.at := 1', $1, $a$ NEW.at := 1; $b$ $a$; RETURN NEW; END",
        ] {
            assert_eq!(told(body), Stamp::No, "{body}");
        }
    }

    #[test]
    fn one_whose_text_says_nothing_may_do_it() {
        let call = |with: &str| format!("CREATE TRIGGER t BEFORE INSERT ON x FOR EACH ROW EXECUTE FUNCTION f({with})");
        assert!(matches!(stamp("c", "f", &call(""), "at"), Stamp::May(_)));
        assert!(matches!(stamp("c", "moddatetime", &call("'at'"), "at"), Stamp::May(_)));
        assert_eq!(stamp("internal", "tsvector_update_trigger_byid", &call("'words', 'v'"), "at"), Stamp::No);
        assert!(matches!(stamp("plpython3u", "TD['new']['at'] = 1", &call(""), "at"), Stamp::May(_)));
        assert_eq!(stamp("plperl", "return;", &call(""), "at"), Stamp::No);
    }
}
