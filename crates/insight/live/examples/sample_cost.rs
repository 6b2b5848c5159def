//! Follows requests with one part of the analysis, so that a profiler counts its instructions per sampled request.
//!
//! ```text
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null sample_cost PART REQUESTS
//! ```
//!
//! PART is `none` or `caches` for the sample of keys, and `text`, `top` or `faults` for the sample of texts. The
//! difference between two numbers of requests, and between a part and `none` or `text`, is the cost of the part.

#![expect(clippy::print_stdout, reason = "it prints its result")]

use std::hint::black_box;

use edgeward_live::faults::{Faults, ObjectFacts, Observed, ResponseFacts, ResponseSource};
use edgeward_live::top::Top;
use edgeward_live::what_if::{Request, WhatIf, WhatIfConfig};
use edgeward_types::{KeyHash, Timestamp, mix64};

const MEMORY: u64 = 8 << 20;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [part, requests] = &args[..] else {
        panic!("PART REQUESTS");
    };
    let requests: u64 = requests.parse().expect("a number");
    let mut faults = Faults::new(MEMORY / 16, 7);
    let mut top = Top::new(MEMORY * 3 / 64, 7);
    let mut what_if = WhatIf::new(WhatIfConfig {
        capacity_bytes: 100 * MEMORY,
        memory_max_bytes: MEMORY / 8 * 7,
        samples_per_second_max: 4000,
    });
    let mut followed = 0_u64;
    for n in 0..requests {
        let at = Timestamp::from_millis(2 * n);
        // 50,000 objects. The number of requests for an object is nearly in inverse proportion to its rank.
        let uniform = (mix64(n) >> 11) as f64 / (1_u64 << 53) as f64;
        let key = 50_000_f64.powf(uniform) as u64;
        let hash = KeyHash(mix64(key));
        match part.as_str() {
            "none" => _ = black_box((at, hash)),
            "caches" => {
                if what_if.sample().takes(hash, 20_000) {
                    followed += 1;
                    what_if.request(&request(at, hash));
                }
            }
            _ => {
                followed += 1;
                let target = format!("/docs/page-{key}?id={}&sort=up", key % 50);
                match part.as_str() {
                    "text" => _ = black_box(&target),
                    "top" => top.observe(at, &target, 1000, false, 1),
                    "faults" => faults.observe(&observed(at, n, key, &target)),
                    _ => panic!("unknown part {part}"),
                }
            }
        }
    }
    println!("{part}: {followed} of {requests} requests followed");
}

/// Returns a request of a good site. The cache answers nine of ten.
fn observed(at: Timestamp, n: u64, key: u64, target: &str) -> Observed<'_> {
    let is_fetch = n.is_multiple_of(10);
    Observed {
        at,
        weight: 1,
        site: Some(0),
        host: "www.shop.example",
        target,
        status: 200,
        is_get: true,
        has_credentials: false,
        has_range: false,
        accepts_coding: true,
        source: if is_fetch {
            ResponseSource::Origin
        } else {
            ResponseSource::Cache
        },
        not_stored: "",
        body_bytes: 19_500,
        body: is_fetch.then_some(key),
        object: Some(ObjectFacts {
            key,
            lifetime_ms: 3_600_000,
            has_validator: true,
        }),
        head: Some(ResponseFacts {
            cache_control: b"public, max-age=3600",
            content_type: "text/html",
            content_encoding: "gzip",
            vary: b"Accept-Encoding",
            ..ResponseFacts::default()
        }),
    }
}

fn request(at: Timestamp, key: KeyHash) -> Request {
    Request {
        at,
        key,
        charge_bytes: 20_000,
        length: 19_500,
        sent_bytes: 19_500,
        lifetime_ms: 3_600_000,
        stale_while_revalidate_ms: 0,
        has_validator: true,
    }
}
