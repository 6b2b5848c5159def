//! Tests that a slow disk delays only the streams that need chunks from it.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::task::JoinSet;

use edgeward_chunk_store::{ChunkSettings, Chunks};
use edgeward_link::{Client, Gateway, LinkStream};
use edgeward_store::disk::FileDevice;
use edgeward_testkit::TcpServer;
use edgeward_testkit::disk::{ObservedDisk, ReadObserver};

use crate::bodies::Random;
use crate::test_bed::{EDGE, TestBed, open_on, small_containers, tcp, until, within};

/// Makes the first bytes of a disk uncached. Reads of these bytes block until the test releases them.
#[derive(Debug)]
struct UncachedPrefix {
    /// The end of the bytes that are not in the cache, as an offset.
    uncached_end: Mutex<u64>,
    unblocked: Condvar,
    blocked_reads: watch::Sender<usize>,
    /// The thread of the Tokio runtime, which must not block on a read.
    runtime: ThreadId,
}

/// A disk with an [`UncachedPrefix`]. At first, all bytes are cached.
type SlowDisk = ObservedDisk<UncachedPrefix>;

fn slow_disk(path: &Path, bytes: u64) -> Arc<SlowDisk> {
    let disk = FileDevice::open(path, Some(bytes)).expect("the device can be created");
    let uncached_prefix = UncachedPrefix {
        uncached_end: Mutex::new(0),
        unblocked: Condvar::new(),
        blocked_reads: watch::Sender::new(0),
        runtime: std::thread::current().id(),
    };
    ObservedDisk::new(Arc::new(disk), uncached_prefix)
}

impl UncachedPrefix {
    /// Makes the bytes before this offset uncached. With 0, all bytes are cached and all blocked reads continue.
    fn block_below(&self, offset: u64) {
        *self.uncached_end.lock().expect("no thread panics") = offset;
        self.unblocked.notify_all();
    }

    /// Waits until this many reads block.
    async fn wait_for_blocked(&self, reads: usize) {
        let mut blocked_reads = self.blocked_reads.subscribe();
        let enough = blocked_reads.wait_for(|blocked_reads| *blocked_reads >= reads);
        within(enough).await.expect("the sender exists");
    }
}

impl ReadObserver for UncachedPrefix {
    fn before_read(&self, offset: u64) {
        let mut uncached_end = self.uncached_end.lock().expect("no thread panics");
        if offset < *uncached_end {
            let this = std::thread::current().id();
            assert_ne!(
                this, self.runtime,
                "the runtime's thread blocks on the disk"
            );
            self.blocked_reads
                .send_modify(|blocked_reads| *blocked_reads += 1);
            while offset < *uncached_end {
                uncached_end = self.unblocked.wait(uncached_end).expect("no thread panics");
            }
            self.blocked_reads
                .send_modify(|blocked_reads| *blocked_reads -= 1);
        }
    }

    fn is_cached(&self, offset: u64) -> Option<bool> {
        Some(offset >= *self.uncached_end.lock().expect("no thread panics"))
    }
}

/// Reports that the bytes are not in the page cache, on average for one of `one_in` non-blocking reads.
#[derive(Debug)]
pub(crate) struct PartlyCached {
    one_in: u64,
    reads: AtomicU64,
}

impl PartlyCached {
    pub(crate) fn new(one_in: u64) -> Self {
        let reads = AtomicU64::new(0);
        Self { one_in, reads }
    }
}

impl ReadObserver for PartlyCached {
    fn is_cached(&self, _offset: u64) -> Option<bool> {
        let reads = self.reads.fetch_add(1, Ordering::Relaxed);
        Some(!Random(reads).next().is_multiple_of(self.one_in))
    }
}

/// Starts a server that sends a body for each request. A request is one byte, the index of the body.
fn serve_bodies(bodies: Vec<Vec<u8>>) -> TcpServer {
    TcpServer::start(move |mut tcp| {
        let mut number = [0];
        if tcp.read_exact(&mut number).is_ok() {
            _ = tcp.write_all(&bodies[usize::from(number[0])]);
        }
    })
}

async fn fetch(mut stream: LinkStream, number: u8) -> Vec<u8> {
    stream
        .write_all(&[number])
        .await
        .expect("the stream accepts the bytes");
    stream
        .shutdown()
        .await
        .expect("the stream accepts the bytes");
    let mut body = Vec::new();
    stream
        .read_to_end(&mut body)
        .await
        .expect("the body is complete");
    body
}

/// A client whose store is on a [`SlowDisk`] and has the first two of three bodies.
struct ColdClient {
    bodies: Vec<Vec<u8>>,
    link: Client,
    target: TcpServer,
    disk: Arc<SlowDisk>,
    _gateway: Gateway,
    _test_bed: TestBed,
}

