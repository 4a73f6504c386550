//! Operators by the schema they are in. What a plain `=` means is looked up by the types of both sides in every schema of
//! the path: where PostgreSQL has no operator of exactly these types (of `varchar`, of a domain), anybody who may create
//! one there would run code of his own with the rights of whoever compares. Invariant: what Ebb compares of users' columns
//! is compared by the operators that the type's own indexes use.

use super::Ident;

/// The schema that has the operators which compare values of a type, as values of which other type they do where both sides have to be
/// made one, and by which collation where both have one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operators {
    schema: Ident,
    cast: Option<String>,
    collation: Option<String>,
}

impl Operators {
    pub(crate) fn of(schema: impl Into<String>) -> Self {
        Self { schema: Ident::new(schema), cast: None, collation: None }
    }

    /// The same over values that are made ones of another type first, as SQL names it.
    pub(crate) fn over(self, cast: Option<String>) -> Self {
        Self { cast, ..self }
    }

    /// The type that values are made ones of, where they are.
    pub(crate) fn cast(&self) -> Option<&str> {
        self.cast.as_deref()
    }

    /// The same by a collation, as SQL names it.
    pub(crate) fn collated(self, collation: Option<String>) -> Self {
        Self { collation, ..self }
    }

    /// The collation by which they compare, where one is named.
    pub(crate) fn collation(&self) -> Option<&str> {
        self.collation.as_deref()
    }

    /// Those of PostgreSQL itself.
    pub(crate) fn built_in() -> Self {
        Self::of("pg_catalog")
    }

    /// Those that compare values of two types: what they have in common, or what both can be cast to.
    pub(crate) fn with(&self, other: &Self) -> Self {
        if self == other { self.clone() } else { Self::built_in() }
    }

    /// An operator by its sign.
    pub(crate) fn sign(&self, sign: &str) -> String {
        format!("OPERATOR({}.{sign})", self.schema)
    }

    /// That two values are the same.
    pub(crate) fn same(&self, one: &str, other: &str) -> String {
        let cast = self.cast.as_ref().map_or_else(String::new, |cast| format!("::{cast}"));
        self.equal(one, &format!("{other}{cast}"))
    }

    /// That a value is one of an array.
    pub(crate) fn any(&self, one: &str, array: &str) -> String {
        let cast = self.cast.as_ref().map_or_else(String::new, |cast| format!("::{cast}[]"));
        self.equal(one, &format!("ANY ({array}{cast})"))
    }

    fn equal(&self, one: &str, other: &str) -> String {
        let cast = self.cast.as_ref().map_or_else(String::new, |cast| format!("::{cast}"));
        let by = self.collation.as_ref().map_or_else(String::new, |collation| format!(" COLLATE {collation}"));
        format!("{one}{cast}{by} {} {other}", self.sign("="))
    }
}

/// That a place is beyond another in the order of an index: its values, each with its operators.
pub(crate) fn beyond(place: &[(String, Operators)], other: &[String]) -> String {
    let row = |values: &mut dyn Iterator<Item = &String>| values.cloned().collect::<Vec<_>>().join(", ");
    if let [(_, first), rest @ ..] = place
        && rest.iter().all(|(_, operators)| operators == first)
    {
        let (place, other) = (row(&mut place.iter().map(|(value, _)| value)), row(&mut other.iter()));
        return format!("ROW({place}) {} ROW({other})", first.sign(">"));
    }
    let ways = (0..place.len()).map(|at| {
        let before = place[..at].iter().zip(other).map(|((value, operators), than)| operators.same(value, than));
        let (value, operators) = &place[at];
        let here = format!("{value} {} {}", operators.sign(">"), other[at]);
        before.chain([here]).collect::<Vec<_>>().join(" AND ")
    });
    format!("({})", ways.collect::<Vec<_>>().join(" OR "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_beyond_another_by_the_operators_of_each_column() {
        let (own, text) = (Operators::built_in(), Operators::of("public"));
        let values = |values: &[&str]| values.iter().map(ToString::to_string).collect::<Vec<_>>();
        let plain = [("n.a".to_owned(), own.clone()), ("n.b".to_owned(), own.clone())];
        assert_eq!(beyond(&plain, &values(&["1", "2"])), r#"ROW(n.a, n.b) OPERATOR("pg_catalog".>) ROW(1, 2)"#);
        let mixed = [("n.a".to_owned(), own), ("n.b".to_owned(), text)];
        assert_eq!(
            beyond(&mixed, &values(&["1", "2"])),
            r#"(n.a OPERATOR("pg_catalog".>) 1 OR n.a OPERATOR("pg_catalog".=) 1 AND n.b OPERATOR("public".>) 2)"#
        );
    }
}
