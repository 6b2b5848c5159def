//! The state of the fleet, for the status page and the metrics.

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;

use edgeward_balance::NodeGroup;
use edgeward_fleet::{AnnouncedState, DirectoryFacts, Member as AnnouncedMember, RecordError};
use edgeward_metrics::{Definition, Family, metrics};
use serde_json::{Value, json};

use super::counts::by_label;
use crate::exchange::hop::group_word;
use crate::observe::counters::sum;
use crate::origin::ServerReport;
use crate::path::fleet::{Fleet, Member, is_usable};
use crate::path::worker::Shared;

/// The state of a member, as this node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberState {
    /// The member owns keys.
    Up,
    /// The last requests to the member have failed. It owns no key until a request probes it.
    Down,
    /// The member may lack purges of the fleet and owns no key yet.
    Joining,
    /// The member is about to leave and owns no key.
    Draining,
}

impl MemberState {
    const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Joining => "joining",
            Self::Draining => "draining",
        }
    }
}

/// The numbers of members by state.
#[derive(Clone, Copy, Debug, Default)]
struct MemberCounts {
    up: usize,
    down: usize,
    joining: usize,
    draining: usize,
}

/// Counts the members.
fn count(shared: &Shared) -> MemberCounts {
    let joining = joining(shared);
    let mut counts = MemberCounts::default();
    for member in shared.fleet.iter().flat_map(|fleet| &fleet.members) {
        *match state_of(shared, member, &joining) {
            MemberState::Up => &mut counts.up,
            MemberState::Down => &mut counts.down,
            MemberState::Joining => &mut counts.joining,
            MemberState::Draining => &mut counts.draining,
        } += 1;
    }
    counts
}

/// Returns the state of the fleet. Null for an edge without a fleet.
pub(super) fn status(shared: &Shared) -> Value {
    let Some(fleet) = &shared.fleet else {
        return Value::Null;
    };
    let joining = joining(shared);
    let members = fleet.members.iter().map(|member| {
        let state = state_of(shared, member, &joining);
        let owned = match state {
            MemberState::Up => u64::from(member.weight),
            MemberState::Down | MemberState::Joining | MemberState::Draining => 0,
        };
        (member, state, owned)
    });
    let members: Vec<_> = members.collect();
    let weights_of = |group| -> u64 {
        let of_group = members.iter().filter(|(member, ..)| member.group == group);
        of_group.map(|(_, _, owned)| owned).sum()
    };
    let (of_edges, of_shields) = (weights_of(NodeGroup::Edge), weights_of(NodeGroup::Shield));
    let members = members.iter().map(|(member, state, owned)| {
        let weights = match member.group {
            NodeGroup::Edge => of_edges,
            NodeGroup::Shield => of_shields,
        };
        let reports = member.origin.map(|origin| shared.origins[origin].reports());
        let reports = reports.unwrap_or_default();
        let sum = |of: fn(&ServerReport) -> u64| reports.iter().map(of).sum::<u64>();
        json!({
            "name": member.name,
            "group": group_word(member.group),
            "weight": member.weight,
            // Each key goes to a member of the group with a probability in proportion to the weights.
            "key_share": (weights > 0).then(|| *owned as f64 / weights as f64),
            "state": state.word(),
            "is_self": is_self(fleet, member),
            "requests": sum(|report| report.server.requests.load(Relaxed)),
            "failures": sum(|report| report.server.failures.load(Relaxed)),
        })
    });
    json!({
        "name": fleet.name,
        "group": group_word(fleet.group),
        "members": members.collect::<Vec<_>>(),
        // `null` if the members are listed in the configuration.
        "directory": directory_status(shared),
        "requests": by_label("edgeward_fleet_requests_total", shared),
        "waits": sum(&shared.counters, |counters| counters.fleet_waits.value()),
        "moved": sum(&shared.counters, |counters| counters.fleet_moved.value()),
        "received": by_label("edgeward_fleet_received_total", shared),
        "copies": by_label("edgeward_fleet_copies_total", shared),
        "copy_hits": sum(&shared.counters, |counters| counters.fleet_copy_hits.value()),
    })
}

