//! Tests an object larger than the memory: it is streamed, stored, and served from disk, whole and by ranges.
//!
//! The object has 256 MiB with 16 MiB of memory; `EDGEWARD_LARGE_OBJECT=4GiB` with 256 MiB of memory takes
//! minutes and 13 GiB of disk in `TMPDIR`.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use edgeward_replay::Pattern;
use edgeward_types::ByteSize;
use serde_json::Value;
use socket2::SockRef;

use super::run::{Server, until};

/// Method: the object is fetched from the origin at the pace of the disk, then requested again, whole and by
/// ranges; each of these responses must come from disk. Every byte is compared with the origin's function of
/// the name. The peak of the process's memory is read from the kernel.
#[test]
fn an_object_larger_than_the_memory_is_stored_and_served_by_ranges() {
    let (size, hot) = match std::env::var("EDGEWARD_LARGE_OBJECT") {
        Ok(text) => {
            let size: ByteSize = text.parse().expect("EDGEWARD_LARGE_OBJECT is a size");
            (size, ByteSize::mib(256))
        }
        Err(_) => (ByteSize::mib(256), ByteSize::mib(16)),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let origin = Server::start(&["origin", "--json", "--listen=127.0.0.1:0"]);
    let edge = Server::start(&[
        "serve",
        "--json",
        "--listen=127.0.0.1:0",
        "--admin=127.0.0.1:0",
        "--workers=1",
        &format!("--hot={}", hot.bytes()),
        "--disk-admission=always",
        // An object may take at most half of the log.
        &format!("--disk-size={}", 3 * size.bytes()),
        &format!("--set=disk.queue_bytes={QUEUE_BYTES}"),
        "--log=off",
        &format!("--origin=http://{}", origin.addr("/listen")),
        &format!("--disk={}", folder.path().display()),
    ]);
    let client = Client {
        addr: edge.addr("/listening/0"),
        admin: edge.addr("/admin"),
        size: size.bytes(),
    };
    let size = size.bytes();
    let first = client.fetch(None);
    assert!(first.starts_with("HTTP/1.1 200"), "{first}");
    assert!(first.contains("fwd=uri-miss"), "{first}");
    until("the object is written", || {
        assert_eq!(client.device("dropped_queue_full"), 0);
        (client.device("stored_objects") == 1).then_some(())
    });
    let again = client.fetch(None);
    assert!(
        again.contains("hit") && again.contains("detail=disk"),
        "{again}"
    );
    for (first, last) in [
        (0, 0),
        (1, 70_000),
        // Ranges around the boundaries of pieces (1 MiB) and blocks (64 KiB).
        ((1 << 20) - 1, 1 << 20),
        (size / 2 - 3_000_000, size / 2 + 3_000_000),
        (size - 100_001, size - 1),
    ] {
        let head = client.fetch(Some((first, last)));
        assert!(head.starts_with("HTTP/1.1 206"), "{head}");
        let range = format!("content-range: bytes {first}-{last}/{size}\r\n");
        assert!(head.contains(&range), "{range}{head}");
        assert!(head.contains("detail=disk"), "{head}");
    }
    let most = memory_peak(edge.process_id());
    let allowed = hot.bytes() + QUEUE_BYTES + BASE_BYTES;
    eprintln!(
        "{} of memory, {} allowed",
        ByteSize(most),
        ByteSize(allowed)
    );
    assert!(most <= allowed, "{most} bytes of memory, {allowed} allowed");
}

/// The memory for bodies that wait to be written.
const QUEUE_BYTES: u64 = 16 << 20;

/// The process itself (15 MiB by docs/explanation/memory.md, more in a debug build), the index of the disk and
/// its table of checked blocks, and the part of the store that is mapped for a second.
const BASE_BYTES: u64 = 32 << 20;

struct Client {
    addr: SocketAddr,
    admin: SocketAddr,
    size: u64,
}

impl Client {
    /// Requests the object or a range of it, compares every byte, and returns the response head.
    fn fetch(&self, range: Option<(u64, u64)>) -> String {
        let mut stream = connect(self.addr);
        // With a receive buffer of 32 MiB, the edge would read more from the origin than may wait for the disk.
        let bound = SockRef::from(&stream).set_recv_buffer_size(PART_BYTES / 8);
        bound.expect("a socket has one");
        let field = range.map_or_else(String::new, |(first, last)| {
            format!("Range: bytes={first}-{last}\r\n")
        });
        write!(
            stream,
            "GET /o/1?size={} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n{field}\r\n",
            self.size
        )
        .expect("the request is sent");
        let mut answer = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(answer.read_line(&mut head).expect("a head"), 0, "{head}");
        }
        let (mut at, end) = range.map_or((0, self.size), |(first, last)| (first, last + 1));
        let mut part = vec![0; PART_BYTES];
        while at < end {
            let wanted = part
                .len()
                .min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let part = &mut part[..wanted];
            answer.read_exact(part).expect("the body is whole");
            assert_eq!(Pattern::of("1").first_wrong(at, part), None, "{head}");
            at += part.len() as u64;
            // If the client were faster than the disk, the write would be dropped.
            until("the disk takes it", || {
                (self.device("queue_bytes") < QUEUE_BYTES / 4).then_some(())
            });
        }
        assert_eq!(answer.read(&mut part).expect("an end"), 0, "{head}");
        head.to_ascii_lowercase().replace("http/1.1", "HTTP/1.1")
    }

    fn device(&self, figure: &str) -> u64 {
        let status = self.status();
        let value = status["disk"]["devices"][0][figure].as_u64();
        value.unwrap_or_else(|| panic!("{figure} in {status}"))
    }

    fn status(&self) -> Value {
        let mut stream = connect(self.admin);
        write!(
            stream,
            "GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        .expect("the request is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
        serde_json::from_str(body).expect("JSON")
    }
}

/// Less than what may wait for the disk.
const PART_BYTES: usize = 2 << 20;

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).expect("it listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(50)))
        .expect("a bound");
    stream
}

/// The peak of the resident memory of the process.
fn memory_peak(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
    let kib: u64 = kib
        .expect("the kernel says")
        .trim()
        .parse()
        .expect("a number");
    kib << 10
}
