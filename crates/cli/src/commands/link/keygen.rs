//! `edgeward link keygen`: creates all keys of a link.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use edgeward_link::{KeysError, generate};

use crate::complaint::Complaint;
use crate::output;

/// Create the keys of a link: a private CA, and a folder for each endpoint
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct KeygenArgs {
    /// Folder of the keys; existing files are not overwritten
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Creates the keys and says where each folder goes.
pub(crate) fn run(args: &KeygenArgs) -> anyhow::Result<ExitCode> {
    generate(&args.out).map_err(|error| match &error {
        KeysError::File { path, source } if source.kind() == std::io::ErrorKind::AlreadyExists => {
            Complaint::new("there are keys already")
                .in_file(path)
                .hint("ends with other keys would not be let in: name another folder")
                .into()
        }
        _ => anyhow::Error::from(Complaint::of(&error)),
    })?;
    let mut out = output::stdout();
    let shown = args.out.display();
    writeln!(out, "{shown}/gateway goes to the gateway,")?;
    writeln!(out, "{shown}/edge to the edges; both are secret.")?;
    writeln!(
        out,
        "{shown}/ca is needed for more certificates only: keep it off both."
    )?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

const EXAMPLES: &str = "\
Each end's folder has ca.pem, cert.pem, key.pem, and store.key, which names chunks and
must be the same at both ends. The certificates do not expire; to shut an end out, make
new keys for all the others.

Examples:
  edgeward link keygen --out keys
  scp -r keys/gateway gateway.example:/etc/edgeward/keys
  scp -r keys/edge edge.example:/etc/edgeward/keys";
