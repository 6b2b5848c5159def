//! The fleet as a node sees it: its members, the placement of keys on them, and the bound of fallbacks to the origin.
//!
//! The decisions are in `edgeward_balance`: which node owns a key, and which node is asked next. A node that has failed
//! owns no key until a request probes it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use edgeward_balance::{
    BudgetSettings, HealthState, Node, NodeGroup, NodeId, NodeLoads, NodeState, Placement,
    RetryBudget, Sender, Target, next_hop,
};
use edgeward_purge::Stamp;
use edgeward_semantics::{CacheStatus, Outcome};
use edgeward_sites::{Site, SiteId};
use edgeward_types::xxh3::xxh3_64_with_seed;
use edgeward_types::{KeyHash, Timestamp};
use http::HeaderValue;

use super::copies::Copies;
use crate::config::fleet::origin_name;
use crate::config::{EdgeConfig, FleetConfig, FleetKey};
use crate::exchange::Request;
use crate::exchange::hop::{ObjectNote, placement_seed};
use crate::origin::Servers;
use crate::rt::panics::lock;

/// The fleet of an edge.
pub(crate) struct Fleet {
    /// The name of this node.
    pub(crate) name: Box<str>,
    pub(crate) group: NodeGroup,
    pub(crate) key: FleetKey,
    /// The longest wait for the first byte of another node, unless the budget of fallbacks is used up.
    pub(crate) wait: Duration,
    pub(crate) members: Vec<Member>,
    own: NodeId,
    edges: Placement,
    shields: Placement,
    /// The seed of the hash by which keys are placed. It is secret, so that no client can choose URLs of one owner.
    seed: u64,
    /// The digest of the rules of each site.
    digests: Vec<u64>,
    fallbacks: Mutex<RetryBudget>,
    /// The loads of the other edges. A reload with the same edges keeps them.
    loads: Arc<Mutex<NodeLoads>>,
    /// Present if the node keeps copies of hot objects that other edges own.
    pub(crate) copies: Option<Copies>,
}

/// A node of the fleet.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: Box<str>,
    pub(crate) group: NodeGroup,
    pub(crate) weight: u32,
    pub(crate) is_draining: bool,
    /// The index of the origin by which this node asks the member. `None` if it never does, as for itself.
    pub(crate) origin: Option<usize>,
    id: NodeId,
}

/// The direction of a request that this node cannot answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direction<'a> {
    /// The member that is asked. `None` stands for the origin.
    pub(crate) peer: Option<&'a Member>,
    /// True if this node stores the response.
    pub(crate) stores: bool,
    /// True if the request was moved from the owner of its key, because its load has reached the bound.
    pub(crate) is_moved: bool,
}

impl Fleet {
    /// Returns the fleet of a configuration, or `None` if the edge belongs to none. The start of the edge has checked
    /// the members. `hits` are the hits in memory until now, and `before` is the fleet before a reload.
    pub(crate) fn of(
        config: &EdgeConfig,
        now: Timestamp,
        hits: u64,
        before: Option<&Self>,
    ) -> Option<Self> {
        let fleet = config.fleet.as_ref()?;
        let own = fleet.own().expect("the start has checked the members");
        let asked: Vec<_> = fleet.peers().map(|peer| &*peer.name).collect();
        let origin_of = |name: &str| {
            let name = asked.contains(&name).then(|| origin_name(name))?;
            config.origins.iter().position(|origin| origin.name == name)
        };
        let members = fleet.members.iter().map(|member| Member {
            name: member.name.as_str().into(),
            group: member.group,
            weight: member.weight.get(),
            is_draining: member.is_draining,
            origin: origin_of(&member.name),
            id: member.id(),
        });
        // Without the stream, purges reach the nodes in any order: a node could copy an object from an owner that is
        // purged later. A shield serves no clients.
        let keeps_copies =
            config.fleet_purges.is_some() && own.group == NodeGroup::Edge && fleet.replicate > 0.0;
        let copies = keeps_copies.then(|| {
            let edges = fleet.members.iter();
            let edges = edges.filter(|it| it.group == NodeGroup::Edge && !it.is_draining);
            let before = before.and_then(|before| before.copies.as_ref());
            Copies::new(fleet.replicate, edges.count(), now, hits, before)
        });
        let edges = placement(fleet, NodeGroup::Edge);
        let others = || edges.ids().filter(|id| *id != own.id());
        let loads = before.map(|before| Arc::clone(&before.loads));
        let loads = loads.filter(|loads| lock(loads).nodes().eq(others()));
        let loads = loads.unwrap_or_else(|| Arc::new(Mutex::new(NodeLoads::new(others()))));
        let seed = placement_seed(&fleet.key);
        let caching = format!("{:?}", config.caching.rules);
        let digest_of = |site| xxh3_64_with_seed((rules_of(site) + &caching).as_bytes(), seed);
        Some(Self {
            name: fleet.name.as_str().into(),
            group: own.group,
            key: fleet.key.clone(),
            wait: fleet.wait,
            members: members.collect(),
            own: own.id(),
            edges,
            shields: placement(fleet, NodeGroup::Shield),
            seed,
            digests: config
                .sites
                .iter()
                .map(|(_, site)| digest_of(site))
                .collect(),
            fallbacks: Mutex::new(RetryBudget::new(BudgetSettings {
                percent: fleet.fallback_percent,
                per_second: fleet.fallbacks_per_second,
            })),
            loads,
            copies,
        })
    }

