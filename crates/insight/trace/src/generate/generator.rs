//! The generator: chooses the object and the time of each request.
//!
//! Each object belongs to a class, which determines sizes and popularity. The catalogue has the objects that get two
//! requests or more, by class and popularity rank. A *birth* puts a new object at a rank, in place of the previous one.
//! All other objects are one-hit wonders.

use edgeward_types::{Seed, Timestamp};

use crate::Record;

use super::catalogue::{Catalogue, Request};
use super::random::Random;
use super::workload::{Workload, WorkloadError};
use super::zipf::Zipf;

/// Yields exactly [`Workload::requests`] records.
///
/// Keys are numbers from 0, in the order of first requests. The generator takes about 32 bytes of memory per
/// object of the catalogue, and no memory for one-hit wonders.
pub struct Generator {
    workload: Workload,
    random: Random,
    catalogue: Catalogue,
    /// For each class, the distribution of its requests over its ranks. `None` for a class without objects.
    zipfs: Vec<Option<Zipf>>,
    /// The index of the current phase: a part of the trace with its own weights of the classes.
    phase: usize,
    /// Running totals of the weights of the classes in the current phase.
    mix: Vec<f64>,
    /// Like `mix`, but the weight of a class without objects in the catalogue is 0.
    catalogue_mix: Vec<f64>,
    /// The number of the first request of the next phase.
    phase_ends: u64,
    /// The number of requests returned so far.
    requests_made: u64,
    /// The number of one-hit wonders that are not requested yet.
    one_hits_left: u64,
    /// The number of objects that must still replace an object of the catalogue: see [`Workload::churn`].
    births_left: u64,
    next_key: u64,
    now_secs: f64,
}

impl Generator {
    /// Checks the workload and creates its catalogue.
    ///
    /// # Errors
    ///
    /// Fails if the workload is inconsistent.
    pub fn new(workload: Workload, seed: Seed) -> Result<Self, WorkloadError> {
        workload.check()?;
        let one_hits_left = workload.one_hit_objects();
        let catalogue = Catalogue::new(
            &workload.classes,
            workload.objects - one_hits_left,
            workload.churn,
        );
        let zipfs = workload
            .classes
            .iter()
            .zip(catalogue.rows())
            .map(|(class, row)| {
                (row.ranks > 0).then(|| Zipf::new(u64::from(row.ranks), class.zipf_exponent))
            })
            .collect();
        let mut generator = Self {
            random: Random::new(seed),
            births_left: catalogue.births_left(),
            catalogue,
            zipfs,
            phase: 0,
            mix: Vec::new(),
            catalogue_mix: Vec::new(),
            phase_ends: 0,
            requests_made: 0,
            one_hits_left,
            next_key: 0,
            now_secs: 0.0,
            workload,
        };
        generator.enter_phase(0);
        Ok(generator)
    }

    fn enter_phase(&mut self, phase: usize) {
        self.phase = phase;
        let weights = &self.workload.phases[phase].weights;
        self.mix = running_total(weights.iter().copied());
        let with_catalogue = |even: bool| {
            running_total(weights.iter().zip(&self.zipfs).map(|(weight, zipf)| {
                let weight = if even { 1.0 } else { *weight };
                if zipf.is_some() { weight } else { 0.0 }
            }))
        };
        // In a tiny catalogue, all classes with a weight in this phase may be without objects. The other
        // classes then get equal weights.
        self.catalogue_mix = with_catalogue(false);
        if self.catalogue_mix.last() == Some(&0.0) {
            self.catalogue_mix = with_catalogue(true);
        }
        self.phase_ends = self
            .workload
            .phases
            .get(phase + 1)
            .map_or(u64::MAX, |next| {
                (next.from * self.workload.requests as f64) as u64
            });
    }

    /// Chooses a one-hit wonder or an object of the catalogue, and returns its key and size. Without scans, selection
    /// sampling spreads the one-hit wonders evenly over the trace. Their number is exact.
    fn choose(&mut self) -> (u64, u64) {
        let requests_left = self.workload.requests - self.requests_made;
        let one_hit = if self.workload.scans == 0 {
            self.random.below(requests_left) < self.one_hits_left
        } else {
            self.is_scanned() || self.one_hits_left == requests_left
        };
        if one_hit {
            self.one_hits_left -= 1;
            let class = pick(&self.mix, &mut self.random);
            return self.create_object(class);
        }
        match self.request_from_catalogue(requests_left - self.one_hits_left) {
            Request::Existing { key, size } => (key, size),
            Request::New { class, slot } => {
                let (key, size) = self.create_object(class);
                self.catalogue.insert(slot, key, size);
                (key, size)
            }
        }
    }

    /// Returns true if the next request belongs to a scan. The trace has one interval for each scan, and the scan is at
    /// its end, when the cache is full of popular objects.
    fn is_scanned(&self) -> bool {
        let scans = u64::from(self.workload.scans);
        let interval = (self.workload.requests / scans).max(1);
        let scanned = self.workload.one_hit_objects() / scans;
        self.one_hits_left > 0 && self.requests_made % interval >= interval.saturating_sub(scanned)
    }

