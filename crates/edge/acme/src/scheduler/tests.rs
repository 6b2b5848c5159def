//! Examples of decisions.

use super::*;

const DAY: u64 = 86_400;
const START: u64 = 20_000 * DAY;

fn plan(names: &[&str], issuers: &[&str]) -> Plan {
    let planned = |name: &&str| NamePlan {
        name: name.parse().expect("the name is valid"),
        issuers: issuers.iter().map(|issuer| (*issuer).into()).collect(),
    };
    Plan {
        names: names.iter().map(planned).collect(),
        ..Plan::default()
    }
}

const fn at(seconds: u64) -> Reading {
    Reading {
        wall_at: START + seconds,
        since_boot_seconds: seconds,
        boot: 1,
    }
}

fn scheduler(names: &[&str], issuers: &[&str]) -> Scheduler {
    Scheduler::new(plan(names, issuers), Ledger::default(), at(0))
}

/// Returns the name and the issuer of the next order.
fn order(scheduler: &mut Scheduler, seconds: u64) -> (Name, Box<str>) {
    match scheduler.next(at(seconds)) {
        Next::Start(Task::Order { name, issuer, .. }) => (name, issuer),
        other => panic!("no order: {other:?}"),
    }
}

fn is_waiting(scheduler: &mut Scheduler, seconds: u64) -> bool {
    matches!(scheduler.next(at(seconds)), Next::Wait(_))
}

const fn validity(from: u64, days: u64) -> Validity {
    Validity {
        not_before_at: START + from,
        not_after_at: START + from + days * DAY,
    }
}

/// Continues with the ledger as a new process would.
fn restarted(scheduler: &Scheduler, seconds: u64) -> Scheduler {
    let ledger = Ledger::parse(&scheduler.ledger().to_bytes()).expect("the ledger is valid");
    Scheduler::new(scheduler.plan().clone(), ledger, at(seconds))
}

#[test]
fn certificates_that_end_soon_come_first_then_names_without_one_then_others_by_their_end() {
    let names = [
        "a.example",
        "b.example",
        "c.example",
        "d.example",
        "e.example",
    ];
    let mut plan = plan(&names, &["one"]);
    plan.limits.tasks_max = 9;
    let mut scheduler = Scheduler::new(plan, Ledger::default(), at(0));
    for (name, days) in [
        ("a.example", 5),
        ("b.example", 4),
        ("d.example", 3),
        ("e.example", 2),
    ] {
        let name = name.parse().expect("the name is valid");
        scheduler.adopt(&name, validity(0, days), None, at(0));
    }
    let later = 3 * DAY;
    let order: Vec<_> = (0..5)
        .map(|_| order(&mut scheduler, later).0.to_string())
        .collect();
    assert_eq!(
        order,
        [
            "e.example",
            "d.example",
            "c.example",
            "b.example",
            "a.example"
        ]
    );
    assert!(is_waiting(&mut scheduler, later));
}

#[test]
fn a_name_is_renewed_when_two_thirds_of_its_lifetime_are_over() {
    let mut scheduler = scheduler(&["a.example"], &["one"]);
    let (name, _) = order(&mut scheduler, 0);
    scheduler.on_order(&name, "order/1");
    scheduler.on_stored(&name, validity(0, 90), None, at(10));
    assert!(is_waiting(&mut scheduler, 58 * DAY));
    order(&mut scheduler, 60 * DAY);
}

#[test]
fn the_second_issuer_is_used_after_three_failures_and_the_first_after_a_success() {
    let mut scheduler = scheduler(&["a.example"], &["one", "two"]);
    let mut now = 0;
    for expected in ["one", "one", "one", "two", "two", "two", "one"] {
        let (name, issuer) = order(&mut scheduler, now);
        assert_eq!(&*issuer, expected);
        scheduler.on_failed(&name, Failure::Rejected, "refused", at(now));
        assert!(is_waiting(&mut scheduler, now));
        now += 2 * DAY;
    }
    let (name, _) = order(&mut scheduler, now);
    scheduler.on_stored(&name, validity(now, 90), None, at(now));
    assert_eq!(&*order(&mut scheduler, now + 70 * DAY).1, "one");
}

