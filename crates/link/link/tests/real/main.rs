//! Tests of two endpoints with real sockets, files and clocks, on loopback. Among the modules, `cold` tests slow
//! disks, `identities` tests certificates, `lockout` tests edges that use up a gateway's connections, `time_slices`
//! tests short requests beside downloads, and `transparent` tests connections that a firewall diverts.
//!
//! `EDGEWARD_LINK_REAL_RUNS=100` sets the number of runs with random faults. The default is 20.

#[path = "../../../dedup/tests/support/mod.rs"]
mod bodies;
mod cold;
mod faults;
mod identities;
mod kill;
mod listeners;
mod lockout;
mod memory;
mod rate_limit;
mod released_chunks;
mod restart;
mod security;
mod test_bed;
mod time_slices;
#[cfg(target_os = "linux")]
mod transparent;

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use bodies::Random;
use edgeward_link::{Client, LinkState, LinkStream, OpenError, refusal_reason};
use edgeward_testkit::TcpServer;
use test_bed::{EDGE, TestBed, echo, tcp, within};

/// With and without encryption, a client reaches a target behind the gateway, and a repeated body is sent as
/// references.
#[tokio::test]
async fn a_target_is_reached_and_repeated_chunks_are_references() {
    for encrypted in [true, false] {
        let target = TcpServer::echo();
        let mut test_bed = TestBed::new(encrypted);
        let gateway = test_bed.gateway(target.addr()).await;
        let client = test_bed.client(gateway.local_addr());
        let body = Random(1).noise(3_000_000);
        let mut wire_bytes = Vec::new();
        for _ in 0..2 {
            let stream = client.open(tcp(target.addr())).expect("the link is up");
            let back = within(echo(stream, &body))
                .await
                .expect("the target echoes the body");
            assert!(back == body, "encrypted: {encrypted}");
            wire_bytes.push(client.status().await.sent.wire);
        }
        assert!(wire_bytes[0] > 3_000_000, "noise does not compress");
        let repeated_bytes = wire_bytes[1] - wire_bytes[0];
        assert!(
            repeated_bytes < 300_000,
            "{repeated_bytes} bytes for known chunks"
        );
        let status = &gateway.status().await.peers[0];
        assert_eq!(status.encrypted, encrypted);
        assert!(status.received.from_store > 2_500_000);
        let (host, counters) = &status.hosts[0];
        assert_eq!(*host, target.addr().to_string());
        assert_eq!(
            (
                counters.streams,
                counters.sent.bytes,
                counters.received.bytes
            ),
            (2, 6_000_000, 6_000_000)
        );
        // Both endpoints see the same forms. The bytes of the body come back, so the gateway refers to them.
        let forms = counters.received;
        assert_eq!(
            forms.bytes,
            forms.referenced + forms.delta + forms.literal + forms.plain
        );
        assert!(forms.literal > 2_900_000 && forms.incompressible > 2_500_000);
        assert_eq!((forms.bypassed, counters.sent.bypassed), (0, 0));
        within(client.shutdown(Duration::from_secs(5)))
            .await
            .expect("the store is flushed");
        within(gateway.shutdown(Duration::from_secs(5)))
            .await
            .expect("the store is flushed");
    }
}

/// Concurrent streams do not mix their bytes.
#[tokio::test]
async fn concurrent_streams_do_not_mix() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let gateway = test_bed.gateway(target.addr()).await;
    let client = test_bed.client(gateway.local_addr());
    let mut streams = tokio::task::JoinSet::new();
    for n in 0..60 {
        let stream = client
            .open(tcp(target.addr()))
            .expect("the limit of streams is not reached");
        streams.spawn(async move {
            let mut random = Random(n);
            let bytes = random.below(200_000);
            let body = random.text(bytes);
            let back = within(echo(stream, &body))
                .await
                .expect("the target echoes the body");
            assert!(back == body, "stream {n}");
        });
    }
    while let Some(done) = streams.join_next().await {
        done.expect("the task does not panic");
    }
    // The link closes a stream some time after its user has dropped it.
    client.drain(Duration::from_secs(60)).await;
    assert_eq!(client.status().await.streams, 0, "every stream is closed");
    drop(gateway);
}

