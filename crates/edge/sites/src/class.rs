//! Classes of requests: parts of the cache key that are computed from fields of the request.

use std::fmt;

use edgeward_types::Pattern;
use http::header::{ACCEPT, ACCEPT_LANGUAGE, COOKIE, HeaderName, USER_AGENT};

use crate::fields::{Fields, any_cookie};

/// A part of the cache key beside the URL. Requests of one class share stored responses.
#[derive(Clone, Debug)]
pub enum Class {
    /// The kind of device, from `User-Agent`.
    Device,
    /// The best image format that the client accepts.
    ImageFormat,
    /// The language of this list that the client prefers. The first language is the default.
    Language(Box<[Box<str>]>),
    /// The values of all cookies with this name, in their order.
    Cookie(Box<str>),
    /// True if a cookie with such a name is present.
    HasCookie(Pattern),
    /// All lines of a request field, in their order.
    Header(HeaderName),
}

/// The request has no class, so it bypasses the cache.
///
/// The origin gets the fields as sent. Everything that it may take for the value of a class has to be in the key:
/// otherwise a client could send one value for the key and another one for the origin, and other clients would get the
/// response to the second one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoClass {
    /// The values are longer than [`CLASS_BYTES_MAX`], so that a key with them is not worth storing.
    TooLong,
    /// Origins would find different values.
    Ambiguous,
}

/// The longest value in a key. Cookies that select a response, such as a currency, are far shorter. A longer value is
/// probably different for each client.
pub const CLASS_BYTES_MAX: usize = 128;

impl Class {
    /// Returns the request field that the class reads.
    pub(crate) fn field(&self) -> HeaderName {
        match self {
            Self::Device => USER_AGENT,
            Self::ImageFormat => ACCEPT,
            Self::Language(_) => ACCEPT_LANGUAGE,
            Self::Cookie(_) | Self::HasCookie(_) => COOKIE,
            Self::Header(name) => name.clone(),
        }
    }

    /// Appends the class of a request to a key: a text without `#` and control characters.
    pub fn write(&self, fields: &dyn Fields, key: &mut Vec<u8>) -> Result<(), NoClass> {
        match self {
            Self::Device => {
                let mut lines = 0;
                fields.any_line(&USER_AGENT, &mut |_| {
                    lines += 1;
                    false // all lines count
                });
                if lines > 1 {
                    return Err(NoClass::Ambiguous);
                }
                key.extend_from_slice(Device::of(fields).as_str().as_bytes());
            }
            Self::ImageFormat => key.extend_from_slice(ImageFormat::of(fields).as_str().as_bytes()),
            Self::Language(offered) => {
                key.extend_from_slice(preferred_language(fields, offered).as_bytes());
            }
            Self::Cookie(name) => write_cookie(name.as_bytes(), fields, key)?,
            Self::HasCookie(pattern) => {
                let is_present = any_cookie(fields, &mut |name, _| pattern.matches(name));
                key.push(if is_present { b'1' } else { b'0' });
            }
            Self::Header(name) => {
                let mut values = Values::new(key);
                fields.any_line(name, &mut |line| !values.push(line.trim_ascii()));
                values.end()?;
            }
        }
        key.push(b';');
        Ok(())
    }
}

/// Appends the values of all cookies with a name. Origins disagree about several cookies of a name: some read the first
/// one, others the last. They also disagree about other delimiters than `;`, so a request in which they might find
/// another cookie of this name has no class.
fn write_cookie(name: &[u8], fields: &dyn Fields, key: &mut Vec<u8>) -> Result<(), NoClass> {
    let mut values = Values::new(key);
    let (mut named, mut found) = (0, 0);
    any_cookie(fields, &mut |cookie, value| {
        if cookie != name {
            return false;
        }
        named += 1;
        !values.push(value)
    });
    values.end()?;
    fields.any_line(&COOKIE, &mut |line| {
        // Python ends a cookie at a space, and RFC 2109 allowed commas. PHP reads `.` and `[` in a name as `_`.
        let words = line.split(|byte| matches!(byte, b';' | b',' | b' ' | b'\t' | b'"'));
        let is_named = |word: &&[u8]| {
            word.len() >= name.len()
                && word
                    .iter()
                    .zip(name)
                    .all(|(byte, own)| byte == own || (*own == b'_' && matches!(byte, b'.' | b'[')))
                && matches!(word.get(name.len()), None | Some(b'=' | b'['))
        };
        found += words.filter(is_named).count();
        false // all lines count
    });
    if named == found {
        Ok(())
    } else {
        Err(NoClass::Ambiguous)
    }
}

