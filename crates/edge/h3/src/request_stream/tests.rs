use proptest::prelude::*;

use super::*;
use crate::frame::tests::frame;
use crate::request::tests::section;

fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    frame(FrameType::HEADERS, &section(fields))
}

fn data(content: &str) -> Vec<u8> {
    frame(FrameType::DATA, content.as_bytes())
}

fn head(method: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let target = [
        (":method", method),
        (":scheme", "https"),
        (":authority", "a"),
        (":path", "/"),
    ];
    headers(&[&target[..], more].concat())
}

fn trailers() -> Vec<u8> {
    headers(&[("x-trailer", "1")])
}

/// The events of a stream in pieces of these lengths, as text with the content joined, and the result of its end.
fn received(bytes: &[u8], mut piece_bytes: impl FnMut() -> usize) -> (String, Result<(), Error>) {
    let limits = RequestLimits {
        section: SectionLimits {
            bytes_max: 400,
            fields_max: 8,
        },
        idle_frames_max: Some(2),
    };
    let mut stream = RequestStream::new(limits, true);
    let (mut events, mut rest) = (String::new(), bytes);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(piece_bytes().min(rest.len()));
        rest = after;
        let mut piece = Bytes::copy_from_slice(piece);
        loop {
            match stream.receive(&mut piece) {
                Ok(None) => break,
                Ok(Some(RequestEvent::Head(head))) => {
                    events += &format!("[{} {}]", head.method, head.uri);
                }
                Ok(Some(RequestEvent::Data(data))) => {
                    assert!(!data.is_empty());
                    events += str::from_utf8(&data).expect("content of tests is ASCII");
                }
                Ok(Some(RequestEvent::Trailers(trailers))) => {
                    events += &format!("[{} trailers]", trailers.len());
                }
                Err(error) => return (events, Err(error)),
            }
        }
    }
    (events, stream.finish())
}

#[track_caller]
fn ends(parts: &[Vec<u8>], events: &str, code: Option<ErrorCode>) {
    let (received, end) = received(&parts.concat(), || usize::MAX);
    assert_eq!(received, events);
    assert_eq!(end.err().map(|error| error.code()), code);
}

#[test]
fn a_request_is_a_head_content_and_trailers() {
    let get = "[GET https://a/]";
    ends(&[head("GET", &[])], get, None);
    ends(
        &[head("GET", &[]), data("con"), data("tent"), trailers()],
        &format!("{get}content[1 trailers]"),
        None,
    );
    let reserved = || frame(FrameType(0x21), b"x");
    ends(
        &[reserved(), head("GET", &[]), reserved(), data("a")],
        &format!("{get}a"),
        None,
    );
}

/// RFC 9114 §4.1: another order is an error of the connection.
#[test]
fn frames_in_another_order_are_refused() {
    let unexpected = Some(ErrorCode::H3_FRAME_UNEXPECTED);
    ends(&[data("a")], "", unexpected);
    ends(&[data("")], "", unexpected);
    let request = "[GET https://a/][1 trailers]";
    for after in [data("a"), data(""), trailers()] {
        ends(&[head("GET", &[]), trailers(), after], request, unexpected);
    }
    ends(
        &[head("GET", &[]), trailers(), frame(FrameType(0x21), b"x")],
        request,
        None,
    );
}

#[test]
fn a_stream_that_ends_early_is_incomplete() {
    ends(&[], "", Some(ErrorCode::H3_REQUEST_INCOMPLETE));
    ends(
        &[frame(FrameType(0x21), b"x")],
        "",
        Some(ErrorCode::H3_REQUEST_INCOMPLETE),
    );
    let head = head("GET", &[]);
    ends(
        &[head[..head.len() - 1].to_vec()],
        "",
        Some(ErrorCode::H3_FRAME_ERROR),
    );
}