    /// Returns the slot that has a popularity rank at present. Each part of a recurring day moves the ranks to other
    /// slots of the class.
    fn slot_of_rank(&self, rank: u64, ranks: u64) -> u64 {
        let parts = f64::from(self.workload.recurring_days) * f64::from(DAY_PARTS);
        let part = self.requests_made as f64 / self.workload.requests as f64 * parts;
        let part = part as u64 % u64::from(DAY_PARTS);
        (rank + part * ranks / u64::from(DAY_PARTS)) % ranks
    }

    /// Chooses a request for an object of the catalogue. `left` is the number of remaining requests for the
    /// catalogue, including this one.
    fn request_from_catalogue(&mut self, left: u64) -> Request {
        // Each object of the catalogue gets at least two requests. The missing ones of these are pending. A pending
        // request is chosen with a low probability while many requests remain, so that popularity is hardly
        // distorted. The probability is 1 when the number of remaining requests equals the number of pending ones.
        let pressure = self.catalogue.pending() as f64 / left as f64;
        if self.catalogue.pending() >= left || self.random.unit() < pressure * pressure {
            let request = self.catalogue.request_pending(&mut self.random);
            self.births_left = self.catalogue.births_left();
            return request;
        }
        if self.births_left > 0 && self.random.below(left) < self.births_left {
            let class = self.class_of_birth();
            let ranks = u64::from(self.catalogue.rows()[class].ranks);
            // The square prefers popular ranks: new objects are often popular.
            let u = self.random.unit();
            let rank = ((u * u * ranks as f64) as u64).min(ranks - 1);
            let slot = self.slot_of_rank(rank, ranks);
            let request = self.catalogue.request_new(class, slot);
            self.births_left = self.catalogue.births_left();
            return request;
        }
        let class = pick(&self.catalogue_mix, &mut self.random);
        let zipf = self.zipfs[class]
            .as_ref()
            .expect("classes without a catalogue have no weight");
        let rank = zipf.draw(&mut self.random);
        let ranks = u64::from(self.catalogue.rows()[class].ranks);
        let slot = self.slot_of_rank(rank, ranks);
        self.catalogue.request(class, slot)
    }

    /// Draws a class by weight and returns it if it has births left. Otherwise returns the first class with
    /// births left.
    fn class_of_birth(&mut self) -> usize {
        let class = pick(&self.catalogue_mix, &mut self.random);
        let rows = self.catalogue.rows();
        if rows[class].births > 0 {
            return class;
        }
        rows.iter()
            .position(|row| row.births > 0)
            .expect("the caller checked that births are left")
    }

    fn create_object(&mut self, class: usize) -> (u64, u64) {
        let key = self.next_key;
        self.next_key += 1;
        let size = self.workload.classes[class].sizes.draw(&mut self.random);
        (key, size)
    }

    /// Advances to the next Poisson arrival at the rate of the time of day.
    fn advance_time(&mut self) -> Timestamp {
        let day = self.now_secs / DAY_SECS;
        let swing = 1.0 + self.workload.diurnal * daily_deviation(day - (day as u64) as f64);
        // With a diurnal swing of 1 the rate would be 0 at night; the minimum is a hundredth of the average.
        let rate = self.workload.requests_per_second * swing.max(0.01);
        self.now_secs += self.random.exponential() / rate;
        Timestamp::from_millis((self.now_secs * 1000.0) as u64)
    }
}

impl Iterator for Generator {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.requests_made == self.workload.requests {
            return None;
        }
        while self.requests_made >= self.phase_ends {
            self.enter_phase(self.phase + 1);
        }
        let time = self.advance_time();
        let (key, size) = self.choose();
        self.requests_made += 1;
        Some(Record { time, key, size })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left =
            usize::try_from(self.workload.requests - self.requests_made).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

impl std::fmt::Debug for Generator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generator")
            .field("workload", &self.workload)
            .field("requests_made", &self.requests_made)
            .finish_non_exhaustive()
    }
}

fn running_total(weights: impl Iterator<Item = f64>) -> Vec<f64> {
    weights
        .scan(0.0, |total, weight| {
            *total += weight;
            Some(*total)
        })
        .collect()
}

/// Draws an index by weight. Linear search is fastest for so few classes.
#[inline]
fn pick(totals: &[f64], random: &mut Random) -> usize {
    let whole = *totals.last().expect("a workload has classes");
    let at = random.unit() * whole;
    totals
        .iter()
        .position(|total| at < *total)
        .expect("the last total is the sum of all weights")
}

/// Returns the relative deviation of the request rate at a time of day (0 to 1). The result is between -1 and 1
/// and has mean 0: two parabolas that approximate a sine.
fn daily_deviation(day: f64) -> f64 {
    if day < 0.5 {
        16.0 * day * (0.5 - day)
    } else {
        -16.0 * (day - 0.5) * (1.0 - day)
    }
}

const DAY_SECS: f64 = 86_400.0;

/// The parts of a recurring day, such as morning and evening.
const DAY_PARTS: u32 = 4;
