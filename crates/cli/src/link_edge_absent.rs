//! The link of a build without the feature `link`. No value of [`EdgeLink`] exists, because the check of the
//! configuration refuses `[origin.link]`.

use std::net::SocketAddr;
use std::sync::Arc;

use edgeward_proxy::Dial;

use crate::link_settings::LinkSettings;

/// A running link.
#[derive(Debug)]
pub(crate) enum EdgeLink {}

impl EdgeLink {
    /// Returns an error.
    pub(crate) fn start(_: &LinkSettings) -> anyhow::Result<Self> {
        anyhow::bail!("this build of edgeward has no link")
    }

    pub(crate) fn dial(&self) -> Arc<dyn Dial> {
        match *self {}
    }

    pub(crate) fn admin_addr(&self) -> Option<SocketAddr> {
        match *self {}
    }
}
