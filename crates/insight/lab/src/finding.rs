//! The results of an experiment in sentences, for the top of the report and for the terminal.

use edgeward_report::Unit;

use crate::figure::{ComparisonKind, Figure};
use crate::outcome::{ContenderOutcome, Outcome, RunEnd, Totals};

/// Returns the findings as sentences, the most important first.
pub fn findings(outcome: &Outcome) -> Vec<String> {
    let mut findings = Vec::new();
    if let Some(why) = &outcome.unfinished {
        findings.push(format!(
            "The plan is incomplete: {why}. The results so far follow."
        ));
    }
    add_comparison(outcome, &mut findings);
    for contender in &outcome.contenders {
        match &contender.end {
            RunEnd::Completed => {}
            RunEnd::NotInstalled { hint } => {
                findings.push(format!("{} was left out: {hint}.", contender.name));
            }
            RunEnd::NotStarted { why } => {
                findings.push(format!("{} did not run: {why}.", contender.name));
            }
            RunEnd::EndedEarly { why } => findings.push(format!(
                "{} did not finish: {why}. The report has its curves, but does not compare it.",
                contender.name
            )),
        }
    }
    for contender in &outcome.contenders {
        for note in &contender.notes {
            findings.push(format!("{}: {note}.", contender.name));
        }
    }
    report_late(outcome, &mut findings);
    report_errors(outcome, &mut findings);
    findings
}

/// Compares the subject of the comparison with the other contenders: first the hit ratios of all, then one sentence
/// per other contender with the figures that differ. A group is represented by its contender with the best hit ratio.
fn add_comparison(outcome: &Outcome, findings: &mut Vec<String>) {
    let Some(compare) = &outcome.comparison else {
        return add_ranking(outcome, findings);
    };
    let Some(subject) = outcome.representative(&compare.subject) else {
        return add_ranking(outcome, findings);
    };
    let others: Vec<&ContenderOutcome> = compare
        .with
        .iter()
        .filter_map(|name| outcome.representative(name))
        .collect();
    let mut sentence = format!(
        "Of 100 requests {} answered {} from its cache",
        display_name(outcome, subject, &compare.subject),
        hits_per_hundred(subject)
    );
    for (other, name) in others.iter().zip(&compare.with) {
        sentence += &format!(
            ", {} {}",
            display_name(outcome, other, name),
            hits_per_hundred(other)
        );
    }
    findings.push(sentence + ".");
    for other in others {
        if let Some(sentence) = difference_sentence(subject, other) {
            findings.push(sentence);
        }
    }
}

/// Lists the contenders by hit ratio, for plans without a comparison.
fn add_ranking(outcome: &Outcome, findings: &mut Vec<String>) {
    let mut complete: Vec<&ContenderOutcome> = outcome
        .contenders
        .iter()
        .filter(|contender| contender.end.is_complete() && contender.totals.is_some())
        .collect();
    complete.sort_by(|a, b| ratio(b).total_cmp(&ratio(a)));
    if let [best, others @ ..] = &complete[..] {
        let mut sentence = format!(
            "Of 100 requests {} answered {} from its cache",
            best.name,
            hits_per_hundred(best)
        );
        for other in others {
            sentence += &format!(", {} {}", other.name, hits_per_hundred(other));
        }
        findings.push(sentence + ".");
    }
}

/// Returns a sentence with the differences between two contenders: the hit ratios, and each figure that differs by
/// at least 10 %.
fn difference_sentence(subject: &ContenderOutcome, other: &ContenderOutcome) -> Option<String> {
    let (mine, theirs) = (subject.totals.as_ref()?, other.totals.as_ref()?);
    let mut parts = Vec::new();
    if let Some(gain) = ComparisonKind::Percent.compare(theirs.hit_ratio, mine.hit_ratio) {
        let percent = gain.value.abs();
        parts.push(if percent < 0.05 {
            "the same number of requests from the cache".to_owned()
        } else {
            let more = if gain.value > 0.0 { "more" } else { "fewer" };
            format!("{percent:.1} % {more} requests from the cache")
        });
    }
    // The latencies of a contender whose requests were sent late include the delay, so they are not compared.
    let one_was_late = subject.was_late() || other.was_late();
    for (figure, words) in COMPARED_FIGURES {
        let is_latency = matches!(figure, Figure::LatencyP50 | Figure::LatencyP99);
        if is_latency && one_was_late {
            continue;
        }
        if let Some(part) = difference_phrase(*figure, words, theirs, mine) {
            parts.push(part);
        }
    }
    let last = parts.pop()?;
    let list = if parts.is_empty() {
        last
    } else {
        format!("{} and {last}", parts.join(", "))
    };
    Some(format!("Against {}: {list}.", other.name))
}

