//! A minimal `sendfile` server: the lower bound for the CPU time of any server that sends files.
//!
//! The server sends objects of one size, and does no lookup and no checks. Its CPU time is the kernel's part of the
//! work. The difference to another server's CPU time is the work of that server itself.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;

use anyhow::{Context as _, ensure};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fs::sendfile;

use crate::bench_shared::client::Client;

/// The number of bytes before each object in the file. They shift the object from a page boundary, like the head in a
/// cache file.
pub(super) const HEAD_BYTES: u64 = 470;

/// The maximum number of connections.
const CONNECTIONS_MAX: usize = 1024;

/// Fetches objects 1 to `keys` from the origin and writes them into one file.
pub(super) fn fill(origin: u16, size: u64, keys: u64, file: &Path) -> anyhow::Result<()> {
    let mut file = File::create(file).with_context(|| file.display().to_string())?;
    let mut origin = Client::connect(origin)?;
    for key in 1..=keys {
        file.write_all(&[0; HEAD_BYTES as usize])?;
        file.write_all(&origin.get(&format!("/o/{key}?size={size}"))?)?;
    }
    Ok(())
}

/// Serves the objects of the file until the process is killed. Arguments: `PORT FILE SIZE`.
pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<bool> {
    let mut next = |what| {
        arguments
            .next()
            .with_context(|| format!("{what} is missing"))
    };
    let port: u16 = next("the port")?.parse().context("the port")?;
    let file = File::open(next("the file")?)?;
    let size: u64 = next("the size of the objects")?
        .parse()
        .context("the size")?;
    let keys = file.metadata()?.len() / (HEAD_BYTES + size);
    ensure!(keys > 0, "the file has no object of {size} bytes");
    let mut sendfile_server = SendfileServer {
        file,
        size,
        keys,
        head: format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n").into_bytes(),
        clients: Vec::new(),
    };
    sendfile_server.serve(&TcpListener::bind((Ipv4Addr::LOCALHOST, port))?)?;
    Ok(true)
}

struct SendfileServer {
    /// The file with all objects.
    file: File,
    /// The size of each object in bytes.
    size: u64,
    /// The number of objects. Their keys begin at 1.
    keys: u64,
    /// The head of every response.
    head: Vec<u8>,
    /// The clients; the index is the token of a client's events.
    clients: Vec<Option<ConnectedClient>>,
}

/// A client, and the part of the file that remains to be sent for its current request.
struct ConnectedClient {
    stream: TcpStream,
    offset: u64,
    remaining_bytes: u64,
}

impl SendfileServer {
    fn serve(&mut self, listener: &TcpListener) -> anyhow::Result<()> {
        listener.set_nonblocking(true)?;
        let poll = epoll::create(CreateFlags::CLOEXEC)?;
        // The token of the listener, which is no client's index.
        let listener_data = EventData::new_u64(u64::MAX);
        epoll::add(&poll, listener, listener_data, EventFlags::IN)?;
        let mut events = [Event {
            flags: EventFlags::empty(),
            data: listener_data,
        }; 256];
        loop {
            let ready = epoll::wait(&poll, &mut events, None)?;
            for event in &events[..ready] {
                let token = event.data.u64();
                if token != u64::MAX {
                    self.serve_client(token as usize)?;
                    continue;
                }
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    stream.set_nodelay(true)?;
                    let free = self.clients.iter().position(Option::is_none);
                    let index = free.unwrap_or(self.clients.len());
                    ensure!(
                        index < CONNECTIONS_MAX,
                        "more than {CONNECTIONS_MAX} connections"
                    );
                    let wanted = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
                    epoll::add(&poll, &stream, EventData::new_u64(index as u64), wanted)?;
                    let client = Some(ConnectedClient {
                        stream,
                        offset: 0,
                        remaining_bytes: 0,
                    });
                    match free {
                        Some(index) => self.clients[index] = client,
                        None => self.clients.push(client),
                    }
                }
            }
        }
    }

    /// Reads requests of one client and sends responses until the socket would block.
    fn serve_client(&mut self, index: usize) -> anyhow::Result<()> {
        // An earlier event may have removed the client.
        while let Some(client) = &mut self.clients[index] {
            if client.remaining_bytes > 0 {
                let wanted = usize::try_from(client.remaining_bytes)?;
                match sendfile(&client.stream, &self.file, Some(&mut client.offset), wanted) {
                    Ok(sent) if sent > 0 => client.remaining_bytes -= sent as u64,
                    Err(rustix::io::Errno::AGAIN) => return Ok(()),
                    Ok(_) | Err(_) => self.clients[index] = None,
                }
                continue;
            }
            let mut request = [0; 512];
            match client.stream.read(&mut request) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(_) | Ok(0) => self.clients[index] = None,
                Ok(read) => {
                    let key =
                        key_of(&request[..read]).context("the request is not for an object")?;
                    ensure!(
                        (1..=self.keys).contains(&key),
                        "object {key} does not exist"
                    );
                    // The socket buffer is empty while the client waits for a response, so the head fits.
                    client.stream.write_all(&self.head)?;
                    client.offset = (key - 1) * (HEAD_BYTES + self.size) + HEAD_BYTES;
                    client.remaining_bytes = self.size;
                }
            }
        }
        Ok(())
    }
}

/// Parses the key in `GET /o/17?size=262144 …`.
fn key_of(request: &[u8]) -> Option<u64> {
    let rest = request.strip_prefix(b"GET /o/")?;
    let end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    str::from_utf8(&rest[..end]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_parsed_from_the_request() {
        assert_eq!(key_of(b"GET /o/17?size=4 HTTP/1.1\r\n\r\n"), Some(17));
        assert_eq!(key_of(b"GET /o/?size=4 HTTP/1.1\r\n\r\n"), None);
        assert_eq!(key_of(b"POST /o/17?size=4"), None);
    }
}
