//! The codec is compared with the crate `ppp`, and each law is tested at each length of a header.

use std::net::{IpAddr, SocketAddr};

use edgeward_proxy_protocol::{
    Addresses, Header, HeaderError, LEN_WITHOUT_EXTENSIONS_MAX, Progress, Version, client_uses_tls,
    read, write,
};
use ppp::HeaderResult;
use proptest::prelude::*;

/// The limit of most tests, above all headers that they make.
const LEN_MAX: usize = 4096;

fn headers() -> impl Strategy<Value = Header> {
    let pairs = prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b))),
        any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b))),
    ];
    let proxied = (pairs, any::<(u16, u16)>()).prop_map(|((source, destination), ports)| {
        Header::Proxied(Addresses {
            source: SocketAddr::new(source, ports.0),
            destination: SocketAddr::new(destination, ports.1),
        })
    });
    prop_oneof![1 => Just(Header::Local), 9 => proxied]
}

fn versions() -> impl Strategy<Value = Version> {
    prop_oneof![Just(Version::V1), Just(Version::V2)]
}

fn written(version: Version, header: Header) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(version, header, &mut bytes);
    bytes
}

/// Returns the content of a header as `ppp` reads it, or `None` if it refuses it.
fn by_ppp(bytes: &[u8]) -> Option<Header> {
    let proxied = |source: SocketAddr, destination: SocketAddr| {
        Header::Proxied(Addresses {
            source,
            destination,
        })
    };
    match HeaderResult::parse(bytes) {
        HeaderResult::V1(Ok(header)) => Some(match header.addresses {
            ppp::v1::Addresses::Unknown => Header::Local,
            ppp::v1::Addresses::Tcp4(ip) => proxied(
                (ip.source_address, ip.source_port).into(),
                (ip.destination_address, ip.destination_port).into(),
            ),
            ppp::v1::Addresses::Tcp6(ip) => proxied(
                (ip.source_address, ip.source_port).into(),
                (ip.destination_address, ip.destination_port).into(),
            ),
        }),
        HeaderResult::V2(Ok(header)) => {
            use ppp::v2::{Addresses as Pair, Command, Protocol};
            let is_client = header.command == Command::Proxy && header.protocol == Protocol::Stream;
            Some(match header.addresses {
                Pair::IPv4(ip) if is_client => proxied(
                    (ip.source_address, ip.source_port).into(),
                    (ip.destination_address, ip.destination_port).into(),
                ),
                Pair::IPv6(ip) if is_client => proxied(
                    (ip.source_address, ip.source_port).into(),
                    (ip.destination_address, ip.destination_port).into(),
                ),
                _ => Header::Local,
            })
        }
        _ => None,
    }
}

/// Returns a header as it is read back: mapped addresses become IPv4 addresses if both are.
fn canonical(header: Header) -> Header {
    let Header::Proxied(pair) = header else {
        return header;
    };
    let canonical = |addr: SocketAddr| SocketAddr::new(addr.ip().to_canonical(), addr.port());
    let (source, destination) = (canonical(pair.source), canonical(pair.destination));
    match source.is_ipv4() == destination.is_ipv4() {
        true => Header::Proxied(Addresses {
            source,
            destination,
        }),
        false => header,
    }
}

