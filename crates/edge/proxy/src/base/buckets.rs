//! The buckets among the origins, and the parameters that they get.

use std::sync::Arc;

use edgeward_sites::{QueryShape, Settings};

use crate::base::config::S3Config;

/// The bucket of each origin, in the order of the configuration. `None` if the origin is not S3.
pub(crate) type Buckets = Arc<[Option<Arc<S3Config>>]>;

/// Returns the bucket of the origin that the settings state.
pub(crate) fn bucket_of<'a>(
    settings: &Settings,
    buckets: &'a Buckets,
) -> Option<&'a Arc<S3Config>> {
    buckets.get(settings.origin.unwrap_or(0))?.as_ref()
}

/// Returns the shape of queries that the settings state. A bucket gets only the parameters that `query.keep` names:
/// with the credentials of the edge, parameters such as `acl` or `response-content-type` would give clients rights of
/// the owner.
pub(crate) fn query_shape(settings: &Settings, is_of_bucket: bool) -> QueryShape {
    let mut shape = settings.query_shape();
    if is_of_bucket && settings.query_keep.is_none() {
        shape.keeps = Some(Vec::new());
    }
    shape
}
