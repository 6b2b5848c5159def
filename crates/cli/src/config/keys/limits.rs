//! The settings of `[limits]`, except those about slow clients.

use edgeward_types::ByteSize;

use super::super::kind::{Kind, Value, duration_text, size_text};
use super::{DURATION, Key, or_none};

pub(super) const CONNECTIONS_MAX: Key = Key {
    path: "limits.connections_max",
    flag: None,
    kind: Kind::Count {
        least: 1,
        most: 1 << 22,
    },
    doc: "Client connections of all workers. A further one takes the place of the one that is idle longest, and is \
          refused if every connection has a request under way. At the start the bound is lowered to what the limit of open \
          files leaves, with a line in the log.",
    set: |draft, _, value| draft.edge.limits.connections_max = value.nonzero(),
    show: |draft, _| Some(draft.edge.limits.connections_max.to_string()),
};

pub(super) const HEAD_BYTES_MAX: Key = Key {
    path: "limits.head_bytes_max",
    flag: None,
    kind: Kind::Size {
        least: ByteSize::kib(8),
        most: ByteSize::mib(1),
    },
    doc: "A message's head, from clients and from the origin. Beyond it a client gets 431, \
          and an origin's response becomes 502.",
    set: |draft, _, value| draft.edge.limits.head_bytes_max = value.size(),
    show: |draft, _| Some(size_text(draft.edge.limits.head_bytes_max)),
};

pub(super) const TARGET_BYTES_MAX: Key = Key {
    path: "limits.target_bytes_max",
    flag: None,
    kind: Kind::Size {
        least: ByteSize(256),
        most: ByteSize::kib(60),
    },
    doc: "A request's target. Beyond it a client gets 414.",
    set: |draft, _, value| draft.edge.limits.target_bytes_max = value.size(),
    show: |draft, _| Some(size_text(draft.edge.limits.target_bytes_max)),
};

pub(super) const HEADERS_MAX: Key = Key {
    path: "limits.headers_max",
    flag: None,
    kind: Kind::Count {
        least: 16,
        most: 4096,
    },
    doc: "Header fields of a message.",
    set: |draft, _, value| draft.edge.limits.headers_max = value.nonzero(),
    show: |draft, _| Some(draft.edge.limits.headers_max.to_string()),
};

pub(super) const REQUEST_HEAD_TIMEOUT: Key = Key {
    path: "limits.request_head_timeout",
    flag: None,
    kind: DURATION,
    doc: "From the first byte of a request to the end of its head; then 408.",
    set: |draft, _, value| draft.edge.limits.request_head_timeout = value.duration(),
    show: |draft, _| Some(duration_text(draft.edge.limits.request_head_timeout)),
};

pub(super) const IDLE_TIMEOUT: Key = Key {
    path: "limits.idle_timeout",
    flag: None,
    kind: DURATION,
    doc: "Silence between two requests of a connection, or before the first.",
    set: |draft, _, value| draft.edge.limits.idle_timeout = value.duration(),
    show: |draft, _| Some(duration_text(draft.edge.limits.idle_timeout)),
};

pub(super) const BODY_IDLE_TIMEOUT: Key = Key {
    path: "limits.body_idle_timeout",
    flag: None,
    kind: DURATION,
    doc: "Longest a client may take nothing of its response, or send nothing of its upload.",
    set: |draft, _, value| draft.edge.limits.body_idle_timeout = value.duration(),
    show: |draft, _| Some(duration_text(draft.edge.limits.body_idle_timeout)),
};

pub(super) const REQUEST_BODY_BYTES_MAX: Key = Key {
    path: "limits.request_body_bytes_max",
    flag: None,
    kind: Kind::SizeOrNone {
        least: ByteSize(0),
        most: ByteSize::gib(16 << 10),
    },
    doc: "Largest upload; beyond it 413. Uploads are streamed and never kept.",
    set: |draft, _, value| {
        draft.edge.limits.request_body_bytes_max = value.optional(Value::size);
    },
    show: |draft, _| {
        let most = draft.edge.limits.request_body_bytes_max;
        Some(or_none(most.map(size_text)))
    },
};

