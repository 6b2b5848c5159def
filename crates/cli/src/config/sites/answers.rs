//! Keys that select the origin and its target, and keys for answers of the edge itself: deny, redirect, rate limits and
//! error pages.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use edgeward_sites::{
    FixedAnswer, PAGE_BYTES_MAX, Page, RateKey, RateLimit, Redirect, Stated, StatusSet, Template,
};
use http::{HeaderValue, StatusCode};

use super::caching::status_set;
use super::draft::RuleDraft;
use super::fields::template;
use super::reader::{Entry, Reader};
use super::row::{SiteKey, rows};
use crate::config::value::REQUEST_BODY_SIZES;
use crate::diagnostic::Diagnostic;

pub(super) static KEYS: &[SiteKey] = rows! {
    /// The name of the `[[origin]]` of misses. `[origin]` and `--origin` describe one origin, whose name is `default`
    /// unless `origin.name` sets another.
    "origin" setting: "name",
        default "the first origin", example "origin = \"default\"",
        read: |reader, entry, rule| {
            let name = reader.text(entry, "the name of an origin", "\"default\"");
            rule.origin = name.map(|name| (name.to_owned(), entry.line));
        };

    /// The edge answers with this status, without the cache and the origin. `true` is 403. `false` undoes an earlier
    /// rule. If a request is denied and redirected, `deny` counts.
    "deny" setting: "boolean, or a status from 400 to 599",
        default "`false`", example "deny = 404",
        read: deny;

    /// The edge answers with a redirect to this URL or path. `false` undoes an earlier rule.
    "redirect" setting: "[template](#templates), or `false`",
        default "`false`", example "redirect = \"https://${host}${uri}\"",
        read: redirect;

    /// The status of `redirect` in the same rule. 301 and 308 are permanent: clients may keep them without asking
    /// again.
    "redirect_status" setting: "301, 302, 303, 307 or 308",
        default "`302`", example "redirect_status = 301",
        read: redirect_status;

    /// The edge answers with this file and status 200, without the cache and the origin. Size and extension are those
    /// of `error_page`. A table has a text in place of the file: `body`, `content_type` (default
    /// `"text/plain; charset=utf-8"`) and `status`, from 200 to 204; a response with 204 has no body. If a request is
    /// also denied or redirected, `answer` does not count. `false` undoes an earlier rule.
    "answer" setting: "file, table of `body`, `content_type` and `status`, or `false`",
        default "`false`", example "answer = \"pages/welcome.html\"",
        read: answer;

    /// The path and query that the origin gets instead of those of the client. Write `?${query}` at the end to keep the
    /// query. A group or a field behind `?` is one value: its `&`, `=`, `+` and `;` are encoded. The cache key keeps
    /// the URL of the client. `false` undoes an earlier rule.
    "rewrite" setting: "[template](#templates), or `false`",
        default "`false`", example "rewrite = \"/app/${1}\"",
        read: rewrite;

    /// The rate of requests of one client, or with `rate_limit_by` of all clients. A client that exceeds it gets 429
    /// with `Retry-After`. Requests of all URLs that get the limit from the same rule count together. `false` undoes an
    /// earlier rule.
    "rate_limit" setting: "requests per `s`, `min` or `h`, or `false`",
        default "`false`", example "rate_limit = \"10/s\"",
        read: rate_limit;

    /// The number of requests that a client may send at once after a pause, for `rate_limit` in the same rule. From 1
    /// to 1000000.
    "rate_limit_burst" setting: "number",
        default "the requests of one second, at least 1", example "rate_limit_burst = 50",
        read: rate_limit_burst;

    /// The part of a request that identifies one client, for `rate_limit` in the same rule. `client` is the address: an
    /// IPv4 address, or an IPv6 network of 64 bits. With `header:NAME`, requests without the field count by address,
    /// and all keys of one address together have `limits.rate_limit_keys_per_address` times the rate, because clients
    /// can invent keys. With `site`, the requests of all clients count together.
    "rate_limit_by" setting: "`\"client\"`, `\"header:NAME\"` or `\"site\"`",
        default "`\"client\"`", example "rate_limit_by = \"header:X-API-Key\"",
        read: rate_limit_by;

    /// The largest request body. A request that declares a longer one gets 413, and the origin is not asked. A body
    /// without a declared length that exceeds the limit ends with 413, or with a reset if the response has begun; the
    /// connection to the origin is closed. `"none"` allows any size. Replaces `limits.request_body_bytes_max`, so it
    /// may be larger. At most 16 TiB.
    "request_body_max" setting: REQUEST_BODY_SIZES,
        default "`limits.request_body_bytes_max`", example "request_body_max = \"10MB\"",
        set: |rule, max| rule.settings.request_body_max = max.into();

    /// Files that replace the bodies of error responses, of the origin and of the edge itself, by status from 400 to
    /// 599 or by class. A relative path starts at the folder of the configuration file. The edge reads the files at its
    /// start; each has at most 1 MiB. Their extensions state their types: `html`, `htm`, `txt`, `json`, `xml` or `svg`.
    /// A table such as `{ body = "gone", content_type = "text/plain" }` has a text in place of a file. Each status is a
    /// key of its own. `false` undoes all pages of earlier rules.
    "error_page" setting: "table of files or texts by status, or `false`",
        default "`false`", example "error_page = { 404 = \"pages/404.html\", 5xx = \"pages/error.html\" }",
        read: error_page;
};

