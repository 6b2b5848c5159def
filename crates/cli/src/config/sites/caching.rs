//! Keys that state how long responses are stored and used, and where.

use std::time::Duration;

use edgeward_semantics::dictionary::MatchPattern;
use edgeward_sites::{DictionaryScope, Stated, StatusMap, StatusSet};

use super::reader::{Entry, Reader};
use super::row::{SiteKey, rows};
use super::values::Seconds;
use crate::config::value::Switch;

pub(super) static KEYS: &[SiteKey] = rows! {
    /// Requests bypass the cache: each one goes to the origin, and its response is not stored.
    "pass" setting: Switch => pass,
        default "`false`", example "pass = true";

    /// Lifetimes that replace what the origin states: `Cache-Control`, `Expires` and heuristic lifetimes. One duration
    /// stands for the statuses 200, 203, 206, 301 and 308. In the table, a status such as `404` precedes its class such
    /// as `4xx`. Each status is a key of its own, so a later rule with `ttl = { 404 = "1min" }` keeps the lifetime of
    /// 200. A status with `"no-store"` in place of a duration is not stored, while `"0s"` stores a response that is
    /// stale at once. `false` undoes all lifetimes of earlier rules. The lifetime begins when the response arrives. In
    /// whole seconds, at most 3650d.
    "ttl" setting: "duration, table of durations by status, or `false`",
        default "what the origin states", example "ttl = { 200 = \"7d\", 404 = \"1min\", 5xx = \"no-store\" }",
        read: |reader, entry, rule| durations(reader, entry, &mut rule.settings.ttl);

    /// Lifetimes of responses whose origin states none, written as for `ttl`. They begin when the response arrives,
    /// too.
    "default_ttl" setting: "duration, table of durations by status, or `false`",
        default "the heuristic of `[caching]`", example "default_ttl = \"10min\"",
        read: |reader, entry, rule| {
            durations(reader, entry, &mut rule.settings.default_ttl);
        };

    /// How long after its lifetime a response is still used while it is revalidated in the background (RFC 5861 §3). A
    /// `stale-while-revalidate` of the origin precedes it. It does not apply to responses with `must-revalidate`,
    /// `proxy-revalidate`, `s-maxage` or `no-cache`, nor to responses that were stale on arrival. At most 3650d.
    "stale_while_revalidate" setting: Seconds => stale_while_revalidate,
        default "what the origin states", example "stale_while_revalidate = \"1min\"";

    /// How long after its lifetime a response is still used if the origin answers with a status of 5xx (RFC 5861 §4). A
    /// `stale-if-error` of the origin precedes it. It does not apply to responses with `must-revalidate`,
    /// `proxy-revalidate`, `s-maxage` or `no-cache`, nor to responses that were stale on arrival. At most 3650d.
    "stale_if_error" setting: Seconds => stale_if_error,
        default "what the origin states", example "stale_if_error = \"1d\"";

    /// How long after its lifetime a response is still used while the origin cannot be reached. At most 3650d.
    "stale_if_disconnected" setting: Seconds => stale_if_disconnected,
        default "`caching.stale_if_disconnected`", example "stale_if_disconnected = \"7d\"";

    /// Compresses responses that the origin sends without a coding, if their type and size make it worthwhile. Switch
    /// it off for pages that contain both a secret and a text that a stranger can choose, because their size could
    /// reveal the secret (BREACH).
    "compression" setting: Switch => compression,
        default "`compression.enabled`", example "compression = false";

    /// Makes responses that the edge may compress dictionaries (RFC 9842): a browser that has one version of a script
    /// gets the next one as a delta, in `dcz` or `dcb`. Only over TLS. `true` derives from the path of a response which
    /// URLs have its other versions: `/js/app.3f9c2d1e.js` is a dictionary for `/js/app.*.js`, and `/app.js` for
    /// itself. A pattern such as `"/js/app.*.js"` states the URLs, with `*` for any text. A `Use-As-Dictionary` of the
    /// origin precedes both. Responses that may be for one user are no dictionaries.
    "dictionary" setting: "pattern of paths, or a switch",
        default "`false`", example "dictionary = true",
        read: |reader, entry, rule| rule.settings.dictionary = dictionary(reader, entry);

    /// Stores responses to requests with `Authorization` for all clients, although RFC 9111 §3.5 forbids it. Danger:
    /// once a response is stored, every client gets it that knows the URL, with or without permission. It is for URLs
    /// that no client can guess and whose content is no secret, such as public packages of a registry that demands a
    /// token.
    "share_authorized" setting: Switch => share_authorized,
        default "`false`", example "share_authorized = true";

    /// Asks the origin before each use of a stored response, by a conditional request with the fields of the client:
    /// only if the origin answers 304 does the client get the stored body. Every other answer, such as 401, goes to the
    /// client. Responses to requests with `Authorization` are stored; requests to which the rule does not apply use
    /// them only after a 304, too. Requests are not collapsed, ranges are not fetched in slices, and no stale response
    /// replaces an error. A hit saves the transfer of the body, not the request. A response without a validator is
    /// fetched each time.
    "check_authorization" setting: Switch => check_authorization,
        default "`false`", example "check_authorization = true";

    /// Does not store a response whose media type contradicts the extension of its path: HTML or JSON for
    /// `/account/x.css`. Otherwise a rule that stores `*.css` by `ttl` would store a private page if an origin ignores
    /// the end of the path (web cache deception). `true` checks all responses, `false` none. Switch it off where names
    /// with dots are no files, such as `/chart.js` of a package registry. Only statuses 2xx.
    "check_extension" setting: Switch => check_extension,
        default "responses whose lifetime the origin does not state", example "check_extension = true";
};

