//! The file of `simulate --csv`.

use std::path::Path;

use anyhow::Context as _;
use edgeward_sim::RunReport;

use super::Simulation;

/// A header and rows of equal length.
pub(super) struct Rows {
    lines: Vec<Vec<String>>,
}

impl Rows {
    /// Makes a table with this header and no rows.
    pub(super) fn new<const N: usize>(names: [&str; N]) -> Self {
        Self {
            lines: vec![names.map(str::to_owned).to_vec()],
        }
    }

    /// Adds a row, which must have as many fields as the header.
    pub(super) fn add<const N: usize>(&mut self, fields: [String; N]) {
        self.lines.push(fields.to_vec());
    }

    /// Writes the file.
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let cannot_write = || format!("cannot write {}", path.display());
        let mut writer = csv::Writer::from_path(path).with_context(cannot_write)?;
        for line in &self.lines {
            writer.write_record(line).with_context(cannot_write)?;
        }
        writer.flush().with_context(cannot_write)
    }
}

/// Returns one row for each run and for each upper bound. A field without a value is empty.
pub(super) fn rows(simulation: &Simulation, label: &str) -> Rows {
    let mut rows = Rows::new([
        "trace",
        "policy",
        "capacity_bytes",
        "disk_bytes",
        "disk_admission",
        "disk_eviction",
        "requests",
        "hits",
        "object_hit_ratio",
        "byte_hit_ratio",
        "delayed_hits",
        "mean_wait_ms",
        "disk_written_bytes",
        "origin_bytes",
    ]);
    for run in &simulation.runs {
        rows.add(row(run, label));
    }
    for bound in &simulation.bounds {
        let mut fields: [String; 14] = Default::default();
        fields[0] = label.to_owned();
        fields[1] = "upper bound".to_owned();
        fields[2] = bound.capacity_bytes.to_string();
        fields[8] = bound.object_hit_ratio_max.to_string();
        fields[9] = bound.byte_hit_ratio_max.to_string();
        rows.add(fields);
    }
    rows
}

fn row(run: &RunReport, label: &str) -> [String; 14] {
    let disk = run.disk.as_ref();
    let fetches = run.fetches.as_ref();
    let text = |value: Option<String>| value.unwrap_or_default();
    [
        label.to_owned(),
        run.policy.clone(),
        run.capacity_bytes.to_string(),
        text(disk.map(|disk| disk.capacity_bytes.to_string())),
        text(disk.map(|disk| disk.admission.clone())),
        text(disk.map(|disk| disk.eviction.clone())),
        run.requests.to_string(),
        run.hits.to_string(),
        run.object_hit_ratio.to_string(),
        run.byte_hit_ratio.to_string(),
        text(fetches.map(|fetches| fetches.delayed_hits.to_string())),
        text(fetches.map(|fetches| fetches.mean_wait_ms.to_string())),
        text(disk.map(|disk| disk.done.written_bytes.to_string())),
        text(disk.map(|disk| disk.origin_bytes.to_string())),
    ]
}
