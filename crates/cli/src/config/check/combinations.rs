//! Checks several settings together: missing settings, settings that require another setting, duplicates.

use std::collections::{BTreeSet, HashSet};

use edgeward_policy::Objective;
use edgeward_proxy::config::{
    EdgeConfig, InsightConfig, ListenAddress, ORIGINS_MAX, OriginConfig, OriginProtocol,
};
use edgeward_types::ByteSize;

use super::super::draft::ConfigDraft;
use super::super::file::RawSetting;
use super::super::setting::{SettingSource, SettingsFile};
use super::super::value::Raw;
use crate::diagnostic::Diagnostic;
use crate::negative::FilterLocation;

/// Runs all checks of this module and adds their errors to `diagnostics`.
pub(super) fn check_combinations(
    raw_settings: &[RawSetting],
    draft: &mut ConfigDraft,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
    settings_file: &SettingsFile<'_>,
) {
    let given = |path: &str| raw_settings.iter().find(|setting| setting.key.path == path);
    let mut missing = |what: &str, flag: &str, example: &str| {
        let hint = match settings_file.file {
            Some(_) => format!("add {example}, or give {flag}"),
            None => format!("give {flag}, or a file with --config"),
        };
        diagnostics.push((SettingSource::Default, Diagnostic::new(what).hint(hint)));
    };
    let has_servers = given("origin.url")
        .or_else(|| given("origin.servers"))
        .is_some();
    if draft.edge.origins.len() == 1 && !has_servers {
        missing(
            "origin.url is missing: the edge needs an origin to fetch misses from",
            "--origin http://HOST:PORT",
            "[origin] with url = \"http://HOST:PORT\"",
        );
    }
    if given("listener.address").is_none() {
        missing(
            "listener.address is missing: the edge needs an address to listen on",
            "--listen 127.0.0.1:8080",
            "[[listener]] with address = \"127.0.0.1:8080\"",
        );
    }
    let is_on = |setting: &&RawSetting| {
        setting.raw == Raw::Switch(true) || setting.raw == Raw::Flag("true".to_owned())
    };
    let destinations: Vec<_> = ["access_log.path", "access_log.syslog"]
        .into_iter()
        .filter_map(given)
        .chain(given("access_log.journald").filter(is_on))
        .collect();
    if let [first, second, ..] = destinations[..] {
        diagnostics.push((
            second.source.clone(),
            Diagnostic::new(format!("{} and {} are both set", name(first), name(second)))
                .hint("the access log has one destination: remove one of the two"),
        ));
    }
    if let (None, Some(other)) = (
        destinations.first(),
        given("access_log.format").or_else(|| given("access_log.queue_lines_max")),
    ) {
        diagnostics.push((
            other.source.clone(),
            Diagnostic::new(format!("{} is set, but the access log is off", name(other)))
                .hint("set access_log.path (--access-log) to a file, or to - for stdout"),
        ));
    }
    check_bounds(raw_settings, draft, diagnostics);
    check_origins(raw_settings, draft, diagnostics);
    check_objective(raw_settings, draft, diagnostics);
    check_listeners(raw_settings, draft, diagnostics);
    check_disk(raw_settings, draft, diagnostics);
    check_disk_hosts(raw_settings, draft, diagnostics);
    check_negative(raw_settings, draft, diagnostics);
    check_links(raw_settings, draft, diagnostics);
}

/// Checks bounds that limit each other.
fn check_bounds(
    raw_settings: &[RawSetting],
    draft: &ConfigDraft,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    let given = |path: &str| {
        let mut settings = raw_settings.iter().rev();
        settings.find(|setting| setting.key.path == path)
    };
    let rules = &draft.edge.compression.rules;
    let lengths = given("compression.length_min").or_else(|| given("compression.length_max"));
    if let Some(setting) = lengths
        && rules.length_min > rules.length_max
    {
        let text = format!(
            "compression.length_min = {} exceeds compression.length_max = {}, so nothing is compressed",
            ByteSize(rules.length_min),
            ByteSize(rules.length_max)
        );
        let hint = "swap the two, or set compression.enabled = false";
        diagnostics.push((setting.source.clone(), Diagnostic::new(text).hint(hint)));
    }
    if let (Some(setting), Some(memory_max)) =
        (given("overload.memory_max"), draft.edge.overload.memory_max)
    {
        let workers = draft.edge.workers.get() as u64;
        let needed = MEMORY_BASE
            + workers * MEMORY_PER_WORKER
            + draft.edge.hot.capacity.bytes()
            + insight_bytes(&draft.edge);
        if memory_max.bytes() < needed {
            let text = format!(
                "overload.memory_max = {memory_max} is less than the process takes with a full cache, {}, so the edge \
                 would shed all requests",
                ByteSize(needed)
            );
            let hint = "raise overload.memory_max, or lower hot.capacity or insight.memory";
            diagnostics.push((setting.source.clone(), Diagnostic::new(text).hint(hint)));
        }
    }
}

