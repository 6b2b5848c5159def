//! Measures how long a thread that also serves other requests is kept by a stream of the link that carries much text.
//!
//! The thread stands for a worker of the edge: it answers short requests, which have nothing to do with the link, and
//! it reads or writes one stream. The endpoints of the link run on threads of their own.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWrite as _, AsyncWriteExt as _, ReadBuf};

use edgeward_dedup::codec::{Method, Methods};
use edgeward_link::{LinkStream, Target};
use edgeward_testkit::WanSettings;
use edgeward_types::SplitMix64;

use crate::endpoints::{Features, LinkBed};
use crate::latency::{Quantiles, REQUEST_BYTES, RESPONSE_BYTES, Times, send_request};
use crate::watch::Watch;

/// The direction of the body, as the edge sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Download,
    Upload,
}

/// Measures the latency of the worker's other requests without a body on the link, and beside an endless body in each
/// direction.
pub(crate) fn beside_a_body(rounds: usize) -> io::Result<()> {
    let features = Features {
        tls: true,
        store: Method::None,
        dedup: true,
        keep_sent: false,
        delta: true,
        methods: Methods::NONE.with(Method::Zstd),
        chunk_bytes: 8 << 10,
    };
    let network = WanSettings {
        bits_per_second: 200_000_000,
        delay: Duration::from_millis(5),
    };
    let text = Arc::new(text());
    for direction in [Direction::Download, Direction::Upload] {
        let target = start_target(&text)?;
        let link = LinkBed::over(target, &features, Some(network))?;
        let watch = Watch::start()?;
        for _ in 0..rounds.max(1) {
            let alone = serve_requests(watch.as_ref())?;
            let stream = link.client().open(Target::Tcp(
                target.to_string().parse().expect("a host and a port"),
            ));
            let stream = stream.map_err(io::Error::other)?;
            let worker = Worker::start(Some((direction, stream, Arc::clone(&text))))?;
            // The body fills all buffers first.
            thread::sleep(Duration::from_secs(1));
            let (start, before) = (Instant::now(), worker.bytes.load(Ordering::Relaxed));
            let beside = worker.measure(watch.as_ref())?;
            let seconds = start.elapsed().as_secs_f64();
            let bytes = worker.bytes.load(Ordering::Relaxed) - before;
            let polls = worker.stop();
            crate::print_row(&format!(
                r#"{{"row":"worker beside a {}","alone":{},"beside":{},"raised_p99_us":{:.0},"poll_us":{},"polls":{},"bulk_mbps":{:.1},"load_average":{}}}"#,
                format!("{direction:?}").to_lowercase(),
                alone.json(),
                beside.json(),
                beside.all.p99 - alone.all.p99,
                Quantiles::of(polls.clone()).json(),
                polls.len(),
                bytes as f64 * 8.0 / 1e6 / seconds,
                crate::load_average(),
            ));
        }
    }
    Ok(())
}

/// Measures the requests of a worker that does nothing else.
fn serve_requests(watch: Option<&Watch>) -> io::Result<Times> {
    let worker = Worker::start(None)?;
    let times = worker.measure(watch)?;
    worker.stop();
    Ok(times)
}

/// A thread that answers short requests and carries one stream.
struct Worker {
    addr: SocketAddr,
    is_stopped: Arc<AtomicBool>,
    /// The number of body bytes that the stream has carried.
    bytes: Arc<AtomicU64>,
    /// The duration of each poll of the stream in nanoseconds.
    polls: Arc<Mutex<Vec<u64>>>,
    thread: thread::JoinHandle<io::Result<()>>,
}

impl Worker {
    fn start(stream: Option<(Direction, LinkStream, Arc<Vec<u8>>)>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let (is_stopped, bytes) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let polls = Arc::new(Mutex::new(Vec::new()));
        let (stopped, counter, durations) = (
            Arc::clone(&is_stopped),
            Arc::clone(&bytes),
            Arc::clone(&polls),
        );
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                if let Some((direction, stream, text)) = stream {
                    tokio::spawn(carry(direction, stream, text, counter, durations));
                }
                let (mut tcp, _) = listener.accept().await?;
                tcp.set_nodelay(true)?;
                let mut request = [0; REQUEST_BYTES];
                while !stopped.load(Ordering::Relaxed) && tcp.read_exact(&mut request).await.is_ok()
                {
                    tcp.write_all(&[7; RESPONSE_BYTES]).await?;
                }
                Ok(())
            })
        });
        Ok(Self {
            addr,
            is_stopped,
            bytes,
            polls,
            thread,
        })
    }

    /// Sends requests at intervals of half a millisecond.
    fn measure(&self, watch: Option<&Watch>) -> io::Result<Times> {
        let mut tcp = TcpStream::connect(self.addr)?;
        let mut requests = Vec::with_capacity(REQUESTS);
        for nth in 0..REQUESTS + 100 {
            let times = send_request(&mut tcp)?;
            // The first requests are the warm-up.
            if nth >= 100 {
                requests.push(times);
            }
            thread::sleep(Duration::from_micros(500));
        }
        Ok(Times::of(&requests, watch, 300_000))
    }

    /// Ends the thread, and returns the durations of the polls.
    fn stop(self) -> Vec<u64> {
        self.is_stopped.store(true, Ordering::Relaxed);
        let ended = self.thread.join().expect("the thread does not panic");
        ended.expect("the requests are answered");
        std::mem::take(&mut *self.polls.lock().expect("no thread panics"))
    }
}

