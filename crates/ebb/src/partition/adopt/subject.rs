//! The table that is to be adopted, as the catalog describes it: everything that must be the same afterwards.

use sqlx::{AssertSqlSafe, PgConnection};

use super::referrers::{self, Referrer};
use super::stamp::{Stamp, stamp};
use crate::pg::{Ident, Literal, Relation};
use crate::{Error, Result, sql};

/// The table itself and its column.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Head {
    pub(crate) oid: i64,
    /// Its name as the server writes it in definitions.
    pub(crate) printed: String,
    pub(crate) schema_name: String,
    pub(crate) table_name: String,
    pub(crate) relkind: String,
    pub(crate) persistence: String,
    pub(crate) is_partition: bool,
    pub(crate) is_typed: bool,
    pub(crate) owner: String,
    pub(crate) owned: bool,
    /// Of the owner and whoever asks, who may not create tables in the schema.
    pub(crate) may_not_create: Vec<String>,
    pub(crate) has_children: bool,
    pub(crate) is_child: bool,
    pub(crate) has_rules: bool,
    pub(crate) access_method: String,
    pub(crate) tablespace: Option<String>,
    pub(crate) replica_identity: String,
    /// Whether row-level security binds its owner, too.
    pub(crate) is_forced: bool,
    pub(crate) comment: Option<String>,
    /// Storage parameters, ready for SET (…).
    pub(crate) options: Option<String>,
    pub(crate) column_name: String,
    pub(crate) column_type: String,
    pub(crate) not_null: bool,
    pub(crate) is_generated: bool,
    pub(crate) kind: Option<String>,
    /// The day on which the column's type ends, for an integer.
    pub(crate) type_ends: Option<String>,
    pub(crate) bytes: i64,
    pub(crate) rows: i64,
    pub(crate) row_transition_tables: bool,
    pub(crate) column_statistics: Vec<String>,
}

impl Head {
    /// Options of columns (`n_distinct`), which partitions do not get from their parent.
    pub(crate) fn column_options(&self) -> impl Iterator<Item = String> {
        self.column_statistics.iter().filter(|change| change.contains(" SET (")).cloned()
    }
}

/// One index, and the constraint it serves.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Index {
    pub(crate) name: String,
    pub(crate) definition: String,
    pub(crate) is_unique: bool,
    pub(crate) is_primary: bool,
    pub(crate) is_exclusion: bool,
    pub(crate) is_valid: bool,
    pub(crate) is_replica_identity: bool,
    pub(crate) is_clustered: bool,
    /// Whether it has as many columns as the server allows.
    pub(crate) is_full: bool,
    /// Whether an expression or condition of it is about the row as a whole.
    pub(crate) is_of_row: bool,
    pub(crate) has_column: bool,
    /// Columns by their names, expressions as the server prints them.
    pub(crate) key_columns: Vec<String>,
    pub(crate) has_expressions: bool,
    /// The same with collations, and what compares them.
    pub(crate) key_expressions: Vec<String>,
    pub(crate) key_operators: Vec<String>,
    pub(crate) predicate: Option<String>,
    pub(crate) nulls_not_distinct: bool,
    /// Columns of which equal values can differ as text, in words.
    pub(crate) unlike_text: Vec<String>,
    pub(crate) constraint_name: Option<String>,
    pub(crate) constraint_definition: Option<String>,
    pub(crate) comment: Option<String>,
    pub(crate) constraint_comment: Option<String>,
    pub(crate) tablespace: Option<String>,
    /// Storage parameters, ready for WITH (…).
    pub(crate) options: Option<String>,
    /// Statistics targets of its expressions, ready for ALTER INDEX.
    pub(crate) column_statistics: Vec<String>,
}

impl Index {
    /// Whether it must be made anew with the partition column in its key.
    pub(crate) fn must_grow(&self) -> bool {
        self.is_unique && !self.has_column
    }

