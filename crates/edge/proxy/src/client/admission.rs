//! Admits requests of HTTP/2 and HTTP/3: many requests of one connection may be under way, so their memory has limits.

use crate::exchange::canonical::RawHead;
use crate::exchange::heads::{self, HeadCharge};
use crate::exchange::{Client, RequestError};
use crate::observe::counter::Counter;
use crate::observe::counters::Counters;
use crate::path::worker::Worker;

/// The counters of refused requests of one protocol.
pub(super) struct RefusalCounters<'a> {
    fields: &'a Counter,
    heads: &'a Counter,
    memory: &'a Counter,
    orphans: &'a Counter,
}

impl<'a> RefusalCounters<'a> {
    pub(super) fn of_h2(counters: &'a Counters) -> Self {
        Self {
            fields: &counters.h2_refused_fields,
            heads: &counters.h2_refused_heads,
            memory: &counters.h2_refused_memory,
            orphans: &counters.h2_refused_orphans,
        }
    }

    pub(super) fn of_h3(counters: &'a Counters) -> Self {
        Self {
            fields: &counters.h3_refused_fields,
            heads: &counters.h3_refused_heads,
            memory: &counters.h3_refused_memory,
            orphans: &counters.h3_refused_orphans,
        }
    }
}

/// Charges the head of a request to the memory budget of heads, or refuses the request.
pub(super) fn admit(
    worker: &Worker,
    client: &Client,
    head: &RawHead,
    counters: &RefusalCounters<'_>,
) -> Result<HeadCharge, RequestError> {
    let limits = &worker.config().limits;
    if head.headers.len() > limits.headers_max.get() {
        counters.fields.increment();
        return Err(RequestError::too_many_fields());
    }
    worker.relieve_connections();
    if worker.shared.budgets.connections.is_exhausted() {
        counters.memory.increment();
        return Err(RequestError::overloaded(
            "the connections of all clients take too much memory",
        ));
    }
    let streams_max = client.limits(limits).h2_streams_max;
    if client.conn.is_full_of_orphans(streams_max.get()) {
        counters.orphans.increment();
        return Err(RequestError::overloaded(
            "the origin still works on requests of this connection that were cancelled",
        ));
    }
    let bytes = heads::decoded_bytes(&head.uri, &head.headers);
    let budget = &worker.shared.budgets.heads;
    let conn_bytes_max = limits.h2_heads_bytes_max.bytes();
    HeadCharge::new(budget, &client.conn, conn_bytes_max, bytes).ok_or_else(|| {
        counters.heads.increment();
        RequestError::overloaded("the heads of the requests under way take too much memory")
    })
}
