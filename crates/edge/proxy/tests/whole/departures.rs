//! Clients that leave before the end of their response. The edge notices it in all methods, protocols and phases. It
//! ends the exchange with the origin after `limits.abandoned_wait`, and the log says 499 if no response had begun.

use std::num::NonZeroUsize;
use std::time::Duration;

use bytes::Bytes;
use edgeward_testkit::{Answer, Gate};
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::support::{TestBed, run};

fn bed_with_short_wait() -> TestBed {
    let bed = TestBed::with_config(|config| {
        config.limits.abandoned_wait = Duration::from_millis(10);
    });
    bed.origin.on("/head", Answer::never());
    let body = Answer::pattern(100).chunked(10).hang_at(50);
    bed.origin
        .on("/body", body.header("cache-control", "no-store"));
    bed
}

/// Returns the number of requests whose status in log and metrics is 499.
fn requests_of_departed_clients(bed: &TestBed) -> f64 {
    let metrics = bed.metrics();
    let lines = metrics.lines().filter(|line| {
        line.starts_with("edgeward_responses_total{") && line.contains("status=\"499\"")
    });
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// A reset is noticed at once. A client that closes its connection looks like one that has half-closed it.
#[test]
fn a_client_that_leaves_over_http1_ends_the_exchange_with_the_origin() {
    let bed = bed_with_short_wait();
    let mut requests = 0;
    for target in ["/head", "/body"] {
        for (method, fields) in [
            ("GET", &[][..]),
            ("GET", &[("authorization", "x")]), // passes
            ("POST", &[("content-length", "1")]),
        ] {
            for resets in [true, false] {
                let mut client = bed.connect();
                client.send_head(method, target, fields);
                if method == "POST" {
                    client.send(b"x");
                }
                requests += 1;
                bed.origin
                    .wait_until("the origin has the request", |origin| {
                        origin.requests_total() == requests
                    });
                if target == "/body" {
                    client.head();
                }
                if resets {
                    client.reset();
                } else {
                    client.shutdown_write();
                }
                bed.wait_for_metric("edgeward_origin_connections", 0.0);
                bed.wait_for_metric("edgeward_client_connections", 0.0);
            }
        }
    }
    assert_eq!(requests_of_departed_clients(&bed), 6.0);
}

#[test]
fn a_client_that_resets_a_stream_ends_the_exchange_with_the_origin() {
    let bed = bed_with_short_wait();
    run(async {
        let stream = TcpStream::connect(bed.addr())
            .await
            .expect("the edge listens");
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .expect("the HTTP/2 handshake succeeds");
        tokio::spawn(connection);
        for (nth, method) in ["GET", "POST", "PUT"].into_iter().enumerate() {
            let body = if method == "GET" { "" } else { "x" };
            let request = Request::builder()
                .method(method)
                .uri("http://test.example/head")
                .body(Full::new(Bytes::from(body)))
                .expect("the request is valid");
            let mut sender = sender.clone();
            let response = tokio::spawn(async move { sender.send_request(request).await });
            while bed.origin.requests_total() <= nth {
                tokio::task::yield_now().await;
            }
            response.abort();
            _ = response.await;
            while bed.origin.open_connections() > 0 {
                tokio::task::yield_now().await;
            }
        }
    });
    bed.wait_for_metric("edgeward_origin_connections", 0.0);
    assert_eq!(requests_of_departed_clients(&bed), 3.0);
}

/// The connection of an abandoned POST is needed at once. The POST may have changed its target.
#[test]
fn an_abandoned_post_frees_its_connection_for_a_request_that_waits_and_invalidates_its_target() {
    let bed = TestBed::with_config(|config| {
        config.workers = NonZeroUsize::MIN;
        config.origins[0].connections_per_worker_max = NonZeroUsize::MIN;
    });
    let page = || Answer::ok("page").header("cache-control", "max-age=60");
    bed.origin.once("/page", page());
    bed.get("/page");
    assert!(bed.get("/page").is_hit());
    bed.origin.once("/page", Answer::never());
    let mut post = bed.connect();
    post.send_head("POST", "/page", &[("content-length", "1")]);
    post.send(b"x");
    bed.origin.wait_until("the origin has the POST", |origin| {
        origin.requests_total() == 2
    });
    // One request waits before the client of the POST leaves, and one after.
    bed.origin.on("/other", Answer::ok("other"));
    let mut waiting = bed.connect();
    waiting.send_head("GET", "/other", &[]);
    bed.wait_for_metric("edgeward_origin_waiting", 1.0);
    post.reset();
    assert_eq!(waiting.answer("GET").text(), "other");
    assert_eq!(bed.metric("edgeward_fetches_cancelled_total"), 1.0);
    bed.origin.on("/page", page());
    assert!(!bed.get("/page").is_hit());
}

/// RFC 9110 §9.2.1: the edge may fetch a stored response for the next client, but not forever.
#[test]
fn a_fetch_that_others_wait_for_continues_although_its_first_client_has_left() {
    let bed = bed_with_short_wait();
    let gate = Gate::new();
    let page = Answer::ok("page").header("cache-control", "max-age=60");
    bed.origin.on("/page", page.wait_before_head(&gate));
    let mut first = bed.connect();
    first.send_head("GET", "/page", &[]);
    gate.wait_reached(1);
    let mut second = bed.connect();
    second.send_head("GET", "/page", &[]);
    bed.wait_until("both requests are misses", |status| {
        status["requests"]["uri-miss"] == 2
    });
    first.reset();
    bed.wait_for_metric("edgeward_client_connections", 1.0);
    gate.open();
    assert_eq!(second.answer("GET").text(), "page");
    assert_eq!(bed.origin.requests("/page"), 1);
}
