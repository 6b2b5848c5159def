//! The settings that hold for a request: those of its site and of the site's rules that apply.
//!
//! Settings are merged once for each set of rules and kept, because a site has few sets that occur.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use edgeward_semantics::{DELTA_SECONDS_MAX, Lifetimes, Rules, StatusLifetimes};
use edgeward_sites::{
    DiskPlacement, Fields, IdFilters, NoClass, QueryShape, RequestView, RuleSet, Settings, SiteId,
    Sites, Stated, StatusMap, StatusSet,
};
use edgeward_types::ByteSize;

use crate::config::live::LiveConfig;
use crate::config::s3::{bucket_of, query_shape};
use crate::config::{CompressionConfig, OriginId, S3Config};
use crate::observe::metric_labels::{PerWorker, WorkerTally};
use crate::observe::site_counters::SiteCounters;

/// The settings of all requests of a site to which the same rules apply.
#[derive(Debug)]
pub(crate) struct RequestSettings {
    sites: Arc<Sites>,
    /// The counters of the site.
    pub(crate) counters: WorkerTally<SiteCounters>,
    pub(crate) site: SiteId,
    /// The rules that apply.
    pub(crate) rules: RuleSet,
    pub(crate) origin: OriginId,
    /// The merged settings, as stated.
    pub(crate) stated: Settings,
    /// The rules of caching, with the lifetimes of the site.
    pub(crate) caching: Rules,
    pub(crate) stale_if_disconnected: Duration,
    pub(crate) compression: CompressionConfig,
    /// True if responses are dictionaries.
    pub(crate) makes_dictionaries: bool,
    /// The most bytes of a request's body.
    pub(crate) request_body_bytes_max: Option<u64>,
    pub(crate) query: QueryShape,
    pub(crate) placement: Placement,
    /// The bucket, if the origin is S3.
    pub(crate) bucket: Option<Arc<S3Config>>,
    /// True if the settings do not answer requests, and change neither fields nor hits. The fast path may then answer
    /// hits.
    pub(crate) is_plain: bool,
    /// True if the settings change neither the key nor the forwarded request.
    pub(crate) changes_no_request: bool,
}

/// The tiers that may store a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    /// False if a rule keeps the body out of memory.
    pub(crate) memory: bool,
    pub(crate) disk: DiskPlacement,
}

impl Placement {
    /// The placement of an object that another node of a fleet stores.
    pub(crate) const NOWHERE: Self = Self {
        memory: false,
        disk: DiskPlacement::Never,
    };
}

impl RequestSettings {
    fn new(
        sites: &Arc<Sites>,
        site: SiteId,
        rules: RuleSet,
        stated: Settings,
        live: &LiveConfig,
        counters: &WorkerTally<SiteCounters>,
    ) -> Self {
        let caching = &live.caching;
        let mut caching_rules = caching.rules.clone();
        let mut compression = live.compression.clone();
        compression.enabled = stated.compression.unwrap_or(compression.enabled);
        let makes_dictionaries = stated.dictionary.is_on()
            && compression.enabled
            && !compression.rules.personal
            // These responses are for some users only.
            && stated.check_authorization != Some(true)
            && stated.share_authorized != Some(true);
        let lifetimes = Lifetimes {
            replacing: status_lifetimes(&stated.ttl),
            unstated: status_lifetimes(&stated.default_ttl),
            stale_while_revalidate_secs: stated.stale_while_revalidate.map(seconds),
            stale_if_error_secs: stated.stale_if_error.map(seconds),
        };
        if lifetimes != Lifetimes::default() {
            caching_rules.lifetimes = Some(Arc::new(lifetimes));
        }
        caching_rules.check_authorization = stated.check_authorization.unwrap_or(false);
        caching_rules.share_authorized = stated.share_authorized.unwrap_or(false);
        let is_plain = stated.pass != Some(true)
            && !caching_rules.check_authorization
            && !stated.deny.is_on()
            && !stated.redirect.is_on()
            && !stated.answer.is_on()
            && !stated.rate_limit.is_on()
            && !stated.changes_request_fields()
            && stated.response.is_empty()
            && stated.error_pages.is_empty()
            && stated.memory != Some(false)
            && matches!(stated.id_filters, None | Some(IdFilters::All));
        let bucket = bucket_of(&stated, &live.buckets).cloned();
        let mut body_max = match stated.request_body_max {
            Stated::Unstated => live.request_body_bytes_max,
            Stated::Off => None,
            Stated::On(max) => Some(max),
        };
        if rules.has_disputed() && stated.request_body_max.is_on() {
            // A disputed rule must not raise the limit.
            body_max = body_max
                .into_iter()
                .chain(live.request_body_bytes_max)
                .min();
        }
        let query = query_shape(&stated, bucket.is_some());
        Self {
            sites: Arc::clone(sites),
            counters: counters.clone(),
            site,
            rules,
            origin: OriginId::new(stated.origin.unwrap_or(0)),
            changes_no_request: query.is_neutral()
                && bucket.is_none()
                && stated.key.is_none()
                && stated.replacements().is_none()
                && !stated.rewrite.is_on()
                && !stated.changes_request_fields(),
            caching: caching_rules,
            stale_if_disconnected: stated
                .stale_if_disconnected
                .unwrap_or(caching.stale_if_disconnected),
            compression,
            makes_dictionaries,
            request_body_bytes_max: body_max.map(ByteSize::bytes),
            query,
            placement: Placement {
                memory: stated.memory.unwrap_or(true),
                disk: stated.disk.unwrap_or_default(),
            },
            bucket,
            is_plain,
            stated,
        }
    }

