//! The end that is connected to: near the origin, with one store for all edges.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use edgeward_dedup::endpoint::Endpoint;
use edgeward_dedup::receiver::Sharing;
use edgeward_dedup::wire::{Hello, Role};

use crate::allow::Allow;
use crate::client::{drain, finish};
use crate::config::{Encryption, LinkConfig};
use crate::core::{Core, CoreConfig};
use crate::handshake::{HandshakeError, Wire, tune};
use crate::label::{HostPort, Target, refusal};
use crate::line::{Line, LineError};
use crate::local;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::pump::pump;
use crate::recall::{Recall, keep_writing};
use crate::status::{GatewayStatus, PeerStatus};
use crate::stream::Begun;
use crate::{SetupError, random};

/// What a gateway is told.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// As for any end.
    pub link: LinkConfig,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where [`Target::Origin`] is: it speaks HTTP/1.1.
    pub origin: Option<HostPort>,
    /// Whether the origin is asked for bodies that are not compressed.
    pub identity: bool,
    /// Where else it connects to.
    pub allow: Allow,
    /// Peers whose chunks it remembers, connected or not.
    pub peers_max: usize,
    /// Which chunks a peer may name. Edges of different owners learn nothing about each other from
    /// [`Sharing::Exchanged`].
    pub sharing: Sharing,
    /// Whether the bytes of all that edges are sent are kept here, too, so that an edge that sends them back can name them. Else only
    /// those against which later versions are compressed.
    pub keep_sent: bool,
}

impl GatewayConfig {
    /// Nobody may go anywhere but to the origin; 64 peers.
    pub fn new(link: LinkConfig, listen: SocketAddr, origin: Option<HostPort>) -> Self {
        Self {
            link,
            listen,
            origin,
            identity: true,
            allow: Allow::default(),
            peers_max: 64,
            sharing: Sharing::Exchanged,
            keep_sent: false,
        }
    }
}

/// A gateway at work; dropping it ends it.
#[derive(Debug)]
pub struct Gateway {
    addr: SocketAddr,
    shared: Arc<Shared>,
    /// End with it.
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    config: GatewayConfig,
    origin: Option<Arc<Origin>>,
    recall: Option<Arc<Recall>>,
    peers: Mutex<Peers>,
    counters: Mutex<GatewayCounters>,
}

#[derive(Debug, Default)]
struct Peers {
    known: HashMap<PeerKey, Entry>,
    /// The gateway is gone: handshakes that are still under way make no more of them, for a peer's conversations would keep the gateway.
    ended: bool,
}

/// Who a peer is: whoever has this certificate and this store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PeerKey {
    certificate: Option<Vec<u8>>,
    epoch: u64,
}

#[derive(Debug)]
struct Entry {
    peer: Arc<Peer>,
    from: SocketAddr,
    seen: Instant,
    _conversations: JoinSet<()>,
}

/// What happened at the gateway's door.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayCounters {
    /// Connections that came.
    pub connections: u64,
    /// Of those, refused before they were one of a peer's: certificate, key, version, or no HELLO.
    pub refused: u64,
    /// Of those, ended because what came was no frame.
    pub malformed: u64,
    /// Of those, ended because the peer broke the protocol.
    pub violations: u64,
    /// Conversations that were begun.
    pub conversations: u64,
    /// Of those, with a target that is not allowed.
    pub not_allowed: u64,
    /// Of those, with a target that could not be reached.
    pub unreachable: u64,
}

