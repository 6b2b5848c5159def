//! The readings of a path: all the paths as which origins may take the path that a client has sent.
//!
//! The origin gets the path as sent. One origin compares these bytes, the next one decodes them, a third one also
//! removes dot segments. `/admin/..%2fx` is a page below `/admin/` for the first two, and `/x` for nginx. Rules can
//! therefore not compare one form. [`PathReadings::of`] returns the path as sent and each path that some origin makes
//! of it, and a condition is compared with all of them ([`Match`]).
//!
//! | origin | reads |
//! |---|---|
//! | nginx | decodes once, with `%2F`; merges slashes (`merge_slashes`); removes dot segments |
//! | Apache | decodes and removes dot segments; keeps or decodes `%2F` (`AllowEncodedSlashes`) |
//! | Node: Express | the path as sent; `new URL`: `\` is `/`, removes dot segments, `//x/y` is `/y` at the host `x` |
//! | Python: WSGI, Flask | decodes once, keeps dot segments |
//! | Go: `net/http` | decodes once, keeps dot segments of encoded slashes; cleans the path if a handler does |
//! | PHP | `REQUEST_URI` as sent, `PATH_INFO` decoded; C functions end at a NUL |
//! | Java: JDK | decodes once, keeps dot segments, `//x/y` is `/y` at the host `x` |
//! | Java: Servlets | removes `;parameters`, decodes, removes dot segments |
//!
//! A path without `%`, `;`, `\`, empty segments and segments that begin with a dot has one reading. It costs one scan
//! and no allocation.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::path::{decode_first, matching_path};

/// The readings of one path.
#[derive(Clone, Debug)]
pub struct PathReadings<'a> {
    /// The [form for matching](matching_path).
    form: Cow<'a, [u8]>,
    /// The readings that differ from the form.
    others: Vec<Vec<u8>>,
    forms: PathForms,
    /// False if the path has more readings than the limits allow.
    is_complete: bool,
}

/// The result of comparing a part of a condition with all readings of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// The part matches the form for matching.
    pub form: bool,
    /// The part matches at least one reading.
    pub any: bool,
    /// The part matches all readings.
    pub all: bool,
}

/// The ways in which a path may be read differently. Each is a word of `forwarding.refused_path_forms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathForm {
    /// Two slashes at the start, which are the start of a host in a URL: `//x/y`.
    LeadingSlashes,
    /// A segment with `;`, after which some origins expect parameters: `/admin;x/`.
    Parameters,
    /// An encoded byte that needs no encoding: `/%61dmin`.
    EncodedCharacter,
    /// An encoded `/`.
    EncodedSlash,
    /// An encoded `%` before two hexadecimal digits: `/%2561dmin`.
    DoubleEncoding,
    /// An encoded NUL, at which strings of C end.
    Nul,
    /// An encoded `?` or `#`, at which a path ends if it is decoded and parsed again.
    EncodedDelimiter,
    /// `\`, also encoded, which is a slash for some origins.
    Backslash,
    /// Two slashes one after the other, also encoded.
    RepeatedSlash,
    /// `.` or `..` as a segment, also encoded.
    DotSegment,
}

/// A set of [`PathForm`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathForms(u16);

/// The most readings of a path. A real path with several forms, such as a URL within a path, has about eight.
const READINGS_MAX: usize = 32;

/// The most bytes of all readings, so that a long path with many forms costs no more time than a long path without.
const READING_BYTES_MAX: usize = 64 << 10;

/// Returns the path as another reading, or `None` if it is the same.
type Change = fn(&[u8]) -> Option<Vec<u8>>;

