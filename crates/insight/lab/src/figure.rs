//! The figures that a report compares, and the ways in which it compares two values of a figure.

use std::fmt;

use edgeward_report::Unit;

use crate::outcome::Totals;

/// A quantity that the lab measures for each contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// The share of the requests that were answered from the cache, from 0 to 1.
    HitRatio,
    /// The share of the body bytes that came from the cache, from 0 to 1.
    ByteHitRatio,
    /// Requests that reached the origin.
    OriginRequests,
    /// Body bytes that the origin sent.
    OriginBytes,
    /// The CPU time of the server's processes, in seconds.
    Cpu,
    /// The largest memory use of the server among all samples of the run, in bytes.
    Memory,
    /// Write operations of the disk cache, as the server counts them.
    DiskWriteOperations,
    /// Reads and writes that the device completed, including those of other programs.
    DeviceOperations,
    /// Bytes that the server's processes passed to the device for writing.
    DiskBytesWritten,
    /// Bytes that the server's processes read from the device.
    DiskBytesRead,
    /// The median latency, in seconds.
    LatencyP50,
    /// The 90th percentile of the latency, in seconds.
    LatencyP90,
    /// The 99th percentile of the latency, in seconds.
    LatencyP99,
}

impl Figure {
    /// All figures, in the order of the report.
    pub const ALL: [Self; 13] = [
        Self::HitRatio,
        Self::ByteHitRatio,
        Self::OriginRequests,
        Self::OriginBytes,
        Self::Cpu,
        Self::Memory,
        Self::DiskWriteOperations,
        Self::DeviceOperations,
        Self::DiskBytesWritten,
        Self::DiskBytesRead,
        Self::LatencyP50,
        Self::LatencyP90,
        Self::LatencyP99,
    ];

    /// Returns the name of the figure in a plan.
    pub const fn word(self) -> &'static str {
        match self {
            Self::HitRatio => "hit-ratio",
            Self::ByteHitRatio => "byte-hit-ratio",
            Self::OriginRequests => "origin-requests",
            Self::OriginBytes => "origin-bytes",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::DiskWriteOperations => "disk-write-operations",
            Self::DeviceOperations => "device-operations",
            Self::DiskBytesWritten => "disk-bytes-written",
            Self::DiskBytesRead => "disk-bytes-read",
            Self::LatencyP50 => "latency-p50",
            Self::LatencyP90 => "latency-p90",
            Self::LatencyP99 => "latency-p99",
        }
    }

    /// Returns the figure with this name in a plan.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|figure| figure.word() == word)
    }

    /// Returns the name of the figure in a table of the report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HitRatio => "requests answered from the cache",
            Self::ByteHitRatio => "bytes sent from the cache",
            Self::OriginRequests => "requests to the origin",
            Self::OriginBytes => "bytes from the origin",
            Self::Cpu => "CPU",
            Self::Memory => "largest memory use",
            Self::DiskWriteOperations => "write operations of the disk cache",
            Self::DeviceOperations => "operations of the device",
            Self::DiskBytesWritten => "bytes written to disk",
            Self::DiskBytesRead => "bytes read from disk",
            Self::LatencyP50 => "latency, median",
            Self::LatencyP90 => "latency, 90th percentile",
            Self::LatencyP99 => "latency, 99th percentile",
        }
    }

    /// Returns the unit of the figure.
    pub const fn unit(self) -> Unit {
        match self {
            Self::HitRatio | Self::ByteHitRatio => Unit::Share,
            Self::OriginRequests | Self::DiskWriteOperations | Self::DeviceOperations => {
                Unit::Count
            }
            Self::OriginBytes | Self::Memory | Self::DiskBytesWritten | Self::DiskBytesRead => {
                Unit::Bytes
            }
            Self::Cpu | Self::LatencyP50 | Self::LatencyP90 | Self::LatencyP99 => Unit::Seconds,
        }
    }

    /// Returns the value of this figure, in its unit, or `None` if the lab could not measure it.
    pub fn of(self, totals: &Totals) -> Option<f64> {
        let count = |n: u64| Some(n as f64);
        let seconds = |ms: Option<f64>| ms.map(|ms| ms / 1e3);
        match self {
            Self::HitRatio => Some(totals.hit_ratio),
            Self::ByteHitRatio => Some(totals.byte_hit_ratio),
            Self::OriginRequests => count(totals.origin_requests),
            Self::OriginBytes => count(totals.origin_bytes),
            Self::Cpu => totals.cpu_seconds,
            Self::Memory => totals.memory_bytes_max.map(|n| n as f64),
            Self::DiskWriteOperations => totals.store_write_operations.map(|n| n as f64),
            Self::DeviceOperations => totals.device_operations.map(|n| n as f64),
            Self::DiskBytesWritten => totals.disk_write_bytes.map(|n| n as f64),
            Self::DiskBytesRead => totals.disk_read_bytes.map(|n| n as f64),
            Self::LatencyP50 => seconds(totals.latency_p50_ms),
            Self::LatencyP90 => seconds(totals.latency_p90_ms),
            Self::LatencyP99 => seconds(totals.latency_p99_ms),
        }
    }
}

