//! The scripted origin: accepts connections, reads requests and carries out the steps of their answers.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::answer::{Answer, Step};
use crate::gate::Bell;
use crate::request::RecordedRequest;

/// An HTTP/1.1 origin on a free loopback port. It sends the answers that the test has set, and records all
/// requests. Dropping the origin closes every connection and joins its thread.
///
/// The origin looks for an answer by the full target first, then by the path without the query. Answers for one
/// request ([`once`](Self::once)) take precedence over answers for all requests ([`on`](Self::on)). A request
/// without an answer gets 404.
pub struct ScriptedOrigin {
    addr: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ScriptedOrigin {
    /// Binds a free port and starts to serve.
    pub fn start() -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// Starts to serve at `addr`, for example at the address of an origin that was dropped.
    pub fn start_at(addr: SocketAddr) -> Self {
        let listener = TcpListener::bind(addr).expect("the address is free");
        listener
            .set_nonblocking(true)
            .expect("a socket can be made nonblocking");
        let addr = listener
            .local_addr()
            .expect("a bound socket has an address");
        let shared = Arc::new(Shared::default());
        let (stop, stopped) = oneshot::channel();
        let shared_by_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("scripted-origin".to_owned())
            .spawn(move || {
                tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .expect("the runtime can be created")
                    .block_on(serve(listener, shared_by_thread, stopped));
            })
            .expect("the thread can be created");
        Self {
            addr,
            shared,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Returns a loopback address at which no server listens. Its port was free a moment ago.
    pub fn unused_addr() -> SocketAddr {
        (Ipv4Addr::LOCALHOST, crate::programs::free_port()).into()
    }

    /// Returns the address of the listener.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// Answers every request for `path` with `answer`.
    pub fn on(&self, path: &str, answer: Answer) {
        self.on_call(path, move |_| answer.clone());
    }

    /// Answers every request for `path` with the result of the function.
    pub fn on_call(
        &self,
        path: &str,
        answer: impl Fn(&RecordedRequest) -> Answer + Send + Sync + 'static,
    ) {
        let mut script = self.shared.script();
        script.standing.insert(path.to_owned(), Arc::new(answer));
    }

    /// Answers one request for `path` with `answer`. If this is called several times, the next requests get the
    /// answers in the order of the calls.
    pub fn once(&self, path: &str, answer: Answer) {
        let mut script = self.shared.script();
        let queue = script.queued.entry(path.to_owned()).or_default();
        queue.push_back(answer);
    }

    /// Sets the function that answers requests for paths without an answer.
    pub fn otherwise(&self, answer: impl Fn(&RecordedRequest) -> Answer + Send + Sync + 'static) {
        self.shared.script().otherwise = Some(Arc::new(answer));
    }

    /// Closes every connection and does not announce this by `Connection: close`. An idle connection is closed
    /// now; a connection with a request under way is closed after the response.
    pub fn close_idle_connections(&self) {
        self.shared.idle_closes.send_modify(|count| *count += 1);
    }

    /// Returns the number of requests for this path, with any query. A request counts as soon as its head was
    /// read.
    pub fn requests(&self, path: &str) -> usize {
        let log = self.shared.log();
        log.iter().filter(|request| request.path() == path).count()
    }

    /// Returns the number of all requests.
    pub fn requests_total(&self) -> usize {
        self.shared.log().len()
    }

    /// Returns all requests in the order of their arrival.
    pub fn recorded(&self) -> Vec<RecordedRequest> {
        self.shared.log().clone()
    }

    /// Returns the last request for this path.
    pub fn last(&self, path: &str) -> Option<RecordedRequest> {
        let log = self.shared.log();
        log.iter()
            .rev()
            .find(|request| request.path() == path)
            .cloned()
    }

    /// Returns the number of open connections.
    pub fn open_connections(&self) -> usize {
        self.shared.open_connections.load(Ordering::SeqCst)
    }

    /// Returns the number of connections accepted since the start.
    pub fn accepted_connections(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Returns the number of bytes of answers that were written to all connections since the start. `100
    /// Continue` does not count.
    pub fn bytes_written(&self) -> u64 {
        self.shared.bytes_written.load(Ordering::SeqCst)
    }

    /// Blocks until `holds` returns true. The function is called whenever a connection opens or closes, and
    /// after each head and body of a request. Panics after a minute; `what` describes the expected condition
    /// in the message.
    pub fn wait_until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        self.shared.bell.wait_blocking(what, || holds(self));
    }

    /// The async counterpart of [`wait_until`](Self::wait_until).
    pub async fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        self.shared.bell.wait(what, || holds(self)).await;
    }
}

impl Drop for ScriptedOrigin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(Err(panic)) = self.thread.take().map(thread::JoinHandle::join)
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl fmt::Debug for ScriptedOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedOrigin")
            .field("addr", &self.addr)
            .field("requests", &self.requests_total())
            .finish_non_exhaustive()
    }
}

