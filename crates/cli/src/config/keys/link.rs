//! The settings of `[origin.link]`.

use std::time::Duration;

use edgeward_types::ByteSize;

use super::row::{Key, rows};
use crate::config::draft::Part as _;
use crate::config::value::{
    Address, Count, HostPort, HostPorts, OrNone, PathName, RateLimit, Size, Switch, Time, Unset,
    Word,
};
use crate::link_settings::LinkSettings;

pub(super) static ROWS: &[Key] = rows! {
    /// Host and port of the gateway.
    "origin.link.gateway" live: Unset(HostPort) => LinkSettings.gateway;

    /// Gateways that are used, in this order, if `gateway` cannot be reached.
    "origin.link.more_gateways" live: HostPorts => LinkSettings.more_gateways;

    /// The edge's folder of keys, which `edgeward link keygen` creates.
    "origin.link.keys" live: Unset(PathName) => LinkSettings.keys;

    /// A folder, file or device for the chunks of received bodies. Must not be the store of the disk cache.
    "origin.link.store" live: Unset(PathName) => LinkSettings.store;

    /// The size of the store in bytes. Its index takes 0.8 GB of memory per terabyte of the store, and at least twice
    /// as much with `store_compression`.
    "origin.link.store_size" live:
        Size(ByteSize::mib(16), ByteSize::gib(32 << 10)) => LinkSettings.store_size;

    /// The compression of chunks in the store. With compression, the store holds several times as much text, but takes
    /// some CPU time.
    "origin.link.store_compression" live: Word::OF => LinkSettings.store_compression;

    /// If true, the link uses TLS 1.3 with the keys. Set this to false only inside a VPN, and then at the gateway too.
    "origin.link.encryption" live: Switch => LinkSettings.encryption;

    /// The compression of bodies on the link. The link switches to faster compression, or to no compression, if the
    /// network is faster than the CPU can compress.
    "origin.link.compression" live: Word::OF => LinkSettings.compression;

    /// If true, a chunk that was sent before is replaced by a reference. Applies to the data that this endpoint sends.
    "origin.link.dedup" live: Switch => LinkSettings.dedup;

    /// If true, a new chunk is sent as a delta against similar data sent before. Applies to the data that this endpoint
    /// sends.
    "origin.link.delta" live: Switch => LinkSettings.delta;

    /// The number of TCP connections to the gateway. If there are several, the first one carries short messages, and
    /// the others carry long ones.
    "origin.link.connections" live: Count::of(1, 16) => LinkSettings.connections;

    /// The limit of the bytes that the edge sends to its gateway, such as `20Mbps`, or by time of day (UTC), such as
    /// `08:00-18:00=20Mbps,100Mbps`. The first rule that contains the time applies. The gateway limits the other
    /// direction with `--rate-limit`.
    "origin.link.rate_limit" live: OrNone(RateLimit) => LinkSettings.rate_limit;

    /// How long requests in progress wait while the link is down. New requests fail at once.
    "origin.link.patience" live:
        Time(Duration::from_millis(1), Duration::from_secs(3600)) => LinkSettings.timeout;

    /// The address that serves `/metrics` and `/status` of the link, for `edgeward link status`.
    "origin.link.admin" live: OrNone(Address) => LinkSettings.admin;
};
