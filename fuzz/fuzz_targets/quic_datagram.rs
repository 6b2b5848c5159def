//! Datagrams of QUIC from the network, as another worker or process passes them on. No input causes a panic. Each
//! connection id is made again from what it states.
//!
//! Run: `cargo +nightly fuzz run quic_datagram`.
#![no_main]

use edgeward_proxy::hostile::quic_datagram;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|message: &[u8]| quic_datagram(message));