/// Compares one figure. Returns a phrase such as `3.1 times less written to disk`, or `None` if the difference is
/// below 10 %, if a contender has no value or zero, or if both values are very small.
fn difference_phrase(
    figure: Figure,
    words: &str,
    theirs: &Totals,
    mine: &Totals,
) -> Option<String> {
    let (theirs, mine) = (figure.of(theirs)?, figure.of(mine)?);
    // If both values are at most 1 MB, or both counts are at most 100, their difference is not mentioned.
    let floor = match figure.unit() {
        Unit::Bytes => 1e6,
        Unit::Count => 100.0,
        Unit::Seconds | Unit::Share => 0.0,
    };
    if theirs.max(mine) <= floor || theirs <= 0.0 || mine <= 0.0 {
        return None;
    }
    let times = theirs / mine;
    // A ratio of about 2 or more is printed as a factor, a smaller ratio in percent.
    if times >= 1.95 {
        Some(format!("{times:.1} times less {words}"))
    } else if times <= 1.0 / 1.95 {
        Some(format!("{:.1} times more {words}", 1.0 / times))
    } else if times >= 1.1 {
        Some(format!(
            "{:.0} % less {words}",
            (1.0 - mine / theirs) * 100.0
        ))
    } else if times <= 1.0 / 1.1 {
        Some(format!(
            "{:.0} % more {words}",
            (mine / theirs - 1.0) * 100.0
        ))
    } else {
        None
    }
}

/// The figures that the findings mention, each with the words that follow `less` or `more`.
const COMPARED_FIGURES: &[(Figure, &str)] = &[
    (Figure::DiskBytesWritten, "written to disk"),
    (Figure::OriginBytes, "traffic from the origin"),
    (Figure::Cpu, "CPU"),
    (Figure::Memory, "memory"),
    (Figure::LatencyP50, "median latency"),
    (Figure::LatencyP99, "p99 latency"),
];

/// Returns the contender's name. `requested_name` is the name in the plan: of this contender or of its group. For a
/// group with several contenders that ran, adds their number.
fn display_name(outcome: &Outcome, contender: &ContenderOutcome, requested_name: &str) -> String {
    let ran = outcome
        .contenders
        .iter()
        .filter(|other| other.group.as_deref() == Some(requested_name) && other.totals.is_some());
    match ran.count() {
        n if n > 1 && contender.name != requested_name => {
            format!("{} (the best of {n} settings)", contender.name)
        }
        _ => contender.name.clone(),
    }
}

/// Reports contenders whose requests were sent later than planned, because the machine was too slow for the rate.
fn report_late(outcome: &Outcome, findings: &mut Vec<String>) {
    let late: Vec<&str> = outcome
        .contenders
        .iter()
        .filter(|contender| contender.was_late())
        .map(|contender| contender.name.as_str())
        .collect();
    if !late.is_empty() {
        findings.push(format!(
            "The machine was too slow for {} requests per second for {}: the curves are stretched, and the \
             latencies include the wait.",
            outcome.load.rate.unwrap_or(0.0),
            late.join(", ")
        ));
    }
}

fn report_errors(outcome: &Outcome, findings: &mut Vec<String>) {
    let mut all_right = true;
    for contender in &outcome.contenders {
        let Some(totals) = &contender.totals else {
            continue;
        };
        if totals.errors > 0 {
            all_right = false;
            let example = contender
                .error_samples
                .first()
                .map_or_else(String::new, |sample| {
                    format!(", such as: {}", sample.detail)
                });
            findings.push(format!(
                "{} of the requests to {} failed or got a wrong response{example}.",
                Unit::Count.exact(totals.errors as f64),
                contender.name
            ));
        }
    }
    if all_right
        && outcome
            .contenders
            .iter()
            .any(|contender| contender.totals.is_some())
    {
        findings.push("Every byte of every response was checked and is correct.".to_owned());
    }
}