/// Short messages are sent without waiting for more bytes, with and without a flush.
///
/// Method: write a request and read its response before the next request is written.
#[tokio::test]
async fn short_messages_go_back_and_forth() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let gateway = test_bed.gateway(target.addr()).await;
    let client = test_bed.client(gateway.local_addr());
    let mut stream = client.open(tcp(target.addr())).expect("the link is up");
    // The requests have 8,800 bytes in total. The first 4 KiB of a body bypass deduplication, the rest does not.
    for n in 0..200_u32 {
        let request = [&n.to_le_bytes()[..], &[7; 40]].concat();
        stream
            .write_all(&request)
            .await
            .expect("the stream is open");
        // Half of the requests are sent without a flush.
        if n % 2 == 0 {
            stream.flush().await.expect("the stream is open");
        }
        let mut answer = vec![0; request.len()];
        within(stream.read_exact(&mut answer))
            .await
            .expect("the response is complete");
        assert_eq!(answer, request);
    }
    drop(gateway);
}

/// If the client ends its direction first, it still receives all bytes of the target. The end of a body is not
/// reported as an error.
#[tokio::test]
async fn each_direction_ends_separately() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("the listener can be bound");
    let addr = listener.local_addr().expect("the address is valid");
    let mut test_bed = TestBed::new(true);
    let gateway = test_bed.gateway(addr).await;
    let client = test_bed.client(gateway.local_addr());
    let mut stream = client.open(tcp(addr)).expect("the link is up");
    stream
        .write_all(b"question")
        .await
        .expect("the stream is open");
    stream.shutdown().await.expect("the stream is open");
    let (mut accepted, _) = within(listener.accept())
        .await
        .expect("the gateway connects");
    let mut request = Vec::new();
    within(accepted.read_to_end(&mut request))
        .await
        .expect("the body is complete");
    assert_eq!(request, b"question");
    accepted
        .write_all(b"answer")
        .await
        .expect("the stream is open");
    drop(accepted);
    let mut answer = Vec::new();
    within(stream.read_to_end(&mut answer))
        .await
        .expect("the body is complete");
    assert_eq!(answer, b"answer");
    drop(gateway);
}

/// Dropping a stream resets the target's connection, and a reset by the target is an error on the stream.
#[tokio::test]
async fn a_reset_is_not_the_end_of_a_body() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("the listener can be bound");
    let addr = listener.local_addr().expect("the address is valid");
    let mut test_bed = TestBed::new(true);
    let gateway = test_bed.gateway(addr).await;
    let client = test_bed.client(gateway.local_addr());
    let mut byte = [0];

    let mut stream = client.open(tcp(addr)).expect("the link is up");
    stream.write_all(b"x").await.expect("the stream is open");
    let (mut accepted, _) = within(listener.accept())
        .await
        .expect("the gateway connects");
    within(accepted.read_exact(&mut byte))
        .await
        .expect("the byte is received");
    drop(stream);
    let end = within(accepted.read(&mut byte)).await;
    let kind = end.expect_err("the connection is reset").kind();
    assert_eq!(kind, std::io::ErrorKind::ConnectionReset);

    let mut stream = client.open(tcp(addr)).expect("the link is up");
    stream.write_all(b"x").await.expect("the stream is open");
    let (mut accepted, _) = within(listener.accept())
        .await
        .expect("the gateway connects");
    within(accepted.read_exact(&mut byte))
        .await
        .expect("the byte is received");
    socket2::SockRef::from(&accepted)
        .set_linger(Some(Duration::ZERO))
        .expect("the option can be set");
    drop(accepted);
    within(stream.read(&mut byte))
        .await
        .expect_err("the stream fails");
    drop(gateway);
}

