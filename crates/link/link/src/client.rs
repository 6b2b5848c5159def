//! The endpoint that connects to a gateway: an edge, or a program that forwards ports.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use edgeward_chunk_store::Chunks;
use edgeward_dedup::endpoint::Endpoint;
use edgeward_dedup::knowledge::SharedPagesStatus;
use edgeward_dedup::receiver::Sharing;
use edgeward_dedup::sender::SendError;
use edgeward_dedup::wire::Role;

use crate::admin::StatusReport;
use crate::backoff::Backoff;
use crate::config::{Encryption, LinkConfig};
use crate::connection::{Connection, ConnectionError};
use crate::core::{Core, CoreConfig};
use crate::handshake::{HandshakeError, Transport, connect, set_socket_options};
use crate::identity::Identity;
use crate::keys::{Keys, watch_keys};
use crate::knowledge_files::{KnowledgeFiles, save_periodically};
use crate::knowledge_pages::KnowledgePages;
use crate::label::{Target, refusal_reason};
use crate::peer::{AddedConnection, Message, Peer};
use crate::rate_limit::{Paced, RateLimiter};
use crate::status::{EndpointStatus, PeerStatus};
use crate::stream::LinkStream;
use crate::{SetupError, random};

/// A link to one gateway at a time. It reconnects until all clones of this value are dropped. Clones share the link.
#[derive(Clone)]
pub struct Client(Arc<Shared>);

struct Shared {
    peer: Arc<Peer>,
    config: LinkConfig,
    gateways: Arc<Gateways>,
    knowledge_files: Option<Arc<KnowledgeFiles>>,
    knowledge_pages: KnowledgePages,
    state: watch::Receiver<LinkState>,
    last_error: LastError,
    /// The tasks of the link. Dropping them aborts them.
    tasks: JoinSet<()>,
    /// All of them but the task of the peer: they connect again, and save the knowledge from time to time.
    others: Vec<AbortHandle>,
}

/// The reason why the last attempt to connect failed, or `None` after a success.
type LastError = Arc<Mutex<Option<String>>>;

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// The first attempt to connect has not ended.
    Connecting,
    /// The link has this number of connections.
    Up(usize),
    /// The link has no connection: the first attempt failed, or the last connection was closed.
    Down,
}

/// Why no stream can be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The link has no connection to the gateway.
    #[error("the link to the gateway is down")]
    Down,
    /// As many streams are open as the gateway accepts.
    #[error("the link has reached its limit of streams")]
    Streams(#[from] SendError),
}

impl Client {
    /// Starts a link to `gateway` (`HOST:PORT`). Its tasks run on the current Tokio runtime.
    pub fn start(config: LinkConfig, gateway: &str) -> Result<Self, SetupError> {
        Self::start_with_failover(config, vec![gateway.to_owned()])
    }

