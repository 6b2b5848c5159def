//! Traces in oracleGeneral, which both edgeward and libCacheSim read.
//!
//! A record has 24 bytes: time (4), key (8), size (4), and the number of the next request for the key (8), all
//! little-endian.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

const RECORD_BYTES: usize = 24;

/// A trace file in which each object has one size.
#[derive(Clone, Debug)]
pub(crate) struct OracleTrace {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) requests: u64,
    pub(crate) objects: u64,
    pub(crate) footprint_bytes: u64,
}

impl OracleTrace {
    /// Converts a trace of any format, unless `folder` has a converted trace of the same name from an earlier run.
    pub(crate) fn convert(edgeward: &Path, source: &Path, folder: &Path) -> anyhow::Result<Self> {
        let file = source.file_name().context("the trace has no file name")?;
        let file = file.to_string_lossy();
        let name = file.split('.').next().unwrap_or(&file);
        Self::make(name, folder, |path| {
            let mut command = Command::new(edgeward);
            command
                .args(["trace", "convert", "--quiet", "--to", "oracle-general"])
                .args([source, path]);
            command
        })
    }

    /// Generates a trace with these arguments of `edgeward trace generate`, unless `folder` has a trace of this name.
    pub(crate) fn generate(
        edgeward: &Path,
        name: &str,
        arguments: &str,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        Self::make(name, folder, |path| {
            let mut command = Command::new(edgeward);
            command
                .args(["trace", "generate", "--quiet", "--to", "oracle-general"])
                .args(arguments.split_whitespace())
                .arg("--output")
                .arg(path);
            command
        })
    }

    fn make(name: &str, folder: &Path, command: impl Fn(&Path) -> Command) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join(format!("{name}.oracleGeneral"));
        let facts_path = folder.join(format!("{name}.json"));
        if let Ok(text) = fs::read_to_string(&facts_path) {
            return Self::from_facts(name, path, &serde_json::from_str(&text)?);
        }
        let mut command = command(&path);
        let status = command
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        ensure!(status.success(), "{command:?} failed");
        let mut records = fs::read(&path)?;
        let facts = keep_first_sizes(&mut records);
        fs::write(&path, records)?;
        // The facts are written last. If this run is interrupted before, the next run makes the trace again.
        fs::write(&facts_path, facts.to_string())?;
        Self::from_facts(name, path, &facts)
    }

    fn from_facts(name: &str, path: PathBuf, facts: &Value) -> anyhow::Result<Self> {
        let number = |key: &str| facts[key].as_u64().with_context(|| format!("no {key}"));
        Ok(Self {
            name: name.to_owned(),
            path,
            requests: number("requests")?,
            objects: number("objects")?,
            footprint_bytes: number("footprint_bytes")?,
        })
    }
}

/// Gives each record the first size of its object, as `edgeward simulate` does. Returns the facts of the trace.
fn keep_first_sizes(records: &mut [u8]) -> Value {
    let mut sizes: HashMap<[u8; 8], [u8; 4]> = HashMap::new();
    let mut footprint_bytes = 0_u64;
    for record in records.chunks_exact_mut(RECORD_BYTES) {
        let key = record[4..12].try_into().expect("the key has 8 bytes");
        let size = record[12..16].try_into().expect("the size has 4 bytes");
        let first = sizes.entry(key).or_insert_with(|| {
            footprint_bytes += u64::from(u32::from_le_bytes(size));
            size
        });
        record[12..16].copy_from_slice(first);
    }
    json!({
        "requests": records.len() / RECORD_BYTES,
        "objects": sizes.len(),
        "footprint_bytes": footprint_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_record_gets_the_first_size_of_its_object() {
        let record = |key: u64, size: u32| {
            let mut bytes = vec![0; RECORD_BYTES];
            bytes[4..12].copy_from_slice(&key.to_le_bytes());
            bytes[12..16].copy_from_slice(&size.to_le_bytes());
            bytes
        };
        let mut records = [record(7, 10), record(8, 3), record(7, 99)].concat();
        let facts = keep_first_sizes(&mut records);
        assert_eq!(
            records,
            [record(7, 10), record(8, 3), record(7, 10)].concat()
        );
        assert_eq!(facts["requests"], 3);
        assert_eq!(facts["objects"], 2);
        assert_eq!(facts["footprint_bytes"], 13);
    }
}
