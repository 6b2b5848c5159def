//! The directives of Caddy that the translation knows. The table of the documentation is made from this one.

use super::tree::Directive;
use crate::counterpart::{Counterpart, Row, markdown, plain};
use crate::report::{Effect, Outcome};

use Counterpart::{Implied, Missing, Settings};
use Effect::{Access, Caching, Operation, Response};

const ROWS: &[Row] = &[
    (
        &["a site block", "import", "(snippet)"],
        Settings(Response),
        "`[[site]]` with `hosts`; `[[listener]]`, `[[acme]]` and the redirect to https as by Caddy itself; imported files and snippets are read",
    ),
    (
        &["@matcher"],
        Settings(Response),
        "conditions of rules: `path`, `path_regexp`, `method`, `protocol`, `host`, `remote_ip`, `client_ip`, `header`, `header_regexp`, `query`, `not`",
    ),
    (
        &["handle", "handle_path", "route"],
        Settings(Response),
        "`[[site.rule]]` in Caddy's order, and `rewrite` for `handle_path`",
    ),
    (
        &["reverse_proxy"],
        Settings(Response),
        "`[[origin]]`: `servers`, `balance`, `health_path`, timeouts, TLS, `host`; `request.set`, `origin_response.set`",
    ),
    (
        &["cache"],
        Settings(Caching),
        "`pass = false`, `default_ttl`, `stale_while_revalidate`, `key`; sites without `cache` have `pass = true`",
    ),
    (
        &["header", "request_header"],
        Settings(Response),
        "`response.set`, `response.add`, `response.remove`, `request.set` and relatives",
    ),
    (
        &["redir"],
        Settings(Response),
        "`redirect`, `redirect_status`",
    ),
    (
        &["respond", "error", "abort"],
        Settings(Access),
        "`deny` for 400 to 599, with the text by `error_page`; `answer` with the text for 200 to 204; others get 404",
    ),
    (
        &["rewrite", "uri"],
        Settings(Response),
        "`rewrite`: a new path, `strip_prefix`, `strip_suffix`",
    ),
    (
        &["encode"],
        Settings(Operation),
        "`compression`; sites without `encode` have `compression = false`",
    ),
    (&["request_body"], Settings(Access), "`request_body_max`"),
    (
        &["tls"],
        Settings(Access),
        "`tls_certificates` and `tls_key` of a site, `[[acme]]`",
    ),
    (
        &["log"],
        Settings(Operation),
        "`access_log.path`: one log for all sites",
    ),
    (
        &["basic_auth", "basicauth", "forward_auth"],
        Missing(Access),
        "no authentication: these requests are denied until you decide",
    ),
    (
        &[
            "file_server",
            "php_fastcgi",
            "metrics",
            "acme_server",
            "webdav",
        ],
        Missing(Response),
        "the edge serves no files and speaks HTTP only; these requests get 404",
    ),
    (
        &["try_files", "templates"],
        Missing(Response),
        "no files from the local disk",
    ),
    (
        &["handle_errors", "intercept"],
        Missing(Response),
        "`error_page` with a file",
    ),
    (
        &[
            "map",
            "vars",
            "method",
            "push",
            "copy_response",
            "rate_limit",
            "replace",
        ],
        Missing(Response),
        "no counterpart; `rate_limit` in a rule limits requests",
    ),
    (
        &["invoke"],
        Missing(Access),
        "no named routes: these requests are denied until you decide",
    ),
    (
        &["bind"],
        Settings(Access),
        "`listener.address`; a site that the edge would answer at more addresses than Caddy is denied until you decide",
    ),
    (
        &[
            "root",
            "tracing",
            "log_skip",
            "skip_log",
            "log_append",
            "fs",
        ],
        Implied,
        "not needed: files need a server",
    ),
];

/// Returns the outcome of a directive that has no translation of its own.
pub(super) fn row(name: &str) -> Option<(Outcome, Effect, String)> {
    let row = ROWS.iter().find(|(names, ..)| names.contains(&name))?;
    Some(match row {
        (_, Implied, text) => (Outcome::Implied, Operation, plain(text)),
        (_, Missing(effect) | Settings(effect), text) => (Outcome::LeftOut, *effect, plain(text)),
    })
}

/// Returns the outcome of a directive that no site has translated.
pub(super) fn unused(directive: &Directive) -> (Outcome, Effect, String) {
    if directive.name.starts_with('@') {
        let text = "no directive that was translated uses this matcher".to_owned();
        return (Outcome::Implied, Operation, text);
    }
    match row(&directive.name) {
        Some((Outcome::Implied, effect, text)) => (Outcome::Implied, effect, text),
        Some((_, effect, text)) => {
            let text = format!("not used by a part of the input that was translated; {text}");
            (Outcome::LeftOut, effect, text)
        }
        None => {
            let text = "not used by a part of the input that was translated".to_owned();
            (Outcome::LeftOut, Operation, text)
        }
    }
}

/// Returns the table of all directives as Markdown.
pub fn directives_markdown() -> String {
    markdown("Caddy", ROWS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directive_has_one_row() {
        let names = ROWS.iter().flat_map(|(names, ..)| names.iter().copied());
        let mut names: Vec<&str> = names.collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
