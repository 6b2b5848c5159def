//! The body's way: out of the origin's connection into the buffer that followers read, to disk as it comes, and
//! into RAM when it is whole.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::Poll;

use edgeward_semantics::Storable;
use edgeward_store::hot::Commit;
use http::StatusCode;
use http_body::Body as _;

use super::Fetch;
use super::place::{Place, charge_of};
use crate::base::error_chain::Chain;
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
                    // Past keeping in memory; those who share it see it through, and nobody joins.
                    self.lead.stop_sharing();
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
                    tracing::debug!(error = %Chain(&error), "a body ended early");
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
        let fill = Arc::clone(&self.lead.fill);
        let replaces = self.replaces.take();
        let is_seen = |present: &Arc<Stored>| {
            let seen = replaces.as_ref().map(Weak::as_ptr);
            seen == Some(Arc::as_ptr(present))
        };
        // The rule for inserts: not if the target was invalidated since the request was sent, and not over a response that this
        // fetch did not see.
        let is_late = |present: Option<&Arc<Stored>>| {
            fill.is_doomed() || present.is_some_and(|present| !is_seen(present))
        };
        let present = worker.cache.hot.peek(place.hash);
        let mut dropped = is_late(present.as_ref());
        drop(present);
        // To disk first: what is in RAM may be evicted at once.
        let on_disk = !dropped && disk.is_some_and(DiskFill::finish);
        let Some((body, mut memory)) = self.lead.fill.finish() else {
            // It has passed by, or does as soon as its readers have it.
            if dropped {
                worker.counters.dropped_insert.one();
            }
            if on_disk {
                worker.counters.fills_stored.one();
            } else {
                worker.counters.not_stored_size.one();
                worker.counters.fills_shared.one();
            }
            return;
        };
        let length = body.as_ref().len() as u64;
        if dropped {
            place.reservation = None;
        } else if offers_now {
            let charge = charge_of(&place, storable, status, length);
            place.offer(&worker, charge, length);
            if let Some(reservation) = &mut place.reservation {
                let budget = &worker.cache.fill_budget;
                memory = budget.charged_elsewhere(reservation.take_hold());
            }
        }
        let body = body.charged_to(memory);
        let in_cache = place.reservation.take().is_some_and(|reservation| {
            let response = StoredResponse::new(
                status,
                &storable.head,
                storable.policy,
                StoredBody::Memory(body.clone()),
            );
            let stored = Stored::new(&place.key, StoredKind::Response(response));
            let commit = reservation.commit_if(stored, |present| !is_late(present));
            dropped |= commit == Commit::Refused;
            commit == Commit::Done
        });
        if dropped {
            worker.counters.dropped_insert.one();
        }
        if on_disk && !in_cache {
            // Memory is asked first, and would answer with the response that this one replaces.
            worker.cache.hot.remove_if(place.hash, is_seen);
        }
        if in_cache || on_disk {
            worker.counters.fills_stored.one();
        } else {
            worker.counters.fills_shared.one();
        }
        // First in the cache, then out of the table: whoever comes between finds one or the other.
        self.lead.close();
        self.lead.fill.whole(body, place.hash);
    }
}

enum Step {
    Wait,
    End,
    Unwanted,
    Broken(OriginError),
}
