//! Measures of a run, read from the output of a load, and expressions over them.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// The measures of a run, by name.
pub type Measures = BTreeMap<String, f64>;

/// A measure, or the quotient of two measures: `requests / cpu_seconds`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    over: String,
    under: Option<String>,
}

impl Expression {
    /// Parses `NAME` or `NAME / NAME`. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let name = |text: &str| {
            let text = text.trim();
            let is_name = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
            (!text.is_empty() && text.chars().all(is_name)).then(|| text.to_owned())
        };
        match text.split_once('/') {
            Some((over, under)) => Some(Self {
                over: name(over)?,
                under: Some(name(under)?),
            }),
            None => Some(Self {
                over: name(text)?,
                under: None,
            }),
        }
    }

    /// Returns the value. `None` if a measure is missing or if the quotient is not a finite number.
    pub fn of(&self, measures: &Measures) -> Option<f64> {
        let over = *measures.get(&self.over)?;
        let value = match &self.under {
            Some(under) => over / *measures.get(under)?,
            None => over,
        };
        value.is_finite().then_some(value)
    }

    /// Returns true if the value is a number of bytes.
    pub(super) fn is_bytes(&self) -> bool {
        self.under.is_none() && self.over.contains("_bytes")
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.under {
            Some(under) => write!(f, "{} / {under}", self.over),
            None => f.write_str(&self.over),
        }
    }
}

/// Reads the measures from the output of a load.
///
/// The output is either a JSON object, or its last line that begins with `{` is one. Otherwise it is the output of wrk
/// or h2load. `None` for any other output.
pub(super) fn parse_output(output: &str) -> Option<Measures> {
    let last = || output.lines().rev().find(|line| line.starts_with('{'));
    let object = serde_json::from_str::<Value>(output.trim())
        .ok()
        .or_else(|| serde_json::from_str(last()?).ok());
    if let Some(object @ Value::Object(_)) = object {
        let mut measures = Measures::new();
        add_numbers("", &object, &mut measures);
        return Some(measures);
    }
    parse_wrk(output).or_else(|| parse_h2load(output))
}

/// Adds the numbers and booleans of a JSON value. The name of a nested value is its path, such as `latency_ms.p99`
/// or `runs.0.hits`.
fn add_numbers(name: &str, value: &Value, measures: &mut Measures) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                let name = if name.is_empty() {
                    key.clone()
                } else {
                    format!("{name}.{key}")
                };
                add_numbers(&name, value, measures);
            }
        }
        Value::Bool(on) => _ = measures.insert(name.to_owned(), f64::from(u8::from(*on))),
        Value::Number(number) => {
            measures.extend(number.as_f64().map(|number| (name.to_owned(), number)));
        }
        Value::Array(items) => {
            for (n, value) in items.iter().take(ITEMS_MAX).enumerate() {
                add_numbers(&format!("{name}.{n}"), value, measures);
            }
        }
        Value::Null | Value::String(_) => {}
    }
}

/// Parses the output of wrk:
///
/// ```text
///      99%    1.23ms
///   398763 requests in 4.10s, 102.3MB read
///   Socket errors: connect 0, read 0, write 0, timeout 0
///   Non-2xx or 3xx responses: 17
/// ```
fn parse_wrk(output: &str) -> Option<Measures> {
    let (mut requests, mut errors) = (None, 0.0);
    let mut measures = Measures::new();
    for line in output.lines().map(str::trim) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(counts) = line.strip_prefix("Socket errors: ") {
            let counts = counts
                .split(", ")
                .filter_map(|count| count.rsplit(' ').next());
            errors += counts.filter_map(|n| n.parse::<f64>().ok()).sum::<f64>();
        } else if let Some(count) = line.strip_prefix("Non-2xx or 3xx responses: ") {
            errors += count.trim().parse::<f64>().ok()?;
        } else if let [count, "requests", "in", time, bytes, "read"] = words[..] {
            let bytes = bytes_of(bytes)?;
            requests = Some((
                count.parse().ok()?,
                milliseconds(time.trim_end_matches(','))?,
                bytes,
            ));
        } else if let [share, time] = words[..]
            && let Some(share) = share.strip_suffix('%')
            && share.parse::<f64>().is_ok()
        {
            measures.insert(format!("latency_p{share}_ms"), milliseconds(time)?);
        }
    }
    let (requests, ms, bytes) = requests?;
    measures.insert("requests".to_owned(), requests);
    measures.insert("seconds".to_owned(), ms / 1e3);
    measures.insert("client_bytes".to_owned(), bytes);
    measures.insert("errors".to_owned(), errors);
    Some(measures)
}

