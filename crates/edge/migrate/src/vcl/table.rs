//! The constructs of VCL that the translation knows. The table of the documentation is made from this one.

use crate::counterpart::{self, Counterpart, Row, markdown};
use crate::report::{Effect, Outcome};

use Counterpart::{Implied, Missing, Settings};
use Effect::{Access, Caching, Operation, Response};

/// A final `*` of a name matches any ending.
const ROWS: &[Row] = &[
    (
        &["vcl", "import", "include"],
        Settings(Response),
        "files are read with all that they include, also by `+glob`",
    ),
    (
        &["backend", ".host", ".port", ".path"],
        Settings(Response),
        "`[[origin]]`: `url`, `servers`",
    ),
    (
        &[
            ".connect_timeout",
            ".first_byte_timeout",
            ".between_bytes_timeout",
            ".max_connections",
            ".proxy_header",
        ],
        Settings(Operation),
        "`origin.connect_timeout`, `origin.first_byte_timeout`, `origin.read_idle_timeout`, `origin.connections_per_worker_max`, `origin.proxy_protocol`",
    ),
    (
        &[
            ".host_header",
            ".preamble",
            ".wait_limit",
            ".wait_timeout",
            ".authority",
            ".initial",
            ".expect_close",
        ],
        Implied,
        "not needed",
    ),
    (
        &[
            "probe",
            ".probe",
            ".url",
            ".request",
            ".interval",
            ".timeout",
            ".window",
            ".threshold",
            ".expected_response",
        ],
        Settings(Operation),
        "`origin.health_path`, `origin.health_interval`, `origin.health_timeout`, `origin.health_successes`, `origin.health_failures`, `origin.health_status`",
    ),
    (
        &[
            "directors.round_robin",
            "directors.random",
            "directors.hash",
            "directors.shard",
            "dynamic.director",
        ],
        Settings(Response),
        "`origin.servers` with `origin.balance`; equal shares; names are resolved again by themselves",
    ),
    (
        &["directors.fallback"],
        Settings(Response),
        "`origin.servers` and `origin.backup_servers`",
    ),
    (
        &["acl"],
        Settings(Access),
        "`client` in rules, `purge.allow`; addresses and networks, no names",
    ),
    (
        &[
            "vcl_recv",
            "vcl_hash",
            "vcl_backend_fetch",
            "vcl_backend_response",
            "vcl_deliver",
            "vcl_synth",
            "vcl_miss",
            "vcl_pass",
            "vcl_req_cookie",
            "vcl_req_authorization",
            "call",
            "if",
        ],
        Settings(Response),
        "`[[site]]` for hosts in conditions, `[[site.rule]]` for the others: method, path, query parameters, fields, cookies, addresses, scheme; Varnish's own subroutines behind yours",
    ),
    (
        &[
            "return (pass)",
            "return (hash)",
            "return (lookup)",
            "return (pipe)",
        ],
        Settings(Caching),
        "`pass`; methods other than GET and HEAD always pass; WebSocket by `forwarding.upgrades`",
    ),
    (
        &[
            "return (synth)",
            "return (fail)",
            "synthetic",
            "resp.status",
            "resp.reason",
            "resp.body",
        ],
        Settings(Response),
        "`deny` for 400 to 599, with the text of `vcl_synth` by `error_page`; `redirect` with `redirect_status` if `vcl_synth` sets `Location`; `answer` with the text for 200 to 204",
    ),
    (
        &[
            "return (purge)",
            "purge.*",
            "xkey.purge",
            "xkey.softpurge",
            "ban",
            "std.ban",
        ],
        Settings(Caching),
        "`purge.allow`, `purge.methods`: PURGE, BAN and PURGEKEYS, by URL, host, tag and pattern",
    ),
    (
        &["vsthrottle.is_denied"],
        Settings(Access),
        "`rate_limit`, `rate_limit_burst`, `rate_limit_by`",
    ),
    (
        &["req.backend_hint", "bereq.backend"],
        Settings(Response),
        "`origin` in rules",
    ),
    (
        &["req.url", "bereq.url"],
        Settings(Caching),
        "`query.drop`, `query.keep`, `query.sort`, `rewrite`: the usual expressions of `regsub`, `std.querysort`, prefixes",
    ),
    (
        &["req.http.Host", "bereq.http.Host"],
        Settings(Caching),
        "`request.set.Host`; hosts are compared in lower case without port",
    ),
    (
        &["req.http.Cookie", "bereq.http.Cookie", "cookie.*"],
        Settings(Caching),
        "`request.remove`, conditions with `cookie`: the usual expressions of `regsuball`, and the vmod `cookie`. Hits do not depend on cookies",
    ),
    (
        &["req.http.*", "bereq.http.*"],
        Settings(Response),
        "`request.set`, `request.remove`; conditions on a field that VCL sets are those of the statement that sets it",
    ),
    (
        &[
            "req.hash_always_miss",
            "req.hash_ignore_busy",
            "req.grace",
            "req.esi",
        ],
        Settings(Caching),
        "`pass`; collapsing and `stale_while_revalidate` are the same for all requests",
    ),
    (
        &["hash_data"],
        Settings(Caching),
        "`key`: fields, cookies, presence of cookies; URL, host and scheme are always in the key",
    ),
    (
        &["beresp.ttl", "beresp.uncacheable", "return (deliver)"],
        Settings(Caching),
        "`ttl` behind `return (deliver)`, and else `default_ttl`, because Varnish's own subroutine obeys `private` and `no-store`; `\"no-store\"` for a status, `pass`",
    ),
    (
        &["beresp.grace"],
        Settings(Caching),
        "`stale_while_revalidate`, `stale_if_error`, `stale_if_disconnected` (10 s as for Varnish)",
    ),
    (
        &[
            "beresp.keep",
            "beresp.do_stream",
            "beresp.storage",
            "beresp.storage_hint",
            "beresp.transit_buffer",
        ],
        Implied,
        "not needed",
    ),
    (
        &["beresp.do_gzip", "beresp.do_gunzip", "beresp.do_esi"],
        Settings(Response),
        "`compression = false` for `do_gzip = false`; on by default. ESI and decompression are left out",
    ),
    (
        &["beresp.http.*"],
        Settings(Response),
        "`origin_response.set`, `origin_response.add`, `origin_response.remove`; `response.set` for `Cache-Control` and `Expires`, which Varnish has read before",
    ),
    (
        &["resp.http.*", "obj.hits"],
        Settings(Operation),
        "`response.set`, `response.remove`; the result of the cache is in `Cache-Status`",
    ),
    (
        &[
            "return (abandon)",
            "return (retry)",
            "vcl_backend_error",
            "vcl_hit",
        ],
        Settings(Operation),
        "`stale_if_error`, `origin.retries_max`, `error_page` with a file",
    ),
    (
        &[
            "std.querysort",
            "std.tolower",
            "std.toupper",
            "std.log",
            "std.syslog",
            "std.timestamp",
            "std.collect",
            "std.cache_req_body",
            "std.late_100_continue",
            "std.rollback",
            "vcl_init",
            "vcl_fini",
            "vcl_pipe",
            "vcl_purge",
            "return (ok)",
            "return (fetch)",
            "return (miss)",
            "return ()",
        ],
        Implied,
        "not needed, or a part of the statement around it",
    ),
    (
        &[
            "std.healthy",
            "std.random",
            "std.time",
            "std.duration",
            "std.ip",
            "std.port",
            "std.file*",
        ],
        Missing(Response),
        "rules do not ask for the health of origins, for times or for files",
    ),
    (
        &[
            "return (restart)",
            "return (vcl)",
            "return (abandon) in vcl_recv",
        ],
        Missing(Response),
        "a request runs through the rules once",
    ),
    (
        &[
            "req.method",
            "bereq.method",
            "beresp.status",
            "beresp.reason",
        ],
        Missing(Response),
        "requests keep their method, and responses their status",
    ),
    (
        &[
            "esi",
            "unix.*",
            "tcp.*",
            "header.*",
            "var.*",
            "str.*",
            "blob.*",
            "digest.*",
            "geoip2.*",
            "bodyaccess.*",
            "saintmode.*",
            "querystring.*",
            "curl.*",
            "redis.*",
            "rtstatus.*",
        ],
        Missing(Response),
        "these modules have no counterpart; use a field of the load balancer for countries",
    ),
];

