//! The objects that fill memory, by host, media type and age, estimated from a random part of the keys.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use edgeward_types::Timestamp;
use serde_json::{Value, json};

use super::tables::sorted;
use crate::cache::key_parts::{primary_of, url_of};
use crate::cache::stored::{Stored, StoredKind};
use crate::observe::history::number;
use crate::path::worker::Shared;

/// Samples the objects of memory.
pub(super) fn sample(shared: &Shared) -> Value {
    let now = Timestamp::from(SystemTime::now());
    let mut contents = Contents::default();
    let share = shared
        .cache
        .hot
        .sample(OBJECTS_MAX, |stored| contents.add(stored, now));
    contents.to_json(share)
}

#[derive(Debug, Default)]
struct Contents {
    objects: u64,
    by_host: Groups,
    by_type: Groups,
    by_age: Groups,
}

/// The objects and bytes of each group. At most [`GROUPS_MAX`] groups; all others share [`OTHER`].
#[derive(Debug, Default)]
struct Groups(HashMap<String, (u64, u64)>);

impl Groups {
    fn add(&mut self, name: &str, bytes: u64) {
        let is_known = self.0.contains_key(name) || self.0.len() < GROUPS_MAX;
        let name = if is_known { name } else { OTHER };
        let group = match self.0.get_mut(name) {
            Some(group) => group,
            None => self.0.entry(name.to_owned()).or_default(),
        };
        group.0 += 1;
        group.1 += bytes;
    }

    /// Returns the groups with the most bytes, and the sum of all others.
    fn to_json(&self, share: f64) -> Value {
        let mut groups: Vec<_> = self.0.iter().collect();
        groups.sort_by_key(|(_, (_, bytes))| std::cmp::Reverse(*bytes));
        let (listed, others) = groups.split_at(groups.len().min(LISTED_MAX));
        let row = |name: &str, objects: u64, bytes: u64| {
            json!({
                "name": name,
                "objects": number((objects as f64 / share).round()),
                "bytes": number((bytes as f64 / share).round()),
            })
        };
        let mut rows: Vec<(u64, Value)> = listed
            .iter()
            .map(|(name, (objects, bytes))| (*bytes, row(name, *objects, *bytes)))
            .collect();
        let others = others.iter().fold((0, 0), |sum, (_, (objects, bytes))| {
            (sum.0 + objects, sum.1 + bytes)
        });
        if others.0 > 0 {
            rows.push((0, row(OTHER, others.0, others.1)));
        }
        sorted(rows)
    }
}

impl Contents {
    fn add(&mut self, stored: &Stored, now: Timestamp) {
        let StoredKind::Response(response) = &stored.kind else {
            return;
        };
        self.objects += 1;
        let bytes = stored.charge_bytes();
        let url = String::from_utf8_lossy(url_of(primary_of(stored.key())));
        let host = url.split_once("://").map_or(&*url, |(_, rest)| rest);
        let host = host.split_once('/').map_or(host, |(host, _)| host);
        self.by_host.add(host, bytes);
        self.by_type.add(&media_type(&response.head), bytes);
        let resident = now.since(response.policy.response_time);
        let age = resident + Duration::from_millis(response.policy.initial_age_ms);
        let name = AGES.iter().find(|(_, below)| age < *below);
        let name = name.map_or(OLDEST, |(name, _)| *name);
        self.by_age.add(name, bytes);
    }

    fn to_json(&self, share: f64) -> Value {
        let share = if share > 0.0 { share } else { 1.0 };
        json!({
            "objects": number((self.objects as f64 / share).round()),
            "sampled_share": number(share),
            "by_host": self.by_host.to_json(share),
            "by_type": self.by_type.to_json(share),
            "by_age": self.by_age.to_json(share),
        })
    }
}

/// Returns the media type of a stored head without parameters.
fn media_type(head: &[u8]) -> String {
    let lines = head.split(|byte| *byte == b'\n');
    let mut values = lines.filter_map(|line| line.strip_prefix(b"content-type:"));
    let Some(value) = values.next() else {
        return "none".to_owned();
    };
    let value = value.split(|byte| *byte == b';').next().unwrap_or_default();
    let value = String::from_utf8_lossy(value.trim_ascii());
    value
        .chars()
        .take(80)
        .collect::<String>()
        .to_ascii_lowercase()
}

/// The number of objects from which the contents are estimated.
const OBJECTS_MAX: usize = 10_000;

/// The most groups that are counted apart.
const GROUPS_MAX: usize = 1000;

/// The number of groups in a list.
const LISTED_MAX: usize = 10;

const OTHER: &str = "other";

/// Ages with their upper bounds.
const AGES: [(&str, Duration); 4] = [
    ("below 1 minute", Duration::from_secs(60)),
    ("1 to 10 minutes", Duration::from_secs(600)),
    ("10 minutes to 1 hour", Duration::from_secs(3600)),
    ("1 hour to 1 day", Duration::from_secs(86_400)),
];

const OLDEST: &str = "above 1 day";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_has_no_parameters() {
        for (head, expected) in [
            ("content-type: text/HTML; charset=utf-8\r\n", "text/html"),
            ("age: 1\r\ncontent-type:image/png\r\n", "image/png"),
            ("x-content-type: a/b\r\n", "none"),
            ("", "none"),
        ] {
            assert_eq!(media_type(head.as_bytes()), expected);
        }
    }

    /// Method: more hosts than groups. The list has the largest groups, and the bytes of all others in one row.
    #[test]
    fn many_groups_stay_within_their_bound_and_lose_no_bytes() {
        let mut groups = Groups::default();
        for n in 0..5000u64 {
            groups.add(&format!("host-{n}"), n);
        }
        assert!(groups.0.len() <= GROUPS_MAX + 1);
        let rows = groups.to_json(0.5);
        let rows = rows.as_array().expect("the rows are a list");
        assert_eq!(rows.len(), LISTED_MAX + 1);
        let bytes: f64 = rows.iter().filter_map(|row| row["bytes"].as_f64()).sum();
        let expected = 2.0 * (5000.0 * 4999.0 / 2.0);
        assert!((bytes - expected).abs() < expected / 1000.0, "{bytes}");
    }
}
