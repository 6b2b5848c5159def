//! The page of the admin server: its files, its JSON and its events.

use edgeward_proxy::config::{AdminToken, Token};
use edgeward_testkit::Answer as OriginAnswer;
use edgeward_testkit::client::until;
use serde_json::Value;

use crate::support::{Answer, Client, TestBed};

const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml");
const TOKEN: &str = "0123456789abcdef";
const BEARER: (&str, &str) = ("authorization", "Bearer 0123456789abcdef");

fn admin(bed: &TestBed) -> Client {
    let addr = bed.edge.admin_addr();
    Client::connect(addr.expect("the admin listener is configured"))
}

fn request(bed: &TestBed, method: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
    let mut client = admin(bed);
    let mut all = fields.to_vec();
    if method != "GET" {
        all.push(("content-length", "0"));
    }
    client.send_head(method, path, &all);
    client.answer(method)
}

fn get(bed: &TestBed, path: &str, fields: &[(&str, &str)]) -> Answer {
    request(bed, "GET", path, fields)
}

fn reading_token() -> AdminToken {
    AdminToken {
        name: "reader".to_owned(),
        token: Token::new(TOKEN).expect("the token is long enough"),
        roles: "read".parse().expect("the role exists"),
    }
}

/// Reads one event of a stream whose chunks are events.
fn event(client: &mut Client) -> Value {
    let event = client.read_until("\n\n");
    let (_, json) = event.split_once("data: ").expect("an event has data");
    serde_json::from_str(json).expect("an event is JSON")
}

