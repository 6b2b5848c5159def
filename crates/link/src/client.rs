//! The connecting endpoint: an edge, or a program that forwards ports.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use edgeward_chunk_store::Chunks;
use edgeward_dedup::endpoint::Endpoint;
use edgeward_dedup::receiver::Sharing;
use edgeward_dedup::sender::SendError;
use edgeward_dedup::wire::Role;

use crate::backoff::Backoff;
use crate::config::{Encryption, LinkConfig};
use crate::core::{Core, CoreConfig};
use crate::handshake::{HandshakeError, Wire, connect, tune};
use crate::label::{Target, refusal};
use crate::line::{Line, LineError};
use crate::peer::Peer;
use crate::recall::{Recall, keep_writing};
use crate::status::PeerStatus;
use crate::stream::LinkStream;
use crate::{SetupError, random};

/// A link to one gateway, which reconnects as long as the value lives. Clones share the link.
#[derive(Clone)]
pub struct Client(Arc<Shared>);

struct Shared {
    peer: Arc<Peer>,
    config: LinkConfig,
    gateway: String,
    recall: Option<Arc<Recall>>,
    state: watch::Receiver<State>,
    /// The tasks end when the link is dropped.
    _tasks: JoinSet<()>,
}

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The first attempt to connect has not ended.
    Connecting,
    /// This many connections are up.
    Up(usize),
    /// No connection is up, and the last attempt failed.
    Down,
}

/// Why no stream can be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No connection to the gateway is up.
    #[error("the link to the gateway is down")]
    Down,
    /// The limit of streams is reached.
    #[error("the link has reached its limit of streams")]
    Streams(#[from] SendError),
}

impl Client {
    /// Keeps a link to `gateway` (HOST:PORT) from now on, on the current runtime.
    pub fn start(config: LinkConfig, gateway: &str) -> Result<Self, SetupError> {
        let session = u64::from_le_bytes(random::<8>().map_err(SetupError::Random)?);
        // A client has one gateway, so all chunks in its store came from there.
        let endpoint = config.endpoint(Sharing::Everything, true, session)?;
        let core = CoreConfig {
            accepts: false,
            dedup: config.dedup,
            probe: config.probe,
            unacked_max: config.unacked_bytes_max,
        };
        let mut core = Core::new(core, Endpoint::new(endpoint), config.store.clone());
        let folder = config.knowledge.as_deref();
        let recall = folder.map(|folder| Arc::new(Recall::new(folder, &config.store_key, 1)));
        if let Some(known) = recall.as_ref().and_then(|recall| recall.load(GATEWAY)) {
            core.recall(known);
        }
        let peer = Arc::new(Peer::new(core));
        if matches!(config.encryption, Encryption::Off) {
            tracing::warn!(
                gateway,
                "the link is NOT ENCRYPTED: others on the network can read and change its traffic"
            );
        }
        let (sender, state) = watch::channel(State::Connecting);
        let sender = Arc::new(sender);
        let mut tasks = JoinSet::new();
        for nth in 0..config.connections.clamp(1, 16) {
            let keeper = Keeper {
                nth,
                peer: Arc::clone(&peer),
                config: config.clone(),
                gateway: gateway.to_owned(),
                state: Arc::clone(&sender),
            };
            tasks.spawn(keeper.run());
        }
        if let Some(recall) = &recall {
            let named = vec![(GATEWAY.to_owned(), Arc::clone(&peer))];
            tasks.spawn(keep_writing(
                Arc::clone(recall),
                config.store.clone(),
                config.times.knowledge,
                move || named.clone(),
            ));
        }
        tasks.spawn(be_patient(
            Arc::clone(&peer),
            state.clone(),
            config.times.patience,
        ));
        Ok(Self(Arc::new(Shared {
            peer,
            config,
            gateway: gateway.to_owned(),
            recall,
            state,
            _tasks: tasks,
        })))
    }

    /// Opens a stream. Bytes can be written at once; [`LinkStream::answered`] tells whether the gateway could
    /// connect to the target.
    ///
    /// # Errors
    ///
    /// Fails if the link is down, or if the gateway's limit of streams is reached.
    pub fn open(&self, target: Target) -> Result<LinkStream, OpenError> {
        if *self.0.state.borrow() == State::Down {
            return Err(OpenError::Down);
        }
        let talk = self.0.peer.with(|core| core.open(target))?;
        Ok(LinkStream::new(Arc::clone(&self.0.peer), talk))
    }

    /// Waits until the link is up or the first attempt has failed. Returns the state.
    pub async fn settled(&self) -> State {
        let mut state = self.0.state.clone();
        let settled = state.wait_for(|state| *state != State::Connecting).await;
        settled.map_or(State::Down, |state| *state)
    }

    /// Waits without a timeout until the link is up.
    pub async fn up(&self) {
        let mut state = self.0.state.clone();
        _ = state.wait_for(|state| matches!(state, State::Up(_))).await;
    }

    /// Returns the current state.
    pub fn state(&self) -> State {
        *self.0.state.borrow()
    }

    /// Returns the counters and the current state.
    pub fn status(&self) -> PeerStatus {
        let encrypted = matches!(self.0.config.encryption, Encryption::Tls(_));
        PeerStatus::of(&self.0.peer, &self.0.gateway, encrypted)
    }

    /// Returns the chunk store.
    pub fn store(&self) -> &Chunks {
        &self.0.config.store
    }

    /// Waits until all written bytes are delivered and no stream is left, at most for `grace`.
    pub async fn drain(&self, grace: Duration) {
        drain(&self.0.peer, grace).await;
    }

