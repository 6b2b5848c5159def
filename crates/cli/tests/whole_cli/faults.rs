//! `edgeward advise` finds planted caching faults in the traffic of a real edge, and none at a good site.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use edgeward_testkit::client::Client;
use edgeward_testkit::{Answer, RecordedRequest, ScriptedOrigin};
use serde_json::Value;

use super::run::{Server, output, text, until};

/// A request of a client: the host, the target and a field.
type Sent = (&'static str, String, (&'static str, &'static str));

/// Returns the requests of a round. A fault has several requests in each of them.
fn requests(round: usize) -> Vec<Sent> {
    let gzip = ("accept-encoding", "gzip");
    let site = |target: String| ("shop.example", target, gzip);
    let mut sent = Vec::new();
    for n in 0..4 {
        let new = 4 * round + n;
        sent.extend([
            site(format!("/docs/{n}")),
            site(format!("/feed/{n}")),
            site(format!("/js/{n}.js")),
            site(format!("/css/{n}.css")),
            ("shop.example", format!("/news/{new}"), ("user-agent", "a")),
            ("shop.example", format!("/news/{new}"), ("user-agent", "b")),
            site(format!("/p/{n}?from={new}")),
            site(format!("/q/{n}?_={}", 1_700_000_000_000 + new)),
            site(format!("/list?x=1&y={new}")),
            site(format!("/list?y={new}&x=1")),
            ("www.shop.example", format!("/about/{new}"), gzip),
            site(format!("/about/{new}")),
            site(format!("/team/{new}")),
            site(format!("/team/{new}/")),
            (
                "shop.example",
                format!("/film/{n}.mp4"),
                ("range", "bytes=10-2000"),
            ),
            site(format!("/bare/{n}")),
            site(format!("/long/{n}")),
        ]);
    }
    sent
}

/// Answers as an origin with caching faults. The body depends on the path only, without a final slash, and on the
/// parameters `x` and `y` in any order.
fn faulty_answer(request: &RecordedRequest) -> Answer {
    let path = request.path().trim_end_matches('/');
    let mut parameters: Vec<&str> = request.target().split(['?', '&']).skip(1).collect();
    parameters.retain(|one| one.starts_with(['x', 'y']));
    parameters.sort_unstable();
    let body = format!("{path} {} ", parameters.join(" ")).repeat(300);
    let answer = Answer::ok(body);
    let fresh = |answer: Answer, seconds: u32| {
        let answer = answer.header("cache-control", &format!("max-age={seconds}"));
        answer.header("etag", "\"1\"").revalidates()
    };
    let page = |answer: Answer| answer.header("content-type", "text/html");
    let folder = path.split('/').nth(1).unwrap_or_default();
    match folder {
        "docs" => page(answer),
        "feed" => page(fresh(answer, 1)),
        "js" => answer
            .header("content-type", "text/javascript")
            .header("cache-control", "private"),
        "css" => fresh(answer, 600)
            .header("content-type", "text/css")
            .header("set-cookie", "tracker=1"),
        "news" => page(fresh(answer, 600)).header("vary", "User-Agent"),
        "bare" => page(answer).header("cache-control", "max-age=1"),
        "film" => fresh(Answer::pattern(1991).with_status(206), 600)
            .header("content-range", "bytes 10-2000/9000")
            .header("content-type", "video/mp4"),
        _ => page(fresh(answer, 600)),
    }
}

/// Answers as a good origin: every URL has a body of its own, a lifetime and a validator.
fn good_answer(request: &RecordedRequest) -> Answer {
    let host = request.header("host").unwrap_or_default();
    let answer = Answer::ok(format!("{host}{} ", request.target()).repeat(100))
        .header("content-type", "text/html")
        .header("cache-control", "max-age=600")
        .header("etag", "\"1\"");
    if request.path().starts_with("/account") {
        return answer.header("set-cookie", "from=1");
    }
    answer.revalidates()
}

struct Site {
    _origin: ScriptedOrigin,
    edge: Server,
    /// The number of requests that were sent.
    sent: Cell<u64>,
}

impl Site {
    fn start(folder: &Path, answer: fn(&RecordedRequest) -> Answer, rules: &str) -> Self {
        let origin = ScriptedOrigin::start();
        origin.otherwise(answer);
        let config = base(&origin.url("")) + rules;
        let path = folder.join("edge.toml").display().to_string();
        fs::write(&path, config).expect("written");
        let edge = Server::start(&["serve", "--json", "--config", &path]);
        Self {
            _origin: origin,
            edge,
            sent: Cell::new(0),
        }
    }

    fn send(&self, requests: &[Sent]) {
        let mut client = Client::connect(self.edge.addr("/listening/0"));
        for (host, target, field) in requests {
            let answer = client.get(target, &[("host", host), *field]);
            assert!(answer.status < 400, "{target}: {answer:?}");
            self.sent.set(self.sent.get() + 1);
        }
    }

    /// Waits until the analysis has followed the samples of all requests. A count of the analysis may be newer than its
    /// samples, but a request that ended before another one was counted is drained in the next pass.
    fn settle(&self) {
        for n in 0..3 {
            self.send(&[("last.example", format!("/last/{n}"), ("accept", "*/*"))]);
            until("the analysis has counted all requests", || {
                let mut client = Client::connect(self.edge.addr("/admin"));
                let answer = client.get("/status", &[("host", "localhost")]);
                let status: Value = serde_json::from_slice(&answer.body).ok()?;
                (status["what_if"]["requests"].as_u64()? >= self.sent.get()).then_some(())
            });
        }
    }

    /// Runs `edgeward advise` and returns the findings. They are absent before the first request was sampled.
    fn findings(&self) -> Option<Vec<Value>> {
        let admin: SocketAddr = self.edge.addr("/admin");
        let out = output(&["advise", "--json", "--admin", &admin.to_string()]);
        let document: Value = serde_json::from_slice(&out.stdout).ok()?;
        let findings = document["faults"].as_array().cloned()?;
        let expected = i32::from(!findings.is_empty());
        assert!(out.status.code() >= Some(expected), "{}", text(&out.stderr));
        Some(findings)
    }
}

fn base(origin: &str) -> String {
    format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n\
         [origin]\nurl = \"{origin}\"\n[hot]\ncapacity = \"64MiB\"\n"
    )
}

