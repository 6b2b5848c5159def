//! A day of history for the admin page, in bounded memory: what the counters grew by in each second of the last five
//! minutes, in each ten seconds of the last hour and in each minute of the last day.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};

use super::duration_histogram::{BOUNDS_SECONDS, BUCKETS};
use super::labels::Label as _;
use super::site_counters::OutcomeClass;

/// Sums of counters since the start, and the values of gauges, at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Responses that have ended. Indexed by [`OutcomeClass`], as `bytes` is.
    pub(crate) requests: [u64; CLASSES],
    /// Body bytes of these responses.
    pub(crate) bytes: [u64; CLASSES],
    /// Body bytes received from origins.
    pub(crate) origin_bytes: u64,
    /// Requests that origins did not answer completely.
    pub(crate) origin_errors: u64,
    /// The durations of requests, by bucket.
    pub(crate) durations: [u64; BUCKETS],
    /// The times until origins answered, by bucket.
    pub(crate) latencies: [u64; BUCKETS],
    /// Bytes of the memory tier in use.
    pub(crate) memory_bytes: u64,
    /// Bytes of the disk tier in use.
    pub(crate) disk_bytes: u64,
}

/// The history of [`Sums`].
#[derive(Debug)]
pub(crate) struct History {
    levels: [Level; LEVELS.len()],
}

#[derive(Debug)]
struct Level {
    interval: Duration,
    rows_max: usize,
    /// The time since the start and the sums at the end of the last row.
    last: Option<(Duration, Sums)>,
    /// Each row with the time of its end in seconds since the start.
    rows: VecDeque<(u32, Row)>,
}

/// The values of [`COLUMNS`]: per second of the row's interval, except percentiles and gauges. NaN: unknown.
type Row = [f32; COLUMNS.len() - 1];

/// The names of the values of a row. The first value is the time of the row's end in seconds since 1970.
const COLUMNS: [&str; 20] = [
    "at",
    "hit",
    "hit_stale",
    "miss",
    "revalidated",
    "pass",
    "refused",
    "none",
    "hit_bytes",
    "bytes",
    "origin_bytes",
    "origin_errors",
    "client_p50_seconds",
    "client_p90_seconds",
    "client_p99_seconds",
    "origin_p50_seconds",
    "origin_p90_seconds",
    "origin_p99_seconds",
    "memory_bytes",
    "disk_bytes",
];

/// The interval of the rows of each level, and their number: 2,100 rows, which take 170 KB.
const LEVELS: [(Duration, usize); 3] = [
    (Duration::from_secs(1), 300),
    (Duration::from_secs(10), 360),
    (Duration::from_secs(60), 1440),
];

/// The time by which a tick may come early: half a second of the ticks, so that a late tick before it does not matter.
const EARLY_MAX: Duration = Duration::from_millis(500);

const CLASSES: usize = OutcomeClass::LABELS.len();

impl History {
    pub(crate) fn new() -> Self {
        Self {
            levels: LEVELS.map(|(interval, rows_max)| Level {
                interval,
                rows_max,
                last: None,
                rows: VecDeque::new(),
            }),
        }
    }

    /// Adds the sums at `uptime`, the time since the start. The levels whose interval is over get a row.
    pub(crate) fn add(&mut self, uptime: Duration, sums: &Sums) {
        for level in &mut self.levels {
            level.add(uptime, sums);
        }
    }

    /// Returns all rows as JSON. `started` is the time of the start in seconds since 1970.
    pub(crate) fn to_json(&self, started: f64) -> Value {
        self.json_of(started, usize::MAX)
    }

    /// Returns the newest row of each level.
    pub(crate) fn newest(&self, started: f64) -> Value {
        self.json_of(started, 1)
    }

