//! Parses the requests of a proxy client: SOCKS5 (RFC 1928) or HTTP CONNECT (RFC 9110, section 9.3.6). The first byte
//! of the request distinguishes the protocols.
//!
//! The functions here do no input or output: they take the received bytes and return the next step.
//!
//! Without [`ProxyUsers`] every client that reaches the port can use the proxy, so the port listens on a loopback
//! address by default. With them, a client must give a user and a password (RFC 1929; for CONNECT the scheme Basic of
//! RFC 7617). They are not encrypted between the client and this port.
//!
//! UDP ASSOCIATE and BIND are refused: the link carries only TCP connections that a client opens.

mod users;

use crate::label::{HostPort, refusal_reason};

pub use users::{ProxyUsers, UsersError};

/// The part of a client's request that is parsed next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The greeting of SOCKS5, or a CONNECT request.
    First,
    /// The user and the password of SOCKS5.
    Password,
    /// The request of SOCKS5.
    Request,
}

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
        /// The part that the next message has.
        next: Phase,
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
    /// Send a reply and close the connection.
    Refuse {
        /// The reply.
        reply: Vec<u8>,
        /// The reason, for the log.
        why: &'static str,
    },
}

/// The protocol that a client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// SOCKS5.
    Socks,
    /// HTTP CONNECT.
    Http,
}

