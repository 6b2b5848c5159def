//! Tests error messages and warnings, which are printed to stderr, and the output of `--version`. The exit code of an
//! invalid command line is 2.

use super::run::{Server, edgeward, output, text};

#[test]
fn an_unknown_flag_is_rejected_with_a_similar_flag() {
    let out = output(&["serve", "--orign", "http://127.0.0.1:9"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(out.stdout.is_empty());
    let printed = text(&out.stderr);
    assert!(
        printed.starts_with("error: ") && printed.contains("'--origin'"),
        "{printed}"
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
        let printed = text(&out.stderr);
        assert!(
            printed.starts_with(&format!("error: {name} `a=loud`")),
            "{printed}"
        );
        assert!(printed.contains("\n  hint: "), "{printed}");
    }
}

/// The parser of the log filter would take an unknown level for a module's name and log nothing.
#[test]
fn an_unknown_log_level_is_rejected() {
    for filter in ["loud", "info,loud", "verbose", "warning"] {
        let out = output(&["--log", filter, "check-config", "nowhere.toml"]);
        let printed = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2));
        assert!(
            printed.starts_with(&format!("error: --log `{filter}`")),
            "{printed}"
        );
        assert!(printed.contains("unknown level"), "{printed}");
    }
    for filter in [
        "INFO",
        "off",
        "3",
        "info,edgeward_proxy=debug",
        "edgeward_proxy::edge=trace",
    ] {
        let out = output(&["--log", filter, "check-config", "nowhere.toml"]);
        let printed = text(&out.stderr);
        assert!(!printed.contains("--log"), "{filter}: {printed}");
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
        let printed = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{printed}");
        assert!(
            printed.contains("-5MiB is below zero\n  hint: write 64MiB"),
            "{printed}"
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
        let printed = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{printed}");
        assert!(
            printed.starts_with(&format!("error: --admin {admin} ")),
            "{printed}"
        );
        assert!(
            printed.contains(listen) && printed.contains("a port of its own"),
            "{printed}"
        );
    }
}

/// The warning does not stop the edge from starting, because the cache may never become full.
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
        let (_, _, stderr) = edge.wait_for_end();
        stderr
    };
    let printed = start("--hot=15TiB");
    assert!(
        printed.contains("WARN") && printed.contains("--hot exceeds the "),
        "{printed}"
    );
    let printed = start("--hot=8MiB");
    assert!(!printed.contains("exceeds"), "{printed}");
}
