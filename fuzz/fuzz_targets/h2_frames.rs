//! The frame filter for a client's HTTP/2 frames. No input causes a panic. The exceeded limit does not depend
//! on how the input is split. The passed bytes may depend on it, because small DATA frames are merged.
//!
//! Run: `cargo +nightly fuzz run h2_frames`.
#![no_main]

use edgeward_proxy::h2_frames::{Excess, FrameGate, FrameLimits};
use libfuzzer_sys::fuzz_target;

/// Small limits, which short inputs can exceed.
const LIMITS: FrameLimits = FrameLimits {
    fields_max: 20,
    block_bytes_max: 2000,
    resets_max: 8,
    control_max: 8,
    window_updates_max: 8,
};

fuzz_target!(|input: (u8, &[u8])| {
    let (piece_bytes, bytes) = input;
    let unsplit = pass(bytes, usize::MAX);
    let split = pass(bytes, usize::from(piece_bytes).max(1));
    assert_eq!(unsplit.1, split.1);
});

/// Passes the bytes in pieces of `piece_bytes` bytes. Returns the passed bytes and the limit that was exceeded.
fn pass(bytes: &[u8], piece_bytes: usize) -> (Vec<u8>, Option<Excess>) {
    let mut gate = FrameGate::new(LIMITS);
    let (mut passed_bytes, mut buffer) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(piece_bytes) {
        buffer.extend_from_slice(piece);
        loop {
            // The time is always 1 ms, so all frames are counted in one window.
            let passed = match gate.pass(&mut buffer, 1) {
                Ok(passed) => passed,
                Err(excess) => return (passed_bytes, Some(excess)),
            };
            // hyper may read the first `ready_bytes`. Merging has shortened the buffer to `buffer_bytes`.
            assert!(passed.ready_bytes <= passed.buffer_bytes && passed.buffer_bytes <= buffer.len());
            buffer.truncate(passed.buffer_bytes);
            passed_bytes.extend(buffer.drain(..passed.ready_bytes));
            passed_bytes.extend(&passed.replacement);
            if !passed.pause && passed.replacement.is_empty() {
                break;
            }
            // The server resumes when hyper has accepted the passed requests, this target at once.
            gate.resume();
        }
    }
    (passed_bytes, None)
}
