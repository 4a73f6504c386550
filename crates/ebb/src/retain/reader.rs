//! Which columns of a table its policies go by. Invariant: a row that stays loses none of those that decide when it goes, or its
//! own policy would take it by another term than before.

use sqlx::PgConnection;

use super::keeper::Surroundings;
use super::store;
use crate::Result;
use crate::pg::catalog;
use crate::policy::{self, Policy, Retain, RetainForm};

/// What a policy reads of the rows of a table.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    pub(crate) table: u32,
    pub(crate) policy: String,
    /// Without these a row's term is another.
    needs: Vec<String>,
    /// Conditions and names in which others may be.
    mentions: Vec<String>,
}

impl Reader {
    pub(crate) fn needs(&self, column: &str) -> bool {
        self.needs.iter().any(|name| name == column)
    }

    /// Whether a column may be read, as far as words tell.
    pub(crate) fn mentions(&self, column: &str) -> bool {
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
        let column = column.to_lowercase();
        self.mentions.iter().any(|text| text.to_lowercase().split(|letter| !is_part(letter)).any(|word| word == column))
    }
}

/// What policies read that the database has or will have, this one among them.
pub(crate) async fn readers(
    connection: &mut PgConnection,
    own: &Retain,
    among: Surroundings<'_>,
) -> Result<Vec<Reader>> {
    let stored = if among.installed { policy::store::all(connection).await? } else { Vec::new() };
    let is_own = |policy: &Policy| matches!(policy, Policy::Retain(retain) if retain.name == own.name);
    let known = stored.iter().filter(|stored| stored.enabled).filter_map(|stored| stored.policy().ok());
    let mut policies: Vec<Policy> = known.filter(|policy| !is_own(policy)).collect();
    let new = |retain: &&Retain| !policies.iter().any(|known| known.name() == retain.name.as_str());
    let planned: Vec<Policy> =
        among.planned.iter().filter(new).filter(|retain| retain.enabled).cloned().map(Policy::Retain).collect();
    policies.extend(planned.into_iter().filter(|policy| !is_own(policy)));
    policies.push(Policy::Retain(own.clone()));
    let mut readers = Vec::new();
    for policy in &policies {
        readers.extend(reader(connection, policy).await?);
    }
    Ok(readers)
}

async fn reader(connection: &mut PgConnection, policy: &Policy) -> Result<Option<Reader>> {
    let (mut needs, mut mentions) = (Vec::new(), Vec::new());
    let typed = match policy {
        Policy::Retain(retain) => {
            match &retain.form {
                RetainForm::Direct(direct) => {
                    needs.push(&direct.column);
                    mentions.extend(direct.filter.clone());
                }
                RetainForm::Subjects(subjects) => {
                    needs.push(&subjects.deleted_at);
                    mentions.extend(subjects.unless.clone());
                }
            }
            mentions.extend(retain.tenant.clone());
            needs.extend(retain.tenant.iter().filter(|_| retain.tenant_override));
            &retain.table
        }
        Policy::Expire(expire) => {
            needs.push(&expire.column);
            mentions.extend(expire.filter.clone());
            &expire.table
        }
        _ => return Ok(None),
    };
    let Ok(table) = catalog::table(connection, typed).await else { return Ok(None) };
    let mut resolved = Vec::new();
    for name in needs {
        if let Ok(found) = catalog::column(connection, &table.relation, table.oid, name).await {
            resolved.push(found.name.as_str().to_owned());
        }
    }
    let whole = store::partition_of(connection, table.oid).await?.map_or(table.oid, |(whole, _)| whole);
    Ok(Some(Reader { table: whole, policy: policy.name().to_owned(), needs: resolved, mentions }))
}

#[cfg(test)]
mod tests {
    use super::Reader;

    #[test]
    fn a_condition_mentions_whole_words() {
        let reader = Reader {
            table: 1,
            policy: "posts".into(),
            needs: vec!["created_at".into()],
            mentions: vec!["\"Tenant\" = 'a' AND state_id IS NULL".into()],
        };
        assert!(reader.needs("created_at") && !reader.needs("tenant"));
        assert!(reader.mentions("Tenant") && reader.mentions("state_id"));
        assert!(!reader.mentions("state") && !reader.mentions("id"));
    }
}