pub(super) const OBJECT_BYTES_MAX: Key = Key {
    path: "limits.object_bytes_max",
    flag: None,
    kind: Kind::Size {
        least: ByteSize(1),
        most: ByteSize::gib(1 << 10),
    },
    doc: "Largest body that may enter the cache, whatever the policy says. Larger ones pass \
          through.",
    set: |draft, _, value| draft.edge.limits.object_bytes_max = value.size(),
    show: |draft, _| Some(size_text(draft.edge.limits.object_bytes_max)),
};

pub(super) const FILL_BYTES_MAX: Key = Key {
    path: "limits.fill_bytes_max",
    flag: None,
    kind: Kind::Size {
        least: ByteSize::mib(1),
        most: ByteSize::gib(16 << 10),
    },
    doc: "Memory of all responses under way to the cache or to several clients, beside \
          `hot.capacity`. When it is used up misses pass through uncached.",
    set: |draft, _, value| draft.edge.limits.fill_bytes_max = value.size(),
    show: |draft, _| Some(size_text(draft.edge.limits.fill_bytes_max)),
};

pub(super) const H2_STREAMS_MAX: Key = Key {
    path: "limits.h2_streams_max",
    flag: None,
    kind: Kind::Count {
        least: 1,
        most: 10_000,
    },
    doc: "Streams open at once in one HTTP/2 connection. RFC 9113 §6.5.2 advises against \
          less than 100.",
    set: |draft, _, value| draft.edge.limits.h2_streams_max = value.nonzero32(),
    show: |draft, _| Some(draft.edge.limits.h2_streams_max.to_string()),
};

pub(super) const H2_RESETS_MAX: Key = Key {
    path: "limits.h2_resets_max",
    flag: None,
    kind: Kind::Count {
        least: 1,
        most: 1_000_000,
    },
    doc: "RST_STREAM frames of one HTTP/2 connection in ten seconds. 16 KiB of response bytes \
          justify one more. Beyond it the connection ends with ENHANCE_YOUR_CALM.",
    set: |draft, _, value| draft.edge.limits.h2_resets_max = value.nonzero32(),
    show: |draft, _| Some(draft.edge.limits.h2_resets_max.to_string()),
};

pub(super) const H2_CONTROL_FRAMES_MAX: Key = Key {
    path: "limits.h2_control_frames_max",
    flag: None,
    kind: Kind::Count {
        least: 1,
        most: 1_000_000,
    },
    doc: "PING, SETTINGS, PRIORITY and unknown frames of one HTTP/2 connection in ten seconds. 4 KiB \
          of response bytes justify one more. Beyond it the connection ends with \
          ENHANCE_YOUR_CALM.",
    set: |draft, _, value| draft.edge.limits.h2_control_frames_max = value.nonzero32(),
    show: |draft, _| Some(draft.edge.limits.h2_control_frames_max.to_string()),
};

pub(super) const H2_WINDOW_UPDATES_MAX: Key = Key {
    path: "limits.h2_window_updates_max",
    flag: None,
    kind: Kind::Count {
        least: 1,
        most: 10_000_000,
    },
    doc: "WINDOW_UPDATE frames of one HTTP/2 connection in ten seconds. 32 response bytes justify \
          one more. Beyond it the connection ends with ENHANCE_YOUR_CALM.",
    set: |draft, _, value| draft.edge.limits.h2_window_updates_max = value.nonzero32(),
    show: |draft, _| Some(draft.edge.limits.h2_window_updates_max.to_string()),
};

pub(super) const H2_HEADS_BYTES_MAX: Key = Key {
    path: "limits.h2_heads_bytes_max",
    flag: None,
    kind: Kind::Size {
        least: ByteSize::kib(64),
        most: ByteSize::gib(16),
    },
    doc: "Decoded heads of the requests under way in one HTTP/2 connection. A request beyond it gets \
          503.",
    set: |draft, _, value| draft.edge.limits.h2_heads_bytes_max = value.size(),
    show: |draft, _| Some(size_text(draft.edge.limits.h2_heads_bytes_max)),
};

pub(super) const HEADS_BYTES_MAX: Key = Key {
    path: "limits.heads_bytes_max",
    flag: None,
    kind: Kind::Size {
        least: ByteSize::kib(64),
        most: ByteSize::gib(16),
    },
    doc: "Decoded heads of all HTTP/2 requests under way. A request beyond it gets 503.",
    set: |draft, _, value| draft.edge.limits.heads_bytes_max = value.size(),
    show: |draft, _| Some(size_text(draft.edge.limits.heads_bytes_max)),
};
