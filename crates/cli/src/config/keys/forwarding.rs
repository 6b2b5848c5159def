//! The settings of `[forwarding]`: the header fields that tell the origin about the client, fields that are removed
//! from requests, and the forwarding of TRACE and of upgrades.

use edgeward_proxy::config::ClientField;

use super::super::choice::Choice as _;
use super::super::kind::{Value, ValueKind};
use super::{Key, or_none};

pub(super) const X_FORWARDED: Key = Key {
    path: "forwarding.x_forwarded",
    flag: None,
    kind: ValueKind::Switch,
    doc: "If true, the edge sets `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`.",
    set: |draft, _, value| draft.edge.forwarding.x_forwarded = value.switch(),
    show: |draft, _| Some(draft.edge.forwarding.x_forwarded.to_string()),
};

pub(super) const FORWARDED: Key = Key {
    path: "forwarding.forwarded",
    flag: None,
    kind: ValueKind::Switch,
    doc: "If true, the edge sets `Forwarded` (RFC 7239).",
    set: |draft, _, value| draft.edge.forwarding.forwarded = value.switch(),
    show: |draft, _| Some(draft.edge.forwarding.forwarded.to_string()),
};

pub(super) const TRUSTED_PROXIES: Key = Key {
    path: "forwarding.trusted_proxies",
    flag: None,
    kind: ValueKind::Networks,
    doc: "Clients whose `Forwarded`, `X-Forwarded-*`, `X-Real-IP` and similar fields are forwarded to the origin. \
          If the edge sets `X-Forwarded-For` or `Forwarded`, it appends the client's address to the list in this \
          field. In requests of all other clients these fields are removed, because the cache key does not contain \
          them.",
    set: |draft, _, value| {
        draft.edge.forwarding.trusted_proxies = match value {
            Value::None => Default::default(),
            value => value.networks(),
        }
    },
    show: |draft, _| {
        let networks = &draft.edge.forwarding.trusted_proxies;
        Some(or_none(
            (!networks.0.is_empty()).then(|| networks.to_string()),
        ))
    },
};

pub(super) const CLIENT_FIELD: Key = Key {
    path: "forwarding.client_field",
    flag: None,
    kind: ValueKind::Choice(ClientField::WORDS),
    doc: "The field in which `trusted_proxies` state the address of the client, for rules, rate limits and logs: the \
          rightmost address in it that is not a trusted proxy. Choose the field that your proxies append to. With \
          `none`, the proxy itself counts as the client. The scheme of the client comes from the same field, or from \
          `X-Forwarded-Proto`.",
    set: |draft, _, value| draft.edge.forwarding.client_field = value.choice(),
    show: |draft, _| Some(draft.edge.forwarding.client_field.word().to_owned()),
};

pub(super) const REMOVED_FIELDS: Key = Key {
    path: "forwarding.removed_fields",
    flag: None,
    kind: ValueKind::FieldNames,
    doc: "Fields that are removed from cacheable requests. Some web frameworks let a request override its path, host \
          or method by such a field, but the cache key does not contain these fields. Requests that bypass the cache, \
          such as POST, keep them.",
    set: |draft, _, value| {
        draft.edge.forwarding.removed_fields = match value {
            Value::None => Default::default(),
            value => value.field_names(),
        }
    },
    show: |draft, _| {
        let names = &draft.edge.forwarding.removed_fields;
        Some(or_none((!names.0.is_empty()).then(|| names.to_string())))
    },
};

pub(super) const REFUSED_PATH_FORMS: Key = Key {
    path: "forwarding.refused_path_forms",
    flag: None,
    kind: ValueKind::PathForms,
    doc: "Forms of paths that get 400, because origins read them differently: `leading-slashes` (`//host/x`), \
          `parameters` (`/a;x`), `encoded-character` (`/%61`, an encoded byte that needs no encoding), `encoded-slash` \
          (`/a%2Fb`), `double-encoding` (`/%2561`), `nul` (`%00`), `encoded-delimiter` (`%3F` and `%23`), `backslash`, \
          `repeated-slash` (`/a//b`), `dot-segment` (`/a/../b`). An encoded form counts like the form itself.",
    set: |draft, _, value| {
        draft.edge.forwarding.refused_path_forms = match value {
            Value::None => Default::default(),
            value => value.path_forms(),
        }
    },
    show: |draft, _| {
        let forms = draft.edge.forwarding.refused_path_forms;
        Some(or_none((!forms.is_empty()).then(|| forms.to_string())))
    },
};

pub(super) const DEFAULT_AUTHORITY: Key = Key {
    path: "forwarding.default_authority",
    flag: None,
    // `&[]`: no words, such as `"auto"`, are allowed instead of a host.
    kind: ValueKind::Host(&[]),
    doc: "The host, and the port if it is not the default, for HTTP/1.0 requests without `Host`. Default: the \
          authority of `origin.url`.",
    set: |draft, _, value| draft.edge.forwarding.default_authority = Some(value.text()),
    show: |draft, _| draft.edge.forwarding.default_authority.clone(),
};

pub(super) const TRACE: Key = Key {
    path: "forwarding.trace",
    flag: None,
    kind: ValueKind::Switch,
    doc: "If true, TRACE requests are forwarded. If false, they get 405, because the echoed request would show \
          clients the fields that the edge added.",
    set: |draft, _, value| draft.edge.forwarding.trace = value.switch(),
    show: |draft, _| Some(draft.edge.forwarding.trace.to_string()),
};

pub(super) const UPGRADES: Key = Key {
    path: "forwarding.upgrades",
    flag: None,
    kind: ValueKind::Upgrades,
    doc: "The protocols for which requests with `Upgrade` are forwarded to the origin. If the origin switches, both \
          connections become a tunnel. `\"none\"`, `\"any\"`, or names with commas between. With `websocket`, clients \
          may also open WebSockets over HTTP/2 (extended CONNECT, RFC 8441). An upgrade to another protocol is \
          ignored, and so is h2c: requests inside of such a connection would bypass the edge.",
    set: |draft, _, value| draft.edge.forwarding.upgrades = value.upgrades(),
    show: |draft, _| Some(draft.edge.forwarding.upgrades.to_string()),
};
