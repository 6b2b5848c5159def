//! Reads the configuration of a running edge again, and applies it as a whole or not at all.

use std::path::PathBuf;
use std::sync::Mutex;

use edgeward_proxy::Reloader;
use edgeward_types::with_causes;

use crate::config::{self, FlagSetting, Setting};
use crate::negative::{self, NegativeSettings};
use crate::service;

/// The source of the configuration of a running edge, and the settings that it has now.
pub(crate) struct ReloadableConfig {
    file: PathBuf,
    flags: Vec<FlagSetting>,
    reloader: Reloader,
    /// The settings of the last reload, and the rules of id filters whose filters are followed. Locked during a reload,
    /// so that two reloads follow each other.
    applied: Mutex<(Vec<Setting>, Vec<NegativeSettings>)>,
}

impl ReloadableConfig {
    pub(crate) fn new(
        file: PathBuf,
        flags: Vec<FlagSetting>,
        settings: Vec<Setting>,
        negative: Vec<NegativeSettings>,
        reloader: Reloader,
    ) -> Self {
        Self {
            file,
            flags,
            reloader,
            applied: Mutex::new((settings, negative)),
        }
    }

    /// Reads the file, checks it, applies it and logs the differences. Returns the differences, or the reason why
    /// nothing
    /// has changed.
    pub(crate) fn reload(&self) -> Result<Vec<String>, String> {
        service::reloading();
        let reloaded = self.try_reload();
        service::ready(match &reloaded {
            Ok(_) => "serving",
            Err(_) => "serving; the last reload was refused",
        });
        match &reloaded {
            Ok(changes) => {
                for change in changes {
                    tracing::info!("reload: {change}");
                }
                tracing::info!(changes = changes.len(), "the configuration was reloaded");
            }
            Err(error) => {
                self.reloader.count_refused();
                tracing::error!(
                    "the configuration was not reloaded, and nothing has changed: {error}"
                );
            }
        }
        reloaded
    }

    fn try_reload(&self) -> Result<Vec<String>, String> {
        let mut applied = self
            .applied
            .lock()
            .map_err(|_| "an earlier reload panicked".to_owned())?;
        let (settings, negative) = &mut *applied;
        let checked = config::load(Some(&self.file), &self.flags)
            .map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
        let mut edge = checked.edge;
        let running = self.reloader.config();
        // The filters of unchanged rules stay loaded. The link is that of the start.
        edge.negative = match format!("{negative:?}") == format!("{:?}", checked.negative) {
            true => running.negative,
            false => negative::start(&checked.negative).map_err(|error| format!("{:#}", error))?,
        };
        edge.origins[0].dial.clone_from(&running.origins[0].dial);
        self.reloader
            .reload(&edge)
            .map_err(|error| with_causes(&error))?;
        let changes = differences(settings, &checked.settings);
        (*settings, *negative) = (checked.settings, checked.negative);
        Ok(changes)
    }
}

/// Returns the settings that differ, one line each. A setting that a reload does not change says so.
fn differences(old: &[Setting], new: &[Setting]) -> Vec<String> {
    let value = |settings: &[Setting], key: &str| {
        let setting = settings.iter().find(|setting| setting.key == key);
        setting.map_or_else(|| "not set".to_owned(), |setting| setting.value.clone())
    };
    let mut keys: Vec<&str> = old.iter().chain(new).map(|setting| &*setting.key).collect();
    keys.sort_unstable();
    keys.dedup();
    let changed = keys.into_iter().filter_map(|key| {
        let (before, after) = (value(old, key), value(new, key));
        let when = match is_live(key) {
            true => "",
            false => ", from the next start on",
        };
        (before != after).then(|| format!("{key}: {before} -> {after}{when}"))
    });
    changed.collect()
}

