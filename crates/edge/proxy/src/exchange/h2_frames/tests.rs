//! Tests of [`FrameGate`], which limits a client's HTTP/2 frames. A simple parser compares passed with sent frames.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const LIMITS: FrameLimits = FrameLimits {
    fields_max: 10,
    block_bytes_max: 4000,
    resets_max: 5,
    control_max: 5,
    window_updates_max: 5,
};

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("the payload is short");
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Returns all bytes that pass if `bytes` arrive in pieces of these lengths. Ends each pause of the gate at once.
fn pass_all(gate: &mut FrameGate, bytes: &[u8], pieces: &[usize]) -> Result<Vec<u8>, Excess> {
    let (mut out, mut raw) = (Vec::new(), Vec::new());
    let mut rest = bytes;
    let mut lengths = pieces.iter().copied().cycle();
    while !rest.is_empty() {
        let n = lengths.next().unwrap_or(usize::MAX).clamp(1, rest.len());
        raw.extend_from_slice(&rest[..n]);
        rest = &rest[n..];
        loop {
            let passed = gate.pass(&mut raw, 1)?;
            assert!(passed.ready_bytes <= passed.buffer_bytes && passed.buffer_bytes <= raw.len());
            raw.truncate(passed.buffer_bytes);
            out.extend(raw.drain(..passed.ready_bytes));
            out.extend(&passed.replacement);
            if !passed.pause && passed.replacement.is_empty() {
                break;
            }
            gate.resume();
        }
    }
    Ok(out)
}

/// The content of frames: the data of each stream, true if the stream has ended, and all other frames in order.
type FrameContent = (BTreeMap<u32, (Vec<u8>, bool)>, Vec<Vec<u8>>);

fn frame_content(mut bytes: &[u8]) -> FrameContent {
    let (mut data, mut others) = (BTreeMap::<u32, (Vec<u8>, bool)>::new(), Vec::new());
    while let Some(head) = FrameHead::parse(bytes) {
        let (frame, rest) = bytes.split_at(head.frame_bytes());
        let is_empty = head.length == 0 && head.flags & END_STREAM == 0;
        if head.kind == DATA && !is_empty {
            let stream = data.entry(head.stream).or_default();
            stream.0.extend_from_slice(&frame[HEAD_BYTES..]);
            stream.1 |= head.flags & END_STREAM != 0;
        } else if head.kind != DATA {
            others.push(frame.to_vec());
        }
        bytes = rest;
    }
    (data, others)
}

fn preface() -> Vec<u8> {
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()
}

prop_compose! {
    fn any_frame()(
        kind in prop::sample::select(vec![0u8, 0, 0, 1, 2, 3, 4, 6, 8, 200]),
        stream in 1u32..4,
        payload in prop::collection::vec(any::<u8>(), 0..40),
        end in any::<bool>(),
        cut in any::<prop::sample::Index>(),
    ) -> Vec<u8> {
        match kind {
            HEADERS => {
                let block = vec![0x90; payload.len() % 4];
                let (first, second) = block.split_at(cut.index(block.len() + 1));
                let mut bytes = frame(HEADERS, 0, stream, first);
                bytes.extend(frame(CONTINUATION, END_HEADERS, stream, second));
                bytes
            }
            DATA => frame(DATA, u8::from(end), stream, &payload),
            kind => frame(kind, 0, stream, &payload),
        }
    }
}

proptest! {
    /// The gate merges DATA frames. This changes only the number of frames, regardless of how the bytes are split.
    #[test]
    fn passed_bytes_have_the_content_of_the_sent_bytes(
        frames in prop::collection::vec(any_frame(), 0..40),
        pieces in prop::collection::vec(1usize..200, 1..6),
    ) {
        let limits = FrameLimits { resets_max: 99, control_max: 99, window_updates_max: 99, ..LIMITS };
        let sent: Vec<u8> = frames.concat();
        let bytes = [preface(), sent.clone()].concat();
        let out = pass_all(&mut FrameGate::new(limits), &bytes, &pieces).expect("within the limits");
        prop_assert!(out.starts_with(&preface()));
        prop_assert_eq!(frame_content(&out[PREFACE_BYTES..]), frame_content(&sent));
        prop_assert!(out.len() <= bytes.len());
    }

    /// Method: pass random bytes to the gate in random pieces.
    #[test]
    fn no_bytes_cause_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        pieces in prop::collection::vec(1usize..200, 1..6),
    ) {
        _ = pass_all(&mut FrameGate::new(LIMITS), &bytes, &pieces);
    }

    /// Oracle: the number of fields that the test has written.
    #[test]
    fn fields_are_counted_without_decoding_them(
        fields in prop::collection::vec((0u8..5, 0usize..300), 0..50),
    ) {
        let (mut block, mut count) = (Vec::new(), 0);
        for (kind, length) in fields {
            let value = vec![b'v'; length];
            let mut text = if length < 127 {
                vec![u8::try_from(length).expect("the length is below 127")]
            } else {
                let rest = length - 127;
                let low = u8::try_from(rest % 128).expect("the value has 7 bits");
                vec![127, low | 0x80, u8::try_from(rest / 128).expect("the length is small")]
            };
            text.extend(value);
            match kind {
                0 => block.push(0x90), // an indexed field
                1 => block.extend([&[0x40, 1, b'n'], text.as_slice()].concat()), // a literal for the dynamic table
                2 => block.extend([&[0x0f, 3], text.as_slice()].concat()), // a literal with an indexed name
                3 => block.extend([&[0x10], text.as_slice(), text.as_slice()].concat()), // a literal, never indexed
                _ => {
                    block.push(0x3f); // a size update of the dynamic table, which is no field
                    block.push(0x11);
                    count -= 1;
                }
            }
            count += 1;
        }
        prop_assert_eq!(isize::try_from(count_block_fields(&block)).expect("the fields are few"), count);
    }
}

