//! The list of all settings: key, type, bounds, description, and the field that a setting changes.
//!
//! The parser of the configuration file, the flags of `serve`, `check-config`, the report of a reload and
//! docs/reference/configuration.md use this list. Defaults are defined, with their reasons, in
//! `edgeward_proxy::config`.

mod acme;
mod admin;
mod caching;
mod compression;
mod disk;
mod fleet;
mod fleet_nats;
mod forwarding;
mod hot;
mod insight;
mod limits;
mod link;
mod listener;
mod logs;
mod negative;
mod origin;
mod overload;
mod row;
mod server;

pub(super) use row::{Flag, Key};

/// Returns all settings, in the order of the reference.
pub(super) fn all() -> impl Iterator<Item = &'static Key> {
    [
        listener::ROWS,
        acme::ROWS,
        origin::ROWS,
        link::ROWS,
        fleet::ROWS,
        fleet_nats::ROWS,
        hot::ROWS,
        disk::ROWS,
        caching::ROWS,
        compression::ROWS,
        negative::ROWS,
        forwarding::ROWS,
        server::ROWS,
        admin::ROWS,
        insight::ROWS,
        logs::ROWS,
        limits::ROWS,
        overload::ROWS,
    ]
    .into_iter()
    .flatten()
}

/// Returns the setting with this path.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    all().find(|key| key.path == path)
}

/// Returns true if `table` is an array of tables, for example `[[listener]]`.
pub(super) fn is_repeated(table: &str) -> bool {
    matches!(
        table,
        "listener"
            | "acme"
            | "origin"
            | "disk_device"
            | "disk_host"
            | "negative"
            | "admin.token"
            | "fleet.member"
    )
}

/// The tables and their descriptions, in the order of the reference.
pub(super) const TABLES: [(&str, &str); 26] = [
    (
        "listener",
        "The addresses on which the edge listens. Write `[[listener]]` once for each address.",
    ),
    (
        "acme",
        "Names whose certificates the edge obtains and renews. Write `[[acme]]` once for each group of names with the \
         same issuer and challenge. Every listener with TLS uses the certificates, by the name that a client sends. \
         See docs/how-to/certificates.md.",
    ),
    (
        "origin",
        "The origins: address, timeouts and the limits of connections of each. Write `[origin]` if there is one, and \
         `[[origin]]` once for each if there are several.",
    ),
    (
        "origin.link",
        "The link to a gateway near the origin. The edge sends misses through the link, and the gateway forwards \
         them to its own `--origin`; `origin.url` then only sets `Host`. Without `gateway` there is no link. Each of \
         several origins may have a link: write `[origin.link]` below its `[[origin]]`. See docs/how-to/link.md.",
    ),
    (
        "fleet",
        "The nodes that act as one cache: each object has one owner, which stores it, and the other nodes ask the \
         owner. See docs/how-to/fleet.md.",
    ),
    (
        "fleet.member",
        "The nodes of the fleet. Write `[[fleet.member]]` once for each node, also for this one. With `[fleet.nats]`, leave it \
         out: the nodes announce themselves.",
    ),
    (
        "fleet.nats",
        "The servers of NATS JetStream by which the nodes of a fleet share purges, and by which they announce themselves if \
         there is no `[[fleet.member]]`. See docs/how-to/fleet.md.",
    ),
    ("hot", "The memory tier of the cache."),
    (
        "disk_device",
        "The devices of the disk cache. Write `[[disk_device]]` once for each device; each object is stored on one \
         device. Without devices there is no disk cache. See docs/how-to/disk-cache.md.",
    ),
    ("disk", "How the disk cache writes and reads."),
    (
        "disk_host",
        "Hosts with their own rule of admission to disk. Write `[[disk_host]]` once for each host.",
    ),
    (
        "caching",
        "The choices that RFC 9111 leaves to the operator of a cache.",
    ),
    (
        "ranges",
        "Requests for a range of a large response. See docs/how-to/ranges.md.",
    ),
    (
        "compression",
        "Compression of stored responses that the origin sends without a coding. See docs/how-to/compression.md.",
    ),
    (
        "negative",
        "Paths for which the edge answers 404 itself if the id in the path certainly does not exist. Write \
         `[[negative]]` once for each path. See docs/how-to/negative-lookups.md.",
    ),
    (
        "forwarding",
        "Request fields that are added or removed before a request is forwarded to the origin.",
    ),
    ("server", "Threads, shutdown and name of the process."),
    (
        "admin",
        "The server of metrics, status and the admin API. See docs/reference/admin-api.md.",
    ),
    (
        "admin.token",
        "Tokens of the admin API with their roles. Write `[[admin.token]]` once for each. The token of \
         `purge.token_file` has all roles.",
    ),
    (
        "purge",
        "Purges: who may purge, and how many purges are remembered. See docs/how-to/purge.md.",
    ),
    (
        "insight",
        "The analysis of live requests. See docs/how-to/what-if.md.",
    ),
    ("access_log", "The log of requests."),
    (
        "tracing",
        "Traces of sampled requests, which are exported by OTLP. See docs/how-to/logs-and-metrics.md.",
    ),
    (
        "limits",
        "Limits of the memory, connections and time that clients and origins can use.",
    ),
    (
        "overload",
        "Bounds above which the edge sheds load. See docs/how-to/overload.md.",
    ),
    (
        "watchdog",
        "The watchdog of the worker threads. See docs/how-to/overload.md.",
    ),
];

/// The array of tables whose keys are in `sites`.
pub(super) const SITES: &str = "site";
