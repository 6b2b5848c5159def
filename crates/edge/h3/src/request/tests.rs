use super::*;
use crate::error::ErrorCode;
use crate::qpack::encoder::{begin_section, push_field};

pub(crate) fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = Vec::new();
    begin_section(&mut section);
    for (name, value) in fields {
        push_field(&mut section, name.as_bytes(), value.as_bytes(), false);
    }
    section
}

fn decoded(fields: &[(&str, &str)]) -> Result<RequestHead, StreamError> {
    let head = decode_request(&section(fields), SectionLimits::default(), true);
    head.map_err(|error| match error {
        Error::Stream(error) => error,
        Error::Connection(error) => panic!("{error} ends the connection"),
    })
}

const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "example.com"),
    (":path", "/a?b"),
];

/// The fields of [`GET`] with other ones in place of some, then more.
fn get_with(fields: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    let mut request = GET.to_vec();
    request.retain(|(name, _)| fields.iter().all(|(other, _)| other != name));
    let is_pseudo = |field: &&(&str, &str)| field.0.starts_with(':');
    request.extend(fields.iter().filter(is_pseudo));
    request.extend(fields.iter().filter(|field| !is_pseudo(field)));
    request
}

#[track_caller]
fn is_malformed(fields: &[(&str, &str)], reason: &str) {
    let error = decoded(fields).map(|head| format!("{head:?}"));
    let error = error.expect_err("the request is malformed");
    assert_eq!(error.code, ErrorCode::H3_MESSAGE_ERROR);
    assert_eq!(error.status.map(|status| status.as_u16()), Some(400));
    assert!(error.reason.contains(reason), "{error}");
}

#[test]
fn a_request_has_method_target_and_fields() {
    let fields = get_with(&[
        ("cookie", "a=1"),
        ("te", "trailers"),
        ("cookie", "b=2"),
        ("x", ""),
    ]);
    let head = decoded(&fields).expect("the request is valid");
    assert_eq!(head.method, Method::GET);
    assert_eq!(head.uri, "https://example.com/a?b");
    let cookies: Vec<_> = head.headers.get_all("cookie").iter().collect();
    assert_eq!(cookies, ["a=1", "b=2"]);
    assert_eq!(head.headers["x"], "");
    assert_eq!((head.protocol, head.content_length), (None, None));
}

#[test]
fn the_authority_may_be_in_host_alone() {
    let fields = [GET[0], GET[1], GET[3], ("host", "example.com")];
    let head = decoded(&fields).expect("the request is valid");
    assert_eq!(head.uri, "/a?b");
    assert_eq!(head.headers["host"], "example.com");
    is_malformed(&[GET[0], GET[1], GET[3]], "neither");
}

/// RFC 9114 §4.3.1. Texts that the edge reads as one authority are equal.
#[test]
fn host_and_authority_agree() {
    for host in [
        "example.com",
        "EXAMPLE.com",
        "example.com:443",
        "example.com.",
    ] {
        assert!(decoded(&get_with(&[("host", host)])).is_ok(), "{host}");
    }
    for host in ["example.org", "example.com:80", "a.example.com"] {
        is_malformed(&get_with(&[("host", host)]), "Host differs");
    }
    is_malformed(
        &get_with(&[("host", "example.com"), ("host", "example.com")]),
        "more than one",
    );
    for authority in [
        "",
        "user@example.com",
        "a,b",
        "example.com:99999",
        "[::1",
        "a b",
    ] {
        is_malformed(&get_with(&[(":authority", authority)]), "authority");
    }
    is_malformed(&get_with(&[("host", "")]), "host[:port]");
}

#[test]
fn each_pseudo_header_field_occurs_once_and_first() {
    for missing in [0, 1, 3] {
        let mut fields = GET.to_vec();
        let (name, _) = fields.remove(missing);
        is_malformed(&fields, &format!("no {name}"));
    }
    for repeated in GET {
        is_malformed(&[&GET[..], &[repeated]].concat(), "repeated");
    }
    is_malformed(&[GET[0], GET[1], GET[2], ("x", "y"), GET[3]], "follows");
    is_malformed(&get_with(&[(":status", "200")]), "do not have");
    is_malformed(&get_with(&[(":unknown", "")]), "do not have");
    is_malformed(&get_with(&[(":", "")]), "do not have");
}

#[test]
fn pseudo_header_fields_have_valid_values() {
    for method in ["", "GET /", "GET\r\n", "GE T", "G\u{e4}T"] {
        is_malformed(&get_with(&[(":method", method)]), ":method");
    }
    for scheme in ["", "ht tp", "https\n", "1:/"] {
        is_malformed(&get_with(&[(":scheme", scheme)]), ":scheme");
    }
    for path in [
        "",
        "a",
        "/a b",
        "/a\r\nX: y",
        "/\0",
        "/a#b",
        "http://example.com/",
        " /",
        "/\t",
    ] {
        is_malformed(&get_with(&[(":path", path)]), ":path");
    }
    is_malformed(&get_with(&[(":path", "*")]), "OPTIONS");
    let head = decoded(&get_with(&[(":method", "OPTIONS"), (":path", "*")]));
    assert_eq!(head.expect("the request is valid").uri.path(), "*");
}

