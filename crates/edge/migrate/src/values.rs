//! Values of directives: times, sizes, texts with variables, regular expressions.

use edgeward_sites::PathPattern;

use crate::toml;

/// Returns the milliseconds of a time such as `10m`, `1h30m` or `500ms`. A number without a unit is in seconds.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_ascii_alphabetic())
                .len();
        let unit = match &rest[..letters] {
            "ms" => 1,
            "" | "s" => SECOND,
            "m" => 60 * SECOND,
            "h" => 3600 * SECOND,
            "d" => DAY,
            "w" => 7 * DAY,
            "M" => 30 * DAY,
            "y" => 365 * DAY,
            _ => return None,
        };
        rest = rest[letters..].trim_start();
        total = total.checked_add(number.checked_mul(unit)?)?;
    }
    Some(total)
}

const SECOND: u64 = 1000;
pub(super) const DAY: u64 = 86_400 * SECOND;

/// Returns a duration of TOML in the largest unit that has it exactly.
pub(super) fn duration(milliseconds: u64) -> String {
    let units = [
        ("d", DAY),
        ("h", 3600 * SECOND),
        ("min", 60 * SECOND),
        ("s", SECOND),
    ];
    let unit = units
        .iter()
        .find(|(_, length)| milliseconds > 0 && milliseconds.is_multiple_of(*length));
    match unit {
        Some((name, length)) => format!("\"{}{name}\"", milliseconds / length),
        None => format!("\"{milliseconds}ms\""),
    }
}

/// Returns a size such as `10m` as text of TOML. nginx's `k`, `m` and `g` are multiples of 1024.
pub(super) fn size(text: &str) -> Option<(u64, String)> {
    let lower = text.to_ascii_lowercase();
    let (digits, unit, name) = match lower.as_bytes().last()? {
        b'k' => (&lower[..lower.len() - 1], 1 << 10, "KiB"),
        b'm' => (&lower[..lower.len() - 1], 1 << 20, "MiB"),
        b'g' => (&lower[..lower.len() - 1], 1_u64 << 30, "GiB"),
        _ => (&lower[..], 1, "B"),
    };
    let number: u64 = digits.parse().ok()?;
    Some((number.checked_mul(unit)?, format!("\"{number}{name}\"")))
}

/// Returns a text as the value of `error_page` and `answer`.
pub(super) fn page(body: &str, content_type: &str) -> String {
    format!("{{ {} }}", page_members(body, content_type))
}

fn page_members(body: &str, content_type: &str) -> String {
    let [body, content_type] = [body, content_type].map(toml::text);
    format!("body = {body}, content_type = {content_type}")
}

/// Returns a text as the value of `answer` with a status. `None` if the edge does not answer with this status.
pub(super) fn answer(status: u16, body: &str, content_type: &str) -> Option<String> {
    match status {
        200 => Some(page(body, content_type)),
        204 => Some("{ status = 204 }".to_owned()),
        201..=203 => {
            let members = page_members(body, content_type);
            Some(format!("{{ status = {status}, {members} }}"))
        }
        _ => None,
    }
}

/// Returns true if the edge knows the type of a file by its name.
pub(super) fn is_page(path: &str) -> bool {
    ["html", "htm", "txt", "json", "xml", "svg"].contains(&extension(path))
}

/// Returns the extension of the file at a path, or an empty text.
pub(super) fn extension(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.rsplit_once('.').map_or("", |(_, extension)| extension)
}

/// A part of a text with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    Variable(String),
}

/// Divides a text into literal parts and variables, without their `$`.
pub(super) fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        literal.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let (name, end) = if let Some(inner) = after.strip_prefix('{') {
            match inner.find('}') {
                Some(end) => (&inner[..end], end + 2),
                None => ("", 0),
            }
        } else if after.starts_with(|c: char| c.is_ascii_digit()) {
            (&after[..1], 1)
        } else {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
            (&after[..end], end)
        };
        if name.is_empty() {
            literal.push('$');
        } else {
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal)));
            }
            parts.push(Part::Variable(name.to_owned()));
        }
        rest = &after[end..];
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        parts.push(Part::Text(literal));
    }
    parts
}

