//! Learns from the traffic how many hits an object brings for each offer during which it is resident. An offer is a
//! miss whose object is offered to the tier. Time is counted in offers.
//!
//! Objects of one *class* have similar request counts and similar gaps between their last two requests. The age of an
//! object is the time since its last request; an age bin is a range of ages. A *cell* is a class and an age bin.
//!
//! Each cell has two sums. `hits` counts the requests of objects in the cell, and `exposure` estimates the time that
//! objects spent in the cell, in objects × offers. Their quotient is the cell's hazard: the probability that an object
//! is requested during the next offer. Both sums cover resident objects and ghosts. Without the ghosts, a class whose
//! objects are always evicted would never be measured again.
//!
//! Both sums multiply the contribution of an object by the benefit of a hit on it. A hazard is thus a weighted mean, in
//! which objects with a high benefit count more. All weights are 1 for the objective `requests`.
//!
//! The *density* of a cell is the expected number of hits per offer of residence, if the object stays until its next
//! request or until a horizon `T`, whichever comes first:
//!
//! ```text
//! density = Σ S·(1 − e^(−h·d)) / Σ S·(1 − e^(−h·d))/h
//! ```
//!
//! The sums run over the age bins from the object's bin to `T`; `h` is the hazard of a bin, `d` its width in offers,
//! and `S` the probability that the object reaches the bin without a request.

use super::history::{BINS, CELLS, COUNT_CLASSES, bin_width};

/// The sums of all cells and the densities computed from them.
#[derive(Debug)]
pub(super) struct Learner {
    hits: Box<[f64]>,
    exposure: Box<[f64]>,
    densities: Box<[f32]>,
    offers: u64,
    /// The number of offers at which the densities are computed again.
    update_at: u64,
    /// The hits since the last update.
    new_hits: u64,
    /// The number of new hits at which the densities are computed again.
    update_hits: u64,
    /// Decayed sums of the offered objects and their bytes, for the mean size.
    offered_objects: f64,
    offered_bytes: f64,
    /// Decayed sums of the recorded requests and their weights, for the mean weight.
    requests: f64,
    request_weights: f64,
}

impl Learner {
    pub(super) fn new() -> Self {
        let mut learner = Self {
            hits: vec![0.0; CELLS].into_boxed_slice(),
            exposure: vec![0.0; CELLS].into_boxed_slice(),
            densities: vec![0.0; CELLS].into_boxed_slice(),
            offers: 0,
            update_at: UPDATE_OFFERS_MIN,
            new_hits: 0,
            update_hits: UPDATE_HITS_MIN,
            offered_objects: 0.0,
            offered_bytes: 0.0,
            requests: 0.0,
            request_weights: 0.0,
        };
        learner.compute_densities(HORIZON_OFFERS_MIN);
        learner
    }

    /// Records a request of an object that was in this cell. `weight` is the benefit of a hit on the object.
    pub(super) fn record_hit(&mut self, cell: usize, weight: f64) {
        self.hits[cell] += weight;
        self.new_hits += 1;
        self.requests += 1.0;
        self.request_weights += weight;
    }

    /// Records that objects spent time in this cell, in objects × offers, multiplied by the weight of each object.
    pub(super) fn record_exposure(&mut self, cell: usize, object_offers: f64) {
        self.exposure[cell] += object_offers;
    }

    /// Records an offer. Returns true if the densities have changed.
    ///
    /// The interval between updates grows with the number of offers, from 64 to 100 000. It ends early after 1.5 times
    /// the hits of the last interval, because the traffic has then changed: for example, a scan has ended. An update
    /// takes about 0.2 ms.
    pub(super) fn record_offer(&mut self, size_bytes: u64, capacity_bytes: u64) -> bool {
        self.offers += 1;
        self.offered_objects += 1.0;
        self.offered_bytes += size_bytes as f64;
        if self.offers < self.update_at && self.new_hits < self.update_hits {
            return false;
        }
        let turnover_offers =
            capacity_bytes as f64 * self.offered_objects / self.offered_bytes.max(1.0);
        self.compute_densities((HORIZON_TURNOVERS * turnover_offers).max(HORIZON_OFFERS_MIN));
        self.decay();
        let interval = (self.offers / 16).clamp(UPDATE_OFFERS_MIN, UPDATE_OFFERS_MAX);
        self.update_at = self.offers + interval;
        self.update_hits = (self.new_hits * 3 / 2).max(UPDATE_HITS_MIN);
        self.new_hits = 0;
        true
    }

    /// Returns the density of a cell, in hits per offer of residence. It is never zero.
    pub(super) fn density(&self, cell: usize) -> f32 {
        self.densities[cell]
    }

    /// Returns the bytes of the tables.
    pub(super) fn bookkeeping_bytes(&self) -> usize {
        CELLS * (2 * size_of::<f64>() + size_of::<f32>())
    }

    #[cfg(test)]
    pub(super) fn exposure_sum(&self) -> f64 {
        self.exposure.iter().sum()
    }

