//! JSON lines of edgeward, Caddy, Envoy, Fastly, and of other programs with common or configured field names.
//!
//! A line is parsed once, and its values are borrowed; only strings with escapes are copied. The name of a
//! nested field is its path (`request.uri`). If a field has a list, its first value counts
//! (`resp_headers.Content-Type`), but the last outcome counts, because it is that of the cache nearest to the client.

use std::fmt;

use edgeward_trace::raw::{JsonLine, JsonValue};
use hashbrown::HashMap;

use crate::clock::Clock;
use crate::{Entry, MalformedLine};

use super::fields::{Field, LineFields};
use super::is_blank_or_comment;

/// The names of the fields, the preferred name of each field first.
#[derive(Clone, PartialEq, Eq)]
pub struct FieldNames(Vec<(Field, Box<[u8]>)>);

/// Prints the text that checkpoints of an analysis contain. The text must not change, so it has `Names`, the former
/// name of the type.
impl fmt::Debug for FieldNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Names").field(&self.0).finish()
    }
}

impl Default for FieldNames {
    fn default() -> Self {
        Self::with_custom([])
    }
}

impl FieldNames {
    /// Returns these names followed by `self`.
    pub(super) fn preceded_by(self, names: Self) -> Self {
        Self(names.0.into_iter().chain(self.0).collect())
    }

    /// Returns the names of a table: for each field its names, separated by spaces, the preferred name first.
    /// `NAME=WORD` is the name of a Boolean; if it is true, the value of the field is the word.
    pub(super) fn of_table(table: &[(Field, &str)]) -> Self {
        let names = table.iter().flat_map(|(field, names)| {
            names
                .split(' ')
                .map(|name| (*field, name.as_bytes().into()))
        });
        Self(names.collect())
    }

    /// Returns the names before the default names.
    pub(super) fn custom(&self) -> Self {
        let defaults = Self::of_table(&COMMON_NAMES).0.len();
        Self(self.0[..self.0.len().saturating_sub(defaults)].to_vec())
    }

    /// Returns custom names alone.
    pub(super) fn only(custom: &[(Field, String)]) -> Self {
        let names = custom
            .iter()
            .map(|(field, name)| (*field, name.as_bytes().into()));
        Self(names.collect())
    }

    /// Returns names that take precedence over the default names, followed by the default names.
    pub fn with_custom(custom: impl IntoIterator<Item = (Field, String)>) -> Self {
        let custom: Vec<_> = custom.into_iter().collect();
        Self::of_table(&COMMON_NAMES).preceded_by(Self::only(&custom))
    }
}

#[derive(Clone, Debug)]
pub(super) struct JsonParser {
    ranks: HashMap<Box<[u8]>, FieldRank>,
    clock: Clock,
    json: JsonLine,
    /// For each field that was found: the rank of its name, and its value.
    found: Vec<(Field, usize, FoundValue)>,
    /// A buffer for a URL that is made of path and query.
    joined: Vec<u8>,
}

/// The field that a name belongs to.
#[derive(Clone, Debug)]
struct FieldRank {
    field: Field,
    /// The position of the name in [`FieldNames`]. A name of lower rank is preferred.
    rank: usize,
    /// For the name of a Boolean: the value of the field if the Boolean is true.
    word: Option<Box<[u8]>>,
}

#[derive(Clone, Debug)]
enum FoundValue {
    Json(JsonValue),
    /// The word of the Boolean with this name.
    Word(Box<[u8]>),
}

impl JsonParser {
    pub(super) fn new(names: &FieldNames) -> Self {
        let mut ranks: HashMap<Box<[u8]>, FieldRank> = HashMap::new();
        for (rank, (field, name)) in names.0.iter().enumerate() {
            // Outcomes are the only Booleans. Other names may have an equals sign.
            let (name, word) = match memchr::memchr(b'=', name) {
                Some(at) if *field == Field::Outcome => (&name[..at], Some(name[at + 1..].into())),
                _ => (&name[..], None),
            };
            let field = *field;
            ranks
                .entry(name.into())
                .or_insert(FieldRank { field, rank, word });
        }
        Self {
            ranks,
            clock: Clock::default(),
            json: JsonLine::default(),
            found: Vec::new(),
            joined: Vec::new(),
        }
    }