    /// Starts a link to the first of `gateways` that can be reached. If the link to it is lost and it cannot be reached
    /// again, the link moves to the next one, and stays there until that one is lost too. Open streams are reset at a
    /// move, because the other gateway does not know them.
    ///
    /// # Panics
    ///
    /// Panics if `gateways` is empty.
    pub fn start_with_failover(
        config: LinkConfig,
        gateways: Vec<String>,
    ) -> Result<Self, SetupError> {
        assert!(!gateways.is_empty(), "a link needs a gateway");
        let gateways = Arc::new(Gateways {
            addresses: gateways,
            selected: AtomicUsize::new(0),
        });
        let session = u64::from_le_bytes(random::<8>().map_err(SetupError::Random)?);
        // A client has only one peer, its gateway, so all chunks in its store were exchanged with this gateway. The
        // gateway may therefore reference all of them, and the chunks that this client sends to it (`true`).
        let endpoint = config.endpoint(Sharing::Everything, true, session)?;
        let core = CoreConfig {
            accepts: false,
            dedup: config.dedup,
            probe: config.probe,
            unacked_max: config.unacked_bytes_max,
        };
        let knowledge_pages = KnowledgePages::new(config.knowledge_bytes_max, 1);
        let mut core = Core::new(
            core,
            Endpoint::new(endpoint),
            config.store.clone(),
            knowledge_pages.clone(),
        );
        let knowledge_files = KnowledgeFiles::of(&config, 1, &knowledge_pages);
        if let Some(knowledge) = knowledge_files
            .as_ref()
            .and_then(|knowledge_files| knowledge_files.load(GATEWAY))
        {
            core.set_knowledge(knowledge);
        }
        let (peer, driver, _) = Peer::new(core);
        if matches!(config.encryption, Encryption::Off) {
            tracing::warn!(
                gateway = gateways.selected(),
                "the link is NOT ENCRYPTED: others on the network can read and change its traffic"
            );
        }
        let (sender, state) = watch::channel(LinkState::Connecting);
        let sender = Arc::new(sender);
        let last_error = LastError::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(driver.run());
        let mut others = Vec::new();
        if let Encryption::Tls(keys) = &config.encryption {
            others.push(tasks.spawn(watch_keys(Keys::clone(keys))));
        }
        for index in 0..config.connections.clamp(1, 16) {
            let keeper = ConnectionKeeper {
                index,
                peer: Arc::clone(&peer),
                config: config.clone(),
                gateways: Arc::clone(&gateways),
                state: Arc::clone(&sender),
                last_error: Arc::clone(&last_error),
            };
            others.push(tasks.spawn(keeper.run()));
        }
        if let Some(knowledge_files) = &knowledge_files {
            let peers = vec![(GATEWAY.to_owned(), Arc::clone(&peer))];
            others.push(tasks.spawn(save_periodically(
                Arc::clone(knowledge_files),
                config.store.clone(),
                config.times.knowledge,
                move || peers.clone(),
            )));
        }
        others.push(tasks.spawn(reset_streams_after_outage(
            Arc::clone(&peer),
            state.clone(),
            config.times.outage_max,
        )));
        Ok(Self(Arc::new(Shared {
            peer,
            config,
            gateways,
            knowledge_files,
            knowledge_pages,
            state,
            last_error,
            tasks,
            others,
        })))
    }

    /// Opens a stream, on any thread and without waiting for the work of the link. The caller can write bytes at once.
    /// [`LinkStream::accepted`] returns an error if the gateway cannot connect to the target.
    ///
    /// # Errors
    ///
    /// Fails if the link is down, or if as many streams are open as the gateway accepts.
    pub fn open(&self, target: Target) -> Result<LinkStream, OpenError> {
        if self.state() == LinkState::Down {
            return Err(OpenError::Down);
        }
        let shared = &self.0;
        let slot = shared.peer.reserve_stream()?;
        let (stream, pipes) = LinkStream::new(shared.peer.pipe_memory());
        shared.peer.send(Message::Open {
            target,
            pipes,
            slot,
        })?;
        Ok(stream)
    }

    /// Waits until the link has a connection or the first attempt has failed. Returns the state.
    pub async fn settled(&self) -> LinkState {
        let mut state = self.0.state.clone();
        let settled = state
            .wait_for(|state| *state != LinkState::Connecting)
            .await;
        settled.map_or(LinkState::Down, |state| *state)
    }

    /// Waits without a timeout until the link has a connection.
    pub async fn up(&self) {
        let mut state = self.0.state.clone();
        _ = state
            .wait_for(|state| matches!(state, LinkState::Up(_)))
            .await;
    }

    /// Returns the current state.
    pub fn state(&self) -> LinkState {
        *self.0.state.borrow()
    }

    /// Returns the counters and the current state.
    pub async fn status(&self) -> PeerStatus {
        let encrypted = matches!(self.0.config.encryption, Encryption::Tls(_));
        let name = self.0.gateways.selected().to_owned();
        let status = self
            .0
            .peer
            .call(move |core| PeerStatus::of(core, name, encrypted));
        PeerStatus {
            last_error: self.last_error(),
            pipe_bytes: self.0.peer.pipe_memory().bytes(),
            ..status
                .await
                .expect("the task of the peer runs as long as the client")
        }
    }

