//! Programs that a test needs and that need not be installed.

use std::env;
use std::path::{Path, PathBuf};

/// Returns the path of a program, or `None` if it is not installed. The folder of nginx is not in the PATH of ordinary
/// users.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/sbin", "/usr/local/sbin"])
        .map(|folder| Path::new(folder).join(program))
        .find(|candidate| candidate.is_file())
}

/// Returns the path of a program, or `None` after [`skip`].
pub fn find_or_skip(program: &str) -> Option<PathBuf> {
    let found = find(program);
    if found.is_none() {
        skip(&format!("{program} is not installed"));
    }
    found
}

/// Prints that the test is skipped. Panics if the variable `EDGEWARD_REQUIRE_TOOLS` is 1.
pub fn skip(why: &str) {
    let required = env::var("EDGEWARD_REQUIRE_TOOLS").is_ok_and(|value| value == "1");
    assert!(
        !required,
        "{why}\n  hint: run `scripts/ensure-debian test`, which installs what the tests need"
    );
    eprintln!("skipped: {why}");
}
