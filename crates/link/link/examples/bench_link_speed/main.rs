//! Benchmark of the link: throughput of one core of each endpoint, compared with a TCP relay in the same run, and
//! the latency that the link adds to a short request.
//!
//! ```sh
//! cargo run --release --package edgeward-link --example bench_link_speed -- \
//!   [--text FILE] [--rounds 5] [--rows "NAME;…"]
//! ```
//!
//! A source sends a body to the gateway. The link carries the body to the edge's port, where a sink reads it
//! and compares every byte. Gateway, edge and relay are one thread each. The benchmark reads the CPU time of
//! these threads from the kernel, so the work of source and sink does not count, and other programs have little
//! influence.
//!
//! The speed of a row is the number of body bits divided by the CPU time of the endpoint that used more. In
//! each round the body is transferred once over the link and once through the relay, which reads and writes 128
//! KiB at a time. `ratio` is the median of the link's speed divided by the relay's speed. It applies if each
//! endpoint has a machine of its own. For `ratio_both`, the link's speed is the number of bits divided by the sum of
//! both CPU times. It applies if both endpoints share one core. `gbps` is the link's median speed, `plain_gbps` the
//! relay's. `smaller` is the length of the body divided by the bytes that the gateway sent for it.
//!
//! The rows `two edges` compare a gateway of two threads that serves two edges at once with one edge. Their speed is
//! the number of body bits divided by the CPU time of the gateway's busier thread.
//!
//! Results are most stable with all threads on one core (`taskset --cpu-list 0`); the latency rows need two
//! cores. The output is one JSON object per row on stdout.

mod cores;
mod endpoints;
mod latency;
mod watch;
mod worker;

use std::fs;
use std::io;
use std::sync::Arc;

use edgeward_dedup::codec::{Method, Methods};

use edgeward_types::SplitMix64;
use endpoints::{Features, LinkBed, Relay, Source};

/// The benchmark uses the same allocator as `edgeward`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> io::Result<()> {
    let options = Options::parse();
    if options.is_pause_detector {
        return watch::report_pauses();
    }
    let text = options.text.as_ref().map(fs::read).transpose()?;
    for row in rows() {
        if !options.includes(row.name) {
            continue;
        }
        match row.body {
            Body::Text => match &text {
                Some(text) => measure(&row, options.rounds, text)?,
                None => eprintln!("{}: needs --text FILE, left out", row.name),
            },
            _ => measure(&row, options.rounds, &[])?,
        }
    }
    for (name, is_new) in [
        ("two edges, incompressible", true),
        ("two edges, all duplicate", false),
    ] {
        if options.includes(name) {
            cores::two_edges(name, &ALL, is_new, options.rounds)?;
        }
    }
    if options.includes("latency") {
        latency::idle()?;
    }
    if options.includes("bulk") {
        latency::during_download()?;
    }
    if options.includes("bulk without link") {
        latency::during_download_without_link()?;
    }
    if options.includes("worker") {
        worker::beside_a_body(options.rounds)?;
    }
    Ok(())
}

/// A measurement: its name, the body and the settings of the link.
struct Row {
    name: &'static str,
    body: Body,
    features: Features,
    /// The bandwidth of the simulated network in bits per second. `None` for loopback without a limit.
    bandwidth: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    /// A new body of random bytes in each round.
    Noise,
    /// The same body in each round, measured from the third transfer on.
    Repeated,
    /// A new body in each round; the second transfer of each body is measured.
    Second,
    /// The file of `--text`, encoded differently in each round, so that its chunks are new.
    Text,
}

/// All features of the link, with stores that are not compressed, as in most rows.
const ALL: Features = Features {
    tls: true,
    store: Method::None,
    dedup: true,
    keep_sent: false,
    delta: true,
    methods: Methods::ALL,
    chunk_bytes: 8 << 10,
};

/// The rows, by their names in the JSON output. `bench/link/plan.toml` has the goals.
fn rows() -> Vec<Row> {
    let all = ALL;
    let dedup_only = Features {
        tls: false,
        delta: false,
        methods: Methods::NONE,
        ..all
    };
    let noise = |name, features| Row {
        name,
        body: Body::Noise,
        features,
        bandwidth: None,
    };
    vec![
        noise(
            "everything on, incompressible",
            Features {
                store: Method::Zstd,
                ..all
            },
        ),
        noise(
            "without TLS",
            Features {
                tls: false,
                store: Method::Zstd,
                ..all
            },
        ),
        // Neither TLS nor compressed stores.
        noise("nor compressed stores", Features { tls: false, ..all }),
        noise(
            "dedup only, chunks of 64 KiB",
            Features {
                chunk_bytes: 64 << 10,
                ..dedup_only
            },
        ),
        noise("dedup only", dedup_only),
        noise(
            "TLS only",
            Features {
                tls: true,
                dedup: false,
                ..dedup_only
            },
        ),
        noise(
            "frames only",
            Features {
                dedup: false,
                ..dedup_only
            },
        ),
        Row {
            name: "all duplicate",
            body: Body::Repeated,
            features: all,
            bandwidth: None,
        },
        // Both endpoints store the chunks: the gateway too stores what it sends.
        Row {
            name: "all duplicate, kept by both",
            body: Body::Repeated,
            features: Features {
                keep_sent: true,
                ..all
            },
            bandwidth: None,
        },
        Row {
            name: "all duplicate, the second time",
            body: Body::Second,
            features: all,
            bandwidth: None,
        },
        Row {
            name: "all duplicate, without TLS",
            body: Body::Repeated,
            features: dedup_only,
            bandwidth: None,
        },
        Row {
            name: "text, zstd",
            body: Body::Text,
            features: Features {
                methods: Methods::NONE.with(Method::Zstd),
                ..all
            },
            bandwidth: Some(200_000_000),
        },
        Row {
            name: "text, zstd, stores too",
            body: Body::Text,
            features: Features {
                store: Method::Zstd,
                methods: Methods::NONE.with(Method::Zstd),
                ..all
            },
            bandwidth: Some(200_000_000),
        },
    ]
}

