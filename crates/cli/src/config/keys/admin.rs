//! Settings of the admin server.

use super::{Key, or_none};
use crate::config::draft::path_text;
use crate::config::kind::{Value, ValueKind};

pub(super) const ADDRESS: Key = Key {
    path: "admin.address",
    flag: Some("--admin"),
    kind: ValueKind::ListenAddressOrNone,
    doc: "The address that serves `/metrics` (Prometheus) and `/status` (JSON), or a Unix socket such as \
          `unix:/run/edgeward/admin.sock`, which the users of the edge's group can use. Clients of this address can \
          see the policy and how full the cache is. A client on the same machine can change the policy.",
    set: |draft, _, value| draft.edge.admin.address = value.optional(Value::listen_address),
    show: |draft, _| {
        let address = draft.edge.admin.address.as_ref();
        Some(or_none(address.map(ToString::to_string)))
    },
};

pub(super) const TLS_CERTIFICATES: Key = Key {
    path: "admin.tls_certificates",
    flag: None,
    kind: ValueKind::InputFile,
    doc: "PEM file with the certificate of the admin server first and then the chain. If it is set, the server accepts \
          TLS only. Use it if the address is reached over a network, because requests have tokens.",
    set: |draft, _, value| draft.admin_certificates = Some(value.file()),
    show: |draft, _| draft.admin_certificates.as_deref().map(path_text),
};

pub(super) const TLS_KEY: Key = Key {
    path: "admin.tls_key",
    flag: None,
    kind: ValueKind::InputFile,
    doc: "PEM file with the private key of `admin.tls_certificates`: PKCS#8, PKCS#1 or SEC1.",
    set: |draft, _, value| draft.admin_key = Some(value.file()),
    show: |draft, _| draft.admin_key.as_deref().map(path_text),
};

pub(super) const METRIC_LABELS_MAX: Key = Key {
    path: "admin.metric_labels_max",
    flag: None,
    kind: ValueKind::Count {
        min: 0,
        max: 10_000,
    },
    doc: "The most sites with their own value of the label `site` in metrics, and the most origins with their own \
          value of `origin` in `edgeward_origin_responses_total` and `edgeward_origin_latency_seconds`. All others \
          share the value `other`. Each site takes about 3 KiB of memory for each worker, and up to 260 series.",
    set: |draft, _, value| draft.edge.metric_labels_max = value.number32() as usize,
    show: |draft, _| Some(draft.edge.metric_labels_max.to_string()),
};

pub(super) const REQUIRE_TOKEN: Key = Key {
    path: "admin.require_token",
    flag: None,
    kind: ValueKind::Switch,
    doc: "If true, `/metrics`, `/status` and GET of `/policy` need a token with the role `read`, and PUT of `/policy` \
          needs one with the role `reload`. `/healthz` needs no token.",
    set: |draft, _, value| draft.edge.admin.requires_token = value.switch(),
    show: |draft, _| Some(draft.edge.admin.requires_token.to_string()),
};

pub(super) const TOKEN_NAME: Key = Key {
    path: "admin.token.name",
    flag: None,
    kind: ValueKind::Token,
    doc: "The name of the token. The log shows it with each purge, reload and upgrade.",
    set: |draft, item, value| draft.admin_token(item).name = Some(value.text()),
    show: |draft, item| draft.admin_tokens.get(item)?.name.clone(),
};

pub(super) const TOKEN_FILE: Key = Key {
    path: "admin.token.file",
    flag: None,
    kind: ValueKind::InputFile,
    doc: "File with the token, at least 16 visible characters. `openssl rand -hex 16` prints one. Clients send it as \
          `Authorization: Bearer TOKEN`. The file is read at the start and at a reload.",
    set: |draft, item, value| draft.admin_token(item).file = Some(value.file()),
    show: |draft, item| draft.admin_tokens.get(item)?.file.as_deref().map(path_text),
};

pub(super) const TOKEN_ROLES: Key = Key {
    path: "admin.token.roles",
    flag: None,
    kind: ValueKind::Roles,
    doc: "The requests that the token allows. `read`: metrics, status, policy, `cache get` and `explain`. `purge`: \
          purges. `reload`: reloads, upgrades and changes of the policy.",
    set: |draft, item, value| draft.admin_token(item).roles = Some(value.roles()),
    show: |draft, item| Some(draft.admin_tokens.get(item)?.roles?.to_string()),
};

pub(super) const HOSTS: Key = Key {
    path: "admin.hosts",
    flag: None,
    kind: ValueKind::Hosts,
    doc: "Host names that requests to the admin server may use, besides addresses, `localhost` and `server.name`. A \
          request with another `Host` gets 421. Without this check, a web page could read the metrics through a \
          host name that its owner resolves to this address (DNS rebinding). List the names that your monitoring uses.",
    set: |draft, _, value| draft.edge.admin.hosts = value.hosts(),
    show: |draft, _| {
        let hosts = &draft.edge.admin.hosts;
        (!hosts.is_empty()).then(|| hosts.join(","))
    },
};
