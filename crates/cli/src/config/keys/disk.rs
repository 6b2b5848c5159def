//! The settings of the cache on disk.

use std::num::NonZeroU64;
use std::time::Duration;

use edgeward_store::disk::DirectWrites;
use edgeward_types::ByteSize;

use super::super::choice::Choice as _;
use super::super::draft::path_text;
use super::super::kind::{NONE, ValueKind, duration_text, size_text};
use super::Key;

pub(super) const PATH: Key = Key {
    path: "disk_device.path",
    flag: Some("--disk"),
    kind: ValueKind::Path,
    doc: "A directory in which the edge creates the file of the store, or a file or block device that is the store. If \
          the path does not exist but its folder does, the edge creates a file of `capacity` bytes. The edge locks the \
          store while it runs. An existing file or device must either be a store already or be blank, that is, have \
          only zeros in its first and last MiB.",
    set: |draft, item, value| draft.device(item).path = value.file(),
    show: |draft, item| {
        let path = &draft.disk.settings.devices.get(item)?.path;
        Some(path_text(path))
    },
};

pub(super) const CAPACITY: Key = Key {
    path: "disk_device.capacity",
    flag: Some("--disk-size"),
    kind: ValueKind::Size {
        min: ByteSize::mib(16),
        max: ByteSize::gib(32 << 10),
    },
    doc: "The size of the store in bytes. An existing store can grow but not shrink. Default: the whole block device \
          or existing file.",
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
    kind: ValueKind::DiskAdmission,
    doc: "The rule that decides when a response is written to disk: `second-hit` at its second request, `nth-hit:N` \
          at its Nth request, `always` at its first request, `never` not at all. `size-density:SIZE` writes it at \
          its Nth request: N is the size of the response divided by SIZE, rounded up, at most 8. Without SIZE the \
          divisor is half of the mean size of requested responses. Hits in memory are not counted. The eviction from \
          memory of an object that had hits there counts as one request. `[[disk_host]]` sets another rule for a \
          host. `edgeward simulate --disk` predicts the result of each rule.",
    set: |draft, _, value| draft.disk.admission = value.disk_admission(),
    show: |draft, _| Some(draft.disk.admission.to_string()),
};

pub(super) const INVALIDATION_WAIT_MAX: Key = Key {
    path: "disk.invalidation_wait_max",
    flag: None,
    kind: ValueKind::Duration {
        min: Duration::ZERO,
        max: Duration::from_secs(60),
    },
    doc: "The longest time that a response to POST, PUT, DELETE or another unsafe method waits until its \
          invalidation is durable on disk. After this time the response is sent anyway, and \
          `edgeward_invalidations_not_durable_total` counts it. 0: responses do not wait.",
    set: |draft, _, value| draft.disk.invalidation_wait_max = value.duration(),
    show: |draft, _| Some(duration_text(draft.disk.invalidation_wait_max)),
};

pub(super) const HOST: Key = Key {
    path: "disk_host.host",
    flag: None,
    kind: ValueKind::HostPattern,
    doc: "A host, such as `\"www.example.com\"`, or all hosts below a domain, such as `\"*.example.com\"`. Ports are \
          ignored. The most specific match applies.",
    set: |draft, item, value| draft.disk_host(item).host = Some(value.host_pattern()),
    show: |draft, item| Some(draft.disk_hosts.get(item)?.host.as_ref()?.to_string()),
};

pub(super) const HOST_ADMISSION: Key = Key {
    path: "disk_host.admission",
    flag: None,
    kind: ValueKind::DiskAdmission,
    doc: "The rule of admission for responses of this host; the values are those of `disk.admission`. Each distinct \
          rule remembers requests separately and takes memory of its own.",
    set: |draft, item, value| draft.disk_host(item).admission = Some(value.disk_admission()),
    show: |draft, item| Some(draft.disk_hosts.get(item)?.admission?.to_string()),
};

pub(super) const EXPECTED_KEYS: Key = Key {
    path: "disk.expected_keys",
    flag: Some("--disk-expected-keys"),
    kind: ValueKind::CountOrNone {
        min: 1,
        max: 100_000_000_000,
    },
    doc: "The number of distinct keys for which the memory of admission is sized. Admission remembers a key until \
          approximately one to two times this number of distinct keys were requested after it. `\"none\"`: one key \
          for each 32 KiB of disk.",
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
    kind: ValueKind::Count {
        min: 1,
        max: 500_000,
    },
    doc: "False positives of admission: how many of a million first requests may be counted as repeated requests. Each \
          false positive causes a needless write. A lower value takes more memory.",
    set: |draft, _, value| draft.disk.false_positive_rate = value.number() as f64 / 1e6,
    show: |draft, _| Some(format!("{:.0}", draft.disk.false_positive_rate * 1e6)),
};