/// Parses the output of h2load:
///
/// ```text
/// finished in 4.01s, 51234.50 req/s, 55.1MB/s
/// requests: 7 total, 7 started, 7 done, 6 succeeded, 1 failed, 0 errored, 0 timeout
/// ```
///
/// The measure `requests` has those that succeeded, because h2load counts a request without a response as done.
fn parse_h2load(output: &str) -> Option<Measures> {
    let line = |start: &str| output.lines().find_map(|line| line.strip_prefix(start));
    let time = line("finished in ")?.split(',').next()?;
    let counts = line("requests: ")?;
    let count = |name: &str| {
        let part = counts.split(", ").find_map(|part| part.strip_suffix(name));
        part?.trim().parse::<f64>().ok()
    };
    Some(Measures::from([
        ("requests".to_owned(), count(" succeeded")?),
        ("errors".to_owned(), count(" failed")? + count(" timeout")?),
        ("seconds".to_owned(), milliseconds(time)? / 1e3),
    ]))
}

/// Parses a duration of wrk or h2load: `123.00us`, `1.2ms`, `4.10s`, `1.5m`, `1.2h`.
fn milliseconds(text: &str) -> Option<f64> {
    number_with_unit(
        text,
        &[
            ("us", 1e-3),
            ("ms", 1.0),
            ("s", 1e3),
            ("m", 6e4),
            ("h", 3.6e6),
        ],
    )
}

/// Parses a number of bytes of wrk: `102.3MB`. Its prefixes are powers of 1024.
fn bytes_of(text: &str) -> Option<f64> {
    let units = ["B", "KB", "MB", "GB", "TB"].iter().zip(0..);
    let units: Vec<(&str, f64)> = units.map(|(unit, n)| (*unit, 1024_f64.powi(n))).collect();
    number_with_unit(text, &units)
}

fn number_with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(at);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    Some(number.parse::<f64>().ok()? * scale)
}

/// The maximum number of items of a list that become measures. A time series is not a measure.
const ITEMS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_a_measure_or_a_quotient_and_missing_measures_have_no_value() {
        let measures = Measures::from([
            ("a".to_owned(), 6.0),
            ("b.c".to_owned(), 3.0),
            ("z".to_owned(), 0.0),
        ]);
        for (text, value) in [
            ("a", Some(6.0)),
            (" a / b.c ", Some(2.0)),
            ("b.c/a", Some(0.5)),
            ("a / z", None),
            ("a / nothing", None),
            ("nothing", None),
        ] {
            let expression = Expression::parse(text).expect("the expression is valid");
            assert_eq!(expression.of(&measures), value, "{text}");
        }
        for text in ["", "a /", "/ b", "a / b / a", "a b", "a * b"] {
            assert_eq!(Expression::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_output_of_wrk_is_parsed_with_its_errors() {
        let output = "\
Running 4s test @ http://127.0.0.1:8080/
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   686.12us  120.32us   8.90ms   91.05%
  Latency Distribution
     50%  671.00us
     99%    1.25ms
  371204 requests in 4.10s, 436.40MB read
  Socket errors: connect 1, read 2, write 0, timeout 4
  Non-2xx or 3xx responses: 10
Requests/sec:  90537.53
";
        let measures = parse_output(output).expect("the output is valid");
        let expected = [
            ("client_bytes", 436.4 * 1_048_576.0),
            ("errors", 17.0),
            ("latency_p50_ms", 671.0 * 1e-3),
            ("latency_p99_ms", 1.25),
            ("requests", 371_204.0),
            ("seconds", 4.1),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        let measures: Vec<(String, f64)> = measures.into_iter().collect();
        assert_eq!(measures.len(), expected.len());
        for ((name, value), (expected_name, expected)) in measures.iter().zip(expected) {
            assert_eq!(*name, expected_name);
            assert!(
                (value - expected).abs() < 1e-9 * expected,
                "{name}: {value}"
            );
        }
    }

    #[test]
    fn the_output_of_h2load_is_parsed_with_its_errors() {
        let output = "\
finished in 2.01s, 51234.50 req/s, 55.10MB/s
requests: 107 total, 107 started, 104 done, 100 succeeded, 3 failed, 2 errored, 4 timeout
status codes: 100 2xx, 0 3xx, 3 4xx, 0 5xx
";
        let measures = parse_output(output).expect("the output is valid");
        assert_eq!(measures["requests"], 100.0);
        assert_eq!(measures["errors"], 7.0);
        assert!((measures["seconds"] - 2.01).abs() < 1e-9);
    }

    #[test]
    fn the_numbers_of_a_json_object_are_measures_named_by_their_paths() {
        let pretty =
            "{\n \"a\": {\"b\": 1.5, \"c\": [], \"d\": true},\n \"e\": \"x\", \"f\": null }\n";
        let last_line = "starting\n{broken\n{\"a\": {\"b\": 1.5, \"d\": true}}\nend\n";
        let expected = Measures::from([("a.b".to_owned(), 1.5), ("a.d".to_owned(), 1.0)]);
        assert_eq!(parse_output(pretty), Some(expected.clone()));
        assert_eq!(parse_output(last_line), Some(expected));
        let list = Measures::from([("a.0.b".to_owned(), 2.0), ("a.1.b".to_owned(), 3.0)]);
        assert_eq!(parse_output(r#"{"a": [{"b": 2}, {"b": 3}]}"#), Some(list));
        for output in ["", "[1]", "hello", "requests: none"] {
            assert_eq!(parse_output(output), None, "{output}");
        }
    }
}
