//! Working sets: the distinct objects requested in each interval of time.

use hashbrown::HashMap;

use crate::CompleteSample;

/// The distinct objects requested within one interval of time. The figures are estimated from a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkingSet {
    /// The start of the interval, in seconds since 1970.
    pub from_secs: u64,
    /// The number of distinct objects.
    pub objects: f64,
    /// The total size of these objects in bytes.
    pub bytes: f64,
    /// The number of objects without an earlier request.
    pub new_objects: f64,
    /// The total size of these new objects in bytes.
    pub new_bytes: f64,
}

impl WorkingSet {
    /// Computes the working set of each interval of this length from a sample. Intervals without requests are
    /// omitted.
    pub fn per_interval(seconds: u64, sampled: &CompleteSample) -> Vec<Self> {
        let mut rows: Vec<Self> = Vec::new();
        // The interval of each object's last request.
        let mut last: HashMap<u64, u64> = HashMap::new();
        for record in &sampled.records {
            let interval = record.time.as_secs() / seconds.max(1);
            let from_secs = interval * seconds.max(1);
            if rows.last().is_none_or(|row| row.from_secs != from_secs) {
                rows.push(Self {
                    from_secs,
                    ..Self::default()
                });
            }
            let row = rows.last_mut().expect("a row was pushed above");
            let before = last.insert(record.key, interval);
            if before == Some(interval) {
                continue;
            }
            let (objects, bytes) = (1.0 / sampled.rate, record.size as f64 / sampled.rate);
            row.objects += objects;
            row.bytes += bytes;
            if before.is_none() {
                row.new_objects += objects;
                row.new_bytes += bytes;
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use edgeward_trace::Record;
    use edgeward_types::Timestamp;

    use super::*;

    fn sampled(keys_and_times: &[(u64, u64)]) -> CompleteSample {
        let record = |&(key, time): &(u64, u64)| Record {
            time: Timestamp::from_secs(time),
            key,
            size: 1 + key * key % 17,
        };
        CompleteSample {
            rate: 1.0,
            records: keys_and_times.iter().map(record).collect(),
            requests: keys_and_times.len() as u64,
            sized_requests: keys_and_times.len() as u64,
        }
    }

    #[test]
    fn a_working_set_has_the_objects_requested_within_an_interval() {
        let requests = [(1, 10), (1, 20), (2, 30), (1, 3700), (3, 3800), (2, 10_900)];
        let rows = WorkingSet::per_interval(3600, &sampled(&requests));
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                (
                    row.from_secs,
                    row.objects,
                    row.bytes,
                    row.new_objects,
                    row.new_bytes,
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                (0, 2.0, 7.0, 2.0, 7.0),
                (3600, 2.0, 12.0, 1.0, 10.0),
                (10_800, 1.0, 5.0, 0.0, 0.0)
            ]
        );
    }
}