/// The statuses that one duration stands for: those whose responses are the content of a URL for longer. An error of an
/// origin must not stay as long as a page only because it was not mentioned.
pub(super) const DURATION_STATUSES: [u16; 5] = [200, 203, 206, 301, 308];

fn dictionary(reader: &mut Reader<'_>, entry: &Entry<'_>) -> Stated<DictionaryScope> {
    match entry.as_switch() {
        Some(true) => return Stated::On(DictionaryScope::Versions),
        Some(false) => return Stated::Off,
        None => {}
    }
    let example = "\"/js/app.*.js\"";
    let Some(text) = reader.text(entry, "a pattern of paths, or true or false", example) else {
        return Stated::Unstated;
    };
    if !text.starts_with('/') || MatchPattern::parse(text, "", "/").is_none() {
        let hint = "write a path in which * stands for any text; other signs of URL patterns are not supported";
        reader.reject(entry, "is not a pattern of paths", hint);
        return Stated::Unstated;
    }
    Stated::On(DictionaryScope::Pattern(text.into()))
}

fn durations(reader: &mut Reader<'_>, entry: &Entry<'_>, map: &mut StatusMap<Option<Duration>>) {
    if entry.as_switch() == Some(false) {
        map.clear();
        return;
    }
    if !entry.is_table() {
        if let Some(duration) = reader.duration(entry) {
            for status in DURATION_STATUSES {
                map.insert(StatusSet::One(status), Some(duration));
            }
        }
        return;
    }
    for (status, member) in reader.table(entry, "a table of statuses", "{ 200 = \"1h\" }") {
        let status = status_set(reader, &member, status);
        let duration = match member.as_text() {
            Some("no-store") => Some(None),
            Some(text) if text.starts_with(char::is_alphabetic) => {
                let hint = "write \"no-store\", or a duration such as \"30s\"";
                reader.reject(&member, "is neither a duration nor \"no-store\"", hint);
                None
            }
            _ => reader.duration(&member).map(Some),
        };
        if let (Some(status), Some(duration)) = (status, duration) {
            map.insert(status, duration);
        }
    }
}

/// Parses the key of a table by status.
pub(super) fn status_set(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    text: &str,
) -> Option<StatusSet> {
    let parsed = text.parse();
    if parsed.is_err() {
        let hint = "write a number from 100 to 599, or a class such as 5xx";
        reader.reject(
            entry,
            format_args!("has the key `{text}`, which is not a status"),
            hint,
        );
    }
    parsed.ok()
}
