//! The counters of a publisher.

use std::sync::Arc;

use edgeward_httpd::{ConnectionCounters, Counter};
use edgeward_metrics::{Kind, Metric, Series, Table, metrics};

macro_rules! counters {
    ($( $field:ident $metric:literal $help:literal )+) => {
        /// The counters of a publisher, each with its metric's name and help text below.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $( pub(crate) $field: Counter, )+
            pub(crate) connections: Arc<ConnectionCounters>,
        }

        /// The metrics of these counters. The metrics of connections are in `CONNECTIONS`.
        pub(crate) const METRICS: Table<Counters> = Table {
            labels: &[],
            metrics: &[ $( Metric {
                name: $metric,
                kind: Kind::Counter,
                help: $help,
                label: None,
                series: &[Series {
                    label: None,
                    index: 0,
                    value: |counters, _| counters.$field.value() as f64,
                }],
            }, )+ ],
        };
    };
}

counters! {
    requests "edgeward_publish_requests_total" "Requests answered."
    not_modified "edgeward_publish_not_modified_total"
        "Requests answered with 304 or 204 because the client is up to date."
    manifests "edgeward_publish_manifests_total" "Manifests served."
    proofs "edgeward_publish_proofs_total" "Proofs signed."
    snapshots "edgeward_publish_snapshots_total" "Snapshots served, completely or in part."
    deltas "edgeward_publish_deltas_total" "Deltas served, completely or in part."
    guava "edgeward_publish_guava_total" "Filters in Guava's format served, completely or in part."
    bytes "edgeward_publish_response_bytes_total" "Body bytes of responses."
    posts "edgeward_publish_posts_total" "Posted lists of ids that were journaled."
    posts_refused "edgeward_publish_posts_refused_total" "Posted lists of ids that were refused."
    ids_added "edgeward_publish_ids_added_total" "Ids journaled as added."
    ids_removed "edgeward_publish_ids_removed_total"
        "Ids reported as removed, which leave the filter with a later snapshot."
    polls "edgeward_publish_changes_polls_total" "Polls of the changes query that succeeded."
    polls_failed "edgeward_publish_changes_failed_total" "Polls of the changes query that failed."
    changes_malformed "edgeward_publish_changes_malformed_total"
        "Malformed rows of the changes query that were skipped."
    ids_fed "edgeward_publish_changes_ids_total" "Ids from polls that were new to the journal."
    journal_errors "edgeward_publish_journal_errors_total" "Failed writes of the journal or the state."
    scans "edgeward_publish_scans_total" "Scans that produced a snapshot."
    scans_failed "edgeward_publish_scans_failed_total" "Scans that failed."
    malformed "edgeward_publish_ids_malformed_total" "Scanned values that are not valid ids of the set."
}

metrics! {
    /// The counters of connections.
    pub(crate) const CONNECTIONS: ConnectionCounters = |connections| {
        Counter "edgeward_publish_connections_total" "Connections accepted." { connections.accepted.value() }
        Counter "edgeward_publish_connections_displaced_total"
            "Connections closed for a new one while they waited for their client." { connections.displaced.value() }
        Counter "edgeward_publish_connections_refused_total"
            "Connections refused because the client had too many, all with a response under way."
            { connections.refused.value() }
        Counter "edgeward_publish_connections_silent_total"
            "Connections closed because the client sent nothing." { connections.silent.value() }
        Counter "edgeward_publish_connections_stalled_total"
            "Connections closed because the client read too little of a response." { connections.stalled.value() }
    }
}
