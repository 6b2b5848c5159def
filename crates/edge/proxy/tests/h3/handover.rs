//! Connections that reach another worker, or another process after an upgrade. Two edges of one process stand for the
//! two processes.

use std::cell::Cell;
use std::net::{SocketAddr, UdpSocket};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::BytesMut;
use edgeward_h3::{FrameDecoder, FrameEvent, FrameLimits, StreamKind};
use edgeward_proxy::config::ListenerConfig;
use edgeward_proxy::{Edge, EdgeConfig, Inheritance, InheritedSockets, RunningEdge};
use edgeward_testkit::client::metric;
use edgeward_testkit::programs::free_port;
use edgeward_testkit::{Answer, Gate};
use quinn::{Connection, ConnectionError, ReadError};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::Http3Bed;
use crate::client::{
    H3Client, PREFACE, connect, connect_from, connect_quic, endpoint, head, open_uni,
};
use crate::identity::SelfSigned;
use crate::support::{Client, TIMEOUT, pattern, run};

/// Starts an edge beside `edge`, with those sockets of it that `is_passed` selects. It does not read those of UDP.
fn start_beside(
    edge: &RunningEdge,
    config: &EdgeConfig,
    is_passed: impl Fn(&str) -> bool,
) -> RunningEdge {
    let source = edge.upgrade_source();
    let mut sockets = InheritedSockets::default();
    for (name, socket) in source.sockets().expect("descriptors are free") {
        if is_passed(&name) {
            sockets.push(name, socket);
        }
    }
    let inheritance = Inheritance {
        sockets,
        predecessor: Some(source.cache_identity()),
        quic: Some(source.quic_identity()),
    };
    let new = Edge::start_with(config.clone(), inheritance).expect("the edge starts");
    assert!(new.takes_quic());
    new
}

/// Lets `new` read the sockets of UDP instead of `edge`.
fn take_over(edge: &RunningEdge, new: &RunningEdge) {
    edge.upgrade_source().leave_quic();
    new.quic_take_over()();
}

/// Lets an edge finish its requests after another one has taken over.
fn end(edge: RunningEdge) -> JoinHandle<()> {
    std::thread::spawn(move || edge.shutdown_for_successor(TIMEOUT, || ()))
}

/// Replaces an edge, which finishes its requests.
fn upgrade(edge: RunningEdge) -> (RunningEdge, JoinHandle<()>) {
    let new = start_beside(&edge, &edge.reloader().config(), |_| true);
    take_over(&edge, &new);
    (new, end(edge))
}

/// Waits for the end of an edge, while the clients carry on.
async fn join(ending: JoinHandle<()>) {
    let joined = tokio::task::spawn_blocking(|| ending.join()).await;
    joined.expect("joined").expect("the edge ends");
}

/// Returns a metric of an edge whose predecessor has ended.
fn metric_of(edge: &RunningEdge, name: &str) -> f64 {
    let admin = edge.admin_addr().expect("the edge has an admin server");
    metric(Client::connect(admin).get("/metrics", &[]).text(), name)
}

const TO_PROCESS: &str = "edgeward_quic_datagrams_forwarded_total{to=\"process\"}";
const TO_WORKER: &str = "edgeward_quic_datagrams_forwarded_total{to=\"worker\"}";

/// Method: a further request keeps the connection open until the client has read all bytes.
#[test]
fn a_download_that_runs_across_two_upgrades_ends_whole() {
    let http3 = Http3Bed::start();
    let gate = Gate::new();
    let download = Answer::pattern(1_000_000).wait_at(500_000, &gate);
    http3.bed.origin.on("/download", download);
    let last = Gate::new();
    let held = Answer::ok("last").wait_before_head(&last);
    http3.bed.origin.on("/last", held);
    http3.bed.origin.on("/page", Answer::ok("hello"));
    let (addr, identity) = (http3.bed.addr(), http3.identity);
    run(async {
        let mut client = connect(addr, &identity).await;
        let mut stream = client.send("GET", "/download", &[]).await;
        let _last = client.send("GET", "/last", &[]).await;
        gate.reached_by(1).await;
        last.reached_by(1).await;
        let (second, first_ends) = upgrade(http3.bed.edge);
        assert_eq!(client.edge_control.goaway().await, (1 << 62) - 4);
        assert_eq!(
            connect(addr, &identity).await.get("/page").await.body,
            b"hello"
        );
        let (third, second_ends) = upgrade(second);
        join(second_ends).await;
        assert_eq!(
            connect(addr, &identity).await.get("/page").await.body,
            b"hello"
        );
        assert!(!first_ends.is_finished());
        gate.open();
        let answer = stream.read_all().await.expect("the response is complete");
        assert!(answer.body == pattern(0..1_000_000));
        last.open();
        join(first_ends).await;
        assert!(metric_of(&third, TO_PROCESS) > 0.0);
    });
}

