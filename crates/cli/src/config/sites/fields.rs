//! Keys that change header fields: of the request to the origin, of the origin's response, and of the response to the
//! client.

use std::sync::Arc;

use edgeward_sites::{FieldChange, FieldChanges, PathPattern, Template, TemplateError};
use edgeward_types::Pattern;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HOST, HeaderName};

use super::draft::RuleDraft;
use super::reader::{Entry, Reader};
use super::row::{SiteKey, rows};
use super::values::{OrAll, Text};

const TABLE: &str = "table of field names and [templates](#templates)";

pub(super) static KEYS: &[SiteKey] = rows! {
    /// The names of the fields of the client's request that the origin gets; letter case is ignored. All others are
    /// removed, so a field that you do not know of cannot change a stored response. Fields that HTTP itself needs
    /// always remain: `Host`, those of the body such as `Content-Type`, `Accept-Encoding`, `Range`, conditions,
    /// `Cache-Control`, those of WebSocket, those against loops, and those in which trusted proxies state the client.
    /// An application with logins needs `authorization` and `cookie` in the list. `request.set` and `request.add` apply
    /// afterwards, `key` before. `"all"` undoes an earlier rule.
    "request.only" setting: OrAll(Text {
            name: "list of patterns",
            noun_phrase: "a name",
            example: r#"["user-agent"]"#,
            parse: name_pattern,
        }),
        default "`\"all\"`", example r#"request.only = ["accept", "accept-language", "user-agent"]"#,
        set: |rule, only| rule.settings.request_only = only.map(Into::into).into();

    /// Fields of the request that the origin gets. The field has this one line; lines that the client sent are removed.
    /// Each field is a key of its own: a rule makes at most one change of a field, and a later rule replaces the change
    /// of an earlier one. `Vary` compares the changed request. `Host` replaces `origin.host`; the cache key keeps the
    /// host of the client.
    "request.set" setting: TABLE,
        default "`{}`", example "request.set = { X-Client = \"${client}\", Host = \"app.internal\" }",
        read: |reader, entry, rule| set(reader, entry, rule, Message::Request);

    /// Lines that are added to fields of the request that the origin gets.
    "request.add" setting: TABLE,
        default "`{}`", example "request.add = { X-Forwarded-For = \"${client}\" }",
        read: |reader, entry, rule| add(reader, entry, rule, Message::Request);

    /// Fields of the client's request that the origin does not get.
    "request.remove" setting: "list of field names",
        default "`[]`", example "request.remove = [\"Cookie\"]",
        read: |reader, entry, rule| remove(reader, entry, rule, Message::Request);

    /// Fields of the request that this rule leaves as they are: it undoes the changes of earlier rules.
    "request.keep" setting: "list of field names",
        default "`[]`", example "request.keep = [\"Set-Cookie\"]",
        read: |reader, entry, rule| keep(reader, entry, rule, Message::Request);

    /// Fields of the origin's response, changed before the edge decides about storing it. Stored responses keep the
    /// change.
    "origin_response.set" setting: TABLE,
        default "`{}`", example "origin_response.set = { Cache-Control = \"public, max-age=60\" }",
        read: |reader, entry, rule| set(reader, entry, rule, Message::OriginResponse);

    /// Lines that are added to fields of the origin's response, as for `origin_response.set`.
    "origin_response.add" setting: TABLE,
        default "`{}`", example "origin_response.add = { Cache-Tag = \"shop\" }",
        read: |reader, entry, rule| add(reader, entry, rule, Message::OriginResponse);

    /// Fields that are removed from the origin's response, as for `origin_response.set`.
    "origin_response.remove" setting: "list of field names",
        default "`[]`", example "origin_response.remove = [\"Set-Cookie\", \"Vary\"]",
        read: |reader, entry, rule| remove(reader, entry, rule, Message::OriginResponse);

    /// Fields of the origin's response that this rule leaves as they are: it undoes the changes of earlier rules.
    "origin_response.keep" setting: "list of field names",
        default "`[]`", example "origin_response.keep = [\"Set-Cookie\"]",
        read: |reader, entry, rule| keep(reader, entry, rule, Message::OriginResponse);

    /// Fields of each response that a client gets, also of hits and of answers of the edge itself. The field has this
    /// one line.
    "response.set" setting: TABLE,
        default "`{}`", example "response.set = { Strict-Transport-Security = \"max-age=31536000\" }",
        read: |reader, entry, rule| set(reader, entry, rule, Message::Response);

    /// Lines that are added to fields of each response that a client gets.
    "response.add" setting: TABLE,
        default "`{}`", example "response.add = { Link = \"</style.css>; rel=preload\" }",
        read: |reader, entry, rule| add(reader, entry, rule, Message::Response);

    /// Fields that are removed from each response that a client gets.
    "response.remove" setting: "list of field names",
        default "`[]`", example "response.remove = [\"Server\", \"X-Powered-By\"]",
        read: |reader, entry, rule| remove(reader, entry, rule, Message::Response);

    /// Fields of responses that this rule leaves as they are: it undoes the changes of earlier rules.
    "response.keep" setting: "list of field names",
        default "`[]`", example "response.keep = [\"Set-Cookie\"]",
        read: |reader, entry, rule| keep(reader, entry, rule, Message::Response);
};

