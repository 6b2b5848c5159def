//! The requests by which plugins of content management systems purge: their methods, and the fields that select.
//!
//! **The rule**: a purge covers at least what its selectors state, or it is refused. [`FIELDS`] lists all selectors. A
//! field that looks like another selector, a value whose form is unknown, and selectors that cannot be combined are
//! errors. A cache that ignored such a selector would answer 200 and purge nothing, or purge another object.
//!
//! | plugin | request |
//! |---|---|
//! | WordPress: Proxy Cache Purge, WP Rocket | `PURGE /blog/.*` with `X-Purge-Method: regex`; `PURGE /page` |
//! | WordPress: Nginx Helper | `PURGE /img/*` |
//! | Magento 2 | `PURGE /` with `X-Magento-Tags-Pattern: ((^\|,)cat_p_1(,\|$))`, or `.*` for all objects |
//! | Drupal: Purge, Varnish purger | `BAN /` with `Cache-Tags: node:5\|node_list` |
//! | FOSHttpCache | `BAN /` with `X-Cache-Tags: (^\|,)(a\|b)(,\|$)`, `X-Host`, `X-Url`, `X-Content-Type: .*` |
//! | FOSHttpCache with xkey | `PURGEKEYS /` with `xkey-softpurge: a b` or `xkey-purge: a b` |
//!
//! Plugins send regular expressions, because Varnish compares them. This cache compares exact tags and patterns with
//! `*`. It therefore reads only those expressions that have an equivalent, and refuses all others.

use crate::methods::METHODS;
use crate::scope::{Scope, ScopeError};
use crate::tags::visit_tags;

/// The objects that a request with one of [`METHODS`] purges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedPurge {
    /// The objects.
    pub selection: Selection,
    /// True if the objects become stale; false if they must not be used again.
    pub soft: bool,
}

/// The objects that the selectors of a request cover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The object of the request's target, for all schemes.
    Target,
    /// The objects of these scopes. There is at least one.
    Scopes(Vec<Scope>),
}

/// The reason why a request does not state what to purge.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorError {
    /// The method purges in other caches, but not in this one.
    #[error("the method `{0}` purges nothing here; send PURGE, BAN or PURGEKEYS")]
    Method(Box<str>),
    /// A field looks like a selector and is not one of `FIELDS`.
    #[error(
        "the field `{0}` is not a selector of this cache; docs/how-to/purge.md lists the selectors"
    )]
    Field(Box<str>),
    /// The value of a selector has no form that this cache supports.
    #[error("`{field}: {value}` is not supported; write {form}")]
    Value {
        /// The name of the field.
        field: Box<str>,
        /// Its value.
        value: Box<str>,
        /// A supported form.
        form: &'static str,
    },
    /// The target is an expression that this cache does not support.
    #[error(
        "the target `{0}` is not supported with `X-Purge-Method: regex`; write text, `\\.` and `.*`"
    )]
    Target(Box<str>),
    /// The request has selectors that restrict each other.
    #[error(
        "tags cannot be combined with a URL, a host or a method of purging; send one request for each"
    )]
    Combined,
    /// The method needs tags, and the request has none.
    #[error("PURGEKEYS needs tags, for example `xkey-purge: a b`")]
    NoTags,
    /// A text is not a scope.
    #[error("{0}")]
    Scope(#[from] ScopeError),
}

