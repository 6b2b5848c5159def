//! The program that sets records in DNS.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// The reason why a record could not be set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum HookError {
    #[error("the DNS hook cannot be started")]
    Start(#[source] std::io::Error),
    #[error("the DNS hook ended with {status}: {message}")]
    Failed {
        status: std::process::ExitStatus,
        message: String,
    },
    #[error("the DNS hook did not end within {} s", .0.as_secs())]
    Timeout(Duration),
}

/// Calls `hook ACTION NAME VALUE` without a shell, and waits until the program ends. It succeeds with exit code 0.
pub(crate) async fn call(
    hook: &Path,
    [action, name, value]: [&str; 3],
    timeout: Duration,
) -> Result<(), HookError> {
    let mut command = Command::new(hook);
    command
        .args([action, name, value])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command.stderr(Stdio::piped()).kill_on_drop(true);
    let child = command.spawn().map_err(HookError::Start)?;
    let output = tokio::time::timeout(timeout, child.wait_with_output()).await;
    let output = output
        .map_err(|_| HookError::Timeout(timeout))?
        .map_err(HookError::Start)?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or("no message");
    Err(HookError::Failed {
        status: output.status,
        message: last.chars().take(200).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn program(folder: &Path, text: &str) -> std::path::PathBuf {
        let path = folder.join("hook");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("the mode is set");
        path
    }

    async fn run(text: &str, timeout: Duration) -> (Result<(), HookError>, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let hook = program(folder.path(), text);
        let called = call(
            &hook,
            ["present", "_acme-challenge.a.example", "v $(id)"],
            timeout,
        )
        .await;
        let seen = fs::read_to_string(folder.path().join("seen")).unwrap_or_default();
        (called, seen)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn the_program_gets_its_arguments_without_a_shell() {
        let (called, seen) = run("printf '%s|' \"$@\" > \"$(dirname $0)/seen\"", LONG).await;
        called.expect("the program succeeds");
        assert_eq!(seen, "present|_acme-challenge.a.example|v $(id)|");
    }

    #[tokio::test]
    async fn an_error_has_the_last_line_of_the_program() {
        let (called, _) = run("echo first >&2; echo last >&2; exit 3", LONG).await;
        let error = called.expect_err("the program fails").to_string();
        assert!(error.ends_with("exit status: 3: last"), "{error}");
    }

    /// The program writes more than a pipe holds, and does not end.
    #[tokio::test]
    async fn a_program_that_does_not_end_is_killed() {
        let (called, _) = run("exec tail -f /dev/null", Duration::from_millis(100)).await;
        assert!(matches!(called, Err(HookError::Timeout(_))), "{called:?}");
    }
}
