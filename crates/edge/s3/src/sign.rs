//! Signatures of AWS Signature Version 4, computed by the crate `aws-sigv4`.

#[cfg(feature = "sign")]
use std::time::{Duration, SystemTime};

#[cfg(feature = "sign")]
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign as sign_request,
};
#[cfg(feature = "sign")]
use aws_sigv4::sign::v4;
use edgeward_types::Timestamp;
use http::header::{HeaderName, HeaderValue};

use crate::credentials::Credentials;

/// The parts of a request that a signature covers.
#[derive(Debug)]
pub struct RequestParts<'a> {
    /// The method.
    pub method: &'a str,
    /// The `Host` that is sent.
    pub host: &'a str,
    /// The target that is sent, as [`bucket_target`](crate::target::bucket_target) returns it.
    pub target: &'a str,
    /// The names and values of further fields that are signed. A bucket requires all fields `x-amz-…` among them.
    pub fields: &'a [(&'a str, &'a str)],
    /// The content.
    pub content: Content,
}

/// The content of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The request has no content, and its signature says so.
    Empty,
    /// The signature does not cover the content (`UNSIGNED-PAYLOAD`), because it is sent while it arrives.
    Unsigned,
}

/// The request cannot be signed, because a part is not text.
#[derive(Debug, thiserror::Error)]
#[error("the request cannot be signed")]
pub struct SignError(#[source] Box<dyn std::error::Error + Send + Sync>);

impl SignError {
    /// Returns the error for a part that is not text.
    pub fn new(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(source.into())
    }
}

/// Returns the fields that sign a request at `time`, wall clock: `Authorization`, `x-amz-date`, `x-amz-content-sha256`
/// and, for temporary credentials, `x-amz-security-token`. A bucket refuses a signature after 15 minutes.
///
/// The settings are those that S3 needs: the target is encoded once and not normalised, and the digest of the content
/// is a field.
#[cfg(feature = "sign")]
pub fn sign(
    request: &RequestParts<'_>,
    credentials: &Credentials,
    region: &str,
    time: Timestamp,
) -> Result<Vec<(HeaderName, HeaderValue)>, SignError> {
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    let identity = credentials.to_identity().into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name("s3")
        .time(SystemTime::UNIX_EPOCH + Duration::from_millis(time.as_millis()))
        .settings(settings)
        .build()
        .map_err(SignError::new)?
        .into();
    let host = [("host", request.host)];
    let fields = host.iter().chain(request.fields).copied();
    let body = match request.content {
        Content::Empty => SignableBody::empty(),
        Content::Unsigned => SignableBody::UnsignedPayload,
    };
    let signable = SignableRequest::new(request.method, request.target, fields, body)
        .map_err(SignError::new)?;
    let (signature, _) = sign_request(signable, &params)
        .map_err(SignError::new)?
        .into_parts();
    let (fields, _) = signature.into_parts();
    let fields = fields.into_iter().map(|field| {
        let mut value = HeaderValue::try_from(field.value()).map_err(SignError::new)?;
        value.set_sensitive(true);
        Ok((HeaderName::from_static(field.name()), value))
    });
    fields.collect()
}

/// Returns an error, because this build has no signatures.
#[cfg(not(feature = "sign"))]
pub fn sign(
    _: &RequestParts<'_>,
    _: &Credentials,
    _: &str,
    _: Timestamp,
) -> Result<Vec<(HeaderName, HeaderValue)>, SignError> {
    Err(SignError::new("this build has no signatures"))
}
