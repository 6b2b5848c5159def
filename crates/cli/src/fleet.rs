//! Connects the edge to the stream of purges of its fleet, and announces it to the other nodes.
//!
//! The edge has a `PurgeStream` and a `FleetDirectory`, and does not know NATS; `fleet-client` does not know the edge.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use edgeward_fleet::{Announcement, FleetDirectory as _, Member, UntoldTime, key_of};
use edgeward_fleet_client::{
    AnnouncedNode, FleetClient, InheritedMembers, MemberSettings, MembersClient, NatsCredentials,
    NatsSettings, NatsTls,
};
use edgeward_proxy::config::{EdgeConfig, FleetPurges};
use edgeward_proxy::{ReloadError, Reloader};
use serde_json::Value;

use crate::fleet_members::{FleetMembers, profile_of};
use crate::fleet_settings::{FleetInheritance, FleetNats};

/// The connections to the servers of NATS, if there are any.
#[derive(Default)]
pub(crate) struct FleetService {
    purges: Option<Arc<FleetClient>>,
    /// The heartbeats and the list of members, if the nodes announce themselves.
    directory: Option<Directory>,
}

struct Directory {
    heartbeats: Arc<MembersClient>,
    members: Arc<FleetMembers>,
    /// The time for which a heartbeat lasts.
    lasts: Duration,
}

impl FleetService {
    /// Begins to connect, and gives the edge its purges, the directory and the members that are known within a second.
    /// `announces` is true if the nodes of the fleet announce themselves. `inherited` is present if this process
    /// replaces another one.
    pub(crate) fn start(
        settings: Option<&FleetNats>,
        announces: bool,
        edge: &mut EdgeConfig,
        inherited: Option<FleetInheritance>,
    ) -> anyhow::Result<Self> {
        let Some(settings) = settings else {
            return Ok(Self::default());
        };
        let nats = nats_settings(settings, &edge.name)?;
        let client = Arc::new(FleetClient::start(nats.clone())?);
        edge.fleet_purges = Some(FleetPurges {
            stream: Arc::clone(&client) as _,
            when_cut_off: settings.when_cut_off,
            purges_alone: settings.purge_alone,
        });
        let mut service = Self {
            purges: Some(Arc::clone(&client)),
            directory: None,
        };
        let fleet = edge.fleet.as_ref().filter(|_| announces);
        if let Some((fleet, (profile, is_draining))) = fleet.and_then(|f| Some((f, profile_of(f)?)))
        {
            let lasts = settings.member_ttl;
            let slow_start = settings.slow_start;
            let settings = MemberSettings { lasts, slow_start };
            let heartbeats = Arc::new(MembersClient::start(nats, settings)?);
            let members = Arc::new(FleetMembers::new(fleet.tls.is_some()));
            let node = AnnouncedNode {
                profile,
                is_draining,
                is_ready: inherited.is_some(),
                list: Arc::clone(&members) as _,
                purges: client,
                inherited: inherited.map(members_of),
            };
            heartbeats.join(node, JOIN_MAX);
            members.start(edge);
            edge.fleet_directory = Some(Arc::clone(&heartbeats) as _);
            service.directory = Some(Directory {
                heartbeats,
                members,
                lasts,
            });
        }
        Ok(service)
    }

    /// Announces the node, if the nodes announce themselves: the edge accepts requests.
    pub(crate) fn join(&self, reloader: &Reloader) {
        if let Some(directory) = &self.directory {
            if !directory.members.run(reloader) {
                directory.heartbeats.apply_again();
            }
            directory.heartbeats.announce();
        }
    }

    /// Returns what a process that replaces this one needs to know about the members.
    pub(crate) fn inheritance(&self) -> FleetInheritance {
        let Some(directory) = &self.directory else {
            return FleetInheritance::default();
        };
        let facts = directory.heartbeats.facts();
        let told_ms = facts.told.map(|told| told.before.as_millis());
        let record = |member: Member| {
            let record = Announcement {
                profile: member.profile,
                state: member.state,
                instance: 0,
                beat: 0,
                lasts: directory.lasts,
            };
            serde_json::from_slice(&record.encode()).expect("a record is JSON")
        };
        FleetInheritance {
            told_ms: told_ms.and_then(|millis| millis.try_into().ok()),
            was_told: facts.told.is_none_or(|told| told.was_told),
            members: facts.members.into_iter().map(record).collect(),
        }
    }

