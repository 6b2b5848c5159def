//! The text that syslog servers, the journal and containers write before each line of a log.
//!
//! ```text
//! <134>1 2024-05-07T08:39:01Z web1 nginx 22 - - LINE            RFC 5424
//! May  7 08:39:01 web1 nginx[22]: LINE                          RFC 3164, journalctl
//! May  7 08:39:01 web1 edgeward[22] LINE                        rsyslog, of a message in RFC 5424
//! 2024-05-07T08:39:01.5+02:00 web1 nginx: LINE                  rsyslog's default, journalctl -o short-iso
//! 2024-05-07T08:39:01.5Z stdout F LINE                          Kubernetes (CRI)
//! web-1  | LINE                                                 docker compose, perhaps in colour
//! ```
//!
//! The time and the machine's name in this text are not fields of the request, so no parser may take one of them for a
//! host or a client.

use crate::number::iso8601;

/// Returns the line without the text of a syslog server, of the journal or of a container before it. Returns the whole
/// line if it has no such text.
pub fn without_line_prefix(line: &[u8]) -> &[u8] {
    let after = match line.first() {
        Some(0x1b) => after_compose(line),
        Some(b'<') => after_priority(line),
        Some(byte) if byte.is_ascii_alphanumeric() => {
            after_header(line).or_else(|| after_compose(line))
        }
        _ => None,
    };
    after.unwrap_or(line)
}

/// Returns the text after `<134>` and the header of RFC 5424 or of the older forms.
fn after_priority(line: &[u8]) -> Option<&[u8]> {
    let end = line
        .iter()
        .take(PRIORITY_BYTES_MAX)
        .position(|byte| *byte == b'>')?;
    let rest = &line[end + 1..];
    if !line[1..end].iter().all(u8::is_ascii_digit) || end == 1 {
        return None;
    }
    let Some(rest) = rest.strip_prefix(b"1 ") else {
        return Some(after_header(rest).unwrap_or(rest));
    };
    // TIMESTAMP, HOSTNAME, APP-NAME, PROCID and MSGID, then STRUCTURED-DATA (RFC 5424, section 6).
    let (_, rest) = (0..5).try_fold((&rest[..0], rest), |(_, rest), _| word(rest))?;
    let rest = match rest.first()? {
        b'-' => &rest[1..],
        b'[' => after_structured_data(rest)?,
        _ => return None,
    };
    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    Some(rest.strip_prefix(b"\xef\xbb\xbf").unwrap_or(rest))
}

/// Returns the text after the elements of STRUCTURED-DATA. A quoted value may have `\]`.
fn after_structured_data(mut rest: &[u8]) -> Option<&[u8]> {
    while rest.first() == Some(&b'[') {
        let mut at = 1;
        loop {
            match rest.get(at)? {
                b'\\' => at += 2,
                b']' => break,
                _ => at += 1,
            }
        }
        rest = &rest[at + 1..];
    }
    Some(rest)
}

/// Returns the text after `TIME HOST TAG: ` or `TIME stdout F `.
fn after_header(line: &[u8]) -> Option<&[u8]> {
    let rest = after_time(line)?;
    let (first, rest) = word(rest)?;
    let (second, rest) = word(rest)?;
    let is_stream = matches!(first, b"stdout" | b"stderr") && matches!(second, b"F" | b"P");
    let is_tag = second.ends_with(b":") || (second.ends_with(b"]") && second.contains(&b'['));
    (is_stream || is_tag).then_some(rest)
}

/// Returns the text after a time of RFC 3339 or of RFC 3164, such as `May  7 08:39:01`, and the space that follows.
fn after_time(line: &[u8]) -> Option<&[u8]> {
    if line.first()?.is_ascii_digit() {
        let (time, rest) = word(line)?;
        return iso8601(time).map(|_| rest);
    }
    let (time, rest) = line.split_at_checked(16)?;
    let [
        a,
        b,
        c,
        b' ',
        d1,
        d2,
        b' ',
        _,
        _,
        b':',
        _,
        _,
        b':',
        _,
        _,
        b' ',
    ] = time
    else {
        return None;
    };
    let has_form = [a, b, c].iter().all(|byte| byte.is_ascii_alphabetic())
        && (d1.is_ascii_digit() || *d1 == b' ')
        && d2.is_ascii_digit();
    has_form.then_some(rest)
}

/// Returns the text after `web-1  | `, which may have colours.
fn after_compose(line: &[u8]) -> Option<&[u8]> {
    let bar = line
        .iter()
        .take(NAME_BYTES_MAX)
        .position(|byte| *byte == b'|')?;
    let name = without_colour(&line[..bar]);
    let padded = name.strip_suffix(b" ")?;
    let is_name =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b' ');
    if !padded.iter().all(is_name) || padded.trim_ascii_end().contains(&b' ') {
        return None;
    }
    let rest = without_colour(&line[bar + 1..]).strip_prefix(b" ")?;
    Some(without_colour(rest))
}

/// Removes the escape sequence of a colour from the start.
fn without_colour(text: &[u8]) -> &[u8] {
    let Some(rest) = text.strip_prefix(b"\x1b[") else {
        return text;
    };
    let end = rest
        .iter()
        .position(|byte| !(byte.is_ascii_digit() || *byte == b';'));
    match end {
        Some(end) if rest[end] == b'm' => &rest[end + 1..],
        _ => text,
    }
}

/// Splits off a word, which ends at a space. Returns `None` without a space.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b' ', text)?;
    Some((&text[..end], &text[end + 1..])).filter(|(word, _)| !word.is_empty())
}

/// The length of `<191>`, the longest priority.
const PRIORITY_BYTES_MAX: usize = 5;

/// The maximum length of a container's name with its colours and blanks.
const NAME_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_log_collector_is_removed() {
        for prefix in [
            "<134>1 2024-05-07T08:39:01Z web1 nginx 22 - - ",
            "<134>1 2024-05-07T08:39:01Z web1 nginx 22 - [a@1 b=\"c\\]\"][d@1] ",
            "<134>May  7 08:39:01 web1 nginx: ",
            "<134>",
            "May  7 08:39:01 web1 nginx[22]: ",
            "May 17 08:39:01 web1 haproxy[22]: ",
            "2024-05-07T08:39:01Z web1 nginx: ",
            "2024-05-07T08:39:01.326492+02:00 web1 edgeward[22] ",
            "2024-05-07T08:39:01.326492+02:00 web1 nginx[22]: ",
            "2024-05-07T08:39:01.741817070Z stdout F ",
            "web-1  | ",
            "\x1b[36mweb-1  | \x1b[0m",
            "\x1b[36mweb-1  |\x1b[0m ",
            "",
        ] {
            for rest in ["example.org:80 192.0.2.1 - - [x] \"GET /\"", "{\"a\":1}"] {
                let line = format!("{prefix}{rest}");
                let found = without_line_prefix(line.as_bytes());
                assert_eq!(found, rest.as_bytes(), "{line}");
            }
        }
    }

    /// Fields of requests that look like a part of such a text.
    #[test]
    fn a_line_without_such_text_is_unchanged() {
        for line in [
            "2024-05-07T08:39:01Z example.org GET /a",
            "2024-05-07T08:39:01Z stdout X GET /a",
            "2024-05-07T08:39:01Z example.org 22] GET /a",
            "May 17 example.org:80 192.0.2.1 - -",
            "a|b c",
            "MISS|200|1742075810321|1010",
            "<a> b",
            "<134",
            "<134>1 2024-05-07T08:39:01Z web1",
            "",
        ] {
            assert_eq!(without_line_prefix(line.as_bytes()), line.as_bytes());
        }
    }
}
