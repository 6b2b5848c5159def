//! A table of malformed and ambiguous messages in HTTP/1, and what the edge does with each.
//!
//! Each request is sent on a connection of its own, and a further, plain request follows it in the same bytes. The
//! table says which responses the client gets, and which requests arrive at an origin that accepts no ambiguous byte.
//! A request that hides in another would be one more request at the origin.

mod framing;
mod origin;
mod page;
mod peers;
mod requests;
mod responses;

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use crate::support::{TIMEOUT, TestBed, config_for};
use edgeward_proxy::Edge;
use origin::{OriginRequest, RecordingOrigin};

/// A message and what the edge does with it.
struct Row {
    /// The unusual part of the message.
    name: &'static str,
    /// The section that describes the correct form, or the known attack.
    source: &'static str,
    /// The message. `{p}` is a path of the row's own, and `{x}` a path that no request may reach.
    bytes: &'static [u8],
    /// The statuses that the client gets, then the requests at the origin.
    expected: &'static str,
}

const fn row(
    name: &'static str,
    source: &'static str,
    bytes: &'static [u8],
    expected: &'static str,
) -> Row {
    Row {
        name,
        source,
        bytes,
        expected,
    }
}

/// A response of the origin and what the client gets.
struct ResponseRow {
    /// The unusual part of the response.
    name: &'static str,
    /// The section that describes the correct form, or the known attack.
    source: &'static str,
    /// The method of the request.
    method: &'static str,
    /// The response.
    bytes: &'static [u8],
    /// True if the origin closes the connection after the response.
    closes: bool,
    /// The status and the body that the client gets, then those of a further request.
    expected: &'static str,
}

/// Replaces the placeholders of a row.
fn fill(bytes: &[u8], number: usize) -> Vec<u8> {
    let fields = || {
        (0..300)
            .map(|n| format!("X-F{n}: 1\r\n"))
            .collect::<String>()
    };
    let replacements = [
        ("{p}", format!("/row/{number}")),
        ("{q}", format!("row{number}")),
        ("{x}", format!("/hidden/{number}")),
        ("{300}", fields()),
        ("{20000}", "a".repeat(20_000)),
        ("{70000}", "a".repeat(70_000)),
        ("{100000}", "a".repeat(100_000)),
    ];
    let mut filled = bytes.to_vec();
    for (placeholder, text) in replacements {
        while let Some(at) = memchr::memmem::find(&filled, placeholder.as_bytes()) {
            filled.splice(at..at + placeholder.len(), text.bytes());
        }
    }
    filled
}

/// Sends the bytes and reads until the edge closes the connection. Returns all bytes that the edge sent.
fn exchange(bed: &TestBed, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(bed.edge.addrs()[0]).expect("the edge listens");
    stream
        .set_read_timeout(Some(TIMEOUT))
        .expect("the timeout can be set");
    // The edge may close the connection before it has read all bytes.
    _ = stream.write_all(bytes);
    _ = stream.shutdown(Shutdown::Write);
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return received,
            Ok(read) => received.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return received,
            Err(error) => panic!("{error} after {}", String::from_utf8_lossy(&received)),
        }
    }
}

/// Returns the statuses of the responses. No body of these tests contains a status line.
fn statuses(received: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(received).into_owned();
    let lines = text.split("HTTP/1.").skip(1);
    lines
        .map(|line| line.chars().skip(2).take(3).collect())
        .collect()
}

/// Describes the responses that the client got, as in [`ResponseRow::expected`]. Interim responses are left out.
fn describe_responses(mut received: &[u8], methods: &[&str]) -> String {
    let mut text = Vec::new();
    let mut methods = methods.iter();
    while !received.is_empty() {
        let Some(end) = memchr::memmem::find(received, b"\r\n\r\n") else {
            text.push(BROKEN.to_owned());
            break;
        };
        let head = String::from_utf8_lossy(&received[..end + 2]).to_ascii_lowercase();
        let status = head.get(9..12).unwrap_or_default().to_owned();
        received = &received[end + 4..];
        if status.starts_with('1') {
            continue;
        }
        let value_of = |name: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim().to_owned())
        };
        let is_bodyless = methods.next() == Some(&"HEAD") || status == "204" || status == "304";
        let (body, rest) = if is_bodyless {
            (Some(Vec::new()), received)
        } else if let Some(length) = value_of("content-length:") {
            let length = length.parse().expect("the edge sends a number");
            let body = received.get(..length).map(<[u8]>::to_vec);
            (body, received.get(length..).unwrap_or_default())
        } else if value_of("transfer-encoding:").is_some() {
            dechunk(received)
        } else {
            (Some(received.to_vec()), &[][..])
        };
        text.push(match body {
            // The text of an error page of the edge does not matter.
            Some(_) if status.starts_with('5') => status,
            Some(body) if body.is_empty() => status,
            Some(body) => format!("{status} {:?}", String::from_utf8_lossy(&body)),
            None => BROKEN.to_owned(),
        });
        received = rest;
    }
    if text.is_empty() {
        text.push(BROKEN.to_owned());
    }
    text.join(", ")
}

