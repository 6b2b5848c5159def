//! Successive versions of real packages as tar files, fetched from their registries with the registries' own clients.
//!
//! A set has one version of each package. Sets follow each other in time, as on a machine that is kept up to date.
//! The tar files have sorted names and neither owners nor times, so two tar files differ only in the content of their
//! files. The tar files are created once and kept.
//!
//! If no registry can be reached, a synthetic corpus is generated from a seed. Every row of the results is then marked
//! as synthetic, because savings on generated text say little about real packages.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};

use crate::bench_hits::process::find;
use crate::say;

/// The package versions on disk.
#[derive(Debug)]
pub(crate) struct Corpus {
    /// One folder per set, oldest first, each with one tar file per package.
    pub(crate) sets: Vec<PathBuf>,
    /// The names of the packages.
    pub(crate) packages: Vec<&'static str>,
    /// True for a generated corpus.
    pub(crate) synthetic: bool,
}

#[derive(Clone, Copy, Debug)]
struct Package {
    name: &'static str,
    client: Client,
    /// The name in the registry.
    registered: &'static str,
    versions: [&'static str; SETS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    /// `pip download`
    Pip,
    /// `npm pack`
    Npm,
}

/// The packages. In this order, they contain Python sources, JSON descriptions of interfaces, compiled libraries, and
/// JavaScript.
const PACKAGES: [Package; 4] = [
    Package {
        name: "django",
        client: Client::Pip,
        registered: "Django",
        versions: ["5.2.5", "5.2.6", "5.2.7"],
    },
    Package {
        name: TEXT,
        client: Client::Pip,
        registered: "google-api-python-client",
        versions: ["2.181.0", "2.182.0", "2.183.0"],
    },
    Package {
        name: "numpy",
        client: Client::Pip,
        registered: "numpy",
        versions: ["2.3.2", "2.3.3", "2.3.4"],
    },
    Package {
        name: "typescript",
        client: Client::Npm,
        registered: "typescript",
        versions: ["5.8.3", "5.9.2", "5.9.3"],
    },
];

/// The package to which the benchmark's goals for text apply.
pub(crate) const TEXT: &str = "api-descriptions";

const SETS: usize = 3;

impl Corpus {
    /// Returns the corpus in `folder` and fetches missing packages. `few` skips the large packages.
    pub(crate) fn ensure(folder: &Path, few: bool, synthetic: bool) -> anyhow::Result<Self> {
        if synthetic {
            return synthetic_corpus(folder);
        }
        let wanted: Vec<Package> = PACKAGES
            .into_iter()
            .filter(|package| !few || matches!(package.name, "django" | "typescript"))
            .collect();
        let mut packages = Vec::new();
        for package in wanted {
            match package.ensure(folder) {
                Ok(()) => packages.push(package.name),
                Err(error) => say(format!("{}: skipped: {error:#}\n", package.name)),
            }
        }
        if packages.is_empty() {
            say(
                "\nNO PACKAGE COULD BE FETCHED: the following results are of a generated corpus.\n\n",
            );
            return synthetic_corpus(folder);
        }
        Ok(Self {
            sets: (1..=SETS).map(|set| folder.join(set.to_string())).collect(),
            packages,
            synthetic: false,
        })
    }

    /// Returns the path of the tar file of a package in a set. Sets are counted from 0.
    pub(crate) fn tar(&self, set: usize, package: &str) -> PathBuf {
        self.sets[set].join(format!("{package}.tar"))
    }

    /// Returns the paths of the tar files of a set.
    pub(crate) fn tars(&self, set: usize) -> Vec<PathBuf> {
        let tars = self.packages.iter().map(|package| self.tar(set, package));
        tars.collect()
    }
}

impl Package {
    fn ensure(&self, folder: &Path) -> anyhow::Result<()> {
        for (set, version) in self.versions.iter().enumerate() {
            let set = folder.join((set + 1).to_string());
            let tar = set.join(format!("{}.tar", self.name));
            if tar.is_file() {
                continue;
            }
            fs::create_dir_all(&set)?;
            say(format!("fetching {} {version}\n", self.registered));
            let work = folder.join("work");
            _ = fs::remove_dir_all(&work);
            fs::create_dir_all(work.join("tree"))?;
            self.fetch(version, &work)?;
            let unfinished = work.join("tar");
            run(Command::new("tar")
                .args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0"])
                .args(["--numeric-owner", "--mode=u=rwX,go=rX", "--format=ustar"])
                .arg("-cf")
                .arg(&unfinished)
                .arg("-C")
                .arg(work.join("tree"))
                .arg("."))?;
            fs::rename(&unfinished, &tar)?;
            fs::remove_dir_all(&work)?;
        }
        Ok(())
    }

