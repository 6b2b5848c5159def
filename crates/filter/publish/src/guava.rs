//! A filter of the published ids in the format of Guava's `BloomFilter`, served in addition to the id filter.
//!
//! Guava has its own hash function, so this filter needs the ids themselves. The journal contains only XXH3
//! hashes of ids. The filter is therefore built from a scan. Its `Last-Modified` is the start of the scan: every
//! id committed before this time is in the filter, later ids may be missing until the next scan. After a restart
//! the filter is unavailable until the first scan is complete.

use edgeward_filter::guava::{Funnel, GuavaBuilder, GuavaError};
use edgeward_filter::{Digest, IdForm, IdText, Rate};
use edgeward_semantics::format_http_date;
use edgeward_types::Timestamp;
use http::HeaderValue;

use crate::build::ScanError;
use crate::content::Content;

/// A published Guava filter.
#[derive(Debug)]
pub(crate) struct GuavaFile {
    pub(crate) content: Content,
    /// The time at which the scan began, in the format of `Last-Modified`.
    pub(crate) modified: HeaderValue,
    /// The number of distinct ids in the filter.
    pub(crate) ids: u64,
}

/// Gathers the ids of a scan.
pub(crate) struct GuavaGatherer {
    /// How Guava converts an id to the bytes that it hashes.
    funnel: Funnel,
    form: IdForm,
    builder: GuavaBuilder,
}

impl GuavaGatherer {
    pub(crate) fn new(funnel: Funnel, form: IdForm) -> Self {
        Self {
            funnel,
            form,
            builder: GuavaBuilder::new(),
        }
    }

    /// Adds an id in the spelling of the source.
    pub(crate) fn add(&mut self, spelling: &[u8]) -> Result<(), ScanError> {
        let mut buffer = IdText::default();
        let canonical = self.form.canonical(spelling, &mut buffer)?;
        self.builder.insert(self.funnel.hash(canonical)?);
        Ok(())
    }

    pub(crate) fn finish(self, rate: Rate, began: Timestamp) -> Result<GuavaFile, GuavaError> {
        let (filter, ids) = self.builder.finish(rate)?;
        let bytes = filter.to_bytes();
        let tag = format!("guava-{}", Digest::compute(&bytes));
        Ok(GuavaFile {
            content: Content::new(bytes.into(), tag),
            // Rounded down to whole seconds, so that `Last-Modified` is never later than the start of the scan.
            modified: format_http_date(began),
            ids,
        })
    }
}
