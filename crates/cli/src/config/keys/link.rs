//! The settings of the link to a gateway.

use std::time::Duration;

use edgeward_types::ByteSize;

use super::super::check::path_text;
use super::super::choice::Choice as _;
use super::super::kind::{Value, ValueKind, duration_text, size_text};
use super::{Key, or_none};
use crate::link_settings::{Compression, IdScheme};

pub(super) const GATEWAY: Key = Key {
    path: "origin.link.gateway",
    flag: None,
    kind: ValueKind::HostPort,
    doc: "Host and port of the gateway.",
    set: |draft, _, value| draft.link.gateway = value.text().parse().ok(),
    show: |draft, _| draft.link.gateway.as_ref().map(ToString::to_string),
};

pub(super) const KEYS: Key = Key {
    path: "origin.link.keys",
    flag: None,
    kind: ValueKind::Path,
    doc: "The edge's folder of keys, which `edgeward link keygen` creates.",
    set: |draft, _, value| draft.link.keys = Some(value.file()),
    show: |draft, _| draft.link.keys.as_deref().map(path_text),
};

pub(super) const STORE: Key = Key {
    path: "origin.link.store",
    flag: None,
    kind: ValueKind::Path,
    doc: "A folder, file or device for the chunks of received bodies. Must not be the store of the disk cache.",
    set: |draft, _, value| draft.link.store = Some(value.file()),
    show: |draft, _| draft.link.store.as_deref().map(path_text),
};

pub(super) const STORE_SIZE: Key = Key {
    path: "origin.link.store_size",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize::mib(16),
        max: ByteSize::gib(32 << 10),
    },
    doc: "The size of the store in bytes. Its index takes 0.8 GB of memory per terabyte of the store, and at least \
          twice as much with `store_compression`.",
    set: |draft, _, value| draft.link.store_size = value.size(),
    show: |draft, _| Some(size_text(draft.link.store_size)),
};

pub(super) const STORE_COMPRESSION: Key = Key {
    path: "origin.link.store_compression",
    flag: None,
    kind: ValueKind::Choice(Compression::WORDS),
    doc: "The compression of chunks in the store. With compression, the store holds several times as much text, but \
          takes some CPU time.",
    set: |draft, _, value| draft.link.store_compression = value.choice(),
    show: |draft, _| Some(draft.link.store_compression.word().to_owned()),
};

pub(super) const ENCRYPTION: Key = Key {
    path: "origin.link.encryption",
    flag: None,
    kind: ValueKind::Switch,
    doc: "If true, the link uses TLS 1.3 with the keys. Set this to false only inside a VPN, and then at \
          the gateway too.",
    set: |draft, _, value| draft.link.encryption = value.switch(),
    show: |draft, _| Some(draft.link.encryption.to_string()),
};

pub(super) const COMPRESSION: Key = Key {
    path: "origin.link.compression",
    flag: None,
    kind: ValueKind::Choice(Compression::WORDS),
    doc: "The compression of bodies on the link. The link switches to faster compression, or to no compression, if \
          the network is faster than the CPU can compress.",
    set: |draft, _, value| draft.link.compression = value.choice(),
    show: |draft, _| Some(draft.link.compression.word().to_owned()),
};

pub(super) const DEDUP: Key = Key {
    path: "origin.link.dedup",
    flag: None,
    kind: ValueKind::Switch,
    doc: "If true, a chunk that was sent before is replaced by a reference. Applies to the data that this endpoint \
          sends.",
    set: |draft, _, value| draft.link.dedup = value.switch(),
    show: |draft, _| Some(draft.link.dedup.to_string()),
};

pub(super) const DELTA: Key = Key {
    path: "origin.link.delta",
    flag: None,
    kind: ValueKind::Switch,
    doc: "If true, a new chunk is sent as a delta against similar data sent before. Applies to the data that this \
          endpoint sends.",
    set: |draft, _, value| draft.link.delta = value.switch(),
    show: |draft, _| Some(draft.link.delta.to_string()),
};

pub(super) const IDS: Key = Key {
    path: "origin.link.ids",
    flag: None,
    kind: ValueKind::Choice(IdScheme::WORDS),
    doc: "The function that computes chunk ids; must be the same at the gateway. `gmac` is faster than `blake3`, but \
          anyone with the store key (the file `store.key` in the folder of keys) can create different chunks with \
          the same id. Use `gmac` only if the endpoints trust each other.",
    set: |draft, _, value| draft.link.ids = value.choice(),
    show: |draft, _| Some(draft.link.ids.word().to_owned()),
};

pub(super) const CONNECTIONS: Key = Key {
    path: "origin.link.connections",
    flag: None,
    kind: ValueKind::Count { min: 1, max: 16 },
    doc: "The number of TCP connections to the gateway. If there are several, the first one carries short messages, \
          and the others carry long ones.",
    set: |draft, _, value| draft.link.connections = value.count(),
    show: |draft, _| Some(draft.link.connections.to_string()),
};

pub(super) const TIMEOUT: Key = Key {
    path: "origin.link.patience",
    flag: None,
    kind: ValueKind::Duration {
        min: Duration::from_millis(1),
        max: Duration::from_secs(3600),
    },
    doc: "How long requests in progress wait while the link is down. New requests fail at once.",
    set: |draft, _, value| draft.link.timeout = value.duration(),
    show: |draft, _| Some(duration_text(draft.link.timeout)),
};

pub(super) const ADMIN: Key = Key {
    path: "origin.link.admin",
    flag: None,
    kind: ValueKind::AddressOrNone,
    doc: "The address that serves `/metrics` and `/status` of the link, for `edgeward link status`.",
    set: |draft, _, value| draft.link.admin = value.optional(Value::address),
    show: |draft, _| Some(or_none(draft.link.admin.map(|addr| addr.to_string()))),
};
