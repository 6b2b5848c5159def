//! Texts with variables, `https://${host}${uri}`, for redirects, rewritten paths and values of fields.

use std::fmt;

use http::header::{ACCEPT, HeaderName, USER_AGENT};
use regex::bytes::Regex;

use crate::class::{Device, ImageFormat};
use crate::condition::RequestView;
use crate::fields::first_line;

/// A text with variables that are replaced by parts of a request.
///
/// | variable | value |
/// |---|---|
/// | `${scheme}` | `http` or `https` |
/// | `${host}` | host and port of the request, as in the cache key |
/// | `${path}` | the path as sent |
/// | `${query}` | the query as sent, without `?` |
/// | `${uri}` | path and query as sent |
/// | `${client}` | the address of the client |
/// | `${device}` | `desktop`, `mobile`, `tablet` or `bot` ([`Device`]) |
/// | `${image_format}` | `avif`, `webp` or `other` ([`ImageFormat`]) |
/// | `${header.NAME}` | the first line of the request field, empty if absent |
/// | `${1}` to `${9}` | a group of the rule's `path_regex`, empty if it did not participate |
#[derive(Clone, Debug)]
pub struct Template {
    parts: Box<[Part]>,
    /// The expression whose groups the template uses.
    regex: Option<Regex>,
}

#[derive(Clone, Debug)]
enum Part {
    Text(Box<str>),
    Variable(Variable),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Variable {
    Scheme,
    Host,
    Path,
    Query,
    Uri,
    Client,
    Device,
    ImageFormat,
    Header(HeaderName),
    Group(usize),
}

/// The reason why a text is not a [`Template`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// `${` without `}`.
    #[error("`{0}` has a `${{` without `}}`")]
    Unclosed(Box<str>),
    /// The name of the variable is unknown.
    #[error(
        "${{{0}}} is not a variable; use scheme, host, path, query, uri, client, device, image_format, header.NAME, \
         or 1 to 9 for a group of path_regex"
    )]
    Unknown(Box<str>),
    /// The rule has no expression with such a group.
    #[error("${{{0}}} needs a path_regex with at least {0} groups in the same rule")]
    NoGroup(usize),
    /// The text has a byte that is allowed neither in targets nor in fields.
    #[error("`{0}` has a control character")]
    Control(Box<str>),
}