fn deny(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &mut RuleDraft) {
    const EXAMPLE: &str = "true for 403, or a status from 400 to 599";
    let status = match entry.as_switch() {
        Some(on) => on.then_some(StatusCode::FORBIDDEN),
        None if !entry.value.get_ref().is_integer() => {
            reader.reject_type(entry, "a boolean or a status", EXAMPLE);
            return;
        }
        None => {
            let Some(status) = reader.number(entry, 400, 599).and_then(to_status) else {
                return;
            };
            Some(status)
        }
    };
    rule.settings.deny = status.into();
}

fn to_status(number: u64) -> Option<StatusCode> {
    u16::try_from(number)
        .ok()
        .and_then(|number| StatusCode::from_u16(number).ok())
}

fn redirect(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &mut RuleDraft) {
    rule.settings.redirect = match entry.as_switch() {
        Some(false) => Stated::Off,
        _ => {
            let example = "\"https://${host}${uri}\", or false";
            let location = url_template(reader, entry, example, rule, redirect_error);
            // An invalid location is reported.
            location.map_or(Stated::Unstated, |location| {
                let status = StatusCode::FOUND;
                Stated::On(Arc::new(Redirect { status, location }))
            })
        }
    };
}

fn rewrite(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &mut RuleDraft) {
    rule.settings.rewrite = match entry.as_switch() {
        Some(false) => Stated::Off,
        _ => url_template(
            reader,
            entry,
            "\"/app${path}\", or false",
            rule,
            rewrite_error,
        )
        .map_or(Stated::Unstated, |target| Stated::On(Arc::new(target))),
    };
}

/// Reads the template of a URL. `check` returns the reason and the hint of an error that depends on the key.
fn url_template(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    example: &str,
    rule: &RuleDraft,
    check: fn(&str) -> Option<(&'static str, &'static str)>,
) -> Option<Template> {
    let text = reader.text(entry, "a template", example)?;
    let parsed = template(reader, entry, example, rule)?;
    let is_allowed = |c: char| c.is_ascii_graphic() && !"\"<>\\^`|".contains(c);
    let error = if text.chars().all(is_allowed) {
        check(text)
    } else {
        Some((
            "has a character that a URL may not contain",
            "percent-encode it, as in %20 for a space",
        ))
    };
    if let Some((reason, hint)) = error {
        reader.reject(entry, reason, hint);
        return None;
    }
    Some(parsed)
}

/// Returns why a template is not a location that leads where its author wrote. A client chooses path, groups and
/// fields. It must not be able to choose the host with them: `/${1}` could become `//other.example/`, and
/// `https://example.org${1}` could become `https://example.org.other.example/`.
fn redirect_error(text: &str) -> Option<(&'static str, &'static str)> {
    let after_scheme = ["https://", "http://", "${scheme}://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    let Some(rest) = after_scheme else {
        return if !text.starts_with('/') {
            Some((
                "is neither a URL nor a path",
                "begin with https://, http://, ${scheme}:// or a slash",
            ))
        } else if text.starts_with("//") || text.starts_with("/${") {
            Some((
                "could lead to another host, because a location that begins with two slashes names a host",
                "begin with https://${host}/",
            ))
        } else {
            None
        };
    };
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = &rest[..authority_end];
    // Path and query as sent begin with a slash, so they end the authority as well.
    let authority = ["${uri}", "${path}"]
        .iter()
        .find_map(|path| authority.find(path))
        .map_or(authority, |at| &authority[..at]);
    if authority.is_empty() {
        Some(("has no host", "write https://${host}/, for example"))
    } else if authority.ends_with('}') && !authority.ends_with("${host}") {
        Some((
            "could lead to another host, because a client chooses the end of the host",
            "write a slash before the variable",
        ))
    } else {
        None
    }
}

fn rewrite_error(text: &str) -> Option<(&'static str, &'static str)> {
    let is_path = ["/", "${path}", "${uri}"]
        .iter()
        .any(|start| text.starts_with(start));
    if !is_path {
        Some((
            "is not a path",
            "begin with a slash, ${path} or ${uri}; the origin is set by origin",
        ))
    } else if text.contains('#') {
        Some(("has a #, which is not sent to origins", "write %23"))
    } else {
        None
    }
}

