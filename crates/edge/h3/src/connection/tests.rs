use proptest::prelude::*;

use super::*;
use crate::frame::tests::frame;

fn update(stream: u64, text: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    push_varint(&mut payload, stream);
    payload.extend_from_slice(text.as_bytes());
    frame(FrameType::PRIORITY_UPDATE, &payload)
}

fn config() -> ConnectionConfig {
    ConnectionConfig {
        requests_max: 3,
        cancellations_max: 2,
        control_frames_max: 6,
        early_priorities_max: 2,
        ..ConnectionConfig::default()
    }
}

/// The control stream begins with an empty SETTINGS.
const SETTINGS: [u8; 3] = [0x0, 0x4, 0x0];

/// Receives a stream at one time, in pieces of `piece_bytes`.
fn receive(
    connection: &mut Connection,
    stream: &mut UniStream,
    bytes: &[u8],
    piece_bytes: usize,
) -> Result<Vec<UniEvent>, ErrorCode> {
    let mut events = Vec::new();
    for piece in bytes.chunks(piece_bytes) {
        let mut piece = Bytes::copy_from_slice(piece);
        while let Some(event) = connection
            .receive_uni(stream, &mut piece, 0)
            .map_err(|error| error.code)?
        {
            events.push(event);
        }
        assert!(piece.is_empty());
    }
    Ok(events)
}

/// Receives frames on the control stream of a new connection, after SETTINGS.
fn control(frames: &[Vec<u8>]) -> Result<Vec<UniEvent>, ErrorCode> {
    let bytes = [SETTINGS.to_vec(), frames.concat()].concat();
    let events = receive(
        &mut Connection::new(config()),
        &mut UniStream::default(),
        &bytes,
        usize::MAX,
    )?;
    assert_eq!(events[0], UniEvent::Settings(Settings::default()));
    Ok(events[1..].to_vec())
}

#[test]
fn unidirectional_streams_count_as_control_frames() {
    let mut connection = Connection::new(config());
    let code = |counted: Result<(), ConnectionError>| counted.map_err(|error| error.code);
    assert!((0..6).all(|_| connection.begin_uni(0).is_ok()));
    let seventh = connection.begin_uni(WINDOW_MS - 1);
    assert_eq!(code(seventh), Err(ErrorCode::H3_EXCESSIVE_LOAD));
    assert_eq!(connection.begin_uni(WINDOW_MS), Ok(()));
}

#[test]
fn the_preface_is_a_control_stream_with_settings() {
    let (mut server, mut client) = (Vec::new(), Connection::new(config()));
    client.push_preface(&mut server);
    let settings = Settings {
        field_section_bytes_max: Some(64 << 10),
        extended_connect: true,
    };
    // A client reads it as the server reads a client's.
    let events = receive(&mut client, &mut UniStream::default(), &server, 1);
    assert_eq!(events, Ok(vec![UniEvent::Settings(settings)]));
}

#[test]
fn the_control_stream_begins_with_settings_once() {
    let first = |bytes: &[u8]| {
        receive(
            &mut Connection::new(config()),
            &mut UniStream::default(),
            bytes,
            usize::MAX,
        )
    };
    assert_eq!(
        first(&SETTINGS),
        Ok(vec![UniEvent::Settings(Settings::default())])
    );
    for frame in [
        frame(FrameType::MAX_PUSH_ID, &[1]),
        frame(FrameType(0x21), b"x"),
    ] {
        assert_eq!(
            first(&[&[0], &frame[..]].concat()),
            Err(ErrorCode::H3_MISSING_SETTINGS)
        );
    }
    assert_eq!(
        control(&[frame(FrameType::SETTINGS, &[])]),
        Err(ErrorCode::H3_FRAME_UNEXPECTED)
    );
    assert_eq!(control(&[frame(FrameType(0x21), b"x")]), Ok(vec![]));
    assert_eq!(
        control(&[frame(FrameType::DATA, b"x")]),
        Err(ErrorCode::H3_FRAME_UNEXPECTED)
    );
}

