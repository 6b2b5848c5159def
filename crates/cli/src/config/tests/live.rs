//! Tests that a reload applies the settings that the list of keys calls live, and no others.

use std::path::Path;

use super::super::keys::{self, Key};
use super::super::{CheckedConfig, FlagSetting, load};

/// Method: each setting is changed alone, to the first of some values that is valid and changes the configuration. The
/// configuration after the reload is that of a start with the new file, or the running one.
#[test]
fn a_setting_is_live_exactly_if_a_reload_applies_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = with(folder.path(), None)
        .expect("a valid configuration")
        .edge;
    let before = format!("{running:?}");
    let mut unchanged = Vec::new();
    for key in keys::all() {
        let changed = candidates(key).into_iter().find_map(|value| {
            let new = with(folder.path(), Some((key.path, &value)))?.edge;
            (format!("{new:?}") != before).then_some((value, new))
        });
        let Some((value, new)) = changed else {
            unchanged.push(key.path);
            continue;
        };
        let expected = format!("{new:?}");
        let (after, _) = edgeward_proxy::after_reload(&new, &running);
        let after = format!("{after:?}");
        assert_eq!(after == expected, key.is_live, "{} = {value}", key.path);
        assert_eq!(after == before, !key.is_live, "{} = {value}", key.path);
    }
    unchanged.retain(|path| !NEEDS_OTHERS.iter().any(|prefix| path.starts_with(prefix)));
    assert!(unchanged.is_empty(), "no value changes {unchanged:?}");
}

/// The keys that have an effect only together with others, without others or with certificates, and those of the link
/// and of id filters, which are not in the configuration of the edge.
const NEEDS_OTHERS: [&str; 18] = [
    "access_log.journald",
    "acme.",
    "access_log.syslog",
    "admin.require_token",
    "admin.tls_",
    "admin.token.",
    "disk_device.",
    "disk_host.",
    "fleet.",
    "listener.acme",
    "listener.http3",
    "listener.tls_",
    "negative.",
    "origin.link.",
    "origin.s3_",
    "origin.servers",
    "origin.tls_",
    "purge.token_file",
];

/// Values of all types.
fn candidates(key: &Key) -> Vec<String> {
    let (min, max) = key.field.bounds().unzip();
    let type_name = key.field.type_name();
    let words = type_name.split('`').skip(1).step_by(2);
    let words = words.map(|word| word.trim_matches('"').to_owned());
    min.into_iter()
        .chain(max)
        .chain(words)
        .chain(TEXTS.map(str::to_owned))
        .collect()
}

const TEXTS: [&str; 16] = [
    "true",
    "false",
    "7",
    "0.5",
    "lru",
    "always",
    "fifo",
    "127.0.0.1:9",
    "http://127.0.0.1:8",
    "10.0.0.1",
    "other.example",
    "/other",
    "gzip",
    "text/html",
    "$status",
    "encoded-slash",
];

/// The configuration of an edge with a disk and one more setting, or `None` if the value is invalid.
fn with(folder: &Path, other: Option<(&str, &str)>) -> Option<CheckedConfig> {
    let disk = folder.to_str().expect("UTF-8");
    let flags = [
        ("listener.address", "127.0.0.1:0"),
        ("origin.url", "http://127.0.0.1:9"),
        ("server.workers", "2"),
        ("hot.capacity", "256MiB"),
        ("access_log.path", "-"),
        ("tracing.endpoint", "http://127.0.0.1:9"),
        ("disk_device.path", disk),
        ("disk_device.capacity", "1GiB"),
    ];
    let flags = flags
        .into_iter()
        .chain(other)
        .map(|(key, text)| FlagSetting {
            flag: format!("--set {key}"),
            key: key.to_owned(),
            text: text.to_owned(),
        });
    load(None, &flags.collect::<Vec<_>>()).ok()
}