/// If a target is not permitted, does not exist or refuses connections, the client's stream fails with the reason.
#[tokio::test]
async fn a_forbidden_or_missing_target_is_refused() {
    let target = TcpServer::echo();
    let closed_port = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("the listener can be bound");
        listener.local_addr().expect("the address is valid")
    };
    let mut test_bed = TestBed::new(true);
    let mut config = test_bed.gateway_config(closed_port);
    config.allow = config
        .allow
        .and("no-such-host.invalid:*".parse().expect("the rule is valid"));
    let gateway = edgeward_link::Gateway::bind(config)
        .await
        .expect("the listener can be bound");
    let client = test_bed.client(gateway.local_addr());
    let no_such = edgeward_link::Target::Tcp(
        "no-such-host.invalid:1"
            .parse()
            .expect("the text is a host and a port"),
    );
    for (requested, reason) in [
        (tcp(target.addr()), refusal_reason::NOT_ALLOWED),
        (tcp(closed_port), refusal_reason::UNREACHABLE),
        (no_such, refusal_reason::NO_SUCH_HOST),
        (edgeward_link::Target::Origin, refusal_reason::NOT_ALLOWED),
    ] {
        let mut stream = client.open(requested.clone()).expect("the link is up");
        let refused = within(stream.accepted())
            .await
            .expect_err("the stream is refused");
        assert_eq!(refused.reason, reason, "{requested}");
        let mut byte = [0];
        let error = stream
            .read(&mut byte)
            .await
            .expect_err("the stream has failed");
        assert_eq!(error.to_string(), refusal_reason::describe(reason));
    }
    let counters = gateway.status().await.counters;
    assert_eq!((counters.not_allowed, counters.unreachable), (2, 2));
    assert_eq!(target.connections(), 0);
}

/// While no gateway runs, opening a stream fails at once. After the gateway has started again, streams work.
#[tokio::test]
async fn a_link_reconnects() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let gateway = test_bed.gateway(target.addr()).await;
    let addr = gateway.local_addr();
    within(gateway.shutdown(Duration::ZERO))
        .await
        .expect("the store is flushed");
    let client = test_bed.client(addr);
    assert_eq!(within(client.settled()).await, LinkState::Down);
    assert!(matches!(
        client.open(tcp(target.addr())),
        Err(OpenError::Down)
    ));
    let mut config = test_bed.gateway_config(target.addr());
    config.listen = addr;
    let gateway = edgeward_link::Gateway::bind(config)
        .await
        .expect("the listener can be bound");
    within(client.up()).await;
    let stream = client.open(tcp(target.addr())).expect("the link is up");
    let back = within(echo(stream, b"hello"))
        .await
        .expect("the target echoes the body");
    assert_eq!(back, b"hello");
    drop(gateway);
}

/// A link with two gateways uses the first one, and moves to the second one when the first one has shut down.
#[tokio::test]
async fn a_link_moves_to_the_next_gateway() {
    let target = TcpServer::echo();
    let mut first_bed = TestBed::new(true);
    let mut second_bed = TestBed::in_folder(&first_bed.folder);
    second_bed.stores = Some(tempfile::tempdir().expect("the folder can be created"));
    let first = first_bed.gateway(target.addr()).await;
    let second = second_bed.gateway(target.addr()).await;
    let gateways = [&first, &second].map(|gateway| gateway.local_addr().to_string());
    let client = Client::start_with_failover(first_bed.config(EDGE), gateways.to_vec());
    let client = client.expect("the client starts");
    within(client.up()).await;
    let body = Random(6).noise(100_000);
    let ask = async || {
        let stream = client.open(tcp(target.addr())).expect("the link is up");
        within(echo(stream, &body))
            .await
            .expect("the target echoes the body")
            == body
    };
    assert!(ask().await);
    assert_eq!(client.status().await.name, gateways[0]);
    assert!(second.status().await.peers.is_empty());
    within(first.shutdown(Duration::ZERO))
        .await
        .expect("the store is flushed");
    within(async {
        while client.status().await.name != gateways[1]
            || !matches!(client.state(), LinkState::Up(_))
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(ask().await);
    assert_eq!(second.status().await.peers.len(), 1);
}

/// Streams are reset when the link has been down for `outage_max`.
#[tokio::test]
async fn streams_are_reset_after_the_maximum_outage() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let gateway = test_bed.gateway(target.addr()).await;
    let mut config = test_bed.config(EDGE);
    config.times.outage_max = Duration::from_millis(50);
    let client =
        Client::start(config, &gateway.local_addr().to_string()).expect("the client starts");
    within(client.up()).await;
    let mut stream: LinkStream = client.open(tcp(target.addr())).expect("the link is up");
    within(stream.accepted())
        .await
        .expect("the stream is accepted");
    within(gateway.shutdown(Duration::ZERO))
        .await
        .expect("the store is flushed");
    let mut byte = [0];
    within(stream.read(&mut byte))
        .await
        .expect_err("the gateway has shut down");
}
