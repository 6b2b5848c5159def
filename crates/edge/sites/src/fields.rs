//! Access to the header fields of a request, for all forms in which a caller holds them.

use http::header::{COOKIE, HeaderMap, HeaderName};

/// The header fields of a request. The HTTP/1.1 fast path of the edge has them as slices of the received bytes, other
/// callers as a [`HeaderMap`].
pub trait Fields {
    /// Returns true if `test` holds for the value of one line of the field.
    fn any_line(&self, name: &HeaderName, test: &mut dyn FnMut(&[u8]) -> bool) -> bool;
}

impl Fields for HeaderMap {
    fn any_line(&self, name: &HeaderName, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let mut lines = self.get_all(name).into_iter();
        lines.any(|line| test(line.as_bytes()))
    }
}

/// A request without fields.
#[derive(Debug)]
pub(crate) struct NoFields;

impl Fields for NoFields {
    fn any_line(&self, _: &HeaderName, _: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        false
    }
}

impl std::fmt::Debug for dyn Fields + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fields")
    }
}

/// Returns the value of the first line of a field.
pub(crate) fn first_line(fields: &dyn Fields, name: &HeaderName) -> Option<Vec<u8>> {
    let mut value = None;
    fields.any_line(name, &mut |line| {
        value = Some(line.to_vec());
        true
    });
    value
}

/// Returns true if `test` holds for the name and the value of one cookie, in any line of `Cookie` (RFC 6265 §4.2.1). A
/// cookie without `=` has an empty name, as in browsers.
pub(crate) fn any_cookie(fields: &dyn Fields, test: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> bool {
    fields.any_line(&COOKIE, &mut |line| {
        line.split(|byte| *byte == b';').any(|pair| {
            let (name, value) = match pair.iter().position(|byte| *byte == b'=') {
                Some(at) => (&pair[..at], &pair[at + 1..]),
                None => (&pair[..0], pair),
            };
            test(name.trim_ascii(), value.trim_ascii())
        })
    })
}
