//! Tests the encoding of frames: encoded frames can be decoded, corrupt frames are refused, and the encoding of
//! sample frames equals that of a golden file.

use std::fmt::Write as _;

use edgeward_types::xxh3::{xxh3_64, xxh3_64_with_seed};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy;

use edgeward_dedup::chunker::ChunkerParams;
use edgeward_dedup::codec::{Method, Methods};
use edgeward_dedup::id::{ChunkId, IdKey};
use edgeward_dedup::wire::{
    CHUNKS_MAX, Checksum, Disagreement, Frame, HEADER_BYTES, Hello, LABEL_BYTES_MAX, NakCause,
    PAYLOAD_BYTES_MAX, PIECE_BYTES_MAX, Role, Run, Span, StreamAck, StreamId, StreamState,
    WireError, decode, decode_with, frame_length,
};

fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

/// Encodes a frame for an authenticated connection, with a checksum of only the fields.
fn encoded_fields(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode_with(Checksum::Fields, &mut bytes);
    bytes
}

/// Returns the length of the part of a body at the end of a frame, or 0 if frames of this type have none.
fn body_bytes(frame: &Frame<'_>) -> usize {
    match frame {
        Frame::Plain { payload, .. }
        | Frame::Literal { payload, .. }
        | Frame::Delta { payload, .. } => payload.len(),
        _ => 0,
    }
}

/// Adds a header with correct checksums to a payload.
fn framed(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("the length fits");
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.push(kind);
    bytes.extend(&xxh3_64(&bytes).to_le_bytes()[..3]);
    let first_half = u64::from_le_bytes(*bytes.first_chunk().expect("the range has eight bytes"));
    bytes.extend(xxh3_64_with_seed(payload, first_half).to_le_bytes());
    bytes.extend(payload);
    bytes
}

fn hello(average: u32, seed: u64) -> Hello {
    let chunker = ChunkerParams::new(average, seed).expect("the average is a power of two");
    Hello::new(&IdKey::new([5; 32]), chunker, 6, 7)
}

fn streams() -> impl Strategy<Value = StreamId> {
    any::<u64>().prop_map(StreamId)
}

fn runs() -> impl Strategy<Value = Run> {
    let chunks = 1..=u16::try_from(CHUNKS_MAX).expect("the number fits");
    (any::<[u8; 16]>(), chunks, any::<u64>()).prop_map(|(first, chunks, check)| Run {
        first: ChunkId(first),
        chunks,
        check,
    })
}

/// Generates a payload with a span and a method that fit it. A compressed payload is shorter than its span.
fn packed() -> impl Strategy<Value = (Span, Method, Vec<u8>)> {
    let span = (streams(), 0..1_u64 << 63, 1..4000_usize, any::<bool>());
    (span, any::<u8>()).prop_map(|((stream, offset, payload, compressed), byte)| {
        let method = if compressed {
            Method::Zstd
        } else {
            Method::None
        };
        let length = u32::try_from(payload + usize::from(compressed)).expect("the length fits");
        let span = Span {
            stream,
            offset,
            length,
        };
        (span, method, vec![byte; payload])
    })
}

