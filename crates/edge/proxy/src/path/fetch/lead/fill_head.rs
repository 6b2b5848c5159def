//! The head of a response as the followers of its fetch get it.

use edgeward_purge::Stamp;
use edgeward_semantics::negotiation::Representation;
use edgeward_semantics::{Storable, Vary};
use edgeward_types::Timestamp;
use http::StatusCode;
use http::header::{ACCEPT_RANGES, AGE, HeaderValue};

use super::fetch_state::Fetch;
use crate::cache::PathRule;
use crate::cache::fill::{FillHead, FillVariant};
use crate::origin::as_origin_sees;

impl Fetch {
    /// Returns the head that followers get. The caller fills in the last three fields: `publish` the first two of them.
    pub(in crate::path::fetch) fn build_head(
        &self,
        storable: &Storable,
        status: StatusCode,
        length: Option<u64>,
        now: Timestamp,
    ) -> FillHead {
        let mut headers = storable.head.clone();
        let age = storable.policy.age_secs(now);
        if age > 0 {
            headers.insert(AGE, HeaderValue::from(age));
        }
        let variant = match &storable.vary {
            Vary::Fields(fields) => {
                let mut secondary = Vec::new();
                let sent_fields =
                    as_origin_sees(self.worker.edge_info(&self.request), &self.request, fields);
                fields.write_key(&sent_fields, &mut secondary);
                let representation = Representation::from_response(status, &headers)
                    .filter(|_| self.worker.config().caching.share_variants);
                if representation.is_some() {
                    self.worker.cache.offers.record(&secondary);
                }
                Some(FillVariant {
                    fields: fields.clone(),
                    secondary,
                    representation,
                })
            }
            _ => None,
        };
        let ignores_ranges = status == StatusCode::OK
            && (self.part.is_some()
                || storable
                    .head
                    .get(ACCEPT_RANGES)
                    .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"none")));
        let rule = &storable.no_vary_search;
        // Requests for other targets may have joined by a key under a rule.
        let is_own_key = matches!(self.key.path_rule, PathRule::Unread | PathRule::Absent);
        let coverage =
            (rule.is_some() || !is_own_key).then(|| (self.key.target().into(), rule.clone()));
        FillHead {
            status,
            headers,
            coverage,
            variant,
            length,
            shareable: storable.policy.may_answer_followers(),
            ignores_ranges,
            stored: false,
            stamp: Stamp::NONE,
            encodable: None,
            is_own: true,
            object: None,
        }
    }
}