/// The message whose fields are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    Request,
    OriginResponse,
    Response,
}

impl Message {
    fn changes(self, rule: &mut RuleDraft) -> &mut FieldChanges {
        match self {
            Self::Request => &mut rule.settings.request,
            Self::OriginResponse => &mut rule.settings.origin_response,
            Self::Response => &mut rule.settings.response,
        }
    }

    /// Returns why rules must not change a field, if so.
    fn refusal(self, name: &HeaderName, sets: bool) -> Option<&'static str> {
        if HOP_BY_HOP.contains(&name.as_str()) {
            return Some("concerns one connection, so each side writes its own (RFC 9110 §7.6.1)");
        }
        if *name == CONTENT_LENGTH {
            return Some("states where the body ends, so only the sender of the body can write it");
        }
        match self {
            Self::Request if *name == HOST && !sets => {
                Some("occurs exactly once in a request: request.set can replace it")
            }
            Self::Request if CONDITIONS.contains(&name.as_str()) => {
                Some("is written by the edge, for validations and for slices of large responses")
            }
            Self::OriginResponse | Self::Response if *name == HOST => {
                Some("is a field of requests")
            }
            Self::OriginResponse | Self::Response if *name == CONTENT_RANGE => {
                Some("states which part of a response the body is, so only its sender can write it")
            }
            _ => None,
        }
    }
}

/// The fields that `edgeward_semantics::hop_by_hop` does not forward.
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Fields by which the edge requests a validation or a part of a response.
const CONDITIONS: [&str; 6] = [
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "range",
];

/// Parses a pattern of names of fields.
fn name_pattern(text: &str) -> Result<Pattern, String> {
    if HeaderName::from_bytes(text.as_bytes()).is_err() {
        return Err(format!(
            "`{text}` is not the name of a field; use letters, digits, hyphens and the wildcard *"
        ));
    }
    Ok(Pattern::new(&text.to_ascii_lowercase()))
}

fn set(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &mut RuleDraft, message: Message) {
    for (name, member) in reader.table(entry, "a table of field names", "{ X-Name = \"value\" }") {
        let value = value_template(reader, &member, rule);
        if let (Some(value), Some(name)) =
            (value, changed_name(reader, &member, name, message, true))
        {
            let value = Arc::new(value);
            change(
                reader,
                &member,
                rule,
                message,
                name,
                Some(FieldChange::Set(value)),
            );
        }
    }
}

