//! The settings of `[disk]` that concern a restart.

use std::time::Duration;

use edgeward_types::ByteSize;

use super::super::draft::path_text;
use super::super::kind::{ValueKind, duration_text, size_text};
use super::Key;

pub(super) const WARM_RESTART: Key = Key {
    path: "disk.warm_restart",
    flag: None,
    kind: ValueKind::Switch,
    doc: "If true, the edge writes the objects in memory that the disk lacks when it stops, and fills memory from the \
          disk when it starts. See docs/how-to/disk-cache.md#restart-with-a-warm-cache. If false, a start finds the \
          objects on disk only, and memory is empty.",
    set: |draft, _, value| draft.disk.restart.enabled = value.switch(),
    show: |draft, _| Some(draft.disk.restart.enabled.to_string()),
};

pub(super) const SHUTDOWN_WRITE_TIME: Key = Key {
    path: "disk.shutdown_write_time",
    flag: None,
    kind: ValueKind::Duration {
        min: Duration::ZERO,
        max: Duration::from_secs(3600),
    },
    doc: "The longest time for which a stopping edge writes objects of memory, after its connections have ended. The \
          most valuable objects are written first. The program that stops the edge must wait at least for the sum of \
          `server.drain_timeout` and this time, and 5 s more. 0: the edge writes no objects of memory.",
    set: |draft, _, value| draft.disk.restart.write_time_max = value.duration(),
    show: |draft, _| Some(duration_text(draft.disk.restart.write_time_max)),
};

pub(super) const SHUTDOWN_WRITE_BYTES: Key = Key {
    path: "disk.shutdown_write_bytes",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize(0),
        max: ByteSize::gib(32 << 10),
    },
    doc: "The most bytes of bodies that a stopping edge writes. On disk they replace the oldest objects, so a value \
          above a part of the disk's capacity is of no use.",
    set: |draft, _, value| draft.disk.restart.write_bytes_max = value.size(),
    show: |draft, _| Some(size_text(draft.disk.restart.write_bytes_max)),
};

pub(super) const HOT_LIST: Key = Key {
    path: "disk.hot_list",
    flag: None,
    kind: ValueKind::Path,
    doc: "The file of the list of the objects in memory, from which the next start fills memory. By default it is \
          `hot.list` in the first device's directory, or it lies beside the device's file with the suffix `.hot`. A \
          block device has no default: memory is then empty after a start. The file takes 16 bytes per object.",
    set: |draft, _, value| draft.disk.restart.list = Some(value.file()),
    show: |draft, _| draft.disk.restart.list.as_deref().map(path_text),
};

pub(super) const HOT_LIST_INTERVAL: Key = Key {
    path: "disk.hot_list_interval",
    flag: None,
    kind: super::DURATION_OR_ZERO,
    doc: "The time between two writes of the list of the objects in memory. After a crash, memory is filled from the \
          last list. 0: the list is written only at shutdown.",
    set: |draft, _, value| draft.disk.restart.list_interval = value.duration(),
    show: |draft, _| Some(duration_text(draft.disk.restart.list_interval)),
};
