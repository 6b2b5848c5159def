//! A filter file of either kind, opened for questions.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use edgeward_filter::guava::{Funnel, GuavaFilter};
use edgeward_filter::{Filter, IdForm, IdText, OpenError};

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
    let unreadable = |error| Complaint::unreadable(path, "cannot read", &error);
    let opened = File::open(path).and_then(|mut file| of(&mut file));
    let opened = opened.map_err(unreadable)?;
    opened.map_err(|error| {
        let way_out = match error {
            OpenError::Version { .. } => "use a newer edgeward, or build it again with this one",
            _ => "build or fetch it again; a Guava filter is asked with --guava",
        };
        let complaint = Complaint::new(error.to_string()).in_file(path);
        complaint.hint(way_out).into()
    })
}

/// Reads the front first, which says what it is and how long: what is no filter may have no end.
fn of(from: &mut impl Read) -> std::io::Result<Result<Filter<Vec<u8>>, OpenError>> {
    let mut bytes = Vec::new();
    from.by_ref().take(FRONT_BYTES).read_to_end(&mut bytes)?;
    if let Err(OpenError::Truncated { whole, .. }) = Filter::open(&bytes[..]) {
        // One more, so that a filter with something behind it is told from a whole one.
        let rest = whole.saturating_sub(bytes.len() as u64).saturating_add(1);
        from.take(rest).read_to_end(&mut bytes)?;
    }
    Ok(Filter::open(bytes))
}

/// More than a header, less than anybody waits for.
const FRONT_BYTES: u64 = 4096;

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
    let read = std::fs::read(path);
    read.map_err(|error| Complaint::unreadable(path, "cannot read", &error).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_filter_is_not_read_to_its_end() {
        let mut endless = std::io::repeat(0);
        let opened = of(&mut endless).expect("it can be read");
        assert_eq!(opened.err(), Some(OpenError::NotAFilter));
    }
}
