//! Origins to which each connection begins with a PROXY header (`origin.proxy_protocol`).

use edgeward_proxy::config::{ClientField, OriginProtocol, ProxyProtocol};
use edgeward_proxy::{Edge, StartError};
use edgeward_testkit::Answer;

use crate::identity::SelfSigned;
use crate::socket_origin::SocketBed;
use crate::support::{Client, TestBed, config_for};

/// Method: two edges. The first one trusts the client to state addresses, the second one reads PROXY headers, and its
/// origin records the address that it got.
#[test]
fn each_request_has_a_connection_whose_header_states_its_client() {
    let identity = SelfSigned::new();
    for (version, has_tls) in [
        (ProxyProtocol::V1, false),
        (ProxyProtocol::V2, false),
        (ProxyProtocol::V2, true),
    ] {
        let second = TestBed::with_config(|config| {
            let proxies = "127.0.0.1".parse().expect("a network");
            config.listeners[0].proxy_protocol_from = Some(proxies);
            config.listeners[0].tls = has_tls.then(|| identity.files());
        });
        second.origin.otherwise(|_| Answer::ok("text"));
        let addr = second.addr();
        let first = TestBed::with_config(|config| {
            let origin = &mut config.origins[0];
            *origin = config_for(addr).origins.remove(0);
            if has_tls {
                let url = format!("https://localhost:{}", addr.port());
                origin.servers[0] = url.parse().expect("a URL");
                origin.tls.roots = Some(identity.files().certificates);
            }
            origin.proxy_protocol = Some(version);
            config.forwarding.trusted_proxies = "127.0.0.1".parse().expect("a network");
            config.forwarding.client_field = ClientField::XForwardedFor;
        });
        let mut client = first.connect();
        for (n, address) in ["192.0.2.7", "2001:db8::7", "192.0.2.8"].iter().enumerate() {
            let path = format!("/{n}");
            let answer = client.get(&path, &[("x-forwarded-for", address)]);
            assert_eq!(answer.text(), "text", "{version:?} {has_tls}");
            let request = second.origin.last(&path).expect("a request");
            assert_eq!(request.header("x-forwarded-for"), Some(*address));
        }
        assert_eq!(first.metric("edgeward_origin_connects_total"), 3.0);
        assert_eq!(first.metric("edgeward_origin_connections"), 0.0);
    }
}

#[test]
fn uploads_and_tunnels_begin_with_a_header_too() {
    let bed = SocketBed::with_config(|config| {
        config.origins[0].proxy_protocol = Some(ProxyProtocol::V1);
    });
    let mut client = bed.bed.connect();
    client.send(b"POST /a HTTP/1.1\r\nHost: test.example\r\nContent-Length: 2\r\n\r\nhi");
    let upload = bed.origin.request();
    let mut socket = bed.bed.connect();
    socket.send(
        b"GET /b HTTP/1.1\r\nHost: test.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
          Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    let tunnel = bed.origin.request();
    for (request, line) in [
        (&upload, "\r\nPOST /a HTTP/1.1\r\n"),
        (&tunnel, "\r\nGET /b HTTP/1.1\r\n"),
    ] {
        let head = &request.head;
        assert!(
            head.starts_with("PROXY TCP4 127.0.0.1 127.0.0.1 "),
            "{head}"
        );
        assert!(head.contains(line), "{head}");
    }
}

#[test]
fn an_origin_of_http2_has_no_headers_because_clients_share_its_connections() {
    let mut config = config_for(([127, 0, 0, 1], 9).into());
    config.origins[0].protocol = OriginProtocol::Http2;
    config.origins[0].proxy_protocol = Some(ProxyProtocol::V2);
    let error = Edge::start(config).expect_err("shared");
    assert!(
        matches!(error, StartError::SharedProxyHeader { .. }),
        "{error:?}"
    );
}

#[test]
fn requests_of_the_same_client_do_not_share_a_connection_either() {
    let bed = SocketBed::with_config(|config| {
        config.origins[0].proxy_protocol = Some(ProxyProtocol::V1);
    });
    let mut client: Client = bed.bed.connect();
    for path in ["/a", "/b"] {
        client.send_head("GET", path, &[]);
        let mut request = bed.origin.request();
        assert!(request.head.starts_with("PROXY "), "{}", request.head);
        request.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        assert_eq!(client.answer("GET").text(), "ok");
    }
}
