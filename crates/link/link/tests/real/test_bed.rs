//! The servers and helpers of the tests: a gateway, a client, a target behind the gateway, all on loopback, and a TCP
//! relay that injects faults.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use edgeward_chunk_store::format::Layout;
use edgeward_chunk_store::{ChunkSettings, Chunks};
use edgeward_dedup::codec::Method;
use edgeward_dedup::id::IdKey;
use edgeward_link::{
    Client, Encryption, Gateway, GatewayConfig, Keys, LinkConfig, LinkStream, Rule, Target, Times,
};
use edgeward_store::disk::{Device, FileDevice};
use edgeward_testkit::disk::ObservedDisk;

use crate::cold::PartlyCached;

/// The folders and keys of both endpoints.
pub(crate) struct TestBed {
    pub(crate) folder: PathBuf,
    /// The temporary folder, if it was created for this value. Dropping it deletes the folder.
    _temporary: Option<TempDir>,
    keys: Option<[Keys; 2]>,
    id_key: IdKey,
    /// The number of stores opened so far. A store that is created gets this number as its epoch.
    pub(crate) stores_opened: u64,
    /// The settings of the stores, except their epochs.
    pub(crate) store_settings: ChunkSettings,
    /// If this is `Some(n)`, one of `n` reads of the stores reports that the bytes are not in the page cache.
    pub(crate) uncached_reads_one_in: Option<u64>,
    /// The folder of the stores, if it is another one than `folder`.
    pub(crate) stores: Option<TempDir>,
    /// True if the gateway stores all chunks that it sends: the value of `GatewayConfig::keep_sent`.
    pub(crate) keep_sent: bool,
}

pub(crate) const GATEWAY: usize = 0;
pub(crate) const EDGE: usize = 1;

impl TestBed {
    pub(crate) fn new(encrypted: bool) -> Self {
        Self::in_temporary(
            tempfile::tempdir().expect("the folder can be created"),
            encrypted,
        )
    }

    /// Creates a test bed in `/dev/shm`, if it exists, so that the test does not wait for a disk.
    pub(crate) fn in_memory() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self::in_temporary(folder.expect("the folder can be created"), true)
    }

    fn in_temporary(folder: TempDir, encrypted: bool) -> Self {
        edgeward_link::generate_keys(&folder.path().join("keys"))
            .expect("the keys can be generated");
        let mut test_bed = Self::in_folder(folder.path());
        test_bed._temporary = Some(folder);
        if !encrypted {
            test_bed.keys = None;
        }
        test_bed
    }

    /// Creates an encrypted test bed in a folder that already has generated keys.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        let keys = folder.join("keys");
        let load =
            |endpoint: &str| Keys::load(&keys.join(endpoint)).expect("the keys were generated");
        let [(gateway, id_key), (edge, _)] = ["gateway", "edge"].map(load);
        Self {
            folder: folder.to_owned(),
            _temporary: None,
            keys: Some([gateway, edge]),
            id_key,
            stores_opened: 0,
            store_settings: ChunkSettings::new(8 << 10, 0),
            uncached_reads_one_in: None,
            stores: None,
            keep_sent: false,
        }
    }

    pub(crate) fn store_path(&self, endpoint: usize) -> PathBuf {
        self.stores_folder().join(["gateway", "edge"][endpoint])
    }

    pub(crate) fn knowledge_path(&self, endpoint: usize) -> PathBuf {
        self.stores_folder()
            .join(["gateway knows", "edge knows"][endpoint])
    }

    fn stores_folder(&self) -> &Path {
        match &self.stores {
            Some(stores) => stores.path(),
            None => &self.folder,
        }
    }

    pub(crate) fn config(&mut self, endpoint: usize) -> LinkConfig {
        self.stores_opened += 1;
        let device = FileDevice::open(&self.store_path(endpoint), Some(64 << 20))
            .expect("the device can be created");
        let device: Arc<dyn Device> = match self.uncached_reads_one_in {
            Some(one_in) => ObservedDisk::new(Arc::new(device), PartlyCached::new(one_in)),
            None => Arc::new(device),
        };
        let settings = ChunkSettings {
            epoch: self.stores_opened,
            ..self.store_settings.clone()
        };
        let store = Chunks::open(device, settings).expect("the store opens");
        self.config_with(endpoint, store)
    }

    pub(crate) fn config_with(&self, endpoint: usize, store: Chunks) -> LinkConfig {
        let encryption = match &self.keys {
            Some(keys) => Encryption::Tls(Arc::new(keys[endpoint].clone())),
            None => Encryption::Off,
        };
        LinkConfig {
            times: Times {
                backoff_min: Duration::from_millis(5),
                backoff_max: Duration::from_millis(100),
                // The interval at which the knowledge is persisted in the file at `knowledge_path`.
                knowledge: Duration::from_millis(20),
                ..Times::default()
            },
            knowledge: Some(self.knowledge_path(endpoint)),
            chunk_bytes: self.store_settings.chunk_bytes,
            ..LinkConfig::new(encryption, self.id_key.clone(), store)
        }
    }

    pub(crate) async fn gateway(&mut self, target: SocketAddr) -> Gateway {
        let config = self.gateway_config(target);
        Gateway::bind(config)
            .await
            .expect("the listener can be bound")
    }

    pub(crate) fn gateway_config(&mut self, target: SocketAddr) -> GatewayConfig {
        let listen = "127.0.0.1:0".parse().expect("the address is valid");
        let mut config = GatewayConfig::new(self.config(GATEWAY), listen, None);
        let rule: Rule = target.to_string().parse().expect("the rule is valid");
        config.allow = config.allow.and(rule);
        config.keep_sent = self.keep_sent;
        config
    }

    pub(crate) fn client(&mut self, gateway: SocketAddr) -> Client {
        Client::start(self.config(EDGE), &gateway.to_string()).expect("the client starts")
    }
}

