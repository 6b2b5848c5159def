//! The signature of hostile targets: any target, host and field is signed or refused without a panic. A bucket that
//! decodes the sent target and encodes it again accepts the signature, and the sent target cannot end the line of the
//! request.
//!
//! The input is a target, a host and the value of a field, separated by line feeds.
//! Run: `cargo +nightly fuzz run s3_target`.
#![no_main]

use std::time::{Duration, SystemTime};

use libfuzzer_sys::fuzz_target;

use edgeward_s3::{Content, Credentials, RequestParts, bucket_target, is_bucket_itself, sign};
use edgeward_testkit::s3::{AccessKey, Bucket, ReceivedRequest};
use edgeward_types::Timestamp;

const SECS: u64 = 1_800_000_000;

fuzz_target!(|text: &str| {
    let mut lines = text.splitn(3, '\n');
    let (target, host, value) = (lines.next(), lines.next(), lines.next());
    let target = target.unwrap_or_default();
    let Ok(sent) = bucket_target(None, target) else {
        return;
    };
    assert!(sent.starts_with('/') && sent.bytes().all(|byte| byte.is_ascii_graphic()));
    assert_eq!(is_bucket_itself(&sent), is_bucket_itself(target));
    let credentials = Credentials::from_variables(|name| Some(name.to_owned()));
    let credentials = credentials.expect("names of variables are valid values");
    let parts = RequestParts {
        method: "GET",
        host: host.unwrap_or("media.example"),
        target: &sent,
        fields: &[("x-amz-request-payer", value.unwrap_or("requester"))],
        content: Content::Empty,
    };
    let time = Timestamp::from_secs(SECS);
    let Ok(signature) = sign(&parts, &credentials, "us-east-1", time) else {
        return;
    };
    let own = [("host", parts.host), parts.fields[0]].map(|(name, value)| (name.into(), value.into()));
    let mut fields: Vec<(String, String)> = own.into();
    for (name, value) in &signature {
        fields.push((name.to_string(), value.to_str().expect("a signature is text").into()));
    }
    let bucket = Bucket::new("us-east-1", AccessKey {
        id: "AWS_ACCESS_KEY_ID".into(),
        secret: "AWS_SECRET_ACCESS_KEY".into(),
        token: Some("AWS_SESSION_TOKEN".into()),
    });
    let request = ReceivedRequest { method: "GET", target: &sent, fields: &fields, body: b"" };
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(SECS);
    assert_eq!(bucket.verify(&request, now), Ok(()), "{target:?} as {sent}");
});
