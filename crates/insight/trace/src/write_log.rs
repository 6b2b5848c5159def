//! Writes records as lines of a combined access log, as input for tools that read logs.
//!
//! ```text
//! 10.17.4.211 - - [01/Jan/1970:00:00:07 +0000] "GET /o/42?size=512 HTTP/1.1" 200 512 "-" "Mozilla/5.0 …"
//! ```
//!
//! The URL is the one under which `edgeward origin` serves an object with this key and size. Client, referrer
//! and user agent are derived from key and time, so equal records produce equal logs.

use edgeward_types::mix64;

use crate::Record;
use crate::number::rfc3339;

/// Writes log lines. The formatted time is reused for all records of the same second.
#[derive(Default)]
pub(crate) struct LogLines {
    secs: Option<u64>,
    time: String,
}

impl LogLines {
    pub(crate) fn push(&mut self, record: &Record, line: &mut Vec<u8>) {
        if self.secs != Some(record.time.as_secs()) {
            self.secs = Some(record.time.as_secs());
            self.time = clf(&rfc3339(record.time));
        }
        // Every bit of `draw` depends on all bits of key and time.
        let draw = mix64(record.key ^ record.time.as_millis().wrapping_mul(0x9e37_79b9_7f4a_7c15));

        let mut digits = itoa::Buffer::new();
        line.extend_from_slice(b"10");
        for shift in [0, 8, 16] {
            line.push(b'.');
            let part = (draw >> shift & 0xff) as u8;
            line.extend_from_slice(digits.format(part).as_bytes());
        }
        line.extend_from_slice(b" - - [");
        line.extend_from_slice(self.time.as_bytes());
        line.extend_from_slice(b"] \"GET /o/");
        line.extend_from_slice(digits.format(record.key).as_bytes());
        line.extend_from_slice(b"?size=");
        line.extend_from_slice(digits.format(record.size).as_bytes());
        line.extend_from_slice(b" HTTP/1.1\" 200 ");
        line.extend_from_slice(digits.format(record.size).as_bytes());
        if draw >> 24 & 1 == 0 {
            line.extend_from_slice(b" \"-\" \"");
        } else {
            line.extend_from_slice(b" \"https://www.example.org/page/");
            let page = draw >> 25 & 0xfff;
            line.extend_from_slice(digits.format(page).as_bytes());
            line.extend_from_slice(b"\" \"");
        }
        let agent = (draw >> 40) as usize % AGENTS.len();
        line.extend_from_slice(AGENTS[agent].as_bytes());
        line.extend_from_slice(b"\"\n");
    }
}

/// Converts `1970-01-01T00:00:07Z` to `01/Jan/1970:00:00:07 +0000`.
fn clf(rfc3339: &str) -> String {
    let (date, clock) = rfc3339
        .split_once('T')
        .expect("the text has a date and a time");
    let mut parts = date.split('-');
    let mut part = || {
        parts
            .next()
            .expect("the date has a year, a month and a day")
    };
    let (year, month, day) = (part(), part(), part());
    let month: usize = month.parse().expect("the month has two digits");
    let clock = clock.trim_end_matches('Z');
    format!("{day}/{}/{year}:{clock} +0000", MONTHS[month - 1])
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// User agents with realistic lengths.
const AGENTS: [&str; 8] = [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Safari/605.1.15",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0",
    "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Mobile Safari/537.36",
    "Mozilla/5.0 (compatible; example-crawler/2.1; +https://www.example.org/crawler)",
    "example-player/9.4 (Smart TV; adaptive)",
    "curl/8.16.0",
];

#[cfg(test)]
mod tests {
    use edgeward_types::Timestamp;

    use super::*;

    #[test]
    fn a_line_has_the_object_size_and_time_of_its_record() {
        let mut lines = LogLines::default();
        let mut text = Vec::new();
        for secs in [1_431_857_103, 1_431_857_103, 951_868_799] {
            let record = Record {
                time: Timestamp::from_secs(secs),
                key: 42,
                size: 512,
            };
            lines.push(&record, &mut text);
        }
        let text = String::from_utf8(text).expect("the bytes are text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], lines[1]);
        let middle = " - - [17/May/2015:10:05:03 +0000] \"GET /o/42?size=512 HTTP/1.1\" 200 512 \"";
        assert!(
            lines[0].starts_with("10.") && lines[0].contains(middle),
            "{text}"
        );
        assert!(lines[2].contains("[29/Feb/2000:23:59:59 +0000]"), "{text}");
    }
}
