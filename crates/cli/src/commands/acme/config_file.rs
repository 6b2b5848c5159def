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
    /// Configuration file of the edge
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

impl ConfigArgs {
    pub(super) fn settings(&self) -> anyhow::Result<AcmeSettings> {
        let checked = config::load(Some(&self.config), &[])?;
        let settings = acme::settings_of(&checked.acme)?;
        let file = self.config.display();
        settings.ok_or_else(|| {
            Diagnostic::new(format!("{file} has no [[acme]]"))
                .hint("docs/how-to/certificates.md shows one")
                .into()
        })
    }
}
