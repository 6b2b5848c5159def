//! The finite-horizon model: what a cache will do in the next window, from where it stands now.
//!
//! The stationary model answers for the long run, and under a small `c` the long run is never
//! reached: an object of size `s` waits about `e^(s/c)` requests to be let in, so the model promises
//! hits that no window will see. Here each object starts from where it is, in the cache or not, and is
//! followed request by request through one window. With `p = e^(-s/c)` and the lifetime `T` as in the paper,
//! and from [`Gaps`] the chance `G` that its next request comes within `T`:
//!
//! - after a request that found it with probability `h` it is resident with `y = h + (1 - h) p`;
//! - the next request finds it with `h' = G y`, so `y' = p + (1 - p) G y`, a geometric approach to
//!   `y∞ = p / (1 - (1 - p) G)`;
//! - in the long run, with Poisson requests, `h∞ = G y∞` is Theorem 1 again: put `G = 1 - e^(-rT)`.
//!
//! An object of `n` requests that starts outside has one certain miss and `Σ G y` hits among the
//! `n - 1` others; one that starts inside has a first request that may hit.
//!
//! `T` is the one under which the window's requests fill the cache, equation (1): each keeps its object for
//! its gap or for `T`, whichever is shorter, and by Little's law the bytes held are the sum of bytes times these
//! times. The last request of an object is followed by what the gaps leave of the window, as if the next window
//! began like this one. So a cache empty at the start evicts nothing until the time `T` and holds `K` from
//! then on, as a real one does; what the old content takes away counts only if it outlives the window.
//!
//! Counts are what the window brings: for a window already over, those it had; for the next
//! one, those that followed earlier estimates (`calibration`), so that the many seen once and
//! never again promise nothing, plus as many newcomers as the last window had.

use super::gaps::{GapCurve, Gaps};
use super::model::{BINS_PER_OCTAVE, Bins, Solution, admission_probability, root_of_increasing};

/// What is expected of one object in the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prospect {
    /// The probability that it is requested at all.
    pub active: f64,
    /// Its requests if so, 1 or more on average.
    pub count: f64,
    /// Bytes it occupies when resident.
    pub size_bytes: f64,
    /// Whether it is in the cache at the start.
    pub resident: bool,
}

/// The window ahead, compressed for repeated evaluation.
#[derive(Clone, Debug)]
pub struct Outlook {
    capacity_bytes: f64,
    counts: Bins,
    sizes: Bins,
    cells: Vec<Cell>,
    /// By count bin, size bin and start: the cell's place.
    places: Vec<Vec<[u32; 2]>>,
    requests: f64,
    /// Bytes resident at the start that nobody will ask for.
    idle_bytes: f64,
}

/// Objects of nearly the same count and size that start alike.
#[derive(Clone, Copy, Debug)]
struct Cell {
    count: u32,
    size: u32,
    resident: bool,
    /// Expected number of active objects, and their bytes.
    objects: f64,
    bytes: f64,
}

/// An outlook made ready to be solved for any `c`.
#[derive(Clone, Debug)]
pub struct Forecast {
    capacity_bytes: f64,
    cells: Vec<Cell>,
    counts: Vec<Option<(f64, GapCurve)>>,
    sizes: Vec<f64>,
    requests: f64,
    idle_bytes: f64,
    /// log2 of the last lifetime found, where the search for the next begins.
    near: f64,
}

impl Outlook {
    /// An empty outlook for a cache of this capacity.
    pub fn new(capacity_bytes: f64) -> Self {
        Self {
            capacity_bytes,
            counts: Bins::new(BINS_PER_OCTAVE),
            sizes: Bins::new(BINS_PER_OCTAVE),
            cells: Vec::new(),
            places: Vec::new(),
            requests: 0.0,
            idle_bytes: 0.0,
        }
    }

    /// Adds an object. One too large to be resident only counts as requests.
    pub fn add(&mut self, object: Prospect) {
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
        if self.places.len() <= count as usize {
            self.places.resize(count as usize + 1, Vec::new());
        }
        let row = &mut self.places[count as usize];
        if row.len() <= size as usize {
            row.resize(size as usize + 1, [u32::MAX; 2]);
        }
        let place = &mut row[size as usize][usize::from(object.resident)];
        if *place == u32::MAX {
            *place = self.cells.len() as u32;
            self.cells.push(Cell {
                count,
                size,
                resident: object.resident,
                objects: 0.0,
                bytes: 0.0,
            });
        }
        let cell = &mut self.cells[*place as usize];
        cell.objects += object.active;
        cell.bytes += object.active * object.size_bytes;
    }

    /// Bytes resident at the start, beyond the objects added, that nobody will ask for.
    pub fn add_idle_bytes(&mut self, bytes: f64) {
        self.idle_bytes += bytes;
    }

