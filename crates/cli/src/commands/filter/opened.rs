//! A filter file of either kind, opened for questions.

use std::path::Path;

use anyhow::Context;

use edgeward_filter::guava::{Funnel, GuavaFilter};
use edgeward_filter::{Filter, IdForm, IdText};

use crate::complaint::Complaint;

/// A filter of ours or of Guava's.
pub(super) enum Opened {
    Ours(Filter<Vec<u8>>),
    Guava(GuavaFilter, Spelling),
}

/// What a Guava filter does not say of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spelling {
    pub(super) form: IdForm,
    pub(super) funnel: Funnel,
}

impl Opened {
    /// Whether an id may be in it.
    pub(super) fn contains(&self, id: &[u8]) -> anyhow::Result<bool> {
        match self {
            Self::Ours(filter) => Ok(filter.contains_spelled(id)),
            Self::Guava(filter, spelling) => {
                let mut room = IdText::default();
                let canonical = spelling.form.canonical(id, &mut room).unwrap_or(id);
                Ok(filter.might_contain(spelling.funnel.hash(canonical)?))
            }
        }
    }
}

/// Opens a filter of ours, checking every byte.
pub(super) fn ours(path: &Path) -> anyhow::Result<Filter<Vec<u8>>> {
    let bytes = read(path)?;
    Filter::open(bytes).map_err(|error| {
        Complaint::new(error.to_string())
            .in_file(path)
            .hint("build or fetch it again; a Guava filter is asked with --guava")
            .into()
    })
}

/// Opens a filter; as Guava's where its funnel is named.
pub(super) fn open(path: &Path, guava: Option<Spelling>) -> anyhow::Result<Opened> {
    let Some(spelling) = guava else {
        return ours(path).map(Opened::Ours);
    };
    let filter = GuavaFilter::from_bytes(&read(path)?);
    filter
        .map(|filter| Opened::Guava(filter, spelling))
        .map_err(|error| Complaint::new(error.to_string()).in_file(path).into())
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
