//! The stationary model: one small Markov chain an object, tied together by the pushdown rate (paper, section 4.1).
//!
//! Theorem 1 gives the long-run probability that object `i` is in a cache that admits with
//! `p = e^(-s/c)`, as a function of the time `T = 1/μ` an untouched object lives in the LRU list:
//! `P = (e^(rT) - 1) p / (1 + (e^(rT) - 1) p)`. The power overflows any float for popular objects, which
//! the authors met with a Padé approximant; we divide both sides by it instead and lose nothing:
//! with `q = e^(-rT)`, `P = (1-q) p / (q + (1-q) p)`, all of whose terms lie between 0 and 1.
//!
//! `T` follows from equation (1), `Σ P s = K`. Its left side grows with `T` but is S-shaped in it, so
//! the fixed-point iteration of the published code neither converges everywhere nor tells; a
//! bracketed root does (`solve`).
//!
//! A window has hundreds of thousands of objects and a curve needs a hundred solutions. Objects of
//! nearly equal rate and size behave alike, so they are summed into cells of 1/8 octave by 1/8
//! octave first: a few thousand terms instead, at an error in the hit ratio below 0.1 points.

/// What the model needs to know of one object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObjectRate {
    /// Requests per window, on average.
    pub rate: f64,
    /// Bytes it occupies when resident.
    pub size_bytes: f64,
}

/// A population of objects, compressed for repeated evaluation.
#[derive(Clone, Debug)]
pub struct Population {
    cells: Vec<Cell>,
    rates: Vec<f64>,
    sizes: Vec<f64>,
    request_rate: f64,
    /// log2 of the last lifetime found, where the search for the next begins.
    near: f64,
}

/// Objects of nearly the same rate and size.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Places in `Population::rates` and `sizes`: the bin's mean.
    rate: u32,
    size: u32,
    /// Σ r and Σ s of the members: exact, whatever the bins are.
    request_rate: f64,
    bytes: f64,
}

/// The model solved for one `c`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Solution {
    /// How long an untouched object stays, in windows; infinite when everything fits.
    pub lifetime_windows: f64,
    /// Σ r P / Σ r.
    pub object_hit_ratio: f64,
}

impl Population {
    /// Sums objects into cells. Those that could never be resident (larger than `capacity_bytes`) only count as requests.
    ///
    /// `bins_per_octave` is the resolution in rate and size; [`BINS_PER_OCTAVE`] is fine enough.
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
            near: 0.0,
            rates: rates.means(),
            sizes: sizes.means(),
            request_rate,
        }
    }

    /// Windows until an empty cache of this capacity would be full if each request that `c` admits brought new bytes.
    ///
    /// `K / Σ r p s`: the cheapest bound on how long it takes before the long run the model speaks of begins.
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

    /// Solves equation (1) for the lifetime under `c`, and the hit ratio that follows from it.
    pub fn solve(&mut self, c: f64, capacity_bytes: f64) -> Solution {
        let admitted: Vec<f64> = self
            .sizes
            .iter()
            .map(|&size| admission_probability(size, c))
            .collect();
        // An object of rate r > 0 and p > 0 is resident for certain in the limit T -> ∞, so the
        // whole admissible footprint is what the cache would have to hold.
        let mut absent: Vec<f64> = vec![0.0; self.rates.len()];
        let mut sum = |lifetime: f64, weight: fn(&Cell) -> f64| -> f64 {
            for (absent, rate) in absent.iter_mut().zip(&self.rates) {
                *absent = (-rate * lifetime).exp();
            }
            self.cells
                .iter()
                .map(|cell| {
                    weight(cell)
                        * stationary(absent[cell.rate as usize], admitted[cell.size as usize])
                })
                .sum()
        };
        let root = root_of_increasing(self.near, |log2_lifetime| {
            sum(log2_lifetime.exp2(), |cell| cell.bytes) - capacity_bytes
        });
        let lifetime_windows = root.map_or(f64::INFINITY, f64::exp2);
        let hits = sum(lifetime_windows, |cell| cell.request_rate);
        self.near = root.unwrap_or(self.near);
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

/// `e^(-s/c)`; 1 for `c = ∞`, which admits everything.
pub fn admission_probability(size_bytes: f64, c: f64) -> f64 {
    (-size_bytes / c).exp()
}

/// Theorem 1 in the form that cannot overflow; `absent` is `q = e^(-rT)`.
pub(super) fn stationary(absent: f64, admitted: f64) -> f64 {
    let returns = (1.0 - absent) * admitted;
    let either = absent + returns;
    if either > 0.0 { returns / either } else { 0.0 }
}

/// Where an increasing function of log2 T crosses zero; nothing if it never does.
///
/// Neighbouring candidates have neighbouring roots, so the bracket grows from `near`; then come secants with
/// the Illinois rule, which keeps the bracket and needs about six evaluations where halving needs thirty.
pub(super) fn root_of_increasing(near: f64, mut f: impl FnMut(f64) -> f64) -> Option<f64> {
    let (mut low, mut high) = (near, near);
    let mut f_low = f(near);
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
    let mut kept = 0_i8;
    for _ in 0..SECANTS_MAX {
        // A wide bracket of an S-shaped curve is halved first: its secant may point almost nowhere.
        let x = if high - low > 1.0 {
            0.5 * (low + high)
        } else {
            (low * f_high - high * f_low) / (f_high - f_low)
        };
        let f_x = f(x);
        if f_x < 0.0 {
            (low, f_low) = (x, f_x);
            if kept == 1 {
                f_high *= 0.5;
            }
            kept = 1;
        } else {
            (high, f_high) = (x, f_x);
            if kept == -1 {
                f_low *= 0.5;
            }
            kept = -1;
        }
        if high - low < LOG2_LIFETIME_TOLERANCE || f_x == 0.0 {
            return Some(x);
        }
    }
    Some(0.5 * (low + high))
}

/// Geometric bins with the mean of what fell into each.
#[derive(Clone, Debug)]
pub(super) struct Bins {
    per_octave: f64,
    sums: Vec<(f64, f64)>,
}

impl Bins {
    pub(super) fn new(per_octave: u32) -> Self {
        Self {
            per_octave: f64::from(per_octave),
            sums: Vec::new(),
        }
    }

    /// The bin of `value`, counted from 2^-16.
    pub(super) fn of(&self, value: f64) -> usize {
        (((value.log2() + 16.0) * self.per_octave).max(0.0) + 0.5) as usize
    }

    pub(super) fn add(&mut self, value: f64) -> u32 {
        let bin = self.of(value);
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

/// Cells found by their two bins, kept in the order they were first needed.
#[derive(Clone, Debug, Default)]
struct CellMap {
    cells: Vec<Cell>,
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
        let place = &mut row[size as usize];
        if *place == u32::MAX {
            *place = self.cells.len() as u32;
            self.cells.push(Cell {
                rate,
                size,
                request_rate: 0.0,
                bytes: 0.0,
            });
        }
        &mut self.cells[*place as usize]
    }
}

/// Resolution of the cells in rate and in size.
pub const BINS_PER_OCTAVE: u32 = 8;

/// From a lifetime of a millionth of a request to one of a trillion windows.
const LOG2_LIFETIME_MIN: f64 = -40.0;
const LOG2_LIFETIME_MAX: f64 = 40.0;
/// T to one part in a million and a half.
const LOG2_LIFETIME_TOLERANCE: f64 = 1.0 / 1_048_576.0;
const SECANTS_MAX: usize = 60;
