//! The stationary model of the AdaptSize paper (section 4.1): one Markov chain per object. The chains are coupled by
//! the pushdown rate `μ`: an object without requests leaves the LRU list after the time `T = 1/μ`. An object has `s`
//! bytes and `r` requests per window. The cache has `K` bytes and admits with `p = e^(-s/c)`.
//!
//! Theorem 1 gives the long-run probability that an object is in the cache: `P = (e^(rT) - 1) p / (1 + (e^(rT) - 1)
//! p)`. The power overflows a float for popular objects; the authors use a Padé approximant.
//! This code divides by the power instead, which is exact: with `q = e^(-rT)`, `P = (1-q) p / (q + (1-q) p)`.
//! All terms lie between 0 and 1.
//!
//! `T` is the solution of equation (1), `Σ P s = K`. The left side increases with `T` but is S-shaped. The
//! fixed-point iteration of the published code does not always converge and does not report a failure. `solve`
//! brackets the root instead.
//!
//! A window has hundreds of thousands of objects, and the curve of the hit ratio over `c` needs a hundred solutions.
//! Objects with similar rates and sizes have similar probabilities. They are therefore grouped into cells of 1/8 octave
//! by 1/8 octave: a few thousand terms, with an error of the hit ratio below 0.1 points.

/// One object of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObjectRate {
    /// Requests per window, on average.
    pub rate: f64,
    /// Its bytes when resident.
    pub size_bytes: f64,
}

/// A set of objects, grouped for repeated evaluation.
#[derive(Clone, Debug)]
pub struct Population {
    cells: Vec<Cell>,
    rates: Vec<f64>,
    sizes: Vec<f64>,
    request_rate: f64,
    /// log2 of the lifetime that the last call of `solve` found. The next call starts its search at this value.
    last_log2_lifetime: f64,
}

/// Objects with similar rates and sizes.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Indices in `Population::rates` and `sizes`, which have the mean of each bin.
    rate: u32,
    size: u32,
    /// Σ r and Σ s of the objects. These sums are exact, independent of the bins.
    request_rate: f64,
    bytes: f64,
}

/// The solution for one `c`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Solution {
    /// The time that an object without requests stays in the cache, in windows. Infinite if all objects fit.
    pub lifetime_windows: f64,
    /// Σ r P / Σ r.
    pub object_hit_ratio: f64,
}

impl Population {
    /// Groups objects into cells. For objects larger than `capacity_bytes` only the requests count.
    ///
    /// `bins_per_octave` is the resolution of rate and size; [`BINS_PER_OCTAVE`] suffices.
    pub fn new(
        objects: impl IntoIterator<Item = ObjectRate>,
        capacity_bytes: f64,
        bins_per_octave: u32,
    ) -> Self {
        let mut rates = Bins::new(bins_per_octave);
        let mut sizes = Bins::new(bins_per_octave);
        let mut cells = CellMap::default();
        let mut request_rate = 0.0;
        for object in objects {
            request_rate += object.rate;
            if object.size_bytes > capacity_bytes || object.rate <= 0.0 {
                continue;
            }
            let rate = rates.add(object.rate);
            let size = sizes.add(object.size_bytes.max(1.0));
            let cell = cells.entry(rate, size);
            cell.request_rate += object.rate;
            cell.bytes += object.size_bytes;
        }
        let cells = cells.cells;
        Self {
            cells,
            last_log2_lifetime: 0.0,
            rates: rates.means(),
            sizes: sizes.means(),
            request_rate,
        }
    }

    /// Returns the number of windows after which an empty cache is full, if each request that `c` admits adds
    /// new bytes.
    ///
    /// The result is `K / Σ r p s`, a lower bound of the time until the cache reaches its steady state.
    pub fn fill_windows(&self, c: f64, capacity_bytes: f64) -> f64 {
        let bytes_per_window: f64 = self
            .cells
            .iter()
            .map(|cell| {
                let size = self.sizes[cell.size as usize];
                cell.request_rate * size * admission_probability(size, c)
            })
            .sum();
        capacity_bytes / bytes_per_window
    }

    /// Solves equation (1) for the lifetime under `c`, and returns the resulting hit ratio.
    pub fn solve(&mut self, c: f64, capacity_bytes: f64) -> Solution {
        let admitted: Vec<f64> = self
            .sizes
            .iter()
            .map(|&size| admission_probability(size, c))
            .collect();
        let mut unrequested: Vec<f64> = vec![0.0; self.rates.len()];
        let mut sum = |lifetime: f64, weight: fn(&Cell) -> f64| -> f64 {
            for (unrequested, rate) in unrequested.iter_mut().zip(&self.rates) {
                *unrequested = (-rate * lifetime).exp();
            }
            self.cells
                .iter()
                .map(|cell| {
                    weight(cell)
                        * stationary(
                            unrequested[cell.rate as usize],
                            admitted[cell.size as usize],
                        )
                })
                .sum()
        };
        let root = root_of_increasing(self.last_log2_lifetime, |log2_lifetime| {
            sum(log2_lifetime.exp2(), |cell| cell.bytes) - capacity_bytes
        });
        let lifetime_windows = root.map_or(f64::INFINITY, f64::exp2);
        let hits = sum(lifetime_windows, |cell| cell.request_rate);
        self.last_log2_lifetime = root.unwrap_or(self.last_log2_lifetime);
        Solution {
            lifetime_windows,
            object_hit_ratio: if self.request_rate > 0.0 {
                hits / self.request_rate
            } else {
                0.0
            },
        }
    }
}

