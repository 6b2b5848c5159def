//! Reproducible pseudo-random numbers: SplitMix64 (Steele, Lea, Flood, 2014).

/// A generator of 64-bit numbers. The sequence depends on the seed alone. The numbers are predictable, so they
/// must not be used as secrets.
///
/// The state has 8 bytes, and drawing a number takes about a nanosecond. Among 2^64 consecutive numbers, each
/// number occurs once.
#[derive(Clone, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// Returns the next number.
    #[inline]
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix64(self.0)
    }

    /// Returns a number below `limit`: the next number modulo `limit`. The bias is at most `limit` / 2^64.
    ///
    /// # Panics
    ///
    /// Panics if `limit` is zero.
    #[inline]
    pub const fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }
}

/// Mixes the bits of a number with the last step of SplitMix64 (Stafford's variant 13). The function is a
/// bijection in which every input bit affects every output bit. It maps zero to zero.
#[inline]
pub const fn mix64(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The increment of the state: 2^64 divided by the golden ratio, made odd.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the reference implementation (Vigna, splitmix64.c) for the seed 1234567.
    #[test]
    fn the_numbers_are_those_of_the_reference_implementation() {
        let mut stream = SplitMix64(1_234_567);
        let drawn: [u64; 5] = std::array::from_fn(|_| stream.draw());
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(drawn, expected);
    }

    #[test]
    fn a_number_below_a_limit_is_below_it() {
        let mut stream = SplitMix64(7);
        assert!((1..1000).all(|limit| stream.below(limit) < limit));
    }
}
