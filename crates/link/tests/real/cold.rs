//! A slow disk delays only the streams whose chunks it holds.

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

use crate::bodies::Stream;
use crate::stand::{EDGE, Stand, open_on, tcp, within};

/// A disk of which a part is not in the page cache: reads of that part block until the test releases them.
#[derive(Debug)]
struct Cold {
    disk: FileDevice,
    /// Bytes before this offset are not in the cache.
    below: Mutex<u64>,
    warmed: Condvar,
    waiting: watch::Sender<usize>,
    /// The thread that must not block on a read.
    runtime: ThreadId,
}

impl Cold {
    fn new(path: &Path) -> Arc<Self> {
        Arc::new(Self {
            disk: FileDevice::open(path, Some(64 << 20)).expect("a device"),
            below: Mutex::new(0),
            warmed: Condvar::new(),
            waiting: watch::Sender::new(0),
            runtime: std::thread::current().id(),
        })
    }

    /// Bytes before `below` are not in the cache from now on; 0 releases all reads.
    fn cool(&self, below: u64) {
        *self.below.lock().expect("no thread panics") = below;
        self.warmed.notify_all();
    }

    /// Waits until this many reads block.
    async fn waited_for(&self, by: usize) {
        let mut waiting = self.waiting.subscribe();
        let enough = waiting.wait_for(|waiting| *waiting >= by);
        within(enough).await.expect("it is open");
    }
}

impl Device for Cold {
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
            self.waiting.send_modify(|waiting| *waiting += 1);
            while offset < *below {
                below = self.warmed.wait(below).expect("no thread panics");
            }
            self.waiting.send_modify(|waiting| *waiting -= 1);
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

/// A disk whose page cache misses one of `one_in` reads; a blocking read always succeeds.
#[derive(Debug)]
pub(crate) struct Forgetful {
    disk: FileDevice,
    one_in: u64,
    asked: AtomicU64,
}

impl Forgetful {
    pub(crate) fn new(disk: FileDevice, one_in: u64) -> Self {
        let asked = AtomicU64::new(0);
        Self {
            disk,
            one_in,
            asked,
        }
    }
}

impl Device for Forgetful {
    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.read_at(buffer, offset)
    }

    fn read_now_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        if Stream(asked).next().is_multiple_of(self.one_in) {
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

/// Serves bodies: a request is the number of a body.
async fn library(bodies: Vec<Vec<u8>>, tasks: &mut JoinSet<()>) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("it listens");
    let addr = listener.local_addr().expect("an address");
    let bodies = Arc::new(bodies);
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (tcp, _) = listener.accept().await.expect("it accepts");
            connections.spawn(lend(tcp, Arc::clone(&bodies)));
        }
    });
    addr
}

async fn lend(mut tcp: TcpStream, bodies: Arc<Vec<Vec<u8>>>) {
    if let Ok(number) = tcp.read_u8().await {
        _ = tcp.write_all(&bodies[usize::from(number)]).await;
        _ = tcp.shutdown().await;
    }
}

async fn borrow(mut stream: LinkStream, number: u8) -> Vec<u8> {
    stream.write_all(&[number]).await.expect("it is taken");
    stream.shutdown().await.expect("it is taken");
    let mut body = Vec::new();
    stream.read_to_end(&mut body).await.expect("it is lent");
    body
}

/// A client whose store has two bodies on a [`Cold`] disk, and a third one that it has not received yet.
struct Readers {
    bodies: Vec<Vec<u8>>,
    client: Client,
    target: std::net::SocketAddr,
    disk: Arc<Cold>,
    tasks: JoinSet<()>,
    _gateway: edgeward_link::Gateway,
    _stand: Stand,
}

impl Readers {
    async fn new(late_frames_max: usize) -> Self {
        let bodies: Vec<_> = (0..3).map(|seed| Stream(seed).noise(2_500_000)).collect();
        let mut tasks = JoinSet::new();
        let target = library(bodies.clone(), &mut tasks).await;
        let mut stand = Stand::new(false);
        let gateway = stand.gateway(target).await;
        let disk = Cold::new(&stand.store_path(EDGE));
        let mut config = stand.config_with(EDGE, open_on(Arc::clone(&disk) as _, 7));
        config.late_frames_max = late_frames_max;
        let addr = gateway.local_addr().to_string();
        let client = Client::start(config, &addr).expect("it starts");
        within(client.up()).await;
        let readers = Self {
            bodies,
            client,
            target,
            disk,
            tasks,
            _gateway: gateway,
            _stand: stand,
        };
        for number in [0, 1] {
            assert!(within(readers.borrow(number)).await == readers.bodies[usize::from(number)]);
        }
        // The containers written so far are cold. The following ones are not, because they are read before they are
        // overwritten.
        readers.disk.cool(4 << 20);
        readers
    }

