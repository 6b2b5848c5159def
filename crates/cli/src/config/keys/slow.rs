//! The settings that limit how many connections and how much memory a slow client can occupy.

use edgeward_types::ByteSize;

use super::super::kind::{ValueKind, duration_text, size_text};
use super::{DURATION, DURATION_OR_ZERO, Key};

pub(super) const CLIENT_SHARE_PERCENT: Key = Key {
    path: "origin.client_share_percent",
    flag: None,
    kind: ValueKind::Count { min: 1, max: 100 },
    doc: "The percentage of a worker's connections to the origin that one client address (IPv6: one /64) may use \
          while no other client uses such a connection. The percentage decreases with the number of clients that \
          use connections, so that some connections stay free. 100 is no limit; use it if all clients connect \
          through a trusted load balancer.",
    set: |draft, item, value| draft.origin(item).client_share_percent = value.number32(),
    show: |draft, item| {
        Some(
            draft
                .edge
                .origins
                .get(item)?
                .client_share_percent
                .to_string(),
        )
    },
};

pub(super) const UNFINISHED_UPLOADS_PERCENT: Key = Key {
    path: "origin.unfinished_uploads_percent",
    flag: None,
    kind: ValueKind::Count { min: 0, max: 100 },
    doc: "The percentage of a worker's connections to the origin that requests may use before their body is \
          complete. The limit applies to bodies of unknown length that stay incomplete for \
          `limits.upload_buffer_wait`, and to bodies announced with `Expect: 100-continue`. At least one connection \
          is always allowed. Above this limit, such a body is buffered like a body of known length.",
    set: |draft, item, value| draft.origin(item).unfinished_uploads_percent = value.number32(),
    show: |draft, item| {
        Some(
            draft
                .edge
                .origins
                .get(item)?
                .unfinished_uploads_percent
                .to_string(),
        )
    },
};

pub(super) const QUEUE_MAX: Key = Key {
    path: "origin.queue_max",
    flag: None,
    kind: ValueKind::Count {
        min: 0,
        max: 1 << 20,
    },
    doc: "The maximum number of requests per worker that wait for a connection to the origin. Free connections go to \
          the client addresses in turn. Above the maximum, the newest request of the address with the most waiting \
          requests gets 503.",
    set: |draft, item, value| draft.origin(item).queue_max = value.count(),
    show: |draft, item| Some(draft.edge.origins.get(item)?.queue_max.to_string()),
};

pub(super) const QUEUE_TIMEOUT: Key = Key {
    path: "origin.queue_timeout",
    flag: None,
    kind: DURATION,
    doc: "The longest wait for a connection to the origin. After this time, the request gets 503 with `Retry-After`.",
    set: |draft, item, value| draft.origin(item).queue_timeout = value.duration(),
    show: |draft, item| Some(duration_text(draft.edge.origins.get(item)?.queue_timeout)),
};

pub(super) const EXPECT_TIMEOUT: Key = Key {
    path: "origin.expect_timeout",
    flag: None,
    kind: DURATION_OR_ZERO,
    doc: "The longest time that the body of a request with `Expect: 100-continue` waits for the origin's `100 \
          Continue`. After this time, the body is sent without it. Applies only to HTTP/1.1 to the origin.",
    set: |draft, item, value| draft.origin(item).expect_timeout = value.duration(),
    show: |draft, item| Some(duration_text(draft.edge.origins.get(item)?.expect_timeout)),
};

pub(super) const UPLOAD_BUFFER_BYTES: Key = Key {
    path: "limits.upload_buffer_bytes",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize(0),
        max: ByteSize::mib(16),
    },
    doc: "The number of bytes of a request body that are buffered before the request takes a connection to the \
          origin, so that a small slow upload occupies no connection.",
    set: |draft, _, value| draft.edge.limits.upload_buffer_bytes = value.size(),
    show: |draft, _| Some(size_text(draft.edge.limits.upload_buffer_bytes)),
};

pub(super) const UPLOAD_BUFFERS_BYTES_MAX: Key = Key {
    path: "limits.upload_buffers_bytes_max",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize(0),
        max: ByteSize::gib(64),
    },
    doc: "The maximum memory of all upload buffers. At this limit, further bodies are sent to the origin without a \
          buffer.",
    set: |draft, _, value| draft.edge.limits.upload_buffers_bytes_max = value.size(),
    show: |draft, _| Some(size_text(draft.edge.limits.upload_buffers_bytes_max)),
};