    /// Applies another configuration with the present list of members, and announces the settings of this node.
    pub(crate) fn reload(
        &self,
        reloader: &Reloader,
        edge: &mut EdgeConfig,
    ) -> Result<(), ReloadError> {
        let directory = self.directory.as_ref();
        let profile = edge.fleet.as_ref().and_then(profile_of);
        let list = directory.map(|directory| directory.members.fill(edge));
        reloader.reload(edge)?;
        drop(list);
        if let (Some(directory), Some((profile, is_draining))) = (directory, profile) {
            directory.heartbeats.set_own(profile, is_draining);
        }
        Ok(())
    }

    /// Returns true if the nodes announce themselves.
    pub(crate) fn announces(&self) -> bool {
        self.directory.is_some()
    }

    /// Tells the other nodes, before the edge stops, that this one owns no keys. If another process replaces this one,
    /// it continues the heartbeats instead.
    pub(crate) fn stopping(&self, has_successor: bool) {
        let Some(directory) = &self.directory else {
            return;
        };
        match has_successor {
            true => directory.heartbeats.stop(),
            false => {
                directory.members.leave();
                directory.heartbeats.drain(DRAIN_MAX);
            }
        }
        directory.members.freeze();
    }

    /// Ends the connections.
    pub(crate) fn stop(&self) {
        if let Some(directory) = &self.directory {
            directory.heartbeats.leave(LEAVE_MAX);
        }
        if let Some(client) = &self.purges {
            client.stop();
        }
    }
}

/// Returns the members that an earlier process knew. A record that cannot be parsed, of another version, is left out.
fn members_of(inherited: FleetInheritance) -> InheritedMembers {
    let parse = |record: Value| {
        let name = record["name"].as_str()?;
        let record = Announcement::parse(&key_of(name), record.to_string().as_bytes()).ok()?;
        Some(Member {
            profile: record.profile,
            state: record.state,
        })
    };
    let told = |millis| UntoldTime {
        before: Duration::from_millis(millis),
        was_told: inherited.was_told,
    };
    InheritedMembers {
        told: inherited.told_ms.map(told),
        list: inherited.members.into_iter().filter_map(parse).collect(),
    }
}

/// The longest wait for the records of the other nodes before the edge accepts requests. A server of NATS delivers them
/// within milliseconds.
const JOIN_MAX: Duration = Duration::from_secs(1);

/// The longest wait until the fleet knows that this node drains.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// The longest time to delete the record of a node that leaves.
const LEAVE_MAX: Duration = Duration::from_secs(1);

fn nats_settings(settings: &FleetNats, node: &str) -> anyhow::Result<NatsSettings> {
    let token = read_secret("fleet.nats.token_file", settings.token_file.as_deref())?;
    let password = read_secret(
        "fleet.nats.password_file",
        settings.password_file.as_deref(),
    )?;
    let credentials = match (token, settings.user.clone().zip(password)) {
        (Some(token), _) => NatsCredentials::Token(token),
        (None, Some((user, password))) => NatsCredentials::User { user, password },
        (None, None) => NatsCredentials::None,
    };
    let identity = settings.certificate.clone().zip(settings.key.clone());
    let tls = (settings.ca.is_some() || identity.is_some()).then(|| NatsTls {
        authorities: settings.ca.clone(),
        identity,
    });
    Ok(NatsSettings {
        servers: settings.servers.clone(),
        node: node.to_owned(),
        credentials,
        tls,
        stream: settings.stream.clone(),
        replicas: settings.replicas,
        age_max: settings.age_max,
        bytes_max: settings.bytes_max.bytes(),
        buffer_bytes_max: usize::try_from(settings.buffer_bytes_max.bytes()).unwrap_or(usize::MAX),
        lag_max: settings.lag_max,
    })
}

/// Returns the secret in a file, or `None` if the setting `path` names no file.
fn read_secret(path: &str, file: Option<&Path>) -> anyhow::Result<Option<String>> {
    let Some(file) = file else {
        return Ok(None);
    };
    let text = fs::read_to_string(file);
    let text = text.with_context(|| format!("{path} = {} cannot be read", file.display()))?;
    Ok(Some(text.trim().to_owned()))
}
