//! Parts that several benchmarks share.

pub(crate) mod client;
pub(crate) mod facts;
pub(crate) mod load;
pub(crate) mod process;

use std::fs;

/// Returns the median, or `None` for an empty list. For an even number of values it is the mean of the middle two.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Returns the `user` line of nginx's configuration: `user root;` for root, otherwise nothing. Without the
/// line, an nginx that is started as root would switch to the user `nobody`, which cannot write to the folder.
pub(crate) fn nginx_user() -> &'static str {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt as _;
        own.uid() == 0
    });
    if is_root { "user root;" } else { "" }
}
