//! Reports the devices and the admission of the disk tier in `/status` and `/metrics`.

use edgeward_metrics::{Definition, Family, metrics};
use edgeward_policy::sketch::RotatingBloomStats;
use edgeward_store::disk::{DeviceCounters, DeviceState};
use serde_json::{Value, json};

use super::admission::Rule;
use super::tier::DiskTier;

metrics! {
    const DEVICE: DeviceCounters ["device"] = |device| {
        Gauge "edgeward_disk_capacity_bytes" "Bytes of the device's segments." { device.capacity_bytes }
        Gauge "edgeward_disk_used_bytes"
            "Bytes of the segments in use: those with objects, also with objects that are no longer current."
            { device.used_bytes }
        Gauge "edgeward_disk_objects" "Objects in the device's index." { device.objects }
        Gauge "edgeward_disk_index_bytes"
            "Bytes of the device's index in memory, in addition to the budget of the memory tier." { device.index_bytes }
        Gauge "edgeward_disk_queue_bytes"
            "Bytes of bodies that wait to be written to the device." { device.queue_bytes }
        Gauge "edgeward_disk_queue_messages" "Messages that wait for the device's writer." { device.queue_messages }
        Gauge "edgeward_disk_write_amplification"
            "Bytes written to the device divided by bytes of bodies stored." { device.write_amplification() }
        Gauge "edgeward_disk_state" "1 for the current state of the device, 0 for the others." ["state":
            "in-service" = u8::from(device.state == DeviceState::InService),
            "read-only" = u8::from(device.state == DeviceState::ReadOnly),
            "out-of-service" = u8::from(device.state == DeviceState::OutOfService),
        ]
        Counter "edgeward_disk_written_bytes_total"
            "Bytes written to the device: records, padding, segment headers and footers, checkpoints."
            { device.written_bytes }
        Counter "edgeward_disk_write_ops_total" "Write operations on the device." { device.write_ops }
        Counter "edgeward_disk_syncs_total" "Syncs of the device." { device.syncs }
        Counter "edgeward_disk_read_bytes_total"
            "Bytes read by requests, from the device or from the page cache." { device.read_bytes }
        Counter "edgeward_disk_read_ops_total" "Read operations by requests." { device.read_ops }
        Counter "edgeward_disk_mapped_bytes_total"
            "Bytes that were sent to clients directly from the page cache, part of the bytes read."
            { device.mapped_bytes }
        Counter "edgeward_disk_would_block_total"
            "Reads that were not in the page cache and had to wait for the device." { device.would_block }
        Counter "edgeward_disk_stored_objects_total" "Objects stored on disk." { device.stored_objects }
        Counter "edgeward_disk_stored_body_bytes_total"
            "Body bytes of objects stored on disk." { device.stored_body_bytes }
        Counter "edgeward_disk_read_objects_total"
            "Objects read from disk: their heads, or small objects as a whole." { device.read_objects }
        Counter "edgeward_disk_dropped_queue_full_total"
            "Writes dropped because the queue was full." { device.dropped_queue_full }
        Counter "edgeward_disk_dropped_not_writable_total"
            "Writes dropped because the device could not be written." { device.dropped_not_writable }
        Counter "edgeward_disk_dropped_aborted_total"
            "Writes dropped because their body was aborted or had another length than announced."
            { device.dropped_aborted }
        Counter "edgeward_disk_dropped_purged_total"
            "Writes dropped because their key was purged meanwhile." { device.dropped_purged }
        Counter "edgeward_disk_dropped_reclaimed_total"
            "Writes dropped because the segment of their first part was reclaimed before the last part arrived."
            { device.dropped_reclaimed }
        Counter "edgeward_disk_displaced_objects_total"
            "Objects removed from disk because the index was full." { device.displaced_objects }
        Counter "edgeward_disk_purges_total" "Purges of keys on disk." { device.purges }
        Counter "edgeward_disk_purges_not_durable_total"
            "Purges that were not persisted because too many waited for a failing device." { device.purges_not_durable }
        Counter "edgeward_disk_checksum_failures_total"
            "Records whose checksum did not match their bytes." { device.checksum_failures }
        Counter "edgeward_disk_strangers_total" "Reads that found the record of another key." { device.strangers }
        Counter "edgeward_disk_reclaimed_reads_total"
            "Reads that failed because their segment was reclaimed meanwhile." { device.reclaimed_reads }
        Counter "edgeward_disk_read_errors_total" "Reads that the device failed." { device.read_errors }
        Counter "edgeward_disk_write_errors_total" "Writes that the device failed." { device.write_errors }
        Counter "edgeward_disk_evicted_objects_total"
            "Objects removed from disk by reclaiming their segment." { device.evicted_objects }
        Counter "edgeward_disk_reinserted_objects_total"
            "Objects written again when their segment was reclaimed." { device.reinserted_objects }
        Counter "edgeward_disk_reinserted_bytes_total"
            "Bytes of records written again when their segment was reclaimed." { device.reinserted_bytes }
        Counter "edgeward_disk_reclaimed_segments_total" "Segments reclaimed." { device.reclaimed_segments }
        Counter "edgeward_disk_checkpoints_total" "Checkpoints of the index written." { device.checkpoints }
    }

    const FILTER: RotatingBloomStats ["rule", "request"] = |filter| {
        Gauge "edgeward_disk_admission_false_seen"
            "Probability that a key with fewer than `request` requests is taken for one with `request` requests."
            { filter.false_positive_rate }
        Gauge "edgeward_disk_admission_lost_seen"
            "Among the keys reported as new, the share that was requested in the last period that the filter has forgotten."
            { filter.forgotten_share }
        Gauge "edgeward_disk_admission_fill"
            "Share of bits set in the primary filter, the one of two filters that gets new keys." { filter.primary_fill }
        Gauge "edgeward_disk_admission_bytes" "Bytes of memory of the filter." { filter.memory_bytes }
        Counter "edgeward_disk_admission_rotations_total"
            "Times that the full primary filter exchanged its role with the secondary filter." { filter.rotations }
    }

    const TIER: DiskTier = |tier| {
        Gauge "edgeward_disk_reads_waiting" "Reads that wait for a thread." { tier.readers.waiting() }
    }
}