/// Returns `e^(-s/c)`. The result is 1 for `c = ∞`, which admits every object.
pub fn admission_probability(size_bytes: f64, c: f64) -> f64 {
    (-size_bytes / c).exp()
}

/// Theorem 1 in a form that cannot overflow. `unrequested` is `q = e^(-rT)`, the probability that no request for the
/// object arrives within `T`.
pub(super) fn stationary(unrequested: f64, admitted: f64) -> f64 {
    let present = (1.0 - unrequested) * admitted;
    let total = unrequested + present;
    if total > 0.0 { present / total } else { 0.0 }
}

/// Returns the root of an increasing function of log2 T. Returns `None` if the function is not positive at
/// [`LOG2_LIFETIME_MAX`], and [`LOG2_LIFETIME_MIN`] if it is positive there.
///
/// The bracket grows from `start`, because similar values of `c` have similar roots. The search then uses secants with
/// the Illinois rule, which keep the root within the bracket. It needs about six evaluations; bisection needs
/// thirty.
pub(super) fn root_of_increasing(start: f64, mut f: impl FnMut(f64) -> f64) -> Option<f64> {
    let (mut low, mut high) = (start, start);
    let mut f_low = f(start);
    let mut f_high = f_low;
    let mut step = 0.25;
    while f_high <= 0.0 {
        if high >= LOG2_LIFETIME_MAX {
            return None;
        }
        (low, f_low) = (high, f_high);
        high = (high + step).min(LOG2_LIFETIME_MAX);
        f_high = f(high);
        step *= 2.0;
    }
    while f_low > 0.0 {
        if low <= LOG2_LIFETIME_MIN {
            return Some(low);
        }
        (high, f_high) = (low, f_low);
        low = (low - step).max(LOG2_LIFETIME_MIN);
        f_low = f(low);
        step *= 2.0;
    }
    // 1 after a step that moved `low`, -1 after a step that moved `high`. If one end moves twice in a row, the Illinois
    // rule halves the function's value at the other end.
    let mut last_moved_end = 0_i8;
    for _ in 0..SECANTS_MAX {
        // A wide bracket of an S-shaped curve is halved first, because its secant would hardly reduce it.
        let x = if high - low > 1.0 {
            0.5 * (low + high)
        } else {
            (low * f_high - high * f_low) / (f_high - f_low)
        };
        let f_x = f(x);
        if f_x < 0.0 {
            (low, f_low) = (x, f_x);
            if last_moved_end == 1 {
                f_high *= 0.5;
            }
            last_moved_end = 1;
        } else {
            (high, f_high) = (x, f_x);
            if last_moved_end == -1 {
                f_low *= 0.5;
            }
            last_moved_end = -1;
        }
        if high - low < LOG2_LIFETIME_TOLERANCE || f_x == 0.0 {
            return Some(x);
        }
    }
    Some(0.5 * (low + high))
}

/// Geometric bins with the mean of the values in each.
#[derive(Clone, Debug)]
pub(super) struct Bins {
    per_octave: f64,
    /// For each bin, the sum and the number of its values.
    sums: Vec<(f64, f64)>,
}

impl Bins {
    pub(super) fn new(per_octave: u32) -> Self {
        Self {
            per_octave: f64::from(per_octave),
            sums: Vec::new(),
        }
    }

    /// Returns the bin of `value`. Bin 0 has the values near 2^-16 and all smaller ones.
    pub(super) fn bin_of(&self, value: f64) -> usize {
        (((value.log2() + 16.0) * self.per_octave).max(0.0) + 0.5) as usize
    }

    pub(super) fn add(&mut self, value: f64) -> u32 {
        let bin = self.bin_of(value);
        if self.sums.len() <= bin {
            self.sums.resize(bin + 1, (0.0, 0.0));
        }
        self.sums[bin].0 += value;
        self.sums[bin].1 += 1.0;
        bin as u32
    }

    pub(super) fn means(&self) -> Vec<f64> {
        self.sums
            .iter()
            .map(|&(sum, n)| if n > 0.0 { sum / n } else { 0.0 })
            .collect()
    }
}

/// Cells in order of creation.
#[derive(Clone, Debug, Default)]
struct CellMap {
    cells: Vec<Cell>,
    /// `rows[rate bin][size bin]` is the index of the cell of these bins, or `u32::MAX` if it does not exist yet.
    rows: Vec<Vec<u32>>,
}

impl CellMap {
    fn entry(&mut self, rate: u32, size: u32) -> &mut Cell {
        if self.rows.len() <= rate as usize {
            self.rows.resize(rate as usize + 1, Vec::new());
        }
        let row = &mut self.rows[rate as usize];
        if row.len() <= size as usize {
            row.resize(size as usize + 1, u32::MAX);
        }
        let cell_index = &mut row[size as usize];
        if *cell_index == u32::MAX {
            *cell_index = self.cells.len() as u32;
            self.cells.push(Cell {
                rate,
                size,
                request_rate: 0.0,
                bytes: 0.0,
            });
        }
        &mut self.cells[*cell_index as usize]
    }
}

/// The resolution of the cells in rate and in size, in bins per octave.
pub const BINS_PER_OCTAVE: u32 = 8;

/// Lifetimes are searched from 2^-40 to 2^40 windows.
const LOG2_LIFETIME_MIN: f64 = -40.0;
const LOG2_LIFETIME_MAX: f64 = 40.0;
/// The relative error of the lifetime is below 10^-6.
const LOG2_LIFETIME_TOLERANCE: f64 = 1.0 / 1_048_576.0;
const SECANTS_MAX: usize = 60;
