//! The page of the admin server in Chromium.

use std::sync::{Arc, Mutex};

use edgeward_balance::NodeGroup;
use edgeward_policy::KeySample;
use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::{
    AdminToken, FleetConfig, FleetKey, FleetMember, LOOPBACK_ANY_PORT, ListenerConfig,
    StatedSetting, Token,
};
use edgeward_proxy::watch::{FinishedRequest, Progress, Samples, Watcher, WatcherFacts};
use edgeward_testkit::client::until;
use edgeward_testkit::programs::{ReservedPort, find_or_skip};
use edgeward_testkit::{Answer as OriginAnswer, ScriptedOrigin};
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::identity::SelfSigned;
use crate::support::{Client, TIMEOUT, TestBed};

/// Texts that would run a script if the page used them as markup, a URL or a part of a script.
const PAYLOADS: [&str; 6] = [
    "<img src=x onerror=\"window.hacked=1\">",
    "<script>window.hacked=1</script>",
    "\"><svg onload=window.hacked=1>",
    "javascript:window.hacked=1",
    "</script><script>window.hacked=1</script>",
    "{{constructor.constructor('window.hacked=1')()}}",
];

const TOKEN: &str = "0123456789abcdef";

/// Reports the payloads as URLs and policies, and the URLs of all requests.
#[derive(Debug, Default)]
struct Urls(Mutex<Vec<String>>);

impl Watcher for Urls {
    fn observe(&self, batch: &mut Vec<FinishedRequest>, _: &Progress) {
        let texts = batch.drain(..).filter_map(|seen| seen.text);
        let urls = texts.map(|text| format!("{}{}", text.host, text.target));
        self.0.lock().expect("no test panics in it").extend(urls);
    }

    fn samples(&self) -> Samples {
        Samples {
            keys: KeySample::NONE,
            texts_one_in: 1,
        }
    }

    fn report(&self) -> Value {
        let seen = self.0.lock().expect("no test panics in it");
        let urls = PAYLOADS.iter().map(|payload| (*payload).to_owned());
        let rows = urls.chain(seen.iter().cloned());
        let rows = rows.map(|url| json!({ "url": url, "requests": 1, "bytes": 2, "misses": 3 }));
        let rows: Vec<Value> = rows.collect();
        let points = PAYLOADS.iter().map(|payload| {
            json!({
                "policy": payload,
                "size": "1",
                "capacity_bytes": 1024,
                "present": true,
                "hit_ratio": 0.5,
                "hit_ratio_error": 0.1,
                "byte_hit_ratio": 0.5,
                "origin_bytes_per_second": 1.0,
            })
        });
        let points: Vec<Value> = points.collect();
        json!({
            "top": { "sampled": rows.len(), "requests": rows, "bytes": rows, "misses": rows, "one_hit_wonder_ratio": 0.5 },
            "what_if": { "window_seconds": 60, "requests": 9, "requests_sampled": 9, "points": points },
        })
    }

    fn facts(&self) -> WatcherFacts {
        WatcherFacts::default()
    }
}

fn start() -> TestBed {
    start_with(|_| {})
}

fn start_with(change: impl FnOnce(&mut EdgeConfig)) -> TestBed {
    let bed = TestBed::with_config(|config| {
        config.watcher = Some(Arc::<Urls>::default());
        config.admin.tokens = vec![AdminToken {
            name: "operator".to_owned(),
            token: Token::new(TOKEN).expect("the token is long enough"),
            roles: "read,purge,reload".parse().expect("the roles exist"),
        }];
        let stated = PAYLOADS.iter().map(|payload| StatedSetting {
            key: format!("key {payload}"),
            value: (*payload).to_owned(),
            from: format!("file {payload}:1"),
        });
        config.stated = Arc::new(stated.collect());
        change(config);
    });
    bed.origin
        .otherwise(|_| OriginAnswer::ok("body").header("cache-control", "max-age=60"));
    bed
}

fn url(bed: &TestBed) -> String {
    let addr = bed.edge.admin_addr().expect("the server listens");
    format!("http://{addr}/")
}

