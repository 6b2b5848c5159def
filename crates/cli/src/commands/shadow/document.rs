//! The result of `shadow` with the names of both caches.

use serde::Serialize;

use edgeward_shadow::ShadowReport;

/// The result with the names of both caches, as `--json` prints it.
#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    pub(super) edge: &'a str,
    pub(super) incumbent: Option<&'a str>,
    #[serde(flatten)]
    pub(super) report: &'a ShadowReport,
}
