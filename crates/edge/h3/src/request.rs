//! Heads and trailers of requests (RFC 9114 §4.3), and extended CONNECT (RFC 8441 §4, RFC 9220).

use bytes::Bytes;
use edgeward_semantics::{Authority, encode_delimiters};
use http::header::{CONTENT_LENGTH, HOST};
use http::uri::{self, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Uri};

use crate::error::{Error, StreamError};
use crate::field;
use crate::qpack::decoder::{FieldSection, SectionLimits};

/// The head of a well-formed request.
#[derive(Debug)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The target. It has scheme and authority if the request has `:authority`, and else only the path: `Host` then has
    /// the authority. The target of CONNECT, unless that is extended, is an authority alone.
    pub uri: Uri,
    /// The fields, in the order of the request. `Cookie` may have several lines, which must be joined before the
    /// request is sent over HTTP/1.1 (RFC 9114 §4.2.1).
    pub headers: HeaderMap,
    /// The `:protocol` of an extended CONNECT.
    pub protocol: Option<Box<str>>,
    /// The length that `Content-Length` states.
    pub content_length: Option<u64>,
}

/// Decodes and checks the field section of a request. `has_extended_connect` is true if the server has stated the
/// setting of extended CONNECT.
pub fn decode_request(
    section: &[u8],
    limits: SectionLimits,
    has_extended_connect: bool,
) -> Result<RequestHead, Error> {
    let mut section = FieldSection::new(section, limits)?;
    let mut pseudo = PseudoFields::default();
    let mut headers = HeaderMap::with_capacity(16);
    while let Some(line) = section.next_line()? {
        match line.name.strip_prefix(b":") {
            Some(_) if !headers.is_empty() => {
                return Err(malformed("a pseudo-header field follows other fields"));
            }
            Some(name) => pseudo.set(name, line.value)?,
            None => field::append(&mut headers, &line)?,
        }
    }
    if pseudo.protocol.is_some() && !has_extended_connect {
        return Err(malformed("extended CONNECT is not enabled"));
    }
    let content_length = content_length(&headers)?;
    // The content is another protocol. A server of HTTP/1.1 would read content of this length before it.
    if content_length.is_some() && pseudo.method == Some(Method::CONNECT) {
        return Err(malformed("CONNECT has Content-Length"));
    }
    let host = host(&headers)?;
    Ok(RequestHead {
        uri: pseudo.uri(host)?,
        method: pseudo.method.ok_or_else(|| malformed("no :method"))?,
        protocol: pseudo.protocol,
        content_length,
        headers,
    })
}

/// Decodes and checks the field section of trailers.
pub fn decode_trailers(section: &[u8], limits: SectionLimits) -> Result<HeaderMap, Error> {
    let mut section = FieldSection::new(section, limits)?;
    let mut trailers = HeaderMap::new();
    while let Some(line) = section.next_line()? {
        if line.name.starts_with(b":") {
            return Err(malformed("trailers have a pseudo-header field"));
        }
        field::append(&mut trailers, &line)?;
    }
    Ok(trailers)
}

/// The pseudo-header fields of a request.
#[derive(Default)]
struct PseudoFields {
    method: Option<Method>,
    scheme: Option<Scheme>,
    authority: Option<Box<str>>,
    path: Option<PathAndQuery>,
    protocol: Option<Box<str>>,
}

