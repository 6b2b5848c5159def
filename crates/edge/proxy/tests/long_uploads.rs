//! Long uploads take little memory. A binary of its own, because it measures the memory of its process.

#[expect(dead_code, reason = "this binary uses a part of the helpers")]
mod support;

use edgeward_testkit::{Answer, Gate};
use support::TestBed;

const LENGTH: usize = 64 << 20;
const PIECE: usize = 1 << 20;

/// Method: a client uploads 64 MiB, with a length and in chunks. The origin first reads nothing, so that the edge has
/// to stop the client. The test's process has the edge, the client and the origin, which keep none of the bytes.
#[test]
fn an_upload_of_any_length_takes_little_memory() {
    let length = LENGTH.to_string();
    let chunk = [format!("{PIECE:x}\r\n").as_bytes(), &[7; PIECE], b"\r\n"].concat();
    for (field, piece, end) in [
        (("content-length", &*length), &chunk[8..8 + PIECE], &b""[..]),
        (("transfer-encoding", "chunked"), &chunk, b"0\r\n\r\n"),
    ] {
        let bed = TestBed::start();
        let gate = Gate::new();
        bed.origin
            .on("/up", Answer::ok("thanks").read_body_after(&gate));
        let mut client = bed.connect();
        let before = bed.metric("process_resident_memory_bytes");
        client.send_head("PUT", "/up", &[field]);
        // Chunks that are sent in part cannot be continued, so only the body with a length is sent until it blocks.
        let sent = match end.is_empty() {
            true => client.send_until_blocked(piece, LENGTH),
            false => 0,
        };
        assert!(sent < LENGTH, "the origin reads nothing");
        gate.open();
        client.send_rest(piece, LENGTH / PIECE * piece.len() - sent);
        client.send(end);
        assert_eq!(client.answer("PUT").text(), "thanks");
        let growth = bed.metric("process_resident_memory_bytes") - before;
        assert!(growth < 24e6, "{growth} bytes, {field:?}");
        let request = bed.origin.last("/up").expect("the origin got a request");
        assert_eq!(request.body_len(), LENGTH as u64);
    }
}
