//! From settings as typed to the configuration as meant, or to all that is wrong with them.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use edgeward_policy::DiskAdmissionSpec;
use edgeward_proxy::config::{
    AccessLogConfig, DiskConfig, EdgeConfig, HostAdmission, HostPattern, ListenerConfig,
    ListenerTls, LogDestination, LogFormat, OriginProtocol,
};
use edgeward_semantics::Heuristic;
use edgeward_store::disk::{DeviceSettings, DiskSettings};
use edgeward_types::ByteSize;

use super::keys::{KEYS, Key, is_repeated};
use super::{Checked, Setting, Source, Told, Typed};
use crate::complaint::{Complaint, Complaints};
use crate::link_edge::LinkSettings;
use crate::negative::{FilterPlace, NegativeSettings};

/// A configuration in the making: what depends on several keys is put together at the end.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) edge: EdgeConfig,
    pub(super) listeners: Vec<DraftListener>,
    pub(super) disk: DiskConfig,
    pub(super) disk_hosts: Vec<DraftHost>,
    pub(super) negative: Vec<NegativeSettings>,
    pub(super) link: LinkSettings,
    pub(super) access_log: AccessLogConfig,
    pub(super) access_log_given: bool,
    pub(super) heuristic: Heuristic,
    pub(super) heuristic_on: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct DraftListener {
    pub(super) address: Option<std::net::SocketAddr>,
    pub(super) certificates: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

/// A `[[disk_host]]` as far as it was typed.
#[derive(Clone, Debug, Default)]
pub(super) struct DraftHost {
    pub(super) host: Option<HostPattern>,
    pub(super) admission: Option<DiskAdmissionSpec>,
}

impl Draft {
    /// Every default in place; where to listen and where the origin is are still to be told.
    pub(super) fn new() -> Self {
        let nowhere = "http://origin.invalid"
            .parse()
            .expect("the placeholder is a URL");
        let edge = EdgeConfig::new(
            edgeward_proxy::config::LOOPBACK_ANY_PORT,
            nowhere,
            DEFAULT_HOT_CAPACITY,
        );
        Self {
            edge,
            listeners: Vec::new(),
            disk: DiskConfig::with(DiskSettings::default()),
            disk_hosts: Vec::new(),
            negative: Vec::new(),
            link: LinkSettings::default(),
            access_log: AccessLogConfig::new(LogDestination::Stdout, LogFormat::default()),
            access_log_given: false,
            heuristic: Heuristic::default(),
            heuristic_on: true,
        }
    }

    /// The listener a key of `[[listener]]` speaks of.
    pub(super) fn listener(&mut self, item: usize) -> &mut DraftListener {
        if self.listeners.len() <= item {
            self.listeners.resize_with(item + 1, DraftListener::default);
        }
        &mut self.listeners[item]
    }

    /// The rule a key of `[[negative]]` speaks of.
    pub(super) fn negative(&mut self, item: usize) -> &mut NegativeSettings {
        if self.negative.len() <= item {
            self.negative
                .resize_with(item + 1, NegativeSettings::default);
        }
        &mut self.negative[item]
    }

    /// The host a key of `[[disk_host]]` speaks of.
    pub(super) fn disk_host(&mut self, item: usize) -> &mut DraftHost {
        if self.disk_hosts.len() <= item {
            self.disk_hosts.resize_with(item + 1, DraftHost::default);
        }
        &mut self.disk_hosts[item]
    }

    /// The device a key of `[[disk_device]]` speaks of.
    pub(super) fn device(&mut self, item: usize) -> &mut DeviceSettings {
        let devices = &mut self.disk.settings.devices;
        let blank = || DeviceSettings {
            path: PathBuf::new(),
            capacity: None,
        };
        if devices.len() <= item {
            devices.resize_with(item + 1, blank);
        }
        &mut devices[item]
    }
}

/// Checks each setting, then all together.
pub(super) fn check(
    typed: Vec<Typed>,
    mut complaints: Vec<(Source, Complaint)>,
    told: &Told<'_>,
) -> Result<Checked, Complaints> {
    let mut draft = Draft::new();
    // What the parser made of a line it could not read is no ground for a second complaint.
    let broken: HashSet<usize> = complaints
        .iter()
        .filter_map(|(source, _)| match source {
            Source::File { line } => Some(*line),
            _ => None,
        })
        .collect();
    for one in &typed {
        let Typed {
            key,
            item,
            raw,
            source,
        } = one;
        match key.kind.read(raw, &told.folder(source)) {
            Ok(value) => (key.set)(&mut draft, *item, value),
            Err(_) if matches!(source, Source::File { line } if broken.contains(line)) => {}
            Err(refusal) => {
                let subject = match source {
                    Source::Flag(flag) => format!("{flag} {raw}"),
                    _ => format!("{} = {raw}", key.path),
                };
                let mut complaint = Complaint::new(format!("{subject} {}", refusal.reason));
                if let Some(hint) = refusal.hint {
                    complaint = complaint.hint(hint);
                }
                complaints.push((source.clone(), complaint));
            }
        }
    }
    together(&typed, &mut draft, &mut complaints, told);
    if complaints.is_empty() {
        return Ok(Checked {
            settings: settings(&typed, &draft),
            negative: draft.negative.clone(),
            link: draft.link.gateway.is_some().then(|| draft.link.clone()),
            edge: finished(draft),
        });
    }
    // As a reader finds them: through the file from the top, then the flags, then what is missing.
    complaints.sort_by_key(|(source, _)| match source {
        Source::File { line } => (0, *line),
        Source::Flag(_) => (1, 0),
        Source::Default => (2, 0),
    });
    let placed = complaints
        .into_iter()
        .map(|(source, complaint)| told.place(complaint, &source))
        .collect();
    Err(Complaints(placed))
}

/// What no key can be blamed for alone.
fn together(
    typed: &[Typed],
    draft: &mut Draft,
    complaints: &mut Vec<(Source, Complaint)>,
    told: &Told<'_>,
) {
    let given = |path: &str| typed.iter().find(|one| one.key.path == path);
    let mut missing = |what: &str, flag: &str, example: &str| {
        let hint = match told.file {
            Some(_) => format!("add {example}, or give {flag}"),
            None => format!("give {flag}, or a file with --config"),
        };
        complaints.push((Source::Default, Complaint::new(what).hint(hint)));
    };
    if given("origin.url").is_none() {
        missing(
            "origin.url is missing: whom should a miss ask?",
            "--origin http://HOST:PORT",
            "[origin] with url = \"http://HOST:PORT\"",
        );
    }
    if given("listener.address").is_none() {
        missing(
            "listener.address is missing: where should the edge listen?",
            "--listen 127.0.0.1:8080",
            "[[listener]] with address = \"127.0.0.1:8080\"",
        );
    }
    if let (None, Some(other)) = (
        given("access_log.path"),
        given("access_log.format").or_else(|| given("access_log.queue_lines_max")),
    ) {
        complaints.push((
            other.source.clone(),
            Complaint::new(format!(
                "{} is set, but there is no access log",
                name(other)
            ))
            .hint("set access_log.path (--access-log), to a file or to - for stdout"),
        ));
    }
    listeners(typed, draft, complaints);
    disk(typed, draft, complaints);
    disk_hosts(typed, draft, complaints);
    negative(typed, draft, complaints);
    link(typed, draft, complaints);
}

/// A link is whole, and leads to an origin that it can speak with.
fn link(typed: &[Typed], draft: &Draft, complaints: &mut Vec<(Source, Complaint)>) {
    const TABLE: &str = "origin.link.";
    let given = |path: &str| typed.iter().find(|one| one.key.path == path);
    let Some(first) = typed.iter().find(|one| one.key.path.starts_with(TABLE)) else {
        return;
    };
    for (key, why, hint) in [
        (
            "gateway",
            "where to?",
            "add gateway = \"gateway.example:7443\"",
        ),
        (
            "keys",
            "who is the edge?",
            "add keys = \"keys/edge\", as `edgeward link keygen` made it",
        ),
        (
            "store",
            "where do chunks lie?",
            "add store = \"/var/lib/edgeward/link\"",
        ),
    ] {
        if given(&format!("{TABLE}{key}")).is_none() {
            let complaint = Complaint::new(format!("[origin.link] has no {key}: {why}"));
            complaints.push((first.source.clone(), complaint.hint(hint)));
        }
    }
    let origin = &draft.edge.origin;
    let unspoken = [
        (
            "origin.url",
            origin.url.tls,
            "https",
            "write http: the link is encrypted, and the gateway asks its --origin",
        ),
        (
            "origin.protocol",
            origin.protocol == OriginProtocol::Http2,
            "HTTP/2",
            "leave it at http1",
        ),
    ];
    for (path, is_it, what, hint) in unspoken {
        if let Some(one) = given(path).filter(|_| is_it) {
            let complaint = Complaint::new(format!("a link carries no {what} to the origin"));
            complaints.push((one.source.clone(), complaint.hint(hint)));
        }
    }
}

/// What a rule lacks, said where the rule begins.
fn negative(typed: &[Typed], draft: &Draft, complaints: &mut Vec<(Source, Complaint)>) {
    for (item, rule) in draft.negative.iter().enumerate() {
        let of_rule = |one: &&Typed| one.item == item && one.key.path.starts_with("negative.");
        let Some(first) = typed.iter().find(of_rule) else {
            continue;
        };
        // What was typed and is wrong was complained about already.
        let typed_at_all =
            |path: &str| typed.iter().filter(of_rule).any(|one| one.key.path == path);
        let mut lacks = |key: &str, why: &str, hint: &str| {
            if !typed_at_all(key) {
                let complaint = Complaint::new(format!(
                    "this [[negative]] has no {}: {why}",
                    &key["negative.".len()..]
                ));
                complaints.push((first.source.clone(), complaint.hint(hint)));
            }
        };
        lacks(
            "negative.path",
            "for which paths?",
            "add path = \"/resource/{id}\"",
        );
        lacks(
            "negative.filter",
            "which ids exist?",
            "add filter = \"resource.ids\" or filter = \"https://HOST/sets/NAME\"",
        );
        if let Some(FilterPlace::Publisher(url)) = &rule.filter {
            lacks(
                "negative.max_staleness",
                "how old may an answer be?",
                "add max_staleness = \"10s\": an id older than that is never answered 404",
            );
            if !url.is_https() {
                lacks(
                    "negative.public_key",
                    "anybody could say what exists",
                    "add what `edgeward filter keygen --public` prints, or use https",
                );
            }
        }
    }
}

fn disk(typed: &[Typed], draft: &Draft, complaints: &mut Vec<(Source, Complaint)>) {
    let devices = &draft.disk.settings.devices;
    for one in typed {
        let of_disk = |one: &Typed| {
            ["disk.", "disk_host."]
                .iter()
                .any(|table| one.key.path.starts_with(table))
        };
        if devices.is_empty() && of_disk(one) {
            let what = format!("{} is set, but there is no cache on disk", name(one));
            complaints.push((
                one.source.clone(),
                Complaint::new(what)
                    .hint("say where it lies: --disk DIR --disk-size 10GiB, or [[disk_device]]"),
            ));
        }
        let Some(device) = devices.get(one.item) else {
            continue;
        };
        // A file or block device that is there says itself how much there is.
        let needs_size = device.capacity.is_none()
            && !std::fs::metadata(&device.path).is_ok_and(|facts| !facts.is_dir());
        let complaint = match one.key.path {
            "disk_device.capacity" if device.path.as_os_str().is_empty() => {
                Complaint::new(format!("{} is set for no device", name(one)))
                    .hint("give its path too: --disk DIR, or path = \"/var/cache/edgeward\"")
            }
            "disk_device.path" if needs_size => {
                Complaint::new(format!("{} has no size: how much may it take?", name(one)))
                    .hint("give --disk-size 10GiB, or capacity = \"10GiB\"")
            }
            _ => continue,
        };
        complaints.push((one.source.clone(), complaint));
    }
}

/// What a host lacks, and hosts that are named twice.
fn disk_hosts(typed: &[Typed], draft: &Draft, complaints: &mut Vec<(Source, Complaint)>) {
    let mut seen = HashSet::new();
    for (item, host) in draft.disk_hosts.iter().enumerate() {
        let find = |path: &str| {
            typed
                .iter()
                .find(|one| one.item == item && one.key.path == path)
        };
        let (named, rule) = (find("disk_host.host"), find("disk_host.admission"));
        let (one, what, hint) = match (named, rule) {
            (Some(one), None) => (one, "admission", "add admission = \"always\""),
            (None, Some(one)) => (one, "host", "add host = \"www.example.com\""),
            (Some(one), Some(_)) => {
                if let Some(host) = &host.host
                    && !seen.insert(host)
                {
                    let what = format!("{} {host} is named twice", name(one));
                    let complaint = Complaint::new(what).hint("remove one of the two");
                    complaints.push((one.source.clone(), complaint));
                }
                continue;
            }
            (None, None) => continue,
        };
        let complaint = Complaint::new(format!("this [[disk_host]] has no {what}"));
        complaints.push((one.source.clone(), complaint.hint(hint)));
    }
}

fn listeners(typed: &[Typed], draft: &mut Draft, complaints: &mut Vec<(Source, Complaint)>) {
    let find = |item: usize, path: &str| {
        typed
            .iter()
            .find(|one| one.item == item && one.key.path == path)
    };
    // Flags name one certificate for all the addresses they name.
    let flagged = typed
        .iter()
        .any(|one| one.key.path == "listener.address" && matches!(one.source, Source::Flag(_)));
    if flagged && let Some(first) = draft.listeners.first().cloned() {
        for listener in &mut draft.listeners {
            listener.certificates.clone_from(&first.certificates);
            listener.key.clone_from(&first.key);
        }
    }
    let mut seen = HashSet::new();
    let items: std::collections::BTreeSet<usize> = typed
        .iter()
        .filter(|one| one.key.path.starts_with("listener."))
        .map(|one| one.item)
        .collect();
    let listens_at_all = typed.iter().any(|one| one.key.path == "listener.address");
    for item in items {
        let address = find(item, "listener.address");
        let certificates = find(item, "listener.tls_certificates");
        let key = find(item, "listener.tls_key");
        let half = match (certificates, key) {
            (Some(one), None) => Some((one, "listener.tls_key (--tls-key)")),
            (None, Some(one)) => Some((one, "listener.tls_certificates (--tls-cert)")),
            _ => None,
        };
        if let Some((one, other)) = half {
            complaints.push((
                one.source.clone(),
                Complaint::new(format!("{} does not work alone", name(one))).hint(format!(
                    "TLS takes a certificate and its key: give {other} too"
                )),
            ));
        }
        if address.is_none() && listens_at_all {
            let one = certificates.or(key).expect("the item has some key");
            complaints.push((
                one.source.clone(),
                Complaint::new("this [[listener]] has no address")
                    .hint("add address = \"0.0.0.0:8443\""),
            ));
        }
        let bound = draft.listeners.get(item).and_then(|one| one.address);
        if let (Some(bound), Some(typed)) = (bound, address)
            && bound.port() != 0
            && !seen.insert(bound)
        {
            complaints.push((
                typed.source.clone(),
                Complaint::new(format!("{} {bound} is listened on twice", name(typed)))
                    .hint("remove one of the two"),
            ));
        }
    }
}

/// A setting by the name it was typed under.
fn name(typed: &Typed) -> String {
    match &typed.source {
        Source::Flag(flag) => flag.clone(),
        _ => typed.key.path.to_owned(),
    }
}

fn finished(draft: Draft) -> EdgeConfig {
    let Draft {
        mut edge,
        listeners,
        mut disk,
        disk_hosts,
        negative: _,
        link: _,
        access_log,
        access_log_given,
        heuristic,
        heuristic_on,
    } = draft;
    edge.caching.rules.heuristic = heuristic_on.then_some(heuristic);
    edge.listeners = listeners
        .into_iter()
        .filter_map(|listener| {
            let tls = listener
                .certificates
                .zip(listener.key)
                .map(|(certificates, key)| ListenerTls { certificates, key });
            listener.address.map(|addr| ListenerConfig { addr, tls })
        })
        .collect();
    disk.hosts = disk_hosts
        .into_iter()
        .filter_map(|DraftHost { host, admission }| {
            let (host, admission) = host.zip(admission)?;
            Some(HostAdmission { host, admission })
        })
        .collect();
    edge.disk = (!disk.settings.devices.is_empty()).then_some(disk);
    edge.access_log = access_log_given.then_some(access_log);
    edge
}

/// Every setting as it will be, in the order of the reference.
fn settings(typed: &[Typed], draft: &Draft) -> Vec<Setting> {
    let mut settings = Vec::new();
    let source = |key: &Key, item: usize| {
        typed
            .iter()
            .rev()
            .find(|one| one.key.path == key.path && one.item == item)
            .map_or(Source::Default, |one| one.source.clone())
    };
    let table_of = |key: &Key| key.path.rsplit_once('.').expect("a key is in a table");
    let repeated = [
        ("listener", draft.listeners.len()),
        ("disk_device", draft.disk.settings.devices.len()),
        ("disk_host", draft.disk_hosts.len()),
        ("negative", draft.negative.len()),
    ];
    for (table, items) in repeated {
        for item in 0..items {
            for key in KEYS.iter().filter(|key| table_of(key).0 == table) {
                if let Some(value) = (key.show)(draft, item) {
                    settings.push(Setting {
                        key: format!("{table}[{item}].{}", table_of(key).1),
                        value,
                        source: source(key, item),
                    });
                }
            }
        }
    }
    for key in KEYS.iter().filter(|key| !is_repeated(table_of(key).0)) {
        if let Some(value) = (key.show)(draft, 0) {
            settings.push(Setting {
                key: key.path.to_owned(),
                value,
                source: source(key, 0),
            });
        }
    }
    settings
}

/// Half of the smallest machine one would rent for this.
const DEFAULT_HOT_CAPACITY: ByteSize = ByteSize::mib(256);

/// A path as it is shown.
pub(super) fn path_text(path: &Path) -> String {
    path.display().to_string()
}
