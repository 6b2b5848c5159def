//! Measures the time of a check-and-add of the second-hit filter and prints a table.
//!
//! `cargo run --release -p edgeward-policy --example second_hit_speed [-- KEYS..]`. The filter remembers a key for
//! about one to two periods; each KEYS is a number of keys per period. For each number the program measures new keys,
//! keys that the filter has seen in the current period, and a mix like the traffic of a CDN: 70 % new, 30 % seen keys.
//! Keys are hashes in random order, and the figures include about a nanosecond for making a key. The result is the best
//! of 100 passes of about half a millisecond, because other work on the machine only adds time.
#![expect(clippy::print_stdout, reason = "a program whose result is its output")]

use std::hint::black_box;
use std::num::NonZeroU64;
use std::time::Instant;

use edgeward_policy::sketch::{RotatingBloom, RotatingBloomConfig};
use edgeward_types::KeyHash;

fn main() {
    let mut sizes: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|keys| keys.parse().ok())
        .collect();
    if sizes.is_empty() {
        sizes = vec![10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
    }
    println!("keys a period | memory | new key | seen key | mixed");
    println!("---:|---:|---:|---:|---:");
    for keys in sizes {
        let Some(expected) = NonZeroU64::new(keys) else {
            continue;
        };
        // 0.01 is the false-positive rate.
        let config = RotatingBloomConfig::new(expected, 0.01);
        let filter = RotatingBloom::new(config);
        // Fills the filter into the middle of the second period, so that both of its Bloom filters have keys.
        for n in 0..keys * 3 / 2 {
            filter.check_and_add(key(n));
        }
        let mut next = keys * 3 / 2;
        let old = |n: u64| key(keys + n.wrapping_mul(0x9e37_79b9) % (keys / 2).max(1));
        let mut best = [f64::INFINITY; 3];
        for pass in 0..PASSES {
            let (begin, fresh) = (pass * PASS_KEYS, next);
            best[0] = best[0].min(time(&filter, |n| key(fresh + n)));
            best[1] = best[1].min(time(&filter, |n| old(begin + n)));
            next += PASS_KEYS;
            let fresh = next;
            best[2] = best[2].min(time(&filter, |n| match n % 10 {
                0..7 => key(fresh + n),
                _ => old(begin + n),
            }));
            next += PASS_KEYS;
        }
        println!(
            "{keys} | {:.1} MB | {:.1} ns | {:.1} ns | {:.1} ns",
            config.memory_bytes() as f64 / 1e6,
            best[0],
            best[1],
            best[2]
        );
    }
}

/// Returns the nanoseconds per check-and-add.
fn time(filter: &RotatingBloom, key: impl Fn(u64) -> KeyHash) -> f64 {
    let start = Instant::now();
    for n in 0..PASS_KEYS {
        black_box(filter.check_and_add(key(n)));
    }
    start.elapsed().as_nanos() as f64 / PASS_KEYS as f64
}

/// Returns a key that is a hash, as in the server.
fn key(n: u64) -> KeyHash {
    KeyHash(n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
}

const PASSES: u64 = 100;

const PASS_KEYS: u64 = 20_000;
