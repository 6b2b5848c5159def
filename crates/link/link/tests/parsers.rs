//! Property tests of the parsers for untrusted input: the labels by which an endpoint opens a stream to a target,
//! and the requests of proxy clients. The expected results are the values from which a request was generated, the
//! address parser of the standard library, and httparse.

use std::net::{IpAddr, SocketAddr};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::sample;
use proptest::strategy::Strategy;

use edgeward_dedup::wire::StreamId;
use edgeward_link::socks::{HEAD_BYTES_MAX, Phase, ProxyProtocol, Step, read};
use edgeward_link::{HostPort, Label, Target};

fn hosts() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9_-]{1,20}(\\.[A-Za-z0-9-]{1,20}){0,3}",
        any::<std::net::Ipv4Addr>().prop_map(|host| host.to_string()),
        any::<std::net::Ipv6Addr>().prop_map(|host| host.to_string()),
    ]
}

fn targets() -> impl Strategy<Value = (String, u16)> {
    (hosts(), 1..=u16::MAX)
}

fn text(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Generates text that is similar to a host and port but mostly not valid.
fn nearly_a_target() -> impl Strategy<Value = String> {
    let (host, port) = (
        "[a-c.\\[\\]:_ /@\u{e9}\n%-]{0,8}|[0-9a-f:.\\[\\]]{0,12}",
        "[0-9+ -]{0,6}",
    );
    (host, option::of(port)).prop_map(|(host, port)| match port {
        Some(port) => format!("{host}:{port}"),
        None => host,
    })
}

const WRONG_VERSIONS: [&str; 5] = ["HTTP/1.", "HTTP/1.1x", "HTTP/2", "http/1.1", "HTTP/1.1 x"];

proptest! {
    /// A parsed target has the host in lower case and the port from which the text was generated.
    #[test]
    fn targets_are_parsed_as_written((host, port) in targets()) {
        let target: HostPort = text(&host, port).parse().expect("the text is a host and a port");
        prop_assert_eq!(&target.host, &host.to_ascii_lowercase());
        prop_assert_eq!(target.port, port);
        prop_assert_eq!(target.to_string().parse::<HostPort>(), Ok(target));
    }

    /// An accepted target has a name of letters, digits, `-`, `_` and `.`, or an address, and a port of digits.
    /// Every socket address of the standard library is accepted, except those with port 0 or an IPv6 zone.
    #[test]
    fn other_text_is_not_a_target(text in nearly_a_target()) {
        if let Ok(target) = text.parse::<HostPort>() {
            let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            let is_address = target.host.parse::<IpAddr>().is_ok();
            prop_assert!(is_address || (!target.host.is_empty() && target.host.bytes().all(is_name_byte)), "{target}");
            let digits = text.rsplit(':').next().expect("split returns at least one part");
            prop_assert!(target.port > 0 && digits.bytes().all(|byte| byte.is_ascii_digit()), "{text:?}");
            prop_assert_eq!(target.to_string().parse::<HostPort>(), Ok(target));
        } else if let Ok(addr) = text.parse::<SocketAddr>() {
            prop_assert!(addr.port() == 0 || text.contains('%'), "{text} was refused");
        }
    }

    /// Every label is decoded as it was encoded.
    #[test]
    fn labels_are_decoded_as_encoded((host, port) in targets(), stream in any::<u64>()) {
        let target: HostPort = text(&host, port).parse().expect("the text is a host and a port");
        let labels = [
            Label::Open(Target::Tcp(target)),
            Label::Open(Target::Origin),
            Label::Answer(StreamId(stream)),
        ];
        for label in labels {
            prop_assert_eq!(Label::decode(&label.encode()), Some(label));
        }
    }

    /// Bytes are decoded as a label if and only if they are a valid label.
    #[test]
    fn other_labels_are_refused(
        kind in 0_u8..6,
        rest in prop_oneof![vec(any::<u8>(), 0..11), nearly_a_target().prop_map(String::into_bytes)],
    ) {
        let bytes = [&[kind], &rest[..]].concat();
        let decoded = Label::decode(&bytes);
        // The kinds are a TCP target, the answer to a stream with a number of 8 bytes, and the HTTP origin.
        let is_valid = match kind {
            1 => std::str::from_utf8(&rest).ok().and_then(|rest| rest.parse::<HostPort>().ok()).is_some(),
            2 => rest.len() == 8,
            3 => rest.is_empty(),
            _ => false,
        };
        prop_assert_eq!(decoded.is_some(), is_valid);
        if let Some(label) = decoded {
            prop_assert_eq!(Label::decode(&label.encode()), Some(label));
        }
    }

    /// A SOCKS5 request is parsed to the target from which it was generated. A message is parsed when its last
    /// byte is received, and not earlier.
    #[test]
    fn socks_requests_are_parsed_as_built(
        (host, port) in targets(),
        others in vec(1_u8..255, 0..20),
        after in vec(any::<u8>(), 0..20),
        reserved in any::<u8>(),
    ) {
        let at = others.len() / 2;
        let methods = [&others[..at], &[0], &others[at..]].concat();
        let greeting = [&[5, methods.len() as u8], &methods[..]].concat();
        for end in 0..greeting.len() {
            prop_assert_eq!(read(&greeting[..end], Phase::First, None), Step::ReadMore);
        }
        let received = [&greeting[..], &after].concat();
        let reply = vec![5, 0];
        let accepted = Step::Reply { reply, used: greeting.len(), next: Phase::Request };
        prop_assert_eq!(read(&received, Phase::First, None), accepted);

        let address = match host.parse::<IpAddr>() {
            Ok(IpAddr::V4(host)) => [&[1][..], &host.octets()].concat(),
            Ok(IpAddr::V6(host)) => [&[4][..], &host.octets()].concat(),
            Err(_) => [&[3, host.len() as u8][..], host.as_bytes()].concat(),
        };
        let request = [&[5, 1, reserved][..], &address, &port.to_be_bytes()].concat();
        for end in 0..request.len() {
            prop_assert_eq!(read(&request[..end], Phase::Request, None), Step::ReadMore);
        }
        let target: HostPort = text(&host, port).parse().expect("the text is a host and a port");
        let connect = Step::Connect { target, protocol: ProxyProtocol::Socks, used: request.len() };
        prop_assert_eq!(read(&[&request[..], &after].concat(), Phase::Request, None), connect);
    }

    /// The head of a CONNECT request is parsed with the same result as by httparse.
    #[test]
    fn connect_is_parsed_as_httparse_does(
        method in prop_oneof![4 => Just("CONNECT".to_owned()), 1 => "[A-Za-z ]{0,8}"],
        target in prop_oneof![targets().prop_map(|(host, port)| text(&host, port)), nearly_a_target()],
        version in prop_oneof![4 => Just("HTTP/1.1"), 1 => Just("HTTP/1.0"), 1 => sample::select(&WRONG_VERSIONS[..])],
        fields in vec("[A-Za-z-]{1,10}: [ -~]{0,20}", 0..4),
        after in vec(any::<u8>(), 0..20),
    ) {
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        let head = format!("{method} {target} {version}\r\n{fields}\r\n");
        let received = [head.as_bytes(), &after].concat();
        let mut slots = [httparse::EMPTY_HEADER; 8];
        let mut request = httparse::Request::new(&mut slots);
        let status = request.parse(&received);
        let expected = match status {
            Ok(httparse::Status::Complete(used)) if request.method == Some("CONNECT") => {
                let target = request.path.and_then(|path| path.parse::<HostPort>().ok());
                target.map(|target| Step::Connect { target, protocol: ProxyProtocol::Http, used })
            }
            _ => None,
        };
        match (read(&received, Phase::First, None), expected) {
            (Step::Refuse { reply, .. }, None) => {
                prop_assert!(reply.starts_with(b"HTTP/1.1 4") || reply.starts_with(&[5]));
            }
            (step, Some(expected)) => prop_assert_eq!(step, expected),
            (step, None) => prop_assert!(false, "{head:?}: {step:?}, and httparse: {status:?}"),
        }
        for end in 1..head.len() {
            prop_assert_eq!(read(&received[..end], Phase::First, None), Step::ReadMore, "{:?}", &head[..end]);
        }
    }

    /// The first step does not depend on whether the bytes are received one by one or all at once. It consumes
    /// no more bytes than were received.
    #[test]
    fn messages_may_arrive_in_pieces(
        bytes in vec(prop_oneof![any::<u8>(), sample::select(&b"\x05\x00\x01\x03\r\n :CONE"[..])], 0..60),
        phase in sample::select(&[Phase::First, Phase::Password, Phase::Request][..]),
    ) {
        let whole = read(&bytes, phase, None);
        let first = (0..bytes.len()).map(|end| read(&bytes[..end], phase, None)).find(|step| *step != Step::ReadMore);
        prop_assert_eq!(&first.unwrap_or_else(|| whole.clone()), &whole);
        match whole {
            Step::Reply { used, .. } | Step::Connect { used, .. } => prop_assert!((1..=bytes.len()).contains(&used)),
            Step::Refuse { reply, .. } => prop_assert!(!reply.is_empty()),
            Step::ReadMore => prop_assert!(bytes.len() < HEAD_BYTES_MAX),
        }
    }
}
