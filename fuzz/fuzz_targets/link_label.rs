//! Every stream label that can be decoded is encoded to the same bytes, and every accepted target is a host name or
//! an address with a port.
//!
//! Run: `cargo +nightly fuzz run link_label`.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;

use edgeward_link::{HostPort, Label, Target};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(place) = text.parse::<HostPort>()
    {
        check(&place);
    }
    let Some(label) = Label::decode(bytes) else {
        return;
    };
    let written = label.encode();
    assert!(written.eq_ignore_ascii_case(bytes) || written.len() < bytes.len());
    if let Label::Open(Target::Tcp(place)) = &label {
        check(place);
    }
    assert_eq!(Label::decode(&written), Some(label));
});

fn check(place: &HostPort) {
    let named = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    assert!(place.host.parse::<IpAddr>().is_ok() || place.host.bytes().all(named));
    assert!((1..=253).contains(&place.host.len()) && place.port > 0);
    assert_eq!(place.to_string().parse().as_ref(), Ok(place));
}
