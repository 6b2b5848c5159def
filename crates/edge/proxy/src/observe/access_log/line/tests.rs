//! Tests of the lines of the access log.

use proptest::prelude::*;

use super::*;
use crate::observe::causes::KeyExchange;

/// Returns a line whose texts a client chose.
fn line_with(target: &[u8], fields: [Option<&[u8]>; 2]) -> LogLine {
    let facts = RequestFacts {
        time: Timestamp::from_millis(951_827_696_089),
        peer: [192, 0, 2, 7].into(),
        is_tls: false,
        key_exchange: Some(KeyExchange::X25519MlKem768),
        method: Some(b"GET"),
        host: b"example.com",
        target,
        version: Version::HTTP_11,
    };
    LogLine {
        request: RequestText::new(&mut Vec::new(), &facts, fields.into_iter()),
        status: 200,
        bytes: 1234,
        duration: Duration::from_micros(56),
        outcome: RequestOutcome::Hit,
        class: OutcomeClass::Hit,
        collapsed: false,
        aborted: false,
        detail: None,
    }
}

fn sample() -> LogLine {
    line_with(b"/a?b=\"c\"", [None, Some(b"curl \\ \n\x7f")])
}

fn written(format: LogFormat, line: &LogLine) -> Vec<u8> {
    let mut out = Vec::new();
    Formatter::new(format).write(line, &mut out);
    out
}

fn template(text: &str) -> LogFormat {
    LogFormat::Template(text.parse().expect("a valid template"))
}

#[test]
fn a_combined_line_has_the_format_of_apache_and_escapes_quotes() {
    assert_eq!(
        String::from_utf8(written(LogFormat::CombinedCache, &sample())).expect("text"),
        "192.0.2.7 - - [29/Feb/2000:12:34:56 +0000] \"GET /a?b=\\\"c\\\" HTTP/1.1\" 200 1234 \
         \"-\" \"curl \\\\ \\x0a\\x7f\" hit"
    );
}

#[test]
fn a_json_line_has_every_field_that_is_known() {
    let out = written(LogFormat::Json, &sample());
    let parsed: serde_json::Value = serde_json::from_slice(&out).expect("one JSON object");
    assert_eq!(parsed["time"], "2000-02-29T12:34:56.089Z");
    assert_eq!(parsed["client"], "192.0.2.7");
    assert_eq!(parsed["cache"], "hit");
    assert_eq!(parsed["bytes"], 1234);
    assert_eq!(parsed["duration_us"], 56);
    assert_eq!(parsed["target"], "/a?b=\"c\"");
    assert_eq!(parsed["user_agent"], "curl \\ \n\u{7f}");
    assert!(parsed.get("referer").is_none());
}

#[test]
fn a_template_writes_each_variable() {
    let mut line = line_with(b"/a b?c", [Some(b"x \"y\" z"), None]);
    line.duration = Duration::from_micros(1_234_567);
    line.aborted = true;
    line.detail = Some("disk".into());
    for (text, expected) in [
        ("$remote_addr", "192.0.2.7"),
        ("$remote_user", "-"),
        ("$time_local", "29/Feb/2000:12:34:56 +0000"),
        ("$time_iso8601", "2000-02-29T12:34:56+00:00"),
        ("$msec", "951827696.089"),
        ("\"$request\"", "\"GET /a b?c HTTP/1.1\""),
        ("$request", "GET /a\\x20b?c HTTP/1.1"),
        ("$request_method", "GET"),
        ("$request_uri", "/a\\x20b?c"),
        ("$scheme", "http"),
        ("$ssl_curve", "X25519MLKEM768"),
        ("$host", "example.com"),
        ("$server_protocol", "HTTP/1.1"),
        ("$status", "200"),
        ("$body_bytes_sent", "1234"),
        ("$request_time", "1.234"),
        ("$request_time_us", "1234567"),
        ("$upstream_cache_status", "HIT"),
        ("$cache", "hit"),
        ("$cache_detail", "disk"),
        ("$collapsed", "-"),
        ("$aborted", "true"),
    ] {
        let out = written(template(text), &line);
        assert_eq!(String::from_utf8_lossy(&out), expected, "{text}");
        assert!(
            Variable::ALL
                .iter()
                .any(|(name, _)| text.trim_matches('"')[1..] == **name)
        );
    }
    assert_eq!(Variable::ALL.len(), 21, "each variable is tested above");
    let out = written(
        template("[$http_referer] \"$http_referer\" $http_absent"),
        &line,
    );
    let expected = r#"[x\x20\x22y\x22\x20z] "x \x22y\x22 z" -"#;
    assert_eq!(String::from_utf8_lossy(&out), expected);
}