    /// What follows the table's name in its definition: `USING btree (…) …`, with its tablespace.
    pub(crate) fn body(&self) -> String {
        let body = outside_quotes(&self.definition, " USING ").map_or("", |at| &self.definition[at + 1..]);
        let Some(tablespace) = &self.tablespace else { return body.to_owned() };
        let (body, rows) = body.split_at(outside_quotes(body, " WHERE ").unwrap_or(body.len()));
        format!("{body} TABLESPACE {}{rows}", Ident::new(tablespace))
    }

    /// ` DEFERRABLE …` of the constraint that it serves, or nothing.
    pub(crate) fn deferrable(&self) -> &str {
        let definition = self.constraint_definition.as_deref().unwrap_or_default();
        outside_quotes(definition, " DEFERRABLE").map_or("", |at| &definition[at..])
    }

    /// The constraint that it serves, with its storage parameters and tablespace.
    pub(crate) fn constraint(&self) -> Option<String> {
        let (definition, tail) = (self.constraint_definition.as_ref()?, self.deferrable());
        let key = &definition[..definition.len() - tail.len()];
        let options = self.options.as_ref().map_or(String::new(), |options| format!(" WITH ({options})"));
        let tablespace = self.tablespace.as_ref();
        let tablespace =
            tablespace.map_or(String::new(), |name| format!(" USING INDEX TABLESPACE {}", Ident::new(name)));
        Some(format!("{key}{options}{tablespace}{tail}"))
    }
}

/// A foreign key or a check.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Constraint {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) definition: String,
    pub(crate) is_valid: bool,
    pub(crate) is_enforced: bool,
    pub(crate) no_inherit: bool,
    /// Whether it is about the row as a whole.
    pub(crate) is_of_row: bool,
    pub(crate) references_table: Option<String>,
    pub(crate) comment: Option<String>,
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Trigger {
    pub(crate) name: String,
    pub(crate) definition: String,
    pub(crate) enabled: String,
    pub(crate) comment: Option<String>,
    pub(crate) is_row: bool,
    pub(crate) is_before_insert: bool,
    pub(crate) is_before_update: bool,
    pub(crate) is_after_update: bool,
    /// A constraint trigger between two tables (`FROM`).
    pub(crate) is_between: bool,
    body: String,
    language: String,
    /// The name of its table in the definition.
    printed: String,
}

impl Trigger {
    /// Whether its function asks what its table is called.
    pub(crate) fn names_its_table(&self) -> bool {
        let body = self.body.to_lowercase();
        ["tg_table_name", "tg_relname", "tg_relid"].iter().any(|word| body.contains(word))
    }

    /// Whether it gives a row its value of a column, as far as can be told.
    pub(crate) fn stamps(&self, column: &str) -> Stamp {
        stamp(&self.language, &self.body, &self.definition, column)
    }

    /// As it was, on another table.
    pub(crate) fn on(&self, on: &Relation) -> Result<Vec<String>> {
        let before = format!(" ON {} ", self.printed);
        if !self.definition.contains(&before) {
            return Err(Error::failed(format!("cannot read the trigger {}", self.name)));
        }
        let name = Ident::new(&self.name);
        let mut sql = vec![self.definition.replacen(&before, &format!(" ON {on} "), 1)];
        let switch = match self.enabled.as_str() {
            "D" => Some("DISABLE"),
            "R" => Some("ENABLE REPLICA"),
            "A" => Some("ENABLE ALWAYS"),
            _ => None,
        };
        sql.extend(switch.map(|switch| format!("ALTER TABLE {on} {switch} TRIGGER {name}")));
        let comment = self.comment.as_ref();
        sql.extend(comment.map(|text| format!("COMMENT ON TRIGGER {name} ON {on} IS {}", Literal(text))));
        Ok(sql)
    }
}

/// A sequence that belongs to a column.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Sequence {
    pub(crate) schema_name: String,
    pub(crate) name: String,
    pub(crate) column_name: String,
    /// `a`, `d`, or empty for serial.
    pub(crate) identity: String,
    pub(crate) start: i64,
    pub(crate) increment: i64,
    pub(crate) minimum: i64,
    pub(crate) maximum: i64,
    pub(crate) cache: i64,
    pub(crate) cycle: bool,
    pub(crate) grants: Vec<String>,
    /// What else draws numbers from it or reads it.
    pub(crate) users: Vec<String>,
    pub(crate) comment: Option<String>,
}

