//! The settings of `[ranges]`.

use edgeward_types::ByteSize;

use super::super::kind::{Value, ValueKind, size_text};
use super::{Key, or_none};

pub(super) const SLICE_BYTES: Key = Key {
    path: "ranges.slice_bytes",
    flag: None,
    kind: ValueKind::SizeOrNone {
        min: ByteSize::kib(64),
        max: ByteSize::mib(64),
    },
    doc: "The size of a slice. A request for a range without a stored response fetches only the slices that the range \
          needs, at multiples of this size. With `\"none\"`, these requests are passed to the origin and their \
          responses are not stored. Stored slices keep the size that they were fetched with.",
    set: |draft, _, value| {
        draft.edge.ranges.slice_bytes = value.optional(Value::size).unwrap_or_default();
    },
    show: |draft, _| {
        let size = draft.edge.ranges.slice_bytes;
        Some(or_none((size.bytes() > 0).then(|| size_text(size))))
    },
};

pub(super) const READ_AHEAD_SLICES: Key = Key {
    path: "ranges.read_ahead_slices",
    flag: None,
    kind: ValueKind::Count { min: 0, max: 16 },
    doc: "The most slices that are fetched ahead of a client that reads one response in order. The first is fetched \
          after half a slice was read. No slice beyond the requested range is fetched. 0 disables reading ahead.",
    set: |draft, _, value| draft.edge.ranges.read_ahead_slices = value.number32(),
    show: |draft, _| Some(draft.edge.ranges.read_ahead_slices.to_string()),
};
