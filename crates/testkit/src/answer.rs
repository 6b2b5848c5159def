//! The responses of the scripted origin.
//!
//! An [`Answer`] describes a response and the errors that the origin makes while it sends the response. For
//! each request, [`Answer::steps`] turns the answer into a list of sends, waits and closes. The origin carries
//! out these steps on the connection.

use bytes::Bytes;

use crate::gate::Gate;
use crate::request::RecordedRequest;

/// A response to one request.
#[derive(Clone, Debug)]
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    trailers: Vec<(String, String)>,
    body: Body,
    framing: Framing,
    read_body_after: Option<Gate>,
    before_reading_body: bool,
    ignores_expectation: bool,
    /// The gate of [`Answer::wait_before_head`].
    before_head: Option<Gate>,
    /// Offsets in the body, ascending, and the gates at which the origin waits there.
    pauses: Vec<(u64, Gate)>,
    /// The number of bytes of the body after which `ending` happens.
    stop_at: Option<u64>,
    ending: Ending,
    revalidates: bool,
    /// The steps of [`Answer::script`], which replace all other fields.
    raw: Option<Vec<Step>>,
}

/// The next action of the origin on a connection.
#[derive(Clone, Debug)]
pub enum Step {
    /// Sends these bytes.
    Send(Bytes),
    /// Sends the bytes `offset..offset + len` of the [pattern](crate::pattern_byte).
    SendPattern {
        /// The first byte, as an offset in the pattern.
        offset: u64,
        /// The number of bytes.
        len: u64,
    },
    /// Sends header lines of about a hundred bytes each, in total at least this many bytes.
    SendHeaderLines(u64),
    /// Sends one byte `count` times.
    SendRepeated {
        /// The byte that is repeated.
        byte: u8,
        /// The number of repetitions.
        count: u64,
    },
    /// Waits until the gate is open.
    Wait(Gate),
    /// Closes the connection with a FIN.
    Close,
    /// Sets the linger time to zero and closes the connection, so that the peer receives a reset (RST).
    Reset,
    /// Sends nothing more, and keeps the connection open until the peer closes it.
    Hang,
}

impl Answer {
    /// Returns a 200 with this body and its `Content-Length`.
    pub fn ok(body: impl Into<Bytes>) -> Self {
        Self::with(200, Body::Bytes(body.into()))
    }

    /// Returns an empty response with this status.
    pub fn status(status: u16) -> Self {
        Self::with(status, Body::Bytes(Bytes::new()))
    }

    /// Returns a 200 with `len` bytes of the [pattern](crate::pattern_byte). The origin generates the bytes
    /// while it sends the body.
    pub fn pattern(len: u64) -> Self {
        Self::with(200, Body::Pattern(len))
    }

    /// Returns an answer that sends no response: the request is read, and the connection stays open.
    pub fn never() -> Self {
        Self::script(vec![Step::Hang])
    }

    /// Returns an answer that sends these bytes instead of an HTTP response, then closes the connection.
    pub fn garbage(bytes: impl Into<Bytes>) -> Self {
        Self::script(vec![Step::Send(bytes.into()), Step::Close])
    }

    /// Returns a response whose head has at least `bytes` bytes of header lines.
    pub fn endless_headers(bytes: u64) -> Self {
        Self::script(vec![
            Step::Send(Bytes::from_static(b"HTTP/1.1 200 OK\r\n")),
            Step::SendHeaderLines(bytes),
            Step::Send(Bytes::from_static(b"Content-Length: 0\r\n\r\n")),
        ])
    }

    /// Returns a response whose head has one header line of `bytes` bytes.
    pub fn endless_header_line(bytes: u64) -> Self {
        Self::script(vec![
            Step::Send(Bytes::from_static(b"HTTP/1.1 200 OK\r\nX-Flood: ")),
            Step::SendRepeated {
                byte: b'a',
                count: bytes,
            },
            Step::Send(Bytes::from_static(b"\r\nContent-Length: 0\r\n\r\n")),
        ])
    }

    /// Returns an answer that consists of exactly these steps. After the last step the origin waits for the
    /// next request on the connection.
    pub fn script(steps: Vec<Step>) -> Self {
        Self {
            raw: Some(steps),
            ..Self::status(200)
        }
    }

