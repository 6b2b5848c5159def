//! Starts a gateway, a WAN path and an edge. Gateway and edge are two processes of the `edgeward` program. They use
//! the default settings of a link, with encryption.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use edgeward_testkit::{Wan, WanSettings};

/// A running edge, a WAN path and a gateway. The edge forwards its misses over a link on the WAN path to the gateway.
pub(crate) struct EdgeAndGateway {
    /// The address of the edge.
    pub(crate) addr: SocketAddr,
    pub(crate) wan: Wan,
    _processes: [Process; 2],
    _folder: TempDir,
}

impl EdgeAndGateway {
    pub(crate) fn start(
        edgeward: &Path,
        origin: SocketAddr,
        wan_settings: WanSettings,
    ) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let path_of = |name: &str| folder.path().join(name).display().to_string();
        let (keys, stores) = (path_of("keys"), path_of("stores"));
        let status = Command::new(edgeward)
            .args(["link", "keygen", "--out", &keys])
            .stdout(Stdio::null())
            .status()?;
        if !status.success() {
            return Err(io::Error::other("`edgeward link keygen` failed"));
        }
        let origin_url = format!("http://{origin}");
        let gateway = Process::start(
            edgeward,
            &[
                "gateway",
                "--listen",
                "127.0.0.1:0",
                "--origin",
                &origin_url,
                "--keys",
                &format!("{keys}/gateway"),
                "--store",
                &format!("{stores}/gateway"),
                "--store-size",
                "1GiB",
            ],
        )?;
        let wan = Wan::start(gateway.addr("/listening")?, wan_settings)?;
        let config = path_of("edge.toml");
        fs::write(
            &config,
            format!(
                "[[listener]]\naddress = \"127.0.0.1:0\"\n\n\
                 [origin]\nurl = \"http://site.example\"\n\n\
                 [origin.link]\ngateway = \"{}\"\nkeys = \"keys/edge\"\n\
                 store = \"stores/edge\"\nstore_size = \"1GiB\"\n",
                wan.addr()
            ),
        )?;
        let edge = Process::start(edgeward, &["serve", "--config", &config])?;
        let started = Self {
            addr: edge.addr("/listening/0")?,
            wan,
            _processes: [edge, gateway],
            _folder: folder,
        };
        started.wait_until_up()?;
        Ok(started)
    }

    /// Waits until the link is up. The edge then forwards a request for an unknown path, and the origin answers 404.
    fn wait_until_up(&self) -> io::Result<()> {
        let start = Instant::now();
        while start.elapsed() < START_TIMEOUT {
            if crate::status(self.addr, "/no-such-file")? == 404 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(io::Error::other("the link did not come up"))
    }
}

/// A running `edgeward` process. Dropping this value ends the process.
struct Process {
    child: Child,
    /// The JSON line that the process has printed when it was ready.
    output: Value,
}

impl Process {
    fn start(edgeward: &Path, args: &[&str]) -> io::Result<Self> {
        let mut child = Command::new(edgeward)
            .args(args)
            .args(["--json", "-q", "--log", "error"])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let out = child.stdout.take().expect("stdout is a pipe");
        let read = BufReader::new(out).read_line(&mut line);
        // From here on, an error drops `process`, which ends the process.
        let mut process = Self {
            child,
            output: Value::Null,
        };
        read?;
        process.output = serde_json::from_str(&line)
            .map_err(|_| io::Error::other(format!("`edgeward {}` did not start", args[0])))?;
        Ok(process)
    }

    /// Returns the address at this JSON pointer of the output.
    fn addr(&self, pointer: &str) -> io::Result<SocketAddr> {
        let output = self.output.pointer(pointer).and_then(Value::as_str);
        let output = output.unwrap_or_default();
        let addr = output.split_once("://").map_or(output, |(_, addr)| addr);
        let addr = addr.trim_end_matches('/').parse();
        addr.map_err(|_| io::Error::other(format!("`{output}` is not an address")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Returns the path of the `edgeward` program. Cargo builds it in the folder above that of this example.
pub(crate) fn edgeward() -> io::Result<PathBuf> {
    let here = std::env::current_exe()?;
    let path = here
        .ancestors()
        .nth(2)
        .map(|folder| folder.join("edgeward"));
    let path = path.filter(|path| path.is_file());
    path.ok_or_else(|| {
        io::Error::other(
            "`edgeward` is not built: run cargo build --release --package edgeward-cli, or use --edgeward PATH",
        )
    })
}

const START_TIMEOUT: Duration = Duration::from_secs(20);
