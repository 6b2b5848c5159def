//! What the link adds to a short question and its answer: alone, and beside a download.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use edgeward_dedup::codec::{Method, Methods};
use edgeward_link::Ids;
use edgeward_testkit::{Wan, WanSettings};

use crate::ends::{Stand, Switches};

const EVERYTHING: Switches = Switches {
    store: Method::None,
    tls: true,
    dedup: true,
    keep_sent: false,
    delta: true,
    methods: Methods::ALL,
    chunk_bytes: 8 << 10,
    ids: Ids::Blake3,
};

/// On a line with nothing else on it: the link, and a relay that reads and writes, in turns.
pub(crate) fn idle() -> io::Result<()> {
    let target = target()?;
    let stand = Stand::start(target, &EVERYTHING, None)?;
    let relay = relay(target)?;
    let (mut link, mut plain) = (Vec::new(), Vec::new());
    let mut through = [TcpStream::connect(stand.addr)?, TcpStream::connect(relay)?];
    for round in 0..20 {
        for (tcp, times) in through.iter_mut().zip([&mut link, &mut plain]) {
            for _ in 0..500 {
                let took = ask(tcp)?;
                if round > 0 {
                    times.push(took);
                }
            }
        }
    }
    let [link, plain] = [link, plain].map(Quantiles::of);
    crate::tell(&format!(
        r#"{{"row":"latency, idle","questions":9500,"link_us":{},"relay_us":{},"added_p99_us":{:.0},"load_average":{}}}"#,
        link.json(),
        plain.json(),
        link.p99 - plain.p99,
        crate::load_average(),
    ));
    Ok(())
}

/// On a line of 100 Mb/s and 10 ms each way: alone, and while a body without end comes down it.
pub(crate) fn beside_bulk() -> io::Result<()> {
    let stand = Stand::over(target()?, &EVERYTHING, Some(LINE))?;
    beside("latency, beside a download", stand.addr)
}

/// The same with two plain TCP connections instead of the link: what the line and the machine raise by themselves.
pub(crate) fn beside_bulk_without_link() -> io::Result<()> {
    let line = Wan::start(target()?, LINE)?;
    beside("latency, beside a download, without the link", line.addr())
}

fn beside(row: &str, addr: SocketAddr) -> io::Result<()> {
    let mut tcp = TcpStream::connect(addr)?;
    let mut series = |count| {
        (0..count)
            .map(|_| ask(&mut tcp))
            .collect::<io::Result<Vec<_>>>()
    };
    series(20)?;
    let alone = Quantiles::of(series(SERIES)?);

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
    // Until it has filled whatever it can fill.
    thread::sleep(Duration::from_secs(2));
    let (begun, before) = (Instant::now(), came.load(Ordering::Relaxed));
    let each = (0..BESIDE_SERIES)
        .map(|_| series(SERIES))
        .collect::<io::Result<Vec<_>>>()?;
    let seconds = begun.elapsed().as_secs_f64();
    let bytes = came.load(Ordering::Relaxed) - before;
    over.store(true, Ordering::Relaxed);
    bulk.join().expect("it does not panic")?;
    // Of 300 questions the p99 is the third worst: how it varies tells how much one such figure is worth.
    let raised = |times| Quantiles::of(times).p99 - alone.p99;
    let raised_each: Vec<_> = each.iter().map(|times| raised(times.clone())).collect();
    let beside = Quantiles::of(each.concat());
    crate::tell(&format!(
        r#"{{"row":"{row}","line":"100 Mb/s, 10 ms each way","questions":{},"alone_us":{},"beside_us":{},"raised_p50_us":{:.0},"raised_p99_us":{:.0},"raised_p99_us_each_{SERIES}":{raised_each:.0?},"bulk_mbps":{:.1},"load_average":{}}}"#,
        SERIES * BESIDE_SERIES,
        alone.json(),
        beside.json(),
        beside.p50 - alone.p50,
        beside.p99 - alone.p99,
        bytes as f64 * 8.0 / 1e6 / seconds,
        crate::load_average(),
    ));
    Ok(())
}

const LINE: WanSettings = WanSettings {
    bits_per_second: 100_000_000,
    delay: Duration::from_millis(10),
};

/// Questions of which the p99 is taken, and how many times that is done beside a download: half a minute.
const SERIES: usize = 300;
const BESIDE_SERIES: usize = 5;

/// Answers each question of 200 bytes with 1 KiB, or with noise without end.
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

/// A relay of two threads, as plain as can be.
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

fn ask(tcp: &mut TcpStream) -> io::Result<Duration> {
    tcp.set_nodelay(true)?;
    let mut answer = [0; ANSWER_BYTES];
    let begun = Instant::now();
    tcp.write_all(&[1; QUESTION_BYTES])?;
    tcp.read_exact(&mut answer)?;
    Ok(begun.elapsed())
}

/// Microseconds.
struct Quantiles {
    p50: f64,
    p90: f64,
    p99: f64,
    most: f64,
}

impl Quantiles {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort();
        let at =
            |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
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

/// The first byte of a question that is answered without end.
const BULK: u8 = 9;
