//! Expressions that people write (`where`, `set`): checked by the server's own parser, never by a copy of it.
//! Invariants: what gets out of here is one boolean expression over one table, without subqueries, that calls only
//! immutable or stable functions, none of which is a stranger's, and its text means the same wherever no stranger can
//! create anything.

use sqlx::{AssertSqlSafe, PgConnection};

use super::{Ident, Relation};
use crate::{Error, Result, sql};

/// A boolean expression as the server understood it. `Display` writes the canonical SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expression {
    text: String,
    /// It uses the row as a whole, by its table's name: on another table that name means nothing.
    whole_row: bool,
}

impl Expression {
    /// Makes sure that the expression, which was checked on one table, can be used on a leaf of it.
    pub fn usable_on(&self, checked_on: &Relation, leaf: &Relation) -> Result<()> {
        if self.whole_row && checked_on != leaf {
            return Err(Error::config(format!("it uses the whole row, and {leaf} is another table than {checked_on}"))
                .with_hint("name the columns; a partition's row is of its own type"));
        }
        Ok(())
    }
}

impl std::fmt::Display for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "({})", self.text)
    }
}

/// A value that a column is to be set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The value, as the server understood it.
    pub value: Expression,
    /// The condition that it would change the row.
    pub differs: Expression,
    /// It is another value at another time (`now()`), so that a row differs from it again and again.
    pub moves: bool,
}

impl Change {
    /// It is null, whatever the row has.
    pub fn is_null(&self) -> bool {
        self.value.text == "NULL" || self.value.text.starts_with("NULL::")
    }
}

/// Checks a filter against the table it is for. Must be called inside a transaction; leaves nothing behind.
pub async fn filter(connection: &mut PgConnection, relation: &Relation, typed: &str) -> Result<Expression> {
    one_expression(typed)?;
    let Read { text, whole_row, .. } = probe(connection, relation, typed).await?;
    Ok(Expression { text, whole_row })
}

/// Whether the server proves that no row of a table, whatever rows come, satisfies both conditions. It goes by these alone: what rows
/// there are today, and constraints, which may go, prove nothing. Must be called inside a transaction; leaves nothing behind.
pub(crate) async fn exclude(
    connection: &mut PgConnection,
    relation: &Relation,
    (one, other): (&str, &str),
) -> Result<bool> {
    sqlx::raw_sql("SAVEPOINT ebb_exclude").execute(&mut *connection).await?;
    let proven = refuted(connection, relation, (one, other)).await;
    sqlx::raw_sql("ROLLBACK TO SAVEPOINT ebb_exclude; RELEASE SAVEPOINT ebb_exclude").execute(connection).await?;
    match proven {
        Err(error) if error.is_unavailable() => Err(error),
        // A condition that cannot be read says nothing.
        proven => Ok(proven.unwrap_or(false)),
    }
}

/// The planner leaves out what contradicts itself, also on an empty table of the same columns that has no constraint.
async fn refuted(connection: &mut PgConnection, relation: &Relation, (one, other): (&str, &str)) -> Result<bool> {
    let (one, other) = (filter(connection, relation, one).await?, filter(connection, relation, other).await?);
    let name = &relation.name;
    let steps = format!(
        "SET LOCAL constraint_exclusion = on; SET LOCAL row_security = on; \
         CREATE TEMPORARY TABLE {name} ON COMMIT DROP AS SELECT * FROM {relation} WITH NO DATA"
    );
    sqlx::raw_sql(AssertSqlSafe(steps)).execute(&mut *connection).await?;
    let explain = format!("EXPLAIN (COSTS OFF) SELECT FROM pg_temp.{name} WHERE {one} AND {other}");
    let plan: Vec<String> = sqlx::query_scalar(AssertSqlSafe(explain)).persistent(false).fetch_all(connection).await?;
    Ok(plan.iter().any(|line| line.trim() == "One-Time Filter: false"))
}

