//! The gateway: the endpoint near the origin. It listens for edges, and serves all of them from one chunk store.

mod admission;
mod certificates;
mod identities;
mod peers;
mod statuses;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use edgeward_dedup::endpoint::Endpoint;
use edgeward_dedup::knowledge::Knowledge;
use edgeward_dedup::receiver::Sharing;
use edgeward_dedup::wire::Hello;
use edgeward_httpd::{AcceptedConnection, Slots};
use edgeward_types::ConnectionLimits;

use crate::admin::StatusReport;
use crate::allow::Allow;
use crate::certificate_problem::{CertificateHolder, CertificateProblem, RefusedCertificate};
use crate::client::{drain, finish};
use crate::config::{Encryption, LinkConfig};
use crate::connection::ConnectionError;
use crate::core::{Core, CoreConfig};
use crate::deny::DenyList;
use crate::handshake::HandshakeError;
use crate::identity::Identity;
use crate::keys::{Keys, watch_keys};
use crate::knowledge_files::{KnowledgeFiles, save_periodically};
use crate::knowledge_pages::KnowledgePages;
use crate::label::{HostPort, Target, refusal_reason};
use crate::local;
use crate::origin::Origin;
use crate::origin_tls::OriginTls;
use crate::peer::Peer;
use crate::rate_limit::RateLimiter;
use crate::status::{EndpointStatus, GatewayStatus};
use crate::stream::IncomingStream;
use crate::{SetupError, random};

use certificates::watch_certificates;
use identities::Identities;
pub use identities::{IdentityLimits, IdentityStatus};
use peers::{PeerEntry, PeerKey, PeerLookup, Peers};
use statuses::{NamedPeer, peer_statuses};

/// The configuration of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// The settings that a gateway and an edge have in common.
    pub link: LinkConfig,
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The host and port of [`Target::Origin`], which speaks HTTP/1.1. Streams to it are refused if this is `None`.
    pub origin: Option<HostPort>,
    /// The TLS client of the origin, if it is an `https` origin.
    pub origin_tls: Option<OriginTls>,
    /// True if the gateway requests bodies without compression from the origin.
    pub identity: bool,
    /// The targets that edges may connect to, in addition to the origin.
    pub allow: Allow,
    /// The highest number of peers, connected or not, for which the gateway records the known chunks.
    pub peers_max: usize,
    /// The highest number of peers with the same certificate. `None` is three quarters of `peers_max`: many edges may
    /// share one certificate, and the rest is left for other certificates.
    pub peers_per_certificate_max: Option<usize>,
    /// The limits of connections, streams and memory with the same certificate.
    pub identity_limits: IdentityLimits,
    /// The highest number of connections whose handshake is not complete. A further connection closes the oldest of
    /// them.
    pub pending_max: usize,
    /// The list of certificates that the gateway refuses.
    pub deny: Option<DenyList>,
    /// The chunks that a peer may reference. With [`Sharing::Exchanged`], an edge cannot find out which chunks other
    /// edges have.
    pub sharing: Sharing,
    /// True if the gateway stores all chunks that it sends, so that an edge can reference them in its own bodies.
    /// Otherwise the gateway stores only chunks that may be compression dictionaries for new chunks in later bodies.
    pub keep_sent: bool,
}

impl GatewayConfig {
    /// Returns the defaults: edges may connect only to the origin, and the gateway records at most 2,048 peers.
    pub fn new(link: LinkConfig, listen: SocketAddr, origin: Option<HostPort>) -> Self {
        Self {
            link,
            listen,
            origin,
            origin_tls: None,
            identity: true,
            allow: Allow::default(),
            peers_max: 2048,
            peers_per_certificate_max: None,
            identity_limits: IdentityLimits::default(),
            // With 100 new connections per second, a handshake may take 5 s before its connection is closed. It needs
            // three round trips.
            pending_max: 512,
            deny: None,
            sharing: Sharing::Exchanged,
            keep_sent: false,
        }
    }
}

