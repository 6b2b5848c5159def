//! Samples the counters each second for the page of the admin server, and sends its viewers what has changed.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use edgeward_httpd::{EventStream, Events};
use edgeward_types::hidden::visible_json;
use serde_json::Value;
use tokio::sync::watch;

use super::causes::{self, CauseSums};
use super::contents;
use super::minutes::Minutes;
use super::snapshot::{Parts, snapshot};
use super::tables::TableSums;
use crate::edge::generations::Generations;
use crate::observe::counters::sum;
use crate::observe::history::{History, Sums};
use crate::path::worker::Shared;
use crate::rt::panics::lock;

/// The samples of the page, and its viewers.
pub(in crate::edge) struct Tracker {
    events: Events,
    /// The time of the start in seconds since 1970.
    started: f64,
    samples: Mutex<Samples>,
}

struct Samples {
    history: History,
    tables: Minutes<TableSums>,
    causes: Minutes<CauseSums>,
    /// The contents of memory, and the time since the start at which they were sampled.
    contents: Option<(Duration, Value)>,
}

impl Tracker {
    pub(in crate::edge) fn new(shared: &Shared) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let uptime = shared.recent.uptime(Instant::now());
        Self {
            events: Events::new(shared.config.admin.event_streams_max),
            started: (since_1970.unwrap_or_default().as_secs_f64() - uptime.as_secs_f64()).max(0.0),
            samples: Mutex::new(Samples {
                history: History::new(),
                tables: Minutes::new(WINDOW_MINUTES),
                causes: Minutes::new(60),
                contents: None,
            }),
        }
    }

    /// Samples the counters each second until the server stops. Renders the events if they have a viewer.
    pub(in crate::edge) async fn run(
        &self,
        generations: &Generations,
        mut stopping: watch::Receiver<bool>,
    ) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = stopping.wait_for(|stop| *stop) => {
                    self.events.end();
                    return;
                }
            }
            self.tick(&generations.shared());
            if self.events.streams() > 0 {
                let json = self.json(generations, false).to_string();
                self.events.publish(&visible_json(&json));
            }
        }
    }

    fn tick(&self, shared: &Shared) {
        let uptime = shared.recent.uptime(Instant::now());
        let tables = TableSums::of(shared);
        let sums = sums(shared, &tables);
        let samples = &mut *lock(&self.samples);
        samples.history.add(uptime, &sums);
        let failed = tables.failed_responses();
        samples.tables.add(uptime, || tables);
        samples.causes.add(uptime, || causes::sums(shared, failed));
    }

    /// Returns all that the page shows. `whole`: with the whole history and with the settings.
    pub(in crate::edge) fn json(&self, generations: &Generations, whole: bool) -> Value {
        let shared = generations.shared();
        let uptime = shared.recent.uptime(Instant::now());
        let now = TableSums::of(&shared);
        let samples = &mut *lock(&self.samples);
        let is_old = |sampled: &(Duration, Value)| uptime - sampled.0 >= CONTENTS_INTERVAL;
        if samples.contents.as_ref().is_none_or(is_old) {
            samples.contents = Some((uptime, contents::sample(&shared)));
        }
        let contents = samples.contents.as_ref().map(|(_, contents)| contents);
        let contents = contents.cloned().unwrap_or_default();
        let (seconds, before) = samples.tables.before(WINDOW_MINUTES, uptime);
        let history = match whole {
            true => samples.history.to_json(self.started),
            false => samples.history.newest(self.started),
        };
        let causes = causes::sums(&shared, now.failed_responses());
        let parts = Parts {
            at: self.started + uptime.as_secs_f64(),
            window_seconds: seconds,
            history,
            sites: now.sites_json(before, seconds),
            origins: now.origins_json(before, seconds, &shared),
            errors: causes::to_json(&causes, &samples.causes, uptime),
            contents,
            viewers: self.events.streams(),
        };
        snapshot(generations, &shared, parts, whole)
    }

    /// Returns the events of a new viewer. `None` if there are too many viewers.
    pub(in crate::edge) fn follow(&self) -> Option<EventStream> {
        self.events.follow()
    }
}

fn sums(shared: &Shared, tables: &TableSums) -> Sums {
    let workers = &shared.counters;
    let disk = shared.cache.disk();
    let devices = disk.iter().flat_map(|disk| disk.cache.counters().devices);
    let mut sums = Sums {
        origin_bytes: sum(workers, |counters| counters.origin_bytes.value()),
        origin_errors: crate::edge::status::origin_errors(shared),
        memory_bytes: shared.cache.hot.stats().used_bytes,
        disk_bytes: devices.map(|device| device.used_bytes).sum(),
        ..Sums::default()
    };
    tables.add_to(&mut sums);
    sums
}

/// The window of the tables of sites and origins.
const WINDOW_MINUTES: usize = 5;

/// The interval of samples of the contents while the page has a viewer. A sample takes about 10 ms.
const CONTENTS_INTERVAL: Duration = Duration::from_secs(10);

const TICK: Duration = Duration::from_secs(1);
