//! The settings of several servers of an origin: addresses, balancing, health, retries.

use std::time::Duration;

use edgeward_proxy::config::{
    AllDown, Balance, OriginConfig, OriginUrl, ProxyProtocol, Resolution,
};

use super::super::choice::{Choice as _, ProxyHeader};
use super::super::draft::ConfigDraft;
use super::super::kind::{Value, ValueKind, duration_text};
use super::{DURATION, DURATION_OR_ZERO, Key, or_none};

fn origin(draft: &ConfigDraft, item: usize) -> Option<&OriginConfig> {
    draft.edge.origins.get(item)
}

/// Returns the URLs in the form that a user would write, without the placeholder of a draft.
pub(super) fn urls_text(urls: &[OriginUrl]) -> Option<String> {
    let texts = urls.iter().map(ToString::to_string);
    let texts: Vec<_> = texts.filter(|text| !text.ends_with(".invalid")).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

pub(super) const SERVERS: Key = Key {
    path: "origin.servers",
    flag: None,
    kind: ValueKind::Urls,
    doc: "The servers of the origin, in place of `url`. A host name stands for all its addresses. A name that \
          begins with `_`, such as `http://_app._tcp.example.com`, stands for its SRV records. All servers are `http` \
          (or Unix sockets, `unix:/run/app.sock`), or all are `https`.",
    set: |draft, item, value| draft.origin(item).servers = value.urls(),
    show: |draft, item| {
        let servers = &origin(draft, item)?.servers;
        if servers.len() == 1 {
            return None;
        }
        urls_text(servers)
    },
};

pub(super) const PROXY_PROTOCOL: Key = Key {
    path: "origin.proxy_protocol",
    flag: None,
    kind: ValueKind::Choice(ProxyHeader::WORDS),
    doc: "Begins each connection to the origin with a PROXY header of this version, which states the address of the \
          client. The origin must expect it. A connection then serves one request, because it belongs to one client, \
          so misses cost more; `X-Forwarded-For` does not have this cost. Health checks send `LOCAL` or `UNKNOWN`. \
          Only with `protocol = \"http1\"`.",
    set: |draft, item, value| {
        draft.origin(item).proxy_protocol = match value.choice() {
            ProxyHeader::None => None,
            ProxyHeader::V1 => Some(ProxyProtocol::V1),
            ProxyHeader::V2 => Some(ProxyProtocol::V2),
        }
    },
    show: |draft, item| {
        let header = match origin(draft, item)?.proxy_protocol {
            None => ProxyHeader::None,
            Some(ProxyProtocol::V1) => ProxyHeader::V1,
            Some(ProxyProtocol::V2) => ProxyHeader::V2,
        };
        Some(header.word().to_owned())
    },
};

pub(super) const BACKUP_SERVERS: Key = Key {
    path: "origin.backup_servers",
    flag: None,
    kind: ValueKind::Urls,
    doc: "Servers that get requests only while none of the other servers is usable, and while those recover.",
    set: |draft, item, value| draft.origin(item).backup_servers = value.urls(),
    show: |draft, item| urls_text(&origin(draft, item)?.backup_servers),
};

pub(super) const BALANCE: Key = Key {
    path: "origin.balance",
    flag: None,
    kind: ValueKind::Choice(Balance::WORDS),
    doc: "How a server is chosen for a request. `least-requests` takes the server with fewer requests under way of two \
          that are chosen at random, so a slow server gets fewer. `round-robin` takes the servers in turn. `hash` \
          takes the same server for the same URL, for origins that are caches.",
    set: |draft, item, value| draft.origin(item).balance = value.choice(),
    show: |draft, item| Some(origin(draft, item)?.balance.word().to_owned()),
};

pub(super) const HASH_EXCESS_PERCENT: Key = Key {
    path: "origin.hash_excess_percent",
    flag: None,
    kind: ValueKind::Count { min: 0, max: 1000 },
    doc: "For `balance = \"hash\"`: the percentage by which the requests under way at a server may exceed the mean. \
          Further requests go to the next server of their URL.",
    set: |draft, item, value| draft.origin(item).hash_excess_percent = value.number32(),
    show: |draft, item| Some(origin(draft, item)?.hash_excess_percent.to_string()),
};

pub(super) const SERVERS_MAX: Key = Key {
    path: "origin.servers_max",
    flag: None,
    kind: ValueKind::Count { min: 1, max: 1024 },
    doc: "The maximum number of addresses of all servers together. Further addresses of host names are not used.",
    set: |draft, item, value| draft.origin(item).servers_max = value.nonzero(),
    show: |draft, item| Some(origin(draft, item)?.servers_max.to_string()),
};

pub(super) const RESOLVER: Key = Key {
    path: "origin.resolver",
    flag: None,
    kind: ValueKind::Choice(Resolution::WORDS),
    doc: "How host names are resolved. `system` uses the resolver of the system, which also reads `/etc/hosts`, at \
          intervals of `resolve_interval`. `dns` queries DNS servers and resolves a name again after the time to live \
          of the answer (at least 1 second, at most 1 hour); names are complete, so search domains do not apply.",
    set: |draft, item, value| draft.origin(item).resolution = value.choice(),
    show: |draft, item| Some(origin(draft, item)?.resolution.word().to_owned()),
};

pub(super) const NAME_SERVERS: Key = Key {
    path: "origin.name_servers",
    flag: None,
    kind: ValueKind::NameServers,
    doc: "The DNS servers for `resolver = \"dns\"` and for SRV records. By default, those of `/etc/resolv.conf`.",
    set: |draft, item, value| draft.origin(item).name_servers = value.name_servers(),
    show: |draft, item| {
        let servers = origin(draft, item)?.name_servers.iter();
        let servers: Vec<_> = servers.map(ToString::to_string).collect();
        (!servers.is_empty()).then(|| servers.join(", "))
    },
};

pub(super) const RESOLVE_INTERVAL: Key = Key {
    path: "origin.resolve_interval",
    flag: None,
    kind: INTERVAL,
    doc: "The interval at which host names are resolved again, if the time to live of the answer is unknown or the \
          resolution failed. After a failure the last addresses are used.",
    set: |draft, item, value| draft.origin(item).resolve_interval = value.duration(),
    show: |draft, item| Some(duration_text(origin(draft, item)?.resolve_interval)),
};

pub(super) const FAILURES_MAX: Key = Key {
    path: "origin.failures_max",
    flag: None,
    kind: ValueKind::Count { min: 1, max: 1000 },
    doc: "After this number of requests in succession that a server did not answer, it gets no requests for \
          `ejection_time`. Connection errors, timeouts and incomplete heads count, and error statuses do not.",
    set: |draft, item, value| draft.origin(item).failures_max = value.nonzero32(),
    show: |draft, item| Some(origin(draft, item)?.failures_max.to_string()),
};

pub(super) const EJECTION_TIME: Key = Key {
    path: "origin.ejection_time",
    flag: None,
    kind: DURATION,
    doc: "How long a server that failed gets no requests. Then one request probes it, or a health check if \
          `health_path` is set. After each probe that fails, the time doubles.",
    set: |draft, item, value| draft.origin(item).ejection_time = value.duration(),
    show: |draft, item| Some(duration_text(origin(draft, item)?.ejection_time)),
};

pub(super) const EJECTION_TIME_MAX: Key = Key {
    path: "origin.ejection_time_max",
    flag: None,
    kind: DURATION,
    doc: "The longest time without requests for a server that failed.",
    set: |draft, item, value| draft.origin(item).ejection_time_max = value.duration(),
    show: |draft, item| Some(duration_text(origin(draft, item)?.ejection_time_max)),
};

pub(super) const SLOW_START: Key = Key {
    path: "origin.slow_start",
    flag: None,
    kind: DURATION_OR_ZERO,
    doc: "The time in which the share of a server that has recovered, or is new in DNS, grows from a tenth to that of \
          the other servers.",
    set: |draft, item, value| draft.origin(item).slow_start = value.duration(),
    show: |draft, item| Some(duration_text(origin(draft, item)?.slow_start)),
};

pub(super) const ALL_DOWN: Key = Key {
    path: "origin.all_down",
    flag: None,
    kind: ValueKind::Choice(AllDown::WORDS),
    doc: "The choice if no server is usable: `try` sends the request to the server that failed least recently, and \
          `refuse` answers 503 at once.",
    set: |draft, item, value| draft.origin(item).all_down = value.choice(),
    show: |draft, item| Some(origin(draft, item)?.all_down.word().to_owned()),
};

pub(super) const RETRY_PERCENT: Key = Key {
    path: "origin.retry_percent",
    flag: None,
    kind: ValueKind::Count { min: 0, max: 1000 },
    doc: "The retry budget: the requests that are sent again to another server, as a percentage of the requests of the \
          last ten seconds. Requests that reached no server do not count.",
    set: |draft, item, value| draft.origin(item).retry_percent = value.number32(),
    show: |draft, item| Some(origin(draft, item)?.retry_percent.to_string()),
};

pub(super) const RETRIES_PER_SECOND: Key = Key {
    path: "origin.retries_per_second",
    flag: None,
    kind: ValueKind::Count {
        min: 0,
        max: 1_000_000,
    },
    doc: "Retries per second that the budget allows in addition to `retry_percent`.",
    set: |draft, item, value| draft.origin(item).retries_per_second = value.number32(),
    show: |draft, item| Some(origin(draft, item)?.retries_per_second.to_string()),
};

pub(super) const HEALTH_PATH: Key = Key {
    path: "origin.health_path",
    flag: None,
    kind: ValueKind::TargetOrNone,
    doc: "The path of health checks, a GET to each server with the origin's own `Host`. By default, there are no \
          health checks, and the results of requests decide.",
    set: |draft, item, value| draft.origin(item).checks.path = value.optional(Value::text),
    show: |draft, item| Some(or_none(origin(draft, item)?.checks.path.clone())),
};

pub(super) const HEALTH_INTERVAL: Key = Key {
    path: "origin.health_interval",
    flag: None,
    kind: INTERVAL,
    doc: "The time between two health checks of a server.",
    set: |draft, item, value| draft.origin(item).checks.interval = value.duration(),
    show: |draft, item| Some(duration_text(origin(draft, item)?.checks.interval)),
};

pub(super) const HEALTH_TIMEOUT: Key = Key {
    path: "origin.health_timeout",
    flag: None,
    kind: DURATION,
    doc: "The longest time of a health check.",
    set: |draft, item, value| draft.origin(item).checks.timeout = value.duration(),
    show: |draft, item| Some(duration_text(origin(draft, item)?.checks.timeout)),
};

pub(super) const HEALTH_STATUS: Key = Key {
    path: "origin.health_status",
    flag: None,
    kind: ValueKind::CountOrNone { min: 100, max: 599 },
    doc: "The status of a successful health check. `\"none\"` is any status of 200 to 399.",
    set: |draft, item, value| {
        draft.origin(item).checks.status = value.optional(|status| status.count() as u16);
    },
    show: |draft, item| {
        let status = origin(draft, item)?.checks.status;
        Some(or_none(status.map(|status| status.to_string())))
    },
};

pub(super) const HEALTH_FAILURES: Key = Key {
    path: "origin.health_failures",
    flag: None,
    kind: ValueKind::Count { min: 1, max: 1000 },
    doc: "After this number of failed health checks in succession, a server gets no requests.",
    set: |draft, item, value| draft.origin(item).checks.failures = value.nonzero32(),
    show: |draft, item| Some(origin(draft, item)?.checks.failures.to_string()),
};

pub(super) const HEALTH_SUCCESSES: Key = Key {
    path: "origin.health_successes",
    flag: None,
    kind: ValueKind::Count { min: 1, max: 1000 },
    doc: "After this number of successful health checks in succession, the server gets requests again.",
    set: |draft, item, value| draft.origin(item).checks.successes = value.nonzero32(),
    show: |draft, item| Some(origin(draft, item)?.checks.successes.to_string()),
};

pub(super) const ADD_VIA: Key = Key {
    path: "origin.via",
    flag: None,
    kind: ValueKind::Switch,
    doc: "If true, requests to the origin have `Via` with the name of this edge. Set it to false if the origin is an \
          nginx with `gzip`, because it does not compress responses to requests with `Via` unless `gzip_proxied` is \
          set. Loops are detected by `CDN-Loop` in any case.",
    set: |draft, item, value| draft.origin(item).via = value.switch(),
    show: |draft, item| Some(origin(draft, item)?.via.to_string()),
};

pub(super) const REWRITE_LOCATION: Key = Key {
    path: "origin.rewrite_location",
    flag: None,
    kind: ValueKind::Switch,
    doc: "If true, scheme, host and port of a `Location` that are exactly those of a server of the origin are replaced \
          by those of the client's request. Other locations are kept.",
    set: |draft, item, value| draft.origin(item).rewrites_location = value.switch(),
    show: |draft, item| Some(origin(draft, item)?.rewrites_location.to_string()),
};

pub(super) const TLS_CERTIFICATE: Key = Key {
    path: "origin.tls_certificate",
    flag: None,
    kind: ValueKind::InputFile,
    doc: "PEM file of the certificate, and the chain after it, with which the edge authenticates to an `https` origin. \
          Needs `tls_key`.",
    set: |draft, item, value| {
        let files = draft.origin(item).tls.client.get_or_insert_default();
        files.certificates = value.file();
    },
    show: |draft, item| {
        let files = origin(draft, item)?.tls.client.as_ref()?;
        Some(super::path_text(&files.certificates))
    },
};

pub(super) const TLS_KEY: Key = Key {
    path: "origin.tls_key",
    flag: None,
    kind: ValueKind::InputFile,
    doc: "PEM file with the private key of `tls_certificate`: PKCS#8, PKCS#1 or SEC1.",
    set: |draft, item, value| {
        draft.origin(item).tls.client.get_or_insert_default().key = value.file();
    },
    show: |draft, item| {
        Some(super::path_text(
            &origin(draft, item)?.tls.client.as_ref()?.key,
        ))
    },
};

/// An interval of work in the background: not so short that the work takes a core.
const INTERVAL: ValueKind = ValueKind::Duration {
    min: Duration::from_millis(100),
    max: Duration::from_secs(86_400),
};
