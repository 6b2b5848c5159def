//! The text format of OpenMetrics 1.0, which has exemplars: the trace of a request beside the bucket of its duration.
//!
//! <https://prometheus.io/docs/specs/om/open_metrics_spec/>

use std::collections::HashMap;
use std::time::Duration;

use crate::histogram::Histogram;
use crate::{Family, encode};

/// An observed value, and the trace to which it belongs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    /// The id of the trace.
    pub trace_id: u128,
    /// The observed value.
    pub value: f64,
    /// The time of the observation, since 1970.
    pub at: Duration,
}

/// The exemplars of a scrape.
#[derive(Debug, Default)]
pub struct Exemplars {
    /// By the name and labels of the sample of a bucket.
    samples: HashMap<String, Exemplar>,
}

impl Exemplars {
    /// Adds an exemplar of a series of a histogram. `labels` are the values of the labels of the series.
    pub fn add(&mut self, histogram: &Histogram, labels: &[&str], exemplar: Exemplar) {
        let bucket = histogram
            .bounds
            .iter()
            .find(|bound| exemplar.value <= **bound);
        let bound = bucket.map_or_else(|| "+Inf".to_owned(), f64::to_string);
        let pairs = histogram.labels.iter().zip(labels);
        let pairs: String = pairs
            .map(|(name, value)| format!("{name}=\"{}\",", escaped(value)))
            .collect();
        let sample = format!("{}_bucket{{{pairs}le=\"{bound}\"}}", histogram.name);
        self.samples.insert(sample, exemplar);
    }
}

/// Returns the metrics of [`encode`] in the format of OpenMetrics.
pub fn encode_open_metrics(families: Vec<Family>, exemplars: &Exemplars) -> String {
    let text = encode(families);
    let types = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let types: HashMap<&str, &str> = types.collect();
    let mut open = String::with_capacity(text.len() + 100 * exemplars.samples.len());
    for line in text.lines() {
        match line.strip_prefix("# ") {
            Some(about) => about_family(about, &types, &mut open),
            None => {
                open.push_str(line);
                let sample = line.rsplit_once(' ').map_or(line, |(sample, _)| sample);
                if let Some(exemplar) = exemplars.samples.get(sample) {
                    let Exemplar {
                        trace_id,
                        value,
                        at,
                    } = exemplar;
                    let at = at.as_secs_f64();
                    open.push_str(&format!(
                        " # {{trace_id=\"{trace_id:032x}\"}} {value} {at:.3}"
                    ));
                }
            }
        }
        open.push('\n');
    }
    open.push_str("# EOF\n");
    open
}

/// Writes a line with the type or the help of a family. The name of a family of counters lacks the `_total` of its
/// samples. If another family has this name, the counters keep theirs, and their type is unknown. Quotes are escaped.
fn about_family(about: &str, types: &HashMap<&str, &str>, open: &mut String) {
    let mut parts = about.splitn(3, ' ');
    let [keyword, name, text] = [(); 3].map(|()| parts.next().unwrap_or_default());
    let of_family = types.get(name).copied().unwrap_or("unknown");
    let (name, of_family) = match (of_family, name.strip_suffix("_total")) {
        ("counter", Some(stripped)) if !types.contains_key(stripped) => (stripped, of_family),
        ("counter", _) => (name, "unknown"),
        _ => (name, of_family),
    };
    let text = match keyword {
        "HELP" => text.replace('"', "\\\""),
        _ => of_family.to_owned(),
    };
    open.push_str(&format!("# {keyword} {name} {text}"));
}

/// Returns the value of a label as the text format has it.
fn escaped(value: &str) -> String {
    value
        .replace('\\', r"\\")
        .replace('\n', r"\n")
        .replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HistogramValues, metrics};

    const WAITS: Histogram = Histogram {
        name: "door_wait_seconds",
        help: "Time at the \"door\".",
        labels: &["door"],
        bounds: &[0.5, 2.0],
    };

    metrics! {
        const VISITS: u64 = |visits| {
            Counter "door_visits_total" "Visits." { *visits }
        }

        const GUESTS: u64 = |guests| {
            Gauge "door_guests" "Guests within." { *guests }
            Counter "door_guests_total" "Guests since the start." { *guests }
            Gauge "door_seats_total" "Seats." { *guests }
        }
    }

    /// Method: a value at each bound and beyond the last one, for a label with all characters that are escaped.
    #[test]
    fn an_exemplar_is_beside_the_first_bucket_that_has_its_value() {
        let door = "a\"\\\nb";
        for (value, bound) in [(0.5, "0.5"), (0.6, "2"), (2.0, "2"), (7.0, "+Inf")] {
            let values = HistogramValues {
                counts: vec![1, 1, 1],
                sum: 61.5,
            };
            let mut families = vec![WAITS.family(&[(vec![door], values)])];
            families.extend(VISITS.of(&7));
            let mut exemplars = Exemplars::default();
            let exemplar = Exemplar {
                trace_id: 0xabc,
                value,
                at: Duration::from_millis(1_500_250),
            };
            exemplars.add(&WAITS, &[door], exemplar);
            let text = encode_open_metrics(families, &exemplars);
            let with: Vec<&str> = text.lines().filter(|line| line.contains(" # {")).collect();
            let [line] = &with[..] else {
                panic!("{text}");
            };
            let start = r#"door_wait_seconds_bucket{door="a\"\\\nb",le=""#.to_owned() + bound;
            assert!(line.starts_with(&start), "{line}");
            let end =
                format!(" # {{trace_id=\"00000000000000000000000000000abc\"}} {value} 1500.250");
            assert!(line.ends_with(&end), "{line}");
        }
    }

    #[test]
    fn a_family_of_counters_has_no_suffix_and_the_text_ends_with_eof() {
        let values = HistogramValues {
            counts: vec![0, 0, 1],
            sum: 3.0,
        };
        let mut families = VISITS.of(&7);
        families.push(WAITS.family(&[(vec!["a"], values)]));
        let text = encode_open_metrics(families, &Exemplars::default());
        let lines: Vec<_> = text.lines().take(4).collect();
        let expected = [
            "# HELP door_visits Visits.",
            "# TYPE door_visits counter",
            "door_visits_total 7",
            r#"# HELP door_wait_seconds Time at the \"door\"."#,
        ];
        assert_eq!(lines, expected);
        assert!(text.ends_with("\n# EOF\n"));
    }

    /// A gauge `door_guests` beside a counter `door_guests_total`: OpenMetrics allows no two families of one name.
    #[test]
    fn a_counter_keeps_its_name_as_unknown_if_another_family_has_the_name_without_suffix() {
        let text = encode_open_metrics(GUESTS.of(&7), &Exemplars::default());
        let lines: Vec<_> = text.lines().take(9).collect();
        let expected = [
            "# HELP door_guests Guests within.",
            "# TYPE door_guests gauge",
            "door_guests 7",
            "# HELP door_guests_total Guests since the start.",
            "# TYPE door_guests_total unknown",
            "door_guests_total 7",
            "# HELP door_seats_total Seats.",
            "# TYPE door_seats_total gauge",
            "door_seats_total 7",
        ];
        assert_eq!(lines, expected);
    }
}
