//! Signed lines: a JSON document with its signature in front.
//!
//! ```text
//! ed25519 <16 hex digits: key> <128 hex digits: signature> {"set":"resource",…}
//! ```
//!
//! One line, so that it fits into a file as into an HTTP header; the signature comes first, so that
//! it covers the very bytes that follow and no canonical JSON is needed. What is signed is the
//! document's kind, a line feed and the JSON: a proof can never be shown as a manifest. RFC 8032,
//! verified strictly (no keys of small order, no malleable signatures).

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::digest::{Digest, from_hex, to_hex};

/// What may be signed.
pub(crate) trait Document: Serialize + DeserializeOwned {
    /// Set apart from other documents under the same key.
    const KIND: &'static str;
}

/// A publisher's key.
#[derive(Clone, Debug)]
pub struct Signer(SigningKey);

impl Signer {
    /// The key grown from these 32 secret bytes.
    pub fn from_secret(secret: [u8; 32]) -> Self {
        Self(SigningKey::from_bytes(&secret))
    }

    /// What clients are told.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    pub(crate) fn sign<D: Document>(&self, document: &D) -> String {
        let json = serde_json::to_string(document).expect("our documents are plain values");
        let signature = self.0.sign(&message::<D>(&json)).to_bytes();
        format!(
            "ed25519 {} {} {json}",
            self.public().id(),
            to_hex(&signature)
        )
    }
}

/// A key that signatures are held against, written as 64 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Its short name in signed lines: the first eight bytes of its SHA-256.
    pub fn id(&self) -> String {
        Digest::of(self.0.as_bytes()).to_string()[..16].to_owned()
    }
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&to_hex(self.0.as_bytes()))
    }
}

impl std::str::FromStr for PublicKey {
    type Err = SignedError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = from_hex(text).map_err(|_| SignedError::Key)?;
        VerifyingKey::from_bytes(&bytes)
            .map(Self)
            .map_err(|_| SignedError::Key)
    }
}

/// Whom a client believes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Whoever answers: what comes is protected by TLS or by nothing.
    #[default]
    Transport,
    /// The holders of these keys; more than one while keys are exchanged.
    Keys(Vec<PublicKey>),
}

/// The line of an unsigned document.
pub(crate) fn unsigned<D: Document>(document: &D) -> String {
    let json = serde_json::to_string(document).expect("our documents are plain values");
    format!("unsigned {json}")
}

/// Verifies a line and returns the JSON in it.
pub(crate) fn believe<'line, D: Document>(
    line: &'line [u8],
    trust: &Trust,
) -> Result<&'line str, SignedError> {
    if line.len() > LINE_BYTES_MAX {
        return Err(SignedError::TooLong { bytes: line.len() });
    }
    let line = std::str::from_utf8(line).map_err(|_| SignedError::Form)?;
    let line = line.trim_end_matches(['\r', '\n']);
    let (how, rest) = line.split_once(' ').ok_or(SignedError::Form)?;
    let json = match how {
        "unsigned" => rest,
        "ed25519" => {
            let (_, rest) = rest.split_once(' ').ok_or(SignedError::Form)?;
            rest.split_once(' ').ok_or(SignedError::Form)?.1
        }
        _ => return Err(SignedError::Form),
    };
    if let Trust::Keys(keys) = trust {
        if how != "ed25519" {
            return Err(SignedError::Unsigned);
        }
        let mut words = rest.splitn(3, ' ');
        let (id, hex) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let signature: [u8; 64] = from_hex(hex).map_err(|_| SignedError::Form)?;
        let key = keys.iter().find(|key| key.id() == id);
        let key = key.ok_or_else(|| SignedError::UnknownKey {
            id: id.chars().take(16).collect(),
        })?;
        key.0
            .verify_strict(&message::<D>(json), &Signature::from_bytes(&signature))
            .map_err(|_| SignedError::WrongSignature)?;
    }
    Ok(json)
}

/// Reads the JSON of a document.
pub(crate) fn parse<D: DeserializeOwned>(json: &str) -> Result<D, SignedError> {
    serde_json::from_str(json).map_err(|error| SignedError::Json(error.to_string()))
}

fn message<D: Document>(json: &str) -> Vec<u8> {
    [D::KIND.as_bytes(), b"\n", json.as_bytes()].concat()
}

/// Far more than a manifest of as many deltas as are allowed.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// Why a line is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignedError {
    /// Not of the form above.
    #[error("this is no signed line")]
    Form,
    /// More than any of ours.
    #[error("a signed line of {bytes} bytes is longer than {LINE_BYTES_MAX}")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// A signature was required.
    #[error("the line is not signed")]
    Unsigned,
    /// Signed with a key that was not named as trusted.
    #[error("the line is signed with the unknown key {id}")]
    UnknownKey {
        /// The short name it gives.
        id: String,
    },
    /// Forged or changed.
    #[error("the signature is wrong")]
    WrongSignature,
    /// The document is another.
    #[error("the signed document cannot be read: {0}")]
    Json(String),
    /// Not 64 hex digits of a point on the curve.
    #[error("this is no ed25519 public key of 64 hex digits")]
    Key,
}