/// The way in which two values of a figure are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparisonKind {
    /// The first value divided by the second: "4.1 times fewer".
    TimesFewer,
    /// The change from the first value to the second, in percent of the first: "+47 %".
    Percent,
    /// The second share minus the first, in percentage points.
    Points,
}

impl ComparisonKind {
    /// All ways of comparison.
    pub const ALL: [Self; 3] = [Self::TimesFewer, Self::Percent, Self::Points];

    /// Returns the name of the comparison in a plan.
    pub const fn word(self) -> &'static str {
        match self {
            Self::TimesFewer => "times-fewer",
            Self::Percent => "percent",
            Self::Points => "points",
        }
    }

    /// Returns the comparison with this name in a plan.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|comparison| comparison.word() == word)
    }

    /// Compares two values. Returns `None` if the result is not a finite number.
    pub fn compare(self, before: f64, after: f64) -> Option<ComparisonResult> {
        let value = match self {
            Self::TimesFewer => before / after,
            Self::Percent => (after / before - 1.0) * 100.0,
            Self::Points => (after - before) * 100.0,
        };
        value.is_finite().then_some(ComparisonResult {
            comparison: self,
            value,
        })
    }
}

/// The result of a comparison, ready for display.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComparisonResult {
    comparison: ComparisonKind,
    /// A factor, percent or percentage points, according to `comparison`.
    pub value: f64,
}

impl fmt::Display for ComparisonResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.comparison {
            // A difference of less than 0.5 % is shown as no difference.
            ComparisonKind::TimesFewer if (self.value - 1.0).abs() < 0.005 => {
                f.write_str("the same")
            }
            ComparisonKind::TimesFewer if self.value >= 1.0 => {
                write!(f, "{:.1}\u{a0}times fewer", self.value)
            }
            ComparisonKind::TimesFewer => write!(f, "{:.1}\u{a0}times more", 1.0 / self.value),
            ComparisonKind::Percent => write!(f, "{:+.1}\u{a0}%", self.value),
            ComparisonKind::Points => write!(f, "{:+.2}\u{a0}points", self.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_and_comparison_is_found_by_its_name_in_a_plan() {
        for figure in Figure::ALL {
            assert_eq!(Figure::from_word(figure.word()), Some(figure));
        }
        for comparison in ComparisonKind::ALL {
            assert_eq!(
                ComparisonKind::from_word(comparison.word()),
                Some(comparison)
            );
        }
        assert_eq!(Figure::from_word("luck"), None);
    }

    #[test]
    fn a_comparison_is_shown_as_a_short_phrase() {
        let shown = |comparison: ComparisonKind, before, after| {
            let compared = comparison.compare(before, after);
            compared.map_or_else(|| "-".to_owned(), |compared| compared.to_string())
        };
        assert_eq!(
            shown(ComparisonKind::TimesFewer, 410.0, 100.0),
            "4.1\u{a0}times fewer"
        );
        assert_eq!(
            shown(ComparisonKind::TimesFewer, 100.0, 150.0),
            "1.5\u{a0}times more"
        );
        assert_eq!(shown(ComparisonKind::TimesFewer, 100.0, 100.1), "the same");
        assert_eq!(shown(ComparisonKind::TimesFewer, 100.0, 0.0), "-");
        assert_eq!(shown(ComparisonKind::Percent, 0.50, 0.74), "+48.0\u{a0}%");
        assert_eq!(shown(ComparisonKind::Percent, 2.0, 1.0), "-50.0\u{a0}%");
        assert_eq!(shown(ComparisonKind::Percent, 0.0, 1.0), "-");
        assert_eq!(
            shown(ComparisonKind::Points, 0.601, 0.613),
            "+1.20\u{a0}points"
        );
    }
}
