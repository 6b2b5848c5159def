//! Checks the settings of origins that are buckets of S3, and builds their configuration.

use std::sync::Arc;

use edgeward_proxy::config::{Credentials, CredentialsSource, HostPolicy, OriginConfig, S3Config};

use super::super::choice::BucketStyle;
use super::super::draft::{ConfigDraft, DraftBucket};
use super::super::file::RawSetting;
use super::super::setting::SettingSource;
use crate::diagnostic::Diagnostic;

/// Checks the settings of buckets, reads their credentials, and writes the buckets into the origins.
pub(super) fn check_buckets(
    raw_settings: &[RawSetting],
    draft: &mut ConfigDraft,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    let drafts = std::mem::take(&mut draft.buckets);
    for (item, bucket) in drafts.iter().enumerate() {
        let Some(origin) = draft.edge.origins.get_mut(item).filter(|_| bucket.is_given) else {
            continue;
        };
        let settings = || raw_settings.iter().filter(|setting| setting.item == item);
        let first = settings().find(|setting| setting.key.path.starts_with("origin.s3_"));
        let source = first.map_or(SettingSource::Default, |first| first.source.clone());
        // `check` has already reported a setting with an invalid value.
        let is_invalid = |path: &str, is_unset: bool| {
            is_unset && settings().any(|setting| setting.key.path == path)
        };
        if is_invalid("origin.s3_bucket", bucket.bucket.is_none())
            || is_invalid("origin.s3_region", bucket.region.is_none())
            || is_invalid(
                "origin.s3_credentials_file",
                bucket.credentials_file.is_none(),
            )
        {
            continue;
        }
        if !cfg!(feature = "s3") {
            let key = first.map_or("origin.s3_bucket", |first| first.key.path);
            diagnostics.push((source, Diagnostic::lacks_feature(key, "s3")));
            continue;
        }
        match build(bucket, origin) {
            Ok(config) => origin.s3 = Some(Arc::new(config)),
            Err(diagnostic) => diagnostics.push((source, diagnostic)),
        }
    }
    draft.buckets = drafts;
}

fn build(draft: &DraftBucket, origin: &OriginConfig) -> Result<S3Config, Diagnostic> {
    let missing = |what: &str, hint: &str| Err(Diagnostic::new(what).hint(hint));
    let Some(bucket) = draft.bucket.clone() else {
        let hint = "add s3_bucket = \"NAME\": the edge has one origin for each bucket";
        return missing("this origin has settings of S3, but no s3_bucket", hint);
    };
    let Some(region) = draft.region.clone() else {
        let hint =
            "add s3_region = \"eu-central-1\"; servers without regions usually expect us-east-1";
        return missing("s3_bucket is set without s3_region", hint);
    };
    if origin.host == Some(HostPolicy::Forward) {
        let hint = "remove host = \"forward\": the name in Host belongs to the bucket's server";
        return missing("a bucket cannot get the Host of clients", hint);
    }
    if origin.url().socket.is_some() && origin.host.is_none() {
        let hint = "add host = \"NAME\": the signature contains the Host of the bucket's server";
        return missing("a bucket behind a Unix socket needs its Host", hint);
    }
    let host = match &origin.host {
        Some(HostPolicy::Fixed(host)) => host.clone(),
        _ => origin.url().authority(),
    };
    let rest = host.strip_prefix(&bucket);
    let is_named_by_host = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', ':']));
    let credentials = match &draft.credentials_file {
        Some(path) => CredentialsSource::File {
            path: path.clone(),
            profile: draft.profile.clone(),
        },
        None => {
            let variables = Credentials::from_variables(|name| std::env::var(name).ok());
            let variables = variables.map_err(|error| {
                Diagnostic::new(format!("s3_bucket needs credentials: {error} in the environment"))
                    .hint("add s3_credentials_file = \"FILE\", or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
            })?;
            CredentialsSource::Environment(variables)
        }
    };
    if let Err(error) = credentials.read() {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let text = format!("{error}: {}", cause.unwrap_or_default());
        let hint = "write [PROFILE], aws_access_key_id = ID and aws_secret_access_key = SECRET, each in a line";
        return missing(&text, hint);
    }
    Ok(S3Config {
        bucket,
        region,
        path_style: match draft.style {
            BucketStyle::Auto => !is_named_by_host,
            BucketStyle::Path => true,
            BucketStyle::Host => false,
        },
        serves_list: draft.serves_list,
        credentials,
    })
}
