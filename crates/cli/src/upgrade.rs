//! `edgeward upgrade`: a running edge starts its program again, passes the listening sockets and then the disk store to
//! the new process, and ends. `edgeward_proxy` has the steps inside of an edge (`edge::handover`).
//!
//! The two processes talk by a [socket](channel), which is the standard input of the new process. The sockets travel as
//! ancillary data and not as inherited descriptors: starting a process then needs no code between `fork` and `exec`,
//! and no copy of the page tables of a process with a large cache.
//!
//! | from | message | meaning |
//! |---|---|---|
//! | old | `{"hash_seed", "purges", "quic"}` | the identity of the cache, and the one of connections of HTTP/3 |
//! | old | `{"sockets": [address, …]}` | listening sockets, as descriptors; `link-admin ADDRESS` is the link's |
//! | old | `{"fleet": {"told_ms", "was_told"}}`, `{"member": record}` | the members of the fleet, one each message |
//! | old | `{"start": true}` | all of these were sent |
//! | new | `{"ready": true, "quic": …}` | the new process accepts connections; `true` if it has HTTP/3 |
//! | new | `{"failed": text}` | the new process ends, and the old one carries on |
//! | old | `{"main": true}` | the service manager knows the new process |
//! | old | `{"quic": true}` | the old process has stopped reading sockets of UDP |
//! | old | `{"target"}`, `{"purges": […]}` | a purge or an invalidation |
//! | old | `{"released": true}` | the disk store is free |
//!
//! The old process closes the chunk store of its link when its last request has ended. The new process waits for the
//! lock of this store ([`link_edge`](crate::link_edge)).

mod channel;
mod successor;

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::Context as _;
use edgeward_proxy::{Receipt, UpgradeSource};
use serde_json::{Value, json};

use crate::fleet::FleetService;
use crate::service;
use channel::{Channel, DESCRIPTORS_MAX};
use successor::UPGRADE_VARIABLE;
pub(crate) use successor::{LINK_ADMIN, Predecessor};

/// Starts the process that replaces this one.
pub(crate) struct Upgrader {
    program: PathBuf,
    arguments: Vec<OsString>,
    edge: UpgradeSource,
    /// Further listening sockets, with the names by which the new process finds them.
    sockets: Vec<(String, OwnedFd)>,
    fleet: Arc<FleetService>,
    /// Locked during an upgrade. `true` after an upgrade has succeeded: this process ends.
    is_done: Mutex<bool>,
    /// Gets the successor when it accepts connections.
    on_done: Box<dyn Fn(NewProcess) + Send + Sync>,
}

/// The process that replaces this one. It accepts connections already.
pub(crate) struct NewProcess {
    /// `None` ends the thread.
    messages: SyncSender<Option<Outgoing>>,
    sender: Option<JoinHandle<()>>,
}

/// A process that accepts connections.
struct StartedProcess {
    channel: Channel,
    child: Child,
    /// True if the process reads the sockets of UDP.
    takes_quic: bool,
}

/// A message for the new process. The receipt is called after the socket has taken the message.
struct Outgoing {
    message: Value,
    receipt: Option<Receipt>,
}

impl From<Value> for Outgoing {
    fn from(message: Value) -> Self {
        Self {
            message,
            receipt: None,
        }
    }
}

impl NewProcess {
    /// Lets the new process open the disk store.
    pub(crate) fn release_disk(&self) {
        let released = json!({ "released": true });
        _ = self.messages.send(Some(released.into()));
    }

    /// Returns when all messages were sent.
    pub(crate) fn finish(self) {
        _ = self.messages.send(None);
        if let Some(sender) = self.sender {
            _ = sender.join();
        }
    }
}

