//! The certificates of a gateway's peers while they are connected: the deny list, their end, copies and limits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::certificate_problem::{CertificateHolder, CertificateProblem, RefusedCertificate};
use crate::core::Core;
use crate::deny::Fingerprint;
use crate::handshake::HandshakeError;
use crate::identity::Identity;
use crate::peer::Peer;

use super::Shared;
use super::identities::{Copies, LiveStream};

impl Shared {
    /// Refuses a certificate that is on the deny list.
    pub(super) fn check_identity(&self, identity: Option<&Identity>) -> Result<(), HandshakeError> {
        match identity {
            Some(identity) if self.denies(identity.fingerprint_bytes()) => {
                Err(HandshakeError::Certificate(RefusedCertificate {
                    problem: CertificateProblem::Revoked,
                    whose: CertificateHolder::Peer,
                    name: Some(identity.name()),
                    fingerprint: Some(identity.fingerprint()),
                }))
            }
            _ => Ok(()),
        }
    }

    fn denies(&self, certificate: &Fingerprint) -> bool {
        let list = self.config.deny.as_ref();
        list.is_some_and(|list| list.denies(certificate))
    }

    /// Removes the peers whose certificates are on the deny list, and closes their connections. If only an earlier
    /// certificate of a peer is on the list, the edge can connect again with its new one, and its streams continue.
    async fn close_denied_peers(&self) {
        let mut closed = Vec::new();
        let denied = self
            .identities
            .with_live_certificate(|certificate| self.denies(certificate));
        self.peers().by_key.retain(|key, entry| {
            let is_denied = self.check_identity(entry.identity.as_ref()).is_err();
            let has_denied = key
                .identity
                .as_ref()
                .is_some_and(|key| denied.contains(key));
            if is_denied || has_denied {
                let edge = entry.identity.as_ref().map(Identity::name);
                tracing::warn!(
                    from = %entry.remote_addr,
                    edge,
                    "peer closed: its certificate is on the deny list"
                );
                closed.push(Arc::clone(&entry.peer));
            }
            // Removing a peer ends its task, with its streams and connections.
            !is_denied
        });
        for peer in closed {
            peer.call(Core::detach_connections).await;
        }
    }

    /// Closes the connections of peers whose certificate has expired. An edge with a new certificate connects again,
    /// and its streams continue.
    async fn close_expired_peers(&self, now: SystemTime) {
        let expired: Vec<_> = {
            let peers = self.peers();
            let expired = peers.by_key.values().filter_map(|entry| {
                let identity = entry.identity.as_ref().filter(|id| id.has_expired(now))?;
                Some((identity.name(), entry.remote_addr, Arc::clone(&entry.peer)))
            });
            expired.collect()
        };
        for (edge, from, peer) in expired {
            if peer.state().connections > 0 {
                peer.call(Core::detach_connections).await;
                tracing::warn!(
                    %from,
                    edge,
                    "peer closed: its certificate has expired; run `edgeward link keys renew {edge}` at the folder of \
                     the CA, and copy the folder to the edge"
                );
            }
        }
    }

    /// Logs and counts edges that share a certificate or a store.
    pub(super) fn report_copies(&self, copies: Copies, identity: &Identity, from: SocketAddr) {
        let edge = identity.name();
        if copies.of_certificate {
            self.counters().shared_certificates += 1;
            tracing::warn!(
                %from,
                edge,
                "two stores are connected with the certificate of one edge: if they are two machines, give each a \
                 certificate of its own by `edgeward link keygen --add`, so that one can be revoked without the other"
            );
        }
        if let Some(other) = copies.of_store {
            self.counters().clones += 1;
            tracing::warn!(
                %from,
                edge,
                other,
                "two edges have the same store identity, as after a copy of a disk; give one of them an empty store"
            );
        }
    }

    /// Counts a stream of an identity. Returns an error if a limit of the identity is reached.
    pub(super) fn admit_stream(
        &self,
        identity: &Identity,
        peer: &Peer,
    ) -> Result<Option<LiveStream>, ()> {
        let memory = if self.identities.is_shared(identity.key()) {
            let peers = self.peers();
            let of_identity = peers
                .by_key
                .iter()
                .filter(|(key, _)| key.identity.as_ref() == Some(identity.key()));
            let memory = of_identity.map(|(_, entry)| entry.peer.memory_bytes());
            memory.sum()
        } else {
            peer.memory_bytes()
        };
        self.identities
            .open_stream(identity.key(), memory, Instant::now())
            .map_err(|refusal| {
                self.counters().over_limit += 1;
                if let Some(streams) = refusal.report {
                    tracing::warn!(
                        edge = refusal.edge,
                        streams,
                        "streams refused: the certificate has reached its limit of streams or memory; give each edge a \
                         certificate of its own, or raise --streams-per-certificate or --memory-per-certificate"
                    );
                }
            })
    }
}

/// Checks the file of the deny list periodically, and closes denied peers when it has changed. Closes peers whose
/// certificate has expired.
pub(super) async fn watch_certificates(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(CERTIFICATE_CHECK_INTERVAL).await;
        if let Some(list) = shared.config.deny.clone() {
            let changed = tokio::task::spawn_blocking(move || list.refresh()).await;
            if matches!(changed, Ok(true)) {
                shared.close_denied_peers().await;
            }
        }
        shared.close_expired_peers(SystemTime::now()).await;
    }
}

/// The interval at which the file of the deny list and the end of certificates are checked. The connections of a denied
/// or expired certificate are closed within about this time.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
