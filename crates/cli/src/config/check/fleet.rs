//! Checks `[fleet]` with its members, and reads its key.

use std::num::NonZeroU32;
use std::path::Path;

use edgeward_proxy::config::{
    CertificateFiles, FleetConfig, FleetKey, FleetMember, FleetTls, KEY_BYTES_MIN,
};

use super::super::draft::{ConfigDraft, DraftFleet, DraftMember};
use super::super::file::RawSetting;
use super::super::setting::SettingSource;
use crate::diagnostic::Diagnostic;

/// Checks the settings of the fleet and adds their errors to `diagnostics`. Returns the fleet of valid settings.
pub(super) fn check_fleet(
    raw_settings: &[RawSetting],
    draft: &ConfigDraft,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) -> Option<FleetConfig> {
    // Nodes may share purges without asking each other for objects.
    let is_of_fleet = |setting: &&RawSetting| {
        let path = setting.key.path;
        path.starts_with("fleet.") && !path.starts_with("fleet.nats.")
    };
    let first = raw_settings.iter().find(is_of_fleet)?;
    let errors_before = diagnostics.len();
    let given = |path: &str, item: usize| {
        let mut settings = raw_settings.iter();
        settings.find(|setting| setting.item == item && setting.key.path == path)
    };
    let mut report = |source: &RawSetting, text: String, hint: &str| {
        diagnostics.push((source.source.clone(), Diagnostic::new(text).hint(hint)));
    };
    for (path, example) in [
        ("fleet.name", "name = \"edge-1\""),
        ("fleet.address", "address = \"10.0.0.1:7443\""),
        ("fleet.key_file", "key_file = \"/etc/edgeward/fleet-key\""),
    ] {
        if given(path, 0).is_none() {
            report(
                first,
                format!("{path} is missing"),
                &format!("add {example} to [fleet]"),
            );
        }
    }
    let announces = draft.fleet_members.is_empty() && !draft.fleet_nats.servers.is_empty();
    if draft.fleet_members.is_empty() && !announces {
        let text = "the fleet has no members".to_owned();
        report(
            first,
            text,
            "add a [[fleet.member]] with name and url for each node, this one included, or [fleet.nats]",
        );
    }
    for path in ["fleet.url", "fleet.group", "fleet.weight", "fleet.draining"] {
        if let (false, Some(source)) = (announces, given(path, 0)) {
            let text = format!("{path} counts only for a node that announces itself");
            let hint = "write it to the [[fleet.member]] of this node, or remove all members and set [fleet.nats]";
            report(source, text, hint);
        }
    }
    let mut members = Vec::new();
    for (item, member) in draft.fleet_members.iter().enumerate() {
        let of_item = |setting: &&RawSetting| {
            setting.item == item && setting.key.path.starts_with("fleet.member.")
        };
        let source = raw_settings.iter().find(of_item).unwrap_or(first);
        for (path, example) in [
            ("fleet.member.name", "name = \"edge-1\""),
            ("fleet.member.url", "url = \"https://10.0.0.1:7443\""),
        ] {
            if given(path, item).is_none() {
                report(
                    source,
                    format!("this [[fleet.member]] has no {path}"),
                    &format!("add {example}"),
                );
            }
        }
        let DraftMember {
            name,
            url,
            group,
            weight,
            is_draining,
        } = member;
        if let (Some(name), Some(url)) = (name, url) {
            members.push(FleetMember {
                name: name.clone(),
                url: url.clone(),
                group: *group,
                weight: NonZeroU32::new(*weight).unwrap_or(NonZeroU32::MIN),
                is_draining: *is_draining,
            });
        }
    }
    let DraftFleet {
        name,
        address,
        certificates,
        key,
        authorities,
        key_file,
        wait,
        fallback_percent,
        fallbacks_per_second,
        replicate,
        url,
        group,
        weight,
        is_draining,
    } = &draft.fleet;
    let tls = match (certificates, key, authorities) {
        (Some(certificates), Some(key), Some(authorities)) => Some(FleetTls {
            identity: CertificateFiles {
                certificates: certificates.clone(),
                key: key.clone(),
            },
            authorities: authorities.clone(),
        }),
        (None, None, None) => None,
        _ => {
            let paths = [
                "fleet.tls_certificates",
                "fleet.tls_key",
                "fleet.tls_authorities",
            ];
            let some = paths
                .into_iter()
                .find_map(|path| given(path, 0))
                .unwrap_or(first);
            let text = "of the three files of the fleet's TLS, only a part is set".to_owned();
            report(
                some,
                text,
                "give fleet.tls_certificates, fleet.tls_key and fleet.tls_authorities",
            );
            None
        }
    };
    if let (true, Some(name), Some(listen)) = (announces, name, address) {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let by_address = format!("{scheme}://{listen}").parse().ok();
        match url
            .clone()
            .or_else(|| by_address.filter(|_| !listen.ip().is_unspecified()))
        {
            Some(url) => members.push(FleetMember {
                name: name.clone(),
                url,
                group: *group,
                weight: NonZeroU32::new(*weight).unwrap_or(NonZeroU32::MIN),
                is_draining: *is_draining,
            }),
            None => report(
                given("fleet.address", 0).unwrap_or(first),
                format!("other nodes cannot reach this one at fleet.address = {listen}"),
                "set fleet.url, for example to \"https://10.0.0.1:7443\"",
            ),
        }
    }
    let key = key_file.as_deref().map(read_key);
    if let (Some(Err(reason)), Some(source)) = (&key, given("fleet.key_file", 0)) {
        report(
            source,
            format!("fleet.key_file: {reason}"),
            "`openssl rand -hex 32` prints a key",
        );
    }
    let (Some(name), Some(listen), Some(Ok(key))) = (name, address, key) else {
        return None;
    };
    let fleet = FleetConfig {
        name: name.clone(),
        members,
        listen: *listen,
        tls,
        key,
        wait: *wait,
        fallback_percent: *fallback_percent,
        fallbacks_per_second: *fallbacks_per_second,
        replicate: *replicate,
    };
    if diagnostics.len() > errors_before {
        return None;
    }
    if let Err(error) = fleet.check() {
        let hint = "all nodes have the same [[fleet.member]] tables: see docs/how-to/fleet.md";
        diagnostics.push((
            first.source.clone(),
            Diagnostic::new(error.to_string()).hint(hint),
        ));
        return None;
    }
    Some(fleet)
}

/// Reads the key of a fleet. White space at its end does not count.
fn read_key(file: &Path) -> Result<FleetKey, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let key = FleetKey::new(text.trim_end().as_bytes());
    key.ok_or_else(|| format!("the key has fewer than {KEY_BYTES_MIN} characters"))
}