impl ColdClient {
    async fn new(slow_requests_max: usize) -> Self {
        let bodies: Vec<_> = (0..3).map(|seed| Random(seed).noise(2_500_000)).collect();
        let target = serve_bodies(bodies.clone());
        let mut test_bed = TestBed::new(false);
        let gateway = test_bed.gateway(target.addr()).await;
        let disk = slow_disk(&test_bed.store_path(EDGE), 64 << 20);
        let mut config = test_bed.config_with(EDGE, open_on(Arc::clone(&disk) as _, 7));
        config.slow_requests_max = slow_requests_max;
        let addr = gateway.local_addr().to_string();
        let client = Client::start(config, &addr).expect("the client starts");
        within(client.up()).await;
        let cold_client = Self {
            bodies,
            link: client,
            target,
            disk,
            _gateway: gateway,
            _test_bed: test_bed,
        };
        for number in [0, 1] {
            assert!(
                within(cold_client.fetch(number)).await == cold_client.bodies[usize::from(number)]
            );
        }
        // Makes the first 4 MiB uncached, which contain the first body and most of the second. Later containers stay
        // cached, so that the insertion of the third body does not block: the store reads the trailer of a container
        // (the list of its chunks) before it overwrites the container.
        cold_client.disk.observer().block_below(4 << 20);
        cold_client
    }

    fn fetch(&self, number: u8) -> impl Future<Output = Vec<u8>> + 'static {
        fetch(
            self.link
                .open(tcp(self.target.addr()))
                .expect("the link is up"),
            number,
        )
    }
}

/// A stream whose chunks must be read from the disk does not delay another stream of the same peer.
#[tokio::test]
async fn a_disk_read_delays_no_other_stream() {
    let client = ColdClient::new(16).await;
    let mut blocked = JoinSet::new();
    blocked.spawn(client.fetch(0));
    client.disk.observer().wait_for_blocked(1).await;
    let other = within(client.fetch(2)).await;
    assert!(other == client.bodies[2]);
    assert!(
        blocked.try_join_next().is_none(),
        "the body was read from the blocked disk"
    );
    client.disk.observer().block_below(0);
    let body = within(blocked.join_next()).await.expect("the task exists");
    assert!(body.expect("the body is complete") == client.bodies[0]);
    let status = client.link.status().await;
    assert!(status.parked_frames > 0);
    assert_eq!(status.parking_limit_hits, 0);
    // Chunks that must be read from the disk are not counted as missing.
    assert_eq!(status.received.missing, 0);
}

/// An outgoing stream that must read a trailer from the disk to look up its chunks delays no other stream. Its chunks
/// are sent as references after the read.
///
/// Method: limit the cached trailers to two, so that the trailers of the first containers must be read from the disk.
#[tokio::test]
async fn an_index_lookup_on_the_disk_delays_no_other_stream() {
    // Answers each body with its length.
    let target = TcpServer::start(|mut tcp| {
        let mut body = Vec::new();
        _ = tcp.read_to_end(&mut body);
        _ = tcp.write_all(&body.len().to_le_bytes());
    });
    let mut test_bed = TestBed::new(false);
    let gateway = test_bed.gateway(target.addr()).await;
    let disk = slow_disk(&test_bed.store_path(EDGE), 64 << 20);
    let settings = ChunkSettings {
        trailers_max: 2,
        ..ChunkSettings::new(8 << 10, 7)
    };
    let store = Chunks::open(Arc::clone(&disk) as _, settings).expect("the store opens");
    let addr = gateway.local_addr().to_string();
    let client =
        Client::start(test_bed.config_with(EDGE, store), &addr).expect("the client starts");
    within(client.up()).await;
    let send = |body: &Arc<Vec<u8>>| {
        let (body, stream) = (Arc::clone(body), client.open(tcp(target.addr())));
        async move {
            let mut stream = stream.expect("the link is up");
            stream
                .write_all(&body)
                .await
                .expect("the stream accepts the bytes");
            stream
                .shutdown()
                .await
                .expect("the stream accepts the bytes");
            let mut counted = [0; 8];
            stream
                .read_exact(&mut counted)
                .await
                .expect("the target answers");
            assert_eq!(usize::from_le_bytes(counted), body.len());
        }
    };
    let bodies: [_; 2] = [1, 2].map(|seed| Arc::new(Random(seed).noise(2_500_000)));
    for body in &bodies {
        within(send(body)).await;
    }
    let before = client.status().await.sent.referenced;
    disk.observer().block_below(4 << 20);
    let mut blocked = JoinSet::new();
    blocked.spawn(send(&bodies[0]));
    disk.observer().wait_for_blocked(1).await;
    within(send(&Arc::new(Random(3).noise(20_000)))).await;
    assert!(
        blocked.try_join_next().is_none(),
        "the body was sent before the lookup ended"
    );
    disk.observer().block_below(0);
    within(blocked.join_next())
        .await
        .expect("the task exists")
        .expect("the stream accepts the bytes");
    let referenced = client.status().await.sent.referenced - before;
    assert!(
        referenced > 2_400_000,
        "{referenced} bytes were sent as references"
    );
    assert!(client.status().await.stalled_bodies > 0);
    // Sends the first body again without another stream: the end of the read must resume the stream, because no other
    // event occurs.
    disk.observer().block_below(4 << 20);
    blocked.spawn(send(&bodies[0]));
    disk.observer().wait_for_blocked(1).await;
    disk.observer().block_below(0);
    within(blocked.join_next())
        .await
        .expect("the task exists")
        .expect("the stream accepts the bytes");
}

