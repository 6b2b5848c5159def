//! Tests the admin API with curl and with the commands: tokens and their roles.

use std::path::Path;
use std::process::{Command, Output};

use super::run::{Server, output, text};

/// An edge with the tokens `scrape` (read), `cms` (purge), `ops` (read and reload), and one with all roles.
struct AdminEdge<'a> {
    folder: &'a Path,
    server: Server,
}

const TOKENS: [(&str, &str); 3] = [
    ("scrape", "\"read\""),
    ("cms", "\"purge\""),
    ("ops", "\"read\", \"reload\""),
];

impl<'a> AdminEdge<'a> {
    /// Starts an edge with these lines in its table `[admin]`.
    fn start(folder: &'a Path, admin: &str) -> Self {
        let mut config = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n[origin]\nurl = \"http://127.0.0.1:1\"\n\
             [hot]\ncapacity = \"1MiB\"\n[purge]\ntoken_file = \"all\"\n[admin]\n{admin}\n"
        );
        std::fs::write(folder.join("all"), secret("all")).expect("written");
        for (name, roles) in TOKENS {
            std::fs::write(folder.join(name), secret(name)).expect("written");
            config += &format!(
                "[[admin.token]]\nname = \"{name}\"\nfile = \"{name}\"\nroles = [{roles}]\n"
            );
        }
        std::fs::write(folder.join("edge.toml"), config).expect("written");
        let config = folder.join("edge.toml").display().to_string();
        let server = Server::start(&["serve", "--json", "--log=info", "--config", &config]);
        Self { folder, server }
    }

    /// Sends a request with curl and the token `name`, or without a token. Returns the status.
    fn curl(&self, name: Option<&str>, args: &[&str], path: &str) -> String {
        let mut command = Command::new("curl");
        command.args([
            "--silent",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code}",
        ]);
        if let Some(name) = name {
            let field = format!("Authorization: Bearer {}", secret(name));
            command.args(["--header", &field]);
        }
        let url = format!("{}{path}", self.server.text("/admin"));
        let answer = command.args(args).arg(url).output().expect("curl runs");
        text(&answer.stdout)
    }

    /// Runs a command of the admin API with the token `name`.
    fn run(&self, name: &str, args: &[&str]) -> Output {
        let token = self.folder.join(name).display().to_string();
        let api = [
            "--admin",
            self.server.text("/admin"),
            "--token-file",
            &token,
        ];
        output(&[args, &api].concat())
    }

    fn metrics(&self) -> String {
        let page = format!("{}/metrics", self.server.text("/admin"));
        let field = format!("Authorization: Bearer {}", secret("scrape"));
        let answer = Command::new("curl")
            .args(["--silent", "--header", &field, &page])
            .output()
            .expect("curl runs");
        text(&answer.stdout)
    }
}

fn secret(name: &str) -> String {
    format!("a-secret-of-the-token-{name}")
}

const PURGE: [&str; 2] = ["--data", "{\"tags\": [\"a\"]}"];
const CACHE: [&str; 2] = ["--data", "{\"url\": \"http://localhost/\"}"];
const EMPTY: [&str; 2] = ["--data", "{}"];

/// Method: every role tries every page, with curl. The refusals are then compared with their metric.
#[test]
fn a_token_allows_the_pages_of_its_roles_and_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let edge = AdminEdge::start(
        folder.path(),
        "address = \"127.0.0.1:0\"\nrequire_token = true",
    );
    let policy = ["--request", "PUT", "--data", "lru"];
    // The pages with a valid request, and the tokens that allow it.
    let pages: [(&str, &[&str], &[&str]); 7] = [
        ("/metrics", &[], &["scrape", "ops", "all"]),
        ("/status", &[], &["scrape", "ops", "all"]),
        ("/policy", &policy, &["ops", "all"]),
        ("/purge", &PURGE, &["cms", "all"]),
        ("/cache", &CACHE, &["scrape", "ops", "all"]),
        ("/explain", &CACHE, &["scrape", "ops", "all"]),
        ("/reload", &EMPTY, &["ops", "all"]),
    ];
    let mut refused = 0;
    for (path, args, allowed) in pages {
        assert_eq!(edge.curl(None, args, path), "401", "{path}");
        assert_eq!(edge.curl(Some("other"), args, path), "401", "{path}");
        for name in ["scrape", "cms", "ops", "all"] {
            let expected = if allowed.contains(&name) {
                "200"
            } else {
                "403"
            };
            assert_eq!(
                edge.curl(Some(name), args, path),
                expected,
                "{name}: {path}"
            );
            refused += usize::from(expected == "403");
        }
    }
    assert_eq!(edge.curl(None, &[], "/healthz"), "200");
    assert_eq!(edge.curl(Some("cms"), &[], "/purge"), "405");
    let metrics = edge.metrics();
    for (reason, count) in [
        ("no-token", pages.len()),
        ("unknown-token", pages.len()),
        ("missing-role", refused),
    ] {
        let line =
            format!("edgeward_admin_requests_refused_total{{reason=\"{reason}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}

#[test]
fn without_require_token_metrics_and_status_are_open_and_the_api_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let edge = AdminEdge::start(folder.path(), "address = \"127.0.0.1:0\"");
    for (path, args, expected) in [
        ("/metrics", &[][..], "200"),
        ("/status", &[], "200"),
        ("/policy", &[], "200"),
        ("/purge", &PURGE, "401"),
        ("/cache", &CACHE, "401"),
        ("/reload", &EMPTY, "401"),
    ] {
        assert_eq!(edge.curl(None, args, path), expected, "{path}");
    }
}

/// Method: a purge and a reload by two tokens. A refused command names the role that its token lacks.
#[test]
fn the_log_names_the_token_of_each_purge_and_reload() {
    let folder = tempfile::tempdir().expect("a folder");
    let edge = AdminEdge::start(folder.path(), "address = \"127.0.0.1:0\"");
    assert!(edge.run("cms", &["purge", "--tag", "a"]).status.success());
    assert!(edge.run("ops", &["reload"]).status.success());
    assert_eq!(
        edge.run("ops", &["cache", "get", "http://localhost/"])
            .status
            .code(),
        Some(1)
    );
    let refused = edge.run("scrape", &["purge", "--tag", "a"]);
    assert_eq!(refused.status.code(), Some(2));
    let message = text(&refused.stderr);
    assert!(
        message.contains("the token `scrape` does not have the role `purge`"),
        "{message}"
    );
    edge.server.signal(rustix::process::Signal::TERM);
    let (_, _, log) = edge.server.wait_for_end();
    let has = |words: [&str; 2]| {
        log.lines()
            .any(|line| words.iter().all(|w| line.contains(w)))
    };
    assert!(has(["purge", "token cms"]), "{log}");
    assert!(has(["a reload is requested", "token ops"]), "{log}");
    for (name, _) in TOKENS {
        assert!(!log.contains(&secret(name)), "the log has a secret: {log}");
    }
}