/// Method: clients send requests one after the other while three processes follow each other. After the end of a
/// connection, a request that was not served is sent again on a new one. Every other failure ends the test.
#[test]
fn upgrades_under_load_fail_no_request() {
    let http3 = Http3Bed::start();
    http3.bed.origin.on("/page", Answer::pattern(20_000));
    let (addr, identity) = (http3.bed.addr(), Arc::new(http3.identity));
    run(async {
        let (answered, mut answers) = watch::channel(0_usize);
        let (stop, stopping) = watch::channel(false);
        let mut clients = JoinSet::new();
        for _ in 0..10 {
            let (answered, identity) = (answered.clone(), Arc::clone(&identity));
            clients.spawn(send_requests(addr, identity, answered, stopping.clone()));
        }
        let mut edge = http3.bed.edge;
        for number in 1..=3 {
            let expected = number * 100;
            answers
                .wait_for(|answered| *answered >= expected)
                .await
                .expect("clients run");
            let replaced = tokio::task::spawn_blocking(|| upgrade(edge)).await;
            let ending;
            (edge, ending) = replaced.expect("the upgrade succeeds");
            join(ending).await;
        }
        stop.send_replace(true);
        let connections: usize = clients.join_all().await.into_iter().sum();
        // Each process has closed the connections that it had.
        assert!(connections >= 10, "{connections}");
    });
}

/// Returns the number of connections that were opened.
async fn send_requests(
    addr: SocketAddr,
    identity: Arc<SelfSigned>,
    answered: watch::Sender<usize>,
    stopping: watch::Receiver<bool>,
) -> usize {
    let endpoint = endpoint(&identity);
    let mut connections = 0;
    while !*stopping.borrow() {
        let quic = connect_quic(&endpoint, addr).await;
        let _control = open_uni(&quic, PREFACE).await;
        connections += 1;
        while !*stopping.borrow() {
            match request(&quic).await {
                Ok(answer) => assert!(answer == pattern(0..20_000)),
                Err(Unserved) => break,
            }
            answered.send_modify(|answered| *answered += 1);
        }
    }
    connections
}

/// The edge has not served a request, because the connection ends.
struct Unserved;

impl Unserved {
    fn check(error: &ConnectionError) -> Self {
        match error {
            ConnectionError::ApplicationClosed(close) => {
                assert_eq!(close.error_code.into_inner(), 0x100); // H3_NO_ERROR
            }
            other => panic!("a connection is lost: {other}"),
        }
        Self
    }
}

/// Requests a page, and returns the body.
async fn request(quic: &Connection) -> Result<Vec<u8>, Unserved> {
    let opened = quic.open_bi().await;
    let (mut sending, mut receiving) = opened.map_err(|error| Unserved::check(&error))?;
    // The response tells if the edge has stopped the stream.
    _ = sending.write_all(&head("GET", "/page", &[])).await;
    _ = sending.finish();
    let mut bytes = BytesMut::new();
    let ended = loop {
        match receiving.read_chunk(usize::MAX, true).await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk.bytes),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    // A request is served once its response has begun.
    let received = bytes.len();
    match ended {
        Ok(()) => {}
        Err(ReadError::Reset(code)) if received == 0 => {
            assert_eq!(code.into_inner(), 0x10b); // H3_REQUEST_REJECTED
            return Err(Unserved);
        }
        Err(ReadError::ConnectionLost(error)) if received == 0 => {
            return Err(Unserved::check(&error));
        }
        Err(error) => panic!("a response ends after {received} bytes: {error}"),
    }
    let mut bytes = bytes.freeze();
    let mut decoder = FrameDecoder::new(StreamKind::Request, FrameLimits::default());
    let mut body = Vec::new();
    while let Some(event) = decoder.decode(&mut bytes).expect("the frames are valid") {
        if let FrameEvent::Data(data) = event {
            body.extend_from_slice(&data);
        }
    }
    Ok(body)
}

