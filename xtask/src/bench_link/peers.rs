//! The peers of the benchmark: other tools that deduplicate or compress. Each tool gets the sets of the corpus one
//! after the other, oldest first. A set has one version of each package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::bench_analyze::usage::{self, Usage};
use crate::bench_shared::process::find;

use super::corpus::Corpus;

/// The results of a tool for a corpus.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) tool: String,
    /// The bytes that the tool sent or stored for each set; a single value if the tool gets all sets as one stream.
    pub(super) bytes: Vec<u64>,
    pub(super) cpu_seconds: f64,
}

/// Runs all tools. Returns the results of each tool, or the reason why it was skipped.
pub(super) fn all(corpus: &Corpus, work: &Path) -> Vec<Result<Outcome, String>> {
    type Peer = fn(&Corpus, &Path) -> anyhow::Result<Outcome>;
    let peers: [(&str, &str, Peer); 7] = [
        ("zstd", "zstd -1", |corpus, _| zstd_alone(corpus)),
        ("zstd", "zstd -1 --long=27", |corpus, _| {
            zstd_long(corpus, "-1")
        }),
        ("zstd", "zstd -3 --long=27", |corpus, _| {
            zstd_long(corpus, "-3")
        }),
        ("borg", "borg", borg),
        ("restic", "restic", restic),
        ("casync", "casync", casync),
        ("rsync", "rsync", rsync),
    ];
    let run = |(program, name, peer): (&str, &str, Peer)| {
        find(program).map_err(|_| format!("{name}: not installed"))?;
        let work = work.join(program);
        _ = fs::remove_dir_all(&work);
        let outcome = fs::create_dir_all(&work)
            .context("the folder cannot be created")
            .and_then(|()| peer(corpus, &work));
        _ = fs::remove_dir_all(&work);
        outcome.map_err(|error| format!("{name}: {error:#}"))
    };
    peers.into_iter().map(run).collect()
}

/// Compresses each package separately.
fn zstd_alone(corpus: &Corpus) -> anyhow::Result<Outcome> {
    let (mut bytes, mut cpu_seconds) = (Vec::new(), 0.0);
    for set in 0..corpus.sets.len() {
        let mut set_bytes = 0;
        for tar in corpus.tars(set) {
            let mut zstd = Command::new("zstd");
            let (out, used) = run_tool(zstd.args(["-1", "-T1", "-q", "-c"]).arg(tar))?;
            set_bytes += out.len() as u64;
            cpu_seconds += used.cpu.as_secs_f64();
        }
        bytes.push(set_bytes);
    }
    Ok(Outcome {
        tool: "zstd -1".to_owned(),
        bytes,
        cpu_seconds,
    })
}

/// Compresses all sets as one stream, with a window of 128 MiB.
fn zstd_long(corpus: &Corpus, level: &str) -> anyhow::Result<Outcome> {
    let tars: Vec<PathBuf> = (0..corpus.sets.len())
        .flat_map(|set| corpus.tars(set))
        .collect();
    let script = "level=$1; shift; cat \"$@\" | zstd $level -T1 -q --long=27 -c";
    let mut command = Command::new("sh");
    let (out, used) = run_tool(command.args(["-c", script, "sh", level]).args(tars))?;
    Ok(Outcome {
        tool: format!("zstd {level} --long=27"),
        bytes: vec![out.len() as u64],
        cpu_seconds: used.cpu.as_secs_f64(),
    })
}

fn borg(corpus: &Corpus, work: &Path) -> anyhow::Result<Outcome> {
    let borg = || {
        let mut borg = Command::new("borg");
        borg.env("BORG_BASE_DIR", work.join("home"))
            .env("BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK", "yes");
        borg
    };
    let store = work.join("store");
    run_tool(borg().args(["init", "--encryption=none"]).arg(&store))?;
    bytes_per_set("borg (zstd,1)", corpus, &store, |set| {
        let mut name = store.clone().into_os_string();
        name.push(format!("::{set}"));
        let mut create = borg();
        create
            .args(["create", "--compression=zstd,1"])
            .arg(name)
            .args(corpus.tars(set));
        create
    })
}

