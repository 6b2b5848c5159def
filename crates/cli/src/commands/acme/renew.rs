//! `edgeward acme renew`: lets the running edge renew certificates now.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use edgeward_acme::Name;
use edgeward_acme_client::{report, request_renewal};

use super::config_file::ConfigArgs;
use crate::diagnostic::Diagnostic;
use crate::output;

/// Renew certificates before they are due
///
/// The running edge orders them within a second, or the next edge when it starts. A wait after failures ends; the
/// limits of orders and of failed validations stay.
#[derive(Args, Debug)]
pub(super) struct RenewArgs {
    #[command(flatten)]
    config: ConfigArgs,

    /// Names of the configuration, or names on demand
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

pub(super) fn run(args: &RenewArgs) -> anyhow::Result<ExitCode> {
    let settings = args.config.settings()?;
    let known: Vec<_> = report(&settings)?
        .into_iter()
        .map(|report| report.name)
        .collect();
    let mut requested = Vec::new();
    for text in &args.names {
        let name = text.parse::<Name>().ok();
        let known = name.filter(|name| known.contains(&name.to_string()));
        requested.push(known.ok_or_else(|| {
            Diagnostic::new(format!("{text} is not a name of [[acme]]"))
                .hint("`edgeward acme status` lists the names")
        })?);
    }
    let mut out = output::stdout();
    for name in &requested {
        request_renewal(&settings, name)?;
        writeln!(
            out,
            "{name} is renewed by the edge; `edgeward acme status` shows the result"
        )?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
