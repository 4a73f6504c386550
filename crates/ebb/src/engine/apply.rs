//! How policies come to be what somebody wants: all of a file, or one at runtime. Invariant: what is stored was checked,
//! and agreed to where it makes anybody due, in the same transaction.

use serde_json::Value;
use sqlx::PgConnection;

use super::Engine;
use crate::policy::anchor;
use crate::policy::{self, Change, Kind, Policy, Resources, Spec, Stored, Wanted};
use crate::retain::{self, Approval, Asked, Consent, MadeDue, TreeChange, Trees};
use crate::{Error, Result, gate, pg, resources, schedule};

/// What a change at runtime came to, or would.
#[derive(Debug)]
pub struct Changed {
    /// The policy as it is with it.
    pub policy: Stored,
    /// What it makes due, of a retain policy that erases.
    pub made_due: Option<MadeDue>,
    /// What it makes of the trees of other policies.
    pub trees: Vec<TreeChange>,
    /// A column that it goes by and that is another one than when the policy was applied, in words.
    pub moved: Option<String>,
}

impl Engine {
    /// Checks every wanted policy against the catalog and stores the difference, all or nothing.
    pub async fn apply(&self, wanted: &[Wanted], force: bool, by: &str) -> Result<Vec<Change>> {
        self.apply_with(wanted, force, by, &Consent::default()).await
    }

    /// The same with what somebody has agreed to: subjects that become due, a floor that goes down.
    pub async fn apply_with(&self, wanted: &[Wanted], force: bool, by: &str, consent: &Consent) -> Result<Vec<Change>> {
        let mut tx = self.database.read().await?;
        let asked = Asked { by, consent, admin: false };
        for want in wanted {
            self.check(&mut tx, &want.policy, Some(wanted)).await?;
            asked.covers(&mut tx, &want.policy, Some(wanted)).await?;
        }
        let changes = policy::apply::apply(&mut tx, wanted, force, by).await?;
        for want in wanted {
            if let Policy::Once(namespace) = &want.policy {
                let (ttl, lock) = (namespace.ttl.to_interval(), namespace.lock.to_interval());
                crate::once::set_namespace(&mut tx, namespace.name.as_str(), ttl, lock).await?;
            }
            if let Policy::Resources(resources) = &want.policy {
                self.register(&mut tx, resources).await?;
            }
        }
        for want in wanted {
            if let Policy::Retain(policy) = &want.policy {
                retain::install(&mut tx, policy, by, Approval::Given).await?;
            }
        }
        for gone in changes.iter().filter(|change| change.kind == Kind::Retain && change.is_disable()) {
            retain::withdraw(&mut tx, &gone.name).await?;
        }
        for gone in changes.iter().filter(|change| change.kind == Kind::Once && change.is_disable()) {
            crate::once::remove_namespace(&mut tx, &gone.name).await?;
        }
        retain::one_for_each_table(&mut tx).await?;
        let stored = policy::store::all(&mut tx).await?;
        schedule::follow(&mut tx, &stored).await?;
        gate::follow(&mut tx, &stored).await?;
        for want in wanted {
            anchor::put(&mut tx, &want.policy).await?;
        }
        gate::none_conflicts(&mut tx, &stored, None).await?;
        gate::none_strayed(&mut tx).await?;
        tx.commit().await?;
        Ok(changes)
    }

    /// What `apply` would change.
    pub async fn difference(&self, wanted: &[Wanted]) -> Result<Vec<Change>> {
        let mut tx = self.database.read().await?;
        // Before the first apply there is no schema, and everything is new.
        let stored = match pg::schema_version(&mut tx).await? {
            Some(_) => policy::store::all(&mut tx).await?,
            None => Vec::new(),
        };
        tx.commit().await?;
        Ok(policy::difference(wanted, &stored))
    }

    /// How many events wait in sinks that changes would disable: nobody delivers them from then on.
    pub async fn left_waiting(&self, changes: &[Change]) -> Result<Vec<(String, i64)>> {
        let gone = changes.iter().filter(|change| change.kind == Kind::Sink && change.is_disable());
        let gone: Vec<&str> = gone.map(|change| change.name.as_str()).collect();
        if gone.is_empty() {
            return Ok(Vec::new());
        }
        let mut tx = self.database.read().await?;
        let waiting = schedule::waiting(&mut tx, &gone).await?;
        tx.commit().await?;
        Ok(waiting)
    }

    /// Columns that these policies go by and that are others than when they were applied, in words: somebody has to agree to each.
    pub async fn moved(&self, wanted: &[Wanted]) -> Result<Vec<String>> {
        let mut tx = self.database.read().await?;
        let mut found = Vec::new();
        if pg::schema_version(&mut tx).await?.is_some() {
            for want in wanted {
                found.extend(moved(&mut tx, &want.policy).await?);
            }
        }
        tx.commit().await?;
        Ok(found)
    }

