//! Redirects to the origin's own address are rewritten to the site's address, because clients may not reach the origin.
//!
//! The law: if `Location` begins with scheme, host and port of one of the origin's servers, these are replaced by
//! scheme and authority of the request. All other locations remain as they are: relative ones, other hosts, other
//! ports and other schemes, such as the redirect of a site from `http` to `https`.

use http::header::{HeaderValue, LOCATION};
use http::response::Parts;

use crate::config::{OriginConfig, OriginUrl};
use crate::exchange::Request;

/// Rewrites `Location`, if the setting allows it and the law above applies.
pub(super) fn rewrite(config: &OriginConfig, request: &Request, parts: &mut Parts) {
    if !config.rewrites_location {
        return;
    }
    let Some(location) = parts.headers.get(LOCATION) else {
        return;
    };
    let servers = config.servers.iter().chain(&config.backup_servers);
    let rest = location.to_str().ok().and_then(|text| {
        let mut rests = servers.filter_map(|server| rest_after(server, text));
        rests.next()
    });
    let (Some(rest), Some(authority)) = (rest, request.authority()) else {
        return;
    };
    let text = format!("{}://{authority}{rest}", request.scheme);
    if let Ok(value) = HeaderValue::try_from(text) {
        parts.headers.insert(LOCATION, value);
    }
}

/// Returns path, query and fragment of a location at the server, or `None` if the location is elsewhere.
fn rest_after<'a>(server: &OriginUrl, location: &'a str) -> Option<&'a str> {
    let (scheme, rest) = location.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let expected_scheme = if server.tls { "https" } else { "http" };
    if server.socket.is_some() || !scheme.eq_ignore_ascii_case(expected_scheme) {
        return None;
    }
    let is_same = authority.eq_ignore_ascii_case(&server.authority())
        || authority.eq_ignore_ascii_case(&server.authority_with_port());
    is_same.then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_locations_at_the_server_itself_are_rewritten() {
        let server: OriginUrl = "http://app.internal:8080".parse().expect("a URL");
        let default_port: OriginUrl = "https://app.internal".parse().expect("a URL");
        for (server, location, rest) in [
            (
                &server,
                "http://app.internal:8080/login?a#b",
                Some("/login?a#b"),
            ),
            (&server, "HTTP://App.Internal:8080", Some("")),
            (&server, "http://app.internal:8080?a", Some("?a")),
            (&server, "https://app.internal:8080/", None),
            (&server, "http://app.internal/", None),
            (&server, "http://app.internal:80801/", None),
            (&server, "http://app.internal:8080.evil.example/", None),
            (&server, "http://user@app.internal:8080/", None),
            (&server, "//app.internal:8080/", None),
            (&server, "/login", None),
            (&default_port, "https://app.internal/x", Some("/x")),
            (&default_port, "https://app.internal:443/x", Some("/x")),
            (&default_port, "http://app.internal/x", None),
        ] {
            assert_eq!(rest_after(server, location), rest, "{location} at {server}");
        }
    }
}
