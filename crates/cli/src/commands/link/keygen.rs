//! `edgeward link keygen`: creates the keys of a link, or of another edge of a link.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use edgeward_link::{EndpointName, KeyFolder};

use super::keys::{days, explain};
use crate::output;

/// Create the keys of a link: a private CA, and a folder for each endpoint
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct KeygenArgs {
    /// Folder of the keys; existing files are not overwritten
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Create the keys of another edge with this name in an existing folder; repeatable
    #[arg(long, value_name = "EDGE")]
    add: Vec<EndpointName>,

    /// Validity of the certificates in days
    #[arg(long, value_name = "N", default_value_t = KeyFolder::DAYS, value_parser = days())]
    days: u32,
}

/// Creates the keys and prints to which machine the user must copy each folder.
pub(crate) fn run(args: &KeygenArgs) -> anyhow::Result<ExitCode> {
    let mut out = output::stdout();
    let folder = args.out.display();
    if args.add.is_empty() {
        KeyFolder::create(&args.out, args.days).map_err(|error| explain(&error))?;
        writeln!(out, "Copy {folder}/gateway to the gateway")?;
        writeln!(out, "and {folder}/edge to the edge; both are secret.")?;
        writeln!(
            out,
            "Keep {folder}/ca elsewhere: it is needed to add, renew and revoke certificates."
        )?;
    } else {
        let keys = KeyFolder::open(&args.out).map_err(|error| explain(&error))?;
        for edge in &args.add {
            keys.add(edge, args.days).map_err(|error| explain(&error))?;
            writeln!(out, "Copy {folder}/{edge} to the edge; it is secret.")?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

const EXAMPLES: &str = "\
Each endpoint's folder has ca.pem, cert.pem, key.pem, and store.key, the key of chunk ids,
which must be the same at all endpoints. Give each edge a folder of its own, so that its
certificate can be revoked alone. Endpoints warn 30 days before their certificate expires;
`edgeward link keys renew` creates a new one.

Examples:
  edgeward link keygen --out keys
  scp -r keys/gateway gateway.example:/etc/edgeward/keys
  scp -r keys/edge edge.example:/etc/edgeward/keys
  edgeward link keygen --out keys --add paris --add rome --days 365";
