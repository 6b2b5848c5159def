//! The order of responses (RFC 9218).

use std::cell::Cell;
use std::future::pending;

use edgeward_h3::{FrameEvent, FrameType};
use edgeward_testkit::Answer;

use crate::Http3Bed;
use crate::client::{FrameReader, H3Client, frame};
use crate::support::run;

/// Method: the client reads nothing until the edge has given both responses to the transport, which then has sent only
/// the first congestion window. The second response is shorter. It is complete before the first one, unless that
/// precedes it.
#[test]
fn responses_are_sent_in_the_order_of_their_priorities() {
    let http3 = Http3Bed::start();
    for (path, bytes) in [
        ("/long", 1_000_000),
        ("/middle", 100_000),
        ("/short", 20_000),
    ] {
        let answer = Answer::pattern(bytes).header("cache-control", "max-age=60");
        http3.bed.origin.on(path, answer);
    }
    run(async {
        let client = http3.connect().await;
        for path in ["/long", "/middle", "/short"] {
            client.get(path).await;
        }
    });
    let mut hits = 0.0;
    // The first request, its priority and that of the second one; true if the first response precedes the second one.
    for (path, first, second, update, precedes) in [
        ("/long", "u=5", "u=1", None, false),
        ("/middle", "u=1", "u=5", None, true),
        ("/middle", "u=3", "u=3", None, true),
        ("/long", "u=3, i", "u=3, i", None, false),
        ("/long", "", "", None, false),
        ("/long", "u=3", "u=5", Some("u=0"), false),
    ] {
        let (bytes, short_bytes) = run(async {
            let mut client = http3.connect().await;
            if let Some(text) = update {
                update_second(&mut client, text).await;
            }
            let field = |text: &'static str| (!text.is_empty()).then_some(("priority", text));
            let fields = field(first).into_iter().collect::<Vec<_>>();
            let mut longer = client.send("GET", path, &fields).await;
            let fields = field(second).into_iter().collect::<Vec<_>>();
            let mut short = client.send("GET", "/short", &fields).await;
            tokio::task::yield_now().await; // The transport of the client sends both.
            hits += 2.0;
            let series = "edgeward_requests_total{outcome=\"hit\"}";
            http3.bed.wait_for_metric(series, hits);
            let (bytes, short_bytes) = (Cell::new(0), Cell::new(0));
            tokio::select! {
                biased;
                () = count(&mut longer.frames, &bytes, false) => {}
                () = count(&mut short.frames, &short_bytes, true) => {}
            }
            (bytes.get(), short_bytes.get())
        });
        let length = if path == "/long" { 1_000_000 } else { 100_000 };
        assert_eq!(short_bytes, 20_000);
        assert_eq!(bytes == length, precedes, "{first:?} {second:?}: {bytes}");
    }
}

/// Sends PRIORITY_UPDATE for the second request.
async fn update_second(client: &mut H3Client, text: &str) {
    let payload = [b"\x04", text.as_bytes()].concat();
    let update = frame(FrameType::PRIORITY_UPDATE, &payload);
    let written = client.control.write_all(&update).await;
    written.expect("the edge reads its control stream");
}

/// Counts the bytes of content. Resolves at the end if `ends`, and else never.
async fn count(frames: &mut FrameReader, bytes: &Cell<usize>, ends: bool) {
    while let Some(event) = frames.next().await.expect("the response is complete") {
        if let FrameEvent::Data(piece) = event {
            bytes.set(bytes.get() + piece.len());
        }
    }
    if !ends {
        pending::<()>().await;
    }
}