/// The connection ended before or within the body, which depends on when the head was sent.
const BROKEN: &str = "broken";

/// Returns the content of a chunked body, or `None` if the body is incomplete, and the bytes after the body.
fn dechunk(mut bytes: &[u8]) -> (Option<Vec<u8>>, &[u8]) {
    let mut content = Vec::new();
    loop {
        let Some(end) = memchr::memmem::find(bytes, b"\r\n") else {
            return (None, &[]);
        };
        let size = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let size = usize::from_str_radix(&size, 16).expect("the edge sends a chunk size");
        bytes = &bytes[end + 2..];
        if size == 0 {
            let end = memchr::memmem::find(bytes, b"\r\n");
            let rest = end.map(|end| &bytes[end + 2..]);
            return (rest.is_some().then_some(content), rest.unwrap_or_default());
        }
        let Some(data) = bytes.get(..size) else {
            return (None, &[]);
        };
        content.extend_from_slice(data);
        bytes = bytes.get(size + 2..).unwrap_or_default();
    }
}

/// Describes what the client got and what the origin saw, as in [`Row::expected`].
fn describe(received: &[u8], requests: &[OriginRequest], number: usize) -> String {
    let mut text = statuses(received).join(" ");
    if text.is_empty() {
        text.push_str("closed");
    }
    for (position, request) in requests.iter().enumerate() {
        text.push_str(if position == 0 { " <- " } else { ", " });
        let target = request.target.replace(&format!("/row/{number}"), "{p}");
        let target = target.replace(&format!("row{number}"), "{q}");
        let target = target.replace(&format!("/hidden/{number}"), "{x}");
        if target == NEXT {
            text.push_str("next");
        } else {
            let target: String = target.chars().take(40).collect();
            _ = write!(text, "{} {target}", request.method);
        }
        if request.host != "h.example" {
            _ = write!(text, " of {}", request.host);
        }
        if !request.body.is_empty() {
            _ = write!(text, " {:?}", String::from_utf8_lossy(&request.body));
        }
        if !request.is_complete {
            text.push_str(" incomplete");
        }
        if let Some(fault) = &request.fault {
            _ = write!(text, " AMBIGUOUS: {fault}");
        }
    }
    text
}

/// The path of the plain request that follows each row. The origin answers it with `ok`.
const NEXT: &str = "/next";

fn next_request() -> Vec<u8> {
    format!("GET {NEXT} HTTP/1.1\r\nHost: h.example\r\nConnection: close\r\n\r\n").into_bytes()
}

fn bed() -> (TestBed, RecordingOrigin) {
    let origin = RecordingOrigin::start();
    let mut bed = TestBed::start();
    let mut config = config_for(origin.addr());
    config.workers = std::num::NonZeroUsize::MIN;
    config.forwarding.default_authority = Some("h.example".to_owned());
    bed.edge = Edge::start(config).expect("the edge starts on a free port");
    (bed, origin)
}

/// Method: see the module.
#[test]
fn each_malformed_request_is_refused_or_reaches_the_origin_without_ambiguity() {
    let (bed, origin) = bed();
    let mut wrong = String::new();
    for (number, row) in (1..).zip(requests::all()) {
        let mut bytes = fill(row.bytes, number);
        bytes.extend_from_slice(&next_request());
        let received = exchange(&bed, &bytes);
        let found = describe(&received, &origin.take_requests(), number);
        if found != row.expected {
            _ = writeln!(wrong, "{}\t{found}\t{}", row.name, row.expected);
        }
    }
    assert!(wrong.is_empty(), "row, found, expected:\n{wrong}");
}

/// Method: the origin answers one request with the bytes of the row. A further request on the same connection of the
/// client gets the origin's usual answer, although bytes of the row may be left on the connection to the origin.
#[test]
fn each_malformed_response_is_an_error_or_reaches_the_client_without_ambiguity() {
    let (bed, origin) = bed();
    let mut wrong = String::new();
    for (number, row) in responses::ALL.iter().enumerate() {
        origin.answer_with(&fill(row.bytes, number), row.closes);
        let path = format!("/response/{number}");
        let request = format!("{} {path} HTTP/1.1\r\nHost: h.example\r\n\r\n", row.method);
        // The further request is not pipelined, because an edge may answer it before the bytes of the row arrive.
        let first = exchange(&bed, request.as_bytes());
        let second = exchange(&bed, &next_request());
        let found = format!(
            "{}; {}",
            describe_responses(&first, &[row.method]),
            describe_responses(&second, &["GET"])
        );
        for request in origin.take_requests() {
            assert_eq!(request.fault, None, "{}: {request:?}", row.name);
        }
        if found != row.expected {
            _ = writeln!(wrong, "{}\t{found}\t{}", row.name, row.expected);
        }
    }
    assert!(wrong.is_empty(), "row, found, expected:\n{wrong}");
}
