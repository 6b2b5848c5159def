//! Laws about the limits, in virtual time: outages, jumps of the clock, restarts, and issuers that answer at random.

use std::collections::{BTreeMap, BTreeSet};

use edgeward_types::SplitMix64;
use proptest::prelude::*;

use super::*;
use crate::plan::Limits;
use crate::rate::Rate;

const HOUR: u64 = 3600;
const DAY: u64 = 86_400;
const START: u64 = 20_000 * DAY;

/// A machine, its disk and its issuers. All times of events are true seconds since the start of the run.
struct World {
    random: SplitMix64,
    now: u64,
    /// By how much the wall clock is wrong.
    offset: i64,
    boot: u64,
    booted_at: u64,
    disk: Vec<u8>,
    scheduler: Scheduler,
    /// Issuers do not answer in this time.
    outage: std::ops::Range<u64>,
    lifetime: u64,
    orders: BTreeMap<Box<str>, Vec<u64>>,
    failed: BTreeMap<Name, Vec<u64>>,
    issued: BTreeMap<Name, Vec<u64>>,
    stored: BTreeMap<Name, Vec<u64>>,
    /// The names whose order under way has its certificate.
    has_certificate: BTreeSet<Name>,
    order_requests: u64,
}

/// How often what happens: in thousandths of the occasions.
#[derive(Clone, Copy, Debug)]
struct Odds {
    kill: u64,
    jump: u64,
    reboot: u64,
    invalid: u64,
    failure: u64,
}

impl World {
    fn new(seed: u64, plan: Plan, lifetime: u64) -> Self {
        let reading = Reading {
            wall_at: START,
            since_boot_seconds: 0,
            boot: 1,
        };
        Self {
            random: SplitMix64(seed),
            now: 0,
            offset: 0,
            boot: 1,
            booted_at: 0,
            disk: Ledger::default().to_bytes(),
            scheduler: Scheduler::new(plan, Ledger::default(), reading),
            outage: 0..0,
            lifetime,
            orders: BTreeMap::new(),
            failed: BTreeMap::new(),
            issued: BTreeMap::new(),
            stored: BTreeMap::new(),
            has_certificate: BTreeSet::new(),
            order_requests: 0,
        }
    }

    fn reading(&self) -> Reading {
        Reading {
            wall_at: (START + self.now).saturating_add_signed(self.offset),
            since_boot_seconds: self.now - self.booted_at,
            boot: self.boot,
        }
    }

    fn happens(&mut self, thousandths: u64) -> bool {
        self.random.below(1000) < thousandths
    }

    /// Persists the ledger, unless no process will read it: a ledger of a thousand names takes milliseconds.
    fn save(&mut self, odds: Odds) {
        if odds.kill > 0 || odds.reboot > 0 {
            self.disk = self.scheduler.ledger().to_bytes();
        }
    }

    /// Starts a process again from the disk. Returns true if that happened.
    fn is_killed(&mut self, odds: Odds) -> bool {
        let is_killed = self.happens(odds.kill);
        if is_killed {
            self.restart(odds);
        }
        is_killed
    }

    fn restart(&mut self, odds: Odds) {
        let ledger = Ledger::parse(&self.disk).expect("the ledger is valid");
        let plan = self.scheduler.plan().clone();
        self.scheduler = Scheduler::new(plan, ledger, self.reading());
        self.save(odds);
    }

    fn run(&mut self, until: u64, odds: Odds) {
        while self.now < until {
            if self.happens(odds.jump) {
                // Up to two days in each direction.
                self.offset = (self.random.below(4 * DAY)).cast_signed() - 2 * DAY.cast_signed();
            }
            if self.happens(odds.reboot) {
                self.boot += 1;
                self.booted_at = self.now;
                self.restart(odds);
            }
            match self.scheduler.next(self.reading()) {
                Next::Wait(wait) => {
                    assert!(!wait.is_zero() && wait <= WAIT_MAX);
                    self.now += 1 + self.random.below(wait.as_secs());
                }
                Next::Start(task) => {
                    self.save(odds);
                    if !self.is_killed(odds) {
                        self.carry_out(task, odds);
                    }
                    self.now += self.random.below(3);
                }
            }
        }
    }

