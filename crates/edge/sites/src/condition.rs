//! The condition of a rule: to which requests it applies.

use core::net::{IpAddr, Ipv4Addr};

use edgeward_types::Pattern;
use http::Method;
use http::header::HeaderName;

use crate::fields::{Fields, NoFields, any_cookie};
use crate::host::without_port;
use crate::names::any_reading;
use crate::network::Network;
use crate::path_pattern::PathPattern;
use crate::query::name_of;
use crate::readings::{Match, PathReadings};

/// The parts of a request that conditions compare.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// The method.
    pub method: &'a Method,
    /// `http` or `https`, by which the client sent the request.
    pub scheme: &'a str,
    /// Host and port, in the canonical form of the cache key.
    pub host: &'a str,
    /// The readings of the path.
    pub path: &'a PathReadings<'a>,
    /// The path as sent.
    pub sent_path: &'a str,
    /// The query without its `?`. Empty if the target has no query.
    pub query: &'a str,
    /// The header fields. All lines of `Cookie` count.
    pub fields: &'a dyn Fields,
    /// The address of the client.
    pub client: IpAddr,
}

/// A request of which no view exists yet.
#[derive(Clone, Copy, Debug)]
pub struct RequestParts<'a> {
    /// The method.
    pub method: &'a Method,
    /// `http` or `https`, by which the client sent the request.
    pub scheme: &'a str,
    /// Host and port, in the canonical form of the cache key.
    pub host: &'a str,
    /// Path and query, as sent.
    pub target: &'a str,
    /// The header fields. All lines of `Cookie` count.
    pub fields: &'a dyn Fields,
    /// The address of the client.
    pub client: IpAddr,
}

impl<'a> RequestParts<'a> {
    /// A GET of a URL without a known request. Rules with conditions on fields or clients do not apply to it.
    pub fn of_url(scheme: &'a str, host: &'a str, target: &'a str) -> Self {
        Self {
            method: &Method::GET,
            scheme,
            host,
            target,
            fields: &NoFields,
            client: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        }
    }

    /// Calls a function with the view of the request.
    pub fn view<T>(&self, call: impl FnOnce(&RequestView<'_>) -> T) -> T {
        let (path, query) = self.target.split_once('?').unwrap_or((self.target, ""));
        call(&RequestView {
            method: self.method,
            scheme: self.scheme,
            host: self.host,
            path: &PathReadings::of(path),
            sent_path: path,
            query,
            fields: self.fields,
            client: self.client,
        })
    }
}

/// States to which requests a rule applies.
///
/// A condition holds if each of its parts holds. A list holds if one of its members matches. An empty part always
/// holds, so the default condition holds for all requests.
///
/// The edge does not know how the origin reads a request. The path has [several readings](PathReadings), and of a field
/// with several lines an origin may read the first, the last or all. [`matches`](Self::matches) therefore says if the
/// condition holds for all readings, for some, or for none.
#[derive(Clone, Debug, Default)]
pub struct Condition {
    /// Globs of the path.
    pub paths: Vec<PathPattern>,
    /// Regular expressions of the path. A condition with globs and expressions needs a match of both lists.
    pub path_regexes: Vec<PathPattern>,
    /// Regular expressions of the host without its port, compiled as those of paths.
    pub host_regexes: Vec<PathPattern>,
    /// Schemes by which the client sent the request, `http` or `https`.
    pub schemes: Vec<Box<str>>,
    /// Methods.
    pub methods: Vec<Method>,
    /// Fields of the request. Each of them must match.
    pub fields: Vec<FieldCondition>,
    /// Patterns of the names of cookies. One cookie with such a name suffices, in any form that an origin reads so.
    pub cookies: Vec<Pattern>,
    /// Patterns of the names of query parameters. One parameter with such a name suffices, in any form that an origin
    /// reads so.
    pub parameters: Vec<Pattern>,
    /// Networks of the client's address.
    pub clients: Vec<Network>,
}

/// A field of the request, and patterns of its value.
#[derive(Clone, Debug)]
pub struct FieldCondition {
    /// The name of the field.
    pub name: HeaderName,
    /// Patterns of the value. The value of one line must match one of them. `*` matches each value of a field that is
    /// present.
    pub values: Vec<Pattern>,
}

impl Condition {
    /// Compares the condition with all readings of the request. The parts that are cheap to compare come first.
    pub fn matches(&self, request: &RequestView<'_>) -> Match {
        let is_possible = (self.methods.is_empty() || self.methods.contains(request.method))
            && is_any(&self.schemes, |scheme| **scheme == *request.scheme)
            && is_any(&self.host_regexes, |pattern| {
                pattern.matches(without_port(request.host).as_bytes())
            });
        if !is_possible {
            return Match::certain(false);
        }
        let path = if self.paths.is_empty() && self.path_regexes.is_empty() {
            Match::certain(true)
        } else {
            request.path.matches(|path| {
                is_any(&self.paths, |pattern| pattern.matches(path))
                    && is_any(&self.path_regexes, |pattern| pattern.matches(path))
            })
        };
        if !path.any || !self.holds_for_other_parts(request) {
            return Match::certain(false);
        }
        let fields = self
            .fields
            .iter()
            .map(|field| field.matches(request.fields));
        fields.fold(path, Match::and)
    }