pub(super) const OBJECT_BYTES_MAX: Key = Key {
    path: "disk.object_bytes_max",
    flag: None,
    kind: ValueKind::SizeOrNone {
        min: ByteSize(1),
        max: ByteSize::gib(16 << 10),
    },
    doc: "The largest response that is written to disk. `\"none\"`: the largest response that the smallest device \
          accepts. Responses are streamed, so the limit may exceed the memory.",
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
    kind: ValueKind::SizeOrNone {
        min: ByteSize::kib(256),
        max: ByteSize::gib(2),
    },
    doc: "The size of a segment, the unit in which a device is filled and reclaimed. Applies only when a device is \
          formatted. `\"none\"`: 64 MiB, or less on a small device.",
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
    kind: ValueKind::Size {
        min: ByteSize::mib(1),
        max: ByteSize::gib(64),
    },
    doc: "The memory per device for bodies that wait to be written, in addition to `hot.capacity`. If it is full, \
          further writes are dropped and counted, and requests do not wait.",
    set: |draft, _, value| draft.disk.settings.queue_bytes = value.size(),
    show: |draft, _| Some(size_text(draft.disk.settings.queue_bytes)),
};

pub(super) const REINSERTION: Key = Key {
    path: "disk.reinsertion",
    flag: None,
    kind: ValueKind::Reinsertion,
    doc: "Which objects of the oldest segment are written again when it is reclaimed: `fifo`: none. \
          `fifo-reinsertion:N`: objects with at least N hits. `hits-per-byte`: the objects with the most hits per \
          byte, up to half of the segment.",
    set: |draft, _, value| draft.disk.settings.reinsertion = value.reinsertion(),
    show: |draft, _| Some(draft.disk.settings.reinsertion.to_string()),
};

pub(super) const DIRECT_WRITES: Key = Key {
    path: "disk.direct_writes",
    flag: None,
    kind: ValueKind::Choice(DirectWrites::WORDS),
    doc: "Which writes bypass the page cache (`O_DIRECT`), if the file system supports it: `\"auto\"`: the \
          writes to a device while it is written faster than 32 MiB per second. `\"always\"`: all. `\"never\"`: none. \
          Direct writes disturb reads less and evict no pages from the page cache. Their disadvantage: the first \
          read of an object goes to the device, and large bodies are sent from the page cache about 10 % more slowly.",
    set: |draft, _, value| draft.disk.settings.direct_writes = value.choice(),
    show: |draft, _| Some(draft.disk.settings.direct_writes.word().to_owned()),
};

pub(super) const FLUSH_INTERVAL: Key = Key {
    path: "disk.flush_interval",
    flag: None,
    kind: ValueKind::Duration {
        min: Duration::from_millis(1),
        max: Duration::from_secs(3600),
    },
    doc: "How long objects are collected before they are written, in writes of up to a mebibyte. If `sync_interval` \
          is shorter, it applies instead. Until the write, bodies of up to a mebibyte are served from memory, and \
          requests for larger bodies are misses.",
    set: |draft, _, value| draft.disk.settings.flush_interval = value.duration(),
    show: |draft, _| Some(duration_text(draft.disk.settings.flush_interval)),
};

pub(super) const SYNC_INTERVAL: Key = Key {
    path: "disk.sync_interval",
    flag: None,
    kind: ValueKind::Duration {
        min: Duration::from_millis(10),
        max: Duration::from_secs(3600),
    },
    doc: "The longest time until writes and removals are durable, that is, survive a crash of the machine.",
    set: |draft, _, value| draft.disk.settings.sync_interval = value.duration(),
    show: |draft, _| Some(duration_text(draft.disk.settings.sync_interval)),
};

pub(super) const CHECKPOINT_INTERVAL: Key = Key {
    path: "disk.checkpoint_interval",
    flag: None,
    kind: super::DURATION_OR_ZERO,
    doc: "The time between two checkpoints of the index, which shorten the start after a crash. 0: a checkpoint only \
          at shutdown.",
    set: |draft, _, value| draft.disk.settings.checkpoint_interval = value.duration(),
    show: |draft, _| Some(duration_text(draft.disk.settings.checkpoint_interval)),
};

pub(super) const VERIFY_EVERY: Key = Key {
    path: "disk.verify_every",
    flag: None,
    kind: super::DURATION_OR_ZERO,
    doc: "How long a part of a body is served from the page cache after a check of its checksum, before the next \
          check. Damaged data can be served for this time. Resolution: one second. 0: check at each read.",
    set: |draft, _, value| draft.disk.settings.verify_every = value.duration(),
    show: |draft, _| Some(duration_text(draft.disk.settings.verify_every)),
};

pub(super) const READ_THREADS: Key = Key {
    path: "disk.read_threads",
    flag: None,
    kind: ValueKind::Count { min: 1, max: 1024 },
    doc: "The number of threads that read from the devices. Reads from the page cache need no thread.",
    set: |draft, _, value| draft.disk.read_threads = value.nonzero(),
    show: |draft, _| Some(draft.disk.read_threads.to_string()),
};

pub(super) const READS_WAITING_MAX: Key = Key {
    path: "disk.reads_waiting_max",
    flag: None,
    kind: ValueKind::Count {
        min: 1,
        max: 1_000_000,
    },
    doc: "The maximum of lookups that wait for a read thread. A further lookup is a miss and is counted as busy.",
    set: |draft, _, value| draft.disk.reads_waiting_max = value.nonzero(),
    show: |draft, _| Some(draft.disk.reads_waiting_max.to_string()),
};
