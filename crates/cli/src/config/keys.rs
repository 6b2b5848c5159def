//! The list of all settings: key, type, bounds, description, and the field that a setting changes.
//!
//! The file, the flags, `check-config` and docs/configuration.md are generated from this list. Defaults are defined, with
//! their reasons, in `edgeward_proxy::config`.
//!
//! The list is one table, because its order is the order of the reference. Longer groups of entries are in submodules.

mod disk;
mod forwarding;
mod limits;
mod link;
mod negative;
mod server;
mod slow;
mod taken;

use std::path::Path;
use std::time::Duration;

use edgeward_proxy::config::{HostPolicy, LogDestination, LogFormat, OriginProtocol};
use edgeward_semantics::{ClientDirectives, SetCookie};
use edgeward_store::hot::TunerPlace;
use edgeward_types::{ByteSize, Seed};

use super::check::{Draft, path_text};
use super::choice::{Choice as _, HostWord};
use super::kind::{Kind, NONE, Value, duration_text, size_text};

/// One setting.
pub(super) struct Key {
    /// The path: table and name, separated by a dot.
    pub(super) path: &'static str,
    /// The flag of `serve` that sets this key, if it has one.
    pub(super) flag: Option<&'static str>,
    pub(super) kind: Kind,
    /// The description in the reference.
    pub(super) doc: &'static str,
    /// Sets the value in the draft. The number is the index of the item in an array of tables, otherwise 0.
    pub(super) set: fn(&mut Draft, usize, Value),
    /// The value as the user would write it, or `None` if it is not set and has no default.
    pub(super) show: fn(&Draft, usize) -> Option<String>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.path)
    }
}

/// Returns the setting with this path.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// Returns true if `table` is an array of tables.
pub(super) fn is_repeated(table: &str) -> bool {
    matches!(table, "listener" | "disk_device" | "disk_host" | "negative")
}

/// The tables and their descriptions, in the order of the reference.
pub(super) const TABLES: [(&str, &str); 14] = [
    (
        "listener",
        "Where the edge answers. Write `[[listener]]` once for each address.",
    ),
    ("origin", "Whom a miss asks, and how patiently."),
    (
        "origin.link",
        "The link to a gateway near the origin, over which misses travel; the gateway asks its own `--origin`, and `origin.url` \
         names it for `Host` alone. Without `gateway` there is no link. See docs/explanation/link.md.",
    ),
    ("hot", "The cache in memory."),
    (
        "disk_device",
        "Where the cache on disk lies. Write `[[disk_device]]` once for each device; a key belongs to one of them. \
         Without any there is no cache on disk. See docs/explanation/disk-cache.md.",
    ),
    ("disk", "What is written to disk and how."),
    (
        "disk_host",
        "Hosts of whose responses something else is written to disk. Write `[[disk_host]]` once for each name.",
    ),
    (
        "caching",
        "What of HTTP caching is the operator's choice. What RFC 9111 settles is not here.",
    ),
    (
        "negative",
        "Paths whose absent ids are answered 404 here, without asking the origin. Write `[[negative]]` once for each \
         path. See docs/explanation/id-filter.md.",
    ),
    (
        "forwarding",
        "What the origin learns of the client, and what of a request it does not get.",
    ),
    ("server", "The process."),
    ("admin", "Metrics and status."),
    ("access_log", "Where requests are written down."),
    ("limits", "Bounds on everything a stranger can make grow."),
];