/// The changes that origins make, in the order in which they make them. Each applies to the results of all changes
/// before it, and each may be left out.
const CHANGES: [(PathForm, Change); 15] = [
    (PathForm::LeadingSlashes, |path| {
        without_host(path, 2, |byte| byte == b'/')
    }),
    // URLs of browsers and Node ignore further slashes, and take `\` for a slash.
    (PathForm::LeadingSlashes, |path| {
        without_host(path, usize::MAX, is_slash)
    }),
    (PathForm::Parameters, without_parameters),
    (PathForm::EncodedCharacter, decode_dot_segments),
    (PathForm::EncodedCharacter, |path| {
        decode(path, |byte| !is_slash(byte))
    }),
    (PathForm::EncodedSlash, |path| {
        decode(path, |byte| byte == b'/')
    }),
    (PathForm::Backslash, |path| {
        decode(path, |byte| byte == b'\\')
    }),
    (PathForm::DoubleEncoding, decode_again),
    (PathForm::Parameters, without_parameters),
    (PathForm::Nul, |path| until(path, b"\0")),
    (PathForm::EncodedDelimiter, |path| until(path, b"?#")),
    (PathForm::Backslash, backslashes_as_slashes),
    (PathForm::RepeatedSlash, merge_slashes),
    (PathForm::DotSegment, remove_dot_segments),
    (PathForm::RepeatedSlash, merge_slashes),
];

impl<'a> PathReadings<'a> {
    /// Returns the readings of a path as sent.
    pub fn of(path: &'a str) -> Self {
        let mut readings = Self {
            form: Cow::Borrowed(path.as_bytes()),
            others: Vec::new(),
            forms: PathForms::default(),
            is_complete: true,
        };
        if !(path.starts_with('/') && has_one_reading(path.as_bytes())) {
            readings.form = matching_path(path);
            readings.add_others(path.as_bytes());
        }
        readings
    }

    fn add_others(&mut self, path: &[u8]) {
        // Bytes that a URL cannot have unencoded have one spelling, so a rule means this spelling.
        let sent = decode(path, |byte| !is_allowed(byte)).unwrap_or_else(|| path.to_vec());
        let mut bytes = sent.len();
        let mut readings = vec![sent];
        for (form, change) in CHANGES {
            for n in 0..readings.len() {
                let Some(other) = change(&readings[n]) else {
                    continue;
                };
                self.forms.insert(form);
                if readings.contains(&other) {
                    continue;
                }
                bytes += other.len();
                self.is_complete &= readings.len() < READINGS_MAX && bytes <= READING_BYTES_MAX;
                if !self.is_complete {
                    return;
                }
                readings.push(other);
            }
        }
        for mut reading in readings {
            unescape_percent(&mut reading);
            if *reading != *self.form && !self.others.contains(&reading) {
                self.others.push(reading);
            }
        }
    }

    /// Returns the [form for matching](matching_path).
    pub fn form(&self) -> &[u8] {
        &self.form
    }

    /// Returns the form for matching, then the other readings.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.form()).chain(self.others.iter().map(Vec::as_slice))
    }

    /// Compares all readings. A path with too many readings matches by some of them and not by others: it is sent by
    /// attackers, and this is the careful answer.
    pub fn matches(&self, test: impl Fn(&[u8]) -> bool) -> Match {
        let form = test(self.form());
        let differs = || self.others.iter().any(|reading| test(reading) != form);
        let is_disputed = !self.is_complete || differs();
        Match {
            form,
            any: form || is_disputed,
            all: form && !is_disputed,
        }
    }

    /// Returns the forms that origins may read differently.
    pub fn forms(&self) -> PathForms {
        self.forms
    }
}

impl Match {
    /// Returns the match of a part that no reading changes.
    pub const fn certain(matches: bool) -> Self {
        Self {
            form: matches,
            any: matches,
            all: matches,
        }
    }

    /// Returns the match of two parts that must both match.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            form: self.form && other.form,
            any: self.any && other.any,
            all: self.all && other.all,
        }
    }

    /// Returns true if some readings match and others do not.
    pub const fn is_disputed(self) -> bool {
        self.any && !self.all
    }
}

/// Returns true if no change applies to a path.
fn has_one_reading(path: &[u8]) -> bool {
    let mut after_slash = false;
    for &byte in path {
        match byte {
            b'%' | b';' | b'\\' => return false,
            b'/' | b'.' if after_slash => return false,
            _ => after_slash = byte == b'/',
        }
    }
    true
}

