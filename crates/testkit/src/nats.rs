//! A server of NATS with JetStream, for tests. It can be killed and started again with its store.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::programs::{ReservedPort, find_or_skip, spawn, wait_until_it_listens};

/// A server of NATS, at one port of loopback. Dropping it kills the process.
pub struct NatsServer {
    program: PathBuf,
    /// No other program gets the port between a kill and a restart.
    port: ReservedPort,
    folder: TempDir,
    child: Option<Child>,
}

impl NatsServer {
    /// Starts a server with an empty store. Returns `None` after [`skip`](crate::programs::skip) if it is not
    /// installed.
    pub fn start() -> Option<Self> {
        let program = find_or_skip("nats-server")?;
        let folder = tempfile::tempdir().expect("the folder can be created");
        let mut server = Self {
            program,
            port: ReservedPort::any(),
            folder,
            child: None,
        };
        server.restart();
        Some(server)
    }

    /// Returns the URL for clients.
    pub fn url(&self) -> String {
        format!("nats://{}", self.port.addr())
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            _ = child.kill();
            _ = child.wait();
        }
    }

    /// Starts the server again, with its store and at its port.
    pub fn restart(&mut self) {
        self.kill();
        let addr = self.port.addr();
        let mut command = Command::new(&self.program);
        command.args(["--addr", "127.0.0.1", "--port", &addr.port().to_string()]);
        command.arg("--jetstream").arg("--store_dir");
        command.arg(self.folder.path().join("store"));
        command.arg("--log").arg(self.folder.path().join("log"));
        let mut child = spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
        let listens = wait_until_it_listens(&mut child, addr);
        self.child = Some(child);
        assert!(listens, "nats-server ends before it listens");
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}