impl Sequence {
    pub(crate) fn relation(&self) -> Relation {
        Relation::new(&self.schema_name, &self.name)
    }
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct View {
    pub(crate) name: String,
    pub(crate) relkind: String,
    pub(crate) definition: String,
    pub(crate) reads_only: bool,
    pub(crate) needs_key: bool,
    pub(crate) owner: String,
    pub(crate) owned: bool,
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Publication {
    pub(crate) name: String,
    pub(crate) all_tables: bool,
    pub(crate) via_root: bool,
    pub(crate) has_partitioned: bool,
    pub(crate) columns: String,
    pub(crate) has_filter: bool,
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Subscription {
    pub(crate) name: String,
    pub(crate) is_enabled: bool,
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Statistics {
    pub(crate) schema_name: String,
    pub(crate) name: String,
    pub(crate) body: String,
    pub(crate) target: i32,
    pub(crate) comment: Option<String>,
    pub(crate) owner: String,
}

/// A function whose text mentions the table.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Caller {
    pub(crate) who: String,
    pub(crate) on_conflict: bool,
    pub(crate) sets_column: bool,
    pub(crate) names_only: bool,
}

/// All of it.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) head: Head,
    pub(crate) indexes: Vec<Index>,
    pub(crate) constraints: Vec<Constraint>,
    pub(crate) triggers: Vec<Trigger>,
    pub(crate) sequences: Vec<Sequence>,
    pub(crate) views: Vec<View>,
    pub(crate) publications: Vec<Publication>,
    pub(crate) subscriptions: Vec<Subscription>,
    pub(crate) statistics: Vec<Statistics>,
    pub(crate) clingers: Vec<String>,
    /// Rights that the owner gives from then on: which, whose, and who gave them.
    pub(crate) given_on: Vec<(String, String, String)>,
    pub(crate) callers: Vec<Caller>,
    pub(crate) referrers: Vec<Referrer>,
}

impl Subject {
    /// Reads everything in one transaction, so that it belongs together.
    pub(crate) async fn read(
        connection: &mut PgConnection,
        oid: u32,
        column: &str,
        unit: Option<&str>,
    ) -> Result<Subject> {
        let oid = i64::from(oid);
        let head: Head = sql!("subject" as Head).bind(oid).bind(column).bind(unit).fetch_one(&mut *connection).await?;
        let c = &mut *connection;
        Ok(Subject {
            indexes: indexes(&mut *c, oid, column).await?,
            constraints: sql!("constraints" as Constraint).bind(oid).fetch_all(&mut *c).await?,
            triggers: triggers(&mut *c, oid).await?,
            sequences: sequences(&mut *c, oid).await?,
            views: sql!("views" as View).bind(oid).fetch_all(&mut *c).await?,
            publications: publications(&mut *c, oid).await?,
            subscriptions: subscriptions(&mut *c, &[oid]).await?,
            statistics: sql!("statistics" as Statistics).bind(oid).fetch_all(&mut *c).await?,
            clingers: sql!("clingers" scalar String).bind(oid).fetch_all(&mut *c).await?,
            given_on: sql!("given_on" as (String, String, String)).bind(oid).fetch_all(&mut *c).await?,
            callers: callers(&mut *c, &head).await?,
            referrers: referrers::read(&mut *c, oid).await?,
            head,
        })
    }

    pub(crate) fn relation(&self) -> Relation {
        Relation::new(&self.head.schema_name, &self.head.table_name)
    }

    pub(crate) fn column(&self) -> Ident {
        Ident::new(&self.head.column_name)
    }

    pub(crate) fn identities(&self) -> impl Iterator<Item = &Sequence> {
        self.sequences.iter().filter(|sequence| !sequence.identity.is_empty())
    }

    pub(crate) fn serials(&self) -> impl Iterator<Item = &Sequence> {
        self.sequences.iter().filter(|sequence| sequence.identity.is_empty())
    }

    pub(crate) fn foreign_keys(&self) -> impl Iterator<Item = &Constraint> {
        self.constraints.iter().filter(|constraint| constraint.kind == "f")
    }
}

/// Functions that write to the table, and the statements of clients where the server keeps them.
async fn callers(connection: &mut PgConnection, head: &Head) -> Result<Vec<Caller>> {
    let (table, column) = (pattern(&head.table_name), pattern(&head.column_name));
    let mut callers: Vec<Caller> =
        sql!("callers" as Caller).bind(&table).bind(&column).fetch_all(&mut *connection).await?;
    let schema: Option<String> = sql!("statements_schema" scalar String).fetch_optional(&mut *connection).await?;
    if let Some(schema) = schema {
        let sql = format!(
            "SELECT 'the statement ' || quote_literal(left(regexp_replace(q.query, '\\s+', ' ', 'g'), 120)) AS who, q.on_conflict, q.sets_column, q.names_only FROM (
                 SELECT s.query, s.query ~* ('insert\\s+into\\s+(\"?\\w+\"?\\.)?\"?' || $1 || '\"?\\M.*on\\s+conflict\\s*(\\(|on\\s+constraint|do\\M)') AS on_conflict,
                        s.query ~* ('(update\\s+(only\\s+)?|merge\\s+into\\s+(only\\s+)?)(\"?\\w+\"?\\.)?\"?' || $1 || '\"?\\M.*set\\M[^;]*\\m\"?' || $2 || '\"?\\s*=') AS sets_column,
                        s.query ~* ('\\monly\\s+\\(?(\"?\\w+\"?\\.)?\"?' || $1 || '\"?\\M') AS names_only
                 FROM {} s WHERE s.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())) q
             WHERE q.on_conflict OR q.sets_column OR q.names_only ORDER BY 1 LIMIT 20",
            Relation::new(schema, "pg_stat_statements")
        );
        let found = sqlx::query_as(AssertSqlSafe(sql)).persistent(false).bind(&table).bind(&column);
        callers.extend(found.fetch_all(connection).await?);
    }
    Ok(callers)
}