    /// Returns true if the parts hold that have one reading.
    fn holds_for_other_parts(&self, request: &RequestView<'_>) -> bool {
        is_any(&self.clients, |network| network.contains(request.client))
            && (self.cookies.is_empty()
                || any_cookie(request.fields, &mut |name, _| {
                    any_reading(name, |name| matches(&self.cookies, name))
                }))
            && (self.parameters.is_empty()
                || (!request.query.is_empty()
                    && parameter_names(request.query)
                        .any(|name| any_reading(name, |name| matches(&self.parameters, name)))))
    }
}

impl FieldCondition {
    /// Compares the lines of the field. If only some of them match, the origin may read one that does not.
    fn matches(&self, fields: &dyn Fields) -> Match {
        let (mut any, mut all) = (false, true);
        fields.any_line(&self.name, &mut |line| {
            let is_match = matches(&self.values, line);
            any |= is_match;
            all &= is_match;
            false // all lines count
        });
        Match {
            form: any,
            any,
            all: any && all,
        }
    }
}

/// Returns true if a part of a condition is empty or one of its members passes the test.
fn is_any<T>(members: &[T], test: impl FnMut(&T) -> bool) -> bool {
    members.is_empty() || members.iter().any(test)
}

fn matches(patterns: &[Pattern], text: &[u8]) -> bool {
    patterns.iter().any(|pattern| pattern.matches(text))
}

/// Returns the names of the parameters of a query. A parameter without `=` is its own name, and `&` separates two empty
/// names, so that `*` holds for each query. Some origins separate parameters by semicolons, too.
fn parameter_names(query: &str) -> impl Iterator<Item = &[u8]> {
    let parameters = query.split(['&', ';']);
    parameters.map(|parameter| name_of(parameter).as_bytes())
}

#[cfg(test)]
mod tests {
    use http::header::{HeaderMap, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| Pattern::new(text)).collect()
    }

    fn fields(lines: &[(&str, &str)]) -> HeaderMap {
        let line = |(name, value): &(&str, &str)| {
            let name: HeaderName = name.parse().expect("a name");
            (name, HeaderValue::from_str(value).expect("a value"))
        };
        lines.iter().map(line).collect()
    }

    /// GET of a path and query with fields, by a client at 192.0.2.7.
    fn holds(condition: &Condition, target: &str, lines: &[(&str, &str)]) -> bool {
        let request = RequestParts {
            fields: &fields(lines),
            client: IpAddr::from([192, 0, 2, 7]),
            ..RequestParts::of_url("http", "example.org", target)
        };
        request.view(|view| condition.matches(view).form)
    }

    #[test]
    fn an_empty_condition_holds_for_every_request() {
        assert!(holds(&Condition::default(), "/", &[]));
    }

    #[test]
    fn a_list_holds_by_one_member_and_a_condition_by_all_parts() {
        let condition = Condition {
            paths: vec![
                PathPattern::glob("/a/*").expect("a glob"),
                PathPattern::glob("*.png").expect("a glob"),
            ],
            methods: vec![Method::HEAD, Method::GET],
            clients: vec!["192.0.2.0/24".parse().expect("a network")],
            ..Condition::default()
        };
        assert!(holds(&condition, "/a/x", &[]));
        assert!(holds(&condition, "/b/x.png", &[]));
        assert!(!holds(&condition, "/b/x", &[]));
        let images = Condition {
            path_regexes: vec![PathPattern::regex(r"\.png$").expect("an expression")],
            ..condition.clone()
        };
        assert!(holds(&images, "/a/x.png", &[]));
        assert!(!holds(&images, "/a/x", &[]));
        let elsewhere = Condition {
            clients: vec!["10.0.0.0/8".parse().expect("a network")],
            ..condition.clone()
        };
        assert!(!holds(&elsewhere, "/a/x", &[]));
        let posts = Condition {
            methods: vec![Method::POST],
            ..condition.clone()
        };
        assert!(!holds(&posts, "/a/x", &[]));
        for (scheme, holds_for_http) in [("http", true), ("https", false)] {
            let condition = Condition {
                schemes: vec![scheme.into()],
                ..condition.clone()
            };
            assert_eq!(holds(&condition, "/a/x", &[]), holds_for_http);
        }
    }