/// The second line of a formatter has the texts of another second.
#[test]
fn days_around_leap_years_and_centuries_are_right() {
    let mut formatter = Formatter::new(LogFormat::Json);
    for (secs, expected) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (951_782_399, "2000-02-28T23:59:59.000Z"),
        (951_868_800, "2000-03-01T00:00:00.000Z"),
        (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        (1_735_689_599, "2024-12-31T23:59:59.000Z"),
    ] {
        let mut out = Vec::new();
        formatter.push_rfc3339(Timestamp::from_secs(secs), &mut out);
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}

proptest! {
    /// A client chooses any bytes for target, referer and agent. The line has exactly one line feed, and a parser
    /// gets back what the client sent.
    #[test]
    fn no_text_of_a_client_forges_a_json_line(
        target in prop::collection::vec(any::<u8>(), 0..60),
        referer in prop::option::of(prop::collection::vec(any::<u8>(), 0..60)),
        agent in "[\u{0}-\u{ff}\"\\\\\r\n]{0,30}",
    ) {
        let line = line_with(&target, [referer.as_deref(), Some(agent.as_bytes())]);
        let out = written(LogFormat::Json, &line);
        prop_assert!(!out.contains(&b'\n'));
        let parsed: serde_json::Value = serde_json::from_slice(&out).expect("one JSON object");
        prop_assert_eq!(&parsed["target"], &*String::from_utf8_lossy(&target));
        let parsed_referer = parsed.get("referer").and_then(|referer| referer.as_str());
        let referer = referer.as_ref().map(|referer| String::from_utf8_lossy(referer));
        prop_assert_eq!(parsed_referer, referer.as_deref());
        prop_assert_eq!(&parsed["user_agent"], &agent);
    }

    /// The texts of a client are long and have any bytes. The line has the quotes and the spaces of the template.
    #[test]
    fn no_text_of_a_client_forges_a_line_of_a_template(
        target in prop::collection::vec(any::<u8>(), 0..60),
        agent in prop::collection::vec(prop::sample::select(&b" \"\\x22\r\n\0\x7f\xffa"[..]), 0..3000),
    ) {
        let format = template("$request_uri $http_a $status \"$http_b\"");
        let out = written(format, &line_with(&target, [Some(&agent), Some(&agent)]));
        prop_assert!(out.iter().all(|byte| matches!(byte, b' '..=b'~')));
        prop_assert_eq!(out.iter().filter(|byte| **byte == b'"').count(), 2);
        let quote = out.iter().position(|byte| *byte == b'"').expect("quotes");
        prop_assert_eq!(out[..quote].iter().filter(|byte| **byte == b' ').count(), 3);
    }

    /// Only the quotes that the format writes are left, and only printable ASCII.
    #[test]
    fn no_text_of_a_client_forges_a_combined_line(
        target in prop::collection::vec(any::<u8>(), 0..60),
        agent in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let line = written(LogFormat::Combined, &line_with(&target, [None, Some(&agent)]));
        prop_assert!(line.iter().all(|byte| matches!(byte, b' '..=b'~')), "{:?}", line);
        let mut quotes = 0;
        let mut rest = line.iter();
        while let Some(byte) = rest.next() {
            match byte {
                b'\\' => _ = rest.next(),
                b'"' => quotes += 1,
                _ => {}
            }
        }
        prop_assert_eq!(quotes, 6);
    }
}
