//! The list of all settings: key, type, bounds, description, and the field that a setting changes.
//!
//! The parser of the configuration file, the flags of `serve`, `check-config`, the report of a reload and
//! docs/reference/configuration.md use this list. Defaults are defined, with their reasons, in
//! `edgeward_proxy::config`.

mod admin;
mod caching;
mod compression;
mod disk;
mod forwarding;
mod hot;
mod limits;
mod link;
mod listener;
mod logs;
mod negative;
mod origin;
mod overload;
mod server;

use std::path::Path;
use std::time::Duration;

use edgeward_types::ByteSize;

use super::draft::ConfigDraft;
use super::value::{self, Raw, SettingValue, Time, ValueError};

/// One setting.
pub(super) struct Key {
    /// The path: table and name, separated by a dot.
    pub(super) path: &'static str,
    /// The flag of `serve` that sets this key, if it has one.
    pub(super) flag: Option<&'static str>,
    /// True if a reload applies the setting. The others keep the value of the start; an upgrade applies them too.
    pub(super) is_live: bool,
    /// The description in the reference. Each of its lines begins with a space.
    doc: &'static str,
    /// The type of the value and its field.
    pub(super) field: &'static dyn Field,
}

impl Key {
    /// The description in the reference.
    pub(super) fn doc(&self) -> &'static str {
        self.doc.trim_start()
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.path)
    }
}

/// The field that a setting changes. `item` is the index of the item if the table is repeated, otherwise 0.
pub(super) trait Field: Sync {
    /// Parses a value and writes it into the draft. Relative paths start at `folder`.
    fn set(
        &self,
        draft: &mut ConfigDraft,
        item: usize,
        raw: &Raw,
        folder: &Path,
    ) -> Result<(), ValueError>;

    /// Returns the value from the draft in the form that a user would write, or `None` if it is not set and has no
    /// default.
    fn show(&self, draft: &ConfigDraft, item: usize) -> Option<String>;

    /// The name of the type in the reference.
    fn type_name(&self) -> String;

    /// The minimum and the maximum, as text.
    fn bounds(&self) -> Option<(String, String)>;

    /// True if the configuration file needs quotes around the value.
    fn is_quoted(&self) -> bool;
}

/// A field with the type of its value.
struct Typed<T: SettingValue> {
    kind: T,
    get: fn(&ConfigDraft, usize) -> Option<T::Parsed>,
    set: fn(&mut ConfigDraft, usize, T::Parsed),
}

impl<T: SettingValue> Field for Typed<T> {
    fn set(
        &self,
        draft: &mut ConfigDraft,
        item: usize,
        raw: &Raw,
        folder: &Path,
    ) -> Result<(), ValueError> {
        let value = value::read(&self.kind, raw, folder)?;
        (self.set)(draft, item, value);
        Ok(())
    }

    fn show(&self, draft: &ConfigDraft, item: usize) -> Option<String> {
        self.kind.show(&(self.get)(draft, item)?)
    }

    fn type_name(&self) -> String {
        self.kind.name()
    }

    fn bounds(&self) -> Option<(String, String)> {
        self.kind.bounds()
    }

    fn is_quoted(&self) -> bool {
        self.kind.is_quoted()
    }
}

/// Defines the rows of a table. A row has a description, the path, the word `live` if a reload applies the setting or
/// else `restart`, the flag, the type with its bounds, and the field: `Part.field`, or functions that get and set it.
macro_rules! rows {
    ($(
        $(#[doc = $doc:literal])+
        $path:literal $when:ident $(, flag $flag:literal)?: $kind:expr
            $(=> $part:ident $(. $field:ident)+)? $(, get: $get:expr, set: $set:expr)?;
    )+) => {
        &[$(
            Key {
                path: $path,
                flag: rows!(@flag $($flag)?),
                is_live: rows!(@$when),
                doc: concat!($($doc),+),
                field: &$crate::config::keys::Typed {
                    kind: $kind,
                    $(
                        get: |draft, item| $part::of(draft, item).map(|part| part$(.$field)+.clone()),
                        set: |draft, item, value| $part::of_mut(draft, item)$(.$field)+ = value,
                    )?
                    $(get: $get, set: $set,)?
                },
            },
        )+]
    };
    (@flag) => { None };
    (@flag $flag:literal) => { Some($flag) };
    (@live) => { true };
    (@restart) => { false };
}
use rows;

/// Returns all settings, in the order of the reference.
pub(super) fn all() -> impl Iterator<Item = &'static Key> {
    [
        listener::ROWS,
        origin::ROWS,
        link::ROWS,
        hot::ROWS,
        disk::ROWS,
        caching::ROWS,
        compression::ROWS,
        negative::ROWS,
        forwarding::ROWS,
        server::ROWS,
        admin::ROWS,
        logs::ROWS,
        limits::ROWS,
        overload::ROWS,
    ]
    .into_iter()
    .flatten()
}

