//! The settings of the cache on disk.

use std::num::NonZeroU64;
use std::time::Duration;

use edgeward_store::disk::DirectWrites;
use edgeward_types::ByteSize;

use super::super::check::path_text;
use super::super::choice::Choice as _;
use super::super::kind::{Kind, NONE, duration_text, size_text};
use super::Key;

pub(super) const PATH: Key = Key {
    path: "disk_device.path",
    flag: Some("--disk"),
    kind: Kind::Path,
    doc: "A directory, in which a file is made, or a file or block device that becomes the store. A path that is missing \
          becomes a file of `capacity` if its folder exists. It is locked \
          while the edge runs. What lies there must be a store already, or blank: zeros in its first and last MiB.",
    set: |draft, item, value| draft.device(item).path = value.file(),
    show: |draft, item| {
        let path = &draft.disk.settings.devices.get(item)?.path;
        Some(path_text(path))
    },
};

pub(super) const CAPACITY: Key = Key {
    path: "disk_device.capacity",
    flag: Some("--disk-size"),
    kind: Kind::Size {
        least: ByteSize::mib(16),
        most: ByteSize::gib(32 << 10),
    },
    doc: "How much of it to use. A store that is there may grow but not shrink. Of a block device and of a file that \
          is there all is used where nothing is said.",
    set: |draft, item, value| draft.device(item).capacity = Some(value.size()),
    show: |draft, item| {
        draft
            .disk
            .settings
            .devices
            .get(item)?
            .capacity
            .map(size_text)
    },
};

pub(super) const ADMISSION: Key = Key {
    path: "disk.admission",
    flag: Some("--disk-admission"),
    kind: Kind::DiskAdmission,
    doc: "What is written: `second-hit` a response at its second request, `nth-hit:N` at its Nth, `always` at the first, \
          `never` none, `size-density:SIZE` once it was asked for once per so many of its bytes, `size-density` by half of the mean \
          size of what is asked for. `[[disk_host]]` names hosts with another rule. \
          `edgeward simulate --disk` tells beforehand what each would bring.",
    set: |draft, _, value| draft.disk.admission = value.disk_admission(),
    show: |draft, _| Some(draft.disk.admission.to_string()),
};

pub(super) const INVALIDATION_WAIT_MAX: Key = Key {
    path: "disk.invalidation_wait_max",
    flag: None,
    kind: Kind::Duration {
        least: Duration::ZERO,
        most: Duration::from_secs(60),
    },
    doc: "Longest a response to POST, PUT, DELETE or another unsafe method waits until the invalidation it caused is durable on disk. \
          Then the response is released and `edgeward_invalidations_not_durable_total` counts it. Zero does not wait.",
    set: |draft, _, value| draft.disk.invalidation_wait_max = value.duration(),
    show: |draft, _| Some(duration_text(draft.disk.invalidation_wait_max)),
};

pub(super) const HOST: Key = Key {
    path: "disk_host.host",
    flag: None,
    kind: Kind::HostPattern,
    doc: "Whose responses: a host, `\"www.example.com\"`, or all hosts below a domain, `\"*.example.com\"`. Ports are not looked \
          at. The most specific name that fits counts.",
    set: |draft, item, value| draft.disk_host(item).host = Some(value.host_pattern()),
    show: |draft, item| Some(draft.disk_hosts.get(item)?.host.as_ref()?.to_string()),
};

pub(super) const HOST_ADMISSION: Key = Key {
    path: "disk_host.admission",
    flag: None,
    kind: Kind::DiskAdmission,
    doc: "What of them is written, in the words of `disk.admission`. Each rule that is in use remembers requests on its own, and \
          takes as much memory for that.",
    set: |draft, item, value| draft.disk_host(item).admission = Some(value.disk_admission()),
    show: |draft, item| Some(draft.disk_hosts.get(item)?.admission?.to_string()),
};

pub(super) const EXPECTED_KEYS: Key = Key {
    path: "disk.expected_keys",
    flag: Some("--disk-expected-keys"),
    kind: Kind::CountOrNone {
        least: 1,
        most: 100_000_000_000,
    },
    doc: "Distinct keys that admission remembers for a period, the time in which so many come by. `\"none\"`: one for each \
          32 KiB of disk.",
    set: |draft, _, value| {
        draft.disk.expected_keys = value
            .optional(super::Value::number)
            .and_then(NonZeroU64::new);
    },
    show: |draft, _| {
        let keys = draft.disk.expected_keys.map(|keys| keys.to_string());
        Some(keys.unwrap_or_else(|| NONE.to_owned()))
    },
};

pub(super) const FALSE_POSITIVES: Key = Key {
    path: "disk.false_positives_per_million",
    flag: None,
    kind: Kind::Count {
        least: 1,
        most: 500_000,
    },
    doc: "Of a million first requests, how many admission may take for later ones: each is a needless write. Fewer \
          take more memory.",
    set: |draft, _, value| draft.disk.false_positive_rate = value.number() as f64 / 1e6,
    show: |draft, _| Some(format!("{:.0}", draft.disk.false_positive_rate * 1e6)),
};

pub(super) const OBJECT_BYTES_MAX: Key = Key {
    path: "disk.object_bytes_max",
    flag: None,
    kind: Kind::SizeOrNone {
        least: ByteSize(1),
        most: ByteSize::gib(16 << 10),
    },
    doc: "Larger responses are not written to disk. `\"none\"`: up to what the smallest device takes. They are streamed: \
          memory is no bound.",
    set: |draft, _, value| {
        draft.disk.settings.object_bytes_max = value.optional(super::Value::size);
    },
    show: |draft, _| {
        let size = draft.disk.settings.object_bytes_max.map(size_text);
        Some(size.unwrap_or_else(|| NONE.to_owned()))
    },
};

