//! A small HTTP/1.1 client that fills caches, checks bodies and reads the origin's counter of requests before and after
//! a measurement.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, bail};

/// A connection to a server on loopback, which is used for several requests.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    const TIMEOUT: Duration = Duration::from_secs(10);
    /// The maximum length of a body; larger than any measured body.
    const BODY_BYTES_MAX: u64 = 1 << 30;

    pub(crate) fn connect(port: u16) -> anyhow::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Self::TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::with_capacity(1 << 16, stream),
        })
    }

    /// Returns the body of a response, which must have status 200 and a length. The `Host` is `bench`, as in the load
    /// scripts.
    pub(crate) fn get(&mut self, path: &str) -> anyhow::Result<Vec<u8>> {
        self.get_from("bench", path)
    }

    /// Returns a page of an admin server. Admin servers reject the `Host` `bench`, so the request names their address.
    pub(crate) fn get_page(&mut self, path: &str) -> anyhow::Result<Vec<u8>> {
        self.get_from("127.0.0.1", path)
    }

    fn get_from(&mut self, host: &str, path: &str) -> anyhow::Result<Vec<u8>> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut status = String::new();
        self.stream.read_line(&mut status)?;
        if !status.starts_with("HTTP/1.1 200") {
            bail!("the response to {path} is {:?}", status.trim());
        }
        let mut length = None;
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                bail!("{path}: the head of the response ended early");
            }
            let Some((name, value)) = line.trim().split_once(':') else {
                break;
            };
            if name.eq_ignore_ascii_case("content-length") {
                length = value
                    .trim()
                    .parse::<u64>()
                    .ok()
                    .filter(|n| *n <= Self::BODY_BYTES_MAX);
            }
        }
        let length = length.with_context(|| format!("{path}: no usable Content-Length"))?;
        let mut body = vec![0; usize::try_from(length)?];
        self.stream
            .read_exact(&mut body)
            .with_context(|| format!("{path}: the body ended early"))?;
        Ok(body)
    }
}
