//! `edgeward advise LOG…`: simulates the requests of logs with other policies and sizes, and finds caching faults.
//!
//! The logs are read twice: the first pass counts requests and objects. The simulated sizes follow from these counts.

use std::path::PathBuf;

use clap::Args;
use edgeward_analysis::{Entry, FieldNames, Outcome, QueryRule};
use edgeward_live::advise::{NEAR_BEST, Setting, recommended, recommended_disk};
use edgeward_live::faults::{Faults, ObjectFacts, Observed, ResponseSource};
use edgeward_live::study::{LoggedRequest, Study, StudyResults, Survey, WARMUP_PART};
use edgeward_logs::{
    Depth, FileProblem, FileReport, FingerprintBits, Settings, Source, for_each_request,
};
use edgeward_policy::PolicySpec;
use edgeward_trace::hash_key;
use edgeward_types::xxh3::xxh3_64;
use edgeward_types::{ByteSize, Timestamp};
use serde_json::{Value, json};

use super::predictions::{described, described_disk, disk_json, expected};
use crate::diagnostic::Diagnostic;
use crate::input::Inputs;
use crate::output::Progress;

/// Logs in place of a running edge.
#[derive(Args, Debug)]
pub(super) struct LogArgs {
    /// Access logs or traces, in place of a running edge: files, folders or patterns
    #[arg(value_name = "LOG")]
    pub(super) logs: Vec<PathBuf>,

    /// The present size of memory; half of it to eight times as much is simulated [default: from the log]
    #[arg(long, value_name = "SIZE", requires = "logs")]
    hot: Option<ByteSize>,

    /// The size of a disk below memory; half of it to eight times as much is simulated
    #[arg(long, value_name = "SIZE", requires = "logs")]
    disk: Option<ByteSize>,

    /// The present policy of memory, with --hot
    #[arg(
        long,
        value_name = "POLICY",
        default_value = "density",
        hide_short_help = true
    )]
    policy: PolicySpec,

    /// The memory of the simulated caches; with less memory, a sample of the objects is simulated
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "1GiB",
        hide_short_help = true
    )]
    memory: ByteSize,

    /// Read only the first N requests of traces
    #[arg(
        long = "requests",
        value_name = "N",
        requires = "logs",
        hide_short_help = true
    )]
    requests_max: Option<u64>,
}

/// The results for logs.
pub(super) struct LogAdvice {
    /// The name of the logs.
    pub(super) label: String,
    /// Requests that were simulated, with those that fill the caches.
    pub(super) requests: u64,
    /// The memory that all objects would take.
    pub(super) footprint_bytes: u64,
    /// The predictions.
    pub(super) results: StudyResults,
    /// Caching faults. `None` for traces, which have no URLs.
    pub(super) faults: Option<Faults>,
}

/// Reads and simulates logs.
pub(super) fn read(args: &LogArgs) -> anyhow::Result<LogAdvice> {
    let (log, FirstPass { survey, faults, .. }) = FirstPass::of(args)?;
    if survey.requests() == 0 {
        return Err(
            Diagnostic::new(format!("{} has no requests to simulate", log.label()))
                .hint("requests of logs count if they are GET with status 200 and a size")
                .into(),
        );
    }
    let capacity = args
        .hot
        .map_or_else(|| survey.capacity_bytes(), ByteSize::bytes);
    let disk = args.disk.map(ByteSize::bytes);
    let mut study = Study::new(&survey, capacity, args.policy, disk, args.memory.bytes());
    log.for_each("simulating", |request, _| {
        if let Some(request) = request {
            study.request(&request);
        }
    })?;
    Ok(LogAdvice {
        label: log.label(),
        requests: survey.requests(),
        footprint_bytes: survey.footprint_bytes(),
        results: study.finish(args.hot.is_some()),
        faults: matches!(log, Log::Access { .. }).then_some(faults),
    })
}

/// The results of the first of two readings.
struct FirstPass {
    survey: Survey,
    faults: Faults,
    /// Lines of access logs.
    entries: u64,
}

