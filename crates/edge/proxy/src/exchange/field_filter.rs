//! Removes the fields of requests that the origin must not get.
//!
//! Servers that pass fields as variables (CGI, WSGI, FastCGI, PHP) give `X-User` and `X_User` the same name. **The
//! rule**: the edge compares names as these servers do. If HTTP, the edge, a site or a rule gives a name a meaning, the
//! edge removes each other spelling of this name from requests, before rules, keys and limits read the request.
//!
//! A trailer may be merged into the head by the origin. **The rule**: a trailer of a request passes only if neither
//! HTTP, the edge, a site nor a rule gives its name a meaning in the head.

use edgeward_semantics::hop_by_hop;
use edgeward_types::Pattern;
use http::HeaderName;
use http::header::HeaderMap;

use crate::config::ForwardingConfig;

/// The names of the removed fields. A plain request is a cacheable GET or HEAD on the fast path (`client::h1`).
#[derive(Debug)]
pub(crate) struct FieldFilter {
    /// Removed from requests of clients that are not trusted proxies.
    client_fields: NameSet,
    /// Removed from requests that the cache may answer: fields with which a client overrides URL or method.
    override_fields: NameSet,
    /// Removed from plain requests: hop-by-hop fields and both sets above.
    plain: NameSet,
    /// Removed from plain requests of trusted proxies: hop-by-hop fields and `override_fields`.
    plain_trusted: NameSet,
    /// Read by the rules, keys and limits of sites.
    site_fields: NameSet,
    /// The names with a meaning: those of HTTP, and `site_fields`.
    known: NameSet,
    /// True if one of `known` has an underscore.
    knows_underscores: bool,
}

impl FieldFilter {
    /// `site_fields` are the fields that sites and rules read or change.
    pub(crate) fn new(config: &ForwardingConfig, site_fields: Vec<HeaderName>) -> Self {
        let of_http = PROTOCOL_FIELDS.iter().chain(&OTHER_FIELDS);
        let of_http = of_http.map(|name| HeaderName::from_static(name));
        let known: Vec<HeaderName> = of_http.chain(site_fields.iter().cloned()).collect();
        let client_fields = CLIENT_ADDRESS_FIELDS.iter().chain(&CLIENT_FIELDS);
        let client_fields: Vec<_> = client_fields
            .map(|name| HeaderName::from_static(name))
            .collect();
        let override_fields = config.removed_fields.0.clone();
        let connection_fields = hop_by_hop::REQUEST_FIELDS.to_vec();
        let trusted_proxy_fields = [connection_fields, override_fields.clone()].concat();
        Self {
            plain: NameSet::new([trusted_proxy_fields.clone(), client_fields.clone()].concat()),
            plain_trusted: NameSet::new(trusted_proxy_fields),
            client_fields: NameSet::new(client_fields),
            override_fields: NameSet::new(override_fields),
            site_fields: NameSet::new(site_fields),
            knows_underscores: known.iter().any(has_underscore),
            known: NameSet::new(known),
        }
    }

    /// Returns true if the edge reads a field of a request: a rule, a key or a limit, or for trusted proxies the search
    /// for the client. `Connection` must not remove such a field: a client behind the proxy may have listed it.
    pub(crate) fn is_read(&self, name: &HeaderName, client_is_trusted: bool) -> bool {
        self.site_fields.contains(name) || (client_is_trusted && self.client_fields.contains(name))
    }

    /// Removes the fields that this client may not send to the origin.
    pub(crate) fn apply(&self, headers: &mut HeaderMap, client_is_trusted: bool, cacheable: bool) {
        remove_where(headers, |name| {
            self.is_lookalike(name)
                || (!client_is_trusted && self.client_fields.contains(name))
                || (cacheable && self.override_fields.contains(name))
        });
    }

    /// Like [`apply`](Self::apply), for a plain request. Also removes the hop-by-hop fields. Their names are fixed,
    /// because `Connection` of a plain request lists no other field.
    pub(crate) fn apply_to_plain(&self, headers: &mut HeaderMap, client_is_trusted: bool) {
        remove_where(headers, |name| {
            self.removes_from_plain(name, client_is_trusted)
        });
    }

    /// Returns true if [`apply_to_plain`](Self::apply_to_plain) removes a field.
    pub(crate) fn removes_from_plain(&self, name: &HeaderName, client_is_trusted: bool) -> bool {
        let names = if client_is_trusted {
            &self.plain_trusted
        } else {
            &self.plain
        };
        names.contains(name) || self.is_lookalike(name)
    }

    /// Removes the trailers of a request that have a meaning in a head. A proxy forwards its clients' trailers, so
    /// trust in the proxy does not count. `only` are the patterns of `request.only`, in lower case.
    pub(crate) fn apply_to_trailers(&self, only: Option<&[Pattern]>, trailers: &mut HeaderMap) {
        remove_where(trailers, |name| {
            self.known.contains(name)
                || self.plain.contains(name)
                || only.is_some_and(|patterns| !matches_any(patterns, name))
        });
    }

