//! The settings of a plain request, found without a map of its fields.

use std::net::IpAddr;
use std::rc::Rc;

use edgeward_sites::{Fields, RequestView, SiteId, matching_path};
use http::Method;
use http::header::HeaderName;

use super::head::PlainHead;
use crate::base::request_settings::{RequestSettings, SettingsCache};
use crate::exchange::Client;
use crate::path::worker::Worker;

/// Returns the settings of a plain request of a site that has rules. `host` is the canonical authority.
pub(super) fn settings_of(
    settings: &SettingsCache,
    worker: &Worker,
    client: &Client,
    plain: &PlainHead<'_, '_>,
    site: SiteId,
    host: &str,
) -> Rc<RequestSettings> {
    let (path, query) = plain.target.split_once('?').unwrap_or((plain.target, ""));
    let fields = PlainFields {
        worker,
        client,
        plain,
    };
    let view = RequestView {
        method: if plain.head_only {
            &Method::HEAD
        } else {
            &Method::GET
        },
        scheme: client.scheme(),
        host,
        path: &matching_path(path),
        sent_path: path,
        query,
        client: fields.client(),
        fields: &fields,
    };
    settings.of_request(site, &view)
}

/// The fields of a plain request without those that the canonical request lacks, so that rules see the same fields on
/// the fast path as on the request path.
pub(super) struct PlainFields<'q, 'a, 'f> {
    pub(super) worker: &'q Worker,
    pub(super) client: &'q Client,
    pub(super) plain: &'q PlainHead<'a, 'f>,
}

impl PlainFields<'_, '_, '_> {
    /// Returns the address of the client, behind trusted proxies too.
    pub(super) fn client(&self) -> IpAddr {
        let source = &self.worker.shared.canonicaliser.client_source;
        source.address(self.client.peer.ip(), self.client.is_trusted, self)
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
