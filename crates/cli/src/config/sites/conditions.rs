//! The conditions of a rule.

use edgeward_sites::{FieldCondition, Network, PathPattern};
use edgeward_types::Pattern;
use http::Method;

use super::draft::RuleDraft;
use super::fields;
use super::reader::{Entry, Reader};
use super::row::{SiteKey, rows};
use super::values::{AnyOf, SiteValue as _, Text, reject_empty};

const DEFAULT: &str = "all requests";

pub(super) static KEYS: &[SiteKey] = rows! {
    /// Globs of the whole path. `*` stands for any number of bytes, also slashes, so `/static/*` is a prefix. Each
    /// other character stands for itself. Write them without percent-encoding, dot segments and repeated slashes. All
    /// ways in which origins read a path are compared, so a rule for `/admin/*` denies `/%61dmin//x` and
    /// `/x/..%2fadmin/`, and a rule for `/static/*` stores no response for `/account/..%2fstatic/x`
    /// ([how](../how-to/sites.md#paths-that-origins-read-differently)). Letters are compared in their case.
    "path" condition: AnyOf(Text {
            name: "glob, or list of globs",
            noun_phrase: "a path",
            example: r#""/static/*""#,
            parse: PathPattern::glob,
        }) => paths,
        default DEFAULT, example r#"path = ["/static/*", "*.css"]"#;

    /// Regular expressions in the [syntax of the crate regex](https://docs.rs/regex/latest/regex/#syntax), without
    /// look-around and backreferences. One of them must be found somewhere in the path; `^` and `$` fix the start and
    /// the end. The path is compared as by `path`. In single quotes, TOML keeps backslashes as they are. If a rule has
    /// exactly one expression, its templates can use the groups as `${1}` to `${9}`. If a rule has `path` and
    /// `path_regex`, both must hold.
    "path_regex" condition: "regular expression, or list of them",
        default DEFAULT, example r"path_regex = '^/user/([0-9]+)/avatar\.(png|jpe?g)$'",
        read: path_regex;

    /// Regular expressions of the host of the request, for sites with `*` or `*.DOMAIN` in `hosts`. The host is
    /// compared in lower case and without its port. One of the expressions must be found somewhere in it; `^` and `$`
    /// fix the start and the end. Their groups are no variables of templates.
    "host_regex" condition: "regular expression, or list of them",
        default DEFAULT, example r"host_regex = '^[^.]+\.example\.com$'",
        read: host_regex;

    /// The scheme by which the client sent the request: that of the listener, or the one that a trusted proxy states
    /// ([how](../how-to/behind-a-proxy.md#the-scheme-of-the-client)).
    "scheme" condition: AnyOf(Text {
            name: "`\"http\"` or `\"https\"`",
            noun_phrase: "a scheme",
            example: r#""http""#,
            parse: parse_scheme,
        }) => schemes,
        default DEFAULT, example r#"scheme = "http""#;

    /// Methods in upper case. `GET` does not include `HEAD`.
    "method" condition: AnyOf(Text {
            name: "method, or list of methods",
            noun_phrase: "a method",
            example: r#""GET""#,
            parse: parse_method,
        }) => methods,
        default DEFAULT, example r#"method = ["POST", "PUT"]"#;

    /// Fields of the request. The value of each of these fields must match a pattern as a whole; `*` in a pattern
    /// stands for any number of bytes. `"*"` holds if the field is present. Values are compared in their case. If a
    /// request spells the name with `_` in place of `-`, the edge removes this field. If only some lines of a field
    /// match, the rule [restricts, and permits nothing](../how-to/sites.md#paths-that-origins-read-differently).
    "header" condition: "table of field names and patterns, or lists of patterns",
        default DEFAULT, example r#"header = { X-Country = ["DE", "AT"], Authorization = "*" }"#,
        read: header;

    /// Patterns of the names of cookies. The condition holds if the request has one cookie with such a name, as sent,
    /// percent-decoded, or as PHP reads it: with `.`, space and `[` as `_`.
    "cookie" condition: AnyOf(names(r#""session""#)) => cookies,
        default DEFAULT, example r#"cookie = ["session", "wordpress_logged_in_*"]"#;

    /// Patterns of the names of query parameters. The condition holds if the query has one parameter with such a name,
    /// as sent, percent-decoded, or as PHP reads it: with `.` and space as `_`, without an index in brackets. `&` and
    /// `;` separate parameters. `"*"` holds for each query that is not empty.
    "parameter" condition: AnyOf(names(r#""preview""#)) => parameters,
        default DEFAULT, example r#"parameter = "preview""#;

    /// Networks or addresses of the client: the peer of the connection. If the peer is in `forwarding.trusted_proxies`,
    /// it is the rightmost address in `forwarding.client_field` that is not.
    "client" condition: AnyOf(Text {
            name: "network, or list of networks",
            noun_phrase: "a network",
            example: r#""10.0.0.0/8""#,
            parse: str::parse::<Network>,
        }) => clients,
        default DEFAULT, example r#"client = ["10.0.0.0/8", "2001:db8::/32"]"#;
};

fn path_regex(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &mut RuleDraft) {
    rule.condition.path_regexes = expressions(reader, entry, r"'\.(png|jpe?g)$'");
}

fn host_regex(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &mut RuleDraft) {
    rule.condition.host_regexes = expressions(reader, entry, r"'^[^.]+\.example\.com$'");
}

fn expressions(reader: &mut Reader<'_>, entry: &Entry<'_>, example: &str) -> Vec<PathPattern> {
    let members = reader.members(entry);
    if members.is_empty() {
        reject_empty(reader, entry);
    }
    let parsed = members
        .iter()
        .filter_map(|member| reader.regex(member, example));
    parsed.collect()
}

fn header(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &mut RuleDraft) {
    let members = reader.table(entry, "a table of field names", r#"{ X-Country = "DE" }"#);
    if members.is_empty() && entry.is_table() {
        reject_empty(reader, entry);
    }
    for (name, member) in members {
        let name = fields::name(reader, &member, name);
        let values = AnyOf(Text {
            name: "pattern, or list of patterns",
            noun_phrase: "a pattern",
            example: r#""DE""#,
            parse: |text: &str| Ok::<_, std::convert::Infallible>(Pattern::new(text)),
        })
        .read(reader, &member);
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

/// The names of cookies or parameters.
const fn names(example: &'static str) -> Text<Pattern, String> {
    Text {
        name: "pattern, or list of patterns",
        noun_phrase: "a name",
        example,
        parse: parse_name,
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
