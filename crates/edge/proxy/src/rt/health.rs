//! The health of the process: its level of overload, and the reports of its workers.
//!
//! Each worker reports at regular intervals by its [`Heart`]. The monitor (`edge/monitor.rs`) reads the reports, and
//! sets the level. Requests read the level.

use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64};
use std::time::{Duration, Instant};

use edgeward_overload::{Bounds, Level, Resource, Sample, Work};

use super::panics::lock;

/// The health of one edge.
#[derive(Debug)]
pub(crate) struct Health {
    level: AtomicU8,
    /// The resource that used the largest share of its bound when the level last changed, by its place in
    /// [`Resource::ALL`], plus 1. 0 at the level `Normal`.
    lacks: AtomicU8,
    hearts: Box<[Heart]>,
    /// The instant from which all times of this value count.
    started: Instant,
    /// The last sample: bytes of memory, and open descriptors. 0 is unknown.
    memory_bytes: AtomicU64,
    descriptors: AtomicU64,
    lag_micros: AtomicU64,
    /// The number of times that the level has risen.
    pub(crate) raised: AtomicU64,
    last_rise: Mutex<Option<Rise>>,
    /// The number of workers that are stuck now, and of workers that were found stuck.
    pub(crate) stuck: AtomicU64,
    pub(crate) stuck_total: AtomicU64,
}

/// A rise of the level of overload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rise {
    /// The time since the start.
    pub(crate) at: Duration,
    pub(crate) level: Level,
    pub(crate) resource: Resource,
    pub(crate) usage: Usage,
}

/// The use of a resource, and its bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) used: Option<u64>,
    pub(crate) bound: Option<u64>,
    pub(crate) unit: &'static str,
}

impl Usage {
    pub(crate) fn of(resource: Resource, sample: &Sample, bounds: &Bounds) -> Self {
        let micros = |time: Duration| u64::try_from(time.as_micros()).ok();
        let (used, bound, unit) = match resource {
            Resource::Memory => (sample.memory_bytes, bounds.memory_bytes, "bytes"),
            Resource::Descriptors => (sample.descriptors, bounds.descriptors, "descriptors"),
            Resource::Lag => (
                micros(sample.lag),
                bounds.lag.and_then(micros),
                "microseconds",
            ),
        };
        Self { used, bound, unit }
    }
}

/// Returns the work that is shed at a level that a resource has caused, in words.
pub(crate) const fn shed_work(level: Level, resource: Resource) -> &'static str {
    match (level, resource) {
        (Level::Normal, _) => "nothing is shed",
        (Level::Connections, Resource::Memory) => {
            "the connections that hold most memory are closed"
        }
        (Level::Passes, Resource::Memory) => {
            "the connections that hold most memory are closed, and requests that bypass the cache are shed"
        }
        (Level::Connections, _) => "new connections are shed",
        (Level::Passes, _) => "new connections and requests that bypass the cache are shed",
        (Level::Misses, _) => "new connections, requests that bypass the cache and misses are shed",
        (Level::Hits, _) => "all requests are shed",
    }
}

/// The reports of one worker, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Heart {
    /// The time of the last report, in microseconds since the start.
    last_micros: AtomicU64,
    /// The smoothed delay of the event loop.
    lag_micros: AtomicU64,
    thread: AtomicI32,
    activity: AtomicU8,
    /// The most bytes that the connections of one client hold, at the last relief.
    heaviest_client: AtomicU64,
}

/// The last activity of a worker that it has recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// The worker has recorded no activity.
    None,
    Accept,
    /// A request that the fast path did not answer.
    Request,
    /// The sweep of connections.
    Sweep,
}

impl Activity {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Accept => "accepting a connection",
            Self::Request => "serving a request",
            Self::Sweep => "checking the limits of connections",
        }
    }
}

impl Health {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            level: AtomicU8::new(0),
            lacks: AtomicU8::new(0),
            hearts: (0..workers).map(|_| Heart::default()).collect(),
            started: Instant::now(),
            memory_bytes: AtomicU64::new(0),
            descriptors: AtomicU64::new(0),
            lag_micros: AtomicU64::new(0),
            raised: AtomicU64::new(0),
            last_rise: Mutex::default(),
            stuck: AtomicU64::new(0),
            stuck_total: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) fn level(&self) -> Level {
        Level::from_number(self.level.load(Relaxed))
    }

    /// Returns true if work of this class is shed now.
    #[inline]
    pub(crate) fn sheds(&self, work: Work) -> bool {
        let level = self.level.load(Relaxed);
        level != 0 && Level::from_number(level).sheds(work)
    }

    pub(crate) fn lacks_descriptors(&self) -> bool {
        self.lacks(Resource::Descriptors)
    }

    pub(crate) fn lacks_memory(&self) -> bool {
        self.lacks(Resource::Memory)
    }

    /// Returns the work that is shed now, in words.
    pub(crate) fn shed_work(&self) -> &'static str {
        let mut lacked = Resource::ALL.into_iter();
        match lacked.find(|resource| self.lacks(*resource)) {
            Some(resource) => shed_work(self.level(), resource),
            None => shed_work(Level::Normal, Resource::Memory),
        }
    }

    fn lacks(&self, resource: Resource) -> bool {
        self.lacks.load(Relaxed) == resource as u8 + 1
    }

    pub(crate) fn set_level(&self, level: Level, resource: Resource) {
        let is_normal = level == Level::Normal;
        let lacks = if is_normal { 0 } else { resource as u8 + 1 };
        self.lacks.store(lacks, Relaxed);
        self.level.store(level as u8, Relaxed);
    }

    /// Counts a rise of the level, and keeps it.
    pub(crate) fn record_rise(&self, rise: Rise) {
        self.raised.fetch_add(1, Relaxed);
        *lock(&self.last_rise) = Some(rise);
    }

    /// Returns the last rise of the level.
    pub(crate) fn last_rise(&self) -> Option<Rise> {
        *lock(&self.last_rise)
    }

    pub(crate) fn set_sample(&self, sample: &Sample) {
        self.memory_bytes
            .store(sample.memory_bytes.unwrap_or(0), Relaxed);
        self.descriptors
            .store(sample.descriptors.unwrap_or(0), Relaxed);
        self.lag_micros.store(micros(sample.lag), Relaxed);
    }

    /// Returns the last sample of the monitor.
    pub(crate) fn sample(&self) -> Sample {
        let known = |value: &AtomicU64| Some(value.load(Relaxed)).filter(|&value| value > 0);
        Sample {
            memory_bytes: known(&self.memory_bytes),
            descriptors: known(&self.descriptors),
            lag: Duration::from_micros(self.lag_micros.load(Relaxed)),
        }
    }

    /// Returns the time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn heart(&self, worker: usize) -> &Heart {
        &self.hearts[worker]
    }

    pub(crate) fn hearts(&self) -> &[Heart] {
        &self.hearts
    }

    /// Reports for a worker at each [`BEAT`]. Never returns.
    pub(crate) async fn beat(&self, worker: usize) -> std::convert::Infallible {
        let heart = &self.hearts[worker];
        heart.thread.store(current_thread(), Relaxed);
        loop {
            heart.last_micros.store(micros(self.now()), Relaxed);
            let due = tokio::time::Instant::now() + BEAT;
            tokio::time::sleep_until(due).await;
            heart.add_lag(due.elapsed());
        }
    }
}

