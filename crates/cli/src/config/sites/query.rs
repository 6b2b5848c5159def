//! Keys that form the cache key: query parameters and classes.

use std::sync::Arc;

use edgeward_sites::Class;
use edgeward_types::Pattern;

use super::keys::{Read, SiteKey};

/// The word for all parameters.
const ALL: &str = "all";

pub(super) const KEYS: &[SiteKey] = &[
    SiteKey {
        path: "query.sort",
        kind: "boolean",
        default: "`false`",
        example: "query.sort = true",
        doc: "Sorts the query parameters by name, for the cache key and for the origin. Parameters of equal names \
              keep their order.",
        read: Read::Setting(|reader, entry, rule| {
            if let Some(on) = reader.switch(entry) {
                rule.settings.query_sort = Some(on);
            }
        }),
    },
    SiteKey {
        path: "query.keep",
        kind: "list of patterns, or `\"all\"`",
        default: "`\"all\"`",
        example: r#"query.keep = ["id", "page", "filter_*"]"#,
        doc: "The names of the query parameters that stay. All others are removed, from the cache key and from the \
              request that the origin gets. An empty list removes the whole query. `\"all\"` undoes an earlier rule; \
              `[\"all\"]` is the parameter with this name.",
        read: Read::Setting(|reader, entry, rule| {
            if entry.as_text() == Some(ALL) {
                rule.settings.query_keep = Some(None);
            } else if let Some(keep) = reader.parse_list(entry, "a name", r#"["id"]"#, parse_name) {
                rule.settings.query_keep = Some(Some(keep.into()));
            }
        }),
    },
    SiteKey {
        path: "query.drop",
        kind: "list of patterns",
        default: "`[]`",
        example: r#"query.drop = ["utm_*", "fbclid", "gclid"]"#,
        doc: "The names of the query parameters that are removed, from the cache key and from the request that the \
              origin gets. It applies after `query.keep`. A later rule replaces the whole list.",
        read: Read::Setting(|reader, entry, rule| {
            if let Some(drop) = reader.parse_list(entry, "a name", r#"["utm_*"]"#, parse_name) {
                rule.settings.query_drop = Some(drop.into());
            }
        }),
    },
    SiteKey {
        path: "key",
        kind: "list of classes",
        default: "`[]`",
        example: r#"key = ["device", "language:en,de", "cookie:currency"]"#,
        doc: "Parts of the cache key beside the URL. Requests of one class share stored responses. `device`: \
              `desktop`, `mobile`, `tablet` or `bot`, by `User-Agent`. `image-format`: `avif`, `webp` or `other`, by \
              `Accept`. `language:en,de`: the one of these languages that the client prefers, otherwise the first. \
              `cookie:NAME`: the values of all cookies with this name. `has-cookie:PATTERN`: whether a cookie with \
              such a name is present. `header:NAME`: all lines of a field. The key has every value that the origin \
              may read. A request bypasses the cache if its cookies or lines are longer than 128 bytes, if origins may \
              find other cookies of the name in it, as in `a=1, NAME=2`, or for `device` if it has two `User-Agent`. A \
              later rule replaces the whole list.",
        read: Read::Setting(|reader, entry, rule| {
            let parse = str::parse::<Class>;
            if let Some(classes) = reader.parse_list(entry, "a class", r#""device""#, parse) {
                let classes: Arc<[Class]> = classes.into();
                rule.settings.key = Some(classes);
            }
        }),
    },
];

/// Parses a pattern of names of parameters.
fn parse_name(text: &str) -> Result<Pattern, String> {
    if text.is_empty() || text.contains(['=', '&', '?', '#']) {
        return Err(format!(
            "`{text}` is not the name of a parameter; write only the name, such as id, or a pattern such as utm_*"
        ));
    }
    Ok(Pattern::new(text))
}
