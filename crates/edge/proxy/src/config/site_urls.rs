//! The keys of URLs for which no request is at hand: of purges, and of responses that an unsafe request invalidates.

use std::borrow::Cow;
use std::sync::Arc;

use edgeward_sites::{RequestParts, Settings, Sites};

use super::s3::{Buckets, bucket_of, query_shape};

/// The rules of sites for the keys of URLs.
#[derive(Debug)]
pub(crate) struct SiteUrls {
    sites: Arc<Sites>,
    buckets: Buckets,
    /// True if a site or rule changes queries.
    shapes_queries: bool,
    /// True if a site or rule adds classes to keys. A URL may then have a stored response for each class.
    pub(crate) has_classes: bool,
}

impl SiteUrls {
    pub(crate) fn new(sites: &Arc<Sites>, buckets: &Buckets) -> Self {
        let any = |test: fn(&Settings) -> bool| {
            sites.iter().any(|(_, site)| {
                test(&site.settings) || site.rules().iter().any(|rule| test(&rule.settings))
            })
        };
        Self {
            shapes_queries: buckets.iter().any(Option::is_some)
                || any(|settings| !settings.query_shape().is_neutral()),
            buckets: Arc::clone(buckets),
            has_classes: any(|settings| settings.key.is_some()),
            sites: Arc::clone(sites),
        }
    }

    /// Returns the URL with the query that the rules of its site demand for a GET without fields. Rules with conditions
    /// on fields or addresses do not apply, because no request is known.
    pub(crate) fn shape<'a>(&self, url: &'a str) -> Cow<'a, str> {
        if !self.shapes_queries {
            return Cow::Borrowed(url);
        }
        let shaped = (|| {
            let (scheme, rest) = url.split_once("://")?;
            let (host, target) = rest.split_at(rest.find('/')?);
            let site = self.sites.site(self.sites.find(host)?);
            let request = RequestParts::of_url(scheme, host, target);
            let settings = request.view(|view| site.settings_of(&site.applying(view)));
            let shape = query_shape(&settings, bucket_of(&settings, &self.buckets).is_some());
            Some(format!("{scheme}://{host}{}", shape.apply(target)))
        })();
        shaped.map_or(Cow::Borrowed(url), Cow::Owned)
    }
}