impl Upgrader {
    /// Returns an upgrader that starts `program` with the arguments of this process. The path is looked up at each
    /// upgrade, so it may have a newer file by then.
    pub(crate) fn new(
        program: PathBuf,
        edge: UpgradeSource,
        sockets: Vec<(String, OwnedFd)>,
        fleet: Arc<FleetService>,
        on_done: impl Fn(NewProcess) + Send + Sync + 'static,
    ) -> Self {
        Self {
            program,
            arguments: std::env::args_os().skip(1).collect(),
            edge,
            sockets,
            fleet,
            is_done: Mutex::new(false),
            on_done: Box::new(on_done),
        }
    }

    /// Starts the new process and waits until it accepts connections. Returns its process id, or the reason why this
    /// process carries on.
    pub(crate) fn upgrade(&self) -> Result<u32, String> {
        let mut is_done = match self.is_done.try_lock() {
            Ok(is_done) => is_done,
            Err(TryLockError::WouldBlock) => return Err("an upgrade is under way".to_owned()),
            Err(TryLockError::Poisoned(_)) => return Err("an earlier upgrade panicked".to_owned()),
        };
        if *is_done {
            return Err("this process was replaced already".to_owned());
        }
        tracing::info!(program = %self.program.display(), "upgrade: the new process starts");
        service::status("upgrade: the new process starts");
        let started = self.start();
        match started {
            Ok(started) => {
                *is_done = true;
                let process_id = started.child.id();
                tracing::info!(process_id, "upgrade: the new process accepts connections");
                service::main_process(process_id);
                let new = self.forward(started.channel);
                // Without HTTP/3, the new process reads no sockets of UDP, and this one does so to the end.
                if started.takes_quic {
                    self.edge.leave_quic();
                }
                _ = new.messages.send(Some(json!({ "quic": true }).into()));
                (self.on_done)(new);
                Ok(process_id)
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!("the upgrade failed, and this process carries on: {error}");
                self.edge.record_failure();
                service::status("serving; the last upgrade failed");
                Err(error)
            }
        }
    }

