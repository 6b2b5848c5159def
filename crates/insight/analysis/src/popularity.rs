//! Popularity: the histogram of requests per URL, the popularity curve, and Zipf's law.

use std::collections::BTreeMap;

/// The histogram of requests per URL: for each number of requests, the number of URLs that have it.
///
/// The histogram is small: if a log has `n` requests in all, its URLs have at most `√(2n)` different request counts.
/// A hundred million requests give at most 14 thousand rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Popularity {
    /// The number of URLs by request count, for counts below [`SMALL_COUNTS`].
    few: Vec<u64>,
    /// The number of URLs by request count, for higher counts.
    many: BTreeMap<u64, u64>,
}

/// Zipf's law fitted to the popular URLs: the requests of the URL of rank `r` are proportional to
/// `r^-exponent`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZipfFit {
    /// The slope of the line through the logarithms of rank and count, without its sign.
    pub exponent: f64,
    /// The value of the line at rank 1: the requests of the most popular URL according to the law.
    pub requests_of_first: f64,
    /// The coefficient of determination of the line, 0 to 1.
    pub r_squared: f64,
    /// The number of ranks, from 1, to which the law was fitted.
    pub ranks: u64,
}

impl Popularity {
    /// Counts a URL with this number of requests.
    #[inline]
    pub fn add(&mut self, requests: u64) {
        self.add_urls(requests, 1);
    }

    #[inline]
    fn add_urls(&mut self, requests: u64, urls: u64) {
        let Some(at) = usize::try_from(requests)
            .ok()
            .filter(|at| *at < SMALL_COUNTS)
        else {
            *self.many.entry(requests).or_default() += urls;
            return;
        };
        if self.few.is_empty() {
            self.few = vec![0; SMALL_COUNTS];
        }
        self.few[at] += urls;
    }

    /// Adds the counts of other URLs.
    pub fn merge(&mut self, other: &Self) {
        for (requests, urls) in other.rows() {
            self.add_urls(requests, urls);
        }
    }

    /// Yields each request count with its number of URLs, the smallest count first.
    pub fn rows(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        let few = self.few.iter().enumerate();
        few.map(|(requests, urls)| (requests as u64, *urls))
            .filter(|(_, urls)| *urls > 0)
            .chain(self.many.iter().map(|(requests, urls)| (*requests, *urls)))
    }

    /// Returns the popularity curve: pairs of a rank and the requests of the URL of this rank. The most
    /// requested URL has rank 1. The curve has `points_per_doubling` points per doubling of the rank.
    pub fn curve(&self, points_per_doubling: u32) -> Vec<(u64, u64)> {
        let step = 2f64.powf(1.0 / f64::from(points_per_doubling.max(1)));
        let mut curve = Vec::new();
        let (mut rank, mut next) = (0u64, 1.0);
        for (requests, urls) in self.rows().rev() {
            let last = rank + urls;
            // Adds the points whose ranks have this request count.
            while next <= last as f64 {
                curve.push(((next as u64).max(1), requests));
                next = (next * step).max(next + 1.0).floor();
            }
            rank = last;
        }
        if rank > 0 && curve.last().is_some_and(|(last, _)| *last < rank) {
            let least = self.rows().next().map_or(0, |(requests, _)| requests);
            curve.push((rank, least));
        }
        curve
    }

    /// Fits Zipf's law to the URLs with at least ten requests. If fewer than 20 URLs have ten requests, the fit uses
    /// the URLs with at least two requests. Returns `None` if fewer than 20 URLs have two requests.
    ///
    /// The fit uses least squares over ranks that are evenly spaced on a logarithmic scale, so that the long tail does
    /// not dominate.
    pub fn zipf(&self) -> Option<ZipfFit> {
        [10, 2].into_iter().find_map(|least| self.fit(least))
    }

    /// Fits Zipf's law to the URLs with at least `requests_min` requests.
    fn fit(&self, requests_min: u64) -> Option<ZipfFit> {
        let points: Vec<(f64, f64)> = self
            .curve(8)
            .into_iter()
            .filter(|(_, requests)| *requests >= requests_min)
            .map(|(rank, requests)| ((rank as f64).ln(), (requests as f64).ln()))
            .collect();
        let ranks = self
            .rows()
            .filter(|(requests, _)| *requests >= requests_min)
            .map(|(_, urls)| urls)
            .sum();
        if points.len() < 4 || ranks < RANKS_MIN {
            return None;
        }
        let n = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (mean_x, mean_y) = (mean(|p| p.0), mean(|p| p.1));
        let sum = |of: &dyn Fn(f64, f64) -> f64| {
            points
                .iter()
                .map(|(x, y)| of(x - mean_x, y - mean_y))
                .sum::<f64>()
        };
        let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
        if xx <= 0.0 {
            return None;
        }
        Some(ZipfFit {
            // Equal popularity is a slope of 0, not of -0.
            exponent: (-xy / xx).max(0.0),
            requests_of_first: (mean_y - xy / xx * mean_x).exp(),
            r_squared: if yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 },
            ranks,
        })
    }
}

/// Request counts below this number are stored in an array.
const SMALL_COUNTS: usize = 1024;

/// The smallest number of ranks for a fit. A fit to fewer ranks is not reliable.
const RANKS_MIN: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn popularity_of(counts: impl IntoIterator<Item = u64>) -> Popularity {
        let mut popularity = Popularity::default();
        counts.into_iter().for_each(|count| popularity.add(count));
        popularity
    }

    #[test]
    fn the_histogram_has_the_urls_of_each_request_count() {
        let mut one = popularity_of([1, 1, 7, 5000]);
        one.merge(&popularity_of([1, 5000, 90_000]));
        let rows: Vec<_> = one.rows().collect();
        assert_eq!(rows, [(1, 3), (7, 1), (5000, 2), (90_000, 1)]);
    }

    /// Method: compare the curve with the sorted counts.
    #[test]
    fn the_curve_runs_through_the_counts_by_rank() {
        let counts: Vec<u64> = (1..=5000u64).map(|n| 40_000 / n).collect();
        let curve = popularity_of(counts.iter().copied()).curve(8);
        assert!(curve.len() < 120, "{} points", curve.len());
        assert!(curve.is_sorted_by(|a, b| a.0 < b.0));
        for (rank, requests) in &curve {
            assert_eq!(counts[*rank as usize - 1], *requests, "rank {rank}");
        }
        assert_eq!(curve.first(), Some(&(1, 40_000)));
        assert_eq!(curve.last(), Some(&(5000, 8)));
        assert_eq!(popularity_of([]).curve(8), []);
    }

    #[test]
    fn the_exponent_of_generated_zipf_counts_is_recovered() {
        for exponent in [0.6, 0.8, 1.0, 1.2] {
            let counts = (1..=20_000).map(|rank| (1e6 / f64::from(rank).powf(exponent)) as u64);
            let fit = popularity_of(counts.filter(|n| *n > 0))
                .zipf()
                .expect("the ranks are sufficient for a fit");
            assert!(
                (fit.exponent - exponent).abs() < 0.02,
                "{exponent}: {fit:?}"
            );
            assert!(fit.r_squared > 0.99, "{fit:?}");
            assert!((0.8e6..1.2e6).contains(&fit.requests_of_first), "{fit:?}");
        }
        let flat = popularity_of(std::iter::repeat_n(50, 1000))
            .zipf()
            .expect("the ranks are sufficient for a fit");
        assert!(flat.exponent < 1e-9, "{flat:?}");
        assert_eq!(
            popularity_of([100, 10, 1]).zipf(),
            None,
            "three URLs are too few for a fit"
        );
    }
}
