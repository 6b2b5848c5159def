use edgeward_types::SplitMix64;
use proptest::prelude::*;

use super::*;
use crate::ledger::Ledger;
use crate::plan::{Limits, OnDemandPlan, Plan};
use crate::rate::Rate;
use crate::renewal::Validity;
use crate::scheduler::{Next, Task};
use std::time::Duration;

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
const START: u64 = 20_000 * DAY;

/// More than [`QUERIED_MAX`], so that both limits are reached.
const QUERIES_PER_MINUTE: u32 = 12;

fn plan(names_per_hour: u32, pending_max: usize, names_max: usize) -> Plan {
    Plan {
        on_demand: Some(OnDemandPlan {
            issuers: vec!["one".into()],
            new_names: Rate {
                count: names_per_hour,
                window: Duration::from_secs(HOUR),
            },
            queries_per_minute: QUERIES_PER_MINUTE,
            pending_max,
            names_max,
        }),
        ..Plan::default()
    }
}

fn scheduler(plan: Plan) -> Scheduler {
    Scheduler::new(plan, Ledger::default(), at(0))
}

const fn at(seconds: u64) -> Reading {
    Reading {
        wall_at: START + seconds,
        since_boot_seconds: seconds,
        boot: 1,
    }
}

fn name(text: &str) -> Name {
    text.parse().expect("the name is valid")
}

const fn validity(from: u64, days: u64) -> Validity {
    Validity {
        not_before_at: START + from,
        not_after_at: START + from + days * DAY,
    }
}

/// Demands and allows a name, and begins its order.
fn begin(scheduler: &mut Scheduler, text: &str, seconds: u64) {
    assert_eq!(
        scheduler.demand(&name(text), at(seconds)),
        Demand::Query,
        "{text}"
    );
    assert_eq!(
        scheduler.on_answer(&name(text), Answer::Allowed, at(seconds)),
        Ok(())
    );
    begin_order(scheduler, text, seconds);
}

fn begin_order(scheduler: &mut Scheduler, text: &str, seconds: u64) {
    match scheduler.next(at(seconds)) {
        Next::Start(Task::Order { name: ordered, .. }) => assert_eq!(ordered, name(text)),
        other => panic!("{other:?}"),
    }
}

fn issue(scheduler: &mut Scheduler, text: &str, seconds: u64) {
    begin(scheduler, text, seconds);
    scheduler.on_stored(&name(text), validity(seconds, 90), None, at(seconds));
}

