//! Decides if the response to one request answers another one whose `Accept-Encoding` or `Accept` differs.
//!
//! A cache does not know how an origin chooses between representations. It knows some choices: the fields of a request,
//! and the response to it. They are enough for this law:
//!
//! > The origin chooses the same representation again if it is at least as welcome to the new request, and no other
//! > representation is more welcome.
//!
//! The law holds for all origins that follow the weights of a field, for those that prefer their own order, and for
//! those that only look for a name in the field. In the theory of choice it is the independence of irrelevant
//! alternatives: `gzip, br, zstd` had the answer `br`, so `gzip, br` has it too. A request with an alternative that the
//! earlier one did not list reaches the origin.
//!
//! The functions compare secondary keys, which [`VaryFields::write_key`](crate::VaryFields::write_key) makes. Both
//! fields then have their canonical form.
//!
//! Clients choose the fields, and the response to one client answers others. Therefore only values whose parts are all
//! known are compared: known codings, and known media types without parameters, for images. Other media types are
//! excluded for another reason as well: vendor types select versions of an API that have the same `Content-Type`.

use std::cmp::Ordering;

use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use http::{HeaderName, StatusCode};

/// The coding and the type of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Representation {
    coding: &'static str,
    /// `None` if the response is no image of a known type.
    image: Option<&'static str>,
}

impl Representation {
    /// Returns the representation in a response. `None` if the response answers only requests with equal fields: for
    /// errors and other statuses than 200, and for unknown or several codings.
    pub fn from_response(status: StatusCode, head: &HeaderMap) -> Option<Self> {
        if status != StatusCode::OK {
            return None;
        }
        let coding = match single(head, &CONTENT_ENCODING)? {
            "" => IDENTITY,
            // RFC 9110 §8.4.1.3.
            coding if coding.eq_ignore_ascii_case("x-gzip") => "gzip",
            coding => known(&CODINGS, coding).filter(|&known| known != ANY_CODING)?,
        };
        let content_type = single(head, &CONTENT_TYPE)?;
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        Some(Self {
            coding,
            image: known(&MEDIA_RANGES, media_type).filter(|known| is_image(known)),
        })
    }
}

/// Returns true if the response whose request had the secondary key `stored`, and which is `representation`, answers a
/// request with the secondary key `request`. Fields other than `Accept` and `Accept-Encoding` must be equal.
pub fn answers(representation: Representation, stored: &[u8], request: &[u8]) -> bool {
    let (mut stored, mut request) = (lines(stored), lines(request));
    loop {
        let is_answered = match (stored.next(), request.next()) {
            (None, None) => return true,
            (Some(stored), Some(request)) if stored == request => true,
            (Some(stored), Some(request)) => match (offer_of(stored), offer_of(request)) {
                (Some(Offer::Codings(stored)), Some(Offer::Codings(request))) => {
                    chooses_coding(&stored, representation.coding, &request)
                }
                (Some(Offer::MediaTypes(stored)), Some(Offer::MediaTypes(request))) => {
                    representation
                        .image
                        .is_some_and(|image| chooses_type(&stored, image, &request))
                }
                _ => false,
            },
            _ => false,
        };
        if !is_answered {
            return false;
        }
    }
}

/// Returns the lines of a secondary key with `Accept` or `Accept-Encoding`. `None` if the key has neither field, or if
/// one of their values has an unknown part. Such a request gets only a response to equal fields.
pub fn negotiated_lines(key: &[u8]) -> Option<Vec<u8>> {
    let mut negotiated = Vec::new();
    for line in lines(key).filter(|line| is_negotiated(line)) {
        offer_of(line)?;
        push_line(line, &mut negotiated);
    }
    (!negotiated.is_empty()).then_some(negotiated)
}

/// Returns a secondary key whose lines with `Accept` and `Accept-Encoding` are replaced by `negotiated`. `None` if
/// these are not lines of the same fields.
pub fn with_negotiated_lines(key: &[u8], negotiated: &[u8]) -> Option<Vec<u8>> {
    let mut replacements = lines(negotiated);
    let mut replaced = Vec::with_capacity(key.len() + negotiated.len());
    for line in lines(key) {
        let line = match is_negotiated(line) {
            true => {
                let replacement = replacements.next()?;
                (name_of(line) == name_of(replacement)).then_some(replacement)?
            }
            false => line,
        };
        push_line(line, &mut replaced);
    }
    replacements.next().is_none().then_some(replaced)
}

