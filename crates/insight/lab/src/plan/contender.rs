//! Reads the contenders of a plan and checks the rules of each server.

use std::num::{NonZeroU64, NonZeroUsize};

use super::table::Table;
use super::{Contender, DISK_SIZES, SIZES, Server, Setting, SettingsSwitch};

/// Reads one `[[contender]]`. Reports each mistake, and returns `None` if there is one.
pub(super) fn read(table: Table<'_>) -> Option<Contender> {
    let line = table.line;
    let word = match table.entry("server") {
        Some(entry) => entry.choice(&Server::WORDS),
        None => {
            let hint = format!(
                "write server = \"edgeward\"; the servers are {}",
                Server::WORDS.join(", ")
            );
            table.missing("server", hint);
            None
        }
    };
    let name = match (table.entry("name"), word) {
        (Some(entry), _) => entry.text().filter(|name| {
            let fits = name.chars().count() <= NAME_CHARS_MAX;
            if !fits {
                entry.wrong("is too long", format!("up to {NAME_CHARS_MAX} characters"));
            }
            fits
        }),
        (None, Some(word)) => Some(word),
        (None, None) => None,
    };
    let group = table.entry("group").and_then(|entry| entry.text());
    let memory = table.entry("memory").map(|entry| entry.capacity(SIZES));
    let disk = table.entry("disk").map(|entry| entry.capacity(DISK_SIZES));
    let workers = table.entry("workers").map(|entry| entry.whole(1..=256));
    let server = word.and_then(|word| server(&table, word));
    if let Some(word) = word {
        capacities(&table, word, memory.is_some(), disk.is_some());
        if workers.is_some() && matches!(word, "varnish") {
            table.wrong(
                "Varnish has no workers",
                "remove workers: Varnish gets a thread for each connection",
            );
        }
    }
    table.finish();
    let workers = workers.map_or(Some(1), |given| given)?;
    Some(Contender {
        name: name?.to_owned(),
        group: group.map(str::to_owned),
        server: server?,
        memory: memory.map_or(Some(None), |given| given.map(Some))?,
        disk: disk.map_or(Some(None), |given| given.map(Some))?,
        workers: NonZeroUsize::new(usize::try_from(workers).ok()?)?,
        line,
    })
}

/// Checks that a contender has the capacities that its server needs, and no others. `memory` and `disk` are true if the
/// plan has the key.
fn capacities(table: &Table<'_>, word: &str, memory: bool, disk: bool) {
    match (word, memory, disk) {
        ("edgeward", false, _) => table.missing(
            "memory",
            "write memory = \"64MiB\", or \"1%\" of the total size of the trace's objects",
        ),
        ("trafficserver", _, false) => table.missing(
            "disk",
            "Traffic Server always has a disk cache: write disk = \"256MiB\"; memory is the size of its additional cache in RAM",
        ),
        ("nginx", false, false) | ("varnish", false, false) => {
            table.missing("memory", "write memory = \"64MiB\", or disk = \"1GiB\"");
        }
        ("nginx", true, true) => table.wrong(
            "nginx has one cache: a folder",
            "write memory (a folder in memory) or disk (one on disk), not both",
        ),
        ("varnish", true, true) => table.wrong(
            "Varnish has one cache: in memory or on disk",
            "write memory (its malloc storage) or disk (its file storage), not both",
        ),
        _ => {}
    }
}

fn server(table: &Table<'_>, word: &str) -> Option<Server> {
    Some(match word {
        "edgeward" => {
            let settings = table.table("config").map_or(Some(Vec::new()), settings)?;
            let settings_switch = match table.table("switch") {
                Some(settings_switch) => Some(read_switch(settings_switch)?),
                None => None,
            };
            Server::Edgeward {
                settings,
                settings_switch,
            }
        }
        "nginx" => {
            let min_uses = table
                .entry("min_uses")
                .map_or(Some(1), |entry| entry.whole(1..=1000));
            Server::Nginx {
                min_uses: NonZeroU64::new(min_uses?)?,
            }
        }
        "varnish" => Server::Varnish,
        _ => Server::TrafficServer,
    })
}

/// Reads `[contender.switch]`: the settings that change during the run, and the part of the trace before the change.
fn read_switch(table: Table<'_>) -> Option<SettingsSwitch> {
    let at = match table.entry("at") {
        Some(entry) => entry.amount(),
        None => {
            table.missing("at", "write at = \"50%\", or a number of requests");
            None
        }
    };
    let settings = match table.table("config") {
        Some(config) => settings(config),
        None => {
            table.missing(
                "config",
                "write the changed keys below [contender.switch.config.…]",
            );
            None
        }
    };
    table.finish();
    Some(SettingsSwitch {
        at: at?,
        settings: settings?,
    })
}

/// Reads the tables `[contender.config.TABLE]`. Their keys belong to the edge's configuration; the edge rejects
/// unknown keys when it starts.
fn settings(config: Table<'_>) -> Option<Vec<Setting>> {
    let mut settings = Vec::new();
    let mut is_valid = true;
    for (name, entry) in config.all() {
        let Some(inner) = entry.table() else {
            is_valid = false;
            continue;
        };
        for (key, entry) in inner.all() {
            let path = format!("{name}.{key}");
            if let Some((_, hint)) = LAB_KEYS.iter().find(|(key, _)| *key == path) {
                entry.wrong("is set by the lab", *hint);
                is_valid = false;
                continue;
            }
            match entry.setting() {
                Some(value) => settings.push(Setting {
                    table: name.to_owned(),
                    key: key.to_owned(),
                    value,
                    line: entry.line,
                }),
                None => is_valid = false,
            }
        }
    }
    is_valid.then_some(settings)
}

/// Keys of the edge that only the lab sets, each with the hint for a plan that has the key.
const LAB_KEYS: [(&str, &str); 7] = [
    ("listener.address", "the lab selects a free port"),
    ("origin.url", "the lab starts its own origin"),
    ("admin.address", "the lab selects a free port"),
    ("server.workers", "write workers = 1 in the contender"),
    ("hot.capacity", "write memory = \"64MiB\" in the contender"),
    (
        "disk_device.path",
        "the lab creates a folder below the folder of --dir",
    ),
    (
        "disk_device.capacity",
        "write disk = \"1GiB\" in the contender",
    ),
];

/// The maximum length of a name, in characters. Longer names do not fit in a legend on a phone.
const NAME_CHARS_MAX: usize = 40;