    /// Replaces the status.
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Adds a header line. If this is called twice with one name, the head has two lines with this name.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Answers 304 to a request whose `If-None-Match` contains this answer's `ETag`. Without `If-None-Match`,
    /// answers 304 to a request whose `If-Modified-Since` equals this answer's `Last-Modified`.
    pub fn revalidates(mut self) -> Self {
        self.revalidates = true;
        self
    }

    /// Sends the body in chunks of at most `chunk_bytes` bytes.
    pub fn chunked(mut self, chunk_bytes: u64) -> Self {
        assert!(chunk_bytes > 0, "an empty chunk ends the body");
        self.framing = Framing::Chunked(chunk_bytes);
        self
    }

    /// Adds a trailer line after a chunked body.
    pub fn trailer(mut self, name: &str, value: &str) -> Self {
        self.trailers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends neither a length nor chunks: the close of the connection ends the body.
    pub fn until_close(mut self) -> Self {
        self.framing = Framing::UntilClose;
        self
    }

    /// Sends this `Content-Length` instead of the length of the body. The origin sends the whole body, even if
    /// the body is longer. If the body is shorter, the origin closes the connection after the body.
    pub fn claiming_length(mut self, claimed: u64) -> Self {
        self.framing = Framing::Claimed(claimed);
        self
    }

    /// Sends the response before the body of the request is read.
    pub fn before_reading_body(mut self) -> Self {
        self.before_reading_body = true;
        self
    }

    /// Waits until the gate is open before the body of the request is read.
    pub fn read_body_after(mut self, gate: &Gate) -> Self {
        self.read_body_after = Some(gate.clone());
        self
    }

    /// Waits at the gate before the head is sent.
    pub fn wait_before_head(mut self, gate: &Gate) -> Self {
        self.before_head = Some(gate.clone());
        self
    }

    /// Waits at the gate after the head and `offset` bytes of the body were sent.
    pub fn wait_at(mut self, offset: u64, gate: &Gate) -> Self {
        self.pauses.push((offset, gate.clone()));
        self.pauses.sort_by_key(|&(position, _)| position);
        self
    }

    /// Resets the connection after `offset` bytes of the body.
    pub fn reset_at(mut self, offset: u64) -> Self {
        self.stop_at = Some(offset);
        self.ending = Ending::Reset;
        self
    }

    /// Closes the connection with a FIN after `offset` bytes of the body.
    pub fn close_at(mut self, offset: u64) -> Self {
        self.stop_at = Some(offset);
        self.ending = Ending::Close;
        self
    }

    /// Sends nothing more after `offset` bytes of the body, and keeps the connection open.
    pub fn hang_at(mut self, offset: u64) -> Self {
        self.stop_at = Some(offset);
        self.ending = Ending::Hang;
        self
    }

    /// Closes the connection after the complete response, although its head has no `Connection: close`.
    pub fn then_close(mut self) -> Self {
        self.ending = Ending::Close;
        self
    }

    /// Does not send `100 Continue` to a request with `Expect: 100-continue`, and waits for its body.
    pub fn ignores_expectation(mut self) -> Self {
        self.ignores_expectation = true;
        self
    }

    pub(crate) fn sends_continue(&self) -> bool {
        !self.ignores_expectation
    }

    pub(crate) fn reads_body_first(&self) -> bool {
        !self.before_reading_body
    }

    pub(crate) fn body_gate(&self) -> Option<&Gate> {
        self.read_body_after.as_ref()
    }

    /// Returns the steps that the origin carries out for this request.
    pub(crate) fn steps(&self, request: &RecordedRequest) -> Vec<Step> {
        if let Some(raw) = &self.raw {
            return raw.clone();
        }
        let mut steps: Vec<Step> = self.before_head.iter().cloned().map(Step::Wait).collect();
        if self.revalidates && self.matches_condition(request) {
            steps.push(Step::Send(self.head(304)));
            return steps;
        }
        steps.push(Step::Send(self.head(self.status)));
        // RFC 9110 §9.3.2 and §15: a response to HEAD, a 1xx, a 204 and a 304 have no content.
        if request.method() != "HEAD" && !matches!(self.status, 100..=199 | 204 | 304) {
            self.body_steps(&mut steps);
        }
        match (self.ending, self.framing) {
            (Ending::Close, _) | (Ending::KeepAlive, Framing::UntilClose) => {
                steps.push(Step::Close);
            }
            (Ending::KeepAlive, Framing::Claimed(claimed)) if claimed > self.body.len() => {
                steps.push(Step::Close);
            }
            (Ending::KeepAlive, _) => {}
            (Ending::Reset, _) => steps.push(Step::Reset),
            (Ending::Hang, _) => steps.push(Step::Hang),
        }
        steps
    }

    fn with(status: u16, body: Body) -> Self {
        Self {
            status,
            headers: Vec::new(),
            trailers: Vec::new(),
            body,
            framing: Framing::Length,
            read_body_after: None,
            before_reading_body: false,
            ignores_expectation: false,
            before_head: None,
            pauses: Vec::new(),
            stop_at: None,
            ending: Ending::KeepAlive,
            revalidates: false,
            raw: None,
        }
    }

    fn head(&self, status: u16) -> Bytes {
        let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        match self.framing {
            _ if matches!(status, 100..=199 | 204 | 304) => {}
            Framing::Length => head.push_str(&format!("Content-Length: {}\r\n", self.body.len())),
            Framing::Claimed(claimed) => head.push_str(&format!("Content-Length: {claimed}\r\n")),
            Framing::Chunked(_) => head.push_str("Transfer-Encoding: chunked\r\n"),
            Framing::UntilClose => head.push_str("Connection: close\r\n"),
        }
        head.push_str("\r\n");
        Bytes::from(head)
    }

    fn body_steps(&self, steps: &mut Vec<Step>) {
        let end = self.stop_at.unwrap_or(u64::MAX).min(self.body.len());
        let chunk = match self.framing {
            Framing::Chunked(bytes) => bytes,
            _ => u64::MAX,
        };
        let mut pauses = self.pauses.iter().peekable();
        let mut position = 0;
        loop {
            while let Some((_, gate)) = pauses.next_if(|&&(offset, _)| offset <= position) {
                steps.push(Step::Wait(gate.clone()));
            }
            if position >= end {
                break;
            }
            let pause = pauses.peek().map_or(u64::MAX, |&&(offset, _)| offset);
            let next = position.saturating_add(chunk).min(pause).min(end);
            if let Framing::Chunked(_) = self.framing {
                steps.push(Step::Send(Bytes::from(format!(
                    "{:x}\r\n",
                    next - position
                ))));
                steps.push(self.body.piece(position, next));
                steps.push(Step::Send(Bytes::from_static(b"\r\n")));
            } else {
                steps.push(self.body.piece(position, next));
            }
            position = next;
        }
        if matches!(self.framing, Framing::Chunked(_)) && self.stop_at.is_none() {
            let mut last = String::from("0\r\n");
            for (name, value) in &self.trailers {
                last.push_str(&format!("{name}: {value}\r\n"));
            }
            last.push_str("\r\n");
            steps.push(Step::Send(Bytes::from(last)));
        }
    }

    /// Returns true if the condition of the request selects a 304, because the client's version is current.
    /// `If-None-Match` overrides `If-Modified-Since` (RFC 9110 §13.2.2).
    fn matches_condition(&self, request: &RecordedRequest) -> bool {
        if !matches!(request.method(), "GET" | "HEAD") {
            return false;
        }
        let own_header = |name: &str| {
            self.headers
                .iter()
                .find(|(key, _)| key.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.trim_start_matches("W/"))
        };
        if let Some(tags) = request.header("if-none-match") {
            return tags.split(',').map(str::trim).any(|tag| {
                tag == "*"
                    || own_header("etag").is_some_and(|etag| etag == tag.trim_start_matches("W/"))
            });
        }
        match (
            request.header("if-modified-since"),
            own_header("last-modified"),
        ) {
            (Some(since), Some(modified)) => since == modified,
            _ => false,
        }
    }
}

#[derive(Clone, Debug)]
enum Body {
    Bytes(Bytes),
    Pattern(u64),
}

impl Body {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Pattern(len) => *len,
        }
    }

    fn piece(&self, start: u64, end: u64) -> Step {
        match self {
            Self::Bytes(bytes) => {
                let inside = "the piece lies inside a body in memory";
                let start = usize::try_from(start).expect(inside);
                let end = usize::try_from(end).expect(inside);
                Step::Send(bytes.slice(start..end))
            }
            Self::Pattern(_) => Step::SendPattern {
                offset: start,
                len: end - start,
            },
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Framing {
    Length,
    Claimed(u64),
    Chunked(u64),
    UntilClose,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    KeepAlive,
    Close,
    Reset,
    Hang,
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        404 => "Not Found",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        // The phrase has no meaning and may be empty (RFC 9112 §4).
        _ => "",
    }
}
