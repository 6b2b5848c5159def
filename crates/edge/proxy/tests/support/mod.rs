//! An edge in front of a scripted origin, and an HTTP/1.1 client that checks the bytes of each response.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use edgeward_proxy::config::LOOPBACK_ANY_PORT;
use edgeward_proxy::{Edge, EdgeConfig, RunningEdge};
use edgeward_store::hot::HotConfig;
use edgeward_testkit::ScriptedOrigin;
use edgeward_types::ByteSize;

/// The longest wait in a test.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// An edge and its origin.
pub(crate) struct TestBed {
    pub(crate) edge: RunningEdge,
    pub(crate) origin: ScriptedOrigin,
}

impl TestBed {
    /// Starts an edge with two workers, 64 MiB of memory with LRU and an admin listener.
    pub(crate) fn start() -> Self {
        Self::with_config(|_| {})
    }

    /// Starts an edge with the configuration of [`start`](Self::start), modified by `change`.
    pub(crate) fn with_config(change: impl FnOnce(&mut EdgeConfig)) -> Self {
        Self::with_origin(ScriptedOrigin::start(), change)
    }

    /// Like [`with_config`](Self::with_config), but for an existing origin.
    pub(crate) fn with_origin(
        origin: ScriptedOrigin,
        change: impl FnOnce(&mut EdgeConfig),
    ) -> Self {
        let mut config = config_for(origin.addr());
        change(&mut config);
        let edge = Edge::start(config).expect("the edge starts on a free port");
        Self { edge, origin }
    }

    /// Shuts the edge down and returns the origin.
    pub(crate) fn stop(self) -> ScriptedOrigin {
        self.edge.shutdown(TIMEOUT);
        self.origin
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.edge.addrs()[0]
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.addr())
    }

    /// Sends a GET on a new connection.
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.connect().get(path, &[])
    }

    /// Sends a GET with header lines on a new connection.
    pub(crate) fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.connect().get(path, headers)
    }

    /// Returns `/status` of the admin listener.
    pub(crate) fn status(&self) -> serde_json::Value {
        let addr = self
            .edge
            .admin_addr()
            .expect("the admin listener is configured");
        let answer = Client::connect(addr).get("/status", &[]);
        serde_json::from_slice(&answer.body).expect("status is JSON")
    }

    /// Returns `/metrics` of the admin listener.
    pub(crate) fn metrics(&self) -> String {
        let addr = self
            .edge
            .admin_addr()
            .expect("the admin listener is configured");
        let answer = Client::connect(addr).get("/metrics", &[]);
        String::from_utf8(answer.body).expect("metrics are text")
    }

    /// Returns the value of the metric `series` (name and labels) in `/metrics`.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let metrics = self.metrics();
        metrics
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
            .unwrap_or_else(|| panic!("no {series} in\n{metrics}"))
    }

    /// Waits until the metric `series` has this value.
    pub(crate) fn wait_for_metric(&self, series: &str, value: f64) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let shown = self.metric(series);
            if shown == value {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{series} is {shown}, not {value}"
            );
            std::thread::yield_now();
        }
    }

    /// Waits until `holds` returns true for the JSON of `/status`.
    pub(crate) fn wait_until(&self, what: &str, holds: impl Fn(&serde_json::Value) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let status = self.status();
            if holds(&status) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "timeout while waiting until {what}: {status:#}"
            );
            std::thread::yield_now();
        }
    }
}

pub(crate) fn config_for(origin: SocketAddr) -> EdgeConfig {
    let origin = format!("http://{origin}")
        .parse()
        .expect("the URL is valid");
    let mut config = EdgeConfig::new(LOOPBACK_ANY_PORT, origin, ByteSize::mib(64));
    config.hot = HotConfig {
        policy: "lru".parse().expect("the policy is valid"),
        ..HotConfig::new(ByteSize::mib(64))
    };
    config.workers = NonZeroUsize::new(2).expect("the number is not zero");
    config.admin.address = Some(LOOPBACK_ANY_PORT.into());
    // Other programs may keep the machine of the tests busy.
    config.overload.lag_max = Duration::ZERO;
    // A test may pause for any time between the departure of a client and its next step.
    config.limits.abandoned_wait = Duration::from_secs(3600);
    // [`Client`] sends this `Host`.
    config.admin.hosts = vec!["test.example".to_owned()];
    config
}

/// An HTTP/1.1 client on a plain socket.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

