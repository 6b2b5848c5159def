//! An HTTP/1.1 client that sends given bytes and returns those of each response.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// An end of a connection: an HTTP/1.1 client, or a server that a test plays itself. The connection is a plain socket,
/// or another stream, such as one with TLS.
pub struct Client<S = TcpStream> {
    stream: BufReader<S>,
}

/// A response as received.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The fields in the order of the response.
    pub headers: Vec<(String, String)>,
    /// The body, without the framing of chunks.
    pub body: Vec<u8>,
    /// True if the complete body arrived, according to its length or its last chunk. Also true while only the head was
    /// read.
    pub complete: bool,
}

impl Answer {
    /// Returns the value of the first line of a field.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Returns the value of the first line of a field, or an empty text.
    pub fn field(&self, name: &str) -> &str {
        self.header(name).unwrap_or_default()
    }

    /// Returns the body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is UTF-8")
    }

    /// Returns `Cache-Status`, or `none`.
    pub fn cache_status(&self) -> &str {
        self.header("cache-status").unwrap_or("none")
    }

    /// Returns true if edgeward answered from its cache.
    pub fn is_hit(&self) -> bool {
        self.cache_status().starts_with("edgeward; hit")
    }
}

impl Client {
    /// Connects to a server that listens.
    pub fn connect(addr: SocketAddr) -> Self {
        Self::over(TcpStream::connect(addr).expect("the server listens"))
    }

    /// Returns an end on this connection, which waits at most [`TIMEOUT`] for each read and write.
    pub fn over(stream: TcpStream) -> Self {
        stream
            .set_read_timeout(Some(TIMEOUT))
            .expect("the timeout can be set");
        stream
            .set_write_timeout(Some(TIMEOUT))
            .expect("the timeout can be set");
        stream.set_nodelay(true).expect("TCP_NODELAY can be set");
        Self::on(stream)
    }

    /// Sends up to `length` bytes, as repetitions of `piece`. Stops when the peer has read no byte for a
    /// second. Returns the number of bytes sent.
    pub fn send_until_blocked(&mut self, piece: &[u8], length: usize) -> usize {
        let stream = self.stream.get_mut();
        stream
            .set_write_timeout(Some(Duration::from_secs(1)))
            .expect("the timeout can be set");
        let mut sent = 0;
        while sent < length {
            let rest = &piece[..piece.len().min(length - sent)];
            match stream.write(rest) {
                Ok(n) => sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("after {sent} bytes: {error}"),
            }
        }
        stream
            .set_write_timeout(Some(TIMEOUT))
            .expect("the timeout can be set");
        sent
    }

    /// Reads the head of a response. Returns `None` if its first byte does not arrive within `wait`.
    pub fn head_within(&mut self, wait: Duration) -> Option<Answer> {
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

    /// Returns true if the connection is open and the peer has sent nothing that was not read.
    pub fn is_silent(&mut self) -> bool {
        let set_nonblocking = |stream: &TcpStream, on| {
            let set = stream.set_nonblocking(on);
            set.expect("the socket option can be set");
        };
        set_nonblocking(self.stream.get_ref(), true);
        let read = self.stream.fill_buf().map_err(|error| error.kind());
        let is_silent = matches!(read, Err(ErrorKind::WouldBlock));
        set_nonblocking(self.stream.get_ref(), false);
        is_silent
    }

    /// Sends the end of the client's bytes. The client still reads.
    pub fn shutdown_write(&self) {
        self.stream
            .get_ref()
            .shutdown(Shutdown::Write)
            .expect("the socket is open");
    }

    /// Returns the socket. Bytes that were read and not returned are lost.
    pub fn into_stream(self) -> TcpStream {
        self.stream.into_inner()
    }

    /// Closes the connection with a reset, like a client whose process was killed.
    pub fn reset(self) {
        let socket = socket2::Socket::from(self.stream.into_inner());
        socket
            .set_linger(Some(Duration::ZERO))
            .expect("the linger time can be set");
    }
}

impl<S: Read + Write> Client<S> {
    /// Returns an end on this stream.
    pub fn on(stream: S) -> Self {
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Sends a GET and reads the response.
    pub fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.request("GET", path, headers, b"")
    }

