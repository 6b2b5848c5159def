//! The settings of the cache on disk.

use std::time::Duration;

use edgeward_store::disk::DeviceSettings;
use edgeward_types::ByteSize;

use super::row::{DURATION_OR_ZERO, Key, TIB_16, rows};
use crate::config::draft::{ConfigDraft, DraftHost, Part as _};
use crate::config::value::{
    Count, DiskRule, Host, OrNone, PathName, ReinsertionRule, Size, Switch, Time, Unset, Word,
};

pub(super) static ROWS: &[Key] = rows! {
    /// A directory in which the edge creates the file of the store, or a file or block device that is the store. If the
    /// path does not exist but its folder does, the edge creates a file of `capacity` bytes. The edge locks the store
    /// while it runs. An existing file or device must either be a store already or be blank, that is, have only zeros
    /// in its first and last MiB.
    "disk_device.path" restart,
        flags "--disk PATH" "Directory, file or device of the disk cache; repeatable": PathName => DeviceSettings.path;

    /// The size of the store in bytes. An existing store can grow but not shrink. Default: the whole block device or
    /// existing file.
    "disk_device.capacity" restart,
        flags "--disk-size SIZE" "Size of a disk, such as 10GiB; once for each --disk":
        Unset(Size(ByteSize::mib(16), ByteSize::gib(32 << 10))) => DeviceSettings.capacity;

    /// The rule that decides when a response is written to disk: `second-hit` at its second request, `nth-hit:N` at its
    /// Nth request, `always` at its first request, `never` not at all. `size-density:SIZE` writes it at its Nth
    /// request: N is the size of the response divided by SIZE, rounded up, at most 8. Without SIZE the divisor is half
    /// of the mean size of requested responses. Hits in memory are not counted. The eviction from memory of an object
    /// that had hits there counts as one request. `[[disk_host]]` sets another rule for a host. `edgeward simulate
    /// --disk` predicts the result of each rule.
    "disk.admission" restart,
        flag "--disk-admission RULE" "Rule of admission to disk: second-hit, always, …":
        DiskRule => ConfigDraft.disk.admission;

    /// The number of distinct keys for which the memory of admission is sized. Admission remembers a key until
    /// approximately one to two times this number of distinct keys were requested after it. `"none"`: one key for each
    /// 32 KiB of disk.
    "disk.expected_keys" restart,
        hidden_flag "--disk-expected-keys N" "Number of distinct keys that admission to disk remembers":
        OrNone(Count::of(1, 100_000_000_000)) => ConfigDraft.disk.expected_keys;

    /// False positives of admission: how many of a million first requests may be counted as repeated requests. Each
    /// false positive causes a needless write. A lower value takes more memory.
    "disk.false_positives_per_million" restart: Count::of(1, 500_000),
        get: |draft, _| Some((draft.disk.false_positive_rate * 1e6).round() as u64),
        set: |draft, _, value: u64| draft.disk.false_positive_rate = value as f64 / 1e6;

    /// The largest response that is written to disk. `"none"`: the largest response that the smallest device accepts.
    /// Responses are streamed, so the limit may exceed the memory.
    "disk.object_bytes_max" restart:
        OrNone(Size(ByteSize(1), TIB_16)) => ConfigDraft.disk.settings.object_bytes_max;

    /// The size of a segment, the unit in which a device is filled and reclaimed. Applies only when a device is
    /// formatted. `"none"`: 64 MiB, or less on a small device.
    "disk.segment_bytes" restart:
        OrNone(Size(ByteSize::kib(256), ByteSize::gib(2))) => ConfigDraft.disk.settings.segment_bytes;

    /// The memory per device for bodies that wait to be written, in addition to `hot.capacity`. If it is full, further
    /// writes are dropped and counted, and requests do not wait.
    "disk.queue_bytes" restart:
        Size(ByteSize::mib(1), ByteSize::gib(64)) => ConfigDraft.disk.settings.queue_bytes;

    /// Which objects of the oldest segment are written again when it is reclaimed: `fifo`: none. `fifo-reinsertion:N`:
    /// objects with at least N hits. `hits-per-byte`: the objects with the most hits per byte, up to half of the
    /// segment.
    "disk.reinsertion" restart: ReinsertionRule => ConfigDraft.disk.settings.reinsertion;

    /// Which writes bypass the page cache (`O_DIRECT`), if the file system supports it: `"auto"`: the writes to a
    /// device while it is written faster than 32 MiB per second. `"always"`: all. `"never"`: none. Direct writes
    /// disturb reads less and evict no pages from the page cache. Their disadvantage: the first read of an object goes
    /// to the device, and large bodies are sent from the page cache about 10 % more slowly.
    "disk.direct_writes" restart: Word::OF => ConfigDraft.disk.settings.direct_writes;

    /// How long objects are collected before they are written, in writes of up to a mebibyte. If `sync_interval` is
    /// shorter, it applies instead. Until the write, bodies of up to a mebibyte are served from memory, and requests
    /// for larger bodies are misses.
    "disk.flush_interval" restart:
        Time(Duration::from_millis(1), Duration::from_secs(3600)) => ConfigDraft.disk.settings.flush_interval;

    /// The longest time until writes and removals are durable, that is, survive a crash of the machine.
    "disk.sync_interval" restart:
        Time(Duration::from_millis(10), Duration::from_secs(3600)) => ConfigDraft.disk.settings.sync_interval;

    /// The longest time that a response to POST, PUT, DELETE or another unsafe method waits until its invalidation is
    /// durable on disk. After this time the response is sent anyway, and `edgeward_invalidations_not_durable_total`
    /// counts it. 0: responses do not wait.
    "disk.invalidation_wait_max" restart:
        Time(Duration::ZERO, Duration::from_secs(60)) => ConfigDraft.disk.invalidation_wait_max;

    /// The time between two checkpoints of the index, which shorten the start after a crash. 0: a checkpoint only at
    /// shutdown.
    "disk.checkpoint_interval" restart: DURATION_OR_ZERO => ConfigDraft.disk.settings.checkpoint_interval;

    /// How long a part of a body is served from the page cache after a check of its checksum, before the next check.
    /// Damaged data can be served for this time. Resolution: one second. 0: check at each read.
    "disk.verify_every" restart: DURATION_OR_ZERO => ConfigDraft.disk.settings.verify_every;

    /// The number of threads that read from the devices. Reads from the page cache need no thread.
    "disk.read_threads" restart: Count::of(1, 1024) => ConfigDraft.disk.read_threads;

    /// The maximum of lookups that wait for a read thread. A further lookup is a miss and is counted as busy.
    "disk.reads_waiting_max" restart: Count::of(1, 1_000_000) => ConfigDraft.disk.reads_waiting_max;

    /// If true, the edge writes the objects in memory that the disk lacks when it stops, and fills memory from the disk
    /// when it starts. See docs/how-to/disk-cache.md#restart-with-a-warm-cache. If false, a start finds the objects on
    /// disk only, and memory is empty.
    "disk.warm_restart" restart: Switch => ConfigDraft.disk.restart.enabled;

    /// The longest time for which a stopping edge writes objects of memory, after its connections have ended. The most
    /// valuable objects are written first. The program that stops the edge must wait at least for the sum of
    /// `server.drain_timeout` and this time, and 5 s more. 0: the edge writes no objects of memory.
    "disk.shutdown_write_time" restart:
        Time(Duration::ZERO, Duration::from_secs(3600)) => ConfigDraft.disk.restart.write_time_max;

    /// The most bytes of bodies that a stopping edge writes. On disk they replace the oldest objects, so a value above
    /// a part of the disk's capacity is of no use.
    "disk.shutdown_write_bytes" restart:
        Size(ByteSize(0), ByteSize::gib(32 << 10)) => ConfigDraft.disk.restart.write_bytes_max;

    /// The file of the list of the objects in memory, from which the next start fills memory. By default it is
    /// `hot.list` in the first device's directory, or it lies beside the device's file with the suffix `.hot`. A block
    /// device has no default: memory is then empty after a start. The file takes 16 bytes per object.
    "disk.hot_list" restart: Unset(PathName) => ConfigDraft.disk.restart.list;

    /// The time between two writes of the list of the objects in memory. After a crash, memory is filled from the last
    /// list. 0: the list is written only at shutdown.
    "disk.hot_list_interval" restart: DURATION_OR_ZERO => ConfigDraft.disk.restart.list_interval;

    /// A host, such as `"www.example.com"`, or all hosts below a domain, such as `"*.example.com"`. Ports are ignored.
    /// The most specific match applies.
    "disk_host.host" restart: Unset(Host) => DraftHost.host;

    /// The rule of admission for responses of this host; the values are those of `disk.admission`. Each distinct rule
    /// remembers requests separately and takes memory of its own.
    "disk_host.admission" restart: Unset(DiskRule) => DraftHost.admission;
};
