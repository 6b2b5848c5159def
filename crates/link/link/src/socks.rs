//! Parses the requests of a proxy client: SOCKS5 (RFC 1928) or HTTP CONNECT (RFC 9110, section 9.3.6). The first byte
//! of the request distinguishes the protocols.
//!
//! The functions here do no input or output: they take the received bytes and return the next step. SOCKS5 is
//! supported without authentication. Every client that reaches the port can use the proxy, so the port listens on a
//! loopback address by default.

use crate::label::{HostPort, refusal_reason};

/// The next step of the caller after it has received a part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read more bytes.
    ReadMore,
    /// Send a reply and continue reading.
    Reply {
        /// The reply.
        reply: Vec<u8>,
        /// The length of the parsed message in bytes. The next message begins after these bytes.
        used: usize,
    },
    /// Connect to a target.
    Connect {
        /// The target.
        target: HostPort,
        /// The protocol of the reply.
        protocol: ProxyProtocol,
        /// The length of the request in bytes. The client's payload begins after these bytes.
        used: usize,
    },
    /// Send this reply and close the connection.
    Refuse(Vec<u8>),
}

/// The protocol that a client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// SOCKS5.
    Socks,
    /// HTTP CONNECT.
    Http,
}

/// Parses a message of the client. `greeted` is true if a SOCKS5 greeting was already parsed and answered.
pub fn read(bytes: &[u8], greeted: bool) -> Step {
    match bytes.first() {
        None => Step::ReadMore,
        Some(&VERSION) if greeted => read_request(bytes),
        Some(&VERSION) => read_greeting(bytes),
        _ if greeted => Step::Refuse(socks_reply(FAILURE)),
        _ => read_connect(bytes),
    }
}

/// Returns the reply to the client: the gateway has connected to the target, or the attempt failed with a reason of
/// [`refusal_reason`].
pub fn reply(protocol: ProxyProtocol, outcome: Result<(), u32>) -> Vec<u8> {
    match (protocol, outcome) {
        (ProxyProtocol::Socks, Ok(())) => socks_reply(0),
        (ProxyProtocol::Socks, Err(reason)) => socks_reply(match reason {
            refusal_reason::NOT_ALLOWED => 2,
            refusal_reason::LINK_DOWN => 3,
            refusal_reason::NO_SUCH_HOST => 4,
            refusal_reason::UNREACHABLE => 5,
            refusal_reason::TIMEOUT => 6,
            _ => FAILURE,
        }),
        (ProxyProtocol::Http, Ok(())) => b"HTTP/1.1 200 Connection Established\r\n\r\n".to_vec(),
        (ProxyProtocol::Http, Err(reason)) => http_refusal(
            match reason {
                refusal_reason::NOT_ALLOWED => "403 Forbidden",
                refusal_reason::LINK_DOWN => "503 Service Unavailable",
                refusal_reason::TIMEOUT => "504 Gateway Timeout",
                _ => "502 Bad Gateway",
            },
            refusal_reason::describe(reason),
        ),
    }
}

/// Parses the SOCKS5 greeting: the authentication methods that the client supports (RFC 1928, section 3).
fn read_greeting(bytes: &[u8]) -> Step {
    let Some(&methods) = bytes.get(1) else {
        return Step::ReadMore;
    };
    let used = 2 + usize::from(methods);
    match bytes.get(2..used) {
        None => Step::ReadMore,
        Some(methods) if methods.contains(&NO_AUTHENTICATION) => Step::Reply {
            reply: vec![VERSION, NO_AUTHENTICATION],
            used,
        },
        // 255: the proxy accepts none of the client's methods.
        Some(_) => Step::Refuse(vec![VERSION, 0xff]),
    }
}

/// Parses the SOCKS5 request (RFC 1928, section 4).
fn read_request(bytes: &[u8]) -> Step {
    let (Some(&command), Some(&kind)) = (bytes.get(1), bytes.get(3)) else {
        return Step::ReadMore;
    };
    if command != CONNECT {
        return Step::Refuse(socks_reply(COMMAND_NOT_SUPPORTED));
    }
    let (start, length) = match kind {
        IPV4 => (4, 4),
        IPV6 => (4, 16),
        NAME => match bytes.get(4) {
            None => return Step::ReadMore,
            Some(&length) => (5, usize::from(length)),
        },
        _ => return Step::Refuse(socks_reply(ADDRESS_TYPE_NOT_SUPPORTED)),
    };
    let used = start + length + 2;
    let Some(port) = bytes.get(start + length..used) else {
        return Step::ReadMore;
    };
    let port = u16::from_be_bytes([port[0], port[1]]);
    let host = &bytes[start..start + length];
    let host = match kind {
        IPV4 => <[u8; 4]>::try_from(host)
            .ok()
            .map(|host| std::net::Ipv4Addr::from(host).to_string()),
        IPV6 => <[u8; 16]>::try_from(host)
            .ok()
            .map(|host| format!("[{}]", std::net::Ipv6Addr::from(host))),
        _ => std::str::from_utf8(host).ok().map(str::to_owned),
    };
    match host.and_then(|host| format!("{host}:{port}").parse().ok()) {
        Some(target) => Step::Connect {
            target,
            protocol: ProxyProtocol::Socks,
            used,
        },
        None => Step::Refuse(socks_reply(FAILURE)),
    }
}