#[test]
fn a_header_block_passes_only_when_it_is_complete() {
    let mut gate = FrameGate::new(LIMITS);
    let mut start = [preface(), frame(HEADERS, 0, 1, &[0x90; 3])].concat();
    let passed = gate.pass(&mut start, 1).expect("within the limits");
    assert_eq!(passed.ready_bytes, PREFACE_BYTES);
    let mut block = [
        frame(HEADERS, 0, 1, &[0x90; 3]),
        frame(CONTINUATION, END_HEADERS, 1, &[0x90]),
    ]
    .concat();
    let all = block.len();
    let passed = gate.pass(&mut block, 1).expect("within the limits");
    assert_eq!(passed.ready_bytes, all);
}

#[test]
fn a_block_with_too_many_fields_or_bytes_or_frames_is_an_excess() {
    let headers = |fields: usize| frame(HEADERS, END_HEADERS, 1, &vec![0x90; fields]);
    let pass_bytes = |bytes: Vec<u8>| {
        let bytes = [preface(), bytes].concat();
        pass_all(&mut FrameGate::new(LIMITS), &bytes, &[usize::MAX]).map(drop)
    };
    assert_eq!(pass_bytes(headers(10)), Ok(()));
    assert_eq!(pass_bytes(headers(11)), Err(Excess::HeaderBlock));
    let split = |n| {
        let half = frame(HEADERS, 0, 1, &[0x90; 6]);
        [half, frame(CONTINUATION, END_HEADERS, 1, &vec![0x90; n])].concat()
    };
    assert_eq!(pass_bytes(split(4)), Ok(()));
    assert_eq!(pass_bytes(split(5)), Err(Excess::HeaderBlock));
    let empty = frame(CONTINUATION, 0, 1, &[]).repeat(BLOCK_FRAMES_MAX);
    let flood = [frame(HEADERS, 0, 1, &[]), empty].concat();
    assert_eq!(pass_bytes(flood), Err(Excess::HeaderBlock));
    let long = frame(HEADERS, 0, 1, &[0; 4000]);
    assert_eq!(pass_bytes(long), Err(Excess::HeaderBlock));
}

#[test]
fn padding_and_priority_are_not_counted_as_fields() {
    let mut payload = vec![3, 0, 0, 0, 0, 9];
    payload.extend([0x90; 10]);
    payload.extend([0x90; 3]);
    let bytes = frame(HEADERS, END_HEADERS | PADDED | PRIORITY, 1, &payload);
    let bytes = [preface(), bytes].concat();
    let passed = pass_all(&mut FrameGate::new(LIMITS), &bytes, &[usize::MAX]);
    assert_eq!(passed, Ok(bytes));
}

#[test]
fn each_kind_of_frame_has_its_own_bound_in_a_time_window() {
    for (kind, excess) in [
        (RST_STREAM, Excess::Resets),
        (WINDOW_UPDATE, Excess::WindowUpdates),
        (2, Excess::Control),
        (4, Excess::Control),
        (6, Excess::Control),
        (250, Excess::Control),
    ] {
        let mut gate = FrameGate::new(LIMITS);
        let frames = |n| frame(kind, 0, 1, &[0; 8]).repeat(n);
        pass_all(&mut gate, &[preface(), frames(5)].concat(), &[7]).expect("within the limits");
        assert_eq!(pass_all(&mut gate, &frames(1), &[7]), Err(excess));
        // In a new time window the count starts at 0.
        let mut gate = FrameGate::new(LIMITS);
        pass_all(&mut gate, &[preface(), frames(5)].concat(), &[7]).expect("within the limits");
        assert!(gate.pass(&mut frames(5), 1 + WINDOW_MILLIS).is_ok());
        assert_eq!(gate.pass(&mut frames(1), 1 + WINDOW_MILLIS), Err(excess));
    }
}

