//! Untrusted HTTP dates (RFC 9110 §5.6.7). A text is a date exactly if it is one of the forms of a second since 1970.
//!
//! The input is a text, whose first eight bytes also select a second and one of its forms.
#![no_main]

use edgeward_semantics::{format_http_date, parse_http_date};
use edgeward_types::Timestamp;
use libfuzzer_sys::fuzz_target;

/// Seconds of the years 1970 to 9999.
const SECONDS: u64 = 253_402_300_800;

const WEEKDAYS: [&str; 7] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];

fuzz_target!(|input: &[u8]| {
    if let Some(time) = parse_http_date(input) {
        let text = String::from_utf8(input.to_ascii_lowercase()).expect("a date is ASCII");
        let text = text.trim_matches([' ', '\t']);
        let is_form = |leap: bool| {
            let weekdays = WEEKDAYS.iter();
            weekdays
                .copied()
                .any(|weekday| forms(time, weekday, leap).iter().any(|form| form == text))
        };
        // A leap second is read as the second before it.
        assert!(is_form(false) || is_form(true), "{text}: {time:?}");
    }
    if let Some((number, _)) = input.split_first_chunk::<8>() {
        let number = u64::from_le_bytes(*number);
        let time = Timestamp::from_secs((number >> 8) % SECONDS);
        let weekday = WEEKDAYS[(number & 7) as usize % 7];
        for form in forms(time, weekday, false) {
            let form = if number & 8 > 0 {
                form.to_uppercase()
            } else {
                form
            };
            assert_eq!(parse_http_date(form.as_bytes()), Some(time), "{form}");
        }
    }
});

/// Returns the forms of a second with this weekday in lower case: IMF-fixdate, asctime with a day in one or two digits,
/// and RFC 850 in the years 1970 to 2069. If `leap`, second 59 is written as 60.
fn forms(time: Timestamp, weekday: &str, leap: bool) -> Vec<String> {
    let date = format_http_date(time);
    let date = date.to_str().expect("ASCII").to_ascii_lowercase();
    let (day, month, year, mut clock) = (
        &date[5..7],
        &date[8..11],
        &date[12..16],
        date[17..25].to_owned(),
    );
    if leap && clock.ends_with(":59") {
        clock.replace_range(6.., "60");
    }
    let short = &weekday[..3];
    let mut forms = vec![
        format!("{short}, {day} {month} {year} {clock} gmt"),
        format!("{short} {month} {day} {clock} {year}"),
    ];
    if let Some(digit) = day.strip_prefix('0') {
        forms.push(format!("{short} {month}  {digit} {clock} {year}"));
    }
    if ("1970".."2070").contains(&year) {
        forms.push(format!(
            "{weekday}, {day}-{month}-{} {clock} gmt",
            &year[2..]
        ));
    }
    forms
}