/// A running gateway. Dropping this value closes all connections and the listener.
#[derive(Debug)]
pub struct Gateway {
    addr: SocketAddr,
    shared: Arc<Shared>,
    /// The tasks of the gateway. Dropping them aborts them.
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    config: GatewayConfig,
    origin: Option<Arc<Origin>>,
    knowledge_files: Option<Arc<KnowledgeFiles>>,
    knowledge_pages: KnowledgePages,
    peers: Mutex<Peers>,
    /// The right to wait for a peer's knowledge file.
    admissions: Semaphore,
    identities: Arc<Identities>,
    counters: Mutex<GatewayCounters>,
}

/// Counters of the connections and streams of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayCounters {
    /// TCP connections accepted.
    pub connections: u64,
    /// Connections refused during the handshake for other reasons than the next two, such as a wrong key or version.
    pub refused: u64,
    /// Connections closed to make room for newer ones before their handshake was complete.
    pub displaced: u64,
    /// Connections refused because their certificate is on the deny list.
    pub denied: u64,
    /// Edges that had the store identity of another connected edge.
    pub clones: u64,
    /// Times that a second store connected with the certificate of a connected edge.
    pub shared_certificates: u64,
    /// Connections whose certificate was refused, by [`CertificateProblem::ALL`].
    pub refused_certificates: [u64; CertificateProblem::ALL.len()],
    /// Streams refused because a limit of the edge's certificate was reached.
    pub over_limit: u64,
    /// Connections closed because received bytes were not a valid frame.
    pub malformed: u64,
    /// Connections closed because the peer violated the protocol.
    pub violations: u64,
    /// Streams that peers opened.
    pub streams: u64,
    /// Streams refused because their target is not permitted.
    pub not_allowed: u64,
    /// Streams refused because the gateway could not connect to their target.
    pub unreachable: u64,
}

