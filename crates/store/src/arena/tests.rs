use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

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
    arena.keep(&vec![byte; bytes]).expect("there is room")
}

#[test]
fn memory_is_given_back_when_the_last_reader_lets_go() {
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
    let held = rustix::fs::fstat(arena.file()).expect("a file").st_blocks;
    assert_eq!(held, 0, "blocks of 512 bytes");
}

#[test]
fn a_place_that_came_free_is_used_again() {
    let Some(arena) = arena() else { return };
    let first = body(&arena, 1, 100_000);
    let place = arena.place_of(&first);
    drop(first);
    assert_eq!(arena.place_of(&body(&arena, 2, 130_000)), place);
}

#[test]
fn other_memory_has_no_place_and_nothing_takes_none() {
    let Some(arena) = arena() else { return };
    assert_eq!(arena.place_of(b"static"), None);
    assert_eq!(arena.place_of(&vec![1; 1 << 20]), None);
    assert_eq!(arena.keep(b""), None);
    assert_eq!(arena.used_bytes(), 0);
}

#[test]
fn an_arena_without_addresses_left_keeps_no_more_until_one_comes_free() {
    let arena = match Arena::new(ByteSize::mib(1)) {
        Ok(arena) => arena,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let mut bodies: Vec<_> = (0..20)
        .filter_map(|n| arena.keep(&vec![n; 1 << 20]))
        .collect();
    assert_eq!(bodies.len(), 16);
    let is_whole = |(body, n): (&Bytes, u8)| body.iter().all(|&byte| byte == n);
    assert!(bodies.iter().zip(0..).all(is_whole));
    bodies.pop();
    assert!(arena.keep(&vec![9; 1 << 20]).is_some());
}

/// The range of the file that is punched when `body` is dropped.
fn punched(arena: &Arena, bytes: u64) -> impl Fn(&Bytes) -> std::ops::Range<u64> {
    move |body| {
        let offset = arena.place_of(body).expect("in the arena");
        offset..offset + bytes
    }
}

/// The kernel clears the part of a page that a hole covers in place, and that page may be in a socket's buffer. Method: systems
/// with larger pages than this one's are injected; bodies of sizes that are no multiple of a page are kept, and of each the
/// range is looked at that will be punched.
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
            let range = punched(&arena, arena.used_bytes() - before)(&body);
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

/// Both sides of the smallest size, for pages of 4 and of 64 KiB.
#[test]
fn the_unused_end_of_a_last_page_is_a_small_part_of_each_body() {
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

/// The law that makes it safe. Method: a body is sent to a client that does not read yet, freed, and
/// its place filled with another body; then the client reads.
#[test]
fn what_is_on_its_way_is_not_changed_by_who_comes_next() {
    let Some(arena) = arena() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let mut client = TcpStream::connect(address).expect("a listener");
    let (server, _) = listener.accept().expect("a client");
    server.set_nonblocking(true).expect("a socket");

    let first = body(&arena, 1, 1 << 20);
    let place = arena.place_of(&first).expect("in the arena");
    let mut offset = place;
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
    assert_eq!(arena.place_of(&second), Some(place));

    let mut arrived = vec![0; sent];
    client.read_exact(&mut arrived).expect("all that was sent");
    assert!(arrived.iter().all(|&byte| byte == 1));
    (&server).write_all(&second[..10]).expect("room again");
}

proptest! {
    /// However bodies come and go, each reads as what was kept, and all memory comes back.
    #[test]
    fn bodies_do_not_touch_each_other(
        steps in prop::collection::vec((any::<u8>(), 1usize..300_000, any::<bool>()), 1..24),
    ) {
        let Some(arena) = arena() else { return Ok(()) };
        let mut kept: Vec<(u8, Bytes)> = Vec::new();
        for (byte, bytes, leaves) in steps {
            if leaves && !kept.is_empty() {
                kept.swap_remove(bytes % kept.len());
            }
            kept.push((byte, body(&arena, byte, bytes)));
        }
        for (byte, body) in &kept {
            prop_assert!(body.iter().all(|there| there == byte));
        }
        drop(kept);
        prop_assert_eq!(arena.used_bytes(), 0);
    }
}
