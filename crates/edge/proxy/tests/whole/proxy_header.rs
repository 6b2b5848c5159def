//! Listeners on which proxies begin each connection with a PROXY header (`listener.proxy_protocol_from`).

use std::process::Command;
use std::time::Duration;

use edgeward_proxy::config::{AccessLogConfig, ClientField, LogDestination, LogFormat, Networks};
use edgeward_proxy_protocol::{Addresses, Header, Version, write};
use edgeward_testkit::Answer;
use edgeward_testkit::client::exchange;
use edgeward_types::ByteSize;

use crate::support::TestBed;

/// Starts an edge whose proxies are in these networks.
fn behind(networks: &str) -> TestBed {
    let bed = TestBed::with_config(|config| {
        config.listeners[0].proxy_protocol_from = Some(self::networks(networks));
        config.limits.proxy_header_bytes_max = ByteSize::kib(1);
    });
    bed.origin.otherwise(|_| Answer::ok("text"));
    bed
}

fn networks(text: &str) -> Networks {
    text.parse().expect("the networks are valid")
}

/// Returns a header for the client 192.0.2.7.
fn header(version: Version) -> Vec<u8> {
    let mut bytes = Vec::new();
    let addresses = Addresses {
        source: "192.0.2.7:5000".parse().expect("an address"),
        destination: "198.51.100.1:80".parse().expect("an address"),
    };
    write(version, Header::Proxied(addresses), &mut bytes);
    bytes
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
}

/// Returns `X-Forwarded-For` of the last request for a path.
fn forwarded_for(bed: &TestBed, path: &str) -> Option<String> {
    let request = bed.origin.last(path).expect("the origin got the request");
    request.header("x-forwarded-for").map(str::to_owned)
}

/// Sends bytes on a new connection and returns all bytes of the response. A reset counts as the end.
fn response(bed: &TestBed, bytes: &[u8]) -> String {
    String::from_utf8(exchange(bed.addr(), bytes)).expect("the response is text")
}

#[test]
fn the_client_of_a_header_is_the_client_of_the_request() {
    let bed = behind("127.0.0.0/8");
    for (version, path) in [(Version::V1, "/v1"), (Version::V2, "/v2")] {
        let bytes = [&header(version), request(path).as_bytes()].concat();
        assert!(response(&bed, &bytes).starts_with("HTTP/1.1 200"));
        assert_eq!(forwarded_for(&bed, path).as_deref(), Some("192.0.2.7"));
    }
}

/// Method: each byte of header and request is sent alone.
#[test]
fn a_header_may_arrive_in_pieces() {
    let bed = behind("127.0.0.0/8");
    for (version, path) in [(Version::V1, "/v1"), (Version::V2, "/v2")] {
        let mut wire = bed.connect();
        for byte in [&header(version), request(path).as_bytes()].concat() {
            wire.send([byte]);
        }
        assert!(wire.read_to_end().starts_with("HTTP/1.1 200"));
        assert_eq!(forwarded_for(&bed, path).as_deref(), Some("192.0.2.7"));
    }
}

#[test]
fn a_header_without_a_client_leaves_the_proxy_as_the_client() {
    let bed = behind("127.0.0.0/8");
    let bytes = format!("PROXY UNKNOWN\r\n{}", request("/a"));
    assert!(response(&bed, bytes.as_bytes()).starts_with("HTTP/1.1 200"));
    assert_eq!(forwarded_for(&bed, "/a").as_deref(), Some("127.0.0.1"));
}

/// The edge sends no response, because the client may speak another protocol.
#[test]
fn a_connection_without_a_valid_header_is_closed_and_counted() {
    let bed = behind("127.0.0.0/8");
    let mut long = header(Version::V2);
    long[14..16].copy_from_slice(&2000_u16.to_be_bytes());
    for (reason, bytes) in [
        ("missing", request("/a").into_bytes()),
        ("malformed", b"PROXY TCP4 192.0.2.7\r\n".to_vec()),
        ("too-long", long),
    ] {
        assert_eq!(response(&bed, &bytes), "", "{reason}");
        let series = format!("edgeward_proxy_headers_refused_total{{reason=\"{reason}\"}}");
        bed.wait_for_metric(&series, 1.0);
    }
    bed.wait_for_metric(
        "edgeward_client_connections_closed_total{cause=\"proxy-header\"}",
        3.0,
    );
    assert_eq!(bed.origin.requests_total(), 0);
}

#[test]
fn only_the_configured_proxies_may_connect() {
    let bed = behind("203.0.113.0/24");
    let bytes = [&header(Version::V1), request("/a").as_bytes()].concat();
    assert_eq!(response(&bed, &bytes), "");
    bed.wait_for_metric(
        "edgeward_proxy_headers_refused_total{reason=\"untrusted\"}",
        1.0,
    );
}

#[test]
fn a_header_must_arrive_within_the_timeout() {
    let bed = TestBed::with_config(|config| {
        config.listeners[0].proxy_protocol_from = Some(networks("127.0.0.0/8"));
        config.limits.request_head_timeout = Duration::from_millis(50);
    });
    assert_eq!(response(&bed, b"PROXY TCP4"), "");
    bed.wait_for_metric("edgeward_proxy_headers_refused_total{reason=\"late\"}", 1.0);
}

#[test]
fn curl_sends_a_header_that_the_edge_reads() {
    let bed = behind("127.0.0.0/8");
    let url = format!("http://{}/curl", bed.addr());
    let arguments = ["--silent", "--max-time", "10", "--haproxy-protocol", &url];
    match Command::new("curl").args(arguments).output() {
        Ok(output) => assert_eq!(output.stdout, b"text"),
        Err(_) => return eprintln!("skipped: curl is not installed"),
    }
    assert_eq!(forwarded_for(&bed, "/curl").as_deref(), Some("127.0.0.1"));
}

/// The access log has the rightmost address that is not a trusted proxy, of the configured field alone.
#[test]
fn trusted_proxies_state_their_client_in_the_configured_field() {
    for (field, expected) in [
        (ClientField::XForwardedFor, "192.0.2.1"),
        (ClientField::Forwarded, "192.0.2.2"),
        (ClientField::None, "127.0.0.1"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("access.log");
        let bed = TestBed::with_config(|config| {
            config.forwarding.trusted_proxies = networks("127.0.0.0/8, 10.0.0.0/8");
            config.forwarding.client_field = field;
            config.access_log = Some(AccessLogConfig::new(
                LogDestination::File(log.clone()),
                LogFormat::Json,
            ));
        });
        bed.origin.otherwise(|_| Answer::ok("text"));
        let fields = [
            ("x-forwarded-for", "198.51.100.9, 192.0.2.1, 10.0.0.5"),
            ("forwarded", "for=198.51.100.9, for=192.0.2.2;proto=https"),
        ];
        assert_eq!(bed.get_with("/a", &fields).status, 200);
        bed.stop();
        let text = std::fs::read_to_string(&log).expect("the log was written");
        assert!(text.contains(expected), "{field:?}: {text}");
    }
}
