//! The fleet of a build without the feature `fleet`. The check of the configuration refuses `[fleet.nats]`.

use edgeward_proxy::config::EdgeConfig;
use edgeward_proxy::{ReloadError, Reloader};

use crate::fleet_settings::{FleetInheritance, FleetNats};

/// No connection.
#[derive(Default)]
pub(crate) struct FleetService(());

impl FleetService {
    pub(crate) fn start(
        _: Option<&FleetNats>,
        _: bool,
        _: &mut EdgeConfig,
        _: Option<FleetInheritance>,
    ) -> anyhow::Result<Self> {
        Ok(Self::default())
    }

    pub(crate) fn join(&self, _: &Reloader) {}

    pub(crate) fn inheritance(&self) -> FleetInheritance {
        FleetInheritance::default()
    }

    pub(crate) fn reload(
        &self,
        reloader: &Reloader,
        edge: &mut EdgeConfig,
    ) -> Result<(), ReloadError> {
        reloader.reload(edge)
    }

    pub(crate) fn announces(&self) -> bool {
        false
    }

    pub(crate) fn stopping(&self, _: bool) {}

    pub(crate) fn stop(&self) {}
}
