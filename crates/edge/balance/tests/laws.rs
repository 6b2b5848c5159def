//! The laws of the choice of a server, over random sequences of requests, failures, checks and changes of the servers.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use edgeward_balance::{
    AllDown, Group, GroupSettings, HealthSettings, HealthState, Member, Method, Query, Selection,
    ServerId, ServerView, Verdict,
};
use edgeward_types::{SplitMix64, Timestamp, mix64};
use proptest::prelude::*;

/// One step of a random sequence.
#[derive(Clone, Debug)]
enum Step {
    /// A request, which was sent to the servers of `tried` (bits) before.
    Choose {
        hash: u64,
        random: u64,
        may_probe: bool,
        tried: u8,
    },
    /// The result of one of the requests under way.
    Record {
        which: usize,
        verdict: Verdict,
    },
    Finish {
        which: usize,
    },
    Check {
        server: u64,
        is_ok: bool,
    },
    Wait {
        millis: u64,
    },
    /// The members become the servers of these bits.
    Members {
        bits: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let verdict = prop_oneof![Just(Verdict::Success), Just(Verdict::Failure)];
    let choose = (
        any::<u64>(),
        any::<u64>(),
        any::<bool>(),
        any::<u8>(),
        0..4_u8,
    );
    let choose = choose.prop_map(|(hash, random, may_probe, tried, has_tried)| Step::Choose {
        hash,
        random,
        may_probe,
        tried: if has_tried == 0 { tried } else { 0 },
    });
    prop_oneof![
        8 => choose,
        6 => (any::<usize>(), verdict).prop_map(|(which, verdict)| Step::Record { which, verdict }),
        4 => any::<usize>().prop_map(|which| Step::Finish { which }),
        1 => (0..SERVERS, any::<bool>()).prop_map(|(server, is_ok)| Step::Check { server, is_ok }),
        3 => (0..8000_u64).prop_map(|millis| Step::Wait { millis }),
        1 => any::<u8>().prop_map(|bits| Step::Members { bits }),
    ]
}

fn settings() -> impl Strategy<Value = GroupSettings> {
    let method = prop_oneof![
        Just(Method::RoundRobin),
        Just(Method::LeastRequests),
        (0..100_u32).prop_map(|excess_percent| Method::Hash { excess_percent }),
    ];
    let all_down = prop_oneof![Just(AllDown::Try), Just(AllDown::Refuse)];
    let slow_start = prop_oneof![Just(Duration::ZERO), Just(Duration::from_secs(10))];
    (method, all_down, slow_start, any::<bool>()).prop_map(
        |(method, all_down, slow_start, has_checks)| GroupSettings {
            method,
            all_down,
            health: HealthSettings {
                slow_start,
                has_checks,
                ..HealthSettings::default()
            },
        },
    )
}

/// The servers whose ids are the set bits. Servers 4 and 5 are backups.
fn members(bits: u8) -> Vec<Member> {
    let member = |id| Member {
        id: ServerId(id),
        key: id,
        is_backup: id >= 4,
        weight: NonZeroU32::MIN,
    };
    let is_set = |id: &u64| bits >> id & 1 == 1;
    (0..SERVERS).filter(is_set).map(member).collect()
}

const SERVERS: u64 = 6;

/// Runs the steps and calls `check` with each choice and the state before it. Checks that all states are consistent.
fn run(
    settings: GroupSettings,
    steps: &[Step],
    mut check: impl FnMut(&Query<'_>, &[ServerView], Option<Selection>),
) {
    let mut group = Group::new(settings);
    let mut now = Timestamp::from_secs(1000);
    group.set_members(&members(0b11_1111), now);
    let mut under_way: Vec<Selection> = Vec::new();
    let mut recorded: Vec<bool> = Vec::new();
    for step in steps {
        match *step {
            Step::Choose {
                hash,
                random,
                may_probe,
                tried,
            } => {
                let tried: Vec<_> = members(tried).iter().map(|member| member.id).collect();
                let query = Query {
                    now,
                    random,
                    hash,
                    may_probe,
                    tried: &tried,
                };
                let before: Vec<_> = group.views(now).collect();
                let chosen = group.choose(&query);
                check(&query, &before, chosen);
                if let Some(selection) = chosen {
                    under_way.push(selection);
                    recorded.push(false);
                }
            }
            Step::Record { which, verdict } if !under_way.is_empty() => {
                let which = which % under_way.len();
                if !std::mem::replace(&mut recorded[which], true) {
                    group.record(under_way[which], verdict, now);
                }
            }
            Step::Finish { which } if !under_way.is_empty() => {
                let which = which % under_way.len();
                group.finish(under_way.swap_remove(which), now);
                recorded.swap_remove(which);
            }
            Step::Record { .. } | Step::Finish { .. } => {}
            Step::Check { server, is_ok } => {
                group.record_check(ServerId(server), is_ok, now);
            }
            Step::Wait { millis } => now = now.after(Duration::from_millis(millis)),
            Step::Members { bits } => {
                group.set_members(&members(bits), now);
                // A server that returns is a new server in this crate's terms. The test reuses ids, so it ends the
                // requests of servers that have left.
                let has = |selection: &Selection| bits >> selection.server.0 & 1 == 1;
                let mut index = 0;
                recorded.retain(|_| {
                    index += 1;
                    has(&under_way[index - 1])
                });
                under_way.retain(has);
            }
        }
        for view in group.views(now) {
            let count = under_way.iter().filter(|one| one.server == view.id).count();
            assert_eq!(view.under_way as usize, count, "requests under way");
        }
    }
}

fn find(views: &[ServerView], id: ServerId) -> &ServerView {
    views.iter().find(|view| view.id == id).expect("a member")
}

proptest! {
    #[test]
    fn a_server_that_is_down_gets_no_request_while_another_is_usable(
        settings in settings(),
        steps in proptest::collection::vec(step(), 0..400),
    ) {
        run(settings, &steps, |query, views, chosen| {
            let left: Vec<_> = views.iter().filter(|view| !query.tried.contains(&view.id)).collect();
            let is_any_usable = left.iter().any(|view| view.state.is_usable());
            let Some(chosen) = chosen else {
                let refuses = settings.all_down == AllDown::Refuse;
                assert!(left.is_empty() || (refuses && !is_any_usable), "{views:?}");
                return;
            };
            assert!(!query.tried.contains(&chosen.server));
            let chosen = find(views, chosen.server);
            let may_get_it = match chosen.state {
                HealthState::Up | HealthState::SlowStart => true,
                HealthState::HalfOpen => query.may_probe || !is_any_usable,
                HealthState::Ejected | HealthState::CheckFailed => !is_any_usable,
            };
            assert!(may_get_it, "{chosen:?} of {views:?}");
            let probes = chosen.state == HealthState::HalfOpen;
            assert!(!(probes && settings.health.has_checks), "checks take the place of probes");
            // A backup gets requests only if no other server is usable without restriction.
            if chosen.is_backup && chosen.state.is_usable() {
                let is_full = |view: &&&ServerView| !view.is_backup && view.state == HealthState::Up;
                assert!(!left.iter().any(|view| is_full(&view)), "{chosen:?} of {views:?}");
            }
        });
    }

    /// Method: the oracle sorts the usable servers by their score for the key and takes the first below the bound.
    #[test]
    fn a_key_goes_to_its_first_server_below_the_bound(
        excess_percent in 0_u32..100,
        steps in proptest::collection::vec(step(), 0..400),
    ) {
        let mut settings = GroupSettings {
            method: Method::Hash { excess_percent },
            ..GroupSettings::default()
        };
        settings.health.slow_start = Duration::ZERO;
        run(settings, &steps, |query, views, chosen| {
            let usable = |backup: bool| {
                let is = move |view: &&ServerView| view.is_backup == backup && view.state.is_usable();
                let mut usable: Vec<_> = views
                    .iter()
                    .filter(is)
                    .filter(|view| !query.tried.contains(&view.id))
                    .collect();
                usable.sort_by_key(|view| std::cmp::Reverse(mix64(query.hash ^ mix64(view.id.0))));
                usable
            };
            let candidates = match usable(false) {
                primaries if primaries.is_empty() => usable(true),
                primaries => primaries,
            };
            let Some(chosen) = chosen.filter(|chosen| !chosen.is_trial) else { return };
            let total: u32 = candidates.iter().map(|view| view.under_way).sum::<u32>() + 1;
            let mean = f64::from(total) / candidates.len() as f64;
            let bound = (mean * (1.0 + f64::from(excess_percent) / 100.0) - 1e-9).ceil();
            let expected = candidates.iter().find(|view| f64::from(view.under_way) < bound);
            assert_eq!(expected.map(|view| view.id), Some(chosen.server), "{views:?}");
            let load = f64::from(find(views, chosen.server).under_way + 1);
            assert!(load <= bound, "{load} above {bound}");
        });
    }

    /// Method: choose with all servers up, and count.
    #[test]
    fn round_robin_gives_each_server_the_same_number(
        requests in 1_usize..200,
        bits in 1_u8..16,
    ) {
        let mut group = Group::new(GroupSettings { method: Method::RoundRobin, ..GroupSettings::default() });
        group.set_members(&members(bits), Timestamp::ZERO);
        let mut counts: HashMap<ServerId, usize> = HashMap::new();
        for _ in 0..requests {
            let chosen = group.choose(&query(Timestamp::ZERO, 0)).expect("a server");
            *counts.entry(chosen.server).or_default() += 1;
        }
        let mean = requests / members(bits).len();
        for member in members(bits) {
            let count = counts.get(&member.id).copied().unwrap_or_default();
            assert!(count == mean || count == mean + 1, "{counts:?}");
        }
    }
}

fn query(now: Timestamp, random: u64) -> Query<'static> {
    Query {
        now,
        random,
        hash: random,
        may_probe: true,
        tried: &[],
    }
}

/// Returns a group of three servers whose server 0 has just been ejected, and the time.
fn group_with_an_ejected_server(method: Method) -> (Group, Timestamp) {
    let mut group = Group::new(GroupSettings {
        method,
        ..GroupSettings::default()
    });
    let now = Timestamp::from_secs(1000);
    group.set_members(&members(0b111), now);
    let mut random = SplitMix64(1);
    while group
        .views(now)
        .any(|view| view.id == ServerId(0) && view.state.is_usable())
    {
        let chosen = group.choose(&query(now, random.draw())).expect("a server");
        let verdict = match chosen.server {
            ServerId(0) => Verdict::Failure,
            _ => Verdict::Success,
        };
        group.record(chosen, verdict, now);
        group.finish(chosen, now);
    }
    (group, now)
}

/// Method: eject one of three servers, let it recover, and send a hundred requests in each of the ten seconds of the
/// slow start. Its share per second grows, and is never more than its weight allows.
#[test]
fn a_server_that_recovers_gets_no_burst() {
    for method in [
        Method::RoundRobin,
        Method::LeastRequests,
        Method::Hash { excess_percent: 25 },
    ] {
        let (mut group, ejected_at) = group_with_an_ejected_server(method);
        let mut now = ejected_at.after(Duration::from_secs(5));
        let mut random = SplitMix64(2);
        let probe = group.choose(&query(now, random.draw())).expect("a server");
        assert_eq!((probe.server, probe.is_trial), (ServerId(0), true));
        let other = group.choose(&query(now, random.draw())).expect("a server");
        assert_ne!(other.server, ServerId(0), "only one request probes");
        group.record(probe, Verdict::Success, now);
        for selection in [probe, other] {
            group.finish(selection, now);
        }
        let mut shares = Vec::new();
        for _ in 0..12 {
            let mut count = 0;
            for _ in 0..100 {
                let chosen = group.choose(&query(now, random.draw())).expect("a server");
                count += u32::from(chosen.server == ServerId(0));
                group.record(chosen, Verdict::Success, now);
                group.finish(chosen, now);
                now = now.after(Duration::from_millis(10));
            }
            shares.push(count);
        }
        // The fair share is a third. In the first second the weight is a tenth.
        assert!(shares[0] <= 10, "{method:?}: {shares:?}");
        assert!(shares[4] <= 30, "{method:?}: {shares:?}");
        assert!((20..=50).contains(&shares[11]), "{method:?}: {shares:?}");
    }
}

/// Method: the server fails each probe. The time between two probes doubles up to its limit.
#[test]
fn ejections_grow_up_to_their_limit() {
    let (mut group, mut now) = group_with_an_ejected_server(Method::RoundRobin);
    let mut last = now;
    let mut times = Vec::new();
    while times.len() < 6 {
        now = now.after(Duration::from_millis(100));
        let chosen = group.choose(&query(now, 0)).expect("a server");
        let verdict = match chosen.is_trial {
            true => Verdict::Failure,
            false => Verdict::Success,
        };
        group.record(chosen, verdict, now);
        group.finish(chosen, now);
        if chosen.is_trial {
            times.push(now.since(std::mem::replace(&mut last, now)).as_secs());
        }
    }
    assert_eq!(times, [5, 10, 20, 40, 60, 60]);
}

#[test]
fn a_request_that_cannot_be_repeated_does_not_probe() {
    let (mut group, ejected_at) = group_with_an_ejected_server(Method::RoundRobin);
    let now = ejected_at.after(Duration::from_secs(100));
    for _ in 0..10 {
        let unsafe_request = Query {
            may_probe: false,
            ..query(now, 0)
        };
        let chosen = group.choose(&unsafe_request).expect("a server");
        assert_ne!(chosen.server, ServerId(0));
    }
}

#[test]
fn a_probe_without_a_result_frees_the_server_for_another_probe() {
    let (mut group, ejected_at) = group_with_an_ejected_server(Method::RoundRobin);
    let now = ejected_at.after(Duration::from_secs(5));
    let first = group.choose(&query(now, 0)).expect("a server");
    assert!(first.is_trial);
    group.finish(first, now);
    assert!(group.choose(&query(now, 0)).expect("a server").is_trial);
}

/// Method: fail checks up to both sides of the threshold, then let them succeed.
#[test]
fn checks_take_a_server_out_and_return_it_after_their_thresholds() {
    let mut group = Group::new(GroupSettings::default());
    let now = Timestamp::from_secs(1000);
    group.set_members(&members(0b11), now);
    let state = |group: &Group| group.views(now).next().expect("a server").state;
    for _ in 0..2 {
        group.record_check(ServerId(0), false, now);
        assert_eq!(state(&group), HealthState::Up);
    }
    group.record_check(ServerId(0), false, now);
    assert_eq!(state(&group), HealthState::CheckFailed);
    group.record_check(ServerId(0), true, now);
    group.record_check(ServerId(0), false, now);
    group.record_check(ServerId(0), true, now);
    assert_eq!(state(&group), HealthState::CheckFailed);
    group.record_check(ServerId(0), true, now);
    assert_eq!(state(&group), HealthState::SlowStart);
}

/// Method: fail server 1 last. All are down, so the server that failed first is tried, and its success returns it.
#[test]
fn with_all_servers_down_the_least_recently_failed_is_tried() {
    let mut group = Group::new(GroupSettings::default());
    let start = Timestamp::from_secs(1000);
    group.set_members(&members(0b11), start);
    for (second, server) in [(1, 0), (2, 1)] {
        for _ in 0..3 {
            group.record_check(
                ServerId(server),
                false,
                start.after(Duration::from_secs(second)),
            );
        }
    }
    let now = start.after(Duration::from_secs(3));
    let chosen = group.choose(&query(now, 0)).expect("a server");
    assert_eq!((chosen.server, chosen.is_trial), (ServerId(0), true));
    group.record(chosen, Verdict::Failure, now);
    let chosen = group.choose(&query(now, 0)).expect("a server");
    assert_eq!(chosen.server, ServerId(1));
}

/// Method: the same keys before and after server 2 has left. Only its keys move.
#[test]
fn only_the_keys_of_a_lost_server_move() {
    let mut group = Group::new(GroupSettings {
        method: Method::Hash {
            excess_percent: 1000,
        },
        ..GroupSettings::default()
    });
    let now = Timestamp::from_secs(1000);
    let place = |group: &mut Group, hash| {
        let chosen = group.choose(&query(now, hash)).expect("a server");
        group.finish(chosen, now);
        chosen.server
    };
    group.set_members(&members(0b1111), now);
    let before: Vec<_> = (0..1000).map(|hash| place(&mut group, hash)).collect();
    group.set_members(&members(0b1011), now);
    for (hash, before) in (0..1000).zip(before) {
        if before != ServerId(2) {
            assert_eq!(place(&mut group, hash), before);
        }
    }
}

/// Method: 6,000 requests, one after the other, to three servers with weights 1, 2 and 3.
#[test]
fn servers_get_requests_in_proportion_to_their_weights() {
    for method in [
        Method::RoundRobin,
        Method::LeastRequests,
        Method::Hash { excess_percent: 25 },
    ] {
        let mut group = weighted_group(method);
        let now = Timestamp::from_secs(1000);
        let mut random = SplitMix64(3);
        let mut counts = [0_u32; 3];
        for _ in 0..6000 {
            let chosen = group.choose(&query(now, random.draw())).expect("a server");
            counts[chosen.server.0 as usize] += 1;
            group.finish(chosen, now);
        }
        for (server, expected) in [1000_u32, 2000, 3000].into_iter().enumerate() {
            let difference = counts[server].abs_diff(expected);
            // Round robin is exact up to the rounding of the stride. The others are random: three standard deviations.
            let allowed = if method == Method::RoundRobin { 2 } else { 120 };
            assert!(difference <= allowed, "{method:?}: {counts:?}");
        }
    }
}

/// Method: requests that do not end pile up. The requests under way follow the weights, within one request for each
/// unit of weight and within the excess of the hash.
#[test]
fn requests_under_way_follow_the_weights() {
    for (method, excess) in [
        (Method::LeastRequests, 1.1),
        (Method::Hash { excess_percent: 25 }, 1.25),
    ] {
        let mut group = weighted_group(method);
        let now = Timestamp::from_secs(1000);
        let mut random = SplitMix64(4);
        for count in 1..=1200 {
            _ = group.choose(&query(now, random.draw())).expect("a server");
            for (view, weight) in group.views(now).zip([1.0, 2.0, 3.0]) {
                let fair = f64::from(count) * weight / 6.0;
                let bound = (fair * excess).ceil() + 4.0 * weight;
                assert!(
                    f64::from(view.under_way) <= bound,
                    "{method:?}: {view:?}, {count} requests"
                );
            }
        }
    }
}

fn weighted_group(method: Method) -> Group {
    let mut group = Group::new(GroupSettings {
        method,
        ..GroupSettings::default()
    });
    let mut servers = members(0b111);
    for (server, weight) in servers.iter_mut().zip(1..) {
        server.weight = NonZeroU32::new(weight).expect("weights begin at 1");
    }
    group.set_members(&servers, Timestamp::from_secs(1000));
    group
}
