//! The names of the hosts that were requested last.

/// The names of at most [`HOSTS_MAX`] hosts, by their hashes.
#[derive(Debug, Default)]
pub(super) struct HostNames {
    hosts: Vec<(u64, String, u64)>,
    uses: u64,
}

impl HostNames {
    pub(super) fn name(&self, hash: u64) -> Option<&str> {
        let found = self.hosts.iter().find(|(known, ..)| *known == hash);
        found.map(|(_, name, _)| name.as_str())
    }

    /// Inserts a host. It replaces the one that was requested longest ago.
    pub(super) fn insert(&mut self, hash: u64, name: &str) {
        self.uses += 1;
        if let Some((.., used)) = self.hosts.iter_mut().find(|(known, ..)| *known == hash) {
            *used = self.uses;
            return;
        }
        let new = (hash, name.to_owned(), self.uses);
        if self.hosts.len() < HOSTS_MAX {
            self.hosts.push(new);
        } else if let Some(oldest) = self.hosts.iter_mut().min_by_key(|(.., used)| *used) {
            *oldest = new;
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let names: usize = self.hosts.iter().map(|(_, name, _)| name.capacity()).sum();
        (self.hosts.capacity() * size_of::<(u64, String, u64)>() + names) as u64
    }
}

const HOSTS_MAX: usize = 64;