    /// Returns the reason why the last attempt to connect failed, or `None` if it succeeded.
    pub fn last_error(&self) -> Option<String> {
        let last_error = self.0.last_error.lock();
        last_error.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the identity of this endpoint, or `None` without encryption.
    pub fn identity(&self) -> Option<Identity> {
        self.0.config.encryption.identity()
    }

    /// Returns the function by which an admin server reads the status.
    pub fn report(&self) -> StatusReport {
        let client = self.clone();
        Arc::new(move || {
            let client = client.clone();
            Box::pin(async move { EndpointStatus::of_client(&client).await })
        })
    }

    /// Returns the limiter of the sent bytes.
    pub fn rate_limiter(&self) -> Option<&RateLimiter> {
        self.0.config.rate_limiter.as_deref()
    }

    /// Returns the memory of the record of the chunks that the gateway has.
    pub(crate) fn knowledge(&self) -> SharedPagesStatus {
        self.0.knowledge_pages.status()
    }

    /// Returns the chunk store.
    pub fn store(&self) -> &Chunks {
        &self.0.config.store
    }

    /// Waits until all written bytes are delivered and all streams are closed, at most for `grace`.
    pub async fn drain(&self, grace: Duration) {
        drain(&self.0.peer, grace).await;
    }

    /// Waits like [`drain`](Self::drain). Then closes the link, and writes the last container of the store and the
    /// record of which chunks the gateway has.
    pub async fn shutdown(self, grace: Duration) -> io::Result<()> {
        drain(&self.0.peer, grace).await;
        // Otherwise the link would connect again while the store is written.
        self.0.others.iter().for_each(AbortHandle::abort);
        self.0.peer.call(Core::shut_down).await;
        let peer = (GATEWAY.to_owned(), Arc::clone(&self.0.peer));
        let finished = finish(
            &self.0.config.store,
            self.0.knowledge_files.as_ref(),
            &[peer],
        )
        .await;
        // The store is released before this function returns, unless a clone of this value uses it.
        if let Some(mut shared) = Arc::into_inner(self.0) {
            shared.tasks.shutdown().await;
        }
        finished
    }
}

/// Writes the last container of the store, and the record of which chunks each peer has.
pub(crate) async fn finish(
    store: &Chunks,
    knowledge_files: Option<&Arc<KnowledgeFiles>>,
    peers: &[(String, Arc<Peer>)],
) -> io::Result<()> {
    let flushed = store.clone();
    let flushed = tokio::task::spawn_blocking(move || flushed.flush());
    flushed.await.map_err(io::Error::other)??;
    let Some(knowledge_files) = knowledge_files else {
        return Ok(());
    };
    // The periodic save may have taken a copy and been aborted before it was written.
    for (_, peer) in peers {
        peer.call(Core::set_knowledge_unsaved).await;
    }
    knowledge_files.save(peers, store).await
}

/// The name of the knowledge file of a client's only peer.
const GATEWAY: &str = "gateway";

/// Waits until the peer has no open streams and no unacknowledged bytes, or until `grace` has passed.
pub(crate) async fn drain(peer: &Peer, grace: Duration) {
    let end = Instant::now() + grace;
    while Instant::now() < end && peer.is_busy() {
        tokio::time::sleep(DRAIN_CHECK_INTERVAL).await;
    }
}

/// After this time a connection counts as accepted by the gateway. A gateway that refuses a connection closes it
/// earlier.
const STABLE_AFTER: Duration = Duration::from_secs(1);

/// The interval of the checks of `drain`.
const DRAIN_CHECK_INTERVAL: Duration = Duration::from_millis(20);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("gateway", &self.0.gateways.selected())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// Resets all streams when the link has been down for `outage_max`.
async fn reset_streams_after_outage(
    peer: Arc<Peer>,
    mut state: watch::Receiver<LinkState>,
    outage_max: Duration,
) {
    loop {
        let down = state.wait_for(|state| !matches!(state, LinkState::Up(_)));
        if down.await.is_err() {
            return;
        }
        let up = state.wait_for(|state| matches!(state, LinkState::Up(_)));
        let is_down = match tokio::time::timeout(outage_max, up).await {
            Ok(Ok(_)) => false,
            Ok(Err(_)) => return,
            Err(_) => true,
        };
        if is_down {
            peer.call(|core| core.reset_all(refusal_reason::LINK_DOWN))
                .await;
        }
    }
}

/// The gateways of a link, in the order of preference, and the one in use.
struct Gateways {
    addresses: Vec<String>,
    selected: AtomicUsize,
}

impl Gateways {
    fn selected(&self) -> &str {
        &self.addresses[self.selected.load(Ordering::Relaxed) % self.addresses.len()]
    }