const fn is_slash(byte: u8) -> bool {
    matches!(byte, b'/' | b'\\')
}

/// Returns true for bytes that clients send unencoded in a path, and for `%`, whose encoding has a form of its own.
const fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_graphic()
        && !matches!(
            byte,
            b'"' | b'#' | b'<' | b'>' | b'?' | b'^' | b'`' | b'{' | b'|' | b'}'
        )
}

/// Decodes the encoded bytes for which `selects` returns true, except `%`.
fn decode(path: &[u8], selects: impl Fn(u8) -> bool) -> Option<Vec<u8>> {
    if !path.contains(&b'%') {
        return None;
    }
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((byte, after)) = decode_first(rest) {
        let sent = &rest[..rest.len() - after.len()];
        if sent.len() > 1 && byte != b'%' && selects(byte) {
            decoded.push(byte);
        } else {
            decoded.extend_from_slice(sent);
        }
        rest = after;
    }
    (decoded.len() < path.len()).then_some(decoded)
}

/// Decodes segments that are dot segments then. URLs of browsers and Node decode no other byte.
fn decode_dot_segments(path: &[u8]) -> Option<Vec<u8>> {
    if !path.contains(&b'%') {
        return None;
    }
    let mut decoded = Vec::with_capacity(path.len());
    for segment in path.split_inclusive(|byte| is_slash(*byte)) {
        let dots = decode(segment, |byte| byte == b'.');
        let is_dots = |dots: &Vec<u8>| {
            let end = dots.iter().position(|byte| *byte != b'.');
            let end = end.unwrap_or(dots.len());
            (1..=2).contains(&end) && dots[end..].iter().all(|byte| is_slash(*byte))
        };
        decoded.extend_from_slice(
            dots.as_ref()
                .filter(|dots| is_dots(dots))
                .map_or(segment, |dots| dots),
        );
    }
    (decoded.len() < path.len()).then_some(decoded)
}

/// Decodes a path whose encoded `%` begin encoded bytes.
fn decode_again(path: &[u8]) -> Option<Vec<u8>> {
    let mut once = path.to_vec();
    unescape_percent(&mut once);
    decode(&once, |_| true).filter(|_| once.len() < path.len())
}

/// Replaces `%25` by `%`.
fn unescape_percent(path: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(found) = path[at..].windows(3).position(|text| text == b"%25") {
        at += found + 1;
        path.drain(at..at + 2);
    }
}

/// Removes the host of a path that begins like a URL without a scheme. At most `slashes_max` slashes precede the host.
fn without_host(path: &[u8], slashes_max: usize, is_slash: impl Fn(u8) -> bool) -> Option<Vec<u8>> {
    let slashes = path.iter().take_while(|byte| is_slash(**byte)).count();
    if slashes < 2 {
        return None;
    }
    let rest = &path[slashes.min(slashes_max)..];
    let host_end = rest.iter().position(|byte| is_slash(*byte));
    Some(host_end.map_or_else(|| b"/".to_vec(), |end| rest[end..].to_vec()))
}

/// Removes `;` and the rest of each segment.
fn without_parameters(path: &[u8]) -> Option<Vec<u8>> {
    if !path.contains(&b';') {
        return None;
    }
    let segments = path.split(|byte| *byte == b'/');
    let kept = segments.map(|segment| {
        segment
            .split(|byte| *byte == b';')
            .next()
            .unwrap_or_default()
    });
    Some(kept.collect::<Vec<_>>().join(&b'/'))
}

/// Ends a path at the first of some bytes.
fn until(path: &[u8], ends: &[u8]) -> Option<Vec<u8>> {
    let end = path.iter().position(|byte| ends.contains(byte))?;
    Some(path[..end].to_vec())
}

fn backslashes_as_slashes(path: &[u8]) -> Option<Vec<u8>> {
    let slash = |byte: &u8| if *byte == b'\\' { b'/' } else { *byte };
    path.contains(&b'\\')
        .then(|| path.iter().map(slash).collect())
}

