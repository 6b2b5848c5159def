//! `edgeward migrate`: translates the configuration of another server.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf, absolute};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use edgeward_migrate::{FILE_BYTES_MAX, MigrateError, Migration, Paths, Sources};
use serde_json::json;

use crate::config;
use crate::diagnostic::{self, Diagnostic, Diagnostics};
use crate::output;

/// Translate a configuration of nginx, Varnish or Caddy
///
/// Writes a configuration of edgeward with the source of each setting, and a report with one entry for each directive
/// or statement: translated, translated with a difference, not needed, or left out. Files are read with all that they
/// include; a file of sites-available or conf.d alone will do, too.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct MigrateArgs {
    /// The files to translate, for example /etc/nginx/nginx.conf
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// The file to write, or - for stdout
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,

    /// The file of the report, or - for stdout [default: stderr]
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// The server whose configuration it is [default: by the name: *.vcl, Caddyfile, otherwise nginx]
    #[arg(long, value_name = "SERVER")]
    from: Option<Server>,

    /// The folder at which relative paths start [default: that of nginx.conf, or of the file]
    #[arg(long, value_name = "FOLDER")]
    prefix: Option<PathBuf>,

    /// Replace files that exist
    #[arg(long)]
    force: bool,

    /// Print the report, and the configuration without --out, as JSON
    #[arg(long)]
    json: bool,
}

// The limit that the translation knows is that of the sites.
const _: () = assert!(edgeward_migrate::SITE_RULES_MAX == edgeward_sites::RULES_MAX);

/// A server whose configuration can be translated.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Server {
    Nginx,
    Varnish,
    Caddy,
}

impl Server {
    /// Returns the server whose configurations have such names.
    fn of_file(file: &Path) -> Self {
        let is_end = |end: &str| file.extension().is_some_and(|of_file| of_file == end);
        let is_caddyfile = file.file_name().is_some_and(|name| name == "Caddyfile");
        if is_end("vcl") {
            Self::Varnish
        } else if is_caddyfile || is_end("caddyfile") || is_end("caddy") {
            Self::Caddy
        } else {
            Self::Nginx
        }
    }

    /// Returns the way out if a configuration has no origin.
    fn hint_without_origin(self) -> &'static str {
        match self {
            Self::Nginx => {
                "the edge needs a server with proxy_pass; give nginx.conf itself, or the file of a site that has one"
            }
            Self::Varnish => {
                "the edge needs a backend with a host; give the file that varnishd -f names"
            }
            Self::Caddy => {
                "the edge needs a site with reverse_proxy; give the Caddyfile that has one"
            }
        }
    }

    /// Returns the way out if a host has more rules than a site may have.
    fn hint_with_too_many_rules(self) -> &'static str {
        match self {
            Self::Nginx => {
                "join locations with the same directives in one expression, such as location ~ ^/(a|b)/; each \
                 expression in a server is repeated behind each nested location and ^~, so fewer of these help, too"
            }
            Self::Varnish => {
                "join conditions with the same statements in one expression, such as req.url ~ \"^/(a|b)/\""
            }
            Self::Caddy => "join directives in one matcher, such as path /a/* /b/*",
        }
    }

    /// Returns the command that checks a configuration.
    fn check(self) -> &'static str {
        match self {
            Self::Nginx => "nginx -t",
            Self::Varnish => "varnishd -C -f",
            Self::Caddy => "caddy adapt",
        }
    }
}

/// Translates, checks and writes. Exit codes: 0 all translated, 1 something that changes caching, access or responses
/// was left out, 2 the input cannot be read, or its translation is empty.
pub(crate) fn run(args: &MigrateArgs) -> anyhow::Result<ExitCode> {
    let server = args.from.unwrap_or_else(|| Server::of_file(&args.files[0]));
    let prefix = args
        .prefix
        .clone()
        .unwrap_or_else(|| prefix_of(server, &args.files[0]));
    let text = |path: &Path| path.display().to_string();
    let files: Vec<String> = args.files.iter().map(|file| text(file)).collect();
    let paths = Paths {
        prefix: text(&prefix),
        disk: text(&disk_of(&args.out)),
    };
    let migration = match server {
        Server::Nginx => edgeward_migrate::nginx(&Disk, &files, &paths),
        Server::Varnish => edgeward_migrate::vcl(&Disk, &files, &paths.prefix),
        Server::Caddy => edgeward_migrate::caddy(&Disk, &files, &paths.prefix),
    };
    let migration = migration.map_err(|error| {
        let diagnostic = Diagnostic::from_error(&error);
        match error {
            MigrateError::Empty => diagnostic.hint(server.hint_without_origin()),
            MigrateError::TooManyRules { .. } => diagnostic.hint(server.hint_with_too_many_rules()),
            _ => diagnostic,
        }
    })?;
    let is_stdout = |path: &Path| path == Path::new("-");
    let folder = match is_stdout(&args.out) {
        true => Path::new(""),
        false => args.out.parent().unwrap_or_else(|| Path::new("")),
    };
    if let Err(Diagnostics(all)) = config::check_text(&migration.toml, folder) {
        // The input may be that of another machine, whose certificates and folders are not here.
        let (absent, faults): (Vec<_>, Vec<_>) =
            all.into_iter().partition(Diagnostic::is_absent_file);
        diagnostic::print_warnings(&absent);
        if !faults.is_empty() {
            diagnostic::print(&Diagnostics(with_lines(faults, &migration.toml)).into());
            return Err(Diagnostic::new("the translation is not a valid configuration")
                .hint(format!(
                    "correct the lines of the input that the errors name, if {} refuses them, too; else this is a \
                     fault of edgeward: please report it with these lines",
                    server.check()
                ))
                .into());
        }
    }
    let report = migration.report.to_text();
    if !is_stdout(&args.out) {
        write(&args.out, &migration.toml, args.force)?;
    }
    match &args.report {
        Some(path) if !is_stdout(path) => write(path, &report, args.force)?,
        _ => {}
    }
    print(args, &migration, &report)?;
    let has_losses = migration.report.losses().next().is_some();
    Ok(ExitCode::from(u8::from(has_losses)))
}

