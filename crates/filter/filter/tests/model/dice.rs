//! The random numbers of a simulated run ("life") of one client, its publisher and the network.

use edgeward_types::SplitMix64;

/// SplitMix64 (Steele, Lea, Flood, 2014): one stream of random numbers per life.
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub(crate) SplitMix64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0.draw()
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    /// Returns a number from `low` up to, but not including, `high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low)
    }

    /// Returns true with this probability in percent.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns the 16 random bytes of a challenge.
    pub(crate) fn echo(&mut self) -> [u8; 16] {
        let halves = [self.roll().to_le_bytes(), self.roll().to_le_bytes()];
        std::array::from_fn(|n| halves[n / 8][n % 8])
    }

    /// Returns one of the choices.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.between(0, choices.len() as u64) as usize]
    }
}
