//! Merges partial results. The result equals the result of one analysis of all logs.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::path::{Path, PathBuf};

use edgeward_analysis::{Object, Objects, Sample, Tally};
use edgeward_types::ByteSize;

use super::write::{BlockWriter, PartialFile, PartialSummary};
use super::{Description, Part, PartialError};
use crate::analyze::{Analysis, AnalyzeError};
use crate::count::{UrlSink, for_each_partition, merge_all};
use crate::report::{FileProblem, FileReport};

/// Merges partial results into the result of one analysis of all their logs. The logs in the result are sorted by name.
///
/// # Errors
///
/// Returns an error if a file cannot be read, is corrupt or is not a partial result, or if the files were made
/// with different options.
pub fn merge(paths: &[PathBuf], threads: usize, top_max: usize) -> Result<Analysis, AnalyzeError> {
    PartialMerge::open(paths)?.analysis(threads, top_max)
}

/// Merges partial results into one partial result.
///
/// # Errors
///
/// Returns the errors of [`merge`], and an error if the result cannot be written.
pub fn merge_to_partial(
    paths: &[PathBuf],
    out: &Path,
    threads: usize,
) -> Result<PartialSummary, AnalyzeError> {
    PartialMerge::open(paths)?.into_partial(out, threads)
}

/// Partial results (parts) with equal options.
pub(crate) struct PartialMerge {
    parts: Vec<Part>,
    pub(crate) files: Vec<FileReport>,
    /// For each part, the indices of its files in `files`.
    file_indices: Vec<Vec<u32>>,
}

impl PartialMerge {
    pub(crate) fn open(paths: &[PathBuf]) -> Result<Self, PartialError> {
        let mut parts: Vec<Part> = Vec::with_capacity(paths.len());
        for path in paths {
            let part = Part::open(path)?;
            if let Some(first) = parts.first() {
                check_options(first, &part)?;
            }
            if let Some(copy) = parts.iter().find(|other| other.is_same(&part)) {
                return Err(PartialError::Duplicate {
                    path: part.path,
                    other: copy.path.clone(),
                });
            }
            parts.push(part);
        }
        Ok(Self::from_parts(parts))
    }

    /// Combines parts with equal options. The parts must be in the order in which they were written, because a part may
    /// continue an unfinished log of an earlier part.
    fn from_parts(mut parts: Vec<Part>) -> Self {
        let mut files: Vec<FileReport> = Vec::new();
        // Maps the label and the machine of each unfinished log to its index in `files`.
        let mut unfinished: HashMap<(String, String), usize> = HashMap::new();
        let mut file_indices: Vec<Vec<usize>> = Vec::new();
        for part in &mut parts {
            let mut part_indices = Vec::new();
            for file in std::mem::take(&mut part.description.files) {
                let name = (file.label.clone(), file.machine.clone());
                let is_unfinished = file.rest.is_some();
                let at = match unfinished.remove(&name) {
                    Some(at) => {
                        files[at].append(file);
                        at
                    }
                    None => {
                        files.push(file);
                        files.len() - 1
                    }
                };
                if is_unfinished {
                    unfinished.insert(name, at);
                }
                part_indices.push(at);
            }
            file_indices.push(part_indices);
        }
        // One analysis of all logs would number the logs in the order of their names.
        let mut order: Vec<usize> = (0..files.len()).collect();
        order.sort_by(|a, b| {
            let name = |at: usize| (&files[at].label, &files[at].machine);
            name(*a).cmp(&name(*b))
        });
        let mut rank = vec![0; files.len()];
        for (number, at) in (0..).zip(&order) {
            rank[*at] = number;
        }
        let file_indices = file_indices.iter().map(|part| {
            let ranks = part.iter().map(|at| rank[*at]);
            ranks.collect()
        });
        let file_indices = file_indices.collect();
        let mut by_name: Vec<(u32, FileReport)> = rank.into_iter().zip(files).collect();
        by_name.sort_by_key(|(rank, _)| *rank);
        Self {
            parts,
            files: by_name.into_iter().map(|(_, file)| file).collect(),
            file_indices,
        }
    }

    /// Merges the figures (tally and sample) of all parts. Only one part at a time is in memory.
    fn figures(&self) -> Result<Option<(Tally, Sample)>, PartialError> {
        let mut all: Option<(Tally, Sample)> = None;
        for (part, file_indices) in self.parts.iter().zip(&self.file_indices) {
            let Some((tally, mut sample)) = part.figures()? else {
                continue;
            };
            sample.renumber(|log| file_indices.get(log as usize).copied().unwrap_or(0));
            match &mut all {
                Some((all_tallies, all_samples)) => {
                    all_tallies.merge(tally);
                    all_samples.merge(sample);
                }
                None => all = Some((tally, sample)),
            }
        }
        Ok(all)
    }

