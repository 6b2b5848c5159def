//! OCSP responses that are sent with certificates (stapling, RFC 6066 §8 and RFC 8446 §4.4.2.1).
//!
//! The edge does not ask the certificate authority: a program such as `openssl ocsp` writes the response to a file. The
//! edge checks that the response is for the certificate, and does not send it after its `nextUpdate`, because clients
//! refuse a connection with an expired response.

use std::path::Path;

use rustls_pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_ocsp::{BasicOcspResponse, CertStatus, OcspResponse, OcspResponseStatus};

/// An OCSP response for a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Staple {
    pub(crate) response: Vec<u8>,
    /// The time until which the response may be sent, in seconds since 1970. `u64::MAX` if the response states none.
    pub(crate) expires_at: u64,
    pub(crate) is_revoked: bool,
}

/// The reason why a file is no OCSP response for the certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StapleError {
    /// The file cannot be read.
    #[error("it cannot be read")]
    Unreadable(#[from] std::io::Error),
    /// The file is not DER of the expected structure.
    #[error("it is not an OCSP response in DER, as `openssl ocsp -respout FILE` writes it")]
    Malformed(#[source] x509_cert::der::Error),
    /// The responder did not answer the question.
    #[error("the responder refused the request for it ({status:?})")]
    Unsuccessful {
        /// The status that the responder stated.
        status: OcspResponseStatus,
    },
    /// The response says nothing about the certificate.
    #[error("it is for another certificate")]
    OtherCertificate,
}

impl Staple {
    /// Logs a warning if clients will not accept the certificate with this response.
    pub(crate) fn warn(&self, path: &Path, now: u64) {
        let file = path.display();
        if now >= self.expires_at {
            tracing::warn!(%file, "the OCSP response has expired, so it is not sent");
        } else if self.is_revoked {
            tracing::warn!(%file, "the OCSP response says that the certificate is revoked");
        }
    }

    /// Reads the response for `certificate` from a file.
    pub(crate) fn read(path: &Path, certificate: &CertificateDer<'_>) -> Result<Self, StapleError> {
        Self::parse(std::fs::read(path)?, certificate)
    }

    /// Parses the response for `certificate`. Its signature is not checked: clients check it themselves.
    pub(crate) fn parse(
        response: Vec<u8>,
        certificate: &CertificateDer<'_>,
    ) -> Result<Self, StapleError> {
        let parsed = OcspResponse::from_der(&response).map_err(StapleError::Malformed)?;
        let bytes = match (parsed.response_status, &parsed.response_bytes) {
            (OcspResponseStatus::Successful, Some(bytes)) => bytes,
            (status, _) => return Err(StapleError::Unsuccessful { status }),
        };
        let basic = BasicOcspResponse::from_der(bytes.response.as_bytes())
            .map_err(StapleError::Malformed)?;
        let certificate = Certificate::from_der(certificate).map_err(StapleError::Malformed)?;
        let serial = &certificate.tbs_certificate.serial_number;
        let answers = &basic.tbs_response_data.responses;
        let answer = answers
            .iter()
            .find(|answer| answer.cert_id.serial_number == *serial)
            .ok_or(StapleError::OtherCertificate)?;
        let next_update = answer.next_update.as_ref();
        let expires_at = next_update.map_or(u64::MAX, |time| time.0.to_unix_duration().as_secs());
        let is_revoked = matches!(answer.cert_status, CertStatus::Revoked(_));
        Ok(Self {
            response,
            expires_at,
            is_revoked,
        })
    }
}
