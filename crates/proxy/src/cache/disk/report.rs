//! The disk tier in `/status` and `/metrics`: its devices and its admission.

use edgeward_store::disk::DeviceCounters;
use prometheus::proto::{MetricFamily, MetricType};
use serde_json::{Map, Value, json};

use super::DiskTier;
use super::admission::Rule;
use crate::base::metric_family::{counter, families, family, labelled};

impl DiskTier {
    /// Returns the state of the tier for `/status`.
    pub(crate) fn status(&self) -> Value {
        let memory = self.memory_bytes();
        let rules = self.admissions.rules();
        let (usual, of_hosts) = rules.split_first().expect("the default rule always exists");
        let devices = self.cache.counters().devices;
        json!({
            "object_bytes_max": self.cache.object_bytes_max(),
            "memory_bytes": {
                "index": memory.index,
                "verified": memory.verified,
                "admission": memory.admission,
                "queues_max": memory.queues_max,
            },
            "reads_waiting": self.readers.waiting(),
            "read_threads": self.readers.threads(),
            "admission": {
                "rule": usual.spec.to_string(),
                "filters": filters(usual),
                "hosts": of_hosts.iter().map(rule_of_hosts).collect::<Vec<_>>(),
            },
            "devices": devices.iter().map(device).collect::<Vec<_>>(),
        })
    }

    /// Returns the metric families of the tier, without the counters of workers.
    pub(crate) fn metrics(&self) -> Vec<MetricFamily> {
        let devices = self.cache.counters().devices;
        let mut families = families! { for device in devices, &[("device", &device.device)];
            Gauge "edgeward_disk_capacity_bytes" "Bytes of the device's segments." = device.capacity_bytes;
            Gauge "edgeward_disk_objects" "Objects in the device's index." = device.objects;
            Gauge "edgeward_disk_index_bytes" "Memory of the device's index, in addition to the budget of the memory tier." = device.index_bytes;
            Gauge "edgeward_disk_queue_bytes" "Bytes of bodies that wait to be written to the device." = device.queue_bytes;
            Gauge "edgeward_disk_queue_messages" "Messages that wait for the device's writer." = device.queue_messages;
            Gauge "edgeward_disk_write_amplification" "Bytes written to the device for each byte of body stored." = device.write_amplification();
        };
        families.extend(families! { for device in devices, &[("device", device.device.as_str()), ("state", device.state.name())];
            Gauge "edgeward_disk_state" "1 for the state of the device." = 1;
        });
        families.extend(self.device_counters(&devices));
        families.extend(self.admission_metrics());
        families.extend(families! {
            Gauge "edgeward_disk_reads_waiting" "Reads that wait for a thread." = self.readers.waiting();
        });
        families
    }

    /// Returns a family for each counter of the store.
    fn device_counters(&self, devices: &[DeviceCounters]) -> Vec<MetricFamily> {
        let Some(first) = devices.first() else {
            return Vec::new();
        };
        first
            .named()
            .map(|(name, _)| {
                let metrics = devices
                    .iter()
                    .filter_map(|device| {
                        let (_, value) = device.named().find(|(other, _)| *other == name)?;
                        Some(labelled(
                            counter(value as f64),
                            &[("device", &device.device)],
                        ))
                    })
                    .collect();
                family(
                    &format!("edgeward_disk_{name}_total"),
                    &format!(
                        "The disk store's count of {}; docs/explanation/disk-cache.md explains it.",
                        name.replace('_', " ")
                    ),
                    MetricType::COUNTER,
                    metrics,
                )
            })
            .collect()
    }

    fn admission_metrics(&self) -> Vec<MetricFamily> {
        let rules = self.admissions.rules().iter();
        let filters: Vec<_> = rules
            .flat_map(|rule| {
                let filters = rule.hierarchy.admission().filters().into_iter().zip(1..);
                filters.map(|(filter, n)| (rule.spec.to_string(), n.to_string(), filter))
            })
            .collect();
        if filters.is_empty() {
            return Vec::new();
        }
        families! { for row in filters, &[("rule", &row.0), ("request", &row.1)];
            Gauge "edgeward_disk_admission_false_seen" "Probability that a first request is taken for a later one, by the number of the request." = row.2.false_seen;
            Gauge "edgeward_disk_admission_lost_seen" "Share of keys taken for new although they were requested one period before the filter's history." = row.2.lost_seen;
            Gauge "edgeward_disk_admission_fill" "Share of the primary filter's bits that are set." = row.2.primary_fill;
            Gauge "edgeward_disk_admission_bytes" "Memory of the filter." = row.2.memory_bytes;
            Gauge "edgeward_disk_admission_rotations" "Times that the two filters have changed roles." = row.2.rotations;
        }
    }
}

fn rule_of_hosts(rule: &Rule) -> Value {
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
                "false_seen": filter.false_seen,
                "lost_seen": filter.lost_seen,
            })
        })
        .collect()
}

fn device(device: &DeviceCounters) -> Value {
    let mut shown = Map::new();
    shown.insert("device".to_owned(), json!(device.device));
    shown.insert("state".to_owned(), json!(device.state.name()));
    shown.insert("capacity_bytes".to_owned(), json!(device.capacity_bytes));
    shown.insert("objects".to_owned(), json!(device.objects));
    shown.insert("index_bytes".to_owned(), json!(device.index_bytes));
    shown.insert("queue_bytes".to_owned(), json!(device.queue_bytes));
    shown.insert("queue_messages".to_owned(), json!(device.queue_messages));
    let digest = format!("{:016x}", device.digest);
    shown.insert("decision_digest".to_owned(), json!(digest));
    let amplification = device.write_amplification();
    shown.insert("write_amplification".to_owned(), json!(amplification));
    for (name, value) in device.named() {
        shown.insert(name.to_owned(), json!(value));
    }
    Value::Object(shown)
}