/// Returns the memory of the analysis of live requests: the simulated caches, and each worker's ring.
fn insight_bytes(config: &EdgeConfig) -> u64 {
    if !config.watches_requests() {
        return 0;
    }
    let rings = config.workers.get() as u64 * InsightConfig::RING_MEMORY.bytes();
    config.insight.memory_max(config.hot.capacity).bytes() + rings
}

/// The memory of a process without requests, in bytes: docs/explanation/memory.md.
const MEMORY_BASE: u64 = 33 << 19;

/// The memory of each worker, in bytes.
const MEMORY_PER_WORKER: u64 = 1 << 19;

/// Checks that each of several origins has a URL and a name of its own.
fn check_origins(
    raw_settings: &[RawSetting],
    draft: &ConfigDraft,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    let origins = &draft.edge.origins;
    for (item, origin) in origins.iter().enumerate() {
        check_servers(raw_settings, item, origin, diagnostics);
    }
    if origins.len() == 1 {
        return;
    }
    if origins.len() > ORIGINS_MAX {
        let diagnostic = Diagnostic::new(format!("there are more than {ORIGINS_MAX} origins"));
        diagnostics.push((SettingSource::Default, diagnostic));
        return;
    }
    let mut names = HashSet::new();
    for (item, origin) in origins.iter().enumerate() {
        let settings = || raw_settings.iter().filter(|setting| setting.item == item);
        let find = |path: &str| settings().find(|setting| setting.key.path == path);
        let is_of_table = |setting: &&RawSetting| {
            let table = setting.key.path.rsplit_once('.');
            table.is_some_and(|(table, _)| table == "origin")
        };
        let first = settings().find(is_of_table);
        let source = first.map_or(SettingSource::Default, |first| first.source.clone());
        for (key, hint) in [
            ("url", "add url = \"http://HOST:PORT\""),
            (
                "name",
                "add name = \"web\": each of several origins needs a name",
            ),
        ] {
            let other = (key == "url").then(|| find("origin.servers")).flatten();
            if find(&format!("origin.{key}")).or(other).is_none() {
                let diagnostic = Diagnostic::new(format!("this [[origin]] has no {key}"));
                diagnostics.push((source.clone(), diagnostic.hint(hint)));
            }
        }
        if let Some(setting) = find("origin.name")
            && !names.insert(&origin.name)
        {
            let diagnostic = Diagnostic::new(format!("{} is given twice", name(setting)));
            diagnostics.push((
                setting.source.clone(),
                diagnostic.hint("give each origin a name of its own"),
            ));
        }
    }
}

/// Checks the settings of an origin's servers together.
fn check_servers(
    raw_settings: &[RawSetting],
    item: usize,
    origin: &OriginConfig,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    let find = |path: &str| {
        let mut settings = raw_settings.iter().rev();
        settings.find(|setting| setting.item == item && setting.key.path == path)
    };
    let mut report = |setting: &RawSetting, text: String, hint: &str| {
        let diagnostic = Diagnostic::new(text).hint(hint);
        diagnostics.push((setting.source.clone(), diagnostic));
    };
    if let (Some(_), Some(setting)) = (find("origin.url"), find("origin.servers")) {
        report(
            setting,
            "origin.url and origin.servers are both set".to_owned(),
            "add the server of origin.url to origin.servers",
        );
    }
    let mut all = origin.servers.iter().chain(&origin.backup_servers);
    let servers = find("origin.backup_servers").or_else(|| find("origin.servers"));
    if let Some(setting) = servers
        && all.any(|server| server.tls != origin.url().tls)
    {
        report(
            setting,
            format!("{} has servers with http and with https", name(setting)),
            "use one scheme for all servers of an origin",
        );
    }
    if let Some(setting) = find("origin.proxy_protocol")
        && origin.proxy_protocol.is_some()
        && origin.protocol == OriginProtocol::Http2
    {
        report(
            setting,
            format!("{} is set with protocol = \"http2\"", name(setting)),
            "remove one of the two: clients share a connection of HTTP/2, and a PROXY header states one client",
        );
    }
    let (certificate, key) = (find("origin.tls_certificate"), find("origin.tls_key"));
    if let (Some(setting), None) | (None, Some(setting)) = (certificate, key) {
        let other = match certificate {
            Some(_) => "origin.tls_key",
            None => "origin.tls_certificate",
        };
        report(
            setting,
            format!("{} is set without {other}", name(setting)),
            "give both: a certificate needs its key",
        );
    }
}

