//! [`Http3`], the state that the tasks of one HTTP/3 connection share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use edgeward_h3::{
    Connection, ConnectionConfig, ConnectionError, ErrorCode, RequestEnd, RequestLimits,
    RequestStream, SectionLimits, Settings, StreamId,
};
use quinn::VarInt;
use tokio::sync::Notify;

use super::receive_window::ReceiveWindow;
use crate::config::EdgeConfig;
use crate::exchange::{Client, CloseReason, ConnState, Holding};
use crate::path::worker::{CurrentWorker, Worker};

/// A connection after its handshake.
pub(super) struct Http3 {
    workers: Rc<CurrentWorker>,
    pub(super) client: Client,
    pub(super) quic: quinn::Connection,
    /// Borrowed only within functions that do not wait.
    pub(super) state: RefCell<Connection>,
    /// The settings of the client, once they have arrived.
    pub(super) settings: Cell<Settings>,
    /// Notified when a request has ended.
    pub(super) request_ended: Notify,
    window: RefCell<ReceiveWindow>,
    /// The incomplete requests, for which the receive window is charged.
    incomplete_requests: Cell<u32>,
    window_held: RefCell<Holding>,
}

impl Http3 {
    pub(super) fn new(
        workers: &Rc<CurrentWorker>,
        client: Client,
        quic: quinn::Connection,
    ) -> Rc<Self> {
        let config = connection_config(workers.get().config());
        Rc::new(Self {
            workers: Rc::clone(workers),
            window_held: RefCell::new(client.conn.holding(0)),
            client,
            quic,
            state: RefCell::new(Connection::new(config)),
            settings: Cell::default(),
            request_ended: Notify::new(),
            window: RefCell::new(ReceiveWindow::new(Instant::now())),
            incomplete_requests: Cell::new(0),
        })
    }

    pub(super) fn worker(&self) -> Rc<Worker> {
        self.workers.get()
    }

    pub(super) fn conn(&self) -> &Rc<ConnState> {
        &self.client.conn
    }

    /// Returns the time for limits of rates.
    pub(super) fn now_ms(&self) -> u64 {
        self.worker().now().as_millis()
    }

    /// Begins the request of a stream. `None` if it is rejected.
    pub(super) fn begin_request(&self, stream: StreamId) -> Option<RequestStream> {
        self.state.borrow_mut().begin_request(stream)
    }

    /// Ends a request that has begun.
    pub(super) fn end_request(&self, stream: StreamId, end: RequestEnd) {
        let now_ms = self.now_ms();
        // Borrowed if a panic ends the request.
        let Ok(mut state) = self.state.try_borrow_mut() else {
            return;
        };
        let ended = state.end_request(stream, end, now_ms);
        drop(state);
        if let Err(error) = ended {
            self.fail(error);
        }
        self.request_ended.notify_one();
    }

    /// Closes the connection because of an error of the client.
    pub(super) fn fail(&self, error: ConnectionError) {
        if self.quic.close_reason().is_some() {
            return;
        }
        let worker = self.worker();
        let is_flood = error.code == ErrorCode::H3_EXCESSIVE_LOAD;
        let reason = match is_flood {
            true => CloseReason::H3Flood,
            false => CloseReason::Protocol,
        };
        worker.counters.closed[reason].increment();
        let peer = self.client.peer;
        if !is_flood {
            tracing::debug!(%peer, %error, "an HTTP/3 connection was closed");
        } else if let Some(unlogged) = worker.warnings.flood.record(worker.now()) {
            tracing::warn!(
                %peer,
                %error,
                unlogged,
                "an HTTP/3 connection exceeded a limit and was closed"
            );
        }
        self.close(error.code, error.reason);
    }

    pub(super) fn close(&self, code: ErrorCode, reason: &'static str) {
        self.quic.close(varint(code), reason.as_bytes());
    }

    /// Charges the receive window until [`end_incomplete`](Self::end_incomplete): a request is incomplete, so its
    /// client may send bytes that no request reads.
    pub(super) fn begin_incomplete(&self) {
        self.incomplete_requests
            .set(self.incomplete_requests.get() + 1);
        self.charge_window();
    }

    pub(super) fn end_incomplete(&self) {
        self.incomplete_requests
            .set(self.incomplete_requests.get() - 1);
        self.charge_window();
    }

    /// Records bytes that a request has read, and lets the receive window grow.
    pub(super) fn record_read(&self, bytes: usize) {
        let now = || (Instant::now(), self.quic.rtt());
        let grown = self.window.borrow_mut().record_read(bytes as u64, now);
        if let Some(bytes) = grown {
            self.quic.set_receive_window(window(bytes));
            self.charge_window();
        }
    }

    fn charge_window(&self) {
        let has_incomplete_request = self.incomplete_requests.get() > 0;
        let bytes = self.window.borrow().charge(has_incomplete_request);
        self.window_held.borrow_mut().set(bytes);
    }
}

/// Returns a code as an integer of QUIC.
pub(super) fn varint(code: ErrorCode) -> VarInt {
    VarInt::from_u64(code.0).expect("codes are below 2^62")
}

/// Returns a window as an integer of QUIC.
pub(super) fn window(bytes: u64) -> VarInt {
    VarInt::from_u64(bytes).expect("windows are below 2^62")
}

fn connection_config(config: &EdgeConfig) -> ConnectionConfig {
    let limits = &config.limits;
    ConnectionConfig {
        request: RequestLimits {
            section: SectionLimits {
                bytes_max: limits.head_len_max(),
                fields_max: limits.headers_max.get() + PSEUDO_FIELDS_MAX,
            },
            idle_frames_max: None,
        },
        // The transport has the limit of streams. It allows the next stream when the last byte of a response was
        // acknowledged, perhaps before the task of the request has ended.
        requests_max: limits.h2_streams_max.get().saturating_mul(2),
        cancellations_max: limits.h2_resets_max.get(),
        control_frames_max: limits.h2_control_frames_max.get(),
        early_priorities_max: limits.h2_streams_max.get() as usize,
        extended_connect: config.forwarding.upgrades.allows("websocket"),
    }
}

/// The pseudo-header fields of a request: `:method`, `:scheme`, `:authority`, `:path` and `:protocol`.
const PSEUDO_FIELDS_MAX: usize = 5;