    /// Returns true for another spelling of a known name.
    fn is_lookalike(&self, name: &HeaderName) -> bool {
        (self.knows_underscores || has_underscore(name)) && self.known.has_only_other_spelling(name)
    }
}

fn has_underscore(name: &HeaderName) -> bool {
    name.as_str().contains('_')
}

fn matches_any(patterns: &[Pattern], name: &HeaderName) -> bool {
    let name = name.as_str().as_bytes();
    patterns.iter().any(|pattern| pattern.matches(name))
}

/// Removes the fields whose names match no pattern, except [`PROTOCOL_FIELDS`], [`CLIENT_ADDRESS_FIELDS`] and
/// [`CLIENT_FIELDS`]; the latter two are already removed unless a trusted proxy has sent them. The patterns are in
/// lower case.
pub(crate) fn keep_only(patterns: &[Pattern], headers: &mut HeaderMap) {
    remove_where(headers, |name| {
        let text = name.as_str();
        !PROTOCOL_FIELDS.contains(&text)
            && !CLIENT_ADDRESS_FIELDS.contains(&text)
            && !CLIENT_FIELDS.contains(&text)
            && !matches_any(patterns, name)
    });
}

fn remove_where(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    while let Some(name) = headers.keys().find(|name| is_removed(name)).cloned() {
        headers.remove(name);
    }
}

/// A set of field names. Lookups are frequent. Two bit sets reject most names that are not members.
#[derive(Debug)]
struct NameSet {
    names: Vec<HeaderName>,
    /// Bit n is set if a name has n bytes. Bit 63 is for all longer names.
    lengths: u64,
    /// Bit n is set if the low five bits of a name's first byte are n.
    first_letters: u32,
}

impl NameSet {
    fn new(names: Vec<HeaderName>) -> Self {
        Self {
            lengths: names.iter().fold(0, |bits, name| bits | length_bit(name)),
            first_letters: names.iter().fold(0, |bits, name| bits | first_bit(name)),
            names,
        }
    }

    fn contains(&self, name: &HeaderName) -> bool {
        self.lengths & length_bit(name) != 0
            && self.first_letters & first_bit(name) != 0
            && self.names.iter().any(|own| is_same_variable(own, name))
    }

    /// Returns true if the set has the name in another spelling, and not as it is.
    fn has_only_other_spelling(&self, name: &HeaderName) -> bool {
        self.contains(name) && !self.names.contains(name)
    }
}

/// Returns true if the names are equal, or differ only in `-` and `_`.
fn is_same_variable(own: &HeaderName, name: &HeaderName) -> bool {
    let dashed = |byte: u8| if byte == b'_' { b'-' } else { byte };
    let (own, name) = (own.as_str().bytes(), name.as_str().bytes());
    own.map(dashed).eq(name.map(dashed))
}

fn length_bit(name: &HeaderName) -> u64 {
    1 << name.as_str().len().min(63)
}

fn first_bit(name: &HeaderName) -> u32 {
    name.as_str()
        .as_bytes()
        .first()
        .map_or(0, |first| 1 << (first & 31))
}

/// Fields in which proxies and networks of proxies state the address of the client. The edge sets some of them itself.
pub(super) const CLIENT_ADDRESS_FIELDS: [&str; 20] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded",
    "forwarded-for",
    "x-real-ip",
    "x-client-ip",
    "client-ip",
    "x-cluster-client-ip",
    "x-original-forwarded-for",
    "x-envoy-external-address",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-appengine-user-ip",
    "true-client-ip",            // Akamai, Cloudflare
    "cf-connecting-ip",          // Cloudflare
    "cf-connecting-ipv6",        // Cloudflare
    "cf-pseudo-ipv4",            // Cloudflare
    "fastly-client-ip",          // Fastly
    "fly-client-ip",             // Fly
    "cloudfront-viewer-address", // CloudFront
];

/// Fields in which proxies state other facts about the client, or the URL that the client requested. The edge sets some
/// of them itself.
const CLIENT_FIELDS: [&str; 21] = [
    "edgeward-hop", // set by nodes of a fleet
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-protocol",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-forwarded-path",
    "x-forwarded-uri",
    "x-original-host",
    "x-original-proto",
    "x-scheme",
    "x-url-scheme",
    "front-end-https",
    "cf-visitor",
    "cf-ipcountry",
    "cloudfront-viewer-country",
    "cloudfront-forwarded-proto",
    "x-client-geo-location",
];

/// Fields that [`keep_only`] never removes. HTTP needs them to forward a message: they describe its body, negotiate its
/// coding, select parts, state conditions, open a WebSocket, detect loops, or continue a trace. The names are listed
/// one by one, because an origin may give a meaning of its own to any other name, such as `X-Forwarded-User`.
const PROTOCOL_FIELDS: [&str; 31] = [
    "host",
    "content-type",
    "content-length",
    "content-encoding",
    "content-language",
    "content-location",
    "content-disposition",
    "content-range",
    "content-digest",
    "content-md5",
    "transfer-encoding",
    "expect",
    "accept-encoding",
    "cache-control",
    "pragma",
    "range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
    "if-range",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
    "sec-websocket-extensions",
    "te",
    "max-forwards",
    "via",
    "cdn-loop",
    "traceparent",
    "tracestate",
];

