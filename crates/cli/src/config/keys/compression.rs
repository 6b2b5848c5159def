//! The settings of `[compression]`.

use edgeward_proxy::config::EdgeConfig;
use edgeward_types::ByteSize;

use super::row::{Key, rows};
use crate::config::draft::Part as _;
use crate::config::value::{Codings, Count, MediaTypes, Size, Switch, Word};

pub(super) static ROWS: &[Key] = rows! {
    /// True if the edge compresses stored responses that the origin sends without a coding. Responses that the origin
    /// has compressed are kept as they are.
    "compression.enabled" live: Switch => EdgeConfig.compression.enabled;

    /// The codings that the edge applies: `br`, `zstd` and `gzip`. If a client accepts several equally, it gets the
    /// first.
    "compression.codings" live: Codings => EdgeConfig.compression.codings;

    /// The media types that are compressed: one type, all of a kind (`text/*`) or all with one syntax (`*+json`).
    /// `text/event-stream` is never compressed.
    "compression.types" live: MediaTypes => EdgeConfig.compression.rules.types;

    /// The shortest body that is compressed.
    "compression.length_min" live: Size(ByteSize(1), ByteSize::mib(64)),
        get: |draft, _| Some(ByteSize(draft.edge.compression.rules.length_min)),
        set: |draft, _, value| draft.edge.compression.rules.length_min = value.bytes();

    /// The longest body that is compressed. A range without a stored response is not compressed either: it is stored in
    /// slices.
    "compression.length_max" live: Size(ByteSize::kib(1), ByteSize::mib(64)),
        get: |draft, _| Some(ByteSize(draft.edge.compression.rules.length_max)),
        set: |draft, _, value| draft.edge.compression.rules.length_max = value.bytes();

    /// The level of Brotli. A body is compressed once and sent many times, so a level that is too slow for each
    /// response may be right for a site that seldom changes.
    "compression.brotli_level" live: Count::of(0, 11) => EdgeConfig.compression.brotli_level;

    /// The level of zstd.
    "compression.zstd_level" live: Count::of(1, 19) => EdgeConfig.compression.zstd_level;

    /// The level of gzip.
    "compression.gzip_level" live: Count::of(1, 9) => EdgeConfig.compression.gzip_level;

    /// True if the edge also compresses stored responses that may be for one user: those that set a cookie, vary by
    /// `Cookie` or `Authorization`, or answer a request with `Authorization`. An attacker who can add text to such a
    /// response and sees its length can guess secrets in it (BREACH).
    "compression.personal" live: Switch => EdgeConfig.compression.rules.personal;

    /// The `Accept-Encoding` of requests to the origin whose responses may be stored. `"forward"`: that of the client;
    /// responses that the origin compresses are stored once per value. `"identity"`: the cache stores one response
    /// without a coding and makes all others from it.
    "compression.origin_accepts" live: Word::OF => EdgeConfig.compression.origin_accepts;

    /// The longest body for whose compression a request waits. Requests for a longer body get it without a coding until
    /// the compressed body is stored.
    "compression.wait_bytes_max" live:
        Size(ByteSize(0), ByteSize::mib(64)) => EdgeConfig.compression.wait_bytes_max;

    /// The memory of dictionaries: copies of the bodies that clients may have (RFC 9842). The least recently used one
    /// is dropped. Sites have no dictionaries unless they set `dictionary`.
    "compression.dictionary_bytes_max" restart:
        Size(ByteSize(0), ByteSize::gib(16)) => EdgeConfig.compression.dictionary_bytes_max;

    /// The threads that compress. Default: half of the cores.
    "compression.threads" restart: Count::of(1, 1024) => EdgeConfig.compression.threads;

    /// The memory of compressed bodies that are being made, or sent without being stored. If it is used up, further
    /// responses are sent without a coding, so it also bounds the time for which a request waits.
    "compression.pending_bytes_max" restart:
        Size(ByteSize::kib(64), ByteSize::gib(16)) => EdgeConfig.compression.pending_bytes_max;
};
