//! `edgeward acme import`: takes the certificates of certbot over.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use edgeward_acme_client::import_certbot;

use super::config_file::ConfigArgs;
use crate::output;

/// Take the certificates of certbot over, for the names of the configuration
///
/// Copies the newest certificate of each name from `live` to the folder of the state; the edge must not run. The edge
/// renews them with an account of its own. Exit code 1 if a name has no certificate in the folder.
#[derive(Args, Debug)]
pub(super) struct ImportArgs {
    #[command(flatten)]
    config: ConfigArgs,

    /// Folder of certbot, such as /etc/letsencrypt
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(super) fn run(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let settings = args.config.settings()?;
    let import = import_certbot(&settings, &args.folder)?;
    let mut out = output::stdout();
    for certificate in &import.certificates {
        let lineage = &certificate.lineage;
        for name in &certificate.names {
            writeln!(out, "{name}: imported from live/{lineage}")?;
        }
        if let Some(error) = &certificate.error {
            writeln!(out, "live/{lineage} cannot be used: {error}")?;
        }
    }
    for name in &import.missing {
        writeln!(out, "{name}: has no certificate; the edge orders it")?;
    }
    out.flush()?;
    Ok(match import.missing.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}