/// Adds the lines of the result, which name their sources, because the result is not written.
fn with_lines(faults: Vec<Diagnostic>, toml: &str) -> Vec<Diagnostic> {
    let with_line = |fault: Diagnostic| {
        let line = fault.line().and_then(|line| toml.lines().nth(line - 1));
        match line {
            Some(line) => fault.in_file(format!("the result: {line}")),
            None => fault,
        }
    };
    faults.into_iter().map(with_line).collect()
}

/// Prints what is not written to a file.
fn print(args: &MigrateArgs, migration: &Migration, report: &str) -> anyhow::Result<()> {
    let is_stdout = args.out == Path::new("-");
    if args.json {
        return output::print_json(&json!({
            "file": (!is_stdout).then_some(&args.out),
            "toml": is_stdout.then_some(&migration.toml),
            "losses": migration.report.losses().count(),
            "entries": migration.report.entries,
        }));
    }
    let mut out = output::stdout();
    if is_stdout {
        out.write_all(migration.toml.as_bytes())?;
    }
    match &args.report {
        None => eprint!("{report}"),
        Some(path) if path == Path::new("-") => out.write_all(report.as_bytes())?,
        Some(_) => {}
    }
    out.flush()?;
    Ok(())
}

/// Returns the folder of `nginx.conf` around a file, or the folder of the file.
fn prefix_of(server: Server, file: &Path) -> PathBuf {
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    let has_main =
        |folder: &&Path| matches!(server, Server::Nginx) && folder.join("nginx.conf").is_file();
    let main = folder.ancestors().take(3).find(has_main).unwrap_or(folder);
    match main.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => main.to_owned(),
    }
}

/// Returns the store of the disk cache. A file below `/etc` is that of a package, whose service owns
/// `/var/cache/edgeward`; for another file, the store is beside it.
fn disk_of(out: &Path) -> PathBuf {
    let out = absolute(out).unwrap_or_else(|_| out.to_owned());
    let of_package = Path::new("/var/cache/edgeward");
    match out.starts_with("/etc") && of_package.is_dir() {
        true => of_package.join("disk"),
        false => out.with_file_name("edgeward-disk"),
    }
}

fn write(path: &Path, text: &str, replaces: bool) -> anyhow::Result<()> {
    if path.exists() && !replaces {
        let hint = "--force replaces it, or choose another file";
        return Err(Diagnostic::new(format!("{} exists", path.display()))
            .hint(hint)
            .into());
    }
    fs::write(path, text)
        .map_err(|error| Diagnostic::unreadable(path, "cannot write", &error).into())
}

/// The files of this machine.
struct Disk;

impl Sources for Disk {
    fn read(&self, path: &str) -> Result<String, String> {
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(|error| error.to_string())?;
        // One byte more than the limit, which the parser reports.
        let read = file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        let paths = glob::glob(pattern).into_iter().flatten().flatten();
        paths.map(|path| path.display().to_string()).collect()
    }
}

const EXAMPLES: &str = "\
Exit codes: 0 all translated, 1 something that changes caching, access or
responses was left out, 2 the input cannot be read or has no origin.

Examples:
  edgeward migrate /etc/nginx/nginx.conf --out edgeward.toml
  edgeward migrate /etc/nginx/sites-available/shop --out shop.toml --report shop.txt
  edgeward migrate /etc/varnish/default.vcl --out edgeward.toml
  edgeward migrate /etc/caddy/Caddyfile --out edgeward.toml
  edgeward migrate nginx.conf --json | jq '.entries[] | select(.outcome == \"left-out\")'";
