//! The fleet of an edge: the nodes that act as one cache, and how the edge and the other nodes ask each other.

use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use edgeward_balance::{AllDown, NODES_MAX, NodeId};
use edgeward_types::xxh3::xxh3_64;

pub use edgeward_balance::{NodeGroup, WEIGHT_MAX as NODE_WEIGHT_MAX};

use super::listener::{ListenerConfig, ListenerTls};
use super::origin::{CertificateFiles, HostPolicy, OriginConfig, OriginProtocol, OriginTls};
use super::origin_url::OriginUrl;

/// The fleet of an edge.
#[derive(Clone, Debug)]
pub struct FleetConfig {
    /// The name of this node: that of one of the members.
    pub name: String,
    /// All nodes of the fleet, this one included. All nodes have the same list. If the nodes announce themselves, the
    /// list begins with this node alone.
    pub members: Vec<FleetMember>,
    /// The address on which this node listens for the other nodes.
    pub listen: SocketAddr,
    /// The certificates of the requests between nodes. `None` only on loopback.
    pub tls: Option<FleetTls>,
    /// The secret that all nodes of the fleet have.
    pub key: FleetKey,
    /// Longest time without a byte of another node's response, after which the origin is asked. Default 50 ms: nodes of
    /// a fleet are in one place, and their caches answer within a few milliseconds.
    pub wait: Duration,
    /// Requests to the origin because another node was slow or refused the request, as a percentage of the requests to
    /// other nodes of the last ten seconds. Above this share, a request waits for the slow node, and a refusal is the
    /// response. A request whose node fails always asks the origin. Default 20: an origin whose responses take longer
    /// than `wait` gets at most a fifth more requests.
    pub fallback_percent: u32,
    /// Such requests per second that are allowed in addition. Default 100: under light load, no request waits for a
    /// slow node.
    pub fallbacks_per_second: u32,
    /// The cost of a fetch from another node, as a share of the cost of a fetch from the origin: the node keeps a copy
    /// of an object that another node owns if the copy saves more per byte than the average byte of its memory. 0: it
    /// keeps none. Default 0.01: that of 1 ms between nodes and 100 ms to the origin.
    pub replicate: f64,
}

/// A node of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetMember {
    /// The name, which no other member has.
    pub name: String,
    /// The address at which the other nodes ask the node.
    pub url: OriginUrl,
    /// The group.
    pub group: NodeGroup,
    /// The share of keys, in relation to the weights of the other nodes of the group. Default 100.
    pub weight: NonZeroU32,
    /// True if the node is about to leave: it owns no key. Default false.
    pub is_draining: bool,
}

impl FleetMember {
    /// Returns the id of the node in the placement: a hash of its name.
    pub fn id(&self) -> NodeId {
        NodeId(xxh3_64(self.name.as_bytes()))
    }
}

/// PEM files of the requests between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetTls {
    /// The certificate of this node, and its key. The node uses it as server and as client.
    pub identity: CertificateFiles,
    /// The certificates of the authorities that issue the certificates of nodes.
    pub authorities: PathBuf,
}

/// The secret that all nodes of a fleet have. It signs the requests between nodes, and is the seed of the placement.
#[derive(Clone)]
pub struct FleetKey(Arc<SharedKey>);

struct SharedKey {
    hmac: hmac::Key,
    /// A hash of the secret, for `Debug`.
    hash: u32,
}

impl FleetKey {
    /// Returns the key of these bytes, or `None` if they are fewer than [`KEY_BYTES_MIN`].
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= KEY_BYTES_MIN).then(|| {
            Self(Arc::new(SharedKey {
                hmac: hmac::Key::new(hmac::HMAC_SHA256, bytes),
                hash: xxh3_64(bytes) as u32,
            }))
        })
    }

    /// Returns the key of HMAC-SHA256. It holds the state of the hash after the secret, which each signature needs.
    pub(crate) fn hmac(&self) -> &hmac::Key {
        &self.0.hmac
    }
}

/// Shows a hash of the key, so that keys can be compared and none appears in a log.
impl fmt::Debug for FleetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FleetKey({:08x})", self.0.hash)
    }
}

