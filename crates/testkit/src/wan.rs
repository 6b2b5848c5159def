//! A long line on loopback: so many bits a second, shared by all connections, and a delay.
//!
//! For measurements where no emulated network can be had. A relay between two ends: each connection has a thread that reads,
//! waits for its turn on the line, and one that writes when the delay is over. Bytes beyond a window wait where they came
//! from, as they would in a sender's socket.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What a line is like, in each direction.
#[derive(Clone, Copy, Debug)]
pub struct WanSettings {
    /// How much it carries.
    pub bits_per_second: u64,
    /// How long a byte takes, one way.
    pub delay: Duration,
}

/// A line that is up until the process ends.
#[derive(Debug)]
pub struct Wan {
    addr: SocketAddr,
    ways: [Arc<Way>; 2],
}

/// One direction, shared by all connections.
#[derive(Debug)]
struct Way {
    settings: WanSettings,
    /// When the line is free again.
    free_at: Mutex<Instant>,
    bytes: AtomicU64,
}

impl Wan {
    /// Listens on loopback; what connects is carried to `to`.
    ///
    /// # Errors
    ///
    /// If there is no port.
    pub fn start(to: SocketAddr, settings: WanSettings) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let way = || {
            Arc::new(Way {
                settings,
                free_at: Mutex::new(Instant::now()),
                bytes: AtomicU64::new(0),
            })
        };
        let ways = [way(), way()];
        let lines = ways.clone();
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                // The other end is gone: so is this one, by dropping it.
                let Ok(far) = TcpStream::connect(to) else {
                    continue;
                };
                _ = carry(near, far, &lines);
            }
        });
        Ok(Self { addr, ways })
    }

    /// Where to connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Bytes carried from who connected, and to it.
    pub fn bytes(&self) -> [u64; 2] {
        self.ways
            .each_ref()
            .map(|way| way.bytes.load(Ordering::Relaxed))
    }
}

fn carry(near: TcpStream, far: TcpStream, ways: &[Arc<Way>; 2]) -> io::Result<()> {
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let ends = [(near.try_clone()?, far.try_clone()?), (far, near)];
    for ((from, to), way) in ends.into_iter().zip(ways) {
        let rate = way.settings.bits_per_second as f64 / 8.0;
        // What is on its way at full speed, and as much again.
        let in_flight = rate * way.settings.delay.as_secs_f64() * 2.0;
        let (send, sent) = sync_channel((in_flight as usize / PART_BYTES).max(4));
        let way = Arc::clone(way);
        thread::spawn(move || read(from, &way, &send));
        thread::spawn(move || write(to, &sent));
    }
    Ok(())
}

/// Takes bytes as the line takes them.
fn read(mut from: TcpStream, way: &Way, send: &SyncSender<(Instant, Vec<u8>)>) {
    let mut buffer = vec![0; PART_BYTES];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        way.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let takes = bytes as f64 * 8.0 / way.settings.bits_per_second as f64;
        let gone = {
            let mut free_at = way.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            *free_at = (*free_at).max(Instant::now()) + Duration::from_secs_f64(takes);
            *free_at
        };
        thread::sleep(gone.saturating_duration_since(Instant::now()));
        let part = (gone + way.settings.delay, buffer[..bytes].to_vec());
        if send.send(part).is_err() {
            break;
        }
    }
}

/// Hands them over when they have arrived. The end of one direction arrives, too.
fn write(mut to: TcpStream, sent: &Receiver<(Instant, Vec<u8>)>) {
    while let Ok((due, bytes)) = sent.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    _ = to.shutdown(Shutdown::Write);
}

/// A few packets: 6 ms at 20 Mb/s.
const PART_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// What is sent arrives as it was, not earlier than rate and delay allow, and is counted.
    #[test]
    fn a_line_takes_its_time() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("an address");
        let settings = WanSettings {
            bits_per_second: 8_000_000,
            delay: Duration::from_millis(30),
        };
        let wan = Wan::start(to, settings).expect("a port");
        let far = thread::spawn(move || {
            let (mut far, _) = listener.accept().expect("a connection");
            let mut body = Vec::new();
            far.read_to_end(&mut body).expect("it ends");
            far.write_all(b"thanks").expect("it is there");
            body
        });
        let body: Vec<u8> = (0..200_000_u32)
            .flat_map(u32::to_le_bytes)
            .take(200_000)
            .collect();
        let begun = Instant::now();
        let mut near = TcpStream::connect(wan.addr()).expect("it listens");
        near.write_all(&body).expect("it takes it");
        near.shutdown(Shutdown::Write).expect("it is there");
        let mut answer = Vec::new();
        near.read_to_end(&mut answer).expect("it ends");
        // 200 ms for the bytes, and there and back.
        assert!(
            begun.elapsed() >= Duration::from_millis(255),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(far.join().expect("it does not panic"), body);
        assert_eq!((&answer[..], wan.bytes()), (&b"thanks"[..], [200_000, 6]));
    }
}
