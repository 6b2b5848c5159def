//! Requests and answers of the incumbent from its log.

use std::time::Duration;

use edgeward_analysis::{Entry, Outcome};

use crate::answer::{Answer, Verdict};
use crate::request::{MARK, Request, Skip};

/// Returns the request of a line of a log, and the answer of the incumbent as the line states it. `default_host` is the
/// host of a log without hosts. The user agent of the request is the [`MARK`].
///
/// # Errors
///
/// Returns the reason why the request is not sent.
pub fn logged(entry: &Entry<'_>, default_host: &str) -> Result<(Request, Answer), Skip> {
    let host = match entry.host {
        b"" => default_host.as_bytes(),
        host => host,
    };
    // A format without methods is one of downloads.
    let method = match entry.method {
        b"" => b"GET",
        method => method,
    };
    let mut request = Request::new(method, host, entry.url)?;
    request
        .fields
        .push(("user-agent".to_owned(), MARK.to_owned()));
    let answer = Answer {
        // Without a time, the line shows no lifetime.
        at: entry.time.map_or(Duration::ZERO, |time| {
            Duration::from_millis(time.as_millis())
        }),
        status: entry.status,
        bytes: entry.bytes,
        verdict: Verdict::from_text(entry.outcome_text).or_else(|| {
            // A Boolean of JSON has no text.
            entry.outcome.map(|outcome| match outcome {
                Outcome::Hit => Verdict::StaleHit,
                Outcome::Miss => Verdict::Miss,
                Outcome::Pass => Verdict::Pass,
            })
        }),
        latency: entry.duration,
        ..Answer::default()
    };
    Ok((request, answer))
}

#[cfg(test)]
mod tests {
    use edgeward_analysis::{Format, Parser};

    use super::*;

    #[test]
    fn a_line_is_a_request_and_the_answer_of_the_incumbent() {
        let mut parser = Parser::new(&Format::Ncsa);
        let mut read = |line: &str| {
            let entry = parser.parse(line.as_bytes()).expect("the line is valid");
            logged(&entry.expect("the line has a request"), "shop.example")
        };
        let (request, answer) = read(
            "192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"GET /a?b HTTP/1.1\" 200 512 \"-\" \"x\" EXPIRED",
        )
        .expect("the request is sent");
        assert_eq!(request.url(), "shop.example/a?b");
        assert_eq!((answer.status, answer.bytes), (200, Some(512)));
        assert_eq!(answer.verdict, Some(Verdict::Expired));
        assert_eq!(answer.at, Duration::from_secs(1_431_857_103));
        let post = read("h - - [17/May/2015:10:05:03 +0000] \"POST /a HTTP/1.1\" 200 5");
        assert_eq!(post, Err(Skip::Method));
    }
}