/// Returns an expression of nginx as one of the edge, or the reason why the edge cannot have it.
pub(super) fn regex(pattern: &str, ignores_case: bool) -> Result<String, String> {
    let text = match ignores_case {
        true => format!("(?i){pattern}"),
        false => pattern.to_owned(),
    };
    match PathPattern::regex(&text) {
        Ok(_) => Ok(text),
        Err(_) => Err(format!(
            "the expression {pattern} has look-around, a backreference or other syntax that the edge does not have"
        )),
    }
}

/// Returns a text as an expression that matches it literally.
pub(super) fn literal_regex(text: &str) -> String {
    regex::escape(text).replace("\\-", "-").replace("\\/", "/")
}

/// Returns globs that match each text in which an expression without anchors is found. The globs may match more.
/// `None` if the expression has no literal text.
pub(super) fn wider_globs(pattern: &str) -> Option<Vec<String>> {
    let inner = unwrap_group(pattern);
    let mut globs = Vec::new();
    for branch in split_branches(inner)? {
        let mut glob = String::from(if branch.starts_with('^') { "" } else { "*" });
        let ends = branch.ends_with('$') && !branch.ends_with("\\$");
        let body = branch.trim_start_matches('^');
        let body = if ends { &body[..body.len() - 1] } else { body };
        let mut chars = body.chars().peekable();
        while let Some(c) = chars.next() {
            let literal = match c {
                '\\' => match chars.next()? {
                    'd' | 'D' | 's' | 'S' | 'w' | 'W' | 'b' | 'B' => None,
                    // The code of a character, or a class of another dialect.
                    c if c.is_ascii_alphanumeric() => return None,
                    c => Some(c),
                },
                '.' => None,
                '[' => {
                    // A bracket may contain an escaped or a first `]`.
                    let mut is_first = true;
                    loop {
                        match chars.next()? {
                            '\\' => _ = chars.next(),
                            // A class of POSIX, as `[:alpha:]`.
                            '[' if chars.peek() == Some(&':') => return None,
                            ']' if !is_first => break,
                            '^' if is_first => continue,
                            _ => {}
                        }
                        is_first = false;
                    }
                    None
                }
                '(' | ')' | '{' | '}' | '|' | '^' | '$' | '*' | '?' | '+' => return None,
                c => Some(c),
            };
            let is_repeated = matches!(chars.peek(), Some('*' | '?' | '+' | '{'));
            if is_repeated {
                if chars.next() == Some('{') {
                    while chars.next()? != '}' {}
                }
                while matches!(chars.peek(), Some('?' | '+')) {
                    chars.next();
                }
            }
            match literal {
                Some(c) if !is_repeated => glob.push(c),
                _ if glob.ends_with('*') => {}
                _ => glob.push('*'),
            }
        }
        if !ends && !glob.ends_with('*') {
            glob.push('*');
        }
        if glob.chars().all(|c| c == '*') {
            return None;
        }
        globs.push(glob);
    }
    Some(globs)
}

/// Returns the texts of an expression such as `^(GET|HEAD)$` or `GET|HEAD`. `None` if a branch is no literal text.
pub(super) fn literal_branches(pattern: &str) -> Option<Vec<String>> {
    let inner = pattern.strip_prefix('^').unwrap_or(pattern);
    let inner = inner.strip_suffix('$').unwrap_or(inner);
    let branches = split_branches(unwrap_group(inner))?;
    let is_literal = |branch: &&str| {
        !branch.is_empty()
            && branch
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
    };
    branches
        .iter()
        .all(is_literal)
        .then(|| branches.iter().map(|&branch| branch.to_owned()).collect())
}

/// Removes the parentheses around a whole expression.
pub(super) fn unwrap_group(pattern: &str) -> &str {
    let Some(inner) = pattern
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'))
    else {
        return pattern;
    };
    let inner = inner.strip_prefix("?:").unwrap_or(inner);
    match inner.contains(['(', ')']) {
        true => pattern,
        false => inner,
    }
}

