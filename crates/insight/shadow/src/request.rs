//! The requests that the shadow sends: their methods, targets and fields.

use serde::Serialize;

use edgeward_types::mix64;
use edgeward_types::xxh3::xxh3_64;

/// A method that changes nothing at the origin (RFC 9110, section 9.2.1). Only these are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET.
    Get,
    /// HEAD.
    Head,
}

impl Method {
    /// Returns the name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
        }
    }
}

/// A request for both caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The requested host, in lower case, perhaps with a port. Empty if the source does not state it.
    pub host: String,
    /// Path and query. It begins with a slash.
    pub target: String,
    /// The fields with names in lower case, without `host`.
    pub fields: Vec<(String, String)>,
}

/// Why a request of the source is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Skip {
    /// The method is neither GET nor HEAD.
    Method,
    /// The target is no path, or it is too long.
    Target,
    /// The URL is outside the sample.
    Sample,
    /// The request is one that the shadow has sent itself.
    Own,
    /// The queue was full.
    QueueFull,
    /// The line of the log is malformed.
    Malformed,
}

impl Skip {
    /// All reasons, in the order of the report.
    pub const ALL: [Self; 6] = [
        Self::Method,
        Self::Target,
        Self::Sample,
        Self::Own,
        Self::QueueFull,
        Self::Malformed,
    ];

    /// Returns the name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::Target => "target",
            Self::Sample => "sample",
            Self::Own => "own",
            Self::QueueFull => "queue_full",
            Self::Malformed => "malformed",
        }
    }
}

impl Request {
    /// Returns a request without fields.
    ///
    /// # Errors
    ///
    /// Returns the reason why the shadow does not send the request.
    pub fn new(method: &[u8], host: &[u8], target: &[u8]) -> Result<Self, Skip> {
        let method = match method {
            // A log without methods has mostly GET; no log that edgeward knows lacks them.
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            _ => return Err(Skip::Method),
        };
        let is_path = target.first() == Some(&b'/') && target.len() <= TARGET_BYTES_MAX;
        let is_text = |text: &[u8]| text.iter().all(|byte| (0x21..0x7f).contains(byte));
        if !is_path || !is_text(target) || !is_text(host) || host.len() > HOST_BYTES_MAX {
            return Err(Skip::Target);
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Self {
            method,
            host: text(host).to_ascii_lowercase(),
            target: text(target),
            fields: Vec::new(),
        })
    }

    /// Adds the fields of a client's request that both caches get. Returns true if a credential was left out.
    ///
    /// Fields of the connection are left out, and so are cookies and `Authorization` unless `has_credentials` is true:
    /// a request with credentials may have effects, and its answer may be for one user. Fields beyond the limits are
    /// left out, too.
    pub fn add_fields<'f>(
        &mut self,
        fields: impl IntoIterator<Item = (&'f str, &'f str)>,
        has_credentials: bool,
    ) -> bool {
        let mut is_withheld = false;
        let mut bytes = 0;
        for (name, value) in fields {
            let name = name.to_ascii_lowercase();
            let is_credential = CREDENTIALS.contains(&&name[..]);
            is_withheld |= is_credential && !has_credentials;
            if NOT_SENT.contains(&&name[..]) || (is_credential && !has_credentials) {
                continue;
            }
            bytes += name.len() + value.len();
            if self.fields.len() == FIELDS_MAX || bytes > FIELD_BYTES_MAX {
                break;
            }
            self.fields.push((name, value.to_owned()));
        }
        is_withheld
    }

    /// Returns the value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(known, _)| known == name);
        found.map(|(_, value)| &value[..])
    }

    /// Returns the URL for messages, at most 300 characters of it.
    pub fn url(&self) -> String {
        let url = format!("{}{}", self.host, self.target);
        crate::difference::shortened(&url, URL_CHARS_MAX)
    }

    /// Returns the key of the tables by URL.
    pub fn url_key(&self) -> u64 {
        url_key(&self.host, &self.target)
    }

    /// Returns a hash of all fields.
    pub(crate) fn fields_hash(&self) -> u64 {
        let mut hash = 0_u64;
        for (name, value) in &self.fields {
            // The order of fields does not matter.
            hash = hash.wrapping_add(mix64(
                xxh3_64(name.as_bytes()) ^ xxh3_64(value.as_bytes()).rotate_left(17),
            ));
        }
        hash
    }
}

