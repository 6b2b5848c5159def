//! The decisions of a lookup, for requests ([`lookup`](super::lookup)) and for their explanation
//! ([`explain`](super::explain)).

use edgeward_purge::Verdict;
use edgeward_semantics::{CacheStatus, Forward, RequestDirectives, Reuse};
use http::StatusCode;

use crate::config::{FleetPurges, WhenCutOff};
use crate::exchange::RequestError;
use crate::observe::outcome::RequestOutcome;

/// The decision about a response that a lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoundDecision {
    /// A hard purge covers the response. The request is answered as if no response were stored.
    Purged,
    /// The response answers the request. `revalidates` is true if it is validated meanwhile.
    Serve { is_stale: bool, revalidates: bool },
    /// The response is validated or fetched again before the request is answered.
    Validate { reason: Forward },
    /// The request has `only-if-cached`, and the response cannot be used.
    OnlyIfCached,
    /// The edge is cut off from the purges of its fleet, and must not use stored responses.
    CutOff,
}

/// Decides about a response that a lookup found. An edge that may lack purges of its
/// fleet may have to validate or refuse it.
#[inline]
pub(super) fn judge_found(
    verdict: Verdict,
    fleet: Option<&FleetPurges>,
    reuse: impl FnOnce() -> Reuse,
) -> FoundDecision {
    if verdict == Verdict::Hard {
        return FoundDecision::Purged;
    }
    let restriction = fleet.map_or(WhenCutOff::Serve, FleetPurges::restriction);
    match reuse() {
        Reuse::Fresh { .. } | Reuse::StaleAllowed { .. } | Reuse::StaleWhileRevalidate { .. }
            if restriction == WhenCutOff::Refuse =>
        {
            FoundDecision::CutOff
        }
        Reuse::Fresh { .. } | Reuse::StaleAllowed { .. } | Reuse::StaleWhileRevalidate { .. }
            if restriction == WhenCutOff::Validate =>
        {
            let reason = Forward::Stale;
            FoundDecision::Validate { reason }
        }
        reuse @ (Reuse::Fresh { .. }
        | Reuse::StaleAllowed { .. }
        | Reuse::StaleWhileRevalidate { .. }) => FoundDecision::Serve {
            is_stale: !matches!(reuse, Reuse::Fresh { .. }),
            revalidates: verdict == Verdict::Soft
                || matches!(reuse, Reuse::StaleWhileRevalidate { .. }),
        },
        Reuse::Revalidate { cause } | Reuse::MustForward { cause } => FoundDecision::Validate {
            reason: cause.forward(),
        },
        Reuse::GatewayTimeout => FoundDecision::OnlyIfCached,
    }
}

/// Returns the error of an edge that may lack purges of its fleet and must not use stored responses.
pub(super) fn refuse_cut_off() -> RequestError {
    let status = CacheStatus::forward(Forward::Miss).with_detail("cut-off");
    let text = "this node is cut off from its fleet, so it may lack purges of the stored response";
    RequestError {
        outcome: RequestOutcome::Refused,
        ..RequestError::after_lookup(StatusCode::SERVICE_UNAVAILABLE, status, text)
    }
}

/// The decision about a request for which no response is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AbsentDecision {
    /// A negative rule knows that the id does not exist.
    UnknownId,
    /// The request has `only-if-cached`.
    OnlyIfCached,
    /// The request is forwarded.
    Forward(Forward),
}

/// Decides about a request for which no response is stored. `has_marker` is
/// true if other variants of the target are known. `is_unknown_id` queries the negative rules.
pub(super) fn judge_absent(
    has_marker: bool,
    directives: &RequestDirectives,
    is_unknown_id: impl FnOnce() -> bool,
) -> AbsentDecision {
    // A marker shows that the origin has sent another variant of the target, so the target's id exists.
    if !has_marker && !directives.no_cache && is_unknown_id() {
        return AbsentDecision::UnknownId;
    }
    if directives.only_if_cached {
        return AbsentDecision::OnlyIfCached;
    }
    AbsentDecision::Forward(match has_marker {
        true => Forward::VaryMiss,
        false => Forward::UriMiss,
    })
}
