//! The settings of the analysis of live requests.

use edgeward_types::ByteSize;

/// The settings of the analysis of live requests, see [`EdgeConfig::watcher`](crate::EdgeConfig::watcher).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsightConfig {
    /// False: no requests are watched. Default true, with an effect if the admin server has an address, because its
    /// pages show the analysis.
    pub enabled: bool,
    /// The bound of the memory of the analysis. Default: 1 % of the capacity of memory, within
    /// [`MEMORY_MIN`](Self::MEMORY_MIN) and [`MEMORY_MAX`](Self::MEMORY_MAX).
    pub memory: Option<ByteSize>,
}

impl Default for InsightConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            memory: None,
        }
    }
}

impl InsightConfig {
    /// The least default bound. With less memory, the sample of a small cache has too few objects.
    pub const MEMORY_MIN: ByteSize = ByteSize::mib(8);

    /// The largest default bound. A larger sample would not be more accurate, because its error is below a point.
    pub const MEMORY_MAX: ByteSize = ByteSize::mib(64);

    /// The memory of a worker's ring of samples.
    pub const RING_MEMORY: ByteSize = ByteSize::kib(288);

    /// Returns the bound of the memory for a cache with this capacity of memory.
    pub fn memory_max(&self, hot: ByteSize) -> ByteSize {
        self.memory.unwrap_or_else(|| {
            ByteSize(hot.bytes() / 100).clamp(Self::MEMORY_MIN, Self::MEMORY_MAX)
        })
    }
}