impl Template {
    /// Parses a template. `regex` is the `path_regex` of the same rule.
    pub fn new(text: &str, regex: Option<&Regex>) -> Result<Self, TemplateError> {
        if text.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(TemplateError::Control(
                text.escape_debug().to_string().into(),
            ));
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let (before, variable) = rest.split_at(start);
            let end = variable
                .find('}')
                .ok_or_else(|| TemplateError::Unclosed(text.into()))?;
            if !before.is_empty() {
                parts.push(Part::Text(before.into()));
            }
            parts.push(Part::Variable(parse_variable(&variable[2..end])?));
            rest = &variable[end + 1..];
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.into()));
        }
        let group_max = parts.iter().filter_map(|part| match part {
            Part::Variable(Variable::Group(number)) => Some(*number),
            _ => None,
        });
        let regex = match group_max.max() {
            None => None,
            Some(number) => match regex {
                Some(regex) if regex.captures_len() > number => Some(regex.clone()),
                _ => return Err(TemplateError::NoGroup(number)),
            },
        };
        Ok(Self {
            parts: parts.into(),
            regex,
        })
    }

    /// Returns the text if the template has no variable.
    pub fn fixed(&self) -> Option<&str> {
        match &*self.parts {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns the request fields that the template reads.
    pub(crate) fn fields(&self) -> impl Iterator<Item = HeaderName> {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable(Variable::Header(name)) => Some(name.clone()),
            Part::Variable(Variable::Device) => Some(USER_AGENT),
            Part::Variable(Variable::ImageFormat) => Some(ACCEPT),
            _ => None,
        })
    }

    /// Returns true if the text depends only on scheme and host of a request, which are a part of each cache key.
    pub fn is_of_site(&self) -> bool {
        let is_of_site = |part: &Part| {
            matches!(
                part,
                Part::Text(_) | Part::Variable(Variable::Scheme | Variable::Host)
            )
        };
        self.parts.iter().all(is_of_site)
    }

    /// Returns the text for a request as the value of a field. Control characters of variables are left out, so that a
    /// path with `%0d%0a` cannot begin another field.
    pub fn field_value(&self, request: &RequestView<'_>) -> Vec<u8> {
        let mut value = self.render(request, |bytes, out| out.extend_from_slice(bytes));
        value.retain(|byte| *byte == b'\t' || !byte.is_ascii_control());
        value
    }

    /// Returns the text for a request as a URL or a target. Bytes of groups, of request fields and of classes that a
    /// URL may not contain are percent-encoded, also `?`, `#` and `%`. In a query, `&`, `=`, `+` and `;` are encoded
    /// too: a value that a client chose is one value there, and adds no parameter. Path and query are inserted as sent,
    /// but control characters are encoded everywhere.
    pub fn url(&self, request: &RequestView<'_>) -> String {
        let mut bytes = self.render(request, |bytes, out| {
            let is_in_query = out.contains(&b'?');
            for &byte in bytes {
                let is_plain =
                    URL_BYTES.contains(&byte) && !(is_in_query && QUERY_DELIMITERS.contains(&byte));
                if byte.is_ascii_alphanumeric() || is_plain {
                    out.push(byte);
                } else {
                    out.extend_from_slice(format!("%{byte:02X}").as_bytes());
                }
            }
        });
        // `/b?${query}` of a request without a query is `/b`: the origin gets no `?` that the client did not send.
        let ends_with_query = matches!(self.parts.last(), Some(Part::Variable(Variable::Query)));
        if ends_with_query && request.query.is_empty() && matches!(bytes.last(), Some(b'?' | b'&'))
        {
            bytes.pop();
        }
        let mut url = String::with_capacity(bytes.len());
        for c in String::from_utf8_lossy(&bytes).chars() {
            // Targets and hosts are parsed before, so this is a second defence.
            if c.is_ascii_control() {
                url.push_str(&format!("%{:02X}", u32::from(c)));
            } else {
                url.push(c);
            }
        }
        url
    }

    /// Replaces the variables. `write` writes the variables whose bytes may be arbitrary.
    fn render(&self, request: &RequestView<'_>, write: impl Fn(&[u8], &mut Vec<u8>)) -> Vec<u8> {
        let captures = self
            .regex
            .as_ref()
            .and_then(|regex| request.path.iter().find_map(|path| regex.captures(path)));
        let mut out = Vec::with_capacity(64);
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Variable(variable) => match variable {
                    Variable::Scheme => out.extend_from_slice(request.scheme.as_bytes()),
                    Variable::Host => out.extend_from_slice(request.host.as_bytes()),
                    Variable::Path => out.extend_from_slice(request.sent_path.as_bytes()),
                    Variable::Query => out.extend_from_slice(request.query.as_bytes()),
                    Variable::Uri => {
                        out.extend_from_slice(request.sent_path.as_bytes());
                        if !request.query.is_empty() {
                            out.push(b'?');
                            out.extend_from_slice(request.query.as_bytes());
                        }
                    }
                    Variable::Client => {
                        let client = request.client.to_canonical().to_string();
                        out.extend_from_slice(client.as_bytes());
                    }
                    Variable::Device => {
                        out.extend_from_slice(Device::of(request.fields).as_str().as_bytes());
                    }
                    Variable::ImageFormat => {
                        let format = ImageFormat::of(request.fields);
                        out.extend_from_slice(format.as_str().as_bytes());
                    }
                    Variable::Header(name) => {
                        write(
                            &first_line(request.fields, name).unwrap_or_default(),
                            &mut out,
                        );
                    }
                    Variable::Group(number) => {
                        let group = captures.as_ref().and_then(|groups| groups.get(*number));
                        write(group.map_or(b"", |group| group.as_bytes()), &mut out);
                    }
                },
            }
        }
        out
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Text(text) => f.write_str(text)?,
                Part::Variable(Variable::Group(number)) => write!(f, "${{{number}}}")?,
                Part::Variable(Variable::Header(name)) => write!(f, "${{header.{name}}}")?,
                Part::Variable(variable) => {
                    let (name, _) = NAMES
                        .iter()
                        .find(|(_, named)| named == variable)
                        .expect("each other variable has a name");
                    write!(f, "${{{name}}}")?;
                }
            }
        }
        Ok(())
    }
}

