//! Untrusted bytes of HTTP/3 streams: a request, and a unidirectional stream of the client. No input causes a panic.
//! Neither the events nor the error depends on how the input is split.
//!
//! Run: `cargo +nightly fuzz run h3_frames`.
#![no_main]

use bytes::Bytes;
use edgeward_h3::{
    Connection, ConnectionConfig, Error, RequestEvent, RequestLimits, SectionLimits,
    StreamId, UniEvent, UniStream,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, bool, &[u8])| {
    let (piece_bytes, is_request, bytes) = input;
    let piece_bytes = usize::from(piece_bytes).max(1);
    if is_request {
        assert_eq!(request(bytes, usize::MAX), request(bytes, piece_bytes));
    } else {
        assert_eq!(uni(bytes, usize::MAX), uni(bytes, piece_bytes));
    }
});

/// Small limits, which short inputs can exceed.
fn config() -> ConnectionConfig {
    ConnectionConfig {
        request: RequestLimits {
            section: SectionLimits {
                bytes_max: 2000,
                fields_max: 20,
            },
            idle_frames_max: Some(8),
        },
        control_frames_max: 40,
        early_priorities_max: 4,
        ..ConnectionConfig::default()
    }
}

/// Returns the events of a request as text, with its content joined, and its error.
fn request(bytes: &[u8], piece_bytes: usize) -> (Vec<String>, Vec<u8>, Result<(), Error>) {
    let mut connection = Connection::new(config());
    let mut stream = connection.begin_request(StreamId(0)).expect("the first request");
    let (mut events, mut content) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(piece_bytes) {
        let mut piece = Bytes::copy_from_slice(piece);
        loop {
            match stream.receive(&mut piece) {
                Ok(None) => break,
                Ok(Some(RequestEvent::Data(data))) => content.extend_from_slice(&data),
                Ok(Some(event)) => events.push(format!("{event:?}")),
                Err(error) => return (events, content, Err(error)),
            }
        }
        assert!(piece.is_empty());
        // A buffer that grows doubles its size at most.
        assert!(stream.buffered_bytes() <= 2 * 2000);
    }
    let end = stream.finish();
    (events, content, end)
}

/// Returns the events of a unidirectional stream, and its error.
fn uni(bytes: &[u8], piece_bytes: usize) -> (Vec<UniEvent>, Result<(), Error>) {
    let (mut connection, mut stream) = (Connection::new(config()), UniStream::default());
    let mut events = Vec::new();
    for piece in bytes.chunks(piece_bytes) {
        let mut piece = Bytes::copy_from_slice(piece);
        loop {
            match connection.receive_uni(&mut stream, &mut piece, 0) {
                Ok(None) => break,
                Ok(Some(event)) => events.push(event),
                Err(error) => return (events, Err(error.into())),
            }
        }
        assert!(piece.is_empty());
    }
    let end = connection.finish_uni(&stream).map_err(Error::from);
    (events, end)
}
