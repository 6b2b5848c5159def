//! Fetches that take time, and the delayed hits that wait for them.
//!
//! A request for an object that is being fetched waits for this fetch. It is a *delayed hit*: it costs the origin no
//! request, but the client waits for the rest of the latency. Source: Atre, Sherry, Wang, Berger, "Caching with
//! Delayed Hits", SIGCOMM 2020.
//!
//! A request for a stale object waits too, because the edge must ask the origin whether the object has changed.
//!
//! When a fetch ends, its object is offered to the tier, before any request of the same time or later. All times are
//! those of the trace. If the times of a trace are whole seconds, all requests of a second have the same time.

use std::collections::VecDeque;

use hashbrown::HashMap;
use serde::Serialize;

use crate::facts::ratio;
use crate::objects::{ObjectNumber, Request};

/// The fetches of a run.
#[derive(Debug)]
pub(crate) struct Fetches {
    latency_ms: u64,
    /// The fetches that have not ended, in the order of their ends.
    pending: VecDeque<Fetch>,
    /// The time at which the fetch of an object ends, by the number of the object.
    ends_ms: HashMap<u32, u64>,
    /// The latest time so far. The times of a trace may decrease slightly.
    now_ms: u64,
    delayed_hits: u64,
    /// The sum of the waiting times of all counted requests.
    wait_ms: u64,
}

#[derive(Debug)]
struct Fetch {
    end_ms: u64,
    request: Request,
}

/// The effects of the latency of fetches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FetchReport {
    /// The latency of a fetch in ms.
    pub fetch_latency_ms: u64,
    /// Requests that waited for a fetch which an earlier request started. They are not among the hits.
    pub delayed_hits: u64,
    /// Delayed hits per request.
    pub delayed_hit_ratio: f64,
    /// The mean waiting time of all requests: 0 for a hit, the latency for a miss or a stale object, and the rest of
    /// the latency for a delayed hit.
    pub mean_wait_ms: f64,
}

impl Fetches {
    pub(crate) fn new(latency_ms: u64) -> Self {
        Self {
            latency_ms,
            pending: VecDeque::new(),
            ends_ms: HashMap::new(),
            now_ms: 0,
            delayed_hits: 0,
            wait_ms: 0,
        }
    }

    /// Advances the time to that of the next request. An earlier time has no effect.
    pub(crate) fn advance_to(&mut self, time_ms: u64) {
        self.now_ms = self.now_ms.max(time_ms);
    }

    /// Returns the request of the next fetch that has ended, and removes the fetch.
    pub(crate) fn next_ended(&mut self) -> Option<Request> {
        let fetch = self.pending.front()?;
        if fetch.end_ms > self.now_ms {
            return None;
        }
        let request = fetch.request;
        self.pending.pop_front();
        self.ends_ms.remove(&request.object.0);
        Some(request)
    }

    /// Returns the end of the fetch of an object, if the object is being fetched.
    pub(crate) fn end_ms(&self, object: ObjectNumber) -> Option<u64> {
        self.ends_ms.get(&object.0).copied()
    }

    /// Processes a request whose object is not in the cache, or stale: joins the fetch of the object, or starts one.
    /// `counted` is false during the warm-up.
    pub(crate) fn request(&mut self, request: &Request, counted: bool) {
        let end_ms = self.end_ms(request.object);
        let wait_ms = match end_ms {
            Some(end_ms) => end_ms - self.now_ms,
            None => {
                let end_ms = self.now_ms.saturating_add(self.latency_ms);
                self.ends_ms.insert(request.object.0, end_ms);
                self.pending.push_back(Fetch {
                    end_ms,
                    request: *request,
                });
                self.latency_ms
            }
        };
        if counted {
            self.delayed_hits += u64::from(end_ms.is_some());
            self.wait_ms = self.wait_ms.saturating_add(wait_ms);
        }
    }

    /// Returns the report for a run with this number of counted requests.
    pub(crate) fn report(&self, requests: u64) -> FetchReport {
        FetchReport {
            fetch_latency_ms: self.latency_ms,
            delayed_hits: self.delayed_hits,
            delayed_hit_ratio: ratio(self.delayed_hits, requests),
            mean_wait_ms: ratio(self.wait_ms, requests),
        }
    }
}
