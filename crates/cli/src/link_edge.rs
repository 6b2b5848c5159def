//! Connects the edge to its origin through a link.
//!
//! The edge sends HTTP/1.1 over streams that a [`Dial`] opens. The link's crate does not depend on the edge's crate,
//! so this module implements [`Dial`] with a [`Client`] of the link. The link runs on a thread of its own.
//!
//! In an upgrade two processes run at the same time, and only one of them can have the chunk store. The new process
//! first uses a *temporary link*: a client with a small empty store and an epoch of its own, which the gateway treats
//! as another edge. When the old process has ended its link, the new one opens the store and starts the lasting link.
//! Connections to the origin over the temporary link are not reused then, and the temporary link ends with its last
//! stream.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use edgeward_chunk_store::{ChunkSettings, Chunks, ScratchDevice};
use edgeward_dedup::codec::Method;
use edgeward_link::{Admin, Client, LinkConfig, LinkStream, OpenError, RateLimiter, Target};
use edgeward_proxy::{Dial, DialedStream};

use crate::commands::link::endpoint;
use crate::link_settings::LinkSettings;

/// A running link. Dropping it stops the link and waits until its thread has ended.
#[derive(Debug)]
pub(crate) struct EdgeLink {
    settings: LinkSettings,
    clients: Arc<Clients>,
    admin: Arc<Mutex<Option<Admin>>>,
    admin_addr: Option<SocketAddr>,
    /// The listening socket of the admin server, for the process that replaces this one.
    admin_socket: Option<OwnedFd>,
    runtime: Handle,
    /// Dropping this sender stops the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The parts of the link of another process that an edge takes over.
#[derive(Debug, Default)]
pub(crate) struct LinkInheritance {
    /// True if another process has the chunk store.
    pub(crate) is_successor: bool,
    /// The listening sockets of the admin servers of the links, with their addresses in the configuration.
    pub(crate) admins: Vec<(String, OwnedFd)>,
}

impl LinkInheritance {
    /// Removes and returns the socket of an address.
    fn take_admin(&mut self, addr: SocketAddr) -> Option<TcpListener> {
        let addr = addr.to_string();
        let at = self.admins.iter().position(|(of, _)| *of == addr)?;
        Some(TcpListener::from(self.admins.remove(at).1))
    }
}

impl EdgeLink {
    /// Starts the link. An unreachable gateway is not an error: the link connects when the gateway is available.
    pub(crate) fn start(
        settings: &LinkSettings,
        inheritance: &mut LinkInheritance,
    ) -> anyhow::Result<Self> {
        let config = if inheritance.is_successor {
            temporary_config(settings)?
        } else {
            let compression = settings.store_compression.method();
            let path = store_path(settings)?;
            let store = endpoint::open_store(path, settings.store_size, CHUNK_BYTES, compression)?;
            lasting_config(settings, store)?
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime of the link")?;
        let (clients, admin) = runtime.block_on(async {
            let client = Client::start_with_failover(config, gateways(settings))
                .map_err(endpoint::with_hint)?;
            let clients = Arc::new(Clients::new(client));
            let shown = Arc::clone(&clients);
            let read_status = Arc::new(move || {
                let current = shown.current();
                let current = current.expect("the admin server ends before the link");
                (current.client.report())()
            });
            let admin = match settings.admin.and_then(|addr| inheritance.take_admin(addr)) {
                Some(listener) => {
                    Some(Admin::serve(listener, read_status).map_err(endpoint::with_hint)?)
                }
                None => endpoint::start_admin(settings.admin, read_status).await?,
            };
            anyhow::Ok((clients, admin))
        })?;
        let admin_addr = admin.as_ref().map(Admin::local_addr);
        let admin_socket = admin.as_ref().and_then(|admin| admin.socket().ok());
        let admin = Arc::new(Mutex::new(admin));
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let (stopping, stopping_admin) = (Arc::clone(&clients), Arc::clone(&admin));
        let thread = std::thread::Builder::new()
            .name("edgeward-link".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    _ = stopped.await;
                    stop_admin(&stopping_admin);
                    // The edge is shut down before its link, so no stream is open and the shutdown is quick.
                    stopping.shut_down().await;
                });
            })
            .context("cannot start the thread of the link")?;
        Ok(Self {
            settings: settings.clone(),
            clients,
            admin,
            admin_addr,
            admin_socket,
            runtime: handle,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Returns the dialer through which the edge opens streams to the origin.
    pub(crate) fn dial(&self) -> Arc<dyn Dial> {
        Arc::new(LinkDial(Arc::clone(&self.clients)))
    }

    /// The address that serves the link's metrics and status, or `None` if the configuration has no such address.
    pub(crate) fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin_addr
    }

    /// Stops the admin server, because another process serves its socket.
    pub(crate) fn stop_admin(&self) {
        stop_admin(&self.admin);
    }

    /// Returns a copy of the admin server's listening socket with its address in the configuration.
    pub(crate) fn admin_socket(&self) -> Option<(String, OwnedFd)> {
        let socket = self.admin_socket.as_ref()?.try_clone().ok()?;
        Some((self.settings.admin?.to_string(), socket))
    }

    /// Returns a handle that opens the chunk store of the process before this one.
    pub(crate) fn take_over(&self) -> LinkTakeOver {
        LinkTakeOver {
            settings: self.settings.clone(),
            clients: Arc::clone(&self.clients),
            runtime: self.runtime.clone(),
        }
    }
}

fn stop_admin(admin: &Mutex<Option<Admin>>) {
    let admin = admin.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(admin);
}

impl Drop for EdgeLink {
    fn drop(&mut self) {
        self.clients.has_ended.store(true, Ordering::Relaxed);
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Replaces the temporary link of a new process by the lasting link.
pub(crate) struct LinkTakeOver {
    settings: LinkSettings,
    clients: Arc<Clients>,
    runtime: Handle,
}

impl LinkTakeOver {
    /// Opens the chunk store on a thread of its own, as soon as the other process has closed it. Then starts the
    /// lasting link, and uses it as soon as it is connected. After an error, the temporary link stays in use.
    pub(crate) fn start(self) {
        let spawned = std::thread::Builder::new()
            .name("link-take-over".to_owned())
            .spawn(move || {
                if let Err(error) = self.run() {
                    tracing::error!(
                        "the chunk store of the link is unused until the next start: {error:#}"
                    );
                }
            });
        if let Err(error) = spawned {
            tracing::error!(%error, "the chunk store of the link is unused until the next start");
        }
    }

    fn run(self) -> anyhow::Result<()> {
        let path = store_path(&self.settings)?;
        let device = loop {
            if self.clients.has_ended.load(Ordering::Relaxed) {
                return Ok(());
            }
            match endpoint::open_device(path, self.settings.store_size) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(RELEASE_CHECK_INTERVAL);
                }
                opened => break opened?,
            }
        };
        let compression = self.settings.store_compression.method();
        let store = endpoint::open_store_on(device, path, CHUNK_BYTES, compression)?;
        let config = lasting_config(&self.settings, store)?;
        let client = {
            let _runtime = self.runtime.enter();
            Client::start_with_failover(config, gateways(&self.settings))
                .map_err(endpoint::with_hint)?
        };
        let clients = self.clients;
        self.runtime.spawn(async move {
            client.up().await;
            clients.replace(client).await;
        });
        Ok(())
    }
}

/// The clients of a link: the current one, and in an upgrade the temporary one.
#[derive(Debug)]
struct Clients {
    /// `None` after the end of the link.
    current: RwLock<Option<CurrentClient>>,
    /// True when the edge stops.
    has_ended: AtomicBool,
}

#[derive(Clone, Debug)]
struct CurrentClient {
    client: Client,
    /// Becomes false when another client replaces this one.
    is_current: Arc<AtomicBool>,
}

impl Clients {
    fn new(client: Client) -> Self {
        Self {
            current: RwLock::new(Some(CurrentClient::new(client))),
            has_ended: AtomicBool::new(false),
        }
    }