/// Reloads that switch HTTP/3 off and on leave a socket of an old connection beside the new ones.
///
/// Method: a connection keeps the endpoints of a listener that reloads remove and add again.
#[test]
fn an_upgrade_passes_the_sockets_of_removed_listeners() {
    let http3 = Http3Bed::start();
    let gate = Gate::new();
    let held = Answer::ok("last").wait_before_head(&gate);
    http3.bed.origin.on("/last", held);
    http3.bed.origin.on("/page", Answer::ok("hello"));
    let (addr, identity) = (http3.bed.addr(), http3.identity);
    run(async {
        let client = connect(addr, &identity).await;
        let last = client.send("GET", "/last", &[]).await;
        gate.reached_by(1).await;
        let reloader = http3.bed.edge.reloader();
        for http3 in [false, true] {
            let mut config = reloader.config();
            config.listeners[0].http3 = http3;
            reloader
                .reload(&config)
                .expect("the configuration is valid");
        }
        let (_new, ending) = upgrade(http3.bed.edge);
        for _ in 0..32 {
            let new = connect(addr, &identity).await;
            assert_eq!(new.get("/page").await.body, b"hello");
        }
        gate.open();
        assert_eq!(last.answer().await.body, b"last");
        join(ending).await;
    });
}

/// Sockets of additional workers get no datagrams before the new process reads them.
///
/// Method: with bound sockets, the kernel would choose one of three, so two of three clients would lose all datagrams.
#[test]
fn connections_survive_upgrades_to_more_workers_that_take_long_or_fail() {
    let http3 = Http3Bed::with_config(|config| config.workers = NonZeroUsize::MIN);
    http3.bed.origin.on("/page", Answer::ok("hello"));
    let (addr, identity) = (http3.bed.addr(), http3.identity);
    run(async {
        let mut clients = Vec::new();
        for _ in 0..16 {
            clients.push(connect(addr, &identity).await);
        }
        let edge = http3.bed.edge;
        let mut config = edge.reloader().config();
        config.workers = NonZeroUsize::new(3).expect("not zero");
        for _ in 0..2 {
            let new = start_beside(&edge, &config, |_| true);
            request_of_each(&clients).await;
            let stopping = tokio::task::spawn_blocking(|| drop(new));
            request_of_each(&clients).await;
            stopping.await.expect("the new edge stops");
            request_of_each(&clients).await;
        }
        let new = start_beside(&edge, &config, |_| true);
        take_over(&edge, &new);
        // The old edge answers through its inbox.
        request_of_each(&clients).await;
        let ending = end(edge);
        drop(clients);
        for _ in 0..16 {
            request_of_each(&[connect(addr, &identity).await]).await;
        }
        join(ending).await;
    });
}

async fn request_of_each(clients: &[H3Client]) {
    for client in clients {
        assert_eq!(client.get("/page").await.body, b"hello");
    }
}

/// The new process would not know the endpoint of a later socket, and would answer its clients with a reset.
#[test]
fn a_reload_opens_no_listener_while_a_new_process_starts() {
    let http3 = Http3Bed::start();
    let (source, reloader) = (http3.bed.edge.upgrade_source(), http3.bed.edge.reloader());
    let with = reloader.config();
    let mut without = with.clone();
    without.listeners[0].http3 = false;
    let _sockets = source.sockets().expect("descriptors are free");
    let refused = reloader.reload(&without).expect_err("a listener changes");
    assert!(
        refused.to_string().contains("during an upgrade"),
        "{refused}"
    );
    reloader.reload(&with).expect("no listener changes");
    source.record_failure();
    for config in [&without, &with] {
        reloader.reload(config).expect("no new process starts");
    }
}

