//! `edgeward init`: writes a commented configuration for an origin.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf, absolute};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use edgeward_types::ByteSize;
use serde_json::json;

use crate::config;
use crate::diagnostic::Diagnostic;
use crate::memory;
use crate::output;

/// Write a configuration for an origin, with comments
///
/// Asks nothing and sends nothing. Memory and disk follow from this machine: a quarter of its memory, and half of the
/// free space, at most 100 GiB. For stdout and files below /etc, paths are those of the packages (/var/cache/edgeward,
/// /run/edgeward); for another file, disk and admin socket are beside it.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct InitArgs {
    /// URL of the server behind the edge
    #[arg(value_name = "ORIGIN", default_value = "http://127.0.0.1:9000")]
    origin: String,

    /// The file to write, or - for stdout
    #[arg(long, value_name = "FILE", default_value = "edgeward.toml")]
    out: PathBuf,

    /// Address and port for HTTP [default: port 8080, or port 80 with --name]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,

    /// Address and port for HTTPS [default: port 443]
    #[arg(long, value_name = "ADDR", requires = "name")]
    listen_https: Option<String>,

    /// Public name of the site: HTTPS with a certificate that renews itself; repeatable
    #[arg(long, value_name = "HOST")]
    name: Vec<String>,

    /// Memory for hot objects [default: a quarter of the machine's]
    #[arg(long, value_name = "SIZE")]
    hot: Option<ByteSize>,

    /// Size of the disk cache, 0 for none [default: half of the free space]
    #[arg(long, value_name = "SIZE")]
    disk: Option<ByteSize>,

    /// Replace the file if it exists
    #[arg(long)]
    force: bool,

    /// Print the result as JSON; not with --out -
    #[arg(long)]
    json: bool,
}