    /// Sends a request and reads the response.
    pub fn request(
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

    /// Sends the head of a request. Without `Host` in `headers`, it is `test.example`.
    pub fn send_head(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) {
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

    /// Sends bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream
            .get_mut()
            .write_all(bytes.as_ref())
            .expect("the peer reads");
    }

    /// Sends bytes. Returns false if the peer closes the connection first.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.get_mut().write_all(bytes).is_ok()
    }

    /// Sends `length` bytes of a body, as repetitions of `piece`.
    pub fn send_rest(&mut self, piece: &[u8], mut length: usize) {
        while length > 0 {
            let n = piece.len().min(length);
            self.send(&piece[..n]);
            length -= n;
        }
    }

    /// Reads the head of a response.
    pub fn head(&mut self) -> Answer {
        self.try_head().expect("a response arrives")
    }

    /// Reads the head of a response. Returns `None` if the peer closes the connection first.
    pub fn try_head(&mut self) -> Option<Answer> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => return None,
            Err(error) if is_closed_error(&error) => return None,
            result => result.expect("the peer answers in time"),
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

    /// Reads a response, or its beginning if the peer closes the connection early. Skips interim responses.
    pub fn answer(&mut self, method: &str) -> Answer {
        let mut answer = self.head();
        while answer.status < 200 {
            answer = self.head();
        }
        self.body(method, &mut answer);
        answer
    }

    /// Reads the body that follows a head.
    pub fn body(&mut self, method: &str, answer: &mut Answer) {
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

    /// Reads `length` bytes of a body, or fewer if the peer closes the connection.
    pub fn read_up_to(&mut self, length: usize) -> Vec<u8> {
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

    /// Reads until the bytes read so far end with `end`.
    pub fn read_until(&mut self, end: &str) -> String {
        self.try_read_until(end)
            .unwrap_or_else(|so_far| panic!("the connection ends after {so_far:?}"))
    }

    /// Reads until the bytes read so far end with `end`. Returns these bytes as an error if the connection ends before.
    pub fn try_read_until(&mut self, end: &str) -> Result<String, String> {
        let mut received = Vec::new();
        while !received.ends_with(end.as_bytes()) {
            let byte = self.read_up_to(1);
            if byte.is_empty() {
                return Err(String::from_utf8_lossy(&received).into_owned());
            }
            received.extend(byte);
        }
        Ok(String::from_utf8(received).expect("the text is UTF-8"))
    }

    /// Reads until the peer closes the connection.
    pub fn read_to_end(&mut self) -> String {
        let mut received = Vec::new();
        self.stream
            .read_to_end(&mut received)
            .expect("the peer closes the connection in time");
        String::from_utf8(received).expect("the text is UTF-8")
    }

    /// Returns true if the peer closes the connection within [`TIMEOUT`], with a FIN or a reset.
    pub fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0; 1]) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => is_closed_error(&error),
        }
    }
}

/// Sends bytes on a new connection, and returns all that the server sends until the connection ends. Bytes that arrived
/// before a reset count.
pub fn exchange(addr: SocketAddr, request: impl AsRef<[u8]>) -> Vec<u8> {
    let mut client = Client::connect(addr);
    // A server that refuses a request may close the connection before it has read the whole request.
    client.try_send(request.as_ref());
    let mut received = Vec::new();
    match client.stream.read_to_end(&mut received) {
        Err(error) if !is_closed_error(&error) => panic!("after {} bytes: {error}", received.len()),
        _ => received,
    }
}

/// Sends a request without a body that closes the connection, and returns the whole response as text.
pub fn get(addr: SocketAddr, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    String::from_utf8_lossy(&exchange(addr, request)).into_owned()
}

/// Returns the value of a series (name and labels) of a page in the text format of Prometheus.
pub fn metric(page: &str, series: &str) -> f64 {
    let value = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
    let value = page.lines().find_map(value);
    value.unwrap_or_else(|| panic!("no {series} in\n{page}"))
}

/// Repeats `poll` until it returns a value. Panics after [`TIMEOUT`].
pub fn until<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited too long: {what}");
        thread::park_timeout(Duration::from_millis(2));
    }
}

/// The longest wait of a test: long enough for a machine that runs other tests meanwhile.
pub const TIMEOUT: Duration = Duration::from_secs(60);

fn is_closed_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof
    )
}