/// Returns the definitions of the tier's metrics, without the counters of workers.
pub(crate) fn metric_definitions() -> Vec<Definition> {
    let mut definitions = DEVICE.definitions();
    definitions.extend(FILTER.definitions());
    definitions.extend(TIER.definitions());
    definitions
}

impl DiskTier {
    /// Returns the state of the tier for `/status`.
    pub(crate) fn status(&self) -> Value {
        let memory = self.memory_bytes();
        let rules = self.admissions.rules();
        let (default, host_rules) = rules.split_first().expect("the default rule always exists");
        let devices = self.cache.counters().devices;
        json!({
            "object_bytes_max": self.cache.object_bytes_max(),
            "memory_bytes": {
                "index": memory.index,
                "verified": memory.verified, // tables of verified and of cached blocks, and cached metadata
                "admission": memory.admission,
                "queues_max": memory.queues_max,
            },
            "reads_waiting": self.readers.waiting(),
            "read_threads": self.readers.threads(),
            "admission": {
                "rule": default.spec.to_string(),
                "filters": filters(default),
                "hosts": host_rules.iter().map(host_rule).collect::<Vec<_>>(),
            },
            "devices": devices.iter().map(device).collect::<Vec<_>>(),
        })
    }

    /// Returns the metric families of the tier, without the counters of workers.
    pub(crate) fn metrics(&self) -> Vec<Family> {
        let devices = self.cache.counters().devices;
        let rows: Vec<_> = devices
            .iter()
            .map(|device| (vec![device.device.as_str()], device))
            .collect();
        let mut families = DEVICE.families(&rows);
        families.extend(self.admission_metrics());
        families.extend(TIER.of(self));
        families
    }

    fn admission_metrics(&self) -> Vec<Family> {
        let rules = self.admissions.rules().iter();
        let filters: Vec<_> = rules
            .flat_map(|rule| {
                let filters = rule.hierarchy.admission().filters().into_iter().zip(1..);
                filters.map(|(filter, n)| (rule.spec.to_string(), n.to_string(), filter))
            })
            .collect();
        let rows = filters
            .iter()
            .map(|(rule, request, filter)| (vec![rule.as_str(), request], filter));
        FILTER.families(&rows.collect::<Vec<_>>())
    }
}

fn host_rule(rule: &Rule) -> Value {
    let hosts: Vec<String> = rule.hosts.iter().map(ToString::to_string).collect();
    json!({
        "rule": rule.spec.to_string(),
        "hosts": hosts,
        "filters": filters(rule),
    })
}

fn filters(rule: &Rule) -> Vec<Value> {
    let filters = rule.hierarchy.admission().filters();
    filters
        .iter()
        .map(|filter| {
            json!({
                "rotations": filter.rotations,
                "primary_fill": filter.primary_fill,
                "secondary_fill": filter.secondary_fill,
                "keys": filter.primary_keys,
                "false_seen": filter.false_positive_rate,
                "lost_seen": filter.forgotten_share,
            })
        })
        .collect()
}

fn device(device: &DeviceCounters) -> Value {
    let mut status = json!({
        "device": device.device,
        "state": device.state.name(),
        "capacity_bytes": device.capacity_bytes,
        "used_bytes": device.used_bytes,
        "objects": device.objects,
        "index_bytes": device.index_bytes,
        "queue_bytes": device.queue_bytes,
        "queue_messages": device.queue_messages,
        "decision_digest": format!("{:016x}", device.digest), // hash of the sequence of writes and evictions
        "write_amplification": device.write_amplification(),
    });
    for (name, value) in device.named() {
        status[name] = json!(value);
    }
    status
}
