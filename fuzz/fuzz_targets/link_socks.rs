//! A proxy request is parsed the same whether it arrives at once or byte by byte. The parser consumes no more bytes
//! than it has. With [`HEAD_BYTES_MAX`] bytes or more, it does not wait for further bytes.
//!
//! The first byte selects whether the SOCKS greeting was already answered. Run: `cargo +nightly fuzz run link_socks`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_link::socks::{HEAD_BYTES_MAX, ProxyProtocol, Step, read, reply};

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, bytes)) = bytes.split_first() else {
        return;
    };
    let is_greeted = choice & 1 == 1;
    let whole = read(bytes, is_greeted);
    // The results are compared only below the limit: the parser refuses an incomplete head of `HEAD_BYTES_MAX` bytes,
    // but accepts a longer one if it is complete.
    let longest_prefix = bytes.len().min(HEAD_BYTES_MAX - 1);
    let first_result = (0..=longest_prefix)
        .map(|end| read(&bytes[..end], is_greeted))
        .find(|step| *step != Step::ReadMore);
    if bytes.len() < HEAD_BYTES_MAX {
        assert_eq!(first_result.unwrap_or(Step::ReadMore), whole);
    }
    match whole {
        Step::ReadMore => assert!(bytes.len() < HEAD_BYTES_MAX),
        // The reply selects version 5 without authentication. A greeting has two bytes, and then 1 to 255
        // authentication methods of one byte each.
        Step::Reply { reply, used } => {
            assert!(!is_greeted && reply == [5, 0] && (3..=257).contains(&used));
            assert!(used <= bytes.len());
        }
        Step::Connect { target, protocol, used } => {
            assert!(used <= bytes.len());
            assert_eq!(is_greeted, protocol == ProxyProtocol::Socks);
            assert_eq!(target.to_string().parse().as_ref(), Ok(&target));
        }
        Step::Refuse(refusal) => assert!(!refusal.is_empty()),
    }
    // The first byte is also used as the reason of a refusal: an unknown reason gets a reply too.
    for protocol in [ProxyProtocol::Socks, ProxyProtocol::Http] {
        assert!(!reply(protocol, Err(u32::from(choice))).is_empty());
    }
});