impl PseudoFields {
    fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), Error> {
        let is_repeated = match name {
            b"method" => {
                let method = Method::from_bytes(value);
                let method = method.map_err(|_| malformed(":method is not a token"))?;
                self.method.replace(method).is_some()
            }
            b"scheme" => {
                let scheme = scheme(value).ok_or_else(|| malformed(":scheme is invalid"))?;
                self.scheme.replace(scheme).is_some()
            }
            b"authority" => {
                let authority = text(value).ok_or_else(|| malformed(":authority is invalid"))?;
                self.authority.replace(authority.into()).is_some()
            }
            b"path" => {
                let path = path(value).ok_or_else(|| malformed(":path is invalid"))?;
                self.path.replace(path).is_some()
            }
            b"protocol" => {
                let is_token = Method::from_bytes(value).is_ok(); // a method is a token, too
                let protocol = text(value).filter(|_| is_token);
                let protocol = protocol.ok_or_else(|| malformed(":protocol is not a token"))?;
                self.protocol.replace(protocol.into()).is_some()
            }
            _ => return Err(malformed("a pseudo-header field that requests do not have")),
        };
        match is_repeated {
            true => Err(malformed("a pseudo-header field is repeated")),
            false => Ok(()),
        }
    }

    /// Makes the target, and checks which fields are present (RFC 9114 §4.3.1 and §4.4).
    fn uri(&mut self, host: Option<&str>) -> Result<Uri, Error> {
        let is_connect = self.method == Some(Method::CONNECT);
        let mut parts = uri::Parts::default();
        let scheme = self.scheme.take();
        // The default port depends on the scheme. A tunnel has none.
        let scheme_text = scheme.as_ref().map_or("", Scheme::as_str);
        let parsed = |text| {
            Authority::parse(scheme_text, text)
                .map_err(|_| malformed("the authority is not a host[:port]"))
        };
        let authority = self.authority.as_deref();
        match (
            authority.map(parsed).transpose()?,
            host.map(parsed).transpose()?,
        ) {
            (Some(authority), Some(host)) if authority != host => {
                return Err(malformed("Host differs from :authority"));
            }
            (None, None) => return Err(malformed("neither :authority nor Host")),
            _ => {}
        }
        if let Some(authority) = authority {
            let authority = uri::Authority::try_from(authority);
            parts.authority = Some(authority.map_err(|_| malformed(":authority is invalid"))?);
        }
        match (is_connect, self.protocol.is_some()) {
            (true, false) => {
                if scheme.is_some() || self.path.is_some() {
                    return Err(malformed("CONNECT has :scheme or :path"));
                }
                if parts.authority.is_none() {
                    return Err(malformed("CONNECT has no :authority"));
                }
            }
            (false, true) => return Err(malformed("only CONNECT has :protocol")),
            _ => {
                let path = self.path.take().ok_or_else(|| malformed("no :path"))?;
                if path == "*" && self.method != Some(Method::OPTIONS) {
                    return Err(malformed("only OPTIONS has the path `*`"));
                }
                parts.path_and_query = Some(path);
                let scheme = scheme.ok_or_else(|| malformed("no :scheme"))?;
                // A URI with a scheme has an authority, so the scheme is dropped without one.
                parts.scheme = parts.authority.is_some().then_some(scheme);
            }
        }
        Uri::from_parts(parts).map_err(|_| malformed("the target is invalid"))
    }
}

/// Parses `:scheme` (RFC 3986 §3.1). The parser of `http` accepts an empty one.
fn scheme(value: &[u8]) -> Option<Scheme> {
    let begins = value.first().is_some_and(u8::is_ascii_alphabetic);
    begins.then(|| Scheme::try_from(value).ok())?
}

/// Parses `:path`: a path with a query, or `*`. Delimiters such as quotes are encoded, as for other protocols.
fn path(value: &[u8]) -> Option<PathAndQuery> {
    let text = text(value).filter(|text| text.starts_with('/') || *text == "*")?;
    // The parser would drop a fragment.
    if text.contains('#') {
        return None;
    }
    let text = encode_delimiters(text).into_owned();
    PathAndQuery::from_maybe_shared(Bytes::from(text)).ok()
}

/// Returns the text of a pseudo-header field. Refuses spaces and control characters.
fn text(value: &[u8]) -> Option<&str> {
    let text = str::from_utf8(value).ok()?;
    let has_space = |byte: u8| byte.is_ascii_whitespace() || byte.is_ascii_control();
    (!text.bytes().any(has_space)).then_some(text)
}

/// Returns the value of `Host`. Refuses a second one.
fn host(headers: &HeaderMap) -> Result<Option<&str>, Error> {
    let mut hosts = headers.get_all(HOST).into_iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(malformed("more than one Host"));
    }
    let host = host.map(|host| {
        host.to_str()
            .map_err(|_| malformed("Host is not a host[:port]"))
    });
    host.transpose()
}

/// Parses `Content-Length`. Refuses a second one, lists and signs, which other servers may read differently.
fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Error> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).into_iter();
    let Some(length) = lengths.next() else {
        return Ok(None);
    };
    let text = length.as_bytes();
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let length = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    match (length, lengths.next()) {
        (Some(length), None) if is_number => Ok(Some(length)),
        _ => Err(malformed("Content-Length is not one number below 2^64")),
    }
}

fn malformed(reason: &'static str) -> Error {
    StreamError::malformed(reason).into()
}

#[cfg(test)]
pub(crate) mod tests;
