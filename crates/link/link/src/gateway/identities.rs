//! The live connections and streams of each identity at a gateway: limits by certificate, and edges that share a
//! certificate or a store.
//!
//! An identity is the holder of a certificate. Each limit of a peer also exists for an identity, because the holder of
//! one certificate can connect as many peers by using several stores.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::deny::Fingerprint;
use crate::handshake::HandshakeError;
use crate::identity::{Identity, IdentityKey};

/// The limits of one identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityLimits {
    /// The highest number of connections.
    pub connections_max: usize,
    /// The highest number of open streams.
    pub streams_max: usize,
    /// The highest number of bytes of unacknowledged and unread bodies, in the pipes of streams too, at which a further
    /// stream may be opened.
    pub memory_max: u64,
}

impl Default for IdentityLimits {
    /// The defaults are those of 16 peers with all their connections, of 8 peers with all their streams, and of 4 peers
    /// with all their memory. An edge with one store is one peer, so the limits of peers apply to it first.
    fn default() -> Self {
        Self {
            connections_max: 256,
            streams_max: 8192,
            memory_max: 1536 << 20,
        }
    }
}

/// The identities that are connected.
#[derive(Debug)]
pub(super) struct Identities {
    limits: IdentityLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_key: HashMap<IdentityKey, Entry>,
    /// The identities with a live connection from the store with this epoch.
    by_epoch: HashMap<u64, Vec<IdentityKey>>,
}

#[derive(Debug)]
struct Entry {
    /// The identity of the last connection.
    identity: Identity,
    /// The number of live connections by certificate and by the epoch of the edge's store.
    live: HashMap<(Fingerprint, u64), usize>,
    streams: usize,
    refused_streams: u64,
    /// The time of the last report of refused streams, and their number then.
    reported: Option<(Instant, u64)>,
    /// True if several stores are known to be connected with this identity.
    is_shared: bool,
}

impl Entry {
    fn connections(&self) -> usize {
        self.live.values().sum()
    }

    fn stores(&self) -> usize {
        let mut epochs: Vec<u64> = self.live.keys().map(|(_, epoch)| *epoch).collect();
        epochs.sort_unstable();
        epochs.dedup();
        epochs.len()
    }
}

/// The status of an identity with live connections.
#[derive(Clone, Debug)]
pub struct IdentityStatus {
    /// The name of the edge.
    pub name: String,
    /// The fingerprint of the certificate of its last connection.
    pub fingerprint: String,
    /// The days until this certificate expires, or `None` if it does not.
    pub days_left: Option<i64>,
    /// The number of stores with live connections. Above 1, several edges have this certificate.
    pub stores: usize,
    /// The number of live connections.
    pub connections: usize,
    /// The number of open streams.
    pub streams: usize,
    /// The streams that were refused because the identity had reached a limit.
    pub refused_streams: u64,
}

/// The copies that a new connection reveals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Copies {
    /// True if another store is connected with the same certificate. This is true only once until the number of stores
    /// is 1 again.
    pub(super) of_certificate: bool,
    /// The name of another edge that is connected with the same store.
    pub(super) of_store: Option<String>,
}

impl Identities {
    pub(super) fn new(limits: IdentityLimits) -> Self {
        Self {
            limits,
            state: Mutex::default(),
        }
    }

    /// Counts a new connection, unless the identity has reached its limit.
    pub(super) fn connect(
        self: &Arc<Self>,
        identity: &Identity,
        epoch: u64,
    ) -> Result<(LiveConnection, Copies), HandshakeError> {
        let mut state = self.state();
        let State { by_key, by_epoch } = &mut *state;
        let entry = by_key
            .entry(Arc::clone(identity.key()))
            .or_insert_with(|| Entry {
                identity: identity.clone(),
                live: HashMap::new(),
                streams: 0,
                refused_streams: 0,
                reported: None,
                is_shared: false,
            });
        let count = entry.connections();
        if count >= self.limits.connections_max {
            return Err(HandshakeError::TooManyConnections {
                name: identity.name(),
                count,
            });
        }
        entry.identity = identity.clone();
        let part = (*identity.fingerprint_bytes(), epoch);
        *entry.live.entry(part).or_default() += 1;
        let is_shared = entry.stores() > 1;
        let of_certificate = is_shared && !std::mem::replace(&mut entry.is_shared, is_shared);
        let holders = by_epoch.entry(epoch).or_default();
        let is_new = !holders.contains(identity.key());
        let other = holders.iter().find(|holder| *holder != identity.key());
        let of_store = other
            .filter(|_| is_new)
            .and_then(|other| by_key.get(other))
            .map(|other| other.identity.name());
        if is_new {
            holders.push(Arc::clone(identity.key()));
        }
        let live = LiveConnection {
            identities: Arc::clone(self),
            key: Arc::clone(identity.key()),
            part,
        };
        Ok((
            live,
            Copies {
                of_certificate,
                of_store,
            },
        ))
    }

