//! The head of a request, written directly and from a map.

use edgeward_semantics::Route;
use proptest::prelude::*;

use super::*;
use crate::config::OriginId;
use crate::exchange::FieldFilter;

/// Returns the sorted lines of a head. The order of different fields has no meaning (RFC 9110 §5.3).
fn lines(head: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(head);
    let mut lines: Vec<_> = text.split("\r\n").map(str::to_owned).collect();
    lines.sort();
    lines
}

proptest! {
    /// Oracle: build the head from the map.
    #[test]
    fn a_head_without_the_map_equals_the_head_from_the_map(
        fields in prop::collection::vec(
            (prop::sample::select(NAMES), "[ -~]{0,12}"),
            0..10,
        ),
        removes in any::<bool>(),
        head in any::<bool>(),
        trusted in any::<bool>(),
        via in any::<bool>(),
    ) {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("example.com"));
        for (name, value) in &fields {
            headers.append(*name, value.trim().parse().expect("a value"));
        }
        let peer = std::net::SocketAddr::from(([192, 0, 2, 1], 4711));
        let options = hop_by_hop::strip_request(&mut headers, |_| false);
        let filter = FieldFilter::new(&ForwardingConfig::default(), Vec::new());
        filter.apply(&mut headers, trusted, true);
        let request = Request {
            hop: None,
            method: Method::GET,
            uri: Uri::from_static("/a?b"),
            version: Version::HTTP_11,
            headers,
            plain: false,
            scheme: "http",
            key_exchange: None,
            peer,
            peer_text: HeaderValue::from_static("192.0.2.1"),
            _charge: None,
            peer_is_trusted: trusted,
            client: peer.ip(),
            canonical_authority: None,
            canonical_target: None,
            options,
            origin: OriginId::default(),
            upgrade: None,
            route: Route::Lookup,
            settings: None,
            class: Box::default(),
            forwarded_target: None,
            forwarded_host: None,
            response_fields: None,
            client_codings: None,
            dictionary: None,
            received_fields: None,
            interims: None,
        };
        let mut origin = OriginConfig::new("http://origin.example:81".parse().expect("a URL"));
        origin.via = via;
        let outbound = Outbound {
            edge: EdgeInfo {
                origin: &origin,
                forwarding: &ForwardingConfig::default(),
                via_name: "edge",
                via_http11: &HeaderValue::from_static("1.1 edge"),
                cdn_loop: &HeaderValue::from_static("edge"),
                signing: None,
            },
            request: &request,
            method: if head { &Method::HEAD } else { &Method::GET },
            peer: None,
            conditions: if removes { Conditions::Remove } else { Conditions::Keep },
        };
        let by_map = head_of(&outbound.request(Upload::Empty));
        prop_assert_eq!(lines(&outbound.head()), lines(&by_map));
    }
}

const NAMES: &[&str] = &[
    "accept",
    "accept-encoding",
    "accept-language",
    "user-agent",
    "cookie",
    "range",
    "if-none-match",
    "if-modified-since",
    "expect",
    "te",
    "connection",
    "keep-alive",
    "via",
    "cdn-loop",
    "x-forwarded-for",
    "x-forwarded-host",
    "forwarded",
    "authorization",
    "proxy-authorization",
    "content-length",
    "upgrade",
    "proxy-connection",
    "transfer-encoding",
];