#[test]
fn browsers_get_the_page_and_other_programs_the_list() {
    let bed = TestBed::start();
    let page = get(&bed, "/", &[HTML]);
    assert_eq!(page.field("content-type"), "text/html; charset=utf-8");
    assert!(page.text().contains("/page.js"));
    assert!(get(&bed, "/", &[]).text().starts_with("/metrics\n"));
    for (path, media) in [
        ("/page.js", "text/javascript; charset=utf-8"),
        ("/page.css", "text/css; charset=utf-8"),
    ] {
        let file = get(&bed, path, &[]);
        assert_eq!((file.status, file.field("content-type")), (200, media));
    }
    for path in ["/", "/page.js", "/status", "/absent"] {
        let answer = get(&bed, path, &[HTML]);
        let policy = answer.field("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.field("x-content-type-options"), "nosniff");
        assert_eq!(answer.field("referrer-policy"), "no-referrer");
    }
}

#[test]
fn the_json_of_the_page_counts_the_requests_of_sites_and_origins() {
    let bed = TestBed::start();
    bed.origin
        .otherwise(|_| OriginAnswer::ok("body").header("cache-control", "max-age=60"));
    for _ in 0..4 {
        assert_eq!(bed.get("/a").status, 200);
    }
    bed.wait_for_metric(
        "edgeward_responses_total{site=\"default\",status=\"200\"}",
        4.0,
    );
    let json = get(&bed, "/status.json", &[]);
    let json: Value = serde_json::from_slice(&json.body).expect("the page is JSON");
    let site = &json["sites"][0];
    assert_eq!(
        (&site["site"], &site["requests"]),
        (&"default".into(), &4.into())
    );
    assert_eq!(site["by_outcome"]["hit"], 3);
    assert_eq!(site["hit_ratio"], 0.75);
    assert_eq!(site["not_storable"], serde_json::json!({}));
    assert_eq!(site["misses_by_cause"], serde_json::json!({ "new": 1 }));
    assert_eq!(json["origins"][0]["responses"], 1);
    assert_eq!(json["origins"][0]["servers"][0]["state"], "up");
    assert!(json["origins"][0]["p99_seconds"].is_number());
    assert_eq!(json["errors"].as_array().map(Vec::len), Some(0));
    let levels = json["history"]["levels"].as_array().map(Vec::len);
    assert_eq!(levels, Some(3));
}

/// The reasons why a site misses: each response that may not be stored, by reason.
#[test]
fn a_site_counts_why_its_responses_are_not_storable() {
    let bed = TestBed::start();
    let page = |control| OriginAnswer::ok("body").header("cache-control", control);
    bed.origin.on("/basket", page("no-store"));
    bed.origin.on("/me", page("private"));
    bed.origin.on("/plain", OriginAnswer::ok("body"));
    for path in ["/basket", "/basket", "/me", "/plain"] {
        assert_eq!(bed.get(path).status, 200);
    }
    bed.wait_for_metric(
        "edgeward_responses_total{site=\"default\",status=\"200\"}",
        4.0,
    );
    let json = get(&bed, "/status.json", &[]);
    let json: Value = serde_json::from_slice(&json.body).expect("the page is JSON");
    assert_eq!(
        json["sites"][0]["not_storable"],
        serde_json::json!({ "no-store": 2, "private": 1, "never-reusable": 1 })
    );
}

#[test]
fn an_error_has_a_row_with_its_cause() {
    let bed = TestBed::with_config(|config| {
        config.origins[0] = edgeward_proxy::config::OriginConfig::new(
            "http://127.0.0.1:1".parse().expect("the URL is valid"),
        );
    });
    assert_eq!(bed.get("/a").status, 502);
    let json = get(&bed, "/status.json", &[]);
    let json: Value = serde_json::from_slice(&json.body).expect("the page is JSON");
    let rows = json["errors"].as_array().expect("the errors are a list");
    let labels: Vec<_> = rows
        .iter()
        .filter_map(|row| row["label"].as_str())
        .collect();
    assert!(labels.contains(&"connect"), "{labels:?}");
    assert!(labels.contains(&"502"), "{labels:?}");
}

#[test]
fn responses_5xx_of_an_origin_have_a_row_of_their_own() {
    let bed = TestBed::start();
    bed.origin
        .otherwise(|_| OriginAnswer::ok("broken").with_status(500));
    assert_eq!(bed.get("/a").status, 500);
    let row = until("the response is counted", || {
        let json = get(&bed, "/status.json", &[]);
        let json: Value = serde_json::from_slice(&json.body).expect("the page is JSON");
        let rows = json["errors"].as_array().expect("the errors are a list");
        rows.first().cloned()
    });
    assert_eq!(row["metric"], "edgeward_origin_responses_total");
    assert_eq!((&row["label"], &row["hour"]), (&"5xx".into(), &1.into()));
}

/// The page at a local address needs no token. At an address that other machines reach, its data needs one, and its
/// files, which have no data, do not.
#[test]
fn the_data_of_the_page_needs_a_token_unless_the_address_is_local() {
    let local = TestBed::start();
    assert_eq!(get(&local, "/status.json", &[]).status, 200);
    let remote = TestBed::with_config(|config| {
        config.admin.address = Some(std::net::SocketAddr::from(([0, 0, 0, 0], 0)).into());
        config.admin.tokens = vec![reading_token()];
    });
    let addr = remote.edge.admin_addr().expect("the server listens");
    let get = |path: &str, fields: &[(&str, &str)]| {
        Client::connect(([127, 0, 0, 1], addr.port()).into()).get(path, fields)
    };
    for path in ["/status.json", "/events"] {
        assert_eq!(get(path, &[]).status, 401, "{path}");
    }
    assert_eq!(get("/status.json", &[BEARER]).status, 200);
    for path in ["/", "/page.js", "/page.css", "/status", "/metrics"] {
        assert_eq!(get(path, &[HTML]).status, 200, "{path}");
    }
}

#[test]
fn viewers_get_events_up_to_their_maximum_number() {
    let bed = TestBed::with_config(|config| config.admin.event_streams_max = 2);
    let open = || {
        let mut client = admin(&bed);
        client.send_head("GET", "/events", &[]);
        let head = client.head();
        (client, head)
    };
    let (mut first, head) = open();
    assert_eq!(
        (head.status, head.field("content-type")),
        (200, "text/event-stream")
    );
    let (second, _) = open();
    // An event may be on its way since before the second viewer.
    while event(&mut first)["viewers"] != 2 {}
    let events = [event(&mut first), event(&mut first)];
    assert!(events[1]["at"].as_u64() >= events[0]["at"].as_u64());
    let rows = events[1]["history"]["levels"][0]["rows"].as_array();
    assert_eq!(
        rows.map(Vec::len),
        Some(1),
        "an event has the newest row only"
    );
    assert!(events[1].get("settings").is_none());
    assert_eq!(get(&bed, "/events", &[]).status, 503);
    drop(second);
    // The server notices the end of the connection when it writes the next events.
    while event(&mut first)["viewers"] != 1 {}
    let (_third, head) = open();
    assert_eq!(head.status, 200);
}

/// The stop of an edge ends the streams of viewers, whose bodies would never end.
#[test]
fn the_stop_ends_the_events() {
    let bed = TestBed::start();
    let mut client = admin(&bed);
    client.send_head("GET", "/events", &[]);
    assert_eq!(client.head().status, 200);
    event(&mut client);
    bed.stop();
    assert!(
        client.read_to_end().ends_with("0\r\n\r\n"),
        "the body is complete"
    );
}

/// Method: the fields that browsers add to requests of pages of other servers, of the page itself, and of links.
#[test]
fn pages_of_other_servers_cannot_use_the_admin_server() {
    let bed = TestBed::with_config(|config| config.admin.tokens = vec![reading_token()]);
    let site = |value| ("sec-fetch-site", value);
    for foreign in ["cross-site", "same-site"] {
        for (method, path) in [
            ("GET", "/events"),
            ("GET", "/status.json"),
            ("POST", "/purge"),
            ("PUT", "/policy"),
        ] {
            let fields = [site(foreign), ("sec-fetch-mode", "no-cors"), BEARER];
            let answer = request(&bed, method, path, &fields);
            assert_eq!(answer.status, 403, "{method} {path}");
        }
        // A form that is sent to this server is a navigation, too.
        let form = [site(foreign), ("sec-fetch-mode", "navigate"), BEARER];
        assert_eq!(request(&bed, "POST", "/purge", &form).status, 403);
        let link = [site(foreign), ("sec-fetch-mode", "navigate"), HTML];
        assert_eq!(get(&bed, "/", &link).status, 200);
    }
    for own in ["same-origin", "none"] {
        assert_eq!(get(&bed, "/status.json", &[site(own)]).status, 200);
    }
    // A program on the machine may change the policy without a token, the page may not.
    let put = |fields: &[(&str, &str)]| {
        let mut client = admin(&bed);
        let mut all = vec![("content-length", "4")];
        all.extend(fields);
        client.send_head("PUT", "/policy", &all);
        client.send("gdsf");
        client.answer("PUT").status
    };
    assert_eq!(put(&[site("same-origin")]), 401);
    assert_eq!(put(&[site("same-origin"), BEARER]), 403);
    assert_eq!(put(&[]), 200);
}
