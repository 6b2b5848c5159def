//! The settings of an origin that is a bucket of S3.

use std::path::PathBuf;

use super::super::choice::{BucketStyle, Choice as _};
use super::super::draft::{ConfigDraft, DraftBucket};
use super::super::kind::ValueKind;
use super::{Key, path_text};

fn bucket(draft: &ConfigDraft, item: usize) -> Option<&DraftBucket> {
    draft.buckets.get(item).filter(|bucket| bucket.is_given)
}

pub(super) const BUCKET: Key = Key {
    path: "origin.s3_bucket",
    flag: None,
    kind: ValueKind::Bucket,
    doc: "The name of a bucket of S3. The edge signs all requests to this origin with AWS Signature Version 4, and \
          only reads: GET, HEAD and OPTIONS. `query.keep` of the site names the parameters that the bucket gets; \
          without it, the bucket gets none. See docs/how-to/origins.md.",
    set: |draft, item, value| draft.bucket(item).bucket = Some(value.text()),
    show: |draft, item| bucket(draft, item)?.bucket.clone(),
};

pub(super) const REGION: Key = Key {
    path: "origin.s3_region",
    flag: None,
    kind: ValueKind::Token,
    doc: "The region of the bucket, which is a part of each signature: `eu-central-1`, for example. Servers \
          without regions usually expect `us-east-1`, and Cloudflare R2 expects `auto`.",
    set: |draft, item, value| draft.bucket(item).region = Some(value.text()),
    show: |draft, item| bucket(draft, item)?.region.clone(),
};

pub(super) const STYLE: Key = Key {
    path: "origin.s3_style",
    flag: None,
    kind: ValueKind::Choice(BucketStyle::WORDS),
    doc: "How requests name the bucket. `path` puts its name before the path. `host` expects it in `Host`, as in \
          `media.s3.eu-central-1.amazonaws.com`. `auto` is `host` if the `Host` for the origin is the name of the \
          bucket, or begins with it and a dot, otherwise `path`.",
    set: |draft, item, value| draft.bucket(item).style = value.choice(),
    show: |draft, item| Some(bucket(draft, item)?.style.word().to_owned()),
};

pub(super) const LIST: Key = Key {
    path: "origin.s3_list",
    flag: None,
    kind: ValueKind::Switch,
    doc: "If true, `/` is the list of the bucket's objects; `query.keep` then needs the parameters of lists. If \
          false, `/` is answered 404 unless a rule rewrites it.",
    set: |draft, item, value| draft.bucket(item).serves_list = value.switch(),
    show: |draft, item| Some(bucket(draft, item)?.serves_list.to_string()),
};

pub(super) const CREDENTIALS_FILE: Key = Key {
    path: "origin.s3_credentials_file",
    flag: None,
    kind: ValueKind::InputFile,
    doc: "File with the credentials of the bucket, in the format of the AWS tools (`~/.aws/credentials`). The edge \
          reads it again when it changes, see `server.certificate_interval`. Without this setting, the credentials \
          are those of the variables `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`.",
    set: |draft, item, value| draft.bucket(item).credentials_file = Some(value.file()),
    show: |draft, item| {
        let path: Option<&PathBuf> = bucket(draft, item)?.credentials_file.as_ref();
        path.map(|path| path_text(path))
    },
};

pub(super) const PROFILE: Key = Key {
    path: "origin.s3_profile",
    flag: None,
    kind: ValueKind::Token,
    doc: "The section of the file of credentials.",
    set: |draft, item, value| draft.bucket(item).profile = value.text(),
    show: |draft, item| Some(bucket(draft, item)?.profile.clone()),
};
