//! The model of a past window: its curve can be compared with a simulation, as in the paper's figure 9.

use std::collections::HashMap;

use edgeward_types::KeyHash;

use crate::Object;

use super::gaps::Gaps;
use super::horizon::{Forecast, Outlook, Prospect};

/// Returns the finite-horizon model of exactly these requests, from their counts, gaps and sizes.
///
/// `resident` returns true if the cache had a key before the first request. `idle_bytes` are the bytes of
/// resident objects that are not requested. The last size of an object counts.
pub fn forecast_window(
    requests: &[Object],
    capacity_bytes: u64,
    resident: &dyn Fn(KeyHash) -> bool,
    idle_bytes: u64,
) -> Forecast {
    let mut places: HashMap<KeyHash, usize> = HashMap::new();
    let mut seen: Vec<Seen> = Vec::new();
    let mut gaps_seen: Vec<(usize, usize)> = Vec::new();
    for (position, request) in requests.iter().enumerate() {
        let place = *places.entry(request.key).or_insert(seen.len());
        if place == seen.len() {
            seen.push(Seen {
                key: request.key,
                size_bytes: request.size_bytes,
                count: 1,
                last: position,
            });
            continue;
        }
        let object = &mut seen[place];
        gaps_seen.push((place, position - object.last));
        object.size_bytes = request.size_bytes;
        object.count += 1;
        object.last = position;
    }
    let mut gaps = Gaps::default();
    for (place, gap) in gaps_seen {
        gaps.add(
            f64::from(seen[place].count),
            gap as f64 / requests.len() as f64,
        );
    }
    let mut outlook = Outlook::new(capacity_bytes as f64);
    for object in &seen {
        outlook.add(Prospect {
            active: 1.0,
            count: f64::from(object.count),
            size_bytes: object.size_bytes as f64,
            resident: resident(object.key),
        });
    }
    outlook.add_idle_bytes(idle_bytes as f64);
    outlook.forecast(&gaps)
}

struct Seen {
    key: KeyHash,
    size_bytes: u64,
    count: u32,
    last: usize,
}
