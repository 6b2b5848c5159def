//! The sieve as it is defined: one place at a time, or some at once in plain code.

use std::ops::Range;

/// Where the four pairs begin, counted back from the place, and their weights.
///
/// The distances are odd and even, so that no alignment of a file's own is followed. The weights are odd, so that no
/// bit of a pair is lost.
pub(super) const PAIRS: [(usize, u16); 4] = [(2, 0x9e37), (5, 0x7f4b), (10, 0xc2b3), (16, 0x85eb)];

/// Added to each sum. Chosen so that no run of one byte, and no such run with zeroes in between (Latin text in
/// UTF-16), has a candidate: each of its places would be one.
pub(super) const OFFSET: u16 = 0xc7bf;

/// The sum at `place`.
pub(super) fn sum(bytes: &[u8], place: usize) -> u16 {
    let window: &[u8; 16] = bytes[place - 16..place].first_chunk().expect("16 bytes");
    PAIRS.iter().fold(OFFSET, |sum, &(back, weight)| {
        let pair = u16::from_le_bytes([window[16 - back], window[17 - back]]);
        sum.wrapping_add(pair.wrapping_mul(weight))
    })
}

/// The first of `places` that is a candidate and found good.
pub(super) fn first(
    bytes: &[u8],
    mut places: Range<usize>,
    sieve: u16,
    verdict: &mut impl FnMut(usize) -> bool,
) -> Option<usize> {
    while places.len() >= STEP {
        let near: &[u8; NEAR] = bytes[places.start - 16..]
            .first_chunk()
            .expect("places lie in bytes");
        let sums = sums(near);
        // The least of them all, rather than whether there is one: no branch for each.
        if sums.iter().copied().fold(u16::MAX, u16::min) < sieve {
            let candidates = places.clone().zip(sums).filter(|(_, sum)| *sum < sieve);
            let good = candidates
                .map(|(place, _)| place)
                .find(|&place| verdict(place));
            if good.is_some() {
                return good;
            }
        }
        places.start += STEP;
    }
    places.find(|&place| sum(bytes, place) < sieve && verdict(place))
}

/// Places whose sums are made in one go, so that a compiler may use whatever vectors its target has.
const STEP: usize = 32;

/// What they look at.
const NEAR: usize = 16 + STEP - 1;

/// As [`sum`], for [`STEP`] places: the first has sixteen of the bytes before it.
///
/// Not inlined: on its own it becomes vector code wherever there are vectors.
#[inline(never)]
fn sums(near: &[u8; NEAR]) -> [u16; STEP] {
    let mut pairs = [0; NEAR - 1];
    for (pair, two) in pairs.iter_mut().zip(near.windows(2)) {
        *pair = u16::from(two[0]) | u16::from(two[1]) << 8;
    }
    let mut sums = [OFFSET; STEP];
    for (back, weight) in PAIRS {
        let pairs: &[u16; STEP] = pairs[16 - back..]
            .first_chunk()
            .expect("the nearest pair ends with them");
        for (sum, pair) in sums.iter_mut().zip(pairs) {
            *sum = sum.wrapping_add(pair.wrapping_mul(weight));
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of one byte, as padding is, cost no more than other bytes: nowhere in one is a candidate. So with runs
    /// of a byte and a zero by turns.
    ///
    /// Method: all of them, with the widest sieve there is (averages of 4 KiB).
    #[test]
    fn no_run_of_one_byte_has_candidates() {
        for byte in 0..=u8::MAX {
            for window in [[byte, byte], [byte, 0], [0, byte]] {
                let sum = sum(&window.repeat(8), 16);
                assert!(sum >= 128, "{window:02x?} give {sum}");
            }
        }
    }

    /// All at once are the same as one at a time.
    #[test]
    fn sums_are_sums() {
        let bytes: Vec<u8> = (0..NEAR).map(|n| (n * n * 31 + n) as u8).collect();
        let near = bytes.first_chunk().expect("as many");
        let one_by_one: Vec<u16> = (0..STEP).map(|lane| sum(&bytes, 16 + lane)).collect();
        assert_eq!(sums(near)[..], one_by_one);
    }
}
