//! The configuration file that the commands read.

use std::path::PathBuf;

use clap::Args;
use edgeward_acme_client::AcmeSettings;

use crate::acme;
use crate::config;
use crate::diagnostic::Diagnostic;

/// The configuration file that has the names.
#[derive(Args, Debug)]
pub(super) struct ConfigArgs {
    /// Configuration file of the edge [default: /etc/edgeward/edgeward.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigArgs {
    pub(super) fn settings(&self) -> anyhow::Result<AcmeSettings> {
        let packaged = || Some(PathBuf::from(PACKAGED)).filter(|file| file.exists());
        let file = self.config.clone().or_else(packaged).ok_or_else(|| {
            Diagnostic::new(format!(
                "no --config is given, and {PACKAGED} does not exist"
            ))
            .hint("name the file of the edge: --config FILE")
        })?;
        let checked = config::load(Some(&file), &[])?;
        let settings = acme::settings_of(&checked.acme)?;
        let file = file.display();
        settings.ok_or_else(|| {
            Diagnostic::new(format!("{file} has no [[acme]]"))
                .hint("docs/how-to/certificates.md shows one")
                .into()
        })
    }
}

/// The configuration file of the packages.
const PACKAGED: &str = "/etc/edgeward/edgeward.toml";
