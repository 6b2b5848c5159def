//! The servers of a changed configuration take over the state of those of the earlier one.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::servers::{ConfiguredServer, Server, Servers};
use crate::config::OriginConfig;
use crate::origin::connect::ConnectorError;

impl Servers {
    /// Like [`new`](Self::new), for a changed configuration of the origin `before`. Servers that both have keep their
    /// health and their counts, and host names their addresses.
    pub(crate) fn succeeding(
        config: &OriginConfig,
        seed: u64,
        before: &Self,
    ) -> Result<Self, ConnectorError> {
        let servers = Self::at(config, seed, before.start)?;
        servers.adopt(before);
        Ok(servers)
    }

    /// Takes over the addresses, the health and the counts of servers.
    fn adopt(&self, before: &Self) {
        let now = self.now();
        let state = &mut *self.lock();
        let old = before.lock();
        for (index, configured) in self.configured.iter().enumerate() {
            let is_same = |other: &ConfiguredServer| other.url == configured.url;
            if let Some(at) = before.configured.iter().position(is_same)
                && let Some(answers) = old.answers.get(&at)
            {
                state.answers.insert(index, answers.clone());
            }
        }
        self.update(state);
        for server in &state.servers {
            let is_same = |other: &&Arc<Server>| other.name == server.name;
            let Some(other) = old.servers.iter().find(is_same) else {
                continue;
            };
            state.group.adopt(server.id, &old.group, other.id, now);
            for (count, before) in [
                (&server.requests, &other.requests),
                (&server.failures, &other.failures),
                (&server.ejections, &other.ejections),
                (&server.failed_checks, &other.failed_checks),
            ] {
                count.store(before.load(Relaxed), Relaxed);
            }
        }
    }
}
