//! Random captures are read within the limits, and no more bytes are emitted than were captured.
//!
//! Run: `cargo +nightly fuzz run capture_read`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_capture::{FlowLimits, Flows, FlowEvent, PacketReader, segment};

/// Limits that a random capture reaches: open TCP connections, and bytes that wait behind a gap, per direction and in
/// total.
const LIMITS: FlowLimits = FlowLimits {
    flows_max: 3,
    waiting_max: 1000,
    waiting_all_max: 2000,
};

fuzz_target!(|file: &[u8]| {
    let Ok(mut packets) = PacketReader::new(file) else {
        return;
    };
    let mut flows = Flows::new(LIMITS);
    let (mut captured, mut emitted) = (0, 0);
    let mut receive = |event: FlowEvent<'_>| {
        if let FlowEvent::Bytes { bytes, .. } = event {
            emitted += bytes.len();
        }
    };
    while let Ok(Some(packet)) = packets.next_packet() {
        if let Ok(segment) = segment(&packet) {
            assert!(segment.payload.len() <= segment.length as usize);
            captured += segment.payload.len();
            flows.take(&segment, &mut receive);
            assert!(flows.open() <= LIMITS.flows_max && flows.waiting() <= LIMITS.waiting_all_max);
        }
    }
    flows.finish(&mut receive);
    assert!(emitted <= captured);
});
