//! The sieve, one place at a time: this defines it.

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
    places.find(|&place| sum(bytes, place) < sieve && verdict(place))
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
}
