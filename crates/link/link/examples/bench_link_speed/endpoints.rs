//! The servers of the benchmark: a source, a TCP relay, a gateway and an edge. The CPU time of relay, gateway
//! and edge is measured; each of them is one thread.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use edgeward_chunk_store::{ChunkSettings, Chunks, ScratchDevice};
use edgeward_dedup::codec::{Method, Methods};
use edgeward_link::{
    Client, Encryption, Gateway, GatewayConfig, Keys, LinkConfig, ListenerTarget, LocalListener,
    Target,
};
use edgeward_testkit::{Wan, WanSettings};

/// The settings of the link in one row of the benchmark.
#[derive(Clone, Copy)]
pub(crate) struct Features {
    pub(crate) tls: bool,
    /// The method by which the chunk stores compress their containers.
    pub(crate) store: Method,
    pub(crate) dedup: bool,
    /// True if the gateway stores all chunks that it sends, see [`GatewayConfig::keep_sent`].
    pub(crate) keep_sent: bool,
    /// True if new chunks may be sent as deltas.
    pub(crate) delta: bool,
    /// The methods by which the link may compress payloads.
    pub(crate) methods: Methods,
    /// The average size of a chunk in bytes.
    pub(crate) chunk_bytes: u32,
}

/// The capacity of each endpoint's chunk store.
pub(crate) const STORE_BYTES: u64 = 512 << 20;

/// A server that sends a body on every connection and then closes it.
pub(crate) struct Source {
    pub(crate) addr: SocketAddr,
    body: Arc<Mutex<Arc<Vec<u8>>>>,
}

impl Source {
    pub(crate) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let body = Arc::new(Mutex::new(Arc::new(Vec::new())));
        let sent = Arc::clone(&body);
        thread::spawn(move || {
            for mut tcp in listener.incoming().flatten() {
                let body = Arc::clone(
                    &sent
                        .lock()
                        .expect("no thread panics while it holds the lock"),
                );
                _ = tcp.write_all(&body);
            }
        });
        Ok(Self { addr, body })
    }

    /// Sets the body for the next connections.
    pub(crate) fn set(&self, body: &Arc<Vec<u8>>) {
        *self
            .body
            .lock()
            .expect("no thread panics while it holds the lock") = Arc::clone(body);
    }
}

/// Reads a body from a port and compares it with the expected one.
pub(crate) fn fetch(from: SocketAddr, body: &[u8]) -> io::Result<()> {
    let mut tcp = TcpStream::connect(from)?;
    tcp.set_read_timeout(Some(Duration::from_secs(120)))?;
    let (mut buffer, mut received) = (vec![0; 256 << 10], 0);
    loop {
        match tcp.read(&mut buffer)? {
            0 => break,
            bytes => {
                let expected = body.get(received..received + bytes);
                assert_eq!(expected, Some(&buffer[..bytes]), "bytes at {received}");
                received += bytes;
            }
        }
    }
    assert_eq!(received, body.len(), "the length of the body");
    Ok(())
}

/// The baseline: a TCP relay in one thread.
pub(crate) struct Relay {
    pub(crate) addr: SocketAddr,
    thread: ThreadCpu,
}

impl Relay {
    pub(crate) fn start(to: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let thread = spawn("plain", move |ready| {
            ready();
            for mut client in listener.incoming().flatten() {
                let Ok(mut source) = TcpStream::connect(to) else {
                    continue;
                };
                let mut buffer = vec![0; 128 << 10];
                while let Ok(bytes @ 1..) = source.read(&mut buffer) {
                    if client.write_all(&buffer[..bytes]).is_err() {
                        break;
                    }
                }
            }
        });
        Ok(Self { addr, thread })
    }

    /// Returns the CPU time of the relay in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        self.thread.seconds()
    }
}

/// A gateway and an edge. The edge accepts connections at a port, and the link forwards each of them to the target.
pub(crate) struct LinkBed {
    /// The address of the edge's port.
    pub(crate) addr: SocketAddr,
    gateway: ThreadCpu,
    edge: Edge,
    wan: Option<Wan>,
    /// The sender whose drop ends the thread of the gateway.
    _end: tokio::sync::oneshot::Sender<()>,
}

/// An edge with a thread of its own. It accepts connections at a port.
pub(crate) struct Edge {
    pub(crate) addr: SocketAddr,
    thread: ThreadCpu,
    client: Client,
    /// The sender whose drop ends the thread.
    _end: tokio::sync::oneshot::Sender<()>,
}

impl Edge {
    pub(crate) fn start(config: LinkConfig, gateway: SocketAddr, target: SocketAddr) -> Self {
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let (sender, receiver) = channel();
        let thread = spawn("edge", move |ready| {
            runtime().block_on(async {
                let client =
                    Client::start(config, &gateway.to_string()).expect("the client starts");
                client.up().await;
                let target = target.to_string().parse();
                let target = Target::Tcp(target.expect("the text is a host and a port"));
                let listen = "127.0.0.1:0".parse().expect("the address is valid");
                // At most 100 connections at the same time.
                let listener =
                    LocalListener::bind(client.clone(), listen, ListenerTarget::Fixed(target), 100)
                        .await;
                let listener = listener.expect("the listener can be bound");
                ready();
                sender
                    .send((listener.local_addr(), client))
                    .expect("the receiver waits for the message");
                _ = ended.await;
            });
        });
        let (addr, client) = receiver.recv().expect("the endpoint starts");
        Self {
            addr,
            thread,
            client,
            _end: end,
        }
    }
}

