use super::*;
use crate::answer::Head;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn request(target: &str, fields: &[(&str, &str)]) -> Request {
    let mut request =
        Request::new(b"GET", b"a.example", target.as_bytes()).expect("the request is valid");
    request.add_fields(fields.iter().copied(), true);
    request
}

fn answer(verdict: Verdict, at: u64) -> Answer {
    Answer {
        at: seconds(at),
        status: 200,
        verdict: Some(verdict),
        is_stored: verdict.is_fetch(),
        head: Some(Head {
            fields: Vec::new(),
            body_hash: Some(1),
        }),
        ..Answer::default()
    }
}

/// The clock of a log counts from another start.
fn line(verdict: Verdict, at: u64) -> Answer {
    Answer {
        at: seconds(1_000_000 + at),
        head: None,
        is_stored: false,
        ..answer(verdict, at)
    }
}

fn comparison(has_log: bool) -> Comparison {
    let settings = Settings {
        ignored_fields: Vec::new(),
        has_log,
    };
    Comparison::new(settings, Limits::default())
}

fn causes(comparison: &Comparison) -> Vec<(Cause, String, u64)> {
    let groups = comparison.report(seconds(1)).groups;
    let found = groups.into_iter();
    found
        .map(|group| (group.cause, group.detail, group.count))
        .collect()
}

/// Records a line of the log and the answer of the edge to it.
fn record_line(comparison: &mut Comparison, request: &Request, logged: Answer, edge: Answer) {
    assert!(!comparison.observe_line(request.url_key(), &logged, LineMark::Unknown));
    let at = edge.at;
    let exchange = Exchange {
        request: request.clone(),
        logged: Some(logged),
        asked: None,
        edge,
    };
    comparison.record(&exchange, at);
}

/// Records the answers of both caches to one request.
fn record_asked(comparison: &mut Comparison, request: &Request, asked: Answer, edge: Answer) {
    let at = edge.at;
    let exchange = Exchange {
        request: request.clone(),
        logged: None,
        asked: Some(asked),
        edge,
    };
    comparison.record(&exchange, at);
}

#[test]
fn an_edge_that_starts_with_an_empty_cache_has_no_difference() {
    let mut comparison = comparison(true);
    let request = request("/a", &[]);
    for (at, edge) in [(0, Verdict::Miss), (1, Verdict::Hit), (2, Verdict::Hit)] {
        let logged = line(Verdict::Hit, at);
        record_line(&mut comparison, &request, logged, answer(edge, at + 9));
    }
    assert_eq!(causes(&comparison), []);
    let hits = comparison.hits();
    assert_eq!(hits.incumbent_ratio, Some(1.0));
    assert_eq!(hits.edge_ratio, Some(2.0 / 3.0));
}

#[test]
fn a_shorter_lifetime_at_the_edge_is_found_once_for_a_url() {
    let mut comparison = comparison(true);
    let request = request("/a", &[]);
    for (at, of_log, of_edge) in [
        (0, Verdict::Miss, Verdict::Miss),
        (9, Verdict::Hit, Verdict::Hit),
        (11, Verdict::Hit, Verdict::Expired),
        (14, Verdict::Hit, Verdict::Hit),
        (15, Verdict::Hit, Verdict::Hit),
    ] {
        record_line(
            &mut comparison,
            &request,
            line(of_log, at),
            answer(of_edge, at),
        );
        let expected = u64::from(at >= 14);
        assert_eq!(comparison.differences(), expected, "{at}");
    }
    let expected = (Cause::Lifetime, "shorter at the edge".to_owned(), 1);
    assert_eq!(causes(&comparison), [expected]);
}

/// Method: mirrored requests and a log. The lines are counted, and their requests are not sent.
#[test]
fn the_hits_of_a_log_are_counted_beside_mirrored_requests() {
    let mut comparison = comparison(true);
    let request = request("/a", &[]);
    for verdict in [Verdict::Miss, Verdict::Hit, Verdict::Hit, Verdict::Hit] {
        comparison.count_line(&request, &line(verdict, 1), seconds(1));
    }
    let (asked, edge) = (answer(Verdict::Hit, 1), answer(Verdict::Miss, 1));
    record_asked(&mut comparison, &request, asked, edge);
    let hits = comparison.hits();
    assert_eq!(
        (hits.incumbent_ratio, hits.edge_ratio),
        (Some(0.75), Some(0.0))
    );
}

