//! Tests `analyze` on logs of real servers: edgeward, and nginx if it is installed.

use std::net::SocketAddr;
use std::path::Path;

use edgeward_testkit::programs::{ServerProcess, free_port};
use rustix::process::Signal;
use serde_json::Value;

use super::run::{Server, get, output, text};

/// The requested paths: the first page three times, the second page twice, all other pages once.
const PATHS: [&str; 8] = [
    "/o/1?size=100",
    "/o/2?size=200",
    "/o/1?size=100",
    "/o/3?size=300",
    "/o/2?size=200",
    "/o/4?size=400",
    "/o/1?size=100",
    "/o/nothing%22here?size=7",
];

#[test]
fn the_edge_s_own_logs_are_counted_in_both_formats() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    for form in ["json", "combined"] {
        let log = folder.path().join(format!("access.{form}"));
        let origin = Server::start(&["origin", "--json", "--listen=127.0.0.1:0"]);
        let edge = Server::start(&[
            "serve",
            "--json",
            "--listen=127.0.0.1:0",
            &format!("--origin=http://{}", origin.addr("/listen")),
            "--hot=8MiB",
            "--policy=lru",
            "--workers=1",
            &format!("--access-log={}", log.display()),
            &format!("--access-log-format={form}"),
        ]);
        let addr = edge.addr("/listening/0");
        get_all(addr);
        edge.signal(Signal::TERM);
        assert!(edge.wait_for_end().0.success());

        let report = analyze(&[name(&log)]);
        assert_eq!(
            (&report["requests"], &report["urls"]),
            (&8.into(), &5.into()),
            "{form}"
        );
        assert_eq!(report["requests_per_url"][0]["urls"], 3, "{form}");
        assert_eq!(report["top"][0]["requests"], 3, "{form}");
        assert_eq!(report["top"][0]["size"], 100, "{form}");
        assert_eq!(report["lines_malformed"], 0, "{form}");
        let hits = report["cache"]["hits"].as_u64();
        assert_eq!(
            hits,
            (form == "json").then_some(3),
            "{form}: only the JSON log has the cache status"
        );
    }
}

/// Method: nginx listens on two ports. The first one caches the responses of the second one and writes each request to
/// two logs: one in combined format, and one in a custom format with the cache status.
#[test]
fn nginx_s_logs_are_counted_with_a_detected_format_and_with_a_format_string() {
    let format = [
        r#"$host|[$time_local]|"$request"|$status|$body_bytes_sent"#,
        "|$upstream_cache_status|$sent_http_content_type",
    ]
    .concat();
    let origin = free_port();
    let server = ServerProcess::nginx(|folder, addr| {
        let here = folder.display();
        format!(
            "log_format own '{format}';
            proxy_cache_path {here}/cache keys_zone=zone:1m;
            server {{
                listen {addr};
                access_log {here}/combined.log combined;
                access_log {here}/own.log own;
                location / {{
                    proxy_pass http://127.0.0.1:{origin};
                    proxy_cache zone; proxy_cache_valid 1h;
                }}
            }}
            server {{
                listen 127.0.0.1:{origin}; access_log off;
                location / {{ default_type text/x-page; return 200 'a page'; }}
            }}"
        )
    });
    let Some(mut server) = server else { return };
    get_all(server.addr());
    let process = rustix::process::Pid::from_child(server.child());
    rustix::process::kill_process(process, Signal::QUIT).expect("the process runs");
    super::run::wait(server.child());
    let folder = server.folder();

    let combined = analyze(&[name(&folder.join("combined.log"))]);
    let custom = analyze(&[name(&folder.join("own.log")), "--format", &format]);
    for report in [&combined, &custom] {
        assert_eq!(
            (&report["requests"], &report["urls"]),
            (&8.into(), &5.into())
        );
        assert_eq!(
            (&report["once"], &report["lines_malformed"]),
            (&3.into(), &0.into())
        );
        assert_eq!(report["bytes"], 8 * 6);
    }
    assert_eq!(custom["cache"]["hits"], 3);
    assert_eq!(custom["cache"]["misses"], 5);
    assert_eq!(custom["types"]["top"][0]["name"], "text/x-page");
    assert_eq!(custom["hosts"]["top"][0]["name"], "localhost");
    assert_eq!(custom["files"][0]["format"], "format-string");
}

fn analyze(args: &[&str]) -> Value {
    let out = output(&[&["analyze", "--json"], args].concat());
    assert!(out.status.success(), "{}", text(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("the text is JSON")
}

/// Requests all paths, one after the other.
fn get_all(addr: SocketAddr) {
    for path in PATHS {
        let response = get(addr, path);
        assert!(response.starts_with("HTTP/1.1 "), "{path}: {response}");
    }
}

fn name(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}