    fn json_of(&self, started: f64, rows_max: usize) -> Value {
        let levels = self.levels.iter().map(|level| {
            let count = level.rows.len().min(rows_max);
            let newest = level.rows.iter().skip(level.rows.len() - count);
            let rows = newest.map(|(end, row)| {
                let at = started.round() as i64 + i64::from(*end);
                let values = row.iter().map(|value| number(f64::from(*value)));
                let values = std::iter::once(json!(at)).chain(values);
                values.collect::<Vec<_>>()
            });
            json!({ "interval_seconds": level.interval.as_secs(), "rows": rows.collect::<Vec<_>>() })
        });
        json!({ "columns": COLUMNS, "levels": levels.collect::<Vec<_>>() })
    }
}

impl Level {
    fn add(&mut self, uptime: Duration, sums: &Sums) {
        let Some((last, before)) = &self.last else {
            self.last = Some((uptime, sums.clone()));
            return;
        };
        let elapsed = uptime.saturating_sub(*last);
        if elapsed + EARLY_MAX < self.interval {
            return;
        }
        if self.rows.len() == self.rows_max {
            self.rows.pop_front();
        }
        let end = uptime.as_secs_f64().round() as u32;
        let row = row(before, sums, elapsed.as_secs_f64());
        self.rows.push_back((end, row));
        self.last = Some((uptime, sums.clone()));
    }
}

fn row(before: &Sums, now: &Sums, seconds: f64) -> Row {
    let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
    let hits = [OutcomeClass::Hit as usize, OutcomeClass::HitStale as usize];
    let bytes = |sums: &Sums| sums.bytes.iter().sum();
    let hit_bytes = |sums: &Sums| hits.iter().map(|class| sums.bytes[*class]).sum();
    let clients = growth(&before.durations, &now.durations);
    let origins = growth(&before.latencies, &now.latencies);
    let mut values = (0..CLASSES).map(|class| rate(before.requests[class], now.requests[class]));
    let requests: [f64; CLASSES] = std::array::from_fn(|_| values.next().unwrap_or_default());
    let others = [
        rate(hit_bytes(before), hit_bytes(now)),
        rate(bytes(before), bytes(now)),
        rate(before.origin_bytes, now.origin_bytes),
        rate(before.origin_errors, now.origin_errors),
    ];
    let percentiles = [&clients, &origins]
        .into_iter()
        .flat_map(|counts| [0.5, 0.9, 0.99].map(|share| percentile(counts, share)));
    let gauges = [now.memory_bytes as f64, now.disk_bytes as f64];
    let mut all = requests
        .into_iter()
        .chain(others)
        .chain(percentiles.map(|seconds| seconds.unwrap_or(f64::NAN)))
        .chain(gauges);
    std::array::from_fn(|_| all.next().expect("a row has a value for each column") as f32)
}

/// Returns the growth of the counts of a histogram.
pub(crate) fn growth(before: &[u64; BUCKETS], now: &[u64; BUCKETS]) -> [u64; BUCKETS] {
    std::array::from_fn(|bucket| now[bucket].saturating_sub(before[bucket]))
}

/// Returns the duration in seconds that a share of the counted durations does not exceed, interpolated within its
/// bucket.
/// `None` without durations. A duration above the last bound counts as the last bound.
pub(crate) fn percentile(counts: &[u64; BUCKETS], share: f64) -> Option<f64> {
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return None;
    }
    let wanted = share * total as f64;
    let mut below = 0.0;
    for (bucket, count) in counts.iter().enumerate() {
        let count = *count as f64;
        if count > 0.0 && below + count >= wanted {
            let lower = bucket.checked_sub(1).map_or(0.0, |at| BOUNDS_SECONDS[at]);
            let upper = BOUNDS_SECONDS.get(bucket).copied().unwrap_or(lower);
            return Some(lower + (upper - lower) * (wanted - below) / count);
        }
        below += count;
    }
    BOUNDS_SECONDS.last().copied()
}