/// Method: the expiry is the last line, and no mirrored request follows it.
#[test]
fn a_line_beside_mirrored_requests_shows_a_lifetime() {
    let mut comparison = comparison(true);
    let request = request("/a", &[]);
    let mut edge = answer(Verdict::Hit, 5);
    edge.ttl_seconds = Some(600);
    record_asked(&mut comparison, &request, answer(Verdict::Hit, 5), edge);
    for (verdict, at) in [
        (Verdict::Miss, 0),
        (Verdict::Hit, 9),
        (Verdict::Expired, 11),
    ] {
        let logged = line(verdict, at);
        assert!(!comparison.observe_line(request.url_key(), &logged, LineMark::Unknown));
        comparison.count_line(&request, &logged, seconds(at));
    }
    let expected = (Cause::Lifetime, "longer at the edge".to_owned(), 1);
    assert_eq!(causes(&comparison), [expected]);
}

#[test]
fn lines_of_several_variants_show_no_lifetime() {
    let mut comparison = comparison(true);
    let request = request("/a", &[]);
    for at in [0, 10, 20, 30] {
        let mut edge = answer(if at == 0 { Verdict::Miss } else { Verdict::Hit }, at);
        edge.ttl_seconds = Some(600);
        let head = edge.head.as_mut().expect("the answer has a head");
        head.fields = vec![("vary".to_owned(), "accept".to_owned())];
        let logged = line(Verdict::Expired, at);
        record_line(&mut comparison, &request, logged, edge);
    }
    assert_eq!(causes(&comparison), []);
}

#[test]
fn a_restart_of_the_edge_ends_what_is_known_of_its_responses() {
    let mut comparison = comparison(true);
    let request = request("/a", &[]);
    let mut next = |at, of_edge, stored, is_restarted| {
        if is_restarted {
            comparison.count_error(Side::Edge, ErrorKind::Connect, "connection refused");
        }
        let mut edge = answer(of_edge, at);
        edge.is_stored = stored;
        let logged = line(Verdict::Hit, at);
        record_line(&mut comparison, &request, logged, edge);
        comparison.differences()
    };
    assert_eq!(next(0, Verdict::Miss, false, false), 0);
    assert_eq!(next(1, Verdict::Miss, false, false), 0);
    assert_eq!(next(2, Verdict::Miss, false, true), 0, "counted again");
    assert_eq!(next(3, Verdict::Miss, false, false), 0);
    assert_eq!(next(4, Verdict::Miss, false, false), 1);
    let report = comparison.report(seconds(5));
    assert_eq!(report.edge_restarts, 1);
    assert_eq!(report.groups[0].cause, Cause::NotStored);
    assert_eq!(report.errors[0].count, 1);
}

#[test]
fn a_cookie_that_only_one_cache_passes_is_a_difference() {
    for (of_incumbent, of_edge, fields, expected) in [
        (
            Verdict::Pass,
            Verdict::Hit,
            &[("cookie", "a=1")][..],
            Some(Cause::Cookie),
        ),
        (
            Verdict::Hit,
            Verdict::Pass,
            &[("cookie", "a=1")],
            Some(Cause::Cookie),
        ),
        (Verdict::Pass, Verdict::Hit, &[], Some(Cause::Pass)),
        (Verdict::Pass, Verdict::Pass, &[("cookie", "a=1")], None),
        (Verdict::Miss, Verdict::Pass, &[("cookie", "a=1")], None),
    ] {
        let mut comparison = comparison(false);
        let request = request("/a", fields);
        let (asked, edge) = (answer(of_incumbent, 0), answer(of_edge, 0));
        record_asked(&mut comparison, &request, asked, edge);
        let found = causes(&comparison).first().map(|(cause, ..)| *cause);
        assert_eq!(found, expected, "{of_incumbent:?} {of_edge:?} {fields:?}");
    }
}

#[test]
fn a_pass_in_a_log_shows_nothing_because_the_client_may_have_sent_a_cookie() {
    let mut comparison = comparison(true);
    let request = request("/a", &[]);
    let (logged, edge) = (line(Verdict::Pass, 0), answer(Verdict::Hit, 0));
    record_line(&mut comparison, &request, logged, edge);
    assert_eq!(causes(&comparison), []);
    let (logged, edge) = (line(Verdict::Hit, 1), answer(Verdict::Pass, 1));
    record_line(&mut comparison, &request, logged, edge);
    assert_eq!(
        causes(&comparison),
        [(Cause::Pass, "the edge passes".to_owned(), 1)]
    );
}