/// Appends values to a key, each as `=` and the percent-encoded bytes. An empty value differs from none, two values
/// differ from one, and no value contains a delimiter.
struct Values<'k> {
    key: &'k mut Vec<u8>,
    /// The bytes that all values may still have.
    bytes_left: usize,
    result: Result<(), NoClass>,
}

impl<'k> Values<'k> {
    fn new(key: &'k mut Vec<u8>) -> Self {
        Self {
            key,
            bytes_left: CLASS_BYTES_MAX + 1,
            result: Ok(()),
        }
    }

    /// Returns false if the values are too long.
    fn push(&mut self, value: &[u8]) -> bool {
        // One byte more for each value, so that empty values are bounded, too.
        let Some(left) = self.bytes_left.checked_sub(value.len() + 1) else {
            self.result = Err(NoClass::TooLong);
            return false;
        };
        self.bytes_left = left;
        self.key.push(b'=');
        for &byte in value {
            if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
                self.key.push(byte);
            } else {
                self.key
                    .extend_from_slice(format!("%{byte:02X}").as_bytes());
            }
        }
        true
    }

    fn end(self) -> Result<(), NoClass> {
        self.result
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device => f.write_str("device"),
            Self::ImageFormat => f.write_str("image-format"),
            Self::Language(offered) => write!(f, "language:{}", offered.join(",")),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::HasCookie(pattern) => write!(f, "has-cookie:{pattern}"),
            Self::Header(name) => write!(f, "header:{name}"),
        }
    }
}

/// The text is not a [`Class`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a class; write device, image-format, language:en,de, cookie:NAME, has-cookie:PATTERN or header:NAME"
)]
pub struct ParseClassError(Box<str>);

impl std::str::FromStr for Class {
    type Err = ParseClassError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseClassError(text.into());
        let (kind, argument) = match text.split_once(':') {
            Some((kind, argument)) => (kind, Some(argument)),
            None => (text, None),
        };
        let argument = argument.filter(|argument| !argument.is_empty());
        match (kind, argument) {
            ("device", None) if text == "device" => Ok(Self::Device),
            ("image-format", None) if text == "image-format" => Ok(Self::ImageFormat),
            ("language", Some(list)) => {
                let tags: Vec<Box<str>> = list
                    .split(',')
                    .map(|tag| tag.trim().to_ascii_lowercase().into())
                    .collect();
                let is_tag = |tag: &str| {
                    !tag.is_empty() && tag.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
                };
                if !tags.iter().all(|tag| is_tag(tag)) {
                    return Err(error());
                }
                Ok(Self::Language(tags.into()))
            }
            ("cookie", Some(name)) => Ok(Self::Cookie(name.into())),
            ("has-cookie", Some(pattern)) => Ok(Self::HasCookie(Pattern::new(pattern))),
            ("header", Some(name)) => name.parse().map(Self::Header).map_err(|_| error()),
            _ => Err(error()),
        }
    }
}

/// The kind of device of a client, from substrings of `User-Agent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Everything else.
    Desktop,
    /// A phone.
    Mobile,
    /// A tablet.
    Tablet,
    /// A crawler.
    Bot,
}

impl Device {
    /// Returns the kind of device of a request.
    pub fn of(fields: &dyn Fields) -> Self {
        let mut device = Self::Desktop;
        fields.any_line(&USER_AGENT, &mut |agent| {
            let has = |part: &[u8]| {
                agent
                    .windows(part.len())
                    .any(|window| window.eq_ignore_ascii_case(part))
            };
            device = if [&b"bot"[..], b"crawl", b"spider"]
                .iter()
                .any(|part| has(part))
            {
                Self::Bot
            } else if has(b"ipad") || has(b"tablet") || (has(b"android") && !has(b"mobile")) {
                Self::Tablet
            } else if has(b"mobi") || has(b"iphone") || has(b"android") {
                Self::Mobile
            } else {
                Self::Desktop
            };
            true
        });
        device
    }

    /// Returns the word in keys and variables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Desktop => "desktop",
            Self::Mobile => "mobile",
            Self::Tablet => "tablet",
            Self::Bot => "bot",
        }
    }
}

/// The best format of images that a client states to accept. Only formats that are named count, because `*/*` is also
/// sent by clients without support for the newer formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// `image/avif`.
    Avif,
    /// `image/webp`.
    Webp,
    /// Neither of them.
    Other,
}

impl ImageFormat {
    /// Returns the format of a request.
    pub fn of(fields: &dyn Fields) -> Self {
        let names = |format: &str| {
            fields.any_line(&ACCEPT, &mut |line| {
                weighted(line).any(|(range, weight)| {
                    weight > 0 && range.eq_ignore_ascii_case(format.as_bytes())
                })
            })
        };
        if names("image/avif") {
            Self::Avif
        } else if names("image/webp") {
            Self::Webp
        } else {
            Self::Other
        }
    }