impl LinkBed {
    /// Starts the endpoints. `network` is the rate of a simulated network in bits per second, with a delay of
    /// 0.1 ms. With `None`, the endpoints are connected over loopback.
    pub(crate) fn start(
        target: SocketAddr,
        features: &Features,
        network: Option<u64>,
    ) -> io::Result<Self> {
        let wan = |rate| WanSettings {
            bits_per_second: rate,
            delay: Duration::from_micros(100),
        };
        Self::over(target, features, network.map(wan))
    }

    /// Like [`start`](Self::start), with any rate and delay of the simulated network.
    pub(crate) fn over(
        target: SocketAddr,
        features: &Features,
        network: Option<WanSettings>,
    ) -> io::Result<Self> {
        let keys = generate_keys()?;
        let gateway = gateway_config(&keys, features, target)?;
        let edge = config(&keys, "edge", 4, features)?;
        let (gateway_end, ended) = tokio::sync::oneshot::channel::<()>();
        let (sender, receiver) = channel();
        let gateway_thread = spawn("gateway", move |ready| {
            runtime().block_on(async {
                let gateway = Gateway::bind(gateway)
                    .await
                    .expect("the listener can be bound");
                ready();
                sender
                    .send(gateway.local_addr())
                    .expect("the receiver waits for the message");
                _ = ended.await;
            });
        });
        let gateway = receiver.recv().expect("the endpoint starts");
        let wan = network
            .map(|network| Wan::start(gateway, network))
            .transpose()?;
        let gateway_addr = wan.as_ref().map_or(gateway, Wan::addr);

        let edge = Edge::start(edge, gateway_addr, target);
        Ok(Self {
            addr: edge.addr,
            gateway: gateway_thread,
            edge,
            wan,
            _end: gateway_end,
        })
    }

    pub(crate) fn fetch(&self, body: &[u8]) -> io::Result<()> {
        fetch(self.addr, body)
    }

    /// Returns the client of the edge.
    pub(crate) fn client(&self) -> &Client {
        &self.edge.client
    }

    /// Returns the CPU time of the gateway and of the edge in seconds.
    pub(crate) fn cpu(&self) -> [f64; 2] {
        [&self.gateway, &self.edge.thread].map(ThreadCpu::seconds)
    }

    /// Returns the number of bytes sent to the edge: the bytes of frames, or on a simulated network all bytes
    /// including TLS.
    pub(crate) fn wire(&self) -> u64 {
        match &self.wan {
            Some(wan) => wan.bytes()[1],
            None => runtime()
                .block_on(self.edge.client.status())
                .received_wire(),
        }
    }
}

/// Generates the keys of a gateway and of edges, in a temporary folder.
pub(crate) fn generate_keys() -> io::Result<TempDir> {
    let keys = TempDir::new()?;
    edgeward_link::generate_keys(&keys.path().join("keys")).map_err(io::Error::other)?;
    Ok(keys)
}

/// Returns the configuration of a gateway without an origin, which permits connections to `target`.
pub(crate) fn gateway_config(
    keys: &TempDir,
    features: &Features,
    target: SocketAddr,
) -> io::Result<GatewayConfig> {
    let listen = "127.0.0.1:0".parse().expect("the address is valid");
    let mut config = GatewayConfig::new(config(keys, "gateway", 7, features)?, listen, None);
    config.keep_sent = features.keep_sent;
    config.allow = config
        .allow
        .and(target.to_string().parse().expect("the rule is valid"));
    Ok(config)
}

/// Returns the configuration of an endpoint. The epochs of all stores differ.
pub(crate) fn config(
    keys: &TempDir,
    endpoint: &str,
    epoch: u64,
    features: &Features,
) -> io::Result<LinkConfig> {
    let folder = keys.path().join("keys").join(endpoint);
    let (keys, store_key) = Keys::load(&folder).map_err(io::Error::other)?;
    let device = ScratchDevice::new(&std::env::temp_dir(), STORE_BYTES)?;
    let settings = ChunkSettings {
        compression: features.store,
        ..ChunkSettings::new(features.chunk_bytes, epoch)
    };
    let store = Chunks::open(Arc::new(device), settings).map_err(io::Error::other)?;
    let encryption = if features.tls {
        Encryption::Tls(Arc::new(keys))
    } else {
        Encryption::Off
    };
    Ok(LinkConfig {
        chunk_bytes: features.chunk_bytes,
        dedup: features.dedup,
        delta: features.delta,
        methods: features.methods,
        ..LinkConfig::new(encryption, store_key, store)
    })
}

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("the runtime can be created")
}

/// Reads the CPU time of a thread from the kernel. The field is the path of the thread's `schedstat` file.
pub(crate) struct ThreadCpu(String);

impl ThreadCpu {
    /// Returns the current thread.
    pub(crate) fn current() -> Self {
        let link = fs::read_link("/proc/thread-self").expect("Linux has /proc");
        Self(format!("/proc/{}/schedstat", link.display()))
    }

    pub(crate) fn seconds(&self) -> f64 {
        let text = fs::read_to_string(&self.0).expect("the thread runs");
        let nanos = text
            .split(' ')
            .next()
            .and_then(|nanos| nanos.parse::<f64>().ok());
        nanos.expect("the first field is a number") / 1e9
    }
}

/// Starts a thread, and waits until `work` calls its argument to report that the thread is ready.
fn spawn(name: &str, work: impl FnOnce(&dyn Fn()) + Send + 'static) -> ThreadCpu {
    let (sender, receiver) = channel();
    let started = thread::Builder::new().name(name.to_owned()).spawn(move || {
        work(&|| {
            sender
                .send(ThreadCpu::current())
                .expect("the receiver waits for the message");
        });
    });
    started.expect("the thread can be started");
    receiver.recv().expect("the thread becomes ready")
}
