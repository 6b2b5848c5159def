//! The settings of `[[origin]]`.

use std::time::Duration;

use edgeward_proxy::config::{OriginConfig, ProxyProtocol};

use super::row::{DURATION, DURATION_OR_ZERO, Key, rows};
use crate::config::choice::ProxyHeader;
use crate::config::draft::{DraftBucket, Part as _, is_placeholder};
use crate::config::value::{
    Bucket, Count, HostName, InputFile, NameServers, OrNone, OriginHost, Switch, Target, Time,
    Token, Unset, Url, Urls, Word,
};

pub(super) static ROWS: &[Key] = rows! {
    /// The name of the origin in metrics and messages. Several origins must have different names.
    "origin.name" live: Token => OriginConfig.name;

    /// Scheme, host and port of the origin, or a Unix socket such as `unix:/run/app.sock`. The path of each request is
    /// added to it. For several servers, set `servers` instead.
    "origin.url" live,
        flag "--origin URL" "The origin, as http://HOST:PORT": Url,
        get: |draft, item| match &OriginConfig::of(draft, item)?.servers[..] {
            [url] if !is_placeholder(url) => Some(url.clone()),
            _ => None,
        },
        set: |draft, item, value| OriginConfig::of_mut(draft, item).servers = vec![value];

    /// The servers of the origin, in place of `url`. A host name stands for all its addresses. A name that begins with
    /// `_`, such as `http://_app._tcp.example.com`, stands for its SRV records. All servers are `http` (or Unix
    /// sockets, `unix:/run/app.sock`), or all are `https`.
    "origin.servers" live: Urls,
        get: |draft, item| {
            let servers = &OriginConfig::of(draft, item)?.servers;
            (servers.len() != 1).then(|| servers.clone())
        },
        set: |draft, item, value| OriginConfig::of_mut(draft, item).servers = value;

    /// Servers that get requests only while none of the other servers is usable, and while those recover.
    "origin.backup_servers" live: Urls => OriginConfig.backup_servers;

    /// How a server is chosen for a request. `least-requests` takes the server with fewer requests under way of two
    /// that are chosen at random, so a slow server gets fewer. `round-robin` takes the servers in turn. `hash` takes
    /// the same server for the same URL, for origins that are caches.
    "origin.balance" live: Word::OF => OriginConfig.balance;

    /// For `balance = "hash"`: the percentage by which the requests under way at a server may exceed the mean. Further
    /// requests go to the next server of their URL.
    "origin.hash_excess_percent" live: Count::of(0, 1000) => OriginConfig.hash_excess_percent;

    /// The maximum number of addresses of all servers together. Further addresses of host names are not used.
    "origin.servers_max" live: Count::of(1, 1024) => OriginConfig.servers_max;

    /// How host names are resolved. `system` uses the resolver of the system, which also reads `/etc/hosts`, at
    /// intervals of `resolve_interval`. `dns` queries DNS servers and resolves a name again after the time to live of
    /// the answer (at least 1 second, at most 1 hour); names are complete, so search domains do not apply.
    "origin.resolver" live: Word::OF => OriginConfig.resolution;

    /// The DNS servers for `resolver = "dns"` and for SRV records. By default, those of `/etc/resolv.conf`.
    "origin.name_servers" live: NameServers => OriginConfig.name_servers;

    /// The interval at which host names are resolved again, if the time to live of the answer is unknown or the
    /// resolution failed. After a failure the last addresses are used.
    "origin.resolve_interval" live: INTERVAL => OriginConfig.resolve_interval;

    /// The HTTP version for the origin. HTTP/2 is negotiated by ALPN over TLS, and used with prior knowledge without
    /// TLS.
    "origin.protocol" live: Word::OF => OriginConfig.protocol;

    /// Begins each connection to the origin with a PROXY header of this version, which states the address of the
    /// client. The origin must expect it. A connection then serves one request, because it belongs to one client, so
    /// misses cost more; `X-Forwarded-For` does not have this cost. Health checks send `LOCAL` or `UNKNOWN`. Only with
    /// `protocol = "http1"`.
    "origin.proxy_protocol" live: Word::OF,
        get: |draft, item| Some(match OriginConfig::of(draft, item)?.proxy_protocol {
            None => ProxyHeader::None,
            Some(ProxyProtocol::V1) => ProxyHeader::V1,
            Some(ProxyProtocol::V2) => ProxyHeader::V2,
        }),
        set: |draft, item, value| {
            OriginConfig::of_mut(draft, item).proxy_protocol = match value {
                ProxyHeader::None => None,
                ProxyHeader::V1 => Some(ProxyProtocol::V1),
                ProxyHeader::V2 => Some(ProxyProtocol::V2),
            };
        };

    /// The `Host` that is sent to the origin. `"forward"` is the host that the client requested. `"origin"` is the host
    /// and port of the first server. Any other value is sent as it is. `"auto"` is `"origin"` for an `https` URL with a
    /// host name, because an `https` server usually selects its site by this name and rejects other names. Otherwise
    /// `"auto"` is `"forward"`, because an origin without `https` is usually your own server and serves the names that
    /// clients request.
    "origin.host" live: OriginHost => OriginConfig.host;

    /// The longest time to connect to the origin, TLS handshake included.
    "origin.connect_timeout" live: DURATION => OriginConfig.connect_timeout;

    /// The longest time from the end of the request to the head of the response.
    "origin.first_byte_timeout" live: DURATION => OriginConfig.first_byte_timeout;

    /// The longest time without a byte while a response body is read.
    "origin.read_idle_timeout" live: DURATION => OriginConfig.read_idle_timeout;

    /// The maximum of connections to the origin per worker, in use and idle. Further requests wait in a queue, see
    /// `queue_max`. At the start, the edge lowers this limit if the limit of open files requires it.
    "origin.connections_per_worker_max" live: Count::of(1, 65_536) => OriginConfig.connections_per_worker_max;

    /// The longest time that the body of a request with `Expect: 100-continue` waits for the origin's `100 Continue`.
    /// After this time, the body is sent without it. Applies only to HTTP/1.1 to the origin.
    "origin.expect_timeout" live: DURATION_OR_ZERO => OriginConfig.expect_timeout;

    /// The percentage of a worker's connections to the origin that one client address (IPv6: one /64) may use while no
    /// other client uses such a connection. The percentage decreases with the number of clients that use connections,
    /// so that some connections stay free. 100 is no limit; use it if all clients connect through a trusted load
    /// balancer.
    "origin.client_share_percent" live: Count::of(1, 100) => OriginConfig.client_share_percent;

    /// The percentage of a worker's connections to the origin that requests may use before their body is complete. The
    /// limit applies to bodies of unknown length that stay incomplete for `limits.upload_buffer_wait`, and to bodies
    /// announced with `Expect: 100-continue`. At least one connection is always allowed. Above this limit, such a body
    /// is buffered like a body of known length.
    "origin.unfinished_uploads_percent" live: Count::of(0, 100) => OriginConfig.unfinished_uploads_percent;

    /// The maximum number of requests per worker that wait for a connection to the origin. Free connections go to the
    /// client addresses in turn. Above the maximum, the newest request of the address with the most waiting requests
    /// gets 503.
    "origin.queue_max" live: Count::of(0, 1 << 20) => OriginConfig.queue_max;

    /// The longest wait for a connection to the origin. After this time, the request gets 503 with `Retry-After`.
    "origin.queue_timeout" live: DURATION => OriginConfig.queue_timeout;

    /// The maximum of idle connections to the origin per worker, kept for later misses.
    "origin.idle_per_worker_max" live: Count::of(0, 65_536) => OriginConfig.idle_per_worker_max;

    /// How long an idle connection is kept. Must be shorter than the keep-alive timeout of the origin.
    "origin.idle_timeout" live: DURATION => OriginConfig.idle_timeout;

    /// How often a request is sent again: to the same server, after idle connections turned out to be closed, and to
    /// other servers, after a failure before the response began. Only requests that RFC 9110 §9.2.2 allows to repeat
    /// are sent again. With 0, a request is still sent again on a new connection if the origin had closed the idle one.
    /// A server that refuses the connection does not count, and any request is then sent to another server.
    "origin.retries_max" live: Count::of(0, 10) => OriginConfig.retries_max;

    /// The retry budget: the requests that are sent again to another server, as a percentage of the requests of the
    /// last ten seconds. Requests that reached no server do not count.
    "origin.retry_percent" live: Count::of(0, 1000) => OriginConfig.retry_percent;

    /// Retries per second that the budget allows in addition to `retry_percent`.
    "origin.retries_per_second" live: Count::of(0, 1_000_000) => OriginConfig.retries_per_second;

    /// After this number of requests in succession that a server did not answer, it gets no requests for
    /// `ejection_time`. Connection errors, timeouts and incomplete heads count, and error statuses do not.
    "origin.failures_max" live: Count::of(1, 1000) => OriginConfig.failures_max;

    /// How long a server that failed gets no requests. Then one request probes it, or a health check if `health_path`
    /// is set. After each probe that fails, the time doubles.
    "origin.ejection_time" live: DURATION => OriginConfig.ejection_time;

    /// The longest time without requests for a server that failed.
    "origin.ejection_time_max" live: DURATION => OriginConfig.ejection_time_max;

    /// The time in which the share of a server that has recovered, or is new in DNS, grows from a tenth to that of the
    /// other servers.
    "origin.slow_start" live: DURATION_OR_ZERO => OriginConfig.slow_start;

    /// The choice if no server is usable: `try` sends the request to the server that failed least recently, and
    /// `refuse` answers 503 at once.
    "origin.all_down" live: Word::OF => OriginConfig.all_down;

    /// The path of health checks, a GET to each server with the origin's own `Host`. By default, there are no health
    /// checks, and the results of requests decide.
    "origin.health_path" live: OrNone(Target) => OriginConfig.checks.path;

    /// The time between two health checks of a server.
    "origin.health_interval" live: INTERVAL => OriginConfig.checks.interval;

    /// The longest time of a health check.
    "origin.health_timeout" live: DURATION => OriginConfig.checks.timeout;

    /// The status of a successful health check. `"none"` is any status of 200 to 399.
    "origin.health_status" live: OrNone(Count::of(100, 599)) => OriginConfig.checks.status;

    /// After this number of failed health checks in succession, a server gets no requests.
    "origin.health_failures" live: Count::of(1, 1000) => OriginConfig.checks.failures;

    /// After this number of successful health checks in succession, the server gets requests again.
    "origin.health_successes" live: Count::of(1, 1000) => OriginConfig.checks.successes;

    /// If true, requests to the origin have `Via` with the name of this edge. Set it to false if the origin is an nginx
    /// with `gzip`, because it does not compress responses to requests with `Via` unless `gzip_proxied` is set. Loops
    /// are detected by `CDN-Loop` in any case.
    "origin.via" live: Switch => OriginConfig.via;

    /// If true, scheme, host and port of a `Location` that are exactly those of a server of the origin are replaced by
    /// those of the client's request. Other locations are kept.
    "origin.rewrite_location" live: Switch => OriginConfig.rewrites_location;

    /// If true, a response with an unknown `Transfer-Encoding` is read to the end of the connection, and clients get
    /// its bytes without this field. If false, the response is an error (502).
    "origin.accept_unknown_codings" live: Switch => OriginConfig.accepts_unknown_codings;

    /// If true, the certificate of an `https` origin is verified. If false, anyone on the network path can read and
    /// change the traffic.
    "origin.tls_verify" live: Switch => OriginConfig.tls.verify;

    /// PEM file of the root certificates that an `https` origin must chain to. Default: the root certificates of the
    /// system.
    "origin.tls_roots" live: Unset(InputFile) => OriginConfig.tls.roots;

    /// The server name for TLS (SNI) that is also verified in the certificate. Default: the host of each server.
    "origin.tls_server_name" live: Unset(HostName) => OriginConfig.tls.server_name;

    /// PEM file of the certificate, and the chain after it, with which the edge authenticates to an `https` origin.
    /// Needs `tls_key`.
    "origin.tls_certificate" live: InputFile,
        get: |draft, item| {
            let files = OriginConfig::of(draft, item)?.tls.client.as_ref()?;
            Some(files.certificates.clone())
        },
        set: |draft, item, value| {
            let tls = &mut OriginConfig::of_mut(draft, item).tls;
            tls.client.get_or_insert_default().certificates = value;
        };

    /// PEM file with the private key of `tls_certificate`: PKCS#8, PKCS#1 or SEC1.
    "origin.tls_key" live: InputFile,
        get: |draft, item| {
            let files = OriginConfig::of(draft, item)?.tls.client.as_ref()?;
            Some(files.key.clone())
        },
        set: |draft, item, value| {
            let tls = &mut OriginConfig::of_mut(draft, item).tls;
            tls.client.get_or_insert_default().key = value;
        };

    /// The name of a bucket of S3. The edge signs all requests to this origin with AWS Signature Version 4, and only
    /// reads: GET, HEAD and OPTIONS. `query.keep` of the site names the parameters that the bucket gets; without it,
    /// the bucket gets none. See docs/how-to/origins.md.
    "origin.s3_bucket" live: Unset(Bucket) => DraftBucket.bucket;

    /// The region of the bucket, which is a part of each signature: `eu-central-1`, for example. Servers without
    /// regions usually expect `us-east-1`, and Cloudflare R2 expects `auto`.
    "origin.s3_region" live: Unset(Token) => DraftBucket.region;

    /// How requests name the bucket. `path` puts its name before the path. `host` expects it in `Host`, as in
    /// `media.s3.eu-central-1.amazonaws.com`. `auto` is `host` if the `Host` for the origin is the name of the bucket,
    /// or begins with it and a dot, otherwise `path`.
    "origin.s3_style" live: Word::OF => DraftBucket.style;

    /// If true, `/` is the list of the bucket's objects; `query.keep` then needs the parameters of lists. If false, `/`
    /// is answered 404 unless a rule rewrites it.
    "origin.s3_list" live: Switch => DraftBucket.serves_list;

    /// File with the credentials of the bucket, in the format of the AWS tools (`~/.aws/credentials`). The edge reads
    /// it again when it changes, see `server.certificate_interval`. Without this setting, the credentials are those of
    /// the variables `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`.
    "origin.s3_credentials_file" live: Unset(InputFile) => DraftBucket.credentials_file;

    /// The section of the file of credentials.
    "origin.s3_profile" live: Token => DraftBucket.profile;
};

/// An interval of work in the background: not so short that the work takes a core.
const INTERVAL: Time = Time(Duration::from_millis(100), Duration::from_secs(86_400));
