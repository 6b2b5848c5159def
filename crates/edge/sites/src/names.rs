//! The forms in which origins read the names of query parameters and cookies.
//!
//! A client can write a name in several ways that one origin or another reads alike: percent-encoded (`pre%76iew`), and
//! for PHP with `.`, a space or `[` in place of `_`, or with an index behind it. **The rule**: a pattern matches a name
//! if it matches any of these forms, so that no spelling evades a condition or a removal.

/// Returns true if `test` holds for one of the forms of a name: as sent, decoded, or as PHP reads it.
pub(crate) fn any_reading(name: &[u8], test: impl Fn(&[u8]) -> bool) -> bool {
    if test(name) {
        return true;
    }
    if !name
        .iter()
        .any(|byte| matches!(byte, b'%' | b'+' | b'.' | b' ' | b'['))
    {
        return false;
    }
    let decoded = decoded(name);
    test(&decoded) || test(&as_in_php(&decoded))
}

/// Returns a name with percent-encoding decoded and `+` as a space (application/x-www-form-urlencoded).
pub(crate) fn decoded(name: &[u8]) -> Vec<u8> {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => match (digit(after.first()), digit(after.get(1))) {
                (Some(high), Some(low)) => {
                    rest = &after[2..];
                    u8::try_from(high * 16 + low).expect("two hexadecimal digits")
                }
                _ => byte,
            },
            _ => byte,
        });
    }
    decoded
}

/// Returns a decoded name as PHP reads it: without spaces at its start and without an index.
fn as_in_php(name: &[u8]) -> Vec<u8> {
    let name = name.trim_ascii_start();
    let bracket = name.iter().position(|byte| *byte == b'[');
    let base = match bracket {
        Some(at) if at > 0 && name[at..].contains(&b']') => &name[..at],
        _ => name,
    };
    let variable = |byte: &u8| match byte {
        b'.' | b' ' | b'[' => b'_',
        other => *other,
    };
    base.iter().map(variable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_in_each_form_that_an_origin_reads() {
        for (sent, read) in [
            ("preview", "preview"),
            ("pre%76iew", "preview"),
            ("%70%72%65%76%69%65%77", "preview"),
            ("a.b", "a_b"),
            ("a+b", "a_b"),
            ("a%20b", "a b"),
            ("a%2Eb", "a_b"),
            ("%20a", "a"),
            ("a[b", "a_b"),
            ("a[]", "a"),
            ("a%5B0%5D", "a"),
        ] {
            assert!(
                any_reading(sent.as_bytes(), |name| name == read.as_bytes()),
                "{sent}"
            );
        }
        for (sent, other) in [
            ("preview", "Preview"),
            ("a-b", "a_b"),
            ("a%zz", "a"),
            ("%2570", "p"),
        ] {
            assert!(
                !any_reading(sent.as_bytes(), |name| name == other.as_bytes()),
                "{sent}"
            );
        }
    }
}
