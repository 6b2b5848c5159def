//! The loads.

mod client;

use std::cell::RefCell;
use std::error::Error;
use std::rc::Rc;
use std::time::{Duration, Instant};

use quinn::Endpoint;
use tokio::task::JoinSet;

pub(crate) use client::Target;
use client::{Client, Fault, Response};

/// The results of a load.
#[derive(Default)]
pub(crate) struct Stats {
    /// The responses that are complete and have the status 200.
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    /// The requests that the server has not processed, because it ended the connection. They were sent again.
    pub(crate) refused: u64,
    /// The requests whose connection the server did not know. They were sent again.
    pub(crate) stateless_resets: u64,
    pub(crate) connections: u64,
    /// The bytes of the contents.
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    /// The time to each complete response, in microseconds.
    pub(crate) latencies: Vec<u32>,
    /// The longest time in which a request got no byte, without those of `longest_reset_wait`.
    pub(crate) longest_stall: Duration,
    /// The responses with a stall above [`STALL_MAX`].
    pub(crate) stalls: u64,
    /// The longest time in which a request got no byte until the server reset its connection.
    pub(crate) longest_reset_wait: Duration,
}

impl Stats {
    /// Returns a percentile of the latencies. 0 without any.
    pub(crate) fn latency(&self, percent: usize) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        let microseconds = self.latencies.get(last * percent / 100);
        Duration::from_micros(microseconds.copied().unwrap_or(0).into())
    }

    fn record(&mut self, begun: Instant, response: Response) {
        let wait = response.longest_wait;
        if response.end == Err(Fault::StatelessReset) {
            self.longest_reset_wait = self.longest_reset_wait.max(wait);
        } else {
            self.longest_stall = self.longest_stall.max(wait);
            self.stalls += u64::from(wait > STALL_MAX);
        }
        match response.end {
            Ok(()) => {
                self.requests += 1;
                self.bytes += response.bytes;
                let microseconds = begun.elapsed().as_micros().try_into();
                self.latencies.push(microseconds.unwrap_or(u32::MAX));
            }
            Err(fault) => self.record_fault(&fault),
        }
    }

    fn record_fault(&mut self, fault: &Fault) {
        match fault {
            Fault::Refused => self.refused += 1,
            Fault::StatelessReset => self.stateless_resets += 1,
            Fault::Other(error) => self.record_error(error),
        }
    }

    #[expect(
        clippy::print_stderr,
        reason = "the reader of a failed run needs the reasons"
    )]
    fn record_error(&mut self, error: &str) {
        self.errors += 1;
        if self.errors <= ERRORS_PRINTED_MAX {
            eprintln!("{error}");
        }
    }
}

/// Sends requests on kept connections, on each of them `streams` at a time.
pub(crate) async fn requests(
    target: &Target,
    connections: u32,
    streams: u32,
    length: Duration,
) -> Result<Stats, Box<dyn Error>> {
    let opened = open(target, connections).await?;
    let (run, mut tasks) = (Run::begin(), JoinSet::new());
    for (client, _) in &opened {
        for _ in 0..streams {
            let (client, run) = (Rc::clone(client), run.clone());
            tasks.spawn_local(async move {
                loop {
                    let sent = Instant::now();
                    run.record(sent, client.get().await);
                    if run.begun.elapsed() >= length || client.is_ending() {
                        break;
                    }
                }
            });
        }
    }
    tasks.join_all().await;
    let mut stats = run.end();
    stats.connections = connections.into();
    Ok(stats)
}

/// Downloads on each connection one response after another. A connection that the server ends is replaced.
pub(crate) async fn downloads(
    target: &Rc<Target>,
    connections: u32,
    length: Duration,
) -> Result<Stats, Box<dyn Error>> {
    let (run, mut tasks) = (Run::begin(), JoinSet::new());
    for _ in 0..connections {
        let (target, run, endpoint) = (Rc::clone(target), run.clone(), target.endpoint()?);
        tasks.spawn_local(async move {
            loop {
                if let Some(client) = run.connect(&target, &endpoint).await {
                    while !client.is_ending() {
                        let sent = Instant::now();
                        run.record(sent, client.get().await);
                        if run.begun.elapsed() >= length {
                            return;
                        }
                    }
                }
                if run.begun.elapsed() >= length {
                    return;
                }
            }
        });
    }
    tasks.join_all().await;
    Ok(run.end())
}

/// Sends requests one after another on each connection, each of them from a new port. Another connection replaces one
/// that is lost.
pub(crate) async fn moves(
    target: &Rc<Target>,
    connections: u32,
    moves: u32,
) -> Result<Stats, Box<dyn Error>> {
    let (run, mut tasks) = (Run::begin(), JoinSet::new());
    for _ in 0..connections {
        let (target, run, endpoint) = (Rc::clone(target), run.clone(), target.endpoint()?);
        tasks.spawn_local(async move {
            let mut client = run.connect(&target, &endpoint).await;
            for _ in 0..moves {
                if client.as_ref().is_none_or(Client::is_ending) {
                    client = run.connect(&target, &endpoint).await;
                }
                if let Some(client) = &client {
                    target.change_port(&endpoint).expect("a port is free");
                    let sent = Instant::now();
                    run.record(sent, client.get().await);
                }
            }
        });
    }
    tasks.join_all().await;
    Ok(run.end())
}

/// Opens connections, sends one request on each, and leaves them idle. Returns what `measure` returns before and after.
pub(crate) async fn idle<T>(
    target: &Target,
    connections: u32,
    measure: impl Fn() -> Result<T, Box<dyn Error>>,
) -> Result<(T, T), Box<dyn Error>> {
    // The first connection makes the server allocate what all connections share.
    let _first = open(target, 1).await?;
    let before = measure()?;
    let _opened = open(target, connections).await?;
    // Acknowledgements arrive.
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok((before, measure()?))
}

/// Opens connections, each with a socket of its own, and sends one request on each.
async fn open(
    target: &Target,
    connections: u32,
) -> Result<Vec<(Rc<Client>, Endpoint)>, Box<dyn Error>> {
    let mut opened = Vec::new();
    for _ in 0..connections {
        let endpoint = target.endpoint()?;
        let client = target.connect(&endpoint).await?;
        client.get().await.end?;
        opened.push((Rc::new(client), endpoint));
    }
    Ok(opened)
}

/// A load under way, which its tasks share.
#[derive(Clone)]
struct Run {
    begun: Instant,
    stats: Rc<RefCell<Stats>>,
}

impl Run {
    fn begin() -> Self {
        Self {
            begun: Instant::now(),
            stats: Rc::new(RefCell::new(Stats::default())),
        }
    }

    async fn connect(&self, target: &Target, endpoint: &Endpoint) -> Option<Client> {
        match target.connect(endpoint).await {
            Ok(client) => {
                self.stats.borrow_mut().connections += 1;
                Some(client)
            }
            Err(fault) => {
                self.stats.borrow_mut().record_fault(&fault);
                None
            }
        }
    }

    fn record(&self, sent: Instant, response: Response) {
        self.stats.borrow_mut().record(sent, response);
    }

    fn end(self) -> Stats {
        let seconds = self.begun.elapsed().as_secs_f64();
        let mut stats = self.stats.replace(Stats::default());
        stats.latencies.sort_unstable();
        Stats { seconds, ..stats }
    }
}

const STALL_MAX: Duration = Duration::from_millis(200);

const ERRORS_PRINTED_MAX: u64 = 10;
