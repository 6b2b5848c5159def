//! Checks of a configuration, at the start and at a reload.

use edgeward_sites::{Settings, Sites};

use super::start_error::StartError;
use crate::config::{EdgeConfig, ListenAddress, ORIGINS_MAX, OriginProtocol};

/// Checks the parts of a configuration that depend on each other, at the start and at a reload.
pub(super) fn check(config: &EdgeConfig) -> Result<(), StartError> {
    check_name(&config.name)?;
    if config.listeners.is_empty() {
        return Err(StartError::NoListener);
    }
    for origin in &config.origins {
        if origin.proxy_protocol.is_some() && origin.protocol == OriginProtocol::Http2 {
            return Err(StartError::SharedProxyHeader {
                origin: origin.name.clone(),
            });
        }
    }
    let is_unix = |addr: &ListenAddress| matches!(addr, ListenAddress::Unix(_));
    for listener in &config.listeners {
        if listener.has_tls() && is_unix(&listener.addr) {
            return Err(StartError::UnixTls {
                addr: listener.addr.clone(),
            });
        }
        let is_of_tcp = listener.proxy_protocol_from.is_some()
            || listener.is_for_nodes
            || listener.node_authorities.is_some();
        if listener.http3 && (!listener.has_tls() || is_of_tcp) {
            return Err(StartError::Http3 {
                addr: listener.addr.clone(),
            });
        }
    }
    if let Some(fleet) = &config.fleet {
        fleet.check()?;
    }
    if !(1..=ORIGINS_MAX).contains(&config.origins.len()) {
        return Err(StartError::OriginCount);
    }
    check_sites(&config.sites, config.origins.len()).map_err(|site| StartError::SiteOrigin { site })
}

/// Checks that sites and rules use only the first `origins` origins. Otherwise returns the name of a site.
fn check_sites(sites: &Sites, origins: usize) -> Result<(), Box<str>> {
    let has_origin = |settings: &Settings| settings.origin.is_none_or(|origin| origin < origins);
    for (_, site) in sites.iter() {
        let rules = site.rules().iter().map(|rule| &rule.settings);
        if !rules.chain([&site.settings]).all(has_origin) {
            return Err(site.name.clone());
        }
    }
    Ok(())
}

/// Checks that the name is a token that starts with a letter. Such a name is a structured-field token (RFC 9211 §2)
/// and a pseudonym (RFC 9110 §7.6.3).
fn check_name(name: &str) -> Result<(), StartError> {
    let is_token = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if is_token {
        return Ok(());
    }
    Err(StartError::Name {
        name: name.to_owned(),
    })
}