    pub(super) fn parse<'a>(
        &'a mut self,
        line: &'a [u8],
    ) -> Result<Option<Entry<'a>>, MalformedLine> {
        if is_blank_or_comment(line) {
            return Ok(None);
        }
        let no_object = MalformedLine::not("line", "a JSON object");
        let line = object_of(line).ok_or(no_object)?;
        let Self {
            ranks, json, found, ..
        } = self;
        found.clear();
        json.walk(line, |path, value| {
            if let Some(rank) = ranks.get(path) {
                store_value(found, rank, path, value);
            }
        })
        .ok_or(no_object)?;
        let mut fields = LineFields::default();
        for (field, _, value) in &self.found {
            fields.set(
                *field,
                match value {
                    FoundValue::Json(value) => self.json.bytes(line, value),
                    FoundValue::Word(name) => self.ranks[name].word.as_deref().unwrap_or_default(),
                },
            );
        }
        fields.entry(&mut self.clock, &mut self.joined)
    }
}

/// Returns the JSON object of a line. In a log that a syslog server writes, a header precedes the object. In an array
/// with one object per line, a bracket or a comma is beside it.
pub(super) fn object_of(line: &[u8]) -> Option<&[u8]> {
    let begin = memchr::memchr(b'{', &line[..line.len().min(HEADER_BYTES_MAX)])?;
    let line = line[begin..].trim_ascii_end();
    let line = line.strip_suffix(b",").unwrap_or(line);
    Some(
        line.strip_suffix(b"}]")
            .map_or(line, |_| &line[..line.len() - 1]),
    )
}

/// Stores a value, if no value with a preferred name was found. The last of several outcomes with one name counts.
fn store_value(
    found: &mut Vec<(Field, usize, FoundValue)>,
    name: &FieldRank,
    path: &[u8],
    value: JsonValue,
) {
    let FieldRank { field, rank, word } = name;
    let value = match (value, word) {
        (JsonValue::Bool(true), Some(_)) => FoundValue::Word(path.into()),
        (JsonValue::Bool(_), Some(_)) => return,
        (JsonValue::Bool(_), None) if *field != Field::Outcome => return,
        (value, _) => FoundValue::Json(value),
    };
    match found.iter_mut().find(|(other, ..)| other == field) {
        Some((_, best_rank, best_value)) => {
            if rank < best_rank || (rank == best_rank && *field == Field::Outcome) {
                (*best_rank, *best_value) = (*rank, value);
            }
        }
        None => found.push((*field, *rank, value)),
    }
}

/// Common names: those of edgeward, Caddy, Envoy (as its documentation suggests), Fastly, and nginx variables
/// logged as JSON.
const COMMON_NAMES: [(Field, &str); 12] = [
    (
        Field::Time,
        "time ts start_time timestamp @timestamp time_iso8601 time_local msec datetime date",
    ),
    (
        Field::Method,
        "method request_method request.method req_method",
    ),
    (
        Field::Host,
        "host authority request.host request_host http_host vhost :authority server_name",
    ),
    // The URL as the client sent it.
    (
        Field::Url,
        "target request_uri request.uri request_url x_envoy_original_path",
    ),
    // Names that some logs use for a rewritten URL, or for a path whose query is in another field.
    (Field::Path, "uri url path document_uri"),
    (Field::Query, "query query_string args"),
    (Field::Request, "request request_line"),
    (
        Field::Status,
        "status response_code response_status status_code response.status http_status",
    ),
    (
        Field::Bytes,
        "bytes size bytes_sent body_bytes_sent response_body_size resp_body_size response_size",
    ),
    (
        Field::MediaType,
        "content_type resp_headers.Content-Type response_content_type sent_http_content_type mime_type",
    ),
    (
        Field::Outcome,
        "cache cache_status upstream_cache_status fastly_info.state fastly_info_state cache_result x_cache \
         resp_headers.Cache-Status resp_headers.X-Cache",
    ),
    (Field::Machine, "machine hostname server pop datacenter"),
];

