//! The finite-horizon model: predicts the next window from the current content of the cache.
//!
//! The stationary model predicts the long run, which a small `c` never reaches: an object of size `s` is
//! admitted only after about `e^(s/c)` requests. The model would promise hits that no window has. Here each
//! object starts in its current state, resident or not, and the model follows its requests through one window.
//! `p = e^(-s/c)` and the lifetime `T` are those of the AdaptSize paper. [`Gaps`] gives the probability `G` that the
//! next request arrives within `T`:
//!
//! - a request finds the object with probability `h`; after it the object is resident with probability `y = h +
//!   (1 - h) p`;
//! - the next request finds it with probability `h' = G y`, so `y' = p + (1 - p) G y`, which converges
//!   geometrically to `y∞ = p / (1 - (1 - p) G)`;
//! - in the long run with Poisson requests at rate `r`, `h∞ = G y∞` is Theorem 1: set `G = 1 - e^(-rT)`.
//!
//! An object with `n` requests that is not resident at the start has one certain miss, and `Σ G y` hits among
//! the `n - 1` other requests. The first request of a resident object may be a hit.
//!
//! `T` is the lifetime at which the requests of the window fill the cache, equation (1). Each request keeps its
//! object until the next request (the gap) or for `T`, whichever is shorter. By Little's law the resident bytes
//! are the sum of bytes times these times. After the last request of an object, the gap is the part of the window
//! that its other gaps leave, as if the window repeated. A cache that is empty at the start therefore evicts no
//! object until `T` and then holds its capacity in bytes, as a real cache does. An object that is resident at the
//! start and not requested takes space only if it outlives the window.
//!
//! The request counts `n` are known for a past window. For the next window, `calibration` gives the mean count that
//! followed similar estimates in earlier windows, so that the many objects with a single request add few hits. The
//! number of new objects is assumed to be that of the last window.

use super::gaps::{GapCurve, Gaps};
use super::model::{BINS_PER_OCTAVE, Bins, Solution, admission_probability, root_of_increasing};

/// The expected requests of one object in the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpectedRequests {
    /// The probability that the object is requested.
    pub active: f64,
    /// Its expected requests if it is requested, at least 1.
    pub count: f64,
    /// Its bytes when resident.
    pub size_bytes: f64,
    /// True if the object is resident at the start.
    pub resident: bool,
}

/// The objects of a window, grouped for repeated evaluation.
#[derive(Clone, Debug)]
pub struct WindowObjects {
    capacity_bytes: f64,
    counts: Bins,
    sizes: Bins,
    cells: Vec<Cell>,
    /// The index of a cell by count bin, size bin and residency.
    cell_indices: Vec<Vec<[u32; 2]>>,
    requests: f64,
    /// Bytes of resident objects that the window does not request.
    idle_bytes: f64,
}

/// Objects with similar counts and sizes and the same residency.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// The bins of the count and of the size.
    count: u32,
    size: u32,
    resident: bool,
    /// The expected number of requested objects, and their bytes.
    objects: f64,
    bytes: f64,
}

/// The model of one window, which can be solved for any `c`.
#[derive(Clone, Debug)]
pub struct WindowModel {
    capacity_bytes: f64,
    cells: Vec<Cell>,
    /// The mean count of each bin and its gaps, or `None` for an empty bin.
    counts: Vec<Option<(f64, GapCurve)>>,
    /// The mean size of each bin, in bytes.
    sizes: Vec<f64>,
    requests: f64,
    idle_bytes: f64,
    /// log2 of the lifetime that the last call found. The next search starts at this value.
    last_log2_lifetime: f64,
}

impl WindowObjects {
    /// Makes an empty window for a cache of this capacity.
    pub fn new(capacity_bytes: f64) -> Self {
        Self {
            capacity_bytes,
            counts: Bins::new(BINS_PER_OCTAVE),
            sizes: Bins::new(BINS_PER_OCTAVE),
            cells: Vec::new(),
            cell_indices: Vec::new(),
            requests: 0.0,
            idle_bytes: 0.0,
        }
    }

    /// Adds an object. For an object larger than the cache only its requests count.
    pub fn add(&mut self, object: ExpectedRequests) {
        self.requests += object.active * object.count;
        if object.size_bytes > self.capacity_bytes {
            return;
        }
        if object.resident {
            self.idle_bytes += (1.0 - object.active) * object.size_bytes;
        }
        if object.active <= 0.0 {
            return;
        }
        let count = self.counts.add(object.count.max(1.0));
        let size = self.sizes.add(object.size_bytes.max(1.0));
        if self.cell_indices.len() <= count as usize {
            self.cell_indices.resize(count as usize + 1, Vec::new());
        }
        let row = &mut self.cell_indices[count as usize];
        if row.len() <= size as usize {
            row.resize(size as usize + 1, [u32::MAX; 2]);
        }
        let cell_index = &mut row[size as usize][usize::from(object.resident)];
        if *cell_index == u32::MAX {
            *cell_index = self.cells.len() as u32;
            self.cells.push(Cell {
                count,
                size,
                resident: object.resident,
                objects: 0.0,
                bytes: 0.0,
            });
        }
        let cell = &mut self.cells[*cell_index as usize];
        cell.objects += object.active;
        cell.bytes += object.active * object.size_bytes;
    }

    /// Adds bytes of resident objects that the window does not request and that were not added by
    /// [`add`](Self::add).
    pub fn add_idle_bytes(&mut self, bytes: f64) {
        self.idle_bytes += bytes;
    }

