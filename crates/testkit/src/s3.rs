//! The verification of signatures by a bucket: AWS Signature Version 4, implemented literally from its
//! documentation and without any code of the edge or of a crate for signatures, only SHA-256.
//!
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::SystemTime;

use sha2::{Digest, Sha256};

/// A bucket, or the service of one: it verifies signatures.
#[derive(Debug)]
pub struct Bucket {
    /// The region in the scope of signatures.
    pub region: String,
    keys: Mutex<Vec<AccessKey>>,
}

/// An access key that a bucket accepts.
#[derive(Clone, Debug)]
pub struct AccessKey {
    /// The id, which is sent.
    pub id: String,
    /// The secret, which is never sent.
    pub secret: String,
    /// The token of temporary credentials, which is sent.
    pub token: Option<String>,
}

/// A request as a bucket receives it.
#[derive(Debug)]
pub struct ReceivedRequest<'a> {
    /// The method.
    pub method: &'a str,
    /// Path and query, as on the wire.
    pub target: &'a str,
    /// All fields, in lower case.
    pub fields: &'a [(String, String)],
    /// The content.
    pub body: &'a [u8],
}

/// The code in the body of a refusal.
pub type ErrorCode = &'static str;

impl Bucket {
    /// Returns a bucket that accepts one key.
    pub fn new(region: &str, key: AccessKey) -> Self {
        Self {
            region: region.to_owned(),
            keys: Mutex::new(vec![key]),
        }
    }

    /// Replaces the accepted keys.
    pub fn accept_only(&self, key: AccessKey) {
        *self.keys.lock().expect("no holder panics") = vec![key];
    }

    /// Verifies the signature of a request that arrives at `now`.
    pub fn verify(&self, request: &ReceivedRequest<'_>, now: SystemTime) -> Result<(), ErrorCode> {
        let values = |name: &str| -> Vec<&str> {
            let fields = request.fields.iter().filter(|(known, _)| known == name);
            fields.map(|(_, value)| value.as_str()).collect()
        };
        let one = |name: &str, code| match values(name)[..] {
            [value] => Ok(value),
            _ => Err(code),
        };
        let (path, query) = request
            .target
            .split_once('?')
            .unwrap_or((request.target, ""));
        let parameters = parameters(query)?;
        if parameters
            .iter()
            .any(|(name, _)| name.starts_with("X-Amz-"))
        {
            return Err("InvalidRequest"); // only one mechanism of authentication is allowed
        }
        let authorization = one("authorization", "AccessDenied")?;
        let malformed = "AuthorizationHeaderMalformed";
        let parts = authorization.strip_prefix("AWS4-HMAC-SHA256 ");
        let parts: BTreeMap<&str, &str> = parts
            .ok_or(malformed)?
            .split(',')
            .filter_map(|part| part.trim().split_once('='))
            .collect();
        let part = |name| parts.get(name).copied().ok_or(malformed);
        let credential: Vec<&str> = part("Credential")?.split('/').collect();
        let [id, day, region, "s3", "aws4_request"] = credential[..] else {
            return Err(malformed);
        };
        let time = one("x-amz-date", "AccessDenied")?;
        let (now_time, skew) = (iso_time(now), 15 * 60);
        if seconds_of(time)
            .ok_or(malformed)?
            .abs_diff(seconds_of(&now_time).ok_or(malformed)?)
            > skew
        {
            return Err("RequestTimeTooSkewed");
        }
        if region != self.region || !time.starts_with(day) {
            return Err(malformed);
        }
        let keys = self.keys.lock().expect("no holder panics").clone();
        let key = keys.iter().find(|key| key.id == id);
        let key = key.ok_or("InvalidAccessKeyId")?;
        if values("x-amz-security-token").first().copied() != key.token.as_deref() {
            return Err("InvalidToken");
        }
        let signed: Vec<&str> = part("SignedHeaders")?.split(';').collect();
        let must_be_signed = |name: &str| name == "host" || name.starts_with("x-amz-");
        let mut names = request.fields.iter().map(|(name, _)| name.as_str());
        if !signed.is_sorted()
            || names.any(|name| must_be_signed(name) && !signed.contains(&name))
            || !signed.contains(&"host")
        {
            return Err("AccessDenied"); // there were headers present which were not signed
        }
        let content = one("x-amz-content-sha256", "InvalidRequest")?;
        if content != "UNSIGNED-PAYLOAD" && content != hex(&Sha256::digest(request.body)) {
            return Err("XAmzContentSHA256Mismatch");
        }

        let mut canonical = format!("{}\n", request.method);
        canonical.push_str(&uri_encode(percent_decode(path, false), true));
        canonical.push('\n');
        let encoded = parameters.iter().map(|(name, value)| {
            let (name, value) = (uri_encode(name, false), uri_encode(value, false));
            (name, value)
        });
        let mut encoded: Vec<_> = encoded.collect();
        encoded.sort();
        let encoded = encoded
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        canonical.push_str(&encoded.collect::<Vec<_>>().join("&"));
        canonical.push('\n');
        for name in &signed {
            let trimmed = values(name).into_iter().map(|value| {
                let words: Vec<&str> = value.split(' ').filter(|word| !word.is_empty()).collect();
                words.join(" ")
            });
            let trimmed = trimmed.collect::<Vec<_>>().join(",");
            canonical.push_str(&format!("{name}:{trimmed}\n"));
        }
        canonical.push_str(&format!("\n{}\n{content}", signed.join(";")));

        let scope = format!("{day}/{region}/s3/aws4_request");
        let to_sign = format!(
            "AWS4-HMAC-SHA256\n{time}\n{scope}\n{}",
            hex(&Sha256::digest(canonical.as_bytes()))
        );
        let first = hmac(format!("AWS4{}", key.secret).as_bytes(), day);
        let signing_key = hmac(&hmac(&hmac(&first, region), "s3"), "aws4_request");
        if part("Signature")? == hex(&hmac(&signing_key, &to_sign)) {
            Ok(())
        } else {
            Err("SignatureDoesNotMatch")
        }
    }
}

