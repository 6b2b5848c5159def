//! Counts the outcomes of requests that need a fetch.

use edgeward_semantics::Forward;

use crate::base::site_counters::OutcomeClass;
use crate::path::deliver::Reply;

/// Counts the outcome of a request. A request that begins again is counted once.
pub(super) fn count_once(reply: &mut Reply, reason: Forward) {
    if reply.observation.outcome.is_some() {
        return;
    }
    reply.observation.outcome = Some(OutcomeClass::Miss);
    let counters = &reply.worker.counters;
    match reason {
        Forward::VaryMiss => counters.vary_miss.increment(),
        Forward::Stale => counters.stale.increment(),
        Forward::Request => counters.request.increment(),
        Forward::Partial => counters.partial.increment(),
        Forward::UriMiss | Forward::Miss | Forward::Bypass | Forward::Method => {
            counters.uri_miss.increment();
        }
    }
}
