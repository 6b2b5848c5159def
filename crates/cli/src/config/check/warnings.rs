//! Warnings about settings that are valid and probably not meant.

use std::mem;
use std::net::{IpAddr, Ipv4Addr};

use edgeward_proxy::config::ListenAddress;

use super::super::draft::{ConfigDraft, DraftListener};
use super::super::file::RawSetting;
use super::super::setting::{SettingSource, SettingsFile};
use crate::diagnostic::Diagnostic;

/// Returns the warnings about a valid configuration.
pub(super) fn warnings(
    raw_settings: &[RawSetting],
    draft: &mut ConfigDraft,
    settings_file: &SettingsFile<'_>,
) -> Vec<Diagnostic> {
    let of_sites = mem::take(&mut draft.warnings).into_iter();
    let of_sites = of_sites.map(|(source, diagnostic)| settings_file.locate(diagnostic, &source));
    let found = of_purge(draft).into_iter();
    let located = found.map(|(path, diagnostic)| {
        let given = raw_settings.iter().rev();
        let setting = given.clone().find(|setting| setting.key.path == path);
        let source = setting.map_or(SettingSource::Default, |setting| setting.source.clone());
        settings_file.locate(diagnostic, &source)
    });
    located.chain(of_sites).collect()
}

/// Warns if a proxy may purge. The edge checks the clients that the proxy states; a proxy that states none lets all its
/// clients purge.
fn of_purge(draft: &ConfigDraft) -> Option<(&'static str, Diagnostic)> {
    let allow = &draft.edge.purge.allow;
    let trusted = &draft.edge.forwarding.trusted_proxies;
    let is_open_unix = |listener: &DraftListener| {
        matches!(listener.address, Some(ListenAddress::Unix(_)))
            && listener.proxy_protocol_from.is_none()
    };
    let reason = if let Some(network) = allow.first_overlap(trusted) {
        format!("purge.allow has {network}, which is also in forwarding.trusted_proxies")
    } else if draft.listeners.iter().any(is_open_unix)
        && allow.contains(IpAddr::V4(Ipv4Addr::LOCALHOST))
    {
        "purge.allow has 127.0.0.1, which is also the address of all clients of a Unix socket"
            .to_owned()
    } else {
        return None;
    };
    let text = format!(
        "{reason}: a proxy that does not state its client in X-Forwarded-For lets all its clients purge"
    );
    let hint = "let the proxy set X-Forwarded-For or refuse PURGE, BAN and PURGEKEYS, or purge with purge.token_file";
    Some(("purge.allow", Diagnostic::new(text).hint(hint)))
}
