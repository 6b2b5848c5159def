//! Fetches the status page of a server for a sample, with one GET request and a bounded response.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::load::Target;

/// Fetches the page of a target as JSON.
///
/// # Errors
///
/// Returns an error if connecting, one read or one write takes longer than half a second, if the status is not 200, or
/// if the body is not JSON.
pub fn fetch(target: &Target) -> io::Result<serde_json::Value> {
    let mut stream = TcpStream::connect_timeout(&target.addr(), TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    // The prefix is the path of the target's URL, without a slash at its end.
    let path = match target.prefix() {
        "" => "/",
        path => path,
    };
    let host = target.host().to_str().unwrap_or_default();
    // HTTP/1.0: the response is not chunked and ends with the connection.
    let request =
        format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nAccept: application/json\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(PAGE_BYTES_MAX).read_to_end(&mut answer)?;
    parse(&answer).map_err(io::Error::other)
}

fn parse(answer: &[u8]) -> Result<serde_json::Value, String> {
    let end = answer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .ok_or("not an HTTP response")?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        return Err(format!("status {status}"));
    }
    serde_json::from_slice(&answer[end + 4..]).map_err(|error| format!("not JSON: {error}"))
}

/// The timeout for connecting and for each read and write. A late page would not match the other values of the sample.
const TIMEOUT: Duration = Duration::from_millis(500);
const PAGE_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_the_json_body_of_a_response_with_status_200() {
        let page =
            parse(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n{\"pid\":7}").expect("the response has a page");
        assert_eq!(page["pid"], 7);
        for (answer, hint) in [
            (&b"garbage"[..], "not an HTTP response"),
            (b"HTTP/1.1 404 Not Found\r\n\r\n{}", "status 404"),
            (b"HTTP/1.1 200 OK\r\n\r\n<html>", "not JSON"),
        ] {
            let error = parse(answer).expect_err(hint);
            assert!(error.contains(hint), "{error}");
        }
    }
}