fn kinds(findings: &[Value]) -> BTreeSet<String> {
    let kinds = findings.iter().filter_map(|it| it["fault"].as_str());
    kinds.map(str::to_owned).collect()
}

/// Method: rounds of requests until all faults are found. Each rule is then a valid configuration. With all rules, the
/// same requests show only the faults that no rule removes.
#[test]
fn planted_faults_are_found_and_their_rules_mend_them() {
    let planted = [
        "no-lifetime",
        "short-lifetime",
        "private-static",
        "cookie-on-static",
        "needless-vary",
        "ignored-parameter",
        "cache-buster",
        "parameter-order",
        "same-on-two-hosts",
        "final-slash",
        "passed-ranges",
        "no-validator",
        "uncompressed",
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let faults = "[compression]\nenabled = false\n[ranges]\nslice_bytes = \"none\"\n";
    let site = Site::start(folder.path(), faulty_answer, faults);
    let mut round = 0;
    let findings = until("all faults are found", || {
        site.send(&requests(round));
        round += 1;
        let findings = site.findings()?;
        let found = kinds(&findings);
        eprintln!("round {round}: {found:?}"); // shown if the test fails
        let all_found = planted.iter().all(|kind| found.contains(*kind));
        all_found.then_some(findings)
    });
    let found = kinds(&findings);
    assert_eq!(found.len(), planted.len(), "{found:?}");

    let rule = |finding: &Value| finding["rule"].as_str().expect("a rule").to_owned();
    for finding in &findings {
        let rule = rule(finding);
        let site = if rule.starts_with("[[site.rule]]") {
            "[[site]]\nhosts = \"*\"\n"
        } else {
            ""
        };
        let path = folder.path().join("rule.toml");
        fs::write(&path, format!("{}{site}{rule}", base("http://127.0.0.1:9"))).expect("written");
        let out = output(&["check-config", &path.display().to_string()]);
        assert_eq!(out.status.code(), Some(0), "{rule}\n{}", text(&out.stderr));
    }

    let is_of_site = |finding: &&Value| rule(finding).starts_with("[[site.rule]]");
    let of_site: BTreeSet<String> = findings.iter().filter(is_of_site).map(rule).collect();
    let others: BTreeSet<String> = findings
        .iter()
        .filter(|it| !is_of_site(it))
        .map(rule)
        .collect();
    let join = |rules: BTreeSet<String>| rules.into_iter().collect::<String>();
    let rules = format!("[[site]]\nhosts = \"*\"\n{}{}", join(of_site), join(others));
    let mended = Site::start(folder.path(), faulty_answer, &rules);
    for round in 0..20 {
        mended.send(&requests(round));
    }
    mended.settle();
    let findings = until("the requests are sampled", || mended.findings());
    // On a busy machine the new lifetimes, which are short too, end while the requests are sent.
    let known = ["no-validator", "short-lifetime"].map(str::to_owned).into();
    assert!(kinds(&findings).is_subset(&known), "{findings:#?}");
    let is_new = |it: &Value| it["fault"] == "no-validator" || !rules.contains(&rule(it));
    assert!(findings.iter().all(is_new), "{findings:#?}");
}

/// Method: pages with and without parameters, variants that differ, and private pages.
#[test]
fn a_good_site_has_no_faults() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = Site::start(folder.path(), good_answer, "");
    for round in 0..20 {
        site.send(&requests(round));
        let private = |n| {
            (
                "shop.example",
                format!("/account/{n}"),
                ("cookie", "from=1"),
            )
        };
        site.send(&[0, 1, 2].map(private));
    }
    site.settle();
    let findings = until("the requests are sampled", || site.findings());
    assert_eq!(findings, Vec::<Value>::new());
}

