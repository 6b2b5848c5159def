//! The figures that contenders are compared by, and the ways to set two of them against each other.

use std::fmt;

use edgeward_report::Unit;

use crate::outcome::Totals;

/// What can be measured of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// The share of requests answered from the cache.
    HitRatio,
    /// The share of bytes.
    ByteHitRatio,
    /// Requests that reached the origin.
    OriginRequests,
    /// Bytes the origin sent.
    OriginBytes,
    /// CPU seconds.
    Cpu,
    /// The most memory held at any look.
    Memory,
    /// Writes of the disk cache, as the server counts them.
    DiskWriteOperations,
    /// Reads and writes that the device completed, whoever caused them.
    DeviceOperations,
    /// Bytes handed over to be written to a device.
    DiskBytesWritten,
    /// Bytes fetched from a device.
    DiskBytesRead,
    /// Half of the answers took no longer.
    LatencyP50,
    /// Nine in ten.
    LatencyP90,
    /// Ninety-nine in a hundred.
    LatencyP99,
}

impl Figure {
    /// All of them, in the order they are reported.
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

    /// The name plans use.
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

    /// The figure of this name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|figure| figure.word() == word)
    }

    /// As a table calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HitRatio => "requests answered from the cache",
            Self::ByteHitRatio => "bytes answered from the cache",
            Self::OriginRequests => "requests to the origin",
            Self::OriginBytes => "bytes from the origin",
            Self::Cpu => "CPU",
            Self::Memory => "memory, at most",
            Self::DiskWriteOperations => "write operations of the disk cache",
            Self::DeviceOperations => "operations of the device",
            Self::DiskBytesWritten => "bytes written to disk",
            Self::DiskBytesRead => "bytes read from disk",
            Self::LatencyP50 => "latency, half within",
            Self::LatencyP90 => "latency, 90 % within",
            Self::LatencyP99 => "latency, 99 % within",
        }
    }

    /// What it counts.
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

    /// What it came to, where it could be measured.
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

/// How two figures are set against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Before divided by after: "4.1 times fewer".
    TimesFewer,
    /// What after has beyond before, in percent of before: "+47 %".
    Percent,
    /// The difference of two shares, in points.
    Points,
}

impl Form {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::TimesFewer, Self::Percent, Self::Points];

    /// The name plans use.
    pub const fn word(self) -> &'static str {
        match self {
            Self::TimesFewer => "times-fewer",
            Self::Percent => "percent",
            Self::Points => "points",
        }
    }

    /// The form of this name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.word() == word)
    }

    /// The two against each other; nothing where that cannot be said.
    pub fn compare(self, before: f64, after: f64) -> Option<Compared> {
        let value = match self {
            Self::TimesFewer => before / after,
            Self::Percent => (after / before - 1.0) * 100.0,
            Self::Points => (after - before) * 100.0,
        };
        value.is_finite().then_some(Compared { form: self, value })
    }
}

/// Two figures against each other, ready to be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    form: Form,
    /// Times, percent or points.
    pub value: f64,
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            // Two figures that differ by a hundredth are the same to a reader.
            Form::TimesFewer if (self.value - 1.0).abs() < 0.005 => f.write_str("the same"),
            Form::TimesFewer if self.value >= 1.0 => {
                write!(f, "{:.1}\u{a0}times fewer", self.value)
            }
            Form::TimesFewer => write!(f, "{:.1}\u{a0}times more", 1.0 / self.value),
            Form::Percent => write!(f, "{:+.1}\u{a0}%", self.value),
            Form::Points => write!(f, "{:+.2}\u{a0}points", self.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_and_form_is_found_by_its_word() {
        for figure in Figure::ALL {
            assert_eq!(Figure::from_word(figure.word()), Some(figure));
        }
        for form in Form::ALL {
            assert_eq!(Form::from_word(form.word()), Some(form));
        }
        assert_eq!(Figure::from_word("luck"), None);
    }

    #[test]
    fn two_figures_read_as_people_say_it() {
        let said = |form: Form, before, after| {
            let compared = form.compare(before, after);
            compared.map_or_else(|| "-".to_owned(), |compared| compared.to_string())
        };
        assert_eq!(said(Form::TimesFewer, 410.0, 100.0), "4.1\u{a0}times fewer");
        assert_eq!(said(Form::TimesFewer, 100.0, 150.0), "1.5\u{a0}times more");
        assert_eq!(said(Form::TimesFewer, 100.0, 100.1), "the same");
        assert_eq!(said(Form::TimesFewer, 100.0, 0.0), "-");
        assert_eq!(said(Form::Percent, 0.50, 0.74), "+48.0\u{a0}%");
        assert_eq!(said(Form::Percent, 2.0, 1.0), "-50.0\u{a0}%");
        assert_eq!(said(Form::Percent, 0.0, 1.0), "-");
        assert_eq!(said(Form::Points, 0.601, 0.613), "+1.20\u{a0}points");
    }
}
