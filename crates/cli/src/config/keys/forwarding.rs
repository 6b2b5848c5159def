//! The settings of `[forwarding]`.

use edgeward_proxy::config::EdgeConfig;

use super::row::{Key, rows};
use crate::config::draft::Part as _;
use crate::config::value::{HostName, Listed, Switch, Unset, UpgradeList, Word};

pub(super) static ROWS: &[Key] = rows! {
    /// If true, the edge sets `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`.
    "forwarding.x_forwarded" live: Switch => EdgeConfig.forwarding.x_forwarded;

    /// If true, the edge sets `Forwarded` (RFC 7239).
    "forwarding.forwarded" live: Switch => EdgeConfig.forwarding.forwarded;

    /// Clients whose `Forwarded`, `X-Forwarded-*`, `X-Real-IP` and similar fields are forwarded to the origin. If the
    /// edge sets `X-Forwarded-For` or `Forwarded`, it appends the client's address to the list in this field. In
    /// requests of all other clients these fields are removed, because the cache key does not contain them.
    "forwarding.trusted_proxies" live: Listed::OF => EdgeConfig.forwarding.trusted_proxies;

    /// The field in which `trusted_proxies` state the address of the client, for rules, rate limits and logs: the
    /// rightmost address in it that is not a trusted proxy. Choose the field that your proxies append to. With `none`,
    /// the proxy itself counts as the client. The scheme of the client comes from the same field, or from
    /// `X-Forwarded-Proto`.
    "forwarding.client_field" live: Word::OF => EdgeConfig.forwarding.client_field;

    /// Fields that are removed from cacheable requests. Some web frameworks let a request override its path, host or
    /// method by such a field, but the cache key does not contain these fields. Requests that bypass the cache, such as
    /// POST, keep them.
    "forwarding.removed_fields" live: Listed::OF => EdgeConfig.forwarding.removed_fields;

    /// Forms of paths that get 400, because origins read them differently: `leading-slashes` (`//host/x`), `parameters`
    /// (`/a;x`), `encoded-character` (`/%61`, an encoded byte that needs no encoding), `encoded-slash` (`/a%2Fb`),
    /// `double-encoding` (`/%2561`), `nul` (`%00`), `encoded-delimiter` (`%3F` and `%23`), `backslash`,
    /// `repeated-slash` (`/a//b`), `dot-segment` (`/a/../b`). An encoded form counts like the form itself.
    "forwarding.refused_path_forms" live: Listed::OF => EdgeConfig.forwarding.refused_path_forms;

    /// The host, and the port if it is not the default, for HTTP/1.0 requests without `Host`. Default: the authority of
    /// `origin.url`.
    "forwarding.default_authority" live: Unset(HostName) => EdgeConfig.forwarding.default_authority;

    /// If true, TRACE requests are forwarded. If false, they get 405, because the echoed request would show clients the
    /// fields that the edge added.
    "forwarding.trace" live: Switch => EdgeConfig.forwarding.trace;

    /// The protocols for which requests with `Upgrade` are forwarded to the origin. If the origin switches, both
    /// connections become a tunnel. `"none"`, `"any"`, or names with commas between. With `websocket`, clients may also
    /// open WebSockets over HTTP/2 (extended CONNECT, RFC 8441). An upgrade to another protocol is ignored, and so is
    /// h2c: requests inside of such a connection would bypass the edge.
    "forwarding.upgrades" live: UpgradeList => EdgeConfig.forwarding.upgrades;
};
