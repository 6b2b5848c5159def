//! The tuner: reads a window of requests and chooses the next `c`.

use edgeward_types::{KeyHash, Seed};

use super::calibration::Calibration;
use super::code;
use super::config::{Mode, TunerConfig};
use super::correction::Correction;
use super::gaps::Gaps;
use super::horizon::{ExpectedRequests, WindowObjects};
use super::model::{BINS_PER_OCTAVE, ObjectRate, Population};
use super::search;
use super::statistics::{NO_BIN, Object, Statistics};
use super::tuning::{CurvePoint, Tuning};
use crate::admission::tuner::{AdmissionTuner, TunerStep};

/// Chooses `c` for a cache that admits an object of `s` bytes with probability `e^(-s/c)`.
///
/// The simulator calls the tuner directly, the server runs it on its own thread. Equal sequences of sizes, hits
/// and residency give equal tunings, independent of the keys.
#[derive(Clone, Debug)]
pub struct Tuner {
    config: TunerConfig,
    statistics: Statistics,
    window: WindowCounts,
    /// The number of requests after which this window ends.
    length: u32,
    mode_state: ModeState,
    c: f64,
    predicted_ohr: Option<f64>,
}

/// The additional state of a mode.
#[derive(Clone, Debug)]
enum ModeState {
    Paper,
    Code {
        /// True after the first step.
        has_stepped: bool,
    },
    Horizon {
        /// For each range of rate estimates, the mean number of requests that followed in the next window.
        calibration: Calibration,
        /// The measured times between two requests for the same object.
        gaps: Gaps,
        /// Corrects the model by the hits of sampled caches and of the real cache.
        correction: Box<Correction>,
    },
}

/// The counts of the current window.
#[derive(Clone, Copy, Debug, Default)]
struct WindowCounts {
    requests: u64,
    hits: u64,
    untracked: u64,
}

impl Tuner {
    /// Makes a tuner without any observations.
    ///
    /// # Panics
    ///
    /// If the configuration is invalid: see [`TunerConfig::assert_valid`].
    pub fn new(config: TunerConfig) -> Self {
        config.assert_valid();
        Self {
            statistics: Statistics::new(config.objects_max),
            window: WindowCounts::default(),
            length: config.first_window_requests.min(config.window_requests),
            mode_state: match config.mode {
                Mode::Paper => ModeState::Paper,
                Mode::Code => ModeState::Code { has_stepped: false },
                Mode::Horizon => ModeState::Horizon {
                    calibration: Calibration::new(config.smoothing),
                    gaps: Gaps::default(),
                    correction: Box::new(Correction::new(&config, Seed(0))),
                },
            },
            c: Self::initial_c(config.mode),
            predicted_ohr: None,
            config,
        }
    }

    /// The `c` of the first window. It is infinity, which admits every object, because the traffic is unknown.
    ///
    /// The published code starts at the capacity of the cache or, as [`Mode::Code`], at 32 KiB; the paper has no value.
    pub fn initial_c(mode: Mode) -> f64 {
        match mode {
            Mode::Paper | Mode::Horizon => f64::INFINITY,
            Mode::Code => code::INITIAL_C,
        }
    }

    /// Records one request with the object's charged size, hit or miss. Returns true if the window is complete
    /// and [`Self::step`] is due.
    ///
    /// A window ends early when the table of objects is full, so that every object of the window is counted. If
    /// the caller continues without a step, new objects are not tracked, and their requests are counted as
    /// untracked.
    pub fn record(&mut self, key: KeyHash, size_bytes: u64, hit: bool) -> bool {
        self.window.requests += 1;
        self.window.hits += u64::from(hit);
        match self.statistics.touch(key, size_bytes) {
            Some(object) => {
                if let ModeState::Horizon { correction, .. } = &mut self.mode_state {
                    let position = u32::try_from(self.window.requests).unwrap_or(u32::MAX);
                    correction.request(object, position);
                }
            }
            None => self.window.untracked += 1,
        }
        let requests = self.window.requests;
        let is_complete = match self.mode_state {
            ModeState::Code { has_stepped } => {
                code::is_step_due(&self.config, &self.statistics, requests, !has_stepped)
            }
            _ => requests >= u64::from(self.length),
        };
        is_complete || self.statistics.is_full()
    }

    /// Chooses the next `c` from the counts of the window that ended and of earlier windows, smoothed. Then starts
    /// a new window.
    ///
    /// `resident` returns true if a key is in the cache now. Only the horizon mode calls it.
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
            // A window without requests has no information.
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
                Mode::Code => self.step_code(),
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

    /// Bytes of memory, for the memory budget.
    pub fn memory_bytes(&self) -> usize {
        self.statistics.memory_bytes()
            + match &self.mode_state {
                ModeState::Paper | ModeState::Code { .. } => 0,
                ModeState::Horizon { correction, .. } => correction.memory_bytes(),
            }
    }

