//! What nothing can be saved on, told by a look at a few of its bytes.
//!
//! Media, archives and what is encrypted have all bytes about equally often. Of [`SAMPLED`] bytes of such a chunk some hundred are different
//! ones; text has thirty, programs and tables sixty. So the number of different ones in a sample tells the two apart in 0.1 µs, where a compressor would
//! have to read all of it. It is a guess: nothing may depend on it but what is worth keeping.

/// Whether a chunk has all bytes about equally often, as far as a sample of it tells. What is shorter than the sample is never said to be noise.
pub(crate) fn is_noise(chunk: &[u8]) -> bool {
    if chunk.len() < SAMPLED {
        return false;
    }
    // From all over it: what is half text is not noise.
    let mut seen = [0_u8; 256];
    let between = (chunk.len() - SAMPLE_BYTES) / (SAMPLES - 1);
    for nth in 0..SAMPLES {
        let sample = &chunk[nth * between..][..SAMPLE_BYTES];
        sample.iter().for_each(|byte| seen[usize::from(*byte)] = 1);
    }
    let different: u32 = seen.iter().map(|seen| u32::from(*seen)).sum();
    different >= DIFFERENT_MIN
}

/// Bytes that are looked at, and how they lie together.
const SAMPLED: usize = SAMPLES * SAMPLE_BYTES;
const SAMPLES: usize = 16;
const SAMPLE_BYTES: usize = 8;

/// Of 128 random bytes 101 are different ones on average, with a standard deviation of 3.7; below this are three in a million.
const DIFFERENT_MIN: u32 = 84;

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: u32, bytes: usize) -> Vec<u8> {
        let mut word = seed;
        let mut next = || {
            word = word.wrapping_mul(0x915f_77f5).wrapping_add(0x6c07_8965);
            (word >> 24) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    /// Nearly all of what is random is called noise, wherever the sample lies.
    #[test]
    fn random_bytes_are_noise() {
        let lengths = (SAMPLED..20_000).step_by(37);
        let (mut all, mut found) = (0, 0);
        for (seed, length) in (1..).zip(lengths) {
            all += 1;
            found += u32::from(is_noise(&random(seed, length)));
        }
        assert!(found * 100 >= all * 99, "{found} of {all}");
    }

    /// What has fewer bytes than there are, or has them more often than others, is not: base64, text, what is half text, numbers of 32 bits below a
    /// million.
    #[test]
    fn what_has_structure_is_not_noise() {
        let noise = random(7, 9000);
        let base64: Vec<u8> = noise.iter().map(|byte| byte & 0x3f | 0x40).collect();
        let text = include_bytes!("noise.rs").to_vec();
        let half = [&noise[..text.len()], &text].concat();
        let numbers: Vec<u8> = noise
            .chunks_exact(3)
            .flat_map(|three| [three[0], three[1], three[2] & 0x0f, 0])
            .collect();
        for (name, bytes) in [
            ("base64", base64),
            ("text", text),
            ("half", half),
            ("numbers", numbers),
        ] {
            assert!(!is_noise(&bytes), "{name}");
        }
        assert!(!is_noise(&noise[..SAMPLED - 1]), "short");
        assert!(!is_noise(&[]) && !is_noise(&[0; 5000]));
    }
}
