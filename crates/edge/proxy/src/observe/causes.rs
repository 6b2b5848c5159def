//! The causes by which metrics distinguish events, for example of closed connections, ended tunnels and shed work.

use edgeward_overload::Work;
use edgeward_semantics::content_coding::Coding;
use edgeward_semantics::dictionary::DictionaryMismatch;
use http::StatusCode;
use rustls::NamedGroup;

use super::labels::{Label, labels};

labels! {
    /// The reason why the edge closes a client's connection.
    pub(crate) enum CloseReason {
        /// A new connection at the limit of connections, while no other is idle.
        Limit = "connection-limit",
        /// The limit of connections is reached, and this connection has no request under way.
        Crowded = "crowded",
        /// The connection was idle for too long.
        Idle = "idle",
        /// A request's head did not arrive in time.
        Head = "head-timeout",
        /// The client reads no bytes of its response, or sends no bytes of its upload.
        Body = "body-timeout",
        /// The client reads its response slower than the minimum rate.
        Slow = "slow-response",
        /// The client has closed its sending direction, and the origin has sent no byte for it.
        Left = "half-closed",
        Tls = "tls-handshake",
        Protocol = "protocol-error",
        /// Slow clients keep too much memory of evicted objects in use, and this client frees memory most slowly.
        Pinned = "pinned-memory",
        /// All connections together hold too much memory, and this is one of the heaviest.
        Memory = "connection-memory",
        /// The client has exceeded a bound of HTTP/2 frames.
        Flood = "h2-flood",
        /// The client has exceeded a bound of HTTP/3 frames or of cancelled requests.
        H3Flood = "h3-flood",
        /// The PROXY header is missing, invalid, or of a peer that may send none.
        ProxyHeader = "proxy-header",
    }
}

impl CloseReason {
    /// Returns true if the memory or the descriptor of the connection is needed at once, also before its first request.
    pub(crate) const fn is_urgent(self) -> bool {
        matches!(self, Self::Crowded | Self::Memory)
    }
}

labels! {
    /// The group of the key exchange of a TLS handshake, by its name in the registry of IANA.
    pub(crate) enum KeyExchange {
        /// Also resists quantum computers.
        X25519MlKem768 = "X25519MLKEM768",
        X25519 = "x25519",
        Secp256r1 = "secp256r1",
        Secp384r1 = "secp384r1",
        /// A session of TLS 1.2 was resumed, which exchanges no keys.
        Resumed = "resumed",
        Other = "other",
    }
}

impl KeyExchange {
    pub(crate) const fn of(group: Option<NamedGroup>) -> Self {
        match group {
            None => Self::Resumed,
            Some(NamedGroup::X25519MLKEM768) => Self::X25519MlKem768,
            Some(NamedGroup::X25519) => Self::X25519,
            Some(NamedGroup::secp256r1) => Self::Secp256r1,
            Some(NamedGroup::secp384r1) => Self::Secp384r1,
            Some(_) => Self::Other,
        }
    }
}

labels! {
    /// The bound of HTTP/2 frames that a client exceeded.
    pub enum Excess {
        /// Too many RST_STREAM frames.
        Resets = "resets",
        /// Too many PING, SETTINGS, PRIORITY or unknown frames.
        Control = "control",
        /// Too many WINDOW_UPDATE frames.
        WindowUpdates = "window-updates",
        /// A header block with too many fields, bytes or CONTINUATION frames.
        HeaderBlock = "header-block",
    }
}

labels! {
    /// The reason why no stored response answered a request that the edge fetched: the label `cause` of the misses of a
    /// site. Each request of the class [`Miss`](super::site_counters::OutcomeClass::Miss) has one.
    #[derive(Default)]
    pub(crate) enum MissCause {
        /// The key was not requested before, or so long ago that it is forgotten.
        #[default]
        New = "new",
        /// The stored response was not fresh and could not be validated, or was evicted after the end of its lifetime.
        Expired = "expired",
        /// The response was stored, and left both tiers before the end of its lifetime.
        Evicted = "evicted",
        /// The last response for the key was not stored: by its fields, by a rule or by admission.
        Refused = "refused",
        /// The response was removed: by a purge, by an unsafe request, or because the origin did not confirm it.
        Purged = "purged",
        /// Another node of the fleet stores the object.
        OtherNode = "other-node",
        /// The request or a rule demands that the origin is asked about a fresh response.
        Request = "request",
        /// A part of the response is stored, and the request needs another one.
        Range = "range",
        /// Another request was already fetching the object.
        Collapsed = "collapsed",
    }
}