/// A parsed line of a secondary key.
enum Offer {
    Codings(Vec<Range>),
    MediaTypes(Vec<Range>),
}

/// A coding or media range that a field lists, and its weight in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    name: &'static str,
    weight: u16,
}

fn offer_of(line: &[u8]) -> Option<Offer> {
    let (name, value) = line.split_at(colon(line)?);
    let value = std::str::from_utf8(&value[1..]).ok()?;
    if name == ACCEPT_ENCODING.as_str().as_bytes() {
        return codings(value).map(Offer::Codings);
    }
    if name == ACCEPT.as_str().as_bytes() {
        return ranges(&MEDIA_RANGES, value).map(Offer::MediaTypes);
    }
    None
}

/// Returns the codings that a field accepts. `None` if it refuses identity, or accepts all codings.
fn codings(value: &str) -> Option<Vec<Range>> {
    let mut listed = ranges(&CODINGS, value)?;
    let any = weight_of(&listed, ANY_CODING);
    let identity = weight_of(&listed, IDENTITY);
    // RFC 9110 §12.5.3: `*` stands for all codings that are not listed, and identity may be one of them.
    if any.is_some_and(|weight| weight > 0 || identity.is_none()) || identity == Some(0) {
        return None;
    }
    listed.retain(|range| range.weight > 0);
    Some(listed)
}

/// Parses a list of known names, each at most once, with weights but without other parameters.
fn ranges(all: &'static [&'static str], value: &str) -> Option<Vec<Range>> {
    let mut listed: Vec<Range> = Vec::new();
    for member in value.split(',').filter(|member| !member.is_empty()) {
        let (name, weight) = match member.split_once(";q=") {
            Some((name, weight)) => (name, parse_weight(weight)?),
            None => (member, WEIGHT_MAX),
        };
        let name = known(all, name)?;
        if weight_of(&listed, name).is_some() {
            return None;
        }
        listed.push(Range { name, weight });
    }
    Some(listed)
}

/// Returns true if the origin, which chose `chosen` for `stored`, chooses it for `request` too.
fn chooses_coding(stored: &[Range], chosen: &str, request: &[Range]) -> bool {
    CODINGS.iter().all(|&coding| {
        let (before, now) = (weight_of(stored, coding), weight_of(request, coding));
        let (before, now) = match (coding == IDENTITY, before, now) {
            // RFC 9110 §12.5.3: identity is acceptable if it is not listed, with a weight that is not defined.
            (true, None, None) => return true,
            (true, Some(before), Some(now)) => (before, now),
            (true, ..) => return false,
            (false, before, now) => (before.unwrap_or(0), now.unwrap_or(0)),
        };
        match coding == chosen {
            true => now >= before && before > 0,
            false => now <= before,
        }
    })
}

/// Like [`chooses_coding`], for the types of images.
fn chooses_type(stored: &[Range], chosen: &str, request: &[Range]) -> bool {
    let (Some(before), Some(now)) = (matching(stored, chosen), matching(request, chosen)) else {
        return false;
    };
    // Many origins choose a type only if the field lists it, whatever wildcards it has. So the same range has to match.
    let is_as_welcome = before.range.name == now.range.name
        && now.range.weight >= before.range.weight
        && before.range.weight > 0;
    // For the same reason, the new request may not list other types than the stored one.
    let lists_no_other = request
        .iter()
        .all(|range| range.weight == 0 || weight_of(stored, range.name).is_some_and(|w| w > 0));
    is_as_welcome
        && lists_no_other
        && types().filter(|&other| other != chosen).all(|other| {
            let Some(other_now) = matching(request, other).filter(|now| now.range.weight > 0)
            else {
                return true;
            };
            matching(stored, other).is_some_and(|other_before| {
                // Some origins prefer the type that is listed first, and their own order within one range.
                let stays_first = match other_now.at.cmp(&now.at) {
                    Ordering::Less => other_before.at < before.at,
                    Ordering::Equal => other_before.at <= before.at,
                    Ordering::Greater => true,
                };
                other_now.range.weight <= other_before.range.weight && stays_first
            })
        })
}

