//! The settings with their sources, as the page of the admin server shows them.

use std::path::Path;
use std::sync::Arc;

use edgeward_proxy::config::StatedSetting;

use crate::config::{Setting, SettingSource, SiteSummary};

/// Returns the settings and sites as the edge has them. `running`: before a reload, the settings that it does not
/// change.
pub(crate) fn stated(
    settings: &[Setting],
    sites: &[SiteSummary],
    file: Option<&Path>,
    running: &[StatedSetting],
) -> Arc<Vec<StatedSetting>> {
    let from = |source: &SettingSource| match (source, file) {
        (SettingSource::File { line }, Some(file)) => format!("{}:{line}", file.display()),
        (source, _) => source.to_string(),
    };
    let settings = settings.iter().map(|setting| {
        let before = running.iter().find(|before| before.key == setting.key);
        if let Some(before) = before.filter(|_| !setting.is_live) {
            return before.clone();
        }
        let is_hidden = SECRETS.contains(&setting.key.as_str());
        StatedSetting {
            key: setting.key.clone(),
            value: match is_hidden && setting.source != SettingSource::Default {
                true => "(hidden)".to_owned(),
                false => without_credentials(&setting.value),
            },
            from: from(&setting.source),
        }
    });
    let sites = sites.iter().map(|site| StatedSetting {
        key: "site".to_owned(),
        value: format!("{} ({} rules)", site.hosts.join(", "), site.rules),
        from: from(&SettingSource::File { line: site.line }),
    });
    Arc::new(settings.chain(sites).collect())
}

/// Returns a value whose URLs have neither a user nor a query, which may be secret.
fn without_credentials(value: &str) -> String {
    let mut shown = String::new();
    let mut rest = value;
    while let Some((before, url)) = rest.split_once("://") {
        shown += before;
        shown += "://";
        let end = url.find(['"', ' ', ',']).unwrap_or(url.len());
        let (url, after) = url.split_at(end);
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let (host, path) = address.split_at(address.find('/').unwrap_or(address.len()));
        if let Some((_, host)) = host.rsplit_once('@') {
            shown += "(hidden)@";
            shown += host;
        } else {
            shown += host;
        }
        shown += path;
        shown += if query.is_empty() { "" } else { "?(hidden)" };
        rest = after;
    }
    shown + rest
}

/// Settings whose values a client could use for an attack by colliding keys.
const SECRETS: [&str; 2] = ["hot.seed", "caching.hash_seed"];

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(key: &str, value: &str, line: usize, is_live: bool) -> Setting {
        Setting {
            key: key.to_owned(),
            value: value.to_owned(),
            source: SettingSource::File { line },
            is_live,
        }
    }

    #[test]
    fn urls_are_shown_without_users_and_queries() {
        for (value, shown) in [
            ("\"http://10.0.0.7:8080\"", "\"http://10.0.0.7:8080\""),
            (
                "\"http://a:b@host/ask?token=c\"",
                "\"http://(hidden)@host/ask?(hidden)\"",
            ),
            (
                "[\"https://x/?a\", \"y?z\"]",
                "[\"https://x/?(hidden)\", \"y?z\"]",
            ),
            ("30s", "30s"),
        ] {
            assert_eq!(without_credentials(value), shown);
        }
    }

    #[test]
    fn a_reload_keeps_the_settings_that_need_a_restart_and_no_seed_is_shown() {
        let file = Some(Path::new("/etc/edge.toml"));
        let before = [
            setting("workers", "2", 3, false),
            setting("caching.stale_if_disconnected", "1h", 4, true),
            setting("caching.hash_seed", "77", 5, false),
        ];
        let first = stated(&before, &[], file, &[]);
        let text = |stated: &[StatedSetting], at: usize| {
            let StatedSetting { value, from, .. } = &stated[at];
            format!("{value} {from}")
        };
        assert_eq!(text(&first, 0), "2 /etc/edge.toml:3");
        assert_eq!(text(&first, 2), "(hidden) /etc/edge.toml:5");
        let after = [
            setting("workers", "4", 7, false),
            setting("caching.stale_if_disconnected", "2h", 8, true),
        ];
        let second = stated(&after, &[], file, &first);
        assert_eq!(text(&second, 0), "2 /etc/edge.toml:3");
        assert_eq!(text(&second, 1), "2h /etc/edge.toml:8");
    }
}
