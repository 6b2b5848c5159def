//! `edgeward migrate` for Caddyfiles: each configuration of the corpus becomes a valid one, and Caddy and the edge with
//! the same configuration answer alike.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use edgeward_testkit::client::Client;
use edgeward_testkit::programs::{ServerProcess, find_or_skip};
use edgeward_testkit::{Answer, ScriptedOrigin};

use super::migrate::{corpus, migrate};
use super::run::{Server, text};

/// A request: method, host, target and fields.
type Request<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, &'a str)]);

#[test]
fn each_caddyfile_of_the_corpus_becomes_a_valid_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    for path in corpus("caddy") {
        let out = folder.path().join("edge.toml").display().to_string();
        let done = migrate(&path, &["--out", &out, "--force"]);
        let code = done.status.code();
        assert!(
            matches!(code, Some(0 | 1)),
            "{path:?}: {}",
            text(&done.stderr)
        );
    }
}

#[test]
fn a_caddyfile_that_cannot_be_read_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("Caddyfile");
    let nested = "a {\n".repeat(10_000);
    let large = " ".repeat(10_000_000);
    let paths: String = (0..20_000).map(|n| format!(" /{n}")).collect();
    let many = format!("a.example {{\n@m path{paths}\nrespond @m 403\nreverse_proxy b:80\n}}\n");
    for (config, message) in [
        (
            "a.example {\nreverse_proxy b:80\n",
            "Caddyfile:1: the block that begins here has no `}`",
        ),
        ("a.example {\nfile_server\n}\n", "no HTTP server"),
        (nested.as_str(), "nested more than"),
        (large.as_str(), "8 MiB"),
        (many.as_str(), "translate its sites in several files"),
    ] {
        fs::write(&input, config).expect("written");
        let done = migrate(&input, &[]);
        assert_eq!(done.status.code(), Some(2));
        assert!(
            text(&done.stderr).contains(message),
            "{}",
            text(&done.stderr)
        );
    }
}

/// Returns a Caddyfile without `cache`, which is a module of Souin, and without options that Debian's Caddy 2.6 lacks.
fn without_modules(caddyfile: &str) -> String {
    let mut kept = String::new();
    // The depth of the block that is removed, and of the line.
    let (mut removed, mut depth): (Option<usize>, usize) = (None, 0);
    for line in caddyfile.lines() {
        let words = line.trim();
        let name = words.split(' ').next().unwrap_or_default();
        depth -= usize::from(words == "}");
        if removed.is_none() && matches!(name, "cache" | "trusted_proxies") {
            removed = words.ends_with('{').then_some(depth);
        } else if removed.is_none() {
            kept.push_str(line);
            kept.push('\n');
        } else if words == "}" && removed == Some(depth) {
            removed = None;
        }
        depth += usize::from(words.ends_with('{'));
    }
    kept
}

/// The corpus is valid for Caddy, so its structure is that of configurations that run.
#[test]
fn caddy_accepts_each_caddyfile_of_the_corpus() {
    let Some(program) = find_or_skip("caddy") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("Caddyfile");
    for path in corpus("caddy") {
        let config = fs::read_to_string(&path).expect("read");
        fs::write(&file, without_modules(&config)).expect("written");
        let mut command = Command::new(&program);
        command.args(["adapt", "--adapter", "caddyfile", "--config"]);
        command.arg(&file).env("HOME", folder.path());
        let output = command.stdin(Stdio::null()).output().expect("caddy runs");
        assert!(
            output.status.success(),
            "{path:?}: {}",
            text(&output.stderr)
        );
    }
}

/// Why the edge answers otherwise than Caddy. docs/how-to/from-caddy.md lists these reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    /// No directive handles the request: Caddy answers 200 without a body, and the edge 404.
    Unhandled,
    /// No site has the host: Caddy answers 200 without a body, and the edge 421, or 403 below a site with `*`.
    OtherHost,
    /// Origins and rules may read the path differently, so it is denied.
    Disputed,
}

/// A configuration, with `{port}` and the origins `{a}` and `{b}`, and the requests whose answers differ.
struct Case<'a> {
    name: &'a str,
    config: &'a str,
    /// The exit code of the translation.
    code: i32,
    listed: &'a [(&'a str, Listed)],
    requests: &'a [Request<'a>],
}

