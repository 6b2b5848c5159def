//! Tests that no edge or unknown host can lock out other edges by using up the connections or peers of a gateway. Other
//! tests cover denied certificates and special addresses.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use edgeward_link::{
    Admin, Client, Encryption, Gateway, KeyFolder, Keys, LinkState, LinkStream, Target,
    refusal_reason,
};
use edgeward_store::disk::FileDevice;
use edgeward_testkit::TcpServer;

use crate::test_bed::{EDGE, TestBed, open_on, tcp, within};

/// Creates a folder like `keys/edge` with another certificate of the same CA.
pub(crate) fn another_edge(keys: &Path) -> std::path::PathBuf {
    let folder = KeyFolder::open(keys).expect("the folder has a CA");
    let name = "another-edge";
    let added = folder.add(&name.parse().expect("the name is valid"), KeyFolder::DAYS);
    added.expect("the edge is added");
    keys.join(name)
}

/// Starts a client with a new store of this epoch. `number` distinguishes clients whose stores have the same epoch.
/// The client's certificate is read from the folder `keys`, by default from the folder of the test bed.
pub(crate) fn edge(
    test_bed: &TestBed,
    gateway: SocketAddr,
    epoch: u64,
    number: usize,
    keys: Option<&Path>,
) -> Client {
    let path = test_bed.folder.join(format!("edge-{epoch}-{number}"));
    let device = FileDevice::open(&path, Some(64 << 20)).expect("the device can be created");
    let mut config = test_bed.config_with(EDGE, open_on(Arc::new(device), epoch));
    config.knowledge = None;
    if let Some(keys) = keys {
        let keys = Keys::load(keys).expect("the keys are valid").0;
        config.encryption = Encryption::Tls(Arc::new(keys));
    }
    Client::start(config, &gateway.to_string()).expect("the client starts")
}

/// An edge that connects with many different stores cannot use up the limit of peers: a quarter of the peers
/// remains for other certificates.
#[tokio::test]
async fn one_certificate_does_not_occupy_every_peer_slot() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let other_keys = another_edge(&test_bed.folder.join("keys"));
    let mut config = test_bed.gateway_config(target.addr());
    config.peers_max = 4;
    let gateway = Gateway::bind(config)
        .await
        .expect("the listener can be bound");
    let addr = gateway.local_addr();
    let mut same_certificate = Vec::new();
    for epoch in 1..=5 {
        let client = edge(&test_bed, addr, epoch, 0, None);
        within(client.settled()).await;
        same_certificate.push(client);
    }
    let client = edge(&test_bed, addr, 99, 0, Some(&other_keys));
    assert!(matches!(within(client.settled()).await, LinkState::Up(_)));
    let stream = client.open(tcp(target.addr())).expect("the link is up");
    let back = within(crate::test_bed::echo(stream, b"hello")).await;
    assert_eq!(back.expect("the target echoes the body"), b"hello");
    let connected = same_certificate
        .iter()
        .filter(|client| matches!(client.state(), LinkState::Up(_)));
    assert_eq!(
        connected.count(),
        3,
        "a quarter of the peers is for other certificates"
    );
}

/// Writes a byte and waits for its echo.
async fn ping(stream: &mut LinkStream, byte: u8) -> std::io::Result<()> {
    stream.write_all(&[byte]).await?;
    stream.flush().await?;
    let mut back = [0];
    stream.read_exact(&mut back).await?;
    assert_eq!(back, [byte]);
    Ok(())
}

/// Two edges with the same certificate and epoch, for example after a disk was copied, both work. A connection of one
/// edge does not end the streams of the other.
///
/// Method: open a stream at each edge, and echo bytes in turns. If a stream fails, try again: the gateway detects the
/// second edge only when the first one, whose session was replaced, connects again.
#[tokio::test]
async fn two_edges_with_one_store_identity_both_work() {
    const ROUNDS: u64 = 300;
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let gateway = test_bed.gateway(target.addr()).await;
    let clients = [1, 2].map(|nth| edge(&test_bed, gateway.local_addr(), 7, nth, None));
    let attempt = async || -> std::io::Result<()> {
        let mut streams = Vec::new();
        for client in &clients {
            within(client.up()).await;
            streams.push(
                client
                    .open(tcp(target.addr()))
                    .map_err(std::io::Error::other)?,
            );
        }
        for round in 0..ROUNDS {
            for stream in &mut streams {
                within(ping(stream, round as u8)).await?;
            }
        }
        Ok(())
    };
    let mut attempts = 0;
    while let Err(error) = attempt().await {
        attempts += 1;
        assert!(attempts < 40, "the edges end each other's streams: {error}");
        tokio::task::yield_now().await;
    }
    let status = gateway.status().await;
    assert_eq!(status.peers.len(), 2, "each edge is a separate peer");
    // A clone is an edge that has the store identity of another connected edge.
    assert_eq!(status.counters.clones, 1);
}

