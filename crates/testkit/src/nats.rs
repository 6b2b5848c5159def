//! A server of NATS with JetStream, for tests. It can be killed and started again with its store.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::programs::{find_or_skip, free_port, spawn, wait_until_it_listens};

/// A server of NATS, at one port of loopback. Dropping it kills the process.
pub struct NatsServer {
    program: PathBuf,
    port: u16,
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
            port: 0,
            folder,
            child: None,
        };
        // Another process may take the port between its choice and the start of the server.
        let started = (0..5).any(|_| {
            server.port = free_port();
            server.try_run()
        });
        assert!(started, "nats-server does not start");
        Some(server)
    }

    /// Returns the URL for clients.
    pub fn url(&self) -> String {
        format!("nats://{}", self.addr())
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
        assert!(self.try_run(), "nats-server does not start again");
    }

    fn addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Starts the process. Returns false if it has ended before it listened.
    fn try_run(&mut self) -> bool {
        let mut command = Command::new(&self.program);
        command.args(["--addr", "127.0.0.1", "--port", &self.port.to_string()]);
        command.arg("--jetstream").arg("--store_dir");
        command.arg(self.folder.path().join("store"));
        command.arg("--log").arg(self.folder.path().join("log"));
        let mut child = spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
        let listens = wait_until_it_listens(&mut child, self.addr());
        self.child = Some(child);
        listens
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}
