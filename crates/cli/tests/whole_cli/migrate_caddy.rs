//! `edgeward migrate` for Caddyfiles: each configuration of the corpus becomes a valid one.

use std::fs;
use std::path::PathBuf;

use super::migrate::migrate;
use super::run::text;

/// The configurations of `edgeward-migrate`.
const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../edge/migrate/tests/caddy");

#[test]
fn each_caddyfile_of_the_corpus_becomes_a_valid_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let entries = fs::read_dir(CORPUS).expect("the folder exists");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    assert!(paths.len() >= 20, "{} configurations", paths.len());
    for path in paths {
        let out = folder.path().join("edge.toml").display().to_string();
        let done = migrate(&path, &["--out", &out, "--force"]);
        let code = done.status.code();
        assert!(
            matches!(code, Some(0 | 1)),
            "{path:?}: {}",
            text(&done.stderr)
        );
    }
}

#[test]
fn a_caddyfile_that_cannot_be_read_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("Caddyfile");
    let nested = "a {\n".repeat(10_000);
    let large = " ".repeat(10_000_000);
    for (config, message) in [
        (
            "a.example {\nreverse_proxy b:80\n",
            "Caddyfile:1: the block that begins here has no `}`",
        ),
        ("a.example {\nfile_server\n}\n", "no HTTP server"),
        (nested.as_str(), "nested more than"),
        (large.as_str(), "8 MiB"),
    ] {
        fs::write(&input, config).expect("written");
        let done = migrate(&input, &[]);
        assert_eq!(done.status.code(), Some(2));
        assert!(
            text(&done.stderr).contains(message),
            "{}",
            text(&done.stderr)
        );
    }
}