fn ratio(contender: &ContenderOutcome) -> f64 {
    contender
        .totals
        .as_ref()
        .map_or(0.0, |totals| totals.hit_ratio)
}

fn hits_per_hundred(contender: &ContenderOutcome) -> String {
    format!("{:.1}", ratio(contender) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ComparisonPlan;

    fn contender(
        name: &str,
        group: Option<&str>,
        hit_ratio: f64,
        written: u64,
    ) -> ContenderOutcome {
        ContenderOutcome {
            name: name.to_owned(),
            group: group.map(str::to_owned),
            totals: Some(Totals {
                requests: 1000,
                hit_ratio,
                disk_write_bytes: Some(written),
                cpu_seconds: Some(10.0),
                ..Totals::default()
            }),
            ..ContenderOutcome::default()
        }
    }

    fn outcome(contenders: Vec<ContenderOutcome>, with: &[&str]) -> Outcome {
        let subject = contenders[0].name.clone();
        let with = with.iter().map(|name| (*name).to_owned()).collect();
        Outcome {
            comparison: Some(ComparisonPlan { subject, with }),
            ..Outcome::with_contenders(contenders)
        }
    }

    #[test]
    fn findings_have_the_gains_and_the_losses() {
        let outcome = outcome(
            vec![
                contender("adaptsize", None, 0.55, 10_000_000),
                contender("varnish", None, 0.50, 10_100_000),
                contender("nginx 1", Some("nginx"), 0.40, 0),
                contender("nginx 2", Some("nginx"), 0.60, 90_000_000),
            ],
            &["varnish", "nginx"],
        );
        assert_eq!(
            findings(&outcome),
            [
                "Of 100 requests adaptsize answered 55.0 from its cache, varnish 50.0, nginx 2 (the best of 2 \
                 settings) 60.0.",
                "Against varnish: 10.0 % more requests from the cache.",
                "Against nginx 2: 8.3 % fewer requests from the cache and 9.0 times less written to disk.",
                "Every byte of every response was checked and is correct.",
            ]
        );
    }

    #[test]
    fn findings_report_missing_partial_slow_and_wrong_contenders() {
        let mut outcome = outcome(
            vec![
                contender("a", None, 0.5, 0),
                contender("b", None, 0.5, 0),
                contender("c", None, 0.7, 0),
            ],
            &["b", "c"],
        );
        outcome.unfinished = Some("interrupted".to_owned());
        outcome.load.rate = Some(3000.0);
        outcome.contenders[1].end = RunEnd::NotInstalled {
            hint: "apt has it".to_owned(),
        };
        outcome.contenders[2].end = RunEnd::EndedEarly {
            why: "the server died".to_owned(),
        };
        if let Some(totals) = &mut outcome.contenders[0].totals {
            totals.errors = 2;
            totals.send_delay_p50_ms = 900.0;
        }
        let sentences = findings(&outcome);
        assert!(
            sentences[0].starts_with("The plan is incomplete: interrupted."),
            "{sentences:#?}"
        );
        assert_eq!(
            sentences[1],
            "Of 100 requests a answered 50.0 from its cache."
        );
        assert_eq!(sentences[2], "b was left out: apt has it.");
        assert!(sentences[3].starts_with("c did not finish: the server died."));
        assert!(
            sentences[4].contains("3000 requests per second for a"),
            "{sentences:#?}"
        );
        assert_eq!(
            sentences[5],
            "2 of the requests to a failed or got a wrong response."
        );
        assert_eq!(sentences.len(), 6);
    }

    #[test]
    fn without_a_comparison_contenders_are_listed_by_hit_ratio() {
        let mut outcome = outcome(
            vec![contender("a", None, 0.1, 0), contender("b", None, 0.2, 0)],
            &[],
        );
        outcome.comparison = None;
        let sentences = findings(&outcome);
        assert_eq!(
            sentences[0],
            "Of 100 requests b answered 20.0 from its cache, a 10.0."
        );
    }
}