    /// Returns the sites of which [`site`](Self::site) is one.
    pub(crate) fn sites(&self) -> &Sites {
        &self.sites
    }

    /// Returns the class of a request, which is a part of its cache key. Empty if no rule demands a class.
    pub(crate) fn class(&self, fields: &dyn Fields) -> Result<Box<[u8]>, NoClass> {
        let mut class = Vec::new();
        for part in self.stated.key.iter().flat_map(|parts| parts.iter()) {
            part.write(fields, &mut class)?;
        }
        Ok(class.into())
    }
}

/// The merged settings that a worker has used.
#[derive(Debug)]
pub(crate) struct SettingsCache {
    /// The number of the generation to which the settings belong.
    pub(crate) version: u64,
    config: Arc<LiveConfig>,
    /// The counters of each site.
    counters: Vec<WorkerTally<SiteCounters>>,
    /// The settings of each site if none of its rules applies.
    without_rules: Vec<Rc<RequestSettings>>,
    merged: RefCell<HashMap<(SiteId, RuleSet), Rc<RequestSettings>>>,
    /// The merged settings that each site has used last: most of its requests need the same.
    latest: RefCell<Vec<Option<Rc<RequestSettings>>>>,
}

impl SettingsCache {
    /// `version` is the number of the generation, `counters` has the counters of each site.
    pub(crate) fn new(
        config: &Arc<LiveConfig>,
        version: u64,
        counters: &[PerWorker<SiteCounters>],
        worker: usize,
    ) -> Self {
        let sites = &config.sites;
        let counters = counters.iter();
        let counters: Vec<_> = counters.map(|all| WorkerTally::new(all, worker)).collect();
        let without_rules = sites.iter().zip(&counters).map(|((id, site), counters)| {
            let (rules, stated) = (RuleSet::default(), site.settings.clone());
            let settings = RequestSettings::new(sites, id, rules, stated, config, counters);
            Rc::new(settings)
        });
        Self {
            without_rules: without_rules.collect(),
            counters,
            version,
            config: Arc::clone(config),
            merged: RefCell::default(),
            latest: RefCell::new(vec![None; sites.iter().count()]),
        }
    }

    /// Returns the site of a canonical authority.
    pub(crate) fn site(&self, authority: &str) -> Option<SiteId> {
        self.config.sites.find(authority)
    }

    /// Returns the settings of the site if it has no rules.
    pub(crate) fn of_site_without_rules(&self, site: SiteId) -> Option<&Rc<RequestSettings>> {
        let has_rules = !self.config.sites.site(site).rules().is_empty();
        (!has_rules).then(|| &self.without_rules[site.0])
    }

    /// Returns the settings of a request of the site.
    pub(crate) fn of_request(
        &self,
        site: SiteId,
        request: &RequestView<'_>,
    ) -> Rc<RequestSettings> {
        let rules = self.config.sites.site(site).applying(request);
        if rules == RuleSet::default() {
            return Rc::clone(&self.without_rules[site.0]);
        }
        let latest = &mut self.latest.borrow_mut()[site.0];
        match latest {
            Some(latest) if latest.rules == rules => Rc::clone(latest),
            _ => Rc::clone(latest.insert(self.merged(site, rules))),
        }
    }

    fn merged(&self, site: SiteId, rules: RuleSet) -> Rc<RequestSettings> {
        if let Some(settings) = self.merged.borrow().get(&(site, rules)) {
            return Rc::clone(settings);
        }
        let stated = self.config.sites.site(site).settings_of(&rules);
        let settings = Rc::new(RequestSettings::new(
            &self.config.sites,
            site,
            rules,
            stated,
            &self.config,
            &self.counters[site.0],
        ));
        let mut merged = self.merged.borrow_mut();
        if merged.len() >= MERGED_MAX {
            merged.clear();
        }
        merged.insert((site, rules), Rc::clone(&settings));
        settings
    }
}

/// The most sets of rules that a worker keeps merged: a few for each of a thousand sites. If more occur, all are merged
/// again, which takes microseconds each.
const MERGED_MAX: usize = 4096;

/// Returns the lifetimes as ranges, in which single statuses precede classes.
fn status_lifetimes(lifetimes: &StatusMap<Option<Duration>>) -> StatusLifetimes {
    let mut ranges: Vec<(Range<u16>, Option<u32>)> = lifetimes
        .iter()
        .map(|(set, lifetime)| {
            let range = match set {
                StatusSet::One(status) => status..status + 1,
                StatusSet::Class(digit) => digit * 100..digit * 100 + 100,
            };
            (range, lifetime.map(seconds))
        })
        .collect();
    ranges.sort_by_key(|(range, _)| range.len());
    StatusLifetimes(ranges)
}

fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).map_or(DELTA_SECONDS_MAX, |secs| secs.min(DELTA_SECONDS_MAX))
}