/// How the value of a selector is read.
#[derive(Clone, Copy)]
enum Reading {
    /// The tags of the response field with this name.
    TagsOf(&'static str),
    /// Tags, as a list or as an expression. The tags of some plugins are in response fields of the same name.
    TagExpression,
    /// Like `TagsOf("xkey")`, and the purge is soft.
    SoftTags,
    /// `regex`: the target is an expression. `default` and `exact`: the target is a URL.
    PurgeMethod,
    /// Hosts, as an expression. `.*` covers all.
    Hosts,
    /// URLs without scheme and host, as an expression. `.*` covers all.
    Url,
    /// The media type. Only `.*` is supported.
    MediaType,
    /// `1` makes the purge soft, `0` hard.
    Soft,
}

/// The selectors. Names are in lower case.
const FIELDS: [(&str, Reading); 19] = [
    ("surrogate-key", Reading::TagsOf("surrogate-key")),
    ("xkey", Reading::TagsOf("xkey")),
    ("xkey-purge", Reading::TagsOf("xkey")),
    ("xkey-softpurge", Reading::SoftTags),
    ("cache-tag", Reading::TagsOf("cache-tag")),
    ("cache-groups", Reading::TagsOf("cache-groups")),
    ("edge-cache-tag", Reading::TagExpression),
    ("cache-tags", Reading::TagExpression),
    ("purge-cache-tags", Reading::TagExpression),
    ("x-cache-tags", Reading::TagExpression),
    ("x-drupal-cache-tags", Reading::TagExpression),
    ("x-magento-tags", Reading::TagExpression),
    ("x-magento-tags-pattern", Reading::TagExpression),
    ("x-tag", Reading::TagExpression),
    ("x-purge-method", Reading::PurgeMethod),
    ("x-host", Reading::Hosts),
    ("x-url", Reading::Url),
    ("x-content-type", Reading::MediaType),
    ("soft-purge", Reading::Soft),
];

/// Names of [`FIELDS`] that other products use.
const ALIASES: [(&str, &str); 1] = [("fastly-soft-purge", "soft-purge")];

/// Names, and words between the hyphens of names, by which a field looks like a selector.
const SELECTOR_WORDS: [&str; 15] = [
    "ban",
    "bans",
    "invalidate",
    "invalidation",
    "key",
    "keys",
    "pattern",
    "patterns",
    "purge",
    "regex",
    "softpurge",
    "tag",
    "tags",
    "x-location-id",
    "xkey",
];

/// Words of names that authenticate a client or open a WebSocket. Such a field selects nothing.
const OTHER_WORDS: [&str; 5] = ["api", "auth", "secret", "token", "websocket"];

impl SelectedPurge {
    /// Reads the selectors of a request for which [`is_purge_method`](crate::is_purge_method) is true. `authority` and
    /// `target` are canonical; `fields` are all fields as received, with names in lower case.
    pub fn read<'f>(
        method: &str,
        authority: &str,
        target: &str,
        fields: impl IntoIterator<Item = (&'f str, &'f [u8])>,
    ) -> Result<Self, SelectorError> {
        if !METHODS.contains(&method) {
            return Err(SelectorError::Method(method.into()));
        }
        let mut read = Selectors::default();
        for (name, value) in fields {
            read.add(name, value)?;
        }
        let soft = read.soft;
        let (is_any_host, is_any_url) = (read.is_any_host(), read.is_any_url());
        let scopes = if read.has_tags {
            if read.by_expression || !is_any_host || !is_any_url {
                return Err(SelectorError::Combined);
            }
            read.tags
        } else if method == "PURGEKEYS" {
            return Err(SelectorError::NoTags);
        } else if read.covers_all || read.hosts.is_some() || read.url.is_some() {
            if read.by_expression {
                return Err(SelectorError::Combined);
            }
            let url = read.url.as_deref().unwrap_or(ANY_URL);
            let hosts = read.hosts.unwrap_or_else(|| vec![ANY_HOST.to_owned()]);
            let patterns = hosts
                .iter()
                .map(|host| Scope::pattern(&format!("{host}{url}")));
            patterns.collect::<Result<_, _>>()?
        } else if read.by_expression || method == "BAN" || target.contains('*') {
            // In a pattern, `.*` means the same as `*`.
            let glob = match read.by_expression {
                true => url_glob(target, true),
                false => Some(target.replace(".*", "*")),
            };
            let glob = glob.ok_or_else(|| SelectorError::Target(target.into()))?;
            vec![Scope::pattern(&format!("{authority}{glob}"))?]
        } else {
            let selection = Selection::Target;
            return Ok(Self { selection, soft });
        };
        let selection = Selection::Scopes(scopes);
        Ok(Self { selection, soft })
    }
}