/// The reason why the nodes of a fleet cannot ask each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// The list of members lacks this node.
    #[error("the fleet has no member `{name}`, which is the name of this node")]
    NotMember {
        /// The name of this node.
        name: String,
    },
    /// Two members have one name.
    #[error("two members of the fleet have the name `{name}`")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A group has more nodes than a placement allows.
    #[error("a group of the fleet has {nodes} nodes; at most {NODES_MAX} are allowed")]
    TooMany {
        /// The number of nodes.
        nodes: usize,
    },
    /// Nodes would ask each other over a network without TLS.
    #[error("{addr} is not on loopback, so the fleet needs certificates")]
    Plain {
        /// The address of this node.
        addr: SocketAddr,
    },
    /// The scheme of a member's URL does not fit the certificates of this node.
    #[error(
        "the URL of the fleet's member `{name}` does not begin with {scheme}://, which the certificates of this node \
         require"
    )]
    Scheme {
        /// The name of the member.
        name: String,
        /// The scheme of all members.
        scheme: &'static str,
    },
}

/// The minimum length of a key: 128 bits in hexadecimal digits.
pub const KEY_BYTES_MIN: usize = 32;

impl FleetConfig {
    /// Returns the entry of this node, or `None` if the list has none.
    pub fn own(&self) -> Option<&FleetMember> {
        self.members.iter().find(|member| member.name == self.name)
    }

    /// Returns the nodes that this node may ask: the edges and the shields for an edge, none for a shield.
    pub(crate) fn peers(&self) -> impl Iterator<Item = &FleetMember> {
        let asks = self.own().is_some_and(|own| own.group == NodeGroup::Edge);
        let others = self
            .members
            .iter()
            .filter(|member| member.name != self.name);
        others.filter(move |_| asks)
    }

    /// Returns this fleet with other members. The entry of this node is that of `members`, or the present one. A member
    /// that the fleet cannot have is left out: one whose name is taken, whose URL has another scheme, or whose group is
    /// full.
    pub fn with_members(&self, members: impl IntoIterator<Item = FleetMember>) -> Self {
        let (mut kept, others): (Vec<_>, Vec<_>) = members
            .into_iter()
            .partition(|member| member.name == self.name);
        if kept.is_empty() {
            kept.extend(self.own().cloned());
        }
        kept.truncate(1);
        let mut ids: HashSet<_> = kept.iter().map(|member| member.id().0).collect();
        for member in others {
            let of_group = kept.iter().filter(|other| other.group == member.group);
            if of_group.count() < NODES_MAX
                && member.url.tls == self.tls.is_some()
                && ids.insert(member.id().0)
            {
                kept.push(member);
            }
        }
        Self {
            members: kept,
            ..self.clone()
        }
    }

    /// Checks the members and the address of this node together.
    pub fn check(&self) -> Result<(), FleetError> {
        if self.own().is_none() {
            let name = self.name.clone();
            return Err(FleetError::NotMember { name });
        }
        // The placement knows members by the hashes of their names.
        let mut ids = HashSet::new();
        if let Some(twice) = self.members.iter().find(|member| !ids.insert(member.id())) {
            let name = twice.name.clone();
            return Err(FleetError::Duplicate { name });
        }
        for group in [NodeGroup::Edge, NodeGroup::Shield] {
            let nodes = self.members.iter().filter(|member| member.group == group);
            let nodes = nodes.count();
            if nodes > NODES_MAX {
                return Err(FleetError::TooMany { nodes });
            }
        }
        let is_secure = self.tls.is_some();
        if !is_secure && !self.listen.ip().is_loopback() {
            let addr = self.listen;
            return Err(FleetError::Plain { addr });
        }
        match self
            .members
            .iter()
            .find(|member| member.url.tls != is_secure)
        {
            Some(other) => Err(FleetError::Scheme {
                name: other.name.clone(),
                scheme: if is_secure { "https" } else { "http" },
            }),
            None => Ok(()),
        }
    }

    /// Returns an origin for each node that this one may ask.
    pub(super) fn origins(&self) -> impl Iterator<Item = OriginConfig> {
        self.peers().map(|peer| self.origin_of(peer))
    }

    /// Returns the listener for the other nodes.
    pub(super) fn listener(&self) -> ListenerConfig {
        ListenerConfig {
            tls: self.tls.as_ref().map(|tls| ListenerTls {
                certificates: tls.identity.certificates.clone(),
                key: tls.identity.key.clone(),
                ocsp: None,
            }),
            node_authorities: self.tls.as_ref().map(|tls| tls.authorities.clone()),
            is_for_nodes: true,
            ..ListenerConfig::plain(self.listen)
        }
    }

