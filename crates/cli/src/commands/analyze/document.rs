//! The figures of the report of `edgeward analyze`. Their JSON keys are stable: `docs/reference/json-reports.md`.

use serde::Serialize;

use edgeward_analysis::{Objects, PRESETS, Ranking, Sizes, Tally, TrafficCounts, suffices};
use edgeward_logs::{Analysis, FileReport};
use edgeward_trace::raw::rfc3339;
use edgeward_types::ByteSize;

use super::prediction::{NoPrediction, Prediction, RequestedSizes};
use crate::output::{count, percent};

/// The JSON document.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    /// The version of this format: incremented when a key is removed or changes its meaning.
    pub(super) version: u32,
    /// True if all logs were read completely.
    pub(super) complete: bool,
    pub(super) requests: u64,
    pub(super) urls: u64,
    /// The number of URLs that were requested once.
    pub(super) once: u64,
    /// `once` as a share of all URLs.
    pub(super) once_share: f64,
    pub(super) requests_per_url: Vec<CountRow>,
    pub(super) popularity: Vec<RankRow>,
    pub(super) zipf: Option<Zipf>,
    pub(super) top: Vec<TopRow>,
    /// The further figures; absent with `--counts`.
    #[serde(flatten)]
    pub(super) full: Option<FullFigures>,
    pub(super) lines: u64,
    /// The number of lines without a request, such as empty lines and comments.
    pub(super) lines_passed_over: u64,
    pub(super) lines_malformed: u64,
    pub(super) files: Vec<FileRow>,
    /// The number of bytes written to the temporary file.
    pub(super) temp_bytes: u64,
}

/// The number of URLs with the same number of requests.
#[derive(Debug, Serialize)]
pub(super) struct CountRow {
    pub(super) requests: u64,
    pub(super) urls: u64,
}

/// The URLs that have between `from` and `to` requests, both inclusive.
#[derive(Debug)]
pub(super) struct Bin {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) urls: u64,
    pub(super) requests: u64,
}

/// One point of the curve of popularity: the number of requests for the URL of this rank.
#[derive(Debug, Serialize)]
pub(super) struct RankRow {
    pub(super) rank: u64,
    pub(super) requests: u64,
}

/// The parameters of Zipf's law, fitted to the popularity.
#[derive(Debug, Serialize)]
pub(super) struct Zipf {
    pub(super) exponent: f64,
    /// The number of requests for the URL of rank 1, according to the fit.
    pub(super) requests_of_first: f64,
    pub(super) r_squared: f64,
    /// The number of ranks that were fitted.
    pub(super) ranks: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct TopRow {
    /// `None` with `--counts`, which stores only fingerprints.
    pub(super) url: Option<String>,
    pub(super) fingerprint: String,
    pub(super) requests: u64,
    /// The bytes sent in all responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<u64>,
    /// The size of the largest complete response, or of the largest response if no response was complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) size: Option<u64>,
}

/// Figures that `--counts` does not compute.
#[derive(Debug, Serialize)]
pub(super) struct FullFigures {
    /// The time of the earliest request (RFC 3339).
    pub(super) from: Option<String>,
    /// The time of the latest request (RFC 3339).
    pub(super) to: Option<String>,
    /// The numbers of requests in which a field is known.
    pub(super) known: FieldCounts,
    /// The bytes sent in all responses.
    pub(super) bytes: u64,
    pub(super) cache: Option<Cache>,
    pub(super) storable: Storable,
    /// The sizes of the storable objects, one for each URL.
    pub(super) object_sizes: SizeFigures,
    /// The bytes sent in each response.
    pub(super) response_sizes: SizeFigures,
    pub(super) hours: Vec<HourRow>,
    pub(super) statuses: Vec<NamedRow>,
    pub(super) methods: NameRanking,
    pub(super) hosts: NameRanking,
    pub(super) types: NameRanking,
    pub(super) machines: NameRanking,
    /// `None` if there are too few cacheable requests, or if most sizes are unknown.
    pub(super) prediction: Option<Prediction>,
    /// The reason why there is no prediction.
    pub(super) prediction_absent: Option<&'static str>,
}

/// The numbers of requests in which a field of the log is known.
#[derive(Debug, Serialize)]
pub(super) struct FieldCounts {
    pub(super) times: u64,
    pub(super) sizes: u64,
    pub(super) outcomes: u64,
}

impl FieldCounts {
    /// Returns the fields that are unknown in some of the requests, each with the number of requests in which it is
    /// known. The outcome is left out if the log has no outcomes.
    pub(super) fn partly_known(&self, requests: u64) -> Vec<(&'static str, u64)> {
        let rows = [
            ("time", self.times),
            ("size", self.sizes),
            ("outcome", self.outcomes),
        ];
        rows.into_iter()
            .filter(|(name, count)| *count < requests && (*name != "outcome" || *count > 0))
            .collect()
    }
}

/// The hits and misses of the cache that wrote the log.
#[derive(Debug, Serialize)]
pub(super) struct Cache {
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) passes: u64,
    pub(super) hit_ratio: Option<f64>,
}

