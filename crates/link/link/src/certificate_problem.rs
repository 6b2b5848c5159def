//! Why an endpoint refuses the certificate of its peer, with the action that an operator can take, for the messages of
//! both endpoints.

use std::fmt;
use std::io;

use rustls::{AlertDescription, CertificateError, Error};

/// Why a certificate is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CertificateProblem {
    /// The peer presented no certificate.
    Missing,
    /// A CA that the other endpoint does not have signed the certificate.
    Unknown,
    /// The certificate has expired.
    Expired,
    /// The certificate is on the deny list.
    Revoked,
    /// A gateway has the certificate of an edge, or an edge that of a gateway.
    WrongRole,
}

impl CertificateProblem {
    /// All problems, in the order of their metric.
    pub const ALL: [Self; 5] = [
        Self::Missing,
        Self::Unknown,
        Self::Expired,
        Self::Revoked,
        Self::WrongRole,
    ];

    /// Returns the problem in an error of a TLS handshake, and the endpoint whose certificate is refused.
    pub(crate) fn of(error: &io::Error) -> Option<(Self, CertificateHolder)> {
        let error = error.get_ref()?.downcast_ref::<Error>()?;
        let found = match error {
            Error::NoCertificatesPresented => (Self::Missing, CertificateHolder::Peer),
            Error::InvalidCertificate(error) => {
                (Self::of_certificate(error)?, CertificateHolder::Peer)
            }
            Error::AlertReceived(alert) => {
                (Self::of_alert(*alert)?, CertificateHolder::ThisEndpoint)
            }
            _ => return None,
        };
        Some(found)
    }

    fn of_certificate(error: &CertificateError) -> Option<Self> {
        match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                Some(Self::Expired)
            }
            CertificateError::Revoked => Some(Self::Revoked),
            CertificateError::UnknownIssuer => Some(Self::Unknown),
            CertificateError::InvalidPurpose
            | CertificateError::InvalidPurposeContext { .. }
            | CertificateError::NotValidForName
            | CertificateError::NotValidForNameContext { .. } => Some(Self::WrongRole),
            _ => None,
        }
    }

    /// Returns the problem that an alert of the peer states (RFC 8446, section 6.2).
    fn of_alert(alert: AlertDescription) -> Option<Self> {
        match alert {
            AlertDescription::CertificateRequired => Some(Self::Missing),
            AlertDescription::UnknownCA => Some(Self::Unknown),
            AlertDescription::CertificateExpired => Some(Self::Expired),
            AlertDescription::CertificateRevoked => Some(Self::Revoked),
            AlertDescription::UnsupportedCertificate | AlertDescription::BadCertificate => {
                Some(Self::WrongRole)
            }
            _ => None,
        }
    }

    /// Returns the name in metrics and in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Unknown => "unknown",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::WrongRole => "wrong_role",
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Missing => "the endpoint presented no certificate",
            Self::Unknown => "another CA has signed it",
            Self::Expired => "it has expired",
            Self::Revoked => "it is on the deny list",
            Self::WrongRole => "it is not for this kind of endpoint",
        }
    }

    /// Returns the action of an operator. `name` is the endpoint whose certificate is refused.
    fn action(self, name: &str) -> String {
        match self {
            Self::Missing => {
                "give the edge a folder of keys from `edgeward link keygen --add`".to_owned()
            }
            Self::Unknown => format!(
                "create the keys of `{name}` in the folder of this link's CA, or copy the `ca.pem` of both CAs to both \
                 endpoints while the CA is changed"
            ),
            Self::Expired => format!(
                "run `edgeward link keys renew {name}` at the folder of the CA, and copy the endpoint's folder to it"
            ),
            Self::Revoked => format!(
                "if `{name}` may connect again, run `edgeward link keys renew {name}` at the folder of the CA, and \
                 copy the endpoint's folder to it"
            ),
            Self::WrongRole => {
                "the gateway needs the folder `gateway` of the keys, and an edge the folder of an edge".to_owned()
            }
        }
    }
}

/// The endpoint whose certificate is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateHolder {
    /// This endpoint: its peer refused the certificate.
    ThisEndpoint,
    /// The peer: this endpoint refused the certificate.
    Peer,
}

/// A refused certificate, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedCertificate {
    /// The reason.
    pub problem: CertificateProblem,
    /// The endpoint that has the certificate.
    pub whose: CertificateHolder,
    /// The name of that endpoint, if it is known.
    pub name: Option<String>,
    /// The fingerprint of the certificate, if it is known.
    pub fingerprint: Option<String>,
}

impl fmt::Display for RefusedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.whose {
            CertificateHolder::ThisEndpoint => "the peer refuses the certificate of this endpoint",
            CertificateHolder::Peer => "this endpoint refuses the certificate of the peer",
        })?;
        if let Some(name) = &self.name {
            write!(f, " `{name}`")?;
        }
        if let Some(fingerprint) = &self.fingerprint {
            write!(f, " ({fingerprint})")?;
        }
        let name = self.name.as_deref().unwrap_or("NAME");
        let problem = self.problem;
        write!(f, ": {}; {}", problem.describe(), problem.action(name))
    }
}
