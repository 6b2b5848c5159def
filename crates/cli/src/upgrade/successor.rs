//! The new process of an upgrade.

use std::io;

use anyhow::Context as _;
use edgeward_proxy::{CacheIdentity, ForwardedChange, Inheritance, QuicIdentity, RunningEdge};
use rustix::stdio::{dup2_stdin, stdin};
use serde_json::{Value, json};

use super::channel::Channel;
use crate::fleet_settings::FleetInheritance;
use crate::link_edge::{LinkInheritance, LinkTakeOver};
use crate::service;

/// The process that this one replaces.
pub(crate) struct Predecessor(Channel);

impl Predecessor {
    /// Returns the process that this one replaces, if this one was started by an upgrade.
    pub(crate) fn of_environment() -> anyhow::Result<Option<Self>> {
        if std::env::var_os(UPGRADE_VARIABLE).is_none() {
            return Ok(None);
        }
        let end = rustix::io::fcntl_dupfd_cloexec(stdin(), 3)
            .context("the socket for the upgrade is not the standard input")?;
        let null = std::fs::File::open("/dev/null").context("/dev/null cannot be opened")?;
        dup2_stdin(null).context("the standard input cannot be replaced")?;
        Ok(Some(Self(Channel::new(end))))
    }

    /// Receives the sockets of the edge and of its link, the identity of the cache, and the members of the fleet.
    pub(crate) fn inheritance(
        &self,
    ) -> anyhow::Result<(Inheritance, LinkInheritance, FleetInheritance)> {
        let ended = || anyhow::anyhow!("the process to replace has ended");
        let mut inheritance = Inheritance::default();
        let mut link = LinkInheritance {
            is_successor: true,
            admins: Vec::new(),
        };
        // A process of an earlier version sends nothing about the fleet.
        let mut fleet = FleetInheritance::default();
        loop {
            let (message, descriptors) = self.0.receive()?.with_context(ended)?;
            if let Some(addresses) = message["sockets"].as_array() {
                for (address, descriptor) in addresses.iter().zip(descriptors) {
                    let address = address.as_str().unwrap_or_default();
                    match address.split_once(' ') {
                        Some((LINK_ADMIN, address)) => {
                            link.admins.push((address.to_owned(), descriptor));
                        }
                        _ => inheritance.sockets.push(address.to_owned(), descriptor),
                    }
                }
            } else if let (Some(hash_seed), Some(purges)) =
                (message["hash_seed"].as_u64(), message["purges"].as_u64())
            {
                inheritance.predecessor = Some(CacheIdentity { hash_seed, purges });
                inheritance.quic = quic_identity(&message["quic"]);
            } else if message["fleet"].is_object() {
                fleet.read(&message);
            } else if message["member"].is_object() {
                fleet.members.push(message["member"].clone());
            } else if message["start"] == json!(true) {
                return Ok((inheritance, link, fleet));
            }
        }
    }

    /// Reports to the old process why this one ends.
    pub(crate) fn report_failure(&self, error: &anyhow::Error) {
        _ = self.0.send(&json!({ "failed": format!("{error:#}") }), &[]);
    }

    /// Reports that this process accepts connections. Starts the thread that applies the changes of the old process,
    /// and opens the disk store when the old process has released it or has ended. The link opens its chunk store when
    /// the old process has closed it.
    pub(crate) fn follow(self, edge: &RunningEdge, links: Vec<LinkTakeOver>) -> io::Result<()> {
        let ready = json!({ "ready": true, "quic": edge.takes_quic() });
        self.0.send(&ready, &[])?;
        links.into_iter().for_each(LinkTakeOver::start);
        let (apply, disk) = (edge.forwarded_changes(), edge.disk_take_over());
        let read_quic = edge.quic_take_over();
        let follow = move || {
            let mut disk = Some(disk);
            let mut take_over = || {
                let Some(disk) = disk.take() else { return };
                match disk.run() {
                    Ok(()) => service::ready("serving"),
                    Err(error) => {
                        service::ready("serving without the disk cache");
                        let error = edgeward_types::with_causes(&error);
                        tracing::error!("the disk cache is unused until the next start: {error}");
                    }
                }
            };
            loop {
                match self.0.receive() {
                    Ok(Some((message, _))) if message["main"] == json!(true) => {
                        service::ready("serving; the earlier process finishes its requests");
                    }
                    Ok(Some((message, _))) if message["quic"] == json!(true) => read_quic(),
                    Ok(Some((message, _))) if message["released"] == json!(true) => take_over(),
                    Ok(Some((message, _))) => match ForwardedChange::from_json(&message) {
                        Some(change) => apply(change),
                        None => tracing::error!("a message of the earlier process is unknown"),
                    },
                    Ok(None) | Err(_) => break,
                }
            }
            tracing::info!("upgrade: the earlier process has ended");
            read_quic();
            take_over();
        };
        std::thread::Builder::new()
            .name("upgrade".to_owned())
            .spawn(follow)?;
        Ok(())
    }
}

/// Returns `None` for a process of a version without HTTP/3.
fn quic_identity(message: &Value) -> Option<QuicIdentity> {
    Some(QuicIdentity {
        generation: message["generation"].as_u64()?.try_into().ok()?,
        secret: serde_json::from_value(message["secret"].clone()).ok()?,
    })
}

/// The variable that tells a process that its standard input is the socket. Its value is the id of the old process.
pub(super) const UPGRADE_VARIABLE: &str = "EDGEWARD_UPGRADE_FROM";

/// The name of the socket of the link's admin server, which its address follows.
pub(crate) const LINK_ADMIN: &str = "link-admin";
