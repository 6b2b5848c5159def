//! Connects the edge to the stream of purges of its fleet.
//!
//! The edge has a `PurgeStream` and does not know NATS; `fleet-client` does not know the edge.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use edgeward_fleet_client::{FleetClient, NatsCredentials, NatsSettings, NatsTls};
use edgeward_proxy::config::FleetPurges;

use crate::fleet_settings::FleetNats;

/// The connection to the stream, if there is one.
#[derive(Debug, Default)]
pub(crate) struct FleetService(Option<Arc<FleetClient>>);

impl FleetService {
    /// Begins to connect. `node` is the name of the edge. Also returns the purges for the edge.
    pub(crate) fn start(
        settings: Option<&FleetNats>,
        node: &str,
    ) -> anyhow::Result<(Self, Option<FleetPurges>)> {
        let Some(settings) = settings else {
            return Ok((Self::default(), None));
        };
        let client = Arc::new(FleetClient::start(nats_settings(settings, node)?)?);
        let purges = FleetPurges {
            stream: Arc::clone(&client) as _,
            when_cut_off: settings.when_cut_off,
            purges_alone: settings.purge_alone,
        };
        Ok((Self(Some(client)), Some(purges)))
    }

    /// Ends the connection.
    pub(crate) fn stop(&self) {
        if let Some(client) = &self.0 {
            client.stop();
        }
    }
}

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
