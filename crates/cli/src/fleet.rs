//! Connects the edge to the stream of purges of its fleet, and announces it to the other nodes.
//!
//! The edge has a `PurgeStream` and a `FleetDirectory`, and does not know NATS; `fleet-client` does not know the edge.

use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use edgeward_fleet_client::{
    AnnouncedNode, FleetClient, MemberSettings, MembersClient, NatsCredentials, NatsSettings,
    NatsTls,
};
use edgeward_proxy::config::{EdgeConfig, FleetPurges};
use edgeward_proxy::{ReloadError, Reloader};

use crate::fleet_members::{FleetMembers, profile_of};
use crate::fleet_settings::FleetNats;

/// The connections to the servers of NATS, if there are any.
#[derive(Default)]
pub(crate) struct FleetService {
    purges: Option<Arc<FleetClient>>,
    /// The heartbeats, if the nodes announce themselves.
    heartbeats: Option<Arc<MembersClient>>,
    /// The list of members. Set when the node is announced.
    members: OnceLock<Arc<FleetMembers>>,
}

impl FleetService {
    /// Begins to connect, and gives the edge its purges and the directory. `announces` is true if the nodes of the
    /// fleet announce themselves.
    pub(crate) fn start(
        settings: Option<&FleetNats>,
        announces: bool,
        edge: &mut EdgeConfig,
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
            purges: Some(client),
            ..Self::default()
        };
        if announces {
            let lasts = settings.member_ttl;
            let heartbeats = Arc::new(MembersClient::start(nats, MemberSettings { lasts })?);
            edge.fleet_directory = Some(Arc::clone(&heartbeats) as _);
            service.heartbeats = Some(heartbeats);
        }
        Ok(service)
    }

    /// Announces the node, if the nodes announce themselves. `is_successor` is true if it replaces another process.
    pub(crate) fn join(&self, reloader: &Reloader, is_successor: bool) {
        let config = reloader.config();
        let profile = config.fleet.as_ref().and_then(profile_of);
        if let (Some(heartbeats), Some(purges), Some((profile, is_draining))) =
            (&self.heartbeats, &self.purges, profile)
        {
            let members = self
                .members
                .get_or_init(|| Arc::new(FleetMembers::new(reloader.clone())));
            heartbeats.join(AnnouncedNode {
                profile,
                is_draining,
                is_ready: is_successor,
                list: Arc::clone(members) as _,
                purges: Arc::clone(purges) as _,
            });
        }
    }

    /// Applies another configuration with the present list of members, and announces the settings of this node.
    pub(crate) fn reload(
        &self,
        reloader: &Reloader,
        edge: &mut EdgeConfig,
    ) -> Result<(), ReloadError> {
        let members = self.members.get();
        let list = members.map(|members| members.fill(edge));
        reloader.reload(edge)?;
        drop(list);
        let profile = edge.fleet.as_ref().and_then(profile_of);
        if let (Some(heartbeats), Some((profile, is_draining))) = (&self.heartbeats, profile) {
            heartbeats.set_own(profile, is_draining);
        }
        Ok(())
    }

    /// Returns true if the nodes announce themselves.
    pub(crate) fn announces(&self) -> bool {
        self.heartbeats.is_some()
    }

    /// Tells the other nodes, before the edge stops, that this one owns no keys. If another process replaces this one,
    /// it continues the heartbeats instead.
    pub(crate) fn stopping(&self, has_successor: bool) {
        if let Some(heartbeats) = &self.heartbeats {
            match has_successor {
                true => heartbeats.stop(false),
                false => heartbeats.drain(DRAIN_MAX),
            }
        }
        if let Some(members) = self.members.get() {
            members.freeze();
        }
    }

    /// Ends the connections.
    pub(crate) fn stop(&self) {
        if let Some(heartbeats) = &self.heartbeats {
            heartbeats.stop(true);
        }
        if let Some(client) = &self.purges {
            client.stop();
        }
    }
}

/// The longest wait until the fleet knows that this node drains.
const DRAIN_MAX: Duration = Duration::from_secs(1);

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
