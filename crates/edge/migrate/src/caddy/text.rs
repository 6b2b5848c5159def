//! Texts with placeholders as templates of the edge, and names of fields.

use crate::hosts::Reason;
use crate::values::is_field_name;

/// Returns a text with placeholders such as `{host}` as a template. `groups` is true if the rule has one expression.
pub(super) fn template(text: &str, groups: bool) -> Result<String, Reason> {
    let mut template = String::new();
    let mut rest = text;
    while let Some(start) = rest.find('{') {
        template.push_str(&rest[..start]);
        if template.ends_with('$') {
            return Err("the text has `${`, which begins a variable of the edge".to_owned());
        }
        let Some(end) = rest[start..].find('}') else {
            template.push_str(&rest[start..]);
            rest = "";
            break;
        };
        template.push_str(&placeholder(&rest[start + 1..start + end], groups)?);
        rest = &rest[start + end + 1..];
    }
    template.push_str(rest);
    match template.chars().any(char::is_control) {
        true => Err("the text has control characters, which no field may have".to_owned()),
        false => Ok(template),
    }
}

/// Returns the name of a field in lower case, without the sign of its change.
pub(super) fn plain_name(name: &str) -> String {
    name.trim_start_matches(['+', '-', '?', '>'])
        .to_ascii_lowercase()
}

fn placeholder(name: &str, groups: bool) -> Result<String, Reason> {
    let unknown = || format!("templates have no placeholder {{{name}}}");
    let plain = name.strip_prefix("http.request.").unwrap_or(name);
    Ok(match plain {
        "host" | "hostport" => "${host}",
        "uri" | "orig_uri" => "${uri}",
        "path" | "uri.path" | "orig_path" | "orig_uri.path" => "${path}",
        "query" | "uri.query" | "orig_query" => "${query}",
        "?query" => "?${query}",
        "scheme" => "${scheme}",
        "remote_host" | "remote.host" | "client_ip" | "http.vars.client_ip" => "${client}",
        _ => {
            if let Some(field) = plain.strip_prefix("header.")
                && is_field_name(field)
            {
                return Ok(format!("${{header.{field}}}"));
            }
            let group = name
                .strip_prefix("re.")
                .or_else(|| name.strip_prefix("http.regexp."))
                .and_then(|rest| rest.rsplit('.').next())
                .and_then(|group| group.parse::<u8>().ok());
            return match group {
                Some(group @ 1..=9) if groups => Ok(format!("${{{group}}}")),
                _ => Err(unknown()),
            };
        }
    }
    .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_variables_of_templates() {
        for (text, groups, expected) in [
            ("https://{host}{uri}", false, Some("https://${host}${uri}")),
            ("{http.request.header.X-A}", false, Some("${header.X-A}")),
            ("/a/{re.name.1}", true, Some("/a/${1}")),
            ("/a/{re.1}", false, None),
            ("{env.HOME}", false, None),
            ("${host}", false, None),
            ("a{", false, Some("a{")),
        ] {
            assert_eq!(template(text, groups).ok().as_deref(), expected, "{text}");
        }
    }
}