    fn select_next(&self) {
        self.selected.fetch_add(1, Ordering::Relaxed);
    }
}

/// Keeps one connection to the gateway: connects, and connects again after the connection has ended.
struct ConnectionKeeper {
    index: usize,
    peer: Arc<Peer>,
    config: LinkConfig,
    gateways: Arc<Gateways>,
    state: Arc<watch::Sender<LinkState>>,
    last_error: LastError,
}

impl ConnectionKeeper {
    async fn run(self) {
        let times = self.config.times;
        let mut backoff = Backoff::new(times.backoff_min, times.backoff_max);
        let mut is_logged = false;
        // The number of gateways that were tried in succession without success.
        let mut tried = 0;
        loop {
            // Only the first keeper tries to connect while the gateway is unreachable. The others wait until the link
            // has a connection.
            if self.index > 0 {
                let mut state = self.state.subscribe();
                _ = state
                    .wait_for(|state| matches!(state, LinkState::Up(_)))
                    .await;
            }
            let attempt = tokio::time::timeout(times.handshake, self.attempt()).await;
            let attempt = attempt.unwrap_or(Err(HandshakeError::Timeout(times.handshake)));
            match attempt {
                Ok(connection) => {
                    self.set_last_error(None);
                    self.publish_state();
                    let gateway = self.gateways.selected();
                    tracing::info!(gateway, "connected to the gateway");
                    (is_logged, tried) = (false, 0);
                    let connected_at = Instant::now();
                    let error = connection.ended().await;
                    self.publish_state();
                    match &error {
                        // The gateway has restarted and the link is connected again, or the link is shutting down.
                        ConnectionError::Superseded => {
                            tracing::debug!(gateway, "connection superseded");
                        }
                        error => tracing::warn!(
                            gateway,
                            error = edgeward_types::with_causes(error),
                            "connection to the gateway closed"
                        ),
                    }
                    // If the connection ended within `STABLE_AFTER`, the delay before the next attempt still grows.
                    if connected_at.elapsed() > STABLE_AFTER {
                        backoff.succeeded();
                    }
                }
                Err(error) => {
                    self.set_last_error(Some(edgeward_types::with_causes(&error).to_string()));
                    self.state.send_if_modified(|state| {
                        let is_first = *state == LinkState::Connecting;
                        if is_first {
                            *state = LinkState::Down;
                        }
                        is_first
                    });
                    // An error that occurs at every attempt until an operator acts is logged only once.
                    if !is_logged || !error.is_lasting() {
                        tracing::warn!(
                            gateway = self.gateways.selected(),
                            error = edgeward_types::with_causes(&error),
                            "cannot connect to the gateway"
                        );
                    }
                    tried += 1;
                    let is_last = tried % self.gateways.addresses.len() == 0;
                    is_logged = is_logged || is_last;
                    // A connection of the link must not lead to another gateway than the others.
                    if self.index == 0 && self.peer.state().connections == 0 {
                        self.gateways.select_next();
                        if !is_last {
                            continue;
                        }
                    }
                }
            }
            let random = random::<4>().map_or(u32::MAX, u32::from_le_bytes);
            tokio::time::sleep(backoff.failed(random)).await;
        }
    }

