//! Recognises the format of an input by its first bytes.

use crate::{Format, number};

use super::csv::{Columns, CsvParser, delimiter_of};
use super::error::{Problem, printable_excerpt};
use super::json_log::is_json_log;
use super::lcs::is_lcs;
use super::lines::{is_blank_or_comment, split_field};
use super::options::ReadOptions;
use super::oracle;

/// Returns the format, or an error that describes the first bytes.
///
/// The first line that has the form of a format determines the format, so a file may begin with a few malformed
/// lines. `sample` is the beginning of the input; `whole_input` is true if it is all of the input.
pub(super) fn detect(
    sample: &[u8],
    whole_input: bool,
    options: &ReadOptions,
) -> Result<Format, Problem> {
    if sample.is_empty() {
        return Err(Problem::Empty);
    }
    if options.columns != Columns::default() {
        return Ok(Format::Csv);
    }
    if is_lcs(sample) {
        return Ok(Format::Lcs);
    }
    if is_binary(sample) {
        return match oracle::check(sample, whole_input) {
            Ok(()) => Ok(Format::OracleGeneral),
            Err(reason) => Err(Problem::Unrecognised {
                beginning: format!(
                    "binary data that begins with {}; it is not oracleGeneral because {reason}",
                    hex(&sample[..sample.len().min(8)])
                ),
            }),
        };
    }
    let mut lines = sample
        .split(|byte| *byte == b'\n')
        .filter(|line| !is_blank_or_comment(line));
    let Some(first) = lines.clone().next() else {
        return Err(Problem::Unrecognised {
            beginning: "the file begins with blank lines and comments only".to_owned(),
        });
    };
    let format = lines
        .by_ref()
        .take(LINES_TRIED)
        .find_map(|line| format_of(line, options));
    if format == Some(Format::Lrb) {
        check_lrb(sample, options).map_err(|reason| Problem::Unrecognised {
            beginning: format!(
                "the lines have numbers like those of `time id size`, but {reason}; ARC and block traces have other \
                 columns: `{}`",
                printable_excerpt(first.trim_ascii())
            ),
        })?;
    }
    format.ok_or_else(|| Problem::Unrecognised {
        beginning: match delimiter_of(first) {
            Some(_) => format!(
                "the first line has delimiters but no column names for time, key and \
                     size: `{}`",
                printable_excerpt(first.trim_ascii())
            ),
            None => format!(
                "the first line is neither `time key size` nor a line of an access log: `{}`",
                printable_excerpt(first.trim_ascii())
            ),
        },
    })
}

fn format_of(line: &[u8], options: &ReadOptions) -> Option<Format> {
    if is_json_log(line) {
        return Some(Format::Json);
    }
    let bracket = memchr::memchr(b'[', line);
    let quote = memchr::memchr(b'"', line);
    // In an access log, the time in brackets precedes the request in quotes.
    if let (Some(bracket), Some(quote)) = (bracket, quote)
        && bracket < quote
        && line[..quote].contains(&b']')
    {
        return Some(Format::Ncsa);
    }
    let (time, rest) = split_field(line);
    let (key, rest) = split_field(rest);
    let (size, rest) = split_field(rest);
    let has_time = number::time(time, options.time_unit).is_some();
    if has_time && number::whole(size).is_some() {
        if rest.trim_ascii().is_empty() {
            return Some(Format::Text);
        }
        if number::whole(key).is_some() {
            return Some(Format::Lrb);
        }
    }
    let has_column_names = delimiter_of(line).is_some()
        && CsvParser::new(line, &options.columns, options.time_unit).is_ok();
    has_column_names.then_some(Format::Csv)
}

/// Checks that lines of numbers can be `time id size` and features. Returns the reason if this is improbable: traces of
/// other tools have numbers in other columns, such as the first block and the number of blocks.
fn check_lrb(sample: &[u8], options: &ReadOptions) -> Result<(), &'static str> {
    let (mut lines, mut without_size, mut reversals) = (0u32, 0u32, 0u32);
    let mut latest = None;
    // The last line may be cut.
    let end = memchr::memrchr(b'\n', sample).unwrap_or(sample.len());
    for line in sample[..end].split(|byte| *byte == b'\n') {
        let (time, rest) = split_field(line);
        let (_, rest) = split_field(rest);
        let (size, _) = split_field(rest);
        let (Some(time), Some(size)) = (number::time(time, options.time_unit), number::whole(size))
        else {
            continue;
        };
        lines += 1;
        without_size += u32::from(size == 0);
        reversals += u32::from(latest.is_some_and(|latest| time < latest));
        latest = Some(time);
    }
    if without_size * 2 > lines {
        return Err("most sizes are 0");
    }
    if lines >= LINES_TRIED as u32 && reversals * 3 > lines {
        return Err("the times decrease often");
    }
    Ok(())
}

/// Returns true if a sample is not text. Text has no control characters except white space and escape (0x1b). A
/// record of oracleGeneral nearly always has other control characters: the high bytes of its numbers are mostly 0.
fn is_binary(sample: &[u8]) -> bool {
    sample
        .iter()
        .take(BINARY_BYTES_TRIED)
        .any(|byte| *byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b))
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.join(" ")
}

/// The number of lines that are tried, without blank lines and comments.
const LINES_TRIED: usize = 16;
const BINARY_BYTES_TRIED: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn detected(text: &str) -> Result<Format, String> {
        let options = ReadOptions::named("text");
        detect(text.as_bytes(), true, &options).map_err(|problem| problem.to_string())
    }

    /// Lines of `first_block blocks 0 number`, as in the traces of the authors of ARC, and lines with features.
    #[test]
    fn numbers_in_other_columns_are_not_a_trace() {
        let arc: String = (0..40)
            .map(|n| format!("{} {} 0 {n}\n", 1000 + n * 7 % 50, n % 4 + 1))
            .collect();
        assert!(detected(&arc).is_err_and(|message| message.contains("sizes are 0")));
        let blocks: String = (0..40)
            .map(|n| format!("{} 5 512 {n}\n", 1000 + n * 27 % 50))
            .collect();
        assert!(detected(&blocks).is_err_and(|message| message.contains("decrease")));
        let lrb: String = (0..40)
            .map(|n| format!("{} {} 512 1 2\n", 1000 + n - n % 8 / 7, n % 9))
            .collect();
        assert_eq!(detected(&lrb), Ok(Format::Lrb));
    }
}
