//! A proxy request is parsed the same whether it arrives at once or byte by byte. The parser consumes no more bytes
//! than it has. With [`HEAD_BYTES_MAX`] bytes or more, it does not wait for further bytes.
//!
//! The first byte selects the part of the request, and whether the proxy has users. Run: `cargo +nightly fuzz run
//! link_socks`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_link::socks::{HEAD_BYTES_MAX, Phase, ProxyProtocol, ProxyUsers, Step, read, reply};

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, bytes)) = bytes.split_first() else {
        return;
    };
    let phase = [Phase::First, Phase::Password, Phase::Request][usize::from(choice % 3)];
    let users = ProxyUsers::parse("a:b\n").expect("the list is valid");
    let users = (choice & 128 != 0).then_some(&users);
    let whole = read(bytes, phase, users);
    // The results are compared only below the limit: the parser refuses an incomplete head of `HEAD_BYTES_MAX` bytes,
    // but accepts a longer one if it is complete.
    let longest_prefix = bytes.len().min(HEAD_BYTES_MAX - 1);
    let first_result = (0..=longest_prefix)
        .map(|end| read(&bytes[..end], phase, users))
        .find(|step| *step != Step::ReadMore);
    if bytes.len() < HEAD_BYTES_MAX {
        assert_eq!(first_result.unwrap_or(Step::ReadMore), whole);
    }
    match whole {
        Step::ReadMore => assert!(bytes.len() < HEAD_BYTES_MAX),
        // A greeting has two bytes, and then 1 to 255 authentication methods of one byte each. A password is accepted
        // only if the proxy has users.
        Step::Reply { reply, used, next } => {
            match (phase, users) {
                (Phase::First, None) => assert!(reply == [5, 0] && next == Phase::Request),
                (Phase::First, Some(_)) => assert!(reply == [5, 2] && next == Phase::Password),
                (Phase::Password, Some(_)) => assert!(reply == [1, 0] && next == Phase::Request),
                _ => unreachable!("a request of SOCKS5 gets no further message"),
            }
            assert!((3..=513).contains(&used) && used <= bytes.len());
        }
        Step::Connect { target, protocol, used } => {
            assert!(used <= bytes.len());
            assert_eq!(phase == Phase::Request, protocol == ProxyProtocol::Socks);
            assert_eq!(target.to_string().parse().as_ref(), Ok(&target));
        }
        Step::Refuse { reply, why } => assert!(!reply.is_empty() && !why.is_empty()),
    }
    // The first byte is also used as the reason of a refusal: an unknown reason gets a reply too.
    for protocol in [ProxyProtocol::Socks, ProxyProtocol::Http] {
        assert!(!reply(protocol, Err(u32::from(choice))).is_empty());
    }
});
