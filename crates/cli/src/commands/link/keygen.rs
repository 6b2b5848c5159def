//! `edgeward link keygen`: creates the keys of a link, or of further edges of a link.

use std::fs;
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

    /// Create the keys of an edge with this name; repeatable. If DIR is new or empty, this creates the CA and the
    /// keys of the gateway, too
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
    let first_edge = [EndpointName::edge()];
    let edges = match &args.add[..] {
        [] => &first_edge,
        edges => edges,
    };
    let is_new = fs::read_dir(&args.out).map_or(true, |mut entries| entries.next().is_none());
    if is_new || args.add.is_empty() {
        KeyFolder::create(&args.out, edges, args.days).map_err(|error| explain(&error))?;
        writeln!(
            out,
            "Created a CA in {folder}/ca. Keep it elsewhere: it is needed to add, renew and revoke certificates."
        )?;
        writeln!(out, "Copy {folder}/gateway to the gateway; it is secret.")?;
    } else {
        let keys = KeyFolder::open(&args.out).map_err(|error| explain(&error))?;
        for edge in edges {
            keys.add(edge, args.days).map_err(|error| explain(&error))?;
        }
    }
    for edge in edges {
        writeln!(out, "Copy {folder}/{edge} to the edge; it is secret.")?;
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
  edgeward link keygen --out keys --add paris --add rome --days 365
In a new folder, the last command creates the CA and the keys of the gateway, too, but no keys
of an edge with the name `edge`.";
