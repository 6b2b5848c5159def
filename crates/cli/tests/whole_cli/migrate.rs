//! `edgeward migrate`: exit codes and files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use super::run::{output, text};

/// Returns the folder with the configurations of `edgeward-migrate` of a kind: `nginx`, `vcl` or `caddy`.
pub(super) fn corpus_folder(kind: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../edge/migrate/tests");
    tests.join(kind)
}

/// Returns the paths of these configurations: at least 20.
pub(super) fn corpus(kind: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(corpus_folder(kind)).expect("the folder exists");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_file())
        .collect();
    paths.sort();
    assert!(paths.len() >= 20, "{} configurations", paths.len());
    paths
}

pub(super) fn migrate(input: &Path, more: &[&str]) -> Output {
    let input = input.display().to_string();
    output(&[&["migrate", &input], more].concat())
}

/// Writes a configuration and translates it.
fn translate(folder: &Path, config: &str, more: &[&str]) -> Output {
    let input = folder.join("site.conf");
    fs::write(&input, config).expect("written");
    migrate(&input, more)
}

#[test]
fn each_configuration_of_the_corpus_becomes_a_valid_one() {
    let folder = tempfile::tempdir().expect("a folder");
    for (count, path) in corpus("nginx").into_iter().enumerate() {
        let out = folder.path().join(format!("{count}.toml"));
        let done = migrate(&path, &["--out", &out.display().to_string()]);
        let code = done.status.code();
        assert!(
            matches!(code, Some(0 | 1)),
            "{path:?}: {}",
            text(&done.stderr)
        );
        assert!(out.is_file(), "{path:?}");
    }
}

#[test]
fn the_exit_code_states_if_something_was_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = |inner: &str| {
        format!(
            "server {{ listen 80; server_name a.example;\nlocation / {{ proxy_pass http://10.0.0.1; {inner} }} }}\n"
        )
    };
    let code = |config: &str| translate(folder.path(), config, &[]).status.code();
    assert_eq!(code(&site("")), Some(0));
    assert_eq!(code("server { root /var/www; }"), Some(2));
    assert_eq!(code("server {"), Some(2));
    assert_eq!(
        migrate(Path::new("/nonexistent"), &[]).status.code(),
        Some(2)
    );
    let lost = translate(folder.path(), &site("auth_basic x;"), &[]);
    assert_eq!(lost.status.code(), Some(1));
    let report = text(&lost.stderr);
    assert!(
        report.contains("site.conf:2: auth_basic x (access)"),
        "{report}"
    );
    let json = translate(folder.path(), &site("auth_basic x;"), &["--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["losses"], 1);
    assert_eq!(json["entries"].as_array().map(Vec::len), Some(6));
}

#[test]
fn an_existing_file_is_replaced_only_by_force() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("edge.toml");
    fs::write(&out, "mine").expect("written");
    let config = "server { listen 80; server_name a; location / { proxy_pass http://10.0.0.1; } }";
    let out_text = out.display().to_string();
    let refused = translate(folder.path(), config, &["--out", &out_text]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(fs::read_to_string(&out).expect("read"), "mine");
    let done = translate(folder.path(), config, &["--out", &out_text, "--force"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert_ne!(fs::read_to_string(&out).expect("read"), "mine");
}

/// A file that is too large, or nested too deeply, ends with an error.
#[test]
fn a_hostile_file_ends_with_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let nested = "a {".repeat(10_000);
    for (config, message) in [(nested, "nested"), (" ".repeat(10_000_000), "8 MiB")] {
        let done = translate(folder.path(), &config, &[]);
        assert_eq!(done.status.code(), Some(2));
        assert!(
            text(&done.stderr).contains(message),
            "{}",
            text(&done.stderr)
        );
    }
}

/// A host with more locations than a site has rules is an error of the input, and the way out is stated.
#[test]
fn a_host_with_too_many_locations_is_refused_with_a_way_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let location = |n: usize| format!("location /{n}/ {{ proxy_pass http://10.0.0.1; }}\n");
    let all: String = (0..300).map(location).collect();
    let config = format!("server {{ listen 80; server_name a.example;\n{all}}}");
    let done = translate(folder.path(), &config, &[]);
    assert_eq!(done.status.code(), Some(2));
    assert!(done.stdout.is_empty());
    let message = text(&done.stderr);
    for part in [
        "a.example needs ",
        "at most 256",
        "site.conf:1",
        "location ~ ^/(a|b)/",
    ] {
        assert!(message.contains(part), "{message}");
    }
}
