//! The finite-horizon model: what a cache will do in the next window, from where it stands now.
//!
//! The stationary model answers for the long run, and under a small `c` the long run is never
//! reached: an object of size `s` waits about `e^(s/c)` requests to be let in, so the model promises
//! hits that no window will see. Here each object starts from where it is. Between windows its
//! chain has two states with the rates
//!
//! - out → in: `a = r p`, a request that is admitted;
//! - in → out: `b = r / (e^(rT) - 1)`, the rate that makes Theorem 1 the long run: `a / (a + b) = P∞`;
//!
//! so over a horizon `H` it is resident for the share
//! `P̄ = P∞ + (P0 - P∞) (1 - e^(-(a+b)H)) / ((a+b)H)` of the time, with `P0` = resident now. The
//! lifetime `T` solves `Σ P̄ s = K` as before, and hits are `Σ r P̄`.
//!
//! Two more things make it a prediction of the next window rather than of the last one again:
//! rates are calibrated (see `calibration`), since most objects seen once are not seen again; and
//! objects not known yet, as many as the last window brought, miss once, may be let in, and then
//! live like the others for the rest of the window.

use super::model::{
    BINS_PER_OCTAVE, Bins, Solution, admission_probability, root_of_increasing, stationary,
};

/// One object at the start of the window to be predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// Requests expected in the window.
    pub rate: f64,
    /// Bytes it occupies when resident.
    pub size_bytes: f64,
    /// Whether it is in the cache now.
    pub resident: bool,
}

/// One object that the window brings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Newcomer {
    /// Its requests, the first of which cannot hit.
    pub count: u32,
    /// Bytes it occupies when resident.
    pub size_bytes: f64,
}

/// The next window, compressed for repeated evaluation.
#[derive(Clone, Debug)]
pub struct Outlook {
    rates: Bins,
    sizes: Bins,
    /// Keyed by rate bin, size bin and start; each list in the order its bins were first needed.
    cells: Vec<Cell>,
    places: Vec<Vec<[u32; 3]>>,
    request_rate: f64,
    capacity_bytes: f64,
    ready: Option<Means>,
}

/// How an object enters the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Out,
    Resident,
    /// Not known before. Its first request is a miss that lets it in with probability `p`.
    New,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    rate: u32,
    size: u32,
    start: Start,
    /// Σ of the requests that may hit, and Σ s.
    request_rate: f64,
    bytes: f64,
}

#[derive(Clone, Debug)]
struct Means {
    rates: Vec<f64>,
    sizes: Vec<f64>,
}

impl Outlook {
    /// An empty outlook for a cache of this capacity.
    pub fn new(capacity_bytes: f64) -> Self {
        Self {
            rates: Bins::new(BINS_PER_OCTAVE),
            sizes: Bins::new(BINS_PER_OCTAVE),
            cells: Vec::new(),
            places: Vec::new(),
            request_rate: 0.0,
            capacity_bytes,
            ready: None,
        }
    }

    /// Adds an object the tuner knows.
    pub fn add_known(&mut self, object: Known) {
        self.request_rate += object.rate;
        if object.size_bytes > self.capacity_bytes {
            return;
        }
        let start = if object.resident {
            Start::Resident
        } else if object.rate > 0.0 {
            Start::Out
        } else {
            return;
        };
        self.add(object.rate, object.rate, object.size_bytes, start);
    }

    /// Adds an object expected to be seen for the first time in the window.
    pub fn add_newcomer(&mut self, object: Newcomer) {
        let count = f64::from(object.count);
        self.request_rate += count;
        if object.size_bytes > self.capacity_bytes || object.count == 0 {
            return;
        }
        // n requests spread evenly over the window: the first comes at 1/(n+1) of it on average,
        // and the n-1 others fall into the n/(n+1) that remain.
        let remaining = count / (count + 1.0);
        self.add(
            (count - 1.0) / remaining,
            count - 1.0,
            object.size_bytes,
            Start::New,
        );
    }