/// Paths that all configurations get.
const TARGETS: [&str; 34] = [
    "/",
    "/a",
    "/A",
    "/a/",
    "/a/b",
    "/A/B",
    "/a/b/",
    "/a/b/c.css",
    "/a/x.CSS",
    "/b",
    "/b/",
    "/b/a/b",
    "/B/A",
    "/a//b",
    "/api",
    "/api/",
    "/api/x",
    "/api/admin",
    "/api/admin/x",
    "/API/Admin/x",
    "/apix",
    "/x",
    "/x?token=1",
    "/x?token=",
    "/x?tokens=1",
    "/x.css",
    "/admin",
    "/admin/x",
    "/Admin/x?a=b",
    "/static/x.css",
    "/static/y",
    "/old/1/page",
    "/old/12",
    "/a/q/d",
];

/// Starts, ends and queries of further paths that all configurations get, in each combination.
const STARTS: [&str; 20] = [
    "",
    "/a",
    "/A",
    "/a/b",
    "/A/B",
    "/b",
    "/B",
    "/api",
    "/API",
    "/api/admin",
    "/apix",
    "/admin",
    "/Admin",
    "/static",
    "/old/1",
    "/old/12",
    "/x",
    "/a/q/d",
    "/a/b/c",
    "/b/a",
];
const ENDS: [&str; 8] = ["", "/", "/x", "/x.css", "/X.CSS", "/page", "/d", "/a/b"];
const QUERIES: [&str; 3] = ["", "?token=1", "?a=b&token="];

/// Returns the targets that all configurations get: over 500.
fn targets() -> Vec<String> {
    let mut all = TARGETS.map(str::to_owned).to_vec();
    for start in STARTS {
        for end in ENDS {
            let queries = QUERIES.iter().map(|query| format!("{start}{end}{query}"));
            all.extend(queries.filter(|target| target.starts_with('/')));
        }
    }
    all
}

const HOST: &str = "a.example";

/// The parts of an answer that must agree. A body that Caddy leaves empty may differ, because the edge has pages of its
/// own, and so may those of redirects.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Compared {
    status: u16,
    body: String,
    location: String,
}

impl Compared {
    fn of(addr: SocketAddr, (method, host, target, fields): Request<'_>) -> Self {
        let mut client = Client::connect(addr);
        let fields = [&[("Host", host), ("Connection", "close")], fields].concat();
        let answer = client.request(method, target, &fields, b"");
        let body = match answer.status {
            300..=399 => String::new(),
            _ => answer.text().to_owned(),
        };
        Self {
            status: answer.status,
            body,
            location: answer.field("location").to_owned(),
        }
    }

    fn is_listed(&self, edge: &Self, reason: Listed) -> bool {
        let is_empty = self.status == 200 && self.body.is_empty();
        match reason {
            Listed::Unhandled => is_empty && edge.status == 404,
            Listed::OtherHost => is_empty && matches!(edge.status, 403 | 421),
            Listed::Disputed => self.status == 200 && matches!(edge.status, 403 | 404),
        }
    }
}

