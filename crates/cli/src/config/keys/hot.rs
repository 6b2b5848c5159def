//! The settings of `[hot]`.

use edgeward_proxy::config::EdgeConfig;
use edgeward_types::ByteSize;

use super::row::{Key, TIB_16, rows};
use crate::config::draft::Part as _;
use crate::config::value::{Count, Policy, Seed, Size, Word};

pub(super) static ROWS: &[Key] = rows! {
    /// The size of the memory tier: heads, bodies, keys and the index.
    "hot.capacity" restart,
        flag "--hot SIZE" "Size of the memory tier, such as 256MiB":
        Size(ByteSize::mib(1), TIB_16) => EdgeConfig.hot.capacity;

    /// The largest part of `hot.capacity` that slow clients can pin: bodies that were evicted while they are sent, and
    /// bytes read for clients that do not take them. Above this limit, no response is admitted, and the edge
    /// disconnects the clients that take their bytes most slowly. Default: an eighth of `hot.capacity`, at least 4 MiB.
    "hot.pinned_bytes_max" restart: Size(ByteSize::mib(1), TIB_16),
        get: |draft, _| Some(ByteSize(draft.edge.hot.pinned_bytes_max())),
        set: |draft, _, value| draft.edge.hot.pinned_bytes_max = Some(value);

    /// The memory of freed objects that is kept for new ones, in addition to `hot.capacity`. Memory above this limit is
    /// returned to the system at once, the rest after 100 ms. A smaller value costs CPU time: with 0, a stored miss of
    /// 64 KiB or more takes about twice the CPU time. Default: 1/32 of `hot.capacity`, at least 2 MiB.
    "hot.freed_bytes_max" restart: Size(ByteSize(0), TIB_16),
        get: |draft, _| Some(ByteSize(draft.edge.hot.freed_bytes_max())),
        set: |draft, _, value| draft.edge.hot.freed_bytes_max = Some(value);

    /// The policy of admission and eviction: an eviction rule such as `gdsf`, an admission rule with LRU eviction such
    /// as `adaptsize`, or both, such as `adaptsize+gdsf`. [policies.md](../explanation/policies.md) lists the rules and
    /// the traffic that each suits. [`PUT /policy`](../how-to/sizes.md#change-the-policy-while-serving) on the admin
    /// server changes it until the next start.
    "hot.policy" live,
        flag "--policy POLICY" "Policy of the memory tier: lru, adaptsize, …": Policy => EdgeConfig.hot.policy;

    /// The aim of the policy: `"requests"` the number of hits, `"bytes"` the bytes of the hits, `"origin-cost"` the
    /// time that hits save. The saved time of a hit is the time to the first byte of the last fetch of its object; an
    /// object read from disk counts with the mean of recent fetches. Only `density`, `gds` and the forms of `gdsf`
    /// follow an objective other than `"requests"`.
    "hot.objective" restart,
        hidden_flag "--objective OBJECTIVE" "Aim of the policy: requests, bytes or origin-cost":
        Word::OF => EdgeConfig.hot.objective;

    /// The number of requests between two runs of the tuner, for policies that tune themselves. The first runs follow
    /// sooner: after 2,000 requests, then 4,000 and so on.
    "hot.window_requests" restart,
        hidden_flag "--window-requests N" "Requests between two runs of a policy's tuner": Count::of(1000, 100_000_000),
        get: |draft, _| Some(draft.edge.hot.window_requests.unwrap_or(DEFAULT_WINDOW_REQUESTS)),
        set: |draft, _, value| draft.edge.hot.window_requests = Some(value);

    /// The place where the tuner runs: `"thread"` is a thread of its own, `"inline"` is the request that completes the
    /// window. `"inline"` makes runs with one worker reproducible.
    "hot.tuner" restart: Word::OF => EdgeConfig.hot.tuner_mode;

    /// The seed of the random numbers of admission and of the tuner. The same seed and the same requests give the same
    /// decisions.
    "hot.seed" restart,
        hidden_flag "--seed N" "Seed of the policy's random numbers, for reproducible runs": Seed,
        get: |draft, _| Some(draft.edge.hot.seed.0),
        set: |draft, _, value| draft.edge.hot.seed.0 = value;
};

/// The number of requests between two runs of the tuner if the user sets none. The store has the same default, which
/// is Δ in the AdaptSize paper.
const DEFAULT_WINDOW_REQUESTS: u32 = 250_000;