    /// Waits as [`drain`](Self::drain) does; then closes the link and writes the last container of the store.
    pub async fn shutdown(self, grace: Duration) -> io::Result<()> {
        drain(&self.0.peer, grace).await;
        self.0.peer.with(|core| {
            core.shut();
            core.drop_lines();
        });
        let store = self.0.config.store.clone();
        let named = (GATEWAY.to_owned(), Arc::clone(&self.0.peer));
        let recall = self.0.recall.clone();
        drop(self);
        finish(store, recall, vec![named]).await
    }
}

/// Writes the last container of the store, and the known chunks of each peer.
pub(crate) async fn finish(
    store: Chunks,
    recall: Option<Arc<Recall>>,
    peers: Vec<(String, Arc<Peer>)>,
) -> io::Result<()> {
    let finished = tokio::task::spawn_blocking(move || {
        store.flush()?;
        recall.map_or(Ok(()), |recall| recall.save(&peers, &store))
    });
    finished.await.map_err(io::Error::other)?
}

/// The file name of a client's only peer, whatever the epoch of that peer's store.
const GATEWAY: &str = "gateway";

/// Waits until the peer is idle, or until `grace` has passed.
pub(crate) async fn drain(peer: &Peer, grace: Duration) {
    let end = Instant::now() + grace;
    while Instant::now() < end {
        let busy = peer.with(|core| core.is_busy());
        if !busy {
            return;
        }
        tokio::time::sleep(DRAIN_PAUSE).await;
    }
}

/// A connection that lasted this long was accepted: a gateway that refuses one closes it earlier.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

const DRAIN_PAUSE: Duration = Duration::from_millis(20);

impl Drop for Shared {
    fn drop(&mut self) {
        self.peer.with(|core| {
            core.shut();
            core.drop_lines();
        });
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("gateway", &self.0.gateway)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// Resets all streams when the link has been down for `patience`.
async fn be_patient(peer: Arc<Peer>, mut state: watch::Receiver<State>, patience: Duration) {
    loop {
        let down = state.wait_for(|state| !matches!(state, State::Up(_)));
        if down.await.is_err() {
            return;
        }
        let up = state.wait_for(|state| matches!(state, State::Up(_)));
        match tokio::time::timeout(patience, up).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => return,
            Err(_) => peer.with(|core| core.give_up(refusal::LINK_DOWN)),
        }
    }
}

/// Keeps one of the connections up.
struct Keeper {
    nth: usize,
    peer: Arc<Peer>,
    config: LinkConfig,
    gateway: String,
    state: Arc<watch::Sender<State>>,
}

impl Keeper {
    async fn run(self) {
        let times = self.config.times;
        let mut backoff = Backoff::new(times.backoff_min, times.backoff_max);
        let mut complained = false;
        loop {
            // The first connection finds out whether the gateway is reachable.
            if self.nth > 0 {
                let mut state = self.state.subscribe();
                _ = state.wait_for(|state| matches!(state, State::Up(_))).await;
            }
            let attempt = tokio::time::timeout(times.handshake, self.attempt()).await;
            let attempt = attempt.unwrap_or(Err(HandshakeError::Timeout(times.handshake)));
            match attempt {
                Ok(line) => {
                    self.count();
                    tracing::info!(gateway = self.gateway, "connected to the gateway");
                    complained = false;
                    let began = Instant::now();
                    let error = line.run().await;
                    self.count();
                    match &error {
                        LineError::Superseded => {
                            tracing::debug!(gateway = self.gateway, "connection superseded");
                        }
                        error => tracing::warn!(
                            gateway = self.gateway,
                            error = edgeward_types::with_causes(error),
                            "connection to the gateway closed"
                        ),
                    }
                    // After a connection that broke at once, the next attempt waits longer.
                    if began.elapsed() > SETTLED_AFTER {
                        backoff.succeeded();
                    }
                }
                Err(error) => {
                    self.state.send_if_modified(|state| {
                        let news = *state == State::Connecting;
                        if news {
                            *state = State::Down;
                        }
                        news
                    });
                    // An error that lasts is logged once.
                    if !complained || !error.is_lasting() {
                        tracing::warn!(
                            gateway = self.gateway,
                            error = edgeward_types::with_causes(&error),
                            "cannot connect to the gateway"
                        );
                    }
                    complained = true;
                }
            }
            let random = random::<4>().map_or(u32::MAX, u32::from_le_bytes);
            tokio::time::sleep(backoff.failed(random)).await;
        }
    }

    /// Publishes how many connections are up.
    fn count(&self) {
        let lines = self.peer.with(|core| core.lines());
        self.state.send_replace(match lines {
            0 => State::Down,
            lines => State::Up(lines),
        });
    }

    async fn attempt(&self) -> Result<Line<Wire>, HandshakeError> {
        let cannot = |source| HandshakeError::Connect {
            to: self.gateway.clone(),
            source,
        };
        let (tcp, _) = connect(&self.gateway).await.map_err(cannot)?;
        tune(&tcp).map_err(cannot)?;
        let mut wire = Wire::connect(tcp, &self.config.encryption).await?;
        let ours = self.peer.with(Core::hello);
        wire.say(ours).await?;
        let theirs = wire.hear().await?;
        let checksum = wire.checksum(&ours.agree(Role::Connector, &theirs)?);
        let id = self
            .peer
            .with(|core| core.line_up(Role::Connector, &ours, &theirs))?;
        let peer = Arc::clone(&self.peer);
        Line::new(wire, peer, id, checksum, &self.config).map_err(cannot)
    }
}
