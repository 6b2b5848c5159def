//! LHD: evicts the object with the lowest hit density: expected hits per byte and per unit of time in the cache.
//!
//! The age of an object is the number of requests since its last request, coarsened to 20,000 values. Its class depends
//! on the sum of its ages at the last two hits: half the sum gives the next higher class. For each class and age, the
//! order counts hits and evictions. A reconfiguration computes the hit densities from these counts. The density at age
//! `a` is the share of objects hit later, among those that reach `a`, divided by their mean time from `a` until the hit
//! or the eviction.
//!
//! An eviction compares random objects. The published code rejects no object. Therefore an eviction also compares the
//! last eight admitted objects whose density was below the mean density of victims. Explorers are objects drawn at
//! random; they may take about one percent of the capacity. They are kept until the last age, so that hits at high ages
//! are counted.
//!
//! Source: Beckmann, Chen and Cidon, "LHD: Improving Cache Hit Rate by Maximizing Hit Density", NSDI 2018, with the
//! parameters of the published code. Left out: classes of applications, and concurrent counters. A reconfiguration
//! occurs every 2^20 requests. Before the first one, the density is a constant of the class divided by the age.
//!
//! Cost: O(1), with 8 or 32 random reads per eviction. A reconfiguration computes 320,000 densities. Memory: 32 bytes
//! per object for the order, and 3.8 MB of tables.

use edgeward_types::Seed;

use super::links::Index;
use super::order::{HitLog, Hits, ListOrder};
use super::residents::Residents;
use crate::object::Object;
use crate::rng::Rng;

/// Evicts the object with the lowest hit density among random objects.
#[derive(Debug)]
pub struct Lhd {
    parameters: Parameters,
    residents: Residents,
    rng: Rng,
    states: Vec<State>,
    classes: Vec<Class>,
    /// The number of hits and admissions so far.
    now: u64,
    /// An age is a number of requests, shifted right by this number of bits.
    age_shift: u32,
    /// The number of reconfigurations so far.
    reconfigurations: u32,
    /// The weighted sum of the numbers of residents at reconfigurations, and the sum of the weights.
    mean_residents: (f64, f64),
    /// The last admitted objects of low density, or `NO_INDEX`.
    recent: [Index; RECENT],
    next_recent: usize,
    /// The mean density of the victims, with decaying weights.
    victim_density: f64,
    /// The bytes that further explorers may take. Negative if the last explorer was larger than the rest.
    explorer_bytes_left: i64,
    capacity_bytes: u64,
}

/// The parameters of LHD. The defaults are those of the published code; tests use others.
#[derive(Clone, Copy, Debug)]
struct Parameters {
    /// The number of requests between two reconfigurations.
    reconfiguration_requests: u64,
    /// The number of ages. An object of the last age is evicted before all others.
    ages: usize,
    /// The number of random objects that an eviction compares: at first, and later (`SAMPLES_RISE_AFTER`).
    samples: [usize; 2],
    /// On average, one request in this number draws its object as an explorer.
    requests_per_explorer: u64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            reconfiguration_requests: 1 << 20,
            ages: 20_000,
            samples: [8, 32],
            requests_per_explorer: 32,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    last_request: u64,
    size_bytes: u64,
    /// The ages at the last hit and at the hit before it.
    hit_ages: [u16; 2],
    is_explorer: bool,
}

const _: () = assert!(size_of::<State>() == 24);

impl ListOrder for Lhd {
    const HITS: Hits = Hits::InOrder;

    fn new(capacity_bytes: u64, seed: Seed) -> Self {
        Self::with_parameters(Parameters::default(), capacity_bytes, seed)
    }

    fn enter(&mut self, index: Index, object: &Object) {
        let at = index as usize;
        if at >= self.states.len() {
            self.states.resize(at + 1, State::default());
        }
        self.states[at] = State {
            last_request: self.now,
            size_bytes: object.size_bytes.max(1),
            // These ages give class 0, which has the objects with the highest ages at their hits.
            hit_ages: [0, self.parameters.ages as u16],
            is_explorer: false,
        };
        self.residents.insert(index);
        let is_explorer = self.decide_explorer(index);
        if !is_explorer && self.density(index) < self.victim_density {
            self.recent[self.next_recent] = index;
            self.next_recent = (self.next_recent + 1) % RECENT;
        }
        self.advance();
    }

    fn hit(&mut self, index: Index) {
        let age = self.age(index);
        let class = self.class(index);
        self.classes[class].hits[age] += 1.0;
        self.end_exploration(index);
        let state = &mut self.states[index as usize];
        state.hit_ages = [age as u16, state.hit_ages[0]];
        state.last_request = self.now;
        self.decide_explorer(index);
        self.advance();
    }

