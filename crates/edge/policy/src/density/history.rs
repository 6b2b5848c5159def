//! The request history of an object: the number of requests, the last gap, and the time of the last request.

use crate::objective::RoundedBenefit;

/// A point in time, counted in half offers. An offer is a miss whose object is offered to the tier.
///
/// An offer has an even time. The hits between this offer and the next have the odd time between both.
///
/// The time wraps around after 2³¹ offers, so an age above 2³⁰ offers is taken for 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Time(pub(super) u32);

impl Time {
    /// Returns the number of offers since `earlier`, or 0 if `earlier` is later.
    pub(super) fn offers_since(self, earlier: Self) -> u32 {
        let half_offers = self.0.wrapping_sub(earlier.0).cast_signed();
        half_offers.max(0).cast_unsigned() / 2
    }

    /// Returns true if this time is not before `earlier`.
    pub(super) fn has_reached(self, earlier: Self) -> bool {
        self.0.wrapping_sub(earlier.0).cast_signed() >= 0
    }
}

/// The recorded requests of one object. Objects with the same [`class`](Self::class) are assumed to be
/// requested again at the same rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    /// The time of the last request.
    pub(super) last: Time,
    /// The bin of the gap between the last two requests; 0 after the first request.
    gap_bin: u8,
    /// The number of requests, at most 255. All requests between two offers count as one.
    requests: u8,
    /// The benefit of a hit.
    benefit: RoundedBenefit,
}

impl History {
    /// Returns the history of an object that was requested for the first time.
    pub(super) fn first(now: Time, benefit: RoundedBenefit) -> Self {
        Self {
            last: now,
            gap_bin: 0,
            requests: 1,
            benefit,
        }
    }

    /// Returns the history after a further request.
    pub(super) fn request(self, now: Time) -> Self {
        Self {
            last: now,
            gap_bin: bin(now.offers_since(self.last)),
            requests: self.requests.saturating_add(1),
            benefit: self.benefit,
        }
    }

    /// Returns the history with another benefit of a hit.
    pub(super) fn with_benefit(self, benefit: RoundedBenefit) -> Self {
        Self { benefit, ..self }
    }

    /// Returns the weight of the object's requests in the statistics: the benefit of a hit.
    pub(super) fn weight(self) -> f64 {
        self.benefit.value()
    }

    /// Returns true if no request was recorded. An empty position of a table has such a history.
    pub(super) fn is_empty(self) -> bool {
        self.requests == 0
    }

    /// Returns the class of the request count and of the last gap, a number below [`CLASSES`].
    pub(super) fn class(self) -> usize {
        let count_class = match self.requests {
            0 | 1 => 0,
            2 => 1,
            3 | 4 => 2,
            5..=8 => 3,
            9..=32 => 4,
            33.. => 5,
        };
        count_class * BINS + usize::from(self.gap_bin)
    }

    /// Returns the time at which the age leaves its bin. The cell then changes even without a further request.
    pub(super) fn cell_changes_at(self, now: Time) -> Time {
        let bin_end = 1 << bin(now.offers_since(self.last));
        Time(self.last.0.wrapping_add(2 * (bin_end + 1)))
    }

    /// Returns the cell of this history at a time, a number below [`CELLS`]: its class and the bin of its age. The
    /// class changes only at a request; the cell also changes with time.
    pub(super) fn cell(self, now: Time) -> usize {
        self.class() * BINS + usize::from(bin(now.offers_since(self.last)))
    }
}

/// Returns the bin of a duration: `⌈log2(offers)⌉`, at most `BINS - 1`. Durations of 0 and 1 are in bin 0.
fn bin(offers: u32) -> u8 {
    let bin = u32::BITS - offers.saturating_sub(1).leading_zeros();
    bin.min(BINS as u32 - 1) as u8
}

/// Returns the width of a bin in offers: the number of whole durations that the bin contains.
pub(super) fn bin_width(bin: usize) -> f64 {
    match bin {
        0 => 1.0,
        bin => (1u64 << (bin - 1)) as f64,
    }
}

/// The number of bins of gaps and of ages. The last bin has all durations above 2²⁴ offers.
pub(super) const BINS: usize = 26;

/// A typical number of requests for each class of request counts. The classes are 1, 2, 3–4, 5–8, 9–32, 33 and more.
pub(super) const COUNT_CLASSES: [f64; 6] = [1.0, 2.0, 3.5, 6.5, 20.0, 60.0];

/// The number of classes of histories.
pub(super) const CLASSES: usize = COUNT_CLASSES.len() * BINS;

/// The number of cells: each class has a cell for each bin of ages.
pub(super) const CELLS: usize = CLASSES * BINS;

#[cfg(test)]
mod tests {
    use super::*;

    /// The bins cover all durations without gaps, and each bin has the stated width.
    #[test]
    fn each_duration_is_in_the_bin_whose_width_contains_it() {
        let mut first = 1u64;
        for expected in 0..BINS - 1 {
            let last = first + bin_width(expected) as u64 - 1;
            assert_eq!(usize::from(bin(first as u32)), expected, "{first}");
            assert_eq!(usize::from(bin(last as u32)), expected, "{last}");
            first = last + 1;
        }
        assert_eq!(usize::from(bin(u32::MAX)), BINS - 1);
        assert_eq!(bin(0), 0);
    }

    #[test]
    fn ages_survive_the_wrap_of_the_clock() {
        let before = Time(u32::MAX - 3);
        let after = Time(before.0.wrapping_add(20));
        assert_eq!(after.offers_since(before), 10);
        assert_eq!(before.offers_since(after), 0);
    }

    #[test]
    fn every_history_has_a_cell_of_its_own_class() {
        let mut history = History::first(Time(0), RoundedBenefit::default());
        for n in 1..600u32 {
            let now = Time(n.wrapping_mul(0x9E37_79B9));
            assert_eq!(history.cell(now) / BINS, history.class());
            assert!(history.cell(now) < CELLS);
            history = history.request(now);
        }
    }
}