    /// Fetches a version and unpacks it into `work/tree`.
    fn fetch(&self, version: &str, work: &Path) -> anyhow::Result<()> {
        let packed = work.join("packed");
        fs::create_dir(&packed)?;
        match self.client {
            Client::Pip => {
                // These options select the same files for any Python version and machine.
                run(Command::new("python3")
                    .args(["-m", "pip", "download", "--quiet", "--no-deps"])
                    .args(["--disable-pip-version-check", "--only-binary", ":all:"])
                    .args(["--python-version", "3.12"])
                    .args(["--platform", "manylinux_2_28_x86_64", "--dest"])
                    .arg(&packed)
                    .arg(format!("{}=={version}", self.registered)))?;
                run(Command::new("python3")
                    .args(["-m", "zipfile", "-e"])
                    .arg(only_file(&packed)?)
                    .arg(work.join("tree")))
            }
            Client::Npm => {
                run(Command::new("npm")
                    .args(["pack", "--silent"])
                    .arg(format!("{}@{version}", self.registered))
                    .current_dir(&packed))?;
                run(Command::new("tar")
                    .arg("-xzf")
                    .arg(only_file(&packed)?)
                    .arg("-C")
                    .arg(work.join("tree")))
            }
        }
    }
}

fn only_file(folder: &Path) -> anyhow::Result<PathBuf> {
    let mut entries = fs::read_dir(folder)?;
    let entry = entries.next().context("no file was fetched")??;
    ensure!(entries.next().is_none(), "more than one file was fetched");
    Ok(entry.path())
}

/// Runs a command without output and with a timeout of five minutes.
fn run(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    if find(&program).is_err() {
        bail!("{program} is not installed");
    }
    let mut bounded = Command::new("timeout");
    bounded.arg("300").arg(&program).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        bounded.current_dir(folder);
    }
    let output = bounded
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{program} cannot be run"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = stderr.trim().lines().last().unwrap_or_default().to_owned();
    ensure!(output.status.success(), "{program}: {last}");
    Ok(())
}

/// Generates two synthetic packages: prose of random words and tables of numbers, each edited twice.
fn synthetic_corpus(folder: &Path) -> anyhow::Result<Corpus> {
    let folder = folder.join("synthetic");
    let sets: Vec<PathBuf> = (1..=SETS).map(|set| folder.join(set.to_string())).collect();
    for (set, path) in sets.iter().enumerate() {
        fs::create_dir_all(path)?;
        for (name, write) in [
            (TEXT, prose as fn(&mut Random, usize) -> Vec<u8>),
            ("tables", tables),
        ] {
            let tar = path.join(format!("{name}.tar"));
            if !tar.is_file() {
                let unfinished = path.join("unfinished");
                let mut file = fs::File::create(&unfinished)?;
                file.write_all(&edition_text(write, set))?;
                fs::rename(&unfinished, &tar)?;
            }
        }
    }
    Ok(Corpus {
        sets,
        packages: vec![TEXT, "tables"],
        synthetic: true,
    })
}

/// Returns an edition of a text. The text consists of sections of about 4 KB. Each edition rewrites one section
/// in fifty and keeps the others.
fn edition_text(write: fn(&mut Random, usize) -> Vec<u8>, edition: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for section in 0..SECTIONS {
        // The section has the text of the last edition that rewrote it. Edition 0 is the original text.
        let editions = (1..=edition).rev();
        let mut last =
            editions.filter(|edition| Random::from_seed(section * 31 + edition).below(50) == 0);
        let edition = last.next().unwrap_or(0);
        let mut random = Random::from_seed(1_000_000 + section * 10 + edition);
        bytes.extend(write(&mut random, section));
    }
    bytes
}

fn prose(random: &mut Random, section: usize) -> Vec<u8> {
    let mut text = format!("\n== {section}\n").into_bytes();
    for word in 0..700 {
        // Few words are frequent, and each word always has the same letters.
        let ranks = 1 << (1 + random.below(12));
        let rank = random.below(ranks);
        let mut letters = Random::from_seed(rank);
        for _ in 0..2 + letters.below(8) {
            text.push(b'a' + letters.below(26) as u8);
        }
        text.push(if word % 12 == 11 { b'\n' } else { b' ' });
    }
    text
}

fn tables(random: &mut Random, section: usize) -> Vec<u8> {
    let mut table = (section as u64).to_le_bytes().to_vec();
    for row in 0..200 {
        let noise = [random.below(1 << 16), random.below(1 << 30)];
        let row = [row, section, noise[0], noise[1]];
        table.extend(row.into_iter().flat_map(|n| (n as u32).to_le_bytes()));
    }
    table
}

const SECTIONS: usize = 5000;

/// A generator of pseudo-random numbers: SplitMix64.
struct Random(u64);

impl Random {
    fn from_seed(seed: usize) -> Self {
        Self((seed as u64).wrapping_mul(0xd134_2543_de82_ef95))
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// An edition shares nearly all lines, but not all, with the previous one.
    #[test]
    fn most_lines_of_two_editions_are_equal() {
        let lines = |edition| -> Vec<Vec<u8>> {
            let text = edition_text(prose, edition);
            let lines = text.split(|byte| *byte == b'\n');
            lines.map(<[u8]>::to_vec).collect()
        };
        let old: HashSet<_> = lines(0).into_iter().collect();
        let new = lines(1);
        let same = new.iter().filter(|line| old.contains(*line)).count();
        let most = new.len() * 95 / 100..new.len();
        assert!(most.contains(&same), "{same} of {}", new.len());
    }
}