/// Returns true if a URL belongs to a sample of this share. The choice is by URL, so that a cache sees all requests for
/// a URL or none.
pub fn is_sampled(url_key: u64, share: f64) -> bool {
    // The key is mixed, because the tables use its bits, too.
    let draw = mix64(url_key) >> 11;
    (draw as f64) < share * (1_u64 << 53) as f64
}

fn url_key(host: &str, target: &str) -> u64 {
    mix64(xxh3_64(host.as_bytes())) ^ xxh3_64(target.as_bytes())
}

/// The user agent of requests that come from a log, and a part of the name of the field that marks requests to the
/// incumbent. A line of its log that contains it is that of an own request.
pub const MARK: &str = "edgeward-shadow";

/// The writer of a request, as its line in a log shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineMark {
    /// The line has the [`MARK`] of own requests.
    Own,
    /// The line has the user agent of a client.
    Client,
    /// The line has no user agent.
    Unknown,
}

impl LineMark {
    /// Returns the mark of a line. `target` is the target of its request, in which a client may write the mark. Marks
    /// are counted, because an own request for such a target has one more: it must not be sent again for ever.
    pub fn of(line: &[u8], target: &str) -> Self {
        if marks(line) > marks(target.as_bytes()) {
            Self::Own
        } else if has_user_agent(line) {
            Self::Client
        } else {
            Self::Unknown
        }
    }
}

/// Returns the number of marks in a text.
fn marks(text: &[u8]) -> usize {
    memchr::memmem::find_iter(text, MARK.as_bytes()).count()
}

/// Returns true if a line has the form of those with user agents: the combined format with three quoted texts, or an
/// object of JSON with a key such as `user_agent`, `userAgent` or `User-Agent`.
fn has_user_agent(line: &[u8]) -> bool {
    if line.first() == Some(&b'{') {
        let keys = memchr::memmem::find_iter(line, b"gent\":");
        let mut starts = keys.filter_map(|at| line[..at].last());
        return starts.any(|letter| letter.eq_ignore_ascii_case(&b'a'));
    }
    memchr::memchr_iter(b'"', line).count() >= 6
}

