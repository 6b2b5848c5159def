//! The settings of a plain request, found without a map of its fields.

use std::rc::Rc;

use edgeward_sites::{Fields, RequestParts, SiteId};
use http::Method;
use http::header::HeaderName;

use super::head::PlainHead;
use crate::exchange::request_settings::{RequestSettings, SettingsCache};
use crate::exchange::{Client, StatedClient};
use crate::path::worker::Worker;

/// Returns the settings of a plain request of a site that has rules. `host` is the canonical authority.
pub(super) fn settings_of(
    settings: &SettingsCache,
    fields: &PlainFields<'_, '_, '_>,
    stated: StatedClient,
    site: SiteId,
    host: &str,
) -> Rc<RequestSettings> {
    let plain = fields.plain;
    let request = RequestParts {
        method: if plain.head_only {
            &Method::HEAD
        } else {
            &Method::GET
        },
        scheme: stated.scheme,
        host,
        target: plain.target,
        client: stated.address,
        fields,
    };
    request.view(|view| settings.of_request(site, view))
}

/// The fields of a plain request without those that the canonical request lacks, so that rules see the same fields on
/// the fast path as on the request path.
pub(super) struct PlainFields<'q, 'a, 'f> {
    pub(super) worker: &'q Worker,
    pub(super) client: &'q Client,
    pub(super) plain: &'q PlainHead<'a, 'f>,
}

impl PlainFields<'_, '_, '_> {
    /// Returns the client, behind trusted proxies too.
    pub(super) fn stated_client(&self) -> StatedClient {
        let source = &self.worker.shared.canonicaliser.client_source;
        source.find(&self.client.facts(), self)
    }
}

impl Fields for PlainFields<'_, '_, '_> {
    fn any_line(&self, name: &HeaderName, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let is_named =
            |field: &&httparse::Header<'_>| field.name.eq_ignore_ascii_case(name.as_str());
        let mut lines = self.plain.fields.iter().filter(is_named).peekable();
        let filter = &self.worker.shared.canonicaliser.field_filter;
        lines.peek().is_some()
            && !filter.removes_from_plain(name, self.client.is_trusted)
            && lines.any(|field| test(field.value))
    }
}
