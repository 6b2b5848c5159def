//! The certificates of a build without the feature `acme`. The check of the configuration refuses `[[acme]]`.

use std::sync::Arc;

use edgeward_proxy::config::CertificateSource;

use crate::acme_settings::AcmeGroup;

/// No certificates.
#[derive(Debug, Default)]
pub(crate) struct AcmeService(());

impl AcmeService {
    pub(crate) fn apply(
        &self,
        _: &[AcmeGroup],
    ) -> anyhow::Result<Option<Arc<dyn CertificateSource>>> {
        Ok(None)
    }

    pub(crate) fn stop(&self) {}
}
