//! The kinds of caching faults, and the rules that mend them.

use std::time::Duration;

/// The kind of a caching fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultKind {
    /// Responses state no lifetime, so the cache cannot use them again.
    NoLifetime,
    /// The lifetime is short, and the body is the same when it has ended.
    ShortLifetime,
    /// Static files forbid storing, although requests for them have no credentials.
    PrivateStatic,
    /// Static files set a cookie, so they are not stored.
    CookieOnStatic,
    /// `Vary` names a field on which the body does not depend.
    NeedlessVary,
    /// A query parameter has values with the same body.
    IgnoredParameter,
    /// A query parameter has a new value in nearly each request, with the same body.
    CacheBuster,
    /// The same parameters in another order.
    ParameterOrder,
    /// Two hosts have the same bodies.
    SameOnTwoHosts,
    /// A path with and without a final slash has the same body.
    FinalSlash,
    /// Requests for ranges of the same URL are passed again and again.
    PassedRanges,
    /// Responses have neither `ETag` nor `Last-Modified`.
    NoValidator,
    /// Texts are sent without a coding to clients that accept one.
    Uncompressed,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [Self; 13] = [
        Self::NoLifetime,
        Self::ShortLifetime,
        Self::PrivateStatic,
        Self::CookieOnStatic,
        Self::NeedlessVary,
        Self::IgnoredParameter,
        Self::CacheBuster,
        Self::ParameterOrder,
        Self::SameOnTwoHosts,
        Self::FinalSlash,
        Self::PassedRanges,
        Self::NoValidator,
        Self::Uncompressed,
    ];

    /// Returns the name of the kind, for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoLifetime => "no-lifetime",
            Self::ShortLifetime => "short-lifetime",
            Self::PrivateStatic => "private-static",
            Self::CookieOnStatic => "cookie-on-static",
            Self::NeedlessVary => "needless-vary",
            Self::IgnoredParameter => "ignored-parameter",
            Self::CacheBuster => "cache-buster",
            Self::ParameterOrder => "parameter-order",
            Self::SameOnTwoHosts => "same-on-two-hosts",
            Self::FinalSlash => "final-slash",
            Self::PassedRanges => "passed-ranges",
            Self::NoValidator => "no-validator",
            Self::Uncompressed => "uncompressed",
        }
    }

    /// Returns a sentence about the fault of a subject.
    pub fn text(self, subject: &str) -> String {
        match self {
            Self::NoLifetime => format!("responses of {subject} state no lifetime"),
            Self::ShortLifetime => {
                format!("responses of {subject} have a short lifetime and are the same afterwards")
            }
            Self::PrivateStatic => {
                format!("static files {subject} forbid caches to store or use them")
            }
            Self::CookieOnStatic => format!("static files {subject} set a cookie"),
            Self::NeedlessVary => {
                format!("Vary of {subject} separates responses with the same body")
            }
            Self::IgnoredParameter => {
                format!("the query parameter {subject} does not change the body")
            }
            Self::CacheBuster => {
                format!(
                    "the query parameter {subject} has a new value in nearly each request and does not change the body"
                )
            }
            Self::ParameterOrder => {
                "the order of query parameters does not change the body".to_owned()
            }
            Self::SameOnTwoHosts => format!("the host {subject} has the same bodies as another"),
            Self::FinalSlash => {
                format!("{subject} has the same body with and without a final slash")
            }
            Self::PassedRanges => "ranges are passed to the origin and not stored".to_owned(),
            Self::NoValidator => {
                format!(
                    "responses of {subject} have neither ETag nor Last-Modified, so each refresh sends the body"
                )
            }
            Self::Uncompressed => format!("{subject} is sent without compression"),
        }
    }

    /// Returns true if the fault costs hits. The others cost bytes or time.
    pub(super) const fn costs_hits(self) -> bool {
        !matches!(self, Self::NoValidator | Self::Uncompressed)
    }

    /// Returns the rule that mends the fault, in TOML. `other` is the other host with the same bodies, or the value of
    /// `Vary` without needless fields. `lifetime` is the lifetime to set.
    pub(super) fn rule(self, subject: &str, other: &str, lifetime: Duration) -> String {
        let of_path = |rule: &str| format!("[[site.rule]]\npath = \"{subject}\"\n{rule}\n");
        let with_cookie = format!(
            "[[site.rule]]\npath = \"{subject}\"\ncookie = \"*\"\npass = true # {FOR_ONE_USER}\n"
        );
        let for_all = |rule: &str| format!("{}{with_cookie}", of_path(rule));
        let lifetime = duration_text(lifetime);
        match self {
            Self::NoLifetime => for_all(&format!("default_ttl = \"{lifetime}\"")),
            Self::ShortLifetime | Self::PrivateStatic => for_all(&format!("ttl = \"{lifetime}\"")),
            Self::CookieOnStatic => for_all(&format!(
                "origin_response.remove = [\"Set-Cookie\"]\ndefault_ttl = \"{lifetime}\""
            )),
            Self::NeedlessVary if other.is_empty() => {
                of_path("origin_response.remove = [\"Vary\"]")
            }
            Self::NeedlessVary => of_path(&format!("origin_response.set.Vary = \"{other}\"")),
            Self::IgnoredParameter | Self::CacheBuster => drop_rule(&[subject]),
            Self::ParameterOrder => "[[site.rule]]\nquery.sort = true\n".to_owned(),
            Self::SameOnTwoHosts => format!(
                "[[site]]\nhosts = \"{subject}\"\nredirect = \"${{scheme}}://{other}${{uri}}\"\n\
                 redirect_status = 301\n"
            ),
            Self::FinalSlash => {
                let paths = subject.trim_start_matches('/');
                let paths = paths.replace('.', "\\.").replace('*', ".+");
                format!(
                    "[[site.rule]]\npath_regex = '^/({paths})/$'\nredirect = \"${{scheme}}://${{host}}/${{1}}?${{query}}\"\nredirect_status = 301\n"
                )
            }
            Self::PassedRanges => "[ranges]\nslice_bytes = \"1MiB\"\n".to_owned(),
            Self::NoValidator => of_path("stale_while_revalidate = \"10min\""),
            Self::Uncompressed => of_path("compression = true"),
        }
    }
}

/// The reason for the rule about requests with cookies, as a comment in TOML.
const FOR_ONE_USER: &str = "a response to a request with a cookie may be for one user";

/// Returns the rule that removes query parameters. A later rule replaces the whole list, so one rule has all of them.
pub(super) fn drop_rule(parameters: &[&str]) -> String {
    let names: Vec<String> = parameters
        .iter()
        .map(|name| format!("\"{name}\""))
        .collect();
    format!("[[site.rule]]\nquery.drop = [{}]\n", names.join(", "))
}

/// Returns a duration as the configuration has it: in the largest unit that is exact.
fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs().max(1);
    let units = [(86_400, "d"), (3600, "h"), (60, "min")];
    let unit = units
        .iter()
        .find(|(length, _)| seconds.is_multiple_of(*length));
    let (length, unit) = unit.unwrap_or(&(1, "s"));
    format!("{}{unit}", seconds / length)
}