/// The indexes of a table.
pub(crate) async fn indexes(connection: &mut PgConnection, oid: i64, column: &str) -> Result<Vec<Index>> {
    Ok(sql!("indexes" as Index).bind(oid).bind(column).fetch_all(connection).await?)
}

/// The triggers of a table.
pub(crate) async fn triggers(connection: &mut PgConnection, oid: i64) -> Result<Vec<Trigger>> {
    Ok(sql!("triggers" as Trigger).bind(oid).fetch_all(connection).await?)
}

/// The sequences of a table's columns.
pub(crate) async fn sequences(connection: &mut PgConnection, oid: i64) -> Result<Vec<Sequence>> {
    Ok(sql!("sequences" as Sequence).bind(oid).fetch_all(connection).await?)
}

/// The publications that have a table.
pub(crate) async fn publications(connection: &mut PgConnection, oid: i64) -> Result<Vec<Publication>> {
    Ok(sql!("publications" as Publication).bind(oid).fetch_all(connection).await?)
}

/// The subscriptions that write to any of these tables.
pub(crate) async fn subscriptions(connection: &mut PgConnection, oids: &[i64]) -> Result<Vec<Subscription>> {
    Ok(sql!("subscriptions" as Subscription).bind(oids).fetch_all(connection).await?)
}

/// The foreign keys of a table.
pub(crate) async fn foreign_keys(connection: &mut PgConnection, oid: i64) -> Result<Vec<Constraint>> {
    let all = sql!("constraints" as Constraint).bind(oid).fetch_all(connection).await?;
    Ok(all.into_iter().filter(|constraint| constraint.kind == "f").collect())
}