type AnswerFunction = Arc<dyn Fn(&RecordedRequest) -> Answer + Send + Sync>;

#[derive(Default)]
struct Script {
    /// Answers for one request each, by target or path.
    queued: HashMap<String, VecDeque<Answer>>,
    /// Answers for all requests, by target or path.
    standing: HashMap<String, AnswerFunction>,
    /// The answer for requests without an entry in the other fields.
    otherwise: Option<AnswerFunction>,
}

impl Script {
    fn queued_for(&mut self, request: &RecordedRequest) -> Option<Answer> {
        [request.target(), request.path()]
            .into_iter()
            .find_map(|path| self.queued.get_mut(path)?.pop_front())
    }

    fn standing_for(&self, request: &RecordedRequest) -> Option<AnswerFunction> {
        let by_path = [request.target(), request.path()]
            .into_iter()
            .find_map(|path| self.standing.get(path));
        by_path.or(self.otherwise.as_ref()).cloned()
    }
}

#[derive(Default)]
struct Shared {
    script: Mutex<Script>,
    log: Mutex<Vec<RecordedRequest>>,
    /// Wakes the callers of `wait_until` and `until`.
    bell: Bell,
    open_connections: AtomicUsize,
    accepted: AtomicUsize,
    bytes_written: AtomicU64,
    /// The number of calls of [`ScriptedOrigin::close_idle_connections`]. Each connection waits for a change.
    idle_closes: watch::Sender<u64>,
}

impl Shared {
    // A thread that panicked while it held the lock has already failed its test, so a poisoned lock is no
    // further error.
    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self) -> MutexGuard<'_, Vec<RecordedRequest>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer_to(&self, request: &RecordedRequest) -> Answer {
        if let Some(answer) = self.script().queued_for(request) {
            return answer;
        }
        // The lock is released before the function of the test runs, because this function may use the origin.
        let standing = self.script().standing_for(request);
        standing.map_or_else(|| Answer::status(404), |reply| reply(request))
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>, mut stopped: oneshot::Receiver<()>) {
    let listener =
        tokio::net::TcpListener::from_std(listener).expect("the runtime takes the listener");
    // Dropping the set aborts all connections, also those that wait until the test opens a gate.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => return,
            accepted = listener.accept() => {
                let (stream, _) = accepted.expect("the loopback listener accepts connections");
                // Without this option, a small write would wait for the acknowledgement of the previous write.
                _ = stream.set_nodelay(true);
                connections.spawn(serve_connection(stream, OpenConnection::new(Arc::clone(&shared))));
            }
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended && error.is_panic() {
                    std::panic::resume_unwind(error.into_panic());
                }
            }
        }
    }
}

/// Counts one connection as open. Dropping the value ends the count.
struct OpenConnection {
    shared: Arc<Shared>,
}

impl OpenConnection {
    fn new(shared: Arc<Shared>) -> Self {
        shared.open_connections.fetch_add(1, Ordering::SeqCst);
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        shared.bell.ring();
        Self { shared }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.shared.open_connections.fetch_sub(1, Ordering::SeqCst);
        self.shared.bell.ring();
    }
}

/// Serves a connection until it is closed. The peer may close the connection at any time, so errors are
/// ignored.
async fn serve_connection(mut stream: TcpStream, connection: OpenConnection) {
    let shared = &connection.shared;
    let mut idle_closes = shared.idle_closes.subscribe();
    let mut buffer = Vec::new();
    loop {
        let request = tokio::select! {
            // The signal to close is polled first, so that a request that arrives after the signal is not
            // answered.
            biased;
            _ = idle_closes.changed() => break,
            request = next_request(&mut buffer, &mut stream) => request,
        };
        let Ok(Some(request)) = request else {
            break;
        };
        match respond(request, &mut buffer, &mut stream, shared).await {
            Ok(AfterResponse::KeepAlive) => {}
            Ok(AfterResponse::Close) | Err(_) => break,
        }
    }
    // The socket is closed before the number of open connections is decremented, so a test that sees the
    // smaller number can rely on the close.
    drop(stream);
    drop(connection);
}

