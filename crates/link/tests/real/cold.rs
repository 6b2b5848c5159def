//! Tests that a slow disk delays only the streams that need chunks from it.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use edgeward_chunk_store::{ChunkSettings, Chunks};
use edgeward_link::{Client, LinkStream};
use edgeward_store::disk::{Device, FileDevice};

use crate::bodies::Random;
use crate::test_bed::{EDGE, TestBed, open_on, tcp, within};

/// A disk whose first bytes are not in the page cache. Reads of these bytes block until the test releases them.
#[derive(Debug)]
struct SlowDisk {
    disk: FileDevice,
    /// The end of the bytes that are not in the cache, as an offset.
    below: Mutex<u64>,
    unblocked: Condvar,
    blocked_reads: watch::Sender<usize>,
    /// The thread of the Tokio runtime, which must not block on a read.
    runtime: ThreadId,
}

impl SlowDisk {
    fn new(path: &Path) -> Arc<Self> {
        Arc::new(Self {
            disk: FileDevice::open(path, Some(64 << 20)).expect("a device"),
            below: Mutex::new(0),
            unblocked: Condvar::new(),
            blocked_reads: watch::Sender::new(0),
            runtime: std::thread::current().id(),
        })
    }

    /// Makes the bytes before the offset `below` uncached. With 0, all bytes are cached and all blocked reads
    /// continue.
    fn block_below(&self, below: u64) {
        *self.below.lock().expect("no thread panics") = below;
        self.unblocked.notify_all();
    }

    /// Waits until this many reads block.
    async fn wait_for_blocked(&self, by: usize) {
        let mut blocked_reads = self.blocked_reads.subscribe();
        let enough = blocked_reads.wait_for(|blocked_reads| *blocked_reads >= by);
        within(enough).await.expect("it is open");
    }
}

impl Device for SlowDisk {
    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut below = self.below.lock().expect("no thread panics");
        if offset < *below {
            let this = std::thread::current().id();
            assert_ne!(
                this, self.runtime,
                "the runtime's thread blocks on the disk"
            );
            self.blocked_reads
                .send_modify(|blocked_reads| *blocked_reads += 1);
            while offset < *below {
                below = self.unblocked.wait(below).expect("no thread panics");
            }
            self.blocked_reads
                .send_modify(|blocked_reads| *blocked_reads -= 1);
        }
        drop(below);
        self.disk.read_at(buffer, offset)
    }

    fn read_now_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset < *self.below.lock().expect("no thread panics") {
            return Ok(0);
        }
        self.disk.read_at(buffer, offset).map(|()| buffer.len())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn name(&self) -> String {
        self.disk.name()
    }
}

/// A disk that reports for one of `one_in` non-blocking reads that the bytes are not in the page cache.
/// Blocking reads always succeed.
#[derive(Debug)]
pub(crate) struct PartlyCachedDisk {
    disk: FileDevice,
    one_in: u64,
    reads: AtomicU64,
}

impl PartlyCachedDisk {
    pub(crate) fn new(disk: FileDevice, one_in: u64) -> Self {
        let reads = AtomicU64::new(0);
        Self {
            disk,
            one_in,
            reads,
        }
    }
}

impl Device for PartlyCachedDisk {
    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.read_at(buffer, offset)
    }

    fn read_now_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let reads = self.reads.fetch_add(1, Ordering::Relaxed);
        if Random(reads).next().is_multiple_of(self.one_in) {
            return Ok(0);
        }
        self.disk.read_at(buffer, offset).map(|()| buffer.len())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn name(&self) -> String {
        self.disk.name()
    }
}

/// Starts a server that sends a body for each request. A request is one byte, the index of the body.
async fn serve_bodies(bodies: Vec<Vec<u8>>, tasks: &mut JoinSet<()>) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("it listens");
    let addr = listener.local_addr().expect("an address");
    let bodies = Arc::new(bodies);
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (tcp, _) = listener.accept().await.expect("it accepts");
            connections.spawn(send_body(tcp, Arc::clone(&bodies)));
        }
    });
    addr
}

async fn send_body(mut tcp: TcpStream, bodies: Arc<Vec<Vec<u8>>>) {
    if let Ok(number) = tcp.read_u8().await {
        _ = tcp.write_all(&bodies[usize::from(number)]).await;
        _ = tcp.shutdown().await;
    }
}

async fn fetch(mut stream: LinkStream, number: u8) -> Vec<u8> {
    stream.write_all(&[number]).await.expect("it is taken");
    stream.shutdown().await.expect("it is taken");
    let mut body = Vec::new();
    stream.read_to_end(&mut body).await.expect("it is sent");
    body
}

/// A client whose store is on a [`SlowDisk`] and has the first two of three bodies.
struct ColdClient {
    bodies: Vec<Vec<u8>>,
    link: Client,
    target: std::net::SocketAddr,
    disk: Arc<SlowDisk>,
    tasks: JoinSet<()>,
    _gateway: edgeward_link::Gateway,
    _test_bed: TestBed,
}

