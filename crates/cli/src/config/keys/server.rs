//! Two settings with long descriptions: `server.share_ports` and `admin.hosts`.

use super::Key;
use crate::config::kind::ValueKind;

pub(super) const SHARE_PORTS: Key = Key {
    path: "server.share_ports",
    flag: Some("--share-ports"),
    kind: ValueKind::Switch,
    doc: "If true, another edge of the same user can listen on the same addresses. The kernel then distributes \
          connections to both, and each has a cache of its own. Use it while one edge replaces another.",
    set: |draft, _, value| draft.edge.share_ports = value.switch(),
    show: |draft, _| Some(draft.edge.share_ports.to_string()),
};

pub(super) const ADMIN_HOSTS: Key = Key {
    path: "admin.hosts",
    flag: None,
    kind: ValueKind::Hosts,
    doc: "Host names that requests to the admin server may use, besides addresses, `localhost` and `server.name`. A \
          request with another `Host` gets 421. Without this check, a web page could read the metrics through a \
          host name that its owner resolves to this address (DNS rebinding). List the names that your monitoring uses.",
    set: |draft, _, value| draft.edge.admin_hosts = value.hosts(),
    show: |draft, _| {
        let hosts = &draft.edge.admin_hosts;
        (!hosts.is_empty()).then(|| hosts.join(","))
    },
};
