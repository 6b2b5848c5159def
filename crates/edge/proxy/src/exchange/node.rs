//! Requests that another node of the fleet has sent: their client, and the check of their signature.

use http::Method;

use super::hop::{HOP, Hop, INVALIDATE, Signed};
use super::request::Request;
use super::request_error::RequestError;
use crate::config::FleetKey;

/// Sets address and scheme of the client that the sending node states. Returns false if it states none. The statement
/// is checked later: see [`check_hop`].
pub(super) fn set_client(request: &mut Request) -> bool {
    let Some(hop) = request.headers.get(HOP).and_then(Hop::read) else {
        return false;
    };
    (request.client, request.scheme) = (hop.client, hop.scheme);
    request.hop = Some(Box::new(hop));
    true
}

/// Refuses a request that is not signed with the key of the fleet. Host and target of `request` are canonical.
pub(super) fn check_hop(key: Option<&FleetKey>, request: &mut Request) -> Result<(), RequestError> {
    let value = request.headers.remove(HOP);
    let signed = Signed {
        method: request.method.as_str(),
        host: request.authority().unwrap_or_default(),
        target: request.path_and_query(),
    };
    let is_signed = |hop: &Hop| {
        let (value, key) = value.as_ref().zip(key)?;
        Some(hop.is_signed(value, key, signed))
    };
    match request.hop.as_deref().and_then(is_signed) {
        Some(true) if is_allowed(&request.method) => Ok(()),
        _ => Err(RequestError::not_of_fleet(
            "only nodes with the key of the fleet may ask here, by GET, HEAD and PURGE",
        )),
    }
}

fn is_allowed(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD) || *method == INVALIDATE
}
