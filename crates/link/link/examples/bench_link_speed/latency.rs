//! Measures the latency that the link adds to a short request, without other traffic and during a download.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use edgeward_dedup::codec::{Method, Methods};
use edgeward_testkit::{Wan, WanSettings};

use crate::endpoints::{Features, LinkBed};
use crate::watch::{Watch, now};

/// All features of the link, except that the chunk stores do not compress (`store`), and that the gateway does not
/// store all chunks that it sends (`keep_sent`).
const ALL_FEATURES: Features = Features {
    store: Method::None,
    tls: true,
    dedup: true,
    keep_sent: false,
    delta: true,
    methods: Methods::ALL,
    chunk_bytes: 8 << 10,
};

/// Measures the latency over the link and through a TCP relay in turns, on loopback and without other traffic.
pub(crate) fn idle() -> io::Result<()> {
    let target = start_target()?;
    let test_link = LinkBed::start(target, &ALL_FEATURES, None)?;
    let relay = start_relay(target)?;
    let watch = Watch::start()?;
    let (mut link, mut relayed) = (Vec::new(), Vec::new());
    let mut connections = [
        TcpStream::connect(test_link.addr)?,
        TcpStream::connect(relay)?,
    ];
    for round in 0..20 {
        for (tcp, requests) in connections.iter_mut().zip([&mut link, &mut relayed]) {
            for _ in 0..500 {
                let times = send_request(tcp)?;
                // The first round is the warm-up.
                if round > 0 {
                    requests.push(times);
                }
            }
        }
    }
    let [link, relayed] =
        [link, relayed].map(|requests| Times::of(&requests, watch.as_ref(), SHORT_PAUSE_NS));
    crate::print_row(&format!(
        r#"{{"row":"latency, idle","link":{},"relay":{},"added_p99_us":{:.0},"added_p99_us_undisturbed":{},"load_average":{}}}"#,
        link.json(),
        relayed.json(),
        link.all.p99 - relayed.all.p99,
        link.p99_above(&relayed),
        crate::load_average(),
    ));
    Ok(())
}

/// Measures the latency over the link on a network of 100 Mb/s and 10 ms each way, without other traffic and
/// during an endless download.
pub(crate) fn during_download() -> io::Result<()> {
    let link = LinkBed::over(start_target()?, &ALL_FEATURES, Some(NETWORK))?;
    measure_during_download("latency, beside a download", link.addr)
}

/// Like [`during_download`], but with two TCP connections instead of the link. This is the latency that the network
/// and the machine add.
pub(crate) fn during_download_without_link() -> io::Result<()> {
    let wan = Wan::start(start_target()?, NETWORK)?;
    measure_during_download("latency, beside a download, without the link", wan.addr())
}

/// Measures the latency at this address before and during a download, and prints the row.
fn measure_during_download(row: &str, addr: SocketAddr) -> io::Result<()> {
    let mut tcp = TcpStream::connect(addr)?;
    let mut series = |count| {
        (0..count)
            .map(|_| send_request(&mut tcp))
            .collect::<io::Result<Vec<_>>>()
    };
    let watch = Watch::start()?;
    series(20)?;
    let alone = Times::of(&series(REQUESTS)?, watch.as_ref(), PAUSE_NS);

    let is_done = Arc::new(AtomicBool::new(false));
    let (stop, received) = (Arc::clone(&is_done), Arc::new(AtomicU64::new(0)));
    let counter = Arc::clone(&received);
    let bulk = thread::spawn(move || -> io::Result<()> {
        let mut tcp = TcpStream::connect(addr)?;
        tcp.write_all(&[BULK; REQUEST_BYTES])?;
        let mut buffer = vec![0; 64 << 10];
        while !stop.load(Ordering::Relaxed) {
            counter.fetch_add(tcp.read(&mut buffer)? as u64, Ordering::Relaxed);
        }
        Ok(())
    });
    // Wait until the download has filled all buffers.
    thread::sleep(Duration::from_secs(2));
    let (start, before) = (Instant::now(), received.load(Ordering::Relaxed));
    let during = Times::of(&series(REQUESTS)?, watch.as_ref(), PAUSE_NS);
    let seconds = start.elapsed().as_secs_f64();
    let bytes = received.load(Ordering::Relaxed) - before;
    is_done.store(true, Ordering::Relaxed);
    bulk.join().expect("the thread does not panic")?;
    crate::print_row(&format!(
        r#"{{"row":"{row}","line":"100 Mb/s, 10 ms each way","alone":{},"beside":{},"raised_p50_us":{:.0},"raised_p99_us":{:.0},"raised_p99_us_undisturbed":{},"bulk_mbps":{:.1},"load_average":{}}}"#,
        alone.json(),
        during.json(),
        during.all.p50 - alone.all.p50,
        during.all.p99 - alone.all.p99,
        during.p99_above(&alone),
        bytes as f64 * 8.0 / 1e6 / seconds,
        crate::load_average(),
    ));
    Ok(())
}

const NETWORK: WanSettings = WanSettings {
    bits_per_second: 100_000_000,
    delay: Duration::from_millis(10),
};

/// The number of requests of each series. At 20 ms per request, a series takes more than half a minute.
const REQUESTS: usize = 1500;

/// The shortest processor pause that counts if a request takes less than 1 ms, in nanoseconds. In a pause, the host of
/// the virtual machine suspends a processor (see [`Watch`]).
const SHORT_PAUSE_NS: u64 = 300_000;

/// The shortest processor pause that counts if a request takes 20 ms, in nanoseconds. If shorter pauses counted, most
/// requests would overlap a pause, and slow requests more often than fast ones.
const PAUSE_NS: u64 = 1_000_000;