    #[test]
    fn a_host_is_compared_without_its_port() {
        let condition = Condition {
            host_regexes: ["^[^.]+\\.a\\.example$", "^10\\.0\\.0\\.7$", "^\\[::1\\]$"]
                .map(|text| PathPattern::regex(text).expect("an expression"))
                .into(),
            ..Condition::default()
        };
        for (host, expected) in [
            ("b.a.example", true),
            ("b.a.example:8080", true),
            ("10.0.0.7:81", true),
            ("[::1]", true),
            ("[::1]:81", true),
            ("c.b.a.example", false),
            ("a.example", false),
            ("b.a.example.org", false),
        ] {
            let request = RequestParts::of_url("http", host, "/");
            let found = request.view(|view| condition.matches(view));
            assert_eq!(found, Match::certain(expected), "{host}");
        }
    }

    #[test]
    fn a_cookie_is_found_by_its_name_in_any_line() {
        let condition = Condition {
            cookies: patterns(&["wordpress_logged_in_*", "session"]),
            ..Condition::default()
        };
        for (line, found) in [
            ("wordpress_logged_in_1f=x", true),
            ("a=1; session=2", true),
            ("a=1;session =2", true),
            ("a=session", false),
            ("wordpress.logged_in_x=1", true),
            ("wordpress[logged in_x=1", true),
            ("wordpress_logged_in%5Fx=1", true),
            ("session", false),
            ("sessions=1", false),
            ("", false),
        ] {
            assert_eq!(holds(&condition, "/", &[("cookie", line)]), found, "{line}");
        }
        assert!(holds(
            &condition,
            "/",
            &[("cookie", "a=1"), ("cookie", "session=2")]
        ));
        assert!(!holds(&condition, "/", &[]));
    }

    #[test]
    fn parameters_are_found_by_name_and_fields_by_value() {
        let preview = Condition {
            parameters: patterns(&["preview", "utm_*"]),
            ..Condition::default()
        };
        for (target, found) in [
            ("/?preview", true),
            ("/?a=1&preview=", true),
            ("/?utm_source=x", true),
            ("/?pre%76iew=1", true),
            ("/?a=1;preview=1", true),
            ("/?preview[]=1", true),
            ("/?utm.source=1", true),
            ("/?a=preview", false),
            ("/?&", false),
            ("/?", false),
            ("/preview", false),
        ] {
            assert_eq!(holds(&preview, target, &[]), found, "{target}");
        }
        let any = Condition {
            parameters: patterns(&["*"]),
            ..Condition::default()
        };
        for (target, found) in [
            ("/?a", true),
            ("/?&", true),
            ("/?;", true),
            ("/?", false),
            ("/", false),
        ] {
            assert_eq!(holds(&any, target, &[]), found, "{target}");
        }
        let country = Condition {
            fields: vec![FieldCondition {
                name: HeaderName::from_static("x-country"),
                values: patterns(&["DE", "A*"]),
            }],
            ..Condition::default()
        };
        assert!(holds(&country, "/", &[("x-country", "AT")]));
        assert!(holds(
            &country,
            "/",
            &[("x-country", "FR"), ("x-country", "DE")]
        ));
        assert!(!holds(&country, "/", &[("x-country", "FR")]));
        assert!(!holds(&country, "/", &[]));
    }

    proptest! {
        /// A rule that denies a path must not be evaded by another way to write the path.
        #[test]
        fn a_path_matches_however_it_is_encoded(
            path in "/[a-c/]{0,8}",
            encoded in proptest::collection::vec(any::<bool>(), 9),
        ) {
            let mut other = String::new();
            for (byte, encode) in path.bytes().zip(encoded) {
                match encode && !other.is_empty() {
                    true => other.push_str(&format!("%{byte:02X}")),
                    false => other.push(char::from(byte)),
                }
            }
            let pattern = PathPattern::glob("/a*c*").expect("a glob");
            let (path, other) = (crate::path::matching_path(&path), crate::path::matching_path(&other));
            prop_assert_eq!(pattern.matches(&path), pattern.matches(&other));
        }
    }
}