    fn origin_of(&self, peer: &FleetMember) -> OriginConfig {
        OriginConfig {
            name: origin_name(&peer.name),
            protocol: OriginProtocol::Http2,
            host: Some(HostPolicy::Forward),
            tls: OriginTls {
                roots: self.tls.as_ref().map(|tls| tls.authorities.clone()),
                client: self.tls.as_ref().map(|tls| tls.identity.clone()),
                ..OriginTls::default()
            },
            rewrites_location: false,
            // A node that is ejected owns no key until it is probed.
            all_down: AllDown::Refuse,
            slow_start: Duration::ZERO,
            ejection_time: EJECTION_TIME,
            connect_timeout: CONNECT_TIMEOUT,
            connections_per_worker_max: CONNECTIONS_MAX,
            servers_max: ADDRESSES_MAX,
            client_share_percent: 100,
            ping_interval: Some(PING_INTERVAL),
            retries_max: 0,
            ..OriginConfig::new(peer.url.clone())
        }
    }
}

/// Returns the name of the origin by which a node asks another.
pub(crate) fn origin_name(peer: &str) -> String {
    format!("{ORIGIN_PREFIX}{peer}")
}

/// Returns true for the name of an origin by which a node asks another.
pub(super) fn is_of_fleet(origin: &str) -> bool {
    origin.starts_with(ORIGIN_PREFIX)
}

/// The start of such names. Names of other origins have no colon.
const ORIGIN_PREFIX: &str = "fleet:";

/// The first time for which a node that failed owns no key. Each further failure doubles it.
const EJECTION_TIME: Duration = Duration::from_secs(2);

/// The connections of a worker to a node. With HTTP/2 it has one, and for a moment a second one that replaces it.
const CONNECTIONS_MAX: NonZeroUsize = NonZeroUsize::new(2).expect("2 is not zero");

/// The most addresses of a node that are used: those of both IP versions, and as many of its next machine. Descriptors
/// are reserved for a connection of each worker to each of them.
const ADDRESSES_MAX: NonZeroUsize = NonZeroUsize::new(4).expect("4 is not zero");

/// The longest time to connect to a node, TLS included. A request waits for less: see [`FleetConfig::wait`].
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval of PING frames while requests wait for a node. A node that hangs is found within five intervals.
const PING_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LOOPBACK_ANY_PORT;

    fn member(name: &str, scheme: &str) -> FleetMember {
        FleetMember {
            name: name.to_owned(),
            url: format!("{scheme}://127.0.0.1:7001").parse().expect("a URL"),
            group: NodeGroup::Edge,
            weight: NonZeroU32::MIN,
            is_draining: false,
        }
    }

    fn fleet() -> FleetConfig {
        FleetConfig {
            name: "own".to_owned(),
            members: vec![member("own", "http")],
            listen: LOOPBACK_ANY_PORT,
            tls: None,
            key: FleetKey::new(&[7; 32]).expect("a key"),
            wait: Duration::from_millis(50),
            fallback_percent: 0,
            fallbacks_per_second: 1,
            replicate: 0.01,
        }
    }

    #[test]
    fn a_list_of_members_without_those_that_the_fleet_cannot_have_passes_the_check() {
        let names = |fleet: &FleetConfig| {
            assert_eq!(fleet.check(), Ok(()));
            let names = fleet.members.iter().map(|member| member.name.clone());
            names.collect::<Vec<_>>()
        };
        let draining = FleetMember {
            is_draining: true,
            ..member("own", "http")
        };
        let list = [
            member("a", "http"),
            member("a", "http"),
            member("b", "https"),
            draining.clone(),
            member("own", "http"),
        ];
        let changed = fleet().with_members(list);
        assert_eq!(names(&changed), ["own", "a"]);
        assert_eq!(changed.own(), Some(&draining));
        assert_eq!(names(&fleet().with_members([])), ["own"]);
    }

    #[test]
    fn a_group_has_at_most_256_members_and_the_other_group_as_many() {
        let edges = (0..300).map(|n| member(&format!("e{n}"), "http"));
        let shields = (0..300).map(|n| FleetMember {
            group: NodeGroup::Shield,
            ..member(&format!("s{n}"), "http")
        });
        let full = fleet().with_members(edges.chain(shields));
        assert_eq!(full.check(), Ok(()));
        assert_eq!(full.members.len(), 2 * NODES_MAX);
        assert_eq!(full.members[0].name, "own");
    }
}
