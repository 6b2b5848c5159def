//! Pins the messages about wrong values of every key.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use edgeward_types::ByteSize;

use super::keys::Key;
use super::*;

/// Method: one file for each kind of error gives every key a wrong value. The errors are grouped by their text.
#[test]
fn every_key_reports_values_of_another_type_and_outside_its_bounds() {
    let mut text = String::new();
    for value in ["1979-05-27", "\"§\"", "[\"a,b\"]"] {
        let errors = errors(|_| Some(value.to_owned()));
        _ = writeln!(text, "# {value}\n{}", grouped(&errors, 3));
    }
    let below = errors(|key| outside(key).0);
    let above = errors(|key| outside(key).1);
    _ = writeln!(text, "# below\n{}", grouped(&below, usize::MAX));
    _ = writeln!(text, "# above\n{}", grouped(&above, usize::MAX));
    insta::assert_snapshot!(text);
}

#[test]
fn every_misspelt_key_gets_the_hint_that_names_it() {
    for key in keys::all() {
        let misspelt = format!("{}q", key.path);
        let hint = nearest::hint(&misspelt);
        assert_eq!(hint, format!("did you mean {}?", key.path));
    }
}

/// Returns the errors of a file in which each key has the value of `value`, as pairs of key and text.
fn errors(value: impl Fn(&Key) -> Option<String>) -> Vec<(String, String)> {
    let mut file = String::new();
    for (table, _) in keys::TABLES {
        let header = match keys::is_repeated(table) {
            true => format!("[[{table}]]"),
            false => format!("[{table}]"),
        };
        _ = writeln!(file, "{header}");
        for key in keys::all() {
            let split = key.path.rsplit_once('.');
            if let Some((_, name)) = split.filter(|(of_key, _)| *of_key == table)
                && let Some(value) = value(key)
            {
                _ = writeln!(file, "{name} = {value}");
            }
        }
    }
    let printed = load_text(&file, &[]);
    let blocks = printed.split("error: ").map(|block| {
        let (key, error) = block.split_once(" = ")?;
        let error = error.lines().filter(|line| !line.starts_with("  in "));
        Some((
            key.to_owned(),
            error
                .map(str::trim)
                .collect::<Vec<_>>()
                .join("; ")
                .replace(key, "KEY"),
        ))
    });
    let is_key = |(key, _): &(String, String)| keys::find(key).is_some();
    blocks.flatten().filter(is_key).collect()
}

/// Returns each text once, with its keys, or with their number if there are many.
fn grouped(errors: &[(String, String)], keys_max: usize) -> String {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (key, error) in errors {
        groups.entry(error).or_default().push(key);
    }
    let lines = groups.iter().map(|(error, keys)| match keys.len() {
        count if count > keys_max => format!("{error}\n  {count} keys\n"),
        _ => format!("{error}\n  {}\n", keys.join(" ")),
    });
    lines.collect()
}

/// Returns the values next to the minimum and to the maximum of a key in the form of the file.
fn outside(key: &Key) -> (Option<String>, Option<String>) {
    let Some((min, max)) = key.field.bounds() else {
        return (None, None);
    };
    let next = |text: &str, step: i64| {
        let split = text.find(|c: char| !c.is_ascii_digit());
        let (number, unit) = text.split_at(split.unwrap_or(text.len()));
        let number: u64 = number.parse().expect("a bound begins with a number");
        let millis = value::DURATION_UNITS.iter().find(|(name, _)| *name == unit);
        match millis {
            Some((_, millis)) => {
                let duration = (number * millis).checked_add_signed(step)?;
                Some(format!("\"{duration}ms\""))
            }
            None => {
                let size: ByteSize = text.parse().expect("a bound without a time is a size");
                let bytes = size.bytes().checked_add_signed(step)?;
                Some(bytes.to_string())
            }
        }
    };
    (next(&min, -1), next(&max, 1))
}
