//! One fetch: what is asked of the origin, and what comes of the answer for its leader, for those who wait, for RAM and
//! for the disk. Where it is kept is [`place`]'s, how its body gets there [`pump`]'s.

mod place;
mod pump;

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use edgeward_semantics::{
    Exchange, Storable, Validators, Vary, Verdict, answers_the_request, hop_by_hop, on_response,
};
use edgeward_store::versions::Version;
use edgeward_types::Timestamp;
use http::header::{AGE, HeaderValue};
use http::response::Parts;
use http::{Method, StatusCode};
use http_body::Body as _;

use super::Led;
use crate::base::counters::Counters;
use crate::cache::CacheKey;
use crate::cache::collapse::Lead;
use crate::cache::fill::{Failure, FillHead, Held};
use crate::cache::stored::{Hot, Stored, StoredBody, StoredKind};
use crate::exchange::Request;
use crate::origin::Upload;
use crate::origin::as_origin_sees;
use crate::origin::{Attempt, OriginBody, OriginError};
use crate::origin::{Conditions, Outbound};
use crate::path::revalidate::{self, Validated};
use crate::path::worker::Worker;
use place::charge_of;

/// One fetch, from the request to the end of the body.
pub(super) struct Fetch {
    pub(super) worker: Rc<Worker>,
    pub(super) request: Rc<Request>,
    pub(super) key: CacheKey,
    pub(super) lead: Lead,
    pub(super) to_leader: Option<Rc<Cell<Option<Led>>>>,
}

/// What a fetch saw before its request left for the origin.
#[derive(Clone, Copy, Debug)]
struct Seen {
    key: Version,
    /// Of the URL's key, which is another one if the URL varies.
    url: Version,
}

impl Seen {
    /// Keeps versions recent while the fetch goes on.
    fn renew(&mut self, hot: &Hot) {
        self.key = hot.renewed(self.key).unwrap_or(self.key);
        self.url = hot.renewed(self.url).unwrap_or(self.url);
    }
}

impl Fetch {
    pub(super) async fn run(mut self, mut stale: Option<Arc<Stored>>) {
        let _open = OpenFill::new(&self.worker.counters);
        loop {
            let seen = self.see();
            let request_time = self.worker.now();
            let validators = stale
                .as_ref()
                .map(|stored| stored.response())
                .filter(|response| response.policy.has_validator)
                .map(|response| Validators::of(&response.headers()));
            let attempt = Attempt {
                repeatable: true,
                upload: None,
                was_sent: None,
            };
            let outbound = Outbound {
                hop: self.worker.hop(),
                request: &self.request,
                method: &Method::GET,
                conditions: match &validators {
                    Some(validators) => Conditions::Revalidate(validators),
                    None => Conditions::Remove,
                },
            };
            let sent = self
                .worker
                .origin
                .send(&attempt, &outbound, Upload::Empty)
                .await;
            let exchange = Exchange {
                request_time,
                response_time: self.worker.now(),
            };
            let (parts, body) = match sent {
                Ok(response) => response,
                Err(error) => return self.failed(error, stale),
            };
            let status = parts.status;
            if let Some(old) = stale.as_ref().filter(|_| status.is_server_error())
                && may_serve_on_error(old, exchange)
            {
                return self.found(Arc::clone(old), Some(status.as_u16()));
            }
            if let Some(old) = &stale
                && parts.status == StatusCode::NOT_MODIFIED
            {
                let validated =
                    revalidate::not_modified(&self.worker, &self.request, old, &parts, exchange);
                match validated {
                    Validated::Keep(stored) => {
                        self.freshened(old, &stored, seen.key);
                        self.worker.counters.fills_freshened.increment();
                        // RFC 9111 §4: only what could be reused for each who waited.
                        if stored.response().policy.may_answer_waiting() {
                            return self.found(stored, Some(304));
                        }
                        return self.found_alone(stored, Some(304));
                    }
                    Validated::UseOnce(stored) => {
                        self.remove(seen.key);
                        return self.found_alone(stored, Some(304));
                    }
                    Validated::Mismatch => {
                        self.remove(seen.key);
                        stale = None;
                        continue;
                    }
                }
            }
            if let Some(rest) = self.received(parts, body, exchange, stale.is_some(), seen) {
                rest.await;
            }
            return;
        }
    }

    /// Reads the versions. A marker that led here and is no longer current is forgotten.
    fn see(&mut self) -> Seen {
        let hot = &self.worker.cache.hot;
        let url = hot.version(self.key.primary_hash());
        let key = hot.version(self.key.hash);
        self.key.marker = self.key.marker.take().filter(|marker| {
            let present = hot.peek(url.key());
            present.is_some_and(|present| Arc::ptr_eq(&present, marker))
                || matches!(&marker.kind, StoredKind::Varies(variants)
                    if variants.seen.is_some_and(|seen| hot.is_current(seen)))
        });
        Seen { key, url }
    }

