//! Finds redirects that lead to themselves: a client would follow them until it gives up.
//!
//! Method: the location of each redirect is computed for sample requests, and is then requested itself. If the answer
//! is a redirect to the same location, no client can leave it.

use edgeward_sites::{HostPattern, RequestParts, Site};

/// Returns the line of a rule that redirects its own location, and the location. A redirect of the site itself has the
/// line `None`. `schemes` has the schemes by which clients can send requests.
pub(super) fn self_redirect(
    site: &Site,
    hosts: &[HostPattern],
    schemes: &[&str],
) -> Option<(Option<usize>, String)> {
    let samples: Vec<String> = match hosts {
        [] => vec!["other.example".to_owned()],
        _ => hosts
            .iter()
            .map(|host| host.to_string().replace('*', "www"))
            .collect(),
    };
    let rules = site.rules().iter().map(|rule| &rule.settings);
    let redirects = rules.chain([&site.settings]).filter_map(|settings| {
        let redirect = settings.redirect.value()?;
        Some(&redirect.location)
    });
    let redirects: Vec<_> = redirects.collect();
    for host in &samples {
        for scheme in schemes {
            for location in &redirects {
                let location =
                    RequestParts::of_url(scheme, host, "/sample").view(|view| location.url(view));
                let absolute = match location.starts_with('/') {
                    true => format!("{scheme}://{host}{location}"),
                    false => location,
                };
                let Some((scheme, host, target)) = split(&absolute) else {
                    continue;
                };
                if !samples.iter().any(|known| known == host) || !schemes.contains(&scheme) {
                    continue;
                }
                if let Some((line, next)) = redirect_of(site, scheme, host, target)
                    && next == absolute
                {
                    return Some((line, absolute));
                }
            }
        }
    }
    None
}

/// Returns the redirect of a URL, with the line of its rule.
fn redirect_of(
    site: &Site,
    scheme: &str,
    host: &str,
    target: &str,
) -> Option<(Option<usize>, String)> {
    RequestParts::of_url(scheme, host, target).view(|view| {
        let applying = site.applying(view);
        let settings = site.settings_of(&applying);
        if settings.deny.is_on() {
            return None;
        }
        let location = settings.redirect.value()?.location.url(view);
        let mut rules = site.rules().iter().enumerate().rev();
        let rule =
            rules.find(|(n, rule)| applying.contains(*n) && rule.settings.redirect.is_stated());
        let absolute = match location.starts_with('/') {
            true => format!("{scheme}://{host}{location}"),
            false => location,
        };
        Some((rule.map(|(_, rule)| rule.line), absolute))
    })
}

/// Divides a URL into scheme, host and target.
fn split(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let (host, target) = rest.split_at(rest.find('/')?);
    Some((scheme, host, target))
}
