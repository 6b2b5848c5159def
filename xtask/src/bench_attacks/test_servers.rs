//! Starts the server under attack, its origin, and the link if the gateway is attacked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use crate::bench_disk::servers::{count, status};
use crate::bench_memory::{MEMORY_RATIO_MAX, base_bytes};
use crate::bench_shared::client::Client;
use crate::bench_shared::process::{Scratch, Server, find, free_port};

use super::kinds::Attack;
use super::{Plan, client};

/// The server under attack. The well-behaved client sends its requests to this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Edge,
    Admin,
    Publisher,
    /// The gateway of a link. The client reaches it through an edge of the link.
    Gateway,
}

pub(super) struct TestServers {
    pub(super) service: Service,
    /// The port of the edge. For [`Service::Gateway`], the port of the gateway.
    edge_port: u16,
    admin_port: u16,
    publisher_port: u16,
    link: Option<Link>,
    /// The memory limit of the edge: (memory tier + fills + memory of an empty edge) × `MEMORY_RATIO_MAX`.
    pub(super) memory_bytes_bound: Option<u64>,
    server: Server,
    origin: Server,
    // Declared last, so that the folder is removed after the processes that write into it have ended.
    _scratch: Scratch,
}

/// The edge of a link. The requests that the benchmark counts as hits go through this edge. For each request that it
/// counts as a miss, it starts another edge with the same arguments.
struct Link {
    port: u16,
    /// The arguments of `edgeward`, without address and store.
    line: String,
    folder: PathBuf,
    binary: PathBuf,
    core: u32,
    _edge: Server,
}

const WORKERS: u64 = 1;

/// The number of ids in the publisher's set.
const IDS: u32 = 10_000;

/// The usual soft limit of open files in a login shell.
const OPEN_FILES_SOFT: u32 = 1024;

impl TestServers {
    pub(super) fn start(plan: &Plan, attack: Attack) -> anyhow::Result<Self> {
        let scratch = Scratch::new(&std::env::temp_dir())?;
        let folder = &scratch.path;
        let (origin_port, edge_port) = (free_port()?, free_port()?);
        let (admin_port, publisher_port) = (free_port()?, free_port()?);
        let words =
            |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
        // With 20 ms for a miss, a pause by the scheduler does not double the latency. Through a link, every
        // request reaches the origin, so the origin answers at once.
        let latency_ms = if attack.service() == Service::Gateway {
            0
        } else {
            20
        };
        let origin = words(&format!(
            "origin --listen 127.0.0.1:{origin_port} --latency {latency_ms}ms --cache-control max-age=86400"
        ));
        let origin = Server::start(
            "origin",
            &plan.origin_binary,
            &origin,
            plan.client_core,
            origin_port,
            folder,
        )?;
        let service = attack.service();
        let (line, port) = if service == Service::Gateway {
            let keygen = Command::new(&plan.edgeward)
                .args(["--quiet", "link", "keygen", "--out"])
                .arg(folder.join("keys"))
                .stdout(Stdio::null())
                .status()?;
            ensure!(keygen.success(), "`edgeward link keygen` failed");
            let folder = folder.display();
            let line = format!(
                "gateway --listen 127.0.0.1:{edge_port} --allow 127.0.0.1:{origin_port} \
                 --keys {folder}/keys/gateway --store {folder}/gateway.store --store-size 64MiB"
            );
            (line, edge_port)
        } else if service == Service::Publisher {
            let ids = folder.join("ids");
            let lines: Vec<_> = (0..IDS).map(|id| id.to_string()).collect();
            fs::write(&ids, lines.join("\n"))?;
            let line = format!(
                "filter serve --source {} --set bench --state {} --unsigned --listen 127.0.0.1:{publisher_port}",
                ids.display(),
                folder.join("state").display(),
            );
            (line, publisher_port)
        } else {
            let line = format!(
                "serve --listen 127.0.0.1:{edge_port} --admin 127.0.0.1:{admin_port} \
                 --origin http://127.0.0.1:{origin_port} --hot {} --workers {WORKERS}",
                plan.hot
            );
            (line, edge_port)
        };
        let limited = format!(
            "--nofile={OPEN_FILES_SOFT}: {} {line}",
            plan.edgeward.display()
        );
        let mut server = Server::start(
            "server",
            &find("prlimit")?,
            &words(&limited),
            plan.server_core,
            port,
            folder,
        )?;
        let memory_bytes_bound = match service {
            Service::Edge | Service::Admin => {
                // The edge accepts connections of clients before those of its admin server.
                server.wait_for(admin_port)?;
                Some(memory_bytes_bound(admin_port)?)
            }
            Service::Publisher | Service::Gateway => None,
        };
        let link = (service == Service::Gateway).then(|| {
            let line = format!(
                "link forward --to 127.0.0.1:{origin_port} --gateway 127.0.0.1:{edge_port} --keys {}/keys/edge \
                 --store-size 64MiB",
                folder.display()
            );
            let port = free_port()?;
            anyhow::Ok(Link {
                _edge: start_link(&plan.edgeward, &line, "edge", port, plan.client_core, folder)?,
                port,
                line,
                folder: folder.clone(),
                binary: plan.edgeward.clone(),
                core: plan.client_core,
            })
        });
        Ok(Self {
            link: link.transpose()?,
            memory_bytes_bound,
            service,
            edge_port,
            admin_port,
            publisher_port,
            server,
            origin,
            _scratch: scratch,
        })
    }

