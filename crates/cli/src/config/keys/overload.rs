//! The settings of `[overload]` and `[watchdog]`.

use edgeward_proxy::config::EdgeConfig;
use edgeward_types::ByteSize;

use super::row::{DURATION, DURATION_OR_ZERO, Key, TIB_16, rows};
use crate::config::draft::Part as _;
use crate::config::value::{Count, OrNone, Size, Switch};

pub(super) static ROWS: &[Key] = rows! {
    /// The memory of the process above which it sheds load. Default: 90 % of the memory of the machine or of its
    /// control group, whichever is less. `none`: no bound.
    "overload.memory_max" restart: OrNone(Size(ByteSize::mib(1), TIB_16)),
        get: |draft, _| {
            let max = draft.edge.overload.memory_max;
            (max.is_some() || draft.overload_memory_given).then_some(max)
        },
        set: |draft, _, value| {
            draft.overload_memory_given = true;
            draft.edge.overload.memory_max = value;
        };

    /// The delay of a worker above which the edge sheds load: the time for which an event waits until the worker
    /// handles it, as a moving average over half a second. 0: no bound.
    "overload.lag_max" restart: DURATION_OR_ZERO => EdgeConfig.overload.lag_max;

    /// The number of descriptors below the limit of open files that must be free. With fewer, the edge closes idle
    /// connections and sheds load. 0: no bound.
    "overload.descriptors_free_min" restart: Count::of(0, 1 << 22) => EdgeConfig.overload.descriptors_free_min;

    /// The shortest time between two changes of the level. While a bound is exceeded, the edge sheds one more class of
    /// work after each step: new connections, requests that bypass the cache, misses, and hits last. For `memory_max`,
    /// connections that hold much memory are closed instead of new ones. Hits are shed for `lag_max` alone. Below 95 %
    /// of the bounds of memory and descriptors and 50 % of `lag_max`, one class less is shed after each step.
    "overload.step" restart: DURATION => EdgeConfig.overload.step;

    /// The time in `Retry-After` of the response 503 to a request that is shed, rounded up to whole seconds.
    "overload.retry_after" restart: DURATION => EdgeConfig.overload.retry_after;

    /// The time without a report after which a worker counts as stuck. A worker reports ten times a second. The edge
    /// logs the worker, the time since its last report, its last activity and the state of its thread. 0 disables the
    /// watchdog.
    "watchdog.deadline" restart: DURATION_OR_ZERO => EdgeConfig.watchdog.deadline;

    /// If true, a stuck worker ends the process by SIGABRT, so that its supervisor starts it again. If false, the other
    /// workers go on.
    "watchdog.abort" restart: Switch => EdgeConfig.watchdog.aborts;
};