#[test]
fn each_critical_stream_is_opened_once_and_stays_open() {
    for stream_type in [CONTROL_STREAM, ENCODER_STREAM, DECODER_STREAM] {
        let mut connection = Connection::new(config());
        let mut streams = [UniStream::default(), UniStream::default()];
        let bytes = [u8::try_from(stream_type).expect("a small number")];
        assert_eq!(connection.finish_uni(&streams[0]), Ok(()));
        assert_eq!(
            receive(&mut connection, &mut streams[0], &bytes, 1),
            Ok(vec![])
        );
        let second = receive(&mut connection, &mut streams[1], &bytes, 1);
        assert_eq!(second, Err(ErrorCode::H3_STREAM_CREATION_ERROR));
        let closed = connection
            .finish_uni(&streams[0])
            .expect_err("the stream is critical");
        assert_eq!(closed.code, ErrorCode::H3_CLOSED_CRITICAL_STREAM);
        assert_eq!(closed, connection.control_stopped());
    }
}

#[test]
fn streams_of_unknown_types_are_ignored_and_push_streams_refused() {
    let mut connection = Connection::new(config());
    // The type is 0x21, in its longest form; its bytes arrive in three pieces.
    let mut stream = UniStream::default();
    let bytes = [0xc0, 0, 0, 0, 0, 0, 0, 0x21, 1, 2, 3];
    assert_eq!(
        receive(&mut connection, &mut stream, &bytes, 5),
        Ok(vec![UniEvent::Unknown])
    );
    assert_eq!(connection.finish_uni(&stream), Ok(()));
    let push = receive(&mut connection, &mut UniStream::default(), &[1, 0], 1);
    assert_eq!(push, Err(ErrorCode::H3_STREAM_CREATION_ERROR));
}

#[test]
fn qpack_streams_have_only_what_is_legal_without_a_table() {
    let received = |bytes: &[u8]| {
        receive(
            &mut Connection::new(config()),
            &mut UniStream::default(),
            bytes,
            1,
        )
    };
    assert_eq!(received(&[2, 0x20]), Ok(vec![]));
    assert_eq!(
        received(&[2, 0x3f, 0xbd, 0x01]),
        Err(ErrorCode::QPACK_ENCODER_STREAM_ERROR)
    );
    assert_eq!(received(&[3, 0x48]), Ok(vec![]));
    assert_eq!(
        received(&[3, 0x84]),
        Err(ErrorCode::QPACK_DECODER_STREAM_ERROR)
    );
}

#[test]
fn ids_of_pushes_and_goaway_follow_their_order() {
    let goaway = |id| frame(FrameType::GOAWAY, &[id]);
    assert_eq!(control(&[goaway(5), goaway(5), goaway(0)]), Ok(vec![]));
    assert_eq!(
        control(&[goaway(5), goaway(6)]),
        Err(ErrorCode::H3_ID_ERROR)
    );
    let push_max = |id| frame(FrameType::MAX_PUSH_ID, &[id]);
    assert_eq!(
        control(&[push_max(5), push_max(5), push_max(6)]),
        Ok(vec![])
    );
    assert_eq!(
        control(&[push_max(5), push_max(4)]),
        Err(ErrorCode::H3_ID_ERROR)
    );
    // No push was promised, whatever the client allows.
    let push_max = push_max(5);
    for frame_type in [FrameType::CANCEL_PUSH, FrameType::PRIORITY_UPDATE_PUSH] {
        let frames = [push_max.clone(), frame(frame_type, &[0])];
        assert_eq!(control(&frames), Err(ErrorCode::H3_ID_ERROR));
    }
}

#[test]
fn payloads_have_the_length_of_their_content() {
    for frame_type in [
        FrameType::GOAWAY,
        FrameType::MAX_PUSH_ID,
        FrameType::CANCEL_PUSH,
    ] {
        for payload in [&[][..], &[0x40], &[0, 0]] {
            assert_eq!(
                control(&[frame(frame_type, payload)]),
                Err(ErrorCode::H3_FRAME_ERROR)
            );
        }
    }
    for frame_type in [FrameType::PRIORITY_UPDATE, FrameType::PRIORITY_UPDATE_PUSH] {
        assert_eq!(
            control(&[frame(frame_type, &[])]),
            Err(ErrorCode::H3_FRAME_ERROR)
        );
    }
}

