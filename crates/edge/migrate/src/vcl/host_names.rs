//! The hosts that conditions distinguish.

use std::collections::BTreeSet;

use regex::Regex;

use super::text::is_host;
use super::tree::{Expr, Node, Operator, every};
use crate::hosts::{Host, Reason};

/// The most hosts of one expression.
const NAMES_MAX: usize = 64;

/// Returns all hosts that conditions name, and the other ones at the end.
pub(super) fn hosts(tree: &[Node]) -> Vec<Host> {
    let mut hosts: Vec<Host> = Vec::new();
    let mut known: BTreeSet<Host> = BTreeSet::new();
    for node in every(tree) {
        for expr in node.expressions() {
            expr.each(&mut |part| {
                let Expr::Compare(left, operator, right) = part else {
                    return;
                };
                let (true, Some(literal)) = (is_host(left), right.as_text()) else {
                    return;
                };
                let named = match operator {
                    Operator::Equal | Operator::Unequal => {
                        let name = literal.split(':').next().unwrap_or_default();
                        named(name).into_iter().collect()
                    }
                    _ => of_pattern(&literal).unwrap_or_default(),
                };
                for host in named {
                    if known.insert(host.clone()) {
                        hosts.push(host);
                    }
                }
            });
        }
    }
    hosts.push(Host::Other);
    hosts
}

/// Returns true if an expression matches the host of a request.
pub(super) fn is_match(host: &Host, pattern: &str) -> Result<bool, Reason> {
    let regex = Regex::new(&format!("(?i){pattern}"));
    let regex = regex.map_err(|_| format!("the edge has no expression {pattern}"))?;
    match host {
        Host::Exact(name) => Ok(regex.is_match(name)),
        // The names and domains of such an expression have sites of their own.
        Host::Below(domain) if of_pattern(pattern).is_some() => {
            Ok(regex.is_match(&format!("host.{domain}")))
        }
        Host::Other if of_pattern(pattern).is_some() => Ok(false),
        Host::Below(_) | Host::Other => Err(format!(
            "sites have names and domains, and no expressions; list the hosts that match {pattern}"
        )),
    }
}

fn named(name: &str) -> Option<Host> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_valid = !name.is_empty()
        && name.chars().all(is_name)
        && !name.starts_with(['.', '-'])
        && !name.ends_with(['.', '-'])
        && !name.contains("..");
    is_valid.then(|| Host::Exact(name.to_ascii_lowercase()))
}

/// Returns all hosts that an expression matches, if these are names and domains.
fn of_pattern(pattern: &str) -> Option<Vec<Host>> {
    let pattern = pattern.strip_prefix("(?i)").unwrap_or(pattern);
    let pattern = pattern
        .strip_suffix("(:[0-9]+)?$")
        .or_else(|| pattern.strip_suffix(r"(:\d+)?$"))
        .or_else(|| pattern.strip_suffix('$'))
        .unwrap_or(pattern);
    let (body, is_anchored) = match pattern.strip_prefix('^') {
        Some(body) => (body, true),
        None => (pattern, false),
    };
    let (body, is_domain) = match body
        .strip_prefix(r"(^|\.)")
        .or_else(|| body.strip_prefix(r"(.*\.)?"))
    {
        Some(body) => (body, true),
        None => (body, !is_anchored),
    };
    let (body, is_below) = match body
        .strip_prefix(r"\.")
        .or_else(|| body.strip_prefix(r".*\."))
        .or_else(|| body.strip_prefix(r".+\."))
    {
        Some(body) => (body, true),
        None => (body, false),
    };
    let mut hosts = Vec::new();
    for name in expanded(body)? {
        let Host::Exact(name) = named(&name)? else {
            return None;
        };
        // A name without a dot is a part of names, such as `www`.
        if !name.contains('.') {
            return None;
        }
        if !is_below {
            hosts.push(Host::Exact(name.clone()));
        }
        if is_below || is_domain {
            hosts.push(Host::Below(name));
        }
    }
    Some(hosts)
}

/// Returns the texts of an expression of letters, groups and optional parts.
fn expanded(pattern: &str) -> Option<Vec<String>> {
    let mut texts = vec![String::new()];
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        let branches: Vec<String>;
        if c == '(' {
            let end = rest.find(')')?;
            let inner = rest[1..end]
                .strip_prefix("?:")
                .unwrap_or_else(|| &rest[1..end]);
            branches = inner.split('|').map(plain).collect::<Option<_>>()?;
            rest = &rest[end + 1..];
        } else {
            let bytes = if c == '\\' { 2 } else { c.len_utf8() };
            branches = vec![plain(rest.get(..bytes)?)?];
            rest = &rest[bytes..];
        }
        let is_optional = rest.starts_with('?');
        if is_optional {
            rest = &rest[1..];
        }
        let mut next = Vec::new();
        for text in &texts {
            if is_optional {
                next.push(text.clone());
            }
            next.extend(branches.iter().map(|branch| format!("{text}{branch}")));
        }
        texts = next;
        if texts.len() > NAMES_MAX {
            return None;
        }
    }
    Some(texts)
}

/// Returns a text of letters and dots, with or without a backslash.
fn plain(pattern: &str) -> Option<String> {
    let text = pattern.replace("\\.", ".").replace("\\-", "-");
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    text.chars().all(is_name).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_name_hosts_and_domains() {
        let exact = |name: &str| Host::Exact(name.to_owned());
        let below = |name: &str| Host::Below(name.to_owned());
        for (pattern, expected) in [
            (
                r"^(www\.)?a\.org$",
                Some(vec![exact("a.org"), exact("www.a.org")]),
            ),
            (r"^(?i)a\.(org|com)(:[0-9]+)?$", None),
            (
                r"(?i)^a\.(org|com)(:[0-9]+)?$",
                Some(vec![exact("a.org"), exact("a.com")]),
            ),
            (r"a\.org$", Some(vec![exact("a.org"), below("a.org")])),
            (r"(^|\.)a\.org$", Some(vec![exact("a.org"), below("a.org")])),
            (r"\.a\.org$", Some(vec![below("a.org")])),
            (r"^www\.", None),
            (r"^[a-z]+\.a\.org$", None),
            ("a.org", Some(vec![exact("a.org"), below("a.org")])),
        ] {
            assert_eq!(of_pattern(pattern), expected, "{pattern}");
        }
        assert_eq!(is_match(&below("a.org"), r"\.a\.org$"), Ok(true));
        assert_eq!(is_match(&Host::Other, r"\.a\.org$"), Ok(false));
        assert!(is_match(&Host::Other, r"^www\.").is_err());
        assert!(is_match(&below("a.org"), "internal").is_err());
    }
}
