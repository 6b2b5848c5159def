//! Tests `edgeward cache get` and `edgeward explain` with an origin and an edge as processes.

use super::purge::Site;
use super::run::{output, text};

#[test]
fn cache_get_shows_where_a_response_is_stored_and_why_it_is_fresh() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = Site::start(folder.path());
    let path = "/o/1?size=1000";
    let url = format!("http://localhost{path}");
    let absent = site.run(&["cache", "get"], &[&url]);
    assert_eq!(absent.status.code(), Some(1));
    assert_eq!(text(&absent.stdout), format!("{url}\n  stored       no\n"));
    site.store(&[path]);
    let shown = site.run(&["cache", "get"], &[&url]);
    let printed = text(&shown.stdout);
    assert!(shown.status.success(), "{shown:?}");
    for expected in [
        "stored       in memory and on disk, validated at ",
        "response     status 200, body 1000 B, ",
        "s of 86400 s, ttl 863",
        "lifetime     from max-age of cache-control (RFC 9111 §4.2.1)",
        "tags         all",
        "purged       no",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    let json = site.run(&["cache", "get"], &[&url, "--json", "--all"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["stored"]["freshness"]["source"], "max-age");
}

#[test]
fn explain_names_the_section_of_each_rule_and_asks_no_origin() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = Site::start(folder.path());
    let url = "http://localhost/o/1?size=1000";
    for _ in 0..2 {
        let miss = text(&site.run(&["explain"], &[url]).stdout);
        for expected in [
            "request       GET http://localhost/o/1?size=1000 [RFC 9110 §4.2.3, §7.2]",
            "stored        no response is stored [RFC 9111 §4]",
            "Cache-Status  edgeward; fwd=uri-miss",
        ] {
            assert!(miss.contains(expected), "{expected}: {miss}");
        }
    }
    assert!(
        !site.is_hit("/o/1?size=1000"),
        "the explanation stored nothing"
    );
    let hit = text(&site.run(&["explain"], &[url]).stdout);
    assert!(
        hit.contains("reuse         serve: it is fresh [RFC 9111 §4.2]"),
        "{hit}"
    );
    let args = [url, "--method", "POST", "--json"];
    let pass = site.run(&["explain"], &args);
    let pass: serde_json::Value = serde_json::from_slice(&pass.stdout).expect("JSON");
    assert_eq!(pass["cache_status"], "edgeward; fwd=method; detail=method");
    let args = [url, "-H", "If-Match: \"a\""];
    let pass = text(&site.run(&["explain"], &args).stdout);
    assert!(pass.contains("pass: the request has If-Match"), "{pass}");
}

/// Method: an invalid URL, header line and token, and an address on which no server listens.
#[test]
fn the_commands_say_what_is_wrong_and_exit_with_code_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = Site::start(folder.path());
    let url = "http://localhost/";
    let commands: [&[&str]; 2] = [&["cache", "get"], &["explain"]];
    for command in commands {
        for (args, message) in [
            (&["localhost/"][..], "`localhost/` is not a URL"),
            (&[url, "-H", "no colon"], "`no colon` is not a header field"),
            (&["http://a:b/"], ""),
        ] {
            let out = site.run(command, args);
            let printed = text(&out.stderr);
            // `explain` explains the refusal of an invalid port.
            let refused =
                (message.is_empty() && command[0] == "explain") || out.status.code() == Some(2);
            assert!(
                refused && printed.contains(message),
                "{command:?} {args:?}: {out:?}"
            );
        }
        let api = ["--admin", "127.0.0.1:1", "--token-file"];
        let token = folder.path().join("token").display().to_string();
        let out = output(&[command, &[url], &api, &[&token]].concat());
        assert_eq!(out.status.code(), Some(2));
        let printed = text(&out.stderr);
        assert!(
            printed.contains("127.0.0.1:1 did not") && printed.contains("refused"),
            "{printed}"
        );
    }
    std::fs::write(
        folder.path().join("token"),
        "another-token-of-32-characters",
    )
    .expect("written");
    for command in commands {
        let out = site.run(command, &[url]);
        assert_eq!(out.status.code(), Some(2));
        assert!(
            text(&out.stderr).contains("Authorization: Bearer"),
            "{out:?}"
        );
    }
}