    /// Counts a new stream, or refuses it if the identity has reached a limit. `memory` is the number of
    /// unacknowledged and unread bytes of all its peers, with those in pipes. A stream that arrives after the last
    /// connection of the identity has ended is not counted.
    pub(super) fn open_stream(
        self: &Arc<Self>,
        key: &IdentityKey,
        memory: u64,
        now: Instant,
    ) -> Result<Option<LiveStream>, RefusedStream> {
        let mut state = self.state();
        let Some(entry) = state.by_key.get_mut(key) else {
            return Ok(None);
        };
        if entry.streams >= self.limits.streams_max || memory > self.limits.memory_max {
            entry.refused_streams += 1;
            let before = entry.reported;
            let is_due = before.is_none_or(|(at, _)| now - at >= REPORT_INTERVAL);
            let report = is_due.then(|| {
                entry.reported = Some((now, entry.refused_streams));
                entry.refused_streams - before.map_or(0, |(_, count)| count)
            });
            return Err(RefusedStream {
                edge: entry.identity.name(),
                report,
            });
        }
        entry.streams += 1;
        Ok(Some(LiveStream {
            identities: Arc::clone(self),
            key: Arc::clone(key),
        }))
    }

    /// Returns true if several stores are connected with an identity.
    pub(super) fn is_shared(&self, key: &IdentityKey) -> bool {
        let state = self.state();
        state
            .by_key
            .get(key)
            .is_some_and(|entry| entry.stores() > 1)
    }

    /// Returns the identities for which `condition` holds for the certificate of a live connection.
    pub(super) fn with_live_certificate(
        &self,
        condition: impl Fn(&Fingerprint) -> bool,
    ) -> Vec<IdentityKey> {
        let state = self.state();
        let matches = state.by_key.iter().filter(|(_, entry)| {
            entry
                .live
                .keys()
                .any(|(certificate, _)| condition(certificate))
        });
        matches.map(|(key, _)| Arc::clone(key)).collect()
    }