#[test]
fn response_bytes_justify_frames_of_the_client() {
    let mut gate = FrameGate::new(LIMITS);
    gate.record_sent(10 * SENT_PER_RESET);
    let resets = frame(RST_STREAM, 0, 1, &[0; 4]);
    pass_all(&mut gate, &[preface(), resets.repeat(15)].concat(), &[90]).expect("allowed");
    assert_eq!(pass_all(&mut gate, &resets, &[90]), Err(Excess::Resets));
}

#[test]
fn the_gate_pauses_after_as_many_fields_as_a_block_may_have() {
    let mut gate = FrameGate::new(LIMITS);
    let headers = |stream| frame(HEADERS, END_HEADERS, stream, &[0x90; 6]);
    let mut bytes = [preface(), headers(1), headers(3), headers(5)].concat();
    let passed = gate.pass(&mut bytes, 1).expect("within the limits");
    assert!(passed.pause);
    assert_eq!(passed.buffer_bytes - passed.ready_bytes, headers(5).len());
    gate.resume();
    let passed = gate.pass(&mut headers(5), 1).expect("within the limits");
    assert!(!passed.pause);
    assert_eq!(passed.ready_bytes, headers(5).len());
}

#[test]
fn a_malformed_block_is_replaced_and_the_frames_around_it_pass() {
    let valid = |stream| frame(HEADERS, END_HEADERS, stream, &[0x90]);
    let bytes = [
        preface(),
        valid(1),
        frame(HEADERS, END_HEADERS | END_STREAM, 3, &[0, 1, b'X', 0]),
        valid(5),
    ];
    let passed = pass_all(&mut FrameGate::new(LIMITS), &bytes.concat(), &[usize::MAX]);
    let replaced = frame(HEADERS, END_HEADERS | END_STREAM, 3, &[0x0f, 42, 0]);
    assert_eq!(
        passed,
        Ok([preface(), valid(1), replaced, valid(5)].concat())
    );
}

/// h2 would not decode the block, and its table would differ from the client's (RFC 7540 §5.3.1).
#[test]
fn a_stream_that_depends_on_itself_is_refused_after_its_block_was_decoded() {
    let block = [0x40, 1, b'a', 1, b'b'];
    for (dependency, is_refused) in [(1u8, false), (3, true)] {
        let payload = [&[0, 0, 0, dependency, 9], &block[..]].concat();
        let bytes = [
            preface(),
            frame(HEADERS, END_HEADERS | PRIORITY, 3, &payload),
        ]
        .concat();
        let passed = pass_all(&mut FrameGate::new(LIMITS), &bytes, &[usize::MAX]);
        let replaced = [&block[..], &[0x0f, 42, 0]].concat();
        let replaced = [preface(), frame(HEADERS, END_HEADERS, 3, &replaced)].concat();
        assert_eq!(passed, Ok(if is_refused { replaced } else { bytes }));
    }
}

#[test]
fn removed_padding_is_returned_to_both_windows() {
    let mut gate = FrameGate::new(LIMITS);
    let padded = |flags, data: &[u8], padding: u8| {
        let padding_bytes = vec![0; usize::from(padding)];
        frame(
            DATA,
            PADDED | flags,
            7,
            &[&[padding], data, &padding_bytes].concat(),
        )
    };
    let sent = [
        padded(0, b"", 255),
        padded(0, b"ab", 9),
        padded(0, b"c", 0),
        padded(END_STREAM, b"d", 4),
    ];
    let passed = pass_all(
        &mut gate,
        &[preface(), sent.concat()].concat(),
        &[usize::MAX],
    );
    assert_eq!(
        passed,
        Ok([preface(), frame(DATA, END_STREAM, 7, b"abcd")].concat())
    );
    let mut updates = Vec::new();
    gate.take_window_updates(&mut updates);
    // 256, 10 and 1 bytes of the stream, and 5 bytes of the frame that ends it.
    let update = |stream, bytes: u32| frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
    assert_eq!(updates, [update(7, 267), update(0, 272)].concat());
    gate.take_window_updates(&mut updates);
    assert_eq!(updates.len(), 2 * 13);
}

#[test]
fn empty_data_frames_are_dropped_and_counted_as_control_frames() {
    let mut gate = FrameGate::new(LIMITS);
    let empty = frame(DATA, 0, 1, &[]);
    let end = frame(DATA, END_STREAM, 1, &[]);
    let bytes = [preface(), empty.repeat(5), end.clone()].concat();
    assert_eq!(
        pass_all(&mut gate, &bytes, &[usize::MAX]),
        Ok([preface(), end].concat())
    );
    assert_eq!(
        pass_all(&mut gate, &empty, &[usize::MAX]),
        Err(Excess::Control)
    );
}
