//! Prepares requests to a bucket, before the edge decides about them.
//!
//! The edge signs with its own credentials, so a client must not be able to use more of them than the operator intends:
//! only methods that read, only the parameters that `query.keep` names, and no fields that S3 interprets.

use edgeward_s3::{bucket_target, is_bucket_itself};
use http::header::AUTHORIZATION;
use http::{Method, StatusCode};

use crate::config::S3Config;
use crate::exchange::request_settings::RequestSettings;
use crate::exchange::{Request, RequestError};
use crate::origin::is_of_amazon;

/// The detail of `Cache-Status` in a refusal of another method.
pub(super) const READ_ONLY: &str = "read-only";

/// The value of `Allow` in this refusal.
pub(super) const METHODS_ALLOWED: &str = "GET, HEAD, OPTIONS";

/// Makes the request to a bucket: removes the client's own signature, and writes the target that the bucket gets. A
/// rule may have rewritten the target. Refuses requests that a bucket must not get.
pub(super) fn prepare(
    request: &mut Request,
    bucket: &S3Config,
    settings: &RequestSettings,
) -> Result<(), RequestError> {
    // PURGE and BAN are for the edge. If it does not accept them, the bucket refuses them.
    let is_purge = matches!(request.method.as_str(), "PURGE" | "BAN");
    if !matches!(request.method, Method::GET | Method::HEAD | Method::OPTIONS) && !is_purge {
        let text = "the edge only reads from this origin, which is a bucket";
        let status = StatusCode::METHOD_NOT_ALLOWED;
        return Err(RequestError::new(status, READ_ONLY, text));
    }
    let signature: Vec<_> = request
        .headers
        .keys()
        .filter(|name| is_of_amazon(name))
        .cloned()
        .collect();
    for name in signature.iter().chain([&AUTHORIZATION]) {
        request.headers.remove(name);
    }
    let target = settings.query.apply(request.forwarded_target());
    if is_bucket_itself(&target) && !bucket.serves_list && !is_purge {
        let text = "the list of the bucket is not served; a rule can rewrite / to an object";
        return Err(RequestError::new(
            StatusCode::NOT_FOUND,
            "bucket-list",
            text,
        ));
    }
    let target = bucket_target(bucket.bucket_in_path(), &target).map_err(|error| {
        RequestError::new(StatusCode::BAD_REQUEST, "bucket-target", error.to_string())
    })?;
    request.forwarded_target = Some(target.into());
    Ok(())
}
