//! The static table of QPACK (RFC 9204, appendix A), and a perfect hash of its names.

/// The names and values, by index.
#[rustfmt::skip]
pub(crate) static FIELDS: [(&str, &str); 99] = [
    (":authority", ""),
    (":path", "/"),
    ("age", "0"),
    ("content-disposition", ""),
    ("content-length", "0"),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("referer", ""),
    ("set-cookie", ""),
    (":method", "CONNECT"),
    (":method", "DELETE"),
    (":method", "GET"),
    (":method", "HEAD"),
    (":method", "OPTIONS"),
    (":method", "POST"),
    (":method", "PUT"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "103"),
    (":status", "200"),
    (":status", "304"),
    (":status", "404"),
    (":status", "503"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-store"),
    ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"),
    ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"),
    ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"),
    ("content-type", "image/jpeg"),
    ("content-type", "image/png"),
    ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"),
    ("vary", "origin"),
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    (":status", "100"),
    (":status", "204"),
    (":status", "206"),
    (":status", "302"),
    (":status", "400"),
    (":status", "403"),
    (":status", "421"),
    (":status", "425"),
    (":status", "500"),
    ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"),
    ("access-control-request-method", "post"),
    ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"),
    ("expect-ct", ""),
    ("forwarded", ""),
    ("if-range", ""),
    ("origin", ""),
    ("purpose", "prefetch"),
    ("server", ""),
    ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", ""),
    ("x-forwarded-for", ""),
    ("x-frame-options", "deny"),
    ("x-frame-options", "sameorigin"),
];

/// The place of a field in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StaticIndex {
    /// The index of a field with this name and value.
    Field(usize),
    /// The index of the first field with this name.
    Name(usize),
}

/// Finds a field in the table, or else its name.
pub(crate) fn find(name: &[u8], value: &[u8]) -> Option<StaticIndex> {
    let first = usize::from(SLOTS[slot(name)?].checked_sub(1)?);
    if FIELDS[first].0.as_bytes() != name {
        return None;
    }
    let mut index = first;
    loop {
        if FIELDS[index].1.as_bytes() == value {
            return Some(StaticIndex::Field(index));
        }
        match usize::from(NEXT[index]) {
            0 => return Some(StaticIndex::Name(first)),
            next => index = next,
        }
    }
}

/// Returns the slot of a name. No two names of the table share a slot. The multipliers were found by trying random
/// ones; [`slots`] checks them.
const fn slot(name: &[u8]) -> Option<usize> {
    let length = name.len();
    if length < 3 {
        return None;
    }
    let (first, third_last, last) = (name[0], name[length - 3], name[length - 1]);
    Some((19 * length + 14 * first as usize + 50 * third_last as usize + 48 * last as usize) % 256)
}

/// The index of the first field with the name of each slot, plus 1; 0 for an empty slot.
static SLOTS: [u8; 256] = slots();

/// The index of the next field with the same name; 0 if there is no other one.
static NEXT: [u8; 99] = next();

const fn slots() -> [u8; 256] {
    let mut slots = [0; 256];
    let mut index = 0;
    while index < FIELDS.len() {
        let name = FIELDS[index].0.as_bytes();
        let slot = slot(name).expect("each name has three bytes or more");
        if slots[slot] == 0 {
            slots[slot] = index as u8 + 1;
        } else {
            let other = FIELDS[slots[slot] as usize - 1].0.as_bytes();
            assert!(is_equal(name, other), "two names have the same slot");
        }
        index += 1;
    }
    slots
}

const fn next() -> [u8; 99] {
    let mut next = [0; 99];
    let mut index = 0;
    while index < FIELDS.len() {
        let mut later = index + 1;
        while later < FIELDS.len() {
            if is_equal(FIELDS[index].0.as_bytes(), FIELDS[later].0.as_bytes()) {
                next[index] = later as u8;
                break;
            }
            later += 1;
        }
        index += 1;
    }
    next
}

/// Compares at compile time, where `==` of slices is not available.
const fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of RFC 9204, appendix A, from all parts of the table.
    #[test]
    fn indices_are_those_of_the_standard() {
        for (index, name, value) in [
            (0, ":authority", ""),
            (1, ":path", "/"),
            (17, ":method", "GET"),
            (25, ":status", "200"),
            (46, "content-type", "application/json"),
            (63, ":status", "100"),
            (75, "access-control-allow-headers", "*"),
            (98, "x-frame-options", "sameorigin"),
        ] {
            assert_eq!(FIELDS[index], (name, value));
        }
    }

    /// Method: compare with a search through the whole table.
    #[test]
    fn the_hash_finds_what_a_search_finds() {
        let search = |name: &str, value: &str| {
            let field = FIELDS.iter().position(|field| *field == (name, value));
            let named = FIELDS.iter().position(|field| field.0 == name);
            let named = named.map(StaticIndex::Name);
            field.map(StaticIndex::Field).or(named)
        };
        for (name, value) in FIELDS {
            for value in [value, "another value"] {
                assert_eq!(find(name.as_bytes(), value.as_bytes()), search(name, value));
            }
            for cut in 1..name.len() {
                assert_eq!(find(&name.as_bytes()[cut..], b""), search(&name[cut..], ""));
            }
        }
        assert_eq!(find(b"", b""), None);
        assert_eq!(find(b"x-unknown", b""), None);
    }
}
