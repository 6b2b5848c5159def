//! The disk tier of `simulate`: its options and their combinations.

use std::num::NonZeroU64;

use clap::Args;

use edgeward_policy::disk_admission::memory_for_disk;
use edgeward_policy::log::Reinsertion;
use edgeward_policy::sketch::RotatingBloomConfig;
use edgeward_policy::{DiskAdmissionSpec, HierarchyRules};
use edgeward_sim::{Capacity, DiskConfig};

/// Options of the disk tier.
#[derive(Args, Clone, Debug)]
pub(super) struct DiskArgs {
    /// Disk tier sizes for each RAM size, as in --capacity
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    disk: Vec<Capacity>,

    /// Admission to disk, such as second-hit
    ///
    /// The rules are second-hit, nth-hit:N, always, never, size-density and size-density:SIZE. `nth-hit:N` writes an
    /// object at its Nth request. `size-density:SIZE` requires one request per SIZE bytes of the object, and
    /// `size-density` one per half of the mean object size.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "second-hit,always",
        requires = "disk",
        value_name = "LIST"
    )]
    disk_admission: Vec<DiskAdmissionSpec>,

    /// Rule that selects the objects to write again at eviction: fifo, fifo-reinsertion, fifo-reinsertion:N,
    /// hits-per-byte
    ///
    /// `fifo` selects no object. `fifo-reinsertion:N` selects objects with at least N hits (1 to 3) since they were
    /// written. Without N, one hit suffices. `hits-per-byte` selects the objects with the most hits per byte.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "fifo-reinsertion:2",
        requires = "disk",
        value_name = "LIST",
        hide_short_help = true
    )]
    disk_eviction: Vec<Reinsertion>,

    /// Distinct keys for which each Bloom filter of admission is sized [default: one for each 32 KiB of disk]
    #[arg(long, requires = "disk", value_name = "KEYS", hide_short_help = true)]
    disk_filter_keys: Option<NonZeroU64>,

    /// Share of set bits at which a Bloom filter of admission is full [default: the share at which at
    /// most 1 % of first requests are taken for repeated ones]
    #[arg(
        long,
        requires = "disk",
        value_name = "SHARE",
        value_parser = fill_max,
        hide_short_help = true
    )]
    disk_filter_fill: Option<f64>,

    /// Do not offer objects evicted from RAM to the disk
    #[arg(long, requires = "disk", hide_short_help = true)]
    no_disk_from_ram: bool,

    /// Count hits on disk as requests for later decisions of admission
    #[arg(long, requires = "disk", hide_short_help = true)]
    count_disk_hits: bool,
}

impl DiskArgs {
    /// Returns true if the runs have a disk tier.
    pub(super) fn is_present(&self) -> bool {
        !self.disk.is_empty()
    }

    /// Returns true if a disk size is a share of the trace's footprint. The trace is then read once before the
    /// simulation, to measure the footprint.
    pub(super) fn needs_footprint(&self) -> bool {
        let is_share = |capacity: &Capacity| matches!(capacity, Capacity::OfFootprint(_));
        self.disk.iter().any(is_share)
    }

    /// Returns a configuration for each combination of the options. Returns none without `--disk`.
    pub(super) fn configs(&self, footprint_bytes: u64) -> Vec<DiskConfig> {
        let mut configs = Vec::new();
        for capacity in &self.disk {
            let capacity_bytes = capacity.bytes(footprint_bytes).max(1);
            for &admission in &self.disk_admission {
                for &eviction in &self.disk_eviction {
                    configs.push(DiskConfig {
                        capacity_bytes,
                        admission,
                        memory: self.memory(capacity_bytes),
                        eviction,
                        rules: HierarchyRules {
                            offer_evicted: !self.no_disk_from_ram,
                            note_disk_hits: self.count_disk_hits,
                            ..HierarchyRules::default()
                        },
                    });
                }
            }
        }
        configs
    }

    /// Returns the configuration of the Bloom filters for a disk of this size. Admission keeps requested keys in them.
    fn memory(&self, capacity_bytes: u64) -> RotatingBloomConfig {
        let default = memory_for_disk(capacity_bytes);
        let keys = self.disk_filter_keys.unwrap_or(default.expected_keys);
        RotatingBloomConfig::with_fill_max(keys, self.disk_filter_fill.unwrap_or(default.fill_max))
    }
}

/// Parses the share of set bits at which a Bloom filter is full: a fraction from 0.01 to 0.9.
fn fill_max(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.01..=0.9).contains(&share) => Ok(share),
        _ => Err(format!(
            "`{text}` is not a fraction from 0.01 to 0.9; write for example 0.5"
        )),
    }
}