/// Generates frames of all types. They are already encoded, because a decoded frame would borrow its payload.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let acked = (streams(), 0..3_u8, any::<u64>()).prop_map(|(stream, state, offset)| StreamAck {
        stream,
        state: [StreamState::Open, StreamState::Complete, StreamState::Ended][usize::from(state)],
        offset,
    });
    let causes =
        (0..3_usize).prop_map(|n| [NakCause::Missing, NakCause::Order, NakCause::Unopened][n]);
    // One cut, the length of a chunk, may exceed the span. The sum of further cuts would have to be below the span.
    let cuts = || (1..=PIECE_BYTES_MAX as u32).prop_map(|first| vec![first]);
    prop_oneof![
        (12..=16_u32, any::<u64>())
            .prop_map(|(log2, seed)| encoded(&Frame::Hello(hello(1 << log2, seed)))),
        (streams(), vec(any::<u8>(), 0..200)).prop_map(|(stream, label)| encoded(&Frame::Open {
            stream,
            label: &label
        })),
        packed().prop_map(|(span, method, payload)| {
            encoded(&Frame::Plain {
                span,
                method,
                payload: &payload,
            })
        }),
        (packed(), cuts()).prop_map(|((span, method, payload), cuts)| {
            encoded(&Frame::Literal {
                span,
                method,
                cuts,
                payload: &payload,
            })
        }),
        (
            packed(),
            0..PIECE_BYTES_MAX as u32,
            vec(any::<[u8; 16]>(), 1..50)
        )
            .prop_map(|((span, ..), skip, ids)| {
                let ids = ids.into_iter().map(ChunkId).collect();
                encoded(&Frame::Ref { span, skip, ids })
            }),
        (packed(), runs()).prop_map(|((span, ..), run)| encoded(&Frame::RefRun { span, run })),
        (packed(), vec(any::<[u8; 16]>(), 1..50)).prop_map(|((span, method, payload), ids)| {
            let base = ids.into_iter().map(ChunkId).collect();
            encoded(&Frame::Delta {
                span,
                method,
                base,
                cuts: Vec::new(),
                payload: &payload,
            })
        }),
        (streams(), any::<u64>(), any::<u128>()).prop_map(|(stream, length, digest)| {
            encoded(&Frame::Close {
                stream,
                length,
                digest,
            })
        }),
        (streams(), any::<u32>())
            .prop_map(|(stream, reason)| encoded(&Frame::Reset { stream, reason })),
        (streams(), any::<u32>())
            .prop_map(|(stream, reason)| encoded(&Frame::Stop { stream, reason })),
        vec(acked, 1..40).prop_map(|streams| encoded(&Frame::Ack(streams))),
        (streams(), any::<u64>(), causes).prop_map(|(stream, offset, cause)| {
            encoded(&Frame::Nak {
                stream,
                offset,
                cause,
            })
        }),
        any::<u64>().prop_map(|epoch| encoded(&Frame::Epoch(epoch))),
        vec((streams(), any::<u64>()), 1..40).prop_map(|streams| encoded(&Frame::Credit(streams))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn decoded_frames_are_encoded_to_the_same_bytes(bytes in frames()) {
        prop_assert_eq!(frame_length(&bytes), Ok(Some(bytes.len())));
        prop_assert_eq!(encoded(&decode(&bytes).expect("the frame is valid")), bytes);
    }

    #[test]
    fn a_flipped_bit_is_detected(bytes in frames(), at in any::<usize>(), bit in 0..8_u8) {
        let mut corrupt = bytes;
        let at = at % corrupt.len();
        corrupt[at] ^= 1 << bit;
        prop_assert!(decode(&corrupt).is_err(), "byte {at} of {}", corrupt.len());
    }

    /// With a checksum of the fields, a flipped bit in the fields is detected, and a flipped bit in the bytes
    /// of a body is not. Except for the checksum, the encoded frame is the same.
    #[test]
    fn a_checksum_of_fields_does_not_cover_bodies(bytes in frames(), at in any::<usize>(), bit in 0..8_u8) {
        let frame = decode(&bytes).expect("the frame is valid");
        let mut of_fields = encoded_fields(&frame);
        prop_assert_eq!(decode_with(Checksum::Fields, &of_fields), Ok(frame.clone()));
        let body = body_bytes(&frame);
        prop_assert_eq!(of_fields == bytes, body == 0);
        prop_assert_eq!(&of_fields[..8], &bytes[..8]);
        prop_assert_eq!(&of_fields[HEADER_BYTES..], &bytes[HEADER_BYTES..]);
        let at = at % of_fields.len();
        let in_body = at >= of_fields.len() - body;
        of_fields[at] ^= 1 << bit;
        prop_assert_eq!(decode_with(Checksum::Fields, &of_fields).is_ok(), in_body, "byte {} of {}", at, bytes.len());
    }

    /// A frame that is encoded without its body, followed by the body, equals the complete frame. The callback
    /// receives the bytes of the body.
    #[test]
    fn frames_encoded_without_their_body_are_the_same(bytes in frames(), longer in 1..100_000_u32) {
        let short = decode(&bytes).expect("the frame is valid");
        let payload = vec![longer as u8; longer as usize];
        let span = Span { stream: StreamId(1), offset: 2, length: longer };
        let long = Frame::Literal { span, method: Method::None, cuts: vec![5], payload: &payload };
        for frame in [short, long] {
            for checksum in [Checksum::Whole, Checksum::Fields] {
                let (mut whole, mut head, mut seen) = (Vec::new(), Vec::new(), Vec::new());
                frame.encode_with(checksum, &mut whole);
                frame.encode_apart(checksum, &mut head, |bytes| seen.extend_from_slice(bytes));
                prop_assert_eq!(seen.len(), body_bytes(&frame));
                prop_assert_eq!([head, seen].concat(), whole);
            }
        }
    }

    /// Truncated frames and frames with additional bytes are refused.
    #[test]
    fn only_whole_frames_are_decoded(bytes in frames(), cut in any::<usize>(), more in 1..9_usize) {
        prop_assert!(decode(&bytes[..cut % bytes.len()]).is_err());
        let mut longer = bytes;
        longer.extend(vec![0; more]);
        prop_assert!(decode(&longer).is_err());
    }

    /// Method: decode random payloads with correct checksums. Decoding never panics. If it succeeds, encoding
    /// the frame again gives the same bytes.
    #[test]
    fn no_input_panics_the_decoder(kind in any::<u8>(), payload in vec(any::<u8>(), 0..120)) {
        let bytes = framed(kind, &payload);
        // Type 1 is HELLO. Its decoder drops unknown compression methods, so the encoded bytes may differ.
        if let Ok(frame) = decode(&bytes) && kind != 1 {
            prop_assert_eq!(encoded(&frame), bytes);
        }
    }
}

/// A header with a length above the limit is refused before the payload is read.
#[test]
fn long_payloads_are_refused_by_their_header() {
    let parsed = |length: u32, kind: u8, flipped: u8| {
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&length.to_le_bytes());
        header[4] = kind;
        let check = xxh3_64(&header[..5]).to_le_bytes();
        header[5..8].copy_from_slice(&check[..3]);
        header[6] ^= flipped;
        frame_length(&header)
    };
    let most = u32::try_from(PAYLOAD_BYTES_MAX).expect("the length is below 4 GiB");
    assert_eq!(
        parsed(most, 3, 0),
        Ok(Some(PAYLOAD_BYTES_MAX + HEADER_BYTES))
    );
    assert_eq!(parsed(most + 1, 3, 0), Err(WireError::TooLong(most + 1)));
    assert_eq!(parsed(u32::MAX, 3, 0), Err(WireError::TooLong(u32::MAX)));
    assert_eq!(parsed(0, 0, 0), Err(WireError::UnknownType(0)));
    assert_eq!(parsed(0, 15, 0), Err(WireError::UnknownType(15)));
    assert_eq!(parsed(0, 3, 1), Err(WireError::Header));
    assert_eq!(frame_length(&[0; HEADER_BYTES - 1]), Ok(None));
}

