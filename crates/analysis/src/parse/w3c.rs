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
        let mut values = line.split(|byte| *byte == separator);
        for column in &self.columns {
            let value = values
                .next()
                .ok_or(MalformedLine::not("line", "as long as the #Fields line"))?;
            if let Some(field) = column {
                fields.set(*field, value);
            }
        }
        fields.entry(&mut self.clock, &mut self.joined)
    }

    fn set_columns(&mut self, names: &[u8]) {
        let names = names
            .split(u8::is_ascii_whitespace)
            .filter(|name| !name.is_empty());
        self.columns = names.take(COLUMNS_MAX).map(field_of).collect();
        // In CloudFront logs, the first host column (`cs(Host)`) has the name of the distribution. A later column
        // (`x-host-header`) has the requested host.
        if self
            .columns
            .iter()
            .filter(|c| **c == Some(Field::Host))
            .count()
            > 1
            && let Some(first) = self.columns.iter_mut().find(|c| **c == Some(Field::Host))
        {
            *first = None;
        }
    }
}

fn field_of(name: &[u8]) -> Option<Field> {
    Some(match name {
        b"date" => Field::Date,
        b"time" => Field::Time,
        b"cs-method" => Field::Method,
        b"cs(Host)" | b"cs-host" | b"x-host-header" => Field::Host,
        b"cs-uri" => Field::Url,
        b"cs-uri-stem" => Field::Path,
        b"cs-uri-query" => Field::Query,
        b"sc-status" => Field::Status,
        b"sc-bytes" => Field::Bytes,
        b"sc-content-type" | b"sc(Content-Type)" => Field::MediaType,
        b"x-edge-result-type" => Field::Outcome,
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
            machine: b"FRA2",
        };
        assert_eq!(entry, expected);
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