#[test]
fn an_issuer_that_fails_for_one_name_is_skipped_for_the_others() {
    let mut scheduler = scheduler(&["a.example", "b.example"], &["one", "two"]);
    let name = |text: &str| text.parse::<Name>().expect("the name is valid");
    let mut now = 0;
    // Both names wait for the issuer after its first failure.
    let failures = |scheduler: &Scheduler| {
        let issuer = scheduler.ledger().issuers().get("one");
        issuer.map_or(0, |issuer| issuer.backoff.failures)
    };
    while failures(&scheduler) < 3 {
        match scheduler.next(at(now)) {
            Next::Start(Task::Order { name, issuer, .. }) => {
                assert_eq!(&*issuer, "one");
                scheduler.on_failed(&name, Failure::Issuer, "unreachable", at(now));
            }
            Next::Start(other) => panic!("{other:?}"),
            Next::Wait(wait) => now += wait.as_secs(),
        }
    }
    let failures = |scheduler: &Scheduler, text| {
        let record = scheduler.ledger().names().get(&name(text));
        record.map_or(0, |record| record.backoff.failures)
    };
    assert_eq!(
        failures(&scheduler, "a.example") + failures(&scheduler, "b.example"),
        3
    );
    let next = loop {
        match scheduler.next(at(now)) {
            Next::Wait(wait) => now += wait.as_secs(),
            Next::Start(task) => break task,
        }
    };
    assert!(matches!(next, Task::Order { issuer, .. } if &*issuer == "two"));
}

#[test]
fn a_window_in_the_past_renews_at_once_but_not_again_within_a_twentieth_of_the_lifetime() {
    let mut scheduler = scheduler(&["a.example"], &["one"]);
    let (name, _) = order(&mut scheduler, 0);
    scheduler.on_stored(&name, validity(0, 90), Some("id".into()), at(0));
    let Next::Start(Task::QueryWindow { window_id, .. }) = scheduler.next(at(0)) else {
        panic!("no query");
    };
    assert_eq!(&*window_id, "id");
    let past = SuggestedWindow {
        start_at: START - DAY,
        end_at: START - 1,
    };
    scheduler.on_window(&name, Some(past), None, at(1));
    let earliest = 90 * DAY / 20;
    loop {
        match scheduler.next(at(earliest - 1)) {
            Next::Start(Task::QueryWindow { .. }) => {
                scheduler.on_window(&name, None, None, at(earliest - 1));
            }
            Next::Start(task) => panic!("too early: {task:?}"),
            Next::Wait(_) => break,
        }
    }
    order(&mut scheduler, earliest);
}

#[test]
fn an_order_replaces_a_certificate_of_the_same_issuer_at_its_first_attempt_only() {
    let mut scheduler = scheduler(&["a.example"], &["one", "two"]);
    let (name, _) = order(&mut scheduler, 0);
    scheduler.on_stored(&name, validity(0, 9), Some("id".into()), at(0));
    let replaced = |scheduler: &mut Scheduler, now| match scheduler.next(at(now)) {
        Next::Start(Task::Order {
            issuer, replaces, ..
        }) => (issuer, replaces),
        other => panic!("no order: {other:?}"),
    };
    let mut now = 8 * DAY;
    let mut other = scheduler.clone();
    for expected in [Some("id"), None] {
        let (issuer, replaces) = replaced(&mut scheduler, now);
        assert_eq!((&*issuer, replaces.as_deref()), ("one", expected));
        scheduler.on_failed(&name, Failure::Rejected, "refused", at(now));
        now += DAY;
    }
    other.set_plan(plan(&["a.example"], &["two"]), at(now));
    let (issuer, replaces) = replaced(&mut other, now);
    assert_eq!((&*issuer, replaces), ("two", None));
}

