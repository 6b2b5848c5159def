//! The times at which certificates and OCSP responses expire, for metrics by which operators are warned in time.

use rustls_pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

/// The earliest ends of validity of a group of certificates, in seconds since 1970. `None`: the group has no end that
/// is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsExpiry {
    /// The earliest `notAfter` of a certificate (RFC 5280 §4.1.2.5). Certificates of authorities do not count.
    pub(crate) certificate_at: Option<u64>,
    /// The earliest `nextUpdate` of an OCSP response (RFC 6960 §2.4).
    pub(crate) ocsp_at: Option<u64>,
}

impl TlsExpiry {
    /// Returns the ends of a certificate and of its OCSP response.
    pub(crate) fn of(certificate: &CertificateDer<'_>, ocsp_at: Option<u64>) -> Self {
        // rustls parses certificates less strictly, so it may serve one that this parser refuses.
        let parsed = Certificate::from_der(certificate).ok();
        let end = |certificate: Certificate| {
            let not_after = certificate.tbs_certificate.validity.not_after;
            not_after.to_unix_duration().as_secs()
        };
        Self {
            certificate_at: parsed.map(end),
            ocsp_at,
        }
    }

    /// Returns the earliest ends of both groups.
    pub(crate) fn earliest(self, other: Self) -> Self {
        let earlier = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self {
            certificate_at: earlier(self.certificate_at, other.certificate_at),
            ocsp_at: earlier(self.ocsp_at, other.ocsp_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_known_end_counts() {
        let expiry = |certificate_at, ocsp_at| TlsExpiry {
            certificate_at,
            ocsp_at,
        };
        let group = [
            expiry(Some(30), None),
            expiry(Some(10), Some(7)),
            TlsExpiry::default(),
            expiry(Some(20), Some(5)),
        ];
        let earliest = group.into_iter().reduce(TlsExpiry::earliest);
        assert_eq!(earliest, Some(expiry(Some(10), Some(5))));
    }

    #[test]
    fn bytes_that_are_no_certificate_have_no_known_end() {
        let expiry = TlsExpiry::of(&CertificateDer::from(vec![1, 2, 3]), Some(4));
        assert_eq!((expiry.certificate_at, expiry.ocsp_at), (None, Some(4)));
    }
}
