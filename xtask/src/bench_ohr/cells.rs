//! The traces, and the capacities of the cache for each trace.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::oracle_trace::OracleTrace;

/// A trace and a capacity.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) trace: OracleTrace,
    /// The capacity as the tables show it: `2GiB` or `0.1 %`.
    pub(super) size: String,
    pub(super) capacity_bytes: u64,
}

/// The generated traces: names, and arguments of `edgeward trace generate`. `density` was tuned with other traces:
/// those of the presets `mixed`, `switch` and `web` with their default seed.
const GENERATED: [(&str, &str); 6] = [
    ("web", "--preset web --seed 21"),
    ("recurring-video", "--preset recurring --seed 22"),
    ("chunks", "--preset chunks --seed 23"),
    (
        "churn",
        "--preset web --churn 0.9 --one-hit-share 0.5 --seed 24",
    ),
    ("scan", "--preset scan --seed 25"),
    ("class-switch", "--preset switch --seed 26"),
];
const GENERATED_REQUESTS: u64 = 500_000;
const GENERATED_REQUESTS_FEW: u64 = 100_000;

/// Capacities of generated traces, in parts per million of the footprint: 0.01 %, 0.3 % and 3 %.
const GENERATED_PPM: [u64; 3] = [100, 3_000, 30_000];

/// Capacities of the traces of a folder, in the same unit: 0.1 %, 1 % and 10 %.
const GIVEN_PPM: [u64; 3] = [1_000, 10_000, 100_000];

/// Additional capacities of traces for which results of other simulators are known.
const KNOWN_SIZES: [(&str, [u64; 3]); 4] = [
    ("akamai-w-web", [256 << 20, 2 << 30, 16 << 30]),
    ("akamai-tc0-download", [256 << 20, 2 << 30, 32 << 30]),
    ("akamai-v-video", [4 << 30, 64 << 30, 512 << 30]),
    ("bu98-proxy", [256 << 10, 2 << 20, 32 << 20]),
];

/// Returns the cells of the generated traces and of the traces in the folder `given`. If `only` is not empty, traces
/// that it does not name are omitted. Generated and converted traces are kept in `folder`.
///
/// With `few`, the generated traces are shorter and have one capacity, and `given` is ignored.
pub(super) fn cells(
    edgeward: &Path,
    given: Option<&Path>,
    few: bool,
    only: &[String],
    folder: &Path,
) -> anyhow::Result<Vec<Cell>> {
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|wanted| wanted == name);
    let mut cells = Vec::new();
    let (requests, ppm) = if few {
        (GENERATED_REQUESTS_FEW, &GENERATED_PPM[1..2])
    } else {
        (GENERATED_REQUESTS, &GENERATED_PPM[..])
    };
    for (name, arguments) in GENERATED.iter().filter(|(name, _)| is_wanted(name)) {
        let arguments = format!("{arguments} --requests {requests}");
        let folder = folder.join(requests.to_string());
        let trace = OracleTrace::generate(edgeward, name, &arguments, &folder)?;
        cells.extend(shares(&trace, ppm));
    }
    let Some(given) = given.filter(|_| !few) else {
        return Ok(cells);
    };
    for path in compressed_traces(given)? {
        let trace = OracleTrace::convert(edgeward, &path, folder)?;
        if !is_wanted(&trace.name) {
            continue;
        }
        let known = KNOWN_SIZES.iter().find(|(name, _)| *name == trace.name);
        let known = known.map_or(&[][..], |(_, sizes)| sizes);
        cells.extend(known.iter().map(|&bytes| Cell {
            trace: trace.clone(),
            size: crate::options::format_size(bytes),
            capacity_bytes: bytes,
        }));
        cells.extend(shares(&trace, &GIVEN_PPM));
    }
    Ok(cells)
}

/// Returns the cells of a trace whose capacities are shares of its footprint.
fn shares(trace: &OracleTrace, parts_per_million: &[u64]) -> Vec<Cell> {
    let cell = |ppm: &u64| {
        let bytes = u128::from(trace.footprint_bytes) * u128::from(*ppm) / 1_000_000;
        Cell {
            trace: trace.clone(),
            size: format!("{} %", *ppm as f64 / 10_000.0),
            capacity_bytes: u64::try_from(bytes).unwrap_or(u64::MAX).max(1),
        }
    };
    parts_per_million.iter().map(cell).collect()
}

/// Returns the paths of the `*.tr.zst` files of a folder, sorted.
fn compressed_traces(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(".tr.zst") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_is_a_share_of_the_footprint_and_at_least_one_byte() {
        let trace = OracleTrace {
            name: "t".to_owned(),
            path: PathBuf::new(),
            requests: 1,
            objects: 1,
            footprint_bytes: 5_000,
        };
        let cells = shares(&trace, &GENERATED_PPM);
        let capacities: Vec<_> = cells
            .iter()
            .map(|c| (&c.size[..], c.capacity_bytes))
            .collect();
        assert_eq!(capacities, [("0.01 %", 1), ("0.3 %", 15), ("3 %", 150)]);
    }
}
