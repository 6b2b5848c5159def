//! The settings of `[overload]` and `[watchdog]`.

use edgeward_types::ByteSize;

use super::super::kind::{Value, ValueKind, duration_text, size_text};
use super::{DURATION, DURATION_OR_ZERO, Key};

pub(super) const MEMORY_MAX: Key = Key {
    path: "overload.memory_max",
    flag: None,
    kind: ValueKind::SizeOrNone {
        min: ByteSize::mib(1),
        max: ByteSize::gib(16 << 10), // 16 TiB
    },
    doc: "The memory of the process above which it sheds load. Default: 90 % of the memory of the machine or of its \
          control group, whichever is less. `none`: no bound.",
    set: |draft, _, value| {
        draft.overload_memory_given = true;
        draft.edge.overload.memory_max = value.optional(Value::size);
    },
    show: |draft, _| {
        let none = || draft.overload_memory_given.then(|| "none".to_owned());
        draft.edge.overload.memory_max.map(size_text).or_else(none)
    },
};

pub(super) const LAG_MAX: Key = Key {
    path: "overload.lag_max",
    flag: None,
    kind: DURATION_OR_ZERO,
    doc: "The delay of a worker above which the edge sheds load: the time for which an event waits until the worker \
          handles it, as a moving average over half a second. 0: no bound.",
    set: |draft, _, value| draft.edge.overload.lag_max = value.duration(),
    show: |draft, _| Some(duration_text(draft.edge.overload.lag_max)),
};

pub(super) const DESCRIPTORS_FREE_MIN: Key = Key {
    path: "overload.descriptors_free_min",
    flag: None,
    kind: ValueKind::Count {
        min: 0,
        max: 1 << 22,
    },
    doc: "The number of descriptors below the limit of open files that must be free. With fewer, the edge closes idle \
          connections and sheds load. 0: no bound.",
    set: |draft, _, value| draft.edge.overload.descriptors_free_min = value.count(),
    show: |draft, _| Some(draft.edge.overload.descriptors_free_min.to_string()),
};

pub(super) const STEP: Key = Key {
    path: "overload.step",
    flag: None,
    kind: DURATION,
    doc: "The shortest time between two changes of the level. While a bound is exceeded, the edge sheds one more class \
          of work after each step: new connections, requests that bypass the cache, misses, and hits last. For \
          `memory_max`, connections that hold much memory are closed instead of new ones. Hits are shed for `lag_max` \
          alone. Below 95 % of the bounds of memory and descriptors and 50 % of `lag_max`, one \
          class less is shed after each step.",
    set: |draft, _, value| draft.edge.overload.step = value.duration(),
    show: |draft, _| Some(duration_text(draft.edge.overload.step)),
};

pub(super) const RETRY_AFTER: Key = Key {
    path: "overload.retry_after",
    flag: None,
    kind: DURATION,
    doc: "The time in `Retry-After` of the response 503 to a request that is shed, rounded up to whole seconds.",
    set: |draft, _, value| draft.edge.overload.retry_after = value.duration(),
    show: |draft, _| Some(duration_text(draft.edge.overload.retry_after)),
};

pub(super) const WATCHDOG_DEADLINE: Key = Key {
    path: "watchdog.deadline",
    flag: None,
    kind: DURATION_OR_ZERO,
    doc: "The time without a report after which a worker counts as stuck. A worker reports ten times a second. The \
          edge logs the worker, the time since its last report, its last activity and the state of its thread. 0 \
          disables the watchdog.",
    set: |draft, _, value| draft.edge.watchdog.deadline = value.duration(),
    show: |draft, _| Some(duration_text(draft.edge.watchdog.deadline)),
};

pub(super) const WATCHDOG_ABORT: Key = Key {
    path: "watchdog.abort",
    flag: None,
    kind: ValueKind::Switch,
    doc: "If true, a stuck worker ends the process by SIGABRT, so that its supervisor starts it again. If false, the \
          other workers go on.",
    set: |draft, _, value| draft.edge.watchdog.aborts = value.switch(),
    show: |draft, _| Some(draft.edge.watchdog.aborts.to_string()),
};
