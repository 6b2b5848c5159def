//! GreedyDual-Size with Frequency (GDSF): requests per byte, aged by an inflation value.
//!
//! `H = L + f / s`. `f` is the number of requests while the object is resident, `s` is its size, and `L` is the
//! `H` of the last victim. The cost of every object is 1, which optimises the object hit ratio.
//!
//! Source: Cherkasova, "Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching
//! Policy", HP Labs 1998.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::Ranking;
use crate::Object;

/// Ranks by requests per byte since the admission, plus the inflation at the last request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gdsf;

/// The request count and the rank of one object. A hit updates both.
#[derive(Debug, Default)]
pub struct AccessState {
    /// `H` as the bits of a float. The bits of non-negative floats have the same order as the floats.
    rank: AtomicU64,
    /// `1 / s` as the bits of a float.
    per_byte: AtomicU32,
    requests: AtomicU32,
}

/// `L`, the rank of the last victim, as the bits of a float.
#[derive(Debug, Default)]
pub struct Inflation(AtomicU64);

impl Ranking for Gdsf {
    type AccessState = AccessState;
    type Shared = Inflation;

    fn tick(_: &Inflation) {}

    fn enter(inflation: &Inflation, state: &AccessState, object: &Object) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a relative error of 1e-7 in 1/s changes no order that matters"
        )]
        let per_byte = (1.0 / object.size_bytes.max(1) as f64) as f32;
        state.per_byte.store(per_byte.to_bits(), Relaxed);
        state.requests.store(1, Relaxed);
        state.rank.store(rank(inflation, 1, per_byte), Relaxed);
    }

    #[inline]
    fn touch(inflation: &Inflation, state: &AccessState) {
        let requests = state.requests.load(Relaxed).saturating_add(1);
        state.requests.store(requests, Relaxed);
        let per_byte = f32::from_bits(state.per_byte.load(Relaxed));
        state
            .rank
            .store(rank(inflation, requests, per_byte), Relaxed);
    }

    fn rank(state: &AccessState) -> u64 {
        state.rank.load(Relaxed)
    }

    fn was_hit(state: &AccessState) -> bool {
        state.requests.load(Relaxed) > 1
    }

    fn evicted(inflation: &Inflation, rank: u64) {
        // `L` never decreases: a victim chosen at the work limit of the queue may not have the lowest rank.
        inflation.0.fetch_max(rank, Relaxed);
    }
}

fn rank(inflation: &Inflation, requests: u32, per_byte: f32) -> u64 {
    let inflation = f64::from_bits(inflation.0.load(Relaxed));
    (inflation + f64::from(requests) * f64::from(per_byte)).to_bits()
}
