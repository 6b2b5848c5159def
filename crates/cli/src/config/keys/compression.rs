//! The settings of `[compression]`.

use edgeward_proxy::config::OriginAccepts;
use edgeward_types::ByteSize;

use super::super::kind::{ValueKind, size_text};
use super::Key;

pub(super) const ENABLED: Key = Key {
    path: "compression.enabled",
    flag: None,
    kind: ValueKind::Switch,
    doc: "True if the edge compresses stored responses that the origin sends without a coding. Responses that the \
          origin has compressed are kept as they are.",
    set: |draft, _, value| draft.edge.compression.enabled = value.switch(),
    show: |draft, _| Some(draft.edge.compression.enabled.to_string()),
};

pub(super) const CODINGS: Key = Key {
    path: "compression.codings",
    flag: None,
    kind: ValueKind::Codings,
    doc: "The codings that the edge applies: `br`, `zstd` and `gzip`. If a client accepts several equally, it gets the \
          first.",
    set: |draft, _, value| draft.edge.compression.codings = value.codings(),
    show: |draft, _| {
        let names = draft.edge.compression.codings.iter();
        Some(
            names
                .map(|coding| coding.name())
                .collect::<Vec<_>>()
                .join(", "),
        )
    },
};

pub(super) const TYPES: Key = Key {
    path: "compression.types",
    flag: None,
    kind: ValueKind::MediaTypes,
    doc: "The media types that are compressed: one type, all of a kind (`text/*`) or all with one syntax (`*+json`). \
          `text/event-stream` is never compressed.",
    set: |draft, _, value| draft.edge.compression.rules.types = value.media_types(),
    show: |draft, _| Some(draft.edge.compression.rules.types.to_string()),
};

pub(super) const LENGTH_MIN: Key = Key {
    path: "compression.length_min",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize(1),
        max: ByteSize::mib(64),
    },
    doc: "The shortest body that is compressed.",
    set: |draft, _, value| draft.edge.compression.rules.length_min = value.size().bytes(),
    show: |draft, _| Some(size_text(ByteSize(draft.edge.compression.rules.length_min))),
};

pub(super) const LENGTH_MAX: Key = Key {
    path: "compression.length_max",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize::kib(1),
        max: ByteSize::mib(64),
    },
    doc: "The longest body that is compressed. A range without a stored response is not compressed either: it is \
          stored in slices.",
    set: |draft, _, value| draft.edge.compression.rules.length_max = value.size().bytes(),
    show: |draft, _| Some(size_text(ByteSize(draft.edge.compression.rules.length_max))),
};

pub(super) const BROTLI_LEVEL: Key = Key {
    path: "compression.brotli_level",
    flag: None,
    kind: ValueKind::Count { min: 0, max: 11 },
    doc: "The level of Brotli. A body is compressed once and sent many times, so a level that is too slow for each \
          response may be right for a site that seldom changes.",
    set: |draft, _, value| draft.edge.compression.brotli_level = value.number32(),
    show: |draft, _| Some(draft.edge.compression.brotli_level.to_string()),
};

pub(super) const ZSTD_LEVEL: Key = Key {
    path: "compression.zstd_level",
    flag: None,
    kind: ValueKind::Count { min: 1, max: 19 },
    doc: "The level of zstd.",
    set: |draft, _, value| {
        // The bounds of the setting are far below the limit of the type.
        draft.edge.compression.zstd_level = i32::try_from(value.number()).unwrap_or(i32::MAX);
    },
    show: |draft, _| Some(draft.edge.compression.zstd_level.to_string()),
};

pub(super) const GZIP_LEVEL: Key = Key {
    path: "compression.gzip_level",
    flag: None,
    kind: ValueKind::Count { min: 1, max: 9 },
    doc: "The level of gzip.",
    set: |draft, _, value| draft.edge.compression.gzip_level = value.number32(),
    show: |draft, _| Some(draft.edge.compression.gzip_level.to_string()),
};

pub(super) const PERSONAL: Key = Key {
    path: "compression.personal",
    flag: None,
    kind: ValueKind::Switch,
    doc: "True if the edge also compresses stored responses that may be for one user: those that set a cookie, vary \
          by `Cookie` or `Authorization`, or answer a request with `Authorization`. An attacker who can add text to \
          such a response and sees its length can guess secrets in it (BREACH).",
    set: |draft, _, value| draft.edge.compression.rules.personal = value.switch(),
    show: |draft, _| Some(draft.edge.compression.rules.personal.to_string()),
};

pub(super) const ORIGIN_ACCEPTS: Key = Key {
    path: "compression.origin_accepts",
    flag: None,
    kind: ValueKind::Choice(&["forward", "identity"]),
    doc: "The `Accept-Encoding` of requests to the origin whose responses may be stored. `\"forward\"`: that of the \
          client; responses that the origin compresses are stored once per value. `\"identity\"`: the cache stores one \
          response without a coding and makes all others from it.",
    set: |draft, _, value| {
        draft.edge.compression.origin_accepts = match value.text().as_str() {
            "identity" => OriginAccepts::Identity,
            _ => OriginAccepts::Forward,
        };
    },
    show: |draft, _| {
        let text = match draft.edge.compression.origin_accepts {
            OriginAccepts::Forward => "forward",
            OriginAccepts::Identity => "identity",
        };
        Some(text.to_owned())
    },
};

pub(super) const WAIT_BYTES_MAX: Key = Key {
    path: "compression.wait_bytes_max",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize(0),
        max: ByteSize::mib(64),
    },
    doc: "The longest body for whose compression a request waits. Requests for a longer body get it without a coding \
          until the compressed body is stored.",
    set: |draft, _, value| draft.edge.compression.wait_bytes_max = value.size(),
    show: |draft, _| Some(size_text(draft.edge.compression.wait_bytes_max)),
};

pub(super) const THREADS: Key = Key {
    path: "compression.threads",
    flag: None,
    kind: ValueKind::Count { min: 1, max: 1024 },
    doc: "The threads that compress. Default: half of the cores.",
    set: |draft, _, value| draft.edge.compression.threads = value.nonzero(),
    show: |draft, _| Some(draft.edge.compression.threads.to_string()),
};

pub(super) const PENDING_BYTES_MAX: Key = Key {
    path: "compression.pending_bytes_max",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize::kib(64),
        max: ByteSize::gib(16),
    },
    doc: "The memory of compressed bodies that are being made, or sent without being stored. If it is used up, further \
          responses are sent without a coding, so it also bounds the time for which a request waits.",
    set: |draft, _, value| draft.edge.compression.pending_bytes_max = value.size(),
    show: |draft, _| Some(size_text(draft.edge.compression.pending_bytes_max)),
};
