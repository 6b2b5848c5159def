//! Starts the servers for one object size, fills them, and compares their responses byte for byte.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use rustix::fs::{Advice, fadvise, syncfs};

use super::super::servers::{Edge, Origin};
use super::{Plan, device_read_bytes, disk_hits_on_page, sendfile_server};
use crate::bench_shared::client::Client;
use crate::bench_shared::nginx_user;
use crate::bench_shared::process::{Scratch, Server, find, free_port};
use crate::options::format_size;

/// The maximum number of times that all objects are requested to fill a cache. If a server still misses after
/// that, the benchmark fails.
const FILL_ROUNDS_MAX: u32 = 5;

/// The approximate number of objects whose bytes are compared with the origin's.
const CHECKED: u64 = 8;

/// The measured servers: edgeward, nginx with each method of reading files, and a server whose CPU time is the lower
/// bound for all servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Edgeward,
    /// nginx: the name of the method of reading files, and the directives that select it.
    Nginx(&'static str, &'static str),
    /// Only `sendfile`; see [`super::sendfile_server`].
    SendfileServer,
}

impl Subject {
    /// All measured servers. `aio threads` is left out: with it and cached open files, nginx 1.22 stopped responding to
    /// requests for objects of 16 KiB (`bench/runs/2026-11-21-disk`).
    pub(super) const ALL: [Self; 6] = [
        Self::Edgeward,
        Self::Nginx("sendfile", "sendfile on;"),
        Self::Nginx("sendfile tcp_nopush", "sendfile on; tcp_nopush on;"),
        Self::Nginx("read 32k", "sendfile off; output_buffers 2 32k;"),
        Self::Nginx("read 256k", "sendfile off; output_buffers 2 256k;"),
        Self::SendfileServer,
    ];
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Edgeward => f.write_str("edgeward"),
            Self::Nginx(name, _) => write!(f, "nginx {name}"),
            Self::SendfileServer => f.write_str("sendfile alone"),
        }
    }
}

/// All processes for one object size.
pub(super) struct TestServers {
    /// The size of each object in bytes.
    pub(super) size: u64,
    /// The number of objects. Their keys begin at 1.
    pub(super) keys: u64,
    origin: Origin,
    /// The number of calls of [`Origin::requests`], which are themselves requests to the origin.
    origin_polls: u64,
    edge: Edge,
    nginx: Server,
    sendfile_server: Server,
    ports: Vec<(Subject, u16)>,
    // Declared last, so that the folder is removed after the processes that write into it have ended.
    scratch: Scratch,
}

impl TestServers {
    pub(super) fn start(
        plan: &Plan,
        root: &Path,
        edgeward: &Path,
        folder: &Path,
        size: u64,
        keys: u64,
    ) -> anyhow::Result<Self> {
        let scratch = Scratch::new(folder)?;
        let origin = Origin::start(edgeward, Some(plan.client_core), &scratch.path)?;
        // One and a half times the size of the objects, and at least the minimum for a log of segments.
        let capacity = (size * keys / 2 * 3).max(256 << 20);
        let capacity = format_size(capacity.next_multiple_of(1 << 20));
        let store = scratch.path.join("store");
        fs::create_dir(&store)?;
        // The policy stores no object in memory, so that all hits are from the disk cache.
        let more = format!(
            "--hot 1MiB --policy threshold:1B --disk {} --disk-size {capacity} --disk-admission always",
            store.display()
        );
        let core = Some(plan.server_core);
        let edge = Edge::start(edgeward, "edge", &origin, &more, core, &scratch.path)?;
        let mut ports = vec![(Subject::Edgeward, edge.port)];
        let template = fs::read_to_string(root.join("bench/disk/nginx-server.conf"))?;
        let mut servers = String::new();
        for subject in Subject::ALL {
            let Subject::Nginx(_, settings) = subject else {
                continue;
            };
            let port = free_port()?;
            servers += &template
                .replace("@PORT@", &port.to_string())
                .replace("@SETTINGS@", settings);
            ports.push((subject, port));
        }
        // nginx writes 256 MiB as `256m`.
        let text = fs::read_to_string(root.join("bench/disk/nginx.conf"))?
            .replace("@SERVERS@", &servers)
            .replace("@ORIGIN@", &origin.port.to_string())
            .replace("@CAPACITY@", &capacity.to_lowercase().replace("ib", ""))
            .replace("@USER@", nginx_user())
            .replace("@DIR@", &scratch.path.display().to_string());
        let config = scratch.path.join("nginx.conf");
        fs::write(&config, text)?;
        let nginx = Server::start(
            "nginx",
            &find("nginx")?,
            &["-c".to_owned(), config.display().to_string()],
            plan.server_core,
            ports[1].1,
            &scratch.path,
        )?;
        let sendfile_server =
            Self::start_sendfile_server(plan, origin.port, size, keys, &scratch.path)?;
        ports.push((Subject::SendfileServer, sendfile_server.1));
        let sendfile_server = sendfile_server.0;
        let mut test_servers = Self {
            size,
            keys,
            origin,
            origin_polls: 0,
            edge,
            nginx,
            sendfile_server,
            ports,
            scratch,
        };
        test_servers.fill(Subject::Edgeward)?;
        // All nginx subjects share one cache, so the first of them fills it.
        test_servers.fill(Subject::ALL[1])?;
        test_servers.check()?;
        Ok(test_servers)
    }

