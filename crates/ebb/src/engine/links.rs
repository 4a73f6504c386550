//! The restore links of warnings, which the subject key vouches for.

use std::sync::Arc;

use super::Engine;
use crate::audit::{self, SubjectKey};
use crate::retain::{self, Link};
use crate::{Error, Result};

impl Engine {
    /// Looks at the link of a warning; changes nothing.
    pub async fn look_at_link(&self, token: &str) -> Result<Link> {
        let key = self.link_key()?;
        let found = retain::link::look(&self.database, &key, token).await?;
        self.vouches(&key, &found).await?;
        Ok(found)
    }

    /// The token in the link of a deletion's warning, for programs that show the link themselves.
    pub fn link_token(&self, deletion: uuid::Uuid) -> Result<String> {
        Ok(retain::link::token(&*self.link_key()?, deletion))
    }

    /// Uses the link of a warning. True when this call restored its subject; otherwise what the link is by now.
    pub async fn restore_by_link(&self, token: &str) -> Result<(bool, Link)> {
        let key = self.link_key()?;
        let (restored, found) = retain::link::restore(&self.database, &key, token).await?;
        self.vouches(&key, &found).await?;
        Ok((restored, found))
    }

    /// A link that is unknown here is not unknown altogether where the other nodes have another key.
    async fn vouches(&self, key: &SubjectKey, found: &Link) -> Result<()> {
        if !matches!(found, Link::Unknown) {
            return Ok(());
        }
        let mut tx = self.database.read().await?;
        let same = audit::same_subject_key(&mut tx, key).await;
        tx.rollback().await?;
        same
    }

    fn link_key(&self) -> Result<Arc<SubjectKey>> {
        self.keys.subject()?.ok_or_else(|| {
            Error::refused("this node has no subject key, which vouches for links")
                .with_hint("set subject_key in [audit] to the key that the other nodes have")
        })
    }
}
