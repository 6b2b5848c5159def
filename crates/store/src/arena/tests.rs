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
    let mut draft = Draft::new(Some(arena), bytes as u64);
    draft.push(&vec![byte; bytes]);
    draft.freeze()
}

#[test]
fn memory_is_given_back_when_the_last_reader_lets_go() {
    let Some(arena) = arena() else { return };
    let whole = body(&arena, 1, 100_000);
    assert_eq!(arena.used_bytes(), 102_400);
    let part = whole.slice(70_000..);
    drop(whole);
    assert_eq!(arena.used_bytes(), 102_400);
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
fn a_small_body_and_one_of_unknown_length_lie_elsewhere() {
    let Some(arena) = arena() else { return };
    assert_eq!(arena.place_of(&body(&arena, 1, 1000)), None);
    let mut draft = Draft::new(Some(&arena), 0);
    draft.push(&[1; 100_000]);
    assert_eq!(arena.place_of(&draft.freeze()), None);
    assert_eq!(arena.place_of(b"static"), None);
}

#[test]
fn a_body_longer_than_announced_moves_to_the_heap_whole() {
    let Some(arena) = arena() else { return };
    let mut draft = Draft::new(Some(&arena), 65_536);
    draft.push(&[1; 65_536]);
    draft.push(&[2; 10]);
    let body = draft.freeze();
    assert_eq!(arena.place_of(&body), None);
    assert_eq!(arena.used_bytes(), 0);
    assert_eq!(body.len(), 65_546);
    assert_eq!((body[65_535], body[65_536]), (1, 2));
}

#[test]
fn an_arena_without_addresses_left_leaves_bodies_to_the_heap() {
    let arena = match Arena::new(ByteSize::mib(1)) {
        Ok(arena) => arena,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let bodies: Vec<_> = (0..20).map(|n| body(&arena, n, 1 << 20)).collect();
    let placed = bodies
        .iter()
        .filter(|body| arena.place_of(body).is_some())
        .count();
    assert_eq!(placed, 16);
    assert!(
        bodies
            .iter()
            .zip(0..)
            .all(|(body, n)| body.iter().all(|&byte| byte == n))
    );
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
    /// However a body comes in and is asked for, it is what a plain vector would be.
    #[test]
    fn a_draft_reads_like_a_vector(
        announced in prop_oneof![Just(0u64), 65_536u64..200_000],
        pieces in prop::collection::vec((any::<u8>(), 0usize..40_000), 0..8),
        front in 0usize..50_000,
    ) {
        let Some(arena) = arena() else { return Ok(()) };
        let mut draft = Draft::new(Some(&arena), announced);
        let mut oracle = Vec::new();
        for (byte, bytes) in pieces {
            let piece = vec![byte; bytes];
            let before = oracle.len();
            draft.push(&piece);
            oracle.extend_from_slice(&piece);
            prop_assert_eq!(draft.len(), oracle.len());
            prop_assert_eq!(&draft.piece(before, usize::MAX)[..], &piece[..]);
        }
        let front = front.min(oracle.len());
        let seen = draft.piece(0, front);
        prop_assert_eq!(&seen[..], &oracle[..front]);
        draft.drop_front(front);
        oracle.drain(..front);
        let body = draft.freeze();
        prop_assert_eq!(&body[..], &oracle[..]);
        drop((seen, body));
        prop_assert_eq!(arena.used_bytes(), 0);
    }
}