labels! {
    /// The result of an answer of an object's owner that this node could keep as a copy.
    pub(crate) enum CopyResult {
        Stored = "stored",
        /// The policy of memory does not admit the copy.
        Refused = "refused",
        /// The copy would save less than the average object in memory.
        Cold = "cold",
        /// The object was invalidated a moment ago.
        Paused = "paused",
    }
}

impl CopyResult {
    /// Returns the result of an offer to memory.
    pub(crate) const fn of(is_admitted: bool) -> Self {
        match is_admitted {
            true => Self::Stored,
            false => Self::Refused,
        }
    }
}

labels! {
    /// The cause by which a tunnel has ended.
    pub(crate) enum TunnelEnd {
        /// Both peers have closed.
        Closed = "closed",
        /// A connection was reset.
        Failed = "error",
        /// No byte for `limits.tunnel_idle_timeout`.
        Idle = "idle",
        /// The edge stops, or has closed the client's connection.
        Stopped = "stopped",
    }
}

labels! {
    /// The result of a request that offers a dictionary for a response that the edge may encode.
    pub(crate) enum OfferResult {
        /// The client gets a delta.
        Used = "used",
        /// The first request for this delta. The second one begins to make it.
        First = "first",
        /// The delta is being made.
        Pending = "pending",
        /// The delta would be too long.
        NoGain = "no-gain",
        /// No dictionary with this hash is known, or it has expired or was purged.
        Unknown = "unknown",
        /// The request did not arrive over TLS.
        Cleartext = "cleartext",
        /// The fields are invalid, or one of them occurs twice.
        Malformed = "malformed",
        /// The page is of another origin, and the response does not allow it to read the body.
        CrossOrigin = "cross-origin",
        /// The pattern of the dictionary does not match the URL.
        Pattern = "pattern",
        /// The dictionary is for other destinations.
        Destination = "destination",
        /// The client states the id of another dictionary.
        Id = "id",
    }
}

impl From<DictionaryMismatch> for OfferResult {
    fn from(mismatch: DictionaryMismatch) -> Self {
        match mismatch {
            DictionaryMismatch::CrossOrigin => Self::CrossOrigin,
            DictionaryMismatch::Pattern => Self::Pattern,
            DictionaryMismatch::Destination => Self::Destination,
            DictionaryMismatch::Id => Self::Id,
        }
    }
}

/// The status of an error that the edge generated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusedStatus(usize);

impl RefusedStatus {
    /// Returns the label of a status. The last one is for all statuses without a label of their own.
    pub(crate) fn of(status: StatusCode) -> Self {
        let labels = Self::LABELS;
        let position = labels.iter().position(|label| *label == status.as_str());
        Self(position.unwrap_or(labels.len() - 1))
    }
}

impl Label for RefusedStatus {
    const LABELS: &'static [&'static str] = &[
        "400", "403", "404", "405", "408", "413", "414", "421", "431", "500", "501", "502", "503",
        "504", "508", "other",
    ];

    fn index(self) -> usize {
        self.0
    }
}

impl Label for Work {
    const LABELS: &'static [&'static str] = &["connection", "pass", "miss", "hit"];

    fn index(self) -> usize {
        self as usize
    }
}

impl Label for Coding {
    const LABELS: &'static [&'static str] = &["br", "zstd", "gzip", "dcz", "dcb"];

    fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sets are declared in other crates, and their order gives the position of a label.
    #[test]
    fn the_labels_of_sets_of_other_crates_belong_to_their_values() {
        for (work, label) in [
            (Work::Connection, "connection"),
            (Work::Pass, "pass"),
            (Work::Miss, "miss"),
            (Work::Hit, "hit"),
        ] {
            assert_eq!(work.as_str(), label);
        }
        for coding in Coding::ALL {
            assert_eq!(coding.as_str(), coding.name());
        }
        assert_eq!(<Coding as Label>::LABELS.len(), Coding::ALL.len());
        for status in [400, 403, 404, 408, 500, 504, 508].map(StatusCode::from_u16) {
            let status = status.expect("a status");
            assert_eq!(RefusedStatus::of(status).as_str(), status.as_str());
        }
        assert_eq!(RefusedStatus::of(StatusCode::IM_A_TEAPOT).as_str(), "other");
    }
}