    fn add(&mut self, rate: f64, request_rate: f64, size_bytes: f64, start: Start) {
        self.ready = None;
        let rate_bin = self.rates.add(rate);
        let size_bin = self.sizes.add(size_bytes.max(1.0));
        if self.places.len() <= rate_bin as usize {
            self.places.resize(rate_bin as usize + 1, Vec::new());
        }
        let row = &mut self.places[rate_bin as usize];
        if row.len() <= size_bin as usize {
            row.resize(size_bin as usize + 1, [u32::MAX; 3]);
        }
        let place = &mut row[size_bin as usize][start as usize];
        if *place == u32::MAX {
            *place = self.cells.len() as u32;
            self.cells.push(Cell {
                rate: rate_bin,
                size: size_bin,
                start,
                request_rate: 0.0,
                bytes: 0.0,
            });
        }
        let cell = &mut self.cells[*place as usize];
        cell.request_rate += request_rate;
        cell.bytes += size_bytes;
    }

    /// Solves for the lifetime under `c` over `horizon_windows`, and the hit ratio that follows.
    pub fn solve(&mut self, c: f64, horizon_windows: f64) -> Solution {
        let means = self.ready.get_or_insert_with(|| Means {
            rates: self.rates.means(),
            sizes: self.sizes.means(),
        });
        let admitted: Vec<f64> = means
            .sizes
            .iter()
            .map(|&size| admission_probability(size, c))
            .collect();
        let mut rows = vec![Row::default(); means.rates.len()];
        let capacity_bytes = self.capacity_bytes;
        let cells = &self.cells;
        let mut sum = |lifetime: f64, bytes: bool| -> f64 {
            for (row, &rate) in rows.iter_mut().zip(&means.rates) {
                *row = Row::new(rate, lifetime);
            }
            cells
                .iter()
                .map(|cell| {
                    let row = rows[cell.rate as usize];
                    let p = admitted[cell.size as usize];
                    let (start, span) = match cell.start {
                        Start::Out => (0.0, horizon_windows),
                        Start::Resident => (1.0, horizon_windows),
                        Start::New => (p, NEWCOMER_SPAN * horizon_windows),
                    };
                    let mean = row.mean_presence(p, start, span);
                    match (bytes, cell.start) {
                        (false, _) => cell.request_rate * mean,
                        // Over a longer horizon more of them come, each with less of it left.
                        (true, Start::New) => cell.bytes * mean * NEWCOMER_SPAN * horizon_windows,
                        (true, _) => cell.bytes * mean,
                    }
                })
                .sum()
        };
        let lifetime_windows =
            root_of_increasing(|log2_lifetime| sum(log2_lifetime.exp2(), true) - capacity_bytes)
                .map_or(f64::INFINITY, f64::exp2);
        let hits = sum(lifetime_windows, false);
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

/// What the objects of one rate have in common for one lifetime.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    rate: f64,
    absent: f64,
    leave: f64,
}

impl Row {
    fn new(rate: f64, lifetime: f64) -> Self {
        let exponent = rate * lifetime;
        Self {
            rate,
            absent: (-exponent).exp(),
            // r / (e^(rT) - 1), whose limit for r -> 0 is 1/T: the object only waits to be pushed out.
            leave: if exponent > 1e-9 {
                rate / exponent.exp_m1()
            } else {
                1.0 / lifetime
            },
        }
    }

    /// P̄ of the module's equations.
    fn mean_presence(self, admitted: f64, start: f64, span: f64) -> f64 {
        let forever = stationary(self.absent, admitted);
        let x = (self.rate * admitted + self.leave) * span;
        let memory = if x > 1e-6 { -(-x).exp_m1() / x } else { 1.0 };
        forever + (start - forever) * memory
    }
}

/// What is left of a window, on average, for an object that turns up somewhere in it.
const NEWCOMER_SPAN: f64 = 0.5;