impl FirstPass {
    /// Reads the logs. They are traces if none of them has lines of an access log. A trace is not read further than its
    /// beginning before it is read as a trace.
    fn of(args: &LogArgs) -> anyhow::Result<(Log, Self)> {
        if args.logs.iter().any(|log| log.as_os_str() == "-") {
            return Err(
                Diagnostic::new("logs are read twice, and stdin can be read only once")
                    .hint("write the log to a file")
                    .into(),
            );
        }
        let log = Log::Access {
            sources: edgeward_logs::find(&args.logs)?,
            settings: Box::new(settings()),
        };
        let (first, reports) = Self::read(&log)?;
        let is_unknown =
            |report: &FileReport| matches!(report.problem, Some(FileProblem::Unrecognised(_)));
        if first.entries == 0 && reports.iter().any(is_unknown) {
            let inputs = Inputs::of_traces(args.logs.clone(), args.requests_max);
            let log = Log::Trace(inputs);
            let (first, _) = Self::read(&log)?;
            return Ok((log, first));
        }
        report_problems(&reports);
        Ok((log, first))
    }

    fn read(log: &Log) -> anyhow::Result<(Self, Vec<FileReport>)> {
        let mut first = Self {
            survey: Survey::default(),
            // Not random: a log has one result.
            faults: Faults::new(FAULTS_BYTES, 0).without_decay(),
            entries: 0,
        };
        let reports = log.for_each("reading", |request, entry| {
            if let Some(request) = request {
                first.survey.add(&request);
            }
            if let Some(entry) = entry {
                first.entries += 1;
                observe(&mut first.faults, entry);
            }
        })?;
        Ok((first, reports))
    }
}

/// Logs of a server, or traces.
enum Log {
    Access {
        sources: Vec<Source>,
        settings: Box<Settings>,
    },
    Trace(Inputs),
}

impl Log {
    fn label(&self) -> String {
        match self {
            Self::Trace(inputs) => inputs.label(),
            Self::Access { sources, .. } => match &sources[..] {
                [log] => log.label.clone(),
                logs => format!("{} and {} more", logs[0].label, logs.len() - 1),
            },
        }
    }