    fn carry_out(&mut self, task: Task, odds: Odds) {
        let is_down = self.outage.contains(&self.now);
        match task {
            Task::QueryWindow { name, .. } => {
                let window = (!is_down).then(|| {
                    // Past and future, empty and of negative length.
                    let mut at = || START + self.now + self.random.below(20 * DAY) - 10 * DAY;
                    SuggestedWindow {
                        start_at: at(),
                        end_at: at(),
                    }
                });
                let retry_after = Duration::from_secs(self.random.below(2 * DAY));
                self.scheduler
                    .on_window(&name, window, Some(retry_after), self.reading());
            }
            Task::Order {
                name,
                issuer,
                resumed,
                ..
            } => {
                self.order(&name, issuer, resumed.is_some(), is_down, odds);
            }
        }
        self.save(odds);
    }

    fn order(&mut self, name: &Name, issuer: Box<str>, resumed: bool, is_down: bool, odds: Odds) {
        self.order_requests += 1;
        if is_down {
            let reading = self.reading();
            return self
                .scheduler
                .on_failed(name, Failure::Issuer, "down", reading);
        }
        if !resumed {
            self.has_certificate.remove(name);
            self.orders.entry(issuer).or_default().push(self.now);
            if self.is_killed(odds) {
                return;
            }
            self.scheduler.on_order(name, "order");
            self.save(odds);
            if self.is_killed(odds) {
                return;
            }
        }
        let failure = if !self.has_certificate.contains(name) && self.happens(odds.invalid) {
            self.failed.entry(name.clone()).or_default().push(self.now);
            Some(Failure::Validation)
        } else if self.happens(odds.failure) {
            let all = [
                Failure::Rejected,
                Failure::RateLimited(Some(Duration::from_secs(self.random.below(DAY)))),
                Failure::Issuer,
                Failure::Local,
            ];
            Some(all[self.random.below(4) as usize])
        } else {
            None
        };
        if let Some(failure) = failure {
            let reading = self.reading();
            return self.scheduler.on_failed(name, failure, "failed", reading);
        }
        self.scheduler.on_finalize(name, true);
        self.save(odds);
        if self.is_killed(odds) {
            return;
        }
        if self.has_certificate.insert(name.clone()) {
            self.issued.entry(name.clone()).or_default().push(self.now);
        }
        if self.is_killed(odds) {
            return;
        }
        self.stored.entry(name.clone()).or_default().push(self.now);
        let reading = self.reading();
        // The issuer's clock is right.
        let validity = Validity {
            not_before_at: START + self.now,
            not_after_at: START + self.now + self.lifetime,
        };
        self.scheduler
            .on_stored(name, validity, Some("id".into()), reading);
    }
}

/// Returns the most events in a window.
fn most(times: &[u64], window: Duration) -> usize {
    let within = |(first, at): (usize, &u64)| {
        times[first..]
            .iter()
            .take_while(|&&later| later < at + window.as_secs())
            .count()
    };
    times.iter().enumerate().map(within).max().unwrap_or(0)
}