fn add(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &mut RuleDraft, message: Message) {
    for (name, member) in reader.table(entry, "a table of field names", "{ X-Name = \"value\" }") {
        let value = value_template(reader, &member, rule);
        if let (Some(value), Some(name)) =
            (value, changed_name(reader, &member, name, message, false))
        {
            let value = Arc::new(value);
            change(
                reader,
                &member,
                rule,
                message,
                name,
                Some(FieldChange::Add(value)),
            );
        }
    }
}

fn remove(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &mut RuleDraft, message: Message) {
    for member in reader.members(entry) {
        let Some(text) = reader.text(&member, "the name of a field", "[\"X-Name\"]") else {
            continue;
        };
        if let Some(name) = changed_name(reader, &member, text, message, false) {
            let removal = Some(FieldChange::Remove);
            change(reader, &member, rule, message, name, removal);
        }
    }
}

fn keep(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &mut RuleDraft, message: Message) {
    for member in reader.members(entry) {
        let text = reader.text(&member, "the name of a field", "[\"X-Name\"]");
        if let Some(name) = text.and_then(|text| name(reader, &member, text)) {
            change(reader, &member, rule, message, name, None);
        }
    }
}

/// Adds a change, or with `None` keeps the field. A second change of a field in one rule is an error, because no order
/// decides between the two.
fn change(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    rule: &mut RuleDraft,
    message: Message,
    name: HeaderName,
    change: Option<FieldChange>,
) {
    let changes = message.changes(rule);
    if changes.names(&name) {
        let reason = format_args!("changes {name} a second time in this rule");
        reader.reject(
            entry,
            reason,
            "keep one change, or write the second one in a later rule",
        );
        return;
    }
    match change {
        Some(change) => changes.insert(name, change),
        None => changes.keep(name),
    }
}

/// Parses the name of a field.
pub(super) fn name(reader: &mut Reader<'_>, entry: &Entry<'_>, text: &str) -> Option<HeaderName> {
    let name = HeaderName::from_bytes(text.as_bytes());
    if name.is_err() {
        let reason = format_args!("has `{text}`, which is not the name of a field");
        reader.reject(entry, reason, "use letters, digits and hyphens");
    }
    name.ok()
}

fn changed_name(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    text: &str,
    message: Message,
    sets: bool,
) -> Option<HeaderName> {
    let name = name(reader, entry, text)?;
    if let Some(refusal) = message.refusal(&name, sets) {
        let reason = format_args!("cannot change {text}: it {refusal}");
        reader.reject(entry, reason, "remove it");
        return None;
    }
    Some(name)
}

/// Parses the name of a field of the origin's response that rules may change.
pub(super) fn changed_name_of_origin(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    text: &str,
) -> Option<HeaderName> {
    changed_name(reader, entry, text, Message::OriginResponse, true)
}

fn value_template(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    rule: &RuleDraft,
) -> Option<Template> {
    let text = reader.text(entry, "a template", "\"value\"")?;
    if text.is_empty() {
        let hint = "list the name in remove, to remove the field";
        reader.reject(entry, "is an empty value", hint);
        return None;
    }
    if text.trim() != text {
        let hint = "remove the spaces: they are not part of the value of a field";
        reader.reject(entry, "begins or ends with a space", hint);
        return None;
    }
    template(reader, entry, "\"value\"", rule)
}

/// Parses a template. Its groups are those of the rule's only regular expression.
pub(super) fn template(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    example: &str,
    rule: &RuleDraft,
) -> Option<Template> {
    let text = reader.text(entry, "a template", example)?;
    let regex = match &*rule.condition.path_regexes {
        [PathPattern::Regex(regex)] => Some(regex),
        _ => None,
    };
    let template = Template::new(text, regex);
    // If the expression has an error, which was reported, its groups are unknown.
    let is_unknown = rule.is_given("path_regex") && rule.condition.path_regexes.is_empty();
    if is_unknown && matches!(template, Err(TemplateError::NoGroup(_))) {
        return None;
    }
    reader.parse(entry, "a template", example, |_| template)
}
