//! Keys that form the cache key: query parameters and classes.

use edgeward_sites::Class;
use edgeward_types::Pattern;

use super::row::{SiteKey, rows};
use super::values::{ListOf, OrAll, Text};
use crate::config::value::Switch;

pub(super) static KEYS: &[SiteKey] = rows! {
    /// Sorts the query parameters by name, for the cache key and for the origin. Parameters of equal names keep their
    /// order.
    "query.sort" setting: Switch => query_sort,
        default "`false`", example "query.sort = true";

    /// The names of the query parameters that stay. All others are removed, from the cache key and from the request
    /// that the origin gets. An empty list removes the whole query. `"all"` undoes an earlier rule; `["all"]` is the
    /// parameter with this name.
    "query.keep" setting: OrAll(names(r#"["id"]"#)),
        default "`\"all\"`", example r#"query.keep = ["id", "page", "filter_*"]"#,
        set: |rule, keep| rule.settings.query_keep = keep.map(Into::into).into();

    /// The names of the query parameters that are removed, from the cache key and from the request that the origin
    /// gets. It applies after `query.keep`. A later rule replaces the whole list.
    "query.drop" setting: ListOf(names(r#"["utm_*"]"#)),
        default "`[]`", example r#"query.drop = ["utm_*", "fbclid", "gclid"]"#,
        set: |rule, drop| rule.settings.query_drop = Some(drop.into());

    /// Parts of the cache key beside the URL. Requests of one class share stored responses. `device`: `desktop`,
    /// `mobile`, `tablet` or `bot`, by `User-Agent`. `image-format`: `avif`, `webp` or `other`, by `Accept`.
    /// `language:en,de`: the one of these languages that the client prefers, otherwise the first. `cookie:NAME`: the
    /// values of all cookies with this name. `has-cookie:PATTERN`: whether a cookie with such a name is present.
    /// `header:NAME`: all lines of a field. The key has every value that the origin may read. A request bypasses the
    /// cache if its cookies or lines are longer than 128 bytes, if origins may find other cookies of the name in it, as
    /// in `a=1, NAME=2`, or for `device` if it has two `User-Agent`. A later rule replaces the whole list.
    "key" setting: ListOf(Text {
            name: "list of classes",
            noun_phrase: "a class",
            example: r#""device""#,
            parse: str::parse::<Class>,
        }),
        default "`[]`", example r#"key = ["device", "language:en,de", "cookie:currency"]"#,
        set: |rule, classes| rule.settings.key = Some(classes.into());
};

/// The names of parameters.
const fn names(example: &'static str) -> Text<Pattern, String> {
    Text {
        name: "list of patterns",
        noun_phrase: "a name",
        example,
        parse: parse_name,
    }
}

/// Parses a pattern of names of parameters.
fn parse_name(text: &str) -> Result<Pattern, String> {
    if text.is_empty() || text.contains(['=', '&', '?', '#']) {
        return Err(format!(
            "`{text}` is not the name of a parameter; write only the name, such as id, or a pattern such as utm_*"
        ));
    }
    Ok(Pattern::new(text))
}