fn merge_slashes(path: &[u8]) -> Option<Vec<u8>> {
    let mut merged = path.to_vec();
    merged.dedup_by(|second, first| *second == b'/' && *first == b'/');
    (merged.len() < path.len()).then_some(merged)
}

/// Removes dot segments (RFC 3986 §5.2.4). `..` also removes an empty segment before it.
fn remove_dot_segments(path: &[u8]) -> Option<Vec<u8>> {
    let segments = path.split(|byte| *byte == b'/').skip(1);
    if !segments
        .clone()
        .any(|segment| matches!(segment, b"." | b".."))
    {
        return None;
    }
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut ends_with_slash = false;
    for segment in segments {
        ends_with_slash = matches!(segment, b"." | b"..");
        match segment {
            b"." => {}
            b".." => drop(kept.pop()),
            _ => kept.push(segment),
        }
    }
    if ends_with_slash {
        kept.push(b"");
    }
    Some([b"/", &*kept.join(&b'/')].concat())
}

impl PathForm {
    /// All forms.
    pub const ALL: [Self; 10] = [
        Self::LeadingSlashes,
        Self::Parameters,
        Self::EncodedCharacter,
        Self::EncodedSlash,
        Self::DoubleEncoding,
        Self::Nul,
        Self::EncodedDelimiter,
        Self::Backslash,
        Self::RepeatedSlash,
        Self::DotSegment,
    ];

    /// Returns the word of the setting.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LeadingSlashes => "leading-slashes",
            Self::Parameters => "parameters",
            Self::EncodedCharacter => "encoded-character",
            Self::EncodedSlash => "encoded-slash",
            Self::DoubleEncoding => "double-encoding",
            Self::Nul => "nul",
            Self::EncodedDelimiter => "encoded-delimiter",
            Self::Backslash => "backslash",
            Self::RepeatedSlash => "repeated-slash",
            Self::DotSegment => "dot-segment",
        }
    }
}

impl PathForms {
    fn insert(&mut self, form: PathForm) {
        self.0 |= 1 << form as u16;
    }

    /// Returns true if the set has no form.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the forms of the set.
    pub fn iter(self) -> impl Iterator<Item = PathForm> {
        let has = move |form: &PathForm| self.0 >> *form as u16 & 1 == 1;
        PathForm::ALL.into_iter().filter(has)
    }

    /// Returns the forms that both sets have.
    #[must_use]
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl fmt::Display for PathForms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, form) in self.iter().enumerate() {
            let comma = if n > 0 { ", " } else { "" };
            write!(f, "{comma}{}", form.as_str())?;
        }
        Ok(())
    }
}

/// The text is not a list of [`PathForm`]s.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a form of a path; write words such as encoded-slash with commas between")]
pub struct ParsePathFormsError(Box<str>);

impl FromStr for PathForms {
    type Err = ParsePathFormsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut forms = Self::default();
        for word in text
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
        {
            let named = PathForm::ALL.into_iter().find(|form| form.as_str() == word);
            forms.insert(named.ok_or_else(|| ParsePathFormsError(word.into()))?);
        }
        Ok(forms)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn readings(path: &str) -> Vec<String> {
        let readings = PathReadings::of(path);
        assert!(readings.is_complete, "{path}");
        let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        readings.iter().map(text).collect()
    }

