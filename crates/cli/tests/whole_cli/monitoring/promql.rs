//! Compares the metrics and labels of an expression with the tables of metrics. `promtool` checks the syntax.

use std::collections::BTreeSet;

use edgeward_metrics::{Definition, Kind};

/// Words that are followed by a list of labels in parentheses.
const WITH_LABELS: [&str; 6] = [
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
];
const OPERATORS: [&str; 5] = ["and", "or", "unless", "offset", "bool"];
/// Prometheus adds these labels to all series.
const TARGET_LABELS: [&str; 2] = ["job", "instance"];

/// Returns the metrics, labels and values of labels of an expression that no table has.
pub(super) fn faults(expr: &str, definitions: &[Definition]) -> Vec<String> {
    let tokens = tokens(expr);
    let mut faults = Vec::new();
    let mut labels = BTreeSet::from(TARGET_LABELS);
    let mut grouping = BTreeSet::new();
    let mut at = 0;
    while at < tokens.len() {
        let (word, next) = (tokens[at], tokens.get(at + 1).copied().unwrap_or_default());
        at += 1;
        if WITH_LABELS.contains(&word) && next == "(" {
            let list = tokens[at + 1..].iter().take_while(|token| **token != ")");
            grouping.extend(list.filter(|token| **token != ","));
            at += tokens[at..]
                .iter()
                .take_while(|token| **token != ")")
                .count();
        } else if !is_name(word)
            || OPERATORS.contains(&word)
            || next == "("
            || WITH_LABELS.contains(&next)
        {
            continue; // a number, an operator, a function or an aggregation
        } else if let Some((metric, is_bucket)) = find(word, definitions) {
            labels.extend(&metric.labels);
            labels.extend(is_bucket.then_some("le"));
            if next == "{" {
                let matchers = tokens[at + 1..].iter().take_while(|token| **token != "}");
                let matchers: Vec<&str> = matchers.copied().collect();
                at += matchers.len() + 1;
                for matcher in matchers.split(|token| *token == ",") {
                    if let [label, operator, value] = matcher {
                        faults.extend(fault_of_matcher(metric, label, operator, value));
                    }
                }
            }
        } else {
            faults.push(format!("no metric {word}"));
        }
    }
    let unknown = grouping.difference(&labels);
    faults.extend(unknown.map(|label| format!("no label {label}")));
    faults
}

/// Returns the metric of a series and if the series is a bucket of a histogram.
fn find<'a>(series: &str, definitions: &'a [Definition]) -> Option<(&'a Definition, bool)> {
    definitions.iter().find_map(|metric| {
        let suffix = series.strip_prefix(metric.name)?;
        let is_series = match metric.kind {
            Kind::Histogram => ["_bucket", "_sum", "_count"].contains(&suffix),
            Kind::Counter | Kind::Gauge => suffix.is_empty(),
        };
        is_series.then_some((metric, suffix == "_bucket"))
    })
}

fn fault_of_matcher(
    metric: &Definition,
    label: &str,
    operator: &str,
    value: &str,
) -> Option<String> {
    if TARGET_LABELS.contains(&label) {
        return None;
    }
    if !metric.labels.contains(&label) {
        return Some(format!("{} has no label {label}", metric.name));
    }
    // The closed set belongs to the last label.
    if metric.values.is_empty() || metric.labels.last() != Some(&label) {
        return None;
    }
    let value = value.trim_matches('"');
    let is_expression = operator.contains('~');
    let values = value.split(|c| is_expression && c == '|');
    let unknown = values
        .into_iter()
        .find(|value| !metric.values.contains(value))?;
    Some(format!("{label} of {} is never {unknown}", metric.name))
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}

/// Splits an expression into names, numbers, strings, operators and brackets.
fn tokens(expr: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = expr.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || ":.$".contains(c);
        let is_operator = |c: char| "=!~<>".contains(c);
        let length = if first == '"' {
            rest[1..].find('"').expect("the string ends") + 2
        } else if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if is_operator(first) {
            rest.find(|c| !is_operator(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (token, tail) = rest.split_at(length);
        tokens.push(token);
        rest = tail.trim_start();
    }
    tokens
}
