//! The conditions of a rule.

use edgeward_sites::{FieldCondition, Network, PathPattern};
use edgeward_types::Pattern;
use http::Method;

use super::RuleDraft;
use super::fields;
use super::keys::{Read, SiteKey};
use super::reader::{Entry, Reader};

const DEFAULT: &str = "all requests";

pub(super) const KEYS: &[SiteKey] = &[
    SiteKey {
        path: "path",
        kind: "glob, or list of globs",
        default: DEFAULT,
        example: r#"path = ["/static/*", "*.css"]"#,
        doc: "Globs of the whole path. `*` stands for any number of bytes, also slashes, so `/static/*` is a prefix. \
              Each other character stands for itself. Write them without percent-encoding, dot segments and \
              repeated slashes. All ways in which origins read a path are compared, so a rule for `/admin/*` denies \
              `/%61dmin//x` and `/x/..%2fadmin/`, and a rule for `/static/*` stores no response for \
              `/account/..%2fstatic/x` ([how](../how-to/sites.md#paths-that-origins-read-differently)). Letters are \
              compared in their case.",
        read: Read::Condition(|reader, entry, rule| {
            let parse = PathPattern::glob;
            if let Some(globs) = conditions(reader, entry, "a path", r#""/static/*""#, parse) {
                rule.condition.paths = globs;
            }
        }),
    },
    SiteKey {
        path: "path_regex",
        kind: "regular expression, or list of them",
        default: DEFAULT,
        example: r"path_regex = '^/user/([0-9]+)/avatar\.(png|jpe?g)$'",
        doc: "Regular expressions in the [syntax of the crate regex](https://docs.rs/regex/latest/regex/#syntax), \
              without look-around and backreferences. One of them must be found somewhere in the path; `^` and `$` \
              fix the start and the end. The path is compared as by `path`. In single quotes, TOML \
              keeps backslashes as they are. If a rule has exactly one expression, its templates can use the groups as \
              `${1}` to `${9}`. If a rule has `path` and `path_regex`, both must hold.",
        read: Read::Condition(path_regex),
    },
    SiteKey {
        path: "scheme",
        kind: "`\"http\"` or `\"https\"`",
        default: DEFAULT,
        example: r#"scheme = "http""#,
        doc: "The scheme by which the client sent the request: that of the listener, or the one that a trusted proxy \
              states ([how](../how-to/behind-a-proxy.md#the-scheme-of-the-client)).",
        read: Read::Condition(|reader, entry, rule| {
            let schemes = conditions(reader, entry, "a scheme", r#""http""#, parse_scheme);
            if let Some(schemes) = schemes {
                rule.condition.schemes = schemes;
            }
        }),
    },
    SiteKey {
        path: "method",
        kind: "method, or list of methods",
        default: DEFAULT,
        example: r#"method = ["POST", "PUT"]"#,
        doc: "Methods in upper case. `GET` does not include `HEAD`.",
        read: Read::Condition(|reader, entry, rule| {
            if let Some(methods) = conditions(reader, entry, "a method", r#""GET""#, parse_method) {
                rule.condition.methods = methods;
            }
        }),
    },
    SiteKey {
        path: "header",
        kind: "table of field names and patterns, or lists of patterns",
        default: DEFAULT,
        example: r#"header = { X-Country = ["DE", "AT"], Authorization = "*" }"#,
        doc: "Fields of the request. The value of each of these fields must match a pattern as a whole; `*` in a \
              pattern stands for any number of bytes. `\"*\"` holds if the field is present. Values are compared in \
              their case. If a request spells the name with `_` in place of `-`, the edge removes this field. If only \
              some lines of a field match, the rule \
              [restricts, and permits nothing](../how-to/sites.md#paths-that-origins-read-differently).",
        read: Read::Condition(header),
    },
    SiteKey {
        path: "cookie",
        kind: "pattern, or list of patterns",
        default: DEFAULT,
        example: r#"cookie = ["session", "wordpress_logged_in_*"]"#,
        doc: "Patterns of the names of cookies. The condition holds if the request has one cookie with such a name, as \
              sent, percent-decoded, or as PHP reads it: with `.`, space and `[` as `_`.",
        read: Read::Condition(|reader, entry, rule| {
            if let Some(cookies) = conditions(reader, entry, "a name", r#""session""#, parse_name) {
                rule.condition.cookies = cookies;
            }
        }),
    },
    SiteKey {
        path: "parameter",
        kind: "pattern, or list of patterns",
        default: DEFAULT,
        example: r#"parameter = "preview""#,
        doc: "Patterns of the names of query parameters. The condition holds if the query has one parameter with such \
              a name, as sent, percent-decoded, or as PHP reads it: with `.` and space as `_`, without an index in \
              brackets. `&` and `;` separate parameters.",
        read: Read::Condition(|reader, entry, rule| {
            if let Some(names) = conditions(reader, entry, "a name", r#""preview""#, parse_name) {
                rule.condition.parameters = names;
            }
        }),
    },
    SiteKey {
        path: "client",
        kind: "network, or list of networks",
        default: DEFAULT,
        example: r#"client = ["10.0.0.0/8", "2001:db8::/32"]"#,
        doc: "Networks or addresses of the client: the peer of the connection. If the peer is in \
              `forwarding.trusted_proxies`, it is the rightmost address in `forwarding.client_field` that is not.",
        read: Read::Condition(|reader, entry, rule| {
            let parse = str::parse::<Network>;
            if let Some(clients) = conditions(reader, entry, "a network", r#""10.0.0.0/8""#, parse)
            {
                rule.condition.clients = clients;
            }
        }),
    },
];

/// Parses the members of a condition. An empty list is refused: it reads like a condition that never holds, but a rule
/// without a condition always applies.
fn conditions<T, E: std::fmt::Display>(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    noun_phrase: &str,
    example: &str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Option<Vec<T>> {
    let values = reader.parse_list(entry, noun_phrase, example, parse)?;
    if values.is_empty() {
        reject_empty(reader, entry);
        return None;
    }
    Some(values)
}

fn reject_empty(reader: &mut Reader<'_>, entry: &Entry<'_>) {
    reader.reject(
        entry,
        "is empty",
        "remove the key: a rule without a condition applies to all requests",
    );
}

fn path_regex(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &mut RuleDraft) {
    let members = reader.members(entry);
    if members.is_empty() {
        reject_empty(reader, entry);
    }
    for member in &members {
        rule.condition.path_regexes.extend(reader.regex(member));
    }
}

fn header(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &mut RuleDraft) {
    let members = reader.table(entry, "a table of field names", r#"{ X-Country = "DE" }"#);
    if members.is_empty() && entry.is_table() {
        reject_empty(reader, entry);
    }
    for (name, member) in members {
        let parse = |text: &str| Ok::<_, std::convert::Infallible>(Pattern::new(text));
        let name = fields::name(reader, &member, name);
        let values = conditions(reader, &member, "a pattern", r#""DE""#, parse);
        if let (Some(name), Some(values)) = (name, values) {
            let fields = &mut rule.condition.fields;
            if fields.iter().any(|known| known.name == name) {
                reader.reject(
                    &member,
                    "is given twice",
                    "names of fields have no case: remove one",
                );
                continue;
            }
            fields.push(FieldCondition { name, values });
        }
    }
}

fn parse_scheme(text: &str) -> Result<Box<str>, String> {
    match text {
        "http" | "https" => Ok(text.into()),
        _ => Err(format!("`{text}` is not a scheme; write http or https")),
    }
}

fn parse_method(text: &str) -> Result<Method, String> {
    let upper = text.to_ascii_uppercase();
    match Method::from_bytes(text.as_bytes()) {
        Ok(method) if upper == text => Ok(method),
        Ok(_) => Err(format!("`{text}` is not in upper case; write {upper}")),
        Err(_) => Err(format!("`{text}` is not a method; write GET, for example")),
    }
}

/// Parses a pattern of names of cookies or parameters.
fn parse_name(text: &str) -> Result<Pattern, String> {
    if text.is_empty() || text.contains(['=', ';', '&']) {
        return Err(format!(
            "`{text}` is not a name; write only the name, such as session, or a pattern such as wordpress_*"
        ));
    }
    Ok(Pattern::new(text))
}