    /// Changes keys of one policy at runtime; a null removes a key. Returns the new version.
    pub async fn set_policy(&self, name: &str, changes: &Spec, by: &str) -> Result<i64> {
        self.set_policy_with(name, changes, by, &Consent::default()).await
    }

    /// The same with what somebody has agreed to.
    pub async fn set_policy_with(&self, name: &str, changes: &Spec, by: &str, consent: &Consent) -> Result<i64> {
        Ok(self.change_keys(name, changes, by, consent, false).await?.policy.version)
    }

    /// The same, and what it comes to; a rehearsal refuses what would be refused, and changes nothing.
    pub async fn change_keys(
        &self,
        name: &str,
        changes: &Spec,
        by: &str,
        consent: &Consent,
        rehearse: bool,
    ) -> Result<Changed> {
        self.change_keys_as(name, changes, &Asked { by, consent, admin: false }, rehearse).await
    }

    /// The same for somebody who has shown to be an administrator.
    pub async fn change_keys_as_admin(
        &self,
        name: &str,
        changes: &Spec,
        by: &str,
        consent: &Consent,
        rehearse: bool,
    ) -> Result<Changed> {
        self.change_keys_as(name, changes, &Asked { by, consent, admin: true }, rehearse).await
    }

    async fn change_keys_as(&self, name: &str, changes: &Spec, asked: &Asked<'_>, rehearse: bool) -> Result<Changed> {
        let merged = |stored: &Stored| {
            let mut spec = stored.spec.clone();
            merge(&mut spec, changes);
            if changes.contains_key("enabled") { spec } else { as_switched(stored, spec) }
        };
        self.change_policy(name, None, merged, asked, rehearse).await
    }

    /// Replaces the keys of one policy at runtime, for somebody who has shown to be an administrator. The error is
    /// "superseded" when its version is not `expected` any more: somebody changed it meanwhile, and this change was made
    /// without knowing.
    pub async fn put_policy(&self, name: &str, spec: &Spec, expected: i64, by: &str, consent: &Consent) -> Result<i64> {
        Ok(self.put_keys(name, spec, Some(expected), by, consent, false).await?.policy.version)
    }

    /// What that would come to, whatever version it has, for somebody who agrees to all of it; changes nothing.
    pub async fn rehearse_policy(&self, name: &str, spec: &Spec, by: &str, consent: &Consent) -> Result<Changed> {
        self.put_keys(name, spec, None, by, consent, true).await
    }

    async fn put_keys(
        &self,
        name: &str,
        spec: &Spec,
        expected: Option<i64>,
        by: &str,
        consent: &Consent,
        rehearse: bool,
    ) -> Result<Changed> {
        let spec = |stored: &Stored| match spec.contains_key("enabled") {
            true => spec.clone(),
            false => as_switched(stored, spec.clone()),
        };
        self.change_policy(name, expected, spec, &Asked { by, consent, admin: true }, rehearse).await
    }