/// The kernel would choose the unread sockets for clients of the old process.
#[test]
fn a_reload_opens_no_listener_before_the_new_process_reads_the_sockets() {
    let http3 = Http3Bed::start();
    http3.bed.origin.on("/page", Answer::ok("hello"));
    let (edge, identity) = (http3.bed.edge, http3.identity);
    let with = edge.reloader().config();
    let mut without = with.clone();
    without.listeners[0].http3 = false;
    let mut further = with.clone();
    let addr = SocketAddr::from(([127, 0, 0, 1], free_port()));
    further.listeners.push(ListenerConfig {
        addr: addr.into(),
        ..with.listeners[0].clone()
    });
    let new = start_beside(&edge, &with, |_| true);
    let reloader = new.reloader();
    for opening in [&without, &further] {
        let refused = reloader.reload(opening).expect_err("a listener is opened");
        assert!(
            refused.to_string().contains("during an upgrade"),
            "{refused}"
        );
    }
    reloader.reload(&with).expect("no listener changes");
    take_over(&edge, &new);
    let ending = end(edge);
    reloader
        .reload(&further)
        .expect("the new process reads the sockets");
    run(async {
        let client = connect(addr, &identity).await;
        assert_eq!(client.get("/page").await.body, b"hello");
        join(ending).await;
    });
}

/// Method: the new edge gets the sockets, but not the inboxes of the old one, and thus cannot reach it. The old one
/// reads no socket, as after its end.
#[test]
fn the_clients_of_a_process_that_is_gone_get_a_stateless_reset() {
    let http3 = Http3Bed::start();
    http3.bed.origin.on("/page", Answer::ok("hello"));
    run(async {
        let client = http3.connect().await;
        assert_eq!(client.get("/page").await.body, b"hello");
        let edge = &http3.bed.edge;
        let is_passed = |name: &str| !name.starts_with("quic-inbox");
        let new = start_beside(edge, &edge.reloader().config(), is_passed);
        take_over(edge, &new);
        // The old edge may still receive what it is about to read.
        while let Ok((mut sending, mut receiving)) = client.quic.open_bi().await {
            _ = sending.write_all(&head("GET", "/page", &[])).await;
            _ = sending.finish();
            if receiving.read_to_end(1 << 20).await.is_err() {
                break;
            }
        }
        assert_eq!(client.quic.closed().await, ConnectionError::Reset);
    });
}

/// Passes datagrams between a client and an edge.
struct Relay {
    of_client: tokio::net::UdpSocket,
    of_edge: tokio::net::UdpSocket,
    /// The address of the client, once it has sent a datagram.
    client: Cell<Option<SocketAddr>>,
}

impl Relay {
    async fn new(edge: SocketAddr) -> Self {
        let bind = || tokio::net::UdpSocket::bind("127.0.0.1:0");
        let of_client = bind().await.expect("a port is free");
        let of_edge = bind().await.expect("a port is free");
        of_edge.connect(edge).await.expect("the address is valid");
        Self {
            of_client,
            of_edge,
            client: Cell::default(),
        }
    }

    fn addr(&self) -> SocketAddr {
        self.of_client.local_addr().expect("the socket is bound")
    }

    /// Passes datagrams until the edge has sent `count` of them.
    async fn pass(&self, count: usize) {
        let mut sent = 0;
        let (mut request, mut answer) = ([0; 2048], [0; 2048]);
        while sent < count {
            tokio::select! {
                received = self.of_client.recv_from(&mut request) => {
                    let (len, from) = received.expect("a datagram arrives");
                    self.client.set(Some(from));
                    // Fails if the edge has just closed a socket.
                    _ = self.of_edge.send(&request[..len]).await;
                }
                received = self.of_edge.recv(&mut answer) => {
                    let len = received.expect("a datagram arrives");
                    let client = self.client.get().expect("the client sends first");
                    self.of_client.send_to(&answer[..len], client).await.expect("sent");
                    sent += 1;
                }
            }
        }
    }
}