/// Checks that the policy of the memory tier follows the objective.
fn check_objective(
    raw_settings: &[RawSetting],
    draft: &ConfigDraft,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    let hot = &draft.edge.hot;
    let given = |path: &str| raw_settings.iter().find(|setting| setting.key.path == path);
    if let Some(setting) = given("hot.objective")
        && hot.objective != Objective::Requests
        && !hot.policy.weighs_benefits()
    {
        diagnostics.push((
            setting.source.clone(),
            Diagnostic::new(format!(
                "the policy `{}` does not follow the objective `{}`",
                hot.policy, hot.objective
            ))
            .hint("use density, gds or a form of gdsf, or remove hot.objective"),
        ));
    }
}

/// Checks the link of each origin, and that no two links have the same store.
fn check_links(
    raw_settings: &[RawSetting],
    draft: &ConfigDraft,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    let mut stores = HashSet::new();
    for item in 0..draft.edge.origins.len() {
        let of_item: Vec<&RawSetting> = raw_settings
            .iter()
            .filter(|setting| setting.item == item)
            .collect();
        check_link(&of_item, &draft.edge.origins[item], diagnostics);
        let store = of_item
            .iter()
            .find(|setting| setting.key.path == "origin.link.store");
        let path = draft.links.get(item).and_then(|link| link.store.as_ref());
        if let (Some(setting), Some(path)) = (store, path)
            && !stores.insert(path)
        {
            let diagnostic =
                Diagnostic::new(format!("{} is the store of two links", path.display()))
                    .hint("give each link a store of its own");
            diagnostics.push((setting.source.clone(), diagnostic));
        }
    }
}

/// Checks that `[origin.link]` is complete, and that the protocol to the origin is HTTP/1.1 without TLS, the only
/// protocol that a link supports.
fn check_link(
    raw_settings: &[&RawSetting],
    origin: &OriginConfig,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    const TABLE: &str = "origin.link.";
    let given = |path: &str| raw_settings.iter().find(|setting| setting.key.path == path);
    let Some(first) = raw_settings
        .iter()
        .find(|setting| setting.key.path.starts_with(TABLE))
    else {
        return;
    };
    if !cfg!(feature = "link") {
        diagnostics.push((
            first.source.clone(),
            Diagnostic::lacks_feature(first.key.path, "link"),
        ));
        return;
    }
    for (key, why, hint) in [
        (
            "gateway",
            "the link needs the address of its gateway",
            "add gateway = \"gateway.example:7443\"",
        ),
        (
            "keys",
            "the link needs the keys of the edge",
            "add keys = \"keys/edge\", the folder that `edgeward link keygen` created",
        ),
        (
            "store",
            "the link needs a store for chunks",
            "add store = \"/var/lib/edgeward/link\"",
        ),
    ] {
        if given(&format!("{TABLE}{key}")).is_none() {
            let diagnostic = Diagnostic::new(format!("[origin.link] has no {key}: {why}"));
            diagnostics.push((first.source.clone(), diagnostic.hint(hint)));
        }
    }
    let unsupported = [
        (
            "origin.url",
            origin.url().tls,
            "https",
            "write http: the link is encrypted, and the gateway connects to its own --origin",
        ),
        (
            "origin.protocol",
            origin.protocol == OriginProtocol::Http2,
            "HTTP/2",
            "remove origin.protocol or set it to http1",
        ),
        (
            "origin.proxy_protocol",
            origin.proxy_protocol.is_some(),
            "PROXY headers",
            "remove origin.proxy_protocol",
        ),
    ];
    for (path, is_set, what, hint) in unsupported {
        if let Some(setting) = given(path).filter(|_| is_set) {
            let diagnostic =
                Diagnostic::new(format!("a link does not support {what} to the origin"));
            diagnostics.push((setting.source.clone(), diagnostic.hint(hint)));
        }
    }
}