fn plan(names: usize, limits: Limits) -> Plan {
    let planned = |n: usize| NamePlan {
        name: format!("n{n}.example").parse().expect("the name is valid"),
        issuers: vec!["one".into(), "two".into()],
    };
    Plan {
        names: (0..names).map(planned).collect(),
        limits,
        seed: 5,
        on_demand: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// In true time no window has more orders, failed validations or certificates than the limits admit, although the
    /// clock jumps, the process is killed at each step, the machine reboots, and the issuers suggest any window.
    #[test]
    fn the_limits_hold(
        seed: u64,
        names in 1_usize..10,
        kill in prop_oneof![Just(0), 0_u64..600],
        jump in prop_oneof![Just(0), 0_u64..300],
        invalid in prop_oneof![Just(0), 0_u64..=1000],
        failure in prop_oneof![Just(0), 0_u64..=1000],
        lifetime in prop_oneof![1_u64..HOUR, HOUR..90 * DAY],
        outage_days in 0_u64..10,
    ) {
        let limits = Limits {
            orders_per_issuer: Rate { count: 5, window: Duration::from_secs(HOUR) },
            ..Limits::default()
        };
        let mut world = World::new(seed, plan(names, limits), lifetime);
        world.outage = 2 * DAY..(2 + outage_days) * DAY;
        // After a reboot nothing tells how long the machine was off, so that a jump in this time is unknown.
        let reboot = if jump == 0 { kill / 20 } else { 0 };
        world.run(18 * DAY, Odds { kill, jump, reboot, invalid, failure });
        let check = |times: &[u64], rate: Rate, what: &str| {
            let most = most(times, rate.window);
            prop_assert!(most <= rate.count as usize, "{} {} in {:?}: {:?}", most, what, rate.window, times);
            Ok(())
        };
        for times in world.orders.values() {
            check(times, limits.orders_per_issuer, "orders")?;
        }
        for times in world.failed.values() {
            check(times, limits.failures_per_name, "failed validations")?;
        }
        for times in world.issued.values() {
            check(times, limits.certificates_per_name, "certificates")?;
        }
        for times in world.stored.values() {
            let interval = HOUR.max(lifetime / 20);
            prop_assert!(times.windows(2).all(|pair| pair[1] - pair[0] + 6 >= interval), "{times:?}");
        }
    }
}

const CALM: Odds = Odds {
    kill: 0,
    jump: 0,
    reboot: 0,
    invalid: 0,
    failure: 0,
};

#[test]
fn a_thousand_names_get_their_certificates_within_the_rate() {
    let limits = Limits::default();
    let mut world = World::new(1, plan(1000, limits), 90 * DAY);
    world.run(DAY, CALM);
    assert_eq!(world.stored.len(), 1000);
    let orders = &world.orders["one"];
    assert_eq!(most(orders, limits.orders_per_issuer.window), 90);
    let hours = orders.last().expect("there are orders") / HOUR;
    assert!((11..14).contains(&hours), "{hours}");
}

/// The issuers are down for 30 days, in which all certificates become due.
#[test]
fn an_outage_of_thirty_days_is_survived_with_few_requests() {
    let mut world = World::new(2, plan(20, Limits::default()), 30 * DAY);
    world.run(10 * DAY, CALM);
    let requests = world.order_requests;
    world.outage = 10 * DAY..40 * DAY;
    world.run(40 * DAY, CALM);
    // Each of the two issuers gets a request each six hours, and some at the beginning.
    let outage = world.order_requests - requests;
    assert!(outage <= 2 * (30 * 4 + 12), "{outage}");
    let before: BTreeMap<_, _> = world
        .stored
        .iter()
        .map(|(name, times)| (name.clone(), times.len()))
        .collect();
    world.run(41 * DAY, CALM);
    assert!(
        world
            .stored
            .iter()
            .all(|(name, times)| times.len() > before[name])
    );
}

/// A process that is killed in each step, for a day, and started again at once.
#[test]
fn a_restart_loop_makes_few_orders() {
    let mut world = World::new(3, plan(1, Limits::default()), 90 * DAY);
    world.run(DAY, Odds { kill: 1000, ..CALM });
    let orders: usize = world.orders.values().map(Vec::len).sum();
    assert!(orders <= 12, "{orders}");
}

/// The clock is two days off, in both directions, and is corrected while the process runs.
#[test]
fn a_clock_that_is_corrected_postpones_no_order_by_more_than_its_back_off() {
    for offset in [-2 * DAY.cast_signed(), 2 * DAY.cast_signed()] {
        let mut world = World::new(4, plan(3, Limits::default()), 90 * DAY);
        world.offset = offset;
        world.run(
            HOUR,
            Odds {
                invalid: 1000,
                ..CALM
            },
        );
        world.offset = 0;
        world.run(HOUR + 8 * HOUR, CALM);
        assert_eq!(world.stored.len(), 3, "{offset}");
    }
}
