//! Tests of the text of the report.

use super::*;
use crate::figure::ComparisonKind;
use crate::outcome::{LoadFacts, Machine, Totals, TraceFacts};
use crate::plan::SourceFigure;
use crate::sample::Sample;

fn contender(name: &str, written_per_second: u64) -> ContenderOutcome {
    let sample_at = |n: u64| Sample {
        seconds: n as f64,
        requests: n * 100,
        hits: n * 40,
        disk_write_bytes: Some(written_per_second * n),
        store_write_operations: Some(n),
        latency_p50_ms: Some(1.5),
        ..Sample::default()
    };
    ContenderOutcome {
        name: name.to_owned(),
        server: "edgeward".to_owned(),
        totals: Some(Totals {
            requests: 1000,
            hit_ratio: 0.4,
            disk_write_bytes: Some(written_per_second * 10),
            ..Totals::default()
        }),
        warm_seconds: Some(2.0),
        series: (0..=10).map(sample_at).collect(),
        ..ContenderOutcome::default()
    }
}

fn outcome() -> Outcome {
    Outcome {
        title: "Before & after".to_owned(),
        about: Some("Why <we> ask".to_owned()),
        unfinished: None,
        trace: TraceFacts::default(),
        load: LoadFacts::default(),
        machine: Machine::default(),
        contenders: vec![contender("before", 4 << 20), contender("after", 1 << 20)],
        comparison: None,
        sources: vec![SourceFigure {
            figure: Figure::DiskBytesWritten,
            comparison: ComparisonKind::TimesFewer,
            before: "before".to_owned(),
            after: "after".to_owned(),
            published: "4 times fewer".to_owned(),
            citation: "an author, 2017".to_owned(),
        }],
    }
}

#[test]
fn a_published_figure_has_the_measured_one_beside_it() {
    let html = page(&outcome(), "edgeward lab x.toml");
    for text in [
        "Before &amp; after",
        "Why &lt;we&gt; ask",
        "before → after; source: an author, 2017",
        "<td>4 times fewer</td><td>4.0\u{a0}times fewer</td>",
        "an author, 2017",
        "edgeward lab x.toml",
        "Bytes written to disk",
        "warmed up",
    ] {
        assert!(html.contains(text), "{text}");
    }
    assert!(!html.contains("partial"));
}

/// Each pair of contenders of a source has one table with all figures of the pair.
#[test]
fn each_pair_of_contenders_has_a_table_and_each_published_figure_has_a_row() {
    let mut outcome = outcome();
    let first = outcome.sources[0].clone();
    let swapped = SourceFigure {
        before: first.after.clone(),
        after: first.before.clone(),
        ..first.clone()
    };
    outcome.sources = vec![first.clone(), swapped, first];
    let html = page(&outcome, "x");
    assert_eq!(html.matches("; source: an author, 2017").count(), 2);
    assert_eq!(html.matches("<td>4 times fewer</td>").count(), 3);
}

#[test]
fn latencies_are_not_compared_if_the_machine_was_too_busy() {
    let mut outcome = outcome();
    outcome.sources[0].figure = Figure::LatencyP99;
    for contender in &mut outcome.contenders {
        if let Some(totals) = &mut contender.totals {
            totals.latency_p99_ms = Some(3.0);
        }
    }
    assert!(page(&outcome, "x").contains("<td>the same</td>"));
    // The load generator sent half of the requests a second or more after their due time.
    if let Some(totals) = &mut outcome.contenders[0].totals {
        totals.send_delay_p50_ms = 1000.0;
    }
    assert!(page(&outcome, "x").contains("<td>the machine was too busy</td>"));
}

#[test]
fn a_contender_that_did_not_finish_is_marked_and_not_compared() {
    let mut outcome = outcome();
    outcome.contenders[1].end = RunEnd::EndedEarly {
        why: "the server died, with signal: 9 (SIGKILL)".to_owned(),
    };
    let html = page(&outcome, "edgeward lab x.toml");
    for text in [
        "after (partial)",
        "a contender did not complete the trace",
        "ended early: the server died, with signal: 9 (SIGKILL)",
    ] {
        assert!(html.contains(text), "{text}");
    }
}

#[test]
fn a_run_without_figures_has_a_page() {
    let mut outcome = outcome();
    outcome.contenders = vec![ContenderOutcome {
        name: "nginx".to_owned(),
        server: "nginx".to_owned(),
        end: RunEnd::NotInstalled {
            hint: "apt has it".to_owned(),
        },
        ..ContenderOutcome::default()
    }];
    let html = page(&outcome, "edgeward lab x.toml");
    assert!(html.contains("nginx was left out: apt has it."));
    assert!(!html.contains("<figure"));
}