/// The objects that a cache may store: URLs with a complete response (a GET with status 200).
#[derive(Debug, Serialize)]
pub(super) struct Storable {
    pub(super) objects: u64,
    /// The sum of the sizes of the objects.
    pub(super) bytes: u64,
    /// The number of objects that were requested once.
    pub(super) once: u64,
    /// The sum of the sizes of the objects that were requested once.
    pub(super) once_bytes: u64,
    /// The share of bytes that need not be written if an object is stored at its second request.
    pub(super) writes_avoided: f64,
}

/// The distribution of sizes, in bytes.
#[derive(Debug, Serialize)]
pub(super) struct SizeFigures {
    pub(super) p50: Option<u64>,
    pub(super) p90: Option<u64>,
    pub(super) p99: Option<u64>,
    pub(super) max: Option<u64>,
    pub(super) buckets: Vec<SizeRow>,
}

/// The number and the sum of the sizes from `from` up to, but not including, `to`.
#[derive(Debug, Serialize)]
pub(super) struct SizeRow {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) count: u64,
    pub(super) bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct HourRow {
    /// The start of the hour (RFC 3339).
    pub(super) from: String,
    #[serde(flatten)]
    pub(super) share: ShareRow,
}

/// The requests of one hour, or with one name, such as a status code or a host.
#[derive(Debug, Serialize)]
pub(super) struct ShareRow {
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) passes: u64,
    pub(super) hit_ratio: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct NamedRow {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) share: ShareRow,
}

