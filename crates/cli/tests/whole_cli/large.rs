//! Tests an object larger than the memory: it is streamed, stored, and served from disk, whole and by ranges.
//!
//! By default the object has 256 MiB and the memory tier 16 MiB. With `EDGEWARD_LARGE_OBJECT=4GiB` the memory tier
//! has 256 MiB, and the test takes minutes and 13 GiB in `TMPDIR`.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use edgeward_replay::Pattern;
use edgeward_types::ByteSize;
use socket2::SockRef;

use super::run::{Server, status, until};

/// Method: fetch the object from the origin no faster than the disk writes it. Request the object again, complete
/// and by ranges; each of these responses must come from disk. Compare every byte with the pattern that the origin
/// computes from the object's name. Read the peak of the edge's resident memory from `/proc`, and compare it with the
/// sum of the memory tier, the disk queue and [`BASE_BYTES`].
#[test]
fn an_object_larger_than_the_memory_is_stored_and_served_by_ranges() {
    let (size, memory_size) = match std::env::var("EDGEWARD_LARGE_OBJECT") {
        Ok(text) => {
            let size: ByteSize = text.parse().expect("EDGEWARD_LARGE_OBJECT is a size");
            (size, ByteSize::mib(256))
        }
        Err(_) => (ByteSize::mib(256), ByteSize::mib(16)),
    };
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let origin = Server::start(&["origin", "--json", "--listen=127.0.0.1:0"]);
    let edge = Server::start(&[
        "serve",
        "--json",
        "--listen=127.0.0.1:0",
        "--admin=127.0.0.1:0",
        "--workers=1",
        &format!("--hot={}", memory_size.bytes()),
        "--disk-admission=always",
        // The disk cache accepts objects of at most half of its size.
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
        assert_eq!(client.device_counter("dropped_queue_full"), 0);
        (client.device_counter("stored_objects") == 1).then_some(())
    });
    let second = client.fetch(None);
    assert!(
        second.contains("hit") && second.contains("detail=disk"),
        "{second}"
    );
    for (first, last) in [
        (0, 0),
        (1, 70_000),
        // Ranges across the boundaries of the parts in which the disk stores a body (1 MiB), and of their checksummed
        // blocks (64 KiB).
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
    let peak = memory_peak(edge.process_id());
    let allowed = memory_size.bytes() + QUEUE_BYTES + INSIGHT_BYTES + BASE_BYTES;
    eprintln!(
        "{} of memory, {} allowed",
        ByteSize(peak),
        ByteSize(allowed)
    );
    assert!(peak <= allowed, "{peak} bytes of memory, {allowed} allowed");
}

/// The memory for bodies that wait to be written, in bytes.
const QUEUE_BYTES: u64 = 16 << 20;

/// `insight.memory` of a small memory, in bytes.
const INSIGHT_BYTES: u64 = 8 << 20;

/// The remaining memory in bytes: the process itself (15 MiB according to docs/explanation/memory.md; more in a debug
/// build, whose code is larger), the index of the disk, its table of checked blocks, and the mapped pages of the store.
const BASE_BYTES: u64 = 36 << 20;

struct Client {
    addr: SocketAddr,
    admin: SocketAddr,
    size: u64,
}

impl Client {
    /// Requests the object or a range of it, compares every byte, and returns the response head.
    fn fetch(&self, range: Option<(u64, u64)>) -> String {
        let mut stream = connect(self.addr);
        // By default, the kernel lets this receive buffer grow to 32 MiB. The edge would then read more from the origin
        // than its disk queue may hold.
        let result = SockRef::from(&stream).set_recv_buffer_size(PART_BYTES / 8);
        result.expect("the receive buffer size is set");
        let range_field = range.map_or_else(String::new, |(first, last)| {
            format!("Range: bytes={first}-{last}\r\n")
        });
        write!(
            stream,
            "GET /o/1?size={} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n{range_field}\r\n",
            self.size
        )
        .expect("the request is sent");
        let mut response = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(
                response
                    .read_line(&mut head)
                    .expect("the response has a head"),
                0,
                "{head}"
            );
        }
        let (mut offset, end) = range.map_or((0, self.size), |(first, last)| (first, last + 1));
        let mut part = vec![0; PART_BYTES];
        while offset < end {
            let part_bytes = part
                .len()
                .min(usize::try_from(end - offset).unwrap_or(usize::MAX));
            let part = &mut part[..part_bytes];
            response.read_exact(part).expect("the body is complete");
            assert_eq!(
                Pattern::for_id("1").first_wrong(offset, part),
                None,
                "{head}"
            );
            offset += part.len() as u64;
            // If the client were faster than the disk, the queue would fill, and the edge would not store the object.
            until("the disk queue has space", || {
                (self.device_counter("queue_bytes") < QUEUE_BYTES / 4).then_some(())
            });
        }
        assert_eq!(
            response
                .read(&mut part)
                .expect("the connection ends after the body"),
            0,
            "{head}"
        );
        head.to_ascii_lowercase().replace("http/1.1", "HTTP/1.1")
    }

    fn device_counter(&self, counter: &str) -> u64 {
        let status = status(self.admin);
        let value = status["disk"]["devices"][0][counter].as_u64();
        value.unwrap_or_else(|| panic!("{counter} in {status}"))
    }
}

/// The number of bytes that the client reads at a time: less than [`QUEUE_BYTES`], so that one read cannot fill
/// the queue.
const PART_BYTES: usize = 2 << 20;

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).expect("the server accepts the connection");
    stream
        .set_read_timeout(Some(Duration::from_secs(50)))
        .expect("the read timeout is set");
    stream
}

/// Returns the peak of the resident memory of the process in bytes.
fn memory_peak(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
    let kib: u64 = kib
        .expect("`VmHWM` is in /proc/PID/status")
        .trim()
        .parse()
        .expect("the value is a number");
    kib << 10
}
