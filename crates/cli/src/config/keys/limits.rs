//! The settings of `[limits]`, except those about slow clients.

use edgeward_types::ByteSize;

use super::super::kind::{REQUEST_BODY_SIZES, Value, ValueKind, duration_text, size_text};
use super::{DURATION, Key, or_none};

pub(super) const CONNECTIONS_MAX: Key = Key {
    path: "limits.connections_max",
    flag: None,
    kind: ValueKind::Count {
        min: 1,
        max: 1 << 22,
    },
    doc: "The maximum number of client connections of all workers. A further connection replaces the connection that \
          has been idle longest, or is refused if every connection has a request in progress. At the start, the edge \
          lowers this limit if the limit of open files requires it, and logs the lower limit.",
    set: |draft, _, value| draft.edge.limits.connections_max = value.nonzero(),
    show: |draft, _| Some(draft.edge.limits.connections_max.to_string()),
};

pub(super) const TUNNELS_MAX: Key = Key {
    path: "limits.tunnels_max",
    flag: None,
    kind: ValueKind::Count {
        min: 1,
        max: 1 << 22,
    },
    doc: "The maximum number of tunnels of all workers to one origin: connections that have switched to WebSocket or \
          another protocol, and requests for it. One client address may use `origin.client_share_percent` of them. \
          A further request gets 503. A tunnel has a connection to the origin of its own, which \
          `origin.connections_per_worker_max` does not include. At the start, the edge lowers this limit if the limit \
          of open files requires it.",
    set: |draft, _, value| draft.edge.limits.tunnels_max = value.nonzero(),
    show: |draft, _| Some(draft.edge.limits.tunnels_max.to_string()),
};

pub(super) const TUNNEL_IDLE_TIMEOUT: Key = Key {
    path: "limits.tunnel_idle_timeout",
    flag: None,
    kind: DURATION,
    doc: "The longest time without a byte in either direction of a tunnel. Then the edge closes both connections. \
          After one side has closed, the timeout is at most `limits.body_idle_timeout`.",
    set: |draft, _, value| draft.edge.limits.tunnel_idle_timeout = value.duration(),
    show: |draft, _| Some(duration_text(draft.edge.limits.tunnel_idle_timeout)),
};

pub(super) const HEAD_BYTES_MAX: Key = Key {
    path: "limits.head_bytes_max",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize::kib(8),
        max: ByteSize::mib(1),
    },
    doc: "The maximum size of a message's head. A larger request head gets 431; a larger response head of the origin \
          becomes 502.",
    set: |draft, _, value| draft.edge.limits.head_bytes_max = value.size(),
    show: |draft, _| Some(size_text(draft.edge.limits.head_bytes_max)),
};

pub(super) const TARGET_BYTES_MAX: Key = Key {
    path: "limits.target_bytes_max",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize(256),
        max: ByteSize::kib(60),
    },
    doc: "The maximum length of a request target. A request with a longer target gets 414.",
    set: |draft, _, value| draft.edge.limits.target_bytes_max = value.size(),
    show: |draft, _| Some(size_text(draft.edge.limits.target_bytes_max)),
};

pub(super) const HEADERS_MAX: Key = Key {
    path: "limits.headers_max",
    flag: None,
    kind: ValueKind::Count { min: 16, max: 4096 },
    doc: "The maximum number of header fields of a message. A request with more fields gets 431; a response of the \
          origin with more fields becomes 502.",
    set: |draft, _, value| draft.edge.limits.headers_max = value.nonzero(),
    show: |draft, _| Some(draft.edge.limits.headers_max.to_string()),
};

pub(super) const RATE_LIMIT_KEYS_PER_ADDRESS: Key = Key {
    path: "limits.rate_limit_keys_per_address",
    flag: None,
    kind: ValueKind::Count {
        min: 1,
        max: 1_000_000,
    },
    doc: "The number of keys whose rates one client address may use together, if `rate_limit_by` is a request field. A \
          client can invent keys, so the requests with keys of one address have this many times the rate and the burst \
          of one key. Increase it if many clients share an address. An IPv6 network with a prefix of 64 bits counts as \
          one address.",
    set: |draft, _, value| draft.edge.limits.rate_limit_keys_per_address = value.nonzero32(),
    show: |draft, _| Some(draft.edge.limits.rate_limit_keys_per_address.to_string()),
};

