//! `/status.json`: all that the page of the admin server shows, as JSON.

use std::time::UNIX_EPOCH;

use serde_json::{Map, Value, json};

use crate::edge::generations::Generations;
use crate::edge::status;
use crate::path::worker::Shared;

/// The parts that depend on samples of the last minutes.
pub(super) struct Parts {
    /// The time in seconds since 1970.
    pub(super) at: f64,
    /// The window of `sites` and `origins`.
    pub(super) window_seconds: f64,
    pub(super) history: Value,
    pub(super) sites: Value,
    pub(super) origins: Value,
    pub(super) errors: Value,
    pub(super) contents: Value,
    pub(super) viewers: usize,
}

/// Returns the snapshot. `whole`: with the settings.
pub(super) fn snapshot(
    generations: &Generations,
    shared: &Shared,
    parts: Parts,
    whole: bool,
) -> Value {
    let mut all = status::of_edge(shared);
    let mut taken = |key: &str| all.get_mut(key).map(Value::take).unwrap_or_default();
    let config = &shared.config;
    let mut json = json!({
        "at": parts.at.round() as i64,
        "generation": shared.generation,
        "window_seconds": parts.window_seconds.round() as i64,
        "viewers": parts.viewers,
        "viewers_max": config.admin.event_streams_max,
        "purges": purges(shared),
        "certificates": generations.certificates(),
        "history": parts.history,
        "sites": parts.sites,
        "origins": parts.origins,
        "errors": parts.errors,
        "contents": parts.contents,
    });
    let object = json.as_object_mut().expect("the snapshot is an object");
    for key in SHARED_WITH_STATUS {
        object.insert((*key).to_owned(), taken(key));
    }
    if let Some(Value::Object(report)) = config.watcher.as_ref().map(|watcher| watcher.report()) {
        object.extend(report);
    }
    if whole {
        object.insert("settings".to_owned(), settings(shared));
    }
    json
}

/// Members of `/status` that the page shows, too.
const SHARED_WITH_STATUS: &[&str] = &[
    "name",
    "version",
    "uptime_seconds",
    "workers",
    "pid",
    "memory_bytes",
    "hot",
    "disk",
    "disk_damaged",
    "requests",
    "hit_ratio",
    "byte_hit_ratio",
    "not_stored",
    "acme",
    "fleet",
    "fleet_purges",
    "http3",
    "connections",
    "overload",
    "fills",
];

fn purges(shared: &Shared) -> Value {
    let purges = &shared.cache.purges;
    let size = purges.size();
    let kinds = ["url", "host", "tag", "group", "prefix", "pattern"];
    let accepted: Map<String, Value> = kinds
        .into_iter()
        .map(|kind| {
            let count = shared.cache.accepted_purges.count(kind);
            (kind.to_owned(), json!(count))
        })
        .collect();
    json!({
        "accepted": accepted,
        "entries": size.entries,
        "entries_max": shared.config.purge.entries_max.get(),
        "patterns": size.patterns,
        "patterns_max": shared.config.purge.patterns_max.get(),
        "failures": purges.failures(),
        "log_damaged": purges.damage().is_some(),
        "recent": recent_purges(shared),
    })
}

fn recent_purges(shared: &Shared) -> Value {
    let recent = shared.cache.accepted_purges.recent().into_iter();
    let rows = recent.map(|purge| {
        let since_1970 = purge.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        json!({
            "at": since_1970.as_secs(),
            "scope": purge.kind,
            "target": purge.target,
            "soft": purge.soft,
            "by": purge.by,
        })
    });
    rows.collect()
}

fn settings(shared: &Shared) -> Value {
    let stated = shared.config.stated.iter();
    stated
        .map(|setting| {
            json!({
                "key": setting.key,
                "value": setting.value,
                "from": setting.from,
            })
        })
        .collect()
}
