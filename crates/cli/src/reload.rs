//! Reads the configuration of a running edge again, and applies it as a whole or not at all.

use std::path::PathBuf;
use std::sync::Mutex;

use edgeward_proxy::Reloader;
use edgeward_types::with_causes;

use crate::config::{self, FlagSetting, Setting};
use crate::service;

/// The source of the configuration of a running edge, and the settings that it has now.
pub(crate) struct ReloadableConfig {
    file: PathBuf,
    flags: Vec<FlagSetting>,
    reloader: Reloader,
    /// The settings of the last reload. Locked during a reload, so that two reloads follow each other.
    settings: Mutex<Vec<Setting>>,
}

impl ReloadableConfig {
    pub(crate) fn new(
        file: PathBuf,
        flags: Vec<FlagSetting>,
        settings: Vec<Setting>,
        reloader: Reloader,
    ) -> Self {
        Self {
            file,
            flags,
            reloader,
            settings: Mutex::new(settings),
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
        let mut settings = self
            .settings
            .lock()
            .map_err(|_| "an earlier reload panicked".to_owned())?;
        let checked = config::load(Some(&self.file), &self.flags)
            .map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
        self.reloader
            .reload(&checked.edge)
            .map_err(|error| with_causes(&error))?;
        let changes = differences(&settings, &checked.settings);
        *settings = checked.settings;
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

/// Returns true if a reload applies the setting. The others keep the value of the start.
fn is_live(key: &str) -> bool {
    const LIVE: [&str; 8] = [
        "caching.heuristic",
        "caching.heuristic_percent",
        "caching.heuristic_lifetime_max",
        "caching.heuristic_without_last_modified",
        "caching.set_cookie",
        "caching.client_directives",
        "caching.store_request_errors",
        "caching.stale_if_disconnected",
    ];
    let table = key.split(['.', '[']).next().unwrap_or_default();
    table == "site" || LIVE.contains(&key) || (table == "listener" && key.contains(".tls_"))
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
                "listener[1].address: not set -> 127.0.0.1:81, from the next start on",
            ]
        );
    }
}
