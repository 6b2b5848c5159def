//! The list of members of a fleet whose nodes announce themselves, and its use by the edge.
//!
//! A new list is a reload of the edge with the same settings otherwise. A reload of the configuration gets the present
//! list. Both hold one lock, so that neither undoes the other.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use edgeward_fleet::{AnnouncedState, Member, MemberList, NodeProfile};
use edgeward_proxy::Reloader;
use edgeward_proxy::config::{EdgeConfig, FleetConfig, FleetMember, OriginUrl};
use edgeward_types::with_causes;

/// The members of the fleet of a running edge.
pub(crate) struct FleetMembers {
    reloader: Reloader,
    /// True if the nodes have certificates.
    has_tls: AtomicBool,
    list: Mutex<CurrentList>,
}

/// The list that the edge uses.
#[derive(Debug, Default)]
pub(crate) struct CurrentList {
    members: Vec<FleetMember>,
    /// True if the edge is stopping, and its list stays.
    is_final: bool,
}

impl FleetMembers {
    pub(crate) fn new(reloader: Reloader) -> Self {
        let config = reloader.config();
        Self {
            reloader,
            has_tls: AtomicBool::new(config.fleet.is_some_and(|fleet| fleet.tls.is_some())),
            list: Mutex::default(),
        }
    }

    /// Gives the present list to a configuration that a reload will apply. The list stays as it is while the result
    /// lives.
    pub(crate) fn fill(&self, edge: &mut EdgeConfig) -> MutexGuard<'_, CurrentList> {
        let list = self.lock();
        if let Some(fleet) = &edge.fleet {
            self.has_tls.store(fleet.tls.is_some(), Ordering::Relaxed);
            let others = list
                .members
                .iter()
                .filter(|member| member.name != fleet.name);
            let fleet = fleet.with_members(others.cloned());
            edge.set_fleet(fleet);
        }
        list
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
        let mut config = self.reloader.config();
        let Some(fleet) = config.fleet.as_ref().filter(|_| !list.is_final) else {
            return Ok(());
        };
        let members: Vec<_> = members
            .iter()
            .filter_map(|member| member_of(fleet, member))
            .collect();
        let fleet = fleet.with_members(members.iter().cloned());
        config.set_fleet(fleet);
        let reloaded = self.reloader.reload(&config);
        reloaded.map_err(|error| with_causes(&error))?;
        list.members = members;
        Ok(())
    }
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
