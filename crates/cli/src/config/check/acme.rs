//! Checks `[[acme]]`, and the listeners that use its certificates.

use std::collections::HashSet;

use crate::acme_settings::{AcmeGroup, ChallengeKind};
use crate::config::draft::ConfigDraft;
use crate::config::file::RawSetting;
use crate::config::setting::SettingSource;
use crate::diagnostic::Diagnostic;

/// Checks that each `[[acme]]` is complete, and that no name has two of them.
pub(super) fn check_acme(
    raw_settings: &[RawSetting],
    draft: &ConfigDraft,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    let given = |item: usize, path: &str| {
        let mut settings = raw_settings.iter().rev();
        settings.find(|setting| setting.item == item && setting.key.path == path)
    };
    let mut names = HashSet::new();
    for (item, group) in draft.acme.iter().enumerate() {
        let is_of_group =
            |setting: &&RawSetting| setting.item == item && setting.key.path.starts_with("acme.");
        let Some(first) = raw_settings.iter().find(is_of_group) else {
            continue;
        };
        let mut report = |path: &str, text: String, hint: &str| {
            let source = given(item, path).unwrap_or(first).source.clone();
            diagnostics.push((source, Diagnostic::new(text).hint(hint)));
        };
        if !cfg!(feature = "acme") {
            let diagnostic = Diagnostic::lacks_feature("[[acme]]", "acme");
            diagnostics.push((first.source.clone(), diagnostic));
            continue;
        }
        if given(item, "acme.names").is_none() && group.on_demand.is_none() {
            let text = "this [[acme]] has no names".to_owned();
            report("acme.names", text, "add names = [\"www.example.com\"]");
        }
        if group.on_demand.is_some() {
            if draft.acme[..item]
                .iter()
                .any(|other| other.on_demand.is_some())
            {
                let text = "two [[acme]] have on_demand".to_owned();
                report("acme.on_demand", text, "remove it from one of them");
            }
            if !draft.listeners.iter().any(|listener| listener.acme) {
                let text = "acme.on_demand is set, but no listener has acme = true".to_owned();
                let hint = "add acme = true to a listener: its clients ask for names";
                report("acme.on_demand", text, hint);
            }
        } else if let Some(path) = DEMAND_LIMITS
            .into_iter()
            .find(|path| given(item, path).is_some())
        {
            let text = format!("{path} is set without acme.on_demand");
            report(path, text, "add on_demand = \"http://127.0.0.1:5555/ask\"");
        }
        for name in &group.names {
            if !names.insert(name) {
                let text = format!("the name {name} is in two [[acme]]");
                report("acme.names", text, "remove it from one of them");
            }
        }
        if names.len() > NAMES_MAX {
            let text = format!("all [[acme]] together have more than {NAMES_MAX} names");
            report("acme.names", text, "remove names, or run several edges");
        }
        check_challenge(group, &mut report);
        for binding in group.bindings() {
            let [id, file] = binding.paths;
            let has_id = binding.key_id.is_some();
            if has_id != binding.key_file.is_some() {
                let text = format!("only one of {id} and {file} is set");
                let hint = "set both: the issuer states an identifier and a key";
                report(if has_id { id } else { file }, text, hint);
            }
            #[cfg(feature = "acme")]
            if let Err(error) = binding.read() {
                let hint = "write the key as the issuer states it";
                report(file, format!("{error:#}"), hint);
            }
        }
        let is_bound = group.fallback_eab_key_id.is_some() || group.fallback_eab_key_file.is_some();
        if is_bound && group.fallback_directory.is_none() {
            let text = "acme.fallback_eab_… is set without acme.fallback_directory".to_owned();
            let hint = "set fallback_directory to the directory of the second issuer";
            report("acme.fallback_eab_key_id", text, hint);
        }
        let other = &draft.acme[0];
        if group.state != other.state {
            let text = "two [[acme]] have different folders of state".to_owned();
            report(
                "acme.state",
                text,
                "set acme.state to the same folder in each [[acme]]",
            );
        }
        if group.orders_per_hour != other.orders_per_hour {
            let text = "two [[acme]] have different limits of orders".to_owned();
            report(
                "acme.orders_per_hour",
                text,
                "set acme.orders_per_hour to the same value in each",
            );
        }
    }
    for (item, listener) in draft
        .listeners
        .iter()
        .enumerate()
        .filter(|(_, listener)| listener.acme)
    {
        let Some(setting) = given(item, "listener.acme") else {
            continue;
        };
        let mut report = |text: &str, hint: &str| {
            diagnostics.push((setting.source.clone(), Diagnostic::new(text).hint(hint)));
        };
        if listener.certificates.is_some() {
            let text = "listener.acme = true, but the listener has a certificate of its own";
            report(
                text,
                "remove one of the two; names of [[acme]] have their certificates in either case",
            );
        }
        if draft.acme.is_empty() {
            let text = "listener.acme = true, but no [[acme]] has certificates for it";
            report(text, "add [[acme]] with names = [\"www.example.com\"]");
        }
    }
}

fn check_challenge(group: &AcmeGroup, report: &mut impl FnMut(&str, String, &str)) {
    if group.challenge != ChallengeKind::Dns {
        if let Some(name) = group.names.iter().find(|name| name.needs_dns()) {
            let text = format!("only dns-01 validates the wildcard {name}");
            report(
                "acme.names",
                text,
                "set challenge = \"dns-01\" and dns_hook to a program",
            );
        }
    } else if group.dns_hook.is_none() {
        let text = "acme.challenge = dns-01 needs a program that sets records".to_owned();
        report("acme.challenge", text, "set dns_hook to a program");
    }
    if group.challenge == ChallengeKind::Dns
        && let Some(name) = group.names.iter().find(|name| name.is_address())
    {
        let text = format!("dns-01 cannot validate the address {name}");
        report(
            "acme.names",
            text,
            "use http-01 or tls-alpn-01 for addresses",
        );
    }
}

/// The settings that have an effect only with `acme.on_demand`.
const DEMAND_LIMITS: [&str; 5] = [
    "acme.on_demand_names_per_hour",
    "acme.on_demand_queries_per_minute",
    "acme.on_demand_pending_max",
    "acme.on_demand_names_max",
    "acme.on_demand_timeout",
];

/// The most names. The ledger of 10,000 names has 8 MB, which is persisted several times in each order.
const NAMES_MAX: usize = 10_000;