#[test]
fn an_update_sets_the_priority_of_its_stream_before_and_after_it_begins() {
    let (mut connection, mut stream) = (Connection::new(config()), UniStream::default());
    let bytes = [SETTINGS.to_vec(), update(0, "u=1, i")].concat();
    receive(&mut connection, &mut stream, &bytes, 2).expect("the frames are valid");
    connection
        .begin_request(StreamId(0))
        .expect("the request is accepted");
    let urgency = |connection: &mut Connection| {
        let stated = connection.priorities().stated(StreamId(0));
        stated.map(|priority| priority.urgency)
    };
    assert_eq!(urgency(&mut connection), Some(1));
    receive(&mut connection, &mut stream, &update(0, "u=6"), 2).expect("the frame is valid");
    assert_eq!(urgency(&mut connection), Some(6));
    // A text that is not a dictionary sets the default.
    receive(&mut connection, &mut stream, &update(0, "="), 2).expect("the frame is valid");
    assert_eq!(urgency(&mut connection), Some(3));
}

/// RFC 9218 §7.2. Method: ids on both sides of the limit, which is 3 requests after the last one.
#[test]
fn an_update_names_a_request_that_the_client_can_open() {
    let id_error = Err(ErrorCode::H3_ID_ERROR);
    for id in [1, 2, 3, 12] {
        assert_eq!(control(&[update(id, "u=1")]), id_error, "{id}");
    }
    assert!(control(&[update(8, "u=1")]).is_ok());
    let (mut connection, mut stream) = (Connection::new(config()), UniStream::default());
    receive(&mut connection, &mut stream, &SETTINGS, 3).expect("the frame is valid");
    connection
        .begin_request(StreamId(4))
        .expect("the request is accepted");
    assert!(receive(&mut connection, &mut stream, &update(16, "u=1"), 99).is_ok());
    assert_eq!(
        receive(&mut connection, &mut stream, &update(20, "u=1"), 99),
        id_error
    );
}

#[test]
fn requests_beyond_the_limit_are_rejected() {
    let mut connection = Connection::new(config());
    for id in [0, 4, 8] {
        assert!(connection.begin_request(StreamId(id)).is_some());
    }
    assert!(connection.begin_request(StreamId(12)).is_none());
    connection
        .end_request(StreamId(4), RequestEnd::Complete, 0)
        .expect("no limit is exceeded");
    // A request that was rejected or has ended is not counted twice.
    for id in [4, 12] {
        connection
            .end_request(StreamId(id), RequestEnd::Complete, 0)
            .expect("no limit is exceeded");
    }
    assert!(connection.begin_request(StreamId(16)).is_some());
    assert!(connection.begin_request(StreamId(20)).is_none());
}

#[test]
fn a_connection_is_kept_alive_for_its_requests_alone() {
    let mut connection = Connection::new(config());
    let pushed = |connection: &Connection| {
        let mut frames = Vec::new();
        connection.push_keep_alive(&mut frames);
        frames
    };
    assert_eq!(pushed(&connection), b"");
    connection
        .begin_request(StreamId(0))
        .expect("the request is accepted");
    assert_eq!(pushed(&connection), b"\x21\x00");
    connection
        .end_request(StreamId(0), RequestEnd::Complete, 0)
        .expect("no limit is exceeded");
    assert_eq!(pushed(&connection), b"");
}

/// RFC 9114 §5.2: the first GOAWAY rejects nothing, the final one states the first rejected request.
#[test]
fn a_graceful_end_has_two_steps() {
    let mut connection = Connection::new(config());
    connection
        .begin_request(StreamId(0))
        .expect("the request is accepted");
    let mut out = Vec::new();
    connection.push_first_goaway(&mut out);
    assert_eq!(
        out,
        frame(
            FrameType::GOAWAY,
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfc]
        )
    );
    assert!(connection.begin_request(StreamId(8)).is_some());
    let mut out = Vec::new();
    connection.push_final_goaway(&mut out);
    assert_eq!(out, frame(FrameType::GOAWAY, &[12]));
    assert!(connection.begin_request(StreamId(12)).is_none());
    assert!(
        connection.begin_request(StreamId(4)).is_some(),
        "it has begun before the final GOAWAY"
    );
    let mut out = Vec::new();
    connection.push_first_goaway(&mut out);
    connection.push_final_goaway(&mut out);
    assert!(out.is_empty(), "the id never increases");
    for id in [0, 4, 8] {
        assert!(!connection.is_drained());
        connection
            .end_request(StreamId(id), RequestEnd::Complete, 0)
            .expect("no limit is exceeded");
    }
    assert!(connection.is_drained());
}

