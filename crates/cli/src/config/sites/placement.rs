//! Keys that state in which tiers bodies are stored, and which id filters answer.

use edgeward_sites::{DiskPlacement, IdFilters};

use super::row::{SiteKey, rows};
use super::values::Text;

pub(super) static KEYS: &[SiteKey] = rows! {
    /// `never` keeps bodies out of memory: they are stored only on disk, and hits are read from there. It keeps large
    /// downloads that are rarely repeated from evicting small objects. With `normal`, the policy of `[hot]` decides.
    /// Objects that are already in memory stay until they are evicted.
    "memory" setting: Text {
            name: "`\"normal\"` or `\"never\"`",
            noun_phrase: "a rule for memory",
            example: "\"never\"",
            parse: |text| match text {
                "normal" => Ok(true),
                "never" => Ok(false),
                _ => Err("is not a rule for memory; write normal or never"),
            },
        } => memory,
        default "`\"normal\"`", example "memory = \"never\"";

    /// `never` keeps bodies off the disk, also when memory evicts them. `first-request` writes each body at its first
    /// request, as `disk.admission = "always"` does. With `normal`, `[[disk_host]]` or `disk.admission` decides. Has no
    /// effect without a disk.
    "disk" setting: Text {
            name: "`\"normal\"`, `\"never\"` or `\"first-request\"`",
            noun_phrase: "a rule for the disk",
            example: "\"never\"",
            parse: |text| match text {
                "normal" => Ok(DiskPlacement::Normal),
                "never" => Ok(DiskPlacement::Never),
                "first-request" => Ok(DiskPlacement::FirstRequest),
                _ => Err("is not a rule for the disk; write normal, never or first-request"),
            },
        } => disk,
        default "`\"normal\"`", example "disk = \"first-request\"";

    /// The id filters that may answer requests with 404: those of the `[[negative]]` with this name, `all` or none.
    /// `[[negative]]` compares only paths, so a site for other objects with the same paths needs its own filter or
    /// `off`.
    "id_filter" setting: "name, `\"all\"` or `\"off\"`",
        default "`\"all\"`", example "id_filter = \"off\"",
        read: |reader, entry, rule| {
            let name = reader.text(entry, "the name of a filter", "\"off\"");
            rule.settings.id_filters = name.map(|name| match name {
                "all" => IdFilters::All,
                "off" => IdFilters::Off,
                name => IdFilters::Named(name.into()),
            });
            rule.id_filter_line = Some(entry.line);
        };
};
