//! TLS towards receivers: rustls with the system's authorities, and those of a file where a sink names one.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::{Error, Result};

/// A configuration that trusts the system's authorities and those in `ca`.
pub(super) fn client_config(ca: Option<&Path>) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    // A broken file among the system's is no reason to trust none of them.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca {
        roots.add_parsable_certificates(authorities(path)?);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| Error::failed(format!("TLS cannot be set up: {error}")))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The certificates in a PEM file; at least one.
pub(super) fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let wrong = |what: String| Error::config(format!("the certificates in {} cannot be read: {what}", path.display()));
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match found {
        Ok(found) if found.is_empty() => {
            Err(wrong("there are none".into()).with_hint("`ca` names a file in PEM format"))
        }
        Ok(found) => Ok(found),
        Err(error) => Err(wrong(error.to_string()).with_hint("`ca` names a file in PEM format")),
    }
}
