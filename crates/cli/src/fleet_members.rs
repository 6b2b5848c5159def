//! The list of members of a fleet whose nodes announce themselves, and its use by the edge.
//!
//! The edge starts with the list that is known by then. A new list is a reload of the edge with the same settings
//! otherwise. A reload of the configuration gets the present list. Both hold one lock, so that neither undoes the
//! other. **Records of other nodes do not end a start**: an edge that cannot start with the list starts without other
//! members, and tries the list when it runs.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use edgeward_fleet::{AnnouncedState, Member, MemberList, NodeProfile};
use edgeward_proxy::config::{EdgeConfig, FleetConfig, FleetMember, OriginUrl};
use edgeward_proxy::{Reloader, check_start};
use edgeward_types::with_causes;
use rustls_pki_types::ServerName;

/// The members of the fleet of an edge.
pub(crate) struct FleetMembers {
    /// Set when the edge runs.
    reloader: OnceLock<Reloader>,
    /// True if the nodes have certificates.
    has_tls: AtomicBool,
    list: Mutex<CurrentList>,
}

/// The list that the edge uses.
#[derive(Debug, Default)]
pub(crate) struct CurrentList {
    /// The members by their records. Their entries depend on the configuration.
    members: Vec<Member>,
    /// True if the edge is about to leave: it owns no key, whatever its configuration says.
    is_leaving: bool,
    /// True if the edge is stopping, and its list stays.
    is_final: bool,
}

impl FleetMembers {
    /// Returns the list of an edge that will start. `has_tls` is true if the nodes have certificates.
    pub(crate) fn new(has_tls: bool) -> Self {
        Self {
            reloader: OnceLock::new(),
            has_tls: AtomicBool::new(has_tls),
            list: Mutex::default(),
        }
    }

    /// Gives the present list to a configuration with which the edge starts, unless only this list keeps the edge from
    /// starting.
    pub(crate) fn start(&self, edge: &mut EdgeConfig) {
        let alone = edge.clone();
        drop(self.fill(edge));
        if let Err(error) = check_start(edge)
            && check_start(&alone).is_ok()
        {
            let error = with_causes(&error);
            tracing::error!(
                error,
                "the list of the fleet's members cannot be used: this node starts without other members"
            );
            *edge = alone;
        }
    }

    /// The edge runs. It gets the list if its configuration has another one. Returns false if the edge cannot use it:
    /// it must then be [applied](MemberList::apply) again.
    pub(crate) fn run(&self, reloader: &Reloader) -> bool {
        let mut list = self.lock();
        _ = self.reloader.set(reloader.clone());
        let mut config = reloader.config();
        let Some(fleet) = &config.fleet else {
            return true;
        };
        let with_list = fleet.with_members(entries_of(fleet, &list.members));
        if with_list.members == fleet.members {
            return true;
        }
        config.set_fleet(with_list);
        let reloaded = reloader.reload(&config);
        if let Err(error) = &reloaded {
            let error = with_causes(error);
            tracing::error!(error, "the list of the fleet's members cannot be used");
            // A reload of the configuration does not fail for the same reason.
            list.members.clear();
        }
        reloaded.is_ok()
    }

    /// Gives the present list to a configuration with which the edge starts or which a reload will apply. The list
    /// stays as it is while the result lives.
    pub(crate) fn fill(&self, edge: &mut EdgeConfig) -> MutexGuard<'_, CurrentList> {
        let list = self.lock();
        if let Some(fleet) = &edge.fleet {
            self.has_tls.store(fleet.tls.is_some(), Ordering::Relaxed);
            let others = entries_of(fleet, &list.members);
            let others = others
                .into_iter()
                .filter(|member| member.name != fleet.name);
            // A node that has started has a part of its weight in the list.
            let of_list = list.members.iter();
            let listed = of_list.filter(|member| *member.profile.name == *fleet.name);
            let listed = listed.map(|member| member.profile.weight).next();
            let own = fleet.own().map(|own| FleetMember {
                is_draining: own.is_draining || list.is_leaving,
                weight: match listed.and_then(NonZeroU32::new) {
                    Some(listed) => own.weight.min(listed),
                    None => own.weight,
                },
                ..own.clone()
            });
            let fleet = fleet.with_members(others.chain(own));
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
        if url.tls != self.has_tls.load(Ordering::Relaxed) {
            return Err(format!(
                "{}: only one of both nodes has certificates of the fleet",
                profile.url
            ));
        }
        if url.tls && ServerName::try_from(url.host.as_str()).is_err() {
            return Err(format!(
                "{}: no certificate can have the name of the host",
                profile.url
            ));
        }
        Ok(())
    }

    fn apply(&self, members: Vec<Member>) -> Result<(), String> {
        let mut list = self.lock();
        let Some(reloader) = self.reloader.get() else {
            list.members = members;
            return Ok(());
        };
        let mut config = reloader.config();
        let Some(fleet) = config.fleet.as_ref().filter(|_| !list.is_final) else {
            return Ok(());
        };
        let fleet = fleet.with_members(entries_of(fleet, &members));
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

/// Returns the entry of a member. This node has the settings of its configuration, except that it may drain, and that
/// its weight grows after a start.
fn member_of(fleet: &FleetConfig, member: &Member) -> Option<FleetMember> {
    let is_draining = member.state != AnnouncedState::Serving;
    let profile = &member.profile;
    let weight = NonZeroU32::new(profile.weight)?;
    if let Some(own) = fleet.own().filter(|own| own.name == *profile.name) {
        return Some(FleetMember {
            is_draining,
            weight,
            ..own.clone()
        });
    }
    Some(FleetMember {
        name: profile.name.to_string(),
        url: profile.url.parse().ok()?,
        group: profile.group,
        weight,
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

#[cfg(test)]
mod tests {
    use edgeward_proxy::config::NodeGroup;

    use super::*;

    fn profile(url: &str) -> NodeProfile {
        NodeProfile {
            name: "b".into(),
            url: url.into(),
            group: NodeGroup::Edge,
            weight: 100,
        }
    }

    #[test]
    fn a_record_with_a_url_that_this_node_cannot_ask_is_unusable() {
        for (has_tls, url, is_usable) in [
            (false, "http://127.0.0.1:1", true),
            (false, "https://127.0.0.1:1", false),
            (false, "127.0.0.1", false),
            (true, "https://b.example", true),
            (true, "https://[::1]:8443", true),
            (true, "http://b.example", false),
            (true, "https://b..example", false),
        ] {
            let checked = FleetMembers::new(has_tls).check(&profile(url));
            assert_eq!(checked.is_ok(), is_usable, "{has_tls} {url}: {checked:?}");
        }
    }
}