/// Method: the characters that RFC 3986 reserves as delimiters, in path and query.
#[test]
fn delimiters_of_a_path_are_encoded() {
    let head = decoded(&get_with(&[(":path", "/<a>?\"`")])).expect("the request is valid");
    assert_eq!(
        head.uri.path_and_query().map(|path| path.as_str()),
        Some("/%3Ca%3E?%22`")
    );
}

#[test]
fn names_and_values_of_fields_are_valid() {
    for name in ["X-A", "x a", "x:", "x\r\n", "", "x\0", "\u{e4}", "x-\u{7f}"] {
        is_malformed(&get_with(&[(name, "y")]), "name of a field");
    }
    for value in ["a\rb", "a\nb", "a\0b", "\r\nx: y", "\u{1}", "\u{7f}"] {
        is_malformed(&get_with(&[("x", value)]), "control characters");
    }
    for value in [" a", "a ", "\ta", "a\t", " "] {
        is_malformed(&get_with(&[("x", value)]), "spaces around");
    }
    for value in ["", "a b", "a\tb", "\u{e4}"] {
        assert!(decoded(&get_with(&[("x", value)])).is_ok(), "{value:?}");
    }
}

#[test]
fn fields_of_connections_are_refused() {
    for name in [
        "connection",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
    ] {
        is_malformed(&get_with(&[(name, "x")]), "connections");
    }
    for te in ["", "gzip", "trailers, gzip", "Trailers"] {
        is_malformed(&get_with(&[("te", te)]), "TE");
    }
}

#[test]
fn content_length_is_one_number() {
    let length =
        |text| decoded(&get_with(&[("content-length", text)])).map(|head| head.content_length);
    assert_eq!(length("0"), Ok(Some(0)));
    assert_eq!(length("18446744073709551615"), Ok(Some(u64::MAX)));
    for text in [
        "",
        "-1",
        "+1",
        "1, 1",
        "0x1",
        "1.0",
        "18446744073709551616",
        "\u{663}",
    ] {
        is_malformed(&get_with(&[("content-length", text)]), "Content-Length");
    }
    is_malformed(
        &get_with(&[("content-length", "1"), ("content-length", "1")]),
        "Content-Length",
    );
}

#[test]
fn connect_has_an_authority_alone() {
    let connect = (":method", "CONNECT");
    let head =
        decoded(&[connect, (":authority", "example.com:443")]).expect("the request is valid");
    assert_eq!(head.method, Method::CONNECT);
    assert_eq!(head.uri, "example.com:443");
    is_malformed(&[connect], "neither");
    is_malformed(&[connect, ("host", "example.com:443")], "no :authority");
    is_malformed(
        &[connect, GET[1], (":authority", "example.com:443")],
        ":scheme or :path",
    );
    is_malformed(
        &[connect, GET[3], (":authority", "example.com:443")],
        ":scheme or :path",
    );
}

/// RFC 9220 §3, RFC 8441 §4.
#[test]
fn extended_connect_has_a_protocol_and_a_target() {
    let fields = get_with(&[(":method", "CONNECT"), (":protocol", "websocket")]);
    let head = decoded(&fields).expect("the request is valid");
    assert_eq!(head.uri, "https://example.com/a?b");
    assert_eq!(head.protocol.as_deref(), Some("websocket"));
    let disabled = decode_request(&section(&fields), SectionLimits::default(), false);
    assert_eq!(
        disabled.expect_err("it is disabled").code(),
        ErrorCode::H3_MESSAGE_ERROR
    );
    is_malformed(&get_with(&[(":protocol", "websocket")]), "only CONNECT");
    is_malformed(
        &get_with(&[(":method", "CONNECT"), (":protocol", "a b")]),
        ":protocol",
    );
    let length = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        ("content-length", "0"),
    ];
    is_malformed(&get_with(&length), "CONNECT has Content-Length");
    let connect = [(":method", "CONNECT"), (":protocol", "websocket")];
    is_malformed(&[&connect[..], &GET[2..]].concat(), "no :scheme");
    is_malformed(&[&connect[..], &GET[1..3]].concat(), "no :path");
}

#[test]
fn trailers_are_fields_alone() {
    let trailers =
        |fields: &[(&str, &str)]| decode_trailers(&section(fields), SectionLimits::default());
    assert_eq!(
        trailers(&[("x", "y")]).expect("the trailers are valid")["x"],
        "y"
    );
    for fields in [
        [(":path", "/")],
        [("X", "y")],
        [("connection", "x")],
        [("x", "\n")],
    ] {
        let error = trailers(&fields).expect_err("the trailers are malformed");
        assert_eq!(error.code(), ErrorCode::H3_MESSAGE_ERROR, "{fields:?}");
    }
}
