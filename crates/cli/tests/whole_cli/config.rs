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
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
    let made = made.expect("the certificate is created");
    fs::write(folder.path().join("cert.pem"), made.cert.pem()).expect("the file is written");
    let path = file.to_str().expect("the path is UTF-8");
    let out = output(&["check-config", path]);
    assert_eq!(out.status.code(), Some(1));
    let printed = text(&out.stderr);
    assert!(
        printed.contains("listener.tls_key = \"key.pem\" does not exist"),
        "{printed}"
    );
    assert!(!printed.contains("tls_certificates"), "{printed}");
    let key = made.signing_key.serialize_pem();
    fs::write(folder.path().join("key.pem"), key).expect("the file is written");
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
/// Returns what `check-config` prints about a file with `GOOD` and this text, with its exit code.
fn checked(folder: &std::path::Path, text_after: &str) -> (Option<i32>, String) {
    let file = folder.join("edgeward.toml");
    fs::write(&file, format!("{GOOD}{text_after}")).expect("the file is written");
    let out = output(&["check-config", file.to_str().expect("the path is UTF-8")]);
    (out.status.code(), text(&out.stdout) + &text(&out.stderr))
}

/// An edge would not start with any of these files. Each error names the file.
#[test]
fn check_config_finds_what_prevents_a_start() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    for name in ["one", "other"] {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
        let made = made.expect("the certificate is created");
        fs::write(folder.path().join(format!("{name}.pem")), made.cert.pem()).expect("written");
        let key = made.signing_key.serialize_pem();
        fs::write(folder.path().join(format!("{name}.key")), key).expect("written");
    }
    let memory = "[overload]\nmemory_max = \"320MiB\"\n";
    let admin = "[admin]\naddress = \"127.0.0.1:8082\"\n";
    let insight = "[insight]\nmemory = \"64MiB\"\n";
    let listener = |keys: &str| format!("[[listener]]\naddress = \"127.0.0.1:8443\"\n{keys}");
    let pair = |certificates: &str, key: &str| {
        listener(&format!(
            "tls_certificates = \"{certificates}\"\ntls_key = \"{key}\"\n"
        ))
    };
    assert_eq!(
        checked(folder.path(), &pair("one.pem", "one.key")).0,
        Some(0)
    );
    let site = "[[site]]\nhosts = [\"a.example\"]\n";
    for (added, expected) in [
        (pair("none.pem", "one.key"), "none.pem"),
        (pair("one.pem", "other.key"), "line 9"),
        (
            "[[listener]]\naddress = \"203.0.113.7:8081\"\n".to_owned(),
            "cannot listen on 203.0.113.7:8081",
        ),
        (
            "[[disk_device]]\npath = \"store\"\ncapacity = \"15TiB\"\n".to_owned(),
            "more bytes",
        ),
        ("[access_log]\npath = \"none/log\"\n".to_owned(), "none/log"),
        (
            "[[negative]]\npath = \"/r/{id}\"\nfilter = \"none.ids\"\n".to_owned(),
            "none.ids",
        ),
        (
            "[server]\nuser = \"no-such-user\"\n".to_owned(),
            "there is no user no-such-user",
        ),
        (
            "[compression]\nlength_min = \"2KiB\"\nlength_max = \"1KiB\"\n".to_owned(),
            "nothing is compressed",
        ),
        (
            "[overload]\nmemory_max = \"128MiB\"\n".to_owned(),
            "would shed all requests",
        ),
        (
            format!("{memory}{admin}{insight}"),
            "would shed all requests",
        ),
    ] {
        let (code, printed) = checked(folder.path(), &added);
        assert_eq!(code, Some(1), "{added}: {printed}");
        assert!(printed.contains(expected), "{added}: {printed}");
        assert!(printed.contains("edgeward.toml"), "{added}: {printed}");
    }
    // An edge starts with these, but they are probably not meant.
    for (added, expected) in [
        (
            format!("{site}redirect = \"http://a.example${{uri}}\"\n"),
            "leads to itself",
        ),
        (
            format!("{site}[[site.rule]]\npath = \"/docs/*\"\nredirect = \"/docs/start\"\n"),
            "leads to itself",
        ),
        (
            format!("{site}pass = true\nstale_if_error = \"1d\"\n"),
            "has no effect",
        ),
    ] {
        let (code, printed) = checked(folder.path(), &added);
        assert_eq!(code, Some(0), "{added}: {printed}");
        assert!(printed.contains("warning: "), "{added}: {printed}");
        assert!(printed.contains(expected), "{added}: {printed}");
    }
    assert!(!folder.path().join("store").exists());
    for added in [
        format!("{site}redirect = \"https://a.example${{uri}}\"\n"),
        format!("{site}[[site.rule]]\npath = \"/old/*\"\nredirect = \"/docs/start\"\n"),
        "[overload]\nmemory_max = \"512MiB\"\n".to_owned(),
        format!("{memory}{insight}"),
        format!("{memory}{admin}{insight}enabled = false\n"),
        "[compression]\nlength_min = \"1KiB\"\nlength_max = \"1KiB\"\n".to_owned(),
    ] {
        let (code, printed) = checked(folder.path(), &added);
        assert_eq!(code, Some(0), "{added}: {printed}");
    }
}

#[test]
fn check_config_lists_the_settings_of_the_file_and_all_of_them_on_demand() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let (code, printed) = checked(folder.path(), "[limits]\nheaders_max = 50\n");
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("limits.headers_max"), "{printed}");
    assert!(!printed.contains("hot.capacity"), "{printed}");
    let file = folder.path().join("edgeward.toml");
    let all = output(&[
        "check-config",
        "--all",
        file.to_str().expect("the path is UTF-8"),
    ]);
    let all = text(&all.stdout);
    assert!(all.contains("hot.capacity"), "{all}");
    let width = all.lines().skip(1).map(|line| line.chars().count()).max();
    assert!(width <= Some(120), "{width:?}");
}