#[test]
fn a_status_of_a_log_is_compared_unless_fields_of_the_client_may_explain_it() {
    for (logged, edge, expected) in [
        (200, 404, Some(Cause::Status)),
        (200, 301, Some(Cause::Redirect)),
        (304, 200, None),
        (206, 200, None),
        (401, 200, None),
        (499, 200, None),
        (200, 200, None),
    ] {
        let mut comparison = comparison(true);
        let mut of_log = line(Verdict::Hit, 0);
        of_log.status = logged;
        let mut of_edge = answer(Verdict::Miss, 0);
        of_edge.status = edge;
        record_line(&mut comparison, &request("/a", &[]), of_log, of_edge);
        let found = causes(&comparison).first().map(|(cause, ..)| *cause);
        assert_eq!(found, expected, "{logged} {edge}");
    }
}

#[test]
fn a_length_of_a_log_is_compared_unless_a_client_left_or_a_server_compressed() {
    for (kind, lengths, expected) in [
        ("image/png", &[5000, 5000][..], 0),
        ("image/png", &[10, 5000], 0),
        ("image/png", &[10, 10], 1),
        ("image/png", &[5000 + HEAD_BYTES_MAX], 0),
        ("image/png", &[5001 + HEAD_BYTES_MAX], 1),
        ("text/html", &[10, 10], 0),
    ] {
        let mut comparison = comparison(true);
        for length in lengths {
            let mut logged = line(Verdict::Hit, 0);
            logged.bytes = Some(*length);
            let mut edge = answer(Verdict::Hit, 0);
            edge.bytes = Some(5000);
            let head = edge.head.as_mut().expect("the answer has a head");
            head.fields = vec![("content-type".to_owned(), kind.to_owned())];
            record_line(&mut comparison, &request("/a", &[]), logged, edge);
        }
        assert_eq!(comparison.differences(), expected, "{kind} {lengths:?}");
    }
}

#[test]
fn a_line_of_an_own_request_is_recognised() {
    let mut comparison = comparison(true);
    let key = request("/a", &[]).url_key();
    let now = line(Verdict::Hit, 9);
    assert!(!comparison.observe_line(key, &now, LineMark::Unknown));
    comparison.expect_own_line(key, now.at);
    let older = line(Verdict::Hit, 6);
    assert!(
        !comparison.observe_line(key, &older, LineMark::Unknown),
        "written before"
    );
    assert!(comparison.observe_line(key, &now, LineMark::Unknown));
    assert!(!comparison.observe_line(key, &now, LineMark::Unknown));
    for _ in 0..100 {
        comparison.expect_own_line(key, now.at);
    }
    let hidden = (0..100).filter(|_| comparison.observe_line(key, &now, LineMark::Unknown));
    assert_eq!(hidden.count(), OWN_LINES_MAX as usize);
}

/// A log with user agents needs no guess: no line of a client is taken for an own one, before the first mark and after
/// it.
#[test]
fn a_line_with_the_user_agent_of_a_client_is_no_own_one() {
    let mut comparison = comparison(true);
    let key = request("/a", &[]).url_key();
    let now = line(Verdict::Hit, 9);
    comparison.expect_own_line(key, now.at);
    assert!(!comparison.observe_line(key, &now, LineMark::Client));
    assert!(comparison.observe_line(key, &now, LineMark::Own));
    comparison.expect_own_line(key, now.at);
    assert!(!comparison.observe_line(key, &now, LineMark::Client));
    assert!(!comparison.observe_line(key, &now, LineMark::Unknown));
    assert!(comparison.observe_line(key, &now, LineMark::Own));
}

/// Lines whose third text is no user agent would be sent again and again.
#[test]
fn a_log_without_marks_after_many_own_requests_has_no_user_agents() {
    let mut comparison = comparison(true);
    let key = request("/a", &[]).url_key();
    let now = line(Verdict::Hit, 9);
    for _ in 1..UNMARKED_MAX {
        comparison.expect_own_line(key, now.at);
    }
    assert!(!comparison.observe_line(key, &now, LineMark::Client));
    comparison.expect_own_line(key, now.at);
    assert!(comparison.observe_line(key, &now, LineMark::Client));
}

#[test]
fn groups_are_bounded_and_have_the_first_request_as_their_example() {
    let limits = Limits {
        groups_max: 2,
        ..Limits::default()
    };
    let mut comparison = Comparison::new(Settings::default(), limits);
    for (target, status) in [("/1", 404), ("/2", 500), ("/3", 404), ("/4", 502)] {
        let (asked, mut edge) = (answer(Verdict::Hit, 0), answer(Verdict::Hit, 0));
        edge.status = status;
        record_asked(&mut comparison, &request(target, &[]), asked, edge);
    }
    let report = comparison.report(seconds(1));
    assert_eq!((report.groups.len(), report.ungrouped), (2, 1));
    assert_eq!(report.differences, 4);
    assert_eq!(
        (report.groups[0].count, &report.groups[0].url[..]),
        (2, "a.example/1")
    );
}