/// Returns the setting with this path.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    all().find(|key| key.path == path)
}

/// Returns true if `table` is an array of tables, for example `[[listener]]`.
pub(super) fn is_repeated(table: &str) -> bool {
    matches!(
        table,
        "listener" | "origin" | "disk_device" | "disk_host" | "negative" | "admin.token"
    )
}

/// The tables and their descriptions, in the order of the reference.
pub(super) const TABLES: [(&str, &str); 21] = [
    (
        "listener",
        "The addresses on which the edge listens. Write `[[listener]]` once for each address.",
    ),
    (
        "origin",
        "The origins: address, timeouts and the limits of connections of each. Write `[origin]` if there is one, and \
         `[[origin]]` once for each if there are several.",
    ),
    (
        "origin.link",
        "The link to a gateway near the origin, for an edge with one origin. The edge sends misses through the link, and the gateway forwards them \
         to its own `--origin`; `origin.url` then only sets `Host`. Without `gateway` there is no link. See \
         docs/how-to/link.md.",
    ),
    ("hot", "The memory tier of the cache."),
    (
        "disk_device",
        "The devices of the disk cache. Write `[[disk_device]]` once for each device; each object is stored on one \
         device. Without devices there is no disk cache. See docs/how-to/disk-cache.md.",
    ),
    ("disk", "How the disk cache writes and reads."),
    (
        "disk_host",
        "Hosts with their own rule of admission to disk. Write `[[disk_host]]` once for each host.",
    ),
    (
        "caching",
        "The choices that RFC 9111 leaves to the operator of a cache.",
    ),
    (
        "ranges",
        "Requests for a range of a large response. See docs/how-to/ranges.md.",
    ),
    (
        "compression",
        "Compression of stored responses that the origin sends without a coding. See docs/how-to/compression.md.",
    ),
    (
        "negative",
        "Paths for which the edge answers 404 itself if the id in the path certainly does not exist. Write \
         `[[negative]]` once for each path. See docs/how-to/negative-lookups.md.",
    ),
    (
        "forwarding",
        "Request fields that are added or removed before a request is forwarded to the origin.",
    ),
    ("server", "Threads, shutdown and name of the process."),
    (
        "admin",
        "The server of metrics, status and the admin API. See docs/reference/admin-api.md.",
    ),
    (
        "admin.token",
        "Tokens of the admin API with their roles. Write `[[admin.token]]` once for each. The token of \
         `purge.token_file` has all roles.",
    ),
    (
        "purge",
        "Purges: who may purge, and how many purges are remembered. See docs/how-to/purge.md.",
    ),
    ("access_log", "The log of requests."),
    (
        "tracing",
        "Traces of sampled requests, which are exported by OTLP. See docs/how-to/logs-and-metrics.md.",
    ),
    (
        "limits",
        "Limits of the memory, connections and time that clients and origins can use.",
    ),
    (
        "overload",
        "Bounds above which the edge sheds load. See docs/how-to/overload.md.",
    ),
    (
        "watchdog",
        "The watchdog of the worker threads. See docs/how-to/overload.md.",
    ),
];

/// The array of tables whose keys are in `sites`.
pub(super) const SITES: &str = "site";

/// The bounds of timeouts. A timeout below a millisecond would make every operation fail; a timeout above a day
/// has no effect.
const DURATION: Time = Time(Duration::from_millis(1), Duration::from_secs(86_400));

/// The bounds of durations that may be 0: waiting times and lifetimes.
const DURATION_OR_ZERO: Time = Time(Duration::ZERO, Duration::from_secs(86_400));

const TIB_16: ByteSize = ByteSize::gib(16 << 10);