    fn current(&self) -> Option<CurrentClient> {
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, client: Option<CurrentClient>) -> Option<CurrentClient> {
        let current = self.current.write();
        let mut current = current.unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut current, client)
    }

    /// Makes `client` the current client, and ends the client before it after its last stream.
    async fn replace(&self, client: Client) {
        if let Some(before) = self.set(Some(CurrentClient::new(client))) {
            before.is_current.store(false, Ordering::Relaxed);
            tracing::info!("the link uses the chunk store of the earlier process");
            before.client.drain(TEMPORARY_LINK_MAX).await;
        }
    }

    async fn shut_down(&self) {
        if let Some(current) = self.set(None)
            && let Err(error) = current.client.shutdown(Duration::from_secs(1)).await
        {
            tracing::warn!(%error, "cannot write the store of the link");
        }
    }
}

impl CurrentClient {
    fn new(client: Client) -> Self {
        let is_current = Arc::new(AtomicBool::new(true));
        Self { client, is_current }
    }
}

#[derive(Debug)]
struct LinkDial(Arc<Clients>);

impl Dial for LinkDial {
    fn dial(&self) -> io::Result<Box<dyn DialedStream>> {
        let current = self.0.current();
        let ended = || io::Error::new(io::ErrorKind::NotConnected, "the link has ended");
        let CurrentClient { client, is_current } = current.ok_or_else(ended)?;
        let opened = client.open(Target::Origin);
        let stream = opened.map_err(|error| {
            // The client of the edge then gets the message that the link is down.
            let kind = match error {
                OpenError::Down => io::ErrorKind::NotConnected,
                _ => io::ErrorKind::QuotaExceeded,
            };
            io::Error::new(kind, error)
        })?;
        Ok(Box::new(OriginLinkStream { stream, is_current }))
    }
}

