//! One fetch, from the request to the end of the body: what comes of it for its leader, for those who wait, for RAM and
//! for the disk.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use edgeward_policy::Refusal as Kept;
use edgeward_semantics::{Exchange, Storable, Validators, Vary, Verdict, hop_by_hop, on_response};
use edgeward_store::hot::{Offer, Reservation};
use edgeward_types::{KeyHash, Timestamp};
use http::header::{AGE, HeaderValue};
use http::response::Parts;
use http::{Method, StatusCode};
use http_body::Body as _;

use super::super::lookup::{self, MissKey};
use super::super::outbound::{Conditions, Outbound};
use super::super::revalidate::{self, Validated};
use super::super::{Ask, Upload, pass};
use super::Led;
use crate::collapse::Lead;
use crate::counters::Counters;
use crate::disk;
use crate::disk::fill::DiskFill;
use crate::fill::{Failure, FillHead, Held, Pace};
use crate::origin::{Attempt, Fields, OriginBody, OriginError, Received};
use crate::stored::{self, Stored, StoredBody, StoredKind, StoredResponse, Variants};
use crate::worker::Worker;

/// One fetch, from the request to the end of the body.
pub(super) struct Fetch {
    pub(super) worker: Rc<Worker>,
    pub(super) ask: Rc<Ask>,
    pub(super) key: MissKey,
    pub(super) lead: Lead,
    pub(super) to_leader: Option<Rc<Cell<Option<Led>>>>,
}

/// Where a response will be kept.
struct Place {
    hash: KeyHash,
    key: Vec<u8>,
    /// What leads from the URI to it, if the URI varies.
    marker: Option<Arc<Stored>>,
    /// Whether the marker has a place without the disk's help.
    findable: bool,
    reservation: Option<Reservation<Stored>>,
}

impl Place {
    /// Asks for room for a body of `length`, and tells the tuner of the request: in this order, as
    /// the simulator does.
    fn offer(&mut self, worker: &Worker, charge: u64, length: u64) {
        if length > worker.config().limits.object_bytes_max.bytes() {
            worker.counters.not_stored_size.one();
        } else {
            match worker
                .shared
                .offer_to_ram(self.hash, charge, &worker.counters)
            {
                Offer::Admit(reservation) => self.reservation = Some(reservation),
                Offer::Refuse(refusal) => count_refusal(worker, refusal),
            }
        }
        worker.record(self.hash, charge, false);
    }
}