/// Parses a message of the client. If `users` is given, the client must be one of them.
pub fn read(bytes: &[u8], phase: Phase, users: Option<&ProxyUsers>) -> Step {
    match (phase, bytes.first()) {
        (_, None) => Step::ReadMore,
        (Phase::First, Some(&VERSION)) => read_greeting(bytes, users.is_some()),
        (Phase::First, Some(_)) => read_connect(bytes, users),
        (Phase::Password, Some(&PASSWORD_VERSION)) => read_password(bytes, users),
        (Phase::Password, Some(_)) => refuse_password("the message is not a SOCKS5 password"),
        (Phase::Request, Some(&VERSION)) => read_request(bytes),
        (Phase::Request, Some(_)) => refuse_socks(FAILURE, "the message is not a SOCKS5 request"),
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
fn read_greeting(bytes: &[u8], needs_user: bool) -> Step {
    let Some(&methods) = bytes.get(1) else {
        return Step::ReadMore;
    };
    let used = 2 + usize::from(methods);
    match bytes.get(2..used) {
        None => Step::ReadMore,
        Some(methods) if needs_user && methods.contains(&USER_AND_PASSWORD) => Step::Reply {
            reply: vec![VERSION, USER_AND_PASSWORD],
            used,
            next: Phase::Password,
        },
        Some(methods) if !needs_user && methods.contains(&NO_AUTHENTICATION) => Step::Reply {
            reply: vec![VERSION, NO_AUTHENTICATION],
            used,
            next: Phase::Request,
        },
        // 255: the proxy accepts none of the client's methods.
        Some(_) => Step::Refuse {
            reply: vec![VERSION, 0xff],
            why: if needs_user {
                "the client gives no user and password"
            } else {
                "the client requires authentication, and the proxy has no users"
            },
        },
    }
}

/// Parses the user and the password of SOCKS5 (RFC 1929, section 2).
fn read_password(bytes: &[u8], users: Option<&ProxyUsers>) -> Step {
    let Some(user_end) = bytes.get(1).map(|length| 2 + usize::from(*length)) else {
        return Step::ReadMore;
    };
    let Some(used) = bytes
        .get(user_end)
        .map(|length| user_end + 1 + usize::from(*length))
    else {
        return Step::ReadMore;
    };
    let Some(password) = bytes.get(user_end + 1..used) else {
        return Step::ReadMore;
    };
    if users.is_some_and(|users| users.contains(&bytes[2..user_end], password)) {
        Step::Reply {
            reply: vec![PASSWORD_VERSION, 0],
            used,
            next: Phase::Request,
        }
    } else {
        refuse_password("the user or the password is wrong")
    }
}

fn refuse_password(why: &'static str) -> Step {
    Step::Refuse {
        reply: vec![PASSWORD_VERSION, FAILURE],
        why,
    }
}

fn refuse_socks(code: u8, why: &'static str) -> Step {
    Step::Refuse {
        reply: socks_reply(code),
        why,
    }
}

/// Parses the SOCKS5 request (RFC 1928, section 4).
fn read_request(bytes: &[u8]) -> Step {
    let (Some(&command), Some(&kind)) = (bytes.get(1), bytes.get(3)) else {
        return Step::ReadMore;
    };
    let why = match command {
        CONNECT => None,
        UDP_ASSOCIATE => Some("UDP ASSOCIATE is not supported: a link carries only TCP"),
        _ => Some("only the command CONNECT is supported"),
    };
    if let Some(why) = why {
        return refuse_socks(COMMAND_NOT_SUPPORTED, why);
    }
    let (start, length) = match kind {
        IPV4 => (4, 4),
        IPV6 => (4, 16),
        NAME => match bytes.get(4) {
            None => return Step::ReadMore,
            Some(&length) => (5, usize::from(length)),
        },
        _ => {
            let why = "the type of the address is not supported";
            return refuse_socks(ADDRESS_TYPE_NOT_SUPPORTED, why);
        }
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
        None => refuse_socks(FAILURE, "the target is not a host and a port"),
    }
}

/// Parses the head of an HTTP CONNECT request.
fn read_connect(bytes: &[u8], users: Option<&ProxyUsers>) -> Step {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return if bytes.len() >= HEAD_BYTES_MAX {
            refuse_http(
                "431 Request Header Fields Too Large",
                "the head is too long",
            )
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
        return refuse_http(
            "400 Bad Request",
            "the request is neither SOCKS5 nor HTTP CONNECT",
        );
    }
    if method != Some("CONNECT") {
        return refuse_http("405 Method Not Allowed", "only CONNECT is supported");
    }
    if users.is_some_and(|users| !users.permits_head(&bytes[..end])) {
        return refuse_http(
            "407 Proxy Authentication Required",
            "the user or the password is missing or wrong",
        );
    }
    match target.and_then(|target| target.parse().ok()) {
        Some(target) => Step::Connect {
            target,
            protocol: ProxyProtocol::Http,
            used: end + 4,
        },
        None => refuse_http("400 Bad Request", "CONNECT requires HOST:PORT"),
    }
}

/// Returns a reply with a code of RFC 1928, section 6.
fn socks_reply(code: u8) -> Vec<u8> {
    // The reply contains the bound address of the proxy. Clients ignore it, so it is zero.
    vec![VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0]
}

fn refuse_http(status: &str, why: &'static str) -> Step {
    let reply = http_refusal(status, why);
    Step::Refuse { reply, why }
}

fn http_refusal(status: &str, why: &str) -> Vec<u8> {
    let length = why.len() + 1;
    let challenge = if status.starts_with("407") {
        "Proxy-Authenticate: Basic realm=\"edgeward link\"\r\n"
    } else {
        ""
    };
    format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\n{challenge}Content-Type: text/plain\r\n\
         Content-Length: {length}\r\n\r\n{why}\n"
    )
    .into_bytes()
}

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const PASSWORD_VERSION: u8 = 1;
const CONNECT: u8 = 1;
const UDP_ASSOCIATE: u8 = 3;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
const FAILURE: u8 = 1;
const COMMAND_NOT_SUPPORTED: u8 = 7;
const ADDRESS_TYPE_NOT_SUPPORTED: u8 = 8;

/// The head of a CONNECT request is refused if it is incomplete after this number of bytes. SOCKS5 messages need no
/// limit: the longest, a user and a password, has 513 bytes.
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
        let messages: [(&[u8], Phase, &str, ProxyProtocol); 4] = [
            (
                &[5, 1, 0, 1, 127, 0, 0, 1, 0, 80],
                Phase::Request,
                "127.0.0.1:80",
                ProxyProtocol::Socks,
            ),
            (&name, Phase::Request, "db:3306", ProxyProtocol::Socks),
            (
                &[
                    5, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 187,
                ],
                Phase::Request,
                "[::1]:443",
                ProxyProtocol::Socks,
            ),
            (
                b"CONNECT db:3306 HTTP/1.1\r\nHost: db:3306\r\n\r\n",
                Phase::First,
                "db:3306",
                ProxyProtocol::Http,
            ),
        ];
        for (message, phase, target, protocol) in messages {
            for end in 0..message.len() {
                assert_eq!(
                    read(&message[..end], phase, None),
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
            assert_eq!(read(&more, phase, None), connect);
        }
        assert_eq!(read(&[5, 2, 2], Phase::First, None), Step::ReadMore);
        let reply = Step::Reply {
            reply: vec![5, 0],
            used: 4,
            next: Phase::Request,
        };
        assert_eq!(read(&[5, 2, 2, 0], Phase::First, None), reply);
    }

    /// With users, only a client with a right password reaches its request, in both protocols.
    #[test]
    fn clients_must_be_users() {
        let users = ProxyUsers::parse("ann:secret\n").expect("the list is valid");
        let read = |bytes: &[u8], phase| read(bytes, phase, Some(&users));
        let none = read(&[5, 1, 0], Phase::First);
        assert!(matches!(none, Step::Refuse { reply, .. } if reply == [5, 0xff]));
        let asked = Step::Reply {
            reply: vec![5, 2],
            used: 4,
            next: Phase::Password,
        };
        assert_eq!(read(&[5, 2, 0, 2], Phase::First), asked);
        let message = |password: &str| {
            let length = password.len() as u8;
            [&[1, 3][..], b"ann", &[length], password.as_bytes()].concat()
        };
        let right = message("secret");
        for end in 0..right.len() {
            assert_eq!(
                read(&right[..end], Phase::Password),
                Step::ReadMore,
                "{end}"
            );
        }
        let accepted = Step::Reply {
            reply: vec![1, 0],
            used: right.len(),
            next: Phase::Request,
        };
        assert_eq!(read(&right, Phase::Password), accepted);
        for wrong in [message("Secret"), message(""), vec![5, 1, 0]] {
            let refused = read(&wrong, Phase::Password);
            assert!(matches!(refused, Step::Refuse { reply, .. } if reply == [1, 1]));
        }
        // `printf ann:secret | base64`, and the same with another password.
        for (field, accepted) in [
            ("proxy-authorization: basic YW5uOnNlY3JldA==\r\n", true),
            ("Proxy-Authorization: Basic YW5uOlNlY3JldA==\r\n", false),
            ("Authorization: Basic YW5uOnNlY3JldA==\r\n", false),
            ("", false),
        ] {
            let head = format!("CONNECT db:1 HTTP/1.1\r\n{field}\r\n");
            match read(head.as_bytes(), Phase::First) {
                Step::Connect { .. } => assert!(accepted, "{field}"),
                Step::Refuse { reply, .. } => {
                    assert!(!accepted && reply.starts_with(b"HTTP/1.1 407"), "{field}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn an_unsupported_request_is_refused_in_its_protocol() {
        let refused = |bytes: &[u8], phase| match read(bytes, phase, None) {
            Step::Refuse { reply, .. } => reply,
            other => panic!("{bytes:?}: {other:?}"),
        };
        assert_eq!(refused(&[5, 1, 2], Phase::First), [5, 0xff]);
        for command in [2, 3] {
            let reply = refused(&[5, command, 0, 1, 0], Phase::Request);
            assert_eq!(reply[..2], [5, 7], "BIND and UDP ASSOCIATE");
        }
        assert_eq!(refused(&[5, 1, 0, 9, 0], Phase::Request)[..2], [5, 8]);
        assert_eq!(
            refused(&[5, 1, 0, 3, 1, b'/', 0, 80], Phase::Request)[..2],
            [5, 1]
        );
        assert_eq!(
            refused(&[5, 1, 0, 1, 1, 2, 3, 4, 0, 0], Phase::Request)[..2],
            [5, 1],
            "port 0"
        );
        for (head, status) in [
            (&b"GET http://a/ HTTP/1.1\r\n\r\n"[..], "405"),
            (b"CONNECT db HTTP/1.1\r\n\r\n", "400"),
            (b"hello\r\n\r\n", "400"),
            (&[b'x'; HEAD_BYTES_MAX], "431"),
        ] {
            let reply = String::from_utf8(refused(head, Phase::First)).expect("the reply is text");
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