impl ColdClient {
    async fn new(late_frames_max: usize) -> Self {
        let bodies: Vec<_> = (0..3).map(|seed| Random(seed).noise(2_500_000)).collect();
        let mut tasks = JoinSet::new();
        let target = serve_bodies(bodies.clone(), &mut tasks).await;
        let mut test_bed = TestBed::new(false);
        let gateway = test_bed.gateway(target).await;
        let disk = SlowDisk::new(&test_bed.store_path(EDGE));
        let mut config = test_bed.config_with(EDGE, open_on(Arc::clone(&disk) as _, 7));
        config.late_frames_max = late_frames_max;
        let addr = gateway.local_addr().to_string();
        let client = Client::start(config, &addr).expect("it starts");
        within(client.up()).await;
        let cold = Self {
            bodies,
            link: client,
            target,
            disk,
            tasks,
            _gateway: gateway,
            _test_bed: test_bed,
        };
        for number in [0, 1] {
            assert!(within(cold.fetch(number)).await == cold.bodies[usize::from(number)]);
        }
        // Makes the first 4 MiB uncached, which contain both bodies. Later containers stay cached, because the store
        // must read their trailers before it overwrites them.
        cold.disk.block_below(4 << 20);
        cold
    }

    fn fetch(&self, number: u8) -> impl Future<Output = Vec<u8>> + 'static {
        fetch(self.link.open(tcp(self.target)).expect("it is up"), number)
    }
}

/// A stream whose chunks must be read from the disk does not delay another stream of the same peer.
#[tokio::test]
async fn a_disk_read_delays_no_other_stream() {
    let mut client = ColdClient::new(16).await;
    let mut late = JoinSet::new();
    late.spawn(client.fetch(0));
    client.disk.wait_for_blocked(1).await;
    let other = within(client.fetch(2)).await;
    assert!(other == client.bodies[2]);
    assert!(
        late.try_join_next().is_none(),
        "it was read from the blocked disk"
    );
    client.disk.block_below(0);
    let body = within(late.join_next()).await.expect("it was begun");
    assert!(body.expect("it is sent") == client.bodies[0]);
    let status = client.link.status();
    assert!(status.late_frames > 0);
    assert_eq!(status.parking_limit_hits, 0);
    // Chunks that must be read from the disk are not counted as missing.
    assert_eq!(status.received.missing, 0);
    client.tasks.abort_all();
}

/// An outgoing stream that must read a trailer from the disk to look up its chunks delays no other stream. Its chunks
/// are sent as references after the read.
///
/// Method: limit the cached trailers to two, so that the trailers of the first containers must be read from the disk.
#[tokio::test]
async fn an_index_lookup_on_the_disk_delays_no_other_stream() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("it listens");
    let target = listener.local_addr().expect("an address");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (mut tcp, _) = listener.accept().await.expect("it accepts");
            connections.spawn(async move {
                let mut body = Vec::new();
                _ = tcp.read_to_end(&mut body).await;
                _ = tcp.write_all(&body.len().to_le_bytes()).await;
            });
        }
    });
    let mut test_bed = TestBed::new(false);
    let gateway = test_bed.gateway(target).await;
    let disk = SlowDisk::new(&test_bed.store_path(EDGE));
    let settings = ChunkSettings {
        trailers_max: 2,
        ..ChunkSettings::new(8 << 10, 7)
    };
    let store = Chunks::open(Arc::clone(&disk) as _, settings).expect("a store");
    let addr = gateway.local_addr().to_string();
    let client = Client::start(test_bed.config_with(EDGE, store), &addr).expect("it starts");
    within(client.up()).await;
    let send = |body: &Arc<Vec<u8>>| {
        let (body, stream) = (Arc::clone(body), client.open(tcp(target)));
        async move {
            let mut stream = stream.expect("it is up");
            stream.write_all(&body).await.expect("it is taken");
            stream.shutdown().await.expect("it is taken");
            let mut came = [0; 8];
            stream.read_exact(&mut came).await.expect("it is counted");
            assert_eq!(usize::from_le_bytes(came), body.len());
        }
    };
    let bodies: [_; 2] = [1, 2].map(|seed| Arc::new(Random(seed).noise(2_500_000)));
    for body in &bodies {
        within(send(body)).await;
    }
    let before = client.status().sent.referenced;
    disk.block_below(4 << 20);
    let mut late = JoinSet::new();
    late.spawn(send(&bodies[0]));
    disk.wait_for_blocked(1).await;
    within(send(&Arc::new(Random(3).noise(20_000)))).await;
    assert!(
        late.try_join_next().is_none(),
        "it was sent before the lookup completed"
    );
    disk.block_below(0);
    within(late.join_next())
        .await
        .expect("it was begun")
        .expect("it is taken");
    let named = client.status().sent.referenced - before;
    assert!(named > 2_400_000, "{named} bytes were sent as references");
    assert!(client.status().late_bodies > 0);
    // Repeats this without another stream: the end of the read must resume the stream, because no other event occurs.
    disk.block_below(4 << 20);
    late.spawn(send(&bodies[0]));
    disk.wait_for_blocked(1).await;
    disk.block_below(0);
    within(late.join_next())
        .await
        .expect("it was begun")
        .expect("it is taken");
    tasks.abort_all();
}

/// The number of parked frames is limited. At the limit the connection waits, and no frame is lost.
#[tokio::test]
async fn the_number_of_parked_frames_is_bounded() {
    let mut client = ColdClient::new(1).await;
    let mut late = JoinSet::new();
    for number in [0, 1] {
        let fetched = client.fetch(number);
        late.spawn(async move { (number, fetched.await) });
    }
    client.disk.wait_for_blocked(1).await;
    let held_up = async {
        while client.link.status().parking_limit_hits == 0 {
            tokio::task::yield_now().await;
        }
    };
    within(held_up).await;
    assert_eq!(
        *client.disk.blocked_reads.borrow(),
        1,
        "more reads than the limit"
    );
    client.disk.block_below(0);
    while let Some(fetched) = within(late.join_next()).await {
        let (number, body) = fetched.expect("it is sent");
        assert!(body == client.bodies[usize::from(number)]);
    }
    client.tasks.abort_all();
}
