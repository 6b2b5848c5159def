//! The head of a fill's response, as followers get it.

use std::num::NonZeroU64;

use edgeward_purge::Stamp;
use edgeward_semantics::negotiation::{self, Representation};
use edgeward_semantics::{NoVarySearch, StoredPolicy, VaryFields};
use http::{HeaderMap, StatusCode};

use crate::cache::key_parts::key_under_rule;
use crate::config::watch::RequestedObject;

/// The head of a fill's response, as followers get it.
#[derive(Debug)]
pub(crate) struct FillHead {
    pub(crate) status: StatusCode,
    /// The header fields of the response, without those that only the leader may get.
    pub(crate) headers: HeaderMap,
    /// The variant that the response is, if the responses of its target vary.
    pub(crate) variant: Option<FillVariant>,
    /// The target of the leader's request, and the rule of the response, if requests for other targets may have joined.
    pub(crate) coverage: Option<(Box<[u8]>, Option<NoVarySearch>)>,
    /// The length of the body, if it is known.
    pub(crate) length: Option<u64>,
    /// True if the response may answer followers. A response that is stale on arrival or has `no-cache` may be
    /// stored, but answers only the leader (RFC 9111 §4).
    pub(crate) shareable: bool,
    /// True if the origin has shown that it does not serve ranges of the response: it sent 200 to a request with a
    /// range, or `Accept-Ranges: none`.
    pub(crate) ignores_ranges: bool,
    /// True if a tier has admitted the response.
    pub(crate) stored: bool,
    /// The newest purge before the request was sent to the origin.
    pub(crate) stamp: Stamp,
    /// Present if the edge may encode the response.
    pub(crate) encodable: Option<Encodable>,
    /// False if another node of a fleet stores the response.
    pub(crate) is_own: bool,
    /// The object that the response is, if requests are watched.
    pub(crate) object: Option<RequestedObject>,
}

/// The values of an arriving response that its encodings need.
#[derive(Clone, Debug)]
pub(crate) struct Encodable {
    /// See [`StoredResponse::generation`](crate::cache::stored::StoredResponse::generation).
    pub(crate) generation: NonZeroU64,
    /// The key under which the response is stored if a tier has admitted it.
    pub(crate) key: Box<[u8]>,
    pub(crate) policy: StoredPolicy,
}

/// One of the responses of a target that vary.
#[derive(Debug)]
pub(crate) struct FillVariant {
    pub(crate) fields: VaryFields,
    /// The secondary key of the leader's request.
    pub(crate) secondary: Vec<u8>,
    /// `None` if the response answers only requests with the same secondary key.
    pub(crate) representation: Option<Representation>,
}

impl FillVariant {
    /// Returns true if the response answers a request with these fields.
    pub(crate) fn answers(&self, request: &HeaderMap) -> bool {
        let key = self.fields.key(request);
        let answers = |chosen| negotiation::answers(chosen, &self.secondary, &key);
        key == self.secondary || self.representation.is_some_and(answers)
    }
}

impl FillHead {
    /// Returns true if the response may answer requests for `target`, a target's own key.
    pub(crate) fn covers(&self, target: &[u8]) -> bool {
        let Some((own, rule)) = &self.coverage else {
            return true;
        };
        let is_equivalent = |rule| key_under_rule(own, rule, 0) == key_under_rule(target, rule, 0);
        **own == *target || rule.as_ref().is_some_and(is_equivalent)
    }
}
