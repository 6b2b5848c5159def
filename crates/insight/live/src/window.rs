//! Counts over a sliding window of about an hour.

use std::collections::VecDeque;

use edgeward_types::{KeyHash, Timestamp, mix64};

use crate::what_if::{Counts, Totals};

/// The counts of the last [`CELLS`] cells of time.
#[derive(Debug)]
pub(crate) struct Window {
    caches: usize,
    cells: VecDeque<Cell>,
    /// True if the window has left out its first cell, whose requests met empty caches.
    has_forgotten: bool,
}

/// The counts of [`CELL_SECONDS`].
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    start: Timestamp,
    samples: u64,
    /// Requests of all objects.
    of_objects: Counts,
    /// Requests without a known object, and those that the model leaves out.
    others: Counts,
    /// Requests of the sample that did not arrive here.
    lost: u64,
    /// The estimates of each cache.
    misses: Vec<Misses>,
    /// Bytes written to the disk of each cache.
    disk_bytes: Vec<f64>,
    /// The part of its capacity that each cache used at last.
    fills: Vec<f64>,
}

/// The estimated misses of one cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Misses {
    /// Misses by group of keys. The groups differ by chance only, so their differences show the error of the sum.
    groups: [f64; GROUPS],
    pub(crate) sent_bytes: f64,
    pub(crate) origin_bytes: f64,
}

impl Misses {
    pub(crate) fn requests(&self) -> f64 {
        self.groups.iter().sum()
    }

    /// Returns the standard error of the number of misses.
    pub(crate) fn requests_error(&self) -> f64 {
        let mean = self.requests() / GROUPS as f64;
        let squares: f64 = self
            .groups
            .iter()
            .map(|misses| (misses - mean).powi(2))
            .sum();
        (squares * GROUPS as f64 / (GROUPS - 1) as f64).sqrt()
    }

    fn add(&mut self, other: &Self) {
        for (sum, misses) in self.groups.iter_mut().zip(other.groups) {
            *sum += misses;
        }
        self.sent_bytes += other.sent_bytes;
        self.origin_bytes += other.origin_bytes;
    }
}

impl Window {
    /// Returns an empty window of estimates for so many caches.
    pub(crate) fn new(caches: usize) -> Self {
        Self {
            caches,
            cells: VecDeque::with_capacity(CELLS),
            has_forgotten: false,
        }
    }

    /// Returns true if a cache that was never full may still answer clearly more requests when it has more objects: in
    /// the first hour, and later while its growth of the last hour would fill it within a week.
    pub(crate) fn is_filling(&self, cache: usize) -> bool {
        let (Some(first), Some(last)) = (self.cells.front(), self.cells.back()) else {
            return true;
        };
        let growth = last.fills[cache] - first.fills[cache];
        !self.has_forgotten || growth * WINDOWS_OF_WEEK > 1.0 - last.fills[cache]
    }

    /// Returns the cell of a time, which is now.
    pub(crate) fn cell(&mut self, now: Timestamp) -> &mut Cell {
        let is_full = |cell: &Cell| now.as_millis() >= cell.start.as_millis() + CELL_SECONDS * 1000;
        if self.cells.back().is_none_or(is_full) {
            if self.cells.len() == CELLS {
                self.forget();
            }
            let mut cell = Cell::new(now, self.caches);
            if let Some(last) = self.cells.back() {
                cell.fills.clone_from(&last.fills);
            }
            self.cells.push_back(cell);
        }
        let is_recent =
            |cell: &Cell| now.as_millis().saturating_sub(cell.start.as_millis()) < WINDOW_MS;
        while self.cells.len() > 1 && !self.cells.front().is_some_and(is_recent) {
            self.forget();
        }
        self.cells.back_mut().expect("a cell was pushed")
    }

    fn forget(&mut self) {
        self.cells.pop_front();
        self.has_forgotten = true;
    }

    /// Returns the sum of all cells. `None` before the first request.
    pub(crate) fn sum(&self) -> Option<Cell> {
        let mut sum = Cell::new(self.cells.front()?.start, self.caches);
        for cell in &self.cells {
            sum.samples += cell.samples;
            sum.of_objects = sum.of_objects.plus(&cell.of_objects);
            sum.others = sum.others.plus(&cell.others);
            sum.lost += cell.lost;
            for (sum, misses) in sum.misses.iter_mut().zip(&cell.misses) {
                sum.add(misses);
            }
            for (sum, bytes) in sum.disk_bytes.iter_mut().zip(&cell.disk_bytes) {
                *sum += bytes;
            }
        }
        Some(sum)
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        let cache = size_of::<Misses>() + 2 * size_of::<f64>();
        (CELLS * (size_of::<Cell>() + self.caches * cache)) as u64
    }
}

impl Cell {
    fn new(start: Timestamp, caches: usize) -> Self {
        Self {
            start,
            samples: 0,
            of_objects: Counts::default(),
            others: Counts::default(),
            lost: 0,
            misses: vec![Misses::default(); caches],
            disk_bytes: vec![0.0; caches],
            fills: vec![0.0; caches],
        }
    }

    pub(crate) fn start(&self) -> Timestamp {
        self.start
    }

    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    pub(crate) fn of_objects(&self) -> &Counts {
        &self.of_objects
    }

    pub(crate) fn others(&self) -> &Counts {
        &self.others
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    pub(crate) fn misses(&self) -> &[Misses] {
        &self.misses
    }

    pub(crate) fn disk_bytes(&self) -> &[f64] {
        &self.disk_bytes
    }

    pub(crate) fn add_disk_bytes(&mut self, cache: usize, bytes: f64) {
        self.disk_bytes[cache] += bytes;
    }

    pub(crate) fn set_fill(&mut self, cache: usize, fill: f64) {
        self.fills[cache] = fill;
    }

    pub(crate) fn add_sample(&mut self) {
        self.samples += 1;
    }

    /// Adds a miss that stands for `weight` misses.
    pub(crate) fn add_miss(
        &mut self,
        cache: usize,
        key: KeyHash,
        weight: f64,
        sent_bytes: u64,
        origin_bytes: u64,
    ) {
        let misses = &mut self.misses[cache];
        misses.groups[(mix64(key.0) % GROUPS as u64) as usize] += weight;
        misses.sent_bytes += weight * sent_bytes as f64;
        misses.origin_bytes += weight * origin_bytes as f64;
    }

    pub(crate) fn add(&mut self, totals: &Totals) {
        self.of_objects = self.of_objects.plus(&totals.of_objects);
        self.others = self.others.plus(&totals.others);
        self.lost += totals.lost;
    }
}

/// The groups of keys for estimates of errors.
const GROUPS: usize = 16;

/// The length of a cell: five minutes.
const CELL_SECONDS: u64 = 300;

/// The cells of an hour. The oldest is left out when a new one begins.
const CELLS: usize = 12;

const WINDOW_MS: u64 = CELLS as u64 * CELL_SECONDS * 1000;

const WINDOWS_OF_WEEK: f64 = 7.0 * 24.0 * 3_600_000.0 / WINDOW_MS as f64;