fn restic(corpus: &Corpus, work: &Path) -> anyhow::Result<Outcome> {
    let store = work.join("store");
    let restic = || {
        let mut restic = Command::new("restic");
        restic
            .env("RESTIC_PASSWORD", "none")
            .arg("--quiet")
            .arg("--repo")
            .arg(&store)
            .arg("--cache-dir")
            .arg(work.join("cache"));
        restic
    };
    run_tool(restic().arg("init"))?;
    bytes_per_set("restic", corpus, &store, |set| {
        let mut backup = restic();
        backup.arg("backup").args(corpus.tars(set));
        backup
    })
}

fn casync(corpus: &Corpus, work: &Path) -> anyhow::Result<Outcome> {
    let store = work.join("store.castr");
    fs::create_dir(&store)?;
    bytes_per_set("casync (8 KiB)", corpus, work, |set| {
        // casync stores one blob per call.
        let script = "store=$1; work=$2; shift 2; for tar; do \
                      casync make --chunk-size=2048:8192:65536 --store=\"$store\" \
                      \"$work/$(basename \"$tar\").caibx\" \"$tar\" || exit; done";
        let mut make = Command::new("sh");
        make.args(["-c", script, "sh"])
            .arg(&store)
            .arg(work)
            .args(corpus.tars(set));
        make
    })
}

/// Measures how many bytes a store grows with each set. `command` returns the command that stores a set.
fn bytes_per_set(
    tool: &str,
    corpus: &Corpus,
    store: &Path,
    mut command: impl FnMut(usize) -> Command,
) -> anyhow::Result<Outcome> {
    let (mut bytes, mut cpu_seconds) = (Vec::new(), 0.0);
    for set in 0..corpus.sets.len() {
        let before = folder_bytes(store)?;
        let (_, used) = run_tool(&mut command(set))?;
        bytes.push(folder_bytes(store)?.saturating_sub(before));
        cpu_seconds += used.cpu.as_secs_f64();
    }
    Ok(Outcome {
        tool: tool.to_owned(),
        bytes,
        cpu_seconds,
    })
}

/// Transfers each set over the files of the previous set. The result has the bytes of both directions, as rsync
/// reports them.
fn rsync(corpus: &Corpus, work: &Path) -> anyhow::Result<Outcome> {
    let (mut bytes, mut cpu_seconds) = (Vec::new(), 0.0);
    for set in 0..corpus.sets.len() {
        let mut rsync = Command::new("rsync");
        rsync
            .args(["--no-whole-file", "--compress", "--stats", "--ignore-times"])
            .args(corpus.tars(set))
            .arg(work);
        let (out, used) = run_tool(&mut rsync)?;
        let out = String::from_utf8_lossy(&out);
        let figure = |what: &str| {
            let line = out.lines().find_map(|line| line.strip_prefix(what));
            let digits = line.map(|line| line.replace([',', '.', ' '], ""));
            digits.and_then(|digits| digits.parse::<u64>().ok())
        };
        let sent = figure("Total bytes sent:").context("rsync printed no number of bytes")?;
        let received =
            figure("Total bytes received:").context("rsync printed no number of bytes")?;
        bytes.push(sent + received);
        cpu_seconds += used.cpu.as_secs_f64();
    }
    Ok(Outcome {
        tool: "rsync -z".to_owned(),
        bytes,
        cpu_seconds,
    })
}

fn run_tool(command: &mut Command) -> anyhow::Result<(Vec<u8>, Usage)> {
    let program = command.get_program().to_string_lossy().into_owned();
    let (out, used) = usage::measure(command).with_context(|| program.clone())?;
    ensure!(used.success, "{program} failed");
    Ok((out, used))
}

fn folder_bytes(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let facts = entry.metadata()?;
        bytes += if facts.is_dir() {
            folder_bytes(&entry.path())?
        } else {
            facts.len()
        };
    }
    Ok(bytes)
}