/// All settings, in the order of the reference.
pub(super) static KEYS: &[Key] = &[
    Key {
        path: "listener.address",
        flag: Some("--listen"),
        kind: Kind::Address,
        doc: "Address and port. Port 0 takes a free one, which the start line names. On a loopback address, where a terminator of TLS or a sidecar asks, nothing is paced though the system has BBR.",
        set: |draft, item, value| draft.listener(item).address = Some(value.address()),
        show: |draft, item| draft.listeners.get(item)?.address.map(|a| a.to_string()),
    },
    Key {
        path: "listener.tls_certificates",
        flag: Some("--tls-cert"),
        kind: Kind::InputFile,
        doc: "PEM file: the certificate first, then the chain. With it the listener speaks TLS, \
              HTTP/2 or HTTP/1.1 by ALPN; without it HTTP/1.1, or HTTP/2 by prior knowledge.",
        set: |draft, item, value| draft.listener(item).certificates = Some(value.file()),
        show: |draft, item| {
            draft
                .listeners
                .get(item)?
                .certificates
                .as_deref()
                .map(path_text)
        },
    },
    Key {
        path: "listener.tls_key",
        flag: Some("--tls-key"),
        kind: Kind::InputFile,
        doc: "PEM file with the certificate's private key: PKCS#8, PKCS#1 or SEC1.",
        set: |draft, item, value| draft.listener(item).key = Some(value.file()),
        show: |draft, item| draft.listeners.get(item)?.key.as_deref().map(path_text),
    },
    Key {
        path: "origin.url",
        flag: Some("--origin"),
        kind: Kind::Url,
        doc: "Scheme, host and port. Requests keep their own path.",
        set: |draft, _, value| draft.edge.origin.url = value.url(),
        show: |draft, _| {
            let url = draft.edge.origin.url.to_string();
            (!url.ends_with(".invalid")).then_some(url)
        },
    },
    Key {
        path: "origin.protocol",
        flag: None,
        kind: Kind::Choice(OriginProtocol::WORDS),
        doc: "What is spoken to the origin. HTTP/2 by ALPN over TLS, by prior knowledge without.",
        set: |draft, _, value| draft.edge.origin.protocol = value.choice(),
        show: |draft, _| Some(draft.edge.origin.protocol.word().to_owned()),
    },
    Key {
        path: "origin.host",
        flag: None,
        kind: Kind::Host(HostWord::WORDS),
        doc: "The `Host` the origin sees: `\"forward\"` passes on what the client asked for, \
              `\"origin\"` sends host and port of the URL, any other name is sent as it is. `\"auto\"` is \
              `\"origin\"` for an `https` URL with a name, because such a server finds its site by this name and \
              refuses others, and `\"forward\"` for an `http` URL or an address, because such a server is \
              mostly your own and serves the names that clients ask for.",
        set: |draft, _, value| {
            let host = value.text();
            draft.edge.origin.host = match HostWord::of(&host) {
                Some(HostWord::Auto) => None,
                Some(HostWord::Forward) => Some(HostPolicy::Forward),
                Some(HostWord::Origin) => Some(HostPolicy::Origin),
                None => Some(HostPolicy::Fixed(host)),
            }
        },
        show: |draft, _| {
            let word = match &draft.edge.origin.host {
                None => HostWord::Auto,
                Some(HostPolicy::Forward) => HostWord::Forward,
                Some(HostPolicy::Origin) => HostWord::Origin,
                Some(HostPolicy::Fixed(host)) => return Some(host.clone()),
            };
            Some(word.word().to_owned())
        },
    },
    Key {
        path: "origin.connect_timeout",
        flag: None,
        kind: DURATION,
        doc: "From the first packet to a usable connection, TLS included.",
        set: |draft, _, value| draft.edge.origin.connect_timeout = value.duration(),
        show: |draft, _| Some(duration_text(draft.edge.origin.connect_timeout)),
    },
    Key {
        path: "origin.first_byte_timeout",
        flag: None,
        kind: DURATION,
        doc: "From the request sent to the response's head.",
        set: |draft, _, value| draft.edge.origin.first_byte_timeout = value.duration(),
        show: |draft, _| Some(duration_text(draft.edge.origin.first_byte_timeout)),
    },
    Key {
        path: "origin.read_idle_timeout",
        flag: None,
        kind: DURATION,
        doc: "Longest silence within a response's body.",
        set: |draft, _, value| draft.edge.origin.read_idle_timeout = value.duration(),
        show: |draft, _| Some(duration_text(draft.edge.origin.read_idle_timeout)),
    },
    Key {
        path: "origin.connections_per_worker_max",
        flag: None,
        kind: Kind::Count {
            least: 1,
            most: 65_536,
        },
        doc: "Connections to the origin, in use and idle, of each worker. Requests beyond it wait \
              for one, see `queue_max`. At the start the bound is lowered to what the limit of open files leaves.",
        set: |draft, _, value| draft.edge.origin.connections_per_worker_max = value.nonzero(),
        show: |draft, _| Some(draft.edge.origin.connections_per_worker_max.to_string()),
    },
    slow::EXPECT_TIMEOUT,
    slow::CLIENT_SHARE_PERCENT,
    slow::UNFINISHED_UPLOADS_PERCENT,
    slow::QUEUE_MAX,
    slow::QUEUE_TIMEOUT,
    Key {
        path: "origin.idle_per_worker_max",
        flag: None,
        kind: Kind::Count {
            least: 0,
            most: 65_536,
        },
        doc: "Idle connections each worker keeps for the next miss.",
        set: |draft, _, value| draft.edge.origin.idle_per_worker_max = value.count(),
        show: |draft, _| Some(draft.edge.origin.idle_per_worker_max.to_string()),
    },
    Key {
        path: "origin.idle_timeout",
        flag: None,
        kind: DURATION,
        doc: "How long an idle connection is trusted. Stay below the origin's own keep-alive.",
        set: |draft, _, value| draft.edge.origin.idle_timeout = value.duration(),
        show: |draft, _| Some(duration_text(draft.edge.origin.idle_timeout)),
    },
    Key {
        path: "origin.retries_max",
        flag: None,
        kind: Kind::Count { least: 0, most: 10 },
        doc: "Further tries after a kept connection turned out dead, for requests that may be \
              repeated (RFC 9110 §9.2.2).",
        set: |draft, _, value| draft.edge.origin.retries_max = value.number32(),
        show: |draft, _| Some(draft.edge.origin.retries_max.to_string()),
    },
    Key {
        path: "origin.tls_verify",
        flag: None,
        kind: Kind::Switch,
        doc: "Whether an `https` origin must prove its name. Without it anybody on the way can \
              read and change the traffic.",
        set: |draft, _, value| draft.edge.origin.tls.verify = value.switch(),
        show: |draft, _| Some(draft.edge.origin.tls.verify.to_string()),
    },
    Key {
        path: "origin.tls_roots",
        flag: None,
        kind: Kind::InputFile,
        doc: "PEM file of the roots an `https` origin is believed by; without it the system's.",
        set: |draft, _, value| draft.edge.origin.tls.roots = Some(value.file()),
        show: |draft, _| draft.edge.origin.tls.roots.as_deref().map(path_text),
    },
    Key {
        path: "origin.tls_server_name",
        flag: None,
        kind: Kind::Host(&[]),
        doc: "The name to ask an `https` origin for and to check; without it the URL's host.",
        set: |draft, _, value| draft.edge.origin.tls.server_name = Some(value.text()),
        show: |draft, _| draft.edge.origin.tls.server_name.clone(),
    },
    link::GATEWAY,
    link::KEYS,
    link::STORE,
    link::STORE_SIZE,
    link::STORE_COMPRESSION,
    link::ENCRYPTION,
    link::COMPRESSION,
    link::DEDUP,
    link::DELTA,
    link::IDS,
    link::CONNECTIONS,
    link::PATIENCE,
    link::ADMIN,
    Key {
        path: "hot.capacity",
        flag: Some("--hot"),
        kind: Kind::Size {
            least: ByteSize::mib(1),
            most: ByteSize::gib(16 << 10),
        },
        doc: "Memory for hot objects: heads, bodies, keys and the index together.",
        set: |draft, _, value| draft.edge.hot.capacity = value.size(),
        show: |draft, _| Some(size_text(draft.edge.hot.capacity)),
    },
    Key {
        path: "hot.pinned_bytes_max",
        flag: None,
        kind: Kind::Size {
            least: ByteSize::mib(1),
            most: ByteSize::gib(16 << 10),
        },
        doc: "The part of `hot.capacity` that slow clients may keep from being freed: bodies that left the cache while they are \
              sent, and what was read for clients that do not take it. Above it nothing is admitted, and the clients that free \
              their part most slowly are disconnected. Default: an eighth of `hot.capacity`, at least 4 MiB.",
        set: |draft, _, value| draft.edge.hot.pinned_bytes_max = Some(value.size()),
        show: |draft, _| Some(size_text(ByteSize(draft.edge.hot.pinned_bytes_max()))),
    },
    Key {
        path: "hot.freed_bytes_max",
        flag: None,
        kind: Kind::Size {
            least: ByteSize(0),
            most: ByteSize::gib(16 << 10),
        },
        doc: "Memory of freed objects that is kept for the next ones, beside `hot.capacity`. More is given back to the system at \
              once, as is the rest after 100 ms. Less costs processor time: with 0 a stored miss of 64 KiB or more takes about \
              twice as much. Default: 1/32 of `hot.capacity`, at least 2 MiB.",
        set: |draft, _, value| draft.edge.hot.freed_bytes_max = Some(value.size()),
        show: |draft, _| Some(size_text(ByteSize(draft.edge.hot.freed_bytes_max()))),
    },
    Key {
        path: "hot.policy",
        flag: Some("--policy"),
        kind: Kind::Policy,
        doc: "What enters and what leaves: `lru`, `threshold:SIZE`, `exp:SIZE`, `adaptsize`, \
              `adaptsize-horizon`, `gdsf` or `infinite`. [policies.md](../explanation/policies.md) says which policy \
              suits which traffic.",
        set: |draft, _, value| draft.edge.hot.policy = value.policy(),
        show: |draft, _| Some(draft.edge.hot.policy.to_string()),
    },
    Key {
        path: "hot.window_requests",
        flag: Some("--window-requests"),
        kind: Kind::Count {
            least: 1000,
            most: 100_000_000,
        },
        doc: "Requests between two tunings of a policy that tunes itself. The first are closer: after 2,000 requests, then 4,000 and so on.",
        set: |draft, _, value| draft.edge.hot.window_requests = Some(value.number32()),
        show: |draft, _| {
            let window = draft.edge.hot.window_requests;
            Some(window.unwrap_or(DEFAULT_WINDOW_REQUESTS).to_string())
        },
    },
    Key {
        path: "hot.tuner",
        flag: None,
        kind: Kind::Choice(TunerPlace::WORDS),
        doc: "Where a policy that tunes itself does so: on a thread of its own, or on the request \
              that fills the window, which with one worker makes a run repeat exactly.",
        set: |draft, _, value| draft.edge.hot.tuner_place = value.choice(),
        show: |draft, _| Some(draft.edge.hot.tuner_place.word().to_owned()),
    },
    Key {
        path: "hot.seed",
        flag: Some("--seed"),
        kind: Kind::Seed,
        doc: "Where admission's draws and the tuner's search start: the same seed and the same \
              requests make the same decisions.",
        set: |draft, _, value| draft.edge.hot.seed = Seed(value.number()),
        show: |draft, _| Some(draft.edge.hot.seed.0.to_string()),
    },
    disk::PATH,
    disk::CAPACITY,
    disk::ADMISSION,
    disk::EXPECTED_KEYS,
    disk::FALSE_POSITIVES,
    disk::OBJECT_BYTES_MAX,
    disk::SEGMENT_BYTES,
    disk::QUEUE_BYTES,
    disk::REINSERTION,
    disk::DIRECT_WRITES,
    disk::FLUSH_INTERVAL,
    disk::SYNC_INTERVAL,
    disk::INVALIDATION_WAIT_MAX,
    disk::CHECKPOINT_INTERVAL,
    disk::VERIFY_EVERY,
    disk::READ_THREADS,
    disk::READS_WAITING_MAX,
    disk::HOST,
    disk::HOST_ADMISSION,
    Key {
        path: "caching.set_cookie",
        flag: None,
        kind: Kind::Choice(SetCookie::WORDS),
        doc: "A response with `Set-Cookie` that may be stored otherwise: `\"refuse\"` does not \
              store it, `\"strip\"` stores it without the cookie, `\"share\"` gives the cookie to \
              everyone, as RFC 9111 §7.3 reads.",
        set: |draft, _, value| draft.edge.caching.rules.set_cookie = value.choice(),
        show: |draft, _| Some(draft.edge.caching.rules.set_cookie.word().to_owned()),
    },
    Key {
        path: "caching.client_directives",
        flag: None,
        kind: Kind::Choice(ClientDirectives::WORDS),
        doc: "Whether `Cache-Control` and `Pragma` of requests are obeyed. RFC 9111 §5.2.1 calls \
              them advisory; obeyed, any client can send every request through to the origin.",
        set: |draft, _, value| draft.edge.caching.rules.client_directives = value.choice(),
        show: |draft, _| {
            let directives = draft.edge.caching.rules.client_directives;
            Some(directives.word().to_owned())
        },
    },
    Key {
        path: "caching.heuristic",
        flag: None,
        kind: Kind::Switch,
        doc: "Whether responses that state no lifetime get a guessed one (RFC 9111 §4.2.2).",
        set: |draft, _, value| draft.heuristic_on = value.switch(),
        show: |draft, _| Some(draft.heuristic_on.to_string()),
    },
    Key {
        path: "caching.heuristic_percent",
        flag: None,
        kind: Kind::Count {
            least: 0,
            most: 100,
        },
        doc: "The guess: so many percent of the time since `Last-Modified`.",
        set: |draft, _, value| {
            draft.heuristic.percent = u8::try_from(value.number()).expect("the key's bound fits");
        },
        show: |draft, _| Some(draft.heuristic.percent.to_string()),
    },
    Key {
        path: "caching.heuristic_lifetime_max",
        flag: None,
        kind: DURATION_OR_ZERO,
        doc: "No guess is longer.",
        set: |draft, _, value| draft.heuristic.lifetime_max = value.duration(),
        show: |draft, _| Some(duration_text(draft.heuristic.lifetime_max)),
    },
    Key {
        path: "caching.heuristic_without_last_modified",
        flag: None,
        kind: DURATION_OR_ZERO,
        doc: "The guess where `Last-Modified` is missing too.",
        set: |draft, _, value| draft.heuristic.without_last_modified = value.duration(),
        show: |draft, _| Some(duration_text(draft.heuristic.without_last_modified)),
    },
    Key {
        path: "caching.store_request_errors",
        flag: None,
        kind: Kind::Switch,
        doc: "Whether responses 400, 413, 414 and 501 are stored if the origin states a lifetime for them. Off, they are never \
              stored: request fields that are not in the cache key cause them, so a stored one lets one client replace a page \
              for all others.",
        set: |draft, _, value| draft.edge.caching.rules.store_request_errors = value.switch(),
        show: |draft, _| Some(draft.edge.caching.rules.store_request_errors.to_string()),
    },
    Key {
        path: "caching.hit_for_miss",
        flag: None,
        kind: DURATION_OR_ZERO,
        doc: "How long a URL whose response could not be shared keeps its requests from waiting \
              for each other.",
        set: |draft, _, value| draft.edge.caching.hit_for_miss = value.duration(),
        show: |draft, _| Some(duration_text(draft.edge.caching.hit_for_miss)),
    },
    Key {
        path: "caching.collapse_wait_max",
        flag: None,
        kind: DURATION_OR_ZERO,
        doc: "Longest a request waits for the response another one asked for; then it asks on \
              its own.",
        set: |draft, _, value| draft.edge.caching.collapse_wait_max = value.duration(),
        show: |draft, _| Some(duration_text(draft.edge.caching.collapse_wait_max)),
    },
    Key {
        path: "caching.collapse_bytes_max",
        flag: None,
        kind: Kind::Size {
            least: ByteSize(0),
            most: ByteSize::gib(64),
        },
        doc: "Largest response shared among waiting requests when admission keeps it out of the \
              cache.",
        set: |draft, _, value| draft.edge.caching.collapse_bytes_max = value.size(),
        show: |draft, _| Some(size_text(draft.edge.caching.collapse_bytes_max)),
    },
    Key {
        path: "caching.hash_seed",
        flag: Some("--hash-seed"),
        kind: Kind::SeedOrNone,
        doc: "Key of the hash objects are found by. `\"none\"` draws one at start, so that \
              strangers cannot look for collisions; a fixed one makes runs comparable.",
        set: |draft, _, value| draft.edge.caching.hash_seed = value.optional(Value::number),
        show: |draft, _| Some(or_none(draft.edge.caching.hash_seed.map(|n| n.to_string()))),
    },
    negative::PATH,
    negative::FILTER,
    negative::PUBLIC_KEY,
    negative::MAX_STALENESS,
    negative::IDS,
    negative::CLOCK_ERROR,
    negative::TLS_ROOTS,
    negative::SNAPSHOT_BYTES_MAX,
    forwarding::X_FORWARDED,
    forwarding::FORWARDED,
    forwarding::TRUSTED_PROXIES,
    forwarding::REMOVED_FIELDS,
    forwarding::DEFAULT_AUTHORITY,
    forwarding::TRACE,
    Key {
        path: "server.workers",
        flag: Some("--workers"),
        kind: Kind::Count {
            least: 1,
            most: 1024,
        },
        doc: "Threads, each with its own listeners and origin connections. By default one a core.",
        set: |draft, _, value| draft.edge.workers = value.nonzero(),
        show: |draft, _| Some(draft.edge.workers.to_string()),
    },
    server::SHARE_PORTS,
    Key {
        path: "server.drain_timeout",
        flag: None,
        kind: DURATION_OR_ZERO,
        doc: "How long a shutdown waits for requests under way.",
        set: |draft, _, value| draft.edge.drain_timeout = value.duration(),
        show: |draft, _| Some(duration_text(draft.edge.drain_timeout)),
    },
    Key {
        path: "server.name",
        flag: None,
        kind: Kind::Token,
        doc: "The name in `Via` and `Cache-Status`. Give each edge of a chain its own.",
        set: |draft, _, value| draft.edge.name = value.text(),
        show: |draft, _| Some(draft.edge.name.clone()),
    },
    Key {
        path: "admin.address",
        flag: Some("--admin"),
        kind: Kind::AddressOrNone,
        doc: "Where `/metrics` (Prometheus) and `/status` (JSON) are served. Who reaches it can \
              read which policy runs and how full the cache is.",
        set: |draft, _, value| draft.edge.admin = value.optional(Value::address),
        show: |draft, _| Some(or_none(draft.edge.admin.map(|a| a.to_string()))),
    },
    server::ADMIN_HOSTS,
    Key {
        path: "access_log.path",
        flag: Some("--access-log"),
        kind: Kind::OutputFile,
        doc: "A file that is appended to and made if it is not there, or `\"-\"` for stdout. \
              Without it requests are not written down.",
        set: |draft, _, value| {
            let path = value.file();
            draft.access_log_given = true;
            draft.access_log.destination = if path == Path::new("-") {
                LogDestination::Stdout
            } else {
                LogDestination::File(path)
            };
        },
        show: |draft, _| {
            draft
                .access_log_given
                .then(|| match &draft.access_log.destination {
                    LogDestination::Stdout => "-".to_owned(),
                    LogDestination::File(path) => path_text(path),
                })
        },
    },
    Key {
        path: "access_log.format",
        flag: Some("--access-log-format"),
        kind: Kind::Choice(LogFormat::WORDS),
        doc: "One JSON object a line, NCSA combined, or the latter with what the cache did as one more word. \
              [operation.md](operation.md#the-access-log) explains the fields.",
        set: |draft, _, value| draft.access_log.format = value.choice(),
        show: |draft, _| Some(draft.access_log.format.word().to_owned()),
    },
    Key {
        path: "access_log.queue_lines_max",
        flag: None,
        kind: Kind::Count {
            least: 1,
            most: 1 << 20,
        },
        doc: "Lines of each worker that may wait for the disk. Beyond it lines are dropped and \
              counted, for a slow disk must not slow requests.",
        set: |draft, _, value| draft.access_log.queue_lines_max = value.nonzero(),
        show: |draft, _| Some(draft.access_log.queue_lines_max.to_string()),
    },
    limits::CONNECTIONS_MAX,
    limits::HEAD_BYTES_MAX,
    limits::TARGET_BYTES_MAX,
    limits::HEADERS_MAX,
    limits::REQUEST_HEAD_TIMEOUT,
    limits::IDLE_TIMEOUT,
    limits::BODY_IDLE_TIMEOUT,
    limits::REQUEST_BODY_BYTES_MAX,
    slow::UPLOAD_BUFFER_BYTES,
    slow::UPLOAD_BUFFERS_BYTES_MAX,
    slow::UPLOAD_BUFFER_WAIT,
    slow::UPLOAD_RATE_MIN,
    slow::RESPONSE_RATE_MIN,
    slow::RATE_WINDOW,
    slow::READ_AHEAD_BYTES,
    slow::READ_AHEAD_RATE_MAX,
    limits::OBJECT_BYTES_MAX,
    limits::FILL_BYTES_MAX,
    limits::H2_STREAMS_MAX,
    limits::H2_RESETS_MAX,
    limits::H2_CONTROL_FRAMES_MAX,
    limits::H2_WINDOW_UPDATES_MAX,
    limits::H2_HEADS_BYTES_MAX,
    limits::HEADS_BYTES_MAX,
];

/// The bounds of timeouts. Below a millisecond a timeout would fail every operation; above a day it has no effect.
const DURATION: Kind = Kind::Duration {
    least: Duration::from_millis(1),
    most: Duration::from_secs(86_400),
};

/// The bounds of waits; 0 turns the wait off.
const DURATION_OR_ZERO: Kind = Kind::Duration {
    least: Duration::ZERO,
    most: Duration::from_secs(86_400),
};

/// The default of the store, Δ in the AdaptSize paper.
const DEFAULT_WINDOW_REQUESTS: u32 = 250_000;

fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| NONE.to_owned())
}