/// A rule for a name does not permit a special address, here a loopback address, to which the name resolves. The
/// address is permitted if another rule permits the address itself.
#[tokio::test]
async fn a_rule_for_a_name_does_not_permit_special_addresses() {
    let target = TcpServer::echo();
    let port = target.addr().port();
    let by_name: Target = Target::Tcp(
        format!("localhost:{port}")
            .parse()
            .expect("the text is a host and a port"),
    );
    for (rules, permitted) in [
        (vec![format!("localhost:{port}")], false),
        (vec!["*:*".to_owned()], false),
        (
            vec![format!("localhost:{port}"), "127.0.0.0/8:*".to_owned()],
            true,
        ),
        (
            vec![format!("localhost:{port}"), format!("127.0.0.1:{port}")],
            true,
        ),
        // A rule for the address does not permit the name.
        (vec![format!("127.0.0.1:{port}")], false),
    ] {
        let mut test_bed = TestBed::new(true);
        let mut config = test_bed.gateway_config(target.addr());
        config.allow = edgeward_link::Allow::default();
        for rule in &rules {
            config.allow = config.allow.and(rule.parse().expect("the rule is valid"));
        }
        let gateway = Gateway::bind(config)
            .await
            .expect("the listener can be bound");
        let client = test_bed.client(gateway.local_addr());
        within(client.up()).await;
        let mut stream = client.open(by_name.clone()).expect("the link is up");
        let answered = within(stream.accepted()).await;
        let reason = answered.err().map(|refused| refused.reason);
        let expected = (!permitted).then_some(refusal_reason::NOT_ALLOWED);
        assert_eq!(reason, expected, "{rules:?}");
        let mut by_address = client.open(tcp(target.addr())).expect("the link is up");
        let answered = within(by_address.accepted()).await.is_ok();
        let permits_address = rules.iter().any(|rule| rule.starts_with("127."));
        assert_eq!(answered, permits_address, "{rules:?}");
    }
}

/// Changes of the deny list apply without a restart. When a certificate is added, its connections are closed and
/// new connections are refused. When it is removed, it is accepted again.
#[tokio::test]
async fn a_denied_certificate_is_refused() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let keys = test_bed.folder.join("keys");
    let other_keys = another_edge(&keys);
    let list = test_bed.folder.join("deny");
    std::fs::write(&list, "# no fingerprints\n").expect("the file can be written");
    let mut config = test_bed.gateway_config(target.addr());
    config.deny = Some(edgeward_link::DenyList::load(&list).expect("the deny list is valid"));
    let gateway = Gateway::bind(config)
        .await
        .expect("the listener can be bound");
    let client = edge(&test_bed, gateway.local_addr(), 1, 0, None);
    let unlisted = edge(&test_bed, gateway.local_addr(), 2, 0, Some(&other_keys));
    within(async { tokio::join!(client.up(), unlisted.up()) }).await;

    let fingerprint = edgeward_link::certificate_fingerprint(&keys.join("edge/cert.pem"))
        .expect("the certificate can be read");
    std::fs::write(&list, format!("{fingerprint} # lost\n")).expect("the file can be written");
    within(async {
        while client.state() != LinkState::Down || gateway.status().await.counters.denied == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(matches!(unlisted.state(), LinkState::Up(_)));
    let new_client = edge(&test_bed, gateway.local_addr(), 3, 0, None);
    assert_eq!(within(new_client.settled()).await, LinkState::Down);

    std::fs::write(&list, "\n").expect("the file can be written");
    within(client.up()).await;
}

/// Connections that send nothing do not lock out an edge.
///
/// Method: open more silent connections than the gateway's limit, and then connect an edge.
#[tokio::test]
async fn silent_connections_do_not_lock_out_an_edge() {
    const SILENT: usize = 1100;
    // Both ends of a connection are in this process, so it needs two file descriptors. The limit is twice the number
    // for all silent connections, because other tests run at the same time.
    let limit = getrlimit(Resource::Nofile);
    let required = Some(4 * SILENT as u64);
    if limit.current < required
        && limit
            .maximum
            .is_none_or(|maximum| Some(maximum) >= required)
    {
        let raised = Rlimit {
            current: required,
            ..limit
        };
        setrlimit(Resource::Nofile, raised).expect("the limit is below the maximum");
    }
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let mut config = test_bed.gateway_config(target.addr());
    config.link.times.handshake = Duration::from_secs(3600);
    let gateway = Gateway::bind(config)
        .await
        .expect("the listener can be bound");
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        let connected = TcpStream::connect(gateway.local_addr()).await;
        silent.push(connected.expect("the port is open"));
    }
    let client = test_bed.client(gateway.local_addr());
    assert!(matches!(within(client.settled()).await, LinkState::Up(_)));
    let status = gateway.status().await;
    assert!(status.counters.displaced > 0, "{:?}", status.counters);
    // The remaining silent connections are closed after 3 s, the default timeout for the first byte.
    for mut silent in silent {
        let mut byte = [0];
        let read = within(silent.read(&mut byte)).await;
        assert!(matches!(read, Ok(0) | Err(_)));
    }
}

/// Clients that use all 32 connections of the admin server and do not read their responses do not lock out other
/// clients.
#[tokio::test]
async fn admin_clients_that_read_no_response_are_displaced() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let gateway = Arc::new(test_bed.gateway(target.addr()).await);
    let admin = Admin::bind(([127, 0, 0, 1], 0).into(), gateway.report()).await;
    let admin = admin.expect("the listener can be bound");
    let requests = b"GET /metrics HTTP/1.1\r\nhost: p\r\n\r\n".repeat(20_000);
    let mut stalled = Vec::new();
    for _ in 0..40 {
        let tcp = TcpStream::connect(admin.local_addr()).await;
        let tcp = tcp.expect("the port is open");
        let mut rest = &requests[..];
        while let Ok(written @ 1..) = tcp.try_write(rest) {
            rest = &rest[written..];
        }
        stalled.push(tcp);
    }
    let tcp = TcpStream::connect(admin.local_addr()).await;
    let mut tcp = tcp.expect("the port is open");
    let request = b"GET /healthz HTTP/1.1\r\nhost: p\r\nconnection: close\r\n\r\n";
    tcp.write_all(request)
        .await
        .expect("the bytes are accepted");
    let mut answer = Vec::new();
    within(tcp.read_to_end(&mut answer))
        .await
        .expect("the response is complete");
    assert!(answer.starts_with(b"HTTP/1.1 200"));
}