impl Case<'_> {
    /// Sends the requests to Caddy with the configuration and to the edge with its translation.
    fn compare(&self) {
        let Some(program) = find_or_skip("caddy") else {
            return;
        };
        let origins = ["a", "b"].map(|name| {
            let origin = ScriptedOrigin::start();
            origin.otherwise(move |request| {
                let host = request.header("host").unwrap_or_default();
                let (method, target) = (request.method(), request.target());
                Answer::ok(format!("{name} {method} {host} {target}"))
            });
            origin
        });
        let [a, b] = &origins;
        let config = |port: u16| {
            let text = self.config.replace("{port}", &port.to_string());
            let text = text.replace("{a}", &a.addr().to_string());
            let text = text.replace("{b}", &b.addr().to_string());
            format!("{{\nadmin off\nauto_https off\ndefault_bind 127.0.0.1\n}}\n{text}")
        };
        let start = |folder: &Path, addr: SocketAddr| {
            let file = folder.join("Caddyfile");
            fs::write(&file, config(addr.port())).expect("written");
            let mut command = Command::new(&program);
            command.args(["run", "--adapter", "caddyfile", "--config"]);
            command.arg(file);
            for name in ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
                command.env(name, folder);
            }
            command
        };
        let caddy = ServerProcess::start(&program, start).expect("caddy starts");
        let folder = tempfile::tempdir().expect("a folder");
        let input = folder.path().join("Caddyfile");
        fs::write(&input, config(0)).expect("written");
        let out = folder.path().join("edge.toml").display().to_string();
        let done = migrate(&input, &["--out", &out]);
        let code = done.status.code();
        assert_eq!(
            code,
            Some(self.code),
            "{}: {}",
            self.name,
            text(&done.stderr)
        );
        let edge = Server::start(&["serve", "--json", "--config", &out]);
        let edge_addr = edge.addr("/listening/0");
        let listed: BTreeMap<&str, Listed> = self.listed.iter().copied().collect();
        let mut differences = Vec::new();
        let mut found: Vec<&str> = Vec::new();
        let targets = targets();
        let targets = targets
            .iter()
            .map(|target| ("GET", HOST, &**target, &[][..]));
        let targets: Vec<Request<'_>> = targets.collect();
        for request in [&targets[..], self.requests].concat() {
            let of_caddy = Compared::of(caddy.addr(), request);
            let mut of_edge = Compared::of(edge_addr, request);
            if of_caddy.status >= 400 && of_caddy.body.is_empty() {
                of_edge.body.clear();
            }
            if of_caddy == of_edge {
                continue;
            }
            match listed.get(request.2) {
                Some(reason) if of_caddy.is_listed(&of_edge, *reason) => found.push(request.2),
                _ => differences.push(format!(
                    "{request:?}\n  caddy {of_caddy:?}\n  edge  {of_edge:?}"
                )),
            }
        }
        let file = fs::read_to_string(&out).unwrap_or_default();
        assert!(
            differences.is_empty(),
            "{}:\n{}\n{file}",
            self.name,
            differences.join("\n")
        );
        let equal = listed.keys().filter(|target| !found.contains(target));
        let equal: Vec<_> = equal.collect();
        assert!(
            equal.is_empty(),
            "{}: listed, but equal: {equal:?}",
            self.name
        );
    }
}

#[test]
fn handles_answer_as_by_caddy() {
    Case {
        name: "handles",
        config: "http://a.example:{port} {\n\
                 @private path /a/b/*\n\
                 @post method POST PUT\n\
                 handle @post {\nrespond \"no upload here\" 405\n}\n\
                 handle /a/* {\nreverse_proxy {a}\n}\n\
                 handle @private {\nrespond 403\n}\n\
                 handle_path /api/* {\nrespond /admin/* 403\nreverse_proxy {b}\n}\n\
                 handle /a/*/d {\nrespond 410\n}\n\
                 handle {\nredir /old/* /new{uri} permanent\nreverse_proxy {a}\n}\n}\n",
        code: 0,
        listed: &[
            ("/a/../b", Listed::Disputed),
            ("/%61/b", Listed::Disputed),
            ("/a%2fb", Listed::Disputed),
        ],
        requests: &[
            ("GET", HOST, "/a/../b", &[]),
            ("GET", HOST, "/%61/b", &[]),
            ("GET", HOST, "/a%2fb", &[]),
            ("POST", HOST, "/a/x", &[("Content-Length", "0")]),
            ("PUT", HOST, "/api/x", &[("Content-Length", "0")]),
            ("DELETE", HOST, "/x", &[]),
            ("HEAD", HOST, "/old/1", &[]),
            ("GET", HOST, "/a/x/y/d", &[]),
            ("GET", HOST, "/api/admin/", &[]),
            ("GET", HOST, "/a/b/c/d", &[]),
            ("GET", HOST, "/old/", &[]),
            ("GET", HOST, "/old", &[]),
            ("GET", HOST, "/OLD/x?y=z", &[]),
        ],
    }
    .compare();
}