const REQUESTS: usize = 4000;

/// Carries an endless body over the stream, and records how long each poll takes.
async fn carry(
    direction: Direction,
    mut stream: LinkStream,
    text: Arc<Vec<u8>>,
    counter: Arc<AtomicU64>,
    polls: Arc<Mutex<Vec<u64>>>,
) -> io::Result<()> {
    stream.write_all(&[direction as u8]).await?;
    stream.flush().await?;
    let mut buffer = vec![0; BLOCK_BYTES];
    let mut stream = std::pin::pin!(stream);
    for nth in 0.. {
        if direction == Direction::Upload {
            fill(&mut buffer, &text, nth);
        }
        let mut written = 0;
        let bytes = std::future::poll_fn(|cx| {
            let start = Instant::now();
            let polled = match direction {
                Direction::Download => {
                    let mut read = ReadBuf::new(&mut buffer);
                    let polled = tokio::io::AsyncRead::poll_read(stream.as_mut(), cx, &mut read);
                    polled.map_ok(|()| read.filled().len())
                }
                Direction::Upload => {
                    stream
                        .as_mut()
                        .poll_write(cx, &buffer[written..])
                        .map_ok(|bytes| {
                            written += bytes;
                            bytes
                        })
                }
            };
            let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            polls.lock().expect("no thread panics").push(nanos);
            polled
        })
        .await?;
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Starts a server that sends an endless body, or reads one.
fn start_target(text: &Arc<Vec<u8>>) -> io::Result<SocketAddr> {
    use std::io::{Read as _, Write as _};

    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    let text = Arc::clone(text);
    thread::spawn(move || {
        for mut tcp in listener.incoming().flatten() {
            let text = Arc::clone(&text);
            thread::spawn(move || -> io::Result<()> {
                let (mut first, mut buffer) = ([0], vec![0; BLOCK_BYTES]);
                tcp.read_exact(&mut first)?;
                if first == [Direction::Upload as u8] {
                    while tcp.read(&mut buffer)? > 0 {}
                    return Ok(());
                }
                for nth in 0.. {
                    fill(&mut buffer, &text, nth);
                    tcp.write_all(&buffer)?;
                }
                Ok(())
            });
        }
    });
    Ok(addr)
}

/// Returns 8 MiB of random words of a vocabulary of 4096. zstd divides its size by about three.
fn text() -> Vec<u8> {
    let mut random = SplitMix64(0x1234_5678);
    let words: Vec<Vec<u8>> = (0..4096)
        .map(|_| {
            let letters = 2 + random.draw() % 9;
            let mut word: Vec<u8> = (0..letters)
                .map(|_| b'a' + (random.draw() % 26) as u8)
                .collect();
            word.push(b' ');
            word
        })
        .collect();
    let mut text = Vec::with_capacity(TEXT_BYTES + 16);
    while text.len() < TEXT_BYTES {
        // The lowest of three draws: some words are frequent.
        let draw = (0..3).map(|_| random.draw() % 4096).min();
        text.extend_from_slice(&words[draw.unwrap_or(0) as usize]);
    }
    text.truncate(TEXT_BYTES);
    text
}

/// Fills the block with this number of an endless body. Each pass over the text encodes it differently, so that its
/// chunks are new.
fn fill(block: &mut [u8], text: &[u8], nth: u64) {
    let blocks = (TEXT_BYTES / BLOCK_BYTES) as u64;
    let (pass, at) = ((nth / blocks) as u8, (nth % blocks) as usize * BLOCK_BYTES);
    for (to, from) in block.iter_mut().zip(&text[at..at + BLOCK_BYTES]) {
        *to = from ^ pass;
    }
}

const TEXT_BYTES: usize = 8 << 20;
const BLOCK_BYTES: usize = 32 << 10;
