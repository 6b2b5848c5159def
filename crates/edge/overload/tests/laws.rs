//! Laws of the level of overload and of the watchdog, for random sequences of samples.

use std::time::Duration;

use edgeward_overload::{Bounds, Level, Overload, Resource, Sample, Watchdog, Work, WorkerEvent};
use proptest::collection::vec;
use proptest::prelude::*;

const BOUNDS: Bounds = Bounds {
    memory_bytes: Some(1000),
    lag: Some(Duration::from_millis(1000)),
    descriptors: Some(1000),
};

const STEP: Duration = Duration::from_millis(1000);

/// Returns a sample with these thousandths of the bounds.
fn sample([memory, lag, descriptors]: [u64; 3]) -> Sample {
    Sample {
        memory_bytes: Some(memory),
        lag: Duration::from_millis(lag),
        descriptors: Some(descriptors),
    }
}

fn samples() -> impl Strategy<Value = Vec<(u64, [u64; 3])>> {
    let share = prop_oneof![0..400_u64, 400..950_u64, 950..1050_u64, 1050..3000_u64];
    vec((1..1500_u64, [share.clone(), share.clone(), share]), 1..60)
}

#[test]
fn work_is_shed_in_the_stated_order_and_each_level_includes_those_below() {
    let works = [Work::Connection, Work::Pass, Work::Miss, Work::Hit];
    for (number, level) in Level::ALL.into_iter().enumerate() {
        let shed = works.map(|work| level.sheds(work));
        let expected = [0, 1, 2, 3].map(|work| work < number);
        assert_eq!(shed, expected, "{level:?}");
        assert_eq!(Level::from_number(level as u8), level);
    }
}

#[test]
fn a_lasting_overload_raises_one_level_per_step_up_to_the_last_of_its_resource() {
    for (resource, values) in [
        (Resource::Memory, [1001, 0, 0]),
        (Resource::Lag, [0, 1001, 0]),
        (Resource::Descriptors, [0, 0, 1001]),
    ] {
        let mut overload = Overload::new(BOUNDS, STEP);
        let levels: Vec<_> = (0..40_u64)
            .filter_map(|n| overload.update(Duration::from_millis(250 * n), &sample(values)))
            .map(|transition| {
                assert_eq!(transition.resource, resource);
                transition.to
            })
            .collect();
        let last = resource.level_max() as usize;
        assert_eq!(levels, Level::ALL[1..=last], "{resource:?}");
    }
}

#[test]
fn hits_are_shed_for_lag_alone() {
    let mut overload = Overload::new(BOUNDS, STEP);
    for n in 0..100 {
        overload.update(STEP * n, &sample([5000, 0, 5000]));
    }
    assert!(overload.level().sheds(Work::Miss) && !overload.level().sheds(Work::Hit));
}

#[test]
fn a_bound_of_none_and_a_missing_measurement_shed_nothing() {
    let mut unbounded = Overload::new(Bounds::default(), STEP);
    assert!(
        unbounded
            .update(STEP, &sample([u64::MAX; 3].map(|n| n >> 8)))
            .is_none()
    );
    let mut unmeasured = Overload::new(BOUNDS, STEP);
    assert!(unmeasured.update(STEP, &Sample::default()).is_none());
}

proptest! {
    /// The oracle is written from the description: it knows neither order nor dwell of the code under test.
    #[test]
    fn each_change_is_one_level_in_the_direction_of_the_sample(samples in samples()) {
        let mut overload = Overload::new(BOUNDS, STEP);
        let (mut now, mut changed) = (Duration::ZERO, None::<Duration>);
        for (wait, values) in samples {
            now += Duration::from_millis(wait);
            let before = overload.level();
            let transition = overload.update(now, &sample(values));
            let after = overload.level();
            prop_assert_eq!(transition.is_some(), before != after);
            prop_assert!((before as i8 - after as i8).abs() <= 1);
            let is_exceeded = values.iter().any(|&value| value > 1000);
            let [memory, lag, descriptors] = values;
            let is_recovered = memory < 950 && descriptors < 950 && lag < 500;
            if after > before {
                prop_assert!(is_exceeded, "the level rose without an exceeded bound");
            }
            if after < before && before < Level::Hits {
                prop_assert!(is_recovered, "the level fell before the recovery");
            }
            if before != after {
                if let Some(changed) = changed {
                    prop_assert!(now - changed >= STEP, "two changes within a step");
                }
                changed = Some(now);
            }
        }
    }

    #[test]
    fn every_overload_ends_by_itself_within_four_steps_of_recovery(samples in samples()) {
        let mut overload = Overload::new(BOUNDS, STEP);
        let mut now = Duration::ZERO;
        for (wait, values) in samples {
            now += Duration::from_millis(wait);
            overload.update(now, &sample(values));
        }
        for _ in 0..5 {
            now += STEP;
            overload.update(now, &sample([949, 499, 949]));
        }
        prop_assert_eq!(overload.level(), Level::Normal);
    }

    #[test]
    fn use_below_all_bounds_never_sheds_work(
        samples in vec((1..1500_u64, [0..=1000_u64, 0..=1000_u64, 0..=1000_u64]), 1..60)
    ) {
        let mut overload = Overload::new(BOUNDS, STEP);
        let mut now = Duration::ZERO;
        for (wait, values) in samples {
            now += Duration::from_millis(wait);
            prop_assert!(overload.update(now, &sample(values)).is_none());
        }
    }

    /// Method: worker 0 reports at each check, worker 1 stops at a random check and begins again at a later one.
    #[test]
    fn a_worker_that_stops_reporting_is_found_once_and_its_recovery_too(
        stops in 1..50_usize, pause in 0..80_usize
    ) {
        let (interval, deadline) = (Duration::from_millis(250), Duration::from_secs(5));
        let mut watchdog = Watchdog::new(deadline, 2);
        let (mut events, mut last) = (Vec::new(), Duration::ZERO);
        for n in 0..200 {
            let now = interval * u32::try_from(n).expect("small");
            if n < stops || n >= stops + pause {
                last = now;
            }
            let found = watchdog.check(now, &[now, last]);
            events.extend(found.into_iter().map(|event| (n, event)));
        }
        // 20 intervals are the deadline itself, which a stuck worker exceeds.
        let since = interval * u32::try_from(stops - 1).expect("small");
        let expected = match pause > 20 {
            true => vec![
                (stops + 20, WorkerEvent::Stuck { worker: 1, since }),
                (stops + pause, WorkerEvent::Recovered { worker: 1 }),
            ],
            false => Vec::new(),
        };
        prop_assert_eq!(events, expected);
        prop_assert_eq!(watchdog.stuck(), 0);
    }
}

/// SIGSTOP, a suspended machine or a debugger stops the watchdog together with the workers.
#[test]
fn a_pause_of_the_whole_process_is_no_stuck_worker() {
    let mut watchdog = Watchdog::new(Duration::from_secs(10), 1);
    let secs = Duration::from_secs;
    assert!(watchdog.check(secs(1), &[secs(1)]).is_empty());
    assert!(watchdog.check(secs(100), &[secs(1)]).is_empty());
    assert!(watchdog.check(secs(105), &[secs(1)]).is_empty());
    let stuck = WorkerEvent::Stuck {
        worker: 0,
        since: secs(1),
    };
    assert!(watchdog.check(secs(110), &[secs(1)]).is_empty());
    assert_eq!(watchdog.check(secs(111), &[secs(1)]), [stuck]);
}
