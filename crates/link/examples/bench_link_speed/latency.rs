//! Measures the latency that the link adds to a short request, without other traffic and during a download.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use edgeward_dedup::codec::{Method, Methods};
use edgeward_link::IdScheme;
use edgeward_testkit::{Wan, WanSettings};

use crate::endpoints::{Features, LinkBed};
use crate::watch::{Watch, now};

const EVERYTHING: Features = Features {
    store: Method::None,
    tls: true,
    dedup: true,
    keep_sent: false,
    delta: true,
    methods: Methods::ALL,
    chunk_bytes: 8 << 10,
    ids: IdScheme::Blake3,
};

/// Measures the latency over the link and through a TCP relay in turns, without network delay and other traffic.
pub(crate) fn idle() -> io::Result<()> {
    let target = target()?;
    let test_link = LinkBed::start(target, &EVERYTHING, None)?;
    let relay = relay(target)?;
    let watch = Watch::start()?;
    let (mut link, mut plain) = (Vec::new(), Vec::new());
    let mut through = [
        TcpStream::connect(test_link.addr)?,
        TcpStream::connect(relay)?,
    ];
    for round in 0..20 {
        for (tcp, asked) in through.iter_mut().zip([&mut link, &mut plain]) {
            for _ in 0..500 {
                let question = ask(tcp)?;
                if round > 0 {
                    asked.push(question);
                }
            }
        }
    }
    let [link, plain] =
        [link, plain].map(|asked| Times::of(&asked, watch.as_ref(), SHORT_PAUSE_NS));
    crate::tell(&format!(
        r#"{{"row":"latency, idle","link":{},"relay":{},"added_p99_us":{:.0},"added_p99_us_undisturbed":{},"load_average":{}}}"#,
        link.json(),
        plain.json(),
        link.all.p99 - plain.all.p99,
        link.above(&plain),
        crate::load_average(),
    ));
    Ok(())
}

/// Measures the latency over the link on a network of 100 Mb/s and 10 ms each way, without other traffic and
/// during an endless download.
pub(crate) fn beside_bulk() -> io::Result<()> {
    let link = LinkBed::over(target()?, &EVERYTHING, Some(LINE))?;
    beside("latency, beside a download", link.addr)
}

/// Like [`beside_bulk`], but with two TCP connections instead of the link. This is the latency that the network
/// and the machine add.
pub(crate) fn beside_bulk_without_link() -> io::Result<()> {
    let line = Wan::start(target()?, LINE)?;
    beside("latency, beside a download, without the link", line.addr())
}

/// Measures the latency at this address before and during a download, and prints the row.
fn beside(row: &str, addr: SocketAddr) -> io::Result<()> {
    let mut tcp = TcpStream::connect(addr)?;
    let mut series = |count| {
        (0..count)
            .map(|_| ask(&mut tcp))
            .collect::<io::Result<Vec<_>>>()
    };
    let watch = Watch::start()?;
    series(20)?;
    let alone = Times::of(&series(QUESTIONS)?, watch.as_ref(), PAUSE_NS);

    let over = Arc::new(AtomicBool::new(false));
    let (stop, came) = (Arc::clone(&over), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&came);
    let bulk = thread::spawn(move || -> io::Result<()> {
        let mut tcp = TcpStream::connect(addr)?;
        tcp.write_all(&[BULK; QUESTION_BYTES])?;
        let mut buffer = vec![0; 64 << 10];
        while !stop.load(Ordering::Relaxed) {
            counted.fetch_add(tcp.read(&mut buffer)? as u64, Ordering::Relaxed);
        }
        Ok(())
    });
    // Wait until the download has filled all buffers.
    thread::sleep(Duration::from_secs(2));
    let (begun, before) = (Instant::now(), came.load(Ordering::Relaxed));
    let beside = Times::of(&series(QUESTIONS)?, watch.as_ref(), PAUSE_NS);
    let seconds = begun.elapsed().as_secs_f64();
    let bytes = came.load(Ordering::Relaxed) - before;
    over.store(true, Ordering::Relaxed);
    bulk.join().expect("it does not panic")?;
    crate::tell(&format!(
        r#"{{"row":"{row}","line":"100 Mb/s, 10 ms each way","alone":{},"beside":{},"raised_p50_us":{:.0},"raised_p99_us":{:.0},"raised_p99_us_undisturbed":{},"bulk_mbps":{:.1},"load_average":{}}}"#,
        alone.json(),
        beside.json(),
        beside.all.p50 - alone.all.p50,
        beside.all.p99 - alone.all.p99,
        beside.above(&alone),
        bytes as f64 * 8.0 / 1e6 / seconds,
        crate::load_average(),
    ));
    Ok(())
}

const LINE: WanSettings = WanSettings {
    bits_per_second: 100_000_000,
    delay: Duration::from_millis(10),
};