/// Serves the page with the state of an edge that has had one miss, changed. It has no events, so that the page says
/// that the connection is lost after it has shown the state.
fn with_state(change: impl Fn(&mut Value)) -> ScriptedOrigin {
    let bed = start();
    assert_eq!(bed.get("/a").status, 200);
    let addr = bed.edge.admin_addr().expect("the server listens");
    let get = |path: &str| Client::connect(addr).get(path, &[("accept", "text/html")]);
    let mut state = until("the request is counted", || {
        let state: Value = serde_json::from_slice(&get("/status.json").body).expect("JSON");
        (state["sites"][0]["requests"] == 1).then_some(state)
    });
    change(&mut state);
    let server = ScriptedOrigin::start();
    for path in ["/", "/page.js", "/page.css"] {
        let file = get(path);
        let media = file.field("content-type").to_owned();
        server.on(
            path,
            OriginAnswer::ok(file.body).header("content-type", &media),
        );
    }
    server.on("/status.json", OriginAnswer::ok(state.to_string()));
    server
}

/// Opens the page of a server without events.
fn open_state(browser: &mut Browser, server: &ScriptedOrigin, width: u32) {
    browser.open(&server.url("/"), width, "light");
    browser.wait_for(&format!(
        "location.host === '{}' && document.querySelector('#state')?.textContent.startsWith('The connection is lost')",
        server.addr()
    ));
}

/// A node whose list of members does not follow those of the others.
fn fleet() -> Value {
    json!({
        "name": "a",
        "group": "edge",
        "members": [],
        "directory": { "current": false, "duplicate_of": "http://node.example:81" },
        "requests": {},
        "received": {},
        "waits": 0,
    })
}

/// Responses that may not be stored can be more than the fetched ones: validations have them, too.
#[test]
fn the_main_cause_of_a_site_is_at_most_the_whole() {
    if find_or_skip("chromium").is_none() {
        return;
    }
    let mut browser = Browser::start();
    for (reasons, causes, expected) in [
        (
            json!({ "no-store": 9, "private": 1 }),
            json!({ "refused": 1 }),
            "90.0 %: no-store",
        ),
        (
            json!({}),
            json!({ "new": 1 }),
            "100.0 %: new objects: first requests",
        ),
        (
            json!({}),
            json!({ "evicted": 1 }),
            "100.0 %: evicted objects: more memory may help",
        ),
    ] {
        let server = with_state(|state| {
            state["sites"][0]["not_storable"] = reasons.clone();
            state["sites"][0]["misses_by_cause"] = causes.clone();
        });
        open_state(&mut browser, &server, 1280);
        let cause = browser.evaluate(
            "document.querySelector('#site-table tbody tr')?.cells[6].textContent ?? null",
        );
        assert_eq!(cause, expected);
    }
}

#[test]
fn the_page_shows_faults_of_members_and_of_purges_of_a_fleet() {
    if find_or_skip("chromium").is_none() {
        return;
    }
    let server = with_state(|state| {
        state["fleet"] = fleet();
        state["fleet_purges"] = json!({
            "connected": true,
            "cut_off": false,
            "lag_seconds": 0,
            "lag_messages": 0,
            "position": 7,
            "applied": 5,
            "purged_all": 2,
            "unreadable": 2,
            "log_unwritable": true,
            "pending": 0,
            "refused": {},
        });
    });
    let mut browser = Browser::start();
    open_state(&mut browser, &server, 1280);
    let note = browser.evaluate("document.getElementById('fleet-directory')?.textContent ?? ''");
    let note = note.as_str().unwrap_or_default();
    for part in ["at http://node.example:81,", "do not return from NATS"] {
        assert!(note.contains(part), "{note}");
    }
    let bad = browser.evaluate(
        "[...document.querySelectorAll('#fleet-purges td.bad')]\
         .map(cell => [cell.parentElement.cells[0].textContent, cell.textContent])",
    );
    assert_eq!(
        bad,
        json!([
            ["log of purges", "cannot be written"],
            ["messages that could not be read", "2"],
        ])
    );
}