/// Returns true if a reload applies the setting. The others keep the value of the start; an upgrade applies them too.
fn is_live(key: &str) -> bool {
    const OTHER_TABLES: [&str; 6] = [
        "disk",
        "disk_device",
        "disk_host",
        "link",
        "overload",
        "watchdog",
    ];
    const OTHERS: [&str; 17] = [
        "admin.address",
        "admin.metric_labels_max",
        "admin.tls_certificates",
        "admin.tls_key",
        "caching.collapse_followers_max",
        "caching.collapse_wait_max",
        "caching.hash_seed",
        "caching.hit_for_miss",
        "caching.ignored_parameters",
        "caching.validation_backoff",
        "compression.pending_bytes_max",
        "compression.threads",
        "purge.entries_max",
        "purge.log",
        "purge.patterns_max",
        "server.pid_file",
        "server.user",
    ];
    let table = key.split(['.', '[']).next().unwrap_or_default();
    let is_of_memory = table == "hot" && key != "hot.policy";
    !(is_of_memory
        || key == "server.workers"
        || OTHER_TABLES.contains(&table)
        || OTHERS.contains(&key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SettingSource;

    fn setting(key: &str, value: &str) -> Setting {
        Setting {
            key: key.to_owned(),
            value: value.to_owned(),
            source: SettingSource::Default,
        }
    }

    #[test]
    fn differences_name_the_key_both_values_and_when_they_count() {
        let old = [
            setting("hot.capacity", "256MiB"),
            setting("caching.set_cookie", "refuse"),
            setting("server.name", "edgeward"),
        ];
        let new = [
            setting("hot.capacity", "1GiB"),
            setting("caching.set_cookie", "strip"),
            setting("server.name", "edgeward"),
            setting("listener[1].address", "127.0.0.1:81"),
        ];
        assert_eq!(
            differences(&old, &new),
            [
                "caching.set_cookie: refuse -> strip",
                "hot.capacity: 256MiB -> 1GiB, from the next start on",
                "listener[1].address: not set -> 127.0.0.1:81",
            ]
        );
    }

    fn load(key: &str, value: &str) -> edgeward_proxy::EdgeConfig {
        let flags = [
            ("listener.address", "127.0.0.1:0"),
            ("origin.url", "http://127.0.0.1:9"),
            ("server.workers", "2"),
            (key, value),
        ];
        let flags = flags.map(|(key, text)| FlagSetting {
            flag: format!("--set {key}"),
            key: key.to_owned(),
            text: text.to_owned(),
        });
        let checked = config::load(None, &flags);
        checked
            .unwrap_or_else(|error| panic!("{key}: {:#}", anyhow::Error::from(error)))
            .edge
    }

    /// Method: each setting is changed alone. The configuration after the reload is that of a start with the new file,
    /// or the running one.
    #[test]
    fn a_setting_is_live_exactly_if_a_reload_applies_it() {
        let running = load("server.name", "edgeward");
        let before = format!("{running:?}");
        for (key, value) in [
            ("limits.headers_max", "50"),
            ("limits.idle_timeout", "5s"),
            ("limits.connections_max", "500"),
            ("limits.fill_bytes_max", "1MiB"),
            ("origin.retries_max", "7"),
            ("origin.queue_max", "7"),
            ("hot.policy", "lru"),
            ("hot.capacity", "20MiB"),
            ("hot.window_requests", "5000"),
            ("server.workers", "7"),
            ("server.name", "other"),
            ("server.drain_timeout", "3s"),
            ("server.upgrade_timeout", "3s"),
            ("server.certificate_interval", "3s"),
            ("server.pid_file", "pid"),
            ("server.user", "www-data"),
            ("admin.address", "127.0.0.1:9"),
            ("admin.metric_labels_max", "7"),
            ("admin.hosts", "other.example"),
            ("access_log.path", "log"),
            ("caching.hit_for_miss", "7s"),
            ("caching.collapse_wait_max", "7s"),
            ("caching.errors_replace_stale", "true"),
            ("caching.share_variants", "false"),
            ("caching.heuristic_percent", "7"),
            ("compression.threads", "3"),
            ("compression.gzip_level", "3"),
            ("forwarding.trace", "true"),
            ("purge.entries_max", "7000"),
            ("purge.allow", "10.0.0.1"),
            ("ranges.slice_bytes", "2MiB"),
            ("watchdog.deadline", "7s"),
        ] {
            let new = load(key, value);
            let expected = format!("{new:?}");
            assert_ne!(expected, before, "{key} = {value} changes nothing");
            let (after, _) = edgeward_proxy::after_reload(&new, &running);
            let after = format!("{after:?}");
            assert_eq!(after == expected, is_live(key), "{key}");
            assert_eq!(after == before, !is_live(key), "{key}");
        }
    }
}
