//! The quoting type: the only way a name reaches SQL. Invariant: whatever the name, its text form is one SQL token
//! (or one per part) that names exactly it.

use std::fmt;

/// A column, table, schema or role name. `Display` writes it quoted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ident(String);

impl Ident {
    /// Takes a name as it is in the catalog, unquoted.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name as the catalog has it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Ident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.replace('"', "\"\""))
    }
}

/// A relation with its schema. `Display` writes `"schema"."name"`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Relation {
    /// The schema's name.
    pub schema: Ident,
    /// The relation's name inside it.
    pub name: Ident,
}

impl Relation {
    /// Takes both names as they are in the catalog, unquoted.
    pub fn new(schema: impl Into<String>, name: impl Into<String>) -> Self {
        Self { schema: Ident::new(schema), name: Ident::new(name) }
    }

    /// `schema.name` for people, metrics and logs: quoted only where SQL would need it.
    pub fn label(&self) -> String {
        fn part(name: &Ident) -> String {
            let plain = name.as_str().starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
                && name.as_str().chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            if plain { name.as_str().to_owned() } else { name.to_string() }
        }
        format!("{}.{}", part(&self.schema), part(&self.name))
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

/// A string constant. `Display` writes it quoted, safe under any `standard_conforming_strings`.
#[derive(Debug, Clone)]
pub struct Literal<'a>(pub &'a str);

impl fmt::Display for Literal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.contains('\\') {
            write!(f, " E'{}'", self.0.replace('\\', "\\\\").replace('\'', "''"))
        } else {
            write!(f, "'{}'", self.0.replace('\'', "''"))
        }
    }
}

/// Statements that the server runs at once, as one.
pub(crate) fn block(body: &str) -> String {
    format!("DO {}", quoted(&format!(" {body} ")))
}

/// A body in dollar quotes that nothing in it has, whatever names it is made of.
pub(crate) fn quoted(body: &str) -> String {
    let mut tag = "$ebb$".to_owned();
    while body.contains(&tag) {
        tag.insert(tag.len() - 1, '_');
    }
    format!("{tag}{body}{tag}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_quoted_by_what_it_does_not_have() {
        assert_eq!(block("BEGIN END"), "DO $ebb$ BEGIN END $ebb$");
        assert_eq!(quoted("a$ebb$b$ebb_$"), "$ebb__$a$ebb$b$ebb_$$ebb__$");
    }

    #[test]
    fn quotes_inside_a_name_stay_inside_it() {
        assert_eq!(Ident::new(r#"a"; drop table b; --"#).to_string(), r#""a""; drop table b; --""#);
        assert_eq!(Relation::new("public", "k").label(), "public.k");
        assert_eq!(Relation::new("public", "K x").label(), r#"public."K x""#);
    }

    #[test]
    fn literals_survive_quotes_and_backslashes() {
        assert_eq!(Literal("it's").to_string(), "'it''s'");
        assert_eq!(Literal(r"a\'b").to_string(), r" E'a\\''b'");
    }
}
