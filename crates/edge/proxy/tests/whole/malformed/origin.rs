//! An origin that records requests exactly as their bytes arrive, and refuses every byte that a strict reader of
//! RFC 9112 could read in two ways.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use crate::support::TIMEOUT;

/// A request that arrived at the origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OriginRequest {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) host: String,
    pub(super) body: Vec<u8>,
    /// False if the connection ended within the request.
    pub(super) is_complete: bool,
    /// The reason why the request has more than one meaning, or none.
    pub(super) fault: Option<String>,
}

/// The origin.
pub(super) struct RecordingOrigin {
    addr: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    stops: AtomicBool,
    /// The response to each request.
    response: Mutex<Vec<u8>>,
    /// True if the origin closes the connection after each response.
    closes: AtomicBool,
}

#[derive(Default)]
struct State {
    requests: Vec<OriginRequest>,
    /// The connections on which a request has begun and not ended.
    under_way: BTreeSet<usize>,
    connections: usize,
}

impl RecordingOrigin {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let addr = listener.local_addr().expect("the listener is bound");
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if accepting.stops.load(SeqCst) {
                    return;
                }
                let shared = Arc::clone(&accepting);
                std::thread::spawn(move || serve(&stream, &shared));
            }
        });
        let origin = Self {
            addr,
            shared,
            thread: Some(thread),
        };
        origin.answer_with(OK, false);
        origin
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Sets the response to each later request except those for [`NEXT`](super::NEXT).
    pub(super) fn answer_with(&self, response: &[u8], closes: bool) {
        *self.shared.response.lock().expect("no holder panics") = response.to_vec();
        self.shared.closes.store(closes, SeqCst);
    }

    /// Waits until no request is under way. Returns the requests since the last call.
    pub(super) fn take_requests(&self) -> Vec<OriginRequest> {
        let state = self.shared.state.lock().expect("no holder panics");
        let waited = self
            .shared
            .changed
            .wait_timeout_while(state, TIMEOUT, |state| !state.under_way.is_empty());
        let (mut state, waited) = waited.expect("no holder panics");
        assert!(!waited.timed_out(), "a request to the origin does not end");
        std::mem::take(&mut state.requests)
    }
}