/// The number of parked frames is limited. A received frame is parked while chunks that it references are read from
/// the disk. At the limit the connection waits, and no frame is lost.
#[tokio::test]
async fn the_number_of_parked_frames_is_bounded() {
    let client = ColdClient::new(1).await;
    let mut blocked = JoinSet::new();
    for number in [0, 1] {
        let fetched = client.fetch(number);
        blocked.spawn(async move { (number, fetched.await) });
    }
    client.disk.observer().wait_for_blocked(1).await;
    let limit_is_reached = async {
        while client.link.status().await.parking_limit_hits == 0 {
            tokio::task::yield_now().await;
        }
    };
    within(limit_is_reached).await;
    assert_eq!(
        *client.disk.observer().blocked_reads.borrow(),
        1,
        "the limit of parked frames is exceeded"
    );
    client.disk.observer().block_below(0);
    while let Some(fetched) = within(blocked.join_next()).await {
        let (number, body) = fetched.expect("the body is complete");
        assert!(body == client.bodies[usize::from(number)]);
    }
}

/// A stream waits for chunks of a compressed container, and the container is overwritten meanwhile. The stream then
/// gets the bytes from the gateway, and its body is correct. The chunks of the new container are kept.
///
/// Method: a store of about 100 containers. Hold all reads, request a body whose chunks are stored, and fetch other
/// bodies until each container is overwritten. The trailers of the containers, which list their chunks, are in memory.
#[tokio::test]
async fn a_container_may_be_overwritten_while_a_stream_waits_for_it() {
    for overwrites_with_text in [false, true] {
        let new_body = |seed| {
            if overwrites_with_text {
                Random(seed).text(1_000_000)
            } else {
                Random(seed).noise(1_000_000)
            }
        };
        let bodies: Vec<_> = std::iter::once(Random(0).text(1_000_000))
            .chain((1..20).map(new_body))
            .collect();
        let target = serve_bodies(bodies.clone());
        let mut test_bed = TestBed::new(false);
        test_bed.store_settings = small_containers();
        let mut gateway = test_bed.gateway_config(target.addr());
        // A delta would need a stored chunk, so that the new bodies would wait too.
        gateway.link.delta = false;
        let gateway = Gateway::bind(gateway).await;
        let gateway = gateway.expect("the listener can be bound");
        let disk = slow_disk(&test_bed.store_path(EDGE), 2 << 20);
        let store = Chunks::open(Arc::clone(&disk) as _, small_containers());
        let store = store.expect("the store opens");
        let config = test_bed.config_with(EDGE, store.clone());
        let addr = gateway.local_addr().to_string();
        let client = Client::start(config, &addr).expect("the client starts");
        within(client.up()).await;
        let get = |number: usize| {
            let stream = client.open(tcp(target.addr())).expect("the link is up");
            fetch(stream, number as u8)
        };
        assert!(within(get(0)).await == bodies[0]);
        // The chunks of a body are stored after it was delivered, except those that are longer than a container.
        until(async || store.counters().raw_bytes > 500_000).await;
        let stored = store.counters();
        assert!(stored.stored_bytes < stored.raw_bytes * 3 / 4, "{stored:?}");
        let first_new = store.open_container_number() + 1;
        disk.observer().block_below(u64::MAX);
        let mut waiting = JoinSet::new();
        waiting.spawn(get(0));
        disk.observer().wait_for_blocked(1).await;
        let mut newest = 0;
        while store.open_container_number() < first_new + store.containers() {
            newest += 1;
            assert!(within(get(newest)).await == bodies[newest]);
        }
        let is_waiting = waiting.try_join_next().is_none();
        assert!(is_waiting, "the body was read from the blocked disk");
        disk.observer().block_below(0);
        let body = within(waiting.join_next()).await.expect("the task exists");
        assert!(body.expect("the body is complete") == bodies[0]);
        let received = client.status().await.received;
        assert!(received.missing > 0, "{received:?}");
        assert_eq!(store.counters().forgotten, 0);
        // The last chunks of the newest body may not be stored yet.
        until(async || {
            let before = client.status().await.received.from_store;
            assert!(within(get(newest)).await == bodies[newest]);
            client.status().await.received.from_store - before > 300_000
        })
        .await;
    }
}