/// The range that matches a type, and its position in the field.
struct Match {
    range: Range,
    at: usize,
}

/// Returns the most specific range that matches a type (RFC 9110 §12.5.1).
fn matching(listed: &[Range], media_type: &str) -> Option<Match> {
    let all_subtypes = |name: &str| {
        let kind = name.strip_suffix("/*");
        kind.is_some_and(|kind| media_type.split('/').next() == Some(kind))
    };
    let find = |matches: &dyn Fn(&str) -> bool| {
        let at = listed.iter().position(|range| matches(range.name))?;
        let range = listed[at];
        Some(Match { range, at })
    };
    find(&|name| name == media_type)
        .or_else(|| find(&|name| name != ANY_TYPE && all_subtypes(name)))
        .or_else(|| find(&|name| name == ANY_TYPE))
}

/// Yields all known types, and unknown ones for which the wildcards stand.
fn types() -> impl Iterator<Item = &'static str> {
    let known = MEDIA_RANGES
        .into_iter()
        .filter(|name| !name.ends_with("/*"));
    known.chain(["image/unknown", "video/unknown", "unknown/unknown"])
}

fn is_image(name: &str) -> bool {
    name.starts_with("image/") && !name.ends_with("/*")
}

fn weight_of(listed: &[Range], name: &str) -> Option<u16> {
    let mut ranges = listed.iter();
    ranges
        .find(|range| range.name == name)
        .map(|range| range.weight)
}

/// Parses a weight in thousandths (RFC 9110 §12.4.2).
fn parse_weight(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 3 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let thousandths: u16 = format!("{fraction:0<3}").parse().ok()?;
    match (whole, thousandths) {
        ("0", thousandths) => Some(thousandths),
        ("1", 0) => Some(WEIGHT_MAX),
        _ => None,
    }
}

/// Returns the known name that equals `name`, ignoring case.
fn known(all: &'static [&'static str], name: &str) -> Option<&'static str> {
    all.iter()
        .copied()
        .find(|known| known.eq_ignore_ascii_case(name))
}

/// Returns the only value of a field, or an empty text without the field. `None` if the field has several lines.
fn single<'a>(head: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = head.get_all(name).into_iter();
    match (values.next(), values.next()) {
        (None, _) => Some(""),
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

fn lines(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    key.split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
}

fn push_line(line: &[u8], key: &mut Vec<u8>) {
    key.extend_from_slice(line);
    key.push(b'\n');
}

/// Returns the position of the colon that ends the name of a line's field. `None` if the request lacks the field.
fn colon(line: &[u8]) -> Option<usize> {
    line.iter().position(|&byte| byte == b':')
}

fn name_of(line: &[u8]) -> &[u8] {
    &line[..colon(line).unwrap_or(line.len())]
}

fn is_negotiated(line: &[u8]) -> bool {
    let name = name_of(line);
    [ACCEPT, ACCEPT_ENCODING]
        .iter()
        .any(|field| name == field.as_str().as_bytes())
}

const WEIGHT_MAX: u16 = 1000;
const IDENTITY: &str = "identity";
const ANY_CODING: &str = "*";
const ANY_TYPE: &str = "*/*";

/// The range for all codings, and the codings that servers use. Codings with a dictionary are not compared, because
/// they depend on more than this field.
const CODINGS: [&str; 7] = [
    ANY_CODING, "br", "compress", "deflate", "gzip", IDENTITY, "zstd",
];

/// The media ranges that browsers send for images and pages.
const MEDIA_RANGES: [&str; 22] = [
    ANY_TYPE,
    "image/*",
    "image/apng",
    "image/avif",
    "image/bmp",
    "image/gif",
    "image/heic",
    "image/heic-sequence",
    "image/heif",
    "image/jpeg",
    "image/jxl",
    "image/png",
    "image/svg+xml",
    "image/tiff",
    "image/vnd.microsoft.icon",
    "image/webp",
    "image/x-icon",
    "video/*",
    "audio/*",
    "text/html",
    "application/xhtml+xml",
    "application/xml",
];
