//! What must hold before a request means anything.

use edgeward_semantics::hop_by_hop;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, UPGRADE};
use http::{Method, StatusCode, Version};

use super::Ask;
use super::deliver::Refusal;
use crate::worker::Worker;

/// Refuses what cannot be answered by anyone, with the reason.
pub(super) fn check(ask: &Ask, worker: &Worker) -> Result<(), Refusal> {
    check_host(ask)?;
    if ask.method == Method::CONNECT {
        return Err(Refusal::not_implemented(
            "CONNECT makes tunnels, and this is a cache before one origin",
        ));
    }
    // hop_by_hop says which upgrade is meant; most requests have no such field at all.
    if ask.headers.contains_key(UPGRADE) && wants_upgrade(ask) {
        return Err(Refusal::not_implemented(
            "no protocol can be switched to; WebSocket needs a way past this edge",
        ));
    }
    if let Some(max) = worker.config().limits.request_body_bytes_max
        && declared_length(ask).is_some_and(|length| length > max.bytes())
    {
        return Err(Refusal::too_large());
    }
    if hop_by_hop::is_loop(&ask.headers, &worker.shared.via_name) {
        return Err(Refusal::looped());
    }
    Ok(())
}

/// RFC 9112 §3.2: a request without `Host`, with two, or (§3.2.2) with one that contradicts an
/// absolute target leaves open whom it is for.
fn check_host(ask: &Ask) -> Result<(), Refusal> {
    let mut hosts = ask.headers.get_all(HOST).into_iter();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => Err(Refusal::bad_request("more than one Host".to_owned())),
        (None, None) if ask.version == Version::HTTP_11 => {
            Err(Refusal::bad_request("no Host".to_owned()))
        }
        (None, None) if ask.uri.authority().is_none() => {
            Err(Refusal::bad_request("no Host".to_owned()))
        }
        _ => Ok(()),
    }
}

/// `Upgrade: h2c` is what clients send on the off-chance and is ignored, as RFC 9110 §7.8 allows;
/// whoever asks for another protocol means it.
fn wants_upgrade(ask: &Ask) -> bool {
    let asks = ask
        .headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|line| line.as_bytes().split(|&byte| byte == b','))
        .any(|token| token.trim_ascii().eq_ignore_ascii_case(b"upgrade"));
    let only_h2c = ask.headers.get_all(UPGRADE).iter().all(|protocol| {
        protocol
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"h2c")
    });
    asks && !only_h2c
}

fn declared_length(ask: &Ask) -> Option<u64> {
    let length = ask.headers.get(CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

impl Refusal {
    pub(super) fn bad_request(text: String) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            cache_status: None,
            text: text.into(),
            close: true,
        }
    }

    pub(super) fn too_many_fields() -> Self {
        Self {
            status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            cache_status: None,
            text: "the request has more header fields than allowed".into(),
            close: false,
        }
    }

    pub(super) fn overloaded(text: &'static str) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            cache_status: None,
            text: text.into(),
            close: false,
        }
    }

    fn not_implemented(text: &'static str) -> Self {
        Self {
            status: StatusCode::NOT_IMPLEMENTED,
            cache_status: None,
            text: text.into(),
            close: true,
        }
    }

    fn too_large() -> Self {
        Self {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            cache_status: None,
            text: "the request's body is larger than allowed".into(),
            // Else the body that is coming would have to be read to find the next request.
            close: true,
        }
    }

    fn looped() -> Self {
        Self {
            status: StatusCode::LOOP_DETECTED,
            cache_status: None,
            text:
                "this request has passed through this very edge before: the origin leads back here"
                    .into(),
            close: false,
        }
    }
}