    pub(super) fn status(&self, now: SystemTime) -> Vec<IdentityStatus> {
        let state = self.state();
        let mut all: Vec<_> = state
            .by_key
            .values()
            .map(|entry| IdentityStatus {
                name: entry.identity.name(),
                fingerprint: entry.identity.fingerprint(),
                days_left: entry.identity.days_left(now),
                stores: entry.stores(),
                connections: entry.connections(),
                streams: entry.streams,
                refused_streams: entry.refused_streams,
            })
            .collect();
        all.sort_by(|a, b| (&a.name, &a.fingerprint).cmp(&(&b.name, &b.fingerprint)));
        all
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream that was refused because its identity has reached a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RefusedStream {
    /// The name of the identity.
    pub(super) edge: String,
    /// The number of streams of the identity that were refused since the last report, if the next one is due: an edge
    /// at its limit may open thousands of streams a second.
    pub(super) report: Option<u64>,
}

/// The shortest time between two reports of refused streams of an identity.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// A live connection of an identity. Dropping this value ends it.
#[derive(Debug)]
pub(super) struct LiveConnection {
    identities: Arc<Identities>,
    key: IdentityKey,
    /// The certificate of the connection and the epoch of the edge's store.
    part: (Fingerprint, u64),
}

impl Drop for LiveConnection {
    fn drop(&mut self) {
        let mut state = self.identities.state();
        let State { by_key, by_epoch } = &mut *state;
        let Some(entry) = by_key.get_mut(&self.key) else {
            return;
        };
        if let Some(count) = entry.live.get_mut(&self.part) {
            *count -= 1;
            if *count == 0 {
                entry.live.remove(&self.part);
            }
        }
        let epoch = self.part.1;
        if !entry.live.keys().any(|(_, live)| *live == epoch)
            && let Some(holders) = by_epoch.get_mut(&epoch)
        {
            holders.retain(|holder| *holder != self.key);
            if holders.is_empty() {
                by_epoch.remove(&epoch);
            }
        }
        entry.is_shared = entry.stores() > 1;
        remove_if_idle(by_key, &self.key);
    }
}

/// An open stream of an identity. Dropping this value ends it.
#[derive(Debug)]
pub(super) struct LiveStream {
    identities: Arc<Identities>,
    key: IdentityKey,
}

impl Drop for LiveStream {
    fn drop(&mut self) {
        let mut state = self.identities.state();
        if let Some(entry) = state.by_key.get_mut(&self.key) {
            entry.streams -= 1;
        }
        remove_if_idle(&mut state.by_key, &self.key);
    }
}

fn remove_if_idle(by_key: &mut HashMap<IdentityKey, Entry>, key: &IdentityKey) {
    let is_idle = |entry: &Entry| entry.live.is_empty() && entry.streams == 0;
    if by_key.get(key).is_some_and(is_idle) {
        by_key.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(certificate: &[u8]) -> Identity {
        // The bytes are not a certificate, so the identity has no name and is identified by these bytes.
        Identity::of(certificate)
    }

    fn identities(limits: IdentityLimits) -> Arc<Identities> {
        Arc::new(Identities::new(limits))
    }

    #[test]
    fn connections_and_streams_of_an_identity_are_limited() {
        let all = identities(IdentityLimits {
            connections_max: 2,
            streams_max: 2,
            memory_max: 100,
        });
        let (a, b) = (identity(b"a"), identity(b"b"));
        let first = all.connect(&a, 1).expect("below the limit");
        let second = all.connect(&a, 2).expect("at the limit");
        let third = all.connect(&a, 3).map(|_| ());
        assert!(matches!(
            third,
            Err(HandshakeError::TooManyConnections { count: 2, .. })
        ));
        let other = all
            .connect(&b, 3)
            .expect("the limit is that of another identity");
        drop(second);
        let second = all.connect(&a, 3).expect("below the limit again");

        let start = Instant::now();
        let open = |memory| all.open_stream(a.key(), memory, start);
        let (one, two) = (open(0), open(100));
        assert!(one.is_ok() && two.is_ok());
        let refused = |report| {
            Err(RefusedStream {
                edge: a.name(),
                report,
            })
        };
        assert_eq!(open(0).map(|_| ()), refused(Some(1)));
        drop(one);
        assert_eq!(
            open(101).map(|_| ()),
            refused(None),
            "the memory is used up"
        );
        let later = all.open_stream(a.key(), 101, start + REPORT_INTERVAL);
        assert_eq!(later.map(|_| ()), refused(Some(2)));
        assert!(open(100).is_ok());
        let status = all.status(SystemTime::UNIX_EPOCH);
        let of_a = status.iter().find(|status| status.name == a.name());
        let of_a = of_a.expect("the identity is connected");
        assert_eq!(
            (
                of_a.connections,
                of_a.stores,
                of_a.streams,
                of_a.refused_streams
            ),
            (2, 2, 1, 3)
        );
        drop((first, second, other));
        assert_eq!(
            all.status(SystemTime::UNIX_EPOCH).len(),
            1,
            "a stream is open"
        );
        drop(two);
        assert!(all.status(SystemTime::UNIX_EPOCH).is_empty());
        assert!(matches!(open(0), Ok(None)), "no connection is left");
    }

    /// A second store with one certificate is reported once until it has left. A second certificate with one store is
    /// reported each time that it connects first.
    #[test]
    fn copies_of_certificates_and_of_stores_are_reported() {
        let all = identities(IdentityLimits::default());
        let (a, b) = (identity(b"a"), identity(b"b"));
        let connect = |who: &Identity, epoch| all.connect(who, epoch).expect("below the limit");
        let none = Copies::default();
        let (first, copies) = connect(&a, 1);
        assert_eq!(copies, none);
        assert_eq!(
            connect(&a, 1).1,
            none,
            "a second connection of the same store"
        );
        let (second, copies) = connect(&a, 2);
        assert!(copies.of_certificate && copies.of_store.is_none());
        assert_eq!(connect(&a, 3).1, none, "reported already");
        drop(second);
        assert!(connect(&a, 2).1.of_certificate, "reported again");

        let (_third, copies) = connect(&b, 1);
        assert_eq!(copies.of_store, Some(a.name()));
        assert_eq!(connect(&b, 1).1, none, "reported already");
        drop(first);
        assert_eq!(connect(&b, 1).1, none);
        assert_eq!(connect(&a, 1).1.of_store, Some(b.name()));
    }

    #[test]
    fn identities_are_found_by_the_certificate_of_a_live_connection() {
        let all = identities(IdentityLimits::default());
        let a = identity(b"a");
        let is_a = |certificate: &Fingerprint| certificate == a.fingerprint_bytes();
        let live = all.connect(&a, 1).expect("below the limit");
        assert_eq!(all.with_live_certificate(is_a), [Arc::clone(a.key())]);
        assert!(all.with_live_certificate(|_| false).is_empty());
        drop(live);
        assert!(all.with_live_certificate(is_a).is_empty());
    }
}
