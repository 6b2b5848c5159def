//! Generates test data: noise, text, and edited versions of a body.

use edgeward_types::SplitMix64;

/// Generates random numbers (SplitMix64). The same seed gives the same numbers on all machines.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        let mut numbers = SplitMix64(self.0);
        let number = numbers.draw();
        self.0 = numbers.0;
        number
    }

    /// Returns a number below `limit`. `limit` must not be zero.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("the number fits a usize")
    }

    /// Returns random bytes, which no compression shortens.
    pub(crate) fn noise(&mut self, bytes: usize) -> Vec<u8> {
        let mut noise = vec![0; bytes];
        for eight in noise.chunks_mut(8) {
            eight.copy_from_slice(&self.next().to_le_bytes()[..eight.len()]);
        }
        noise
    }

    /// Returns bytes that resemble text: lines of words, a few of them frequent.
    pub(crate) fn text(&mut self, bytes: usize) -> Vec<u8> {
        let words: Vec<Vec<u8>> = (0..600)
            .map(|_| {
                let letters = 2 + self.below(9);
                (0..letters)
                    .map(|_| b"etaoinshrdlucmfw"[self.below(16)])
                    .collect()
            })
            .collect();
        let mut text = Vec::with_capacity(bytes + 80);
        while text.len() < bytes {
            for _ in 0..3 + self.below(9) {
                // The lowest of three random numbers prefers the first words.
                let word = self.below(600).min(self.below(600)).min(self.below(600));
                text.extend_from_slice(&words[word]);
                text.push(b' ');
            }
            text.push(b'\n');
        }
        text.truncate(bytes);
        text
    }

    /// Returns an edited version of a body: at `edits` positions, up to 59 bytes are replaced by up to 59 other
    /// bytes.
    pub(crate) fn edited(&mut self, body: &[u8], edits: usize) -> Vec<u8> {
        let mut edited = body.to_vec();
        for _ in 0..edits {
            let at = self.below(edited.len() + 1);
            let removed = self.below(60).min(edited.len() - at);
            let added = self.below(60);
            let added = self.noise(added);
            edited.splice(at..at + removed, added);
        }
        edited
    }
}