fn measure(row: &Row, rounds: usize, text: &[u8]) -> io::Result<()> {
    let source = Source::start()?;
    let relay = Relay::start(source.addr)?;
    let mut link = LinkBed::start(source.addr, &row.features, row.bandwidth)?;
    let mut noise = Noise(SplitMix64(0x1234_5678));
    // If each round has new chunks, the warm-up fills the stores: a full store must evict chunks to store new ones.
    let warm_up = match row.body {
        Body::Noise => endpoints::STORE_BYTES as usize / BODY_BYTES + 1,
        Body::Text => endpoints::STORE_BYTES as usize / text.len().max(1) + 1,
        Body::Repeated => 2,
        Body::Second => 0,
    };
    let (mut ratios, mut ratios_both, mut relay_speeds) = (vec![], vec![], vec![]);
    let (mut link_speeds, mut reductions, mut cpu_times) = (vec![], vec![], vec![]);
    let mut repeated = None;
    for round in 0..warm_up + rounds {
        let body = match row.body {
            Body::Noise => Arc::new(noise.body()),
            Body::Repeated => Arc::clone(repeated.get_or_insert_with(|| Arc::new(noise.body()))),
            Body::Second => {
                link = LinkBed::start(source.addr, &row.features, row.bandwidth)?;
                let body = Arc::new(noise.body());
                source.set(&body);
                link.fetch(&body)?;
                body
            }
            Body::Text => {
                let mask = round as u8;
                Arc::new(text.iter().map(|byte| byte ^ mask).collect())
            }
        };
        source.set(&body);
        let before = (link.cpu(), link.wire());
        link.fetch(&body)?;
        let after = (link.cpu(), link.wire());
        if round < warm_up {
            continue;
        }
        let relay_before = relay.cpu();
        endpoints::fetch(relay.addr, &body)?;
        let gigabits = body.len() as f64 * 8.0 / 1e9;
        let relay_speed = gigabits / (relay.cpu() - relay_before);
        let cpu = [0, 1].map(|endpoint| after.0[endpoint] - before.0[endpoint]);
        let speed = gigabits / cpu[0].max(cpu[1]);
        ratios.push(speed / relay_speed);
        ratios_both.push(gigabits / (cpu[0] + cpu[1]) / relay_speed);
        link_speeds.push(speed);
        relay_speeds.push(relay_speed);
        reductions.push(body.len() as f64 / (after.1 - before.1).max(1) as f64);
        cpu_times.push(format!("[{:.4},{:.4}]", cpu[0], cpu[1]));
    }
    print_row(&format!(
        r#"{{"row":"{}","ratio":{:.3},"ratio_both":{:.3},"gbps":{:.2},"plain_gbps":{:.2},"smaller":{:.2},"ratios":{:.3?},"cpu_seconds_gateway_edge":[{}],"load_average":{}}}"#,
        row.name,
        median(&mut ratios.clone()),
        median(&mut ratios_both),
        median(&mut link_speeds),
        median(&mut relay_speeds),
        median(&mut reductions),
        ratios,
        cpu_times.join(","),
        load_average(),
    ));
    Ok(())
}

/// Prints a row.
#[expect(clippy::print_stdout, reason = "a measurement's result")]
pub(crate) fn print_row(row: &str) {
    println!("{row}");
}

struct Options {
    text: Option<String>,
    rounds: usize,
    rows: Vec<String>,
    /// True if this process only detects pauses of one processor. [`watch::Watch`] starts such processes.
    is_pause_detector: bool,
}

impl Options {
    fn parse() -> Self {
        let mut options = Self {
            text: None,
            rounds: 5,
            rows: Vec::new(),
            is_pause_detector: false,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let value = arguments.next().unwrap_or_default();
            match argument.as_str() {
                "--text" => options.text = Some(value),
                "--rounds" => options.rounds = value.parse().expect("the value is a number"),
                "--watch" => options.is_pause_detector = true,
                "--rows" => options.rows = value.split(';').map(str::to_owned).collect(),
                _ => {
                    eprintln!(
                        "usage: bench_link_speed [--text FILE] [--rounds N] [--rows ROW;ROW…]"
                    );
                    std::process::exit(2);
                }
            }
        }
        options
    }

    fn includes(&self, row: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|wanted| wanted == row)
    }
}

/// Generates bodies that do not compress.
struct Noise(SplitMix64);

impl Noise {
    fn body(&mut self) -> Vec<u8> {
        let mut body = Vec::with_capacity(BODY_BYTES);
        for _ in 0..BODY_BYTES / 8 {
            body.extend(self.0.draw().to_le_bytes());
        }
        body
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the load average of the last minute. It is printed because other processes distort the times.
fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").expect("Linux has /proc");
    let first = text.split(' ').next().and_then(|word| word.parse().ok());
    first.expect("the first field is a number")
}

const BODY_BYTES: usize = 128 << 20;