    /// The paper's tuning policy: smooths the rates, builds the curve from Theorem 1, and takes its highest
    /// point.
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
            // The model describes the steady state. A small `c` that fills the cache too slowly does not reach this
            // state and is no candidate. `∞` admits every object, so it is always a candidate.
            (reachable || c.is_infinite())
                .then(|| population.solve(c, capacity_bytes).object_hit_ratio)
        })
    }

    /// The tuning policy of the published code.
    fn step_code(&mut self) -> (Vec<CurvePoint>, CurvePoint) {
        self.mode_state = ModeState::Code { has_stepped: true };
        code::smooth(&mut self.statistics, self.config.smoothing);
        self.forget(|object| object.past >= RATE_MIN);
        let choice = code::choose(&self.config, &self.statistics, self.c);
        self.statistics.begin_window(|_| 0);
        choice
    }

    /// Chooses `c` in horizon mode. The finite-horizon model predicts hit ratios from calibrated counts and measured
    /// gaps. The hits of sampled caches correct the predictions.
    fn step_horizon(
        &mut self,
        resident: &dyn Fn(KeyHash) -> bool,
        window_requests: u64,
        measured_ohr: f64,
    ) -> (Vec<CurvePoint>, CurvePoint) {
        let smoothing = self.config.smoothing;
        let ModeState::Horizon {
            calibration,
            gaps,
            correction,
        } = &mut self.mode_state
        else {
            unreachable!("called only in horizon mode")
        };
        correction.measure_gaps(self.statistics.objects(), window_requests, gaps);
        let mut window_objects = WindowObjects::new(self.config.capacity_bytes as f64);
        calibration.decay();
        for object in self.statistics.objects_mut() {
            if object.bin == NO_BIN {
                // The next window is assumed to have the same number and kind of new objects as this one.
                window_objects.add(ExpectedRequests {
                    active: 1.0,
                    count: f64::from(object.count),
                    size_bytes: object.size_bytes as f64,
                    resident: false,
                });
            } else {
                calibration.add_outcome(object.bin, object.count);
            }
            object.smooth(smoothing);
            object.resident = resident(object.key);
        }
        // Objects are added before any is forgotten: the many rarely requested objects together have a share of
        // the next window's requests.
        for object in self.statistics.objects() {
            let (active, count) = calibration.predict(f64::from(object.past));
            window_objects.add(ExpectedRequests {
                active,
                count,
                size_bytes: object.size_bytes as f64,
                resident: object.resident,
            });
        }
        let mut model = window_objects.model(gaps);
        let choice = correction.choose(&self.config, self.c, measured_ohr, |c| {
            model.solve(c).object_hit_ratio
        });
        self.forget(|object| object.past >= RATE_MIN || object.resident);
        if let ModeState::Horizon { calibration, .. } = &self.mode_state {
            self.statistics.begin_window(|past| calibration.bin(past));
        }
        choice
    }

    /// Forgets the objects for which `keep` returns false and which no sampled cache holds. If more than half
    /// of the table would remain, also forgets the objects with the lowest rates: the next window needs space
    /// for new objects.
    fn forget(&mut self, keep: impl Fn(&Object) -> bool) {
        let kept_max = self.config.objects_max / 2;
        let keep = |object: &Object, correction: Option<&Correction>| {
            keep(object) || correction.is_some_and(|correction| correction.holds(object))
        };
        let mut correction = match &mut self.mode_state {
            ModeState::Paper | ModeState::Code { .. } => None,
            ModeState::Horizon { correction, .. } => Some(correction),
        };
        let mut rates: Vec<f32> = self
            .statistics
            .objects()
            .iter()
            .filter(|object| keep(object, correction.as_deref().map(|c| &**c)))
            .map(|object| object.past)
            .collect();
        // All objects with the rate of the first one that does not fit are forgotten too, so ties need no
        // order.
        let rate_of_first_forgotten = rates.len().checked_sub(kept_max + 1).map(|at| {
            let (_, rate, _) = rates.select_nth_unstable_by(at, f32::total_cmp);
            *rate
        });
        self.statistics.retain(|object| {
            let kept = keep(object, correction.as_deref().map(|c| &**c))
                && rate_of_first_forgotten.is_none_or(|rate| object.past > rate);
            if !kept && let Some(correction) = &mut correction {
                correction.remove(object);
            }
            kept
        });
    }
}

impl AdmissionTuner for Tuner {
    fn record(&mut self, key: KeyHash, size_bytes: u64, hit: bool) -> bool {
        self.record(key, size_bytes, hit)
    }

    fn step(&mut self, resident: &dyn Fn(KeyHash) -> bool) -> TunerStep {
        let tuning = self.step(resident);
        TunerStep {
            c: tuning.c,
            tuning: Some(tuning),
        }
    }

    fn memory_bytes(&self) -> usize {
        self.memory_bytes()
    }
}

/// An object whose smoothed rate, in requests per window, is below this is forgotten, as in the published code. With a
/// smoothing of 0.3, an object with one request (rate 0.7) stays for one more window (0.21) and is forgotten after the
/// next (0.063). In horizon mode, this limit does not apply to objects in the real cache or in a sampled cache.
const RATE_MIN: f32 = 0.1;
