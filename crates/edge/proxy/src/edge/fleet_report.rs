//! The state of the fleet, for the status page and the metrics.

use std::sync::atomic::Ordering::Relaxed;

use serde_json::{Value, json};

use crate::exchange::hop::group_word;
use crate::origin::ServerReport;
use crate::path::fleet::{Fleet, Member, is_usable};
use crate::path::worker::Shared;

/// The state of a member, as this node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberState {
    /// The member owns keys.
    Up,
    /// The last requests to the member have failed. It owns no key until a request probes it.
    Down,
    /// The member is about to leave and owns no key.
    Draining,
}

impl MemberState {
    const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Draining => "draining",
        }
    }
}

/// Returns the number of members in a state.
pub(super) fn count(shared: &Shared, state: MemberState) -> usize {
    let members = shared.fleet.iter().flat_map(|fleet| &fleet.members);
    members
        .filter(|member| state_of(shared, member) == state)
        .count()
}

/// Returns the state of the fleet. Null for an edge without a fleet.
pub(super) fn status(shared: &Shared) -> Value {
    let Some(fleet) = &shared.fleet else {
        return Value::Null;
    };
    let members = fleet.members.iter().map(|member| {
        let reports = member.origin.map(|origin| shared.origins[origin].reports());
        let reports = reports.unwrap_or_default();
        let sum = |of: fn(&ServerReport) -> u64| reports.iter().map(of).sum::<u64>();
        json!({
            "name": member.name,
            "group": group_word(member.group),
            "weight": member.weight,
            "state": state_of(shared, member).word(),
            "is_self": is_self(fleet, member),
            "requests": sum(|report| report.server.requests.load(Relaxed)),
            "failures": sum(|report| report.server.failures.load(Relaxed)),
        })
    });
    json!({
        "name": fleet.name,
        "group": group_word(fleet.group),
        "members": members.collect::<Vec<_>>(),
    })
}

fn state_of(shared: &Shared, member: &Member) -> MemberState {
    let is_up = member
        .origin
        .is_none_or(|origin| is_usable(&shared.origins[origin]));
    match member.is_draining {
        true => MemberState::Draining,
        false if is_up => MemberState::Up,
        false => MemberState::Down,
    }
}

fn is_self(fleet: &Fleet, member: &Member) -> bool {
    member.name == fleet.name
}
