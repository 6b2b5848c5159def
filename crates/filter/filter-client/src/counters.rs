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
            /// Returns each counter with its name.
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
    /// Requests for the manifest. Each also asks for a proof of freshness, unless the client has a `clock_error`.
    polls
    /// Polls and downloads that failed.
    failed
    /// Accepted manifests.
    manifests
    /// Accepted proofs.
    proofs
    /// Accepted snapshots.
    snapshots
    /// Accepted deltas.
    deltas
    /// Body bytes received.
    bytes
    /// Refused manifests.
    manifests_refused
    /// Refused proofs.
    proofs_refused
    /// Snapshots that were corrupt, too large or not the listed file.
    snapshots_refused
    /// Deltas that were corrupt, too large or not the listed file.
    deltas_refused
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