    /// How one origin reads a path. Each function was written after a test with the program (`origin_readings` in the
    /// tests of the edge).
    type Origin = (&'static str, fn(&str) -> String);

    fn decoded(path: &str) -> String {
        let mut bytes = Vec::new();
        let mut rest = path.as_bytes();
        while let Some((byte, after)) = decode_first(rest) {
            bytes.push(byte);
            rest = after;
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn clean(path: &str, merges: bool) -> String {
        let path = if merges {
            merge_slashes(path.as_bytes())
        } else {
            None
        }
        .unwrap_or_else(|| path.as_bytes().to_vec());
        let path = remove_dot_segments(&path).unwrap_or(path);
        String::from_utf8(path).expect("UTF-8")
    }

    fn without(path: &str, parameters: bool) -> String {
        let path = path.as_bytes();
        let kept = parameters.then(|| without_parameters(path)).flatten();
        String::from_utf8(kept.unwrap_or_else(|| path.to_vec())).expect("UTF-8")
    }

    const ORIGINS: [Origin; 12] = [
        ("nginx", |path| clean(&decoded(path), true)),
        ("nginx, merge_slashes off", |path| {
            clean(&decoded(path), false)
        }),
        ("Apache", |path| {
            let kept = decode(path.as_bytes(), |byte| byte != b'/');
            let kept = kept.unwrap_or_else(|| path.into());
            clean(&String::from_utf8_lossy(&kept), true)
        }),
        ("Express", str::to_owned),
        ("Node, new URL", |path| {
            let path = path.replace('\\', "/");
            let dots = decode_dot_segments(path.as_bytes());
            clean(
                &String::from_utf8_lossy(&dots.unwrap_or_else(|| path.clone().into())),
                false,
            )
        }),
        ("Flask", decoded),
        ("Go, ServeMux", |path| clean(&decoded(path), true)),
        ("Go, own handler", decoded),
        ("PHP, REQUEST_URI", str::to_owned),
        ("PHP, PATH_INFO to a NUL", |path| {
            decoded(path)
                .split('\0')
                .next()
                .unwrap_or_default()
                .to_owned()
        }),
        ("JDK", |path| {
            let rest = path
                .strip_prefix("//")
                .and_then(|rest| Some(&rest[rest.find('/')?..]));
            decoded(rest.unwrap_or(path))
        }),
        ("Servlets", |path| {
            clean(&decoded(&without(path, true)), true)
        }),
    ];

    /// Bytes that clients cannot send unencoded have one spelling, which the readings have decoded.
    fn spelled(path: &str) -> String {
        let spelled = decode(path.as_bytes(), |byte| !is_allowed(byte));
        let mut spelled = spelled.unwrap_or_else(|| path.into());
        unescape_percent(&mut spelled);
        String::from_utf8_lossy(&spelled).into_owned()
    }

    const PIECES: [&str; 16] = [
        "/", "/a", "/b", ".", "..", "/..", "%2e", "%2F", "%2f..", "%61", ";x", "%3Bx", "\\", "%5C",
        "//", "%20",
    ];

    proptest! {
        /// Paths of requests begin with a slash or are `*`. Other texts have a form, too.
        #[test]
        fn the_first_reading_of_any_text_is_its_form(text in "[/a.%;\\\\*é]{0,6}") {
            let readings = PathReadings::of(&text);
            prop_assert_eq!(readings.form(), &*matching_path(&text));
        }

        #[test]
        fn the_path_of_each_origin_is_a_reading(
            pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..7),
        ) {
            let path = format!("/{}", pieces.concat());
            let readings = PathReadings::of(&path);
            prop_assume!(readings.is_complete);
            for (name, read) in ORIGINS {
                let path = spelled(&read(&path));
                prop_assert!(readings.iter().any(|reading| reading == path.as_bytes()), "{} {:?}", name, path);
            }
        }

        #[test]
        fn a_path_without_forms_has_one_reading(path in "/([a-z]/?|\\.[a-z]|%20|%C3%BC|%25-){0,8}") {
            let path = path.replace("//", "/").replace("/.", "/x");
            prop_assert_eq!(readings(&path), vec![spelled(&path)]);
            prop_assert!(PathReadings::of(&path).forms().is_empty());
        }

        #[test]
        fn any_path_has_bounded_readings(path in any::<String>()) {
            let readings = PathReadings::of(&path);
            prop_assert!(readings.iter().count() <= READINGS_MAX + 1);
        }
    }

    /// The table of the module doc: how eight kinds of origins read `path`, and that each is a reading.
    #[test]
    fn eight_kinds_of_origins_read_a_path_in_one_of_its_readings() {
        for path in [
            "/admin/..%2fx",
            "/admin/%2e%2e/x",
            "/admin/../x",
            "/admin//../x",
            "/admin/x/../../",
            "/admin/.%2e/static/x",
            "/account/..%2fstatic/x",
            "/account/x/..%2f..%2fstatic/x",
            "/account%2f..%2fstatic/x",
            "/account;%2f..%2fstatic/x",
            "/account%00/../static/x",
            "/account/..;/static/x",
            "/account/..\\static\\x",
            "//host/account/x",
            "/%61ccount/x",
            "/account/x;v=1.css",
        ] {
            let readings = readings(path);
            for (name, read) in ORIGINS {
                let read = spelled(&read(path));
                assert!(
                    readings.contains(&read),
                    "{name} reads {path} as {read}: {readings:?}"
                );
            }
        }
    }

    #[test]
    fn a_reading_decides_between_restricting_and_permitting() {
        let under = |prefix: &'static str| move |path: &[u8]| path.starts_with(prefix.as_bytes());
        for (path, prefix, any, all) in [
            ("/admin/x", "/admin/", true, true),
            ("/admin/..%2fx", "/admin/", true, false),
            ("/%61dmin/x", "/admin/", true, false),
            ("/%2561dmin/x", "/admin/", true, false),
            ("//h/admin/x", "/admin/", true, false),
            ("/admin;a/x", "/admin/", true, false),
            ("/x%3f/../admin/x", "/admin/", true, false),
            ("/admin%23/..", "/admin", true, false),
            ("/x\\..\\admin/", "/admin/", true, false),
            ("/static/a%2Fb", "/static/", true, true),
            ("/static/a%20b;c//d", "/static/", true, true),
            ("/static/../static/x", "/static/", true, true),
            ("/m%C3%BCnchen/x", "/m\u{fc}nchen/", true, true),
            ("/100%25/x", "/100%/", true, true),
            ("/other/..%2fx", "/admin/", false, false),
        ] {
            let found = PathReadings::of(path).matches(under(prefix));
            assert_eq!(
                (found.any, found.all),
                (any, all),
                "{path} {:?}",
                readings(path)
            );
        }
    }

    #[test]
    fn too_many_readings_restrict_and_permit_nothing() {
        let of = |path: &str| PathReadings::of(path).matches(|_| false);
        let few = "/a/..%2f".to_owned();
        assert_eq!(of(&few), Match::certain(false));
        let long = format!("{few}{}", "a".repeat(READING_BYTES_MAX));
        assert!(of(&long).is_disputed());
        let many = "//h/;a%61%2561/..%2f..%5c%3b%00%3f//../x";
        assert!(of(many).is_disputed());
    }

    #[test]
    fn forms_name_what_origins_may_read_differently() {
        for (path, forms) in [
            ("/a/b.css", ""),
            ("/.well-known/x", ""),
            ("/a%20b", ""),
            ("/100%25", ""),
            ("//a", "leading-slashes, repeated-slash"),
            ("/a;b", "parameters"),
            ("/%61", "encoded-character"),
            ("/a%2fb", "encoded-slash"),
            ("/a%5Cb", "backslash"),
            ("/%2561", "double-encoding"),
            ("/a%00", "nul"),
            ("/a%3Fb", "encoded-delimiter"),
            ("/a\\b", "backslash"),
            ("/a//b", "repeated-slash"),
            ("/a/../b", "dot-segment"),
            ("/a/%2e%2e/b", "encoded-character, dot-segment"),
        ] {
            assert_eq!(PathReadings::of(path).forms().to_string(), forms, "{path}");
        }
        for form in PathForm::ALL {
            let forms: PathForms = form.as_str().parse().expect("a form");
            assert_eq!(forms.iter().collect::<Vec<_>>(), [form]);
        }
        assert!("none".parse::<PathForms>().is_err());
    }
}
