//! The outcome of a request: the label of `edgeward_requests_total`, and the word of the access log and of spans. Also
//! the protocol of a request.

use edgeward_semantics::Forward;
use http::Version;

use super::labels::labels;
use super::site_counters::OutcomeClass;

labels! {
    /// The outcome of a request. Each request has exactly one, which is counted when it is decided and logged at the
    /// end.
    #[derive(Default)]
    pub(crate) enum RequestOutcome {
        Hit = "hit",
        /// A stored response that is not fresh, without a request to the origin before the response.
        HitStale = "hit-stale",
        UriMiss = "uri-miss",
        VaryMiss = "vary-miss",
        Stale = "stale",
        Request = "request",
        Partial = "partial",
        Method = "method",
        Bypass = "bypass",
        OnlyIfCached = "only-if-cached",
        IdFilter = "id-filter",
        Refused = "refused",
        /// A rule of the site answered.
        Rule = "rule",
        /// The client left before the lookup ended, or the request needed no lookup.
        #[default]
        None = "none",
    }
}

labels! {
    /// The protocol by which a client sends a request.
    pub(crate) enum ClientProtocol {
        /// Also HTTP/1.0.
        Http1 = "http/1.1",
        H2 = "h2",
        H3 = "h3",
    }
}

impl From<Version> for ClientProtocol {
    fn from(version: Version) -> Self {
        match version {
            Version::HTTP_3 => Self::H3,
            Version::HTTP_2 => Self::H2,
            _ => Self::Http1,
        }
    }
}

impl RequestOutcome {
    /// Returns the outcome of a request that is forwarded to the origin. RFC 9211 has the reason `miss` for caches that
    /// do not distinguish `uri-miss` and `vary-miss`; this cache does.
    pub(crate) const fn forwarded(reason: Forward) -> Self {
        match reason {
            Forward::UriMiss | Forward::Miss => Self::UriMiss,
            Forward::VaryMiss => Self::VaryMiss,
            Forward::Stale => Self::Stale,
            Forward::Request => Self::Request,
            Forward::Partial => Self::Partial,
            Forward::Bypass => Self::Bypass,
            Forward::Method => Self::Method,
        }
    }

    /// Returns the class of the outcome, if the end of the request does not change it.
    pub(crate) const fn class(self) -> OutcomeClass {
        match self {
            Self::Hit => OutcomeClass::Hit,
            Self::HitStale => OutcomeClass::HitStale,
            Self::UriMiss | Self::VaryMiss | Self::Stale | Self::Request | Self::Partial => {
                OutcomeClass::Miss
            }
            Self::Method | Self::Bypass => OutcomeClass::Pass,
            Self::OnlyIfCached | Self::IdFilter | Self::Refused | Self::Rule => {
                OutcomeClass::Refused
            }
            Self::None => OutcomeClass::None,
        }
    }
}