impl Gateway {
    /// Starts the gateway. Its tasks run on the current Tokio runtime.
    pub async fn bind(config: GatewayConfig) -> Result<Self, SetupError> {
        // Returns the error of an invalid configuration now, and not at the first connection.
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
                "the link is NOT ENCRYPTED: every host that reaches this port can use the gateway"
            );
        }
        let origin = config.origin.clone().map(|address| {
            Arc::new(Origin::new(
                address,
                config.origin_tls.clone(),
                config.identity,
                config.link.times.connect,
            ))
        });
        let knowledge_pages =
            KnowledgePages::new(config.link.knowledge_bytes_max, config.peers_max);
        let knowledge_files = KnowledgeFiles::of(&config.link, config.peers_max, &knowledge_pages);
        let shared = Arc::new(Shared {
            origin,
            knowledge_files,
            knowledge_pages,
            identities: Arc::new(Identities::new(config.identity_limits)),
            admissions: Semaphore::new(config.peers_max.max(config.pending_max)),
            config,
            peers: Mutex::default(),
            counters: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        if let Encryption::Tls(keys) = &shared.config.link.encryption {
            tasks.spawn(watch_keys(Keys::clone(keys)));
            tasks.spawn(watch_certificates(Arc::clone(&shared)));
        }
        if let Some(knowledge_files) = &shared.knowledge_files {
            let (owner, link) = (Arc::clone(&shared), &shared.config.link);
            tasks.spawn(save_periodically(
                Arc::clone(knowledge_files),
                link.store.clone(),
                link.times.knowledge,
                move || owner.peers_by_file(&owner.peers().by_key),
            ));
        }
        Ok(Self {
            addr,
            shared,
            tasks,
        })
    }

    /// Returns the address of the listener.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the counters of the gateway and of each peer, after one second at most.
    pub async fn status(&self) -> GatewayStatus {
        let encrypted = matches!(self.shared.config.link.encryption, Encryption::Tls(_));
        let mut peers: Vec<_> = self
            .shared
            .peers()
            .by_key
            .iter()
            // The name of a peer contains the epoch of its store instead of the port, because the port changes with
            // each connection.
            .map(|(key, entry)| {
                (
                    entry.remote_addr.ip(),
                    key.epoch & 0xffff,
                    NamedPeer {
                        name: format!("{}#{:04x}", entry.remote_addr.ip(), key.epoch & 0xffff),
                        edge: entry.identity.as_ref().map(Identity::name),
                        peer: Arc::clone(&entry.peer),
                    },
                )
            })
            .collect();
        peers.sort_by_key(|(from, epoch, _)| (*from, *epoch));
        let peers = peers.into_iter().map(|(_, _, peer)| peer).collect();
        let timeout = tokio::time::sleep(STATUS_TIMEOUT);
        let (peers, busy_peers) = peer_statuses(peers, encrypted, timeout).await;
        GatewayStatus {
            encrypted,
            identity: self.shared.config.link.encryption.identity(),
            identities: self.shared.identities.status(SystemTime::now()),
            counters: *self.shared.counters(),
            knowledge: self.shared.knowledge_pages.status(),
            peers,
            busy_peers,
        }
    }

    /// Returns the function by which an admin server reads the status.
    pub fn report(self: &Arc<Self>) -> StatusReport {
        let gateway = Arc::clone(self);
        Arc::new(move || {
            let gateway = Arc::clone(&gateway);
            Box::pin(async move { EndpointStatus::of_gateway(&gateway).await })
        })
    }

    /// Returns the limiter of the sent bytes.
    pub fn rate_limiter(&self) -> Option<&RateLimiter> {
        self.shared.config.link.rate_limiter.as_deref()
    }

    /// Returns the chunk store.
    pub fn store(&self) -> &edgeward_chunk_store::Chunks {
        &self.shared.config.link.store
    }

    /// Waits until all written bytes are delivered and all streams are closed, at most for `grace`.
    pub async fn drain(&self, grace: Duration) {
        let end = Instant::now() + grace;
        for peer in self.shared.all_peers() {
            drain(&peer, end.saturating_duration_since(Instant::now())).await;
        }
    }

    /// Waits like [`drain`](Self::drain). Then closes the gateway, and saves the last container and the knowledge.
    pub async fn shutdown(mut self, grace: Duration) -> io::Result<()> {
        self.drain(grace).await;
        self.tasks.shutdown().await;
        for peer in self.shared.all_peers() {
            peer.call(Core::shut_down).await;
        }
        let mut peers = std::mem::take(&mut self.shared.peers().by_key);
        peers
            .values_mut()
            .for_each(|entry| entry.serving.abort_all());
        let finished = finish(
            &self.shared.config.link.store,
            self.shared.knowledge_files.as_ref(),
            &self.shared.peers_by_file(&peers),
        )
        .await;
        // The tasks release the store before this function returns.
        for entry in peers.values_mut() {
            entry.task.shutdown().await;
        }
        finished
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // The tasks of peers and the shared state of the gateway hold references to each other. Removing all peers
        // ends these tasks, their streams and connections.
        let shut_down = Peers {
            is_shut_down: true,
            ..Peers::default()
        };
        *self.shared.peers() = shut_down;
    }
}

impl Shared {
    fn peers(&self) -> std::sync::MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all_peers(&self) -> Vec<Arc<Peer>> {
        let peers = self.peers();
        let peers = peers.by_key.values();
        peers.map(|entry| Arc::clone(&entry.peer)).collect()
    }

    /// Returns the name of each peer's knowledge file, and the peer.
    fn peers_by_file(&self, peers: &HashMap<PeerKey, PeerEntry>) -> Vec<(String, Arc<Peer>)> {
        let Some(knowledge_files) = &self.knowledge_files else {
            return Vec::new();
        };
        // A peer whose key has a session is a clone: another edge has the same identity and epoch. Both files
        // would have the same name, so the clone gets none.
        let file_of = |(key, entry): (&PeerKey, &PeerEntry)| {
            if key.session.is_some() {
                return None;
            }
            let name = knowledge_files.file_name(key.identity.as_deref(), key.epoch);
            Some((name, Arc::clone(&entry.peer)))
        };
        peers.iter().filter_map(file_of).collect()
    }