/// Other fields that origins, keys and credentials depend on. With [`PROTOCOL_FIELDS`], they are the fields of HTTP of
/// which the edge forwards one spelling only, and no trailer.
const OTHER_FIELDS: [&str; 19] = [
    "accept",
    "accept-charset",
    "accept-language",
    "authorization",
    "proxy-authorization",
    "cookie",
    "origin",
    "referer",
    "user-agent",
    "access-control-request-headers",
    "access-control-request-method",
    "x-requested-with",
    "x-csrf-token",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "upgrade-insecure-requests",
    "date",
    "set-cookie",
];

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// The names that the rules of a site read.
    fn read() -> Vec<HeaderName> {
        ["x-auth-user", "x_legacy"]
            .map(HeaderName::from_static)
            .to_vec()
    }

    fn remains(name: &'static str, trusted: bool, cacheable: bool) -> bool {
        let mut headers = HeaderMap::new();
        headers.append(name, HeaderValue::from_static("1"));
        headers.append(name, HeaderValue::from_static("2"));
        headers.append("accept", HeaderValue::from_static("*/*"));
        FieldFilter::new(&ForwardingConfig::default(), read()).apply(
            &mut headers,
            trusted,
            cacheable,
        );
        assert!(headers.contains_key("accept"));
        headers.contains_key(name)
    }

    #[test]
    fn removed_fields_depend_on_trust_in_the_client_and_on_cacheability() {
        for (name, untrusted, trusted, untrusted_uncacheable) in [
            ("forwarded", false, true, false),
            ("x-forwarded-port", false, true, false),
            ("x-real-ip", false, true, false),
            ("x_real_ip", false, true, false),
            ("x_forwarded-for", false, true, false),
            ("cf-connecting-ip", false, true, false),
            ("CF_Connecting_IP", false, true, false),
            ("fastly-client-ip", false, true, false),
            ("cloudfront-viewer-address", false, true, false),
            ("cf-ipcountry", false, true, false),
            ("content_length", false, false, false),
            ("transfer_encoding", false, false, false),
            ("user_agent", false, false, false),
            ("accept_language", false, false, false),
            ("x_auth_user", false, false, false),
            ("x_auth-user", false, false, false),
            ("x-auth-user", true, true, true),
            ("x-legacy", false, false, false),
            ("x_legacy", true, true, true),
            ("x_other", true, true, true),
            ("x-original-url", false, false, true),
            ("x-http-method-override", false, false, true),
            ("x-requested-with", true, true, true),
            ("cookie", true, true, true),
        ] {
            assert_eq!(remains(name, false, true), untrusted, "{name}");
            assert_eq!(remains(name, true, true), trusted, "{name}");
            assert_eq!(remains(name, false, false), untrusted_uncacheable, "{name}");
        }
    }

    #[test]
    fn a_trailer_with_a_meaning_in_the_head_is_removed() {
        let kept = |only: Option<&[&str]>| {
            let mut trailers = HeaderMap::new();
            for name in [
                "authorization",
                "cache-control",
                "connection",
                "content-length",
                "cookie",
                "host",
                "x-auth-user",
                "x-checksum",
                "x-forwarded-for",
                "x-original-url",
                "x-real-ip",
                "x_auth_user",
            ] {
                trailers.append(name, HeaderValue::from_static("1"));
            }
            let patterns: Option<Vec<Pattern>> =
                only.map(|texts| texts.iter().map(|text| Pattern::new(text)).collect());
            let filter = FieldFilter::new(&ForwardingConfig::default(), read());
            filter.apply_to_trailers(patterns.as_deref(), &mut trailers);
            trailers.keys().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(kept(None), ["x-checksum"]);
        assert_eq!(kept(Some(&["x-check*"])), ["x-checksum"]);
        assert_eq!(kept(Some(&[])), [""; 0]);
    }

    #[test]
    fn a_list_keeps_its_fields_and_those_of_the_protocol() {
        let kept = |patterns: &[&str]| {
            let mut headers = HeaderMap::new();
            for name in [
                "accept",
                "accept-language",
                "authorization",
                "content-type",
                "cookie",
                "host",
                "if-none-match",
                "range",
                "sec-websocket-key",
                "x_forwarded_for",
                "x-forwarded-user",
                "x-theme",
            ] {
                headers.append(name, HeaderValue::from_static("1"));
                headers.append(name, HeaderValue::from_static("2"));
            }
            let patterns: Vec<Pattern> = patterns.iter().map(|text| Pattern::new(text)).collect();
            keep_only(&patterns, &mut headers);
            let mut names: Vec<String> = headers.keys().map(ToString::to_string).collect();
            names.sort();
            names.join(" ")
        };
        let protocol = "content-type host if-none-match range sec-websocket-key";
        assert_eq!(kept(&[]), protocol);
        assert_eq!(
            kept(&["accept*"]),
            format!("accept accept-language {protocol}")
        );
        assert_eq!(kept(&["*"]).split(' ').count(), 12);
    }
}
