//! Tests that a closed stdout is not an error.

use std::process::Stdio;

use super::run::{edgeward, text, wait};

/// Each command writes into a pipe whose reader was closed before the start.
#[test]
fn a_closed_stdout_ends_a_command_without_an_error() {
    for args in [
        &["--help"][..],
        &["--version"],
        &["check-config", "--reference"],
        // This command writes more lines than a pipe buffers.
        &[
            "trace",
            "generate",
            "--preset",
            "small",
            "--requests",
            "20000",
            "--quiet",
        ],
    ] {
        let (reader, writer) = std::io::pipe().expect("the pipe is created");
        drop(reader);
        let mut child = edgeward(args)
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let status = wait(&mut child);
        let out = child.wait_with_output().expect("stderr is read");
        assert_eq!(text(&out.stderr), "", "{args:?}");
        assert_eq!(status.code(), Some(0), "{args:?}");
    }
}
