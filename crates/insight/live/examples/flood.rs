//! Measures the memory of the analysis while each request has a URL and a host of its own.
//!
//! ```text
//! cargo run --release -p edgeward-live --example flood -- MEMORY [REQUESTS]
//! ```
//!
//! MEMORY is `insight.memory`, a size such as `8MiB`, and is divided as the edge divides it. All requests are sampled,
//! which the edge does only at low rates.

#![expect(clippy::print_stdout, reason = "it prints its result")]

use std::time::Instant;

use edgeward_live::faults::{Faults, ObjectFacts, Observed, ResponseFacts, ResponseSource};
use edgeward_live::top::{OneHitWonders, Top};
use edgeward_live::what_if::{Request, WhatIf, WhatIfConfig};
use edgeward_types::{ByteSize, KeyHash, Timestamp, mix64};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let memory = args.first().expect("MEMORY [REQUESTS]");
    let memory = memory.parse::<ByteSize>().expect("a size").bytes();
    let requests: u64 = args
        .get(1)
        .map_or(10_000_000, |n| n.parse().expect("a number"));
    let before = resident_bytes();
    let mut faults = Faults::new(memory / 16, 7);
    let mut top = Top::new(memory * 3 / 64, 7);
    let mut wonders = OneHitWonders::new(4096);
    let mut what_if = WhatIf::new(WhatIfConfig {
        capacity_bytes: 100 * memory,
        memory_max_bytes: memory / 8 * 7,
        samples_per_second_max: 4000,
    });
    let start = Instant::now();
    let mut resident_max = 0;
    for n in 0..requests {
        // 10,000 requests per second.
        let at = Timestamp::from_millis(n / 10);
        let hash = mix64(n);
        let host = format!("host-{hash:x}.example");
        let target = match n % 4 {
            0 => format!("/folder-{hash:x}/page"),
            1 => format!("/p/{hash:x}?name-{n}=1&utm_source={hash}"),
            2 => format!("/static/{hash:x}.css?v={n}"),
            _ => format!("/team/{hash:x}/"),
        };
        faults.observe(&observed(at, n, &host, &target));
        top.observe(at, &format!("{host}{target}"), 1000, true, 1);
        if what_if.sample().takes(KeyHash(hash), 2000) {
            what_if.request(&request(at, KeyHash(hash)));
        }
        wonders.limit(what_if.sample());
        if what_if.sample().takes(KeyHash(hash), 0) {
            wonders.observe(KeyHash(hash));
        }
        if n % 100_000 == 0 {
            resident_max = resident_max.max(resident_bytes());
        }
    }
    let nanoseconds = start.elapsed().as_nanos() / u128::from(requests.max(1));
    resident_max = resident_max.max(resident_bytes());
    let parts = [
        ("faults", faults.memory_bytes()),
        ("top", top.memory_bytes()),
        ("one-hit wonders", wonders.memory_bytes()),
        ("simulated caches", what_if.memory_bytes()),
    ];
    for (name, bytes) in parts {
        println!("{name}: {}", ByteSize(bytes));
    }
    let sum = parts.iter().map(|(_, bytes)| bytes).sum();
    println!(
        "sum: {} of {}; resident memory grew by {} at most",
        ByteSize(sum),
        ByteSize(memory),
        ByteSize(resident_max.saturating_sub(before))
    );
    println!(
        "{requests} requests, {nanoseconds} ns each; findings {}, withheld {:.3}",
        faults.findings().len(),
        faults.withheld_ratio()
    );
}

/// Returns a request that shows several faults. Some are refused, or set a cookie.
fn observed<'a>(at: Timestamp, n: u64, host: &'a str, target: &'a str) -> Observed<'a> {
    Observed {
        at,
        weight: 1,
        site: None,
        host,
        target,
        status: if n % 40 == 1 { 403 } else { 200 },
        is_get: true,
        has_credentials: n.is_multiple_of(7),
        has_range: false,
        accepts_coding: true,
        source: ResponseSource::Origin,
        not_stored: "",
        body_bytes: 1000,
        body: Some(n % 3),
        object: Some(ObjectFacts {
            key: n,
            lifetime_ms: 1000,
            has_validator: false,
        }),
        head: Some(ResponseFacts {
            content_type: "text/css",
            vary: b"User-Agent",
            sets_cookie: n % 40 == 4,
            ..ResponseFacts::default()
        }),
    }
}

fn request(at: Timestamp, key: KeyHash) -> Request {
    Request {
        at,
        key,
        charge_bytes: 2000,
        length: 1000,
        sent_bytes: 1000,
        lifetime_ms: 60_000,
        stale_while_revalidate_ms: 0,
        has_validator: true,
    }
}

/// Returns the resident memory of this process. 0 on systems without `/proc`.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}
