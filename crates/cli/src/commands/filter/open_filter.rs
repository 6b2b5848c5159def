//! Opens a filter file in edgeward's or Guava's format.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use edgeward_filter::guava::{Funnel, GuavaFilter};
use edgeward_filter::{Filter, IdForm, IdHasher, IdText, OpenError};

use crate::diagnostic::Diagnostic;

/// An open filter.
pub(super) enum OpenFilter {
    Edgeward(Filter<Vec<u8>>),
    Guava(GuavaFilter, GuavaFormat),
}

/// The facts about a Guava filter that its file does not contain.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuavaFormat {
    /// The form of the ids (text, UUID or integer), by which spellings are converted to canonical text.
    pub(super) form: IdForm,
    /// How Guava converted an id to the bytes that it hashed.
    pub(super) funnel: Funnel,
}

impl OpenFilter {
    /// Returns true if the filter may contain the id, and for text that is not an id which every origin reads alike.
    pub(super) fn contains(&self, id: &[u8]) -> anyhow::Result<bool> {
        match self {
            Self::Edgeward(filter) => Ok(filter.contains_spelling(id)),
            Self::Guava(filter, format) => {
                let hasher = IdHasher {
                    form: format.form,
                    seed: 0,
                };
                let mut buffer = IdText::default();
                match (
                    hasher.hash_query(id),
                    format.form.canonical(id, &mut buffer),
                ) {
                    (Ok(_), Ok(canonical)) => {
                        Ok(filter.might_contain(format.funnel.hash(canonical)?))
                    }
                    _ => Ok(true),
                }
            }
        }
    }
}

/// Opens a filter in edgeward's format and checks every byte.
pub(super) fn open_edgeward(path: &Path) -> anyhow::Result<Filter<Vec<u8>>> {
    let unreadable = |error| Diagnostic::unreadable(path, "cannot read", &error);
    let opened = File::open(path).and_then(|mut file| read_filter(&mut file));
    let opened = opened.map_err(unreadable)?;
    opened.map_err(|error| {
        let hint = match error {
            OpenError::Version { .. } => {
                "use a newer edgeward, or build the filter again with this one"
            }
            _ => "build or fetch the filter again; for a Guava filter give --guava",
        };
        let diagnostic = Diagnostic::new(error.to_string()).in_file(path);
        diagnostic.hint(hint).into()
    })
}

/// Reads the header first, and then only the number of bytes that the header states, because a file that is not a
/// filter may be endless, for example a device.
fn read_filter(input: &mut impl Read) -> std::io::Result<Result<Filter<Vec<u8>>, OpenError>> {
    let mut bytes = Vec::new();
    input
        .by_ref()
        .take(FIRST_READ_BYTES)
        .read_to_end(&mut bytes)?;
    if let Err(OpenError::Truncated {
        whole: file_bytes, ..
    }) = Filter::open(&bytes[..])
    {
        // One byte more than the length is read, to detect trailing bytes.
        let rest = file_bytes
            .saturating_sub(bytes.len() as u64)
            .saturating_add(1);
        input.take(rest).read_to_end(&mut bytes)?;
    }
    Ok(Filter::open(bytes))
}

/// The number of bytes that are read first: enough for a header.
const FIRST_READ_BYTES: u64 = 4096;

/// Opens a filter, in Guava's format if `guava` is given.
pub(super) fn open(path: &Path, guava: Option<GuavaFormat>) -> anyhow::Result<OpenFilter> {
    let Some(format) = guava else {
        return open_edgeward(path).map(OpenFilter::Edgeward);
    };
    let filter = GuavaFilter::from_bytes(&read(path)?);
    filter
        .map(|filter| OpenFilter::Guava(filter, format))
        .map_err(|error| Diagnostic::new(error.to_string()).in_file(path).into())
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let read = std::fs::read(path);
    read.map_err(|error| Diagnostic::unreadable(path, "cannot read", &error).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_file_that_is_not_a_filter_is_rejected() {
        let mut endless = std::io::repeat(0);
        let opened = read_filter(&mut endless).expect("the file can be read");
        assert_eq!(opened.err(), Some(OpenError::NotAFilter));
    }
}