fn redirect_status(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &mut RuleDraft) {
    let Some(number) = reader.number(entry, 300, 399) else {
        return;
    };
    if ![301, 302, 303, 307, 308].contains(&number) {
        let hint = "use 301, 302, 303, 307 or 308";
        reader.reject(entry, "is not the status of a redirect", hint);
        return;
    }
    let is_given = rule.is_given("redirect");
    match &mut rule.settings.redirect {
        Stated::On(redirect) => {
            if let Some(status) = to_status(number) {
                Arc::make_mut(redirect).status = status;
            }
        }
        // An invalid redirect was reported.
        Stated::Unstated if is_given => {}
        _ => missing(reader, entry, "redirect", "redirect = \"/new\""),
    }
}

/// Reports a key without the key that it belongs to.
fn missing(reader: &mut Reader<'_>, entry: &Entry<'_>, other: &str, example: &str) {
    let message = format!("{} is set without {other} in the same table", entry.name);
    let hint = format!("add {example}");
    reader.report(entry.line, Diagnostic::new(message).hint(hint));
}

fn rate_limit(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &mut RuleDraft) {
    rule.settings.rate_limit = match entry.as_switch() {
        Some(false) => Stated::Off,
        _ => {
            let example = "\"10/s\", \"600/min\", \"5000/h\" or false";
            let rate = reader.parse(entry, "a rate", example, parse_rate);
            rate.map_or(Stated::Unstated, |(requests, per)| {
                let number = reader.rate_limits;
                reader.rate_limits += 1;
                Stated::On(Arc::new(RateLimit {
                    number,
                    requests,
                    per,
                    burst: default_burst(requests, per),
                    by: RateKey::Client,
                }))
            })
        }
    };
}

/// Parses `100/s`.
fn parse_rate(text: &str) -> Result<(u32, Duration), String> {
    let parsed = text.split_once('/').and_then(|(requests, unit)| {
        let requests: u32 = requests.trim().parse().ok().filter(|n| *n > 0)?;
        let seconds = match unit.trim() {
            "s" => 1,
            "min" => 60,
            "h" => 3600,
            _ => return None,
        };
        Some((requests, Duration::from_secs(seconds)))
    });
    parsed.ok_or_else(|| format!("`{text}` is not a rate; write 10/s, 600/min or 5000/h"))
}

/// The requests of one second, so that a browser that loads a page with all its files at once is not limited more than
/// its rate says.
fn default_burst(requests: u32, per: Duration) -> u32 {
    let seconds = u32::try_from(per.as_secs()).unwrap_or(u32::MAX).max(1);
    (requests / seconds).max(1)
}

fn rate_limit_burst(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &mut RuleDraft) {
    let burst = reader.number(entry, 1, 1_000_000);
    if let (Some(burst), Some(limit)) = (burst, limit_of(reader, entry, rule)) {
        limit.burst = u32::try_from(burst).expect("the maximum fits");
    }
}

fn rate_limit_by(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &mut RuleDraft) {
    let example = "\"client\", \"header:NAME\" or \"site\"";
    let by = reader.parse(entry, "a part of the request", example, parse_rate_key);
    if let (Some(by), Some(limit)) = (by, limit_of(reader, entry, rule)) {
        limit.by = by;
    }
}

fn parse_rate_key(text: &str) -> Result<RateKey, String> {
    let header = text
        .strip_prefix("header:")
        .and_then(|name| name.parse().ok());
    match header {
        Some(name) => Ok(RateKey::Header(name)),
        None if text == "client" => Ok(RateKey::Client),
        None if text == "site" => Ok(RateKey::Site),
        None => Err(format!(
            "`{text}` does not identify clients; write client, header:NAME or site"
        )),
    }
}

/// Returns the rate limit of the rule, or reports that the rule has none.
fn limit_of<'r>(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    rule: &'r mut RuleDraft,
) -> Option<&'r mut RateLimit> {
    let is_given = rule.is_given("rate_limit");
    match &mut rule.settings.rate_limit {
        Stated::On(limit) => Some(Arc::make_mut(limit)),
        // An invalid limit was reported.
        Stated::Unstated if is_given => None,
        _ => {
            missing(reader, entry, "rate_limit", "rate_limit = \"10/s\"");
            None
        }
    }
}

fn answer(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &mut RuleDraft) {
    rule.settings.answer = match entry.as_switch() {
        Some(false) => Stated::Off,
        // An invalid answer is reported.
        _ => fixed_answer(reader, entry)
            .map_or(Stated::Unstated, |answer| Stated::On(Arc::new(answer))),
    };
}

