//! The disk tier in `/status` and `/metrics`: each device by its name, and what admission remembers.

use edgeward_store::disk::DeviceCounters;
use prometheus::proto::{MetricFamily, MetricType};
use serde_json::{Map, Value, json};

use super::DiskTier;
use super::admission::Rule;
use crate::base::metric_family::{counter, family, gauge, labelled};

impl DiskTier {
    /// The tier for `/status`.
    pub(crate) fn status(&self) -> Value {
        let memory = self.memory_bytes();
        let rules = self.admissions.rules();
        let (usual, of_hosts) = rules.split_first().expect("there is a usual rule");
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

    /// The tier's metric families, beside what workers count.
    pub(crate) fn metrics(&self) -> Vec<MetricFamily> {
        let devices = self.cache.counters().devices;
        let mut families = Vec::new();
        type Gauge = (&'static str, &'static str, fn(&DeviceCounters) -> f64);
        let gauges: [Gauge; 6] = [
            (
                "edgeward_disk_capacity_bytes",
                "Bytes of the device's segments.",
                |device| device.capacity_bytes as f64,
            ),
            (
                "edgeward_disk_objects",
                "Objects in the device's index.",
                |device| device.objects as f64,
            ),
            (
                "edgeward_disk_index_bytes",
                "Memory of the device's index, beside the budget for hot objects.",
                |device| device.index_bytes as f64,
            ),
            (
                "edgeward_disk_queue_bytes",
                "Bytes of bodies on their way to the device.",
                |device| device.queue_bytes as f64,
            ),
            (
                "edgeward_disk_queue_messages",
                "Messages on their way to the device.",
                |device| device.queue_messages as f64,
            ),
            (
                "edgeward_disk_write_amplification",
                "Bytes written to the device for each byte of body stored.",
                DeviceCounters::write_amplification,
            ),
        ];
        for (name, help, value) in gauges {
            let metrics = devices
                .iter()
                .map(|device| labelled(gauge(value(device)), &[("device", &device.device)]))
                .collect();
            families.push(family(name, help, MetricType::GAUGE, metrics));
        }
        let states = devices
            .iter()
            .map(|device| {
                let labels = [
                    ("device", device.device.as_str()),
                    ("state", device.state.name()),
                ];
                labelled(gauge(1.0), &labels)
            })
            .collect();
        families.push(family(
            "edgeward_disk_state",
            "1 for the state the device is in.",
            MetricType::GAUGE,
            states,
        ));
        families.extend(self.device_counters(&devices));
        families.extend(self.admission_metrics());
        let waiting = vec![gauge(self.readers.waiting() as f64)];
        families.push(family(
            "edgeward_disk_reads_waiting",
            "Reads that wait for a thread.",
            MetricType::GAUGE,
            waiting,
        ));
        families
    }

    /// Everything the store counts, a family a counter.
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
                        "The disk store's count of {}; docs/disk-cache.md explains it.",
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
        let rules: Vec<_> = rules
            .map(|rule| (rule.spec.to_string(), rule.hierarchy.admission().filters()))
            .collect();
        if rules.iter().all(|(_, filters)| filters.is_empty()) {
            return Vec::new();
        }
        type Figure = (
            &'static str,
            &'static str,
            fn(&edgeward_policy::sketch::RotatingBloomStats) -> f64,
        );
        let figures: [Figure; 5] = [
            (
                "edgeward_disk_admission_false_seen",
                "Probability that a first request is taken for a later one, by which request is counted.",
                |filter| filter.false_seen,
            ),
            (
                "edgeward_disk_admission_lost_seen",
                "Share of keys taken for new that had been asked for a period earlier than is remembered.",
                |filter| filter.lost_seen,
            ),
            (
                "edgeward_disk_admission_fill",
                "Share of the primary filter's bits that are set.",
                |filter| filter.primary_fill,
            ),
            (
                "edgeward_disk_admission_bytes",
                "Memory of the filter.",
                |filter| filter.memory_bytes as f64,
            ),
            (
                "edgeward_disk_admission_rotations",
                "Times the two filters have changed roles.",
                |filter| filter.rotations as f64,
            ),
        ];
        figures
            .into_iter()
            .map(|(name, help, value)| {
                let metrics = rules
                    .iter()
                    .flat_map(|(rule, filters)| {
                        filters.iter().zip(1..).map(move |(filter, n)| {
                            let request = n.to_string();
                            let labels = [("rule", rule.as_str()), ("request", &request)];
                            labelled(gauge(value(filter)), &labels)
                        })
                    })
                    .collect();
                family(name, help, MetricType::GAUGE, metrics)
            })
            .collect()
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
