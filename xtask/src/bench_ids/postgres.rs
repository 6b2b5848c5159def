//! A PostgreSQL server from Debian, with default settings except for those that loading needs.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::bench_shared::process::{Server, find, free_port};

use super::folder;
use super::plan::Table;

#[derive(Debug)]
pub(super) struct Postgres {
    folder: PathBuf,
    port: u16,
    version: String,
    server: Server,
}

impl Postgres {
    /// Starts a server with data in a folder below `parent`; data of an earlier run is used again. The server may use
    /// all cores.
    pub(super) fn start(parent: &Path) -> anyhow::Result<Self> {
        let folder = folder(parent, "postgres")?;
        if is_root() {
            chown(&folder, Some(UNPRIVILEGED_USER), Some(UNPRIVILEGED_USER))
                .context("the owner of the folder cannot be changed")?;
        }
        let data = folder.join("data");
        if !data.join("PG_VERSION").exists() {
            let made = as_unprivileged_user("initdb")?
                .args(["--auth=trust", "--username=edgeward", "--no-sync"])
                .args(["--encoding=UTF8", "--no-locale", "--pgdata"])
                .arg(&data)
                .output()?;
            let text = String::from_utf8_lossy(&made.stderr);
            ensure!(made.status.success(), "initdb: {}", text.trim());
        }
        let version = fs::read_to_string(data.join("PG_VERSION"))?;
        let port = free_port()?;
        // These settings speed up loading: no fsync, fewer checkpoints, and more memory for building the primary key.
        let settings = format!(
            "-D {} -p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
             -c fsync=off -c max_wal_size=8GB -c maintenance_work_mem=1GB",
            data.display()
        );
        let (program, mut arguments) = program_and_arguments(&as_unprivileged_user("postgres")?);
        arguments.extend(settings.split_whitespace().map(str::to_owned));
        let log = parent.to_owned();
        let server = Server::start_unpinned("postgres", &program, &arguments, port, &log)?;
        Ok(Self {
            folder,
            port,
            version: format!("PostgreSQL {}", version.trim()),
            server,
        })
    }

    /// Creates the table again, with ids computed from the row numbers.
    pub(super) fn load(&self, table: Table) -> anyhow::Result<()> {
        let body = match table.body_bytes {
            0 => "NULL::bytea".to_owned(),
            // Each body repeats 16 bytes that are unique to the row. PostgreSQL compresses no row below about 2 kB,
            // so short bodies keep their size.
            bytes => format!(
                "decode(repeat(md5(n::text || 'b'), {}), 'hex')",
                bytes.div_ceil(16)
            ),
        };
        for sql in [
            format!("DROP TABLE IF EXISTS {table}"),
            format!(
                "CREATE TABLE {table} AS SELECT md5(n::text)::uuid AS id, {body} AS body \
                 FROM generate_series(1, {}) AS n",
                table.ids
            ),
            format!("ALTER TABLE {table} ADD PRIMARY KEY (id)"),
            format!("VACUUM ANALYZE {table}"),
            "CHECKPOINT".to_owned(),
        ] {
            let done = Command::new(find("psql")?)
                .args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"])
                .args(["--username=edgeward", "--host=127.0.0.1"])
                .args(["--port", &self.port.to_string(), "--dbname=postgres"])
                .args(["--command", &sql])
                .output()
                .context("psql cannot be started")?;
            let text = String::from_utf8_lossy(&done.stderr);
            ensure!(done.status.success(), "{sql}: {}", text.trim());
        }
        Ok(())
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    pub(super) fn address(&self) -> String {
        format!("postgres://edgeward@127.0.0.1:{}/postgres", self.port)
    }

    pub(super) fn pid(&self) -> u32 {
        self.server.pid()
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Returns a command that runs a PostgreSQL program, as an unprivileged user if this process is root. Debian
/// installs these programs outside `PATH`, and they refuse to run as root.
fn as_unprivileged_user(name: &str) -> anyhow::Result<Command> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut found = versions
        .flatten()
        .map(|version| version.path().join("bin").join(name))
        .filter(|program| program.is_file());
    let program = match found.next() {
        Some(program) => program,
        None => find(name).context("the Debian package is postgresql")?,
    };
    let mut command = Command::new(if is_root() {
        Path::new("setpriv")
    } else {
        &program
    });
    command.current_dir("/");
    if is_root() {
        let user = UNPRIVILEGED_USER.to_string();
        // Changing the user clears the parent-death signal, so it is set again.
        command.args(["--pdeathsig", "TERM", "--clear-groups"]);
        command.args(["--reuid", &user, "--regid", &user]);
        command.arg(&program);
    }
    Ok(command)
}

fn program_and_arguments(command: &Command) -> (PathBuf, Vec<String>) {
    let arguments = command.get_args();
    let arguments = arguments.map(|word| word.to_string_lossy().into_owned());
    (command.get_program().into(), arguments.collect())
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// The id of the user and the group `nobody`.
const UNPRIVILEGED_USER: u32 = 65534;
