//! The sections of docs/reference/configuration.md about sites.

use std::fmt::Write as _;

use super::keys::{Level, all};
use super::row::{Read, SiteKey};

/// Returns the sections `[[site]]`, `[[site.rule]]` and "Templates".
pub(in crate::config) fn markdown() -> String {
    let mut text = String::new();
    section(&mut text, Level::Site, SITE, |key| {
        matches!(key.read, Read::Site(_))
    });
    section(&mut text, Level::Rule, RULE, |key| {
        !matches!(key.read, Read::Site(_))
    });
    text.push_str(TEMPLATES);
    text
}

fn section(text: &mut String, level: Level, about: &str, belongs: fn(&SiteKey) -> bool) {
    _ = write!(text, "\n## `{}`\n\n{}\n", level.table(), wrap(about));
    for key in all().filter(|key| belongs(key)) {
        _ = write!(
            text,
            "\n### `{}`\n\n{}\n\n",
            key.path,
            wrap(key.doc.trim_start())
        );
        if let Read::Condition(_) = key.read {
            _ = writeln!(text, "- condition");
        }
        _ = writeln!(text, "{}", wrap(&format!("- type: {}", (key.type_name)())));
        _ = writeln!(text, "- default: {}", key.default);
        _ = writeln!(text, "- example: `{}`", key.example);
    }
}

/// Breaks a paragraph into lines of at most [`LINE_CHARS_MAX`] characters.
pub(in crate::config) fn wrap(paragraph: &str) -> String {
    let mut text = String::new();
    let mut line_chars = 0;
    for word in paragraph.split(' ') {
        let chars = word.chars().count();
        if line_chars == 0 {
            line_chars = chars;
        } else if line_chars + 1 + chars > LINE_CHARS_MAX {
            text.push('\n');
            line_chars = chars;
        } else {
            text.push(' ');
            line_chars += 1 + chars;
        }
        text.push_str(word);
    }
    text
}

/// The width of Markdown pages in this repository.
const LINE_CHARS_MAX: usize = 120;

const SITE: &str = "The sites of the edge. Write `[[site]]` once for each site. Without `[[site]]` there is one site \
    without rules for all hosts. A site has its own keys, which follow here, and every setting of \
    [a rule](#siterule), which then applies to all requests of the site and counts as a rule before all others. See \
    docs/how-to/sites.md. A file has at most 10,000 sites.";

const RULE: &str = "The rules of the `[[site]]` above them, at most 256 for each site. A rule applies to a request if \
    all its conditions hold; a list of patterns holds if one of them matches; a rule without a condition applies to \
    all requests of the site. Every rule whose conditions hold applies, in the order of the file. If two of them set \
    the same key, the later one counts. In `ttl`, `default_ttl` and `error_page` each status is a key, and in \
    `request`, `origin_response` and `response` each field is a key. A single string stands for a list with one \
    member.";

const TEMPLATES: &str = r"
### Templates

A template is a text with variables:

| variable | value |
|---|---|
| `${scheme}` | `http` or `https` |
| `${host}` | host and port of the request |
| `${path}` | the path as sent |
| `${query}` | the query as sent, without `?` |
| `${uri}` | path and query as sent |
| `${client}` | the address of the client |
| `${device}` | `desktop`, `mobile`, `tablet` or `bot`, by `User-Agent` |
| `${image_format}` | `avif`, `webp` or `other`, by `Accept` |
| `${header.NAME}` | the first line of a field of the request, empty if absent |
| `${1}` to `${9}` | a group of the only `path_regex` of the same rule, empty if it did not participate |

A URL gets groups and fields percent-encoded. A field gets all variables without control characters.
";