    /// Prepares the model with the measured gaps.
    pub fn model(self, gaps: &Gaps) -> WindowModel {
        let counts = self.counts.means().into_iter();
        WindowModel {
            capacity_bytes: self.capacity_bytes,
            cells: self.cells,
            counts: counts
                .map(|count| (count > 0.0).then(|| (count, gaps.curve(count))))
                .collect(),
            sizes: self.sizes.means(),
            requests: self.requests,
            idle_bytes: self.idle_bytes,
            last_log2_lifetime: 0.0,
        }
    }
}

impl WindowModel {
    /// Solves for the lifetime under `c` and returns the hit ratio.
    pub fn solve(&mut self, c: f64) -> Solution {
        let admitted: Vec<f64> = self
            .sizes
            .iter()
            .map(|&size| admission_probability(size, c))
            .collect();
        let mut rows = vec![CountTerms::default(); self.counts.len()];
        let mut sums = |lifetime: f64| {
            for (row, count) in rows.iter_mut().zip(&self.counts) {
                if let Some((count, gaps)) = count {
                    *row = CountTerms::new(*count, gaps, lifetime);
                }
            }
            // The window does not request these bytes. Their ages at the start are uniform from 0 to T windows. Bytes
            // of an age below T - 1 outlive the window: the share 1 - 1/T.
            let (mut bytes, mut hits) = (self.idle_bytes * (1.0 - 1.0 / lifetime).max(0.0), 0.0);
            for cell in &self.cells {
                let p = admitted[cell.size as usize];
                let (presence, hits_each) = rows[cell.count as usize].outcome(p, cell.resident);
                bytes += cell.bytes * presence;
                hits += cell.objects * hits_each;
            }
            (bytes, hits)
        };
        let root = root_of_increasing(self.last_log2_lifetime, |log2_lifetime| {
            sums(log2_lifetime.exp2()).0 - self.capacity_bytes
        });
        let lifetime_windows = root.map_or(f64::INFINITY, f64::exp2);
        // The sums need a finite lifetime. Above LIFETIME_MAX windows, a longer lifetime does not change the hits.
        let (_, hits) = sums(lifetime_windows.min(LIFETIME_MAX));
        self.last_log2_lifetime = root.unwrap_or(self.last_log2_lifetime);
        Solution {
            lifetime_windows,
            object_hit_ratio: if self.requests > 0.0 {
                hits / self.requests
            } else {
                0.0
            },
        }
    }
}

/// The terms of all objects with the same count, for one lifetime.
#[derive(Clone, Copy, Debug, Default)]
struct CountTerms {
    /// Requests after the first.
    more: f64,
    /// `G(T)`, the share of gaps up to `T`, and `M(T)`, the mean time in windows that an object stays after a
    /// request: until the next request or for `T`, whichever is shorter.
    within: f64,
    stay: f64,
    /// The mean time that an object stays resident after its last request of the window.
    last_stay: f64,
    /// The probability that the first request of a resident object arrives before its eviction.
    first_in_time: f64,
}

impl CountTerms {
    fn new(count: f64, gaps: &GapCurve, lifetime: f64) -> Self {
        let more = count - 1.0;
        let (within, stay) = gaps.at(lifetime);
        // The part of the window that the gaps do not cover lies before the first request and after the last. Its
        // minimum is half of the mean part into which `count` requests at random times divide the window.
        let edge = (1.0 - more * gaps.mean()).max(0.5 / (count + 1.0));
        Self {
            more,
            within,
            stay,
            last_stay: edge.min(lifetime),
            first_in_time: first_in_time(edge, lifetime),
        }
    }

    /// Returns the share of time that an object with the admission probability `p` is resident, and its expected hits.
    fn outcome(&self, p: f64, resident: bool) -> (f64, f64) {
        let first_hits = if resident { self.first_in_time } else { 0.0 };
        // `start` is `y` after the first request. With each request, the difference of `y` and `long_run` shrinks by
        // the factor `ratio`.
        let start = first_hits + (1.0 - first_hits) * p;
        if self.more <= 0.0 {
            return (start * self.last_stay, first_hits);
        }
        let ratio = (1.0 - p) * self.within;
        let one_minus_ratio = 1.0 - ratio;
        let (sum, end) = if one_minus_ratio < 1e-12 {
            // The object is never admitted and never evicted, so its state does not change.
            (start * self.more, start)
        } else {
            let long_run = p / one_minus_ratio;
            // ratio^more. Because ln ratio < -(1 - ratio), the value is below e^-40 if the product exceeds 40.
            let start_weight = if self.more * one_minus_ratio > 40.0 || ratio <= 0.0 {
                0.0
            } else {
                (self.more * ratio.ln()).exp()
            };
            (
                self.more * long_run + (start - long_run) * (1.0 - start_weight) / one_minus_ratio,
                long_run + (start - long_run) * start_weight,
            )
        };
        (
            sum * self.stay + end * self.last_stay,
            first_hits + self.within * sum,
        )
    }
}

/// Returns the probability that an object that is resident at the start is still resident at its first request.
/// The first request arrives uniformly within `edge`.
///
/// The time since the last request is uniform too, up to `edge` or up to `T` if that is shorter.
fn first_in_time(edge: f64, lifetime: f64) -> f64 {
    if lifetime <= edge {
        return lifetime / (2.0 * edge);
    }
    let late = (2.0 * edge - lifetime).max(0.0);
    1.0 - late * late / (2.0 * edge * edge)
}

/// The lifetime, in windows, that replaces an infinite one. All gaps in a window are shorter.
const LIFETIME_MAX: f64 = 1e9;