/// The selectors that were read so far.
#[derive(Default)]
struct Selectors {
    has_tags: bool,
    tags: Vec<Scope>,
    soft: bool,
    /// True after `X-Purge-Method: regex`.
    by_expression: bool,
    /// True if the tags of a selector are `.*`.
    covers_all: bool,
    /// Patterns of hosts.
    hosts: Option<Vec<String>>,
    /// A pattern of paths.
    url: Option<String>,
}

impl Selectors {
    fn is_any_host(&self) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| *hosts == [ANY_HOST])
    }

    fn is_any_url(&self) -> bool {
        self.url.as_ref().is_none_or(|url| url == ANY_URL)
    }

    fn add(&mut self, name: &str, value: &[u8]) -> Result<(), SelectorError> {
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
        let own = alias.map_or(name, |(_, own)| own);
        let Some((_, reading)) = FIELDS.iter().find(|(field, _)| *field == own) else {
            let has = |words: &[&str]| {
                words.contains(&name) || name.split('-').any(|word| words.contains(&word))
            };
            return match has(&SELECTOR_WORDS) && !has(&OTHER_WORDS) {
                true => Err(SelectorError::Field(name.into())),
                false => Ok(()),
            };
        };
        let text = String::from_utf8_lossy(value);
        let text = text.trim();
        let unsupported = |form| SelectorError::Value {
            field: name.into(),
            value: text.into(),
            form,
        };
        match reading {
            Reading::TagsOf(field) => self.add_tags_of(field, value, unsupported)?,
            Reading::SoftTags => {
                self.soft = true;
                self.add_tags_of("xkey", value, unsupported)?;
            }
            Reading::TagExpression => match Expression::read(text) {
                Some(Expression::All) => self.covers_all = true,
                Some(Expression::Texts(texts)) => {
                    self.has_tags = true;
                    for text in texts {
                        self.tags.push(Scope::tag(&text)?);
                    }
                }
                None => {
                    return Err(unsupported(
                        "tags such as `a,b`, `a|b` or `(^|,)(a|b)(,|$)`, or `.*`",
                    ));
                }
            },
            Reading::PurgeMethod => match text.to_ascii_lowercase().as_str() {
                "regex" => self.by_expression = true,
                "default" | "exact" => {}
                _ => return Err(unsupported("`regex`, `default` or `exact`")),
            },
            Reading::Hosts => match Expression::read(text) {
                Some(Expression::All) => self.hosts = Some(vec![ANY_HOST.to_owned()]),
                Some(Expression::Texts(texts)) => self.hosts = Some(texts),
                None => return Err(unsupported("hosts such as `^(a|b)$`, or `.*`")),
            },
            Reading::Url if text == ".*" => self.url = Some(ANY_URL.to_owned()),
            Reading::Url => match url_glob(text, false) {
                Some(glob) => self.url = Some(glob),
                None => return Err(unsupported("a path with `.*`, such as `^/blog/.*$`")),
            },
            Reading::MediaType if text == ".*" => {}
            Reading::MediaType => return Err(unsupported("`.*`")),
            Reading::Soft => match text {
                "1" => self.soft = true,
                "0" => {}
                _ => return Err(unsupported("1 or 0")),
            },
        }
        Ok(())
    }

    fn add_tags_of(
        &mut self,
        field: &str,
        value: &[u8],
        unsupported: impl Fn(&'static str) -> SelectorError,
    ) -> Result<(), SelectorError> {
        let before = self.tags.len();
        let mut invalid = None;
        visit_tags(field.as_bytes(), value, |tag| {
            match Scope::tag(&String::from_utf8_lossy(tag)) {
                Ok(scope) => self.tags.push(scope),
                Err(error) => invalid = Some(error),
            }
        });
        self.has_tags = true;
        match invalid {
            Some(error) => Err(error.into()),
            None if self.tags.len() == before => Err(unsupported("one tag at least")),
            None => Ok(()),
        }
    }
}