    fn compute_densities(&mut self, horizon_offers: f64) {
        for (count_class, &requests) in COUNT_CLASSES.iter().enumerate() {
            let pooled = self.pooled_hazards(count_class, requests);
            let pooled_densities = densities(&pooled.map(|hazard| hazard.min(1.0)), horizon_offers);
            for gap_bin in 0..BINS {
                let class = count_class * BINS + gap_bin;
                let densities = match self.has_data(class) {
                    true => densities(&self.hazards(class, &pooled), horizon_offers),
                    false => pooled_densities,
                };
                self.densities[class * BINS..][..BINS].copy_from_slice(&densities);
            }
        }
    }

    /// Returns the hazard of each age bin, pooled over all gaps of a class of request counts.
    ///
    /// Without traffic, the hazard of an object with `n` requests in age bin `b` is `PRIOR_HAZARD · n / 2^b`: the next
    /// request is probably nearer if `n` is greater or the age is lower.
    fn pooled_hazards(&self, count_class: usize, requests: f64) -> [f64; BINS] {
        std::array::from_fn(|age_bin| {
            let (mut hits, mut exposure) = (0.0, 0.0);
            for gap_bin in 0..BINS {
                let cell = (count_class * BINS + gap_bin) * BINS + age_bin;
                hits += self.hits[cell];
                exposure += self.exposure[cell];
            }
            let prior = PRIOR_HAZARD * requests / (1u64 << age_bin) as f64;
            shrunk(hits, exposure, PRIOR_HITS * self.mean_weight(), prior)
        })
    }

    fn has_data(&self, class: usize) -> bool {
        let cells = class * BINS..(class + 1) * BINS;
        let mut sums = self.hits[cells.clone()].iter().chain(&self.exposure[cells]);
        sums.any(|&sum| sum > 0.0)
    }

    /// Returns the hazard of each age bin of a class. The hazard of a cell with few hits stays close to the pooled
    /// hazard.
    fn hazards(&self, class: usize, pooled: &[f64; BINS]) -> [f64; BINS] {
        std::array::from_fn(|age_bin| {
            let cell = class * BINS + age_bin;
            shrunk(
                self.hits[cell],
                self.exposure[cell],
                POOLED_HITS * self.mean_weight(),
                pooled[age_bin],
            )
            .min(1.0)
        })
    }

    /// Returns the mean weight of a request.
    fn mean_weight(&self) -> f64 {
        if self.requests > 0.0 {
            self.request_weights / self.requests
        } else {
            1.0
        }
    }

    /// Reduces the weight of past offers and hits, so that the densities follow the traffic.
    fn decay(&mut self) {
        for sum in self.hits.iter_mut().chain(&mut self.exposure) {
            *sum *= DECAY;
        }
        self.offered_objects *= DECAY;
        self.offered_bytes *= DECAY;
        self.requests *= DECAY;
        self.request_weights *= DECAY;
    }
}

/// Returns the hazard `hits / exposure`, shrunk towards `expected` with the weight of `weight_hits` hits.
fn shrunk(hits: f64, exposure: f64, weight_hits: f64, expected: f64) -> f64 {
    (hits + weight_hits) / (exposure + weight_hits / expected)
}

/// Returns the density of each age bin; see the equation of the [module](self).
fn densities(hazards: &[f64; BINS], horizon_offers: f64) -> [f32; BINS] {
    let requested_within = |bin: usize, offers: f64| -(-hazards[bin] * offers).exp_m1();
    let requested: [f64; BINS] = std::array::from_fn(|bin| requested_within(bin, bin_width(bin)));
    std::array::from_fn(|age_bin| {
        let (mut survival, mut hits, mut offers) = (1.0, 0.0, 0.0);
        let mut remaining_offers = horizon_offers;
        for bin in age_bin..BINS {
            let width = bin_width(bin);
            let requested = if width <= remaining_offers {
                requested[bin]
            } else {
                requested_within(bin, remaining_offers)
            };
            hits += survival * requested;
            offers += survival * requested / hazards[bin];
            survival *= 1.0 - requested;
            remaining_offers -= width;
            if remaining_offers <= 0.0 || survival < SURVIVAL_MIN {
                break;
            }
        }
        (hits / offers) as f32
    })
}

/// The hazard of an object with one request in the first age bin, before traffic was observed.
///
/// Hazards of 0.2 to 0.5 gave the same hit ratios within 0.1 points on seven traces; 0.0125 lost 0.3 to 0.5 points on
/// the shortest of them.
const PRIOR_HAZARD: f64 = 0.3;

/// The weight of the prior in a pooled hazard, in hits.
const PRIOR_HITS: f64 = 5.0;

/// The weight of the pooled hazard in the hazard of a cell, in hits. Weights of 5 to 60 gave the same hit ratios within
/// 0.2 points.
const POOLED_HITS: f64 = 20.0;

/// The factor by which each update of the densities multiplies all sums. 0.8 to 0.95 gave the same hit ratios within
/// 0.1 points.
const DECAY: f64 = 0.9;

/// The horizon, as a multiple of the number of offers whose objects fill the cache once. For videos in a large cache,
/// 0.5 loses 0.5 points and 0.125 gains 0.1 points.
const HORIZON_TURNOVERS: f64 = 0.25;

