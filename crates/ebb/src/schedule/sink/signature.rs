//! Signatures by Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`, one for each secret. Invariant: a key leaves
//! this file only as a signature.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::{Error, Result};

/// Secrets are pasted with and without the padding at their end.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A secret that signs.
pub(super) struct Key(Vec<u8>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// Reads `whsec_…`: the rest is the key in base64.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let encoded = text.trim().strip_prefix("whsec_").unwrap_or(text.trim());
        match LENIENT.decode(encoded) {
            Ok(key) if key.len() >= 16 => Ok(Self(key)),
            Ok(_) => Err(Error::config("it is shorter than 16 bytes").with_hint(HINT)),
            Err(_) => Err(Error::config("it is not in base64").with_hint(HINT)),
        }
    }

    fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

const HINT: &str = "a webhook's secret is `whsec_` and 24 to 64 random bytes in base64: \
                    echo whsec_$(openssl rand -base64 32)";

/// The header `webhook-signature`: a signature by each key, the first one first.
pub(super) fn signatures(keys: &[Key], id: &str, timestamp: i64, body: &[u8]) -> String {
    keys.iter().map(|key| key.sign(id, timestamp, body)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_standards_own_tests_is_signed_alike() {
        let key = Key::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = signatures(&[key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn every_secret_signs_during_a_rotation() {
        let keys = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "C2FVsBQIhrscChlQIMV+b5sSYspob7oD"];
        let keys = keys.map(|text| Key::parse(text).unwrap());
        let both = signatures(&keys, "id", 1, b"{}");
        assert_eq!(both.split(' ').count(), 2);
        assert_eq!(both.split(' ').next_back().unwrap(), signatures(&keys[1..], "id", 1, b"{}"));
    }

    #[test]
    fn what_is_no_secret_says_what_would_be_and_is_not_repeated() {
        for bad in ["whsec_not base64!", "hunter2hunter2_hunter2hunter2", "whsec_c2hvcnQ="] {
            let error = Key::parse(bad).unwrap_err();
            assert!(error.hint().unwrap().contains("whsec_") && !format!("{error:?}").contains(bad), "{error:?}");
        }
        assert_eq!(format!("{:?}", Key::parse("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap()), "Key");
    }
}
