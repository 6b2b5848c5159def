//! `edgeward migrate` for VCL: valid configurations, and files that are refused.

use std::fs;
use std::process::{Command, Stdio};

use edgeward_testkit::programs::find_or_skip;

use super::migrate::{corpus, corpus_folder, migrate};
use super::run::text;

#[test]
fn each_vcl_of_the_corpus_becomes_a_valid_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let included = corpus_folder("vcl").join("included").display().to_string();
    for path in corpus("vcl") {
        let out = folder.path().join("edge.toml").display().to_string();
        let more = ["--out", &out, "--force", "--prefix", &included];
        let done = migrate(&path, &more);
        let code = done.status.code();
        assert!(
            matches!(code, Some(0 | 1)),
            "{path:?}: {}",
            text(&done.stderr)
        );
    }
}

/// A configuration in VCL is refused with the line of its fault, and C in it too.
#[test]
fn a_vcl_that_cannot_be_read_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("a.vcl");
    for (config, message) in [
        (
            "vcl 4.1;\nsub vcl_recv {",
            "a.vcl:2: the block that begins here has no `}`".to_owned(),
        ),
        ("vcl 4.1;\nC{ int x; }C", "a.vcl:2: inline C".to_owned()),
        ("vcl 4.1;", "no HTTP server".to_owned()),
        (
            &format!("sub a {{ {}", "if (b) {".repeat(10_000)),
            "nested more than".to_owned(),
        ),
        (&" ".repeat(10_000_000), "8 MiB".to_owned()),
    ] {
        fs::write(&input, config).expect("written");
        let done = migrate(&input, &[]);
        assert_eq!(done.status.code(), Some(2));
        assert!(
            text(&done.stderr).contains(&message),
            "{}",
            text(&done.stderr)
        );
    }
}

/// The corpus is valid for Varnish, so its structure is that of configurations that run.
#[test]
fn varnish_accepts_each_vcl_of_the_corpus() {
    let Some(program) = find_or_skip("varnishd") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    for path in corpus("vcl") {
        let mut command = Command::new(&program);
        command.arg("-C").arg("-f").arg(&path);
        command.arg("-p").arg(format!(
            "vcl_path={}/included",
            corpus_folder("vcl").display()
        ));
        // Only the translation to C is checked: compiling it takes seconds.
        command.args(["-p", "cc_command=true"]);
        command.current_dir(folder.path()).stdin(Stdio::null());
        let output = command.output().expect("varnishd runs");
        let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(printed.contains("vdef.h"), "{path:?}: {printed}");
    }
}