/// An operator changes from the issuer for trials to the real one. The limits still hold.
#[test]
fn a_certificate_of_an_issuer_that_is_not_planned_is_due_at_once() {
    let mut scheduler = scheduler(&["a.example"], &["trial"]);
    let (name, _) = order(&mut scheduler, 0);
    scheduler.on_stored(&name, validity(0, 90), None, at(0));
    scheduler.set_plan(plan(&["a.example"], &["one", "trial"]), at(1));
    assert!(is_waiting(&mut scheduler, 1));
    for (now, issuer) in [(1, "one"), (2, "two"), (3, "three")] {
        scheduler.set_plan(plan(&["a.example"], &[issuer]), at(now));
        assert_eq!(&*order(&mut scheduler, now).1, issuer);
        scheduler.on_stored(&name, validity(now, 90), None, at(now));
        assert!(is_waiting(&mut scheduler, now));
    }
    scheduler.set_plan(plan(&["a.example"], &["four"]), at(4));
    assert!(is_waiting(&mut scheduler, 4));
    assert_eq!(&*order(&mut scheduler, 8 * DAY).1, "four");
}

#[test]
fn an_order_of_a_killed_process_is_continued_three_times_then_counts_as_a_certificate() {
    let mut scheduler = scheduler(&["a.example"], &["one"]);
    let (name, _) = order(&mut scheduler, 0);
    scheduler.on_order(&name, "order/1");
    scheduler.on_finalize(&name, true);
    let mut now = 1;
    for resumes in 1..=3 {
        let mut next = restarted(&scheduler, now);
        while let Next::Wait(wait) = next.next(at(now)) {
            now += wait.as_secs();
        }
        let pending = next.ledger().names()[&name].pending.as_ref();
        let pending = pending.expect("the order is under way");
        assert_eq!(
            (pending.resumes, pending.url.as_deref()),
            (resumes, Some("order/1"))
        );
        scheduler = next;
    }
    let next = restarted(&scheduler, now);
    let record = &next.ledger().names()[&name];
    assert_eq!(
        (
            record.pending.as_ref(),
            record.issued.len(),
            record.backoff.failures
        ),
        (None, 1, 1)
    );
    assert_eq!(next.ledger().issuers()["one"].orders.len(), 1);
}

/// Otherwise four refusals of an account or a name would end the attempts of a week.
#[test]
fn an_order_whose_request_for_a_certificate_was_not_sent_or_refused_counts_as_no_certificate() {
    for steps in [&[][..], &[true, false]] {
        let mut scheduler = scheduler(&["a.example"], &["one"]);
        let (name, _) = order(&mut scheduler, 0);
        scheduler.on_order(&name, "order/1");
        for &is_finalized in steps {
            scheduler.on_finalize(&name, is_finalized);
        }
        scheduler.on_failed(&name, Failure::Rejected, "refused", at(1));
        let record = &scheduler.ledger().names()[&name];
        assert_eq!((&record.pending, record.issued.len()), (&None, 0));
    }
}

/// Boot 0 means that the process cannot tell one start of the machine from another.
#[test]
fn a_reading_of_an_unknown_boot_is_not_compared_after_a_restart() {
    let unknown = |seconds, since_boot_seconds| Reading {
        since_boot_seconds,
        boot: 0,
        ..at(seconds)
    };
    let planned = plan(&["a.example"], &["one"]);
    let mut scheduler = Scheduler::new(planned.clone(), Ledger::default(), unknown(0, 100));
    assert!(matches!(scheduler.next(unknown(0, 100)), Next::Start(_)));
    let name: Name = "a.example".parse().expect("the name is valid");
    scheduler.on_failed(&name, Failure::Rejected, "refused", unknown(0, 100));
    let failed_at = |scheduler: &Scheduler| scheduler.ledger().names()[&name].backoff.failed_at;
    let before = failed_at(&scheduler);
    // The machine was off for most of a day, and has run for 200 seconds since.
    let reading = unknown(DAY, 200);
    let next = Scheduler::new(planned, scheduler.ledger().clone(), reading);
    assert_eq!(failed_at(&next), before);
    assert_eq!(next.ledger().reading, Some(reading));
}

