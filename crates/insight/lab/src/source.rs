//! The requests of a plan's trace, readable once per contender, and a summary of the trace.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;

use edgeward_trace::generate::{Generator, Workload, WorkloadError};
use edgeward_trace::{ReadError, ReadOptions, Record, Summary};
use edgeward_types::Seed;

use crate::outcome::{TraceFacts, share};
use crate::plan::{Generated, TraceOrigin, TracePlan};

/// Why the requests of a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file cannot be read.
    #[error("{0}")]
    Read(#[source] ReadError),
    /// The settings of the synthetic workload contradict each other.
    #[error("this workload cannot be generated: {0}")]
    Workload(#[source] WorkloadError),
    /// The trace is empty, or all its objects exceed the size limit.
    #[error("the trace has no requests, or all its objects exceed max_size")]
    Empty,
}

/// A trace that can be read several times.
#[derive(Clone, Debug)]
pub(crate) struct TraceSource {
    plan: TracePlan,
}

impl TraceSource {
    pub(crate) fn new(plan: &TracePlan) -> Self {
        Self { plan: plan.clone() }
    }

    /// Calls `each` with the requests in order, until `each` returns `Break` or the plan's number of requests is
    /// reached. Skips objects that exceed the size limit of the plan.
    pub(crate) fn for_each(
        &self,
        mut each: impl FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), TraceError> {
        let size_max = self.plan.size_bytes_max.unwrap_or(u64::MAX);
        let mut remaining = self.plan.requests;
        let mut take = |record: Record| {
            if record.size > size_max {
                return ControlFlow::Continue(());
            }
            remaining -= 1;
            each(record)?;
            if remaining == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        match &self.plan.origin {
            TraceOrigin::Generated(generated) => {
                let workload = workload(generated, self.plan.requests);
                let generator = Generator::new(workload, Seed(generated.seed));
                let generator = generator.map_err(TraceError::Workload)?;
                for record in generator {
                    if take(record).is_break() {
                        break;
                    }
                }
            }
            TraceOrigin::File(path) => {
                let file = File::open(path).map_err(|source| TraceError::Open {
                    path: path.clone(),
                    source,
                })?;
                let options = ReadOptions::named(path.display().to_string());
                let mut reader = edgeward_trace::open(file, options).map_err(TraceError::Read)?;
                while let Some(records) = reader.next_batch().map_err(TraceError::Read)? {
                    for &record in records {
                        if take(record).is_break() {
                            return Ok(());
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the trace once and returns facts about it. `progress` receives the number of requests read so far.
    pub(crate) fn facts(&self, mut progress: impl FnMut(u64)) -> Result<TraceFacts, TraceError> {
        let mut summary = Summary::default();
        let mut requests = 0;
        self.for_each(|record| {
            summary.add(&record);
            requests += 1;
            if requests % PROGRESS_STEP == 0 {
                progress(requests);
            }
            ControlFlow::Continue(())
        })?;
        let summary = summary.finish();
        if summary.requests == 0 {
            return Err(TraceError::Empty);
        }
        let bytes = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        Ok(TraceFacts {
            label: self.label(),
            requests: summary.requests,
            objects: summary.objects,
            footprint_bytes: bytes(summary.footprint_bytes),
            requested_bytes: bytes(summary.requested_bytes),
            one_hit_share: share(summary.one_hit_objects, summary.objects),
        })
    }

    fn label(&self) -> String {
        match &self.plan.origin {
            TraceOrigin::Generated(generated) => format!(
                "synthetic {} traffic, seed {}",
                generated.preset, generated.seed
            ),
            TraceOrigin::File(path) => {
                let name = path.file_name().unwrap_or(path.as_os_str());
                name.to_string_lossy().into_owned()
            }
        }
    }
}

fn workload(generated: &Generated, requests: u64) -> Workload {
    let mut workload = generated.preset.workload().scaled_to(requests);
    workload.objects = generated.objects.unwrap_or(workload.objects);
    workload.one_hit_share = generated.one_hit_share.unwrap_or(workload.one_hit_share);
    workload.churn = generated.churn.unwrap_or(workload.churn);
    workload
}

/// The number of requests between two calls of `progress`.
const PROGRESS_STEP: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use edgeward_trace::generate::Preset;

    use super::*;

    fn generated(requests: u64, size_bytes_max: Option<u64>) -> TraceSource {
        TraceSource::new(&TracePlan {
            origin: TraceOrigin::Generated(Generated {
                preset: Preset::Small,
                seed: 7,
                objects: None,
                one_hit_share: Some(0.7),
                churn: None,
            }),
            requests,
            size_bytes_max,
            line: 1,
        })
    }

    fn all(source: &TraceSource) -> Vec<Record> {
        let mut records = Vec::new();
        let read = source.for_each(|record| {
            records.push(record);
            ControlFlow::Continue(())
        });
        read.expect("the trace is valid");
        records
    }

    #[test]
    fn a_synthetic_trace_is_the_same_each_time() {
        let source = generated(3000, None);
        assert_eq!(all(&source), all(&source));
        let facts = source.facts(|_| {}).expect("the trace is valid");
        assert_eq!(facts.requests, 3000);
        assert!((facts.one_hit_share - 0.7).abs() < 0.01, "{facts:?}");
    }

    #[test]
    fn requests_for_too_large_objects_are_skipped_and_not_counted() {
        let source = generated(3000, Some(10_000));
        let records = all(&source);
        assert!(records.len() < 3000 && records.iter().all(|record| record.size <= 10_000));
        let sum: u64 = records.iter().map(|record| record.size).sum();
        assert_eq!(
            source
                .facts(|_| {})
                .expect("the trace is valid")
                .requested_bytes,
            sum
        );
    }

    #[test]
    fn a_trace_file_is_cut_off_after_the_number_of_requests() {
        let mut file = tempfile::NamedTempFile::new().expect("the file is created");
        file.write_all(b"0 1 10\n1 2 20\n2 1 10\n3 3 30\n")
            .expect("the file is written");
        let source = TraceSource::new(&TracePlan {
            origin: TraceOrigin::File(file.path().to_owned()),
            requests: 3,
            size_bytes_max: None,
            line: 1,
        });
        let facts = source.facts(|_| {}).expect("the trace is valid");
        assert_eq!(
            (facts.requests, facts.objects, facts.footprint_bytes),
            (3, 2, 30)
        );
        let nowhere = TraceSource::new(&TracePlan {
            origin: TraceOrigin::File("/nowhere/at/all".into()),
            requests: 3,
            size_bytes_max: None,
            line: 1,
        });
        assert!(matches!(
            nowhere.facts(|_| {}),
            Err(TraceError::Open { .. })
        ));
    }
}