/// Checks a value that a column is to be set to.
pub async fn change(connection: &mut PgConnection, relation: &Relation, column: &Ident, typed: &str) -> Result<Change> {
    const DISTINCT: &str = " IS DISTINCT FROM";
    one_expression(typed)?;
    // The server writes "is distinct from null" in another way.
    if typed.trim().eq_ignore_ascii_case("null") {
        let of = |text: String| Expression { text, whole_row: false };
        return Ok(Change { value: of("NULL".into()), differs: of(format!("{column} IS NOT NULL")), moves: false });
    }
    let read = probe(connection, relation, &format!("{column}{DISTINCT} (\n{typed}\n)")).await?;
    // "(column IS DISTINCT FROM value)", where column is at least as long as its name, and some values have lines of their own.
    let inside = read.text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(&read.text);
    let name_ends = (column.as_str().len()..inside.len()).find(|at| inside.is_char_boundary(*at));
    let value = name_ends
        .and_then(|at| inside[at..].split_once(DISTINCT))
        .map(|(_, value)| Expression { text: value.trim_start().to_owned(), whole_row: read.whole_row })
        .ok_or_else(|| Error::failed(format!("the server wrote {} for {column}", read.text)))?;
    // As the column will have it: what it rounds would differ from itself for ever.
    let sql_type = type_of(connection, relation, column).await?;
    let text = format!("{column}{DISTINCT} ({})::{sql_type}", value.text);
    let differs = Expression { text, whole_row: read.whole_row };
    Ok(Change { value, differs, moves: read.moves })
}

/// The type of a column, with its length or scale, whatever the search path is.
async fn type_of(connection: &mut PgConnection, relation: &Relation, column: &Ident) -> Result<String> {
    let found: Option<String> = sqlx::query_scalar(
        "SELECT CASE n.nspname WHEN 'pg_catalog' THEN format_type(a.atttypid, a.atttypmod) ELSE format('%I.%I', n.nspname, t.typname) END
         FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace n ON n.oid = t.typnamespace
         WHERE a.attrelid = $1::regclass AND a.attname = $2 AND NOT a.attisdropped",
    )
    .persistent(false)
    .bind(relation.to_string())
    .bind(column.as_str())
    .fetch_optional(connection)
    .await?;
    found.ok_or_else(|| Error::failed(format!("{} has no column {column}", relation.label())))
}

/// Checks a question about a row of a table that may look at other tables too. What comes back is a query that gives
/// every row's key (`ebb:k0`, `ebb:k1`, …) and the answer (`ebb:unless`), as the server understood it.
pub async fn question(
    connection: &mut PgConnection,
    relation: &Relation,
    key: &[Ident],
    typed: &str,
) -> Result<String> {
    one_expression(typed)?;
    let columns: Vec<String> =
        key.iter().enumerate().map(|(at, name)| format!("{}.{name} AS \"ebb:k{at}\"", relation.name)).collect();
    let steps = format!(
        "SAVEPOINT ebb_probe; SET LOCAL standard_conforming_strings = on; SET LOCAL search_path = {}, public",
        relation.schema
    );
    sqlx::raw_sql(AssertSqlSafe(steps)).execute(&mut *connection).await?;
    let view = format!(
        "CREATE TEMPORARY VIEW ebb_question AS SELECT {}, ((\n{typed}\n) IS TRUE) AS \"ebb:unless\" FROM {relation}",
        columns.join(", ")
    );
    let made = sqlx::query(AssertSqlSafe(view)).persistent(false).execute(&mut *connection).await;
    let read = match made {
        Err(error) => Err(explain(error.into())),
        Ok(_) => read_question(connection, relation).await,
    };
    sqlx::raw_sql("ROLLBACK TO SAVEPOINT ebb_probe; RELEASE SAVEPOINT ebb_probe").execute(connection).await?;
    read
}

async fn read_question(connection: &mut PgConnection, relation: &Relation) -> Result<String> {
    sqlx::raw_sql("SET LOCAL search_path = pg_catalog").execute(&mut *connection).await?;
    let (tree, text): (String, String) = sqlx::query_as(
        "SELECT r.ev_action::text, pg_get_viewdef(r.ev_class) FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
         WHERE c.relname = 'ebb_question' AND c.relnamespace = pg_my_temp_schema()",
    )
    .persistent(false)
    .fetch_one(&mut *connection)
    .await?;
    refuse_strangers(connection, relation, &tree).await?;
    refuse_volatile(connection, &tree).await?;
    Ok(text.trim_end().trim_end_matches(';').to_owned())
}

