//! What a change of a retain policy needs somebody to agree to. Invariants: a change that makes subjects due takes effect
//! only once that number was seen and agreed to; a floor goes down only with a reason, by whoever owns the schema.

use sqlx::PgConnection;

use super::store;
use crate::policy::{Kind, Policy, Retain};
use crate::{Error, Result, policy};

/// What somebody has agreed to.
#[derive(Debug, Clone, Default)]
pub struct Consent {
    /// Subjects may become due by the change.
    pub confirmed: bool,
    /// Why a floor goes down.
    pub reason: Option<String>,
}

impl Consent {
    /// Refuses a change that nobody has agreed to.
    pub(crate) async fn covers(&self, connection: &mut PgConnection, wanted: &Policy) -> Result<()> {
        let Policy::Retain(wanted) = wanted else { return Ok(()) };
        let name = wanted.name.as_str();
        let stored = policy::store::all(connection).await?;
        let before = stored.iter().find(|stored| stored.kind == Kind::Retain && stored.name == name);
        let Some(Ok(Policy::Retain(before))) = before.map(|stored| stored.policy()) else { return Ok(()) };
        self.covers_floor(connection, &before, wanted).await?;
        let (now, then) = super::made_due(connection, wanted).await?;
        if then > now && !self.confirmed {
            return Err(Error::refused(format!("policy {name}: {} more subjects would be due at once", then - now))
                .with_hint("say --yes to let them go"));
        }
        Ok(())
    }

    async fn covers_floor(&self, connection: &mut PgConnection, before: &Retain, wanted: &Retain) -> Result<()> {
        let Some(floor) = before.floor else { return Ok(()) };
        if wanted.floor.is_some_and(|wanted| wanted.approximate() >= floor.approximate()) {
            return Ok(());
        }
        let name = wanted.name.as_str();
        if self.reason.as_deref().is_none_or(|reason| reason.trim().is_empty()) {
            return Err(Error::refused(format!("the floor {floor} of policy {name} would go down"))
                .with_hint("say why: --reason \"…\""));
        }
        if !store::is_admin(connection).await? {
            return Err(Error::refused(format!("lowering the floor of policy {name} needs role admin"))
                .with_hint("do it as a member of the role that owns the ebb schema"));
        }
        let mut entry = crate::audit::Entry::new("floor", "ebb");
        entry.policy = Some(name.to_owned());
        entry.details = serde_json::json!({
            "from": floor.to_string(), "to": wanted.floor.map(|floor| floor.to_string()), "reason": self.reason,
        });
        entry.insert(connection).await?;
        Ok(())
    }
}