    fn counters(&self) -> std::sync::MutexGuard<'_, GatewayCounters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the peer that sent the HELLO `peer_hello`, and creates the peer if it is new. `known` is the content of
    /// its knowledge file.
    fn peer_for_hello(
        self: &Arc<Self>,
        identity: Option<&Identity>,
        peer_hello: &Hello,
        known: Option<Knowledge>,
        from: SocketAddr,
    ) -> Result<Arc<Peer>, HandshakeError> {
        let mut peers = self.peers();
        if peers.is_shut_down {
            return Err(HandshakeError::ShutDown);
        }
        // The deny list may have changed, and `close_denied_peers` may have run, since the handshake checked this
        // certificate. While this task holds the lock of the peers, `close_denied_peers` cannot run.
        self.check_identity(identity)?;
        let (key, is_clone) = match peers.look_up(identity, peer_hello, from) {
            PeerLookup::Known(peer) => return Ok(peer),
            PeerLookup::New { key, is_clone } => (key, is_clone),
        };
        let peers_max = self.config.peers_max.max(1);
        let per_certificate = self.config.peers_per_certificate_max;
        let per_certificate = per_certificate.unwrap_or(peers_max - peers_max / 4);
        peers.evict_if_full(&key, identity, peers_max, per_certificate.max(1))?;
        if is_clone {
            self.counters().clones += 1;
            tracing::warn!(
                %from,
                epoch = format!("{:016x}", key.epoch),
                "two edges have the same store identity, as after a copy of a disk; \
                 each is served separately; give one of them an empty store"
            );
        }
        let link = &self.config.link;
        let session = random::<8>().map_err(|error| HandshakeError::Hello(error.into()))?;
        let endpoint = link
            .endpoint(
                self.config.sharing,
                self.config.keep_sent,
                u64::from_le_bytes(session),
            )
            .expect("the configuration was checked at the start");
        // The peer may open streams (`accepts`). With `probe`, encrypted and compressed bodies are not deduplicated.
        let core = CoreConfig {
            accepts: true,
            dedup: link.dedup,
            probe: link.probe,
            unacked_max: link.unacked_bytes_max,
        };
        let mut core = Core::new(
            core,
            Endpoint::new(endpoint),
            link.store.clone(),
            self.knowledge_pages.clone(),
        );
        if let Some(known) = known.filter(|_| !is_clone) {
            core.set_knowledge(known);
        }
        let (peer, driver, opened) = Peer::new(core);
        let (mut task, mut serving) = (JoinSet::new(), JoinSet::new());
        task.spawn(driver.run());
        serving.spawn(serve_streams(
            Arc::clone(&peer),
            opened,
            identity.cloned(),
            Arc::clone(self),
        ));
        // `replaced_sessions` gets the session numbers from before each restart of this edge. `is_cloned` becomes true
        // for the first edge of an identity and epoch when a second edge has the same ones.
        peers.by_key.insert(
            key,
            PeerEntry {
                peer: Arc::clone(&peer),
                identity: identity.cloned(),
                remote_addr: from,
                last_handshake: Instant::now(),
                replaced_sessions: VecDeque::new(),
                is_cloned: false,
                task,
                serving,
            },
        );
        Ok(peer)
    }

    /// Counts and logs a connection that was refused.
    fn count_rejection(&self, from: SocketAddr, error: &HandshakeError) {
        let mut counters = self.counters();
        match error {
            HandshakeError::Displaced => counters.displaced += 1,
            HandshakeError::Certificate(RefusedCertificate {
                problem: CertificateProblem::Revoked,
                whose: CertificateHolder::Peer,
                ..
            }) => counters.denied += 1,
            _ => counters.refused += 1,
        }
        if let HandshakeError::Certificate(refused) = error
            && refused.whose == CertificateHolder::Peer
        {
            counters.refused_certificates[refused.problem as usize] += 1;
        }
        drop(counters);
        let error_text = edgeward_types::with_causes(error);
        // Any host on the network can cause these two errors by silent connections, so they are not warnings.
        if matches!(error, HandshakeError::Displaced | HandshakeError::Silent(_)) {
            tracing::debug!(%from, error = error_text, "connection rejected during the handshake");
        } else {
            tracing::warn!(%from, error = error_text, "connection rejected during the handshake");
        }
    }