fn fixed_answer(reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<FixedAnswer> {
    let (page, status) = match entry.is_table() {
        true => page_of_table(reader, entry, true)?,
        false => (page(reader, entry)?, StatusCode::OK),
    };
    if status == StatusCode::NO_CONTENT && !page.body.is_empty() {
        let hint = "remove the body, or use status 200";
        reader.reject(entry, "has a body and the status 204", hint);
        return None;
    }
    Some(FixedAnswer { status, page })
}

fn error_page(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &mut RuleDraft) {
    if entry.as_switch() == Some(false) {
        rule.settings.error_pages.clear();
        return;
    }
    for (status, member) in reader.table(entry, "a table of statuses", "{ 404 = \"404.html\" }") {
        let status = status_set(reader, &member, status);
        let page = page(reader, &member);
        let (Some(status), Some(page)) = (status, page) else {
            continue;
        };
        if !matches!(status, StatusSet::One(400..=599) | StatusSet::Class(4 | 5)) {
            let hint = "pages replace the responses with statuses from 400 to 599";
            reader.reject(&member, "is not the page of an error", hint);
            continue;
        }
        rule.settings.error_pages.insert(status, page);
    }
}

/// Reads a page from a table with its text. The table has a status only if `has_status`.
fn page_of_table(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    has_status: bool,
) -> Option<(Arc<Page>, StatusCode)> {
    const EXAMPLE: &str = "{ body = \"ok\", content_type = \"text/plain\" }";
    let mut status = StatusCode::OK;
    let (mut body, mut content_type) = (String::new(), PLAIN_TEXT.to_owned());
    for (name, member) in reader.table(entry, "a table of a page", EXAMPLE) {
        match name {
            "body" => {
                body = reader.text(&member, "a text", "\"ok\"")?.to_owned();
                if body.len() > PAGE_BYTES_MAX {
                    reader.reject(&member, "exceeds 1 MiB", "use a smaller page");
                    return None;
                }
            }
            "content_type" => {
                content_type = reader
                    .text(&member, "a media type", "\"text/html\"")?
                    .to_owned();
                if content_type.is_empty() || HeaderValue::from_str(&content_type).is_err() {
                    reader.reject(
                        &member,
                        "is not a media type",
                        "write text/html, for example",
                    );
                    return None;
                }
            }
            "status" if has_status => {
                status = reader.number(&member, 200, 204).and_then(to_status)?;
            }
            _ => {
                let hint = "write body and content_type, and in answer also status";
                reader.reject(&member, "is not a part of a page", hint);
                return None;
            }
        }
    }
    let page = Page {
        content_type: content_type.into(),
        body: body.into(),
    };
    Some((Arc::new(page), status))
}

/// Reads a page from a table with its text, or from a file unless another rule has read it.
fn page(reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<Arc<Page>> {
    if entry.is_table() {
        return page_of_table(reader, entry, false).map(|(page, _)| page);
    }
    let path = reader.file(entry)?;
    if let Some(page) = reader.pages.get(&path) {
        return Some(Arc::clone(page));
    }
    let Some(content_type) = content_type(&path) else {
        let known: Vec<&str> = CONTENT_TYPES
            .iter()
            .map(|(extension, _)| *extension)
            .collect();
        let hint = format!("use a file that ends in .{}", known.join(", ."));
        reader.reject(entry, "has an extension without a known type", hint);
        return None;
    };
    let mut body = Vec::new();
    let read = File::open(&path)
        .and_then(|file| file.take(PAGE_BYTES_MAX as u64 + 1).read_to_end(&mut body));
    if let Err(error) = read {
        reader.reject(
            entry,
            format_args!("cannot be read: {error}"),
            "check the file",
        );
        return None;
    }
    if body.len() > PAGE_BYTES_MAX {
        let hint = "use a smaller page: the edge keeps it in memory";
        reader.reject(entry, "exceeds 1 MiB", hint);
        return None;
    }
    let page = Arc::new(Page {
        content_type: content_type.into(),
        body: body.into(),
    });
    reader.pages.insert(path, Arc::clone(&page));
    Some(page)
}

fn content_type(path: &Path) -> Option<&'static str> {
    let extension = path.extension()?.to_str()?;
    let known = CONTENT_TYPES.iter().find(|(known, _)| *known == extension);
    known.map(|(_, content_type)| *content_type)
}

/// The type of a text without a stated type, and of files with the extension `txt`.
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// The types of pages by the extensions of their files.
const CONTENT_TYPES: [(&str, &str); 6] = [
    ("html", "text/html; charset=utf-8"),
    ("htm", "text/html; charset=utf-8"),
    ("txt", PLAIN_TEXT),
    ("json", "application/json"),
    ("xml", "application/xml"),
    ("svg", "image/svg+xml"),
];
