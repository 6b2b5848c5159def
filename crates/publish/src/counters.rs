//! The counters of a publisher.

use std::sync::Arc;

use edgeward_httpd::{ConnectionCounters, Counter};

macro_rules! counters {
    ($( $field:ident $metric:literal $help:literal )+) => {
        /// Each with its metric's name and help below.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $( pub(crate) $field: Counter, )+
            pub(crate) connections: Arc<ConnectionCounters>,
        }

        impl Counters {
            /// Name, help and value of all.
            pub(crate) fn rows(&self) -> Vec<(&'static str, &'static str, u64)> {
                let mut rows = vec![ $( ($metric, $help, self.$field.value()), )+ ];
                rows.extend(connection_rows(&self.connections));
                rows
            }
        }
    };
}

counters! {
    requests "edgeward_publish_requests_total" "Requests answered, whatever the answer."
    not_modified "edgeward_publish_not_modified_total" "Requests answered by 304 or 204: nothing new."
    manifests "edgeward_publish_manifests_total" "Manifests handed out."
    proofs "edgeward_publish_proofs_total" "Proofs signed."
    snapshots "edgeward_publish_snapshots_total" "Snapshots handed out, whole or in part."
    deltas "edgeward_publish_deltas_total" "Deltas handed out, whole or in part."
    guava "edgeward_publish_guava_total" "Filters in Guava's form handed out, whole or in part."
    bytes "edgeward_publish_response_bytes_total" "Body bytes handed to clients' connections."
    posts "edgeward_publish_posts_total" "Lists of ids that were journaled."
    posts_refused "edgeward_publish_posts_refused_total" "Lists of ids that were not journaled."
    ids_added "edgeward_publish_ids_added_total" "Ids journaled as added."
    ids_removed "edgeward_publish_ids_removed_total" "Ids said to be removed; they leave with a later snapshot."
    polls "edgeward_publish_changes_polls_total" "Polls of the database's changes that came to their end."
    polls_failed "edgeward_publish_changes_failed_total" "Polls of the database's changes that did not."
    changes_malformed "edgeward_publish_changes_malformed_total" "Rows of the database's changes that were skipped because they are malformed."
    ids_fed "edgeward_publish_changes_ids_total" "Ids that polls brought and the journal did not have."
    journal_errors "edgeward_publish_journal_errors_total" "Times the journal or the state could not be written."
    scans "edgeward_publish_scans_total" "Scans that became a snapshot."
    scans_failed "edgeward_publish_scans_failed_total" "Scans that did not."
    malformed "edgeward_publish_ids_malformed_total" "What a scan found that is no id of the set's form."
}

fn connection_rows(of: &ConnectionCounters) -> [(&'static str, &'static str, u64); 5] {
    [
        (
            "edgeward_publish_connections_total",
            "Connections accepted.",
            of.accepted.value(),
        ),
        (
            "edgeward_publish_connections_displaced_total",
            "Connections closed to make room while they waited for their client.",
            of.displaced.value(),
        ),
        (
            "edgeward_publish_connections_refused_total",
            "Connections refused because their client had its share, all of it at work.",
            of.refused.value(),
        ),
        (
            "edgeward_publish_connections_silent_total",
            "Connections closed because no byte came.",
            of.silent.value(),
        ),
        (
            "edgeward_publish_connections_stalled_total",
            "Connections given up because the client took nothing, or too little.",
            of.stalled.value(),
        ),
    ]
}
