//! Calls the functions of the fuzz targets with mutated messages, so that every test run includes some fuzzing.

use edgeward_proxy::hostile;
use proptest::prelude::*;

/// Generates a valid message, and then changes, removes or inserts up to five bytes.
fn mutated(seeds: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        prop::sample::select(b"\r\n :;,#?*/0159afx\0\x7f\xff".to_vec()),
        any::<u8>()
    ];
    let change = (any::<prop::sample::Index>(), 0..3_u8, byte);
    (
        prop::sample::select(seeds),
        prop::collection::vec(change, 0..6),
    )
        .prop_map(|(seed, changes)| {
            let mut bytes = seed.as_bytes().to_vec();
            for (place, kind, byte) in changes {
                let at = place.index(bytes.len().max(1));
                match kind {
                    0 if at < bytes.len() => bytes[at] = byte,
                    1 if at < bytes.len() => _ = bytes.remove(at),
                    _ => bytes.insert(at.min(bytes.len()), byte),
                }
            }
            bytes
        })
}

const REQUESTS: &[&str] = &[
    "GET /a?b HTTP/1.1\r\nHost: shop.example\r\nAccept: */*\r\n\r\nGET /next",
    "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET /next",
    "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nx: y\r\n\r\nGET /",
    "GET http://x/a#b HTTP/1.0\r\n\r\n",
];

const RESPONSES: &[&str] = &[
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nCache-Control: no-store\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nCache-Control: private\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n",
    "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
];

const CHUNKS: &[&str] = &[
    "5\r\nhello\r\n0\r\n\r\nrest",
    "A;ext=\"1\"\r\n0123456789\r\n1\r\nx\r\n0\r\nx-sum: 1\r\ny: 2\r\n\r\n",
    "0\r\n\r\n",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_end_of_a_request_does_not_depend_on_how_its_bytes_are_split(bytes in mutated(REQUESTS)) {
        hostile::request_head(&bytes);
    }

    #[test]
    fn a_response_head_does_not_depend_on_the_bytes_after_it(bytes in mutated(RESPONSES)) {
        hostile::response_head(&bytes);
    }

    #[test]
    fn a_chunked_body_does_not_depend_on_how_its_bytes_are_split(bytes in mutated(CHUNKS)) {
        hostile::chunked_body(&bytes);
    }
}