#[test]
fn directives_answer_in_the_order_of_caddy() {
    Case {
        name: "order",
        config: "http://a.example:{port} {\n\
                 respond /x \"hello\" 404\n\
                 reverse_proxy {a}\n\
                 reverse_proxy /a* {b}\n\
                 reverse_proxy /a/b {a}\n\
                 redir /old/* https://other.example{uri}\n\
                 redir /old/1* https://first.example{uri} 307\n\
                 @css path *.css\n\
                 header @css X-A 1\n\
                 error /admin/* \"no\" 403\n\
                 handle /b/* {\n\
                 rewrite /b/* /rewritten?{query}\n\
                 rewrite /b/a/* /never\n\
                 reverse_proxy {b}\n}\n}\n",
        code: 0,
        listed: &[],
        requests: &[
            ("GET", HOST, "/b/x?y=1", &[]),
            ("GET", HOST, "/b/a/x?y=1", &[]),
            ("GET", HOST, "/B/x", &[]),
            ("GET", HOST, "/a/b?x=1", &[]),
            ("GET", HOST, "/a/B", &[]),
            ("GET", HOST, "/ab", &[]),
            ("GET", HOST, "/x/", &[]),
            ("GET", HOST, "/X", &[]),
            ("GET", HOST, "/old/2?a=b", &[]),
            ("GET", HOST, "/old/1", &[]),
            ("GET", HOST, "/admin/", &[]),
            ("HEAD", HOST, "/y", &[]),
            ("PUT", HOST, "/a", &[("Content-Length", "0")]),
            ("DELETE", HOST, "/admin/x", &[]),
        ],
    }
    .compare();
}

#[test]
fn matchers_hold_as_by_caddy() {
    Case {
        name: "matchers",
        config: "http://a.example:{port} {\n\
                 @tok not header_regexp X-Token ^secret1$\n\
                 @de {\nheader X-Lang de*\nheader X-Lang at\n}\n\
                 @q query token=*\n\
                 @re path_regexp re ^/old/([0-9]+)/(.*)$\n\
                 redir @re /new/{re.re.1}?p={re.re.2} 302\n\
                 handle /admin/* {\nrespond @tok 403\nreverse_proxy {b}\n}\n\
                 handle @q {\nreverse_proxy {b}\n}\n\
                 handle @de {\nreverse_proxy {b}\n}\n\
                 @in {\nremote_ip 127.0.0.0/8\npath /a/* /b/*\nnot method DELETE\n}\n\
                 handle @in {\nreverse_proxy {a}\n}\n\
                 @none header !X-Lang\n\
                 handle @none {\nrespond 410\n}\n\
                 handle {\nrespond 404\n}\n}\n",
        // `handle @q` is an exception from a denial.
        code: 1,
        listed: &[],
        requests: &[
            ("GET", HOST, "/admin/x", &[("X-Token", "secret1")]),
            ("GET", HOST, "/admin/x", &[("X-Token", "secret12")]),
            ("GET", HOST, "/admin/x", &[("X-Token", "Secret1")]),
            ("GET", HOST, "/admin/x?token=1", &[]),
            ("GET", HOST, "/x", &[("X-Lang", "de-DE")]),
            ("GET", HOST, "/x", &[("X-Lang", "DE")]),
            ("GET", HOST, "/x", &[("X-Lang", "de")]),
            ("GET", HOST, "/x", &[("X-Lang", "at")]),
            ("GET", HOST, "/x", &[("X-Lang", "at1")]),
            ("DELETE", HOST, "/a/x", &[]),
            ("DELETE", HOST, "/a/x?token=1", &[]),
            ("GET", HOST, "/x?a=1&token=2", &[]),
            ("GET", HOST, "/old/12/a/b", &[]),
            ("GET", HOST, "/OLD/12/a", &[]),
            ("GET", HOST, "/old/x/a", &[]),
            ("GET", HOST, "/b/x", &[("X-Lang", "fr")]),
        ],
    }
    .compare();
}

