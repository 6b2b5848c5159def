//! Server-sent events: the edge forwards each piece when it arrives, and no requests share a stream.

use edgeward_testkit::{Answer, Gate};

use crate::support::{Client, TestBed};

const EVENTS: [&str; 3] = ["data: first\n\n", "data: second\n\n", "data: third\n\n"];

/// Returns a stream of events, and the gates at which the origin waits before each event.
fn stream(cache_control: &str) -> (Answer, [Gate; 3]) {
    let gates = [Gate::new(), Gate::new(), Gate::new()];
    let mut answer = Answer::ok(EVENTS.concat())
        .header("content-type", "text/event-stream")
        .header("cache-control", cache_control)
        .header("etag", "\"stream\"")
        .chunked(1000);
    let mut offset = 0;
    for (event, gate) in EVENTS.iter().zip(&gates) {
        answer = answer.wait_at(offset, gate);
        offset += event.len() as u64;
    }
    (answer, gates)
}

/// Reads the chunk with one event.
fn read_event(client: &mut Client, event: &str) {
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    let read = client.read_up_to(chunk.len());
    assert_eq!(
        String::from_utf8_lossy(&read).to_lowercase(),
        chunk.to_lowercase()
    );
}

/// Method: the origin writes an event only after the client has read the one before. The fast path serves the plain
/// request, and hyper the one with `Cache-Control`.
#[test]
fn each_event_arrives_before_the_origin_writes_the_next() {
    for fields in [&[][..], &[("cache-control", "no-cache")]] {
        for cache_control in ["no-cache", "no-store", "max-age=60"] {
            let bed = TestBed::start();
            let (answer, gates) = stream(cache_control);
            bed.origin.on("/events", answer);
            let mut client = bed.connect();
            client.send_head("GET", "/events", fields);
            assert_eq!(
                client.head().header("content-type"),
                Some("text/event-stream")
            );
            for (event, gate) in EVENTS.iter().zip(&gates) {
                gate.open();
                read_event(&mut client, event);
            }
            assert_eq!(client.read_up_to(5), b"0\r\n\r\n");
        }
    }
}

/// Even if the origin states a lifetime: each client needs its own events, and the stream may never end.
#[test]
fn clients_do_not_share_a_stream_of_events() {
    let bed = TestBed::start();
    let (answer, gates) = stream("max-age=60");
    bed.origin.on("/events", answer);
    let mut clients: Vec<Client> = (0..3).map(|_| bed.connect()).collect();
    for client in &mut clients {
        client.send_head("GET", "/events", &[]);
        assert_eq!(client.head().status, 200);
    }
    assert_eq!(bed.origin.requests("/events"), 3);
    gates.iter().for_each(Gate::open);
    for client in &mut clients {
        EVENTS.iter().for_each(|event| read_event(client, event));
    }
    assert!(!bed.get("/events").is_hit());
}

#[test]
fn a_client_that_resets_its_connection_ends_the_stream_at_the_origin() {
    let bed = TestBed::start();
    let (answer, gates) = stream("no-cache");
    bed.origin.on("/events", answer);
    let mut client = bed.connect();
    client.send_head("GET", "/events", &[]);
    assert_eq!(client.head().status, 200);
    gates[0].open();
    read_event(&mut client, EVENTS[0]);
    client.reset();
    bed.wait_for_metric("edgeward_origin_connections", 0.0);
}