async fn next_request(
    buffer: &mut Vec<u8>,
    stream: &mut TcpStream,
) -> io::Result<Option<RecordedRequest>> {
    loop {
        if let Some(request) = RecordedRequest::take_head(buffer)? {
            return Ok(Some(request));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

/// The action on a connection after a response.
enum AfterResponse {
    KeepAlive,
    Close,
}

async fn respond(
    mut request: RecordedRequest,
    buffer: &mut Vec<u8>,
    stream: &mut TcpStream,
    shared: &Shared,
) -> io::Result<AfterResponse> {
    let answer = shared.answer_to(&request);
    let index = {
        let mut log = shared.log();
        log.push(request.clone());
        log.len() - 1
    };
    shared.bell.ring();
    if answer.reads_body_first() {
        if let Some(gate) = answer.body_gate() {
            gate.pass().await;
        }
        if request.expects_continue() && answer.sends_continue() {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let read = request.read_body(buffer, stream).await;
        shared.log()[index] = request.clone();
        shared.bell.ring();
        read?;
    }
    let wants_close = request.wants_close();
    for step in answer.steps(&request) {
        match step {
            Step::Close => return Ok(AfterResponse::Close),
            Step::Reset => {
                stream.set_zero_linger()?;
                return Ok(AfterResponse::Close);
            }
            Step::Hang => {
                // Reads until the end of the stream, to detect that the peer has closed the connection.
                let mut sink = [0; 4096];
                while stream.read(&mut sink).await? > 0 {}
                return Ok(AfterResponse::Close);
            }
            Step::Wait(gate) => gate.pass().await,
            Step::Send(bytes) => send(&bytes, stream, shared).await?,
            Step::SendPattern { offset, len } => {
                let pattern: Vec<u8> = (0..PIECE_BYTES).map(crate::pattern_byte).collect();
                send_pieces(&pattern, offset % 251, len, stream, shared).await?;
            }
            Step::SendRepeated { byte, count } => {
                let piece = vec![byte; usize::try_from(PIECE_BYTES).expect("64 KiB fits")];
                send_pieces(&piece, 0, count, stream, shared).await?;
            }
            Step::SendHeaderLines(bytes) => {
                let mut sent = 0;
                for number in 0_u64.. {
                    if sent >= bytes {
                        break;
                    }
                    let line = format!("X-Flood-{number:08}: {:a<80}\r\n", "");
                    send(line.as_bytes(), stream, shared).await?;
                    sent += line.len() as u64;
                }
            }
        }
    }
    if !answer.reads_body_first() {
        request.read_body(buffer, stream).await?;
        shared.log()[index] = request;
        shared.bell.ring();
    }
    Ok(if wants_close {
        AfterResponse::Close
    } else {
        AfterResponse::KeepAlive
    })
}

/// Sends `len` bytes of an endless repetition of `piece`, beginning with byte `start` of the first repetition.
async fn send_pieces(
    piece: &[u8],
    start: u64,
    len: u64,
    stream: &mut TcpStream,
    shared: &Shared,
) -> io::Result<()> {
    let mut from = usize::try_from(start).expect("the start lies inside the piece");
    let mut remaining = len;
    while remaining > 0 {
        let take = (piece.len() - from).min(usize::try_from(remaining).unwrap_or(usize::MAX));
        send(&piece[from..from + take], stream, shared).await?;
        remaining -= take as u64;
        from = 0;
    }
    Ok(())
}

async fn send(bytes: &[u8], stream: &mut TcpStream, shared: &Shared) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = stream.write(rest).await?;
        shared
            .bytes_written
            .fetch_add(written as u64, Ordering::SeqCst);
        rest = &rest[written..];
    }
    Ok(())
}

/// The size of one write, about 64 KiB. It is a multiple of 251, the period of the pattern.
const PIECE_BYTES: u64 = 251 * 261;
