//! The counters of a filter client.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($( $(#[$doc:meta])* $field:ident )+) => {
        /// Counters since the start of a client.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counts {
            $( $(#[$doc])* pub $field: u64, )+
        }

        impl Counts {
            /// Each by its name.
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![ $( (stringify!($field), self.$field), )+ ]
            }
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $( pub(crate) $field: AtomicU64, )+
        }

        impl Counters {
            pub(crate) fn read(&self) -> Counts {
                Counts { $( $field: self.$field.load(Ordering::Relaxed), )+ }
            }
        }
    };
}

counts! {
    /// Manifests or proofs asked for.
    polls
    /// Requests that got no usable answer.
    failed
    /// Manifests taken.
    manifests
    /// Proofs taken.
    proofs
    /// Snapshots taken.
    snapshots
    /// Deltas taken.
    deltas
    /// Body bytes received.
    bytes
    /// Manifests that were not believed.
    manifests_refused
    /// Proofs that were not believed.
    proofs_refused
    /// Snapshots that were broken, too large or not the one that was named.
    snapshots_refused
    /// Deltas that were.
    deltas_refused
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