    /// Returns the port to which the client sends its requests.
    pub(super) fn client_port(&self) -> u16 {
        let link = self.link.as_ref();
        link.map_or_else(|| self.port(), |link| link.port)
    }

    /// Starts a new edge of the link and sends a request through it. All these edges use the same store one after the
    /// other, as after a restart.
    pub(super) fn request_through_new_link(&self, path: &str) -> anyhow::Result<()> {
        let link = self.link.as_ref().context("this server has no link")?;
        let port = free_port()?;
        let _edge = start_link(
            &link.binary,
            &link.line,
            "new-edge",
            port,
            link.core,
            &link.folder,
        )?;
        client::request(&mut None, port, path)
    }

    /// Returns the CPU seconds of the origin, which shares a core with the client.
    pub(super) fn origin_cpu_seconds(&self) -> anyhow::Result<f64> {
        self.origin.cpu_seconds()
    }

    /// Returns the number of body bytes that the edge has received from its origin.
    pub(super) fn origin_bytes(&self) -> anyhow::Result<f64> {
        let page = Client::connect(self.admin_port)?.get_page("/metrics")?;
        let text = String::from_utf8(page)?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("edgeward_origin_bytes_total "));
        Ok(line
            .context("/metrics has no edgeward_origin_bytes_total")?
            .trim()
            .parse()?)
    }

    /// Returns the port of the server under attack.
    pub(super) fn port(&self) -> u16 {
        match self.service {
            Service::Edge | Service::Gateway => self.edge_port,
            Service::Admin => self.admin_port,
            Service::Publisher => self.publisher_port,
        }
    }

    /// Returns the memory of the server in bytes. For an edge, the value includes the pages of large bodies,
    /// which only the edge itself reports.
    pub(super) fn memory_bytes(&self) -> Option<u64> {
        let reported = (self.service == Service::Edge)
            .then(|| status(self.admin_port).ok())
            .flatten()
            .map(|page| count(&page, "memory_bytes"))
            .unwrap_or(0);
        let text = fs::read_to_string(format!("/proc/{}/status", self.server.pid())).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
        Some(reported.max(kib << 10))
    }
}

fn start_link(
    binary: &Path,
    line: &str,
    name: &str,
    port: u16,
    core: u32,
    folder: &Path,
) -> anyhow::Result<Server> {
    let line = format!(
        "{line} --listen 127.0.0.1:{port} --store {}/{name}.store",
        folder.display()
    );
    let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    Server::start(name, binary, &words, core, port, folder)
}

/// Returns the memory limit of the edge in bytes. Call this function before the attack, because the attack may block
/// the admin server.
fn memory_bytes_bound(admin_port: u16) -> anyhow::Result<u64> {
    let page = status(admin_port)?;
    let hot = count(&page["hot"], "capacity_bytes");
    let fills = count(&page["fills"], "bytes_max");
    Ok(((hot + fills + base_bytes(WORKERS)) as f64 * MEMORY_RATIO_MAX) as u64)
}

/// Moves this process, which includes the attackers, off the server's core.
pub(super) fn pin_this_process(core: u32) -> anyhow::Result<()> {
    let pinned = Command::new("taskset")
        .args(["--cpu-list", "--pid", &core.to_string()])
        .arg(std::process::id().to_string())
        .output()
        .context("taskset (util-linux) is needed")?;
    ensure!(
        pinned.status.success(),
        "this process cannot be pinned to core {core}"
    );
    Ok(())
}