/// Starts a server that answers each request of 200 bytes with 1 KiB, or with endless random bytes if the first byte
/// of the request is [`BULK`].
fn start_target() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            thread::spawn(move || serve(tcp));
        }
    });
    Ok(addr)
}

fn serve(mut tcp: TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let (mut request, mut word) = ([0; REQUEST_BYTES], 1_u64);
    loop {
        tcp.read_exact(&mut request)?;
        if request[0] != BULK {
            tcp.write_all(&[7; RESPONSE_BYTES])?;
            continue;
        }
        let mut noise = vec![0; 64 << 10];
        loop {
            for eight in noise.chunks_exact_mut(8) {
                word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                eight.copy_from_slice(&(word ^ (word >> 29)).to_le_bytes());
            }
            tcp.write_all(&noise)?;
        }
    }
}

/// Starts a TCP relay with two threads for each connection.
fn start_relay(to: SocketAddr) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    thread::spawn(move || -> io::Result<()> {
        for client in listener.incoming().flatten() {
            let target = TcpStream::connect(to)?;
            for (mut from, mut to) in [(client.try_clone()?, target.try_clone()?), (target, client)]
            {
                to.set_nodelay(true)?;
                thread::spawn(move || io::copy(&mut from, &mut to));
            }
        }
        Ok(())
    });
    Ok(addr)
}

/// Sends a request and reads its response. Returns the start and the end of the exchange, as returned by [`now`].
pub(crate) fn send_request(tcp: &mut TcpStream) -> io::Result<[u64; 2]> {
    tcp.set_nodelay(true)?;
    let mut response = [0; RESPONSE_BYTES];
    let start = now();
    tcp.write_all(&[1; REQUEST_BYTES])?;
    tcp.read_exact(&mut response)?;
    Ok([start, now()])
}

/// The latencies of a series of requests.
pub(crate) struct Times {
    pub(crate) all: Quantiles,
    /// The latencies of the requests during which no processor was paused. `None` if there are no such requests, or
    /// if pauses cannot be detected.
    undisturbed: Option<Quantiles>,
    /// The number of undisturbed requests, and the number of all requests.
    count: [usize; 2],
    /// The number of pauses during the series.
    pauses: usize,
    /// The paused time divided by the duration of the series; a pause counts once for each processor.
    paused_share: f64,
}

impl Times {
    /// Evaluates the start and end times of the requests. Pauses shorter than `shortest` nanoseconds are ignored.
    pub(crate) fn of(requests: &[[u64; 2]], watch: Option<&Watch>, shortest: u64) -> Self {
        let duration = |[start, end]: &[u64; 2]| end - start;
        let from = requests.first().map_or(0, |[start, _]| *start);
        let to = requests.last().map_or(0, |[_, end]| *end);
        let pauses = watch.map(|watch| {
            let mut pauses = watch.pauses(from, to);
            pauses.retain(|pause| duration(pause) >= shortest);
            pauses
        });
        let undisturbed = pauses.as_ref().map(|pauses| {
            let is_undisturbed = |[start, end]: &&[u64; 2]| {
                let meets = |[from, to]: &[u64; 2]| from < end && start < to;
                !pauses.iter().any(meets)
            };
            requests
                .iter()
                .filter(is_undisturbed)
                .map(duration)
                .collect::<Vec<u64>>()
        });
        let pauses = pauses.unwrap_or_default();
        let paused: u64 = pauses.iter().map(duration).sum();
        Self {
            all: Quantiles::of(requests.iter().map(duration).collect()),
            count: [undisturbed.as_ref().map_or(0, Vec::len), requests.len()],
            undisturbed: undisturbed
                .filter(|times| !times.is_empty())
                .map(Quantiles::of),
            pauses: pauses.len(),
            paused_share: paused as f64 / (to - from).max(1) as f64,
        }
    }

    /// Returns the p99 of this series' undisturbed requests minus the p99 of the other series, in microseconds
    /// as JSON.
    fn p99_above(&self, other: &Self) -> String {
        let both = self.undisturbed.as_ref().zip(other.undisturbed.as_ref());
        both.map_or_else(
            || "null".to_owned(),
            |(one, other)| format!("{:.0}", one.p99 - other.p99),
        )
    }

    pub(crate) fn json(&self) -> String {
        let [undisturbed, all] = self.count;
        format!(
            r#"{{"questions":{all},"all_us":{},"undisturbed":{undisturbed},"undisturbed_us":{},"pauses":{},"paused_share":{:.4}}}"#,
            self.all.json(),
            self.undisturbed
                .as_ref()
                .map_or_else(|| "null".to_owned(), Quantiles::json),
            self.pauses,
            self.paused_share,
        )
    }
}

/// Latencies in microseconds.
pub(crate) struct Quantiles {
    p50: f64,
    p90: f64,
    pub(crate) p99: f64,
    max: f64,
}

impl Quantiles {
    /// Computes the quantiles of times in nanoseconds.
    pub(crate) fn of(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        let at = |share: f64| {
            let rank = (times.len().saturating_sub(1) as f64 * share) as usize;
            times
                .get(rank)
                .map_or(f64::NAN, |nanos| *nanos as f64 / 1e3)
        };
        Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: at(1.0),
        }
    }

    pub(crate) fn json(&self) -> String {
        format!(
            r#"{{"p50":{:.0},"p90":{:.0},"p99":{:.0},"max":{:.0}}}"#,
            self.p50, self.p90, self.p99, self.max
        )
    }
}

pub(crate) const REQUEST_BYTES: usize = 200;
pub(crate) const RESPONSE_BYTES: usize = 1024;

/// The first byte of a request for an endless response.
const BULK: u8 = 9;