/// Method: a relay holds the client's answer to the Retry back until the new process reads the sockets. That process
/// has started before, because a token is valid for 15 s. A request keeps the old process.
#[test]
fn a_retry_of_the_old_process_is_answered_by_the_new_one() {
    let http3 = Http3Bed::with_config(|config| {
        // Every client must prove its address.
        config.limits.quic_handshakes_max = 1.try_into().expect("not zero");
    });
    let last = Gate::new();
    let held = Answer::ok("last").wait_before_head(&last);
    http3.bed.origin.on("/last", held);
    http3.bed.origin.on("/page", Answer::ok("hello"));
    let (addr, identity) = (http3.bed.addr(), http3.identity);
    run(async {
        let client = connect(addr, &identity).await;
        let held = client.send("GET", "/last", &[]).await;
        last.reached_by(1).await;
        let edge = http3.bed.edge;
        let new = start_beside(&edge, &edge.reloader().config(), |_| true);
        let relay = Relay::new(addr).await;
        let connecting = tokio::spawn({
            let endpoint = endpoint(&identity);
            let relay = relay.addr();
            async move { connect_from(endpoint, relay).await.get("/page").await }
        });
        relay.pass(1).await;
        take_over(&edge, &new);
        let ending = end(edge);
        let answer = tokio::select! {
            () = relay.pass(usize::MAX) => unreachable!("the relay passes all datagrams"),
            answer = connecting => answer.expect("the client gets a response"),
        };
        assert_eq!(answer.body, b"hello");
        assert!(!ending.is_finished());
        last.open();
        assert_eq!(held.answer().await.body, b"last");
        join(ending).await;
    });
}

/// Sends requests, each from another port.
async fn request_from_other_ports(client: &H3Client, ports: usize) {
    for _ in 0..ports {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        client.endpoint.rebind(socket).expect("the socket is open");
        assert_eq!(client.get("/page").await.body, b"hello");
    }
}

#[test]
fn the_datagrams_of_a_client_reach_its_worker_when_its_port_changes() {
    let http3 = Http3Bed::start();
    http3.bed.origin.on("/page", Answer::ok("hello"));
    run(async {
        for _ in 0..4 {
            request_from_other_ports(&http3.connect().await, 8).await;
        }
    });
    assert_eq!(http3.bed.metric(TO_WORKER), 0.0);
}

/// Method: the kernel chooses one of two sockets by the port, so half of the new ports lead to the other worker. All
/// 32 lead to the same worker in one of 2^32 runs.
#[test]
fn workers_pass_datagrams_on_if_other_processes_may_share_the_port() {
    let http3 = Http3Bed::with_config(|config| config.share_ports = true);
    http3.bed.origin.on("/page", Answer::ok("hello"));
    run(async { request_from_other_ports(&http3.connect().await, 32).await });
    assert!(http3.bed.metric(TO_WORKER) > 0.0);
    let connections = "edgeward_client_connections_total{protocol=\"h3\"}";
    assert_eq!(http3.bed.metric(connections), 1.0);
}

/// The new edge knows the places of the sockets that it has, and of those that it adds.
#[test]
fn clients_reach_their_worker_after_upgrades_to_other_numbers_of_workers() {
    let count = |workers| NonZeroUsize::new(workers).expect("not zero");
    let http3 = Http3Bed::with_config(|config| config.workers = count(1));
    http3.bed.origin.on("/page", Answer::ok("hello"));
    let (addr, identity) = (http3.bed.addr(), http3.identity);
    run(async {
        let mut edge = http3.bed.edge;
        for workers in [3, 2, 4] {
            let mut config = edge.reloader().config();
            config.workers = count(workers);
            let new = start_beside(&edge, &config, |_| true);
            take_over(&edge, &new);
            join(end(edge)).await;
            for _ in 0..8 {
                request_from_other_ports(&connect(addr, &identity).await, 4).await;
            }
            assert_eq!(metric_of(&new, TO_WORKER), 0.0, "{workers} workers");
            edge = new;
        }
    });
}

/// Method: a request keeps the endpoints of the listener that was switched off.
#[test]
fn http3_that_is_switched_on_again_accepts_every_client() {
    let http3 = Http3Bed::start();
    let gate = Gate::new();
    let held = Answer::ok("last").wait_before_head(&gate);
    http3.bed.origin.on("/last", held);
    http3.bed.origin.on("/page", Answer::ok("hello"));
    run(async {
        let client = http3.connect().await;
        let last = client.send("GET", "/last", &[]).await;
        gate.reached_by(1).await;
        let reloader = http3.bed.edge.reloader();
        let mut config = reloader.config();
        for is_on in [false, true] {
            config.listeners[0].http3 = is_on;
            let reloaded = reloader.reload(&config);
            reloaded.expect("the configuration is valid");
        }
        for _ in 0..16 {
            request_from_other_ports(&http3.connect().await, 1).await;
        }
        gate.open();
        assert_eq!(last.answer().await.body, b"last");
    });
}
