//! The keys of QUIC that all endpoints share, and that go along at an upgrade.

use std::sync::Arc;

use aws_lc_rs::aead::quic::{AES_128, HeaderProtectionKey};
use aws_lc_rs::{hkdf, hmac};
use quinn::crypto::{HandshakeTokenKey, HmacKey};

use super::connection_id::IdCipher;

/// The values by which successive processes know the connections of each other.
#[derive(Clone, PartialEq, Eq)]
pub struct QuicIdentity {
    /// Counts the processes that have followed each other by upgrades, modulo 256.
    pub generation: u8,
    /// The secret from which the keys are derived.
    pub secret: [u8; 32],
}

impl QuicIdentity {
    /// Returns the identity of a process without a predecessor. `None` if the system provides no randomness.
    pub(crate) fn random() -> Option<Self> {
        let mut secret = [0; 32];
        aws_lc_rs::rand::fill(&mut secret).ok()?;
        let generation = 0;
        Some(Self { generation, secret })
    }

    /// Returns the identity of the process that replaces this one.
    pub(crate) fn next(&self) -> Self {
        Self {
            generation: self.generation.wrapping_add(1),
            secret: self.secret,
        }
    }
}

impl std::fmt::Debug for QuicIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QuicIdentity")
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

/// The keys that are derived from a secret.
pub(super) struct QuicKeys {
    pub(super) ids: Arc<IdCipher>,
    /// Makes the tokens of stateless resets (RFC 9000 §10.3).
    pub(super) resets: Arc<dyn HmacKey>,
    /// Encrypts the tokens of Retry.
    pub(super) tokens: Arc<dyn HandshakeTokenKey>,
}

impl QuicKeys {
    pub(super) fn new(secret: &[u8; 32]) -> Self {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"edgeward QUIC");
        let secret = salt.extract(secret);
        let ids = HeaderProtectionKey::from(expand(&secret, &[b"ids"], &AES_128));
        let resets = hmac::Key::from(expand(&secret, &[b"resets"], hmac::HMAC_SHA256));
        let tokens = hkdf::Prk::from(expand(&secret, &[b"tokens"], hkdf::HKDF_SHA256));
        Self {
            ids: Arc::new(IdCipher::new(ids)),
            resets: Arc::new(resets),
            tokens: Arc::new(tokens),
        }
    }
}

fn expand<'a, L: hkdf::KeyType>(
    secret: &'a hkdf::Prk,
    info: &'a [&'a [u8]],
    algorithm: L,
) -> hkdf::Okm<'a, L> {
    let expanded = secret.expand(info, algorithm);
    expanded.expect("a key is shorter than 255 hashes")
}