    fn set_last_error(&self, error: Option<String>) {
        let last_error = self.last_error.lock();
        *last_error.unwrap_or_else(PoisonError::into_inner) = error;
    }

    /// Publishes how many connections are up.
    fn publish_state(&self) {
        self.state
            .send_replace(match self.peer.state().connections {
                0 => LinkState::Down,
                connections => LinkState::Up(connections),
            });
    }

    async fn attempt(&self) -> Result<AddedConnection, HandshakeError> {
        let gateway = self.gateways.selected();
        let connect_error = |source| HandshakeError::Connect {
            to: gateway.to_owned(),
            source,
        };
        let (tcp, _) = connect(gateway).await.map_err(connect_error)?;
        set_socket_options(&tcp).map_err(connect_error)?;
        let tcp = Paced::new(tcp, self.config.rate_limiter.as_ref());
        let mut transport = Transport::connect(tcp, &self.config.encryption).await?;
        let our_hello = self.peer.call(Core::hello).await;
        let our_hello = our_hello.ok_or(HandshakeError::ShutDown)?;
        let sent = transport.send_hello(our_hello).await;
        // If the gateway refused the certificate, it has sent an alert and closed the connection. The write may fail
        // before the alert is read.
        let received = transport.receive_hello().await;
        let explained = |error| Transport::explain_alert(error, &self.config.encryption);
        let peer_hello = received.map_err(explained)?;
        sent?;
        let checksum = transport.checksum();
        let connection = Connection::new(transport, checksum, &self.config);
        let connection = connection.map_err(connect_error)?;
        self.peer
            .connect(connection, Role::Connector, our_hello, peer_hello)
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::pin::Pin;
    use std::task::{Context, Waker};

    use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

    use edgeward_chunk_store::{ChunkSettings, ScratchDevice};
    use edgeward_dedup::id::IdKey;

    fn config() -> LinkConfig {
        let device = ScratchDevice::new(&std::env::temp_dir(), 16 << 20);
        let device = Arc::new(device.expect("the file can be created"));
        let store = Chunks::open(device, ChunkSettings::new(8 << 10, 1));
        let store = store.expect("the store opens");
        LinkConfig::new(Encryption::Off, IdKey::new([3; 32]), store)
    }

    /// The user of a stream never waits for the task of the peer, which hashes and compresses bytes.
    ///
    /// Method: perform every operation while this thread, the only one of the runtime, does not run the task.
    #[tokio::test]
    async fn the_user_of_a_stream_does_not_wait_for_a_busy_peer() {
        let config = LinkConfig {
            streams_max: 2,
            ..config()
        };
        let client = Client::start(config, "127.0.0.1:1").expect("the client starts");
        let cx = &mut Context::from_waker(Waker::noop());
        let open = || client.open(Target::Origin);
        let mut stream = open().expect("a slot is free");
        let _second = open().expect("a slot is free");
        assert!(matches!(open(), Err(OpenError::Streams(_))));
        let written = Pin::new(&mut stream).poll_write(cx, b"a question");
        assert!(matches!(written, std::task::Poll::Ready(Ok(10))));
        assert!(client.0.peer.memory_bytes() > 10, "the pipe is counted");
        assert!(Pin::new(&mut stream).poll_flush(cx).is_ready());
        assert!(stream.poll_chunk(cx).is_pending());
        let mut buffer = [0; 10];
        let mut buffer = ReadBuf::new(&mut buffer);
        assert!(
            Pin::new(&mut stream)
                .poll_read(cx, &mut buffer)
                .is_pending()
        );
        assert!(Pin::new(&mut stream).poll_shutdown(cx).is_ready());
    }
}
