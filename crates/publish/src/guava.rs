//! The set in the form that Guava's `BloomFilter.readFrom` reads, beside our own.
//!
//! It needs the ids themselves: Guava hashes them with a function of its own, and what was posted
//! lies in the journal as our hashes alone. So it is made of a scan, and says with `Last-Modified` when
//! that began: every id that was committed before is in it, later ones may be missing until the next
//! scan. After a restart there is none before the first scan is through.

use edgeward_filter::guava::{Funnel, GuavaBuilder, GuavaError};
use edgeward_filter::{Digest, IdForm, IdText, Rate};
use edgeward_semantics::format_http_date;
use edgeward_types::Timestamp;
use http::HeaderValue;

use crate::build::ScanError;
use crate::content::Content;

/// What is handed out.
#[derive(Debug)]
pub(crate) struct GuavaFile {
    pub(crate) content: Content,
    /// When the scan began.
    pub(crate) modified: HeaderValue,
    pub(crate) ids: u64,
}

/// Ids on their way from a scan into a filter.
pub(crate) struct Gathering {
    funnel: Funnel,
    form: IdForm,
    builder: GuavaBuilder,
}

impl Gathering {
    pub(crate) fn new(funnel: Funnel, form: IdForm) -> Self {
        Self {
            funnel,
            form,
            builder: GuavaBuilder::new(),
        }
    }

    /// Takes an id as the source spells it.
    pub(crate) fn take(&mut self, spelling: &[u8]) -> Result<(), ScanError> {
        let mut room = IdText::default();
        let canonical = self.form.canonical(spelling, &mut room)?;
        self.builder.insert(self.funnel.hash(canonical)?);
        Ok(())
    }

    pub(crate) fn finish(self, rate: Rate, began: Timestamp) -> Result<GuavaFile, GuavaError> {
        let (filter, ids) = self.builder.finish(rate)?;
        let bytes = filter.to_bytes();
        let tag = format!("guava-{}", Digest::of(&bytes));
        Ok(GuavaFile {
            content: Content::new(bytes.into(), tag),
            // Whole seconds, rounded down: it must not promise more than the scan saw.
            modified: format_http_date(began),
            ids,
        })
    }
}