    fn victim(&mut self, _incoming: Option<&Object>, _hits: &HitLog<Self>) -> Option<Index> {
        let is_late = self.reconfigurations > SAMPLES_RISE_AFTER;
        let samples = self.parameters.samples[usize::from(is_late)];
        let mut rng = self.rng.clone();
        let recent = self
            .recent
            .iter()
            .copied()
            .filter(|&index| index != NO_INDEX);
        let sample = self.residents.sample(samples, &mut rng).chain(recent);
        let victim = sample.min_by(|&a, &b| self.density(a).total_cmp(&self.density(b)));
        self.rng = rng;
        victim
    }

    fn evict(&mut self, index: Index, _object: &Object) {
        let density = self.density(index).max(0.0);
        self.victim_density = DECAY * self.victim_density + (1.0 - DECAY) * density;
        let (class, age) = (self.class(index), self.age(index));
        self.classes[class].evictions[age] += 1.0;
        self.remove(index);
    }

    fn remove(&mut self, index: Index) {
        self.end_exploration(index);
        self.residents.remove(index);
        for recent in &mut self.recent {
            if *recent == index {
                *recent = NO_INDEX;
            }
        }
    }

    fn resize(&mut self, capacity_bytes: u64) {
        self.explorer_bytes_left +=
            explorer_bytes(capacity_bytes) - explorer_bytes(self.capacity_bytes);
        self.capacity_bytes = capacity_bytes;
    }

    fn bookkeeping_bytes(&self) -> usize {
        self.states.len() * size_of::<State>()
            + self.residents.bookkeeping_bytes()
            + CLASSES * self.parameters.ages * 3 * size_of::<f32>()
    }
}

impl Lhd {
    fn with_parameters(parameters: Parameters, capacity_bytes: u64, seed: Seed) -> Self {
        Self {
            parameters,
            residents: Residents::default(),
            rng: Rng::new(seed, DRAWS_STREAM),
            states: Vec::new(),
            classes: (0..CLASSES)
                .map(|class| Class::new(class, parameters.ages))
                .collect(),
            now: 0,
            age_shift: FIRST_AGE_SHIFT,
            reconfigurations: 0,
            mean_residents: (0.0, 0.0),
            recent: [NO_INDEX; RECENT],
            next_recent: 0,
            victim_density: 0.0,
            explorer_bytes_left: explorer_bytes(capacity_bytes),
            capacity_bytes,
        }
    }

    /// The coarsened age of an object.
    fn age(&self, index: Index) -> usize {
        let requests = self.now - self.states[index as usize].last_request;
        let age_max = self.parameters.ages - 1;
        usize::try_from(requests >> self.age_shift).map_or(age_max, |age| age.min(age_max))
    }

    /// Returns the class of an object. Higher classes have lower sums of the ages at the last two hits.
    fn class(&self, index: Index) -> usize {
        let ages = self.states[index as usize].hit_ages;
        let mut sum = u32::from(ages[0]) + u32::from(ages[1]);
        if sum == 0 {
            return CLASSES - 1;
        }
        let mut class = 0;
        while (sum as usize) < self.parameters.ages && class < CLASSES - 1 {
            sum *= 2;
            class += 1;
        }
        class
    }

    /// Returns the hit density per byte. It is negative at the last age, and at least 1 for other explorers.
    fn density(&self, index: Index) -> f64 {
        let state = &self.states[index as usize];
        let age = self.age(index);
        if age == self.parameters.ages - 1 {
            return -1.0;
        }
        let density = f64::from(self.classes[self.class(index)].densities[age]);
        density / state.size_bytes as f64 + f64::from(u8::from(state.is_explorer))
    }

    /// Draws at random whether an object becomes an explorer after its request. Returns true if the object is drawn.
    ///
    /// As in the published code, the result is also true for a drawn object that does not become an explorer, because
    /// no bytes are left or exploration has ended.
    fn decide_explorer(&mut self, index: Index) -> bool {
        let is_drawn = self
            .rng
            .bits()
            .is_multiple_of(self.parameters.requests_per_explorer);
        let may_explore =
            self.explorer_bytes_left > 0 && self.reconfigurations < EXPLORATION_ENDS_AFTER;
        if is_drawn && may_explore {
            let state = &mut self.states[index as usize];
            state.is_explorer = true;
            self.explorer_bytes_left -= state.size_bytes as i64;
        }
        is_drawn
    }

    /// Ends the exploration of an object, if it is an explorer, and returns its bytes to the other explorers.
    fn end_exploration(&mut self, index: Index) {
        let state = &mut self.states[index as usize];
        if std::mem::take(&mut state.is_explorer) {
            self.explorer_bytes_left += state.size_bytes as i64;
        }
    }

    /// Counts a hit or an admission. Every `reconfiguration_requests` of them, adapts ages and computes the densities.
    fn advance(&mut self) {
        self.now += 1;
        if self
            .now
            .is_multiple_of(self.parameters.reconfiguration_requests)
        {
            self.classes.iter_mut().for_each(Class::decay);
            self.adapt_age_shift();
            self.classes.iter_mut().for_each(Class::model);
            self.reconfigurations += 1;
        }
    }

