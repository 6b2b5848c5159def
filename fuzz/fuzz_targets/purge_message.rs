//! A message of a fleet's stream: any bytes are rejected or parsed without a panic. A parsed message can be encoded and
//! parsed again.
//!
//! Run: `cargo +nightly fuzz run purge_message`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_purge::{PurgeMessage, SCOPES_MAX};

fuzz_target!(|input: &[u8]| {
    let Ok(message) = PurgeMessage::parse(input) else {
        return;
    };
    assert!((1..=SCOPES_MAX).contains(&message.scopes.len()));
    let encoded = PurgeMessage::encode(message.scopes.clone(), message.soft, &message.from);
    let scopes = encoded.iter().flat_map(|bytes| {
        let parsed = PurgeMessage::parse(bytes).expect("an encoded message parses");
        assert_eq!(parsed.soft, message.soft);
        parsed.scopes
    });
    assert_eq!(scopes.count(), message.scopes.len());
});