#[test]
fn an_order_whose_answer_is_unknown_counts_as_failed_after_a_restart() {
    let mut scheduler = scheduler(&["a.example"], &["one"]);
    let (name, _) = order(&mut scheduler, 0);
    let mut next = restarted(&scheduler, 1);
    assert_eq!(next.ledger().names()[&name].backoff.failures, 1);
    assert!(is_waiting(&mut next, 1));
    order(&mut next, 120);
}

#[test]
fn a_demanded_renewal_ends_the_back_off_but_no_limit() {
    let mut scheduler = scheduler(&["a.example"], &["one"]);
    let name: Name = "a.example".parse().expect("the name is valid");
    for _ in 0..3 {
        let (name, _) = order(&mut scheduler, 0);
        scheduler.on_failed(&name, Failure::Validation, "no answer", at(0));
        assert!(is_waiting(&mut scheduler, 0));
        assert!(scheduler.request_renewal(&name));
    }
    assert!(is_waiting(&mut scheduler, 3599));
    order(&mut scheduler, 3700);
    scheduler.on_stored(&name, validity(3700, 90), None, at(3700));
    assert!(is_waiting(&mut scheduler, 3700));
    assert!(scheduler.request_renewal(&name));
    order(&mut scheduler, 3700);
    assert!(!scheduler.request_renewal(&"b.example".parse().expect("the name is valid")));
}

/// A clock that is two days ahead and then set back, and the opposite.
#[test]
fn a_jump_of_the_clock_moves_the_back_off_with_it() {
    for jump in [-2 * DAY.cast_signed(), 2 * DAY.cast_signed()] {
        let mut scheduler = scheduler(&["a.example"], &["one"]);
        let (name, _) = order(&mut scheduler, 0);
        scheduler.on_failed(&name, Failure::Validation, "no answer", at(0));
        let jumped = |seconds: u64| Reading {
            wall_at: at(seconds).wall_at.saturating_add_signed(jump),
            ..at(seconds)
        };
        assert!(
            matches!(scheduler.next(jumped(600)), Next::Wait(_)),
            "{jump}"
        );
        assert!(
            matches!(scheduler.next(jumped(1100)), Next::Start(_)),
            "{jump}"
        );
        let mut next = restarted(&scheduler, 1100);
        assert_eq!(next.ledger().reading, Some(at(1100)));
        assert!(matches!(next.next(at(1101)), Next::Wait(_)));
    }
}

#[test]
fn records_of_removed_names_stay_until_no_limit_needs_them() {
    let mut scheduler = scheduler(&["a.example", "b.example"], &["one"]);
    let (name, _) = order(&mut scheduler, 0);
    scheduler.on_stored(&name, validity(0, 90), None, at(0));
    scheduler.set_plan(plan(&["b.example"], &["one"]), at(1));
    assert!(scheduler.ledger().names().contains_key(&name));
    scheduler.set_plan(plan(&["b.example"], &["one"]), at(8 * DAY));
    assert!(!scheduler.ledger().names().contains_key(&name));
    assert!(scheduler.ledger().issuers().is_empty());
}

/// A name that waits for itself, for example until its certificate is due, does not wait for the issuer.
#[test]
fn the_status_tells_that_a_name_waits_for_its_issuer() {
    let mut scheduler = scheduler(&["a.example", "b.example"], &["one"]);
    let (name, _) = order(&mut scheduler, 0);
    scheduler.on_failed(&name, Failure::Issuer, "down", at(0));
    let waits = |scheduler: &Scheduler, seconds: u64| {
        let now = at(seconds).wall_at;
        let status = scheduler
            .status(now)
            .find(|status| status.name.to_string() == "b.example");
        let status = status.expect("the name is planned");
        assert!(
            status
                .issuer_wait_until
                .is_none_or(|until| until == status.next_order_at)
        );
        status.issuer_wait_until.is_some()
    };
    assert!(waits(&scheduler, 10));
    assert!(!waits(&scheduler, 1000));
    let b = "b.example".parse().expect("the name is valid");
    scheduler.adopt(&b, validity(0, 90), None, at(10));
    assert!(!waits(&scheduler, 10));
}