/// Method: an edge that sheds misses, has three caches that fill, and a caching fault, on a narrow screen.
#[test]
fn the_page_names_the_exceeded_resource_the_lower_bounds_and_the_lines_of_a_rule() {
    if find_or_skip("chromium").is_none() {
        return;
    }
    let server = with_state(|state| {
        state["overload"]["level"] = json!("misses");
        state["overload"]["last_rise"] = json!({
            "level": "misses",
            "resource": "lag",
            "used": 618_000,
            "bound": 500_000,
            "unit": "microseconds",
            "seconds_ago": 41,
        });
        let shed = json!({
            "metric": "edgeward_shed_total",
            "label": "miss",
            "what": "Misses were shed",
            "hint": "Limit the load.",
            "five_minutes": 1,
            "hour": 1,
        });
        state["errors"] = json!([shed]);
        let point = |size: u64, is_filling: bool| {
            json!({
                "policy": "lru",
                "size": size.to_string(),
                "capacity_bytes": size << 20,
                "present": size == 16,
                "hit_ratio": 0.5 + size as f64 / 1000.0,
                "hit_ratio_error": 0.01,
                "byte_hit_ratio": 0.5,
                "origin_bytes_per_second": 1.0,
                "filling": is_filling,
            })
        };
        state["what_if"]["points"] = json!([point(16, false), point(32, false), point(64, true)]);
        let rule = "[[site.rule]]\npath = \"/a/*\"\nttl = \"50min\"\n";
        let finding = json!({
            "fault": "short-lifetime",
            "text": "a short lifetime",
            "request_share": 0.1,
            "hit_share": 0.1,
            "example": "shop.example/a/1",
            "rule": rule,
        });
        state["faults"] = json!({ "sampled": 9, "texts_one_in": 1, "findings": [finding] });
    });
    let mut browser = Browser::start();
    open_state(&mut browser, &server, 390);
    let mut text = |query: &str| {
        let script = format!("document.querySelector('{query}')?.textContent ?? ''");
        let text = browser.evaluate(&script);
        text.as_str().unwrap_or_default().to_owned()
    };
    let resource = "lag of workers 618 ms, bound 500 ms";
    assert!(text("#now .bad").contains(resource));
    assert!(text("#error-table tbody td:last-child").contains(resource));
    let advice = text("#advice");
    for part in [
        "hot.capacity = \"32MiB\", after a restart: +1.6 points of hit ratio (± 1.0)",
        "hot.capacity = \"64MiB\", after a restart: at least +4.8 points of hit ratio, ",
    ] {
        assert!(advice.contains(part), "{advice}");
    }
    let rule = text("#fault-table td.code");
    assert!(
        rule.starts_with("# below the [[site]] of shop.example"),
        "{rule}"
    );
    assert!(
        rule.ends_with("\n[[site.rule]]\npath = \"/a/*\"\nttl = \"50min\""),
        "{rule}"
    );
    // A row is a card: no table scrolls to the side.
    let wide = browser.evaluate(
        "[...document.querySelectorAll('.wide')].filter(one => one.scrollWidth > one.clientWidth)\
         .map(one => one.parentElement.id)",
    );
    assert_eq!(wide, json!([]));
}

/// A page that a browser has kept, and an edge of a version before it.
#[test]
fn the_page_shows_an_edge_without_the_newest_keys() {
    if find_or_skip("chromium").is_none() {
        return;
    }
    let mut browser = Browser::start();
    for has_fleet in [false, true] {
        let server = with_state(|state| {
            let site = state["sites"][0].as_object_mut().expect("a site");
            for key in ["not_storable", "misses_by_cause"] {
                site.remove(key).expect("the key exists");
            }
            let state = state.as_object_mut().expect("an object");
            for key in ["fleet", "fleet_purges", "http3"] {
                state.remove(key).expect("the key exists");
            }
            if has_fleet {
                let fleet = json!({ "name": "a", "group": "edge", "members": [] });
                state.insert("fleet".to_owned(), fleet);
            }
        });
        open_state(&mut browser, &server, 1280);
        // The last section has its table, and the sections of absent keys are hidden.
        let shown = browser.evaluate(
            "[document.querySelectorAll('#certificate-table table').length,\
             document.getElementById('fleet').hidden, document.getElementById('protocols').hidden]",
        );
        assert_eq!(shown, json!([1, !has_fleet, true]));
    }
}

/// The page shows the traffic at each width and in both colour schemes. It never scrolls to the side: wide tables
/// scroll within.
#[test]
fn chromium_shows_the_page_at_each_width_without_scrolling_to_the_side() {
    if find_or_skip("chromium").is_none() {
        return;
    }
    let bed = start();
    for _ in 0..4 {
        assert_eq!(bed.get("/a").status, 200);
    }
    let mut browser = Browser::start();
    for (width, scheme, ground) in [
        (390, "light", "rgb(255, 255, 255)"),
        (1280, "dark", "rgb(20, 23, 26)"),
        (1920, "light", "rgb(255, 255, 255)"),
    ] {
        browser.open(&url(&bed), width, scheme);
        // An event has arrived, and both the plots and the tables are drawn.
        browser.wait_for("document.querySelector('#site-table tbody tr') && document.querySelector('#plot-ratio canvas')");
        browser.wait_for("document.querySelector('#footer').textContent.startsWith('1 of 16')");
        let widths = browser.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]",
        );
        assert_eq!(widths[0], widths[1], "{width} {scheme}");
        // The scroll bar at the side takes a part of the window.
        let client = widths[1].as_u64().unwrap_or_default();
        assert!(
            client + 20 >= width.into() && client <= width.into(),
            "{widths}"
        );
        let background = browser.evaluate("getComputedStyle(document.body).backgroundColor");
        assert_eq!(background, ground);
        let outcome =
            browser.evaluate("document.querySelector('#outcome-table tbody').textContent");
        let outcome = outcome.as_str().unwrap_or_default();
        assert!(outcome.contains("hit3"), "{outcome}");
        let hidden = browser.evaluate(
            "['fleet', 'protocols'].map(id =>\
             [document.getElementById(id).hidden, document.getElementById(id + '-link').hidden])",
        );
        assert_eq!(hidden, json!([[true, true], [true, true]]));
        let canvases = browser.evaluate("document.querySelectorAll('figure canvas').length");
        assert_eq!(canvases, 8);
    }
}