    /// Puts a head freshened by a 304 in the place of the old one, in each tier that has the old one.
    fn freshened(&self, old: &Arc<Stored>, stored: &Arc<Stored>, seen: Version) {
        let worker = &self.worker;
        let cache = &worker.cache;
        let _changing = cache.changing(seen.key());
        match cache.hot.refresh(seen, old, Arc::clone(stored)) {
            Some(true) => cache.record(seen.key(), stored.charge_bytes(), true),
            Some(false) => {}
            None => return worker.counters.dropped_refresh.increment(),
        }
        let response = stored.response();
        if let Some(disk) = &cache.disk {
            let key = &self.key.bytes;
            match &response.body {
                StoredBody::Memory(_) => {
                    disk.freshen_copy(seen.key(), key, old.response(), response);
                }
                StoredBody::Disk(object) => disk.freshen(object, key, response),
            }
        }
    }

    fn failed(mut self, error: OriginError, stale: Option<Arc<Stored>>) {
        let now = self.worker.now();
        let exchange = Exchange {
            request_time: now,
            response_time: now,
        };
        if let Some(old) = stale.filter(|old| may_serve_on_error(old, exchange)) {
            return self.found(old, None);
        }
        self.lead.close();
        self.worker.counters.fills_failed.increment();
        self.lead.fill.fail(Failure {
            status: error.status(),
            detail: error.detail(),
        });
        self.tell(Led::Failed(error));
    }

    fn found(mut self, stored: Arc<Stored>, fwd_status: Option<u16>) {
        self.lead.close();
        self.lead.fill.found(Arc::clone(&stored));
        self.tell(Led::Found { stored, fwd_status });
    }

    /// As [`found`](Self::found), for the leader and nobody else.
    fn found_alone(mut self, stored: Arc<Stored>, fwd_status: Option<u16>) {
        self.lead.close();
        self.lead.fill.release();
        self.tell(Led::Found { stored, fwd_status });
    }

    fn tell(&mut self, led: Led) {
        if let Some(to_leader) = self.to_leader.take() {
            to_leader.set(Some(led));
        }
    }

    /// A full response. Decides what becomes of it; if it is shared, its body is still to be moved.
    fn received(
        mut self,
        mut parts: Box<Parts>,
        body: Box<OriginBody>,
        exchange: Exchange,
        has_stale: bool,
        seen: Seen,
    ) -> Option<Rest> {
        let worker = Rc::clone(&self.worker);
        let counters = &worker.counters;
        hop_by_hop::strip_response(&mut parts.headers);
        let verdict = on_response(
            &worker.config().caching.rules,
            &Method::GET,
            &self.request.headers,
            parts.status,
            &parts.headers,
            exchange,
        );
        let storable = match verdict {
            Verdict::Store(storable) if worker.cache.hot.is_current(seen.url) => storable,
            Verdict::Store(_) => {
                counters.dropped_insert.increment();
                return self.direct(parts, body, None);
            }
            Verdict::Refuse(refusal) => {
                self.refused(parts.status, has_stale, seen);
                return self.direct(parts, body, Some(refusal.as_str()));
            }
        };
        let primary = self.key.primary_hash();
        worker.cache.hit_for_miss.clear(primary);
        let length = body.size_hint().exact();
        // A marker is a change of its own.
        let varies = matches!(storable.vary, Vary::Fields(_));
        let changing = varies.then(|| worker.cache.changing(seen.url.key()));
        let Some(mut place) = self.place(&storable, seen) else {
            counters.not_stored_admission.increment();
            return self.direct(parts, body, None);
        };
        let mut disk = self.fill_disk(&mut place, &storable, parts.status, length);
        drop(changing);
        if disk.is_none() && worker.cache.is_settled_on_disk(place.hash) {
            // The disk refused this response. The older one must not outlive it.
            place.removed(worker.cache.remove(place.seen.key, &place.key));
        }
        if disk.is_none() && !place.findable {
            counters.not_stored_admission.increment();
            return self.direct(parts, body, None);
        }
        let object_max = worker.config().limits.object_bytes_max.bytes();
        let share_max = worker.config().caching.collapse_bytes_max.bytes();
        // A body of unknown length is offered at its end, and until then held on credit.
        let capacity_bytes = worker.config().hot.capacity.bytes();
        let mut buffer_max = object_max.min(capacity_bytes).max(share_max);
        if let Some(length) = length {
            let charge = charge_of(&place, &storable, parts.status, length);
            place.offer(&worker, charge, length);
            buffer_max = length;
            if place.reservation.is_none() && length > share_max {
                if disk.is_none() {
                    return self.direct(parts, body, None);
                }
                // Too much to hold: it flows past, to disk and to those who have joined by now.
                buffer_max = 0;
            }
        }
        let stored = place.reservation.is_some() || disk.is_some();
        let budget = &worker.cache.fill_budget;
        let buffered = length.map_or(0, |length| length.min(buffer_max));
        let memory = if let Some(reservation) = &mut place.reservation {
            Some(budget.charged_to_cache(reservation.take_hold()))
        } else {
            budget.reserve(buffered).or_else(|| {
                // The disk takes it also where there is no memory to share it from.
                buffer_max = 0;
                disk.as_ref().and_then(|_| budget.reserve(0))
            })
        };
        let Some(memory) = memory else {
            counters.not_stored_fill_memory.increment();
            return self.direct(parts, body, None);
        };
        let head = self.head(
            &storable,
            parts.status,
            length,
            stored,
            exchange.response_time,
        );
        let held = if place.reservation.is_some() || length.is_none() {
            Held::to_keep(usize::try_from(buffered).unwrap_or(0))
        } else {
            Held::to_pass()
        };
        self.lead.fill.flow(Arc::new(head), held, memory);
        let shared = Led::Shared {
            status: parts.status,
            headers: parts.headers,
            length,
            stored,
        };
        // A small body comes with its head: then the leader, too, finds it whole and sends it in
        // one piece. So the leader hears of it only when the first wait begins.
        let pump = self.pump(
            shared,
            body,
            place,
            disk.take(),
            storable,
            parts.status,
            buffer_max,
            length,
        );
        // Boxed: most of what a fetch would hold is this, and a response that is not shared never gets here.
        Some(Box::pin(pump))
    }