/// The least horizon. Minima of 100 to 1000 offers gave the same hit ratios within 0.6 points. Lower minima are better
/// for small caches.
const HORIZON_OFFERS_MIN: f64 = 300.0;

/// The least and the greatest number of offers between two updates at constant traffic. A minimum of 1000 loses 0.2 to
/// 0.9 points on traces of 9,000 requests.
const UPDATE_OFFERS_MIN: u64 = 64;
const UPDATE_OFFERS_MAX: u64 = 100_000;

/// The least number of hits that ends an interval early. Fewer hits are often due to chance.
const UPDATE_HITS_MIN: u64 = 24;

/// The sum over age bins ends at this probability of reaching the next bin. Later bins would not change the density.
const SURVIVAL_MIN: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;

    /// If the hazard is constant, it is also the density, at every age and for every horizon.
    #[test]
    fn objects_with_a_constant_hazard_have_it_as_their_density() {
        for hazard in [1e-6, 0.01, 0.9] {
            for horizon in [10.0, 1e6] {
                for density in densities(&[hazard; BINS], horizon) {
                    let error = (f64::from(density) / hazard - 1.0).abs();
                    assert!(error < 1e-4, "{hazard} {horizon}: {density}");
                }
            }
        }
    }

    /// Method: give a high hazard to age bin 10 only. This bin begins after 512 offers, so the density of a new object
    /// must be high only if the horizon is longer.
    #[test]
    fn a_density_counts_hits_up_to_the_horizon_and_not_beyond() {
        let mut hazards = [1e-9; BINS];
        hazards[10] = 0.1;
        let [short, long] = [100.0, 10_000.0].map(|horizon| densities(&hazards, horizon)[0]);
        assert!(short < 1e-8, "the request comes after 512 offers: {short}");
        assert!(long > 1e-3, "{long}");
    }

    /// Method: cells with a known hazard are fed with hits and exposure; all other cells stay at their prior.
    #[test]
    fn a_cell_with_many_hits_has_the_measured_hazard() {
        let mut learner = Learner::new();
        let class = 2 * BINS + 7;
        for age_bin in 0..BINS {
            for _ in 0..100_000 {
                learner.record_hit(class * BINS + age_bin, 1.0);
            }
            learner.record_exposure(class * BINS + age_bin, 400_000.0);
        }
        while !learner.record_offer(1000, 1_000_000) {}
        for age_bin in 0..BINS {
            let density = learner.density(class * BINS + age_bin);
            assert!((density - 0.25).abs() < 0.02, "{age_bin}: {density}");
        }
    }

    /// Method: half of the objects of each cell have the weight 3 and the hazard 0.4; the others have the weight 1 and
    /// the hazard 0.
    #[test]
    fn the_hazard_of_a_cell_is_weighted() {
        let mut learner = Learner::new();
        let class = 2 * BINS + 7;
        for cell in class * BINS..(class + 1) * BINS {
            for _ in 0..100_000 {
                learner.record_hit(cell, 3.0);
            }
            learner.record_exposure(cell, 250_000.0 * 3.0);
            learner.record_exposure(cell, 250_000.0);
        }
        while !learner.record_offer(1000, 1_000_000) {}
        let density = learner.density(class * BINS);
        assert!((density - 0.3).abs() < 0.02, "{density}");
    }

    #[test]
    fn without_traffic_more_requests_and_a_shorter_age_mean_a_higher_density() {
        let learner = Learner::new();
        let density = |count_class: usize, age_bin| {
            learner.density((count_class * BINS + 3) * BINS + age_bin)
        };
        assert!(density(1, 4) > density(0, 4));
        assert!(density(1, 4) > density(1, 5));
        assert!(learner.densities.iter().all(|&density| density > 0.0));
    }

    /// An interval between updates ends early after 1.5 times the hits of the last interval.
    ///
    /// Method: one hit at each offer, until the intervals are constant; then ten hits at each offer.
    #[test]
    fn more_frequent_hits_bring_the_next_update_forward() {
        let mut learner = Learner::new();
        let mut offers_to_update = |hits_per_offer: u64| {
            let mut offers = 1;
            loop {
                (0..hits_per_offer).for_each(|_| learner.record_hit(0, 1.0));
                if learner.record_offer(1, 1000) {
                    return offers;
                }
                offers += 1;
            }
        };
        let last = (0..6).map(|_| offers_to_update(1)).last();
        assert_eq!(last, Some(UPDATE_OFFERS_MIN));
        assert_eq!(
            offers_to_update(10),
            (UPDATE_OFFERS_MIN * 3 / 2).div_ceil(10)
        );
    }

    #[test]
    fn updates_become_rarer_but_never_rarer_than_the_maximum() {
        let mut learner = Learner::new();
        let mut updates = Vec::new();
        for offer in 1..=2_000_000u64 {
            if learner.record_offer(1, 1000) {
                updates.push(offer);
            }
        }
        assert_eq!(updates[0], UPDATE_OFFERS_MIN);
        let gaps: Vec<u64> = updates.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.is_sorted());
        assert_eq!(gaps.last(), Some(&UPDATE_OFFERS_MAX));
    }
}
