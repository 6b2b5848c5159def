//! The thread that passes samples of finished requests to the watcher.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::generation::random;
use super::generations::Generations;
use crate::config::watch::{FinishedRequest, Progress, Watcher};
use crate::observe::watch::{SampleSwitch, WatchCounters, WatchQueue, WatchRing};
use crate::path::worker::Shared;
use crate::rt::background::Background;

/// The rings of all workers, before the thread runs.
pub(super) struct Watching {
    watcher: Arc<dyn Watcher>,
    switch: Arc<SampleSwitch>,
    rings: Vec<WatchRing>,
}

impl Watching {
    /// Returns the rings, and a queue for each worker.
    pub(super) fn new(watcher: &Arc<dyn Watcher>, workers: usize) -> (Self, Vec<WatchQueue>) {
        let switch = Arc::new(SampleSwitch::default());
        switch.set(watcher.samples());
        let (queues, rings) = (0..workers)
            .map(|_| WatchQueue::new(&switch, random()))
            .unzip();
        let watching = Self {
            watcher: Arc::clone(watcher),
            switch,
            rings,
        };
        (watching, queues)
    }

    /// Starts the thread. Dropping the value drains the rings a last time.
    pub(super) fn start(mut self, generations: &Arc<Generations>) -> io::Result<Background> {
        let generations = Arc::clone(generations);
        let mut batch = Vec::new();
        Background::start("edgeward-insight", INTERVAL, move || {
            self.pass_on(&generations.shared(), &mut batch);
        })
    }

    fn pass_on(&mut self, shared: &Shared, batch: &mut Vec<FinishedRequest>) {
        batch.clear();
        for ring in &mut self.rings {
            ring.drain(batch);
        }
        batch.sort_by_key(|seen| seen.at);
        let progress = progress(shared, self.rings.iter().map(|ring| &*ring.counters));
        self.watcher.observe(batch, &progress);
        self.switch.set(self.watcher.samples());
    }
}

fn progress<'c>(
    shared: &Shared,
    counters: impl Iterator<Item = &'c WatchCounters> + Clone,
) -> Progress {
    let stats = shared.cache.hot.stats();
    Progress {
        at: shared.clock.now(),
        of_objects: counters.clone().map(WatchCounters::of_objects).sum(),
        others: counters.clone().map(WatchCounters::others).sum(),
        lost: counters.map(WatchCounters::lost).sum(),
        policy: stats.policy.to_string(),
        hot_capacity_bytes: stats.capacity_bytes,
    }
}

/// The interval at which the rings are drained. A ring has room for the samples of this time.
const INTERVAL: Duration = Duration::from_millis(100);