const CREDENTIALS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// Fields of one connection (RFC 9110, section 7.6.1), and those that the sender writes itself.
const NOT_SENT: [&str; 18] = [
    // Answers to conditions and ranges depend on the version that a cache has, and cannot be compared.
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "range",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// nginx and Apache refuse longer targets by default.
const TARGET_BYTES_MAX: usize = 8 << 10;

/// The maximum length of a name in the DNS, with a port.
const HOST_BYTES_MAX: usize = 253 + 6;

const FIELDS_MAX: usize = 64;

const FIELD_BYTES_MAX: usize = 16 << 10;

/// The length of a URL in the report.
const URL_CHARS_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_its_writer_if_it_has_a_user_agent() {
        let combined = |target: &str, agent: &str| {
            format!(
                "h - - [17/May/2015:10:05:03 +0000] \"GET {target} HTTP/1.1\" 200 5 \"-\" \"{agent}\" HIT"
            )
        };
        for (line, target, expected) in [
            (combined("/a", "curl"), "/a", LineMark::Client),
            (combined("/a", "-"), "/a", LineMark::Client),
            (combined("/a", MARK), "/a", LineMark::Own),
            (
                combined("/edgeward-shadow", "curl"),
                "/edgeward-shadow",
                LineMark::Client,
            ),
            (
                combined("/edgeward-shadow", MARK),
                "/edgeward-shadow",
                LineMark::Own,
            ),
            (
                "h - - [t] \"GET /a HTTP/1.1\" 200 5".to_owned(),
                "/a",
                LineMark::Unknown,
            ),
            (
                r#"{"url":"/a","User-Agent":"x"}"#.to_owned(),
                "/a",
                LineMark::Client,
            ),
            (
                r#"{"url":"/a","userAgent":"x"}"#.to_owned(),
                "/a",
                LineMark::Client,
            ),
            (
                r#"{"url":"/a","user_agent":"edgeward-shadow"}"#.to_owned(),
                "/a",
                LineMark::Own,
            ),
            (
                r#"{"url":"/a","status":200,"x":"y","z":1}"#.to_owned(),
                "/a",
                LineMark::Unknown,
            ),
        ] {
            assert_eq!(LineMark::of(line.as_bytes(), target), expected, "{line}");
        }
    }

    #[test]
    fn only_safe_methods_and_paths_are_sent() {
        for (method, target, expected) in [
            ("GET", "/a", Ok(())),
            ("HEAD", "/a?b", Ok(())),
            ("POST", "/a", Err(Skip::Method)),
            ("get", "/a", Err(Skip::Method)),
            ("PURGE", "/a", Err(Skip::Method)),
            ("GET", "*", Err(Skip::Target)),
            ("GET", "http://other/", Err(Skip::Target)),
            ("GET", "/a b", Err(Skip::Target)),
            ("GET", "/a\r\nx: y", Err(Skip::Target)),
        ] {
            let request = Request::new(method.as_bytes(), b"Shop.example", target.as_bytes());
            assert_eq!(request.map(|_| ()), expected, "{method} {target}");
        }
        let long = [b"/".as_slice(), &vec![b'a'; TARGET_BYTES_MAX]].concat();
        assert_eq!(Request::new(b"GET", b"", &long), Err(Skip::Target));
        assert!(Request::new(b"GET", b"", &long[..TARGET_BYTES_MAX]).is_ok());
    }

    #[test]
    fn credentials_are_sent_only_if_they_are_allowed() {
        let fields = [
            ("Cookie", "session=1"),
            ("Authorization", "Basic x"),
            ("Accept-Language", "de"),
            ("Connection", "close"),
        ];
        for (has_credentials, expected) in [
            (false, &["accept-language"][..]),
            (true, &["cookie", "authorization", "accept-language"]),
        ] {
            let mut request = Request::new(b"GET", b"a", b"/").expect("the request is valid");
            let is_withheld = request.add_fields(fields, has_credentials);
            let names: Vec<&str> = request.fields.iter().map(|(name, _)| &name[..]).collect();
            assert_eq!(names, expected);
            assert_eq!(is_withheld, !has_credentials);
        }
    }

    #[test]
    fn the_fields_of_a_request_are_bounded() {
        let mut request = Request::new(b"GET", b"a", b"/").expect("the request is valid");
        request.add_fields([("a", "b"); FIELDS_MAX + 1], false);
        assert_eq!(request.fields.len(), FIELDS_MAX);
        let mut request = Request::new(b"GET", b"a", b"/").expect("the request is valid");
        let long = "x".repeat(FIELD_BYTES_MAX / 2);
        request.add_fields([("a", &long[..]); 3], false);
        assert_eq!(request.fields.len(), 1);
    }

    /// Method: draw many keys, and compare the share with the number of sampled ones, and the samples of two shares.
    #[test]
    fn a_sample_has_its_share_of_urls_and_a_larger_one_contains_it() {
        let keys: Vec<u64> = (0..20_000).map(mix64).collect();
        let sampled = |share: f64| keys.iter().filter(move |key| is_sampled(**key, share));
        assert_eq!(sampled(0.0).count(), 0);
        assert_eq!(sampled(1.0).count(), keys.len());
        let tenth = sampled(0.1).count();
        assert!((1_800..2_200).contains(&tenth), "{tenth}");
        assert!(sampled(0.1).all(|key| is_sampled(*key, 0.3)));
    }
}