/// The number of requests of each series. At 20 ms per request, a series takes more than half a minute.
const QUESTIONS: usize = 1500;

/// The shortest pause that counts if a request takes less than a millisecond, in nanoseconds.
const SHORT_PAUSE_NS: u64 = 300_000;

/// The shortest pause that counts if a request takes 20 ms, in nanoseconds. If shorter pauses counted, most requests
/// would overlap one, and slow requests more often than fast ones.
const PAUSE_NS: u64 = 1_000_000;

/// Starts a server that answers each request of 200 bytes with 1 KiB, or with endless random bytes if the first byte
/// of the request is [`BULK`].
fn target() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            thread::spawn(move || answer(tcp));
        }
    });
    Ok(addr)
}

fn answer(mut tcp: TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let (mut question, mut word) = ([0; QUESTION_BYTES], 1_u64);
    loop {
        tcp.read_exact(&mut question)?;
        if question[0] != BULK {
            tcp.write_all(&[7; ANSWER_BYTES])?;
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
fn relay(to: SocketAddr) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    thread::spawn(move || -> io::Result<()> {
        for near in listener.incoming().flatten() {
            let far = TcpStream::connect(to)?;
            for (mut from, mut to) in [(near.try_clone()?, far.try_clone()?), (far, near)] {
                to.set_nodelay(true)?;
                thread::spawn(move || io::copy(&mut from, &mut to));
            }
        }
        Ok(())
    });
    Ok(addr)
}

/// Sends a request and reads its response. Returns the start and the end of the exchange, as returned by [`now`].
fn ask(tcp: &mut TcpStream) -> io::Result<[u64; 2]> {
    tcp.set_nodelay(true)?;
    let mut answer = [0; ANSWER_BYTES];
    let begun = now();
    tcp.write_all(&[1; QUESTION_BYTES])?;
    tcp.read_exact(&mut answer)?;
    Ok([begun, now()])
}

/// The latencies of a series of requests.
struct Times {
    all: Quantiles,
    /// The latencies of the requests during which no processor was paused. `None` without watchers.
    undisturbed: Option<Quantiles>,
    /// The number of undisturbed requests, and the number of all requests.
    count: [usize; 2],
    pauses: usize,
    /// The paused time divided by the duration of the series; a pause counts once for each processor.
    paused_share: f64,
}

impl Times {
    /// Evaluates the start and end times of the requests. Pauses shorter than `shortest` nanoseconds are ignored.
    fn of(asked: &[[u64; 2]], watch: Option<&Watch>, shortest: u64) -> Self {
        let took = |[begun, ended]: &[u64; 2]| ended - begun;
        let from = asked.first().map_or(0, |[begun, _]| *begun);
        let to = asked.last().map_or(0, |[_, ended]| *ended);
        let pauses = watch.map(|watch| {
            let mut pauses = watch.pauses(from, to);
            pauses.retain(|pause| took(pause) >= shortest);
            pauses
        });
        let undisturbed = pauses.as_ref().map(|pauses| {
            let is_undisturbed = |[begun, ended]: &&[u64; 2]| {
                let meets = |[from, to]: &[u64; 2]| from < ended && begun < to;
                !pauses.iter().any(meets)
            };
            asked
                .iter()
                .filter(is_undisturbed)
                .map(took)
                .collect::<Vec<u64>>()
        });
        let pauses = pauses.unwrap_or_default();
        let paused: u64 = pauses.iter().map(took).sum();
        Self {
            all: Quantiles::of(asked.iter().map(took).collect()),
            count: [undisturbed.as_ref().map_or(0, Vec::len), asked.len()],
            undisturbed: undisturbed
                .filter(|times| !times.is_empty())
                .map(Quantiles::of),
            pauses: pauses.len(),
            paused_share: paused as f64 / (to - from).max(1) as f64,
        }
    }

    /// Returns the p99 of this series' undisturbed requests minus the p99 of the other series, in microseconds
    /// as JSON.
    fn above(&self, other: &Self) -> String {
        let both = self.undisturbed.as_ref().zip(other.undisturbed.as_ref());
        both.map_or_else(
            || "null".to_owned(),
            |(one, other)| format!("{:.0}", one.p99 - other.p99),
        )
    }

    fn json(&self) -> String {
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
struct Quantiles {
    p50: f64,
    p90: f64,
    p99: f64,
    most: f64,
}

impl Quantiles {
    /// Computes the quantiles of times in nanoseconds.
    fn of(mut times: Vec<u64>) -> Self {
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
            most: at(1.0),
        }
    }

    fn json(&self) -> String {
        format!(
            r#"{{"p50":{:.0},"p90":{:.0},"p99":{:.0},"max":{:.0}}}"#,
            self.p50, self.p90, self.p99, self.most
        )
    }
}

const QUESTION_BYTES: usize = 200;
const ANSWER_BYTES: usize = 1024;

/// The first byte of a request for an endless response.
const BULK: u8 = 9;
