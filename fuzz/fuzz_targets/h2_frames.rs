//! The frame filter for a client's HTTP/2 frames. No input makes it panic. How the input is split changes neither the
//! passed frames nor the exceeded limit, unless DATA frames are merged.
//!
//! Run: `cargo +nightly fuzz run h2_frames`.
#![no_main]

use edgeward_proxy::h2_frames::{Excess, FrameGate, FrameLimits};
use libfuzzer_sys::fuzz_target;

const LIMITS: FrameLimits = FrameLimits {
    fields_max: 20,
    block_bytes_max: 2000,
    resets_max: 8,
    control_max: 8,
    window_updates_max: 8,
};

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let whole = pass(bytes, usize::MAX);
    let cut = pass(bytes, usize::from(piece).max(1));
    assert_eq!(whole.1, cut.1);
    assert!(whole.0.len() <= bytes.len() && cut.0.len() <= bytes.len());
});

/// Returns the passed bytes and the limit that was exceeded.
fn pass(bytes: &[u8], piece: usize) -> (Vec<u8>, Option<Excess>) {
    let mut gate = FrameGate::new(LIMITS);
    let (mut out, mut held) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        held.extend_from_slice(piece);
        loop {
            let passed = match gate.pass(&mut held, 1) {
                Ok(passed) => passed,
                Err(excess) => return (out, Some(excess)),
            };
            assert!(passed.cleared <= passed.len && passed.len <= held.len());
            held.truncate(passed.len);
            out.extend(held.drain(..passed.cleared));
            if !passed.pause {
                break;
            }
            gate.resume();
        }
    }
    (out, None)
}
