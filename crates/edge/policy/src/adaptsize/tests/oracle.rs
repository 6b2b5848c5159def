//! Slow and simple implementations: the Markov chain of figure 8 and Theorem 1 of the AdaptSize paper, and a cache that
//! is a list.

use std::collections::BTreeMap;

use edgeward_types::Seed;

use crate::rng::Rng;

/// Returns the long-run probability of being resident, from the chain of figure 8 with `positions` list
/// positions.
///
/// `rate` is the paper's `r`, `admitted` is the admission probability `p`, and `lifetime` is `T`. State 0 is not
/// resident; states 1 to `positions` are list positions. A request moves the object to the head at rate `r` (from
/// state 0 at `r p`). Requests for other objects push it down one position at rate `positions / T`, as in appendix A.
/// The chain is discretised with steps short enough for one event and iterated until it converges.
pub(super) fn figure_8(rate: f64, admitted: f64, lifetime: f64, positions: usize) -> f64 {
    let push = positions as f64 / lifetime;
    let step = 1.0 / (rate + push);
    let mut now = vec![0.0; positions + 1];
    now[0] = 1.0;
    for _ in 0..2_000_000 {
        let mut next = vec![0.0; positions + 1];
        for (state, &here) in now.iter().enumerate() {
            if state == 0 {
                let enters = rate * admitted * step;
                next[1] += here * enters;
                next[0] += here * (1.0 - enters);
            } else {
                next[1] += here * rate * step;
                let pushed_to = if state == positions { 0 } else { state + 1 };
                next[pushed_to] += here * push * step;
            }
        }
        let change: f64 = now.iter().zip(&next).map(|(a, b)| (a - b).abs()).sum();
        now = next;
        if change < 1e-13 {
            break;
        }
    }
    1.0 - now[0]
}

/// One object of the oracle.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelObject {
    /// Requests per unit of time. The unit is that of the lifetime, for example a window.
    pub(super) rate: f64,
    /// The size in bytes.
    pub(super) size: f64,
}

/// Returns the probability that the object is resident: Theorem 1 as printed, by odds. If `e^(rT)` is too large for a
/// float, the probability is 1.
fn theorem_1(object: ModelObject, c: f64, lifetime: f64) -> f64 {
    let odds = ((object.rate * lifetime).exp() - 1.0) * (-object.size / c).exp();
    if odds.is_infinite() {
        1.0
    } else {
        odds / (1.0 + odds)
    }
}

/// Solves the paper's equation (1), by which the resident bytes equal the capacity, for the lifetime `T` by seventy
/// bisections of log2 T. Returns the hit ratio.
pub(super) fn hit_ratio(objects: &[ModelObject], c: f64, capacity: f64) -> f64 {
    let fitting: Vec<ModelObject> = objects
        .iter()
        .copied()
        .filter(|object| object.size <= capacity)
        .collect();
    let resident_bytes = |lifetime: f64| -> f64 {
        fitting
            .iter()
            .map(|&object| theorem_1(object, c, lifetime) * object.size)
            .sum()
    };
    let (mut low, mut high) = (-40.0_f64, 40.0_f64);
    for _ in 0..70 {
        let middle = 0.5 * (low + high);
        if resident_bytes(middle.exp2()) < capacity {
            low = middle;
        } else {
            high = middle;
        }
    }
    let hits: f64 = fitting
        .iter()
        .map(|&object| object.rate * theorem_1(object, c, low.exp2()))
        .sum();
    hits / objects.iter().map(|object| object.rate).sum::<f64>()
}