fn parse_variable(name: &str) -> Result<Variable, TemplateError> {
    if let Some((_, variable)) = NAMES.iter().find(|(known, _)| *known == name) {
        return Ok(variable.clone());
    }
    let unknown = || TemplateError::Unknown(name.into());
    if let Some(header) = name.strip_prefix("header.") {
        return header.parse().map(Variable::Header).map_err(|_| unknown());
    }
    match name.as_bytes() {
        [digit @ b'1'..=b'9'] => Ok(Variable::Group(usize::from(digit - b'0'))),
        _ => Err(unknown()),
    }
}

static NAMES: [(&str, Variable); 8] = [
    ("scheme", Variable::Scheme),
    ("host", Variable::Host),
    ("path", Variable::Path),
    ("query", Variable::Query),
    ("uri", Variable::Uri),
    ("client", Variable::Client),
    ("device", Variable::Device),
    ("image_format", Variable::ImageFormat),
];

/// The bytes besides letters and digits that a path may have unencoded (RFC 3986 §3.3), and the slash.
const URL_BYTES: &[u8] = b"-._~!$&'()*+,;=:@/";

/// The bytes that separate the parameters of a query, or mean a space there.
const QUERY_DELIMITERS: &[u8] = b"&=+;";

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use http::Method;
    use http::header::HeaderMap;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn render(template: &str, regex: Option<&str>, path: &str) -> (String, String) {
        let regex = regex.map(|text| match crate::path_pattern::PathPattern::regex(text) {
            Ok(crate::path_pattern::PathPattern::Regex(regex)) => regex,
            other => panic!("{other:?} is not an expression"),
        });
        let template = Template::new(template, regex.as_ref()).expect("a template");
        let mut fields = HeaderMap::new();
        fields.insert("x-user", "a b?#%".parse().expect("a value"));
        let view = RequestView {
            method: &Method::GET,
            scheme: "https",
            host: "example.org",
            path: &crate::readings::PathReadings::of(path),
            sent_path: path,
            query: "q=1",
            fields: &fields,
            client: IpAddr::from([192, 0, 2, 7]),
        };
        let value = String::from_utf8(template.field_value(&view)).expect("UTF-8");
        (value, template.url(&view))
    }

    #[test]
    fn variables_are_replaced_by_parts_of_the_request() {
        for (template, rendered) in [
            ("", ""),
            ("plain $5", "plain $5"),
            ("${scheme}://${host}${uri}", "https://example.org/a?q=1"),
            ("${path}!${query}", "/a!q=1"),
            ("${client} ${device}", "192.0.2.7 desktop"),
            ("${image_format}", "other"),
        ] {
            let both = (rendered.to_owned(), rendered.to_owned());
            assert_eq!(render(template, None, "/a"), both, "{template}");
        }
    }

    #[test]
    fn bytes_of_clients_are_encoded_in_urls_and_cannot_end_a_field() {
        assert_eq!(render("${header.x-user}", None, "/").1, "a%20b%3F%23%25");
        assert_eq!(render("${header.x-none}", None, "/").1, "");
        let split = render(
            "/new/${1}",
            Some("^/old/(.*)$"),
            "/old/x%0d%0aSet-Cookie:%20a",
        );
        assert_eq!(split.0, "/new/xSet-Cookie: a");
        assert_eq!(split.1, "/new/x%0D%0ASet-Cookie:%20a");
    }

    #[test]
    fn a_value_of_a_client_adds_no_parameter_to_a_query() {
        let query = |path| render("/x?id=${1}", Some("^/item/(.*)$"), path).1;
        for (path, url) in [
            ("/item/1%26admin=1", "/x?id=1%26admin%3D1"),
            ("/item/1&admin=1", "/x?id=1%26admin%3D1"),
            ("/item/1;admin", "/x?id=1%3Badmin"),
            ("/item/1%2B2", "/x?id=1%2B2"),
            ("/item/1%23a", "/x?id=1%23a"),
        ] {
            assert_eq!(query(path), url);
        }
        // In a path these bytes stay, and the query that a client sent does too.
        let path = render("/new/${1}?${query}", Some("^/old/(.*)$"), "/old/a&b=c").1;
        assert_eq!(path, "/new/a&b=c?q=1");
    }

    #[test]
    fn a_url_that_ends_with_an_absent_query_has_no_separator_before_it() {
        let url = |template: &str, target: &str| {
            let template = Template::new(template, None).expect("a template");
            crate::RequestParts::of_url("http", "example.org", target)
                .view(|view| template.url(view))
        };
        assert_eq!(url("/b?${query}", "/a"), "/b");
        assert_eq!(url("/b?${query}", "/a?x=1"), "/b?x=1");
        assert_eq!(url("/b?t=1&${query}", "/a"), "/b?t=1");
        assert_eq!(url("/b?t=1&${query}", "/a?x=1"), "/b?t=1&x=1");
        assert_eq!(url("/b?${query}#c", "/a"), "/b?#c");
    }

    #[test]
    fn errors_of_templates_name_the_variable() {
        let regex = Regex::new("(a)").expect("an expression");
        for (text, part) in [
            ("${", "without `}`"),
            ("${nonsense}", "${nonsense} is not a variable"),
            ("${header.}", "not a variable"),
            ("${2}", "at least 2 groups"),
            ("${0}", "not a variable"),
            ("a\r\nb", "control character"),
        ] {
            let message = Template::new(text, Some(&regex))
                .expect_err(text)
                .to_string();
            assert!(message.contains(part), "{message}");
        }
        assert!(Template::new("${1}", None).is_err());
    }

    #[test]
    fn a_template_formats_to_its_text() {
        let regex = Regex::new("(a)").expect("an expression");
        for text in ["", "a", "${scheme}x${1}${header.x-a}", "${image_format}"] {
            let template = Template::new(text, Some(&regex)).expect(text);
            assert_eq!(template.to_string(), text);
        }
    }

    const EVERY_VARIABLE: &str = "${scheme}|${host}|${path}|${query}|${uri}|${client}|${device}|${image_format}|\
                                  ${header.x-user}|${header.cookie}|${1}";

    proptest! {
        /// Method: each part of a request has random bytes, control characters more often than others. Text of this
        /// kind does not pass the parsers of requests, so the template is the second defence.
        #[test]
        fn no_variable_puts_a_control_character_into_a_field_or_a_url(
            parts in vec(vec(prop_oneof![Just('\r'), Just('\n'), Just('\0'), any::<char>()], 0..12), 3),
            encoded in vec(prop_oneof![Just("%0d"), Just("%0A"), Just("%00"), Just("a"), Just("/")], 0..12),
            value in vec(any::<u8>(), 0..12),
        ) {
            let texts: Vec<String> = parts.iter().map(|part| part.iter().collect()).collect();
            let path = format!("/{}{}", texts[0], encoded.concat());
            let mut fields = HeaderMap::new();
            if let Ok(value) = http::HeaderValue::from_bytes(&value) {
                fields.insert("x-user", value.clone());
                fields.insert(http::header::COOKIE, value);
            }
            let regex = Regex::new("(?s-u)^(.*)$").expect("an expression");
            let template = Template::new(EVERY_VARIABLE, Some(&regex)).expect("a template");
            let view = RequestView {
                method: &Method::GET,
                scheme: "https",
                host: &texts[1],
                path: &crate::readings::PathReadings::of(&path),
                sent_path: &path,
                query: &texts[2],
                fields: &fields,
                client: IpAddr::from([192, 0, 2, 7]),
            };
            let value = template.field_value(&view);
            prop_assert!(value.iter().all(|byte| *byte == b'\t' || !byte.is_ascii_control()), "{value:?}");
            http::HeaderValue::from_bytes(&value).expect("the text is a value");
            let url = template.url(&view);
            prop_assert!(!url.contains(|c: char| c.is_ascii_control()), "{url:?}");
        }
    }
}
