//! The referee: libCacheSim, whose results are compared with those of edgeward's simulator. Its Python package is
//! installed in a virtual environment of its own.
//!
//! Both simulators read the same oracleGeneral file, and `bench/ohr/measure.py` measures both.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::say;

/// The package and its version. The figures in the documentation apply to this version.
pub(crate) const PACKAGE: &str = "libcachesim==0.3.5";

/// The installed package.
pub(crate) struct Referee {
    python: PathBuf,
    script: PathBuf,
}

impl Referee {
    /// Installs the package in `bench/scratch/referee`, unless it is installed already. Returns `None`, with a note on
    /// stdout, if this fails.
    pub(crate) fn install(root: &Path) -> Option<Self> {
        let venv = root.join("bench/scratch/referee");
        let referee = Self {
            python: venv.join("bin/python"),
            script: root.join("bench/ohr/referee.py"),
        };
        if referee.works() {
            return Some(referee);
        }
        let quietly = |command: &mut Command| {
            let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        let installed = quietly(Command::new("python3").args(["-m", "venv"]).arg(&venv))
            && quietly(Command::new(&referee.python).args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                PACKAGE,
            ]));
        if installed && referee.works() {
            return Some(referee);
        }
        say(format!(
            "{PACKAGE} cannot be installed with pip: the referee is skipped\n"
        ));
        None
    }

    /// Returns true if Python can load the library.
    fn works(&self) -> bool {
        let output = Command::new(&self.python)
            .arg(&self.script)
            .arg("import")
            .output();
        output.is_ok_and(|output| output.status.success())
    }

    /// Returns the command that runs one policy over a trace.
    pub(crate) fn command(&self, policy: &str, capacity_bytes: u64, trace: &Path) -> Vec<OsString> {
        let capacity = capacity_bytes.to_string();
        let mut words = self.words();
        words.extend([policy.into(), capacity.into(), trace.into()]);
        words
    }

    /// Returns the command that only starts Python and loads the library.
    pub(crate) fn import(&self) -> Vec<OsString> {
        let mut words = self.words();
        words.push("import".into());
        words
    }

    fn words(&self) -> Vec<OsString> {
        vec![self.python.clone().into(), self.script.clone().into()]
    }
}

/// The output and the resource use of a finished process.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// The JSON document on stdout, or null.
    pub(crate) json: Value,
    /// True if the process was killed at its limit of CPU time, or after 20 times this limit of wall time.
    pub(crate) timed_out: bool,
    pub(crate) success: bool,
    pub(crate) wall_seconds: f64,
    /// The user and system time of all threads.
    pub(crate) cpu_seconds: f64,
    /// The peak resident set. The least value is about 10 MB, the memory of `measure.py`.
    pub(crate) rss_bytes: f64,
}

/// The limits of a measured process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The maximum user and system time.
    pub(crate) cpu_seconds: u64,
    /// The maximum address space. Some policies of the referee allocate memory in proportion to the cache's capacity.
    pub(crate) bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu_seconds: 900,
            bytes: 10 << 30,
        }
    }
}

/// Runs a command until it ends or reaches a limit. `words` are the program and its arguments.
pub(crate) fn measure(root: &Path, words: &[OsString], limits: Limits) -> anyhow::Result<Measured> {
    let output = Command::new("python3")
        .arg(root.join("bench/ohr/measure.py"))
        .args([limits.cpu_seconds.to_string(), limits.bytes.to_string()])
        .args(words)
        .stderr(Stdio::null())
        .output()
        .context("python3 is missing; it measures the processes")?;
    ensure!(output.status.success(), "bench/ohr/measure.py failed");
    let usage: Value = serde_json::from_slice(&output.stdout)?;
    let number = |key: &str| usage[key].as_f64().with_context(|| format!("no {key}"));
    Ok(Measured {
        json: serde_json::from_str(usage["out"].as_str().unwrap_or_default())
            .unwrap_or(Value::Null),
        timed_out: usage["exit"].is_null(),
        success: usage["exit"] == 0,
        wall_seconds: number("wall_seconds")?,
        cpu_seconds: number("cpu_seconds")?,
        rss_bytes: number("rss_bytes")?,
    })
}

/// Returns those of `policies` that the program `edgeward` accepts. Writes a small trace to `scratch` for this test.
pub(crate) fn known_policies<'a>(
    edgeward: &Path,
    scratch: &Path,
    policies: &[&'a str],
) -> anyhow::Result<Vec<&'a str>> {
    let trace = scratch.join("probe.txt");
    fs::write(&trace, "0 1 1\n1 1 1\n")?;
    let mut known = Vec::new();
    for &policy in policies {
        let output = Command::new(edgeward)
            .args(["simulate", "--capacity", "4KiB", "--policy", policy])
            .arg(&trace)
            .output()?;
        if output.status.success() {
            known.push(policy);
        }
    }
    Ok(known)
}

/// Returns the arguments of this process, with paths shortened to their last part.
pub(crate) fn shortened_command() -> String {
    let words = std::env::args().skip(1).map(|word| {
        let name = Path::new(&word).file_name();
        name.map_or_else(|| word.clone(), |name| name.to_string_lossy().into_owned())
    });
    words.collect::<Vec<_>>().join(" ")
}
