//! The settings of `[purge]`.

use super::super::draft::path_text;
use super::super::kind::{Value, ValueKind};
use super::{Key, or_none};

pub(super) const TOKEN_FILE: Key = Key {
    path: "purge.token_file",
    flag: None,
    kind: ValueKind::InputFile,
    doc: "File with the token for purges and for the inspection of the cache over the admin server, at least 16 \
          visible characters. `openssl rand -hex 16` prints one. Clients send it as `Authorization: Bearer TOKEN`. \
          Without this setting, the edge refuses these requests. It needs `admin.address`.",
    set: |draft, _, value| draft.purge_token_file = Some(value.file()),
    show: |draft, _| draft.purge_token_file.as_deref().map(path_text),
};

pub(super) const ALLOW: Key = Key {
    path: "purge.allow",
    flag: None,
    kind: ValueKind::Networks,
    doc: "Clients that may send the methods `PURGE`, `BAN` and `PURGEKEYS`; other clients get 403. The address of \
          the connection must be allowed. If the request has `X-Forwarded-For`, `Forwarded` or a field such as \
          `X-Real-IP`, the client that the field states must be allowed too. `check-config` warns if a proxy that \
          states no client would let all its clients purge. With `none`, the edge forwards these methods to the \
          origin.",
    set: |draft, _, value| {
        draft.edge.purge.allow = match value {
            Value::None => Default::default(),
            value => value.networks(),
        }
    },
    show: |draft, _| {
        let networks = &draft.edge.purge.allow;
        Some(or_none(
            (!networks.0.is_empty()).then(|| networks.to_string()),
        ))
    },
};

pub(super) const COUNT_OBJECTS_MAX: Key = Key {
    path: "purge.count_objects_max",
    flag: None,
    kind: ValueKind::Count {
        min: 0,
        max: 1 << 40,
    },
    doc: "The most stored objects among which a `PURGE` or `BAN` of tags or patterns counts those that it covers, for \
          its answer `purged: N`. The count reads the heads of all objects, which takes about a second per million. \
          With more objects, the answer says that they were not counted. A `PURGE` of a URL is always counted.",
    set: |draft, _, value| draft.edge.purge.count_objects_max = value.number(),
    show: |draft, _| Some(draft.edge.purge.count_objects_max.to_string()),
};

pub(super) const LOG: Key = Key {
    path: "purge.log",
    flag: None,
    kind: ValueKind::Path,
    doc: "The file in which the edge keeps the purges for the disk cache. By default it is `purges.log` in the first \
          device's directory, or it lies beside the device's file with the suffix `.purges`. A block device has no \
          default: without this setting, only hard purges of URLs are accepted. If the file is lost, all objects on \
          disk count as purged.",
    set: |draft, _, value| draft.edge.purge.log = Some(value.file()),
    show: |draft, _| draft.edge.purge.log.as_deref().map(path_text),
};

pub(super) const ENTRIES_MAX: Key = Key {
    path: "purge.entries_max",
    flag: None,
    kind: ValueKind::Count {
        min: 2,
        max: 100_000_000,
    },
    doc: "The most purged tags, hosts and soft-purged URLs that are remembered, at up to 56 bytes each. If more are \
          purged, the edge forgets the oldest half, and objects that were fetched before then count as purged.",
    set: |draft, _, value| draft.edge.purge.entries_max = value.nonzero(),
    show: |draft, _| Some(draft.edge.purge.entries_max.to_string()),
};

pub(super) const PATTERNS_MAX: Key = Key {
    path: "purge.patterns_max",
    flag: None,
    kind: ValueKind::Count {
        min: 1,
        max: 100_000,
    },
    doc: "The most purged prefixes and patterns that are remembered. If more are purged, the edge forgets the oldest \
          one, and objects that were fetched before it count as purged.",
    set: |draft, _, value| draft.edge.purge.patterns_max = value.nonzero(),
    show: |draft, _| Some(draft.edge.purge.patterns_max.to_string()),
};
