//! The model of a past window. Its curve of hit ratio over `c` can be compared with a simulation, as in figure 9 of the
//! AdaptSize paper.

use std::collections::HashMap;

use edgeward_types::KeyHash;

use crate::object::Object;

use super::gaps::Gaps;
use super::horizon::{ExpectedRequests, WindowModel, WindowObjects};

/// Returns the finite-horizon model of exactly these requests, from their counts, gaps and sizes. A gap is the
/// distance between two successive requests for one object.
///
/// `resident` returns true if the cache had the object of a key before the first request. `idle_bytes` are the bytes of
/// resident objects that are not requested. The last size of an object counts.
pub fn forecast_window(
    requests: &[Object],
    capacity_bytes: u64,
    resident: &dyn Fn(KeyHash) -> bool,
    idle_bytes: u64,
) -> WindowModel {
    let mut object_indices: HashMap<KeyHash, usize> = HashMap::new();
    let mut objects: Vec<WindowObject> = Vec::new();
    // Each element is the index of an object and a gap, counted in requests.
    let mut object_gaps: Vec<(usize, usize)> = Vec::new();
    for (position, request) in requests.iter().enumerate() {
        let object_index = *object_indices.entry(request.key).or_insert(objects.len());
        if object_index == objects.len() {
            objects.push(WindowObject {
                key: request.key,
                size_bytes: request.size_bytes,
                count: 1,
                last: position,
            });
            continue;
        }
        let object = &mut objects[object_index];
        object_gaps.push((object_index, position - object.last));
        object.size_bytes = request.size_bytes;
        object.count += 1;
        object.last = position;
    }
    let mut gaps = Gaps::default();
    for (object_index, gap) in object_gaps {
        gaps.add(
            f64::from(objects[object_index].count),
            gap as f64 / requests.len() as f64,
        );
    }
    let mut window_objects = WindowObjects::new(capacity_bytes as f64);
    for object in &objects {
        window_objects.add(ExpectedRequests {
            active: 1.0,
            count: f64::from(object.count),
            size_bytes: object.size_bytes as f64,
            resident: resident(object.key),
        });
    }
    window_objects.add_idle_bytes(idle_bytes as f64);
    window_objects.model(&gaps)
}

struct WindowObject {
    key: KeyHash,
    size_bytes: u64,
    count: u32,
    /// The index of the last request for the object.
    last: usize,
}