/// Every flipped bit in the first half of the header is detected before the payload is read. A corrupt length
/// therefore never makes the reader wait for bytes that are not sent.
#[test]
fn a_flipped_bit_of_a_length_is_detected_in_the_header() {
    for payload in [0, 1, 100, 8192, 524_288] {
        let whole = framed(3, &vec![7; payload]);
        for bit in 0..64 {
            let mut header: [u8; HEADER_BYTES] =
                *whole.first_chunk().expect("the frame has a header");
            header[bit / 8] ^= 1 << (bit % 8);
            assert!(frame_length(&header).is_err(), "{payload}: bit {bit}");
        }
    }
}

/// Each field is accepted with the last valid value and refused with the first invalid one.
#[test]
fn fields_beyond_their_limits_are_refused() {
    let span = |offset: u64, length: u32| {
        let mut bytes = 1_u64.to_le_bytes().to_vec();
        bytes.extend(offset.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes
    };
    let with = |mut bytes: Vec<u8>, more: &[u8]| {
        bytes.extend(more);
        bytes
    };
    let run = |chunks: u16| with(with(vec![9; 16], &chunks.to_le_bytes()), &[0; 8]);
    let piece = u32::try_from(PIECE_BYTES_MAX).expect("the length is below 4 GiB");
    let is_valid = |kind: u8, payload: &[u8]| decode(&framed(kind, payload)).is_ok();

    // A field, the type of the frame (2 OPEN, 3 PLAIN, 6 REF_RUN), a payload in which the field has its last valid
    // value, and a payload in which it has its first invalid value.
    let table: [(&str, u8, Vec<u8>, Vec<u8>); 9] = [
        (
            "label",
            2,
            vec![0; 8 + LABEL_BYTES_MAX],
            vec![0; 9 + LABEL_BYTES_MAX],
        ),
        (
            "length",
            6,
            with(span(0, piece), &run(1)),
            with(span(0, piece + 1), &run(1)),
        ),
        (
            "no bytes",
            6,
            with(span(0, 1), &run(1)),
            with(span(0, 0), &run(1)),
        ),
        (
            "offset",
            6,
            with(span((1 << 63) - 1, 1), &run(1)),
            with(span(1 << 63, 1), &run(1)),
        ),
        (
            "run",
            6,
            with(span(0, 1), &run(1024)),
            with(span(0, 1), &run(1025)),
        ),
        (
            "empty run",
            6,
            with(span(0, 1), &run(1)),
            with(span(0, 1), &run(0)),
        ),
        (
            "method",
            3,
            with(span(0, 1), &[0, 7]),
            with(span(0, 1), &[3, 7]),
        ),
        (
            "plain payload",
            3,
            with(span(0, 1), &[0, 7]),
            with(span(0, 2), &[0, 7]),
        ),
        (
            "compressed payload",
            3,
            with(span(0, 2), &[2, 7]),
            with(span(0, 1), &[2, 7]),
        ),
    ];
    for (name, kind, within, beyond) in table {
        assert!(is_valid(kind, &within), "{name}: within its bound");
        assert!(!is_valid(kind, &beyond), "{name}: beyond its bound");
    }
    // A LITERAL frame: the sum of all cuts but the first must be less than the span (3), and no cut may be 0.
    let literal = |inner: u32| {
        let cuts = [
            &2_u16.to_le_bytes()[..],
            &5_u32.to_le_bytes(),
            &inner.to_le_bytes(),
        ]
        .concat();
        with(with(span(0, 3), &[0]), &with(cuts, b"abc"))
    };
    assert!(is_valid(4, &literal(2)) && !is_valid(4, &literal(3)) && !is_valid(4, &literal(0)));
    // Empty lists in ACK (11) and CREDIT (14) frames are refused, because they carry no information.
    assert!(!is_valid(11, &[0, 0]) && !is_valid(14, &[0, 0]));
}

/// Two endpoints compute the same terms (version, chunker, methods), or the handshake reports why they cannot
/// communicate.
#[test]
fn handshakes_agree_or_report_the_reason() {
    let connector = Hello {
        methods: Methods::ALL,
        ..hello(8192, 1)
    };
    let listener = Hello {
        methods: Methods::NONE.with(Method::Lz4),
        ..hello(65536, 2)
    };
    let agreed = connector.agree(Role::Connector, &listener);
    assert_eq!(agreed, listener.agree(Role::Listener, &connector));
    let agreed = agreed.expect("the terms are compatible");
    assert_eq!(agreed.chunker, listener.chunker);
    assert_eq!(agreed.methods, listener.methods);

    // The versions of the peer, and the common version. Versions 1 and 2 number streams with 32 bits.
    for (version_min, version_max, shared) in [
        (1, 2, None),
        (1, 3, Some(3)),
        (3, 3, Some(3)),
        (3, 4, Some(3)),
        (4, 5, None),
    ] {
        let other = Hello {
            version_min,
            version_max,
            ..listener
        };
        let agreed = connector.agree(Role::Connector, &other);
        let refused = Disagreement::Version {
            min: version_min,
            max: version_max,
        };
        assert_eq!(agreed.map(|agreed| agreed.version), shared.ok_or(refused));
    }
    let refused = Disagreement::Version { min: 1, max: 2 };
    assert_eq!(
        refused.to_string(),
        "the peer supports versions 1 to 2 of the link protocol, this endpoint versions 3 to 3: upgrade the older endpoint"
    );
    let other_key = Hello {
        key_check: IdKey::new([6; 32]).check(),
        ..listener
    };
    assert_eq!(
        connector.agree(Role::Connector, &other_key),
        Err(Disagreement::Key)
    );
}

/// Method: encode one frame of each type and compare the bytes with a file. The encoding must not change,
/// because peers of older versions use it.
#[test]
fn frames_are_those_of_the_golden_file() {
    let stream = StreamId(0x0807_0605_0403_0201);
    let span = |length| Span {
        stream,
        offset: 0x1122_3344_5566,
        length,
    };
    let id = |byte: u8| ChunkId([byte; 16]);
    let run = Run {
        first: id(0xaa),
        chunks: 300,
        check: 0x0807_0605_0403_0201,
    };
    let samples = [
        (
            "hello",
            Frame::Hello(Hello {
                methods: Methods::ALL,
                ..hello(8192, 0x99)
            }),
        ),
        (
            "open",
            Frame::Open {
                stream,
                label: b"GET /",
            },
        ),
        (
            "plain",
            Frame::Plain {
                span: span(5),
                method: Method::None,
                payload: b"hello",
            },
        ),
        (
            "literal",
            Frame::Literal {
                span: span(6),
                method: Method::Zstd,
                cuts: vec![4096, 2],
                payload: b"zst",
            },
        ),
        (
            "ref",
            Frame::Ref {
                span: span(9000),
                skip: 77,
                ids: vec![id(1), id(2)],
            },
        ),
        (
            "ref-run",
            Frame::RefRun {
                span: span(500_000),
                run,
            },
        ),
        (
            "delta",
            Frame::Delta {
                span: span(20_000),
                method: Method::Zstd,
                base: vec![id(3), id(4)],
                cuts: vec![12_000, 8000],
                payload: b"delta",
            },
        ),
        (
            "close",
            Frame::Close {
                stream,
                length: 1 << 40,
                digest: 0x0102_0304,
            },
        ),
        ("reset", Frame::Reset { stream, reason: 1 }),
        ("stop", Frame::Stop { stream, reason: 2 }),
        (
            "ack",
            Frame::Ack(vec![
                StreamAck {
                    stream,
                    state: StreamState::Open,
                    offset: 4096,
                },
                StreamAck {
                    stream: StreamId(7),
                    state: StreamState::Complete,
                    offset: 1,
                },
            ]),
        ),
        (
            "nak",
            Frame::Nak {
                stream,
                offset: 4096,
                cause: NakCause::Order,
            },
        ),
        ("epoch", Frame::Epoch(0xfeed)),
        ("credit", Frame::Credit(vec![(stream, 1 << 20)])),
    ];
    let golden = include_str!("../../../../vectors/link/frames.txt");
    let mut written = String::from(golden.lines().next().expect("the file has a first line"));
    written.push('\n');
    let mut write = |name: &str, bytes: &[u8]| {
        write!(written, "{name} ").expect("writing to a string succeeds");
        bytes
            .iter()
            .for_each(|byte| write!(written, "{byte:02x}").expect("writing to a string succeeds"));
        written.push('\n');
    };
    for (name, frame) in &samples {
        let bytes = encoded(frame);
        assert_eq!(decode(&bytes).as_ref(), Ok(frame), "{name}");
        write(name, &bytes);
    }
    for (name, frame) in &samples {
        let bytes = encoded_fields(frame);
        let opened = decode_with(Checksum::Fields, &bytes);
        assert_eq!(opened.as_ref(), Ok(frame), "{name}");
        if body_bytes(frame) > 0 {
            write(&format!("{name}-tls"), &bytes);
        }
    }
    if std::env::var_os("EDGEWARD_RENEW_VECTORS").is_some() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../vectors/link/frames.txt"
        );
        std::fs::write(path, &written).expect("the golden file can be written");
    } else {
        assert_eq!(written, golden);
    }
}