pub(super) const SEGMENT_BYTES: Key = Key {
    path: "disk.segment_bytes",
    flag: None,
    kind: Kind::SizeOrNone {
        least: ByteSize::kib(256),
        most: ByteSize::gib(2),
    },
    doc: "Size of the pieces in which a device is filled and emptied, for one that is formatted now. `\"none\"`: 64 MiB, \
          less on a small device.",
    set: |draft, _, value| {
        draft.disk.settings.segment_bytes = value.optional(super::Value::size);
    },
    show: |draft, _| {
        let size = draft.disk.settings.segment_bytes.map(size_text);
        Some(size.unwrap_or_else(|| NONE.to_owned()))
    },
};

pub(super) const QUEUE_BYTES: Key = Key {
    path: "disk.queue_bytes",
    flag: None,
    kind: Kind::Size {
        least: ByteSize::mib(1),
        most: ByteSize::gib(64),
    },
    doc: "Memory for bodies on their way to each device, beside `hot.capacity`. Beyond it writes are dropped and \
          counted; no request waits.",
    set: |draft, _, value| draft.disk.settings.queue_bytes = value.size(),
    show: |draft, _| Some(size_text(draft.disk.settings.queue_bytes)),
};

pub(super) const REINSERTION: Key = Key {
    path: "disk.reinsertion",
    flag: None,
    kind: Kind::Reinsertion,
    doc: "What of the oldest segment is written again when it makes room: `fifo` nothing, `fifo-reinsertion:N` what was \
          hit N times, `hits-per-byte` what brings most for its size, up to half of the segment.",
    set: |draft, _, value| draft.disk.settings.reinsertion = value.reinsertion(),
    show: |draft, _| Some(draft.disk.settings.reinsertion.to_string()),
};

pub(super) const DIRECT_WRITES: Key = Key {
    path: "disk.direct_writes",
    flag: None,
    kind: Kind::Choice(DirectWrites::WORDS),
    doc: "Which writes go to the devices without passing through the page cache (`O_DIRECT`), where the file system can do that: \
          those of a device that is written faster than 32 MiB a second, all, or none. They disturb those who are served less \
          and displace nothing that is read; in return the first read of an object is the device's, and large bodies leave \
          the page cache a tenth slower.",
    set: |draft, _, value| draft.disk.settings.direct_writes = value.choice(),
    show: |draft, _| Some(draft.disk.settings.direct_writes.word().to_owned()),
};

pub(super) const FLUSH_INTERVAL: Key = Key {
    path: "disk.flush_interval",
    flag: None,
    kind: Kind::Duration {
        least: Duration::from_millis(1),
        most: Duration::from_secs(3600),
    },
    doc: "What is to be written is gathered to writes of a mebibyte, and for this long at the most, or for \
          `sync_interval` where that is shorter. Bodies up to a mebibyte are served meanwhile, longer ones are not found yet.",
    set: |draft, _, value| draft.disk.settings.flush_interval = value.duration(),
    show: |draft, _| Some(duration_text(draft.disk.settings.flush_interval)),
};

pub(super) const SYNC_INTERVAL: Key = Key {
    path: "disk.sync_interval",
    flag: None,
    kind: Kind::Duration {
        least: Duration::from_millis(10),
        most: Duration::from_secs(3600),
    },
    doc: "What came to be written, and what was forgotten, outlives a crash of the machine after this at the latest.",
    set: |draft, _, value| draft.disk.settings.sync_interval = value.duration(),
    show: |draft, _| Some(duration_text(draft.disk.settings.sync_interval)),
};

pub(super) const CHECKPOINT_INTERVAL: Key = Key {
    path: "disk.checkpoint_interval",
    flag: None,
    kind: super::DURATION_OR_ZERO,
    doc: "How often the index is written down, so that a start after a crash is quick. Zero: at shutdown alone.",
    set: |draft, _, value| draft.disk.settings.checkpoint_interval = value.duration(),
    show: |draft, _| Some(duration_text(draft.disk.settings.checkpoint_interval)),
};

pub(super) const VERIFY_EVERY: Key = Key {
    path: "disk.verify_every",
    flag: None,
    kind: super::DURATION_OR_ZERO,
    doc: "How long a part of a body that was compared with its checksum may be served from the page cache without being compared again. So long a bit that turned on the device may be served. To the second. Zero: compared at each read.",
    set: |draft, _, value| draft.disk.settings.verify_every = value.duration(),
    show: |draft, _| Some(duration_text(draft.disk.settings.verify_every)),
};

pub(super) const READ_THREADS: Key = Key {
    path: "disk.read_threads",
    flag: None,
    kind: Kind::Count {
        least: 1,
        most: 1024,
    },
    doc: "Threads that wait for the devices. What lies in the page cache needs none of them.",
    set: |draft, _, value| draft.disk.read_threads = value.nonzero(),
    show: |draft, _| Some(draft.disk.read_threads.to_string()),
};

pub(super) const READS_WAITING_MAX: Key = Key {
    path: "disk.reads_waiting_max",
    flag: None,
    kind: Kind::Count {
        least: 1,
        most: 1_000_000,
    },
    doc: "Lookups that may wait for one of these threads. Beyond it a lookup is a miss and is counted as busy.",
    set: |draft, _, value| draft.disk.reads_waiting_max = value.nonzero(),
    show: |draft, _| Some(draft.disk.reads_waiting_max.to_string()),
};