impl Drop for RecordingOrigin {
    fn drop(&mut self) {
        self.shared.stops.store(true, SeqCst);
        _ = TcpStream::connect(self.addr);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn serve(stream: &TcpStream, shared: &Shared) {
    let id = {
        let mut state = shared.state.lock().expect("no holder panics");
        state.connections += 1;
        state.connections
    };
    let mut reader = BufReader::new(stream);
    loop {
        if !reader.fill_buf().is_ok_and(|bytes| !bytes.is_empty()) {
            return;
        }
        let change = |change: &mut dyn FnMut(&mut State)| {
            change(&mut shared.state.lock().expect("no holder panics"));
            shared.changed.notify_all();
        };
        change(&mut |state| _ = state.under_way.insert(id));
        let request = read_request(&mut reader);
        let is_usable = request.is_complete && request.fault.is_none();
        let is_next = request.target == super::NEXT;
        let response = match is_next {
            true => OK.to_vec(),
            false => shared.response.lock().expect("no holder panics").clone(),
        };
        let closes = !is_next && shared.closes.load(SeqCst);
        // The request is recorded before the response, so that a client with a response finds it in the record.
        change(&mut |state| {
            state.requests.push(request.clone());
            state.under_way.remove(&id);
        });
        let mut stream = stream;
        if !is_usable || stream.write_all(&response).is_err() || closes {
            _ = stream.shutdown(std::net::Shutdown::Both);
            return;
        }
    }
}

fn read_request(reader: &mut BufReader<&TcpStream>) -> OriginRequest {
    let mut request = OriginRequest::default();
    match read_parts(reader, &mut request) {
        Ok(()) => request.is_complete = true,
        Err(Fault::End) => {}
        Err(Fault::Ambiguous(fault)) => request.fault = Some(fault),
    }
    request
}

enum Fault {
    End,
    Ambiguous(String),
}

fn ambiguous<T>(fault: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Ambiguous(fault.into()))
}

/// Reads a line that ends with CRLF and has no other control character than tabs.
fn read_line(reader: &mut BufReader<&TcpStream>) -> Result<Vec<u8>, Fault> {
    let mut line = Vec::new();
    let read = reader.read_until(b'\n', &mut line);
    if read.is_err() || !line.ends_with(b"\n") {
        return Err(Fault::End);
    }
    line.pop();
    if line.pop() != Some(b'\r') {
        return ambiguous("a line without CR");
    }
    match line
        .iter()
        .find(|&&byte| (byte < 0x20 && byte != b'\t') || byte == 0x7f)
    {
        Some(byte) => ambiguous(format!("the byte {byte:#04x} in a line")),
        None => Ok(line),
    }
}

fn read_parts(
    reader: &mut BufReader<&TcpStream>,
    request: &mut OriginRequest,
) -> Result<(), Fault> {
    let line = read_line(reader)?;
    let line = String::from_utf8_lossy(&line).into_owned();
    let parts: Vec<_> = line.split(' ').collect();
    let [method, target, "HTTP/1.1"] = parts[..] else {
        return ambiguous(format!("the request line {line:?}"));
    };
    (request.method, request.target) = (method.to_owned(), target.to_owned());
    if method.is_empty() || !method.bytes().all(is_token_byte) {
        return ambiguous("a method that is no token");
    }
    if !(target.starts_with('/') || target == "*") || target.contains('#') {
        return ambiguous(format!("the target {target:?}"));
    }
    let (mut hosts, mut lengths, mut codings) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            break;
        }
        let line = String::from_utf8_lossy(&line).into_owned();
        let Some((name, value)) = line.split_once(':') else {
            return ambiguous(format!("the field line {line:?}"));
        };
        if name.is_empty() || !name.bytes().all(is_token_byte) {
            return ambiguous(format!("the field name {name:?}"));
        }
        let value = value.trim_matches([' ', '\t']).to_owned();
        match &*name.to_ascii_lowercase() {
            "host" => hosts.push(value),
            "content-length" => lengths.push(value),
            "transfer-encoding" => codings.push(value),
            // Some servers read such a name as that of a framing field.
            "content_length" | "transfer_encoding" => {
                return ambiguous(format!("the field {name}"));
            }
            "keep-alive" | "proxy-connection" | "proxy-authorization" | "http2-settings" => {
                return ambiguous(format!("the field {name} of a connection"));
            }
            _ => {}
        }
    }
    match &hosts[..] {
        [host] => request.host.clone_from(host),
        _ => return ambiguous(format!("the hosts {hosts:?}")),
    }
    match (&lengths[..], &codings[..]) {
        ([], []) => Ok(()),
        ([length], [])
            if !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            let length = length
                .parse()
                .map_err(|_| Fault::Ambiguous("a large length".into()))?;
            read_exact(reader, length, &mut request.body)
        }
        ([], [coding]) if coding == "chunked" => read_chunks(reader, &mut request.body),
        framing => ambiguous(format!("the framing {framing:?}")),
    }
}

fn read_exact(
    reader: &mut BufReader<&TcpStream>,
    length: u64,
    body: &mut Vec<u8>,
) -> Result<(), Fault> {
    let read = reader.take(length).read_to_end(body);
    if read.is_ok_and(|read| read as u64 == length) {
        Ok(())
    } else {
        Err(Fault::End)
    }
}

fn read_chunks(reader: &mut BufReader<&TcpStream>, body: &mut Vec<u8>) -> Result<(), Fault> {
    loop {
        let line = String::from_utf8_lossy(&read_line(reader)?).into_owned();
        if line.is_empty() || !line.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return ambiguous(format!("the chunk size {line:?}"));
        }
        let size = u64::from_str_radix(&line, 16);
        match size.map_err(|_| Fault::Ambiguous("a large chunk".into()))? {
            0 => break,
            size => read_exact(reader, size, body)?,
        }
        let mut end = Vec::new();
        read_exact(reader, 2, &mut end)?;
        if end != b"\r\n" {
            return ambiguous("no CRLF after a chunk");
        }
    }
    loop {
        let line = String::from_utf8_lossy(&read_line(reader)?).into_owned();
        if line.is_empty() {
            return Ok(());
        }
        let name = line
            .split(':')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        if !name.bytes().all(is_token_byte)
            || ["host", "content-length", "transfer-encoding"].contains(&&*name)
        {
            return ambiguous(format!("the trailer {line:?}"));
        }
    }
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache-Control: no-store\r\n\r\nok";
