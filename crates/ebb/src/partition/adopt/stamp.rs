//! Whether a trigger gives a row its time. A row finds its partition before its triggers fire, so one that sets the
//! partition column has inserts refused. Told from the text of its function, which is not run: somebody's trigger can do
//! anything. What the text does not show, `Stamp::May` says.

use crate::pg::body::{self, Target};

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
        "plpgsql" => body::words(body)
            .map_or(Stamp::May("its function has a text that Ebb cannot read"), |words| assigned(&words, column)),
        // The server's own set no column but the one that they are told.
        "internal" if !argument => Stamp::No,
        "internal" | "c" if argument => Stamp::May("its function is told the column's name"),
        "c" => Stamp::May("its function has no text"),
        _ if argument || body.contains(column) => Stamp::May("its function names the column"),
        _ => Stamp::No,
    }
}

fn assigned(words: &[String], column: &str) -> Stamp {
    let targets: Vec<Target> = body::assigned(words).into_iter().map(|(target, _)| target).collect();
    match targets.contains(&Target::Column(column.to_owned())) {
        true => Stamp::Yes,
        false if targets.contains(&Target::Row) => Stamp::May("its function sets all of the row at once"),
        false => Stamp::No,
    }
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
