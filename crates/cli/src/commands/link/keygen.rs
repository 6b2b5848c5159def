//! `edgeward link keygen`: creates all keys of a link.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use edgeward_link::{KeysError, generate_keys};

use crate::diagnostic::Diagnostic;
use crate::output;

/// Create the keys of a link: a private CA, and a folder for each endpoint
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct KeygenArgs {
    /// Folder of the keys; existing files are not overwritten
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Creates the keys and prints to which machine the user must copy each folder.
pub(crate) fn run(args: &KeygenArgs) -> anyhow::Result<ExitCode> {
    generate_keys(&args.out).map_err(|error| match &error {
        KeysError::File { path, source } if source.kind() == std::io::ErrorKind::AlreadyExists => {
            Diagnostic::new("keys exist already")
                .in_file(path)
                .hint("overwriting these keys would lock out the endpoints that use them: give another folder")
                .into()
        }
        _ => anyhow::Error::from(Diagnostic::from_error(&error)),
    })?;
    let mut out = output::stdout();
    let folder = args.out.display();
    writeln!(out, "Copy {folder}/gateway to the gateway")?;
    writeln!(out, "and {folder}/edge to the edges; both are secret.")?;
    writeln!(
        out,
        "Keep {folder}/ca elsewhere: it is needed only to create more certificates."
    )?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

const EXAMPLES: &str = "\
Each endpoint's folder has ca.pem, cert.pem, key.pem, and store.key, the key of chunk ids,
which must be the same at both endpoints. The certificates do not expire; to exclude an
endpoint, deny its certificate with `edgeward gateway --deny`, or create new keys for all others.

Examples:
  edgeward link keygen --out keys
  scp -r keys/gateway gateway.example:/etc/edgeward/keys
  scp -r keys/edge edge.example:/etc/edgeward/keys";