/// RFC 9114 §4.1.2. Method: contents of all lengths around the stated one, in one frame and in two.
#[test]
fn content_has_the_length_that_the_head_states() {
    let post = || head("POST", &[("content-length", "2")]);
    let event = "[POST https://a/]";
    let error = Some(ErrorCode::H3_MESSAGE_ERROR);
    ends(&[post(), data("ab")], &format!("{event}ab"), None);
    ends(
        &[post(), data("a"), data(""), data("b"), trailers()],
        &format!("{event}ab[1 trailers]"),
        None,
    );
    ends(&[post(), data("a")], &format!("{event}a"), error);
    ends(
        &[post(), data("a"), trailers()],
        &format!("{event}a"),
        error,
    );
    ends(&[post()], event, error);
    // The content that exceeds the length is not delivered.
    ends(&[post(), data("abc")], event, error);
    ends(
        &[post(), data("ab"), data("c")],
        &format!("{event}ab"),
        error,
    );
    ends(
        &[head("GET", &[("content-length", "0")])],
        "[GET https://a/]",
        None,
    );
}

/// RFC 9114 §4.4.
#[test]
fn a_tunnel_has_data_alone() {
    let connect = || headers(&[(":method", "CONNECT"), (":authority", "a:1")]);
    ends(&[connect(), data("a"), data("b")], "[CONNECT a:1]ab", None);
    ends(
        &[connect(), data("a"), trailers()],
        "[CONNECT a:1]a",
        Some(ErrorCode::H3_FRAME_UNEXPECTED),
    );
    let extended = || head("CONNECT", &[(":protocol", "websocket")]);
    ends(&[extended(), data("a")], "[CONNECT https://a/]a", None);
}

#[test]
fn a_malformed_head_or_trailer_is_an_error_of_the_stream() {
    let malformed = headers(&[(":method", "GET"), ("x", "y")]);
    let (_, end) = received(&malformed, || usize::MAX);
    assert!(matches!(end, Err(Error::Stream(error)) if error.code == ErrorCode::H3_MESSAGE_ERROR));
    let trailers = headers(&[(":path", "/")]);
    let (_, end) = received(&[head("GET", &[]), trailers].concat(), || usize::MAX);
    assert!(matches!(end, Err(Error::Stream(error)) if error.code == ErrorCode::H3_MESSAGE_ERROR));
}

/// Method: heads on both sides of each limit, as sections and as encoded bytes.
#[test]
fn a_large_head_is_answered_with_431() {
    let too_large = |bytes: &[u8]| match received(bytes, || usize::MAX).1 {
        Ok(()) => false,
        Err(Error::Stream(error)) => error.status.is_some_and(|status| status.as_u16() == 431),
        Err(Error::Connection(error)) => panic!("{error} ends the connection"),
    };
    // The four fields of the target take 167 bytes: 7+3, 7+5, 10+1, 5+1 and 32 for each; 400 - 167 - 33 are left.
    let value = "~".repeat(201);
    assert!(!too_large(&head("GET", &[("x", &value[1..])])));
    assert!(too_large(&head("GET", &[("x", &value)])));
    assert!(!too_large(&head("GET", &[("x", ""); 4])));
    assert!(too_large(&head("GET", &[("x", ""); 5])));
    assert!(too_large(&frame(FrameType::HEADERS, &[0; 401])));
}

#[test]
fn frames_without_content_are_limited() {
    let parts = |frames| [vec![head("POST", &[])], vec![data(""); frames]].concat();
    ends(&parts(2), "[POST https://a/]", None);
    ends(
        &parts(3),
        "[POST https://a/]",
        Some(ErrorCode::H3_EXCESSIVE_LOAD),
    );
}

proptest! {
    /// Method: any sequence of valid and invalid parts, cut anywhere.
    #[test]
    fn events_do_not_depend_on_the_pieces(
        parts in prop::collection::vec(0usize..7, 0..6),
        is_cut in any::<prop::sample::Index>(),
        pieces in prop::collection::vec(1usize..20, 1..9),
    ) {
        let choices = [
            head("GET", &[]),
            head("POST", &[("content-length", "3")]),
            headers(&[(":method", "CONNECT"), (":authority", "a:1")]),
            data("abc"),
            data(""),
            trailers(),
            frame(FrameType(0x21), b"reserved"),
        ];
        let parts: Vec<_> = parts.iter().map(|&part| choices[part].clone()).collect();
        let mut bytes = parts.concat();
        bytes.truncate(is_cut.index(bytes.len() + 1));
        let mut lengths = pieces.iter().cycle();
        let in_pieces = received(&bytes, || *lengths.next().expect("a cycle has no end"));
        prop_assert_eq!(in_pieces, received(&bytes, || usize::MAX));
    }
}
