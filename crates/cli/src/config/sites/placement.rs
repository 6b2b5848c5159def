//! Keys that state in which tiers bodies are stored, and which id filters answer.

use edgeward_sites::{DiskPlacement, IdFilters};

use super::keys::{Read, SiteKey};

pub(super) const KEYS: &[SiteKey] = &[
    SiteKey {
        path: "memory",
        kind: "`\"normal\"` or `\"never\"`",
        default: "`\"normal\"`",
        example: "memory = \"never\"",
        doc: "`never` keeps bodies out of memory: they are stored only on disk, and hits are read from there. It keeps \
              large downloads that are rarely repeated from evicting small objects. With `normal`, the policy of \
              `[hot]` decides. Objects that are already in memory stay until they are evicted.",
        read: Read::Setting(|reader, entry, rule| {
            let parse = |text: &str| match text {
                "normal" => Ok(true),
                "never" => Ok(false),
                _ => Err("is not a rule for memory; write normal or never"),
            };
            let stores = reader.parse(entry, "a rule for memory", "\"never\"", parse);
            rule.settings.memory = stores.or(rule.settings.memory);
        }),
    },
    SiteKey {
        path: "disk",
        kind: "`\"normal\"`, `\"never\"` or `\"first-request\"`",
        default: "`\"normal\"`",
        example: "disk = \"first-request\"",
        doc: "`never` keeps bodies off the disk, also when memory evicts them. `first-request` writes each body at its \
              first request, as `disk.admission = \"always\"` does. With `normal`, `[[disk_host]]` or \
              `disk.admission` decides. Has no effect without a disk.",
        read: Read::Setting(|reader, entry, rule| {
            let parse = |text: &str| match text {
                "normal" => Ok(DiskPlacement::Normal),
                "never" => Ok(DiskPlacement::Never),
                "first-request" => Ok(DiskPlacement::FirstRequest),
                _ => Err("is not a rule for the disk; write normal, never or first-request"),
            };
            let placement = reader.parse(entry, "a rule for the disk", "\"never\"", parse);
            rule.settings.disk = placement.or(rule.settings.disk);
        }),
    },
    SiteKey {
        path: "id_filter",
        kind: "name, `\"all\"` or `\"off\"`",
        default: "`\"all\"`",
        example: "id_filter = \"off\"",
        doc: "The id filters that may answer requests with 404: those of the `[[negative]]` with this name, `all` or \
              none. `[[negative]]` compares only paths, so a site for other objects with the same paths needs its own \
              filter or `off`.",
        read: Read::Setting(|reader, entry, rule| {
            let name = reader.text(entry, "the name of a filter", "\"off\"");
            rule.settings.id_filters = name.map(|name| match name {
                "all" => IdFilters::All,
                "off" => IdFilters::Off,
                name => IdFilters::Named(name.into()),
            });
            rule.id_filter_line = Some(entry.line);
        }),
    },
];
