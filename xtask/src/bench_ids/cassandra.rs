//! A Cassandra node, started by `scripts/start-cassandra`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::bench_shared::process::free_port;

use super::folder;
use super::plan::Table;

#[derive(Debug)]
pub(super) struct Cassandra {
    folder: PathBuf,
    script: PathBuf,
    port: u16,
    pid: u32,
    version: String,
}

impl Cassandra {
    pub(super) fn start(root: &Path, parent: &Path) -> anyhow::Result<Self> {
        let mut node = Self {
            folder: folder(parent, "cassandra")?,
            script: root.join("scripts/start-cassandra"),
            port: free_port()?,
            pid: 0,
            version: String::new(),
        };
        node.run()?;
        Ok(node)
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let output = Command::new(&self.script)
            .arg(&self.folder)
            .arg(self.port.to_string())
            .output()
            .context("scripts/start-cassandra cannot be started: bash is needed")?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}", text.trim());
        let pid = fs::read_to_string(self.folder.join("pid"))
            .context("the file with the process id of the node")?;
        self.pid = pid
            .trim()
            .parse()
            .context("the file with the process id of the node")?;
        // The last line begins with "Cassandra" and the version.
        let words: Vec<&str> = text.lines().last().unwrap_or_default().split(' ').collect();
        self.version = words.iter().take(2).copied().collect::<Vec<_>>().join(" ");
        Ok(())
    }

    /// Writes the rows as SSTable files and makes the node import them.
    pub(super) fn load(&self, root: &Path, table: Table) -> anyhow::Result<()> {
        let scratch = folder(&self.folder, "scratch")?;
        let conf = self.folder.join("conf");
        // `access` has the JVM options and the class path that programs with Cassandra's classes need.
        let loaded = Command::new("java")
            .arg("-Xmx1500m")
            .arg(format!("@{}", conf.join("access").display()))
            .arg(format!(
                "-Dcassandra.config=file://{}/cassandra.yaml",
                conf.display()
            ))
            .arg(format!(
                "-Dlogback.configurationFile=file://{}/logback.xml",
                conf.display()
            ))
            .arg(root.join("bench/ids/FillCassandra.java"))
            // scripts/start-cassandra puts JMX on the second port after CQL's.
            .args([self.port.to_string(), (self.port + 2).to_string()])
            .args(["edgeward", &table.to_string()])
            .args([table.ids.to_string(), table.body_bytes.to_string()])
            .arg(&scratch)
            .status()
            .context("a JDK is needed\n  hint: scripts/ensure-debian cassandra")?;
        ensure!(loaded.success(), "the table could not be loaded");
        fs::remove_dir_all(&scratch).with_context(|| scratch.display().to_string())
    }

    fn stop(&self) {
        let pid = self.pid.to_string();
        _ = Command::new("kill").args(["-TERM", &pid]).status();
        let deadline = Instant::now() + STOP_TIMEOUT;
        let folder = PathBuf::from("/proc").join(&pid);
        // A node that has ended may remain as a zombie, which has a folder in /proc but no open files.
        while folder.join("fd/0").exists() {
            if Instant::now() > deadline {
                _ = Command::new("kill").args(["-KILL", &pid]).status();
            }
            sleep(Duration::from_millis(50));
        }
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    pub(super) fn address(&self) -> String {
        format!("cassandra://127.0.0.1:{}/edgeward", self.port)
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Cassandra {
    fn drop(&mut self) {
        if self.pid != 0 {
            self.stop();
        }
    }
}

const STOP_TIMEOUT: Duration = Duration::from_secs(60);
