//! Settings of a listener that are not flags.

use super::super::draft::path_text;
use super::super::kind::{Value, ValueKind};
use super::{Key, or_none};

pub(super) const TLS_OCSP: Key = Key {
    path: "listener.tls_ocsp",
    flag: None,
    kind: ValueKind::InputFile,
    doc: "DER file with an OCSP response for the certificate, which the edge sends in TLS handshakes (stapling), so \
          that clients need not ask the certificate authority. `openssl ocsp -respout FILE` writes it. The edge reads \
          the file again when it changes, and does not send the response after its `nextUpdate`.",
    set: |draft, item, value| draft.listener(item).ocsp = Some(value.file()),
    show: |draft, item| draft.listeners.get(item)?.ocsp.as_deref().map(path_text),
};

pub(super) const PROXY_PROTOCOL_FROM: Key = Key {
    path: "listener.proxy_protocol_from",
    flag: None,
    kind: ValueKind::Networks,
    doc: "Networks of proxies that begin each connection with a PROXY header (version 1 or 2), for example HAProxy, \
          nginx or a load balancer of a cloud. The header names the client, which then counts as the client in logs, \
          `X-Forwarded-For`, rate limits and rules. Connections of other peers, and connections without a valid \
          header, are closed. See docs/how-to/behind-a-proxy.md.",
    set: |draft, item, value| {
        draft.listener(item).proxy_protocol_from = match value {
            Value::None => None,
            value => Some(value.networks()),
        }
    },
    show: |draft, item| {
        let networks = &draft.listeners.get(item)?.proxy_protocol_from;
        Some(or_none(networks.as_ref().map(ToString::to_string)))
    },
};
