//! The stream of purges of a build without the feature `fleet`. The check of the configuration refuses `[fleet.nats]`.

use edgeward_proxy::config::FleetPurges;

use crate::fleet_settings::FleetNats;

/// No stream.
#[derive(Debug, Default)]
pub(crate) struct FleetService(());

impl FleetService {
    pub(crate) fn start(
        _: Option<&FleetNats>,
        _: &str,
    ) -> anyhow::Result<(Self, Option<FleetPurges>)> {
        Ok((Self::default(), None))
    }

    pub(crate) fn stop(&self) {}
}