/// Writes the file, checks it, and prints the next commands. To stdout it writes the file alone. Exit code 2 if the
/// file exists or a value is not valid.
pub(crate) fn run(args: &InitArgs) -> anyhow::Result<ExitCode> {
    let places = Places::of(&args.out)?;
    let machine = Machine {
        memory: memory::available(),
        free: free_space(&places.disk),
    };
    let plan = Plan::new(args, places, machine);
    if args.out.as_os_str() == "-" {
        if args.json {
            return Err(Diagnostic::new("--json and --out - both write to stdout")
                .hint("leave one of them out")
                .into());
        }
        // The folders of the packages may be absent here.
        let beside = Places::of(&std::env::temp_dir().join("edgeward.toml"))?;
        let mut checked = Plan::new(args, beside, machine);
        checked.disk = None;
        check_text(&checked.text())?;
        let mut out = output::stdout();
        out.write_all(plan.text().as_bytes())?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    write_checked(&args.out, &plan.text(), args.force)?;
    let (file, url, admin) = (args.out.display(), plan.url(), &plan.places.admin);
    if args.json {
        output::print_json(&json!({
            "file": args.out,
            "origin": plan.origin,
            "listen": plan.listen,
            "hot_bytes": plan.hot.bytes(),
            "disk_bytes": plan.disk.map(ByteSize::bytes),
            "admin": admin,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let disk = match plan.disk {
        Some(disk) => format!("disk {disk} in {}", plan.places.disk.display()),
        None => "no disk".to_owned(),
    };
    let mut out = output::stdout();
    writeln!(
        out,
        "wrote {file}: origin {}, clients at {}, memory {}, {disk}\n\n\
         next:\n  edgeward serve --config {file}\n  curl -i {url}\n  edgeward status --admin {admin}",
        plan.origin, plan.listen, plan.hot,
    )?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The places of disk cache and admin socket.
struct Places {
    disk: PathBuf,
    admin: String,
    certificates: PathBuf,
}

impl Places {
    /// A file below `/etc` is that of a package, whose service owns `/var/cache/edgeward` and `/run/edgeward`. A text
    /// for stdout becomes such a file by `sudo tee`.
    fn of(out: &Path) -> anyhow::Result<Self> {
        let file = absolute(out).context("the path of --out is not valid")?;
        if out.as_os_str() == "-" || file.starts_with("/etc") {
            return Ok(Self {
                disk: "/var/cache/edgeward/disk".into(),
                admin: "unix:/run/edgeward/admin.sock".to_owned(),
                certificates: "/var/lib/edgeward/acme".into(),
            });
        }
        let folder = file.parent().unwrap_or(&file);
        Ok(Self {
            disk: folder.join("edgeward-disk"),
            admin: format!("unix:{}", folder.join("edgeward-admin.sock").display()),
            certificates: folder.join("edgeward-certificates"),
        })
    }
}

/// The resources that the defaults follow from. `None` if the system does not tell.
#[derive(Clone, Copy)]
struct Machine {
    memory: Option<ByteSize>,
    free: Option<ByteSize>,
}

/// The values of the file.
struct Plan {
    origin: String,
    listen: String,
    listen_https: String,
    /// The names that get a certificate.
    names: Vec<String>,
    hot: ByteSize,
    disk: Option<ByteSize>,
    places: Places,
}

impl Plan {
    fn new(args: &InitArgs, places: Places, machine: Machine) -> Self {
        let quarter = |memory: ByteSize| ByteSize((memory.bytes() / 4).max(HOT_MIN.bytes()));
        let hot = args.hot.or_else(|| machine.memory.map(quarter));
        let half = |free: ByteSize| ByteSize((free.bytes() / 2).min(DISK_MAX.bytes()));
        let disk = args.disk.or_else(|| machine.free.map(half));
        Self {
            origin: args.origin.clone(),
            listen: args.listen.clone().unwrap_or_else(|| {
                let port = if args.name.is_empty() { 8080 } else { 80 };
                format!("0.0.0.0:{port}")
            }),
            listen_https: args
                .listen_https
                .clone()
                .unwrap_or_else(|| "0.0.0.0:443".to_owned()),
            names: args.name.clone(),
            hot: whole(hot.unwrap_or(HOT_MIN)),
            disk: disk.filter(|disk| *disk >= DISK_MIN).map(whole),
            places,
        }
    }

    /// The URL at which a client on this machine reaches the edge.
    fn url(&self) -> String {
        if let Some(name) = self.names.first() {
            let port = self.listen_https.rsplit(':').next().unwrap_or_default();
            return match port {
                "443" => format!("https://{name}/"),
                port => format!("https://{name}:{port}/"),
            };
        }
        let host_port = self.listen.replace("0.0.0.0:", "127.0.0.1:");
        format!("http://{}/", host_port.replace("[::]:", "[::1]:"))
    }

    /// The text of the file.
    fn text(&self) -> String {
        let Self {
            origin,
            listen,
            listen_https,
            names,
            hot,
            disk,
            places,
        } = self;
        // A string of JSON is one of TOML, too.
        let text = |value: &str| json!(value).to_string();
        let (origin, listen, admin) = (text(origin), text(listen), text(&places.admin));
        let path = text(&places.disk.display().to_string());
        let disk = match disk {
            Some(disk) => format!("[[disk_device]]\npath = {path}\ncapacity = \"{disk}\"\n"),
            None => format!("#[[disk_device]]\n#path = {path}\n#capacity = \"10GiB\"\n"),
        };
        let https = match names.is_empty() {
            true => String::new(),
            false => format!(
                "\n[[listener]]\naddress = {}\nacme = true\n\n\
                 # A certificate for each name, from Let's Encrypt, whose terms of service you accept by these\n\
                 # lines. The issuer asks at port 80. docs/how-to/certificates.md has other issuers and challenges.\n\
                 [[acme]]\nnames = {}\nstate = {}\n#contact = [\"mailto:admin@example.org\"]\n",
                text(listen_https),
                json!(names),
                text(&places.certificates.display().to_string())
            ),
        };
        let mut file = String::new();
        _ = write!(
            file,
            "\
# The configuration of `edgeward serve`. `edgeward check-config FILE` checks it, and lists all settings with --all.
# After a change: `systemctl reload edgeward` or SIGHUP; no connection is lost.

# The addresses for clients.
[[listener]]
address = {listen}
{https}
# The server behind the edge. Its Cache-Control decides what is stored; the key default_ttl of a site gives responses
# without it a lifetime.
[[origin]]
name = \"default\"
url = {origin}

# Memory for hot objects. The process needs some more, at most memory.max.
[hot]
capacity = \"{hot}\"

# An object is written to disk at the second request that memory cannot answer, and survives a restart.
{disk}
# Metrics at /metrics, state at /status and by `edgeward status --admin {shown}`.
[admin]
address = {admin}

# Sites and rules: docs/how-to/sites.md. For example, the pages of one host are stored for five minutes, if the origin
# states no lifetime:
#[[site]]
#hosts = [\"www.example.org\"]
#default_ttl = {{ 200 = \"5min\" }}
#query.drop = [\"utm_*\"]
",
            shown = places.admin
        );
        file
    }
}

/// The least memory for objects, and the memory if that of the machine is not known.
const HOT_MIN: ByteSize = ByteSize(64 << 20);

/// Below this size there is no disk cache.
const DISK_MIN: ByteSize = ByteSize(1 << 30);

/// The highest size of the disk cache that `init` chooses. A cache keeps a small index of it in memory.
const DISK_MAX: ByteSize = ByteSize(100 << 30);

/// Rounds a size down to whole MiB, and to whole GiB if it is larger than 4 GiB.
fn whole(size: ByteSize) -> ByteSize {
    let unit = match size.bytes() {
        0..0x1_0000_0000 => 1 << 20,
        _ => 1 << 30,
    };
    ByteSize(size.bytes() / unit * unit)
}

/// Returns the free space of the file system that has, or will have, this path.
fn free_space(path: &Path) -> Option<ByteSize> {
    let existing = path.ancestors().find(|folder| folder.exists())?;
    let volume = rustix::fs::statvfs(existing).ok()?;
    Some(ByteSize(volume.f_bavail.saturating_mul(volume.f_frsize)))
}

/// Checks the text of a file as `check-config` does.
fn check_text(text: &str) -> anyhow::Result<()> {
    let file = std::env::temp_dir().join(format!("edgeward-init-{}.toml", std::process::id()));
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).open(&file);
    let written = opened.and_then(|mut out| out.write_all(text.as_bytes()));
    written.map_err(|error| Diagnostic::unreadable(&file, "cannot write", &error))?;
    let checked = config::load(Some(&file), &[]);
    _ = fs::remove_file(&file);
    checked?;
    Ok(())
}

/// Writes the file beside its place, checks it as `check-config` does, and moves it to its place.
fn write_checked(file: &Path, text: &str, replaces: bool) -> anyhow::Result<()> {
    if file.exists() && !replaces {
        let hint = "--force replaces it, --out names another file";
        return Err(Diagnostic::new(format!("{} exists", file.display()))
            .hint(hint)
            .into());
    }
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let unwritable = |error: io::Error| Diagnostic::unreadable(file, "cannot write", &error);
    let mut options = OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).open(&new);
    let written = opened.and_then(|mut out| out.write_all(text.as_bytes()));
    written.map_err(unwritable)?;
    let checked = config::load(Some(&new), &[]);
    if let Err(error) = checked {
        _ = fs::remove_file(&new);
        return Err(error.into());
    }
    fs::rename(&new, file).map_err(unwritable)?;
    Ok(())
}

const EXAMPLES: &str = "\
Examples:
  edgeward init http://127.0.0.1:9000 && edgeward serve --config edgeward.toml
  edgeward init http://10.0.0.7 --name www.example.org --out /etc/edgeward/edgeward.toml --force
  edgeward init http://10.0.0.7 --hot 4GiB --out - | sudo tee /etc/edgeward/edgeward.toml

Exit codes: 0 the file was written, 2 it exists, or a value is not valid.";

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(memory: u64, free: u64, disk: Option<ByteSize>) -> Plan {
        let args = InitArgs {
            origin: "http://127.0.0.1:9000".to_owned(),
            out: "/etc/edgeward/edgeward.toml".into(),
            listen: None,
            listen_https: None,
            name: Vec::new(),
            hot: None,
            disk,
            force: false,
            json: false,
        };
        let machine = Machine {
            memory: Some(ByteSize(memory)),
            free: Some(ByteSize(free)),
        };
        let places = Places::of(&args.out).expect("the path is valid");
        Plan::new(&args, places, machine)
    }

    #[test]
    fn memory_and_disk_follow_from_the_machine() {
        const GIB: u64 = 1 << 30;
        let sizes = |plan: Plan| (plan.hot.bytes(), plan.disk.map(ByteSize::bytes));
        assert_eq!(
            sizes(plan(32 * GIB, 500 * GIB, None)),
            (8 * GIB, Some(100 * GIB))
        );
        assert_eq!(
            sizes(plan(2 * GIB, 11 * GIB, None)),
            (GIB / 2, Some(5 * GIB))
        );
        // A machine with little memory and no free space gets the least memory and no disk.
        assert_eq!(sizes(plan(100 << 20, GIB, None)), (64 << 20, None));
        assert_eq!(
            sizes(plan(GIB, 50 * GIB, Some(ByteSize(0)))),
            (GIB / 4, None)
        );
    }

    #[test]
    fn each_plan_is_a_valid_configuration() {
        let folder = tempfile::tempdir().expect("the folder is created");
        for (n, disk) in [None, Some(ByteSize(0))].into_iter().enumerate() {
            let mut plan = plan(8 << 30, 40 << 30, disk);
            plan.places.disk = folder.path().join("a \"b\"");
            let file = folder.path().join(format!("{n}.toml"));
            write_checked(&file, &plan.text(), false).expect("the file is valid");
            let checked =
                config::load(Some(&file), &[]).unwrap_or_else(|error| panic!("{error:?}"));
            assert_eq!(checked.edge.hot.capacity, plan.hot);
            assert!(
                write_checked(&file, &plan.text(), false).is_err(),
                "the file exists"
            );
        }
        let mut https = plan(8 << 30, 0, None);
        https.names = vec!["www.example.org".to_owned(), "example.org".to_owned()];
        https.places.certificates = folder.path().join("certificates");
        let file = folder.path().join("https.toml");
        let written = write_checked(&file, &https.text(), false);
        assert_eq!(written.is_ok(), cfg!(feature = "acme"), "{written:?}");
        assert_eq!(https.url(), "https://www.example.org/");
        assert_eq!(check_text(&https.text()).is_ok(), cfg!(feature = "acme"));
        https.listen_https = "127.0.0.1:8443".to_owned();
        assert_eq!(https.url(), "https://www.example.org:8443/");
        assert!(
            https
                .text()
                .contains("address = \"127.0.0.1:8443\"\nacme = true\n")
        );
        let mut wrong = plan(8 << 30, 0, None);
        wrong.origin = "ftp://example.org".to_owned();
        let file = folder.path().join("wrong.toml");
        assert!(write_checked(&file, &wrong.text(), false).is_err());
        assert_eq!(
            fs::read_dir(folder.path()).expect("the folder").count(),
            if cfg!(feature = "acme") { 3 } else { 2 }
        );
    }
}
