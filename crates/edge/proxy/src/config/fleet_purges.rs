//! The purges that an edge shares with the other nodes of its fleet.

use std::sync::Arc;

use edgeward_fleet::PurgeStream;

/// The stream of purges, and the behaviour of an edge that is cut off from it.
#[derive(Clone, Debug)]
pub struct FleetPurges {
    /// The stream. The program makes it from the settings, because this crate does not know its protocol.
    pub stream: Arc<dyn PurgeStream>,
    /// The use of stored responses while the edge is cut off. Default: they are served, because an outage of the stream
    /// should not become an outage of the sites.
    pub when_cut_off: WhenCutOff,
    /// True if the edge carries out a purge alone while it cannot reach the stream. Default false: the other nodes
    /// would not learn of the purge, so it is refused with 503.
    pub purges_alone: bool,
}

/// The use of stored responses by an edge that may lack purges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenCutOff {
    /// They are served.
    #[default]
    Serve,
    /// The origin validates each of them before it is served.
    Validate,
    /// Their requests are answered 503.
    Refuse,
}

impl FleetPurges {
    /// Returns the restriction of stored responses: that of an edge that is cut off, or [`WhenCutOff::Serve`].
    #[inline]
    pub(crate) fn restriction(&self) -> WhenCutOff {
        match self.when_cut_off {
            WhenCutOff::Serve => WhenCutOff::Serve,
            restriction if !self.stream.is_current() => restriction,
            _ => WhenCutOff::Serve,
        }
    }
}
