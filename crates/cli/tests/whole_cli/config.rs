//! Tests `check-config` and configuration files.

use std::fs;

use serde_json::Value;

use super::run::{output, text};

const GOOD: &str = r#"
[[listener]]
address = "127.0.0.1:8080"

[origin]
url = "http://10.0.0.7:9000"
"#;

#[test]
fn a_valid_file_is_listed_with_its_final_values() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let file = folder.path().join("edgeward.toml");
    fs::write(&file, GOOD).expect("the file is written");
    let path = file.to_str().expect("the path is UTF-8");

    let out = output(&["check-config", path]);
    assert_eq!(out.status.code(), Some(0));
    let printed = text(&out.stdout);
    assert!(printed.starts_with("ok: "), "{printed}");
    let line = printed
        .lines()
        .find(|line| line.starts_with("origin.url "))
        .expect("every setting is listed");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words, ["origin.url", "http://10.0.0.7:9000", "line", "6"]);

    let out = output(&["check-config", "--json", path]);
    let report: Value = serde_json::from_slice(&out.stdout).expect("the text is JSON");
    assert_eq!(report["ok"], true);
    let settings = report["settings"]
        .as_array()
        .expect("the settings are a list");
    assert!(
        settings
            .iter()
            .any(|s| s["key"] == "hot.capacity" && s["from"] == "default")
    );
}

/// A key that is missing has no line; its error names only the file.
#[test]
fn an_invalid_file_exits_with_code_1_and_every_error_names_its_line() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let file = folder.path().join("edgeward.toml");
    fs::write(&file, GOOD.replace("url", "ulr") + "timeout = 5\n").expect("the file is written");
    let path = file.to_str().expect("the path is UTF-8");

    let out = output(&["check-config", path]);
    assert_eq!(out.status.code(), Some(1));
    let printed = text(&out.stderr).replace(path, "edgeward.toml");
    insta::assert_snapshot!(printed, @r#"
    error: unknown key origin.ulr
      in edgeward.toml, line 6
      hint: did you mean origin.url?
    error: unknown key origin.timeout
      in edgeward.toml, line 7
      hint: `edgeward check-config --reference` lists all keys
    error: origin.url is missing: the edge needs an origin to fetch misses from
      in edgeward.toml
      hint: add [origin] with url = "http://HOST:PORT", or give --origin http://HOST:PORT
    "#);

    let out = output(&["check-config", "--json", path]);
    assert_eq!(out.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&out.stdout).expect("the text is JSON");
    assert_eq!(report["ok"], false);
    assert_eq!(report["problems"][0]["line"], 6);
    assert_eq!(report["problems"][0]["hint"], "did you mean origin.url?");
}

#[test]
fn a_file_that_cannot_be_read_exits_with_code_2() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let binary = folder.path().join("binary.toml");
    fs::write(&binary, b"[hot]\n\xff\xfe").expect("the file is written");
    let large = folder.path().join("large.toml");
    fs::write(&large, "#".repeat((16 << 20) + 1)).expect("the file is written");
    for (path, reason) in [
        (folder.path().join("nowhere.toml"), "does not exist"),
        (folder.path().to_owned(), "cannot be read"),
        (binary, "is not valid UTF-8\n  in FILE, line 2"),
        (large, "exceeds 16 MiB"),
    ] {
        for command in ["check-config", "serve --config"] {
            let path = path.to_str().expect("the path is UTF-8");
            let args: Vec<&str> = command.split(' ').chain([path]).collect();
            let out = output(&args);
            assert_eq!(out.status.code(), Some(2), "{args:?}");
            let printed = text(&out.stderr).replace(path, "FILE");
            assert!(
                printed.starts_with("error: the configuration "),
                "{printed}"
            );
            assert!(printed.contains(reason), "{printed}");
        }
    }
}

#[test]
fn serve_rejects_invalid_flags_and_settings() {
    let out = output(&["serve", "--listen", "here", "--hot", "0", "--set", "hot"]);
    assert_eq!(out.status.code(), Some(2));
    insta::assert_snapshot!(text(&out.stderr), @r"
    error: --set hot is not KEY=VALUE
      hint: write for example --set limits.headers_max=50
    ");

    let out = output(&[
        "serve",
        "--listen",
        "here",
        "--hot",
        "0",
        "--set",
        "hot.sed=1",
    ]);
    assert_eq!(out.status.code(), Some(2));
    insta::assert_snapshot!(text(&out.stderr), @r"
    error: --set hot.sed: unknown key
      hint: did you mean hot.seed?
    error: --listen here is not an address and port
      hint: write 127.0.0.1:8080 (this machine), 0.0.0.0:8080 (all of IPv4) or [::]:8080 (all addresses)
    error: --hot 0 is too small
      hint: use 1MiB to 16TiB
    error: origin.url is missing: the edge needs an origin to fetch misses from
      hint: give --origin http://HOST:PORT, or a file with --config
    ");
}

/// Relative paths of certificates start at the folder of the configuration file, not at the working directory.
#[test]
fn paths_in_a_file_start_at_its_folder() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let file = folder.path().join("edgeward.toml");
    let tls = "tls_certificates = \"cert.pem\"\ntls_key = \"key.pem\"\n\n[origin]";
    fs::write(&file, GOOD.replace("\n[origin]", tls)).expect("the file is written");
    fs::write(folder.path().join("cert.pem"), "").expect("the file is written");
    let path = file.to_str().expect("the path is UTF-8");
    let out = output(&["check-config", path]);
    assert_eq!(out.status.code(), Some(1));
    let printed = text(&out.stderr);
    assert!(
        printed.contains("listener.tls_key = \"key.pem\" does not exist"),
        "{printed}"
    );
    assert!(!printed.contains("tls_certificates"), "{printed}");
    fs::write(folder.path().join("key.pem"), "").expect("the file is written");
    assert_eq!(output(&["check-config", path]).status.code(), Some(0));
}

/// Method: loopback may purge. A proxy on this machine is a peer with a loopback address.
#[test]
fn a_proxy_that_may_purge_is_a_warning() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let file = folder.path().join("edgeward.toml");
    let path = file.to_str().expect("the path is UTF-8");
    let warnings = |more: &str| {
        fs::write(&file, format!("{GOOD}{more}")).expect("the file is written");
        let out = output(&["check-config", path]);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        text(&out.stderr)
    };
    let allow = |networks| format!("[purge]\nallow = \"{networks}\"\n");
    let trusted = "[forwarding]\ntrusted_proxies = \"127.0.0.1, 10.0.0.0/24\"\n";
    let unix = "[[listener]]\naddress = \"unix:/tmp/edge.sock\"\n";
    for (more, expected) in [
        (allow("127.0.0.1"), false),
        (format!("{trusted}{}", allow("127.0.0.0/8")), true),
        (format!("{trusted}{}", allow("10.0.0.7")), true),
        (format!("{trusted}{}", allow("10.0.1.0/24")), false),
        (format!("{unix}{}", allow("127.0.0.1")), true),
        (format!("{unix}{}", allow("10.0.0.7")), false),
        (
            format!(
                "{unix}proxy_protocol_from = \"127.0.0.1\"\n{}",
                allow("127.0.0.1")
            ),
            false,
        ),
    ] {
        let printed = warnings(&more);
        let has_warning = printed.contains("warning: purge.allow has ");
        assert_eq!(has_warning, expected, "{more}\n{printed}");
        assert_eq!(printed.contains("edgeward.toml, line "), expected);
    }
}