/// Returns true for modules whose functions the translation knows.
pub(super) fn is_known_module(name: &str) -> bool {
    matches!(
        name,
        "std" | "directors" | "cookie" | "purge" | "xkey" | "vsthrottle" | "dynamic"
    )
}

/// Returns the outcome of a node that no subroutine has translated.
pub(super) fn unused(name: &str) -> (Outcome, Effect, String) {
    let is_named = |pattern: &&str| match pattern.strip_suffix('*') {
        Some(start) => {
            name.len() >= start.len()
                && name.is_char_boundary(start.len())
                && name[..start.len()].eq_ignore_ascii_case(start)
        }
        None => name.eq_ignore_ascii_case(pattern),
    };
    let row = ROWS.iter().find(|(names, ..)| names.iter().any(is_named));
    counterpart::unused(row, "from-varnish.md")
}

/// Returns the table of all constructs as Markdown.
pub fn constructs_markdown() -> String {
    markdown("VCL", ROWS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_construct_has_one_row() {
        let names = ROWS.iter().flat_map(|(names, ..)| names.iter().copied());
        let mut names: Vec<&str> = names.collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn an_unknown_construct_counts_as_a_loss() {
        let (outcome, effect, _) = unused("no.such");
        assert_eq!((outcome, effect), (Outcome::LeftOut, Response));
        assert_eq!(unused("beresp.http.x").0, Outcome::LeftOut);
    }
}