/// Chooses `c` like the tuner with the paper's model (`Mode::Paper`), by trying twenty values of `c` per octave.
///
/// `windows` are lists of (key, size). Rates are smoothed with the default weight of 0.3 for earlier windows. A value
/// of `c` is a candidate if it admits `capacity` bytes within `fill_windows_max` windows. Returns the best predicted
/// hit ratio and its `c`.
pub(super) fn best_c(
    windows: &[Vec<(u64, u64)>],
    capacity: f64,
    c_min: f64,
    fill_windows_max: f64,
) -> (f64, f64) {
    let mut rates: BTreeMap<u64, (f64, u64)> = BTreeMap::new();
    for window in windows {
        let mut counts: BTreeMap<u64, (u32, u64)> = BTreeMap::new();
        for &(key, size) in window {
            let entry = counts.entry(key).or_insert((0, size));
            entry.0 += 1;
            entry.1 = size;
        }
        for (rate, _) in rates.values_mut() {
            *rate *= 0.3;
        }
        for (key, (count, size)) in counts {
            let entry = rates.entry(key).or_insert((0.0, size));
            entry.0 += 0.7 * f64::from(count);
            entry.1 = size;
        }
        // The tuner forgets these objects, too.
        rates.retain(|_, (rate, _)| *rate >= 0.1);
    }
    let objects: Vec<ModelObject> = rates
        .values()
        .map(|&(rate, size)| ModelObject {
            rate,
            size: size as f64,
        })
        .collect();
    let octaves = (capacity / c_min).log2();
    let mut best = (hit_ratio(&objects, f64::INFINITY, capacity), f64::INFINITY);
    for step in 0..=(octaves * 20.0) as u32 {
        let c = c_min * (f64::from(step) / 20.0).exp2();
        let filled: f64 = objects
            .iter()
            .filter(|object| object.size <= capacity)
            .map(|object| object.rate * object.size * (-object.size / c).exp())
            .sum();
        if capacity / filled <= fill_windows_max {
            let ratio = hit_ratio(&objects, c, capacity);
            if ratio > best.0 {
                best = (ratio, c);
            }
        }
    }
    best
}

/// LRU with admission `e^(-s/c)` as a list in order of use.
pub(super) struct ListCache {
    capacity: u64,
    c: f64,
    used: u64,
    /// The key and size of each object, the least recently used first.
    order: Vec<(u64, u64)>,
    rng: Rng,
}

impl ListCache {
    pub(super) fn new(capacity: u64, c: f64, seed: Seed) -> Self {
        Self {
            capacity,
            c,
            used: 0,
            order: Vec::new(),
            rng: Rng::new(seed, 99),
        }
    }

    pub(super) fn holds(&self, key: u64) -> bool {
        self.order.iter().any(|&(resident, _)| resident == key)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = u64> {
        self.order.iter().map(|&(key, _)| key)
    }

    pub(super) fn admit_by(&mut self, c: f64) {
        self.c = c;
    }

    pub(super) fn bytes(&self) -> u64 {
        self.used
    }

    /// Returns true for a hit.
    pub(super) fn request(&mut self, key: u64, size: u64) -> bool {
        if let Some(at) = self
            .order
            .iter()
            .rposition(|&(resident, _)| resident == key)
        {
            let entry = self.order.remove(at);
            self.order.push(entry);
            return true;
        }
        if size <= self.capacity && self.rng.unit() < (-(size as f64) / self.c).exp() {
            self.order.push((key, size));
            self.used += size;
            let mut evicted = 0;
            while self.used > self.capacity {
                self.used -= self.order[evicted].1;
                evicted += 1;
            }
            self.order.drain(..evicted);
        }
        false
    }
}

/// Independent requests (key, size) with Zipf popularity of exponent 0.9. Sizes are log-uniform over `octaves`
/// from 1000 bytes, fixed per key.
pub(super) fn zipf_requests(
    objects: u64,
    requests: usize,
    octaves: f64,
    seed: Seed,
) -> Vec<(u64, u64)> {
    let mut rng = Rng::new(seed, 7);
    let sizes: Vec<u64> = (0..objects)
        .map(|_| (1000.0 * (octaves * rng.unit()).exp2()) as u64)
        .collect();
    let mut cumulated: Vec<f64> = (1..=objects)
        .scan(0.0, |sum, rank| {
            *sum += (rank as f64).powf(-0.9);
            Some(*sum)
        })
        .collect();
    let total = *cumulated.last().expect("there are objects");
    cumulated.iter_mut().for_each(|sum| *sum /= total);
    (0..requests)
        .map(|_| {
            let u = rng.unit();
            let key = cumulated
                .partition_point(|&sum| sum < u)
                .min(objects as usize - 1);
            (key as u64, sizes[key])
        })
        .collect()
}
