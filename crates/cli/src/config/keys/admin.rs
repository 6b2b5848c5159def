//! The settings of `[admin]`, `[[admin.token]]` and `[purge]`.

use edgeward_proxy::config::EdgeConfig;

use super::row::{Key, rows};
use crate::config::draft::{ConfigDraft, DraftToken, Part as _};
use crate::config::value::{
    Count, Hosts, InputFile, Listed, Listen, OrNone, PathName, RoleList, Switch, Token, Unset,
};

pub(super) static ROWS: &[Key] = rows! {
    /// The address that serves `/metrics` (Prometheus) and `/status` (JSON), or a Unix socket such as
    /// `unix:/run/edgeward/admin.sock`, which the users of the edge's group can use. Clients of this address can see
    /// the policy and how full the cache is. A client on the same machine can change the policy.
    "admin.address" restart,
        flag "--admin ADDR" "Address of /metrics and /status": OrNone(Listen) => EdgeConfig.admin.address;

    /// PEM file with the certificate of the admin server first and then the chain. If it is set, the server accepts TLS
    /// only. Use it if the address is reached over a network, because requests have tokens.
    "admin.tls_certificates" restart: Unset(InputFile) => ConfigDraft.admin_certificates;

    /// PEM file with the private key of `admin.tls_certificates`: PKCS#8, PKCS#1 or SEC1.
    "admin.tls_key" restart: Unset(InputFile) => ConfigDraft.admin_key;

    /// Host names that requests to the admin server may use, besides addresses, `localhost` and `server.name`. A
    /// request with another `Host` gets 421. Without this check, a web page could read the metrics through a host name
    /// that its owner resolves to this address (DNS rebinding). List the names that your monitoring uses.
    "admin.hosts" live: Hosts => EdgeConfig.admin.hosts;

    /// The most sites with their own value of the label `site` in metrics, and the most origins with their own value of
    /// `origin` in `edgeward_origin_responses_total` and `edgeward_origin_latency_seconds`. All others share the value
    /// `other`. Each site takes about 3 KiB of memory for each worker, and up to 260 series.
    "admin.metric_labels_max" restart: Count::of(0, 10_000) => EdgeConfig.metric_labels_max;

    /// The most browsers that follow [the page](../how-to/page.md) at the same time. A further one gets 503. Each takes
    /// one of the server's 32 connections.
    "admin.event_streams_max" restart: Count::of(1, 24) => EdgeConfig.admin.event_streams_max;

    /// If true, `/metrics`, `/status` and GET of `/policy` need a token with the role `read`, and PUT of `/policy`
    /// needs one with the role `reload`. `/healthz` needs no token.
    "admin.require_token" live: Switch => EdgeConfig.admin.requires_token;

    /// The name of the token. The log shows it with each purge, reload and upgrade.
    "admin.token.name" live: Unset(Token) => DraftToken.name;

    /// File with the token, at least 16 visible characters. `openssl rand -hex 16` prints one. Clients send it as
    /// `Authorization: Bearer TOKEN`. The file is read at the start and at a reload.
    "admin.token.file" live: Unset(InputFile) => DraftToken.file;

    /// The requests that the token allows. `read`: metrics, status, policy, `cache get` and `explain`. `purge`: purges.
    /// `reload`: reloads, upgrades and changes of the policy.
    "admin.token.roles" live: Unset(RoleList) => DraftToken.roles;

    /// File with the token for purges and for the inspection of the cache over the admin server, at least 16 visible
    /// characters. `openssl rand -hex 16` prints one. Clients send it as `Authorization: Bearer TOKEN`. Without this
    /// setting, the edge refuses these requests. It needs `admin.address`.
    "purge.token_file" live: Unset(InputFile) => ConfigDraft.purge_token_file;

    /// Clients that may send the methods `PURGE`, `BAN` and `PURGEKEYS`; other clients get 403. The address of the
    /// connection must be allowed. If the request has `X-Forwarded-For`, `Forwarded` or a field such as `X-Real-IP`,
    /// the client that the field states must be allowed too. `check-config` warns if a proxy that states no client
    /// would let all its clients purge. With `none`, the edge forwards these methods to the origin.
    "purge.allow" live: Listed::OF => EdgeConfig.purge.allow;

    /// The methods with which the clients of `purge.allow` may purge; the others of `PURGE`, `BAN` and `PURGEKEYS`
    /// get 403.
    "purge.methods" live: Listed::OF => EdgeConfig.purge.methods;

    /// The most stored objects among which a `PURGE` or `BAN` of tags or patterns counts those that it covers, for its
    /// answer `purged: N`. The count reads the heads of all objects, which takes about a second per million. With more
    /// objects, the answer says that they were not counted. A `PURGE` of a URL is always counted.
    "purge.count_objects_max" live: Count::of(0, 1 << 40) => EdgeConfig.purge.count_objects_max;

    /// The file in which the edge keeps the purges for the disk cache. By default it is `purges.log` in the first
    /// device's directory, or it lies beside the device's file with the suffix `.purges`. A block device has no
    /// default: without this setting, only hard purges of URLs are accepted. If the file is lost, all objects on disk
    /// count as purged.
    "purge.log" restart: Unset(PathName) => EdgeConfig.purge.log;

    /// The most purged tags, hosts and soft-purged URLs that are remembered, at up to 56 bytes each. If more are
    /// purged, the edge forgets the oldest half, and objects that were fetched before then count as purged.
    "purge.entries_max" restart: Count::of(2, 100_000_000) => EdgeConfig.purge.entries_max;

    /// The most purged prefixes and patterns that are remembered. If more are purged, the edge forgets the oldest one,
    /// and objects that were fetched before it count as purged.
    "purge.patterns_max" restart: Count::of(1, 100_000) => EdgeConfig.purge.patterns_max;
};
