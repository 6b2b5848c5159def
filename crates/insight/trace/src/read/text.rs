//! Parses `time key size` text, and `time id size [feature…]`, the format of the simulator of LRB ("Learning Relaxed
//! Belady").

use crate::Record;
use crate::number;

use super::error::{Problem, printable_excerpt};
use super::lines::{
    LineParser, SIZE_EXPECTED, TIME_EXPECTED, bad_field, is_blank_or_comment, missing_field,
    split_field,
};
use super::options::TimeUnit;

/// Parses lines of exactly three fields. The key may be any text.
pub(super) struct TextParser {
    pub(super) time_unit: TimeUnit,
}

impl LineParser for TextParser {
    #[inline]
    fn parse(&mut self, line: &[u8]) -> Result<Option<Record>, Problem> {
        if is_blank_or_comment(line) {
            return Ok(None);
        }
        let (time, rest) = split_field(line);
        let (key, rest) = split_field(rest);
        let (size, rest) = split_field(rest);
        if size.is_empty() {
            let field = if key.is_empty() { "key" } else { "size" };
            return Err(missing_field(field, line));
        }
        if !rest.trim_ascii().is_empty() {
            return Err(Problem::ExtraField {
                found: printable_excerpt(rest.trim_ascii()),
            });
        }
        Ok(Some(Record {
            time: number::time(time, self.time_unit)
                .ok_or_else(|| bad_field("time", time, TIME_EXPECTED))?,
            key: number::key(key),
            size: number::whole(size).ok_or_else(|| bad_field("size", size, SIZE_EXPECTED))?,
        }))
    }
}

/// Parses lines of three whole numbers. Features after them are ignored.
pub(super) struct LrbParser {
    pub(super) time_unit: TimeUnit,
}

impl LineParser for LrbParser {
    #[inline]
    fn parse(&mut self, line: &[u8]) -> Result<Option<Record>, Problem> {
        if is_blank_or_comment(line) {
            return Ok(None);
        }
        let (time, rest) = split_field(line);
        let (id, rest) = split_field(rest);
        let (size, _features) = split_field(rest);
        if size.is_empty() {
            let field = if id.is_empty() { "id" } else { "size" };
            return Err(missing_field(field, line));
        }
        Ok(Some(Record {
            time: number::time(time, self.time_unit)
                .ok_or_else(|| bad_field("time", time, TIME_EXPECTED))?,
            key: number::whole(id).ok_or_else(|| bad_field("id", id, "a whole number"))?,
            size: number::whole(size).ok_or_else(|| bad_field("size", size, SIZE_EXPECTED))?,
        }))
    }
}