proptest! {
    #[test]
    fn a_written_header_reads_back_and_ppp_agrees(version in versions(), header in headers()) {
        let mut bytes = written(version, header);
        prop_assert_eq!(by_ppp(&bytes), Some(canonical(header)));
        let len = bytes.len();
        bytes.extend_from_slice(b"GET / HTTP/1.1\r\n");
        let header = canonical(header);
        prop_assert_eq!(read(&bytes, LEN_MAX), Ok(Progress::Complete { header, len }));
    }

    /// Each prefix is incomplete, so a header may arrive in any pieces.
    #[test]
    fn a_part_of_a_header_is_incomplete(version in versions(), header in headers()) {
        let bytes = written(version, header);
        for end in 0..bytes.len() {
            prop_assert_eq!(read(&bytes[..end], LEN_MAX), Ok(Progress::Incomplete), "{} bytes", end);
        }
    }

    /// Method: one byte is changed. `ppp` accepts lines that the specification does not have (a port of several zeros),
    /// so this parser may refuse more. `ppp` refuses LOCAL with an unknown family, which section 2.2 ignores.
    #[test]
    fn a_changed_header_is_refused_or_reads_as_ppp_reads_it(
        version in versions(),
        header in headers(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = written(version, header);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(Progress::Complete { header, len }) = read(&bytes, LEN_MAX) {
            let expected = by_ppp(&bytes[..len]).unwrap_or(Header::Local);
            prop_assert_eq!(header, expected);
        }
    }

    #[test]
    fn bytes_of_any_kind_never_take_more_than_they_are(bytes in any::<Vec<u8>>(), max in 0_usize..600) {
        if let Ok(Progress::Complete { len, .. }) = read(&bytes, max) {
            prop_assert!(len <= bytes.len() && len <= max);
        }
    }

    /// Extensions up to the limit are skipped, and one byte more is refused before the extensions have arrived.
    #[test]
    fn extensions_are_skipped_within_the_limit(header in headers(), extensions in 0_usize..2000) {
        let mut bytes = written(Version::V2, header);
        let fixed = bytes.len();
        let rest = u16::try_from(fixed - 16 + extensions).expect("a small header");
        bytes[14..16].copy_from_slice(&rest.to_be_bytes());
        bytes.resize(fixed + extensions, 4); // 4 is PP2_TYPE_NOOP
        let len = bytes.len();
        let header = canonical(header);
        prop_assert_eq!(read(&bytes, len), Ok(Progress::Complete { header, len }));
        prop_assert_eq!(read(&bytes[..16], len - 1), Err(HeaderError::TooLong));
    }
}

#[test]
fn headers_are_read_as_the_specification_defines_them() {
    let pair = |source: &str, destination: &str| {
        Ok(Some(Header::Proxied(Addresses {
            source: source.parse().expect("an address"),
            destination: destination.parse().expect("an address"),
        })))
    };
    let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(107 - 16));
    let too_long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(107 - 15));
    let cases: Vec<(&[u8], _)> = vec![
        (
            b"PROXY TCP4 192.0.2.1 198.51.100.2 50000 80\r\n",
            pair("192.0.2.1:50000", "198.51.100.2:80"),
        ),
        (
            b"PROXY TCP6 2001:db8::1 ::1 0 65535\r\n",
            pair("[2001:db8::1]:0", "[::1]:65535"),
        ),
        (b"PROXY UNKNOWN\r\n", Ok(Some(Header::Local))),
        (b"PROXY UNKNOWN any text\r\n", Ok(Some(Header::Local))),
        (long.as_bytes(), Ok(Some(Header::Local))),
        (too_long.as_bytes(), Err(HeaderError::TooLong)),
        (b"", Ok(None)),
        (b"PROXY TCP4 192.0.2.1", Ok(None)),
        (b"GET / HTTP/1.1\r\n", Err(HeaderError::Missing)),
        (b"PRI * HTTP/2.0\r\n", Err(HeaderError::Missing)),
        (b"\r\n\r\nGET", Err(HeaderError::Missing)),
        (b"\x16\x03\x01", Err(HeaderError::Missing)),
        (
            b"PROXY TCP4 192.0.2.1 198.51.100.2 50000 80\n",
            Err(HeaderError::Malformed),
        ),
        (
            b"PROXY TCP4 192.0.2.1 198.51.100.2 50000\r\n",
            Err(HeaderError::Malformed),
        ),
        (
            b"PROXY TCP4 192.0.2.1 198.51.100.2 1 2 3\r\n",
            Err(HeaderError::Malformed),
        ),
        (
            b"PROXY TCP4  192.0.2.1 198.51.100.2 1 2\r\n",
            Err(HeaderError::Malformed),
        ),
        (
            b"PROXY TCP4 192.0.2.1 198.51.100.2 01 2\r\n",
            Err(HeaderError::Malformed),
        ),
        (
            b"PROXY TCP4 192.0.2.1 198.51.100.2 +1 2\r\n",
            Err(HeaderError::Malformed),
        ),
        (
            b"PROXY TCP4 192.0.2.1 198.51.100.2 65536 2\r\n",
            Err(HeaderError::Malformed),
        ),
        (
            b"PROXY TCP4 192.0.2.01 198.51.100.2 1 2\r\n",
            Err(HeaderError::Malformed),
        ),
        (b"PROXY TCP4 ::1 ::1 1 2\r\n", Err(HeaderError::Malformed)),
        (b"PROXY TCP5 ::1 ::1 1 2\r\n", Err(HeaderError::Malformed)),
        (b"PROXY \xff\r\n", Err(HeaderError::Malformed)),
        (b"PROXY \r\n", Err(HeaderError::Malformed)),
        (b"\r\n\r\n\0\r\nQUIT\n\x20\xff\0\0", Ok(Some(Header::Local))),
        (
            b"\r\n\r\n\0\r\nQUIT\n\x20\x11\0\x03abc",
            Ok(Some(Header::Local)),
        ),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\0\0\0", Ok(Some(Header::Local))),
        // Datagrams: the address is not used.
        (
            b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0c\xc0\0\x02\x01\xc6\x33\x64\x02\xc3\x50\0\x50",
            Ok(Some(Header::Local)),
        ),
        (
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc6\x33\x64\x02\xc3\x50\0\x50",
            pair("192.0.2.1:50000", "198.51.100.2:80"),
        ),
        (
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0b",
            Err(HeaderError::Malformed),
        ),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x41", Err(HeaderError::Malformed)),
        (b"\r\n\r\n\0\r\nQUIT\n\x22", Err(HeaderError::Malformed)),
        (b"\r\n\r\n\0\r\nQUIT\n\x11", Err(HeaderError::Malformed)),
        (
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
            Err(HeaderError::TooLong),
        ),
    ];
    for (bytes, expected) in cases {
        let result = read(bytes, LEN_MAX).map(|progress| match progress {
            Progress::Incomplete => None,
            Progress::Complete { header, len } => {
                assert_eq!(len, bytes.len());
                Some(header)
            }
        });
        assert_eq!(result, expected, "{}", bytes.escape_ascii());
    }
}

