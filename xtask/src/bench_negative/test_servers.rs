//! Starts the servers of the benchmark of negative rules: an edge without a filter, an edge with a filter, the origin
//! of both, and an nginx that answers 404.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::bench_disk::servers::{count, status};
use crate::bench_shared::client::Client;
use crate::bench_shared::nginx_user;
use crate::bench_shared::process::{self, Scratch, find, free_port};

use super::{FILL_TIMEOUT, KEYS, Plan};

/// The server that gets the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    WithoutFilter,
    WithFilter,
    Nginx,
}

impl Server {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::WithoutFilter => "edgeward without a filter",
            Self::WithFilter => "edgeward with a filter",
            Self::Nginx => "nginx return 404",
        }
    }
}

pub(super) struct TestServers {
    without_filter: RunningServer,
    with_filter: RunningServer,
    nginx: RunningServer,
    origin: RunningServer,
    // Declared last, so that the folder is removed after the processes that write into it have ended.
    _scratch: Scratch,
}

struct RunningServer {
    port: u16,
    server: process::Server,
}

impl TestServers {
    pub(super) fn start(plan: &Plan, root: &Path, filter: &Path) -> anyhow::Result<Self> {
        let scratch = Scratch::new(&std::env::temp_dir())?;
        let folder = &scratch.path;
        let start =
            |name: &str, core: u32, line: &str, port: u16| -> anyhow::Result<RunningServer> {
                let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
                let server =
                    process::Server::start(name, &plan.edgeward, &words, core, port, folder)?;
                Ok(RunningServer { port, server })
            };
        let port = free_port()?;
        let line = format!("origin --listen 127.0.0.1:{port} --cache-control max-age=86400");
        let origin = start("origin", plan.client_core, &line, port)?;
        let edge = |name: &str, rule: &str| -> anyhow::Result<RunningServer> {
            let port = free_port()?;
            let config = folder.join(format!("{name}.toml"));
            fs::write(
                &config,
                format!(
                    "[[listener]]\naddress = \"127.0.0.1:{port}\"\n\n[server]\nworkers = 1\n\n\
                     [origin]\nurl = \"http://127.0.0.1:{}\"\n\n[hot]\ncapacity = \"64MiB\"\n\
                     policy = \"lru\"\n\n{rule}",
                    origin.port
                ),
            )?;
            let line = format!("serve --config {}", config.display());
            start(name, plan.server_core, &line, port)
        };
        let without_filter = edge("without", "")?;
        let with_filter = edge(
            "with",
            &format!(
                "[[negative]]\npath = \"/o/{{id}}\"\nfilter = \"{}\"\n",
                fs::canonicalize(filter)?.display()
            ),
        )?;
        let port = free_port()?;
        let config = folder.join("nginx.conf");
        let text = fs::read_to_string(root.join("bench/negative/nginx.conf"))?
            .replace("@PORT@", &port.to_string())
            .replace("@USER@", nginx_user())
            .replace("@DIR@", &folder.display().to_string());
        fs::write(&config, text)?;
        let words = ["-c".to_owned(), config.display().to_string()];
        let nginx = RunningServer {
            port,
            server: process::Server::start(
                "nginx",
                &find("nginx")?,
                &words,
                plan.server_core,
                port,
                folder,
            )?,
        };
        Ok(Self {
            without_filter,
            with_filter,
            nginx,
            origin,
            _scratch: scratch,
        })
    }

    fn server(&self, server: Server) -> &RunningServer {
        match server {
            Server::WithoutFilter => &self.without_filter,
            Server::WithFilter => &self.with_filter,
            Server::Nginx => &self.nginx,
        }
    }

    pub(super) fn port(&self, server: Server) -> u16 {
        self.server(server).port
    }

    pub(super) fn cpu_seconds(&self, server: Server) -> anyhow::Result<f64> {
        self.server(server).server.cpu_seconds()
    }

    pub(super) fn origin_requests(&self) -> anyhow::Result<u64> {
        Ok(count(&status(self.origin.port)?, "requests"))
    }

    /// Returns the resident sets of both edges and the size of the filter, in bytes. The caller does this before the
    /// first request, while the caches are empty.
    pub(super) fn memory(&self, filter: &Path) -> anyhow::Result<Value> {
        let resident = |server: &RunningServer| {
            let pid = server.server.pid();
            let path = format!("/proc/{pid}/status");
            let text = fs::read_to_string(&path).with_context(|| path.clone())?;
            let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let kib = line.and_then(|line| line.split_ascii_whitespace().next());
            let kib: u64 = kib.context("VmRSS")?.parse().context("VmRSS")?;
            anyhow::Ok(kib << 10)
        };
        Ok(json!({
            "rss_without": resident(&self.without_filter)?,
            "rss_with": resident(&self.with_filter)?,
            "filter_bytes": fs::metadata(filter)?.len(),
        }))
    }

    /// Requests all keys that the benchmark expects as hits, until both caches have stored them. These keys are the
    /// first multiples of 7919, which are ids in the filter.
    pub(super) fn fill(&self) -> anyhow::Result<()> {
        for server in [Server::WithoutFilter, Server::WithFilter] {
            let mut client = Client::connect(self.port(server))?;
            let deadline = Instant::now() + FILL_TIMEOUT;
            loop {
                let before = self.origin_requests()?;
                for key in 1..=KEYS {
                    client.get(&format!("/o/{}?size=1024", key * 7919))?;
                }
                // The origin also counts the request that reads its counter.
                if self.origin_requests()? - before <= 1 {
                    break;
                }
                ensure!(
                    Instant::now() < deadline,
                    "{} does not store the objects",
                    server.name()
                );
                sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }
}
