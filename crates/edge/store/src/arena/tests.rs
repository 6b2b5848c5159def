//! Tests of the arena: an in-memory file in which each body takes one extent.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

/// Returns an arena, or `None` if this system does not support arenas.
fn arena() -> Option<Arc<Arena>> {
    match Arena::new(ByteSize::mib(16)) {
        Ok(arena) => Some(arena),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn body(arena: &Arc<Arena>, byte: u8, bytes: usize) -> Bytes {
    arena
        .insert(&vec![byte; bytes])
        .expect("the space is sufficient")
}

#[test]
fn memory_is_freed_when_the_last_reader_drops_the_body() {
    let Some(arena) = arena() else { return };
    let whole = body(&arena, 1, 100_000);
    let pages = 100_000_u64.next_multiple_of(arena.page_bytes);
    assert_eq!(arena.used_bytes(), pages);
    let part = whole.slice(70_000..);
    drop(whole);
    assert_eq!(arena.used_bytes(), pages);
    assert!(part.iter().all(|&byte| byte == 1));
    drop(part);
    assert_eq!(arena.used_bytes(), 0);
    let blocks = rustix::fs::fstat(arena.file())
        .expect("the file has a status")
        .st_blocks;
    assert_eq!(blocks, 0, "the file takes no blocks of memory");
}

#[test]
fn a_freed_extent_is_used_again() {
    let Some(arena) = arena() else { return };
    let first = body(&arena, 1, 100_000);
    let first_offset = arena.offset_of(&first);
    drop(first);
    assert_eq!(arena.offset_of(&body(&arena, 2, 130_000)), first_offset);
}

#[test]
fn other_memory_has_no_offset_and_an_empty_body_takes_no_extent() {
    let Some(arena) = arena() else { return };
    assert_eq!(arena.offset_of(b"static"), None);
    assert_eq!(arena.offset_of(&vec![1; 1 << 20]), None);
    assert_eq!(arena.insert(b""), None);
    assert_eq!(arena.used_bytes(), 0);
}

#[test]
fn a_full_arena_takes_no_body_until_one_is_freed() {
    let arena = match Arena::new(ByteSize::mib(1)) {
        Ok(arena) => arena,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let mut bodies: Vec<_> = (0..20)
        .filter_map(|n| arena.insert(&vec![n; 1 << 20]))
        .collect();
    // The address space of an arena has 16 times its capacity.
    assert_eq!(bodies.len(), 16);
    let is_whole = |(body, n): (&Bytes, u8)| body.iter().all(|&byte| byte == n);
    assert!(bodies.iter().zip(0..).all(is_whole));
    bodies.pop();
    assert!(arena.insert(&vec![9; 1 << 20]).is_some());
}

/// Returns the range of the file in which a hole is punched when `body` is dropped: `extent_bytes` from its offset.
fn hole_range(arena: &Arena, body: &Bytes, extent_bytes: u64) -> std::ops::Range<u64> {
    let offset = arena.offset_of(body).expect("the body is in the arena");
    offset..offset + extent_bytes
}

/// A freed body leaves a hole of whole pages in the file. If a hole covered only a part of a page, the kernel would
/// clear this part in place, although the page may be in a socket buffer.
///
/// Method: inject page sizes of 4, 16 and 64 KiB, store bodies whose sizes are not multiples of a page, and check the
/// range that will be punched for each body.
#[test]
fn a_hole_covers_whole_pages_whatever_the_page_size() {
    for page_bytes in [4 << 10, 16 << 10, 64 << 10_u64] {
        let arena = match Arena::with_page_bytes(ByteSize::mib(16), page_bytes) {
            Ok(arena) => arena,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let mut bodies = Vec::new();
        let mut ranges = Vec::new();
        for bytes in [1, 5000, 130_000, 200_001, 5000, 1 << 20] {
            let before = arena.used_bytes();
            let body = body(&arena, 7, bytes);
            let range = hole_range(&arena, &body, arena.used_bytes() - before);
            assert!(range.end - range.start >= bytes as u64);
            assert_eq!(range.start % page_bytes, 0, "{bytes} of {page_bytes}");
            assert_eq!(range.end % page_bytes, 0, "{bytes} of {page_bytes}");
            ranges.push(range);
            bodies.push(body);
        }
        ranges.sort_unstable_by_key(|range| range.start);
        let apart = |pair: &[std::ops::Range<u64>]| pair[0].end <= pair[1].start;
        assert!(ranges.windows(2).all(apart), "{ranges:?}");
        drop(bodies);
        assert_eq!(arena.used_bytes(), 0);
    }
}

/// Tests both sides of the smallest and the largest size, for pages of 4 and of 64 KiB. The caller of `insert` uses
/// `accepts`; `insert` itself takes smaller bodies too.
#[test]
fn only_bodies_of_32_pages_or_more_are_accepted() {
    for (page_bytes, min) in [(4 << 10, 128 << 10), (64 << 10, 2 << 20_u64)] {
        let arena = match Arena::with_page_bytes(ByteSize::mib(1), page_bytes) {
            Ok(arena) => arena,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        assert!(!arena.accepts(min - 1) && arena.accepts(min));
        assert!(arena.accepts(Arena::BODY_BYTES_MAX));
        assert!(!arena.accepts(Arena::BODY_BYTES_MAX + 1));
    }
}

/// A client receives the right bytes even if their body was freed after the send and its extent was used again.
///
/// Method: send a body to a client that does not read yet, free the body, and fill its extent with another body.
/// Then let the client read.
#[test]
fn bytes_in_a_socket_buffer_survive_the_reuse_of_their_extent() {
    let Some(arena) = arena() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("the listener has an address");
    let mut client = TcpStream::connect(address).expect("the client connects");
    let (server, _) = listener.accept().expect("the client is accepted");
    server
        .set_nonblocking(true)
        .expect("the socket is non-blocking");

    let first = body(&arena, 1, 1 << 20);
    let first_offset = arena.offset_of(&first).expect("the body is in the arena");
    let mut offset = first_offset;
    let mut sent = 0;
    while let Ok(bytes) =
        rustix::fs::sendfile(&server, arena.file(), Some(&mut offset), (1 << 20) - sent)
    {
        sent += bytes;
        if sent == 1 << 20 {
            break;
        }
    }
    assert!(sent > 0);
    drop(first);
    let second = body(&arena, 2, 1 << 20);
    assert_eq!(arena.offset_of(&second), Some(first_offset));

    let mut arrived = vec![0; sent];
    client
        .read_exact(&mut arrived)
        .expect("all sent bytes arrive");
    assert!(arrived.iter().all(|&byte| byte == 1));
    (&server)
        .write_all(&second[..10])
        .expect("the socket has space again");
}

proptest! {
    /// In any order of inserts and frees, each body reads as it was stored, and all memory is returned.
    #[test]
    fn bodies_do_not_touch_each_other(
        steps in prop::collection::vec((any::<u8>(), 1usize..300_000, any::<bool>()), 1..24),
    ) {
        let Some(arena) = arena() else { return Ok(()) };
        let mut stored: Vec<(u8, Bytes)> = Vec::new();
        for (byte, bytes, frees_one) in steps {
            if frees_one && !stored.is_empty() {
                stored.swap_remove(bytes % stored.len());
            }
            stored.push((byte, body(&arena, byte, bytes)));
        }
        for (byte, body) in &stored {
            prop_assert!(body.iter().all(|there| there == byte));
        }
        drop(stored);
        prop_assert_eq!(arena.used_bytes(), 0);
    }
}
