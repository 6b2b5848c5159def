//! The table of the runs with a disk tier.

use edgeward_sim::{DiskReport, RunReport};
use edgeward_types::ByteSize;

use super::runs::has_several_seeds;
use crate::output::{self, Column, Table};

/// Returns the table of the runs with a disk, or `None` if no run has a disk.
pub(super) fn table(runs: &[RunReport]) -> Option<Table> {
    let several_seeds = has_several_seeds(runs);
    let names = [
        Column::words("policy"),
        Column::figures("RAM"),
        Column::figures("disk"),
        Column::words("admission"),
        Column::words("eviction"),
    ];
    let seed_column = several_seeds.then(|| Column::figures("seed"));
    let mut table = Table::new(names.into_iter().chain(seed_column).chain([
        Column::figures("OHR RAM"),
        Column::figures("disk"),
        Column::figures("both"),
        Column::figures("BHR"),
        Column::figures("written"),
        Column::figures("records"),
        Column::figures("read"),
        Column::figures("write ampl."),
        Column::figures("origin"),
    ]));
    let mut rows = 0;
    for (run, disk) in runs_with_disk(runs) {
        rows += 1;
        let names = [
            run.policy.clone(),
            ByteSize(run.capacity_bytes).to_string(),
            ByteSize(disk.capacity_bytes).to_string(),
            disk.admission.clone(),
            disk.eviction.clone(),
        ];
        let seed = several_seeds.then(|| run.seed.to_string());
        table.row(names.into_iter().chain(seed).chain([
            output::percent(disk.ram_object_hit_ratio),
            output::percent(disk.disk_object_hit_ratio),
            output::percent(run.object_hit_ratio),
            output::percent(run.byte_hit_ratio),
            ByteSize(disk.done.written_bytes).to_string(),
            output::count(disk.done.write_operations),
            ByteSize(disk.done.read_bytes).to_string(),
            format!("{:.2}", disk.write_amplification),
            ByteSize(disk.origin_bytes).to_string(),
        ]));
    }
    (rows > 0).then_some(table)
}

/// Returns the runs with a disk tier, each with the results of its disk.
pub(super) fn runs_with_disk(
    runs: &[RunReport],
) -> impl Iterator<Item = (&RunReport, &DiskReport)> {
    runs.iter()
        .filter_map(|run| run.disk.as_ref().map(|disk| (run, disk)))
}
