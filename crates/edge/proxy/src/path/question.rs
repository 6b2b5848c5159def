//! A request to the origin, or to another node in its place, and the answer.

use std::time::Duration;

use edgeward_purge::Stamp;
use edgeward_semantics::Exchange;
use edgeward_types::KeyHash;
use http::Method;

use crate::origin::{Attempt, Conditions, OriginError, OriginResponse, Upload};

/// A request to the origin, on behalf of a request of a client.
pub(super) struct Question<'a> {
    /// The method at the origin, which may be another one than that of the client.
    pub(super) method: &'a Method,
    pub(super) conditions: Conditions<'a>,
    pub(super) attempt: Attempt,
    pub(super) upload: Upload,
    /// The key of the stale response that the request refreshes, if any. If the origin fails, the next refresh of this
    /// key has to wait (`caching.validation_backoff`).
    pub(super) refreshes: Option<KeyHash>,
    /// True if another node of the fleet may answer. False for requests with effects, and for slices, which are fetched
    /// by the node that stores them.
    pub(super) may_ask_peer: bool,
}

impl<'a> Question<'a> {
    /// Returns a request without content that may be repeated, because its method is safe.
    pub(super) fn safe(method: &'a Method, conditions: Conditions<'a>) -> Self {
        Self {
            method,
            conditions,
            attempt: Attempt::without_body(true),
            upload: Upload::Empty,
            refreshes: None,
            may_ask_peer: true,
        }
    }
}

/// The result of an exchange with the origin.
pub(super) struct Answered {
    /// The response, as the rules of the site have changed it, without hop-by-hop fields.
    pub(super) sent: Result<OriginResponse, OriginError>,
    pub(super) exchange: Exchange,
    /// The time from the request to the head of the response. The worker's clock is too coarse to compare the times of
    /// fetches.
    pub(super) fetch_time: Duration,
    /// How this node may store the response.
    pub(super) storing: Storing,
}

/// How a node may store a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storing {
    /// Like each response of the origin.
    Fetched,
    /// As an object that a shield has sent, with this stamp.
    Received(Stamp),
    /// As a copy of an object that another node of the group owns, if this node has enough requests for it.
    Copy {
        stamp: Stamp,
        /// The requests for the object at its owner, per million seconds.
        owner_rate: u64,
    },
    /// Another node owns the object, or its sender has other rules.
    Never,
}