impl Gateway {
    /// Listens from now on, on the runtime this is called in.
    pub async fn bind(config: GatewayConfig) -> Result<Self, SetupError> {
        // Refused now rather than at the first connection.
        config.link.endpoint(config.sharing, config.keep_sent, 0)?;
        let listen = |source| SetupError::Listen {
            addr: config.listen,
            source,
        };
        let listener = local::listen(config.listen).map_err(listen)?;
        let addr = listener.local_addr().map_err(listen)?;
        if matches!(config.link.encryption, Encryption::Off) {
            tracing::warn!(
                %addr,
                "the link is NOT ENCRYPTED: whoever reaches this port can use the gateway"
            );
        }
        let origin = config.origin.clone().map(|place| {
            Arc::new(Origin::new(
                place,
                config.identity,
                config.link.times.connect,
            ))
        });
        let folder = config.link.knowledge.as_deref();
        let recall = folder.map(|folder| {
            Arc::new(Recall::new(
                folder,
                &config.link.store_key,
                config.peers_max,
            ))
        });
        let shared = Arc::new(Shared {
            config,
            origin,
            recall,
            peers: Mutex::default(),
            counters: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        if let Some(recall) = &shared.recall {
            let (of, link) = (Arc::clone(&shared), &shared.config.link);
            tasks.spawn(keep_writing(
                Arc::clone(recall),
                link.store.clone(),
                link.times.knowledge,
                move || of.named_peers(),
            ));
        }
        Ok(Self {
            addr,
            shared,
            tasks,
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its peers, and what was saved for each.
    pub fn status(&self) -> GatewayStatus {
        let encrypted = matches!(self.shared.config.link.encryption, Encryption::Tls(_));
        let mut peers: Vec<_> = self
            .shared
            .peers()
            .known
            .iter()
            // A port changes with each connection, a store stays.
            .map(|(key, entry)| (entry.from.ip(), key.epoch & 0xffff, Arc::clone(&entry.peer)))
            .collect();
        peers.sort_by_key(|(from, epoch, _)| (*from, *epoch));
        let peers = peers.into_iter();
        GatewayStatus {
            encrypted,
            counters: *self.shared.counters(),
            peers: peers
                .map(|(from, epoch, peer)| {
                    PeerStatus::of(&peer, &format!("{from}#{epoch:04x}"), encrypted)
                })
                .collect(),
        }
    }

    /// Where its chunks are.
    pub fn store(&self) -> &edgeward_chunk_store::Chunks {
        &self.shared.config.link.store
    }

    /// Waits until no conversation is left, at most for `grace`.
    pub async fn drain(&self, grace: Duration) {
        let end = Instant::now() + grace;
        let peers: Vec<_> = {
            let peers = self.shared.peers();
            let peers = peers.known.values();
            peers.map(|entry| Arc::clone(&entry.peer)).collect()
        };
        for peer in &peers {
            drain(peer, end.saturating_duration_since(Instant::now())).await;
        }
    }

    /// As [`drain`](Self::drain), and then ends, with the store's last container written.
    pub async fn shutdown(mut self, grace: Duration) -> io::Result<()> {
        self.drain(grace).await;
        let store = self.shared.config.link.store.clone();
        let (recall, peers) = (self.shared.recall.clone(), self.shared.named_peers());
        self.tasks.shutdown().await;
        drop(self);
        finish(store, recall, peers).await
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Conversations know the gateway, and are known to it.
        let ended = Peers {
            ended: true,
            ..Peers::default()
        };
        let peers = std::mem::replace(&mut *self.shared.peers(), ended);
        for entry in peers.known.into_values() {
            entry.peer.with(|core| {
                core.shut();
                core.drop_lines();
            });
        }
    }
}

impl Shared {
    fn peers(&self) -> std::sync::MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Peers, as what is known of them is written down.
    fn named_peers(&self) -> Vec<(String, Arc<Peer>)> {
        let Some(recall) = &self.recall else {
            return Vec::new();
        };
        let named = |(key, entry): (&PeerKey, &Entry)| {
            let name = recall.name(key.certificate.as_deref(), key.epoch);
            (name, Arc::clone(&entry.peer))
        };
        self.peers().known.iter().map(named).collect()
    }

    fn counters(&self) -> std::sync::MutexGuard<'_, GatewayCounters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The peer that says this, as it was known before or anew.
    fn peer(
        self: &Arc<Self>,
        certificate: Option<Vec<u8>>,
        theirs: &Hello,
        from: SocketAddr,
    ) -> Result<Arc<Peer>, HandshakeError> {
        let key = PeerKey {
            certificate,
            epoch: theirs.epoch,
        };
        let mut peers = self.peers();
        let Peers {
            known: peers,
            ended: false,
        } = &mut *peers
        else {
            return Err(HandshakeError::Ended);
        };
        if let Some(entry) = peers.get_mut(&key) {
            (entry.from, entry.seen) = (from, Instant::now());
            return Ok(Arc::clone(&entry.peer));
        }
        if peers.len() >= self.config.peers_max.max(1) {
            let away = peers
                .iter()
                .filter(|(_, entry)| entry.peer.with(|core| core.lines() == 0))
                .min_by_key(|(_, entry)| entry.seen)
                .map(|(key, _)| key.clone());
            let away = away.ok_or(HandshakeError::TooManyPeers(peers.len()))?;
            peers.remove(&away);
        }
        let link = &self.config.link;
        let session = random::<8>().map_err(|error| HandshakeError::Hello(error.into()))?;
        let endpoint = link
            .endpoint(
                self.config.sharing,
                self.config.keep_sent,
                u64::from_le_bytes(session),
            )
            .expect("it was made before");
        let core = CoreConfig {
            accepts: true,
            dedup: link.dedup,
            probe: link.probe,
            unacked_max: link.unacked_bytes_max,
        };
        let mut core = Core::new(core, Endpoint::new(endpoint), link.store.clone());
        let known = self
            .recall
            .as_ref()
            .and_then(|recall| recall.load(&recall.name(key.certificate.as_deref(), key.epoch)));
        if let Some(known) = known {
            core.recall(known);
        }
        let peer = Arc::new(Peer::new(core));
        let mut conversations = JoinSet::new();
        conversations.spawn(converse(Arc::clone(&peer), Arc::clone(self)));
        peers.insert(
            key,
            Entry {
                peer: Arc::clone(&peer),
                from,
                seen: Instant::now(),
                _conversations: conversations,
            },
        );
        Ok(peer)
    }

    async fn connection(self: Arc<Self>, tcp: TcpStream, from: SocketAddr) {
        let times = self.config.link.times;
        self.counters().connections += 1;
        let shaken = tokio::time::timeout(times.handshake, self.handshake(tcp, from)).await;
        let shaken = shaken.unwrap_or(Err(HandshakeError::Timeout(times.handshake)));
        let (peer, line) = match shaken {
            Ok(line) => line,
            Err(error) => {
                self.counters().refused += 1;
                tracing::warn!(%from, error = crate::chain(&error), "a connection was refused");
                return;
            }
        };
        tracing::info!(%from, "a peer connected");
        let error = line.run().await;
        match &error {
            LineError::Wire(_) => self.counters().malformed += 1,
            LineError::Violation(_) => self.counters().violations += 1,
            _ => {}
        }
        match &error {
            LineError::Superseded | LineError::Closed => {
                tracing::info!(%from, "a peer's connection ended");
            }
            error => {
                tracing::warn!(%from, error = crate::chain(error), "a peer's connection ended");
            }
        }
        // Conversations wait a while for the next connection.
        let made = peer.with(|core| core.lines_made());
        if peer.with(|core| core.lines()) == 0 {
            tokio::time::sleep(times.patience).await;
            peer.with(|core| {
                if core.lines() == 0 && core.lines_made() == made {
                    core.give_up(refusal::LINK_DOWN);
                }
            });
        }
    }

    async fn handshake(
        self: &Arc<Self>,
        tcp: TcpStream,
        from: SocketAddr,
    ) -> Result<(Arc<Peer>, Line<Wire>), HandshakeError> {
        let broken = |error: io::Error| HandshakeError::Hello(error.into());
        tune(&tcp).map_err(broken)?;
        let mut wire = Wire::accept(tcp, &self.config.link.encryption).await?;
        let theirs = wire.hear().await?;
        // Before anything is kept for somebody who has another key.
        let probe = self
            .config
            .link
            .endpoint(self.config.sharing, self.config.keep_sent, 0);
        let probe = Endpoint::new(probe.expect("it was made before"));
        { probe }
            .hello(&self.config.link.store)
            .agree(Role::Listener, &theirs)?;
        let peer = self.peer(wire.certificate(), &theirs, from)?;
        let ours = peer.with(Core::hello);
        wire.say(ours).await?;
        let checksum = wire.checksum(&ours.agree(Role::Listener, &theirs)?);
        let id = peer.with(|core| core.line_up(Role::Listener, &ours, &theirs))?;
        let line = Line::new(wire, Arc::clone(&peer), id, checksum, &self.config.link);
        Ok((peer, line.map_err(broken)?))
    }

    /// Connects to where a conversation wants to go, and carries bytes.
    async fn serve(self: Arc<Self>, begun: Begun) {
        self.counters().conversations += 1;
        let place = match begun.target() {
            Target::Origin => {
                if let Some(origin) = &self.origin {
                    match begun.answer() {
                        Ok(stream) => {
                            if let Err(error) = origin.serve(stream).await {
                                tracing::debug!(%error, "an exchange broke off");
                            }
                        }
                        Err(refused) => tracing::debug!(%refused, "nobody waits any more"),
                    }
                    return;
                }
                None
            }
            Target::Tcp(place) if self.config.allow.permits(place) => Some(place.clone()),
            Target::Tcp(place) if self.config.origin.as_ref() == Some(place) => Some(place.clone()),
            Target::Tcp(_) => None,
        };
        let Some(place) = place else {
            self.counters().not_allowed += 1;
            tracing::warn!(target_ = %begun.target(), "a target that is not allowed was refused");
            begun.refuse(refusal::NOT_ALLOWED);
            return;
        };
        let tcp = match connect_within(&place, self.config.link.times.connect).await {
            Ok(tcp) => tcp,
            Err(reason) => {
                self.counters().unreachable += 1;
                tracing::info!(target_ = %place, reason = refusal::describe(reason), "no connection");
                begun.refuse(reason);
                return;
            }
        };
        match begun.answer() {
            Ok(stream) => {
                if let Err(error) = pump(stream, tcp).await {
                    tracing::debug!(target_ = %place, %error, "a conversation broke off");
                }
            }
            Err(refused) => tracing::debug!(target_ = %place, %refused, "nobody waits any more"),
        }
    }
}

/// Connects, or says why not in the link's words.
pub(crate) async fn connect_within(place: &HostPort, within: Duration) -> Result<TcpStream, u32> {
    let connect = async {
        let addrs = tokio::net::lookup_host((place.host.as_str(), place.port)).await;
        let addrs = addrs.map_err(|_| refusal::NO_SUCH_HOST)?;
        for addr in addrs {
            if let Ok(tcp) = local::connect(addr).await {
                _ = tcp.set_nodelay(true);
                return Ok(tcp);
            }
        }
        Err(refusal::UNREACHABLE)
    };
    let connected = tokio::time::timeout(within, connect).await;
    connected.unwrap_or(Err(refusal::TIMEOUT))
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let place = Arc::clone(&places).acquire_owned().await;
        match listener.accept().await {
            Ok((tcp, from)) => {
                let connection = Arc::clone(&shared).connection(tcp, from);
                connections.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Err(error) => {
                // Usually too many open files: some will be closed.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves the conversations of one peer.
async fn converse(peer: Arc<Peer>, shared: Arc<Shared>) {
    let mut conversations = JoinSet::new();
    while let Some(begun) = Begun::next(&peer).await {
        while conversations.try_join_next().is_some() {}
        conversations.spawn(Arc::clone(&shared).serve(begun));
    }
    while conversations.join_next().await.is_some() {}
}

/// A few for each of the peers; whoever comes then waits.
const CONNECTIONS_MAX: usize = 1024;

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