pub(super) const UPLOAD_BUFFER_WAIT: Key = Key {
    path: "limits.upload_buffer_wait",
    flag: None,
    kind: DURATION_OR_ZERO,
    doc: "The longest time that a body of unknown length is buffered. Then the request is sent to the origin, because \
          the client may wait for a response before it sends more of the body.",
    set: |draft, _, value| draft.edge.limits.upload_buffer_wait = value.duration(),
    show: |draft, _| Some(duration_text(draft.edge.limits.upload_buffer_wait)),
};

pub(super) const ABANDONED_WAIT: Key = Key {
    path: "limits.abandoned_wait",
    flag: None,
    kind: DURATION_OR_ZERO,
    doc: "The time for which the edge works for a client that has left. A request that was sent to the origin ends \
          after this time, unless its response has begun and may be stored, or other clients wait for it. A client \
          that has closed only its sending direction counts as left if it gets no byte of its response for this time.",
    set: |draft, _, value| draft.edge.limits.abandoned_wait = value.duration(),
    show: |draft, _| Some(duration_text(draft.edge.limits.abandoned_wait)),
};

pub(super) const UPLOAD_RATE_MIN: Key = Key {
    path: "limits.upload_rate_min",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize(0),
        max: ByteSize::mib(1),
    },
    doc: "The minimum rate of an upload, in bytes per second over `rate_window`. A slower upload gets 408. Only time \
          in which the edge waits for the client counts. 0 is no limit.",
    set: |draft, _, value| draft.edge.limits.upload_rate_min = value.size(),
    show: |draft, _| Some(size_text(draft.edge.limits.upload_rate_min)),
};

pub(super) const RESPONSE_RATE_MIN: Key = Key {
    path: "limits.response_rate_min",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize(0),
        max: ByteSize::mib(1),
    },
    doc: "The minimum rate at which a client takes a response, in bytes per second over `rate_window`. Time counts \
          only while the client does not take bytes that the edge has, so that event streams and slow origins are \
          not affected. 0 is no limit.",
    set: |draft, _, value| draft.edge.limits.response_rate_min = value.size(),
    show: |draft, _| Some(size_text(draft.edge.limits.response_rate_min)),
};

pub(super) const RATE_WINDOW: Key = Key {
    path: "limits.rate_window",
    flag: None,
    kind: DURATION,
    doc: "The time over which `upload_rate_min` and `response_rate_min` apply: a client may pause for this time before \
          its rate is too low. For a response over HTTP/1.1, the time is `body_idle_timeout` if that is longer. There \
          is one exception: while requests wait for a connection to the origin and the response uses such a \
          connection, the time is always `rate_window`.",
    set: |draft, _, value| draft.edge.limits.rate_window = value.duration(),
    show: |draft, _| Some(duration_text(draft.edge.limits.rate_window)),
};

pub(super) const READ_AHEAD_BYTES: Key = Key {
    path: "limits.read_ahead_bytes",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize(0),
        max: ByteSize::mib(64),
    },
    doc: "The number of bytes of a response that the edge reads from the origin and buffers while the client takes \
          none. The buffer counts towards `fill_bytes_max`. If the rest of the body fits into the buffer, the \
          connection to the origin is released.",
    set: |draft, _, value| draft.edge.limits.read_ahead_bytes = value.size(),
    show: |draft, _| Some(size_text(draft.edge.limits.read_ahead_bytes)),
};

pub(super) const READ_AHEAD_RATE_MAX: Key = Key {
    path: "limits.read_ahead_rate_max",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize(0),
        max: ByteSize::gib(64),
    },
    doc: "The maximum rate, in bytes per second, at which a worker reads bodies ahead of slow clients. The limit \
          applies to a body while the edge has read more than 128 KiB that no client of the body has taken. For up \
          to 64 bodies per worker, it applies only above 1 MiB. 0 is no limit.",
    set: |draft, _, value| draft.edge.limits.read_ahead_rate_max = value.size(),
    show: |draft, _| Some(size_text(draft.edge.limits.read_ahead_rate_max)),
};
