//! A word and a section for each decision of this crate. An explanation of a decision to an operator uses them.

use crate::freshness::LifetimeSource;
use crate::route::PassReason;
use crate::storability::NotStoredReason;
use crate::stored_policy::{Cause, Reuse};

impl PassReason {
    /// Returns the reason in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Method => "the method is neither GET nor HEAD",
            Self::Content => "the request has content",
            Self::Precondition => "the request has If-Match or If-Unmodified-Since",
            Self::Rule => "a rule of the site passes the request",
            Self::Upgrade => "the request asks for another protocol",
        }
    }

    /// Returns the section of the rule.
    pub const fn section(self) -> &'static str {
        match self {
            Self::Method => "RFC 9111 §3",
            Self::Content => "RFC 9110 §9.3.1",
            Self::Precondition => "RFC 9111 §4.3.2",
            Self::Rule => "docs/how-to/sites.md",
            Self::Upgrade => "RFC 9110 §7.8",
        }
    }
}

impl LifetimeSource {
    /// Returns the name of the field or directive.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Replaced => "ttl",
            Self::Unstated => "default_ttl",
            Self::SMaxage => "s-maxage",
            Self::MaxAge => "max-age",
            Self::Expires => "expires",
            Self::Heuristic => "heuristic",
            Self::Nothing => "none",
        }
    }

    /// Returns the reason of RFC 9111 §3 for which a response with this lifetime is storable.
    pub const fn why_storable(self) -> &'static str {
        match self {
            Self::Replaced => "a rule states its ttl",
            Self::Unstated => "a rule states its default_ttl",
            Self::SMaxage => "the response has s-maxage",
            Self::MaxAge => "the response has max-age",
            Self::Expires => "the response has Expires",
            Self::Heuristic | Self::Nothing => {
                "the response has public, or a status that is cacheable by default"
            }
        }
    }

    /// Returns the section of the rule.
    pub const fn section(self) -> &'static str {
        match self {
            Self::SMaxage | Self::MaxAge | Self::Expires => "RFC 9111 §4.2.1",
            Self::Replaced => "RFC 9213 §2.2",
            Self::Unstated | Self::Heuristic | Self::Nothing => "RFC 9111 §4.2.2",
        }
    }
}

impl Cause {
    /// Returns the cause in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stale => "the freshness lifetime is over",
            Self::ResponseNoCache => "the response has no-cache",
            Self::RequestNoCache => "the request has no-cache",
            Self::RequestMaxAge => "the response is older than max-age of the request",
            Self::RequestMinFresh => {
                "the response does not stay fresh for min-fresh of the request"
            }
        }
    }

    /// Returns the section of the rule.
    pub const fn section(self) -> &'static str {
        match self {
            Self::Stale => "RFC 9111 §4.2",
            Self::ResponseNoCache => "RFC 9111 §5.2.2.4",
            Self::RequestNoCache => "RFC 9111 §5.2.1.4",
            Self::RequestMaxAge => "RFC 9111 §5.2.1.1",
            Self::RequestMinFresh => "RFC 9111 §5.2.1.3",
        }
    }
}

impl Reuse {
    /// Returns the decision in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fresh { .. } => "serve: it is fresh",
            Self::StaleAllowed { .. } => {
                "serve although it is stale: max-stale of the request allows it"
            }
            Self::StaleWhileRevalidate { .. } => {
                "serve although it is stale, and validate it in the background"
            }
            Self::Revalidate { .. } => "validate it at the origin first",
            Self::MustForward { .. } => "fetch it again: it has no validator",
            Self::GatewayTimeout => "answer 504: the request has only-if-cached",
        }
    }

    /// Returns the section of the rule.
    pub const fn section(self) -> &'static str {
        match self {
            Self::Fresh { .. } => "RFC 9111 §4.2",
            Self::StaleAllowed { .. } => "RFC 9111 §5.2.1.2",
            Self::StaleWhileRevalidate { .. } => "RFC 5861 §3",
            Self::Revalidate { .. } | Self::MustForward { .. } => "RFC 9111 §4.3",
            Self::GatewayTimeout => "RFC 9111 §5.2.1.7",
        }
    }

    /// Returns the reason why the response is not served, if this is the decision.
    pub const fn cause(self) -> Option<Cause> {
        match self {
            Self::Revalidate { cause } | Self::MustForward { cause } => Some(cause),
            _ => None,
        }
    }
}

impl NotStoredReason {
    /// Returns the section of the rule.
    pub const fn section(self) -> &'static str {
        match self {
            Self::Method
            | Self::Interim
            | Self::EventStream
            | Self::NoExplicitFreshness
            | Self::NeverReusable
            | Self::Rule => "RFC 9111 §3",
            Self::Partial => "RFC 9111 §3.3",
            Self::NotModified => "RFC 9111 §4.3.4",
            Self::Status | Self::RequestError => "RFC 9110 §15",
            Self::RequestNoStore => "RFC 9111 §5.2.1.5",
            Self::NoStore => "RFC 9111 §5.2.2.5",
            Self::NotUnderstood => "RFC 9111 §5.2.2.3",
            Self::Private => "RFC 9111 §5.2.2.7",
            Self::Authorization => "RFC 9111 §3.5",
            Self::SetCookie => "RFC 9111 §7.3",
            Self::VaryAny => "RFC 9111 §4.1",
            Self::Extension => "RFC 9111 §7",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_cause_has_its_own_words_and_a_section() {
        let causes = [
            Cause::Stale,
            Cause::ResponseNoCache,
            Cause::RequestNoCache,
            Cause::RequestMaxAge,
            Cause::RequestMinFresh,
        ];
        let words: HashSet<_> = causes.iter().map(|cause| cause.as_str()).collect();
        let sections: HashSet<_> = causes.iter().map(|cause| cause.section()).collect();
        assert_eq!((words.len(), sections.len()), (causes.len(), causes.len()));
        for cause in causes {
            assert_eq!(Reuse::Revalidate { cause }.cause(), Some(cause));
        }
        for reason in NotStoredReason::ALL {
            assert!(reason.section().starts_with("RFC 9"), "{reason}");
        }
    }
}
