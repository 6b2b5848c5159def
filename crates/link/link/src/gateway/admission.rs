//! The handshake of a gateway with an edge, in two steps: [`greet`](Shared::greet) checks the edge, and
//! [`admit`](Shared::admit) adds the connection to its peer. Only the first step counts in
//! [`GatewayConfig::pending_max`](super::GatewayConfig::pending_max).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;

use edgeward_dedup::endpoint::Endpoint;
use edgeward_dedup::knowledge::Knowledge;
use edgeward_dedup::wire::{Hello, Role};

use crate::connection::Connection;
use crate::core::Core;
use crate::handshake::{HandshakeError, Transport, set_socket_options};
use crate::identity::Identity;
use crate::peer::{AddedConnection, Peer};
use crate::rate_limit::Paced;

use super::Shared;
use super::identities::LiveConnection;
use super::peers::PeerKey;

/// A connection whose peer has sent a valid HELLO and certificate.
pub(super) struct Greeting {
    transport: Transport,
    identity: Option<Identity>,
    peer_hello: Hello,
    live: Option<LiveConnection>,
}

impl Shared {
    /// Receives the HELLO of an accepted TCP connection, and checks it and the certificate.
    pub(super) async fn greet(
        &self,
        tcp: TcpStream,
        from: SocketAddr,
    ) -> Result<Greeting, HandshakeError> {
        let io_error = |error: io::Error| HandshakeError::Hello(error.into());
        set_socket_options(&tcp).map_err(io_error)?;
        let first_byte = self.config.link.times.first_byte;
        let mut byte = [0];
        let first = tokio::time::timeout(first_byte, tcp.peek(&mut byte)).await;
        first
            .map_err(|_| HandshakeError::Silent(first_byte))?
            .map_err(io_error)?;
        let deny = self.config.deny.clone();
        let tcp = Paced::new(tcp, self.config.link.rate_limiter.as_ref());
        let mut transport = Transport::accept(tcp, &self.config.link.encryption, deny).await?;
        let identity = transport.identity();
        let peer_hello = transport.receive_hello().await?;
        // Checks version and store key against a temporary endpoint, so that no peer is created for an incompatible
        // edge.
        let temporary = self
            .config
            .link
            .endpoint(self.config.sharing, self.config.keep_sent, 0);
        let temporary =
            Endpoint::new(temporary.expect("the configuration was checked at the start"));
        let our_hello = { temporary }.hello();
        if let Err(disagreement) = our_hello.agree(Role::Listener, &peer_hello) {
            // An edge with the store key gets the versions of this gateway, so that it can report the reason.
            if peer_hello.key_check == our_hello.key_check {
                transport.send_hello(our_hello).await?;
            }
            return Err(disagreement.into());
        }
        let live = match &identity {
            Some(identity) => {
                let (live, copies) = self.identities.connect(identity, peer_hello.epoch)?;
                self.report_copies(copies, identity, from);
                Some(live)
            }
            None => None,
        };
        Ok(Greeting {
            transport,
            identity,
            peer_hello,
            live,
        })
    }

    /// Adds a connection to its peer, whose knowledge file is read first if the peer is not in memory.
    pub(super) async fn admit(
        self: &Arc<Self>,
        greeting: Greeting,
        from: SocketAddr,
    ) -> Result<(Arc<Peer>, AddedConnection, Option<LiveConnection>), HandshakeError> {
        let io_error = |error: io::Error| HandshakeError::Hello(error.into());
        let Greeting {
            mut transport,
            identity,
            peer_hello,
            live,
        } = greeting;
        let known = self.read_knowledge(identity.as_ref(), &peer_hello).await;
        let (file, known) = known.unzip();
        let peer = self.peer_for_hello(identity.as_ref(), &peer_hello, known, from)?;
        if let (Some(files), Some(file)) = (&self.knowledge_files, file) {
            files.forget_load(&file);
        }
        let our_hello = peer.call(Core::hello).await;
        let our_hello = our_hello.ok_or(HandshakeError::ShutDown)?;
        transport.send_hello(our_hello).await?;
        let checksum = transport.checksum();
        let connection = Connection::new(transport, checksum, &self.config.link);
        let connection = connection.map_err(io_error)?;
        let connected = peer.connect(connection, Role::Listener, our_hello, peer_hello);
        let connection = connected.await?;
        let edge = identity.as_ref().map(Identity::name);
        tracing::info!(%from, edge, "peer connected");
        Ok((peer, connection, live))
    }

    /// Reads the knowledge file of a peer that the gateway does not have in memory. Returns the name of the file, too.
    async fn read_knowledge(
        &self,
        identity: Option<&Identity>,
        peer_hello: &Hello,
    ) -> Option<(String, Knowledge)> {
        let files = self.knowledge_files.clone()?;
        let is_known = self.peers().by_key.contains_key(&PeerKey {
            identity: identity.map(|identity| Arc::clone(identity.key())),
            epoch: peer_hello.epoch,
            session: None,
        });
        let identity = identity.map(|identity| &**identity.key());
        let name = files.file_name(identity, peer_hello.epoch);
        if is_known {
            // The connection may end before the next save.
            tokio::task::spawn_blocking(move || files.touch(&name));
            return None;
        }
        let known = files.load_in_turn(name.clone()).await?;
        Some((name, known))
    }
}
