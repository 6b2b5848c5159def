//! Stale responses that answer in place of an error (RFC 5861 §4, RFC 9111 §4.2.4): when they may, how they are counted
//! and reported.
//!
//! Responses that are served while they are validated (`stale-while-revalidate`) are hits, which
//! [`judge`](super::judge) decides.

use std::time::Duration;

use edgeward_semantics::{CacheStatus, Forward, StoredPolicy};
use edgeward_types::{KeyHash, Timestamp};
use http::StatusCode;

use super::deliver::Reply;
use super::lookup::Query as _;
use super::worker::{Shared, Worker};
use crate::cache::stored::Stored;
use crate::exchange::Request;
use crate::observe::outcome::RequestOutcome;
use crate::observe::site_counters::OutcomeClass;
use crate::origin::{OriginError, OriginResponse};

/// The reason why a stale response answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StaleCause {
    /// The origin gave no response. The text is the detail of `Cache-Status`.
    NoResponse(&'static str),
    /// The origin answered with this status of 5xx.
    ServerError(StatusCode),
    /// The origin failed to validate the response a moment ago (`caching.validation_backoff`).
    BackOff,
    /// The edge has too much work.
    Overload,
}

impl StaleCause {
    /// Returns the cause to answer with `stale` if the origin has failed to refresh it, and `stale` may be served.
    pub(super) fn of_answer(
        worker: &Worker,
        request: &Request,
        sent: &Result<OriginResponse, OriginError>,
        stale: &Stored,
    ) -> Option<Self> {
        let (cause, is_disconnect) = match sent {
            Ok((parts, _)) if parts.status.is_server_error() => {
                (Self::ServerError(parts.status), false)
            }
            Ok(_) => return None,
            Err(error) => (Self::NoResponse(error.detail()), error.is_disconnect()),
        };
        let limits = Limits::of(request, worker.now());
        limits.permit(stale, is_disconnect).then_some(cause)
    }

    /// Returns the cause to answer with `stale` if the origin has just failed to validate it and it may be served.
    pub(super) fn of_back_off(
        shared: &Shared,
        request: &Request,
        hash: KeyHash,
        stale: &Stored,
    ) -> Option<Self> {
        let (cache, now) = (&shared.cache, shared.clock.now());
        let limits = Limits::of(request, now);
        let backs_off = (cache.failed_validations.contains(hash, now)
            && limits.permit(stale, false))
            || (cache.unreached_validations.contains(hash, now) && limits.permit(stale, true));
        backs_off.then_some(Self::BackOff)
    }

    /// Returns the cause to answer with `stale` in place of the error of an overloaded edge, if `stale` may be served.
    pub(super) fn of_overload(worker: &Worker, request: &Request, stale: &Stored) -> Option<Self> {
        let limits = Limits::of(request, worker.now());
        limits.permit(stale, false).then_some(Self::Overload)
    }

    /// Counts that `stale` answers a request, which was to be forwarded for `reason`. Returns its `Cache-Status`.
    pub(super) fn record(self, reply: &mut Reply, stale: &Stored, reason: Forward) -> CacheStatus {
        let counters = &reply.worker.counters;
        match self {
            Self::Overload => counters.shed_stale.increment(),
            Self::NoResponse(_) | Self::ServerError(_) | Self::BackOff => {
                counters.stale_on_error.increment();
            }
        }
        if !self.has_asked() {
            reply.count(RequestOutcome::HitStale);
        }
        reply.observation.set_class(OutcomeClass::HitStale);
        let ttl = stale.response().policy.ttl_secs(reply.worker.now());
        self.cache_status(reason, ttl)
    }

    /// Returns the `Cache-Status` of a stale response with this remaining lifetime.
    pub(super) fn cache_status(self, reason: Forward, ttl: i64) -> CacheStatus {
        let mut status = match self.has_asked() {
            true => CacheStatus::forward(reason),
            false => CacheStatus::hit(ttl),
        };
        status.ttl = Some(ttl);
        match self {
            Self::NoResponse(detail) => status.with_detail(detail),
            Self::ServerError(code) => {
                status.fwd_status = Some(code.as_u16());
                status
            }
            Self::BackOff => status.with_detail("backoff"),
            Self::Overload => status.with_detail("overload"),
        }
    }

    /// Returns true if the origin was asked. Otherwise the response counts as a hit.
    const fn has_asked(self) -> bool {
        matches!(self, Self::NoResponse(_) | Self::ServerError(_))
    }
}

/// The limits of a request for stale responses.
struct Limits {
    /// The directive of the request.
    stale_if_error: Option<u32>,
    /// The longest staleness if the origin cannot be reached.
    staleness_max: Duration,
    now: Timestamp,
}

impl Limits {
    fn of(request: &Request, now: Timestamp) -> Self {
        Self {
            stale_if_error: request.directives().stale_if_error,
            staleness_max: request.settings().stale_if_disconnected,
            now,
        }
    }

    /// Returns true if the response may be served. `is_disconnect` is true if the origin cannot be reached.
    fn permit(&self, stale: &Stored, is_disconnect: bool) -> bool {
        let policy: &StoredPolicy = &stale.response().policy;
        let may_serve = match is_disconnect {
            true => policy.may_serve_disconnected(self.now, self.staleness_max),
            false => policy.may_serve_on_error(self.now),
        };
        may_serve && !policy.is_too_stale_for(self.stale_if_error, self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_own_cache_status() {
        let text = |cause: StaleCause| {
            let mut text = String::new();
            cause
                .cache_status(Forward::Stale, -3)
                .write("edge", &mut text);
            text
        };
        let expected = [
            (
                StaleCause::NoResponse("connection_refused"),
                "edge; fwd=stale; ttl=-3; detail=connection_refused",
            ),
            (
                StaleCause::ServerError(StatusCode::BAD_GATEWAY),
                "edge; fwd=stale; fwd-status=502; ttl=-3",
            ),
            (StaleCause::BackOff, "edge; hit; ttl=-3; detail=backoff"),
            (StaleCause::Overload, "edge; hit; ttl=-3; detail=overload"),
        ];
        for (cause, status) in expected {
            assert_eq!(text(cause), status);
        }
    }
}