    /// Starts the new process, and returns when it accepts connections.
    fn start(&self) -> anyhow::Result<StartedProcess> {
        let (channel, theirs) = Channel::pair().context("the socket for the upgrade")?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::from(theirs))
            .env(UPGRADE_VARIABLE, std::process::id().to_string());
        // The socket carries the descriptors, and the process id in these variables would be wrong.
        for variable in ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_PID"] {
            command.env_remove(variable);
        }
        let mut child = command
            .spawn()
            .with_context(|| format!("{} cannot be started", self.program.display()))?;
        drop(command); // closes the other end, so that the end of the process is noticed
        let started = self
            .pass_sockets(&channel)
            .and_then(|()| self.wait(&channel));
        match started {
            Ok(takes_quic) => Ok(StartedProcess {
                channel,
                child,
                takes_quic,
            }),
            Err(error) => {
                _ = child.kill();
                let status = child.wait();
                // The exit status explains the end of a process that has sent nothing.
                Err(match status.ok().and_then(|status| status.code()) {
                    Some(code) if error.is::<Ended>() => {
                        anyhow::anyhow!(
                            "the new process ended with exit code {code}; its log has the reason"
                        )
                    }
                    _ => error,
                })
            }
        }
    }

    fn pass_sockets(&self, channel: &Channel) -> anyhow::Result<()> {
        let identity = self.edge.cache_identity();
        let of_edge = self.edge.sockets().context("the sockets of the edge")?;
        let of_edge = of_edge.iter().chain(&self.sockets);
        let sockets: Vec<_> = of_edge.collect();
        let timeout = self.edge.timeout();
        let ended = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::WouldBlock => anyhow::anyhow!(
                "the new process did not read its messages within server.upgrade_timeout ({} s)",
                timeout.as_secs_f64()
            ),
            _ => Ended.into(),
        };
        // The records of 256 members exceed the space of the socket.
        channel.set_send_timeout(Some(timeout))?;
        let quic = self.edge.quic_identity();
        let hello = json!({
            "hash_seed": identity.hash_seed,
            "purges": identity.purges,
            "quic": { "generation": quic.generation, "secret": quic.secret },
        });
        channel.send(&hello, &[]).map_err(ended)?;
        for some in sockets.chunks(DESCRIPTORS_MAX) {
            let addresses: Vec<&String> = some.iter().map(|(address, _)| address).collect();
            let descriptors: Vec<BorrowedFd<'_>> =
                some.iter().map(|(_, socket)| socket.as_fd()).collect();
            channel
                .send(&json!({ "sockets": addresses }), &descriptors)
                .map_err(ended)?;
        }
        let fleet = self.fleet.inheritance();
        channel.send(&fleet.message(), &[]).map_err(ended)?;
        for member in fleet.members {
            channel
                .send(&json!({ "member": member }), &[])
                .map_err(ended)?;
        }
        channel
            .send(&json!({ "start": true }), &[])
            .map_err(ended)?;
        Ok(channel.set_send_timeout(None)?)
    }

    /// Waits until the new process accepts connections. Returns true if it takes the sockets of UDP over.
    fn wait(&self, channel: &Channel) -> anyhow::Result<bool> {
        let timeout = self.edge.timeout();
        let deadline = Instant::now() + timeout;
        let takes_quic = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            anyhow::ensure!(
                !left.is_zero(),
                "the new process did not accept connections within server.upgrade_timeout ({} s)",
                timeout.as_secs_f64()
            );
            channel.set_timeout(Some(left))?;
            match channel.receive() {
                Ok(Some((message, _))) if message["ready"] == json!(true) => {
                    break message["quic"] == json!(true);
                }
                Ok(Some((message, _))) => {
                    let reason = message["failed"].as_str().unwrap_or("an unknown message");
                    anyhow::bail!("the new process did not start: {reason}");
                }
                Ok(None) => return Err(Ended.into()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        };
        channel.set_timeout(None)?;
        Ok(takes_quic)
    }

    /// Starts the thread that sends purges and the release of the disk to the new process.
    fn forward(&self, channel: Channel) -> NewProcess {
        let (messages, waiting) = mpsc::sync_channel(MESSAGES_MAX);
        _ = messages.send(Some(json!({ "main": true }).into()));
        let changes = messages.clone();
        self.edge.forward_changes(move |change, receipt| {
            let change = Outgoing {
                message: change.to_json(),
                receipt: Some(receipt),
            };
            // A worker must not wait. The queue has space for all changes of requests under way. A change that finds no
            // space drops its receipt, and its client gets an error.
            if changes.try_send(Some(change)).is_err() {
                tracing::error!("an invalidation did not reach the new process");
            }
        });
        let spawned = std::thread::Builder::new()
            .name("upgrade".to_owned())
            .spawn(move || {
                while let Ok(Some(Outgoing { message, receipt })) = waiting.recv() {
                    let sent = channel.send(&message, &[]);
                    if let Some(receipt) = receipt {
                        receipt(sent.is_ok());
                    }
                    if let Err(error) = sent {
                        tracing::error!(%error, "a message did not reach the new process");
                    }
                }
            });
        let sender = spawned
            .inspect_err(|error| {
                tracing::error!(%error, "later invalidations do not reach the new process");
            })
            .ok();
        NewProcess { messages, sender }
    }
}

/// The new process has ended, or closed the socket.
#[derive(Debug, thiserror::Error)]
#[error("the new process ended")]
struct Ended;

/// Returns the path by which this program was started. After an upgrade of the file, the path has the new program.
pub(crate) fn program() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe().context("the path of this program")?;
    // The kernel adds this suffix if the file was replaced since the start.
    let text = path.as_os_str().to_string_lossy();
    Ok(match text.strip_suffix(" (deleted)") {
        Some(path) => Path::new(path).to_owned(),
        None => path,
    })
}

/// The most messages that wait for the thread that sends them. A message takes about 200 bytes, and 64 KiB at most
/// if a client purges many scopes; a client waits for its messages before it sends others.
const MESSAGES_MAX: usize = 65_536;
