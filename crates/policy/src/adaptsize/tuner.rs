//! The tuner: a window of requests in, the next `c` out.

use edgeward_types::{KeyHash, Seed};

use super::calibration::Calibration;
use super::check::Check;
use super::gaps::Gaps;
use super::horizon::{Outlook, Prospect};
use super::model::{BINS_PER_OCTAVE, ObjectRate, Population};
use super::search;
use super::statistics::{NO_BIN, Object, Statistics};
use super::{CurvePoint, Mode, TunerConfig, Tuning};

/// Chooses `c` for a cache that admits an object of `s` bytes with probability `e^(-s/c)`.
///
/// A plain value: the simulator calls it inline, the server on a thread of its own. Equal
/// sequences of sizes, hits and residency give equal tunings, whatever the keys are.
#[derive(Clone, Debug)]
pub struct Tuner {
    config: TunerConfig,
    statistics: Statistics,
    window: Window,
    /// Requests after which the window under way is over.
    length: u32,
    machinery: Machinery,
    c: f64,
    predicted_ohr: Option<f64>,
}

/// What a mode needs beyond the counts.
#[derive(Clone, Debug)]
enum Machinery {
    Paper,
    Horizon {
        calibration: Calibration,
        gaps: Gaps,
        check: Box<Check>,
    },
}

/// Counts of the window under way.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    requests: u64,
    hits: u64,
    untracked: u64,
}

impl Tuner {
    /// A tuner that has seen nothing.
    ///
    /// # Panics
    ///
    /// If the configuration makes no sense: see [`TunerConfig::assert_sound`].
    pub fn new(config: TunerConfig) -> Self {
        config.assert_sound();
        Self {
            statistics: Statistics::new(config.objects_max),
            window: Window::default(),
            length: config.first_window_requests.min(config.window_requests),
            machinery: match config.mode {
                Mode::Paper => Machinery::Paper,
                Mode::Horizon => Machinery::Horizon {
                    calibration: Calibration::new(config.smoothing),
                    gaps: Gaps::default(),
                    check: Box::new(Check::new(&config, Seed(0))),
                },
            },
            c: f64::INFINITY,
            predicted_ohr: None,
            config,
        }
    }

    /// What to admit by until the first window has ended: everything, since nothing is known that speaks against it.
    ///
    /// The published code starts at `K` or at 32 KiB; the paper does not say.
    pub fn initial_c(&self) -> f64 {
        f64::INFINITY
    }

    /// One request of an object with this charged size, hit or miss. True when the window is full and [`Self::step`] is due.
    ///
    /// A window also ends early when the table of objects is full, so that no object of it goes
    /// uncounted. A driver that records on without a step loses newcomers, and they are counted.
    pub fn record(&mut self, key: KeyHash, size_bytes: u64, hit: bool) -> bool {
        self.window.requests += 1;
        self.window.hits += u64::from(hit);
        match self.statistics.touch(key, size_bytes) {
            Some(object) => {
                if let Machinery::Horizon { check, .. } = &mut self.machinery {
                    let position = u32::try_from(self.window.requests).unwrap_or(u32::MAX);
                    check.request(object, position);
                }
            }
            None => self.window.untracked += 1,
        }
        self.window.requests >= u64::from(self.length) || self.statistics.is_full()
    }

    /// Chooses the next `c` from the window just ended and the smoothed past, and begins a new window.
    ///
    /// `resident` tells whether a key is in the cache now; the horizon mode starts from there, the paper's
    /// never asks.
    pub fn step(&mut self, resident: &dyn Fn(KeyHash) -> bool) -> Tuning {
        let window = std::mem::take(&mut self.window);
        if window.requests >= u64::from(self.length) {
            self.length = self
                .length
                .saturating_mul(2)
                .min(self.config.window_requests);
        }
        let measured_ohr = if window.requests > 0 {
            window.hits as f64 / window.requests as f64
        } else {
            0.0
        };
        let model_error = self
            .predicted_ohr
            .filter(|_| window.requests > 0)
            .map(|predicted| predicted - measured_ohr);
        let (curve, best) = if window.requests == 0 {
            // Nothing was asked, so nothing was learnt.
            (
                Vec::new(),
                CurvePoint {
                    c: self.c,
                    ohr: self.predicted_ohr.unwrap_or(0.0),
                },
            )
        } else {
            match self.config.mode {
                Mode::Paper => self.step_paper(),
                Mode::Horizon => self.step_horizon(resident, window.requests, measured_ohr),
            }
        };
        self.c = best.c;
        if window.requests > 0 {
            self.predicted_ohr = Some(best.ohr);
        }
        Tuning {
            c: best.c,
            predicted_ohr: best.ohr,
            measured_ohr,
            model_error,
            curve,
            objects: self.statistics.len(),
            requests: window.requests,
            untracked_requests: window.untracked,
        }
    }