/// Returns a number with about four digits, or null for NaN.
pub(crate) fn number(value: f64) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    if value == 0.0 {
        return json!(0);
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    let scale = 10f64.powi(digits.clamp(0, 9));
    let rounded = (value * scale).round() / scale;
    match rounded.fract() == 0.0 && rounded.abs() < 1e15 {
        true => json!(rounded as i64),
        false => json!(rounded),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(hits: u64) -> Sums {
        let mut sums = Sums {
            memory_bytes: 7,
            ..Sums::default()
        };
        sums.requests[OutcomeClass::Hit as usize] = hits;
        sums.bytes[OutcomeClass::Hit as usize] = 100 * hits;
        sums.durations[3] = hits;
        sums
    }

    fn rows(history: &Value, level: usize) -> Vec<Vec<f64>> {
        let rows = history["levels"][level]["rows"].as_array();
        let rows = rows.expect("the level has rows").iter();
        rows.map(|row| {
            let values = row.as_array().expect("a row is a list").iter();
            values
                .map(|value| value.as_f64().unwrap_or(f64::NAN))
                .collect()
        })
        .collect()
    }

    /// Method: three hits per second for two days, with ticks that are late or early by up to 40 ms.
    #[test]
    fn a_day_of_history_has_a_bounded_number_of_rows_with_the_rates_of_their_intervals() {
        let mut history = History::new();
        for second in 0..2 * 86_400u64 {
            let jitter = Duration::from_millis(40 * (second % 2));
            history.add(Duration::from_secs(second) + jitter, &sums(3 * second));
        }
        let json = history.to_json(1e9);
        for (level, (interval, rows_max)) in LEVELS.iter().enumerate() {
            let rows = rows(&json, level);
            assert_eq!(rows.len(), *rows_max);
            for pair in rows.windows(2) {
                let step = pair[1][0] - pair[0][0];
                assert!((step - interval.as_secs_f64()).abs() < 1.5, "{step}");
                assert!((pair[1][1] - 3.0).abs() < 0.2, "{:?}", pair[1]);
            }
            let last = rows.last().expect("there are rows");
            assert!(1e9 + 2.0 * 86_400.0 - last[0] <= interval.as_secs_f64() + 1.0);
            assert_eq!(last[18], 7.0);
        }
    }

    #[test]
    fn a_row_without_requests_has_no_percentiles() {
        let mut history = History::new();
        history.add(Duration::ZERO, &sums(0));
        history.add(Duration::from_secs(1), &sums(0));
        let json = history.newest(0.0);
        let row = &json["levels"][0]["rows"][0];
        let at = |name| COLUMNS.iter().position(|column| *column == name);
        let at = |name| at(name).expect("the column exists");
        assert_eq!(row[at("client_p50_seconds")], Value::Null);
        assert_eq!(row[at("hit")], 0);
        assert_eq!(row.as_array().map(Vec::len), Some(COLUMNS.len()));
    }

    /// Each percentile of durations that are all in one bucket is within the bounds of this bucket.
    #[test]
    fn a_percentile_is_within_the_bucket_of_its_durations() {
        for bucket in 0..BUCKETS {
            let mut counts = [0; BUCKETS];
            counts[bucket] = 5;
            let lower = bucket.checked_sub(1).map_or(0.0, |at| BOUNDS_SECONDS[at]);
            let upper = BOUNDS_SECONDS.get(bucket).copied().unwrap_or(lower);
            for share in [0.0, 0.5, 0.99, 1.0] {
                let found = percentile(&counts, share).expect("there are durations");
                assert!((lower..=upper).contains(&found), "{bucket} {share} {found}");
            }
        }
        assert_eq!(percentile(&[0; BUCKETS], 0.5), None);
    }

    #[test]
    fn a_number_keeps_about_four_digits() {
        for (value, text) in [
            (0.0, "0"),
            (12345.678, "12346"),
            (1.23456, "1.235"),
            (0.000123456, "0.0001235"),
            (f64::NAN, "null"),
            (5.0, "5"),
        ] {
            assert_eq!(number(value).to_string(), text);
        }
    }
}