    pub(crate) fn analysis(
        mut self,
        threads: usize,
        top_max: usize,
    ) -> Result<Analysis, AnalyzeError> {
        let (tally, sample) = self.figures()?.unzip();
        let objects = self.urls(threads, || Objects::new(top_max))?;
        mark_unfinished(&mut self.files);
        Ok(Analysis {
            files: self.files,
            objects: merge_all(objects, top_max),
            tally,
            sampled: sample.map(Sample::finish),
            spill_error: None,
            temp: ByteSize(0),
        })
    }

    pub(crate) fn into_partial(
        mut self,
        out: &Path,
        threads: usize,
    ) -> Result<PartialSummary, AnalyzeError> {
        let file = PartialFile::create(out)?;
        let figures = self.figures()?;
        let Some(first) = self.parts.first().map(|part| &part.description) else {
            return Ok(PartialSummary {
                files: Vec::new(),
                urls: 0,
                bytes: ByteSize(0),
                spill_error: None,
            });
        };
        let (depth, query) = (first.depth, first.query);
        self.urls(threads, || BlockWriter::new(&file, depth))?;
        mark_unfinished(&mut self.files);
        let description = Description {
            depth,
            query,
            // This text is compared only when an analysis continues from a checkpoint. A merged result is not one.
            options: String::new(),
            files: self.files,
        };
        let (urls, bytes) = file.finish(&description, figures.as_ref())?;
        Ok(PartialSummary {
            files: description.files,
            urls,
            bytes: ByteSize(bytes),
            spill_error: None,
        })
    }

    fn urls<F: UrlSink<u128>>(
        &self,
        threads: usize,
        sink: impl Fn() -> F + Sync,
    ) -> Result<Vec<F>, AnalyzeError>
    where
        AnalyzeError: From<F::Error>,
    {
        for_each_partition(threads.max(1), sink, |sink, partition| {
            self.partition(partition, sink)
        })
    }

    /// Merges the URLs of one partition of all parts, in the order of their keys.
    fn partition<F: UrlSink<u128>>(
        &self,
        partition: usize,
        sink: &mut F,
    ) -> Result<(), AnalyzeError>
    where
        AnalyzeError: From<F::Error>,
    {
        let mut cursors: Vec<_> = self
            .parts
            .iter()
            .map(|part| part.cursor(partition))
            .collect();
        // The heap has the next key of each cursor, the smallest first, with the index of the cursor. `next_objects`
        // has the objects of these keys.
        let mut next_keys = BinaryHeap::new();
        let mut next_objects = vec![Object::default(); cursors.len()];
        for (at, cursor) in cursors.iter_mut().enumerate() {
            if let Some((key, object)) = cursor.next()? {
                next_objects[at] = object;
                next_keys.push(Reverse((key, at)));
            }
        }
        let mut sum: Option<(u128, Object)> = None;
        while let Some(Reverse((key, at))) = next_keys.pop() {
            match &mut sum {
                Some((sum_key, object)) if *sum_key == key => object.merge(&next_objects[at]),
                _ => {
                    if let Some((key, object)) = sum.replace((key, next_objects[at])) {
                        sink.add(key, &object)?;
                    }
                }
            }
            if let Some((key, object)) = cursors[at].next()? {
                next_objects[at] = object;
                next_keys.push(Reverse((key, at)));
            }
        }
        if let Some((key, object)) = sum {
            sink.add(key, &object)?;
        }
        sink.end_partition(partition)?;
        Ok(())
    }
}

fn check_options(one: &Part, other: &Part) -> Result<(), PartialError> {
    let (a, b) = (&one.description, &other.description);
    let what = if a.depth != b.depth {
        "one was made with --counts"
    } else if a.query != b.query {
        "one was made with --cut-query"
    } else {
        return Ok(());
    };
    Err(PartialError::OptionsDiffer {
        path: other.path.clone(),
        other: one.path.clone(),
        what,
    })
}

/// Reports a problem for each log whose reading was interrupted and not continued.
fn mark_unfinished(files: &mut [FileReport]) {
    for file in files {
        if let Some(rest) = file.rest.take() {
            file.problem = Some(FileProblem::Recorded {
                what: format!("it was read up to byte {} only", rest.position),
                hint: None,
            });
        }
    }
}
