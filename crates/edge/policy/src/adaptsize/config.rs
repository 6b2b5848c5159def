//! The modes of a tuner and its settings.

/// The model that chooses `c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The paper's model: the long run of the Markov chain.
    Paper,
    /// The next window from the current cache content, with calibrated rates and a correction by measurements.
    Horizon,
    /// The paper's model with the approximations of the authors' published simulator, to reproduce its figures.
    Code,
}

/// The settings of a tuner. [`TunerConfig::new`] gives each field a justified default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TunerConfig {
    /// The model.
    pub mode: Mode,

    /// Capacity of the cache in bytes. Sizes passed to [`Tuner::record`](super::Tuner::record) must be charges, as the cache counts them.
    pub capacity_bytes: u64,

    /// Requests per window: the paper's Δ.
    pub window_requests: u32,

    /// Requests of the first window. Each following window is twice as long, up to `window_requests`.
    ///
    /// A new cache thereby gets an approximate `c` long before the first `window_requests` requests have arrived
    /// (docs/explanation/adaptsize.md has the figures).
    pub first_window_requests: u32,

    /// The weight of past windows in the smoothed rates, from 0 to below 1.
    pub smoothing: f64,

    /// The smallest candidate for `c`, in bytes. The others lie between it and the capacity; the last one is `∞`.
    pub c_min: f64,

    /// Candidates per octave of `c`. A search around the best candidate then refines `c`.
    pub grid_per_octave: u32,

    /// The maximum number of remembered objects, at most 48 bytes each.
    ///
    /// A window that reaches the limit ends early. At the end of a window the tuner keeps at most half of this
    /// number: the objects with the highest request rates.
    pub objects_max: usize,

    /// Paper mode: a value of `c` is a candidate only if it admits, within this many windows, at least as many
    /// bytes as the capacity of the cache.
    ///
    /// The model describes the steady state, after the content of the cache was replaced many times. A very small
    /// `c` does not reach this state within a window, and the model predicts too many hits for it. In
    /// measurements, the limits 1 and 0.3 put the hit ratio of downloads about 18 percentage points below LRU with
    /// 256 MiB. The limit 0.03 lost the gain over LRU for web traffic with 2 GiB (docs/explanation/adaptsize.md).
    pub fill_windows_max: f64,

    /// Horizon mode: a new `c` must raise the predicted hit ratio (0 to 1) by this much over the current `c`.
    pub hysteresis: f64,

    /// Horizon mode: the sample has at least one in this many objects. A power of two.
    ///
    /// Small caches use a larger sample, up to all objects.
    pub sample_one_in_max: u32,
}

impl TunerConfig {
    /// Returns the defaults for a cache of this capacity.
    pub fn new(mode: Mode, capacity_bytes: u64) -> Self {
        Self {
            mode,
            capacity_bytes,
            // Section 4.2: "we choose Δ = 250K requests (about 5-10 mins on average)".
            window_requests: 250_000,
            // Enough for a `c` within one or two octaves of the later values on each of the available traces.
            first_window_requests: 2_000,
            // The value of the published code; the paper has no number.
            smoothing: 0.3,
            // A smaller `c` would reject nearly all objects of 1 KiB: 256 admits them with a probability of 1.8 %.
            c_min: 256.0,
            grid_per_octave: 2,
            // At most 2^20. A window begins with at most half of them, and a default window adds at most 250,000
            // objects, so it does not reach the limit. A small cache has a lower limit, one object per 256 bytes of
            // cache but at least 65,536, so that the tuner takes little memory.
            objects_max: (capacity_bytes / 256).clamp(1 << 16, 1 << 20) as usize,
            fill_windows_max: 0.1,
            // A new `c` costs misses, since the cache content must change. Smaller gains are noise.
            hysteresis: 0.002,
            sample_one_in_max: 8,
        }
    }

    /// Panics if the configuration is invalid.
    ///
    /// # Panics
    ///
    /// If a field is out of its range. The message has the name of the field.
    pub fn assert_valid(&self) {
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
            "c_min {} is not a number of bytes",
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
