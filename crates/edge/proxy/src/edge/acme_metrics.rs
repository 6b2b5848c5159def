//! Metrics and status of the certificates that are renewed while the edge runs.

use edgeward_metrics::{Definition, Family, metrics};
use serde_json::{Value, json};

use crate::config::{CertificateSource, RenewedCertificate, SourceFacts};
use crate::path::worker::Shared;

metrics! {
    /// The orders of all certificates.
    const ORDERS: SourceFacts = |facts| {
        Counter "edgeward_acme_orders_total"
            "Orders of certificates that were begun, or continued after a restart." { facts.orders }
        Counter "edgeward_acme_certificates_total"
            "Certificates that were issued and stored." { facts.stored }
        Gauge "edgeward_acme_lease"
            "1 if this process orders certificates, 0 if another process with the same state does." {
            u8::from(facts.has_lease)
        }
    }
}

metrics! {
    /// The failed orders of one cause.
    const FAILURES: u64 ["cause"] = |count| {
        Counter "edgeward_acme_failures_total"
            "Failed orders of certificates, by cause: `validation` of the name, `rejected` by the issuer, \
             `rate-limited` by the issuer, `issuer` unreachable or with an error of its own, `local` error." { *count }
    }
}

metrics! {
    /// The handshakes for names that had no certificate, of one outcome.
    const DEMANDS: u64 ["result"] = |count| {
        Counter "edgeward_acme_on_demand_total"
            "Handshakes for names without a certificate, with `acme.on_demand`, by result: `issued` while the client \
             waited; `timeout`: not in time; `invalid`: not a host name; `refused` or `unanswered` by the URL; \
             `failed`: the order; `deferred`: a limit of orders or a failure of the issuer; `pending-limit`, \
             `names-limit`, `rate-limit` and `query-limit`: a limit of `acme.on_demand_…`; `no-lease`: another \
             process orders." {
            *count
        }
    }
}

metrics! {
    /// The names that clients have asked for.
    const ON_DEMAND: u64 = |names| {
        Gauge "edgeward_acme_on_demand_names"
            "Names that have a certificate, or an order, because a client asked for them." { *names }
    }
}

metrics! {
    /// One certificate that is issued.
    const ISSUED: u64 ["name"] = |end| {
        Gauge "edgeward_acme_certificate_expiry_timestamp_seconds"
            "End of the certificate of a name, in seconds since 1970." { *end }
    }
}

metrics! {
    /// One name.
    const NAMES: RenewedCertificate ["name"] = |certificate| {
        Gauge "edgeward_acme_next_order_timestamp_seconds"
            "Time of the next order for a name, in seconds since 1970; 0 if a limit forbids every order." {
            certificate.next_order_at.unwrap_or(0)
        }
        Gauge "edgeward_acme_consecutive_failures"
            "Failed orders of a name since the last success." { u64::from(certificate.failures) }
    }
}

/// Returns the definitions of the metrics.
pub(super) fn definitions() -> Vec<Definition> {
    let mut definitions = ORDERS.definitions();
    definitions.extend(FAILURES.definitions());
    definitions.extend(DEMANDS.definitions());
    definitions.extend(ON_DEMAND.definitions());
    definitions.extend(ISSUED.definitions());
    definitions.extend(NAMES.definitions());
    definitions
}

/// Returns the metrics. At most `metric_labels_max` names have a label: those that failed, then those that end first.
pub(super) fn families(shared: &Shared) -> Vec<Family> {
    let Some(source) = &shared.config.certificates else {
        return Vec::new();
    };
    let facts = source.facts();
    let mut families = ORDERS.of(&facts);
    let failures = facts.failures.iter();
    let rows: Vec<_> = failures
        .map(|(cause, count)| (vec![*cause], count))
        .collect();
    families.extend(FAILURES.families(&rows));
    if source.is_on_demand() {
        let demands = facts.demands.iter();
        let rows: Vec<_> = demands
            .map(|(result, count)| (vec![*result], count))
            .collect();
        families.extend(DEMANDS.families(&rows));
        families.extend(ON_DEMAND.of(&facts.names_on_demand));
    }
    let mut labelled: Vec<_> = facts.certificates.iter().collect();
    labelled.sort_by_key(|certificate| (certificate.failures == 0, certificate.not_after_at));
    labelled.truncate(shared.config.metric_labels_max);
    let ends = labelled.iter().filter_map(|&certificate| {
        let end = certificate.not_after_at.as_ref()?;
        Some((vec![certificate.name.as_str()], end))
    });
    let rows: Vec<_> = ends.collect();
    families.extend(ISSUED.families(&rows));
    let rows: Vec<_> = labelled
        .iter()
        .map(|&row| (vec![row.name.as_str()], row))
        .collect();
    families.extend(NAMES.families(&rows));
    families
}

/// Returns the status of all certificates. Null without a source.
pub(super) fn status(shared: &Shared) -> Value {
    let Some(source) = &shared.config.certificates else {
        return Value::Null;
    };
    let facts = source.facts();
    let certificates = facts.certificates.iter().map(|certificate| {
        json!({
            "name": certificate.name,
            "not_after": certificate.not_after_at,
            "next_order": certificate.next_order_at,
            "failures": certificate.failures,
        })
    });
    json!({
        "orders": facts.orders,
        "issued": facts.stored,
        "has_lease": facts.has_lease,
        "certificates": certificates.collect::<Vec<_>>(),
    })
}

/// Returns the end of the certificate that ends first.
pub(super) fn earliest_end(source: Option<&dyn CertificateSource>) -> Option<u64> {
    let facts = source?.facts();
    facts
        .certificates
        .iter()
        .filter_map(|certificate| certificate.not_after_at)
        .min()
}
