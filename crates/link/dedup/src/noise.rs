//! Detects incompressible chunks by a sample of their bytes.
//!
//! In media, archives and encrypted data, all byte values are about equally frequent. This module calls such
//! bytes noise. A sample of [`SAMPLED_BYTES`] bytes of noise has about 100 distinct values, a sample of text about
//! 30, a sample of programs and tables about 60. Counting the distinct values in a sample takes 0.1 µs. A
//! compressor would have to read the whole chunk. The result may be wrong, so callers may only use it to decide
//! which bytes are worth storing.

/// Returns true if all byte values are about equally frequent in a sample. A chunk shorter than the sample is never
/// noise.
pub(crate) fn is_noise(chunk: &[u8]) -> bool {
    if chunk.len() < SAMPLED_BYTES {
        return false;
    }
    // The sampled ranges are spread over the whole chunk: a chunk of half noise and half text is compressible.
    let mut occurs = [0_u8; 256];
    let stride = (chunk.len() - RANGE_BYTES) / (RANGES - 1);
    for nth in 0..RANGES {
        let range = &chunk[nth * stride..][..RANGE_BYTES];
        range.iter().for_each(|byte| occurs[usize::from(*byte)] = 1);
    }
    let distinct: u32 = occurs.iter().map(|occurs| u32::from(*occurs)).sum();
    distinct >= DISTINCT_VALUES_MIN
}

/// The size of the sample of a chunk in bytes: `RANGES` ranges of `RANGE_BYTES` bytes.
const SAMPLED_BYTES: usize = RANGES * RANGE_BYTES;
const RANGES: usize = 16;
const RANGE_BYTES: usize = 8;

/// The smallest number of distinct values in a sample of noise. 128 random bytes have 101 distinct values on
/// average, with a standard deviation of 3.7. Only three in a million samples of random bytes have fewer values
/// than this limit.
const DISTINCT_VALUES_MIN: u32 = 84;

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

    /// Nearly all random chunks are detected as noise, whatever their length.
    #[test]
    fn random_bytes_are_noise() {
        let lengths = (SAMPLED_BYTES..20_000).step_by(37);
        let (mut all, mut found) = (0, 0);
        for (seed, length) in (1..).zip(lengths) {
            all += 1;
            found += u32::from(is_noise(&random(seed, length)));
        }
        assert!(found * 100 >= all * 99, "{found} of {all}");
    }

    /// Bytes with few distinct values, or with values of different frequencies, are not noise: base64, text,
    /// random bytes followed by text, and 32-bit numbers below a million.
    #[test]
    fn structured_bytes_are_not_noise() {
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
        assert!(!is_noise(&noise[..SAMPLED_BYTES - 1]), "short");
        assert!(!is_noise(&[]) && !is_noise(&[0; 5000]));
    }
}
