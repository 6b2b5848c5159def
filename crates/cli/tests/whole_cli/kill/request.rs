//! Sends one request and compares every byte of the response body with the expected one.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use edgeward_replay::Pattern;

/// The result of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetchResult {
    /// False if the response did not arrive or its body was truncated.
    pub(super) complete: bool,
    /// True if the field `Cache-Status` states that the response came from disk.
    pub(super) from_disk: bool,
}

impl FetchResult {
    /// Returns `None` if the response was not complete, and otherwise true if it came from disk.
    pub(super) fn was_complete_and_from_disk(self) -> Option<bool> {
        self.complete.then_some(self.from_disk)
    }
}

/// Returns the size of an object in bytes: one of five sizes, selected by `id % 5`, plus the id.
pub(super) fn size_of(id: u64) -> u64 {
    [100, 5_000, 70_000, 400_000, 2_000_000][(id % 5) as usize] + id
}

/// Sends a request. Panics if the response has another status than 200 to 209, or if a byte of the body is wrong. The
/// response to a POST counts as complete with any body.
pub(super) fn send_request(
    addr: SocketAddr,
    method: &str,
    id: u64,
    range: Option<(u64, u64)>,
) -> FetchResult {
    let no_response = FetchResult {
        complete: false,
        from_disk: false,
    };
    let size = size_of(id);
    let fields = match (method, range) {
        ("POST", _) => "Content-Length: 0\r\n".to_owned(),
        (_, Some((first, last))) => format!("Range: bytes={first}-{last}\r\n"),
        _ => String::new(),
    };
    let request = format!(
        "{method} /o/{id}?size={size} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n{fields}\r\n"
    );
    let Some((head, body)) = exchange(addr, &request) else {
        return no_response;
    };
    assert!(
        head.starts_with("HTTP/1.1 20"),
        "{method} {id} of {size} bytes: {head}"
    );
    if method == "POST" {
        return FetchResult {
            complete: true,
            from_disk: false,
        };
    }
    let (offset, expected) = match range {
        Some((first, last)) if head.starts_with("HTTP/1.1 206") => (first, last - first + 1),
        _ => (0, size),
    };
    assert!(body.len() as u64 <= expected, "{head}");
    let wrong = Pattern::for_id(&id.to_string()).first_wrong(offset, &body);
    assert_eq!(wrong, None, "{id} of {size} bytes, {range:?}: {head}");
    FetchResult {
        complete: body.len() as u64 == expected,
        from_disk: head.contains("detail=disk"),
    }
}

/// The head and the body of the response, or `None` if the head did not arrive.
pub(super) fn exchange(addr: SocketAddr, request: &str) -> Option<(String, Vec<u8>)> {
    let mut stream = TcpStream::connect(addr).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(50)))
        .expect("the read timeout is set");
    stream.write_all(request.as_bytes()).ok()?;
    let mut response = Vec::new();
    // After a reset of the connection, the bytes that arrived before it are still in `response`.
    _ = stream.read_to_end(&mut response);
    let end = response.windows(4).position(|four| four == b"\r\n\r\n")?;
    let body = response.split_off(end + 4);
    Some((
        String::from_utf8(response).expect("the response head is UTF-8"),
        body,
    ))
}

/// Returns true if the edge no longer listens. A client that got an incomplete response calls this function, because
/// the test sets its flag `killed` only a moment after the kill.
pub(super) fn has_ended(addr: SocketAddr) -> bool {
    thread::sleep(Duration::from_millis(20));
    TcpStream::connect(addr).is_err()
}
