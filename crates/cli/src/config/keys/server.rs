//! Settings of the process: workers, ports, upgrades, names, the file of the process id, and labels of metrics.

use super::Key;
use super::{DURATION, DURATION_OR_ZERO};
use crate::config::draft::path_text;
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
