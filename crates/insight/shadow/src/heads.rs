//! Compares the heads of two answers to one request.

use crate::answer::Answer;
use crate::difference::{Cause, Difference};

/// Returns the differences of two heads. `ignored` has the names of fields that are not compared.
pub(crate) fn compare(incumbent: &Answer, edge: &Answer, ignored: &[String]) -> Vec<Difference> {
    let mut differences = Vec::new();
    if let Some(status) = status(incumbent.status, edge.status) {
        // Other differences follow from it.
        return vec![status];
    }
    let (Some(left), Some(right)) = (&incumbent.head, &edge.head) else {
        return differences;
    };
    for (name, cause) in FIELDS {
        if ignored.iter().any(|ignored| ignored == name) {
            continue;
        }
        let (of_incumbent, of_edge) = (left.field(name), right.field(name));
        // A transfer with another validator is another version, and a coding changes the validator.
        if matches!(name, "etag" | "last-modified") && of_incumbent.is_some() && of_edge.is_some() {
            continue;
        }
        if canonical(name, of_incumbent) != canonical(name, of_edge) {
            let text = |value: Option<&str>| value.unwrap_or("absent").to_owned();
            differences.push(Difference::new(
                cause,
                name,
                text(of_incumbent),
                text(of_edge),
            ));
        }
    }
    if !ignored.iter().any(|name| name == "set-cookie") {
        differences.extend(set_cookie(incumbent, edge));
    }
    differences
}

/// Returns the difference of two statuses.
pub(crate) fn status(incumbent: u16, edge: u16) -> Option<Difference> {
    let is_redirect = |status: u16| matches!(status, 301 | 302 | 303 | 307 | 308);
    let cause = match is_redirect(incumbent) || is_redirect(edge) {
        true => Cause::Redirect,
        false => Cause::Status,
    };
    (incumbent != edge).then(|| {
        Difference::new(
            cause,
            format!("{incumbent} at the incumbent, {edge} at the edge"),
            incumbent.to_string(),
            edge.to_string(),
        )
    })
}

/// Compares the names of the cookies that are set, because the values often have a random part.
fn set_cookie(incumbent: &Answer, edge: &Answer) -> Option<Difference> {
    let names = |answer: &Answer| {
        let fields = answer.head.iter().flat_map(|head| &head.fields);
        let values = fields.filter(|(name, _)| name == "set-cookie");
        let mut names: Vec<String> = values
            .map(|(_, value)| {
                value
                    .split('=')
                    .next()
                    .unwrap_or_default()
                    .trim()
                    .to_owned()
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        match names.is_empty() {
            true => "absent".to_owned(),
            false => names.join(", "),
        }
    };
    let (left, right) = (names(incumbent), names(edge));
    (left != right).then(|| Difference::new(Cause::SetCookie, "set-cookie", left, right))
}

/// Returns a value in the form in which it is compared. Lists without an order are sorted.
fn canonical(name: &str, value: Option<&str>) -> Option<String> {
    let value = value?.trim();
    Some(match name {
        "vary" | "cache-control" => {
            let mut members: Vec<String> = value
                .split(',')
                .map(|member| member.trim().to_ascii_lowercase())
                .filter(|member| !member.is_empty())
                .collect();
            members.sort_unstable();
            members.dedup();
            members.join(",")
        }
        // Each response has another number.
        "content-security-policy" => {
            let members = value.split_ascii_whitespace();
            let lasting = members.filter(|member| !member.starts_with("'nonce-"));
            lasting.collect::<Vec<_>>().join(" ")
        }
        "content-type" => value.to_ascii_lowercase().replace(' ', ""),
        "content-encoding" => value.to_ascii_lowercase(),
        _ => value.to_owned(),
    })
}

/// The fields that clients and caches act upon.
const FIELDS: [(&str, Cause); 14] = [
    ("location", Cause::Redirect),
    ("vary", Cause::Vary),
    ("content-encoding", Cause::Encoding),
    ("content-type", Cause::Field),
    ("content-language", Cause::Field),
    ("content-disposition", Cause::Field),
    ("cache-control", Cause::Field),
    ("etag", Cause::Field),
    ("last-modified", Cause::Field),
    ("access-control-allow-origin", Cause::Field),
    ("content-security-policy", Cause::Field),
    ("strict-transport-security", Cause::Field),
    ("x-frame-options", Cause::Field),
    ("link", Cause::Field),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Head;

    fn answer(status: u16, fields: &[(&str, &str)]) -> Answer {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Answer {
            status,
            head: Some(Head {
                fields: fields.iter().map(owned).collect(),
                body_hash: None,
            }),
            ..Answer::default()
        }
    }

    #[test]
    fn each_field_that_matters_has_its_cause() {
        let plain = answer(200, &[]);
        for (fields, expected) in [
            (&[("location", "/b")][..], vec![Cause::Redirect]),
            (&[("vary", "Accept-Encoding")], vec![Cause::Vary]),
            (&[("content-encoding", "gzip")], vec![Cause::Encoding]),
            (&[("set-cookie", "a=1; Path=/")], vec![Cause::SetCookie]),
            (&[("etag", "\"1\"")], vec![Cause::Field]),
            (&[("date", "now"), ("age", "3"), ("server", "x")], vec![]),
        ] {
            for (left, right) in [
                (&plain, &answer(200, fields)),
                (&answer(200, fields), &plain),
            ] {
                let differences = compare(left, right, &[]);
                let causes: Vec<Cause> = differences.iter().map(|found| found.cause).collect();
                assert_eq!(causes, expected, "{fields:?}");
            }
            let names: Vec<String> = fields.iter().map(|(name, _)| (*name).to_owned()).collect();
            assert_eq!(compare(&plain, &answer(200, fields), &names), []);
        }
    }

    #[test]
    fn another_order_or_case_of_a_list_is_no_difference() {
        for (name, left, right) in [
            ("vary", "Accept-Encoding, Origin", "origin,accept-encoding"),
            ("cache-control", "max-age=5, public", "public, max-age=5"),
            (
                "content-type",
                "text/html; charset=UTF-8",
                "text/html;charset=utf-8",
            ),
            ("set-cookie", "a=1", "a=2"),
            ("etag", "\"1\"", "\"2\""),
        ] {
            let (left, right) = (answer(200, &[(name, left)]), answer(200, &[(name, right)]));
            assert_eq!(compare(&left, &right, &[]), [], "{name}");
        }
    }

    #[test]
    fn another_status_hides_what_follows_from_it() {
        let found = compare(&answer(200, &[("vary", "a")]), &answer(404, &[]), &[]);
        let causes: Vec<Cause> = found.iter().map(|found| found.cause).collect();
        assert_eq!(causes, [Cause::Status]);
        let found = compare(&answer(301, &[]), &answer(302, &[]), &[]);
        assert_eq!(found[0].cause, Cause::Redirect);
    }
}
