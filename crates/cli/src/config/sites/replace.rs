//! Keys that replace strings in the origin's responses.

use std::sync::Arc;

use edgeward_sites::{Replacement, Replacements};
use edgeward_types::Pattern;

use super::draft::RuleDraft;
use super::fields;
use super::reader::{Entry, Reader};
use super::row::{SiteKey, rows};
use super::values::{ListOf, Text};

const EXAMPLE: &str = r#"{ from = "https://files.example", to = "https://files.example.org" }"#;

pub(super) static KEYS: &[SiteKey] = rows! {
    /// Strings that are replaced in bodies of the origin, once, before a body is stored: a hit costs nothing. `from` is
    /// a literal text of at most 1024 bytes, and upper and lower case differ. `to` is a [template](#templates) with no
    /// other variables than `${scheme}` and `${host}`. Where several strings begin, the first one of the list is
    /// replaced. At most 32 strings; a later rule replaces the whole list. The edge asks the origin for complete bodies
    /// without a coding; a body that arrives with a coding stays as it is (`edgeward_replaced_bodies_total`).
    /// `Content-Length` and digests are removed, and `ETag` becomes weak. Stored bodies keep the old strings when this
    /// setting changes, until they are purged.
    "replace" setting: "list of tables with `from` and `to`",
        default "`[]`",
        example r#"replace = [{ from = "https://files.example/", to = "${scheme}://${host}/files/" }]"#,
        read: replace;

    /// The media types of the bodies in which `replace` replaces strings. `"*"` stands for all bodies, also for those
    /// without `Content-Type`. An empty list leaves all bodies as they are, so that only `replace_fields` counts.
    "replace_types" setting: ListOf(Text {
            name: "list of patterns",
            noun_phrase: "a media type",
            example: r#"["text/*"]"#,
            parse: media_type,
        }),
        default r#"`["text/*", "application/json", "application/javascript", "application/xml", "*+json", "*+xml"]`"#,
        example r#"replace_types = ["text/html", "application/vnd.*"]"#,
        set: |rule, types| rule.settings.replace_types = Some(types.into());

    /// Fields of the origin's response in which `replace` replaces strings too, whatever the type of the body.
    "replace_fields" setting: "list of field names",
        default "`[]`", example r#"replace_fields = ["Location", "WWW-Authenticate"]"#,
        read: |reader, entry, rule| {
            let members = reader.members(entry);
            let names = members.iter().filter_map(|member| {
                let text = reader.text(member, "the name of a field", r#"["Location"]"#)?;
                fields::changed_name_of_origin(reader, member, text)
            });
            rule.settings.replace_fields = Some(names.collect());
        };
};

fn media_type(text: &str) -> Result<Pattern, &'static str> {
    let is_valid = |byte: u8| byte.is_ascii_graphic() && !b";,\"".contains(&byte);
    match text.is_empty() || !text.bytes().all(is_valid) {
        true => Err("is not a media type without parameters"),
        false => Ok(Pattern::new(&text.to_ascii_lowercase())),
    }
}

fn replace(reader: &mut Reader<'_>, entry: &Entry<'_>, rule: &mut RuleDraft) {
    let members = reader.members(entry);
    let count = members.len();
    let list: Vec<_> = members
        .iter()
        .filter_map(|member| replacement(reader, member, rule))
        .collect();
    if list.len() < count {
        return; // an error was reported
    }
    match Replacements::new(list) {
        Ok(list) => rule.settings.replace = Some(Arc::new(list)),
        Err(error) => {
            let hint = format!("write for example replace = [{EXAMPLE}]");
            reader.reject(entry, error, hint);
        }
    }
}

fn replacement(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    rule: &RuleDraft,
) -> Option<Replacement> {
    if !entry.is_table() {
        reader.reject_type(entry, "a table with from and to", EXAMPLE);
        return None;
    }
    let (mut from, mut to) = (None, None);
    for (key, member) in reader.table(entry, "a table with from and to", EXAMPLE) {
        match key {
            "from" => from = Some(reader.text(&member, "a text", "\"https://files.example\"")?),
            "to" => {
                to = Some(fields::template(
                    reader,
                    &member,
                    "\"https://files.example.org\"",
                    rule,
                )?);
            }
            _ => {
                let hint = "use from and to";
                reader.reject(entry, format_args!("has the unknown key {key}"), hint);
                return None;
            }
        }
    }
    let (Some(from), Some(to)) = (from, to) else {
        reader.reject(
            entry,
            "has not both from and to",
            format!("write {EXAMPLE}"),
        );
        return None;
    };
    let from = from.into();
    Some(Replacement { from, to })
}
