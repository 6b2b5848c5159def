//! The settings of shared ports and of the names of the admin server.

use super::Key;
use crate::config::kind::Kind;

pub(super) const SHARE_PORTS: Key = Key {
    path: "server.share_ports",
    flag: Some("--share-ports"),
    kind: Kind::Switch,
    doc: "Allows another edge of the same user on the same addresses. The kernel then \
          spreads connections over both, each with a cache of its own: for the moment in which one replaces the other.",
    set: |draft, _, value| draft.edge.share_ports = value.switch(),
    show: |draft, _| Some(draft.edge.share_ports.to_string()),
};

pub(super) const ADMIN_HOSTS: Key = Key {
    path: "admin.hosts",
    flag: None,
    kind: Kind::Hosts,
    doc: "Names by which the admin server may be asked, besides addresses, `localhost` and `server.name`. A request with another \
          `Host` gets 421, because a web page could otherwise read the figures by a name of its own that it has resolved to \
          this address (DNS rebinding). List the names that your monitoring uses.",
    set: |draft, _, value| draft.edge.admin_hosts = value.hosts(),
    show: |draft, _| {
        let hosts = &draft.edge.admin_hosts;
        (!hosts.is_empty()).then(|| hosts.join(","))
    },
};
