//! Tests of the limit of sent bytes with real sockets.

use std::sync::Arc;
use std::time::Instant;

use edgeward_link::{Client, RateLimiter};
use edgeward_testkit::TcpServer;

use crate::bodies::Random;
use crate::test_bed::{EDGE, TestBed, echo, tcp, within};

/// A body of 400 kB takes at least half of the time that the limit of 1.6 Mb/s needs for it, two seconds. Without the
/// limit it takes some milliseconds.
#[tokio::test]
async fn sent_bytes_are_limited() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let gateway = test_bed.gateway(target.addr()).await;
    let mut config = test_bed.config(EDGE);
    let limit = "1.6Mbps".parse().expect("the text is a rate limit");
    config.rate_limiter = Some(Arc::new(RateLimiter::new(limit)));
    let gateway_addr = gateway.local_addr().to_string();
    let client = Client::start(config, &gateway_addr).expect("the client starts");
    within(client.up()).await;
    let body = Random(5).noise(400_000);
    let start = Instant::now();
    let stream = client.open(tcp(target.addr())).expect("the link is up");
    let echoed = within(echo(stream, &body)).await;
    assert!(echoed.expect("the target echoes the body") == body);
    let millis = start.elapsed().as_millis();
    assert!(millis > 1000, "{millis} ms");
    let limiter = client.rate_limiter().expect("the client has a limit");
    assert_eq!(limiter.bits_per_second(), Some(1_600_000));
    assert!(limiter.waits() > 10, "{} waits", limiter.waits());
    assert!(gateway.rate_limiter().is_none());
}
