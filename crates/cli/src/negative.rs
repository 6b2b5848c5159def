//! Connects each `[[negative]]` rule to its filter. A rule lets the edge answer 404 without the origin if the filter
//! says that the id in the path is absent.
//!
//! The edge queries an `IdFilter` and does not know where the filter comes from; `filter-client` does not know
//! the edge. This module starts a filter for each rule of the configuration.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use edgeward_filter::{IdError, PublicKey, Trust, from_hex_any};
use edgeward_filter_client::{
    Answer, FileError, FileFilter, FilterClient, FilterConfig, FilterInfo, IdForm, PublisherUrl,
};
use edgeward_proxy::negative::{FilterFacts, IdFilter, Judgement, NegativeRule, PathPattern};
use edgeward_types::ByteSize;

/// One parsed `[[negative]]` section of the configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct NegativeSettings {
    /// The name by which rules of sites select the filter.
    pub(crate) name: Option<String>,
    pub(crate) pattern: Option<PathPattern>,
    pub(crate) filter: Option<FilterLocation>,
    /// The publisher's public keys. If there are no keys, signatures are not verified.
    pub(crate) keys: Vec<PublicKey>,
    /// An id that was committed longer ago than this is never answered 404. A publisher requires this setting.
    pub(crate) max_staleness: Option<Duration>,
    /// How ids are written in the path. `None`: in the form that the filter itself names.
    pub(crate) id_kind: Option<IdKind>,
    /// The largest difference between this machine's wall clock and the publisher's, if the operator guarantees one.
    pub(crate) clock_error: Option<Duration>,
    /// The PEM file of the root certificates for an `https` publisher. `None`: the root certificates of the system.
    pub(crate) root_certificates: Option<PathBuf>,
    /// The maximum size of a publisher's snapshot. `None`: the default of the filter client.
    pub(crate) snapshot_bytes_max: Option<ByteSize>,
}

/// The place from which a filter is read: a local file or a publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FilterLocation {
    File(PathBuf),
    Publisher(PublisherUrl),
}

impl fmt::Display for FilterLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Publisher(url) => url.fmt(f),
        }
    }
}

/// How ids are written in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdKind {
    Text,
    Uuid,
    Integer,
    /// Arbitrary bytes, written as hex digits.
    Hex,
}

impl IdKind {
    /// The form in which the filter stores these ids.
    fn form(self) -> IdForm {
        match self {
            Self::Text | Self::Hex => IdForm::Text,
            Self::Uuid => IdForm::Uuid,
            Self::Integer => IdForm::Integer,
        }
    }
}

/// Starts the filter of each rule. An unreachable publisher is not an error: until its filter has arrived,
/// every request is forwarded.
pub(crate) fn start(all: &[NegativeSettings]) -> anyhow::Result<Vec<NegativeRule>> {
    let mut rules = Vec::new();
    for settings in all {
        let (Some(pattern), Some(location)) = (&settings.pattern, &settings.filter) else {
            // The check of the configuration has rejected rules without a pattern or a filter.
            continue;
        };
        rules.push(NegativeRule {
            name: settings.name.as_deref().map(Into::into),
            pattern: pattern.clone(),
            filter: Arc::new(RuleFilter {
                source: start_filter(settings, location)?,
                is_hex: settings.id_kind == Some(IdKind::Hex),
            }),
        });
    }
    Ok(rules)
}

/// Returns the errors of filters in local files. Publishers are not asked.
pub(crate) fn check_files(all: &[NegativeSettings]) -> Vec<FileError> {
    let errors = all.iter().filter_map(|settings| match &settings.filter {
        Some(FilterLocation::File(path)) => {
            let form = settings.id_kind.map(IdKind::form);
            FileFilter::start(path, settings.max_staleness, form).err()
        }
        _ => None,
    });
    errors.collect()
}

fn start_filter(
    settings: &NegativeSettings,
    location: &FilterLocation,
) -> anyhow::Result<FilterSource> {
    let form = settings.id_kind.map(IdKind::form);
    match location {
        FilterLocation::File(path) => {
            let file = FileFilter::start(path, settings.max_staleness, form)?;
            Ok(FilterSource::File(file))
        }
        FilterLocation::Publisher(url) => {
            let trust = if settings.keys.is_empty() {
                Trust::Transport
            } else {
                Trust::Keys(settings.keys.clone())
            };
            let max_staleness = settings.max_staleness.unwrap_or_default();
            let mut config = FilterConfig::new(url.clone(), trust, max_staleness);
            config.form = form;
            config.clock_error = settings.clock_error;
            config.roots.clone_from(&settings.root_certificates);
            if let Some(bytes_max) = settings.snapshot_bytes_max {
                config.snapshot_bytes_max = bytes_max.bytes();
            }
            Ok(FilterSource::Publisher(FilterClient::start(config)?))
        }
    }
}

#[derive(Debug)]
enum FilterSource {
    File(FileFilter),
    Publisher(FilterClient),
}

/// The filter of one rule, in the form that the edge queries.
#[derive(Debug)]
struct RuleFilter {
    source: FilterSource,
    /// True if the ids in the path are hex digits that must be decoded before the query.
    is_hex: bool,
}

impl RuleFilter {
    fn answer(&self, id: &[u8]) -> Result<Answer, IdError> {
        match &self.source {
            FilterSource::File(file) => file.try_answer(id),
            FilterSource::Publisher(client) => client.try_answer(id),
        }
    }

    fn answer_bytes(&self, id: &[u8]) -> Result<Answer, IdError> {
        match &self.source {
            FilterSource::File(file) => file.try_answer_bytes(id),
            FilterSource::Publisher(client) => client.try_answer_bytes(id),
        }
    }
}

impl IdFilter for RuleFilter {
    fn judge(&self, id: &[u8]) -> Judgement {
        let answer = if self.is_hex {
            match from_hex_any(id) {
                Some(bytes) => self.answer_bytes(&bytes),
                None => return Judgement::NotAnId,
            }
        } else {
            self.answer(id)
        };
        match answer {
            Ok(Answer::Absent) => Judgement::Absent,
            Ok(Answer::Maybe) => Judgement::Maybe,
            Ok(Answer::Ask(_)) => Judgement::Unknown,
            Err(_) => Judgement::NotAnId,
        }
    }

    fn facts(&self) -> FilterFacts {
        let (facts, fresh, overlay_ids, refused) = match &self.source {
            FilterSource::File(file) => {
                let (facts, fresh, refused) = file.status();
                (Some(facts), fresh, 0, refused)
            }
            FilterSource::Publisher(client) => {
                let status = client.status();
                let counts = status.counts;
                let refused = counts.manifests_refused
                    + counts.proofs_refused
                    + counts.snapshots_refused
                    + counts.deltas_refused;
                (status.facts, status.fresh, status.overlay_ids, refused)
            }
        };
        let fact_of = |fact: fn(&FilterInfo) -> u64| facts.as_ref().map_or(0, fact);
        FilterFacts {
            fresh,
            epoch: fact_of(|facts| facts.epoch),
            ids: fact_of(|facts| facts.ids),
            overlay_ids: overlay_ids as u64,
            bytes: fact_of(|facts| facts.bytes),
            refused,
        }
    }
}
