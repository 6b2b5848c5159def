//! Tests error messages: exit code 2, on stderr, with a hint.

use super::run::{Server, edgeward, output, text};

#[test]
fn an_unknown_flag_is_refused_with_the_nearest_known_one() {
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
fn an_unknown_command_is_refused() {
    let out = output(&["serv"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("'serve'"));
}

#[test]
fn no_command_at_all_shows_the_help_and_fails() {
    let out = output(&[]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("Usage: edgeward"));
}

#[test]
fn the_version_is_told() {
    let out = output(&["--version"]);
    assert_eq!(out.status.code(), Some(0));
    assert_eq!(
        text(&out.stdout),
        format!("edgeward {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_log_filter_that_is_none_is_refused_by_the_name_it_came_under() {
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
fn a_log_level_that_there_is_not_is_refused() {
    for filter in ["loud", "info,loud", "verbose", "warning"] {
        let out = output(&["--log", filter, "check-config", "nowhere.toml"]);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2));
        assert!(
            said.starts_with(&format!("error: --log `{filter}`")),
            "{said}"
        );
        assert!(said.contains("there is no level"), "{said}");
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
fn a_size_below_zero_is_called_that() {
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
fn an_admin_address_that_is_a_listener_s_is_called_that() {
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
            said.starts_with(&format!("error: --admin {admin} is ")),
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
fn more_memory_than_the_machine_has_is_warned_about() {
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
