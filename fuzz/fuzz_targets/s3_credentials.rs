//! A file of credentials: any text is read or refused without a panic, and no message has a part of a value.
//!
//! Run: `cargo +nightly fuzz run s3_credentials`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_s3::Credentials;

fuzz_target!(|text: &str| {
    let text = format!("{text}\naws_secret_access_key = T0PSECRET\n");
    let read = Credentials::from_file(&text, "default");
    let shown = format!("{read:?} {}", read.as_ref().err().map(ToString::to_string).unwrap_or_default());
    assert!(!shown.contains("T0PSECRET"));
});
