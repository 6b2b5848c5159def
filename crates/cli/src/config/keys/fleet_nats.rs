//! The settings of `[fleet.nats]`.

use std::time::Duration;

use edgeward_types::ByteSize;

use super::row::{Key, rows};
use crate::config::draft::Part as _;
use crate::config::value::{
    Count, InputFile, NatsUrls, Size, StreamName, Switch, Text, Time, Unset, Word,
};
use crate::fleet_settings::FleetNats;

pub(super) static ROWS: &[Key] = rows! {
    /// The servers of NATS, such as `["nats://10.0.0.5:4222"]`; `tls://` demands TLS. A connection needs one of them,
    /// and learns of the others.
    "fleet.nats.servers" restart: NatsUrls => FleetNats.servers;

    /// The name of the stream. All nodes of a fleet have the same one; the first node creates the stream. Its subject
    /// is `STREAM.purges`. Default: `edgeward`.
    "fleet.nats.stream" restart: StreamName => FleetNats.stream;

    /// The user as whom the node connects, together with `password_file`.
    "fleet.nats.user" restart: Unset(Text) => FleetNats.user;

    /// The file with the password.
    "fleet.nats.password_file" restart: Unset(InputFile) => FleetNats.password_file;

    /// The file with a token, instead of a user.
    "fleet.nats.token_file" restart: Unset(InputFile) => FleetNats.token_file;

    /// PEM file of the root certificates that the servers must chain to. The connection then demands TLS. Default: the
    /// root certificates of the system.
    "fleet.nats.ca" restart: Unset(InputFile) => FleetNats.ca;

    /// PEM file of the certificate by which the node authenticates itself, together with `key`.
    "fleet.nats.certificate" restart: Unset(InputFile) => FleetNats.certificate;

    /// PEM file of the certificate's key.
    "fleet.nats.key" restart: Unset(InputFile) => FleetNats.key;

    /// The number of copies of the stream, each on another server of NATS, if this node creates the stream. Default: 1.
    /// Three survive the loss of a server and a power failure.
    "fleet.nats.replicas" restart: Count::of(1, 5) => FleetNats.replicas;

    /// The age after which the stream drops a purge, if this node creates the stream. A node that was down for longer
    /// purges all its objects. Default: 7 days.
    "fleet.nats.age_max" restart:
        Time(Duration::from_secs(60), Duration::from_secs(366 * 24 * 3600)) => FleetNats.age_max;

    /// The size above which the stream drops its oldest purges, if this node creates the stream. Default: 512 MiB,
    /// about two million purges.
    "fleet.nats.bytes_max" restart: Size(ByteSize::mib(1), ByteSize::gib(1024)) => FleetNats.bytes_max;

    /// The memory of the purges that the stream has delivered and that the node has not applied, and as much again of
    /// the purges that clients have sent to this node and that wait for the stream. Further purges of clients get 503.
    /// Default: 16 MiB.
    "fleet.nats.buffer_bytes_max" restart: Size(ByteSize::mib(1), ByteSize::gib(1)) => FleetNats.buffer_bytes_max;

    /// The lag above which the node is cut off: it may lack purges that were acknowledged longer ago. Default: 5 s.
    "fleet.nats.lag_max" restart: Time(Duration::from_secs(2), Duration::from_secs(24 * 3600)) => FleetNats.lag_max;

    /// The time after which a node that was killed is no member, if the nodes announce themselves: a heartbeat lasts so
    /// long, and a node sends four in this time. Default: 10 s.
    "fleet.nats.member_ttl" restart: Time(Duration::from_secs(2), Duration::from_secs(300)) => FleetNats.member_ttl;

    /// The time within which the share of keys of a node grows that has started, if the nodes announce themselves: from
    /// a tenth of its weight, in ten steps. The origin gets the misses of its empty cache over this time. A node that
    /// replaces its process in an upgrade keeps its share. With `0s`, a node has its whole share at once. Default: 30
    /// s.
    "fleet.nats.slow_start" restart: Time(Duration::ZERO, Duration::from_secs(3600)) => FleetNats.slow_start;

    /// The use of stored responses while the node is cut off. `serve`: they are served. `validate`: the origin
    /// validates each one before. `refuse`: their requests get 503. Default: `serve`.
    "fleet.nats.when_cut_off" restart: Word::OF => FleetNats.when_cut_off;

    /// If true, the node carries out a purge alone while it cannot reach the stream; the other nodes never learn of it.
    /// Default: false, such a purge gets 503.
    "fleet.nats.purge_alone" restart: Switch => FleetNats.purge_alone;
};