impl Fetch {
    pub(super) async fn run(self, mut stale: Option<Arc<Stored>>) {
        let _open = OpenFill::new(&self.worker.counters);
        loop {
            let request_time = self.worker.now();
            let validators = stale
                .as_ref()
                .map(|stored| lookup::response(stored))
                .filter(|response| response.policy.has_validator)
                .map(|response| Validators::of(&response.headers()));
            let attempt = Attempt {
                repeatable: true,
                upload: None,
            };
            let outbound = Outbound {
                hop: self.worker.hop(),
                ask: &self.ask,
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
            let (fields, body) = match sent {
                Ok(response) => response,
                Err(error) => return self.failed(error, stale),
            };
            let status = fields.status();
            if let Some(old) = stale.as_ref().filter(|_| status.is_server_error())
                && may_serve_on_error(old, exchange)
            {
                return self.found(Arc::clone(old), Some(status.as_u16()));
            }
            let parts = match fields {
                Fields::Map(parts) => parts,
                Fields::Lines(head) => {
                    self.refused(status, stale.is_some());
                    let detail = head.refusal.as_str();
                    self.direct((Fields::Lines(head), body), Some(detail));
                    return;
                }
            };
            if let Some(old) = &stale
                && parts.status == StatusCode::NOT_MODIFIED
            {
                let validated =
                    revalidate::not_modified(&self.worker, &self.ask, old, &parts, exchange);
                match validated {
                    Validated::Keep(stored) => {
                        self.freshened(&stored);
                        self.worker.counters.fills_freshened.one();
                        // RFC 9111 §4: only what could be reused for each who waited.
                        if lookup::response(&stored).policy.may_answer_waiting() {
                            return self.found(stored, Some(304));
                        }
                        return self.found_alone(stored, Some(304));
                    }
                    Validated::UseOnce(stored) => {
                        self.worker.shared.forget(self.key.hash, &self.key.bytes);
                        return self.found_alone(stored, Some(304));
                    }
                    Validated::Mismatch => {
                        self.worker.shared.forget(self.key.hash, &self.key.bytes);
                        stale = None;
                        continue;
                    }
                }
            }
            if let Some(rest) = self.received(parts, body, exchange, stale.is_some()) {
                rest.await;
            }
            return;
        }
    }

    /// Puts a head freshened by a 304 in the place of the old one, in each tier that has it.
    fn freshened(&self, stored: &Arc<Stored>) {
        let worker = &self.worker;
        let response = lookup::response(stored);
        match &response.body {
            StoredBody::Memory(_) => {
                worker.shared.hot.replace(self.key.hash, Arc::clone(stored));
                worker.record(self.key.hash, stored.charge_bytes(), true);
                if let Some(disk) = &worker.shared.disk {
                    disk.freshen_copy(self.key.hash, &self.key.bytes, response);
                }
            }
            StoredBody::Disk(on_disk) => {
                if let Some(disk) = &worker.shared.disk {
                    disk.freshen(&on_disk.object, &self.key.bytes, response);
                }
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
        self.worker.counters.fills_failed.one();
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
        replaces: bool,
    ) -> Option<Rest> {
        let worker = Rc::clone(&self.worker);
        let counters = &worker.counters;
        hop_by_hop::strip_response(&mut parts.headers);
        let verdict = on_response(
            &worker.config().caching.rules,
            &Method::GET,
            &self.ask.headers,
            parts.status,
            &parts.headers,
            exchange,
        );
        let storable = match verdict {
            Verdict::Store(storable) if !self.lead.fill.is_doomed() => storable,
            Verdict::Store(_) => return self.direct_map(parts, body, None),
            Verdict::Refuse(refusal) => {
                self.refused(parts.status, replaces);
                return self.direct_map(parts, body, Some(refusal.as_str()));
            }
        };
        let primary = self.key.primary_hash(&worker);
        worker.shared.hit_for_miss.clear(primary);
        let length = body.size_hint().exact();
        let Some(mut place) = self.place(&storable) else {
            counters.not_stored_admission.one();
            return self.direct_map(parts, body, None);
        };
        let mut disk = self.fill_disk(&place, &storable, parts.status, length);
        if disk.is_none() && !place.findable {
            counters.not_stored_admission.one();
            return self.direct_map(parts, body, None);
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
                    return self.direct_map(parts, body, None);
                }
                // Too much to hold: it flows past, to disk and to those who have joined by now.
                buffer_max = 0;
            }
        }
        let stored = place.reservation.is_some() || disk.is_some();
        let budget = &worker.shared.fill_budget;
        let buffered = length.map_or(0, |length| length.min(buffer_max));
        let memory = if place.reservation.is_some() {
            Some(budget.charged_elsewhere())
        } else {
            budget.take(buffered).or_else(|| {
                // The disk takes it also where there is no memory to share it from.
                buffer_max = 0;
                disk.as_ref().and_then(|_| budget.take(0))
            })
        };
        let Some(memory) = memory else {
            counters.not_stored_fill_memory.one();
            return self.direct_map(parts, body, None);
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

    /// Asks whether the response is worth writing to disk, and begins to if so.
    fn fill_disk(
        &self,
        place: &Place,
        storable: &Storable,
        status: StatusCode,
        length: Option<u64>,
    ) -> Option<DiskFill> {
        let worker = &self.worker;
        let tier = worker.shared.disk.as_ref()?;
        let primary = self.key.primary_hash(worker);
        // What is there already is replaced, or it would outlive this response.
        let writes =
            tier.admits(place.hash, &place.key, length, &worker.counters) | tier.holds(place.hash);
        if let Some(marker) = &place.marker
            && let StoredKind::Varies(variants) = &marker.kind
            && (writes || (!variants.on_disk.load(Ordering::Relaxed) && tier.holds(primary)))
        {
            tier.put_marker(primary, self.key.primary(), variants);
        }
        if !writes {
            return None;
        }
        let head = disk::head_of(status, &storable.policy, &storable.head);
        DiskFill::begin(tier, &worker.counters, place.hash, &place.key, head, length)
    }

    /// Takes note of a response that may not be stored.
    fn refused(&self, status: StatusCode, replaces: bool) {
        let worker = &self.worker;
        worker.counters.not_stored_semantics.one();
        // A failing origin's answers are not shared either, but that will pass.
        if status.is_server_error() {
            return;
        }
        let primary = self.key.primary_hash(worker);
        worker.shared.hit_for_miss.mark(primary, worker.now());
        // What was stored is out of date.
        if replaces {
            worker.shared.forget(self.key.hash, &self.key.bytes);
        }
    }

    /// The response goes to the leader alone, who moves its body himself.
    fn direct(mut self, response: Received, detail: Option<&'static str>) {
        self.lead.close();
        self.lead.fill.release();
        self.worker.counters.fills_released.one();
        self.tell(Led::Direct(response, detail));
    }

    fn direct_map(
        self,
        parts: Box<Parts>,
        body: Box<OriginBody>,
        detail: Option<&'static str>,
    ) -> Option<Rest> {
        self.direct((Fields::Map(parts), body), detail);
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
                fields.write_key(&self.ask.headers, &mut secondary);
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

    /// The key the response belongs under. Sees to the marker of a URI that varies; without one the
    /// variant could not be found, and so has no place.
    fn place(&mut self, storable: &Storable) -> Option<Place> {
        let primary = self.key.primary().to_vec();
        let Vary::Fields(fields) = &storable.vary else {
            return Some(Place {
                hash: self.worker.shared.hash(&primary),
                key: primary,
                marker: None,
                findable: true,
                reservation: None,
            });
        };
        let shared = &self.worker.shared;
        let primary_hash = shared.hash(&primary);
        let says_so = |stored: &Arc<Stored>| {
            stored.is_of(&primary)
                && matches!(&stored.kind, StoredKind::Varies(v) if v.fields == *fields)
        };
        let in_ram = shared.hot.peek(primary_hash).filter(says_so);
        let mut findable = in_ram.is_some();
        let on_disk = || {
            // The one that led here, if nobody has taken it away meanwhile.
            let marker = self.key.marker.clone().filter(says_so)?;
            let disk = shared.disk.as_ref()?;
            let StoredKind::Varies(variants) = &marker.kind else {
                return None;
            };
            let is_there = variants.on_disk.load(Ordering::Relaxed) && disk.holds(primary_hash);
            is_there.then_some(marker)
        };
        let marker = match in_ram.or_else(on_disk) {
            Some(marker) => {
                findable |= shared.disk.is_some();
                marker
            }
            None => {
                let variants = Variants {
                    fields: fields.clone(),
                    generation: shared.next_generation(),
                    on_disk: AtomicBool::new(false),
                };
                let charge = variants.charge_bytes(primary.len());
                let marker = Stored::new(&primary, StoredKind::Varies(Box::new(variants)));
                if let Offer::Admit(reservation) =
                    shared.offer_to_ram(primary_hash, charge, &self.worker.counters)
                {
                    findable = reservation.commit(Arc::clone(&marker));
                }
                if !findable && shared.disk.is_none() {
                    return None;
                }
                marker
            }
        };
        let mut key = primary.clone();
        if let StoredKind::Varies(variants) = &marker.kind {
            variants.write_key(&self.ask.headers, &mut key);
        }
        let hash = shared.hash(&key);
        self.lead.also_known_as(hash, &key);
        Some(Place {
            hash,
            key,
            marker: Some(marker),
            findable,
            reservation: None,
        })
    }

    /// Moves the body into the buffer, and the buffer into the cache.
    #[expect(
        clippy::too_many_arguments,
        reason = "all that is known of the response by now"
    )]
    async fn pump(
        mut self,
        shared: Led,
        mut body: Box<OriginBody>,
        mut place: Place,
        mut disk: Option<DiskFill>,
        storable: Box<Storable>,
        status: StatusCode,
        buffer_max: u64,
        length: Option<u64>,
    ) {
        let worker = Rc::clone(&self.worker);
        let mut shared = Some(shared);
        loop {
            // Worth going on for as long as someone reads it or it may be kept.
            let keeps =
                place.reservation.is_some() || (length.is_none() && !self.lead.fill.is_window());
            let fill = Arc::clone(&self.lead.fill);
            let to_leader = &mut self.to_leader;
            let disk_fill = &mut disk;
            let step = poll_fn(|cx| {
                loop {
                    let polled = Pin::new(&mut body).poll_frame(cx);
                    match polled {
                        Poll::Ready(Some(Ok(frame))) => {
                            let Ok(bytes) = frame.into_data() else {
                                continue;
                            };
                            if let Some(disk) = disk_fill {
                                disk.push(&bytes);
                            }
                            if fill.push(&bytes, buffer_max) == Pace::Wait {
                                return Poll::Ready(Step::Wait);
                            }
                        }
                        Poll::Ready(Some(Err(error))) => return Poll::Ready(Step::Broken(error)),
                        Poll::Ready(None) => return Poll::Ready(Step::End),
                        Poll::Pending => {
                            if let (Some(to_leader), Some(shared)) =
                                (to_leader.take(), shared.take())
                            {
                                to_leader.set(Some(shared));
                            }
                            fill.announce();
                            let is_written = disk_fill.as_ref().is_some_and(DiskFill::is_alive);
                            if !keeps && !is_written && !fill.has_readers() {
                                return Poll::Ready(Step::Unwanted);
                            }
                            fill.attend(cx);
                            return Poll::Pending;
                        }
                    }
                }
            })
            .await;
            match step {
                Step::Wait => {
                    // Past keeping; those who share it see it through, and nobody joins.
                    self.lead.close();
                    place.reservation = None;
                    if let Some(shared) = shared.take() {
                        self.tell(shared);
                    }
                    self.lead.fill.announce();
                    poll_fn(|cx| self.lead.fill.poll_room(cx)).await;
                    let is_written = disk.as_ref().is_some_and(DiskFill::is_alive);
                    if !self.lead.fill.has_readers() && !is_written {
                        worker.counters.fills_failed.one();
                        return;
                    }
                }
                Step::End => break,
                Step::Unwanted => {
                    worker.counters.fills_failed.one();
                    return;
                }
                Step::Broken(error) => {
                    tracing::debug!(error = %pass::Chain(&error), "a body ended early");
                    worker.counters.not_stored_incomplete.one();
                    worker.counters.fills_failed.one();
                    self.lead.close();
                    self.lead.fill.break_off();
                    // As long as the client has no head it can still be told properly.
                    self.tell(Led::Failed(error));
                    return;
                }
            }
        }
        self.finish(place, disk, &storable, status, length.is_none());
        if let Some(shared) = shared.take() {
            self.tell(shared);
        }
    }

    /// The body is whole.
    fn finish(
        &mut self,
        mut place: Place,
        disk: Option<DiskFill>,
        storable: &Storable,
        status: StatusCode,
        offers_now: bool,
    ) {
        let worker = Rc::clone(&self.worker);
        // To disk first: what is in RAM may be evicted at once.
        let on_disk = !self.lead.fill.is_doomed() && disk.is_some_and(DiskFill::finish);
        let Some(body) = self.lead.fill.finish() else {
            // It has passed by, or does as soon as its readers have it.
            if on_disk {
                worker.counters.fills_stored.one();
            } else {
                worker.counters.not_stored_size.one();
                worker.counters.fills_shared.one();
            }
            return;
        };
        let length = body.len() as u64;
        if self.lead.fill.is_doomed() {
            place.reservation = None;
        } else if offers_now {
            let charge = charge_of(&place, storable, status, length);
            place.offer(&worker, charge, length);
        }
        let in_cache = place.reservation.is_some_and(|reservation| {
            let response = StoredResponse::new(
                status,
                &storable.head,
                storable.policy,
                StoredBody::Memory(body.clone()),
            );
            let stored = Stored::new(&place.key, StoredKind::Response(response));
            reservation.commit(stored)
        });
        if in_cache || on_disk {
            worker.counters.fills_stored.one();
        } else {
            worker.counters.fills_shared.one();
        }
        // First in the cache, then out of the table: whoever comes between finds one or the other.
        self.lead.close();
        self.lead.fill.whole(body, in_cache);
    }
}

/// What is left of a fetch when its response has come: a body to be moved.
type Rest = Pin<Box<dyn Future<Output = ()>>>;

/// Counts a fetch among those under way.
struct OpenFill(Arc<Counters>);

impl OpenFill {
    fn new(counters: &Arc<Counters>) -> Self {
        counters.fills.one();
        Self(Arc::clone(counters))
    }
}

impl Drop for OpenFill {
    fn drop(&mut self) {
        self.0.fills.less_one();
    }
}

enum Step {
    Wait,
    End,
    Unwanted,
    Broken(OriginError),
}

fn charge_of(place: &Place, storable: &Storable, status: StatusCode, length: u64) -> u64 {
    let head_bytes = stored::head_block_bytes(status, &storable.head, length);
    stored::charge_bytes(place.key.len(), head_bytes, length)
}

fn count_refusal(worker: &Worker, refusal: Kept) {
    match refusal {
        Kept::Admission => worker.counters.not_stored_admission.one(),
        Kept::LargerThanTier | Kept::ObjectLimit => worker.counters.not_stored_size.one(),
    }
}

/// RFC 5861 §4.
fn may_serve_on_error(stored: &Stored, exchange: Exchange) -> bool {
    exchange.response_time < lookup::response(stored).policy.stale_if_error_until
}
