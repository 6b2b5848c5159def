//! The forms of predictions in the output of `edgeward advise`.

use edgeward_live::advise::{DiskSetting, Setting};
use edgeward_types::ByteSize;
use serde_json::{Value, json};

/// Returns the prediction for a setting of memory as JSON.
pub(super) fn expected(setting: &Setting) -> Value {
    json!({
        "hit_ratio": setting.hit_ratio,
        "hit_ratio_error": setting.hit_ratio_error,
        "byte_hit_ratio": setting.byte_hit_ratio,
        "origin_bytes_per_second": setting.origin_bytes_per_second,
    })
}

/// Returns a setting of the disk and its prediction as JSON.
pub(super) fn disk_json(setting: &DiskSetting) -> Value {
    json!({
        "disk.admission": setting.admission,
        "disk.capacity": setting.capacity_bytes,
        "expected": {
            "hit_ratio": setting.hit_ratio,
            "hit_ratio_error": setting.hit_ratio_error,
            "origin_bytes_per_second": setting.origin_bytes_per_second,
            "disk_bytes_per_second": setting.disk_bytes_per_second,
        },
    })
}

/// Returns a setting of memory and its prediction as text.
pub(super) fn described(setting: &Setting) -> String {
    format!(
        "{} with {}: {:.1} % of requests (±{:.1}), {:.1} % of bytes, {} from the origin",
        setting.policy,
        ByteSize(setting.capacity_bytes),
        100.0 * setting.hit_ratio,
        200.0 * setting.hit_ratio_error,
        100.0 * setting.byte_hit_ratio,
        rate(setting.origin_bytes_per_second),
    )
}

/// Returns a rate as text: in kB/s below 100 kB/s, else in MB/s.
fn rate(bytes_per_second: f64) -> String {
    if bytes_per_second < 1e5 {
        format!("{:.1} kB/s", bytes_per_second / 1e3)
    } else {
        format!("{:.2} MB/s", bytes_per_second / 1e6)
    }
}

/// Returns a setting of the disk and its prediction as text.
pub(super) fn described_disk(setting: &DiskSetting) -> String {
    format!(
        "{} with {}: {:.1} % of requests (±{:.1}), {} from the origin, {} written",
        setting.admission,
        ByteSize(setting.capacity_bytes),
        100.0 * setting.hit_ratio,
        200.0 * setting.hit_ratio_error,
        rate(setting.origin_bytes_per_second),
        rate(setting.disk_bytes_per_second),
    )
}
