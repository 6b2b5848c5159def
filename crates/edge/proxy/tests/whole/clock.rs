//! A step of the wall clock, as by an administrator or a time service.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use edgeward_semantics::parse_http_date;
use edgeward_testkit::Answer;

use crate::support::TestBed;

/// Dates follow the wall clock, and durations do not: connections and stored responses stay, and timeouts fire.
///
/// Method: step the wall clock by an hour in each direction while a client is idle, an upload is under way and a
/// response is stored. A second client whose head is incomplete is then closed by its timeout, which shows that the
/// timeout fires, and that the edge has checked the limits of all connections after the step.
#[test]
fn a_step_of_the_wall_clock_changes_dates_and_no_duration() {
    for step_secs in [3600, -3600] {
        let bed = TestBed::with_config(|config| {
            config.limits.request_head_timeout = Duration::from_millis(300);
        });
        let page = || Answer::ok("page").header("cache-control", "max-age=60");
        bed.origin.otherwise(move |_| page());
        let (mut idle, mut upload, mut partial) = (bed.connect(), bed.connect(), bed.connect());
        assert_eq!(idle.get("/page", &[]).status, 200);
        upload.send_head("POST", "/upload", &[("content-length", "2")]);
        upload.send(b"a");
        bed.wait_until("the upload is under way", |status| {
            status["connections"]["clients"].as_u64() >= Some(2)
        });
        let fault = format!("step-wall-{}", step_secs * 1000);
        let stepped = bed.get_with("/step", &[("edgeward-debug-fault", &fault)]);
        // The origin sends no `Date`, so the edge adds its own.
        let date = bed.get("/new").header("date").map(str::to_owned);
        let date = parse_http_date(date.expect("the field was added").as_bytes());
        let date = i64::try_from(date.expect("a date").as_secs()).expect("in this century");
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = i64::try_from(now.expect("after 1970").as_secs()).expect("in this century");
        assert_eq!(stepped.status, 200);
        let error = date - now - step_secs;
        assert!((-60..=1).contains(&error), "{step_secs}: {error} s");

        partial.send(b"GET / HTTP/1.1\r\nHost: t.exam");
        assert!(partial.try_head().is_none_or(|head| head.status == 408));
        let again = idle.get("/page", &[]);
        assert!(again.is_hit(), "{step_secs}: {}", again.cache_status());
        assert!(again.header("age").is_none_or(|age| age.len() <= 2));
        upload.send(b"b");
        assert_eq!(upload.answer("POST").status, 200, "{step_secs}");
    }
}
