//! W3C extended logs: a `#Fields:` line lists the columns. CloudFront's standard logs (separated by tabs) and
//! IIS logs (separated by spaces) have this format.

use crate::clock::Clock;
use crate::{Entry, MalformedLine};

use super::fields::{Field, LineFields};

#[derive(Clone, Debug, Default)]
pub(super) struct W3cParser {
    /// The field of each column, or `None` for a column that is not used.
    columns: Vec<Option<Field>>,
    clock: Clock,
    /// The buffer for a URL that is made of path and query.
    joined: Vec<u8>,
}

impl W3cParser {
    pub(super) fn parse<'a>(
        &'a mut self,
        line: &'a [u8],
    ) -> Result<Option<Entry<'a>>, MalformedLine> {
        if line.first() == Some(&b'#') {
            if let Some(names) = line.strip_prefix(b"#Fields:") {
                self.set_columns(names);
            }
            return Ok(None);
        }
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        if self.columns.is_empty() {
            return Err(MalformedLine::missing("#Fields line before it"));
        }
        let separator = if memchr::memchr(b'\t', line).is_some() {
            b'\t'
        } else {
            b' '
        };
        let mut fields = LineFields::default();
        let mut rest = Some(line);
        for column in &self.columns {
            let (value, after) = rest
                .map(|rest| split_value(rest, separator))
                .ok_or(MalformedLine::not("line", "as long as the #Fields line"))?;
            if let Some(field) = column {
                fields.set(*field, value);
            }
            rest = after;
        }
        // A user agent with blanks and without quotes moves all later values to other columns.
        if separator == b' ' && rest.is_some_and(|rest| !rest.trim_ascii().is_empty()) {
            return Err(MalformedLine::not("line", "as short as the #Fields line"));
        }
        fields.entry(&mut self.clock, &mut self.joined)
    }

    fn set_columns(&mut self, names: &[u8]) {
        let names = names
            .split(u8::is_ascii_whitespace)
            .filter(|name| !name.is_empty());
        self.columns = names.take(COLUMNS_MAX).map(field_of).collect();
        let has = |field| self.columns.contains(&Some(field));
        // In CloudFront logs, the first host column (`cs(Host)`) has the name of the distribution. A later column
        // (`x-host-header`) has the requested host.
        let hosts = self.columns.iter().filter(|c| **c == Some(Field::Host));
        let has_two_hosts = hosts.count() > 1;
        // Without a column of paths, `cs-uri` may be a path whose query is in another column.
        let is_path = has(Field::Url) && !has(Field::Path);
        for column in &mut self.columns {
            if is_path && *column == Some(Field::Url) {
                *column = Some(Field::Path);
            }
        }
        if has_two_hosts
            && let Some(first) = self.columns.iter_mut().find(|c| **c == Some(Field::Host))
        {
            *first = None;
        }
    }
}

/// Splits off a value. A value in quotes may have the separator in it; two quotes in it stand for one. Returns the
/// value without its quotes and the text after the separator, or `None` if the line ends.
fn split_value(text: &[u8], separator: u8) -> (&[u8], Option<&[u8]>) {
    if let Some(quoted) = text.strip_prefix(b"\"") {
        let mut at = 0;
        while let Some(found) = memchr::memchr(b'"', &quoted[at..]) {
            at += found;
            match quoted.get(at + 1) {
                None => return (&quoted[..at], None),
                Some(byte) if *byte == separator => {
                    return (&quoted[..at], Some(&quoted[at + 2..]));
                }
                Some(b'"') => at += 2,
                Some(_) => at += 1,
            }
        }
    }
    match memchr::memchr(separator, text) {
        Some(end) => (&text[..end], Some(&text[end + 1..])),
        None => (text, None),
    }
}

fn field_of(name: &[u8]) -> Option<Field> {
    Some(match name {
        b"date" | b"date-local" => Field::Date,
        b"time" | b"time-local" => Field::Time,
        b"cs-method" => Field::Method,
        b"cs(Host)" | b"cs-host" | b"x-host-header" => Field::Host,
        b"cs-uri" => Field::Url,
        b"cs-uri-stem" | b"cs-uri-path" => Field::Path,
        b"cs-uri-query" => Field::Query,
        b"sc-status" => Field::Status,
        b"sc-bytes" => Field::Bytes,
        b"sc-content-type" | b"sc(Content-Type)" => Field::MediaType,
        b"x-edge-result-type" | b"s-action" => Field::Outcome,
        b"x-edge-location" | b"s-computername" => Field::Machine,
        _ => return None,
    })
}

