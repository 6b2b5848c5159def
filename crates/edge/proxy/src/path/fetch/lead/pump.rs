//! The pump: moves the body of a fetch from the origin's connection into the fill, from which readers read, and to
//! disk. At the end it stores the complete body in memory.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use edgeward_semantics::Storable;
use http::StatusCode;
use http_body::Body as _;

use super::destination::{Destination, charge_of};
use super::fetch_state::{Fetch, FetchResult};
use super::role::ObjectRole;
use crate::cache::disk::fill::DiskFill;
use crate::cache::fill::{BodyBuffer, FillHead, PushResult};
use crate::cache::stored::{DiskPlan, Stored, StoredBody, StoredKind, StoredResponse};
use crate::observe::log::ErrorChain;
use crate::origin::{OriginBody, OriginError};
use crate::path::ahead::{CHUNK_BYTES, EXEMPT_BYTES};
use crate::path::dictionary;
use crate::path::worker::Worker;
use crate::rt::budget::MemoryShare;

/// A body on its way from the origin into the fill and the tiers that store it.
pub(super) struct Transfer {
    pub(super) body: Box<OriginBody>,
    pub(super) destination: Destination,
    pub(super) disk: Option<DiskFill>,
    pub(super) storable: Box<Storable>,
    pub(super) status: StatusCode,
    /// The length of the body, if it is known.
    pub(super) length: Option<u64>,
    /// If the body exceeds this number of bytes, the fill keeps only a window of it.
    pub(super) buffer_max: u64,
}

impl Transfer {
    /// Reserves the memory in which the fill buffers the body. If memory is short and `may_window` is true, the fill
    /// keeps a window.
    pub(super) fn reserve(&mut self, worker: &Worker, may_window: bool) -> Option<MemoryShare> {
        let budget = &worker.cache.fill_budget;
        if let Some(reservation) = &mut self.destination.reservation {
            return Some(budget.charged_to_cache(reservation.take_charge()));
        }
        budget.reserve(self.buffered_bytes()).or_else(|| {
            self.buffer_max = 0;
            may_window.then(|| budget.reserve(0)).flatten()
        })
    }

    /// Returns the bytes that the fill buffers from the start. A body of unknown length grows its buffer.
    fn buffered_bytes(&self) -> u64 {
        self.length.map_or(0, |length| length.min(self.buffer_max))
    }

    fn buffer(&self) -> BodyBuffer {
        match self.destination.reservation.is_some() || self.length.is_none() {
            true => BodyBuffer::contiguous(usize::try_from(self.buffered_bytes()).unwrap_or(0)),
            false => BodyBuffer::pieces(),
        }
    }
}

impl Fetch {
    /// Gives the head of the response to the readers of the fill.
    pub(super) fn publish(
        &self,
        transfer: &Transfer,
        mut head: FillHead,
        memory: MemoryShare,
    ) -> Arc<FillHead> {
        let destination = &transfer.destination;
        head.stored = destination.reservation.is_some() || transfer.disk.is_some();
        head.stamp = destination.versions.stamp;
        head.is_own = destination.role == ObjectRole::Owner;
        let head = Arc::new(head);
        let fill = &self.leader.fill;
        fill.publish(Arc::clone(&head), transfer.buffer(), memory);
        head
    }