/// A regular expression that is equivalent to a list of texts, or covers all texts.
enum Expression {
    All,
    Texts(Vec<String>),
}

impl Expression {
    /// Reads a list with commas or spaces, or an expression of the form `(^|,)(a|b)(,|$)` or `((^|,)a(,|$))|…`. Returns
    /// `None` for another expression. A dot is a dot, because plugins do not escape the dots in tags.
    fn read(text: &str) -> Option<Self> {
        if text == ".*" {
            return Some(Self::All);
        }
        let mut texts = Vec::new();
        let mut own = String::new();
        let mut depth = 0_u32;
        // True behind the end of an alternative, where no text may follow.
        let mut is_closed = false;
        let mut rest = text;
        loop {
            if let Some(after) = BOUNDARIES
                .iter()
                .find_map(|boundary| rest.strip_prefix(boundary))
            {
                is_closed |= !own.is_empty();
                rest = after;
                continue;
            }
            let mut chars = rest.chars();
            let Some(next) = chars.next() else { break };
            let is_separator = matches!(next, ',' | ' ' | '\t') && depth == 0;
            match next {
                '(' if own.is_empty() => depth += 1,
                ')' if depth > 0 && (is_closed || !own.is_empty()) => {
                    depth -= 1;
                    is_closed = true;
                }
                '^' if own.is_empty() => {}
                '$' if !own.is_empty() => is_closed = true,
                '|' | ',' | ' ' | '\t' if next == '|' || is_separator => {
                    if own.is_empty() && next == '|' {
                        return None; // an empty alternative matches everything
                    }
                    if !own.is_empty() {
                        texts.push(std::mem::take(&mut own));
                    }
                    is_closed = false;
                }
                _ if is_closed => return None,
                '\\' => match chars.next() {
                    Some(escaped) if escaped.is_ascii_punctuation() => own.push(escaped),
                    _ => return None,
                },
                '.' if rest[1..].starts_with(['*', '+', '?', '{']) => return None,
                '(' | ')' | '^' | '$' | '*' | '+' | '?' | '[' | ']' | '{' | '}' | ',' | ' '
                | '\t' => return None,
                _ => own.push(next),
            }
            rest = chars.as_str();
        }
        if !own.is_empty() {
            texts.push(own);
        }
        (depth == 0 && !texts.is_empty() && !text.ends_with('|')).then_some(Self::Texts(texts))
    }
}

/// The expressions for the start or the end of a tag in a list.
const BOUNDARIES: [&str; 10] = [
    "(^|,)", "(,|$)", r"(^|\s)", r"(\s|$)", "(^| )", "( |$)", "(^|[ ,])", "([ ,]|$)", r"(^|\|)",
    r"(\||$)",
];

/// Returns a pattern with `*` that covers the paths of a regular expression at least, or `None` if the expression has
/// more than text, `\.`, `.` and `.*`. The start of a target is the start of the path.
fn url_glob(expression: &str, is_target: bool) -> Option<String> {
    let (is_anchored, text) = match expression.strip_prefix('^') {
        Some(text) => (true, text),
        None => (is_target, expression),
    };
    let (is_closed, text) = match text.strip_suffix('$') {
        Some(text) if !text.ends_with('\\') => (true, text),
        _ => (false, text),
    };
    let mut glob = String::new();
    // A path begins with a slash, behind which an expression may match anywhere.
    match (is_anchored, text.starts_with('/')) {
        (true, true) => {}
        (false, true) => glob.push('*'),
        (false, false) => glob.push_str("/*"),
        (true, false) => return text.starts_with(".*").then(|| "/*".to_owned()),
    }
    let mut chars = text.chars().peekable();
    while let Some(next) = chars.next() {
        match next {
            '.' => {
                chars.next_if(|next| matches!(next, '*' | '+'));
                glob.push('*');
            }
            '\\' => glob.push(chars.next().filter(char::is_ascii_punctuation)?),
            '?' if is_target => glob.push('?'), // the start of the query
            '^' | '$' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' => return None,
            _ => glob.push(next),
        }
    }
    if !is_closed && !glob.ends_with('*') {
        glob.push('*');
    }
    Some(glob)
}

