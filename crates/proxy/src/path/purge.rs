//! Requests with the methods PURGE and BAN. Clients in `purge.allow` may send them. Without this setting, the edge
//! forwards them like requests with any other method.

use std::rc::Rc;
use std::sync::Arc;

use edgeward_purge::{Purge, Scope, visit_tags};
use edgeward_semantics::Target;
use http::{Response, StatusCode};

use super::deliver::Reply;
use crate::base::config::EdgeConfig;
use crate::exchange::{Request, RequestError};
use crate::path::body::EdgeBody;

/// Returns true if the request is a PURGE or BAN that the edge carries out or refuses itself, instead of forwarding it.
pub(super) fn is_purge(config: &EdgeConfig, request: &Request) -> bool {
    !config.purge.allow.0.is_empty() && matches!(request.method.as_str(), "PURGE" | "BAN")
}

/// Carries out a PURGE or BAN and returns the response.
pub(super) async fn answer(reply: Reply, request: Rc<Request>) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    let refuse = |reply: Reply, status, text: String| {
        reply.refuse(&RequestError::new(status, "purge", text))
    };
    if !worker.config().purge.allow.contains(request.peer.ip()) {
        let text = "this client is not in purge.allow".to_owned();
        return refuse(reply, StatusCode::FORBIDDEN, text);
    }
    let purges = match purges(&request) {
        Ok(purges) => purges,
        Err(text) => return refuse(reply, StatusCode::BAD_REQUEST, text),
    };
    let count = purges.len();
    let cache = Arc::clone(worker.cache.shared());
    let from = request.peer.ip().to_string();
    match cache.accept_purges(purges, from).await {
        Ok(()) => reply.confirm("purge", format!("purged: {count}\n")),
        Err(error) => refuse(reply, error.status(), error.to_string()),
    }
}

/// Returns the purges that a request describes. A PURGE covers the tags in its fields; without tags, it covers its URL
/// under both schemes. The target of a BAN is a pattern.
fn purges(request: &Request) -> Result<Vec<Purge>, String> {
    let soft = ["soft-purge", "fastly-soft-purge"]
        .iter()
        .any(|name| request.headers.get(*name).is_some_and(|value| value == "1"));
    let authority = request.authority().unwrap_or_default();
    let target = request.path_and_query();
    let mut scopes = Vec::new();
    if request.method == "BAN" {
        scopes.push(Scope::pattern(&format!("{authority}{target}")));
    } else {
        for (name, value) in &request.headers {
            visit_tags(name.as_str().as_bytes(), value.as_bytes(), |tag| {
                scopes.push(Scope::tag(&String::from_utf8_lossy(tag)));
            });
        }
        if scopes.is_empty() {
            for scheme in ["http", "https"] {
                let key = Target::new(scheme, authority, target).map(|target| target.key());
                let key = key.map_err(|error| error.to_string())?;
                scopes.push(Scope::url(&String::from_utf8_lossy(&key)));
            }
        }
    }
    let purges = scopes.into_iter().map(|scope| {
        Ok(Purge {
            scope: scope?,
            soft,
        })
    });
    purges
        .collect::<Result<_, edgeward_purge::ScopeError>>()
        .map_err(|error| error.to_string())
}