/// Method: a trace that requests 10 objects in turn, and then two files: a trace and an access log.
#[test]
fn traces_and_logs_are_distinguished_by_their_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, lines: String| {
        let path = folder.path().join(name).display().to_string();
        fs::write(&path, lines).expect("written");
        path
    };
    let trace = (0..1000).map(|n| format!("{n} {} 5000\n", n % 10));
    let trace = file("a.tr", trace.collect());
    let log = (0..100).map(|n| {
        format!(
            "192.0.2.1 - - [21/Nov/2026:10:00:{:02} +0000] \"GET /{} HTTP/1.1\" 200 900\n",
            n % 60,
            n % 10
        )
    });
    let log = file("b.log", log.collect());
    for (logs, requests) in [(vec![&trace], 1000), (vec![&trace, &log], 100)] {
        let mut arguments = vec!["advise", "--json"];
        arguments.extend(logs.iter().map(|log| log.as_str()));
        let out = output(&arguments);
        let document: Value = serde_json::from_slice(&out.stdout).expect("JSON");
        assert_eq!(document["requests"], requests, "{logs:?}");
        assert_eq!(document["faults"].is_null(), requests == 1000, "{logs:?}");
    }
}

/// Method: a log in the common format with a parameter that does not change sizes, one that does, and pages.
#[test]
fn advice_for_a_log_has_a_setting_and_hints_to_faults() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log").display().to_string();
    let mut log = String::new();
    for n in 0..2000 {
        let (target, size) = match n % 3 {
            0 => (format!("/page/{}?from={n}", n % 7), 5000 + n % 7),
            1 => (format!("/search?q={}", n % 50), 7000 + n % 50),
            _ => (format!("/page/{}", n % 90), 9000 + n % 90),
        };
        log += &format!(
            "192.0.2.1 - - [21/Nov/2026:10:{:02}:{:02} +0000] \"GET {target} HTTP/1.1\" 200 {size}\n",
            n / 60 % 60,
            n % 60
        );
    }
    fs::write(&path, &log).expect("written");
    let out = output(&["advise", "--json", &path]);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
    let document: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(document["requests"], 2000);
    assert_eq!(document["settings"].as_array().map(Vec::len), Some(15));
    assert!(document["recommended"]["hot.capacity"].is_u64());
    let faults = document["faults"].as_array().expect("faults");
    assert_eq!(kinds(faults), ["ignored-parameter".to_owned()].into());
    assert_eq!(
        faults[0]["rule"],
        "[[site.rule]]\nquery.drop = [\"from\"]\n"
    );

    let out = output(&[
        "advise",
        "--hot=8MiB",
        "--policy=lru",
        "--disk=64MiB",
        &path,
    ]);
    let printed = text(&out.stdout);
    for start in [
        "recommended: ",
        "recommended disk: ",
        "present setting: lru with 8 MiB",
        "present disk: second-hit with 64 MiB",
    ] {
        assert!(
            printed.lines().any(|line| line.starts_with(start)),
            "{printed}"
        );
    }

    // Requests without a fault.
    let pages = folder.path().join("pages.log").display().to_string();
    let is_page = |line: &&str| !line.contains("from=");
    let log: Vec<&str> = log.lines().filter(is_page).collect();
    fs::write(&pages, log.join("\n")).expect("written");
    let out = output(&["advise", &pages]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    // Memory has room for all objects, so a smaller disk is recommended.
    let out = output(&["advise", "--json", "--hot=8MiB", "--disk=64MiB", &pages]);
    let document: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(document["faults"], Value::Array(Vec::new()));
    assert!(document["disk"].is_object(), "{document:#}");
    assert_eq!(out.status.code(), Some(1), "{document:#}");

    let out = output(&["advise", "-"]);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
}
