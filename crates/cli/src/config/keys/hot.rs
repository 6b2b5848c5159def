//! The settings of `[hot]`: the memory tier and its policy.

use edgeward_policy::Objective;
use edgeward_store::hot::TunerMode;
use edgeward_types::{ByteSize, Seed};

use super::super::choice::Choice as _;
use super::super::kind::{ValueKind, size_text};
use super::Key;

pub(super) const CAPACITY: Key = Key {
    path: "hot.capacity",
    flag: Some("--hot"),
    kind: ValueKind::Size {
        min: ByteSize::mib(1),
        max: ByteSize::gib(16 << 10), // 16 TiB
    },
    doc: "The size of the memory tier: heads, bodies, keys and the index.",
    set: |draft, _, value| draft.edge.hot.capacity = value.size(),
    show: |draft, _| Some(size_text(draft.edge.hot.capacity)),
};

pub(super) const PINNED_BYTES_MAX: Key = Key {
    path: "hot.pinned_bytes_max",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize::mib(1),
        max: ByteSize::gib(16 << 10), // 16 TiB
    },
    doc: "The largest part of `hot.capacity` that slow clients can pin: bodies that were evicted while they are \
          sent, and bytes read for clients that do not take them. Above this limit, no response is admitted, \
          and the edge disconnects the clients that take their bytes most slowly. Default: an eighth of \
          `hot.capacity`, at least 4 MiB.",
    set: |draft, _, value| draft.edge.hot.pinned_bytes_max = Some(value.size()),
    show: |draft, _| Some(size_text(ByteSize(draft.edge.hot.pinned_bytes_max()))),
};

pub(super) const FREED_BYTES_MAX: Key = Key {
    path: "hot.freed_bytes_max",
    flag: None,
    kind: ValueKind::Size {
        min: ByteSize(0),
        max: ByteSize::gib(16 << 10), // 16 TiB
    },
    doc: "The memory of freed objects that is kept for new ones, in addition to `hot.capacity`. Memory above \
          this limit is returned to the system at once, the rest after 100 ms. A smaller value costs CPU time: \
          with 0, a stored miss of 64 KiB or more takes about twice the CPU time. Default: 1/32 of \
          `hot.capacity`, at least 2 MiB.",
    set: |draft, _, value| draft.edge.hot.freed_bytes_max = Some(value.size()),
    show: |draft, _| Some(size_text(ByteSize(draft.edge.hot.freed_bytes_max()))),
};

pub(super) const POLICY: Key = Key {
    path: "hot.policy",
    flag: Some("--policy"),
    kind: ValueKind::Policy,
    doc: "The policy of admission and eviction: an eviction rule such as `gdsf`, an admission rule with LRU \
          eviction such as `adaptsize`, or both, such as `adaptsize+gdsf`. \
          [policies.md](../explanation/policies.md) lists the rules and the traffic that each suits. \
          [`PUT /policy`](../how-to/sizes.md#change-the-policy-while-serving) on the admin server changes it \
          until the next start.",
    set: |draft, _, value| draft.edge.hot.policy = value.policy(),
    show: |draft, _| Some(draft.edge.hot.policy.to_string()),
};

pub(super) const OBJECTIVE: Key = Key {
    path: "hot.objective",
    flag: Some("--objective"),
    kind: ValueKind::Choice(Objective::WORDS),
    doc: "The aim of the policy: `\"requests\"` the number of hits, `\"bytes\"` the bytes of the hits, \
          `\"origin-cost\"` the time that hits save. The saved time of a hit is the time to the first byte of the \
          last fetch of its object; an object read from disk counts with the mean of recent fetches. Only \
          `density`, `gds` and the forms of `gdsf` follow an objective other than `\"requests\"`.",
    set: |draft, _, value| draft.edge.hot.objective = value.choice(),
    show: |draft, _| Some(draft.edge.hot.objective.word().to_owned()),
};

pub(super) const WINDOW_REQUESTS: Key = Key {
    path: "hot.window_requests",
    flag: Some("--window-requests"),
    kind: ValueKind::Count {
        min: 1000,
        max: 100_000_000,
    },
    doc: "The number of requests between two runs of the tuner, for policies that tune themselves. The first \
          runs follow sooner: after 2,000 requests, then 4,000 and so on.",
    set: |draft, _, value| draft.edge.hot.window_requests = Some(value.number32()),
    show: |draft, _| {
        let window = draft.edge.hot.window_requests;
        Some(window.unwrap_or(DEFAULT_WINDOW_REQUESTS).to_string())
    },
};

pub(super) const TUNER: Key = Key {
    path: "hot.tuner",
    flag: None,
    kind: ValueKind::Choice(TunerMode::WORDS),
    doc: "The place where the tuner runs: `\"thread\"` is a thread of its own, `\"inline\"` is the request that \
          completes the window. `\"inline\"` makes runs with one worker reproducible.",
    set: |draft, _, value| draft.edge.hot.tuner_mode = value.choice(),
    show: |draft, _| Some(draft.edge.hot.tuner_mode.word().to_owned()),
};

pub(super) const SEED: Key = Key {
    path: "hot.seed",
    flag: Some("--seed"),
    kind: ValueKind::Seed,
    doc: "The seed of the random numbers of admission and of the tuner. The same seed and the same requests give \
          the same decisions.",
    set: |draft, _, value| draft.edge.hot.seed = Seed(value.number()),
    show: |draft, _| Some(draft.edge.hot.seed.0.to_string()),
};

/// The number of requests between two runs of the tuner if the user sets none. The store has the same default, which
/// is Δ in the AdaptSize paper.
const DEFAULT_WINDOW_REQUESTS: u32 = 250_000;