fn refusal(scheduler: &mut Scheduler, text: &str, seconds: u64) -> DemandOutcome {
    match scheduler.demand(&name(text), at(seconds)) {
        Demand::Refuse(outcome) => outcome,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn a_name_is_queried_once_ordered_first_and_renewed() {
    let mut plan = plan(9, 9, 9);
    plan.names.push(NamePlan {
        name: name("configured.example"),
        issuers: vec!["one".into()],
    });
    let mut scheduler = scheduler(plan);
    let a = name("a.example");
    assert_eq!(scheduler.demand(&a, at(0)), Demand::Query);
    assert_eq!(scheduler.demand(&a, at(0)), Demand::Wait);
    assert_eq!(scheduler.on_answer(&a, Answer::Allowed, at(1)), Ok(()));
    assert_eq!(scheduler.demand(&a, at(1)), Demand::Wait);
    assert!(!scheduler.needs_answer(&a), "it was just allowed");
    // A client waits, so the name comes before the configured one.
    begin_order(&mut scheduler, "a.example", 1);
    scheduler.on_stored(&a, validity(1, 90), None, at(2));
    begin_order(&mut scheduler, "configured.example", 2);
    // A new process keeps the name, and renews it if the program still allows it.
    let ledger = Ledger::parse(&scheduler.ledger().to_bytes()).expect("the ledger is valid");
    let mut scheduler = Scheduler::new(scheduler.plan().clone(), ledger, at(3));
    assert!(scheduler.needs_answer(&a) && !scheduler.needs_answer(&name("configured.example")));
    scheduler.on_stored(&name("configured.example"), validity(3, 900), None, at(3));
    begin_order(&mut scheduler, "a.example", 70 * DAY);
}

#[test]
fn texts_that_are_no_public_host_are_refused_without_a_query() {
    let mut scheduler = scheduler(plan(9, 9, 9));
    for text in [
        "192.0.2.1",
        "2001:db8::1",
        "*.a.example",
        "a.1",
        "192.0.2.256",
    ] {
        let outcome = refusal(&mut scheduler, text, 0);
        assert_eq!(outcome, DemandOutcome::Invalid, "{text}");
    }
    assert_eq!(scheduler.demand(&name("1.a1"), at(0)), Demand::Query);
}

#[test]
fn each_limit_is_reached_and_ends() {
    // The limit of orders at once. A queried name counts as an order only after the program has allowed the name.
    let mut pending = scheduler(plan(9, 1, 9));
    let late = name("late.example");
    assert_eq!(pending.demand(&late, at(0)), Demand::Query);
    begin(&mut pending, "a.example", 0);
    let outcome = refusal(&mut pending, "c.example", 0);
    assert_eq!(outcome, DemandOutcome::PendingLimit);
    let answered = pending.on_answer(&late, Answer::Allowed, at(0));
    assert_eq!(answered, Err(DemandOutcome::PendingLimit));
    pending.on_stored(&name("a.example"), validity(0, 90), None, at(1));
    assert_eq!(pending.demand(&name("c.example"), at(1)), Demand::Query);

    let mut names = scheduler(plan(9, 9, 2));
    issue(&mut names, "a.example", 0);
    issue(&mut names, "b.example", 0);
    let outcome = refusal(&mut names, "c.example", 0);
    assert_eq!(outcome, DemandOutcome::NamesLimit);

    // The limit per hour holds for queries that began before it was reached, and after a restart.
    let mut rate = scheduler(plan(2, 9, 9));
    for text in ["a.example", "b.example", "c.example"] {
        assert_eq!(rate.demand(&name(text), at(0)), Demand::Query);
    }
    assert_eq!(
        rate.on_answer(&name("a.example"), Answer::Allowed, at(0)),
        Ok(())
    );
    assert_eq!(
        rate.on_answer(&name("b.example"), Answer::Allowed, at(0)),
        Ok(())
    );
    assert_eq!(
        rate.on_answer(&name("c.example"), Answer::Allowed, at(0)),
        Err(DemandOutcome::RateLimit)
    );
    let ledger = Ledger::parse(&rate.ledger().to_bytes()).expect("the ledger is valid");
    let mut rate = Scheduler::new(rate.plan().clone(), ledger, at(10));
    let outcome = refusal(&mut rate, "c.example", 10);
    assert_eq!(outcome, DemandOutcome::RateLimit);
    assert_eq!(
        rate.demand(&name("c.example"), at(HOUR + 10)),
        Demand::Query
    );
}

/// Strangers who ask for new names all the time cause no more than this many queries, and the names of a program that
/// hangs are bounded, too.
#[test]
fn queries_are_limited_at_once_and_in_each_minute() {
    let mut scheduler = scheduler(plan(9, 9, 9));
    let stranger = |n: usize| name(&format!("n{n}.example"));
    for n in 0..QUERIED_MAX {
        assert_eq!(scheduler.demand(&stranger(n), at(0)), Demand::Query);
    }
    let limit = DemandOutcome::QueryLimit;
    assert_eq!(refusal(&mut scheduler, "more.example", 1), limit);
    for n in QUERIED_MAX..QUERIES_PER_MINUTE as usize {
        // One ends before the next begins.
        let ended = stranger(n - QUERIED_MAX);
        _ = scheduler.on_answer(&ended, Answer::Refused, at(10));
        assert_eq!(scheduler.demand(&stranger(n), at(10)), Demand::Query);
    }
    _ = scheduler.on_answer(&stranger(9), Answer::Refused, at(11));
    assert_eq!(refusal(&mut scheduler, "more.example", 59), limit);
    // The first ones have left the minute.
    assert_eq!(
        scheduler.demand(&name("more.example"), at(60)),
        Demand::Query
    );
}

#[test]
fn a_refusal_is_remembered_for_a_minute_and_a_missing_answer_for_ten_seconds() {
    let mut scheduler = scheduler(plan(9, 9, 9));
    for (start, answer, outcome, seconds) in [
        (0, Answer::Refused, DemandOutcome::Refused, REFUSED_SECONDS),
        (
            1000,
            Answer::Missing,
            DemandOutcome::Unanswered,
            UNANSWERED_SECONDS,
        ),
    ] {
        let a = name("a.example");
        assert_eq!(scheduler.demand(&a, at(start)), Demand::Query);
        assert_eq!(scheduler.on_answer(&a, answer, at(start)), Err(outcome));
        assert_eq!(
            refusal(&mut scheduler, "a.example", start + seconds - 1),
            outcome
        );
        assert_eq!(scheduler.demand(&a, at(start + seconds)), Demand::Query);
        _ = scheduler.on_answer(&a, Answer::Missing, at(start + seconds));
    }
}

#[test]
fn the_memory_of_refusals_is_bounded() {
    let mut plan = plan(9, 9, 9);
    let on_demand = plan.on_demand.as_mut().expect("the plan has it");
    on_demand.queries_per_minute = 10_000;
    let mut scheduler = scheduler(plan);
    for n in 0..=REFUSED_MAX {
        let stranger = name(&format!("n{n}.example"));
        assert_eq!(scheduler.demand(&stranger, at(1)), Demand::Query);
        _ = scheduler.on_answer(&stranger, Answer::Refused, at(1));
    }
    assert_eq!(scheduler.demands.refused.len(), REFUSED_MAX);
    // The oldest one is forgotten.
    assert_eq!(scheduler.demand(&name("n0.example"), at(1)), Demand::Query);
    assert_eq!(
        refusal(&mut scheduler, "n1.example", 1),
        DemandOutcome::Refused
    );
}

#[test]
fn a_name_without_a_certificate_is_dropped_at_its_first_failure_and_may_return_after_the_back_off()
{
    let mut scheduler = scheduler(plan(9, 9, 9));
    begin(&mut scheduler, "a.example", 0);
    scheduler.on_order(&name("a.example"), "order/1");
    scheduler.on_failed(&name("a.example"), Failure::Validation, "no answer", at(5));
    assert_eq!(scheduler.take_dropped(), [name("a.example")]);
    assert_eq!(scheduler.names().count(), 0);
    assert_eq!(
        refusal(&mut scheduler, "a.example", 10),
        DemandOutcome::Failed
    );
    assert!(matches!(scheduler.next(at(3 * HOUR)), Next::Wait(_)));
    begin(&mut scheduler, "a.example", 3 * HOUR);
}

#[test]
fn while_the_issuer_fails_no_name_is_queried() {
    let mut scheduler = scheduler(plan(9, 9, 9));
    begin(&mut scheduler, "a.example", 0);
    scheduler.on_failed(&name("a.example"), Failure::Issuer, "down", at(5));
    assert_eq!(
        refusal(&mut scheduler, "b.example", 6),
        DemandOutcome::Deferred
    );
    let mut full = plan(9, 9, 9);
    full.limits = Limits {
        orders_per_issuer: Rate {
            count: 0,
            window: Duration::from_secs(HOUR),
        },
        ..Limits::default()
    };
    scheduler.set_plan(full, at(10 * HOUR));
    assert_eq!(
        refusal(&mut scheduler, "b.example", 10 * HOUR),
        DemandOutcome::Deferred
    );
}

/// Refuses each renewal for the given time. Returns the hour of the refusal at which the name is dropped.
fn refuse_for(scheduler: &mut Scheduler, text: &str, start: u64, hours: u64) -> Option<u64> {
    for hour in 0..hours {
        let now = start + hour * HOUR;
        if let Next::Start(Task::Order { name: ordered, .. }) = scheduler.next(at(now)) {
            assert_eq!(ordered, name(text));
            scheduler.on_renewal_refused(&ordered, at(now));
        }
        if !scheduler.take_dropped().is_empty() {
            return Some(hour);
        }
    }
    None
}

#[test]
fn a_name_is_dropped_when_its_renewal_is_refused_for_days_or_its_certificate_has_ended() {
    let mut scheduler = scheduler(plan(9, 9, 9));
    issue(&mut scheduler, "a.example", 0);
    let dropped = refuse_for(&mut scheduler, "a.example", 70 * DAY, 200);
    assert!(
        dropped.is_some_and(|hour| (72..120).contains(&hour)),
        "{dropped:?}"
    );
    assert_eq!(scheduler.demanded_names().count(), 0);

    let now = 80 * DAY;
    issue(&mut scheduler, "b.example", now);
    for (days, is_dropped) in [(80, false), (91, true)] {
        let later = now + days * DAY;
        begin_order(&mut scheduler, "b.example", later);
        scheduler.on_failed(&name("b.example"), Failure::Local, "a file", at(later));
        assert_eq!(!scheduler.take_dropped().is_empty(), is_dropped, "{days}");
    }

    // A certificate that ends before these days does not stay longer than that.
    let now = 200 * DAY;
    begin(&mut scheduler, "c.example", now);
    scheduler.on_stored(&name("c.example"), validity(now, 3), None, at(now));
    let dropped = refuse_for(&mut scheduler, "c.example", now + 2 * DAY, 72);
    assert!(
        dropped.is_some_and(|hour| (24..48).contains(&hour)),
        "{dropped:?}"
    );
}

#[test]
fn other_failures_and_other_answers_bring_no_name_closer_to_its_end() {
    let mut scheduler = scheduler(plan(9, 9, 9));
    issue(&mut scheduler, "a.example", 0);
    let a = name("a.example");
    let mut now = 70 * DAY;
    for _ in 0..5 {
        begin_order(&mut scheduler, "a.example", now);
        scheduler.on_failed(&a, Failure::Local, "a file", at(now));
        now += 7 * HOUR;
    }
    begin_order(&mut scheduler, "a.example", now);
    scheduler.on_renewal_refused(&a, at(now));
    assert!(scheduler.take_dropped().is_empty());
    // Refusals of two days, then another answer, then refusals of two days.
    assert_eq!(refuse_for(&mut scheduler, "a.example", now, 48), None);
    scheduler.on_renewal_allowed(&a);
    now += 48 * HOUR;
    assert_eq!(refuse_for(&mut scheduler, "a.example", now, 72), None);
    assert_eq!(scheduler.demanded_names().count(), 1);
}

#[test]
fn names_on_demand_outlast_a_plan_that_has_none() {
    let mut scheduler = scheduler(plan(9, 9, 2));
    issue(&mut scheduler, "a.example", 0);
    issue(&mut scheduler, "b.example", 0);
    // No certificate was issued for weeks.
    scheduler.set_plan(Plan::default(), at(30 * DAY));
    assert_eq!(scheduler.names().count(), 0);
    let ledger = Ledger::parse(&scheduler.ledger().to_bytes()).expect("the ledger is valid");
    let mut scheduler = Scheduler::new(Plan::default(), ledger, at(30 * DAY + 1));
    scheduler.set_plan(plan(9, 9, 2), at(30 * DAY + 2));
    assert_eq!(scheduler.demanded_names().count(), 2);
    assert!(matches!(scheduler.next(at(30 * DAY + 3)), Next::Wait(_)));
    let outcome = refusal(&mut scheduler, "c.example", 30 * DAY + 3);
    assert_eq!(outcome, DemandOutcome::NamesLimit);
}

#[test]
fn a_name_that_the_configuration_has_meanwhile_keeps_its_history_after_a_failure() {
    let mut scheduler = scheduler(plan(9, 9, 9));
    begin(&mut scheduler, "a.example", 0);
    let mut both = plan(9, 9, 9);
    both.names.push(NamePlan {
        name: name("a.example"),
        issuers: vec!["one".into()],
    });
    scheduler.set_plan(both, at(1));
    scheduler.on_failed(&name("a.example"), Failure::Validation, "no answer", at(2));
    assert!(scheduler.take_dropped().is_empty());
    assert!(
        scheduler.ledger().names()[&name("a.example")]
            .demanded_at
            .is_some()
    );
}

#[test]
fn a_new_plan_without_names_on_demand_orders_none() {
    let mut scheduler = scheduler(plan(9, 9, 9));
    issue(&mut scheduler, "a.example", 0);
    assert_eq!(scheduler.demand(&name("b.example"), at(0)), Demand::Query);
    scheduler.set_plan(Plan::default(), at(1));
    assert!(
        scheduler
            .on_answer(&name("b.example"), Answer::Allowed, at(1))
            .is_err()
    );
    assert_eq!(scheduler.names().count(), 0);
    assert_eq!(
        refusal(&mut scheduler, "c.example", 1),
        DemandOutcome::Refused
    );
    // A name that the configuration has, too, is no name on demand.
    let mut both = plan(9, 9, 9);
    both.names.push(NamePlan {
        name: name("a.example"),
        issuers: vec!["one".into()],
    });
    scheduler.set_plan(both, at(2));
    assert_eq!(scheduler.names().count(), 1);
    assert!(!scheduler.needs_answer(&name("a.example")));
}

proptest! {
    /// Strangers ask for random names, and issuers and program answer at random, while the process is killed.
    #[test]
    fn the_limits_of_names_on_demand_hold(
        seed: u64, per_hour in 0_u32..6, pending_max in 0_usize..4, names_max in 0_usize..8, steps in 0_usize..300,
    ) {
        let mut random = SplitMix64(seed);
        let mut scheduler = scheduler(plan(per_hour, pending_max, names_max));
        let (mut now, mut added) = (0, Vec::new());
        let (mut queried, mut ordered) = (Vec::new(), Vec::new());
        let mut has_lost = false;
        for _ in 0..steps {
            now += random.below(20) * random.below(100);
            match random.below(13) {
                0..5 => {
                    let stranger = name(&format!("n{}.example", random.below(20)));
                    if scheduler.demand(&stranger, at(now)) == Demand::Query {
                        queried.push(stranger);
                    }
                }
                5 | 6 if !queried.is_empty() => {
                    let answered = queried.remove(0);
                    let answer = [Answer::Allowed, Answer::Allowed, Answer::Refused, Answer::Missing]
                        [random.below(4) as usize];
                    if scheduler.on_answer(&answered, answer, at(now)).is_ok() {
                        added.push(now);
                    }
                }
                7 => {
                    if let Next::Start(Task::Order { name, .. }) = scheduler.next(at(now)) {
                        ordered.push(name);
                    }
                }
                8 if !ordered.is_empty() => {
                    let name = ordered.remove(0);
                    match random.below(4) {
                        0 => scheduler.on_failed(&name, Failure::Validation, "", at(now)),
                        3 if scheduler.needs_answer(&name) => scheduler.on_renewal_refused(&name, at(now)),
                        1 => scheduler.on_failed(&name, Failure::Issuer, "", at(now)),
                        _ => scheduler.on_stored(&name, validity(now, 1 + random.below(5)), None, at(now)),
                    }
                }
                9 if random.below(4) == 0 => {
                    let ledger = Ledger::parse(&scheduler.ledger().to_bytes()).expect("valid");
                    scheduler = Scheduler::new(scheduler.plan().clone(), ledger, at(now));
                    (queried, ordered) = (Vec::new(), Vec::new());
                }
                10 if random.below(4) == 0 => {
                    let mut changed = plan(per_hour, pending_max, names_max);
                    match random.below(3) {
                        0 => changed.on_demand = None,
                        1 => changed.names.push(NamePlan {
                            name: name(&format!("n{}.example", random.below(20))),
                            issuers: vec!["one".into()],
                        }),
                        _ => {}
                    }
                    scheduler.set_plan(changed, at(now));
                }
                11 => {
                    let lost = name(&format!("n{}.example", random.below(20)));
                    scheduler.forget_certificate(&lost);
                    has_lost = true;
                }
                _ => {}
            }
            // A certificate that is lost makes its name one that is ordered again.
            prop_assert!(has_lost || scheduler.pending_demands() <= pending_max);
            prop_assert!(scheduler.ledger().demanded().count() <= names_max);
            prop_assert!(queried.len() <= QUERIED_MAX);
            prop_assert!(scheduler.demanded_names().count() <= names_max);
        }
        for (first, at) in added.iter().enumerate() {
            let within = added[first..].iter().take_while(|&&later| later < at + HOUR).count();
            prop_assert!(within <= per_hour as usize, "{added:?}");
        }
    }
}
