//! An emulated WAN path on loopback. All connections share its bandwidth, and each byte arrives after a delay.
//!
//! [`Wan`] is for measurements on machines where the kernel cannot emulate a network. It relays connections
//! between two peers. For each direction of a connection, one thread reads bytes and sleeps for the time that
//! the path needs to send them. Another thread writes the bytes when the delay has passed. The queue between
//! the two threads is limited to twice the product of the bandwidth and the one-way delay, but not to less than
//! 64 KiB. Each read counts as 16 KiB, whatever its length. Further bytes stay in the socket of their sender.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The properties of the path, which are equal in both directions.
#[derive(Clone, Copy, Debug)]
pub struct WanSettings {
    /// The bandwidth of each direction in bits per second, shared by all connections.
    pub bits_per_second: u64,
    /// The one-way delay.
    pub delay: Duration,
}

/// A WAN path. It relays connections until the process ends.
#[derive(Debug)]
pub struct Wan {
    addr: SocketAddr,
    directions: [Arc<Direction>; 2],
}

/// One direction of the path. All connections share it.
#[derive(Debug)]
struct Direction {
    settings: WanSettings,
    /// The time at which the path has sent all bytes accepted so far.
    free_at: Mutex<Instant>,
    /// The number of bytes relayed in this direction.
    bytes: AtomicU64,
}

impl Wan {
    /// Listens on loopback, and relays each connection to `to`.
    ///
    /// # Errors
    ///
    /// Fails if no port is free.
    pub fn start(to: SocketAddr, settings: WanSettings) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let direction = || {
            Arc::new(Direction {
                settings,
                free_at: Mutex::new(Instant::now()),
                bytes: AtomicU64::new(0),
            })
        };
        let directions = [direction(), direction()];
        let relay_directions = directions.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // If the server does not accept the connection, `client` is dropped, which closes the client's
                // connection.
                let Ok(server) = TcpStream::connect(to) else {
                    continue;
                };
                _ = relay(client, server, &relay_directions);
            }
        });
        Ok(Self { addr, directions })
    }

    /// Returns the address to connect to.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the number of bytes relayed from clients, and to clients.
    pub fn bytes(&self) -> [u64; 2] {
        self.directions
            .each_ref()
            .map(|direction| direction.bytes.load(Ordering::Relaxed))
    }
}

fn relay(client: TcpStream, server: TcpStream, directions: &[Arc<Direction>; 2]) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let sockets = [(client.try_clone()?, server.try_clone()?), (server, client)];
    for ((from, to), direction) in sockets.into_iter().zip(directions) {
        let rate = direction.settings.bits_per_second as f64 / 8.0;
        // The queue may contain twice the product of the bandwidth and the one-way delay, in bytes.
        let queue_bytes = rate * direction.settings.delay.as_secs_f64() * 2.0;
        let (send, sent) = sync_channel((queue_bytes as usize / PART_BYTES).max(4));
        let direction = Arc::clone(direction);
        thread::spawn(move || read_loop(from, &direction, &send));
        thread::spawn(move || write_loop(to, &sent));
    }
    Ok(())
}

/// Reads bytes from one peer at the bandwidth of the path, and passes them to the writing thread with the time
/// of their arrival.
fn read_loop(mut from: TcpStream, direction: &Direction, send: &SyncSender<(Instant, Vec<u8>)>) {
    let mut buffer = vec![0; PART_BYTES];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        direction.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let seconds = bytes as f64 * 8.0 / direction.settings.bits_per_second as f64;
        let sent_at = {
            let mut free_at = direction
                .free_at
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *free_at = (*free_at).max(Instant::now()) + Duration::from_secs_f64(seconds);
            *free_at
        };
        thread::sleep(sent_at.saturating_duration_since(Instant::now()));
        let part = (sent_at + direction.settings.delay, buffer[..bytes].to_vec());
        if send.send(part).is_err() {
            break;
        }
    }
}

/// Writes bytes to the other peer when their delay has passed. After the last byte, shuts down the writing side
/// of the connection.
fn write_loop(mut to: TcpStream, sent: &Receiver<(Instant, Vec<u8>)>) {
    while let Ok((due, bytes)) = sent.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    _ = to.shutdown(Shutdown::Write);
}

/// The largest size of one read: 6.6 ms at 20 Mbit/s.
const PART_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes arrive unchanged, and not earlier than bandwidth and delay allow. The path counts the bytes of
    /// both directions.
    #[test]
    fn bandwidth_and_delay_are_respected() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let to = listener.local_addr().expect("the address is valid");
        let settings = WanSettings {
            bits_per_second: 8_000_000,
            delay: Duration::from_millis(30),
        };
        let wan = Wan::start(to, settings).expect("a port is free");
        let server = thread::spawn(move || {
            let (mut server, _) = listener.accept().expect("a connection arrives");
            let mut body = Vec::new();
            server
                .read_to_end(&mut body)
                .expect("the peer closes the stream");
            server
                .write_all(b"thanks")
                .expect("the peer accepts the data");
            body
        });
        let body: Vec<u8> = (0..200_000_u32)
            .flat_map(u32::to_le_bytes)
            .take(200_000)
            .collect();
        let start_time = Instant::now();
        let mut client = TcpStream::connect(wan.addr()).expect("the server listens");
        client.write_all(&body).expect("the body can be sent");
        client
            .shutdown(Shutdown::Write)
            .expect("the peer accepts the data");
        let mut answer = Vec::new();
        client
            .read_to_end(&mut answer)
            .expect("the peer closes the stream");
        // The bytes take 200 ms and the round trip 60 ms, in total 260 ms. The test tolerates 5 ms less.
        assert!(
            start_time.elapsed() >= Duration::from_millis(255),
            "{:?}",
            start_time.elapsed()
        );
        assert_eq!(
            server.join().expect("the server thread does not panic"),
            body
        );
        assert_eq!((&answer[..], wan.bytes()), (&b"thanks"[..], [200_000, 6]));
    }
}
