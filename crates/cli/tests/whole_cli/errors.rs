//! What is said when it cannot be done: code 2, on stderr, with the way out.

use super::run::{edgeward, output, text};

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