/// The JSON object must begin within this number of bytes from the start of the line. A syslog header before the object
/// is shorter, even with names of maximum length.
const HEADER_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use edgeward_types::Timestamp;

    use crate::Outcome;

    use super::*;

    fn check(line: &str, expected: Entry<'_>) {
        let mut parser = JsonParser::new(&FieldNames::default());
        let entry = parser.parse(line.as_bytes()).expect(line).expect(line);
        assert_eq!(entry, expected, "{line}");
    }

    const TIME: Option<Timestamp> = Some(Timestamp::from_millis(1_431_857_103_250));

    #[test]
    fn lines_of_edgeward_are_parsed() {
        check(
            r#"{"time":"2015-05-17T10:05:03.250Z","client":"192.0.2.7","method":"GET","scheme":"http","host":"example.org","target":"/a?b=\"c\"","protocol":"HTTP/1.1","status":200,"bytes":1234,"duration_us":56,"cache":"uri-miss","user_agent":"x\\"}"#,
            Entry {
                time: TIME,
                method: b"GET",
                host: b"example.org",
                url: b"/a?b=\"c\"",
                status: 200,
                bytes: Some(1234),
                outcome: Some(Outcome::Miss),
                outcome_text: b"uri-miss",
                ..Entry::default()
            },
        );
    }

    #[test]
    fn lines_of_caddy_are_parsed() {
        check(
            r#"{"level":"info","ts":1431857103.2509,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"127.0.0.1","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/a","headers":{"User-Agent":["curl/7.82.0"],"Accept":["*/*"]},"tls":{"resumed":false}},"bytes_read":0,"user_id":"","duration":0.0009,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"],"Content-Type":["text/html; charset=utf-8","x"]}}"#,
            Entry {
                time: TIME,
                method: b"GET",
                host: b"localhost",
                url: b"/a",
                status: 200,
                bytes: Some(10_900),
                media_type: b"text/html; charset=utf-8",
                ..Entry::default()
            },
        );
    }

    #[test]
    fn lines_of_envoy_are_parsed() {
        check(
            r#"{"start_time":"2015-05-17T10:05:03.250Z", "method":"GET", "path":"/a", "protocol":"HTTP/1.1", "response_code":404, "response_flags":"-", "bytes_received":0, "bytes_sent":7, "authority":"h", "upstream_host":null}"#,
            Entry {
                time: TIME,
                method: b"GET",
                host: b"h",
                url: b"/a",
                status: 404,
                bytes: Some(7),
                ..Entry::default()
            },
        );
    }

    #[test]
    fn lines_of_fastly_are_parsed_after_a_syslog_header() {
        check(
            r#"<134>2015-05-17T10:05:03Z cache-fra19122 LogTest[62959]: {"timestamp":"2015-05-17T10:05:03.25+0000","host":"h","url":"/a\u00e9\/\ud83d\ude00","request_method":"GET","response_status":200,"response_body_size":5,"fastly_info":{"state":"HIT-CLUSTER"},"pop":"FRA"}"#,
            Entry {
                time: TIME,
                method: b"GET",
                host: b"h",
                url: "/aé/😀".as_bytes(),
                status: 200,
                bytes: Some(5),
                outcome: Some(Outcome::Hit),
                outcome_text: b"HIT-CLUSTER",
                machine: b"FRA",
                ..Entry::default()
            },
        );
    }

    #[test]
    fn configured_names_take_precedence() {
        let custom = [(Field::Url, "req.the_url".to_owned())];
        let mut parser = JsonParser::new(&FieldNames::with_custom(custom));
        let line = br#"{"url":"/no","req":{"the_url":"/yes"},"uri":"/neither"}"#;
        let entry = parser
            .parse(line)
            .expect("the line is JSON")
            .expect("the line is a request");
        assert_eq!(entry.url, b"/yes");
    }

    #[test]
    fn the_url_that_the_client_asked_for_is_kept() {
        let mut parser = JsonParser::new(&FieldNames::default());
        for (line, url) in [
            (r#"{"uri":"/s","args":"q=1"}"#, "/s?q=1"),
            (r#"{"path":"/s","query":"?q=1"}"#, "/s?q=1"),
            (r#"{"url":"/s?q=1","query":"q=1"}"#, "/s?q=1"),
            (
                r#"{"uri":"/index.php","args":"r=s","request_uri":"/s"}"#,
                "/s",
            ),
            (r#"{"request":"GET /s?q=1 HTTP/1.1","uri":"/s"}"#, "/s?q=1"),
            (
                r#"{"request_uri":"/s","uri":"/index.php","request":"GET /s HTTP/1.1"}"#,
                "/s",
            ),
        ] {
            let entry = parser
                .parse(line.as_bytes())
                .expect(line)
                .expect("the line is a request");
            assert_eq!(entry.url, url.as_bytes(), "{line}");
        }
    }

    #[test]
    fn the_last_of_several_cache_status_fields_counts() {
        let mut parser = JsonParser::new(&FieldNames::default());
        let line =
            br#"{"uri":"/a","resp_headers":{"Cache-Status":["shield; hit","edge; fwd=uri-miss"]}}"#;
        let entry = parser
            .parse(line)
            .expect("the line is JSON")
            .expect("the line is a request");
        assert_eq!(entry.outcome, Some(Outcome::Miss));
        let unknown = br#"{"uri":"/a","cache":"nonsense"}"#;
        let error = parser.parse(unknown).expect_err("the word is unknown");
        assert_eq!(error.field, "cache");
    }

    #[test]
    fn the_lines_of_an_array_are_parsed() {
        let mut parser = JsonParser::new(&FieldNames::default());
        for line in [r#"[{"uri":"/a"},"#, r#"{"uri":"/a"},"#, r#"{"uri":"/a"}]"#] {
            let entry = parser.parse(line.as_bytes()).expect(line);
            assert_eq!(entry.map(|entry| entry.url.len()), Some(2), "{line}");
        }
        assert!(parser.parse(br#"[{"uri":"/a"},{"uri":"/b"}]"#).is_err());
    }

    #[test]
    fn a_json_line_without_a_url_is_not_a_request() {
        let mut parser = JsonParser::new(&FieldNames::default());
        assert_eq!(
            parser.parse(br#"{"level":"info","msg":"started"}"#),
            Ok(None)
        );
        assert_eq!(parser.parse(b"{}"), Ok(None));
    }

    #[test]
    fn invalid_json_is_malformed() {
        let mut parser = JsonParser::new(&FieldNames::default());
        let deep = format!("{}1{}", "{\"a\":".repeat(40), "}".repeat(40));
        for line in [
            "hello",
            "{",
            "{\"url\"",
            "{\"url\":}",
            "{\"url\":\"/a\"",
            "{\"url\":\"/a\"}x",
            "{\"url\":\"/a\",}",
            "{\"url\":\"\\x\"}",
            "{\"url\":\"\\u12\"}",
            "{\"a\":[1,]}",
            "{\"a\":nul}",
            "{a:1}",
            &deep,
        ] {
            let error = parser.parse(line.as_bytes()).expect_err(line);
            assert_eq!(error.field, "line", "{line}");
        }
    }
}
