//! Every stream label that can be decoded is encoded to bytes that decode to an equal label. These bytes may differ
//! from the input in letter case, or be fewer. Every accepted target has a port, and its host is a host name or an IP
//! address.
//!
//! Run: `cargo +nightly fuzz run link_label`.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;

use edgeward_link::{HostPort, Label, Target};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(host_port) = text.parse::<HostPort>()
    {
        check(&host_port);
    }
    let Some(label) = Label::decode(bytes) else {
        return;
    };
    let written = label.encode();
    assert!(written.eq_ignore_ascii_case(bytes) || written.len() < bytes.len());
    if let Label::Open(Target::Tcp(host_port)) = &label {
        check(host_port);
    }
    assert_eq!(Label::decode(&written), Some(label));
});

/// Checks the host and the port, and that the text of the target is parsed to an equal target.
fn check(host_port: &HostPort) {
    let is_name_byte = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    assert!(host_port.host.parse::<IpAddr>().is_ok() || host_port.host.bytes().all(is_name_byte));
    assert!((1..=253).contains(&host_port.host.len()) && host_port.port > 0);
    assert_eq!(host_port.to_string().parse().as_ref(), Ok(host_port));
}
