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
    let page = fetch_page(target, TIMEOUT)?;
    serde_json::from_slice(&page).map_err(|error| io::Error::other(format!("not JSON: {error}")))
}

/// Fetches the page of a target, of at most 16 MiB.
///
/// # Errors
///
/// Returns an error if connecting, one read or one write takes longer than `timeout`, or if the status is not 200.
pub fn fetch_page(target: &Target, timeout: Duration) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&target.addr(), timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
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
    body(answer).map_err(io::Error::other)
}

fn body(mut answer: Vec<u8>) -> Result<Vec<u8>, String> {
    let end = answer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .ok_or("not an HTTP response")?;
    let body = answer.split_off(end + 4);
    let head = String::from_utf8_lossy(&answer);
    match head.split(' ').nth(1).unwrap_or_default() {
        "200" => Ok(body),
        status => Err(format!("status {status}")),
    }
}

/// The timeout for connecting and for each read and write. A late page would not match the other values of the sample.
const TIMEOUT: Duration = Duration::from_millis(500);
const PAGE_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_the_body_of_a_response_with_status_200() {
        let answer = |text: &str| body(text.as_bytes().to_vec());
        let page = answer("HTTP/1.1 200 OK\r\nX: y\r\n\r\n{\"pid\":7}");
        assert_eq!(page.as_deref(), Ok(&b"{\"pid\":7}"[..]));
        for (text, hint) in [
            ("garbage", "not an HTTP response"),
            ("HTTP/1.1 404 Not Found\r\n\r\n{}", "status 404"),
        ] {
            let error = answer(text).expect_err(hint);
            assert!(error.contains(hint), "{error}");
        }
    }
}
