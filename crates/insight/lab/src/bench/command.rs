//! Commands of a plan: loads, and what runs before them.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use edgeward_replay::load::Stop;
use rustix::process::{Pid, Signal, kill_process_group};

use super::run::BenchmarkError;
use super::text::{self, Values};
use crate::process::{self, find_program};
use crate::scratch::Scratch;

/// Runs commands, one after the other.
pub(super) struct Commands<'a> {
    pub(super) stop: &'a Stop,
    /// The folder for the output of the latest command.
    pub(super) folder: Scratch,
}

impl Commands<'_> {
    /// Runs a command to its end, in a folder.
    pub(super) fn run(
        &self,
        folder: &Path,
        words: &[String],
        values: &Values,
        core: Option<u64>,
    ) -> Result<(), BenchmarkError> {
        let mut child = self.spawn(folder, words, values, core)?;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if self.stop.is_requested() {
                kill(&mut child);
                return Err(BenchmarkError::Interrupted);
            }
            thread::sleep(POLL);
        };
        if status.success() {
            return Ok(());
        }
        let (output, errors) = self.last_output();
        Err(BenchmarkError::Command {
            command: text::expand(&words.join(" "), values),
            why: format!("{status}: {} {}", tail(&output), tail(&errors)),
        })
    }

    /// Starts a command in a folder.
    pub(super) fn spawn(
        &self,
        folder: &Path,
        words: &[String],
        values: &Values,
        core: Option<u64>,
    ) -> Result<Child, BenchmarkError> {
        let words: Vec<String> = words
            .iter()
            .map(|word| text::expand(word, values))
            .collect();
        let word = words.first().cloned().unwrap_or_default();
        let program = program(&word).ok_or(BenchmarkError::NotInstalled { program: word })?;
        let child = process::command(&program, &words[1..], core)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(File::create(self.folder.path().join(STDOUT))?)
            .stderr(File::create(self.folder.path().join(STDERR))?)
            .process_group(0)
            .spawn()?;
        Ok(child)
    }

    /// Returns what the latest command wrote to its standard output and its standard error.
    pub(super) fn last_output(&self) -> (String, String) {
        let read = |name| fs::read(self.folder.path().join(name)).unwrap_or_default();
        let text = |name| String::from_utf8_lossy(&read(name)).into_owned();
        (text(STDOUT), text(STDERR))
    }
}

/// Finds a program by its name or by its path.
pub(super) fn program(word: &str) -> Option<PathBuf> {
    if word.contains('/') {
        return Path::new(word).is_file().then(|| PathBuf::from(word));
    }
    find_program(word)
}

/// Returns the flag that makes a server print its version.
pub(super) fn version_flag(program: &Path) -> &'static str {
    match program.file_name().and_then(|name| name.to_str()) {
        Some("nginx") => "-v",
        Some("varnishd") => "-V",
        _ => "--version",
    }
}

/// Kills a command with its children.
pub(super) fn kill(child: &mut Child) {
    _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    _ = child.kill();
    _ = child.wait();
}

/// Returns the end of an output on one line.
pub(super) fn tail(output: &str) -> String {
    let lines: Vec<&str> = output
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines[lines.len().saturating_sub(OUTPUT_LINES_MAX)..].join(" / ")
}

const STDOUT: &str = "stdout";
const STDERR: &str = "stderr";

/// The time between two checks if a command has ended. A run may be measured longer by this time.
pub(super) const POLL: Duration = Duration::from_millis(5);

const OUTPUT_LINES_MAX: usize = 5;
