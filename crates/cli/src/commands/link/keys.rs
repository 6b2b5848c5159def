//! `edgeward link keys`: lists, renews and revokes the certificates of a link, and changes its CA.

use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::{Args, Subcommand};
use serde_json::json;

use edgeward_link::{Certificate, EndpointName, KeyFolder, KeyFolderError};

use crate::diagnostic::Diagnostic;
use crate::output::{self, Column, Table};

/// List, renew and revoke the certificates of a link
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List all certificates with their end and their state
    List(ListArgs),
    /// Create a new certificate for an endpoint; the old one stays valid until it expires or is revoked
    Renew(RenewArgs),
    /// Write the certificates of an edge to the gateway's list of refused certificates
    Revoke(RevokeArgs),
    /// Change the CA, in two steps: without --finish begins, with --finish ends the change
    NewCa(NewCaArgs),
}

#[derive(Args, Debug)]
struct FolderArgs {
    /// Folder that `edgeward link keygen --out` created
    #[arg(long, value_name = "DIR", default_value = "keys")]
    keys: PathBuf,
}

#[derive(Args, Debug)]
#[command(after_long_help = "Examples:\n  edgeward link keys list --keys keys")]
struct ListArgs {
    #[command(flatten)]
    folder: FolderArgs,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_long_help = "Examples:\n  edgeward link keys renew paris gateway --days 365")]
struct RenewArgs {
    /// Names of endpoints, as `list` shows them
    #[arg(value_name = "NAME", required = true)]
    names: Vec<EndpointName>,

    #[command(flatten)]
    folder: FolderArgs,

    /// Validity of the certificates in days
    #[arg(long, value_name = "N", default_value_t = KeyFolder::DAYS, value_parser = days())]
    days: u32,
}

#[derive(Args, Debug)]
#[command(after_long_help = "Examples:\n  edgeward link keys revoke rome")]
struct RevokeArgs {
    /// Names of edges, as `list` shows them
    #[arg(value_name = "EDGE", required = true)]
    names: Vec<EndpointName>,

    #[command(flatten)]
    folder: FolderArgs,
}

#[derive(Args, Debug)]
#[command(
    after_long_help = "Examples:\n  edgeward link keys new-ca\n  edgeward link keys new-ca --finish"
)]
struct NewCaArgs {
    #[command(flatten)]
    folder: FolderArgs,

    /// Remove the old CA, after all certificates were renewed and copied
    #[arg(long)]
    finish: bool,
}

/// The values of `--days`: a day to a hundred years.
pub(super) fn days() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=36_500)
}

