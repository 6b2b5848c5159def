//! The end that connects: an edge, or whoever forwards ports.

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

/// A link to one gateway, kept up as long as it lives. Clones are the same link.
#[derive(Clone)]
pub struct Client(Arc<Shared>);

struct Shared {
    peer: Arc<Peer>,
    config: LinkConfig,
    gateway: String,
    recall: Option<Arc<Recall>>,
    state: watch::Receiver<State>,
    /// Ends with the link.
    _tasks: JoinSet<()>,
}

/// How the link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is known yet.
    Connecting,
    /// So many connections are up.
    Up(usize),
    /// None is, and the last attempt failed.
    Down,
}

/// Why no conversation can be begun.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no connection to the gateway.
    #[error("the link to the gateway is down")]
    Down,
    /// There are as many as may be.
    #[error("the link takes no more streams")]
    Streams(#[from] SendError),
}

impl Client {
    /// Keeps a link to `gateway` (HOST:PORT) from now on, on the runtime this is called in.
    pub fn start(config: LinkConfig, gateway: &str) -> Result<Self, SetupError> {
        let session = u64::from_le_bytes(random::<8>().map_err(SetupError::Random)?);
        // All that lies in the store of one who has one gateway came from it.
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
                "the link is NOT ENCRYPTED: whoever is on the way reads and changes it"
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

    /// Begins a conversation. Bytes can be written at once; whether the gateway connects to the target is known later.
    ///
    /// # Errors
    ///
    /// If the link is down, or has as many conversations as the gateway takes.
    pub fn open(&self, target: Target) -> Result<LinkStream, OpenError> {
        if *self.0.state.borrow() == State::Down {
            return Err(OpenError::Down);
        }
        let talk = self.0.peer.with(|core| core.open(target))?;
        Ok(LinkStream::new(Arc::clone(&self.0.peer), talk))
    }

    /// Waits until the link is up, or an attempt failed; what it is then.
    pub async fn settled(&self) -> State {
        let mut state = self.0.state.clone();
        let settled = state.wait_for(|state| *state != State::Connecting).await;
        settled.map_or(State::Down, |state| *state)
    }

    /// Waits until the link is up, however long that takes.
    pub async fn up(&self) {
        let mut state = self.0.state.clone();
        _ = state.wait_for(|state| matches!(state, State::Up(_))).await;
    }

    /// How the link is now.
    pub fn state(&self) -> State {
        *self.0.state.borrow()
    }

    /// What was saved, and how things are.
    pub fn status(&self) -> PeerStatus {
        let encrypted = matches!(self.0.config.encryption, Encryption::Tls(_));
        PeerStatus::of(&self.0.peer, &self.0.gateway, encrypted)
    }

    /// Where its chunks are.
    pub fn store(&self) -> &Chunks {
        &self.0.config.store
    }

    /// Waits until everything that was written is delivered and no conversation is left, at most for `grace`.
    pub async fn drain(&self, grace: Duration) {
        drain(&self.0.peer, grace).await;
    }

    /// Waits until everything that was written is delivered and no conversation is left, at most for `grace`; then ends
    /// the link and writes the store's last container.
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

/// Writes the store's last container, and what the peers have.
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

/// An edge has one peer, whatever its store.
const GATEWAY: &str = "gateway";

/// Until nothing is under way, or time is up.
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

/// A gateway that refuses does so within this.
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

/// Conversations that nobody can go on with end after a while.
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

/// Keeps one of the connections.
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
            // The first finds out whether the gateway is there.
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
                            tracing::debug!(gateway = self.gateway, "a connection was given up");
                        }
                        error => tracing::warn!(
                            gateway = self.gateway,
                            error = crate::chain(error),
                            "a connection to the gateway ended"
                        ),
                    }
                    // One that broke at once would break again.
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
                    // Once is enough for what stays as it is.
                    if !complained || !error.is_lasting() {
                        tracing::warn!(
                            gateway = self.gateway,
                            error = crate::chain(&error),
                            "no connection to the gateway"
                        );
                    }
                    complained = true;
                }
            }
            let random = random::<4>().map_or(u32::MAX, u32::from_le_bytes);
            tokio::time::sleep(backoff.failed(random)).await;
        }
    }

    /// How many connections are up now.
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