    fn start_sendfile_server(
        plan: &Plan,
        origin: u16,
        size: u64,
        keys: u64,
        scratch: &Path,
    ) -> anyhow::Result<(Server, u16)> {
        let folder = scratch.join("sendfile-server");
        fs::create_dir(&folder)?;
        let file = folder.join("objects");
        sendfile_server::fill(origin, size, keys, &file)?;
        let port = free_port()?;
        let arguments = [
            "bench-disk".to_owned(),
            "sendfile-server".to_owned(),
            port.to_string(),
            file.display().to_string(),
            size.to_string(),
        ];
        let this = std::env::current_exe()?;
        let server = Server::start(
            "sendfile-server",
            &this,
            &arguments,
            plan.server_core,
            port,
            scratch,
        )?;
        Ok((server, port))
    }

    pub(super) fn subjects(&self) -> &[Subject] {
        &Subject::ALL
    }

    pub(super) fn port(&self, subject: Subject) -> u16 {
        let found = self.ports.iter().find(|(other, _)| *other == subject);
        found.expect("every subject has a port").1
    }

    fn server(&self, subject: Subject) -> &Server {
        match subject {
            Subject::Edgeward => &self.edge.server,
            Subject::Nginx(..) => &self.nginx,
            Subject::SendfileServer => &self.sendfile_server,
        }
    }

    pub(super) fn cpu_seconds(&self, subject: Subject) -> anyhow::Result<f64> {
        self.server(subject).cpu_seconds()
    }

    /// Returns the number of bytes that the server's processes have read from a device.
    pub(super) fn read_bytes(&self, subject: Subject) -> anyhow::Result<u64> {
        Ok(self
            .server(subject)
            .tree()?
            .into_iter()
            .map(device_read_bytes)
            .sum())
    }

    /// Returns the number of disk hits, if the server counts them.
    pub(super) fn disk_hits(&self, subject: Subject) -> anyhow::Result<Option<u64>> {
        match subject {
            Subject::Edgeward => Ok(Some(disk_hits_on_page(&self.edge.status()?))),
            Subject::Nginx(..) | Subject::SendfileServer => Ok(None),
        }
    }

    pub(super) fn origin_requests(&mut self) -> anyhow::Result<u64> {
        self.origin.requests(&mut self.origin_polls)
    }

    /// Requests all objects repeatedly until no request reaches the origin.
    fn fill(&mut self, subject: Subject) -> anyhow::Result<()> {
        let mut missed = 0;
        for _ in 0..FILL_ROUNDS_MAX {
            let before = self.origin_requests()?;
            let mut client = Client::connect(self.port(subject))?;
            for key in 1..=self.keys {
                client.get(&self.path(key))?;
            }
            missed = self.origin_requests()?.saturating_sub(before);
            if missed == 0 {
                return Ok(());
            }
        }
        bail!(
            "{subject} still sends {missed} of {} objects to the origin after {FILL_ROUNDS_MAX} rounds",
            self.keys
        )
    }

    /// Compares a few objects of each server with the origin's, so that a misconfigured server cannot win with wrong
    /// responses.
    fn check(&self) -> anyhow::Result<()> {
        for key in (1..=self.keys).step_by((self.keys / CHECKED).max(1) as usize) {
            let expected = Client::connect(self.origin.port)?.get(&self.path(key))?;
            for (subject, port) in &self.ports {
                let got = Client::connect(*port)?.get(&self.path(key))?;
                ensure!(
                    got == expected,
                    "{subject} sent wrong bytes for object {key}"
                );
            }
        }
        Ok(())
    }

    fn path(&self, key: u64) -> String {
        format!("/o/{key}?size={}", self.size)
    }

    /// Writes dirty pages and drops the cached pages of a server's files.
    pub(super) fn forget_pages(&self, subject: Subject) -> anyhow::Result<()> {
        let folder = match subject {
            Subject::Edgeward => self.scratch.path.join("store"),
            Subject::Nginx(..) => self.scratch.path.join("nginx-cache"),
            Subject::SendfileServer => self.scratch.path.join("sendfile-server"),
        };
        // `posix_fadvise` does not drop dirty pages.
        syncfs(File::open(&folder)?).context("syncfs")?;
        let mut folders = vec![folder];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
                let path: PathBuf = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if let Ok(file) = File::open(&path) {
                    fadvise(&file, 0, None, Advice::DontNeed).context("posix_fadvise")?;
                }
            }
        }
        Ok(())
    }
}
