//! Settings of the process: workers, ports, upgrades, names, the file of the process id, and labels of metrics.

use super::Key;
use super::{DURATION, DURATION_OR_ZERO};
use crate::config::check::path_text;
use crate::config::kind::{ValueKind, duration_text};

pub(super) const WORKERS: Key = Key {
    path: "server.workers",
    flag: Some("--workers"),
    kind: ValueKind::Count { min: 1, max: 1024 },
    doc: "The number of worker threads, each with its own listeners and origin connections. Default: one per \
          core.",
    set: |draft, _, value| draft.edge.workers = value.nonzero(),
    show: |draft, _| Some(draft.edge.workers.to_string()),
};

pub(super) const SHARE_PORTS: Key = Key {
    path: "server.share_ports",
    flag: Some("--share-ports"),
    kind: ValueKind::Switch,
    doc: "If true, another edge of the same user can listen on the same addresses. The kernel then distributes \
          connections to both, and each has a cache of its own. Use it while one edge replaces another.",
    set: |draft, _, value| draft.edge.share_ports = value.switch(),
    show: |draft, _| Some(draft.edge.share_ports.to_string()),
};

pub(super) const DRAIN_TIMEOUT: Key = Key {
    path: "server.drain_timeout",
    flag: None,
    kind: DURATION_OR_ZERO,
    doc: "How long a shutdown waits for requests in progress.",
    set: |draft, _, value| draft.edge.drain_timeout = value.duration(),
    show: |draft, _| Some(duration_text(draft.edge.drain_timeout)),
};

pub(super) const NAME: Key = Key {
    path: "server.name",
    flag: None,
    kind: ValueKind::Token,
    doc: "The name of the edge in `Via` and `Cache-Status`. Must differ between the edges of a chain.",
    set: |draft, _, value| draft.edge.name = value.text(),
    show: |draft, _| Some(draft.edge.name.clone()),
};

pub(super) const UPGRADE_TIMEOUT: Key = Key {
    path: "server.upgrade_timeout",
    flag: None,
    kind: DURATION,
    doc: "How long an upgrade waits until the new process accepts connections. If it does not, the new process is \
          ended, and the old one carries on.",
    set: |draft, _, value| draft.edge.upgrade_timeout = value.duration(),
    show: |draft, _| Some(duration_text(draft.edge.upgrade_timeout)),
};

pub(super) const CERTIFICATE_INTERVAL: Key = Key {
    path: "server.certificate_interval",
    flag: None,
    kind: DURATION_OR_ZERO,
    doc: "How often the edge checks if the files of certificates and keys have changed. It then reads them again. If \
          they cannot be used, it keeps the earlier ones. 0: the files are read at the start and at a reload only.",
    set: |draft, _, value| draft.edge.certificate_interval = value.duration(),
    show: |draft, _| Some(duration_text(draft.edge.certificate_interval)),
};

pub(super) const PID_FILE: Key = Key {
    path: "server.pid_file",
    flag: None,
    kind: ValueKind::Path,
    doc: "The file to which the edge writes its process id when it accepts connections. After an upgrade, the file has \
          the id of the new process. The edge removes the file when it ends. Without this setting \
          there is no file; systemd does not need one.",
    set: |draft, _, value| draft.edge.pid_file = Some(value.file()),
    show: |draft, _| draft.edge.pid_file.as_deref().map(path_text),
};

pub(super) const USER: Key = Key {
    path: "server.user",
    flag: None,
    kind: ValueKind::Token,
    doc: "The user as whom the edge serves if root starts it. The process keeps only the right to bind ports below \
          1024. Reloads and upgrades run as this user, so it must be able to read the configuration, the keys of \
          certificates and the tokens, and to write logs and disks. Default: the user who starts the edge.",
    set: |draft, _, value| draft.edge.user = Some(value.text()),
    show: |draft, _| draft.edge.user.clone(),
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

pub(super) const ADMIN_REQUIRE_TOKEN: Key = Key {
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

pub(super) const ADMIN_HOSTS: Key = Key {
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
