//! Which format the first bytes of an input are.

use crate::{Format, number};

use super::csv::{Columns, CsvParser, delimiter_of};
use super::error::{Problem, shown};
use super::lines::{is_void, split_field};
use super::options::ReadOptions;
use super::oracle;

/// Settles on a format, or says what was seen.
///
/// The first line that fits a format decides, so a file may begin with a few bad lines when
/// those are to be skipped. `whole_input` tells that nothing comes after the sample.
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
    if is_binary(sample) {
        return match oracle::judge(sample, whole_input) {
            Ok(()) => Ok(Format::OracleGeneral),
            Err(against) => Err(Problem::Unrecognised {
                seen: format!(
                    "binary data beginning {}, not oracleGeneral because {against}",
                    hex(&sample[..sample.len().min(8)])
                ),
            }),
        };
    }
    let mut lines = sample
        .split(|byte| *byte == b'\n')
        .filter(|line| !is_void(line));
    let Some(first) = lines.clone().next() else {
        return Err(Problem::Unrecognised {
            seen: "only blank lines and comments at the beginning".to_owned(),
        });
    };
    lines
        .by_ref()
        .take(LINES_TRIED)
        .find_map(|line| format_of(line, options))
        .ok_or_else(|| Problem::Unrecognised {
            seen: match delimiter_of(first) {
                Some(_) => format!(
                    "the first line has delimiters and does not name columns for time, key and \
                     size: `{}`",
                    shown(first.trim_ascii())
                ),
                None => format!(
                    "the first line is neither `time key size` nor an access log's: `{}`",
                    shown(first.trim_ascii())
                ),
            },
        })
}

fn format_of(line: &[u8], options: &ReadOptions) -> Option<Format> {
    let bracket = memchr::memchr(b'[', line);
    let quote = memchr::memchr(b'"', line);
    if let (Some(bracket), Some(quote)) = (bracket, quote)
        && bracket < quote
        && line[..quote].contains(&b']')
    {
        return Some(Format::Ncsa);
    }
    let (time, rest) = split_field(line);
    let (key, rest) = split_field(rest);
    let (size, rest) = split_field(rest);
    let timely = number::time(time, options.time_unit).is_some();
    if timely && number::whole(size).is_some() {
        if rest.trim_ascii().is_empty() {
            return Some(Format::Text);
        }
        if number::whole(key).is_some() {
            return Some(Format::Lrb);
        }
    }
    let named = delimiter_of(line).is_some()
        && CsvParser::new(line, &options.columns, options.time_unit).is_ok();
    named.then_some(Format::Csv)
}

/// Text holds no control characters but white space; a record of oracleGeneral nearly always
/// does, in the high bytes of its numbers.
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

const LINES_TRIED: usize = 16;
const BINARY_BYTES_TRIED: usize = 4096;
