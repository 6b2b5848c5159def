//! `edgeward filter keygen`: creates a key that signs a publisher's manifests.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use edgeward_filter::{Signer, from_hex, to_hex};

use crate::diagnostic::Diagnostic;
use crate::output;

/// Create the key of a publisher and print its public key
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct KeygenArgs {
    /// File of the secret key; an existing file is not overwritten
    #[arg(long, short, value_name = "FILE", required_unless_present = "public")]
    output: Option<PathBuf>,

    /// Print the public key of this existing secret key
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    public: Option<PathBuf>,
}

/// Creates or reads the key and prints the public key.
pub(crate) fn run(args: &KeygenArgs) -> anyhow::Result<ExitCode> {
    let signer = match (&args.public, &args.output) {
        (Some(path), _) => read(path)?,
        (None, Some(path)) => create(path)?,
        (None, None) => unreachable!("one of the two is required"),
    };
    let mut out = output::stdout();
    writeln!(out, "{}", signer.public())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn create(path: &Path) -> anyhow::Result<Signer> {
    let mut secret = [0; 32];
    rustix::rand::getrandom(&mut secret[..], rustix::rand::GetRandomFlags::empty())
        .context("cannot get random bytes from the system")?;
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let mut file = file.map_err(|error| {
        let diagnostic = match error.kind() {
            io::ErrorKind::AlreadyExists => Diagnostic::new("the key file exists already")
                .hint("clients would not trust a new key: give another file"),
            _ => Diagnostic::new(format!("cannot write the key: {error}")),
        };
        diagnostic.in_file(path)
    })?;
    writeln!(file, "{}", to_hex(&secret))
        .and_then(|()| file.sync_all())
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Signer::from_secret(secret))
}

/// Reads a secret key. Warns if other users can read the file.
pub(super) fn read(path: &Path) -> anyhow::Result<Signer> {
    let cannot = || format!("cannot read {}", path.display());
    let file = std::fs::File::open(path).with_context(cannot)?;
    let mode = file.metadata().with_context(cannot)?.permissions().mode();
    if mode & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "other users can read the secret key; run chmod 600");
    }
    let mut text = String::new();
    let read = file.take(KEY_BYTES_MAX).read_to_string(&mut text);
    read.with_context(cannot)?;
    let secret = from_hex(text.trim()).map_err(|error| {
        Diagnostic::new(format!("the file is not a secret key: {error}"))
            .in_file(path)
            .hint("create a key with `edgeward filter keygen -o FILE`")
    })?;
    Ok(Signer::from_secret(secret))
}

/// The number of bytes after which reading a key file stops. A key has 64 hex digits.
const KEY_BYTES_MAX: u64 = 1024;

const EXAMPLES: &str = "\
Examples:
  edgeward filter keygen -o publisher.key
  edgeward filter keygen --public publisher.key

The file is secret and stays with the publisher; the printed line is the public key
for every client.";
