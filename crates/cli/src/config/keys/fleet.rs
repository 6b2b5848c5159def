//! The settings of `[fleet]` and `[[fleet.member]]`.

use std::time::Duration;

use edgeward_proxy::config::NODE_WEIGHT_MAX;

use super::row::{Key, rows};
use crate::config::draft::{DraftFleet, DraftMember, Part as _};
use crate::config::value::{
    Address, Count, InputFile, Share, Switch, Time, Token, Unset, Url, Word,
};

pub(super) static ROWS: &[Key] = rows! {
    /// The name of this node: that of one `[[fleet.member]]`, if there are any. All other settings of the fleet may be
    /// the same at all nodes, except the addresses and the certificate.
    "fleet.name" live: Unset(Token) => DraftFleet.name;

    /// The address and port on which this node listens for the other nodes. They ask by HTTP/2. Clients must not reach
    /// it.
    "fleet.address" live: Unset(Address) => DraftFleet.address;

    /// The URL by which the other nodes ask this node: `https://HOST:PORT` with certificates. Default: the scheme and
    /// `fleet.address`. The node announces this and the next three settings by `[fleet.nats]`, if there is no
    /// `[[fleet.member]]`; otherwise its `[[fleet.member]]` has them.
    "fleet.url" live: Unset(Url) => DraftFleet.url;

    /// The group of this node, as `fleet.member.group`. Default: `edge`.
    "fleet.group" live: Word::OF => DraftFleet.group;

    /// The share of keys of this node, as `fleet.member.weight`. Default: 100.
    "fleet.weight" live: Count::of(1, NODE_WEIGHT_MAX as u64) => DraftFleet.weight;

    /// If true, this node owns no keys. Set it before the node leaves for longer, and reload the node. A node that is
    /// stopped does the same by itself.
    "fleet.draining" live: Switch => DraftFleet.is_draining;

    /// PEM file with the certificate of this node first and then the chain. The node uses it as server and as client.
    /// Its name is the host or address by which the members' URLs name this node. Required unless all nodes are on
    /// loopback.
    "fleet.tls_certificates" live: Unset(InputFile) => DraftFleet.certificates;

    /// PEM file with the private key of `fleet.tls_certificates`: PKCS#8, PKCS#1 or SEC1.
    "fleet.tls_key" live: Unset(InputFile) => DraftFleet.key;

    /// PEM file of the authorities that issue the certificates of nodes. Use an authority of the fleet's own: each
    /// certificate that it issues may ask this node.
    "fleet.tls_authorities" live: Unset(InputFile) => DraftFleet.authorities;

    /// File with the secret of the fleet, at least 32 characters, the same at all nodes. `openssl rand -hex 32` prints
    /// one. It signs the requests between nodes and is the seed of the placement. The file is read at the start and at
    /// a reload.
    "fleet.key_file" live: Unset(InputFile) => DraftFleet.key_file;

    /// The longest time without a byte of another node's response, after which the origin is asked. If your origin
    /// takes longer than this, its responses come later than the wait, and `fallback_percent` of the misses reach it
    /// twice: set the wait to the time within which the origin usually answers.
    "fleet.wait" live:
        Time(Duration::from_millis(1), Duration::from_secs(60)) => DraftFleet.wait;

    /// The requests to the origin because another node was slow or refused the request, as a percentage of the requests
    /// to other nodes of the last ten seconds. Above this share, a request waits for the slow node. Requests that fail
    /// are not counted: they always reach the origin.
    "fleet.fallback_percent" live: Count::of(0, 100) => DraftFleet.fallback_percent;

    /// Such requests per second that are allowed in addition.
    "fleet.fallbacks_per_second" live: Count::of(0, 1_000_000) => DraftFleet.fallbacks_per_second;

    /// The cost of a fetch from another node, as a share of the cost of a fetch from the origin. A node keeps a copy of
    /// an object that another node owns in memory if the copy saves more per byte than the average byte of its memory.
    /// A higher share brings more copies: fewer requests between nodes, and fewer different objects in the fleet. With
    /// 0, and without `[fleet.nats]`, nodes keep no copies. `edgeward simulate --replicate` predicts the effect.
    "fleet.replicate" live: Share => DraftFleet.replicate;

    /// The name of the node, which decides about its keys: a node that returns under its name gets its keys back.
    "fleet.member.name" live: Unset(Token) => DraftMember.name;

    /// The URL by which the other nodes ask the node: `https://HOST:PORT` with certificates, `http://127.0.0.1:PORT`
    /// without.
    "fleet.member.url" live: Unset(Url) => DraftMember.url;

    /// The group of the node. An `edge` serves clients. A `shield`, if there is one, is asked by the edges in place of
    /// the origin. Default: `edge`.
    "fleet.member.group" live: Word::OF => DraftMember.group;

    /// The share of keys, in relation to the weights of the other nodes of the group. Nodes with more memory get more.
    /// Default: 100.
    "fleet.member.weight" live: Count::of(1, NODE_WEIGHT_MAX as u64) => DraftMember.weight;

    /// If true, the node owns no keys: no node asks it, and it asks the others. Set it before the node leaves, and
    /// reload all nodes.
    "fleet.member.draining" live: Switch => DraftMember.is_draining;
};