#[derive(Debug, Serialize)]
pub(super) struct NameRanking {
    pub(super) top: Vec<NamedRow>,
    /// The sums over all names that are not in `top`, if there are any.
    pub(super) others: Option<ShareRow>,
    /// The number of requests by which a count in `top` may be too low. A full table drops names; if a dropped name
    /// occurs again, its earlier requests are not in its count.
    pub(super) undercount_max: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct FileRow {
    pub(super) file: String,
    /// The machine that wrote the log: the name of the log's folder. `None` if all logs are in one folder.
    pub(super) machine: Option<String>,
    pub(super) compression: Option<String>,
    pub(super) format: Option<String>,
    pub(super) lines: u64,
    pub(super) requests: u64,
    pub(super) lines_passed_over: u64,
    pub(super) lines_malformed: u64,
    /// Examples of malformed lines.
    pub(super) malformed: Vec<MalformedRow>,
    /// The number of lines whose time is earlier than the time of a previous line.
    pub(super) lines_backwards: u64,
    /// The largest difference between the time of a line and the latest time before this line.
    pub(super) backwards_seconds_max: f64,
    /// The error that stopped the reading of this log.
    pub(super) problem: Option<String>,
    pub(super) hint: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct MalformedRow {
    /// The number of the line.
    pub(super) line: u64,
    /// The reason why the line is malformed.
    pub(super) what: String,
    /// The beginning of the line.
    pub(super) text: String,
}

impl Document {
    pub(super) fn of(analysis: Analysis, top: usize, requested: RequestedSizes) -> Self {
        let complete = analysis.is_complete();
        let Analysis {
            files,
            objects,
            tally,
            sampled,
            temp,
            ..
        } = analysis;
        let prediction = sampled.map(|sampled| Prediction::of(&sampled, requested));
        let prediction = prediction.unwrap_or(Err(NoPrediction::TooFewRequests));
        let files: Vec<FileRow> = files.iter().map(FileRow::of).collect();
        let sum = |of: fn(&FileRow) -> u64| files.iter().map(of).sum();
        Self {
            version: VERSION,
            complete,
            requests: objects.requests(),
            urls: objects.urls(),
            once: objects.once(),
            once_share: objects.once_share(),
            requests_per_url: objects
                .popularity()
                .rows()
                .map(|(requests, urls)| CountRow { requests, urls })
                .collect(),
            popularity: objects
                .popularity()
                .curve(POINTS_PER_DOUBLING)
                .into_iter()
                .map(|(rank, requests)| RankRow { rank, requests })
                .collect(),
            zipf: objects.popularity().zipf().map(|fit| Zipf {
                exponent: fit.exponent,
                requests_of_first: fit.requests_of_first,
                r_squared: fit.r_squared,
                ranks: fit.ranks,
            }),
            top: top_rows(&objects, tally.as_ref()),
            lines: sum(|file| file.lines),
            lines_passed_over: sum(|file| file.lines_passed_over),
            lines_malformed: sum(|file| file.lines_malformed),
            full: tally.map(|tally| FullFigures::of(tally, &objects, prediction, top)),
            files,
            temp_bytes: temp.bytes(),
        }
    }

    /// The main results, as sentences.
    pub(super) fn findings(&self) -> Vec<String> {
        let mut once = format!(
            "{} of the {} URLs were requested once.",
            percent(self.once_share),
            count(self.urls)
        );
        let Some(full) = &self.full else {
            return vec![once];
        };
        let are_sizes_known = suffices(full.known.sizes, self.requests);
        if full.storable.bytes > 0 && are_sizes_known {
            once += &format!(
                " Not storing objects at their first request would avoid {} of the disk writes.",
                percent(full.storable.writes_avoided)
            );
        }
        let mut findings = vec![once];
        for (field, requests) in full.known.partly_known(self.requests) {
            if !suffices(requests, self.requests) {
                findings.push(format!(
                    "The {field} is known in {} of {} requests: figures that need it are left out or concern these \
                     requests only.",
                    count(requests),
                    count(self.requests)
                ));
            }
        }
        let prediction = full.prediction.as_ref();
        let ram_alone = prediction.and_then(Prediction::best_in_ram);
        if let Some(row) = ram_alone {
            findings.push(format!(
                "{} of RAM with {} would answer {} of the cacheable requests.",
                ByteSize(row.ram_bytes),
                row.policy,
                percent(row.object_hit_ratio)
            ));
        }
        let pair = prediction.and_then(Prediction::disk_pair);
        if let Some((always, second)) = pair
            && let (Some(disk), Some(always_written), Some(second_written)) = (
                always.disk_bytes,
                always.disk_written_bytes,
                second.disk_written_bytes,
            )
        {
            findings.push(format!(
                "With an additional disk of {}, storing at the second request would write {} instead of {} and \
                 answer {} of the requests instead of {}.",
                ByteSize(disk),
                ByteSize(second_written),
                ByteSize(always_written),
                percent(second.object_hit_ratio),
                percent(always.object_hit_ratio)
            ));
        }
        findings
    }

    /// The formats of the logs.
    pub(super) fn formats(&self) -> String {
        let mut names: Vec<&str> = self
            .files
            .iter()
            .filter_map(|file| file.format.as_deref())
            .collect();
        names.sort_unstable();
        names.dedup();
        let is_json = |name: &&str| {
            let is_preset =
                |preset: &edgeward_analysis::Preset| preset.name == *name && preset.is_json();
            *name == "json" || PRESETS.iter().any(is_preset)
        };
        let note = if names.iter().any(is_json) {
            " (--fields names other JSON fields)"
        } else {
            ""
        };
        format!("{}{note}", names.join(", "))
    }

    /// The histogram of requests per URL, without empty bins. Each bin ends at a power of two: 1, 2, 3-4, 5-8, ….
    pub(super) fn doubling_bins(&self) -> Vec<Bin> {
        let mut bins: Vec<Bin> = Vec::new();
        for row in &self.requests_per_url {
            if bins.last().is_none_or(|bin| bin.to < row.requests) {
                let to = row.requests.max(1).checked_next_power_of_two();
                let to = to.unwrap_or(u64::MAX);
                bins.push(Bin {
                    from: to / 2 + 1,
                    to,
                    urls: 0,
                    requests: 0,
                });
            }
            let bin = bins.last_mut().expect("the list has a bin");
            bin.urls += row.urls;
            bin.requests += row.urls * row.requests;
        }
        bins
    }

    /// Prints the errors of the logs to stderr.
    pub(super) fn warn(&self) {
        warn(&self.files);
    }
}

/// Prints the errors of the logs to stderr, for results without a document.
pub(super) fn warn_about(files: &[FileReport]) {
    let files: Vec<FileRow> = files.iter().map(FileRow::of).collect();
    warn(&files);
}

fn warn(files: &[FileRow]) {
    let error_logs = files
        .iter()
        .filter(|file| file.format.as_deref() == Some("error-log"));
    for file in error_logs.take(FILES_IN_WARNINGS_MAX) {
        eprintln!("note: {} is an error log and was not read", file.file);
    }
    let has_errors = |file: &&FileRow| file.problem.is_some() || file.lines_malformed > 0;
    let mut files = files.iter().filter(has_errors);
    for file in files.by_ref().take(FILES_IN_WARNINGS_MAX) {
        let label = &file.file;
        if let Some(problem) = &file.problem {
            eprintln!("warning: {label}: {problem}");
            if let Some(hint) = &file.hint {
                eprintln!("  hint: {hint}");
            }
        }
        if file.lines_malformed > 0 {
            let lines = count(file.lines_malformed);
            eprintln!("warning: {lines} malformed lines of {label} skipped, for example");
            for MalformedRow { line, what, text } in &file.malformed {
                eprintln!("  line {line}: {what}: `{text}`");
            }
        }
    }
    let more = files.count();
    if more > 0 {
        eprintln!("warning: {more} more logs have errors; --json lists them all");
    }
}

impl FullFigures {
    fn of(
        mut tally: Tally,
        objects: &Objects,
        prediction: Result<Prediction, NoPrediction>,
        top: usize,
    ) -> Self {
        let total = tally.total;
        let storable = objects.storable();
        let time = |time| rfc3339(time);
        Self {
            from: tally.span.map(|span| time(span.from)),
            to: tally.span.map(|span| time(span.to)),
            known: FieldCounts {
                times: tally.hours.requests(),
                sizes: tally.sizes.count(),
                outcomes: total.outcomes(),
            },
            bytes: total.bytes,
            cache: (total.hits + total.misses + total.passes > 0).then(|| Cache {
                hits: total.hits,
                misses: total.misses,
                passes: total.passes,
                hit_ratio: total.hit_ratio(),
            }),
            storable: Storable {
                objects: storable.objects,
                bytes: storable.bytes,
                once: storable.once,
                once_bytes: storable.once_bytes,
                writes_avoided: storable.writes_avoided(),
            },
            object_sizes: SizeFigures::of(objects.sizes()),
            response_sizes: SizeFigures::of(&tally.sizes),
            hours: tally
                .hours
                .rows()
                .map(|(from, hour)| HourRow {
                    from: rfc3339(from),
                    share: ShareRow::of(hour),
                })
                .collect(),
            statuses: tally
                .statuses
                .rows()
                .map(|(status, share)| NamedRow {
                    name: status.to_string(),
                    share: ShareRow::of(share),
                })
                .collect(),
            methods: NameRanking::of(&tally.methods, top),
            hosts: NameRanking::of(&tally.hosts, top),
            types: NameRanking::of(&tally.types, top),
            machines: NameRanking::of(&tally.machines, top),
            prediction_absent: prediction.as_ref().err().map(|reason| reason.reason()),
            prediction: prediction.ok(),
        }
    }
}

impl SizeFigures {
    fn of(sizes: &Sizes) -> Self {
        Self {
            p50: sizes.quantile(0.5),
            p90: sizes.quantile(0.9),
            p99: sizes.quantile(0.99),
            max: (sizes.count() > 0).then(|| sizes.max()),
            buckets: sizes
                .buckets()
                .map(|bucket| SizeRow {
                    from: bucket.from,
                    to: bucket.to,
                    count: bucket.count,
                    bytes: bucket.bytes,
                })
                .collect(),
        }
    }
}

/// The requests and bytes of several names, as cells of a table.
pub(super) struct ShareCells<'a> {
    pub(super) columns: Vec<&'static str>,
    /// A name, and one cell per column.
    pub(super) rows: Vec<(&'a str, Vec<String>)>,
}

impl<'a> ShareCells<'a> {
    /// `missing` is the text of the hit ratio of a row without hits and misses.
    pub(super) fn of(rows: &'a [NamedRow], others: Option<&'a ShareRow>, missing: &str) -> Self {
        let all = || {
            let named = rows.iter().map(|row| (row.name.as_str(), &row.share));
            named.chain(others.map(|share| ("all others", share)))
        };
        let total: u64 = all().map(|(_, share)| share.requests).sum();
        let has_hit_ratio = all().any(|(_, share)| share.hit_ratio.is_some());
        let cells = |share: &ShareRow| {
            let mut cells = vec![
                count(share.requests),
                percent(share.requests as f64 / total as f64),
                ByteSize(share.bytes).to_string(),
            ];
            if has_hit_ratio {
                cells.push(share.hit_ratio.map_or_else(|| missing.to_owned(), percent));
            }
            cells
        };
        let mut columns = vec!["requests", "share", "bytes"];
        columns.extend(has_hit_ratio.then_some("hit ratio"));
        Self {
            columns,
            rows: all().map(|(name, share)| (name, cells(share))).collect(),
        }
    }
}

impl ShareRow {
    fn of(share: &TrafficCounts) -> Self {
        Self {
            requests: share.requests,
            bytes: share.bytes,
            hits: share.hits,
            misses: share.misses,
            passes: share.passes,
            hit_ratio: share.hit_ratio(),
        }
    }
}

impl NameRanking {
    fn of(ranking: &Ranking, top: usize) -> Self {
        let (rows, others): (_, TrafficCounts) = ranking.top(top);
        Self {
            top: rows
                .iter()
                .map(|row| NamedRow {
                    name: String::from_utf8_lossy(row.name).into_owned(),
                    share: ShareRow::of(row.counts),
                })
                .collect(),
            others: (others.requests > 0).then(|| ShareRow::of(&others)),
            undercount_max: ranking.undercount_max(),
        }
    }
}

impl FileRow {
    fn of(file: &FileReport) -> Self {
        let machine = Some(&file.machine).filter(|machine| !machine.is_empty());
        Self {
            file: file.label.clone(),
            machine: machine.cloned(),
            compression: file.compression.map(|compression| compression.to_string()),
            format: file.format.map(ToOwned::to_owned),
            lines: file.lines,
            requests: file.requests,
            lines_passed_over: file.passed_over,
            lines_malformed: file.malformed.lines,
            malformed: file
                .malformed
                .examples
                .iter()
                .map(|(line, what, text)| MalformedRow {
                    line: *line,
                    what: what.clone(),
                    text: text.clone(),
                })
                .collect(),
            lines_backwards: file.backwards.lines,
            backwards_seconds_max: file.backwards.millis_max as f64 / 1000.0,
            problem: file.problem.as_ref().map(ToString::to_string),
            hint: file
                .problem
                .as_ref()
                .and_then(edgeward_logs::FileProblem::hint),
        }
    }
}

fn top_rows(objects: &Objects, tally: Option<&Tally>) -> Vec<TopRow> {
    let text = |fingerprint| {
        let text = tally?.texts.get(fingerprint)?;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    objects
        .top()
        .into_iter()
        .map(|object| TopRow {
            url: text(object.fingerprint),
            fingerprint: format!("{:016x}", object.fingerprint),
            requests: object.requests,
            bytes: tally.map(|_| object.bytes),
            size: tally.map(|_| object.size),
        })
        .collect()
}

const VERSION: u32 = 1;

/// The number of points for each doubling of the rank: enough for a smooth curve, a few hundred points in total.
const POINTS_PER_DOUBLING: u32 = 8;

const FILES_IN_WARNINGS_MAX: usize = 5;