/// An edge of a fleet with HTTP/3 has a section for each. The fleet has the payloads as names.
#[test]
fn the_page_has_the_members_of_a_fleet_and_the_protocols() {
    if find_or_skip("chromium").is_none() {
        return;
    }
    let identity = SelfSigned::new();
    let port = ReservedPort::any();
    let bed = start_with(|config| {
        let secure = ListenerConfig {
            tls: Some(identity.files()),
            http3: true,
            ..ListenerConfig::plain(LOOPBACK_ANY_PORT)
        };
        config.listeners.push(secure);
        let members = PAYLOADS.iter().zip([100, 300, 100, 100, 100, 100]);
        let members = members.enumerate().map(|(at, (name, weight))| FleetMember {
            name: (*name).to_owned(),
            url: format!("http://{}", port.addr()).parse().expect("a URL"),
            group: NodeGroup::Edge,
            weight: weight.try_into().expect("a weight is not zero"),
            is_draining: at == 2,
        });
        config.set_fleet(FleetConfig {
            name: PAYLOADS[0].to_owned(),
            members: members.collect(),
            listen: port.addr(),
            tls: None,
            key: FleetKey::new(&[1; 32]).expect("a key"),
            wait: TIMEOUT,
            fallback_percent: 100,
            fallbacks_per_second: 100,
            replicate: 0.01,
        });
    });
    let mut browser = Browser::start();
    for (width, scheme) in [(390, "light"), (1280, "dark")] {
        browser.open(&url(&bed), width, scheme);
        browser.wait_for("document.querySelectorAll('#fleet-members tbody tr').length === 6");
        let shown = |id: &str| format!("!document.getElementById('{id}').hidden");
        for id in ["fleet", "fleet-link", "protocols", "protocols-link"] {
            browser.wait_for(&shown(id));
        }
        let rows = browser.evaluate(
            "[...document.querySelectorAll('#fleet-members tbody tr')]\
             .map(row => [...row.cells].map(cell => cell.textContent).slice(0, 4))",
        );
        // The draining member owns no key: 100 and 300 of 700.
        assert_eq!(
            rows[0],
            json!([
                format!("{} (this node)", PAYLOADS[0]),
                "edge",
                "up",
                "14.3 %"
            ])
        );
        assert_eq!(rows[1], json!([PAYLOADS[1], "edge", "up", "42.9 %"]));
        assert_eq!(rows[2], json!([PAYLOADS[2], "edge", "draining", "0.0 %"]));
        let protocols = browser.evaluate(
            "[...document.querySelectorAll('#protocol-table tbody th')].map(cell => cell.textContent)",
        );
        assert_eq!(protocols, json!(["HTTP/1.1", "HTTP/2", "HTTP/3"]));
        let widths = browser.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]",
        );
        assert_eq!(widths[0], widths[1], "{width}");
    }
    assert_eq!(browser.evaluate("window.hacked ?? null"), Value::Null);
}

