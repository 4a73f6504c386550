//! The public keys and the published seal that a verification goes by. Read when they are needed: `ebb apply` may
//! create them after the node started, and the seal moves on.

use std::path::PathBuf;

use ebb::Result;
use ebb::audit::{Destination, Published, TrustedKeys};
use ebb::config::AuditSettings;

/// Where they are.
#[derive(Debug)]
pub(crate) struct Trust {
    signing_key: PathBuf,
    publish: Destination,
}

impl Trust {
    pub(crate) fn new(settings: &AuditSettings) -> Option<Self> {
        let signing_key = settings.signing_key.as_ref()?.path()?.to_path_buf();
        let publish = match &settings.publish {
            Some(file) => Destination::File(file.clone()),
            None => Destination::beside(&signing_key),
        };
        Some(Self { signing_key, publish })
    }

    pub(crate) fn read(&self) -> Result<(TrustedKeys, Option<Published>)> {
        Ok((TrustedKeys::beside(&self.signing_key)?, self.publish.read()?))
    }
}
