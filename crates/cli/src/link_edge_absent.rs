//! The link of a build without the feature `link`. No value of [`EdgeLink`] exists, because the check of the
//! configuration refuses `[origin.link]`.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use edgeward_proxy::Dial;

use crate::link_settings::LinkSettings;

/// The parts of the link of another process that an edge takes over.
#[derive(Debug, Default)]
pub(crate) struct LinkInheritance {
    #[expect(dead_code, reason = "only a link reads it")]
    pub(crate) is_successor: bool,
    pub(crate) admins: Vec<(String, OwnedFd)>,
}

/// Replaces the temporary link of a new process.
pub(crate) enum LinkTakeOver {}

impl LinkTakeOver {
    pub(crate) fn start(self) {
        match self {}
    }
}

/// A running link.
#[derive(Debug)]
pub(crate) enum EdgeLink {}

impl EdgeLink {
    /// Returns an error.
    pub(crate) fn start(_: &LinkSettings, _: &mut LinkInheritance) -> anyhow::Result<Self> {
        anyhow::bail!("this build of edgeward has no link")
    }

    pub(crate) fn stop_admin(&self) {
        match *self {}
    }

    pub(crate) fn admin_socket(&self) -> Option<(String, OwnedFd)> {
        match *self {}
    }

    pub(crate) fn take_over(&self) -> LinkTakeOver {
        match *self {}
    }

    pub(crate) fn dial(&self) -> Arc<dyn Dial> {
        match *self {}
    }

    pub(crate) fn admin_addr(&self) -> Option<SocketAddr> {
        match *self {}
    }
}
