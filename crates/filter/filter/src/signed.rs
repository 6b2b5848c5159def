//! Signed lines: a JSON document with its signature in front.
//!
//! ```text
//! ed25519 <16 hex digits: id of the key> <128 hex digits: signature> {"set":"resource",…}
//! unsigned {"set":"resource",…}
//! ```
//!
//! A publisher without a key writes the second form. A document is one line, so that it fits into a file and into an
//! HTTP header. The signed message is the document's kind, a line feed and the JSON exactly as it is in the line, so
//! no canonical JSON is needed. The kinds are manifest and proof. A proof, which answers a client's challenge, can
//! therefore never be used as a manifest. Signatures follow RFC 8032 and are verified strictly: keys of small order
//! and malleable signatures are refused.

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::digest::{Digest, from_hex, to_hex};

/// A document that can be signed.
pub(crate) trait Document: Serialize + DeserializeOwned {
    /// Part of the signed message; distinguishes documents of different kinds under the same key.
    const KIND: &'static str;
}

/// The secret key of a publisher.
#[derive(Clone, Debug)]
pub struct Signer(SigningKey);

impl Signer {
    /// Derives the key from 32 secret bytes.
    pub fn from_secret(secret: [u8; 32]) -> Self {
        Self(SigningKey::from_bytes(&secret))
    }

    /// The public key, which clients are configured with.
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

/// A public key that verifies signatures, written as 64 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// The key's id in signed lines: the first eight bytes of its SHA-256.
    pub fn id(&self) -> String {
        Digest::compute(self.0.as_bytes()).to_string()[..16].to_owned()
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

/// The documents that a client accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// All documents; signatures are not verified. Only TLS, if it is used, protects the documents.
    #[default]
    Transport,
    /// Documents signed with one of these keys. During a key rotation, the list has the old and the new key.
    Keys(Vec<PublicKey>),
}

/// Returns the line of an unsigned document.
pub(crate) fn unsigned<D: Document>(document: &D) -> String {
    let json = serde_json::to_string(document).expect("our documents are plain values");
    format!("unsigned {json}")
}

/// Verifies a line and returns the JSON in it.
pub(crate) fn verify<'line, D: Document>(
    line: &'line [u8],
    trust: &Trust,
) -> Result<&'line str, SignedError> {
    if line.len() > LINE_BYTES_MAX {
        return Err(SignedError::TooLong { bytes: line.len() });
    }
    let line = std::str::from_utf8(line).map_err(|_| SignedError::Form)?;
    let line = line.trim_end_matches(['\r', '\n']);
    let (scheme, rest) = line.split_once(' ').ok_or(SignedError::Form)?;
    let json = match scheme {
        "unsigned" => rest,
        "ed25519" => {
            let (_, rest) = rest.split_once(' ').ok_or(SignedError::Form)?;
            rest.split_once(' ').ok_or(SignedError::Form)?.1
        }
        _ => return Err(SignedError::Form),
    };
    if let Trust::Keys(keys) = trust {
        if scheme != "ed25519" {
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

/// The largest signed line in bytes, far more than a manifest with the maximum number of deltas needs.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// Why a line is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignedError {
    /// The line does not have the form that the module documentation shows.
    #[error("not a signed line")]
    Form,
    /// The line is longer than any valid one.
    #[error("a signed line of {bytes} bytes is longer than {LINE_BYTES_MAX}")]
    TooLong {
        /// The length of the line in bytes.
        bytes: usize,
    },
    /// A signature was required.
    #[error("the line is not signed")]
    Unsigned,
    /// The line is signed with a key that is not trusted.
    #[error("the line is signed with the unknown key {id}")]
    UnknownKey {
        /// The id of the key.
        id: String,
    },
    /// The signature does not match: the line was forged or changed.
    #[error("the signature is wrong")]
    WrongSignature,
    /// The JSON is not a document of the expected kind.
    #[error("the signed document cannot be read: {0}")]
    Json(String),
    /// The text is not 64 hex digits of a point on the curve.
    #[error("not an Ed25519 public key of 64 hex digits")]
    Key,
}
