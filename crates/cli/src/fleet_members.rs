//! The list of members of a fleet whose nodes announce themselves, and its use by the edge.
//!
//! The edge starts with the list that is known by then. A new list is a reload of the edge with the same settings
//! otherwise. A reload of the configuration gets the present list. Both hold one lock, so that neither undoes the
//! other.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use edgeward_fleet::{AnnouncedState, Member, MemberList, NodeProfile};
use edgeward_proxy::Reloader;
use edgeward_proxy::config::{EdgeConfig, FleetConfig, FleetMember, OriginUrl};
use edgeward_types::with_causes;

/// The members of the fleet of an edge.
pub(crate) struct FleetMembers {
    /// Set when the edge runs.
    reloader: OnceLock<Reloader>,
    /// True if the nodes have certificates.
    has_tls: AtomicBool,
    list: Mutex<CurrentList>,
}

/// The list that the edge uses.
#[derive(Debug)]
pub(crate) struct CurrentList {
    members: Vec<FleetMember>,
    /// The fleet with which the edge starts.
    at_start: FleetConfig,
    /// True if the edge is about to leave: it owns no key, whatever its configuration says.
    is_leaving: bool,
    /// True if the edge is stopping, and its list stays.
    is_final: bool,
}

impl FleetMembers {
    /// Returns the list of an edge that will start with this fleet.
    pub(crate) fn new(fleet: &FleetConfig) -> Self {
        Self {
            reloader: OnceLock::new(),
            has_tls: AtomicBool::new(fleet.tls.is_some()),
            list: Mutex::new(CurrentList {
                members: Vec::new(),
                at_start: fleet.clone(),
                is_leaving: false,
                is_final: false,
            }),
        }
    }

    /// The edge runs. It gets the list if this has changed since its configuration was [filled](Self::fill).
    pub(crate) fn run(&self, reloader: &Reloader) {
        let list = self.lock();
        _ = self.reloader.set(reloader.clone());
        let mut config = reloader.config();
        let Some(fleet) = &config.fleet else { return };
        let with_list = fleet.with_members(list.members.iter().cloned());
        if with_list.members != fleet.members {
            config.set_fleet(with_list);
            if let Err(error) = reloader.reload(&config) {
                let error = with_causes(&error);
                tracing::error!(error, "the list of the fleet's members cannot be used");
            }
        }
    }

    /// Gives the present list to a configuration with which the edge starts or which a reload will apply. The list
    /// stays as it is while the result lives.
    pub(crate) fn fill(&self, edge: &mut EdgeConfig) -> MutexGuard<'_, CurrentList> {
        let list = self.lock();
        if let Some(fleet) = &edge.fleet {
            self.has_tls.store(fleet.tls.is_some(), Ordering::Relaxed);
            let others = list
                .members
                .iter()
                .filter(|member| member.name != fleet.name);
            let own = fleet.own().map(|own| FleetMember {
                is_draining: own.is_draining || list.is_leaving,
                ..own.clone()
            });
            let fleet = fleet.with_members(others.cloned().chain(own));
            edge.set_fleet(fleet);
        }
        list
    }

    /// Lets later configurations own no key.
    pub(crate) fn leave(&self) {
        self.lock().is_leaving = true;
    }

    /// Keeps the present list from now on.
    pub(crate) fn freeze(&self) {
        self.lock().is_final = true;
    }

    fn lock(&self) -> MutexGuard<'_, CurrentList> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemberList for FleetMembers {
    fn check(&self, profile: &NodeProfile) -> Result<(), String> {
        let url = profile.url.parse::<OriginUrl>();
        let url = url.map_err(|error| format!("{}: {error}", profile.url))?;
        match url.tls == self.has_tls.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(format!(
                "{}: only one of both nodes has certificates of the fleet",
                profile.url
            )),
        }
    }

    fn apply(&self, members: Vec<Member>) -> Result<(), String> {
        let mut list = self.lock();
        let Some(reloader) = self.reloader.get() else {
            list.members = entries_of(&list.at_start, &members);
            return Ok(());
        };
        let mut config = reloader.config();
        let Some(fleet) = config.fleet.as_ref().filter(|_| !list.is_final) else {
            return Ok(());
        };
        let members = entries_of(fleet, &members);
        let fleet = fleet.with_members(members.iter().cloned());
        config.set_fleet(fleet);
        let reloaded = reloader.reload(&config);
        reloaded.map_err(|error| with_causes(&error))?;
        list.members = members;
        Ok(())
    }
}

fn entries_of(fleet: &FleetConfig, members: &[Member]) -> Vec<FleetMember> {
    let entries = members.iter().filter_map(|member| member_of(fleet, member));
    entries.collect()
}

/// Returns the entry of a member. This node has the settings of its configuration, except that it may drain.
fn member_of(fleet: &FleetConfig, member: &Member) -> Option<FleetMember> {
    let is_draining = member.state != AnnouncedState::Serving;
    let profile = &member.profile;
    if let Some(own) = fleet.own().filter(|own| own.name == *profile.name) {
        return Some(FleetMember {
            is_draining,
            ..own.clone()
        });
    }
    Some(FleetMember {
        name: profile.name.to_string(),
        url: profile.url.parse().ok()?,
        group: profile.group,
        weight: NonZeroU32::new(profile.weight)?,
        is_draining,
    })
}

/// Returns the settings of a node that other nodes need, and true if it owns no key by its configuration.
pub(crate) fn profile_of(fleet: &FleetConfig) -> Option<(NodeProfile, bool)> {
    let own = fleet.own()?;
    let profile = NodeProfile {
        name: own.name.as_str().into(),
        url: own.url.to_string().trim_end_matches('/').into(),
        group: own.group,
        weight: own.weight.get(),
    };
    Some((profile, own.is_draining))
}