    /// Serves an accepted TCP connection until it is closed.
    async fn serve_connection(
        self: Arc<Self>,
        tcp: TcpStream,
        from: SocketAddr,
        accepted: AcceptedConnection,
    ) {
        let AcceptedConnection {
            slot, displaced, ..
        } = accepted;
        let times = self.config.link.times;
        self.counters().connections += 1;
        let greeted = tokio::select! {
            greeted = tokio::time::timeout(times.handshake, self.greet(tcp, from)) => {
                greeted.unwrap_or(Err(HandshakeError::Timeout(times.handshake)))
            }
            _ = displaced => Err(HandshakeError::Displaced),
        };
        // The slot limits only connections that have not shown who they are. New connections must not displace edges
        // that wait until their knowledge files are read: after a restart all edges connect at once.
        drop(slot);
        let admitted = async {
            let _waits = self.admissions.try_acquire();
            let _waits = _waits.map_err(|_| HandshakeError::Displaced)?;
            let admitted = tokio::time::timeout(times.handshake, self.admit(greeted?, from));
            let timed_out = Err(HandshakeError::Timeout(times.handshake));
            admitted.await.unwrap_or(timed_out)
        };
        let (peer, connection, live) = match admitted.await {
            Ok(connection) => connection,
            Err(error) => return self.count_rejection(from, &error),
        };
        let error = connection.ended().await;
        // It does not count while its peer may connect again.
        drop(live);
        match &error {
            ConnectionError::Wire(_) => self.counters().malformed += 1,
            ConnectionError::Violation(_) => self.counters().violations += 1,
            _ => {}
        }
        match &error {
            ConnectionError::Superseded | ConnectionError::Closed => {
                tracing::info!(%from, "peer connection closed");
            }
            error => {
                tracing::warn!(%from, error = edgeward_types::with_causes(error), "peer connection closed");
            }
        }
        self.wait_for_connection(&peer).await;
    }

    /// If the peer has no connection, waits for `outage_max` and resets its streams unless it has connected again.
    async fn wait_for_connection(&self, peer: &Peer) {
        let before = peer.state();
        if before.connections > 0 {
            return;
        }
        let reconnected = peer.wait_for(|state| state.connections_made != before.connections_made);
        let outage_max = self.config.link.times.outage_max;
        if tokio::time::timeout(outage_max, reconnected).await.is_err() {
            peer.call(move |core| {
                if core.connections_made() == before.connections_made {
                    core.reset_all(refusal_reason::LINK_DOWN);
                }
            })
            .await;
        }
    }

    /// Connects to the target of a stream, and copies bytes between both until they are closed.
    async fn serve_stream(self: Arc<Self>, incoming: IncomingStream) {
        self.counters().streams += 1;
        let address = match incoming.target() {
            Target::Origin => {
                if let Some(origin) = &self.origin {
                    if let Err(error) = origin.serve(incoming.accept()).await {
                        tracing::debug!(%error, "exchange aborted");
                    }
                    return;
                }
                None
            }
            Target::Tcp(address) if self.config.origin.as_ref() == Some(address) => {
                Some((address.clone(), true))
            }
            Target::Tcp(address) if self.config.allow.permits(address) => {
                Some((address.clone(), false))
            }
            Target::Tcp(_) => None,
        };
        let Some((address, is_origin)) = address else {
            self.counters().not_allowed += 1;
            tracing::warn!(target_ = %incoming.target(), "stream refused: the target is not allowed");
            incoming.refuse(refusal_reason::NOT_ALLOWED);
            return;
        };
        let permits = |ip: IpAddr| {
            let special = self.config.allow.special_address(ip, address.port);
            let Some(special) = special.filter(|_| !is_origin) else {
                return true;
            };
            tracing::warn!(
                target_ = %address,
                address = %ip,
                kind = special.describe(),
                "address refused: it is not public, and no --allow rule permits it"
            );
            false
        };
        let tcp = match connect_to_target(&address, permits, self.config.link.times.connect).await {
            Ok(tcp) => tcp,
            Err(reason) => {
                let mut counters = self.counters();
                if reason == refusal_reason::NOT_ALLOWED {
                    counters.not_allowed += 1;
                } else {
                    counters.unreachable += 1;
                }
                drop(counters);
                tracing::info!(
                    target_ = %address,
                    reason = refusal_reason::describe(reason),
                    "cannot connect to the target"
                );
                incoming.refuse(reason);
                return;
            }
        };
        if let Err(error) = incoming.accept().pump(tcp).await {
            tracing::debug!(target_ = %address, %error, "stream aborted");
        }
    }
}

