//! Reloads of the whole configuration by the binary.

use super::load::{Load, LoadOrigin};
use super::run::{get, send_request, text};
use super::upgrade::UpgradableEdge;

/// Method: the origin, the limits, the log, the rules and a second listener change with each reload, and every tenth
/// configuration is invalid. Between reloads, each kind of client gets responses.
#[test]
fn reloads_and_upgrades_under_load_fail_no_request() {
    let origins = [LoadOrigin::start("a"), LoadOrigin::start("b")];
    let edge = UpgradableEdge::start(&origins[0].url(), "");
    let good = std::fs::read_to_string(edge.path("edge.toml")).expect("the file");
    let load = Load::start(edge.addr);
    load.wait_for_responses(20);
    for n in 1..=40 {
        let log = edge.path(&format!("log-{}", n % 3));
        let mut new = good.replace(&origins[0].url(), &origins[n % 2].url());
        new += &format!(
            "[access_log]\npath = \"{}\"\nformat = \"{}\"\n[limits]\nheaders_max = {}\n",
            log.display(),
            ["json", "combined"][n % 2],
            50 + n
        );
        if n % 3 == 0 {
            new += "[[listener]]\naddress = \"127.0.0.2:0\"\n";
        }
        if n % 10 == 0 {
            new += "[site.nothing]\n";
        }
        std::fs::write(edge.path("edge.toml"), &new).expect("written");
        let out = edge.command(&["reload"]);
        let expected = if n % 10 == 0 { Some(2) } else { Some(0) };
        assert_eq!(out.status.code(), expected, "{n}: {}", text(&out.stderr));
        load.wait_for_responses(5);
        if n % 20 == 11 {
            edge.upgrade();
        }
    }
    load.finish();
    // The last valid file names the second origin.
    let page = get(edge.addr, "/pass/last");
    assert!(page.contains("x-origin: b\r\n"), "{page}");
}

/// Method: three changes of the file, each of which is visible in a response.
#[test]
fn a_reload_changes_origin_limits_and_token_at_once_and_a_wrong_file_changes_nothing() {
    let origins = [LoadOrigin::start("a"), LoadOrigin::start("b")];
    let edge = UpgradableEdge::start(&origins[0].url(), "");
    let file = edge.path("edge.toml");
    let good = std::fs::read_to_string(&file).expect("the file");
    let fields = "X-Field: 1\r\n".repeat(60);
    let request = format!("GET /pass/1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
    assert!(send_request(edge.addr, &request).contains("x-origin: a"));

    let changed = good.replace(&origins[0].url(), &origins[1].url());
    let limited = format!("{changed}[limits]\nheaders_max = 50\n");
    std::fs::write(&file, &limited).expect("written");
    let out = edge.command(&["reload"]);
    let printed = text(&out.stdout);
    assert!(
        printed.contains("limits.headers_max: 100 -> 50\n"),
        "{printed}"
    );
    assert!(printed.contains("origin.url: "), "{printed}");
    assert!(!printed.contains("next start"), "{printed}");
    assert!(send_request(edge.addr, &request).starts_with("HTTP/1.1 431"));
    assert!(get(edge.addr, "/pass/1").contains("x-origin: b"));

    std::fs::write(&file, good.replace("32MiB", "none")).expect("written");
    assert_eq!(edge.command(&["reload"]).status.code(), Some(2));
    assert!(send_request(edge.addr, &request).starts_with("HTTP/1.1 431"));

    // The next command must have the new token.
    let token = edge.path("token");
    let new_token = edge.path("new-token");
    std::fs::write(&new_token, "another-token-of-this-test").expect("written");
    let renamed = good.replace(
        &token.display().to_string(),
        &new_token.display().to_string(),
    );
    std::fs::write(&file, renamed).expect("written");
    assert_eq!(edge.command(&["reload"]).status.code(), Some(0));
    assert_eq!(edge.command(&["reload"]).status.code(), Some(2));
    std::fs::rename(&new_token, &token).expect("renamed");
    std::fs::write(&file, &good).expect("written");
    assert_eq!(edge.command(&["reload"]).status.code(), Some(0));
    assert!(send_request(edge.addr, &request).contains("x-origin: a"));
}