#[test]
fn routes_and_prefixes_answer_as_by_caddy() {
    Case {
        name: "routes",
        config: "http://a.example:{port}, http://b.example:{port} {\n\
                 @b host b.example\n\
                 redir @b http://a.example{uri} 308\n\
                 request_header -X-User\n\
                 route /a/* {\n\
                 reverse_proxy /a/b {a}\n\
                 respond /a/b/* 403\n\
                 uri strip_prefix /a\n\
                 reverse_proxy {b}\n}\n\
                 handle /api/* {\nuri strip_prefix /api\nreverse_proxy {a}\n}\n\
                 reverse_proxy {a} {\nheader_up Host up.example\n}\n}\n",
        code: 0,
        listed: &[("/other", Listed::OtherHost)],
        requests: &[
            ("GET", HOST, "/other", &[]),
            ("GET", "c.example", "/other", &[]),
            ("GET", "b.example", "/", &[]),
            ("GET", "b.example", "/a/b", &[]),
            ("GET", "b.example", "/A/B?x=1", &[]),
            ("PUT", "b.example", "/x", &[("Content-Length", "0")]),
            ("GET", HOST, "/a/b/c", &[]),
            ("GET", HOST, "/a/x?y=1", &[]),
            ("GET", HOST, "/A/x", &[]),
            ("GET", HOST, "/api/a/b?c=d", &[]),
            ("POST", HOST, "/api/x", &[("Content-Length", "0")]),
            ("DELETE", HOST, "/a/b/x", &[]),
            ("HEAD", HOST, "/a/x", &[]),
            ("GET", HOST, "/api/api/x", &[]),
        ],
    }
    .compare();
}

#[test]
fn snippets_and_nested_matchers_answer_as_by_caddy() {
    Case {
        name: "snippets",
        config: "(deny) {\nrespond {args.0} 403\nrespond {args.0}/* 403\n}\n\
                 http://a.example:{port} {\n\
                 import deny /admin\n\
                 import deny /b\n\
                 handle /a/* {\n\
                 @x header X-A *\n\
                 handle @x {\nreverse_proxy {a}\n}\n\
                 error /a/b/* 410\n\
                 respond 401\n}\n\
                 handle /static/* {\n@x path *.css\nreverse_proxy {b}\n}\n\
                 @get {\nmethod GET HEAD\nnot path /x /y/*\n}\n\
                 reverse_proxy @get {a}\n}\n",
        code: 0,
        listed: &[
            ("/x", Listed::Unhandled),
            ("/x?token=1", Listed::Unhandled),
            ("/x?a=b&token=", Listed::Unhandled),
            ("/x?token=", Listed::Unhandled),
            ("/x?tokens=1", Listed::Unhandled),
            ("/q", Listed::Unhandled),
            ("/y/1", Listed::Unhandled),
            ("/Y/2", Listed::Unhandled),
        ],
        requests: &[
            ("GET", HOST, "/a/x", &[("X-A", "1")]),
            ("GET", HOST, "/a/b/x", &[("X-A", "1")]),
            ("GET", HOST, "/a/b/x", &[]),
            ("GET", HOST, "/admin", &[("X-A", "1")]),
            ("POST", HOST, "/q", &[("Content-Length", "0")]),
            ("GET", HOST, "/q", &[]),
            ("HEAD", HOST, "/q", &[]),
            ("GET", HOST, "/y", &[]),
            ("GET", HOST, "/y/1", &[]),
            ("GET", HOST, "/Y/2", &[]),
            ("POST", HOST, "/static/x", &[("Content-Length", "0")]),
            ("GET", HOST, "/b/x?y=1", &[]),
            ("PUT", HOST, "/B", &[("Content-Length", "0")]),
            ("DELETE", HOST, "/a/x", &[]),
        ],
    }
    .compare();
}

/// `*` is one label of a host.
#[test]
fn hosts_with_wildcards_answer_as_by_caddy() {
    Case {
        name: "wildcards",
        config: "http://*.a.example:{port} {\n\
                 respond /x* `{\"error\": \"gone\"}` 410\n\
                 reverse_proxy {a}\n}\n\
                 http://b.c.a.example:{port} {\nrespond \"b\"\n}\n\
                 http://a.example:{port} {\nreverse_proxy {b}\n}\n",
        code: 0,
        listed: &[("/deep", Listed::OtherHost)],
        requests: &[
            ("GET", "x.a.example", "/", &[]),
            ("GET", "y.a.example", "/a", &[]),
            ("GET", "x.a.example", "/x/y", &[]),
            ("GET", "b.c.a.example", "/", &[]),
            ("GET", "x.y.a.example", "/deep", &[]),
            ("GET", "x.c.a.example", "/deep", &[]),
        ],
    }
    .compare();
}