/// Returns the names of the members that announce that they are joining.
fn joining(shared: &Shared) -> HashSet<Box<str>> {
    let directory = shared.config.fleet_directory.iter();
    let members = directory.flat_map(|directory| directory.facts().members);
    let is_joining = |member: &AnnouncedMember| member.state == AnnouncedState::Joining;
    members
        .filter(is_joining)
        .map(|member| member.profile.name)
        .collect()
}

fn state_of(shared: &Shared, member: &Member, joining: &HashSet<Box<str>>) -> MemberState {
    let is_up = member
        .origin
        .is_none_or(|origin| is_usable(&shared.origins[origin]));
    match member.is_draining {
        true if joining.contains(&member.name) => MemberState::Joining,
        true => MemberState::Draining,
        false if is_up => MemberState::Up,
        false => MemberState::Down,
    }
}

metrics! {
    /// The members of the fleet.
    const MEMBERS: MemberCounts = |counts| {
        Gauge "edgeward_fleet_members" "Members of the fleet, this node included, by state." ["state":
            "up" = counts.up,
            "down" = counts.down,
            "joining" = counts.joining,
            "draining" = counts.draining,
        ]
    }
}

metrics! {
    /// The members of the fleet by their heartbeats.
    const DIRECTORY: DirectoryFacts = |facts| {
        Gauge "edgeward_fleet_directory_current"
            "1 if the heartbeats of this node return from NATS, so that its list of members follows those of the others." {
            u64::from(facts.is_current)
        }
        Gauge "edgeward_fleet_duplicate_name"
            "1 if the node stays out of its fleet because another node has its name." {
            u64::from(facts.rival.is_some())
        }
        Counter "edgeward_fleet_heartbeats_total" "Heartbeats of this node that NATS has acknowledged." {
            facts.heartbeats
        }
        Counter "edgeward_fleet_lists_total" "Lists of members that the node has used since its start." { facts.lists }
    }
}

metrics! {
    /// The ignored records of one cause.
    const IGNORED: u64 ["cause"] = |count| {
        Counter "edgeward_fleet_records_ignored_total"
            "Records of nodes that were ignored, by cause: `corrupt`, `version` unknown, `unusable` URL, `duplicate` of \
             the name of this node, `full`: the fleet has 256 nodes." { *count }
    }
}

/// Returns the definitions of the metrics of the members.
pub(super) fn definitions() -> Vec<Definition> {
    let mut definitions = MEMBERS.definitions();
    definitions.extend(DIRECTORY.definitions());
    definitions.extend(IGNORED.definitions());
    definitions
}

/// Returns the metrics of the members. Those of the directory are absent if the members are listed in the
/// configuration.
pub(super) fn families(shared: &Shared) -> Vec<Family> {
    let mut families = MEMBERS.of(&count(shared));
    let Some(directory) = &shared.config.fleet_directory else {
        return families;
    };
    let facts = directory.facts();
    families.extend(DIRECTORY.of(&facts));
    let counts = RecordError::NAMES.into_iter().zip(&facts.refused);
    let rows: Vec<_> = counts.map(|(cause, count)| (vec![cause], count)).collect();
    families.extend(IGNORED.families(&rows));
    families
}

fn directory_status(shared: &Shared) -> Value {
    let Some(directory) = &shared.config.fleet_directory else {
        return Value::Null;
    };
    let facts = directory.facts();
    let counts = RecordError::NAMES.into_iter().zip(facts.refused);
    json!({
        "current": facts.is_current,
        "duplicate_of": facts.rival,
        "heartbeats": facts.heartbeats,
        "lists": facts.lists,
        "ignored": counts
            .map(|(cause, count)| (cause.to_owned(), json!(count)))
            .collect::<serde_json::Map<_, _>>(),
    })
}

fn is_self(fleet: &Fleet, member: &Member) -> bool {
    member.name == fleet.name
}
