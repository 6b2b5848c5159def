//! Stores requests for counting. Each request becomes a row in the partition of its URL. A full analysis also
//! adds it to the tally (the counts of all lines) and to the sample (all requests for a share of the URLs).

use edgeward_analysis::{Entry, Fingerprints, Sample, Tally};

use crate::analyze::{Depth, Settings, sample_max};
use crate::row::{Key as _, Row};
use crate::scan::{RequestSink, Task};
use crate::spill::{Partitions, Spill, SpillError};

/// The requests that one thread has read.
pub(crate) struct Rows<'a, R> {
    spill: &'a Spill,
    fingerprints: Fingerprints,
    pub(crate) partitions: Partitions<R>,
    /// The tally and the sample of a full analysis, for which `R::TALLIED` is true. `None` if the analysis only counts
    /// the requests for each URL.
    pub(crate) full: Option<(Tally, Sample)>,
    pub(crate) spill_error: Option<SpillError>,
}

impl<'a, R: Row> Rows<'a, R> {
    pub(crate) fn new(settings: &Settings, spill: &'a Spill) -> Self {
        debug_assert_eq!(
            settings.depth == Depth::Full,
            R::TALLIED,
            "the row type fits the depth"
        );
        Self {
            spill,
            fingerprints: Fingerprints::new(settings.query),
            partitions: Partitions::new(spill.chunk_bytes),
            full: R::TALLIED.then(|| (Tally::default(), Sample::new(sample_max(settings)))),
            spill_error: None,
        }
    }
}

impl<R: Row> RequestSink for Rows<'_, R> {
    fn begin(&mut self, task: Task) {
        if let Some((_, sample)) = &mut self.full {
            sample.begin_log(task.log);
        }
    }

    #[inline(always)]
    fn take(&mut self, entry: &Entry<'_>, machine: &str) -> bool {
        let fingerprint = self.fingerprints.fingerprint(entry);
        let key = R::Key::from_fingerprint(fingerprint, &mut self.fingerprints, entry);
        if let Err(error) = self.partitions.push(R::new(key, entry), self.spill) {
            self.spill_error = Some(error);
            return false;
        }
        if R::TALLIED
            && let Some((tally, sample)) = &mut self.full
        {
            let url = self.fingerprints.hashed_part(entry.url);
            tally.add(entry, fingerprint, url, machine.as_bytes());
            sample.add(entry, fingerprint);
        }
        true
    }

    /// Returns true if a thread could not write a chunk of rows to the temporary file.
    fn is_full(&self) -> bool {
        self.spill.failed()
    }
}