    /// Takes note of a response that may not be stored.
    fn refused(&self, status: StatusCode, has_stale: bool, seen: Seen) {
        let worker = &self.worker;
        worker.counters.not_stored_semantics.increment();
        // A failing origin's answers are not shared either, but that will pass. An error that this request caused says
        // nothing about the target's other responses.
        if status.is_server_error() || answers_the_request(status) {
            return;
        }
        let primary = self.key.primary_hash();
        worker.cache.hit_for_miss.mark(primary, worker.now());
        // What was stored is out of date.
        if has_stale {
            self.remove(seen.key);
        }
    }

    /// Removes the response that the origin was asked about.
    fn remove(&self, seen: Version) {
        if self.worker.cache.remove(seen, &self.key.bytes).is_none() {
            self.worker.counters.dropped_removal.increment();
        }
    }

    /// Gives the response to the leader alone, who moves its body himself.
    fn direct(
        mut self,
        parts: Box<Parts>,
        body: Box<OriginBody>,
        detail: Option<&'static str>,
    ) -> Option<Rest> {
        self.lead.close();
        self.lead.fill.release();
        self.worker.counters.fills_released.increment();
        self.tell(Led::Direct((parts, body), detail));
        None
    }

    fn head(
        &self,
        storable: &Storable,
        status: StatusCode,
        length: Option<u64>,
        stored: bool,
        now: Timestamp,
    ) -> FillHead {
        let mut headers = storable.head.clone();
        let age = storable.policy.age_secs(now);
        if age > 0 {
            headers.insert(AGE, HeaderValue::from(age));
        }
        let variant = match &storable.vary {
            Vary::Fields(fields) => {
                let mut secondary = Vec::new();
                let seen = as_origin_sees(self.worker.hop(), &self.request, fields);
                fields.write_key(&seen, &mut secondary);
                Some((fields.clone(), secondary))
            }
            _ => None,
        };
        FillHead {
            status,
            headers,
            variant,
            length,
            shareable: storable.policy.may_answer_waiting(),
            stored,
        }
    }
}

/// What is left of a fetch when its response has come: a body to be moved.
type Rest = Pin<Box<dyn Future<Output = ()>>>;

/// Counts a fetch among those under way.
struct OpenFill(Arc<Counters>);

impl OpenFill {
    fn new(counters: &Arc<Counters>) -> Self {
        counters.fills.increment();
        Self(Arc::clone(counters))
    }
}

impl Drop for OpenFill {
    fn drop(&mut self) {
        self.0.fills.decrement();
    }
}

/// RFC 5861 §4.
fn may_serve_on_error(stored: &Stored, exchange: Exchange) -> bool {
    exchange.response_time < stored.response().policy.stale_if_error_until
}