/// The newest value of a column, as text in UTC, and whether there are nulls. Reads an index where there is one, the
/// whole table otherwise.
pub(crate) async fn newest(
    connection: &mut PgConnection,
    relation: &Relation,
    column: &Ident,
    not_null: bool,
) -> Result<(Option<String>, bool)> {
    // By the column of the table: the bare name would be that of its text, which no index has.
    let newest = format!(
        "(SELECT t.{column}::text FROM ONLY {relation} AS t WHERE t.{column} IS NOT NULL ORDER BY t.{column} DESC LIMIT 1)"
    );
    let nulls = match not_null {
        true => "false".to_owned(),
        false => format!("EXISTS (SELECT FROM ONLY {relation} WHERE {column} IS NULL)"),
    };
    let sql = format!("SELECT {newest}, {nulls}");
    Ok(sqlx::query_as(AssertSqlSafe(sql)).persistent(false).fetch_one(connection).await?)
}

/// Where the first partition ends.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Bound {
    pub(crate) bound: String,
    pub(crate) literal: String,
    pub(crate) too_far: bool,
    pub(crate) newest: Option<String>,
}

pub(crate) async fn bound(
    connection: &mut PgConnection,
    kind: &str,
    newest: Option<String>,
    zone: &str,
    by: &str,
    ahead: u64,
) -> Result<Bound> {
    Ok(sql!("bound" as Bound)
        .bind(kind)
        .bind(newest)
        .bind(zone)
        .bind(by)
        .bind(ahead as i32)
        .fetch_one(connection)
        .await?)
}

/// The partitions after the first: name, from, to.
pub(crate) async fn ahead(
    connection: &mut PgConnection,
    head: &Head,
    bound: &str,
    by: &str,
    ahead: u64,
    zone: &str,
) -> Result<Vec<(String, String, String)>> {
    Ok(sql!("ahead" as (String, String, String))
        .bind(head.oid)
        .bind(head.kind.as_deref())
        .bind(bound)
        .bind(by)
        .bind(ahead as i32)
        .bind(zone)
        .bind(&head.column_name)
        .fetch_all(connection)
        .await?)
}

/// A name inside a regular expression of PostgreSQL.
fn pattern(name: &str) -> String {
    name.chars().flat_map(|c| (!c.is_alphanumeric() && c != '_').then_some('\\').into_iter().chain([c])).collect()
}

/// Where a text stands outside of quotes.
pub(crate) fn outside_quotes(text: &str, part: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => {
                if text[at..].starts_with(part) {
                    return Some(at);
                }
                quote = Some(c);
            }
            None if text[at..].starts_with(part) => return Some(at),
            None => {}
        }
    }
    None
}

/// A definition with one more column at the end of its first list: `(a, b) …` becomes `(a, b, c) …`.
pub(crate) fn with_column(definition: &str, column: &Ident) -> Option<String> {
    let open = outside_quotes(definition, "(")?;
    let (mut depth, mut quote) = (0_i32, None);
    for (at, c) in definition[open..].char_indices() {
        match (quote, c) {
            (Some(mark), c) if c == mark => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => {
                depth -= 1;
                if depth == 0 {
                    let (before, after) = definition.split_at(open + at);
                    return Some(format!("{before}, {column}{after}"));
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_joins_the_first_list_whatever_is_inside_it() {
        let at = Ident::new("at");
        let grown = |text: &str| with_column(text, &at).unwrap();
        assert_eq!(grown("PRIMARY KEY (a, b)"), r#"PRIMARY KEY (a, b, "at")"#);
        assert_eq!(
            grown(r#"USING btree (lower((a || '(')), "x)y" DESC) INCLUDE (z) WHERE (b > 0)"#),
            r#"USING btree (lower((a || '(')), "x)y" DESC, "at") INCLUDE (z) WHERE (b > 0)"#
        );
        assert_eq!(grown("UNIQUE NULLS NOT DISTINCT (a)"), r#"UNIQUE NULLS NOT DISTINCT (a, "at")"#);
        assert_eq!(with_column("no list", &at), None);
    }

    #[test]
    fn quotes_hide_what_they_hold() {
        assert_eq!(outside_quotes(r#"ON "a USING b" USING btree"#, " USING "), Some(14));
        assert_eq!(pattern("a.b$"), r"a\.b\$");
    }
}