impl Heart {
    /// Records what the worker begins to do.
    pub(crate) fn set_activity(&self, activity: Activity) {
        self.activity.store(activity as u8, Relaxed);
    }

    pub(crate) fn activity(&self) -> Activity {
        match self.activity.load(Relaxed) {
            1 => Activity::Accept,
            2 => Activity::Request,
            3 => Activity::Sweep,
            _ => Activity::None,
        }
    }

    pub(crate) fn set_heaviest_client(&self, bytes: u64) {
        self.heaviest_client.store(bytes, Relaxed);
    }

    /// Returns the most bytes that the connections of one client held when the worker last freed memory.
    pub(crate) fn heaviest_client(&self) -> u64 {
        self.heaviest_client.load(Relaxed)
    }

    /// Returns the time of the last report.
    pub(crate) fn last(&self) -> Duration {
        Duration::from_micros(self.last_micros.load(Relaxed))
    }

    /// Returns the id of the worker's thread, or 0 before its first report.
    pub(crate) fn thread(&self) -> i32 {
        self.thread.load(Relaxed)
    }

    /// Adds a delay to the moving average, in which the newest value has a weight of a quarter. One slow task is thus
    /// no overload.
    fn add_lag(&self, lag: Duration) {
        let old = self.lag_micros.load(Relaxed);
        // Timers of the runtime have a resolution of a millisecond.
        let new = micros(lag.saturating_sub(Duration::from_millis(1)));
        self.lag_micros.store((3 * old + new) / 4, Relaxed);
    }

    /// Returns the delay of the worker's event loop at `now`. If a report is overdue, its lateness counts a quarter.
    pub(crate) fn lag(&self, now: Duration) -> Duration {
        if self.thread() == 0 {
            return Duration::ZERO; // the worker is starting
        }
        let smoothed = Duration::from_micros(self.lag_micros.load(Relaxed));
        let overdue = now.saturating_sub(self.last()).saturating_sub(BEAT);
        smoothed.max(overdue / 4)
    }
}

/// Returns the id of this thread, or -1 if `/proc` is unavailable.
fn current_thread() -> i32 {
    let link = std::fs::read_link("/proc/thread-self").ok();
    let id = link
        .as_ref()
        .and_then(|link| link.file_name()?.to_str()?.parse().ok());
    id.unwrap_or(-1)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The interval of a worker's reports.
const BEAT: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_task_counts_a_quarter_and_lasting_delay_counts_in_full() {
        let heart = Heart::default();
        heart.thread.store(1, Relaxed);
        heart.last_micros.store(1_000_000, Relaxed);
        let now = Duration::from_secs(1);
        heart.add_lag(Duration::from_millis(401));
        assert_eq!(heart.lag(now), Duration::from_millis(100));
        for _ in 0..30 {
            heart.add_lag(Duration::from_millis(401));
        }
        assert!(heart.lag(now) > Duration::from_millis(399));
        for _ in 0..30 {
            heart.add_lag(Duration::ZERO);
        }
        assert!(heart.lag(now) < Duration::from_millis(1));
        // A report that is overdue by 8 s is worse than any average of earlier reports.
        let later = now + Duration::from_millis(8100);
        assert_eq!(heart.lag(later), Duration::from_secs(2));
    }

    #[test]
    fn only_a_lack_of_descriptors_is_reported_as_one() {
        let health = Health::new(1);
        health.set_level(Level::Passes, Resource::Descriptors);
        assert!(health.lacks_descriptors() && health.sheds(Work::Pass));
        assert!(
            health
                .shed_work()
                .starts_with("new connections and requests")
        );
        assert!(!health.sheds(Work::Miss));
        health.set_level(Level::Passes, Resource::Memory);
        assert!(!health.lacks_descriptors());
        health.set_level(Level::Normal, Resource::Descriptors);
        assert!(!health.lacks_descriptors() && !health.sheds(Work::Connection));
    }
}
