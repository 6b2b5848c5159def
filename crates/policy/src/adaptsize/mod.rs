//! Size-aware admission for the hot cache, tuned by a model of the cache.
//!
//! An object of `s` bytes is let in with probability `e^(-s/c)`: small ones nearly always, large ones
//! rarely, since one large object costs the places of many small ones. All the skill is in `c`.
//! Every window of requests the [`Tuner`] predicts the hit ratio over a wide range of `c` and takes
//! the best. Admission itself is [`crate::Admission::Exponential`].
//!
//! - [`Mode::Paper`] is the paper's model: the long run of one Markov chain an object ([`Population`]).
//! - [`Mode::Horizon`] asks what the next window will bring from where the cache stands now
//!   ([`Outlook`]), with rates calibrated by what followed earlier estimates, and corrects the answer by
//!   what small caches over a sample of the objects measured. It is the one to run in production.
//!
//! The tuner is a plain value that never looks at a clock nor at the bits of a key: the server runs it
//! beside the request path, the simulator inside it, and both get the same `c`.
//!
//! Paper: Berger, Sitaraman, Harchol-Balter, "AdaptSize: Orchestrating the Hot Object Memory Cache in
//! a Content Delivery Network", NSDI 2017. What it leaves open, what was chosen here and what was
//! measured is in `docs/explanation/adaptsize.md`.

mod calibration;
mod check;
mod gaps;
mod horizon;
mod model;
mod sampled;
mod search;
mod statistics;
#[cfg(test)]
mod tests;
mod tuner;
mod window;

pub use gaps::Gaps;
pub use horizon::{Forecast, Outlook, Prospect};
pub use model::{BINS_PER_OCTAVE, ObjectRate, Population, Solution, admission_probability};
pub use tuner::Tuner;
pub use window::forecast_window;

/// Which model chooses `c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The paper's: the long run of the Markov model.
    Paper,
    /// The next window from where the cache stands, with calibrated rates, corrected by measurement.
    Horizon,
}

/// How a tuner works. [`TunerConfig::new`] gives each field its justified default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TunerConfig {
    /// Which model.
    pub mode: Mode,

    /// Bytes the cache may hold, in the same currency as the sizes given to [`Tuner::record`].
    pub capacity_bytes: u64,

    /// Requests per window: the paper's Δ.
    pub window_requests: u32,

    /// Requests of the first window, if that is less. Each window after it is twice as long, up to `window_requests`.
    ///
    /// A cache that has just started need not admit everything for a quarter of a million requests: a
    /// rough `c` is worth more than none (docs/explanation/adaptsize.md has the figures).
    pub first_window_requests: u32,

    /// Weight of the past in the smoothed rates, 0 to below 1.
    pub smoothing: f64,

    /// The smallest candidate. The others follow up to the capacity, and then `∞`.
    pub c_min: f64,

    /// Candidates per octave of `c`, before refinement.
    pub grid_per_octave: u32,

    /// Most objects remembered, at most 40 bytes each.
    ///
    /// A window that reaches it ends early; a step leaves at most half of it, the most requested.
    pub objects_max: usize,

    /// Paper's mode: a `c` is a candidate if the requests of this many windows, all of them admitted by it
    /// with their probability, bring as many bytes as the cache holds.
    ///
    /// The long run the model speaks of begins after many turnovers of the cache. Under a `c` too small for
    /// that within a window its promise is void, and exactly there it promises most. Measured on
    /// the three large traces: 1 and 0.3 fall up to 18 points below LRU on small caches, 0.03 gives
    /// away the gain on web traffic.
    pub fill_windows_max: f64,

    /// Horizon mode: a new `c` must promise this much more (as a fraction of requests) than the one in force.
    pub hysteresis: f64,

    /// Horizon mode: at most this many objects share one place in the sample. A power of two.
    ///
    /// Small caches use a larger share, down to every object.
    pub sample_one_in_max: u32,
}

impl TunerConfig {
    /// The defaults for a cache of this size.
    pub fn new(mode: Mode, capacity_bytes: u64) -> Self {
        Self {
            mode,
            capacity_bytes,
            // Section 4.2: "we choose Δ = 250K requests (about 5-10 mins on average)".
            window_requests: 250_000,
            // Enough for a c within an octave or two of the later ones on each of the traces at hand.
            first_window_requests: 2_000,
            // The published code's; the paper gives no number.
            smoothing: 0.3,
            // Below this only headers would enter.
            c_min: 256.0,
            grid_per_octave: 2,
            // Three windows of nothing but newcomers, and room: with the window above never reached.
            // For small caches less, so that the tuner stays small beside what it tunes: 40 bytes for
            // each 256 of the cache.
            objects_max: (capacity_bytes / 256).clamp(1 << 16, 1 << 20) as usize,
            fill_windows_max: 0.1,
            // Moving costs misses, since the cache must turn over; gains below this are noise.
            hysteresis: 0.002,
            sample_one_in_max: 8,
        }
    }

    /// Stops a program whose configuration cannot work.
    ///
    /// # Panics
    ///
    /// With the field's name, if a field is out of its range.
    pub fn assert_sound(&self) {
        assert!(self.capacity_bytes > 0, "capacity_bytes is 0");
        assert!(self.window_requests > 0, "window_requests is 0");
        assert!(self.first_window_requests > 0, "first_window_requests is 0");
        assert!(
            (0.0..1.0).contains(&self.smoothing),
            "smoothing {} is outside 0..1",
            self.smoothing
        );
        assert!(
            self.c_min >= 1.0 && self.c_min.is_finite(),
            "c_min {} is no number of bytes",
            self.c_min
        );
        assert!(
            (1..=64).contains(&self.grid_per_octave),
            "grid_per_octave {} is outside 1..=64",
            self.grid_per_octave
        );
        assert!(
            (2..1 << 31).contains(&self.objects_max),
            "objects_max {} is outside 2..2^31",
            self.objects_max
        );
        assert!(
            self.fill_windows_max >= 0.0,
            "fill_windows_max {} is negative",
            self.fill_windows_max
        );
        assert!(
            (0.0..1.0).contains(&self.hysteresis),
            "hysteresis {} is outside 0..1",
            self.hysteresis
        );
        assert!(
            self.sample_one_in_max.is_power_of_two(),
            "sample_one_in_max {} is not a power of two",
            self.sample_one_in_max
        );
    }
}

/// One point of the curve of predicted hit ratio over `c`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// Bytes at which the probability of admission falls to 1/e; `∞` admits everything.
    pub c: f64,
    /// Predicted object hit ratio, 0 to 1.
    pub ohr: f64,
}

/// What a step found.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// What to admit by from now on: `e^(-s/c)`, everything if `∞`.
    pub c: f64,
    /// The object hit ratio the next window should have under it.
    pub predicted_ohr: f64,
    /// The object hit ratio of the window just ended.
    pub measured_ohr: f64,
    /// What the step before predicted for the window just ended, minus what was measured in it.
    ///
    /// Nothing at the first step, which no prediction preceded.
    pub model_error: Option<f64>,
    /// The curve `c` was chosen from, ascending in `c`, `∞` last. Without the refined point.
    pub curve: Vec<CurvePoint>,
    /// Objects remembered after the step.
    pub objects: usize,
    /// Requests of the window just ended.
    pub requests: u64,
    /// Those among them that found the table full and went uncounted; 0 if a step follows whenever one is due.
    pub untracked_requests: u64,
}