/// Divides an expression at each `|` outside of groups. `None` if its parentheses do not match.
pub(super) fn split_branches(pattern: &str) -> Option<Vec<&str>> {
    let mut branches = Vec::new();
    let (mut depth, mut start, mut is_escaped) = (0_usize, 0, false);
    for (at, c) in pattern.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.checked_sub(1)?,
            '|' if depth == 0 => {
                branches.push(&pattern[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    branches.push(&pattern[start..]);
    (depth == 0).then_some(branches)
}

/// Returns the usual spellings of patterns, if the case of letters does not count.
pub(super) fn spellings(globs: Vec<String>) -> Vec<String> {
    let mut all = Vec::new();
    for glob in globs {
        let lower = glob.to_ascii_lowercase();
        let mut capital = String::new();
        let mut is_start = true;
        for c in lower.chars() {
            capital.push(if is_start { c.to_ascii_uppercase() } else { c });
            is_start = is_start && !c.is_ascii_alphabetic();
        }
        for spelling in [glob.clone(), lower, capital, glob.to_ascii_uppercase()] {
            if !all.contains(&spelling) {
                all.push(spelling);
            }
        }
    }
    all
}

/// Returns true for an address, and for a network with its length.
pub(super) fn is_network(text: &str) -> bool {
    let (address, length) = text.split_once('/').unwrap_or((text, "0"));
    let Ok(address) = address.parse::<core::net::IpAddr>() else {
        return false;
    };
    let max = if address.is_ipv4() { 32 } else { 128 };
    length.parse::<u8>().is_ok_and(|length| length <= max)
}

/// Returns true if a text may be the name of a field.
pub(super) fn is_field_name(text: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_those_of_nginx() {
        for (text, expected) in [
            ("10", Some(10_000)),
            ("10m", Some(600_000)),
            ("1h30m", Some(5_400_000)),
            ("1d 2h", Some(93_600_000)),
            ("500ms", Some(500)),
            ("1M", Some(30 * DAY)),
            ("1x", None),
            ("", None),
            ("99999999999999999999d", None),
        ] {
            assert_eq!(milliseconds(text), expected, "{text}");
        }
        assert_eq!(duration(600_000), "\"10min\"");
        assert_eq!(duration(90_000), "\"90s\"");
        assert_eq!(duration(0), "\"0ms\"");
        assert_eq!(size("10m"), Some((10 << 20, "\"10MiB\"".to_owned())));
        assert_eq!(size("512"), Some((512, "\"512B\"".to_owned())));
        assert_eq!(size("x"), None);
    }

    #[test]
    fn variables_end_where_nginx_ends_them() {
        let variable = |name: &str| Part::Variable(name.to_owned());
        let text = |text: &str| Part::Text(text.to_owned());
        assert_eq!(
            parts("https://$host$request_uri"),
            [text("https://"), variable("host"), variable("request_uri")]
        );
        assert_eq!(
            parts("/a${b}c$1d"),
            [
                text("/a"),
                variable("b"),
                text("c"),
                variable("1"),
                text("d")
            ]
        );
        assert_eq!(parts("a$"), [text("a$")]);
        assert_eq!(parts("${a"), [text("${a")]);
        assert_eq!(parts(""), []);
    }

    #[test]
    fn globs_cover_each_text_in_which_the_expression_is_found() {
        for (pattern, globs) in [
            ("a|b_c", Some(vec!["*a*", "*b_c*"])),
            (
                "(wordpress_[a-f0-9]+|wp-postpass)",
                Some(vec!["*wordpress_*", "*wp-postpass*"]),
            ),
            ("^sess", Some(vec!["sess*"])),
            ("^sess$", Some(vec!["sess"])),
            (r"a\.b", Some(vec!["*a.b*"])),
            ("ab?c", Some(vec!["*a*c*"])),
            (".*", None),
            ("a(b|c)d", None),
            ("a[[:alnum:]]_b", None),
            (r"a\x41b", None),
            (r"a\db", Some(vec!["*a*b*"])),
        ] {
            let expected: Option<Vec<String>> =
                globs.map(|globs| globs.into_iter().map(str::to_owned).collect());
            assert_eq!(wider_globs(pattern), expected, "{pattern}");
        }
        assert_eq!(
            literal_branches("^(GET|HEAD)$"),
            Some(vec!["GET".to_owned(), "HEAD".to_owned()])
        );
        assert_eq!(literal_branches("^(?!GET)$"), None);
    }

    #[test]
    fn an_expression_of_pcre_alone_is_refused() {
        assert!(regex(r"\.php$", false).is_ok());
        assert_eq!(regex("a", true).as_deref(), Ok("(?i)a"));
        assert!(regex("(?!a)b", false).is_err());
        assert!(regex(r"(a)\1", false).is_err());
    }
}