    /// Makes it ready.
    pub fn forecast(self, gaps: &Gaps) -> Forecast {
        let counts = self.counts.means().into_iter();
        Forecast {
            capacity_bytes: self.capacity_bytes,
            cells: self.cells,
            counts: counts
                .map(|count| (count > 0.0).then(|| (count, gaps.curve(count))))
                .collect(),
            sizes: self.sizes.means(),
            requests: self.requests,
            idle_bytes: self.idle_bytes,
            near: 0.0,
        }
    }
}

impl Forecast {
    /// Solves for the lifetime under `c`, and the hit ratio that follows.
    pub fn solve(&mut self, c: f64) -> Solution {
        let admitted: Vec<f64> = self
            .sizes
            .iter()
            .map(|&size| admission_probability(size, c))
            .collect();
        let mut rows = vec![Row::default(); self.counts.len()];
        let mut sums = |lifetime: f64| {
            for (row, count) in rows.iter_mut().zip(&self.counts) {
                if let Some((count, gaps)) = count {
                    *row = Row::new(*count, gaps, lifetime);
                }
            }
            // Nobody asks for these. Their ages are even from 0 to T at the start, so those below T - 1 outlive the window.
            let (mut bytes, mut hits) = (self.idle_bytes * (1.0 - 1.0 / lifetime).max(0.0), 0.0);
            for cell in &self.cells {
                let p = admitted[cell.size as usize];
                let (presence, hits_each) = rows[cell.count as usize].outcome(p, cell.resident);
                bytes += cell.bytes * presence;
                hits += cell.objects * hits_each;
            }
            (bytes, hits)
        };
        let root = root_of_increasing(self.near, |log2_lifetime| {
            sums(log2_lifetime.exp2()).0 - self.capacity_bytes
        });
        let lifetime_windows = root.map_or(f64::INFINITY, f64::exp2);
        // Beyond LIFETIME_MAX windows a longer life changes nothing within one.
        let (_, hits) = sums(lifetime_windows.min(LIFETIME_MAX));
        self.near = root.unwrap_or(self.near);
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

/// What the objects of one count have in common for one lifetime.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    /// Requests after the first.
    more: f64,
    /// G(T) and M(T).
    within: f64,
    stay: f64,
    /// The same as M for the stretch that begins with the last request of the window.
    last_stay: f64,
    /// For an object that starts inside: the probability that its first request comes in time.
    first_in_time: f64,
}

impl Row {
    fn new(count: f64, gaps: &GapCurve, lifetime: f64) -> Self {
        let more = count - 1.0;
        let (within, stay) = gaps.at(lifetime);
        // What the gaps leave of the window lies before the first request and after the last.
        let edge = (1.0 - more * gaps.mean()).max(0.5 / (count + 1.0));
        Self {
            more,
            within,
            stay,
            last_stay: edge.min(lifetime),
            first_in_time: first_in_time(edge, lifetime),
        }
    }

    /// The share of the time an object is resident once the window's own requests fill the cache, and its hits.
    fn outcome(&self, p: f64, resident: bool) -> (f64, f64) {
        let first_hits = if resident { self.first_in_time } else { 0.0 };
        // y after the first request, in the long run, and how fast it gets there.
        let start = first_hits + (1.0 - first_hits) * p;
        if self.more <= 0.0 {
            return (start * self.last_stay, first_hits);
        }
        let ratio = (1.0 - p) * self.within;
        let left = 1.0 - ratio;
        let (sum, end) = if left < 1e-12 {
            // Never admitted and never evicted: as it started, so it stays.
            (start * self.more, start)
        } else {
            let forever = p / left;
            // ratio^more. As ln ratio < -(1 - ratio), beyond 40 it is below e^-40.
            let memory = if self.more * left > 40.0 || ratio <= 0.0 {
                0.0
            } else {
                (self.more * ratio.ln()).exp()
            };
            (
                self.more * forever + (start - forever) * (1.0 - memory) / left,
                forever + (start - forever) * memory,
            )
        };
        (
            sum * self.stay + end * self.last_stay,
            first_hits + self.within * sum,
        )
    }
}

/// For an object resident at the start whose first request is due uniformly within `edge`: the
/// probability that it is still there.
///
/// Its age, the time since its last request, is uniform as well, up to `edge` or to `T` if shorter.
fn first_in_time(edge: f64, lifetime: f64) -> f64 {
    if lifetime <= edge {
        return lifetime / (2.0 * edge);
    }
    let late = (2.0 * edge - lifetime).max(0.0);
    1.0 - late * late / (2.0 * edge * edge)
}

/// No gap, first or last part of a window is longer than one.
const LIFETIME_MAX: f64 = 1e9;