    async fn change_policy(
        &self,
        name: &str,
        expected: Option<i64>,
        spec: impl FnOnce(&Stored) -> Spec,
        asked: &Asked<'_>,
        rehearse: bool,
    ) -> Result<Changed> {
        let mut tx = self.database.read().await?;
        policy::store::lock(&mut tx).await?;
        let stored = match policy::store::find(&mut tx, name).await {
            // Settings that no file has written yet are the defaults, and can be changed like the others.
            Err(error) if error.is_usage() && is_settings(name) => Stored::new(Kind::Settings, name),
            found => found?,
        };
        if let Some(expected) = expected.filter(|expected| *expected != stored.version) {
            let now = stored.version;
            return Err(Error::superseded(format!("policy {name} is at version {now}, not {expected}"))
                .with_hint("look at it again and make the change on top of the newer version"));
        }
        let spec = spec(&stored);
        let changed = Policy::parse(stored.kind, &stored.name, &spec)
            .map_err(|errors| Error::from(errors).context(format!("policy {}", stored.name)))?;
        if spec == stored.spec && stored.is_active() == changed.enabled() {
            return Ok(Changed { policy: stored, made_due: None, trees: Vec::new(), moved: None });
        }
        // Whatever has become of its table, it can be switched off.
        let only_off = switches_off(&stored.spec, &spec);
        if !only_off {
            self.check(&mut tx, &changed, None).await?;
        }
        let made_due = asked.covers(&mut tx, &changed, None).await?;
        let moved = moved(&mut tx, &changed).await?;
        let approval = match &changed {
            Policy::Retain(changed) => retain::at_runtime(&mut tx, &stored, changed).await?,
            _ => Approval::Given,
        };
        let trees = match stored.kind.is_work() {
            true => Trees::read(&mut tx, name).await?,
            false => Trees::default(),
        };
        let put = policy::store::Put {
            kind: stored.kind,
            name: &stored.name,
            spec: &spec,
            enabled: changed.enabled(),
            stopped: None,
            source: policy::store::Source::Runtime,
            by: asked.by,
        };
        policy::store::put(&mut tx, put).await?;
        if let Policy::Once(namespace) = &changed {
            let (ttl, lock) = (namespace.ttl.to_interval(), namespace.lock.to_interval());
            crate::once::set_namespace(&mut tx, &stored.name, ttl, lock).await?;
        }
        if let Policy::Retain(policy) = &changed {
            match only_off {
                true => retain::withdraw(&mut tx, name).await?,
                false => retain::install(&mut tx, policy, asked.by, approval).await?,
            }
            retain::one_for_each_table(&mut tx).await?;
        }
        if let Policy::Resources(resources) = &changed {
            self.register(&mut tx, resources).await?;
        }
        let stored = policy::store::all(&mut tx).await?;
        schedule::follow(&mut tx, &stored).await?;
        gate::follow(&mut tx, &stored).await?;
        anchor::put(&mut tx, &changed).await?;
        gate::none_conflicts(&mut tx, &stored, Some(name)).await?;
        let trees = trees.changed(&mut tx, asked.consent.confirmed, asked.by).await?;
        if changed.enabled() {
            gate::none_strayed(&mut tx).await?;
        }
        let policy = policy::store::find(&mut tx, name).await?;
        match rehearse {
            true => tx.rollback().await?,
            false => tx.commit().await?,
        }
        Ok(Changed { policy, made_due, trees, moved })
    }

    async fn register(&self, connection: &mut PgConnection, policy: &Resources) -> Result<()> {
        let registered = resources::register(connection, &self.database, policy).await;
        registered.map_err(|error| error.context(format!("policy {}", policy.name)))
    }
}

async fn moved(connection: &mut PgConnection, policy: &Policy) -> Result<Option<String>> {
    let moved = anchor::moved(connection, policy).await?.filter(|_| policy.enabled());
    Ok(moved.map(|moved| format!("policy {}: {moved}", policy.name())))
}

/// A change that does not speak of it switches nothing on: a policy that left the file is off, although no key of it says so.
fn as_switched(stored: &Stored, mut spec: Spec) -> Spec {
    if stored.kind.is_work() && !stored.enabled {
        spec.insert("enabled".into(), false.into());
    }
    spec
}

/// Whether a change says nothing but that nodes do not follow the policy any more.
fn switches_off(before: &Spec, after: &Spec) -> bool {
    let but = |spec: &Spec| {
        let mut spec = spec.clone();
        spec.remove("enabled");
        spec
    };
    after.get("enabled") == Some(&Value::Bool(false)) && but(before) == but(after)
}

/// Whether a name is that of settings.
fn is_settings(name: &str) -> bool {
    Kind::Settings.form().sections().contains(&name)
}

/// Adds keys to a spec, also inside its tables; null removes, and a table that becomes empty goes too.
fn merge(spec: &mut Spec, changes: &Spec) {
    for (key, value) in changes {
        match value {
            Value::Null => {
                spec.remove(key);
            }
            Value::Object(inner) => {
                let mut table = match spec.get_mut(key) {
                    Some(Value::Object(table)) => std::mem::take(table),
                    _ => Spec::new(),
                };
                merge(&mut table, inner);
                if table.is_empty() {
                    spec.remove(key);
                } else {
                    spec.insert(key.clone(), Value::Object(table));
                }
            }
            value => {
                spec.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_reaches_into_tables_and_leaves_no_empty_ones() {
        let merged = |spec: Value, changes: Value| {
            let (Value::Object(mut spec), Value::Object(changes)) = (spec, changes) else { panic!("both are objects") };
            merge(&mut spec, &changes);
            Value::Object(spec)
        };
        let spec = json!({ "every": "1h", "batch": { "rows": 10, "pause": "1s" } });
        assert_eq!(
            merged(spec.clone(), json!({ "batch": { "rows": 20 }, "every": null })),
            json!({ "batch": { "rows": 20, "pause": "1s" } })
        );
        assert_eq!(merged(spec, json!({ "batch": { "rows": null, "pause": null } })), json!({ "every": "1h" }));
        assert_eq!(merged(json!({}), json!({ "brake": { "rows": null } })), json!({}));
        assert_eq!(
            merged(json!({ "action": "delete" }), json!({ "action": { "set": { "a": "1" } } })),
            json!({ "action": { "set": { "a": "1" } } })
        );
    }
}
