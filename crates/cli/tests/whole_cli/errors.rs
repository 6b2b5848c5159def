//! Tests error messages: exit code 2, on stderr, with a hint.

use super::run::{Server, edgeward, output, text};

#[test]
fn an_unknown_flag_is_rejected_with_the_nearest_known_one() {
    let out = output(&["serve", "--orign", "http://127.0.0.1:9"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(out.stdout.is_empty());
    let said = text(&out.stderr);
    assert!(
        said.starts_with("error: ") && said.contains("'--origin'"),
        "{said}"
    );
}

#[test]
fn an_unknown_command_is_rejected() {
    let out = output(&["serv"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("'serve'"));
}

#[test]
fn a_missing_command_prints_the_help_and_fails() {
    let out = output(&[]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("Usage: edgeward"));
}

#[test]
fn the_version_is_printed() {
    let out = output(&["--version"]);
    assert_eq!(out.status.code(), Some(0));
    assert_eq!(
        text(&out.stdout),
        format!("edgeward {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn an_invalid_log_filter_is_rejected_with_the_name_of_its_option() {
    let check = ["check-config", "nowhere.toml"];
    let flag = output(&["--log", "a=loud", check[0], check[1]]);
    let variable = edgeward(&check)
        .env("EDGEWARD_LOG", "a=loud")
        .output()
        .expect("the binary runs");
    for (out, name) in [(flag, "--log"), (variable, "EDGEWARD_LOG")] {
        assert_eq!(out.status.code(), Some(2));
        let said = text(&out.stderr);
        assert!(
            said.starts_with(&format!("error: {name} `a=loud`")),
            "{said}"
        );
        assert!(said.contains("\n  hint: "), "{said}");
    }
}

/// The parser of the log filter would take an unknown level for a module's name and log nothing.
#[test]
fn an_unknown_log_level_is_rejected() {
    for filter in ["loud", "info,loud", "verbose", "warning"] {
        let out = output(&["--log", filter, "check-config", "nowhere.toml"]);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2));
        assert!(
            said.starts_with(&format!("error: --log `{filter}`")),
            "{said}"
        );
        assert!(said.contains("unknown level"), "{said}");
    }
    for filter in [
        "INFO",
        "off",
        "3",
        "info,edgeward_proxy=debug",
        "edgeward_proxy::edge=trace",
    ] {
        let out = output(&["--log", filter, "check-config", "nowhere.toml"]);
        let said = text(&out.stderr);
        assert!(!said.contains("--log"), "{filter}: {said}");
    }
}

#[test]
fn a_negative_size_is_reported_as_negative() {
    let serve = [
        "serve",
        "--listen=127.0.0.1:0",
        "--origin=http://127.0.0.1:9",
    ];
    for hot in [
        &["--hot=-5MiB"][..],
        &["--hot", "-5MiB"],
        &["--set", "hot.capacity=-5MiB"],
    ] {
        let out = output(&[&serve[..], hot].concat());
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(
            said.contains("-5MiB is below zero\n  hint: write 64MiB"),
            "{said}"
        );
    }
}

#[test]
fn an_admin_address_on_a_listener_s_port_is_rejected() {
    for (listen, admin) in [
        ("127.0.0.1:18080", "127.0.0.1:18080"),
        ("0.0.0.0:18080", "127.0.0.1:18080"),
        ("127.0.0.1:18080", "[::]:18080"),
    ] {
        let out = output(&[
            "serve",
            "--origin=http://127.0.0.1:9",
            "--listen",
            listen,
            "--admin",
            admin,
        ]);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(
            said.starts_with(&format!("error: --admin {admin} ")),
            "{said}"
        );
        assert!(
            said.contains(listen) && said.contains("a port of its own"),
            "{said}"
        );
    }
}

/// The edge starts anyway, because the cache may never become full.
#[test]
fn a_memory_tier_larger_than_the_machine_s_memory_gets_a_warning() {
    let start = |hot: &str| {
        let args = [
            "serve",
            "--json",
            "--listen=127.0.0.1:0",
            "--origin=http://127.0.0.1:9",
            hot,
        ];
        let edge = Server::start(&args);
        edge.signal(rustix::process::Signal::TERM);
        edge.ended().2
    };
    let said = start("--hot=15TiB");
    assert!(
        said.contains("WARN") && said.contains("--hot exceeds the "),
        "{said}"
    );
    let said = start("--hot=8MiB");
    assert!(!said.contains("exceeds"), "{said}");
}