/// The patterns of all hosts and of all paths.
const ANY_HOST: &str = "*";
const ANY_URL: &str = "/*";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tags::TAG_FIELDS;

    fn read(
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
    ) -> Result<SelectedPurge, SelectorError> {
        let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
        SelectedPurge::read(method, "h.example", target, fields)
    }

    /// Returns the scopes as text, or `target`.
    fn selected(method: &str, target: &str, fields: &[(&str, &str)]) -> String {
        match read(method, target, fields) {
            Ok(SelectedPurge {
                selection: Selection::Target,
                ..
            }) => "target".to_owned(),
            Ok(SelectedPurge {
                selection: Selection::Scopes(scopes),
                ..
            }) => {
                let texts = scopes
                    .iter()
                    .map(|scope| format!("{} {scope}", scope.kind()));
                texts.collect::<Vec<_>>().join("; ")
            }
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn each_plugin_purges_what_its_selector_states() {
        let any = [("x-host", ".*"), ("x-url", ".*"), ("x-content-type", ".*")];
        let fos = |name, value| [&any[..], &[(name, value)]].concat();
        type Fields = Vec<(&'static str, &'static str)>;
        let table: [(&str, &str, Fields, &str); 24] = [
            ("PURGE", "/a?b", vec![], "target"),
            ("PURGE", "/a", vec![("x-purge-method", "default")], "target"),
            (
                "PURGE",
                "/.*",
                vec![("x-purge-method", "regex")],
                "pattern h.example/*",
            ),
            (
                "PURGE",
                "/b.d/.*",
                vec![("x-purge-method", "Regex")],
                "pattern h.example/b*d/*",
            ),
            (
                "PURGE",
                r"/a\.html$",
                vec![("x-purge-method", "regex")],
                "pattern h.example/a.html",
            ),
            ("PURGE", "/img/*", vec![], "pattern h.example/img/*"),
            (
                "PURGE",
                "/",
                vec![("x-magento-tags-pattern", "((^|,)cat_p_1(,|$))")],
                "tag cat_p_1",
            ),
            (
                "PURGE",
                "/",
                vec![(
                    "x-magento-tags-pattern",
                    "((^|,)cat_p_1(,|$))|((^|,)FPC(,|$))",
                )],
                "tag cat_p_1; tag FPC",
            ),
            (
                "PURGE",
                "/",
                vec![("x-magento-tags-pattern", ".*")],
                "pattern */*",
            ),
            ("BAN", "/", vec![("cache-tags", "node:5")], "tag node:5"),
            (
                "BAN",
                "/",
                vec![("cache-tags", "config:a.b|node_list")],
                "tag config:a.b; tag node_list",
            ),
            ("BAN", "/", vec![("cache-tags", "a b")], "tag a; tag b"),
            (
                "BAN",
                "/",
                fos("x-cache-tags", "(^|,)(a|b\\-c)(,|$)"),
                "tag a; tag b-c",
            ),
            ("BAN", "/", fos("x-cache-tags", "fos1"), "tag fos1"),
            ("BAN", "/", fos("x-url", "^/blog/.*$"), "pattern */blog/*"),
            (
                "BAN",
                "/",
                vec![("x-host", "^(a\\.b|C)$"), ("x-url", r"\.PNG$")],
                "pattern a.b/*.PNG; pattern c/*.PNG",
            ),
            ("BAN", "/", any.to_vec(), "pattern */*"),
            (
                "PURGEKEYS",
                "/",
                vec![("xkey-softpurge", "a b")],
                "tag a; tag b",
            ),
            ("PURGEKEYS", "/", vec![("xkey-purge", "a")], "tag a"),
            ("PURGE", "/", vec![("cache-tag", "a b,c")], "tag a b; tag c"),
            ("PURGE", "/", vec![("cache-groups", "\"a\"")], "tag a"),
            ("BAN", "/*.png", vec![], "pattern h.example/*.png"),
            ("BAN", "/blog/.*", vec![], "pattern h.example/blog/*"),
            (
                "PURGE",
                "/a",
                vec![
                    ("x-api-key", "1"),
                    ("accept", "*/*"),
                    ("x-purge-token", "s"),
                ],
                "target",
            ),
        ];
        for (method, target, fields, expected) in table {
            assert_eq!(
                selected(method, target, &fields),
                expected,
                "{method} {target} {fields:?}"
            );
        }
    }

    #[test]
    fn a_request_whose_selector_is_unknown_is_refused() {
        let regex = ("x-purge-method", "regex");
        type Fields<'a> = &'a [(&'a str, &'a str)];
        let table: [(&str, &str, Fields<'_>); 27] = [
            ("PURGEALL", "/", &[]),
            ("FULLBAN", "/", &[]),
            ("PURGEKEYS", "/", &[]),
            ("PURGE", "/", &[("x-purge-method", "wildcard")]),
            ("PURGE", "/(a|b)", &[regex]),
            ("PURGE", "/a+", &[regex]),
            ("PURGE", "/", &[("x-purge-regex", "/a")]),
            ("PURGE", "/", &[("x-ban-url", "/a")]),
            ("PURGE", "/", &[("x-cache-tags-pattern", "a")]),
            ("PURGE", "/", &[("surrogate-keys", "a")]),
            ("PURGE", "/", &[("key", "a")]),
            ("PURGE", "/", &[("x-location-id", "1")]),
            ("BAN", "/", &[("x-content-type", "text/html")]),
            ("BAN", "/", &[("x-url", "^/(a|b)$")]),
            ("BAN", "/", &[("x-host", "a.*")]),
            ("BAN", "/", &[("x-host", "a"), ("cache-tags", "b")]),
            ("PURGE", "/.*", &[regex, ("xkey", "b")]),
            ("PURGE", "/", &[("xkey", " ")]),
            ("PURGE", "/", &[("cache-groups", "a")]),
            ("PURGE", "/", &[("x-magento-tags-pattern", "cat_p_[0-9]+")]),
            ("PURGE", "/", &[("x-magento-tags-pattern", "a|")]),
            ("PURGE", "/", &[("x-magento-tags-pattern", "(a|)")]),
            ("PURGE", "/", &[("x-magento-tags-pattern", "(a")]),
            ("PURGE", "/", &[("x-magento-tags-pattern", "(a)b")]),
            ("PURGE", "/", &[("x-magento-tags-pattern", "a.+")]),
            ("PURGE", "/", &[("x-magento-tags-pattern", "*")]),
            ("PURGE", "/", &[("soft-purge", "yes")]),
        ];
        for (method, target, fields) in table {
            let selected = selected(method, target, fields);
            assert!(
                selected.starts_with("error: "),
                "{method} {target} {fields:?}: {selected}"
            );
        }
    }

    #[test]
    fn a_soft_purge_is_soft() {
        for (method, field, value, soft) in [
            ("PURGE", "soft-purge", "1", true),
            ("PURGE", "soft-purge", "0", false),
            ("BAN", "fastly-soft-purge", "1", true),
            ("PURGEKEYS", "xkey-softpurge", "a", true),
            ("PURGEKEYS", "xkey-purge", "a", false),
        ] {
            assert_eq!(
                read(method, "/", &[(field, value)]).map(|purge| purge.soft),
                Ok(soft),
                "{field}"
            );
        }
    }

    #[test]
    fn a_response_field_with_tags_is_a_selector() {
        for (name, _) in TAG_FIELDS {
            assert_eq!(selected("PURGE", "/", &[(name, "a")]), "tag a");
        }
    }
}