/// Parses the head of an HTTP CONNECT request.
fn read_connect(bytes: &[u8]) -> Step {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return if bytes.len() >= HEAD_BYTES_MAX {
            Step::Refuse(http_refusal(
                "431 Request Header Fields Too Large",
                "the head is too long",
            ))
        } else {
            Step::ReadMore
        };
    };
    let line = bytes
        .split(|&byte| byte == b'\r')
        .next()
        .unwrap_or_default();
    let mut words = std::str::from_utf8(line).unwrap_or("").split(' ');
    let method = words.next();
    let (target, version) = (words.next(), words.next());
    let has_version = matches!(version, Some("HTTP/1.0" | "HTTP/1.1"));
    if !has_version || words.next().is_some() {
        return Step::Refuse(http_refusal(
            "400 Bad Request",
            "the request is neither SOCKS5 nor HTTP CONNECT",
        ));
    }
    if method != Some("CONNECT") {
        return Step::Refuse(http_refusal(
            "405 Method Not Allowed",
            "only CONNECT is supported",
        ));
    }
    match target.and_then(|target| target.parse().ok()) {
        Some(target) => Step::Connect {
            target,
            protocol: ProxyProtocol::Http,
            used: end + 4,
        },
        None => Step::Refuse(http_refusal(
            "400 Bad Request",
            "CONNECT requires HOST:PORT",
        )),
    }
}

/// Returns a reply with a code of RFC 1928, section 6.
fn socks_reply(code: u8) -> Vec<u8> {
    // The reply contains the bound address of the proxy. Clients ignore it, so it is zero.
    vec![VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0]
}

fn http_refusal(status: &str, why: &str) -> Vec<u8> {
    let length = why.len() + 1;
    format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: text/plain\r\n\
         Content-Length: {length}\r\n\r\n{why}\n"
    )
    .into_bytes()
}

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
const FAILURE: u8 = 1;
const COMMAND_NOT_SUPPORTED: u8 = 7;
const ADDRESS_TYPE_NOT_SUPPORTED: u8 = 8;

/// The head of a CONNECT request is refused if it is incomplete after this number of bytes. SOCKS5 messages need no
/// limit: the longest has 262 bytes.
pub const HEAD_BYTES_MAX: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    fn host_port(text: &str) -> HostPort {
        text.parse().expect("the text is a host and a port")
    }

    /// A message is parsed when all its bytes are received. With fewer bytes, the parser requests more.
    #[test]
    fn a_message_is_parsed_when_it_is_complete() {
        let name = [&[5, 1, 0, 3, 2][..], b"db", &[0x0c, 0xea]].concat();
        let messages: [(&[u8], bool, &str, ProxyProtocol); 4] = [
            (
                &[5, 1, 0, 1, 127, 0, 0, 1, 0, 80],
                true,
                "127.0.0.1:80",
                ProxyProtocol::Socks,
            ),
            (&name, true, "db:3306", ProxyProtocol::Socks),
            (
                &[
                    5, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 187,
                ],
                true,
                "[::1]:443",
                ProxyProtocol::Socks,
            ),
            (
                b"CONNECT db:3306 HTTP/1.1\r\nHost: db:3306\r\n\r\n",
                false,
                "db:3306",
                ProxyProtocol::Http,
            ),
        ];
        for (message, greeted, target, protocol) in messages {
            for end in 0..message.len() {
                assert_eq!(
                    read(&message[..end], greeted),
                    Step::ReadMore,
                    "{target} {end}"
                );
            }
            let more = [message, b"and its bytes"].concat();
            let connect = Step::Connect {
                target: host_port(target),
                protocol,
                used: message.len(),
            };
            assert_eq!(read(&more, greeted), connect);
        }
        assert_eq!(read(&[5, 2, 2], false), Step::ReadMore);
        let reply = vec![5, 0];
        assert_eq!(read(&[5, 2, 2, 0], false), Step::Reply { reply, used: 4 });
    }

    #[test]
    fn an_unsupported_request_is_refused_in_its_protocol() {
        let refused = |bytes: &[u8], greeted| match read(bytes, greeted) {
            Step::Refuse(reply) => reply,
            other => panic!("{bytes:?}: {other:?}"),
        };
        assert_eq!(refused(&[5, 1, 2], false), [5, 0xff]);
        assert_eq!(refused(&[5, 2, 0, 1, 0], true)[..2], [5, 7]);
        assert_eq!(refused(&[5, 1, 0, 9, 0], true)[..2], [5, 8]);
        assert_eq!(refused(&[5, 1, 0, 3, 1, b'/', 0, 80], true)[..2], [5, 1]);
        assert_eq!(
            refused(&[5, 1, 0, 1, 1, 2, 3, 4, 0, 0], true)[..2],
            [5, 1],
            "port 0"
        );
        for (head, status) in [
            (&b"GET http://a/ HTTP/1.1\r\n\r\n"[..], "405"),
            (b"CONNECT db HTTP/1.1\r\n\r\n", "400"),
            (b"hello\r\n\r\n", "400"),
            (&[b'x'; HEAD_BYTES_MAX], "431"),
        ] {
            let reply = String::from_utf8(refused(head, false)).expect("the reply is text");
            assert_eq!(&reply[9..12], status);
        }
        assert_eq!(
            reply(ProxyProtocol::Socks, Err(refusal_reason::NOT_ALLOWED))[1],
            2
        );
        assert!(
            reply(ProxyProtocol::Http, Err(refusal_reason::NOT_ALLOWED))
                .starts_with(b"HTTP/1.1 403")
        );
    }
}
