//! Requests with the methods PURGE, BAN and PURGEKEYS. Clients in `purge.allow` may send them. Without this setting,
//! the edge forwards them like requests with any other method.
//!
//! **The rule**: the peer must be in `purge.allow`, and so must each client that a field of the request states. A proxy
//! on an allowed machine therefore lets only allowed clients purge, whether the edge trusts it or not. A proxy that
//! states no client cannot be distinguished from a client; `check-config` warns of it.
//!
//! [`SelectedPurge`] has the list of selectors. They are read from the fields as received, because rules of a site may
//! remove fields.

use std::rc::Rc;
use std::sync::Arc;

use edgeward_purge::{METHODS, Purge, Scope, SelectedPurge, Selection};
use edgeward_semantics::Target;
use http::{HeaderMap, Response, StatusCode};

use super::deliver::Reply;
use super::worker::Worker;
use crate::exchange::{Request, RequestError};
use crate::path::body::EdgeBody;

/// Carries out or refuses a request by which a client purges. `received` are its fields as received.
pub(super) async fn answer(
    reply: Reply,
    request: Rc<Request>,
    received: Box<HeaderMap>,
) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    let refuse = |reply: Reply, status, text: String| {
        reply.refuse(&RequestError::new(status, "purge", text))
    };
    let allowed = check_clients(&worker, &request, &received);
    if let Err(text) = allowed.and_then(|()| check_method(&worker, &request)) {
        return refuse(reply, StatusCode::FORBIDDEN, text);
    }
    let purges = match purges(&request, &received) {
        Ok(purges) => purges,
        Err(text) => return refuse(reply, StatusCode::BAD_REQUEST, text),
    };
    let cache = Arc::clone(worker.cache.shared());
    let from = request.client.to_string();
    let objects_max = worker.config().purge.count_objects_max;
    match cache.purge_counted(purges, objects_max, from).await {
        Ok(Some(count)) => reply.confirm("purge", format!("purged: {count}\n")),
        Ok(None) => {
            worker.counters.purges_uncounted.increment();
            let text = format!(
                "purged; not counted, because more than {objects_max} objects are stored \
                 (purge.count_objects_max)\n"
            );
            reply.confirm("purge", text)
        }
        Err(error) => refuse(reply, error.status(), error.to_string()),
    }
}

/// Refuses a request unless its peer and all clients that its fields state may purge.
fn check_clients(worker: &Worker, request: &Request, received: &HeaderMap) -> Result<(), String> {
    let allow = &worker.config().purge.allow;
    let peer = request.peer.ip();
    if !allow.contains(peer) {
        return Err(format!("the client {peer} is not in purge.allow"));
    }
    let source = &worker.shared.canonicaliser.client_source;
    let stated = source.stated_clients(received);
    for client in stated.into_iter().chain([Some(request.client)]) {
        match client {
            Some(client) if allow.contains(client) => {}
            Some(client) => {
                return Err(format!(
                    "the client {client}, which the proxy {peer} states, is not in purge.allow"
                ));
            }
            None => {
                return Err(format!(
                    "the proxy {peer} states a client without an address, which is not in purge.allow"
                ));
            }
        }
    }
    Ok(())
}

/// Refuses a method that the configuration excludes. A method that never purges is refused later, by another message.
fn check_method(worker: &Worker, request: &Request) -> Result<(), String> {
    let method = request.method.as_str();
    let allowed = worker.config().purge.methods;
    match METHODS.contains(&method) && !allowed.iter().any(|known| known == method) {
        true => Err(format!("the method {method} is not in purge.methods")),
        false => Ok(()),
    }
}

/// Returns the purges that a request states.
fn purges(request: &Request, received: &HeaderMap) -> Result<Vec<Purge>, String> {
    let authority = request.authority().unwrap_or_default();
    let target = request.path_and_query();
    let fields = received.iter();
    let fields = fields.map(|(name, value)| (name.as_str(), value.as_bytes()));
    let selected = SelectedPurge::read(request.method.as_str(), authority, target, fields)
        .map_err(|error| error.to_string())?;
    let soft = selected.soft;
    let scopes = match selected.selection {
        Selection::Scopes(scopes) => scopes,
        Selection::Target => ["http", "https"]
            .iter()
            .map(|scheme| {
                let target = Target::new(scheme, authority, target);
                let key = target.map_err(|error| error.to_string())?.key();
                Scope::url(&String::from_utf8_lossy(&key)).map_err(|error| error.to_string())
            })
            .collect::<Result<_, _>>()?,
    };
    let purges = scopes.into_iter().map(|scope| Purge { scope, soft });
    Ok(purges.collect())
}