/// Whether anything in a tree is another value at another time; what is volatile is refused.
async fn refuse_volatile(connection: &mut PgConnection, tree: &str) -> Result<bool> {
    let mut functions = numbers_after(tree, ":funcid ");
    functions.extend(numbers_after(tree, ":opfuncid "));
    let called: Option<(String, bool)> = sql!("volatile_calls" as (String, bool))
        .bind(&functions)
        .bind(numbers_after(tree, ":opno "))
        .bind(numbers_after(tree, ":resulttype "))
        .fetch_optional(&mut *connection)
        .await?;
    match called {
        Some((function, true)) => Err(Error::config(format!("it calls {function}, which is volatile"))
            .with_hint("only immutable and stable functions may decide what is deleted")),
        stable => Ok(stable.is_some()),
    }
}

/// Refuses what somebody put beside the table who has no say over it: it would run with the rights of a node.
async fn refuse_strangers(connection: &mut PgConnection, relation: &Relation, tree: &str) -> Result<()> {
    let functions: Vec<i64> = [":funcid ", ":opfuncid ", ":aggfnoid ", ":winfnoid "]
        .into_iter()
        .flat_map(|field| numbers_after(tree, field))
        .collect();
    let found: Option<(String, String)> = sql!("strange_calls" as (String, String))
        .bind(relation.to_string())
        .bind(functions)
        .bind(numbers_after(tree, ":opno "))
        .fetch_optional(connection)
        .await?;
    let Some((function, owner)) = found else { return Ok(()) };
    Err(Error::config(format!("it calls {function}, which is {owner}'s, in a schema where others may create"))
        .with_hint(format!(
            "name the function that is meant with its schema (pg_catalog.…), or ALTER FUNCTION {function} OWNER TO the table's owner"
        )))
}

/// An expression as the server wrote it back.
struct Read {
    text: String,
    moves: bool,
    whole_row: bool,
}

/// The server reads the expression as a CHECK of a temporary table of the same shape: that alone forbids subqueries,
/// aggregates and anything that is not boolean, and gives the parsed tree to look for volatile calls in.
async fn probe(connection: &mut PgConnection, relation: &Relation, expression: &str) -> Result<Read> {
    let (schema, name) = (&relation.schema, &relation.name);
    let steps = format!(
        "SAVEPOINT ebb_probe; SET LOCAL standard_conforming_strings = on; \
         CREATE TEMPORARY TABLE {name} (LIKE {relation}) ON COMMIT DROP; \
         SET LOCAL search_path = {schema}, public"
    );
    sqlx::raw_sql(AssertSqlSafe(steps)).execute(&mut *connection).await.map_err(on_primary_only)?;
    let check = format!("ALTER TABLE pg_temp.{name} ADD CONSTRAINT ebb_probe CHECK (\n{expression}\n)");
    // The extended protocol takes exactly one statement, whatever the text holds.
    let checked = sqlx::query(AssertSqlSafe(check)).persistent(false).execute(&mut *connection).await;
    let read = match checked {
        Err(error) => Err(explain(error.into())),
        Ok(_) => read_back(connection, relation).await,
    };
    sqlx::raw_sql("ROLLBACK TO SAVEPOINT ebb_probe; RELEASE SAVEPOINT ebb_probe").execute(connection).await?;
    read
}

async fn read_back(connection: &mut PgConnection, relation: &Relation) -> Result<Read> {
    sqlx::raw_sql("SET LOCAL search_path = pg_catalog").execute(&mut *connection).await?;
    let (mut tree, text): (String, String) = sqlx::query_as(
        "SELECT conbin::text, pg_get_expr(conbin, conrelid) FROM pg_constraint
         WHERE conname = 'ebb_probe' AND connamespace = pg_my_temp_schema()",
    )
    .persistent(false)
    .fetch_one(&mut *connection)
    .await?;
    let mut moves = tree.contains("{SQLVALUEFUNCTION ");
    let whole_row = tree.contains(":varattno 0 ");
    // A cast to a domain runs the domain's checks, which may cast in turn.
    let checks: Vec<String> = sql!("domain_checks" scalar String)
        .bind(numbers_after(&tree, ":resulttype "))
        .fetch_all(&mut *connection)
        .await?;
    tree.extend(checks);
    refuse_strangers(connection, relation, &tree).await?;
    moves |= refuse_volatile(connection, &tree).await?;
    Ok(Read { text, moves, whole_row })
}