    /// Sets `age_shift` for the mean number of residents and converts the counts to the new ages, approximately.
    ///
    /// As in the published code, an age is at least `residents / (AGE_ERROR * ages)` requests, rounded up to a power of
    /// two. With the default parameters, this is a two-hundredth of the number of residents.
    fn adapt_age_shift(&mut self) {
        let (sum, weight) = &mut self.mean_residents;
        *sum = *sum * DECAY + self.residents.len() as f64;
        *weight = *weight * DECAY + 1.0;
        if !ADAPTATIONS_AT.contains(&self.reconfigurations) {
            return;
        }
        let wanted = *sum / *weight / (AGE_ERROR * self.parameters.ages as f64);
        let shift = (wanted.max(1.0).log2().ceil() as u32).max(1);
        for class in &mut self.classes {
            rescale(&mut class.hits, self.age_shift, shift);
            rescale(&mut class.evictions, self.age_shift, shift);
        }
        // As in the published code, the `hit_ages` of residents are not converted to the new unit.
        self.age_shift = shift;
    }
}

/// The counts and densities of one class by age.
#[derive(Debug)]
struct Class {
    hits: Box<[f32]>,
    evictions: Box<[f32]>,
    densities: Box<[f32]>,
}

impl Class {
    /// Makes a class without counts. Its first density falls with the age and rises with the class, because objects of
    /// higher classes had hits at lower ages.
    ///
    /// The published code numbers the classes of all applications together. In libCacheSim, the numbers of the only
    /// application begin at 17. With numbers from 1, the object hit ratio on short traces is up to 2 points higher.
    fn new(class: usize, ages: usize) -> Self {
        let density = |age: usize| (FIRST_CLASS_NUMBER + class) as f32 / (age + 1) as f32;
        Self {
            hits: vec![0.0; ages].into(),
            evictions: vec![0.0; ages].into(),
            densities: (0..ages).map(density).collect(),
        }
    }

    /// Reduces the weight of the counts so far.
    fn decay(&mut self) {
        let counts = self.hits.iter_mut().chain(&mut self.evictions);
        counts.for_each(|count| *count *= DECAY as f32);
    }

    /// Computes the densities. The density at age `a` is the number of hits at age `a` and above, divided by a time.
    /// This time is the sum, over all objects that reach `a`, of the times from `a` to their hit or eviction.
    fn model(&mut self) {
        let (mut hits, mut events, mut time) = (0.0, 0.0, 0.0);
        for age in (0..self.densities.len()).rev() {
            hits += f64::from(self.hits[age]);
            events += f64::from(self.hits[age]) + f64::from(self.evictions[age]);
            time += events;
            self.densities[age] = match events > EVENTS_MIN {
                true => (hits / time) as f32,
                false => 0.0,
            };
        }
    }
}

/// Converts `counts` from ages of `old_shift` to ages of `new_shift`. Counts of the last age stay there.
fn rescale(counts: &mut [f32], old_shift: u32, new_shift: u32) {
    let last = counts.len() - 1;
    let old: Vec<f32> = counts[..last].to_vec();
    counts[..last].fill(0.0);
    for (age, count) in old.into_iter().enumerate() {
        match new_shift.checked_sub(old_shift) {
            Some(coarser) => counts[age >> coarser] += count,
            None => {
                let parts = 1usize << (old_shift - new_shift);
                for age in age * parts..(age + 1) * parts {
                    counts[age.min(last)] += count / parts as f32;
                }
            }
        }
    }
}

/// Returns the bytes that explorers may take: one percent of the capacity.
fn explorer_bytes(capacity_bytes: u64) -> i64 {
    i64::try_from(capacity_bytes / 100).unwrap_or(i64::MAX)
}

const CLASSES: usize = 16;

/// The number of class 0 in the first densities; see `Class::new`.
const FIRST_CLASS_NUMBER: usize = 17;

/// The factor by which the weight of earlier counts and values falls at each step.
const DECAY: f64 = 0.9;

/// The density is zero if at most this weight of hits and evictions was counted.
const EVENTS_MIN: f64 = 1e-5;

/// Evictions compare more random objects after more than this number of reconfigurations.
const SAMPLES_RISE_AFTER: u32 = 50;

/// The number of reconfigurations after which no further object becomes an explorer.
const EXPLORATION_ENDS_AFTER: u32 = 50;

/// The number of admitted objects that each eviction compares beside the samples.
const RECENT: usize = 8;

/// The `age_shift` until the first adaptation.
const FIRST_AGE_SHIFT: u32 = 10;

/// The parameter of the coarsening of ages; see `Lhd::adapt_age_shift`.
const AGE_ERROR: f64 = 0.01;

/// The next reconfiguration after each of these numbers of reconfigurations adapts the coarsening of ages.
const ADAPTATIONS_AT: [u32; 2] = [5, 25];

const NO_INDEX: Index = Index::MAX;

/// The stream of random numbers for draws and samples; the admission rule uses stream 0.
const DRAWS_STREAM: u64 = 1;

#[cfg(test)]
mod tests;