pub(super) const REQUEST_HEAD_TIMEOUT: Key = Key {
    path: "limits.request_head_timeout",
    flag: None,
    kind: DURATION,
    doc: "The longest time from the first byte of a request to the end of its head. Then the client gets 408.",
    set: |draft, _, value| draft.edge.limits.request_head_timeout = value.duration(),
    show: |draft, _| Some(duration_text(draft.edge.limits.request_head_timeout)),
};

pub(super) const IDLE_TIMEOUT: Key = Key {
    path: "limits.idle_timeout",
    flag: None,
    kind: DURATION,
    doc: "The longest idle time of a client connection between two requests or before the first one. Then the edge \
          closes the connection.",
    set: |draft, _, value| draft.edge.limits.idle_timeout = value.duration(),
    show: |draft, _| Some(duration_text(draft.edge.limits.idle_timeout)),
};

pub(super) const BODY_IDLE_TIMEOUT: Key = Key {
    path: "limits.body_idle_timeout",
    flag: None,
    kind: DURATION,
    doc: "The longest time that a client may take no bytes of its response, or send no bytes of its upload. Then \
          the edge closes the connection.",
    set: |draft, _, value| draft.edge.limits.body_idle_timeout = value.duration(),
    show: |draft, _| Some(duration_text(draft.edge.limits.body_idle_timeout)),
};

pub(super) const PROXY_HEADER_BYTES_MAX: Key = Key {
    path: "limits.proxy_header_bytes_max",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize::kib(1),
        max: ByteSize::kib(64),
    },
    doc: "The longest PROXY header with its extensions, which are skipped. A longer header closes the connection. The \
          header must arrive within `limits.request_head_timeout`.",
    set: |draft, _, value| draft.edge.limits.proxy_header_bytes_max = value.size(),
    show: |draft, _| Some(size_text(draft.edge.limits.proxy_header_bytes_max)),
};

pub(super) const REQUEST_BODY_BYTES_MAX: Key = Key {
    path: "limits.request_body_bytes_max",
    flag: None,
    kind: REQUEST_BODY_SIZES,
    doc: "The largest request body. A request with a larger body gets 413. Uploads are streamed and not stored. \
          The key `request_body_max` of a site or a rule replaces this limit.",
    set: |draft, _, value| {
        draft.edge.limits.request_body_bytes_max = value.optional(Value::size);
    },
    show: |draft, _| {
        let max = draft.edge.limits.request_body_bytes_max;
        Some(or_none(max.map(size_text)))
    },
};

pub(super) const OBJECT_BYTES_MAX: Key = Key {
    path: "limits.object_bytes_max",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize(1),
        max: ByteSize::gib(1 << 10),
    },
    doc: "The largest body that is stored in the cache, even if the policy would store larger ones. Larger bodies are \
          streamed to the client.",
    set: |draft, _, value| draft.edge.limits.object_bytes_max = value.size(),
    show: |draft, _| Some(size_text(draft.edge.limits.object_bytes_max)),
};

pub(super) const FILL_BYTES_MAX: Key = Key {
    path: "limits.fill_bytes_max",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize::mib(1),
        max: ByteSize::gib(16 << 10),
    },
    doc: "The maximum memory of all fills, in addition to `hot.capacity`. Fills are response bodies that are being \
          read into the cache or are shared by several clients. At the limit, misses are streamed without being \
          stored.",
    set: |draft, _, value| draft.edge.limits.fill_bytes_max = value.size(),
    show: |draft, _| Some(size_text(draft.edge.limits.fill_bytes_max)),
};

pub(super) const H2_STREAMS_MAX: Key = Key {
    path: "limits.h2_streams_max",
    flag: None,
    kind: ValueKind::Count {
        min: 1,
        max: 10_000,
    },
    doc: "The maximum number of concurrent streams of an HTTP/2 connection. RFC 9113 §6.5.2 recommends at least 100.",
    set: |draft, _, value| draft.edge.limits.h2_streams_max = value.nonzero32(),
    show: |draft, _| Some(draft.edge.limits.h2_streams_max.to_string()),
};

