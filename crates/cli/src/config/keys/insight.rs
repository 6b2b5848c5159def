//! The settings of `[insight]`.

use edgeward_proxy::config::EdgeConfig;
use edgeward_types::ByteSize;

use super::row::{Key, rows};
use crate::config::draft::Part as _;
use crate::config::value::{Size, Switch, Unset};

pub(super) static ROWS: &[Key] = rows! {
    /// If true and the edge has an `admin.address`, the edge simulates caches of other sizes and policies with a sample
    /// of its requests. `/status` and `/metrics` have the results, see docs/how-to/what-if.md.
    "insight.enabled" restart: Switch => EdgeConfig.insight.enabled;

    /// The bound of the memory of the analysis. Default: 1 % of `hot.capacity`, at least 8 MiB and at most 64 MiB.
    "insight.memory" restart: Unset(Size(ByteSize::mib(6), ByteSize::gib(1))) => EdgeConfig.insight.memory;
};
