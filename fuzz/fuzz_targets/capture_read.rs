//! Whatever claims to be a capture is read within bounds, and nobody says more than was captured.
//!
//! Run: `cargo +nightly fuzz run capture_read`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_capture::{FlowLimits, Flows, Heard, PacketReader, segment};

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
    let (mut captured, mut said) = (0, 0);
    let mut hear = |heard: Heard<'_>| {
        if let Heard::Bytes { bytes, .. } = heard {
            said += bytes.len();
        }
    };
    while let Ok(Some(packet)) = packets.next_packet() {
        if let Ok(segment) = segment(&packet) {
            assert!(segment.payload.len() <= segment.length as usize);
            captured += segment.payload.len();
            flows.take(&segment, &mut hear);
            assert!(flows.open() <= LIMITS.flows_max && flows.waiting() <= LIMITS.waiting_all_max);
        }
    }
    flows.finish(&mut hear);
    assert!(said <= captured);
});