/// The largest number of columns; further columns are ignored. CloudFront's logs have 33.
const COLUMNS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use edgeward_types::Timestamp;

    use crate::Outcome;

    use super::*;

    #[test]
    fn a_cloudfront_log_is_parsed() {
        let header =
            b"#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem \
            sc-status cs(Referer) cs(User-Agent) cs-uri-query cs(Cookie) x-edge-result-type \
            x-edge-request-id x-host-header sc-content-type";
        let line =
            b"2015-05-17\t10:05:03\tFRA2\t392\t192.0.2.100\tGET\td111111abcdef8.cloudfront.net\t\
            /index.html\t200\t-\tMozilla/5.0%20(x)\ta=b\t-\tRefreshHit\tSOX4xwn4XV6Q==\t\
            www.example.org\ttext/html";
        let mut parser = W3cParser::default();
        assert_eq!(parser.parse(b"#Version: 1.0"), Ok(None));
        assert_eq!(parser.parse(header), Ok(None));
        let entry = parser
            .parse(line)
            .expect("the line is well-formed")
            .expect("the line is a request");
        let expected = Entry {
            time: Some(Timestamp::from_secs(1_431_857_103)),
            method: b"GET",
            host: b"www.example.org",
            url: b"/index.html?a=b",
            status: 200,
            bytes: Some(392),
            media_type: b"text/html",
            outcome: Some(Outcome::Hit),
            outcome_text: b"RefreshHit",
            duration: None,
            machine: b"FRA2",
        };
        assert_eq!(entry, expected);
    }

    #[test]
    fn a_value_in_quotes_may_have_blanks() {
        let mut parser = W3cParser::default();
        let header =
            b"#Fields:  date-local time-local cs-uri cs(User-Agent) cs(Host) sc-status sc-bytes";
        assert_eq!(parser.parse(header), Ok(None));
        for (line, url) in [
            (
                r#"2015-05-17 10:05:03 /a?b "x 7 8" "h.example" 200 5"#,
                "/a?b",
            ),
            (
                r#"2015-05-17 10:05:03 "/a" "say ""x"" 8" h.example "200" 5"#,
                "/a",
            ),
            (r#"2015-05-17 10:05:03 /a "x h.example 200 5"#, "/a"),
        ] {
            let entry = parser
                .parse(line.as_bytes())
                .expect(line)
                .expect("the line is a request");
            assert_eq!(entry.url, url.as_bytes(), "{line}");
            assert_eq!(
                (entry.host, entry.status, entry.bytes),
                (&b"h.example"[..], 200, Some(5)),
                "{line}"
            );
        }
        let shifted = b"2015-05-17 10:05:03 /a Mozilla/5.0 (X11) h.example 200 5";
        assert!(
            parser.parse(shifted).is_err(),
            "an unquoted value has a blank"
        );
    }

    #[test]
    fn the_query_of_another_column_belongs_to_the_url() {
        for (fields, line) in [
            ("cs-uri-path cs-uri-query s-action", "/a ?b=c TCP_HIT"),
            ("cs-uri cs-uri-query s-action", "/a b=c TCP_HIT"),
            ("cs-uri cs-uri-query s-action", "/a?b=c b=c TCP_HIT"),
        ] {
            let mut parser = W3cParser::default();
            assert_eq!(
                parser.parse(format!("#Fields: {fields}").as_bytes()),
                Ok(None)
            );
            let entry = parser
                .parse(line.as_bytes())
                .expect(line)
                .expect("the line is a request");
            assert_eq!(
                (entry.url, entry.outcome),
                (&b"/a?b=c"[..], Some(Outcome::Hit)),
                "{line}"
            );
        }
    }

    #[test]
    fn columns_may_change_within_a_log() {
        let mut parser = W3cParser::default();
        let error = parser
            .parse(b"GET /a 200")
            .expect_err("the columns are not known yet");
        assert_eq!(error.to_string(), "no #Fields line before it");
        for (fields, line) in [
            (
                &b"#Fields: cs-method cs-uri-stem sc-status"[..],
                &b"GET /a 200"[..],
            ),
            (b"#Fields: sc-status cs-uri-stem cs-uri-query", b"200 /a -"),
        ] {
            assert_eq!(parser.parse(fields), Ok(None));
            let entry = parser
                .parse(line)
                .expect("the line is well-formed")
                .expect("the line is a request");
            assert_eq!((entry.url, entry.status), (&b"/a"[..], 200));
        }
        assert!(parser.parse(b"200 /a").is_err(), "a column is missing");
    }
}