/// A response as received.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// True if the complete body arrived, according to its length or its last chunk. Also true while only the head was
    /// read.
    pub(crate) complete: bool,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is UTF-8")
    }

    pub(crate) fn cache_status(&self) -> &str {
        self.header("cache-status").unwrap_or("none")
    }

    pub(crate) fn is_hit(&self) -> bool {
        self.cache_status().starts_with("edgeward; hit")
    }
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        Self::over(TcpStream::connect(addr).expect("the edge listens"))
    }

    /// Returns a client on this connection.
    pub(crate) fn over(stream: TcpStream) -> Self {
        stream
            .set_read_timeout(Some(TIMEOUT))
            .expect("the timeout can be set");
        stream
            .set_write_timeout(Some(TIMEOUT))
            .expect("the timeout can be set");
        stream.set_nodelay(true).expect("TCP_NODELAY can be set");
        Self {
            stream: BufReader::new(stream),
        }
    }

    pub(crate) fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.request("GET", path, headers, b"")
    }

    pub(crate) fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        self.send_head(method, path, headers);
        self.send(body);
        self.answer(method)
    }

    pub(crate) fn send_head(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("host"))
        {
            head.push_str("Host: test.example\r\n");
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.send(head.as_bytes());
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream
            .get_mut()
            .write_all(bytes)
            .expect("the edge reads");
    }

    /// Sends bytes. Returns false if the edge closes the connection first.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.get_mut().write_all(bytes).is_ok()
    }

    /// Sends up to `length` bytes, as repetitions of `piece`. Stops when the edge has read no byte for a
    /// second. Returns the number of bytes sent.
    pub(crate) fn send_until_blocked(&mut self, piece: &[u8], length: usize) -> usize {
        let stream = self.stream.get_mut();
        stream
            .set_write_timeout(Some(Duration::from_secs(1)))
            .expect("the timeout can be set");
        let mut sent = 0;
        while sent < length {
            let rest = &piece[..piece.len().min(length - sent)];
            match stream.write(rest) {
                Ok(n) => sent += n,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("after {sent} bytes: {error}"),
            }
        }
        stream
            .set_write_timeout(Some(TIMEOUT))
            .expect("the timeout can be set");
        sent
    }

    /// Sends `length` bytes of a body, as repetitions of `piece`.
    pub(crate) fn send_rest(&mut self, piece: &[u8], mut length: usize) {
        while length > 0 {
            let n = piece.len().min(length);
            self.send(&piece[..n]);
            length -= n;
        }
    }

    /// Reads the head of a response.
    pub(crate) fn head(&mut self) -> Answer {
        self.try_head().expect("a response arrives")
    }

    /// Reads the head of a response. Returns `None` if the edge closes the connection first.
    pub(crate) fn try_head(&mut self) -> Option<Answer> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => return None,
            Err(error) if is_closed_error(&error) => return None,
            result => result.expect("the edge answers in time"),
        };
        let status = line
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or_else(|| panic!("a status line, not {line:?}"));
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            self.stream
                .read_line(&mut line)
                .expect("a header line arrives");
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').expect("the header line has a colon");
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
        Some(Answer {
            status,
            headers,
            body: Vec::new(),
            complete: true,
        })
    }

    /// Reads the head of a response. Returns `None` if its first byte does not arrive within `wait`.
    pub(crate) fn head_within(&mut self, wait: Duration) -> Option<Answer> {
        let stream = self.stream.get_mut();
        stream
            .set_read_timeout(Some(wait))
            .expect("the timeout can be set");
        let begun = self.stream.fill_buf().is_ok_and(|bytes| !bytes.is_empty());
        let stream = self.stream.get_mut();
        stream
            .set_read_timeout(Some(TIMEOUT))
            .expect("the timeout can be set");
        if begun { self.try_head() } else { None }
    }

    /// Reads a response, or its beginning if the edge closes the connection early. Skips interim responses.
    pub(crate) fn answer(&mut self, method: &str) -> Answer {
        let mut answer = self.head();
        while answer.status < 200 {
            answer = self.head();
        }
        self.body(method, &mut answer);
        answer
    }

    /// Reads the body that follows a head.
    pub(crate) fn body(&mut self, method: &str, answer: &mut Answer) {
        if method == "HEAD" || matches!(answer.status, 204 | 304) {
            return;
        }
        if let Some(length) = answer.header("content-length") {
            let length: usize = length.parse().expect("the length is a number");
            answer.body = self.read_up_to(length);
            answer.complete = answer.body.len() == length;
        } else if answer.header("transfer-encoding") == Some("chunked") {
            answer.complete = self.chunks(&mut answer.body);
        } else {
            answer.complete = self.stream.read_to_end(&mut answer.body).is_ok();
        }
    }

    /// Reads `length` bytes of a body, or fewer if the edge closes the connection.
    pub(crate) fn read_up_to(&mut self, length: usize) -> Vec<u8> {
        let mut body = vec![0; length];
        let mut read = 0;
        while read < length {
            match self.stream.read(&mut body[read..]) {
                Ok(0) => break,
                Ok(n) => read += n,
                Err(error) if is_closed_error(&error) => break,
                Err(error) => panic!("after {read} of {length} bytes: {error}"),
            }
        }
        body.truncate(read);
        body
    }

    /// Appends the chunks of a chunked body to `body`. Returns true if the last chunk arrived.
    fn chunks(&mut self, body: &mut Vec<u8>) -> bool {
        loop {
            let mut line = String::new();
            match self.stream.read_line(&mut line) {
                Ok(0) => return false,
                Err(error) if is_closed_error(&error) => return false,
                result => result.expect("a chunk arrives in time"),
            };
            let Ok(length) = usize::from_str_radix(line.trim_end(), 16) else {
                return false;
            };
            let chunk = self.read_up_to(length + 2);
            if chunk.len() < length + 2 {
                return false;
            }
            body.extend_from_slice(&chunk[..length]);
            if length == 0 {
                return true;
            }
        }
    }

    /// Returns true if the edge closes the connection within [`TIMEOUT`], with a FIN or a reset.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0; 1]) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => is_closed_error(&error),
        }
    }

    /// Sends the end of the client's bytes. The client still reads.
    pub(crate) fn shutdown_write(&self) {
        self.stream
            .get_ref()
            .shutdown(std::net::Shutdown::Write)
            .expect("the socket is open");
    }

    /// Returns the socket. Bytes that were read and not returned are lost.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream.into_inner()
    }

    /// Closes the connection with a reset, like a client whose process was killed.
    pub(crate) fn reset(self) {
        let socket = socket2::Socket::from(self.stream.into_inner());
        socket
            .set_linger(Some(Duration::ZERO))
            .expect("the linger time can be set");
    }
}

fn is_closed_error(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::ConnectionReset
            | std::io::ErrorKind::BrokenPipe
            | std::io::ErrorKind::UnexpectedEof
    )
}

/// Returns a range of the body of [`edgeward_testkit::Answer::pattern`].
pub(crate) fn pattern(range: std::ops::Range<u64>) -> Vec<u8> {
    range.map(edgeward_testkit::pattern_byte).collect()
}
