//! The target of a request to a bucket.

use std::fmt::Write as _;

/// The reason why a target names no object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTarget {
    /// The target does not begin with a slash.
    #[error("the target is not a path: it must start with `/`")]
    NotAPath,
    /// Names of objects and parameters are UTF-8.
    #[error("the decoded target is not UTF-8, but all names of objects are")]
    NotUtf8,
    /// A decoded segment is `.` or `..`.
    #[error("the path has a `.` or `..` segment, which some buckets resolve and others do not")]
    DotSegment,
}

/// Returns the target that a bucket gets for a client's target, in the form from which the signature is computed.
///
/// - The path and the parameters are decoded once. Each byte but letters, digits, `-`, `.`, `_`, `~` and the slashes of
///   the path is encoded again, in upper case. An encoded slash is a slash, because names of objects contain slashes.
/// - A `+` in the query is a space, as in forms. A `+` in the path is a plus sign.
/// - Parameters are sorted by name and value. One without value gets a `=`.
/// - Parameters of a signature by query (`X-Amz-…`) are removed. A bucket refuses requests with two signatures.
///
/// Repeated slashes stay, because `a//b` and `a/b` are different objects. With `bucket`, its name is put before the
/// path (path-style).
pub fn bucket_target(bucket: Option<&str>, target: &str) -> Result<String, InvalidTarget> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if !path.starts_with('/') {
        return Err(InvalidTarget::NotAPath);
    }
    let key = decode(path, false)?;
    if key.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err(InvalidTarget::DotSegment);
    }
    let mut form = String::with_capacity(target.len() + bucket.map_or(0, str::len) + 1);
    if let Some(bucket) = bucket {
        form.push('/');
        form.push_str(bucket);
    }
    encode(&key, true, &mut form);
    let mut separator = '?';
    for parameter in sorted_parameters(query)? {
        form.push(separator);
        form.push_str(&parameter);
        separator = '&';
    }
    Ok(form)
}

/// Returns true if a client's target is the bucket itself, whose response is the list of its objects. Some servers
/// ignore repeated slashes, so a path of slashes counts too.
pub fn is_bucket_itself(target: &str) -> bool {
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    decode(path, false).is_ok_and(|key| key.bytes().all(|byte| byte == b'/'))
}

fn sorted_parameters(query: &str) -> Result<Vec<String>, InvalidTarget> {
    let mut parameters = Vec::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let (name, value) = (decode(name, true)?, decode(value, true)?);
        if is_of_signature(&name) {
            continue;
        }
        let (mut encoded, mut encoded_value) = (String::new(), String::new());
        encode(&name, false, &mut encoded);
        encode(&value, false, &mut encoded_value);
        parameters.push((encoded, encoded_value));
    }
    // The pairs are compared, not the joined texts: `a=1` is before `a-=1`.
    parameters.sort();
    let parameters = parameters.into_iter();
    Ok(parameters
        .map(|(name, value)| format!("{name}={value}"))
        .collect())
}

fn is_of_signature(name: &str) -> bool {
    const PREFIX: &str = "x-amz-";
    let start = name.as_bytes().get(..PREFIX.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(PREFIX.as_bytes()))
}

/// Decodes percent-encoded bytes once. A `%` without two hexadecimal digits stands for itself.
fn decode(text: &str, plus_is_space: bool) -> Result<String, InvalidTarget> {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match (*first, digit(after.first()), digit(after.get(1))) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high << 4 | low) as u8);
                rest = &after[2..];
            }
            (b'+', ..) if plus_is_space => bytes.push(b' '),
            (byte, ..) => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| InvalidTarget::NotUtf8)
}

fn encode(text: &str, keeps_slashes: bool, form: &mut String) {
    for byte in text.bytes() {
        let is_unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if is_unreserved || (byte == b'/' && keeps_slashes) {
            form.push(char::from(byte));
        } else {
            write!(form, "%{byte:02X}").expect("a string accepts all text");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_target_is_decoded_once_and_encoded_again() {
        for (target, form) in [
            ("/", "/"),
            ("/a/b.png", "/a/b.png"),
            ("/a b", "/a%20b"),
            ("/a%20b", "/a%20b"),
            ("/a+b", "/a%2Bb"),
            ("/a%2bb", "/a%2Bb"),
            ("/mac@2x.png", "/mac%402x.png"),
            ("/state=fl/x", "/state%3Dfl/x"),
            ("/a%2Fb", "/a/b"),
            ("/a%252Fb", "/a%252Fb"),
            ("/%7e%41", "/~A"),
            ("/50%", "/50%25"),
            ("/%zz%4", "/%25zz%254"),
            ("/gr%C3%BC%C3%9fe", "/gr%C3%BC%C3%9Fe"),
            ("//a//b/", "//a//b/"),
            ("/...", "/..."),
            ("/a?", "/a"),
            ("/a?b", "/a?b="),
            ("/a?b&&a=2&a=1&", "/a?a=1&a=2&b="),
            ("/a?a-=1&a=1", "/a?a=1&a-=1"),
            ("/a?x=a+b%20c%2Bd", "/a?x=a%20b%20c%2Bd"),
            ("/a?x=1=2?3/4", "/a?x=1%3D2%3F3%2F4"),
            ("/a?X-Amz-Signature=x&x-amz-date=y&z", "/a?z="),
        ] {
            assert_eq!(bucket_target(None, target).as_deref(), Ok(form), "{target}");
        }
        let path_style = bucket_target(Some("media"), "/a?v=1");
        assert_eq!(path_style.as_deref(), Ok("/media/a?v=1"));
    }

    #[test]
    fn a_target_that_names_no_object_is_refused() {
        for (target, reason) in [
            ("*", InvalidTarget::NotAPath),
            ("", InvalidTarget::NotAPath),
            ("?a", InvalidTarget::NotAPath),
            ("/%ff", InvalidTarget::NotUtf8),
            ("/a?x=%C3", InvalidTarget::NotUtf8),
            ("/a/../b", InvalidTarget::DotSegment),
            ("/..", InvalidTarget::DotSegment),
            ("/a%2F%2e%2E%2Fb", InvalidTarget::DotSegment),
            ("/./a", InvalidTarget::DotSegment),
        ] {
            assert_eq!(bucket_target(Some("b"), target), Err(reason), "{target}");
        }
    }

    #[test]
    fn the_bucket_itself_is_a_path_of_slashes() {
        for (target, expected) in [
            ("/", true),
            ("/?list-type=2", true),
            ("//", true),
            ("/%2F", true),
            ("/a", false),
            ("/%20", false),
            ("/%ff", false),
        ] {
            assert_eq!(is_bucket_itself(target), expected, "{target}");
        }
    }

    proptest! {
        /// The form is a fixed point: a bucket that decodes the sent target and encodes it again gets the same text.
        #[test]
        fn the_form_of_a_form_is_the_form(target in "/[a-zA-Z0-9%+/ =&?é.~_@:-]{0,24}") {
            if let Ok(form) = bucket_target(None, &target) {
                prop_assert!(form.is_ascii());
                let again = bucket_target(None, &form);
                prop_assert_eq!(again, Ok(form));
            }
        }
    }
}