/// Returns the settings of a store with small containers and chunks, so that a few megabytes fill hundreds of
/// containers. Chunks are compressed.
pub(crate) fn small_containers() -> ChunkSettings {
    ChunkSettings {
        layout: Layout::new(16 << 10).expect("the size is supported"),
        compression: Method::Zstd,
        ..ChunkSettings::new(4 << 10, 0)
    }
}

/// Opens the chunk store on a device.
pub(crate) fn open_on(device: Arc<dyn Device>, epoch: u64) -> Chunks {
    Chunks::open(device, ChunkSettings::new(8 << 10, epoch)).expect("the store opens")
}

pub(crate) fn tcp(target: SocketAddr) -> Target {
    Target::Tcp(
        target
            .to_string()
            .parse()
            .expect("the text is a host and a port"),
    )
}

/// Waits for a future. Panics after a minute: no operation of these tests takes so long on loopback, unless it hangs.
/// The minute is counted in 60 timeouts of one second, so that a pause of the whole machine counts as one second only.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    for _ in 0..60 {
        if let Ok(done) = tokio::time::timeout(Duration::from_secs(1), &mut future).await {
            return done;
        }
    }
    panic!("the operation takes more than a minute");
}

/// Waits until a condition is true.
pub(crate) async fn until(mut condition: impl AsyncFnMut() -> bool) {
    within(async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Sends a body on the stream and reads the echo at the same time. Returns the echo.
pub(crate) async fn echo(stream: LinkStream, body: &[u8]) -> std::io::Result<Vec<u8>> {
    let (mut read, mut write) = tokio::io::split(stream);
    let sent = async {
        write.write_all(body).await?;
        write.shutdown().await
    };
    let mut echoed = Vec::new();
    let (sent, received) = tokio::join!(sent, read.read_to_end(&mut echoed));
    received?;
    sent?;
    Ok(echoed)
}

/// A TCP relay to the gateway that closes connections and flips bits.
pub(crate) struct FaultyRelay {
    pub(crate) addr: SocketAddr,
    /// The bytes relayed on all connections, in both directions.
    pub(crate) relayed_bytes: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

/// The faults of a relay. Each direction of each connection counts its bytes from 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// A connection is closed after this number of bytes; 0 disables this fault.
    pub(crate) break_every: u64,
    /// One bit is flipped each time this number of bytes was relayed; 0 disables this fault.
    pub(crate) flip_every: u64,
    /// The number of connections that have faults. Later connections have no faults, so that all bodies are
    /// delivered before the test ends.
    pub(crate) faulty_connections: u64,
}

impl FaultyRelay {
    pub(crate) async fn start(to: SocketAddr, faults: Faults) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("the listener can be bound");
        let addr = listener.local_addr().expect("the listener has an address");
        let relayed_bytes = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        let counter = Arc::clone(&relayed_bytes);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            for nth in 0.. {
                let (client, _) = listener.accept().await.expect("the listener accepts");
                let faults = if nth < faults.faulty_connections {
                    faults
                } else {
                    Faults::default()
                };
                connections.spawn(carry(client, to, faults, Arc::clone(&counter)));
            }
        });
        Self {
            addr,
            relayed_bytes,
            _tasks: tasks,
        }
    }
}

async fn carry(client: TcpStream, to: SocketAddr, faults: Faults, relayed_bytes: Arc<AtomicU64>) {
    let Ok(gateway) = TcpStream::connect(to).await else {
        return;
    };
    let (client, gateway) = (client.into_split(), gateway.into_split());
    let to_gateway = one_way(client.0, gateway.1, faults, &relayed_bytes);
    let to_edge = one_way(gateway.0, client.1, faults, &relayed_bytes);
    // If one direction ends, both connections are closed.
    tokio::select! {
        () = to_gateway => {}
        () = to_edge => {}
    }
}

async fn one_way(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    faults: Faults,
    relayed_bytes: &AtomicU64,
) {
    let (mut buffer, mut total) = (vec![0; 16 << 10], 0_u64);
    while let Ok(bytes @ 1..) = from.read(&mut buffer).await {
        let piece = &mut buffer[..bytes];
        let before = total;
        total += bytes as u64;
        relayed_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if faults.flip_every > 0 && before / faults.flip_every != total / faults.flip_every {
            let at =
                usize::try_from(total % faults.flip_every).expect("the number is small") % bytes;
            piece[at] ^= 1 << (total % 8);
        }
        if to.write_all(piece).await.is_err() {
            return;
        }
        if faults.break_every > 0 && total >= faults.break_every {
            return;
        }
    }
}