/// Checks that each `[[negative]]` is complete. Errors name the rule's first line.
fn check_negative(
    raw_settings: &[RawSetting],
    draft: &ConfigDraft,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    for (item, rule) in draft.negative.iter().enumerate() {
        let is_of_rule = |setting: &&RawSetting| {
            setting.item == item && setting.key.path.starts_with("negative.")
        };
        let Some(first) = raw_settings.iter().find(is_of_rule) else {
            continue;
        };
        // True also for a key with an invalid value, because `check` has already reported its error.
        let is_given = |path: &str| {
            raw_settings
                .iter()
                .filter(is_of_rule)
                .any(|setting| setting.key.path == path)
        };
        let mut require = |key: &str, why: &str, hint: &str| {
            if !is_given(key) {
                let diagnostic = Diagnostic::new(format!(
                    "this [[negative]] has no {}: {why}",
                    &key["negative.".len()..]
                ));
                diagnostics.push((first.source.clone(), diagnostic.hint(hint)));
            }
        };
        require(
            "negative.path",
            "the rule needs a pattern of paths",
            "add path = \"/resource/{id}\"",
        );
        require(
            "negative.filter",
            "the rule needs a filter of the ids that exist",
            "add filter = \"resource.ids\" or filter = \"https://HOST/sets/NAME\"",
        );
        if let Some(FilterLocation::Publisher(url)) = &rule.filter {
            require(
                "negative.max_staleness",
                "a published filter needs a bound on its age",
                "add max_staleness = \"10s\": an id that was committed longer ago is never answered 404",
            );
            if !url.is_https() {
                require(
                    "negative.public_key",
                    "without https the filter must be signed",
                    "add the key that `edgeward filter keygen --public` prints, or use https",
                );
            }
        }
    }
}

/// Checks that each disk device has a path and a size, and that no setting of the disk cache is given without a disk.
fn check_disk(
    raw_settings: &[RawSetting],
    draft: &ConfigDraft,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    let devices = &draft.disk.settings.devices;
    for setting in raw_settings {
        let needs_disk = |setting: &RawSetting| {
            ["disk.", "disk_host."]
                .iter()
                .any(|table| setting.key.path.starts_with(table))
        };
        if devices.is_empty() && needs_disk(setting) {
            let what = format!("{} is set, but there is no disk cache", name(setting));
            diagnostics.push((
                setting.source.clone(),
                Diagnostic::new(what)
                    .hint("add a disk: --disk DIR --disk-size 10GiB, or [[disk_device]]"),
            ));
        }
        let Some(device) = devices.get(setting.item) else {
            continue;
        };
        // If the path is an existing file or block device, the cache uses the size of this file or device.
        let needs_size = device.capacity.is_none()
            && !std::fs::metadata(&device.path).is_ok_and(|metadata| !metadata.is_dir());
        let diagnostic = match setting.key.path {
            "disk_device.capacity" if device.path.as_os_str().is_empty() => Diagnostic::new(
                format!("{} is set without the path of a device", name(setting)),
            )
            .hint("add the path: --disk DIR, or path = \"/var/cache/edgeward\""),
            "disk_device.path" if needs_size => {
                Diagnostic::new(format!("{} has no size", name(setting)))
                    .hint("add --disk-size 10GiB, or capacity = \"10GiB\"")
            }
            _ => continue,
        };
        diagnostics.push((setting.source.clone(), diagnostic));
    }
}

/// Checks that each `[[disk_host]]` is complete and that no host is given twice.
fn check_disk_hosts(
    raw_settings: &[RawSetting],
    draft: &ConfigDraft,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    let mut hosts = HashSet::new();
    for (item, host) in draft.disk_hosts.iter().enumerate() {
        let find = |path: &str| {
            raw_settings
                .iter()
                .find(|setting| setting.item == item && setting.key.path == path)
        };
        let (host_setting, admission_setting) =
            (find("disk_host.host"), find("disk_host.admission"));
        let (setting, what, hint) = match (host_setting, admission_setting) {
            (Some(setting), None) => (setting, "admission", "add admission = \"always\""),
            (None, Some(setting)) => (setting, "host", "add host = \"www.example.com\""),
            (Some(setting), Some(_)) => {
                if let Some(host) = &host.host
                    && !hosts.insert(host)
                {
                    let what = format!("{} {host} is given twice", name(setting));
                    let diagnostic = Diagnostic::new(what).hint("remove one of the two");
                    diagnostics.push((setting.source.clone(), diagnostic));
                }
                continue;
            }
            (None, None) => continue,
        };
        let diagnostic = Diagnostic::new(format!("this [[disk_host]] has no {what}"));
        diagnostics.push((setting.source.clone(), diagnostic.hint(hint)));
    }
}