/// Returns the decoded parameters of a query.
fn parameters(query: &str) -> Result<Vec<(String, String)>, ErrorCode> {
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    let decoded = parameters.map(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let (name, value) = (percent_decode(name, true), percent_decode(value, true));
        match (String::from_utf8(name), String::from_utf8(value)) {
            (Ok(name), Ok(value)) => Ok((name, value)),
            _ => Err("InvalidURI"),
        }
    });
    decoded.collect()
}

fn percent_decode(text: &str, plus_is_space: bool) -> Vec<u8> {
    let mut decoded = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let escaped = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match escaped.map(|digits| u8::from_str_radix(digits, 16)) {
            Some(Ok(byte)) => {
                decoded.push(byte);
                at += 3;
            }
            _ if bytes[at] == b'+' && plus_is_space => {
                decoded.push(b' ');
                at += 1;
            }
            _ => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    decoded
}

/// The function `UriEncode` of the documentation.
fn uri_encode(bytes: impl AsRef<[u8]>, keeps_slashes: bool) -> String {
    let encoded = bytes.as_ref().iter().map(|byte| match *byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(*byte).to_string()
        }
        b'/' if keeps_slashes => "/".to_owned(),
        byte => format!("%{byte:02X}"),
    });
    encoded.collect()
}

/// HMAC-SHA256 (RFC 2104).
fn hmac(key: &[u8], text: impl AsRef<[u8]>) -> Vec<u8> {
    const BLOCK_BYTES: usize = 64;
    let mut block = [0; BLOCK_BYTES];
    if key.len() > BLOCK_BYTES {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = [&block.map(|byte| byte ^ 0x36), text.as_ref()].concat();
    let outer = [&block.map(|byte| byte ^ 0x5c), &Sha256::digest(inner)[..]].concat();
    Sha256::digest(outer).to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a time as `20130524T000000Z`.
pub fn iso_time(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let secs = since.expect("a time after 1970").as_secs();
    let (mut day, second) = (secs / 86_400, secs % 86_400);
    let mut year = 1970;
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{year}{month:02}{:02}T{hour:02}{minute:02}{:02}Z",
        day + 1,
        second % 60
    )
}

/// Returns a number that grows with the time of the text. Differences are exact within a month, and larger than any
/// tolerance otherwise.
fn seconds_of(text: &str) -> Option<u64> {
    let is_time = text.len() == 16 && text.as_bytes()[8] == b'T' && text.ends_with('Z');
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<u64>().ok();
    let (month, day) = (number(0..6)?, number(6..8)?);
    let (hour, minute, second) = (number(9..11)?, number(11..13)?, number(13..15)?);
    is_time.then_some((month * 31 + day) * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn hmac_follows_rfc_4231() {
        let mac = hmac(b"Jefe", "what do ya want for nothing?");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hex(&mac), expected);
    }

    #[test]
    fn a_time_is_written_as_date_and_time() {
        for (secs, text) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (1_369_353_600, "20130524T000000Z"),
            (1_735_689_599, "20241231T235959Z"),
        ] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
            assert_eq!(iso_time(time), text);
        }
    }
}