pub(super) const H2_RESETS_MAX: Key = Key {
    path: "limits.h2_resets_max",
    flag: None,
    kind: ValueKind::Count {
        min: 1,
        max: 1_000_000,
    },
    doc: "The maximum number of RST_STREAM frames that a client may send on an HTTP/2 connection in ten seconds. Each \
          16 KiB of response bytes allow one frame more. Above the limit, the connection is closed with \
          ENHANCE_YOUR_CALM.",
    set: |draft, _, value| draft.edge.limits.h2_resets_max = value.nonzero32(),
    show: |draft, _| Some(draft.edge.limits.h2_resets_max.to_string()),
};

pub(super) const H2_CONTROL_FRAMES_MAX: Key = Key {
    path: "limits.h2_control_frames_max",
    flag: None,
    kind: ValueKind::Count {
        min: 1,
        max: 1_000_000,
    },
    doc: "The maximum number of PING, SETTINGS, PRIORITY and unknown frames that a client may send on an HTTP/2 \
          connection in ten seconds. Each 4 KiB of response bytes allow one frame more. Above the limit, the \
          connection is closed with ENHANCE_YOUR_CALM.",
    set: |draft, _, value| draft.edge.limits.h2_control_frames_max = value.nonzero32(),
    show: |draft, _| Some(draft.edge.limits.h2_control_frames_max.to_string()),
};

pub(super) const H2_WINDOW_UPDATES_MAX: Key = Key {
    path: "limits.h2_window_updates_max",
    flag: None,
    kind: ValueKind::Count {
        min: 1,
        max: 10_000_000,
    },
    doc: "The maximum number of WINDOW_UPDATE frames that a client may send on an HTTP/2 connection in ten seconds. \
          Each 32 response bytes allow one frame more. Above the limit, the connection is closed with \
          ENHANCE_YOUR_CALM.",
    set: |draft, _, value| draft.edge.limits.h2_window_updates_max = value.nonzero32(),
    show: |draft, _| Some(draft.edge.limits.h2_window_updates_max.to_string()),
};

pub(super) const H2_HEADS_BYTES_MAX: Key = Key {
    path: "limits.h2_heads_bytes_max",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize::kib(64),
        max: ByteSize::gib(16),
    },
    doc: "The maximum size of the decoded heads of requests in progress on an HTTP/2 connection. A request that \
          would exceed this size gets 503.",
    set: |draft, _, value| draft.edge.limits.h2_heads_bytes_max = value.size(),
    show: |draft, _| Some(size_text(draft.edge.limits.h2_heads_bytes_max)),
};

pub(super) const HEADS_BYTES_MAX: Key = Key {
    path: "limits.heads_bytes_max",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize::kib(64),
        max: ByteSize::gib(16),
    },
    doc: "The maximum size of the decoded heads of all HTTP/2 requests in progress. A request that \
          would exceed this size gets 503.",
    set: |draft, _, value| draft.edge.limits.heads_bytes_max = value.size(),
    show: |draft, _| Some(size_text(draft.edge.limits.heads_bytes_max)),
};

pub(super) const CONNECTIONS_BYTES_MAX: Key = Key {
    path: "limits.connections_bytes_max",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize::mib(1),
        max: ByteSize::gib(1 << 10),
    },
    doc: "The maximum memory of the state of all client connections: buffers and tasks, incomplete heads, HTTP/2 \
          streams, and requests in progress without their bodies. An idle connection takes 4 KiB, 20 KiB with TLS, and \
          16 KiB more with HTTP/2. At 7/8 of this size, the edge closes the connections that hold most memory, first \
          of the client address (IPv6: /64 network) that holds most, and connections that get hits last. At the whole \
          size, requests over HTTP/2 get 503.",
    set: |draft, _, value| draft.edge.limits.connections_bytes_max = value.size(),
    show: |draft, _| Some(size_text(draft.edge.limits.connections_bytes_max)),
};