#[test]
fn a_connection_without_goaway_is_not_drained() {
    let mut connection = Connection::new(config());
    assert!(!connection.is_drained());
    connection.push_first_goaway(&mut Vec::new());
    assert!(!connection.is_drained());
    connection.push_final_goaway(&mut Vec::new());
    assert!(connection.is_drained());
}

/// Method: reach each limit in one window, then exceed it in this window and in the next.
#[test]
fn rates_are_limited_within_a_window() {
    let cancelled = |last_ms| {
        let mut connection = Connection::new(config());
        let ends = [(0, 0), (4, 5), (8, last_ms)].map(|(id, now_ms)| {
            connection
                .begin_request(StreamId(id))
                .expect("the request is accepted");
            connection.end_request(StreamId(id), RequestEnd::Cancelled, now_ms)
        });
        assert_eq!(ends[..2], [Ok(()), Ok(())]);
        ends[2].map_err(|error| error.code)
    };
    assert_eq!(cancelled(WINDOW_MS - 1), Err(ErrorCode::H3_EXCESSIVE_LOAD));
    assert_eq!(cancelled(WINDOW_MS), Ok(()));
    let control = |last_ms| {
        let (mut connection, mut stream) = (Connection::new(config()), UniStream::default());
        let mut receive = |bytes: Vec<u8>, now_ms| {
            let mut bytes = Bytes::from(bytes);
            while connection
                .receive_uni(&mut stream, &mut bytes, now_ms)?
                .is_some()
            {}
            Ok(())
        };
        receive(SETTINGS.to_vec(), 0)?;
        receive(frame(FrameType(0x21), b"").repeat(5), 0)?;
        receive(frame(FrameType(0x21), b""), last_ms)
    };
    let code = |last_ms| control(last_ms).map_err(|error: ConnectionError| error.code);
    assert_eq!(code(WINDOW_MS - 1), Err(ErrorCode::H3_EXCESSIVE_LOAD));
    assert_eq!(code(WINDOW_MS), Ok(()));
    for (stream_type, instruction) in [(2, 0x20), (3, 0x48)] {
        let received = |instructions| {
            let bytes = [vec![stream_type], vec![instruction; instructions]].concat();
            receive(
                &mut Connection::new(config()),
                &mut UniStream::default(),
                &bytes,
                usize::MAX,
            )
        };
        assert_eq!(received(6), Ok(vec![]));
        assert_eq!(received(7), Err(ErrorCode::H3_EXCESSIVE_LOAD));
    }
}

proptest! {
    /// Method: any streams, half of them of known types, cut anywhere.
    #[test]
    fn events_do_not_depend_on_the_pieces(
        stream_type in 0u8..6,
        frames in prop::collection::vec((0usize..6, prop::collection::vec(any::<u8>(), 0..6)), 0..6),
        piece_bytes in 1usize..12,
    ) {
        let types = [
            FrameType::SETTINGS,
            FrameType::GOAWAY,
            FrameType::MAX_PUSH_ID,
            FrameType::PRIORITY_UPDATE,
            FrameType::PRIORITY_UPDATE,
            FrameType(0x21),
        ];
        let frames = frames.iter().map(|(nth, payload)| frame(types[*nth], payload));
        let mut bytes = vec![stream_type, 0x4, 0x0];
        frames.for_each(|frame| bytes.extend(frame));
        let received = |piece_bytes| {
            receive(&mut Connection::new(config()), &mut UniStream::default(), &bytes, piece_bytes)
        };
        prop_assert_eq!(received(piece_bytes), received(usize::MAX));
    }
}