    /// Returns the word in keys and variables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Avif => "avif",
            Self::Webp => "webp",
            Self::Other => "other",
        }
    }
}

/// Returns the language of `offered` with the highest weight in `Accept-Language`: a range matches a tag that is equal
/// or that continues after a hyphen, and a longer range is shortened (RFC 4647 §3.4). Without a match, the first one.
fn preferred_language<'a>(fields: &dyn Fields, offered: &'a [Box<str>]) -> &'a str {
    let mut best: Option<(u16, usize)> = None;
    fields.any_line(&ACCEPT_LANGUAGE, &mut |line| {
        for (range, weight) in weighted(line) {
            let range = String::from_utf8_lossy(range).to_ascii_lowercase();
            if weight > 0
                && let Some(at) = lookup(&range, offered)
                && best.is_none_or(|(most, _)| weight > most)
            {
                best = Some((weight, at));
            }
        }
        false
    });
    &offered[best.map_or(0, |(_, at)| at)]
}

/// Returns the position of the offered tag that a language range selects.
fn lookup(range: &str, offered: &[Box<str>]) -> Option<usize> {
    let mut range = range;
    loop {
        let continues = |tag: &str| {
            tag.strip_prefix(range)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        if let Some(at) = offered.iter().position(|tag| **tag == *range) {
            return Some(at);
        }
        if let Some(at) = offered.iter().position(|tag| continues(tag)) {
            return Some(at);
        }
        range = &range[..range.rfind('-')?];
    }
}

/// Returns the members of a list with weights in thousandths (RFC 9110 §12.4.2). A malformed weight counts as 0.
fn weighted(line: &[u8]) -> impl Iterator<Item = (&[u8], u16)> {
    line.split(|byte| *byte == b',').map(|member| {
        let mut parts = member.split(|byte| *byte == b';');
        let range = parts.next().unwrap_or_default().trim_ascii();
        let weight = parts
            .filter_map(|parameter| {
                let parameter = parameter.trim_ascii();
                let value = parameter
                    .strip_prefix(b"q=")
                    .or_else(|| parameter.strip_prefix(b"Q="))?;
                Some(
                    std::str::from_utf8(value)
                        .ok()
                        .and_then(|text| text.parse().ok()),
                )
            })
            .next();
        let weight: f32 = match weight {
            None => 1.0,
            Some(weight) => weight.unwrap_or(0.0),
        };
        // Between 0 and 1000, also for NaN and infinite numbers.
        (range, (weight.clamp(0.0, 1.0) * 1000.0) as u16)
    })
}

#[cfg(test)]
mod tests {
    use http::header::HeaderMap;

    use super::*;

    fn class(text: &str, name: &'static str, value: &str) -> String {
        let mut fields = HeaderMap::new();
        fields.insert(name, value.parse().expect("a value"));
        let class: Class = text.parse().expect(text);
        let mut key = Vec::new();
        class.write(&fields, &mut key).expect("a short value");
        String::from_utf8(key).expect("ASCII")
    }

    #[test]
    fn requests_of_one_class_have_one_key() {
        for (text, name, value, key) in [
            (
                "device",
                "user-agent",
                "Mozilla/5.0 (X11; Linux x86_64)",
                "desktop;",
            ),
            (
                "device",
                "user-agent",
                "Mozilla/5.0 (iPhone; CPU …) Mobile/15E",
                "mobile;",
            ),
            (
                "device",
                "user-agent",
                "Mozilla/5.0 (Linux; Android 14) Mobile",
                "mobile;",
            ),
            (
                "device",
                "user-agent",
                "Mozilla/5.0 (Linux; Android 14)",
                "tablet;",
            ),
            (
                "device",
                "user-agent",
                "Mozilla/5.0 (iPad; CPU OS 17)",
                "tablet;",
            ),
            (
                "device",
                "user-agent",
                "Googlebot/2.1 (Android; Mobile)",
                "bot;",
            ),
            (
                "image-format",
                "accept",
                "image/avif,image/webp,*/*",
                "avif;",
            ),
            (
                "image-format",
                "accept",
                "image/avif;q=0, image/webp",
                "webp;",
            ),
            ("image-format", "accept", "*/*", "other;"),
            (
                "language:en,de",
                "accept-language",
                "de-AT, en;q=0.8",
                "de;",
            ),
            (
                "language:en,de",
                "accept-language",
                "en;q=0.2, de;q=0.3",
                "de;",
            ),
            ("language:en,de", "accept-language", "fr, de;q=0", "en;"),
            ("language:en,pt-br", "accept-language", "pt", "pt-br;"),
            ("cookie:cur", "cookie", "a=1; cur=EUR; cur=USD", "=EUR=USD;"),
            ("cookie:cur", "cookie", "a=1", ";"),
            ("cookie:cur", "cookie", "cur=", "=;"),
            ("has-cookie:s_*", "cookie", "a=1; s_9=x", "1;"),
            ("has-cookie:s_*", "cookie", "a=1", "0;"),
            ("header:x-country", "x-country", " DE ", "=DE;"),
            ("header:x-country", "x-country", "a#b;c", "=a%23b%3Bc;"),
        ] {
            assert_eq!(class(text, name, value), key, "{text} {value}");
        }
    }

    fn write(class: &str, lines: &[(&'static str, &str)]) -> Result<String, NoClass> {
        let mut fields = HeaderMap::new();
        for (name, value) in lines {
            fields.append(*name, value.parse().expect("a value"));
        }
        let class: Class = class.parse().expect("a class");
        let mut key = Vec::new();
        class.write(&fields, &mut key)?;
        Ok(String::from_utf8(key).expect("ASCII"))
    }

    #[test]
    fn a_long_value_has_no_class() {
        let of = |lengths: &[usize]| {
            let values: Vec<String> = lengths.iter().map(|length| "a".repeat(*length)).collect();
            let lines: Vec<_> = values.iter().map(|value| ("x-a", &**value)).collect();
            write("header:x-a", &lines).map(drop)
        };
        assert_eq!(of(&[CLASS_BYTES_MAX]), Ok(()));
        assert_eq!(of(&[CLASS_BYTES_MAX + 1]), Err(NoClass::TooLong));
        assert_eq!(of(&[CLASS_BYTES_MAX - 2, 1]), Ok(()));
        assert_eq!(of(&[CLASS_BYTES_MAX - 2, 2]), Err(NoClass::TooLong));
    }

    #[test]
    fn a_class_has_every_line_that_the_origin_gets() {
        let of = |lines: &[&str]| {
            let lines: Vec<_> = lines.iter().map(|line| ("x-theme", *line)).collect();
            write("header:x-theme", &lines).expect("short values")
        };
        assert_eq!(of(&["dark", "evil"]), "=dark=evil;");
        assert_eq!(of(&["evil", "dark"]), "=evil=dark;");
        assert_eq!(of(&["dark, evil"]), "=dark%2C%20evil;");
        assert_eq!(of(&[""]), "=;");
        assert_eq!(of(&["", ""]), "==;");
        assert_eq!(of(&[]), ";");
    }

    #[test]
    fn a_second_user_agent_has_no_class() {
        let one = [("user-agent", "Mozilla (iPhone)")];
        assert_eq!(write("device", &one), Ok("mobile;".to_owned()));
        let two = [("user-agent", "curl"), one[0]];
        assert_eq!(write("device", &two), Err(NoClass::Ambiguous));
    }

    #[test]
    fn a_cookie_that_origins_may_find_elsewhere_has_no_class() {
        for (line, class) in [
            ("cur_x=EUR", Ok("=EUR;")),
            ("a=1; cur_x=EUR; cur_x=evil", Ok("=EUR=evil;")),
            ("cur_x=EUR; cur_xy=1", Ok("=EUR;")),
            ("cur_x=EUR; a=cur_x2", Ok("=EUR;")),
            ("cur_x=EUR; a=1 cur_x=evil", Err(NoClass::Ambiguous)),
            ("cur_x=EUR, cur_x=evil", Err(NoClass::Ambiguous)),
            ("cur_x=EUR; a=\"b; cur_x=evil\"", Ok("=EUR=evil%22;")),
            ("cur_x=EUR; cur.x=evil", Err(NoClass::Ambiguous)),
            ("cur_x[]=evil", Err(NoClass::Ambiguous)),
        ] {
            let of = write("cookie:cur_x", &[("cookie", line)]);
            assert_eq!(of.as_deref(), class.as_deref(), "{line}");
        }
    }

    #[test]
    fn classes_parse_back_from_their_text() {
        for text in [
            "device",
            "image-format",
            "language:en,de-at",
            "cookie:currency",
            "has-cookie:wordpress_logged_in_*",
            "header:x-country",
        ] {
            assert_eq!(text.parse::<Class>().expect(text).to_string(), text);
        }
        for text in [
            "",
            "device:",
            "devices",
            "language:",
            "language:en,,de",
            "cookie:",
            "header: x",
        ] {
            assert!(text.parse::<Class>().is_err(), "{text}");
        }
    }
}