    /// Bytes held now, for the memory budget.
    pub fn memory_bytes(&self) -> usize {
        self.statistics.memory_bytes()
            + match &self.machinery {
                Machinery::Paper => 0,
                Machinery::Horizon { check, .. } => check.memory_bytes(),
            }
    }

    /// The paper's tuning policy: smooth, build the curve from Theorem 1, take its highest point.
    fn step_paper(&mut self) -> (Vec<CurvePoint>, CurvePoint) {
        for object in self.statistics.objects_mut() {
            object.smooth(self.config.smoothing);
        }
        self.forget(|object| object.past >= RATE_MIN);
        self.statistics.begin_window(|_| 0);
        let capacity_bytes = self.config.capacity_bytes as f64;
        let rates = self.statistics.objects().iter().map(|object| ObjectRate {
            rate: f64::from(object.past),
            size_bytes: object.size_bytes as f64,
        });
        let mut population = Population::new(rates, capacity_bytes, BINS_PER_OCTAVE);
        search::best(&self.config, |c| {
            let reachable =
                population.fill_windows(c, capacity_bytes) <= self.config.fill_windows_max;
            // To admit everything needs no long run to get there, and is what remains when nothing else qualifies.
            (reachable || c.is_infinite())
                .then(|| population.solve(c, capacity_bytes).object_hit_ratio)
        })
    }

    /// The same with the finite horizon, calibrated counts, measured gaps, and the sampled caches' word.
    fn step_horizon(
        &mut self,
        resident: &dyn Fn(KeyHash) -> bool,
        window_requests: u64,
        measured_ohr: f64,
    ) -> (Vec<CurvePoint>, CurvePoint) {
        let smoothing = self.config.smoothing;
        let Machinery::Horizon {
            calibration,
            gaps,
            check,
        } = &mut self.machinery
        else {
            unreachable!("the mode decides the machinery")
        };
        check.measure_gaps(self.statistics.objects(), window_requests, gaps);
        let mut outlook = Outlook::new(self.config.capacity_bytes as f64);
        calibration.fade();
        for object in self.statistics.objects_mut() {
            if object.bin == NO_BIN {
                // As many newcomers, and of the same kind, as this window brought.
                outlook.add(Prospect {
                    active: 1.0,
                    count: f64::from(object.count),
                    size_bytes: object.size_bytes as f64,
                    resident: false,
                });
            } else {
                calibration.learn(object.bin, object.count);
            }
            object.smooth(smoothing);
            object.resident = resident(object.key);
        }
        // Before any is forgotten: the many that are rarely asked for bring a share of the next window's requests.
        for object in self.statistics.objects() {
            let (active, count) = calibration.expect(f64::from(object.past));
            outlook.add(Prospect {
                active,
                count,
                size_bytes: object.size_bytes as f64,
                resident: object.resident,
            });
        }
        let mut forecast = outlook.forecast(gaps);
        let found = check.choose(&self.config, self.c, measured_ohr, |c| {
            forecast.solve(c).object_hit_ratio
        });
        self.forget(|object| object.past >= RATE_MIN || object.resident);
        if let Machinery::Horizon { calibration, .. } = &self.machinery {
            self.statistics.begin_window(|past| calibration.bin(past));
        }
        found
    }

    /// Drops what `keep` does not hold, and if more than half the table remains, the rarest beyond it:
    /// the next window needs room for its newcomers.
    fn forget(&mut self, keep: impl Fn(&Object) -> bool) {
        let kept_max = self.config.objects_max / 2;
        let keep = |object: &Object, check: Option<&Check>| {
            keep(object) || check.is_some_and(|check| check.holds(object))
        };
        let mut check = match &mut self.machinery {
            Machinery::Paper => None,
            Machinery::Horizon { check, .. } => Some(check),
        };
        let mut rates: Vec<f32> = self
            .statistics
            .objects()
            .iter()
            .filter(|object| keep(object, check.as_deref().map(|c| &**c)))
            .map(|object| object.past)
            .collect();
        // Everything at the rate of the first that finds no room goes with it, so ties need no order.
        let rate_of_first_out = rates.len().checked_sub(kept_max + 1).map(|at| {
            let (_, rate, _) = rates.select_nth_unstable_by(at, f32::total_cmp);
            *rate
        });
        self.statistics.retain(|object| {
            let kept = keep(object, check.as_deref().map(|c| &**c))
                && rate_of_first_out.is_none_or(|rate| object.past > rate);
            if !kept && let Some(check) = &mut check {
                check.dismiss(object);
            }
            kept
        });
    }
}

/// An object whose smoothed rate falls below this is forgotten, as in the published code: one seen
/// once (0.7) stays one window more (0.21) and goes with the next (0.063).
const RATE_MIN: f32 = 0.1;
