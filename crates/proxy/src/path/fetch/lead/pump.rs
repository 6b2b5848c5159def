//! The body's way: out of the origin's connection into the buffer that followers read, to disk as it comes, and
//! into RAM when it is whole.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use edgeward_semantics::Storable;
use http::StatusCode;
use http_body::Body as _;

use super::Fetch;
use super::place::{Place, charge_of};
use crate::base::ahead::{CHUNK_BYTES, LEAD_BYTES};
use crate::base::error_chain::ErrorChain;
use crate::cache::disk::fill::DiskFill;
use crate::cache::fill::Pace;
use crate::cache::stored::{Stored, StoredBody, StoredKind, StoredResponse};
use crate::origin::{OriginBody, OriginError};
use crate::path::fetch::Led;

impl Fetch {
    /// Moves the body into the buffer, and the buffer into the cache.
    #[expect(
        clippy::too_many_arguments,
        reason = "all that is known of the response by now"
    )]
    pub(super) async fn pump(
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
        let mut free_lead = None;
        loop {
            // Worth going on for as long as someone reads it or it may be kept.
            let keeps =
                place.reservation.is_some() || (length.is_none() && !self.lead.fill.is_window());
            let fill = Arc::clone(&self.lead.fill);
            let to_leader = &mut self.to_leader;
            let disk_fill = &mut disk;
            let seen = &mut place.seen;
            let mut chunk_bytes = 0;
            let step = poll_fn(|cx| {
                loop {
                    if chunk_bytes >= CHUNK_BYTES {
                        return Poll::Ready(Step::Chunk);
                    }
                    let polled = Pin::new(&mut body).poll_frame(cx);
                    match polled {
                        Poll::Ready(Some(Ok(frame))) => {
                            let Ok(bytes) = frame.into_data() else {
                                continue;
                            };
                            if let Some(disk) = disk_fill {
                                disk.push(&bytes);
                            }
                            chunk_bytes += bytes.len();
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
                            seen.renew(&worker.cache.hot);
                            return Poll::Pending;
                        }
                    }
                }
            })
            .await;
            match step {
                Step::Chunk => {
                    // Sockets that are ready have their turn before the next chunk.
                    tokio::task::yield_now().await;
                    let is_within = |cx: &Context<'_>, lead| fill.poll_near(cx, lead as u64);
                    let is_near = |cx: &mut Context<'_>| is_within(cx, CHUNK_BYTES);
                    let may_go_on = |cx: &mut Context<'_>| is_within(cx, LEAD_BYTES);
                    if poll_fn(|cx| Poll::Ready(is_near(cx))).await.is_ready() {
                        free_lead = None;
                        continue;
                    }
                    free_lead = free_lead.or_else(|| worker.ahead_rate.free_lead());
                    if free_lead.is_some()
                        && poll_fn(|cx| Poll::Ready(may_go_on(cx))).await.is_ready()
                    {
                        continue;
                    }
                    if let Some(shared) = shared.take() {
                        self.tell(shared);
                    }
                    fill.announce();
                    tokio::task::yield_now().await;
                    worker.ahead_rate.wait(is_near).await;
                }
                Step::Wait => {
                    // Past keeping in memory; those who share it see it through, and nobody joins.
                    self.lead.close();
                    place.reservation = None;
                    if let Some(shared) = shared.take() {
                        self.tell(shared);
                    }
                    self.lead.fill.announce();
                    poll_fn(|cx| self.lead.fill.poll_room(cx)).await;
                    let is_written = disk.as_ref().is_some_and(DiskFill::is_alive);
                    if !self.lead.fill.has_readers() && !is_written {
                        worker.counters.fills_failed.increment();
                        return;
                    }
                }
                Step::End => break,
                Step::Unwanted => {
                    worker.counters.fills_failed.increment();
                    return;
                }
                Step::Broken(error) => {
                    tracing::debug!(error = %ErrorChain(&error), "a body ended early");
                    worker.counters.not_stored_incomplete.increment();
                    worker.counters.fills_failed.increment();
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
        let cache = &worker.cache;
        // For a variant: its own key may be as it was although its URL was invalidated.
        let is_current = cache.hot.is_current(place.seen.url);
        let whole = self.lead.fill.finish();
        let mut ram = None;
        let whole = whole.map(|(body, mut memory)| {
            let length = body.as_ref().len() as u64;
            if offers_now && is_current {
                let charge = charge_of(&place, storable, status, length);
                place.offer(&worker, charge, length);
                if let Some(reservation) = &mut place.reservation {
                    let budget = &worker.cache.fill_budget;
                    memory = budget.charged_to_cache(reservation.take_hold());
                }
            }
            let body = body.charged_to(memory);
            ram = place.reservation.take().map(|reservation| {
                let response = StoredResponse::new(
                    status,
                    &storable.head,
                    storable.policy,
                    StoredBody::Memory(body.clone()),
                );
                let kind = StoredKind::Response(response);
                (reservation, Stored::new(&place.key, kind))
            });
            body
        });
        let kept = is_current
            .then(|| cache.insert(place.seen.key, &place.key, ram, disk))
            .flatten();
        if kept.is_none() {
            worker.counters.dropped_insert.increment();
        }
        let kept = kept.unwrap_or_default();
        if kept.ram || kept.disk {
            worker.counters.fills_stored.increment();
        } else {
            worker.counters.fills_shared.increment();
        }
        let Some(body) = whole else {
            // It has passed by, or does as soon as its readers have it.
            if !kept.disk {
                worker.counters.not_stored_size.increment();
            }
            return;
        };
        // First in the cache, then out of the table: whoever comes between finds one or the other.
        self.lead.close();
        self.lead.fill.whole(body, place.hash);
    }
}

enum Step {
    /// A chunk has come, and more may follow at once.
    Chunk,
    Wait,
    End,
    Unwanted,
    Broken(OriginError),
}