fn numbers_after(tree: &str, field: &str) -> Vec<i64> {
    tree.match_indices(field)
        .filter_map(|(at, _)| tree[at + field.len()..].split([' ', '}', ')']).next()?.parse().ok())
        .filter(|oid| *oid != 0)
        .collect()
}

/// Looking at everything else works on a replica too, so that this is no reason to give up on the server.
fn on_primary_only(error: sqlx::Error) -> Error {
    let error = Error::from(error);
    match error.sqlstate().as_deref() {
        Some("25006") => Error::refused("a read-only replica cannot check an expression").with_hint("ask the primary"),
        _ => error,
    }
}

fn explain(error: Error) -> Error {
    let message = error.to_string();
    match error.sqlstate().as_deref() {
        Some("0A000") if message.contains("subquer") => {
            Error::config("it has a subquery").with_hint("a filter looks at its own row only")
        }
        Some("0A000" | "42803" | "42P20") => Error::config(message.replace("check constraints", "a filter")),
        Some("42804") => {
            Error::config("it is not a boolean expression").with_hint("write a condition, like status = 'sent'")
        }
        // Syntax, names, types and values: what was written is wrong. Rights are not.
        Some(code) if code != "42501" && (code.starts_with("42") || code.starts_with("22") || code == "3F000") => {
            Error::config(message)
        }
        _ => error,
    }
}

/// Refuses what could end the expression early: a second statement, a comment, an unbalanced bracket, a parameter.
fn one_expression(typed: &str) -> Result<()> {
    let refuse = |what: &str| Err(Error::config(what.to_owned()).with_hint("write one boolean expression"));
    if typed.trim().is_empty() {
        return refuse("it is empty");
    }
    let mut open = Vec::new();
    let mut chars = typed.chars().peekable();
    let mut before = ' ';
    while let Some(c) = chars.next() {
        match c {
            '\0' => return refuse("it has a NUL character"),
            ';' => return refuse("it has a semicolon"),
            '$' if !before.is_alphanumeric() && before != '_' => return refuse("it has a $ outside of a string"),
            '-' if chars.peek() == Some(&'-') => return refuse("it has a comment"),
            '/' if chars.peek() == Some(&'*') => return refuse("it has a comment"),
            '(' | '[' => open.push(c),
            ')' if open.pop() != Some('(') => return refuse("its brackets do not match"),
            ']' if open.pop() != Some('[') => return refuse("its brackets do not match"),
            '\'' => {
                let escapes = matches!(before, 'e' | 'E');
                skip_quoted(&mut chars, '\'', escapes).ok_or_else(|| Error::config("a string in it does not end"))?;
            }
            '"' => {
                skip_quoted(&mut chars, '"', false).ok_or_else(|| Error::config("a quoted name in it does not end"))?;
            }
            _ => {}
        }
        before = c;
    }
    if open.is_empty() { Ok(()) } else { refuse("its brackets do not match") }
}

/// Moves past the closing quote; a doubled quote is part of the text.
fn skip_quoted(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, quote: char, escapes: bool) -> Option<()> {
    loop {
        match chars.next()? {
            '\\' if escapes => {
                chars.next()?;
            }
            c if c == quote => {
                if chars.peek() != Some(&quote) {
                    return Some(());
                }
                chars.next();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::one_expression;

    #[test]
    fn tricks_that_end_an_expression_early_are_refused() {
        for trick in [
            "",
            " ",
            "true; drop table x",
            "true -- and",
            "true /* x */",
            "true) or (true",
            "(a",
            "a]",
            "a = 'x",
            "a = \"x",
            "$1 = 1",
            "$$x$$ = a",
            "a = E'\\'",
            "\0",
        ] {
            assert!(one_expression(trick).is_err(), "{trick:?} passed");
        }
        for fine in
            ["a = 'it''s; -- fine'", "\"a;b\" > 1", "a[1] = any(array[1,2])", "a = E'\\''", "a$b = 1", "(a) or (b)"]
        {
            assert!(one_expression(fine).is_ok(), "{fine:?} refused");
        }
    }
}