/// Method: payloads as settings, as targets of purges and as hosts and paths of requests. Each is shown as text.
#[test]
fn no_text_of_traffic_or_configuration_runs_a_script() {
    if find_or_skip("chromium").is_none() {
        return;
    }
    let bed = start();
    for payload in &PAYLOADS {
        let escaped: String = payload
            .bytes()
            .map(|byte| match byte {
                b' ' | b'"' | b'{' | b'}' | b'<' | b'>' => format!("%{byte:02X}"),
                byte => char::from(byte).to_string(),
            })
            .collect();
        bed.get_with(&format!("/{escaped}"), &[("user-agent", payload)]);
        // Those that are no valid target or host are refused.
        for (target, host) in [(*payload, "shop.example"), ("/", *payload)] {
            let mut client = bed.connect();
            client.send(format!("GET /?{target} HTTP/1.1\r\nhost: {host}\r\n\r\n"));
            client.answer("GET");
        }
    }
    let mut browser = Browser::start();
    browser.open(&url(&bed), 1280, "light");
    browser.wait_for("document.querySelectorAll('#setting-table tbody tr').length === 6");
    let texts = "[...document.querySelectorAll('#setting-table td')].map(cell => cell.textContent)";
    let texts = browser.evaluate(texts);
    for payload in PAYLOADS {
        let shown = texts.as_array().into_iter().flatten();
        let count = shown.filter(|text| **text == payload).count();
        assert_eq!(count, 1, "{payload} is shown as it is: {texts}");
    }
    // The payloads, and the six requests whose payloads are escaped.
    browser.wait_for("document.querySelectorAll('#url-requests tbody tr').length >= 12");
    let urls =
        "[...document.querySelectorAll('#url-requests tbody th')].map(cell => cell.textContent)";
    let urls = browser.evaluate(urls);
    let shown = |url: &str| {
        urls.as_array()
            .into_iter()
            .flatten()
            .any(|text| *text == url)
    };
    assert!(PAYLOADS.into_iter().all(shown), "{urls}");
    // The tools send and show the payloads, too.
    browser.evaluate(&format!(
        "sessionStorage.setItem('edgeward-token', '{TOKEN}')"
    ));
    for payload in PAYLOADS {
        let text = Value::from(payload);
        browser.evaluate(&format!(
            "document.getElementById('result').textContent = '';\
             document.getElementById('purge-kind').value = 'tags';\
             document.getElementById('purge-target').value = {text};\
             document.getElementById('purge').requestSubmit()"
        ));
        browser.wait_for("/^(Purged|Failed)/.test(document.getElementById('result').textContent)");
    }
    let added = browser.evaluate(
        "document.querySelectorAll('main img, main svg, main script, main iframe').length",
    );
    assert_eq!(added, 0, "no payload became an element");
    // The policy of the server is the second line: even a script that gets into the page does not run.
    browser.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hacked=1\">')",
    );
    browser.evaluate(
        "{ const own = document.createElement('script'); own.textContent = 'window.hacked=1'; document.body.append(own); }",
    );
    browser.wait_for("document.querySelector('body > img').complete");
    assert_eq!(browser.evaluate("window.hacked ?? null"), Value::Null);
}

/// The whole page can be used by keyboard: Tab visits each control in the order of the document, and the tools work.
#[test]
fn the_page_is_used_by_keyboard_alone() {
    if find_or_skip("chromium").is_none() {
        return;
    }
    let bed = start();
    let mut browser = Browser::start();
    browser.open(&url(&bed), 1280, "light");
    browser.wait_for("document.querySelectorAll('#setting-table tbody tr').length === 6");
    // Some labels end with the age of the edge, which grows during the test.
    browser.evaluate(
        "window.nameOf = one => one.id || one.getAttribute('href') ||\
         (one.getAttribute('aria-label') || one.textContent).replace(/, last .*/, ''); null",
    );
    let expected = browser.evaluate(
        "[...document.querySelectorAll('a[href], input, select, button, [tabindex=\"0\"]')]\
         .filter(one => one.getClientRects().length && !(one.type === 'radio' && !one.checked))\
         .map(nameOf)",
    );
    let expected = expected.as_array().expect("a list").clone();
    assert!(expected.len() > 25, "{expected:?}");
    for (nth, expected) in expected.iter().enumerate() {
        browser.press("Tab");
        let focused = browser.evaluate("nameOf(document.activeElement)");
        assert_eq!(focused, *expected, "stop {nth}");
        let outline = browser.evaluate("getComputedStyle(document.activeElement).outlineStyle");
        assert_eq!(outline, "solid", "the focus is visible at {expected}");
    }
    browser.evaluate(&format!(
        "sessionStorage.setItem('edgeward-token', '{TOKEN}'); document.getElementById('policy-name').value = 'gdsf';\
         document.querySelector('#policy button').focus()"
    ));
    browser.press("Enter");
    browser.wait_for(
        "document.getElementById('result').textContent.includes('policy changed from lru to gdsf')",
    );
    assert_eq!(bed.status()["hot"]["policy"], "gdsf");
}
