//! Signatures compared with those of an independent implementation and with the examples that AWS publishes.

use std::time::{Duration, SystemTime};

use edgeward_s3::{Content, Credentials, RequestParts, bucket_target, sign};
use edgeward_testkit::s3::{AccessKey, Bucket, ReceivedRequest};
use edgeward_types::Timestamp;
use proptest::prelude::*;

const REGION: &str = "us-east-1";

fn key(token: Option<&str>) -> AccessKey {
    AccessKey {
        id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
        secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
        token: token.map(str::to_owned),
    }
}

fn credentials(key: &AccessKey) -> Credentials {
    Credentials::from_variables(|name| match name {
        "AWS_ACCESS_KEY_ID" => Some(key.id.clone()),
        "AWS_SECRET_ACCESS_KEY" => Some(key.secret.clone()),
        _ => key.token.clone(),
    })
    .expect("valid credentials")
}

/// Signs the request and returns it as its bucket receives it.
fn signed(parts: &RequestParts<'_>, key: &AccessKey, secs: u64) -> Vec<(String, String)> {
    let time = Timestamp::from_secs(secs);
    let signature = sign(parts, &credentials(key), REGION, time).expect("text");
    let own = [("host", parts.host)].into_iter();
    let own = own.chain(parts.fields.iter().copied());
    let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let signature = signature.iter().map(|(name, value)| {
        let value = value.to_str().expect("text");
        (name.as_str().to_owned(), value.to_owned())
    });
    own.chain(signature).collect()
}

fn at(secs: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(secs)
}

/// The examples of "Authenticating Requests: Using the Authorization Header" in the API reference of Amazon S3.
#[test]
fn the_examples_of_aws_have_the_published_signatures() {
    const MAY_24_2013: u64 = 1_369_353_600;
    let range: &[(&str, &str)] = &[("range", "bytes=0-9")];
    for (target, fields, names, signature) in [
        (
            "/test.txt",
            range,
            "host;range;x-amz-content-sha256;x-amz-date",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "/?lifecycle",
            &[],
            "host;x-amz-content-sha256;x-amz-date",
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            "/?prefix=J&max-keys=2",
            &[],
            "host;x-amz-content-sha256;x-amz-date",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ] {
        let target = bucket_target(None, target).expect("a target");
        let parts = RequestParts {
            method: "GET",
            host: "examplebucket.s3.amazonaws.com",
            target: &target,
            fields,
            content: Content::Empty,
        };
        let fields = signed(&parts, &key(None), MAY_24_2013);
        let expected = format!(
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
             SignedHeaders={names}, Signature={signature}"
        );
        let expected = ("authorization".to_owned(), expected);
        assert!(fields.contains(&expected), "{target}: {fields:?}");
    }
}

/// The oracle accepts no request with another method, target, host, field, time or key than the signed one.
#[test]
fn the_oracle_refuses_every_changed_request() {
    let parts = RequestParts {
        method: "GET",
        host: "media.example",
        target: "/a?v=1",
        fields: &[("x-amz-request-payer", "requester")],
        content: Content::Empty,
    };
    let fields = signed(&parts, &key(Some("token")), 1_800_000_000);
    let bucket = Bucket::new(REGION, key(Some("token")));
    let verify = |method, target, fields: &[(String, String)], body: &[u8], secs| {
        let request = ReceivedRequest {
            method,
            target,
            fields,
            body,
        };
        bucket.verify(&request, at(secs))
    };
    let now = 1_800_000_000;
    assert_eq!(verify("GET", "/a?v=1", &fields, b"", now), Ok(()));
    assert_eq!(verify("GET", "/a?v=1", &fields, b"", now + 900), Ok(()));
    let mismatch = Err("SignatureDoesNotMatch");
    assert_eq!(verify("HEAD", "/a?v=1", &fields, b"", now), mismatch);
    assert_eq!(verify("GET", "/a?v=2", &fields, b"", now), mismatch);
    assert_eq!(verify("GET", "/b?v=1", &fields, b"", now), mismatch);
    let skewed = Err("RequestTimeTooSkewed");
    assert_eq!(verify("GET", "/a?v=1", &fields, b"", now + 901), skewed);
    assert_eq!(verify("GET", "/a?v=1", &fields, b"", now - 901), skewed);
    let content = Err("XAmzContentSHA256Mismatch");
    assert_eq!(verify("GET", "/a?v=1", &fields, b"x", now), content);
    for changed in 0..fields.len() {
        let mut other = fields.clone();
        other[changed].1.push('0');
        assert!(verify("GET", "/a?v=1", &other, b"", now).is_err());
        other.remove(changed);
        assert!(verify("GET", "/a?v=1", &other, b"", now).is_err());
    }
    let mut more = fields;
    more.push(("x-amz-acl".to_owned(), "private".to_owned()));
    let unsigned = verify("GET", "/a?v=1", &more, b"", now);
    assert_eq!(unsigned, Err("AccessDenied"));
}

proptest! {
    /// Random requests with random times are accepted by a bucket that decodes the sent target and encodes it again.
    #[test]
    fn every_signed_request_is_accepted(
        target in "/[ -~é語]{0,24}(\\?[ -~é語]{0,24})?",
        bucket in prop::option::of("[a-z][a-z0-9.-]{2,8}"),
        method in prop::sample::select(&["GET", "HEAD", "OPTIONS"][..]),
        host in "[a-z0-9.-]{1,12}(:[0-9]{1,4})?",
        value in "[!-~]([ -~]{0,8}[!-~])?",
        token in prop::option::of("[!-~]{1,12}"),
        secs in 0..4_000_000_000_u64,
    ) {
        let Ok(sent) = bucket_target(bucket.as_deref(), &target) else {
            return Ok(());
        };
        let key = key(token.as_deref());
        let parts = RequestParts {
            method,
            host: &host,
            target: &sent,
            fields: &[("x-amz-request-payer", &value)],
            content: Content::Empty,
        };
        let fields = signed(&parts, &key, secs);
        let request = ReceivedRequest { method, target: &sent, fields: &fields, body: b"" };
        let verified = Bucket::new(REGION, key).verify(&request, at(secs));
        prop_assert_eq!(verified, Ok(()), "{} as {}", target, sent);
    }
}