/// A stream to the origin.
#[derive(Debug)]
struct OriginLinkStream {
    stream: LinkStream,
    /// False after another client has replaced the client of this stream.
    is_current: Arc<AtomicBool>,
}

impl DialedStream for OriginLinkStream {
    fn is_reusable(&self) -> bool {
        self.is_current.load(Ordering::Relaxed)
    }
}

impl AsyncRead for OriginLinkStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for OriginLinkStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Returns the configuration of the link with the chunk store of the settings.
fn lasting_config(settings: &LinkSettings, store: Chunks) -> anyhow::Result<LinkConfig> {
    let mut config = config_with(settings, store)?;
    config.knowledge = endpoint::knowledge_folder(store_path(settings)?);
    Ok(config)
}

/// Returns the gateways in the order in which the link tries them.
fn gateways(settings: &LinkSettings) -> Vec<String> {
    let gateways = settings.gateway.iter().chain(&settings.more_gateways);
    gateways.map(ToString::to_string).collect()
}

fn store_path(settings: &LinkSettings) -> anyhow::Result<&Path> {
    let path = settings.store.as_deref();
    path.context("[origin.link] is incomplete")
}

/// Returns the configuration of a temporary link. Its store is a file without a name beside the store of the settings.
fn temporary_config(settings: &LinkSettings) -> anyhow::Result<LinkConfig> {
    let path = store_path(settings)?;
    let folder = if path.is_dir() {
        path
    } else {
        path.parent().unwrap_or(path)
    };
    let device = ScratchDevice::new(folder, TEMPORARY_STORE_BYTES)
        .or_else(|_| ScratchDevice::new(&std::env::temp_dir(), TEMPORARY_STORE_BYTES))
        .context("cannot create the temporary chunk store")?;
    let settings_of_store = ChunkSettings {
        compression: Method::None,
        ..ChunkSettings::new(CHUNK_BYTES, endpoint::random_epoch()?)
    };
    let store = Chunks::open(Arc::new(device), settings_of_store)
        .context("cannot open the temporary chunk store")?;
    config_with(settings, store)
}

fn config_with(settings: &LinkSettings, store: Chunks) -> anyhow::Result<LinkConfig> {
    let Some(keys) = &settings.keys else {
        anyhow::bail!("[origin.link] is incomplete");
    };
    let (encryption, store_key) = endpoint::load_keys(keys, settings.encryption)?;
    let mut config = LinkConfig::new(encryption, store_key, store);
    config.dedup = settings.dedup;
    config.delta = settings.delta;
    config.connections = settings.connections;
    config.rate_limiter = settings
        .rate_limit
        .clone()
        .map(RateLimiter::new)
        .map(Arc::new);
    config.times.outage_max = settings.timeout;
    config.methods = settings.compression.methods();
    Ok(config)
}

/// The average size of a chunk by which the index of the store is sized. The link uses the size of its gateway.
const CHUNK_BYTES: u32 = 8 << 10;

/// The size of the temporary store: the chunks of some seconds. Only written parts take space.
const TEMPORARY_STORE_BYTES: u64 = 64 << 20;

/// The longest time for which the streams of the temporary link may stay open.
const TEMPORARY_LINK_MAX: Duration = Duration::from_secs(24 * 3600);

const RELEASE_CHECK_INTERVAL: Duration = Duration::from_millis(20);