    /// Returns the direction of a request with this primary key. `is_usable` returns false for a member that has
    /// failed.
    pub(crate) fn direction(
        &self,
        key: &[u8],
        sender: Sender,
        is_usable: impl Fn(&Member) -> bool,
    ) -> Direction<'_> {
        let hash = xxh3_64_with_seed(key, self.seed);
        let may_own = |id: NodeId| {
            let member = self.member(id);
            member.origin.is_none() || is_usable(member)
        };
        let edge = match sender {
            Sender::Client => {
                let loads = lock(&self.loads);
                self.edges
                    .owner_within_bound(hash, self.own, may_own, &loads)
            }
            Sender::Edge => self.edges.owner_for_node(hash, self.own, may_own),
        };
        let shield = || self.shields.owner_among(hash, may_own);
        let hop = next_hop(self.own, self.group, sender, || edge, shield);
        Direction {
            peer: match hop.target {
                Target::Edge(owner) | Target::Shield(owner) => Some(self.member(owner.node)),
                Target::Origin => None,
            },
            stores: hop.stores,
            is_moved: sender == Sender::Client && edge.is_some_and(|owner| owner.skipped > 0),
        }
    }

    /// Returns true if this node owns a key by the list of members, whatever their state is.
    pub(crate) fn owns(&self, key: &[u8]) -> bool {
        let owner = self.edges.owner(xxh3_64_with_seed(key, self.seed));
        owner.is_some_and(|owner| owner.node == self.own)
    }

    /// Counts an answer of another edge in its load. `key` is the primary key of the request.
    pub(crate) fn record_answer(&self, member: &Member, key: &[u8], body_bytes: u64) {
        let key = KeyHash(xxh3_64_with_seed(key, self.seed));
        lock(&self.loads).record(member.id, key, body_bytes);
    }

    /// Returns the other members of a group that this node can reach, in whatever state they are: one that drains or
    /// seems to have failed may still serve the objects that it has stored.
    pub(crate) fn others(&self, group: NodeGroup) -> impl Iterator<Item = &Member> {
        let members = self.members.iter();
        members.filter(move |member| member.group == group && member.origin.is_some())
    }

    /// Returns the digest of the rules of a site. Nodes whose digests differ do not store objects for each other,
    /// because they would give them different lifetimes.
    pub(crate) fn digest(&self, site: SiteId) -> u64 {
        self.digests.get(site.0).copied().unwrap_or_default()
    }

    /// Returns the field that states to another node how the request was answered. `stamp` is that of the object, if
    /// the response is one. `rate` is that of [`Copies::rate`].
    pub(crate) fn note(
        &self,
        request: &Request,
        cache_status: &CacheStatus,
        stamp: Option<Stamp>,
        rate: u64,
    ) -> HeaderValue {
        let note = ObjectNote {
            is_hit: cache_status.outcome == Outcome::Hit,
            is_stale: cache_status.ttl.is_some_and(|ttl| ttl < 0),
            stamp,
            digest: self.digest(request.settings().site),
            rate,
        };
        note.value()
    }

    /// Counts a request to another node.
    pub(crate) fn record_request(&self, now: Timestamp) {
        lock(&self.fallbacks).record_request(now);
    }

    /// Returns true, and counts a fallback, if the origin may be asked because another node is slow or refuses.
    pub(crate) fn may_fall_back(&self, now: Timestamp) -> bool {
        lock(&self.fallbacks).try_retry(now)
    }

    fn member(&self, id: NodeId) -> &Member {
        let mut members = self.members.iter();
        let member = members.find(|member| member.id == id);
        member.expect("the placement has only members")
    }
}

/// Returns false if the last requests to a member, which has these servers, have failed.
pub(crate) fn is_usable(servers: &Servers) -> bool {
    let reports = servers.reports();
    // A host name that was not resolved yet has no server.
    let is_down = |state| matches!(state, HealthState::Ejected | HealthState::CheckFailed);
    reports.is_empty() || reports.iter().any(|report| !is_down(report.state))
}

/// Returns the settings and rules of a site as text, without the lines where they stand: files of two nodes may have
/// other comments.
fn rules_of(site: &Site) -> String {
    let rules = site.rules().iter();
    let rules = rules.map(|rule| (&rule.condition, &rule.settings));
    format!("{:?}{:?}", site.settings, rules.collect::<Vec<_>>())
}

fn placement(fleet: &FleetConfig, group: NodeGroup) -> Placement {
    let members = fleet.members.iter().filter(|member| member.group == group);
    let nodes = members.map(|member| Node {
        id: member.id(),
        weight: member.weight,
        state: match member.is_draining {
            true => NodeState::Draining,
            false => NodeState::Active,
        },
    });
    Placement::new(&nodes.collect::<Vec<_>>()).expect("the start has checked the members")
}

#[cfg(test)]
mod tests;
