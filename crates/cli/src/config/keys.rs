//! The list of all settings: key, type, bounds, description, and the field that a setting changes.
//!
//! The parser of the configuration file, the flags of `serve`, `check-config` and docs/reference/configuration.md use
//! this list. Defaults are defined, with their reasons, in `edgeward_proxy::config`.
//!
//! [`KEYS`] is one array, because the reference lists the settings in the order of this array. Submodules define the
//! entries of longer groups.

mod access_log;
mod admin;
mod bucket;
mod compression;
mod disk;
mod forwarding;
mod hot;
mod limits;
mod link;
mod listener;
mod negative;
mod overload;
mod purge;
mod ranges;
mod restart;
mod server;
mod servers;
mod slow;
mod tracing;
mod values;

use std::time::Duration;

use edgeward_proxy::config::{HostPolicy, OriginProtocol};
use edgeward_semantics::{ClientDirectives, SetCookie};
use edgeward_types::ByteSize;

use super::choice::{Choice as _, HostWord};
use super::draft::{ConfigDraft, path_text};
use super::kind::{NONE, Value, ValueKind, duration_text, size_text};

/// One setting.
pub(super) struct Key {
    /// The path: table and name, separated by a dot.
    pub(super) path: &'static str,
    /// The flag of `serve` that sets this key, if it has one.
    pub(super) flag: Option<&'static str>,
    /// The type and the bounds of the value.
    pub(super) kind: ValueKind,
    /// The description in the reference.
    pub(super) doc: &'static str,
    /// Writes the value into the draft. The number is the index of the item if the table is repeated, otherwise 0.
    pub(super) set: fn(&mut ConfigDraft, usize, Value),
    /// Returns the value from the draft in the form that a user would write, or `None` if it is not set and has no
    /// default. The number is the same index as for `set`.
    pub(super) show: fn(&ConfigDraft, usize) -> Option<String>,
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

/// Returns true if `table` is an array of tables, for example `[[listener]]`.
pub(super) fn is_repeated(table: &str) -> bool {
    matches!(
        table,
        "listener" | "origin" | "disk_device" | "disk_host" | "negative" | "admin.token"
    )
}

/// The tables and their descriptions, in the order of the reference.
pub(super) const TABLES: [(&str, &str); 21] = [
    (
        "listener",
        "The addresses on which the edge listens. Write `[[listener]]` once for each address.",
    ),
    (
        "origin",
        "The origins: address, timeouts and the limits of connections of each. Write `[origin]` if there is one, and \
         `[[origin]]` once for each if there are several.",
    ),
    (
        "origin.link",
        "The link to a gateway near the origin, for an edge with one origin. The edge sends misses through the link, and the gateway forwards them \
         to its own `--origin`; `origin.url` then only sets `Host`. Without `gateway` there is no link. See \
         docs/how-to/link.md.",
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

/// All settings, in the order of the reference.
pub(super) static KEYS: &[Key] = &[
    Key {
        path: "listener.address",
        flag: Some("--listen"),
        kind: ValueKind::ListenAddress,
        doc: "Address and port, or a Unix socket such as `unix:/run/edgeward/edge.sock` for a proxy on the same \
              machine, whose connections count as those of 127.0.0.1. Port 0 selects a free port; the first log line \
              shows which. If the system uses BBR congestion control, a loopback address uses Reno instead.",
        set: |draft, item, value| draft.listener(item).address = Some(value.listen_address()),
        show: |draft, item| {
            draft
                .listeners
                .get(item)?
                .address
                .as_ref()
                .map(ToString::to_string)
        },
    },
    Key {
        path: "listener.tls_certificates",
        flag: Some("--tls-cert"),
        kind: ValueKind::InputFile,
        doc: "PEM file with the certificate first and then the chain. If it is set, the listener accepts TLS, with \
              HTTP/2 or HTTP/1.1 by ALPN. If not, the listener accepts HTTP/1.1, or HTTP/2 with prior knowledge.",
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
        kind: ValueKind::InputFile,
        doc: "PEM file with the private key of the certificate: PKCS#8, PKCS#1 or SEC1.",
        set: |draft, item, value| draft.listener(item).key = Some(value.file()),
        show: |draft, item| draft.listeners.get(item)?.key.as_deref().map(path_text),
    },
    listener::TLS_OCSP,
    listener::PROXY_PROTOCOL_FROM,
    Key {
        path: "origin.name",
        flag: None,
        kind: ValueKind::Token,
        doc: "The name of the origin in metrics and messages. Several origins must have different names.",
        set: |draft, item, value| draft.origin(item).name = value.text(),
        show: |draft, item| Some(draft.edge.origins.get(item)?.name.clone()),
    },
    Key {
        path: "origin.url",
        flag: Some("--origin"),
        kind: ValueKind::Url,
        doc: "Scheme, host and port of the origin, or a Unix socket such as `unix:/run/app.sock`. The path of each \
              request is added to it. For several servers, set `servers` instead.",
        set: |draft, item, value| draft.origin(item).servers = vec![value.url()],
        show: |draft, item| {
            let servers = &draft.edge.origins.get(item)?.servers;
            (servers.len() == 1).then(|| servers::urls_text(servers))?
        },
    },
    servers::SERVERS,
    servers::BACKUP_SERVERS,
    servers::BALANCE,
    servers::HASH_EXCESS_PERCENT,
    servers::SERVERS_MAX,
    servers::RESOLVER,
    servers::NAME_SERVERS,
    servers::RESOLVE_INTERVAL,
    Key {
        path: "origin.protocol",
        flag: None,
        kind: ValueKind::Choice(OriginProtocol::WORDS),
        doc: "The HTTP version for the origin. HTTP/2 is negotiated by ALPN over TLS, and used with prior knowledge \
              without TLS.",
        set: |draft, item, value| draft.origin(item).protocol = value.choice(),
        show: |draft, item| Some(draft.edge.origins.get(item)?.protocol.word().to_owned()),
    },
    servers::PROXY_PROTOCOL,
    Key {
        path: "origin.host",
        flag: None,
        kind: ValueKind::Host(HostWord::WORDS),
        doc: "The `Host` that is sent to the origin. `\"forward\"` is the host that the client requested. \
              `\"origin\"` is the host and port of the first server. Any other value is sent as it is. `\"auto\"` is \
              `\"origin\"` for an `https` URL with a host name, because an `https` server usually selects its site by \
              this name and rejects other names. Otherwise `\"auto\"` is `\"forward\"`, because an origin without \
              `https` is usually your own server and serves the names that clients request.",
        set: |draft, item, value| {
            let host = value.text();
            draft.origin(item).host = match HostWord::from_word(&host) {
                Some(HostWord::Auto) => None,
                Some(HostWord::Forward) => Some(HostPolicy::Forward),
                Some(HostWord::Origin) => Some(HostPolicy::Origin),
                None => Some(HostPolicy::Fixed(host)),
            }
        },
        show: |draft, item| {
            let word = match &draft.edge.origins.get(item)?.host {
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
        doc: "The longest time to connect to the origin, TLS handshake included.",
        set: |draft, item, value| draft.origin(item).connect_timeout = value.duration(),
        show: |draft, item| Some(duration_text(draft.edge.origins.get(item)?.connect_timeout)),
    },
    Key {
        path: "origin.first_byte_timeout",
        flag: None,
        kind: DURATION,
        doc: "The longest time from the end of the request to the head of the response.",
        set: |draft, item, value| draft.origin(item).first_byte_timeout = value.duration(),
        show: |draft, item| {
            Some(duration_text(
                draft.edge.origins.get(item)?.first_byte_timeout,
            ))
        },
    },
    Key {
        path: "origin.read_idle_timeout",
        flag: None,
        kind: DURATION,
        doc: "The longest time without a byte while a response body is read.",
        set: |draft, item, value| draft.origin(item).read_idle_timeout = value.duration(),
        show: |draft, item| {
            Some(duration_text(
                draft.edge.origins.get(item)?.read_idle_timeout,
            ))
        },
    },
    Key {
        path: "origin.connections_per_worker_max",
        flag: None,
        kind: ValueKind::Count {
            min: 1,
            max: 65_536,
        },
        doc: "The maximum of connections to the origin per worker, in use and idle. Further requests wait in a \
              queue, see `queue_max`. At the start, the edge lowers this limit if the limit of open files \
              requires it.",
        set: |draft, item, value| draft.origin(item).connections_per_worker_max = value.nonzero(),
        show: |draft, item| {
            Some(
                draft
                    .edge
                    .origins
                    .get(item)?
                    .connections_per_worker_max
                    .to_string(),
            )
        },
    },
    slow::EXPECT_TIMEOUT,
    slow::CLIENT_SHARE_PERCENT,
    slow::UNFINISHED_UPLOADS_PERCENT,
    slow::QUEUE_MAX,
    slow::QUEUE_TIMEOUT,
    Key {
        path: "origin.idle_per_worker_max",
        flag: None,
        kind: ValueKind::Count {
            min: 0,
            max: 65_536,
        },
        doc: "The maximum of idle connections to the origin per worker, kept for later misses.",
        set: |draft, item, value| draft.origin(item).idle_per_worker_max = value.count(),
        show: |draft, item| {
            Some(
                draft
                    .edge
                    .origins
                    .get(item)?
                    .idle_per_worker_max
                    .to_string(),
            )
        },
    },
    Key {
        path: "origin.idle_timeout",
        flag: None,
        kind: DURATION,
        doc: "How long an idle connection is kept. Must be shorter than the keep-alive timeout of the origin.",
        set: |draft, item, value| draft.origin(item).idle_timeout = value.duration(),
        show: |draft, item| Some(duration_text(draft.edge.origins.get(item)?.idle_timeout)),
    },
    Key {
        path: "origin.retries_max",
        flag: None,
        kind: ValueKind::Count { min: 0, max: 10 },
        doc: "How often a request is sent again: to the same server, after idle connections turned out to be closed, \
              and to other servers, after a failure before the response began. Only requests that RFC 9110 §9.2.2 \
              allows to repeat are sent again. With 0, a request is still sent again on a new connection if the origin \
              had closed the idle one. A server that refuses the connection does not count, and any request \
              is then sent to another server.",
        set: |draft, item, value| draft.origin(item).retries_max = value.number32(),
        show: |draft, item| Some(draft.edge.origins.get(item)?.retries_max.to_string()),
    },
    servers::RETRY_PERCENT,
    servers::RETRIES_PER_SECOND,
    servers::FAILURES_MAX,
    servers::EJECTION_TIME,
    servers::EJECTION_TIME_MAX,
    servers::SLOW_START,
    servers::ALL_DOWN,
    servers::HEALTH_PATH,
    servers::HEALTH_INTERVAL,
    servers::HEALTH_TIMEOUT,
    servers::HEALTH_STATUS,
    servers::HEALTH_FAILURES,
    servers::HEALTH_SUCCESSES,
    servers::ADD_VIA,
    servers::REWRITE_LOCATION,
    Key {
        path: "origin.accept_unknown_codings",
        flag: None,
        kind: ValueKind::Switch,
        doc: "If true, a response with an unknown `Transfer-Encoding` is read to the end of the connection, and \
              clients get its bytes without this field. If false, the response is an error (502).",
        set: |draft, item, value| draft.origin(item).accepts_unknown_codings = value.switch(),
        show: |draft, item| {
            Some(
                draft
                    .edge
                    .origins
                    .get(item)?
                    .accepts_unknown_codings
                    .to_string(),
            )
        },
    },
    Key {
        path: "origin.tls_verify",
        flag: None,
        kind: ValueKind::Switch,
        doc: "If true, the certificate of an `https` origin is verified. If false, anyone on the network path can \
              read and change the traffic.",
        set: |draft, item, value| draft.origin(item).tls.verify = value.switch(),
        show: |draft, item| Some(draft.edge.origins.get(item)?.tls.verify.to_string()),
    },
    Key {
        path: "origin.tls_roots",
        flag: None,
        kind: ValueKind::InputFile,
        doc: "PEM file of the root certificates that an `https` origin must chain to. Default: the root certificates \
              of the system.",
        set: |draft, item, value| draft.origin(item).tls.roots = Some(value.file()),
        show: |draft, item| {
            draft
                .edge
                .origins
                .get(item)?
                .tls
                .roots
                .as_deref()
                .map(path_text)
        },
    },
    Key {
        path: "origin.tls_server_name",
        flag: None,
        kind: ValueKind::Host(&[]),
        doc: "The server name for TLS (SNI) that is also verified in the certificate. Default: the host of \
              each server.",
        set: |draft, item, value| draft.origin(item).tls.server_name = Some(value.text()),
        show: |draft, item| draft.edge.origins.get(item)?.tls.server_name.clone(),
    },
    servers::TLS_CERTIFICATE,
    servers::TLS_KEY,
    bucket::BUCKET,
    bucket::REGION,
    bucket::STYLE,
    bucket::LIST,
    bucket::CREDENTIALS_FILE,
    bucket::PROFILE,
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
    link::TIMEOUT,
    link::ADMIN,
    hot::CAPACITY,
    hot::PINNED_BYTES_MAX,
    hot::FREED_BYTES_MAX,
    hot::POLICY,
    hot::OBJECTIVE,
    hot::WINDOW_REQUESTS,
    hot::TUNER,
    hot::SEED,
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
    restart::WARM_RESTART,
    restart::SHUTDOWN_WRITE_TIME,
    restart::SHUTDOWN_WRITE_BYTES,
    restart::HOT_LIST,
    restart::HOT_LIST_INTERVAL,
    disk::HOST,
    disk::HOST_ADMISSION,
    Key {
        path: "caching.set_cookie",
        flag: None,
        kind: ValueKind::Choice(SetCookie::WORDS),
        doc: "The handling of a response with `Set-Cookie` that is otherwise cacheable: `\"refuse\"` does not store \
              it, `\"strip\"` stores it without the cookie, `\"share\"` stores it with the cookie, which RFC 9111 \
              §7.3 allows.",
        set: |draft, _, value| draft.edge.caching.rules.set_cookie = value.choice(),
        show: |draft, _| Some(draft.edge.caching.rules.set_cookie.word().to_owned()),
    },
    Key {
        path: "caching.client_directives",
        flag: None,
        kind: ValueKind::Choice(ClientDirectives::WORDS),
        doc: "The handling of `Cache-Control` and `Pragma` in requests: `\"ignore\"` or `\"honour\"`. RFC 9111 \
              §5.2.1 calls them advisory. If they are honoured, any client can send every request through to the \
              origin.",
        set: |draft, _, value| draft.edge.caching.rules.client_directives = value.choice(),
        show: |draft, _| {
            let directives = draft.edge.caching.rules.client_directives;
            Some(directives.word().to_owned())
        },
    },
    Key {
        path: "caching.heuristic",
        flag: None,
        kind: ValueKind::Switch,
        doc: "If true, responses without an explicit lifetime get a heuristic one (RFC 9111 §4.2.2).",
        set: |draft, _, value| draft.heuristic_on = value.switch(),
        show: |draft, _| Some(draft.heuristic_on.to_string()),
    },
    Key {
        path: "caching.heuristic_percent",
        flag: None,
        kind: ValueKind::Count { min: 0, max: 100 },
        doc: "The heuristic lifetime as a percentage of the time since `Last-Modified`.",
        set: |draft, _, value| {
            draft.heuristic.percent =
                u8::try_from(value.number()).expect("the key's maximum fits the type");
        },
        show: |draft, _| Some(draft.heuristic.percent.to_string()),
    },
    Key {
        path: "caching.heuristic_lifetime_max",
        flag: None,
        kind: DURATION_OR_ZERO,
        doc: "The maximum of the heuristic lifetime.",
        set: |draft, _, value| draft.heuristic.lifetime_max = value.duration(),
        show: |draft, _| Some(duration_text(draft.heuristic.lifetime_max)),
    },
    Key {
        path: "caching.heuristic_without_last_modified",
        flag: None,
        kind: DURATION_OR_ZERO,
        doc: "The heuristic lifetime of a response without `Last-Modified`.",
        set: |draft, _, value| draft.heuristic.without_last_modified = value.duration(),
        show: |draft, _| Some(duration_text(draft.heuristic.without_last_modified)),
    },
    Key {
        path: "caching.store_request_errors",
        flag: None,
        kind: ValueKind::Switch,
        doc: "If true, responses 400, 413, 414 and 501 with an explicit lifetime are stored. If false, they are \
              never stored: request fields outside the cache key can cause these errors, so one client could \
              replace a page by an error for all clients.",
        set: |draft, _, value| draft.edge.caching.rules.store_request_errors = value.switch(),
        show: |draft, _| Some(draft.edge.caching.rules.store_request_errors.to_string()),
    },
    Key {
        path: "caching.stale_if_disconnected",
        flag: None,
        kind: DURATION_OR_ZERO,
        doc: "The longest time after the end of its freshness for which a response is served while the origin cannot \
              be reached (RFC 9111 §4.2.4). `stale-if-error` of a response takes precedence. Not served are \
              responses with `must-revalidate`, `proxy-revalidate`, `s-maxage` or `no-cache`, and responses that \
              were never fresh.",
        set: |draft, _, value| draft.edge.caching.stale_if_disconnected = value.duration(),
        show: |draft, _| Some(duration_text(draft.edge.caching.stale_if_disconnected)),
    },
    Key {
        path: "caching.validation_backoff",
        flag: None,
        kind: DURATION_OR_ZERO,
        doc: "How long a stale response is served without another request to the origin after its validation failed, \
              if the response may be served instead of the error. Rounded down to whole seconds of the clock.",
        set: |draft, _, value| draft.edge.caching.validation_backoff = value.duration(),
        show: |draft, _| Some(duration_text(draft.edge.caching.validation_backoff)),
    },
    Key {
        path: "caching.hit_for_miss",
        flag: None,
        kind: DURATION_OR_ZERO,
        doc: "How long the edge does not collapse requests for a URL, after a response for this URL that several \
              requests cannot share.",
        set: |draft, _, value| draft.edge.caching.hit_for_miss = value.duration(),
        show: |draft, _| Some(duration_text(draft.edge.caching.hit_for_miss)),
    },
    Key {
        path: "caching.collapse_wait_max",
        flag: None,
        kind: DURATION_OR_ZERO,
        doc: "The longest time from the start of a shared fetch to the head of its response for which followers \
              wait. At this time all followers send requests of their own, and until the head arrives further \
              requests do not wait.",
        set: |draft, _, value| draft.edge.caching.collapse_wait_max = value.duration(),
        show: |draft, _| Some(duration_text(draft.edge.caching.collapse_wait_max)),
    },
    Key {
        path: "caching.collapse_followers_max",
        flag: None,
        kind: ValueKind::Count {
            min: 1,
            max: 1 << 22,
        },
        doc: "The maximum number of followers of one fetch. The next request leads another fetch, which further \
              requests follow.",
        set: |draft, _, value| draft.edge.caching.collapse_followers_max = value.nonzero(),
        show: |draft, _| Some(draft.edge.caching.collapse_followers_max.to_string()),
    },
    Key {
        path: "caching.collapse_bytes_max",
        flag: None,
        kind: ValueKind::Size {
            min: ByteSize(0),
            max: ByteSize::gib(64),
        },
        doc: "The largest response that followers share if admission does not store it. If no follower waits when \
              the head arrives, the limit is at most `\"8MiB\"`.",
        set: |draft, _, value| draft.edge.caching.collapse_bytes_max = value.size(),
        show: |draft, _| Some(size_text(draft.edge.caching.collapse_bytes_max)),
    },
    Key {
        path: "caching.errors_replace_stale",
        flag: None,
        kind: ValueKind::Switch,
        doc: "If true, a 5xx of the origin that may be stored replaces a stored response that may still be used by its \
              lifetime, `stale-while-revalidate` or `stale-if-error`. If false, the error is not stored then.",
        set: |draft, _, value| draft.edge.caching.errors_replace_stale = value.switch(),
        show: |draft, _| Some(draft.edge.caching.errors_replace_stale.to_string()),
    },
    Key {
        path: "caching.share_variants",
        flag: None,
        kind: ValueKind::Switch,
        doc: "If true, a stored variant also answers requests with another `Accept-Encoding` or `Accept`, if the \
              origin would answer them with the same coding or image format. See docs/reference/http-caching.md.",
        set: |draft, _, value| draft.edge.caching.share_variants = value.switch(),
        show: |draft, _| Some(draft.edge.caching.share_variants.to_string()),
    },
    Key {
        path: "caching.variants_max",
        flag: None,
        kind: ValueKind::Count {
            min: 1,
            max: 1 << 22,
        },
        doc: "The maximum number of variants of one URL: responses for different values of the request fields that \
              `Vary` names. With one more, the URL begins again with this one, and the older ones are not used. After \
              a restart, the variants on disk do not count.",
        set: |draft, _, value| draft.edge.caching.variants_max = value.nonzero32(),
        show: |draft, _| Some(draft.edge.caching.variants_max.to_string()),
    },
    Key {
        path: "caching.early_links_bytes_max",
        flag: None,
        kind: ValueKind::Size {
            min: ByteSize(0),
            max: ByteSize::kib(64),
        },
        doc: "The largest header lines `Link` of a 103 Early Hints from the origin that are kept with the stored \
              response: its hits have them. 0 keeps none. See docs/reference/http-caching.md.",
        set: |draft, _, value| draft.edge.caching.early_links_bytes_max = value.size(),
        show: |draft, _| Some(size_text(draft.edge.caching.early_links_bytes_max)),
    },
    Key {
        path: "caching.head_fetch_bytes_max",
        flag: None,
        kind: ValueKind::Size {
            min: ByteSize(0),
            max: ByteSize::gib(1),
        },
        doc: "The largest body that the edge fetches with GET for a HEAD. The first HEAD of a URL is forwarded as \
              HEAD. If its response may be stored and is not known to be longer, the next HEAD is fetched with GET, so \
              that later requests of both methods are hits. A body of unknown length is given up at this length. 0 \
              forwards every HEAD. See docs/reference/http-caching.md.",
        set: |draft, _, value| draft.edge.caching.head_fetch_bytes_max = value.size(),
        show: |draft, _| Some(size_text(draft.edge.caching.head_fetch_bytes_max)),
    },
    Key {
        path: "caching.ignored_parameters",
        flag: None,
        kind: ValueKind::Parameters,
        doc: "Query parameters that do not change a response, for an origin that does not send `No-Vary-Search`, for \
              example `\"utm_*, gclid\"`. URLs that differ only in these parameters share one stored response. The \
              origin gets the whole URL of the request that is forwarded. A `*` at the end stands for any text.",
        set: |draft, _, value| {
            draft.edge.caching.ignored_parameters = match value {
                Value::None => Default::default(),
                value => value.parameters(),
            }
        },
        show: |draft, _| {
            let names = &draft.edge.caching.ignored_parameters;
            Some(or_none((!names.is_empty()).then(|| names.to_string())))
        },
    },
    Key {
        path: "caching.hash_seed",
        flag: Some("--hash-seed"),
        kind: ValueKind::SeedOrNone,
        doc: "The seed of the hash of cache keys. `\"none\"` draws a random seed at each start, so that clients \
              cannot search for collisions. A fixed seed makes runs comparable.",
        set: |draft, _, value| draft.edge.caching.hash_seed = value.optional(Value::number),
        show: |draft, _| Some(or_none(draft.edge.caching.hash_seed.map(|n| n.to_string()))),
    },
    ranges::SLICE_BYTES,
    ranges::READ_AHEAD_SLICES,
    compression::ENABLED,
    compression::CODINGS,
    compression::TYPES,
    compression::LENGTH_MIN,
    compression::LENGTH_MAX,
    compression::BROTLI_LEVEL,
    compression::ZSTD_LEVEL,
    compression::GZIP_LEVEL,
    compression::PERSONAL,
    compression::ORIGIN_ACCEPTS,
    compression::WAIT_BYTES_MAX,
    compression::THREADS,
    compression::PENDING_BYTES_MAX,
    negative::PATH,
    negative::NAME,
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
    forwarding::CLIENT_FIELD,
    forwarding::REMOVED_FIELDS,
    forwarding::REFUSED_PATH_FORMS,
    forwarding::DEFAULT_AUTHORITY,
    forwarding::TRACE,
    forwarding::UPGRADES,
    server::WORKERS,
    server::SHARE_PORTS,
    server::DRAIN_TIMEOUT,
    server::UPGRADE_TIMEOUT,
    server::CERTIFICATE_INTERVAL,
    server::PID_FILE,
    server::USER,
    server::NAME,
    admin::ADDRESS,
    admin::TLS_CERTIFICATES,
    admin::TLS_KEY,
    admin::HOSTS,
    admin::METRIC_LABELS_MAX,
    admin::REQUIRE_TOKEN,
    admin::TOKEN_NAME,
    admin::TOKEN_FILE,
    admin::TOKEN_ROLES,
    purge::TOKEN_FILE,
    purge::ALLOW,
    purge::COUNT_OBJECTS_MAX,
    purge::LOG,
    purge::ENTRIES_MAX,
    purge::PATTERNS_MAX,
    access_log::PATH,
    access_log::SYSLOG,
    access_log::JOURNALD,
    access_log::FORMAT,
    access_log::QUEUE_LINES_MAX,
    tracing::ENDPOINT,
    tracing::SAMPLE,
    tracing::SAMPLED_FLAG,
    tracing::QUEUE_REQUESTS_MAX,
    limits::CONNECTIONS_MAX,
    limits::TUNNELS_MAX,
    limits::TUNNEL_IDLE_TIMEOUT,
    limits::HEAD_BYTES_MAX,
    limits::TARGET_BYTES_MAX,
    limits::HEADERS_MAX,
    limits::REQUEST_HEAD_TIMEOUT,
    limits::PROXY_HEADER_BYTES_MAX,
    limits::IDLE_TIMEOUT,
    limits::BODY_IDLE_TIMEOUT,
    limits::REQUEST_BODY_BYTES_MAX,
    slow::UPLOAD_BUFFER_BYTES,
    slow::UPLOAD_BUFFERS_BYTES_MAX,
    slow::UPLOAD_BUFFER_WAIT,
    slow::ABANDONED_WAIT,
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
    limits::RATE_LIMIT_KEYS_PER_ADDRESS,
    limits::CONNECTIONS_BYTES_MAX,
    overload::MEMORY_MAX,
    overload::LAG_MAX,
    overload::DESCRIPTORS_FREE_MIN,
    overload::STEP,
    overload::RETRY_AFTER,
    overload::WATCHDOG_DEADLINE,
    overload::WATCHDOG_ABORT,
];

/// The bounds of timeouts. A timeout below a millisecond would make every operation fail; a timeout above a day
/// has no effect.
const DURATION: ValueKind = ValueKind::Duration {
    min: Duration::from_millis(1),
    max: Duration::from_secs(86_400),
};

/// The bounds of durations that may be 0: waiting times and lifetimes.
const DURATION_OR_ZERO: ValueKind = ValueKind::Duration {
    min: Duration::ZERO,
    max: Duration::from_secs(86_400),
};

fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| NONE.to_owned())
}