    fn borrow(&self, number: u8) -> impl Future<Output = Vec<u8>> + 'static {
        borrow(
            self.client.open(tcp(self.target)).expect("it is up"),
            number,
        )
    }
}

/// A stream whose chunks have to be read from the disk delays no other stream of the same peer, whose body is new
/// or in the cached part of the store.
#[tokio::test]
async fn who_waits_for_the_disk_waits_alone() {
    let mut readers = Readers::new(16).await;
    let mut late = JoinSet::new();
    late.spawn(readers.borrow(0));
    readers.disk.waited_for(1).await;
    let other = within(readers.borrow(2)).await;
    assert!(other == readers.bodies[2]);
    assert!(
        late.try_join_next().is_none(),
        "it was read from the blocked disk"
    );
    readers.disk.cool(0);
    let body = within(late.join_next()).await.expect("it was begun");
    assert!(body.expect("it is lent") == readers.bodies[0]);
    let status = readers.client.status();
    assert!(status.late > 0);
    assert_eq!(status.held_up, 0);
    // Chunks that are read late are not counted as missing.
    assert_eq!(status.received.missing, 0);
    readers.tasks.abort_all();
}

/// An outgoing stream that waits for an index lookup on the disk delays no other stream, and its chunks are
/// referenced nevertheless.
///
/// Method: the store keeps two trailers in memory, so the trailers of the first containers have to be read.
#[tokio::test]
async fn who_looks_for_chunks_waits_alone() {
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
    let mut stand = Stand::new(false);
    let gateway = stand.gateway(target).await;
    let disk = Cold::new(&stand.store_path(EDGE));
    let settings = ChunkSettings {
        trailers_max: 2,
        ..ChunkSettings::new(8 << 10, 7)
    };
    let store = Chunks::open(Arc::clone(&disk) as _, settings).expect("a store");
    let addr = gateway.local_addr().to_string();
    let client = Client::start(stand.config_with(EDGE, store), &addr).expect("it starts");
    within(client.up()).await;
    let give = |body: &Arc<Vec<u8>>| {
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
    let bodies: [_; 2] = [1, 2].map(|seed| Arc::new(Stream(seed).noise(2_500_000)));
    for body in &bodies {
        within(give(body)).await;
    }
    let before = client.status().sent.named;
    disk.cool(4 << 20);
    let mut late = JoinSet::new();
    late.spawn(give(&bodies[0]));
    disk.waited_for(1).await;
    within(give(&Arc::new(Stream(3).noise(20_000)))).await;
    assert!(
        late.try_join_next().is_none(),
        "it was sent before the lookup completed"
    );
    disk.cool(0);
    within(late.join_next())
        .await
        .expect("it was begun")
        .expect("it is taken");
    let named = client.status().sent.named - before;
    assert!(named > 2_400_000, "{named} bytes were sent as references");
    assert!(client.status().late_bodies > 0);
    // The completed read alone must resume the stream, because no other event occurs.
    disk.cool(4 << 20);
    late.spawn(give(&bodies[0]));
    disk.waited_for(1).await;
    disk.cool(0);
    within(late.join_next())
        .await
        .expect("it was begun")
        .expect("it is taken");
    tasks.abort_all();
}

/// The number of parked frames is limited. At the limit the connection waits, and no frame is lost.
#[tokio::test]
async fn frames_that_wait_for_the_disk_are_bounded() {
    let mut readers = Readers::new(1).await;
    let mut late = JoinSet::new();
    for number in [0, 1] {
        let borrowed = readers.borrow(number);
        late.spawn(async move { (number, borrowed.await) });
    }
    readers.disk.waited_for(1).await;
    let held_up = async {
        while readers.client.status().held_up == 0 {
            tokio::task::yield_now().await;
        }
    };
    within(held_up).await;
    assert_eq!(
        *readers.disk.waiting.borrow(),
        1,
        "more reads than the limit"
    );
    readers.disk.cool(0);
    while let Some(lent) = within(late.join_next()).await {
        let (number, body) = lent.expect("it is lent");
        assert!(body == readers.bodies[usize::from(number)]);
    }
    readers.tasks.abort_all();
}