/// Checks that each `[[listener]]` has an address and a complete pair of certificate and key, and that no address is
/// given twice.
fn check_listeners(
    raw_settings: &[RawSetting],
    draft: &mut ConfigDraft,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    let find = |item: usize, path: &str| {
        raw_settings
            .iter()
            .find(|setting| setting.item == item && setting.key.path == path)
    };
    // The flags --tls-cert and --tls-key set the first listener, but apply to all addresses given by flags.
    let has_listen_flag = raw_settings.iter().any(|setting| {
        setting.key.path == "listener.address" && matches!(setting.source, SettingSource::Flag(_))
    });
    if has_listen_flag && let Some(first) = draft.listeners.first().cloned() {
        for listener in &mut draft.listeners {
            listener.certificates.clone_from(&first.certificates);
            listener.key.clone_from(&first.key);
        }
    }
    let mut addresses = HashSet::new();
    let items: BTreeSet<usize> = raw_settings
        .iter()
        .filter(|setting| setting.key.path.starts_with("listener."))
        .map(|setting| setting.item)
        .collect();
    let has_address = raw_settings
        .iter()
        .any(|setting| setting.key.path == "listener.address");
    let has_acme: Vec<bool> = draft
        .listeners
        .iter()
        .map(|listener| listener.acme)
        .collect();
    let has_acme = |item: usize| has_acme.get(item).is_some_and(|&acme| acme);
    for item in items {
        let address = find(item, "listener.address");
        let certificates = find(item, "listener.tls_certificates");
        let key = find(item, "listener.tls_key");
        if let (None, Some(setting)) = (certificates, find(item, "listener.tls_ocsp")) {
            diagnostics.push((
                setting.source.clone(),
                Diagnostic::new("listener.tls_ocsp is set without listener.tls_certificates")
                    .hint("an OCSP response is sent with a certificate"),
            ));
        }
        let incomplete = match (certificates, key) {
            (Some(setting), None) => Some((setting, "listener.tls_key (--tls-key)")),
            (None, Some(setting)) => Some((setting, "listener.tls_certificates (--tls-cert)")),
            _ => None,
        };
        if let Some((setting, other)) = incomplete {
            diagnostics.push((
                setting.source.clone(),
                Diagnostic::new(format!("{} is set without {other}", name(setting)))
                    .hint("give both: TLS needs a certificate and its key"),
            ));
        }
        // If no listener has an address, `check_combinations` has already reported the missing address.
        if address.is_none() && has_address {
            let mut settings = raw_settings.iter();
            let is_of_item = |setting: &&RawSetting| {
                setting.item == item && setting.key.path.starts_with("listener.")
            };
            let setting = settings.find(is_of_item).expect("the item has a setting");
            diagnostics.push((
                setting.source.clone(),
                Diagnostic::new("this [[listener]] has no address")
                    .hint("add address = \"0.0.0.0:8443\""),
            ));
        }
        if let Some(setting) = find(item, "listener.http3")
            && draft
                .listeners
                .get(item)
                .is_some_and(|listener| listener.http3)
        {
            let fault = match find(item, "listener.proxy_protocol_from") {
                Some(_) => Some(("with", "listener.proxy_protocol_from", PROXIES_HAVE_NO_QUIC)),
                None if certificates.is_none() && !has_acme(item) => {
                    Some(("without", "listener.tls_certificates", "HTTP/3 needs TLS"))
                }
                None => None,
            };
            if let Some((word, other, hint)) = fault {
                let text = format!("listener.http3 is set {word} {other}");
                diagnostics.push((setting.source.clone(), Diagnostic::new(text).hint(hint)));
            }
        }
        let bound = draft.listeners.get(item);
        let bound = bound.and_then(|setting| setting.address.as_ref());
        if let (Some(ListenAddress::Unix(_)), Some(setting)) = (bound, certificates) {
            diagnostics.push((
                setting.source.clone(),
                Diagnostic::new(format!("{} is set for a Unix socket", name(setting)))
                    .hint("remove it: a connection inside of a machine needs no encryption"),
            ));
        }
        if let (Some(bound), Some(setting)) = (bound, address)
            && bound.tcp().is_none_or(|addr| addr.port() != 0)
            && !addresses.insert(bound)
        {
            diagnostics.push((
                setting.source.clone(),
                Diagnostic::new(format!("{} {bound} is given twice", name(setting)))
                    .hint("remove one of the two"),
            ));
        }
    }
}

const PROXIES_HAVE_NO_QUIC: &str =
    "PROXY headers belong to connections of TCP: use another listener";

/// The name under which the user gave a setting: its flag or its key.
pub(super) fn name(setting: &RawSetting) -> String {
    match &setting.source {
        SettingSource::Flag(flag) => flag.clone(),
        _ => setting.key.path.to_owned(),
    }
}