/// Runs the subcommand.
pub(crate) fn run(args: &KeysArgs) -> anyhow::Result<ExitCode> {
    let done = match &args.action {
        Action::List(args) => list(args),
        Action::Renew(args) => renew(args),
        Action::Revoke(args) => revoke(args),
        Action::NewCa(args) => new_ca(args),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn open(args: &FolderArgs) -> anyhow::Result<KeyFolder> {
    KeyFolder::open(&args.keys).map_err(|error| explain(&error))
}

fn list(args: &ListArgs) -> anyhow::Result<()> {
    let keys = open(&args.folder)?;
    let certificates = keys.certificates().map_err(|error| explain(&error))?;
    let now = SystemTime::now();
    if args.json {
        let rows = certificates.iter().map(|certificate| {
            let identity = &certificate.identity;
            json!({
                "name": identity.name(),
                "state": state(certificate, now),
                "expires": identity.expires_on(),
                "days_left": identity.days_left(now),
                "fingerprint": identity.fingerprint(),
            })
        });
        return output::print_json(&rows.collect::<Vec<_>>());
    }
    let columns = ["name", "state", "expires", "fingerprint"].map(Column::words);
    let mut table = Table::new(columns);
    for certificate in &certificates {
        let identity = &certificate.identity;
        table.row([
            identity.name(),
            state(certificate, now).to_owned(),
            identity.expires_on().unwrap_or_else(|| "never".to_owned()),
            identity.fingerprint(),
        ]);
    }
    let mut out = output::stdout();
    write!(out, "{table}")?;
    out.flush()?;
    Ok(())
}

/// The state of a certificate in the list.
fn state(certificate: &Certificate, now: SystemTime) -> &'static str {
    let days_left = certificate.identity.days_left(now);
    match days_left {
        _ if certificate.is_revoked => "revoked",
        Some(days) if days < 0 => "expired",
        Some(days) if days < KeyFolder::WARNING_DAYS => "expires soon",
        _ => "valid",
    }
}

fn renew(args: &RenewArgs) -> anyhow::Result<()> {
    let keys = open(&args.folder)?;
    let folder = args.folder.keys.display();
    let mut out = output::stdout();
    for name in &args.names {
        let renewed = keys.renew(name, args.days);
        let revoked = renewed.map_err(|error| explain(&error))?;
        if revoked > 0 {
            writeln!(
                out,
                "{name} has revoked certificates ({revoked}), which stay revoked. The new certificate is valid."
            )?;
        }
        writeln!(
            out,
            "Copy {folder}/{name} to the endpoint; it is secret. A running endpoint reads it again within a second."
        )?;
    }
    out.flush()?;
    Ok(())
}

fn revoke(args: &RevokeArgs) -> anyhow::Result<()> {
    let keys = open(&args.folder)?;
    let folder = args.folder.keys.display();
    let mut out = output::stdout();
    for name in &args.names {
        let revoked = keys.revoke(name).map_err(|error| explain(&error))?;
        match revoked.len() {
            0 => writeln!(out, "{name} was revoked before.")?,
            count => writeln!(out, "Revoked {name}: {count} certificates.")?,
        }
    }
    writeln!(
        out,
        "Copy {folder}/gateway/deny.txt to the gateway's folder of keys. A running gateway reads it again within a \
         second, and closes the connections of the edge."
    )?;
    out.flush()?;
    Ok(())
}

fn new_ca(args: &NewCaArgs) -> anyhow::Result<()> {
    let keys = open(&args.folder)?;
    let folder = args.folder.keys.display();
    let mut out = output::stdout();
    if args.finish {
        keys.end_new_authority().map_err(|error| explain(&error))?;
        writeln!(
            out,
            "Copy ca.pem of each folder in {folder} to its endpoint. Certificates of the old CA are then refused."
        )?;
    } else {
        keys.begin_new_authority()
            .map_err(|error| explain(&error))?;
        writeln!(
            out,
            "1. Copy ca.pem of each folder in {folder} to its endpoint, so that all endpoints accept both CAs.\n\
             2. Renew the certificates of the gateway and of each edge by `edgeward link keys renew`, and copy them.\n\
             3. Run `edgeward link keys new-ca --finish`."
        )?;
    }
    out.flush()?;
    Ok(())
}

/// Adds a hint to an error of the folder of keys.
pub(super) fn explain(error: &KeyFolderError) -> anyhow::Error {
    let diagnostic = Diagnostic::from_error(error);
    match error {
        KeyFolderError::File { path, source } if source.kind() == ErrorKind::AlreadyExists => {
            Diagnostic::new("keys exist already").in_file(path).hint(
                "overwriting these keys would lock out the endpoints that use them: give another folder, or add an \
                 edge by --add",
            )
        }
        KeyFolderError::NoAuthority(_) => diagnostic
            .hint(
                "give the folder that `edgeward link keygen --out DIR` created, with its folder `ca`; `link keygen \
                 --add` creates a CA only in a new or empty folder",
            ),
        KeyFolderError::NoStoreKey(path) => diagnostic.hint(format!(
            "copy store.key of an endpoint to {}",
            path.join("ca/store.key").display()
        )),
        KeyFolderError::NameTaken(name) => diagnostic.hint(format!(
            "give another name, or create a new certificate for `{name}` by `edgeward link keys renew {name}`, also \
             if the old one was revoked"
        )),
        KeyFolderError::UnknownName(_) => {
            diagnostic.hint("`edgeward link keys list` shows the names")
        }
        KeyFolderError::ReservedName(_) => {
            diagnostic.hint("`ca` and `gateway` are other folders: give another name")
        }
        KeyFolderError::NoEdge(_) => diagnostic.hint(
            "`edgeward link keys new-ca` creates a CA; endpoints that have only the new one refuse the old certificates",
        ),
        KeyFolderError::OldAuthorityInUse(name) => diagnostic.hint(format!(
            "run `edgeward link keys renew {name}` and copy its folder, or remove the folder if no endpoint uses it"
        )),
        KeyFolderError::OtherAuthority(path) => diagnostic.hint(format!(
            "{} must belong to the first certificate in ca.pem",
            path.join("key.pem").display()
        )),
        _ => diagnostic,
    }
    .into()
}

const EXAMPLES: &str = "\
Examples:
  edgeward link keys list
  edgeward link keys renew paris --days 365
  edgeward link keys revoke rome
  scp keys/gateway/deny.txt gateway.example:/etc/edgeward/keys/";
