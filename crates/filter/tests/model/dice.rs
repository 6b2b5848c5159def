//! The random numbers of a simulated life.

use edgeward_types::SplitMix64;

/// SplitMix64 (Steele, Lea, Flood, 2014): one stream of random numbers per life.
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub(crate) SplitMix64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0.draw()
    }

    /// Returns a number from `low` up to, but not including, `high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.roll() % (high - low)
    }

    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.roll() % 100 < percent
    }

    pub(crate) fn echo(&mut self) -> [u8; 16] {
        let halves = [self.roll().to_le_bytes(), self.roll().to_le_bytes()];
        std::array::from_fn(|n| halves[n / 8][n % 8])
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.between(0, from.len() as u64) as usize]
    }
}