/// A Unix socket has the longest addresses. The limit has no effect on them.
#[test]
fn the_smallest_limit_accepts_all_addresses() {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x31\0\xd8".to_vec();
    bytes.resize(LEN_WITHOUT_EXTENSIONS_MAX, 0);
    let max = LEN_WITHOUT_EXTENSIONS_MAX;
    let expected = Progress::Complete {
        header: Header::Local,
        len: max,
    };
    assert_eq!(read(&bytes, max), Ok(expected));
    assert_eq!(read(&bytes, max - 1), Err(HeaderError::TooLong));
}

#[test]
fn addresses_of_two_families_are_written_as_ipv6() {
    let header = Header::Proxied(Addresses {
        source: "192.0.2.1:1".parse().expect("an address"),
        destination: "[2001:db8::1]:2".parse().expect("an address"),
    });
    for version in [Version::V1, Version::V2] {
        let bytes = written(version, header);
        let Ok(Progress::Complete {
            header: Header::Proxied(pair),
            ..
        }) = read(&bytes, LEN_MAX)
        else {
            panic!("{}", bytes.escape_ascii());
        };
        assert_eq!(pair.source.to_string(), "[::ffff:192.0.2.1]:1");
    }
}

/// Method: extensions before and after the one about TLS, and each value of its first byte.
#[test]
fn the_extension_about_tls_says_if_the_client_used_it() {
    let with = |extensions: &[u8]| {
        let mut bytes =
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc6\x33\x64\x02\xc3\x50\0\x50"
                .to_vec();
        bytes[15] += u8::try_from(extensions.len()).expect("few bytes");
        bytes.extend_from_slice(extensions);
        assert!(matches!(
            read(&bytes, LEN_MAX),
            Ok(Progress::Complete { .. })
        ));
        bytes
    };
    for client in 0..=255_u8 {
        let ssl = [0x20, 0, 5, client, 0, 0, 0, 0];
        let [alone, between] = [
            ssl.to_vec(),
            [&[4, 0, 1, 9][..], &ssl, &[1, 0, 2, b'h', b'2']].concat(),
        ];
        for extensions in [alone, between] {
            assert_eq!(
                client_uses_tls(&with(&extensions)),
                client & 1 == 1,
                "{client}"
            );
        }
    }
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\x11\0\x08\x20\0\x05\x01\0\0\0\0";
    for header in [
        &with(b"")[..],
        &with(b"\x20\0\0"),
        &with(b"\x20\0\x09\x01\0\0\0\0"), // longer than the header
        &with(b"\x04\0\x04\x20\0\x01\x01"),
        local,
        b"PROXY TCP4 192.0.2.1 198.51.100.2 50000 443\r\n",
        b"",
    ] {
        assert!(!client_uses_tls(header), "{}", header.escape_ascii());
    }
}