    /// Passes each request to simulate and each line of an access log to `each`. Returns the reports of access logs.
    fn for_each(
        &self,
        what: &'static str,
        mut each: impl FnMut(Option<LoggedRequest>, Option<&Entry<'_>>) + Send,
    ) -> anyhow::Result<Vec<FileReport>> {
        match self {
            Self::Trace(inputs) => {
                let progress = Progress::new(what, "B", inputs.bytes());
                let read = inputs.read(Some(&progress), |records| {
                    for record in records {
                        let request = LoggedRequest {
                            at: record.time,
                            key: record.key,
                            size: record.size,
                        };
                        each(Some(request), None);
                    }
                    Ok(())
                })?;
                read.error.map_or(Ok(Vec::new()), Err)
            }
            Self::Access { sources, settings } => {
                let bytes = sources.iter().map(|source| source.bytes).sum();
                let progress = Progress::new(what, "B", Some(bytes));
                let done = std::sync::atomic::AtomicU64::new(0);
                let add = |bytes| {
                    let before = done.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
                    progress.set(before + bytes);
                };
                Ok(for_each_request(sources, settings, &add, |entry| {
                    each(logged_request(entry), Some(entry));
                }))
            }
        }
    }
}

/// Writes warnings about logs that were not read completely.
fn report_problems(reports: &[FileReport]) {
    for report in reports {
        if let Some(problem) = &report.problem {
            tracing::warn!("{}: {problem}", report.label);
        }
    }
}

fn settings() -> Settings {
    Settings {
        depth: Depth::Counts,
        format: None,
        names: FieldNames::with_custom(std::iter::empty()),
        query: QueryRule::Keep,
        fingerprints: FingerprintBits::default(),
        threads: 1,
        memory: ByteSize::mib(64),
        temp_folder: std::env::temp_dir(),
        temp_max: ByteSize(0),
        line_bytes_max: 1 << 20,
        zstd_window_log_max: 27,
        top_max: 0,
        checkpoint: None,
    }
}

/// Returns the request to simulate: a GET with a complete response.
fn logged_request(entry: &Entry<'_>) -> Option<LoggedRequest> {
    let is_complete = matches!(entry.status, 0 | 200);
    let size = entry.bytes.filter(|_| is_get(entry) && is_complete)?;
    let mut url = entry.host.to_ascii_lowercase();
    url.extend_from_slice(entry.url);
    Some(LoggedRequest {
        at: entry.time.unwrap_or(Timestamp::ZERO),
        key: hash_key(&url),
        size,
    })
}

fn is_get(entry: &Entry<'_>) -> bool {
    matches!(entry.method, b"" | b"GET")
}

/// Searches a line for faults. Equal sizes stand for equal bodies, and objects are fresh for a day.
fn observe(faults: &mut Faults, entry: &Entry<'_>) {
    let host = String::from_utf8_lossy(entry.host).to_ascii_lowercase();
    let target = String::from_utf8_lossy(entry.url);
    let bytes = entry.bytes.unwrap_or(0);
    let is_part = entry.status == 206;
    let source = match entry.outcome {
        Some(Outcome::Hit) => ResponseSource::Cache,
        Some(Outcome::Pass) => ResponseSource::Passed,
        Some(Outcome::Miss) if is_part => ResponseSource::Passed,
        Some(Outcome::Miss) | None => ResponseSource::Origin,
    };
    faults.observe(&Observed {
        at: entry.time.unwrap_or(Timestamp::ZERO),
        weight: 1,
        site: None,
        host: host.split(':').next().unwrap_or_default(),
        target: &target,
        status: entry.status,
        is_get: is_get(entry),
        has_credentials: false,
        has_range: is_part,
        accepts_coding: false,
        source,
        not_stored: "",
        body_bytes: bytes,
        body: (bytes > 0).then(|| xxh3_64(&bytes.to_le_bytes())),
        object: Some(ObjectFacts {
            key: 0,
            lifetime_ms: 86_400_000,
            has_validator: true,
        }),
        head: None,
    });
}

/// Returns the predictions and the recommended setting as JSON.
pub(super) fn document(advice: &LogAdvice) -> Value {
    let setting = |setting: &Setting| {
        let mut row = json!({
            "hot.policy": setting.policy,
            "hot.capacity": setting.capacity_bytes,
        });
        row["expected"] = expected(setting);
        row
    };
    json!({
        "requests": advice.requests,
        "requests_sampled": advice.results.sampled,
        "footprint_bytes": advice.footprint_bytes,
        "settings": advice.results.settings.iter().map(setting).collect::<Vec<_>>(),
        "disks": advice.results.disks.iter().map(disk_json).collect::<Vec<_>>(),
        "recommended_disk": recommended_disk(&advice.results.disks).map(disk_json),
        "recommended": recommended(&advice.results.settings).map(setting),
    })
}

/// Returns the text of the predictions and of the recommended setting.
pub(super) fn text(advice: &LogAdvice) -> String {
    let mut text = format!(
        "{}: {} requests for objects of {}; the first 1/{WARMUP_PART} fills the caches\n\n",
        advice.label,
        advice.requests,
        ByteSize(advice.footprint_bytes),
    );
    let mut sizes: Vec<u64> = advice
        .results
        .settings
        .iter()
        .map(|it| it.capacity_bytes)
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut rows = vec![std::iter::once("hit ratio".to_owned()).collect::<Vec<_>>()];
    rows[0].extend(sizes.iter().map(|size| ByteSize(*size).to_string()));
    for setting in &advice.results.settings {
        if rows.last().is_none_or(|row| row[0] != setting.policy) {
            rows.push(vec![setting.policy.clone()]);
        }
        if let Some(row) = rows.last_mut() {
            row.push(format!("{:.1} %", 100.0 * setting.hit_ratio));
        }
    }
    for row in rows {
        let cells = row.iter().skip(1).map(|cell| format!("{cell:>12}"));
        text += &format!("{:<10}{}\n", row[0], cells.collect::<String>());
    }
    let best = advice
        .results
        .settings
        .iter()
        .max_by(|a, b| a.hit_ratio.total_cmp(&b.hit_ratio));
    if let (Some(setting), Some(best)) = (recommended(&advice.results.settings), best) {
        text += &format!(
            "\nrecommended: {}\n  hot.policy = \"{}\"\n  hot.capacity = \"{}\"\nwhy: the least memory within {:.0} \
             point of the best setting, {} with {}: {:.1} %\n",
            described(setting),
            setting.policy,
            ByteSize(setting.capacity_bytes),
            100.0 * NEAR_BEST,
            best.policy,
            ByteSize(best.capacity_bytes),
            100.0 * best.hit_ratio,
        );
    }
    if let Some(disk) = recommended_disk(&advice.results.disks) {
        text += &format!(
            "\nrecommended disk: {}\nwhy: the least disk within {:.0} point of the best one, with the rule that writes \
             least\n",
            described_disk(disk),
            100.0 * NEAR_BEST,
        );
    }
    text
}

/// The memory of the search for faults.
const FAULTS_BYTES: u64 = 16 << 20;