/// Connects to a target at an address that `permits` accepts. An error is a reason of [`refusal_reason`].
///
/// The name is resolved only once. Otherwise a second answer of the DNS server could contain an address that
/// `permits` has not checked.
pub(crate) async fn connect_to_target(
    address: &HostPort,
    permits: impl Fn(IpAddr) -> bool,
    timeout: Duration,
) -> Result<TcpStream, u32> {
    let connect = async {
        let addrs = tokio::net::lookup_host((address.host.as_str(), address.port)).await;
        let addrs = addrs.map_err(|_| refusal_reason::NO_SUCH_HOST)?;
        let mut reason = refusal_reason::NOT_ALLOWED;
        for addr in addrs.filter(|addr| permits(addr.ip())) {
            if let Ok(tcp) = local::connect(addr).await {
                _ = tcp.set_nodelay(true);
                return Ok(tcp);
            }
            reason = refusal_reason::UNREACHABLE;
        }
        Err(reason)
    };
    let connected = tokio::time::timeout(timeout, connect).await;
    connected.unwrap_or(Err(refusal_reason::TIMEOUT))
}

/// Accepts TCP connections. `pending_max` limits the connections whose handshake is not complete. The other
/// connections are limited by the number of peers and the connections per peer.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let pending_max = shared.config.pending_max;
    // A connection is unserved while its handshake is not complete; these are all connections in `pending`.
    let pending = Slots::new(ConnectionLimits {
        connections_max: pending_max,
        unserved_max: pending_max,
        // If an address has half of the slots, its next connection closes its own oldest one.
        per_client_max: pending_max.div_ceil(2),
    });
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((tcp, from)) => {
                let accepted = pending.enter(from.ip());
                let accepted =
                    accepted.expect("a connection in its handshake can always be displaced");
                connections.spawn(Arc::clone(&shared).serve_connection(tcp, from, accepted));
                // Lets the task of the connection start its handshake before the next connection is accepted, which
                // could displace it.
                tokio::task::yield_now().await;
            }
            Err(error) => {
                // The usual cause is the limit of open files. After a pause, other connections may have been closed.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves the streams of one peer.
async fn serve_streams(
    peer: Arc<Peer>,
    mut opened: mpsc::UnboundedReceiver<IncomingStream>,
    identity: Option<Identity>,
    shared: Arc<Shared>,
) {
    let mut streams = JoinSet::new();
    while let Some(incoming) = opened.recv().await {
        while streams.try_join_next().is_some() {}
        let live = match identity.as_ref() {
            Some(identity) => shared.admit_stream(identity, &peer),
            None => Ok(None),
        };
        match live {
            Ok(live) => {
                let shared = Arc::clone(&shared);
                streams.spawn(async move {
                    shared.serve_stream(incoming).await;
                    drop(live);
                });
            }
            Err(()) => incoming.refuse(edgeward_dedup::reason::TOO_MANY),
        }
    }
    while streams.join_next().await.is_some() {}
}

/// The time in which a peer must report its status. Its task works in slices of about a millisecond, so a later report
/// shows that the processors are overloaded.
const STATUS_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause after a failed `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
