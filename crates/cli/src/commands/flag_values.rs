//! Parsers for the values of flags that several commands have.

use std::net::SocketAddr;
use std::time::Duration;

/// Parses a duration such as `300us`, `20ms`, `1.5s`, `10min` or `1h`. The unit `m` also means minutes.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("`{text}` is not a duration; write 300us, 20ms, 1.5s or 10min");
    let unit_start = text
        .find(|c: char| c.is_ascii_alphabetic())
        .ok_or_else(invalid)?;
    let (number, unit) = text.split_at(unit_start);
    let number: f64 = number.trim().parse().map_err(|_| invalid())?;
    let scale = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(invalid()),
    };
    Duration::try_from_secs_f64(number * scale).map_err(|_| invalid())
}

/// Parses an address and port such as `127.0.0.1:8080`.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("`{text}` is not an address and port; write 127.0.0.1:8080, or 0.0.0.0:8080 for all addresses")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_number_and_a_unit() {
        for (text, micros) in [
            ("20ms", 20_000),
            ("1.5s", 1_500_000),
            ("300us", 300),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for text in ["", "20", "ms", "-1ms", "1 fortnight", "nan s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_invalid_address_is_rejected_with_an_example() {
        assert!(address("[::1]:0").is_ok());
        for text in ["", "8080", ":8080", "localhost:8080", "127.0.0.1"] {
            let error = address(text).expect_err(text);
            assert!(error.contains("127.0.0.1:8080"), "{error}");
        }
    }
}
