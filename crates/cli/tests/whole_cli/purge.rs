//! Tests `edgeward purge` with an origin and an edge as processes. The edge is killed and starts again.

use std::path::Path;
use std::process::Output;

use rustix::process::Signal;

use super::run::{Server, get, output, text, until};

/// An edge with a disk in `folder`, and an origin whose responses all have the tag `all`.
pub(super) struct Site<'a> {
    folder: &'a Path,
    origin: Server,
    edge: Server,
}

impl<'a> Site<'a> {
    pub(super) fn start(folder: &'a Path) -> Self {
        std::fs::write(folder.join("token"), "sixteen-or-more-characters\n").expect("written");
        let header = "--header=Surrogate-Key: all";
        let origin = Server::start(&["origin", "--listen=127.0.0.1:0", "--json", header]);
        let config = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n\
             [origin]\nurl = \"http://{}\"\n[hot]\ncapacity = \"1MiB\"\npolicy = \"lru\"\n\
             [[disk_device]]\npath = \"disk\"\ncapacity = \"64MiB\"\n[disk]\nadmission = \"always\"\n\
             [purge]\ntoken_file = \"token\"\n",
            origin.addr("/listen"),
        );
        std::fs::write(folder.join("edge.toml"), config).expect("written");
        let edge = Self::start_edge(folder);
        Self {
            folder,
            origin,
            edge,
        }
    }

    fn start_edge(folder: &Path) -> Server {
        let config = folder.join("edge.toml").display().to_string();
        Server::start(&["serve", "--json", "--config", &config])
    }

    fn kill_and_start(self) -> Self {
        self.edge.signal(Signal::KILL);
        self.edge.wait_for_end();
        let edge = Self::start_edge(self.folder);
        Self { edge, ..self }
    }

    pub(super) fn is_hit(&self, path: &str) -> bool {
        get(self.edge.addr("/listening/0"), path).contains("cache-status: edgeward; hit")
    }

    /// Stores objects of 100 kB, which only the disk can store, and waits until they can be read after a crash.
    pub(super) fn store(&self, paths: &[&str]) {
        for path in paths {
            self.is_hit(path);
        }
        let count = format!(" {}", paths.len());
        until("the objects are on disk", || {
            let metrics = get(self.edge.addr("/admin"), "/metrics");
            let is_count =
                |line: &&str| line.starts_with("edgeward_disk_objects{") && line.ends_with(&count);
            metrics.lines().find(is_count).map(|_| ())
        });
    }

    fn purge(&self, args: &[&str]) -> Output {
        self.run(&["purge"], args)
    }

    /// Runs a command that asks the admin server.
    pub(super) fn run(&self, command: &[&str], args: &[&str]) -> Output {
        let admin = self.edge.addr("/admin").to_string();
        let token = self.folder.join("token").display().to_string();
        let api = ["--admin", &admin, "--token-file", &token];
        output(&[command, &api[..], args].concat())
    }
}

#[test]
fn a_purge_that_the_command_reports_survives_a_kill() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = Site::start(folder.path());
    let paths = ["/o/1?size=100000", "/o/2?size=100000"];
    site.store(&paths);
    assert!(site.is_hit(paths[0]) && site.is_hit(paths[1]));
    let url = format!("http://localhost{}", paths[0]);
    let purged = site.purge(&[&url]);
    assert_eq!(text(&purged.stdout), "purged\n", "{purged:?}");
    let site = site.kill_and_start();
    assert!(
        !site.is_hit(paths[0]),
        "the purged URL is served after a kill"
    );
    let purged = site.purge(&["--tag", "all", "--prefix", "localhost/o/", "--json"]);
    assert_eq!(text(&purged.stdout), "{\"accepted\":2}\n", "{purged:?}");
    let site = site.kill_and_start();
    assert!(
        !site.is_hit(paths[1]),
        "the purged tag is served after a kill"
    );
    drop(site.origin);
}

#[test]
fn the_command_says_why_nothing_was_purged() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = Site::start(folder.path());
    let no_scope = site.purge(&[]);
    assert!(
        text(&no_scope.stderr).contains("does not say what to purge"),
        "{no_scope:?}"
    );
    let invalid = site.purge(&["example.com/no-scheme"]);
    assert_eq!(invalid.status.code(), Some(2));
    assert!(
        text(&invalid.stderr).contains("is not a URL"),
        "{invalid:?}"
    );
    let counted = site.purge(&["--tag", "all", "--dry-run"]);
    assert!(
        text(&counted.stdout).contains("would cover: 0 in memory, 0 on disk"),
        "{counted:?}"
    );
    std::fs::write(
        folder.path().join("token"),
        "another-token-of-32-characters",
    )
    .expect("written");
    let refused = site.purge(&["--tag", "all"]);
    assert!(
        text(&refused.stderr).contains("Authorization: Bearer"),
        "{refused:?}"
    );
}

/// Method: one bit of the last record is changed, and an object on disk that no purge covers was a hit before.
#[test]
fn an_edge_with_a_corrupt_log_of_purges_starts_and_purges_all_objects() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = Site::start(folder.path());
    assert!(site.purge(&["--tag", "all"]).status.success());
    site.store(&["/o/1?size=100000"]);
    assert!(site.is_hit("/o/1?size=100000"));
    site.edge.signal(Signal::KILL);
    site.edge.wait_for_end();
    let log = std::fs::read_dir(folder.path())
        .expect("a folder")
        .filter_map(Result::ok);
    let log = log
        .map(|entry| entry.path())
        .find(|path| path.ends_with("disk.purges"));
    let log = log.expect("the log lies beside the file of the disk");
    let mut bytes = std::fs::read(&log).expect("read");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&log, bytes).expect("written");
    let edge = Site::start_edge(folder.path());
    let site = Site { edge, ..site };
    assert!(!site.is_hit("/o/1?size=100000"));
    assert!(folder.path().join("disk.purges.damaged").exists());
}