    /// Moves the body into the fill and to disk, and at its end into memory. The leader gets the result `shared`.
    pub(super) async fn pump(mut self, shared: FetchResult, transfer: Transfer) {
        let Transfer {
            mut body,
            mut destination,
            mut disk,
            storable,
            status,
            length,
            buffer_max,
        } = transfer;
        let worker = Rc::clone(&self.worker);
        let mut shared = Some(shared);
        // While set, the body may be `EXEMPT_BYTES` ahead of its readers without waiting.
        let mut exemption = None;
        loop {
            // Memory may store the body if space is reserved, or if the length is unknown and the fill has all bytes.
            let may_store = destination.reservation.is_some()
                || (length.is_none() && !self.leader.fill.is_window());
            let fill = Arc::clone(&self.leader.fill);
            let result = &mut self.result;
            let disk_fill = &mut disk;
            let versions = &mut destination.versions;
            let mut chunk_bytes = 0;
            let pause = poll_fn(|cx| {
                loop {
                    if chunk_bytes >= CHUNK_BYTES {
                        return Poll::Ready(Pause::Chunk);
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
                            if fill.push(&bytes, buffer_max) == PushResult::WindowFull {
                                return Poll::Ready(Pause::WindowFull);
                            }
                        }
                        Poll::Ready(Some(Err(error))) => {
                            return Poll::Ready(Pause::Failed(error));
                        }
                        Poll::Ready(None) => return Poll::Ready(Pause::End),
                        Poll::Pending => {
                            // The leader gets its result at the first pause, or else at the end of the body.
                            if let (Some(result), Some(shared)) = (result.take(), shared.take()) {
                                result.set(Some(shared));
                            }
                            fill.announce(); // wakes the readers
                            let is_written = disk_fill.as_ref().is_some_and(DiskFill::is_alive);
                            if !may_store && !is_written && !fill.has_readers() {
                                return Poll::Ready(Pause::Unwanted);
                            }
                            fill.register_pump(cx);
                            versions.renew(&worker.cache.hot); // Changes of other keys may outdate them.
                            return Poll::Pending;
                        }
                    }
                }
            })
            .await;
            match pause {
                Pause::Chunk => {
                    // Other tasks run before the next chunk.
                    tokio::task::yield_now().await;
                    let is_within = |cx: &Context<'_>, lead| fill.poll_reader_near(cx, lead as u64);
                    let is_near = |cx: &mut Context<'_>| is_within(cx, CHUNK_BYTES);
                    let is_exempt = |cx: &mut Context<'_>| is_within(cx, EXEMPT_BYTES);
                    if poll_fn(|cx| Poll::Ready(is_near(cx))).await.is_ready() {
                        exemption = None;
                        continue;
                    }
                    exemption = exemption.or_else(|| worker.deliveries.ahead_rate.exemption());
                    if exemption.is_some()
                        && poll_fn(|cx| Poll::Ready(is_exempt(cx))).await.is_ready()
                    {
                        continue;
                    }
                    if let Some(shared) = shared.take() {
                        self.report(shared);
                    }
                    fill.announce();
                    tokio::task::yield_now().await;
                    worker.deliveries.ahead_rate.wait(is_near).await;
                }
                Pause::WindowFull => {
                    // Memory cannot store the body. Only requests that have joined share it.
                    self.leader.close();
                    destination.reservation = None;
                    if let Some(shared) = shared.take() {
                        self.report(shared);
                    }
                    self.leader.fill.announce();
                    poll_fn(|cx| self.leader.fill.poll_window_space(cx)).await;
                    let is_written = disk.as_ref().is_some_and(DiskFill::is_alive);
                    if !self.leader.fill.has_readers() && !is_written {
                        worker.counters.fills_failed.increment();
                        return;
                    }
                }
                Pause::End => break,
                Pause::Unwanted => {
                    worker.counters.fills_failed.increment();
                    return;
                }
                Pause::Failed(error) => {
                    tracing::debug!(error = %ErrorChain(&error), "a response body from the origin ended early");
                    worker.counters.not_stored_incomplete.increment();
                    worker.counters.fills_failed.increment();
                    self.leader.close();
                    self.leader.fill.abort();
                    // If the leader has no result yet, its client gets an error response.
                    self.report(FetchResult::Failed(error));
                    return;
                }
            }
        }
        self.finish(destination, disk, &storable, status, length.is_none());
        if let Some(shared) = shared.take() {
            self.report(shared);
        }
    }

    /// Stores the complete body, and ends the fill. `offers_now` is true if the length was unknown until now.
    fn finish(
        &mut self,
        mut destination: Destination,
        disk: Option<DiskFill>,
        storable: &Storable,
        status: StatusCode,
        offers_now: bool,
    ) {
        let worker = Rc::clone(&self.worker);
        let cache = &worker.cache;
        // An invalidation changes the version of the primary key; `insert` checks only that of the response's key.
        let is_current = cache.hot.is_current(destination.versions.primary);
        let complete = self.leader.fill.finish();
        let has_met_full_queue = disk.as_ref().is_some_and(DiskFill::has_met_full_queue);
        let disk_plan = match has_met_full_queue {
            true => DiskPlan::Queued,
            false => destination.disk_plan,
        };
        let mut ram = None;
        let complete = complete.map(|(body, mut memory)| {
            let length = body.as_ref().len() as u64;
            if offers_now && is_current {
                let charge = charge_of(&destination, storable, status, length);
                destination.offer(&worker, charge, length);
                if let Some(reservation) = &mut destination.reservation {
                    let budget = &worker.cache.fill_budget;
                    memory = budget.charged_to_cache(reservation.take_charge());
                }
            }
            let body = body.charged_to(memory);
            ram = destination.reservation.take().map(|reservation| {
                let body = StoredBody::Memory(body.clone());
                let response = StoredResponse {
                    generation: destination.generation,
                    disk_plan,
                    ..StoredResponse::new(status, &storable.head, storable.policy, body)
                };
                let kind = StoredKind::Response(response);
                let stamp = destination.versions.stamp;
                (reservation, Stored::new(&destination.key, kind, stamp))
            });
            body
        });
        let in_memory = ram.as_ref().map(|(_, stored)| Arc::clone(stored));
        let stored_in = is_current
            .then(|| cache.insert(destination.versions.key, &destination.key, ram, disk))
            .flatten();
        if stored_in.is_none() {
            worker.counters.dropped_insert.increment();
        }
        let stored_in = stored_in.unwrap_or_default();
        if let Some(stored) = in_memory.filter(|_| stored_in.ram) {
            // The client may offer the response as a dictionary before any other client gets it.
            dictionary::learn(&worker, &self.request, &stored);
        }
        if stored_in.ram || stored_in.disk {
            worker.counters.fills_stored.increment();
            self.record_stored(destination.hash, &storable.policy);
        } else {
            worker.counters.fills_shared.increment();
        }
        let Some(body) = complete else {
            // The fill does not have the whole body in one piece. The fill's readers still get the rest.
            if !stored_in.disk {
                worker.counters.not_stored_size.increment();
            }
            return;
        };
        // The response is inserted before the fetch is closed, so that each request finds the response or the fetch.
        self.leader.close();
        self.leader.fill.publish_body(body, destination.hash);
    }
}

/// The reason why the pump has stopped reading the body.
enum Pause {
    /// A chunk was moved, and more bytes may follow at once.
    Chunk,
    /// The window that buffers a body too large for memory is full.
    WindowFull,
    End,
    /// No reader is left, and no tier stores the body.
    Unwanted,
    Failed(OriginError),
}
