//! Requests to S3 buckets: the form of a target, signatures of AWS Signature Version 4, files of credentials.
//!
//! A bucket computes the signature of a request from the parts that it has received: it decodes the target and encodes
//! it again by rules of its own. An edge that signs the client's target as sent is refused for each path with a `+`,
//! `@` or `%2f`. [`bucket_target`] therefore returns the target in the form from which buckets compute the signature.
//! The edge sends this form, so the sent and the signed target are the same text.
//!
//! ```
//! use edgeward_s3::bucket_target;
//!
//! let target = bucket_target(Some("media"), "/caf%c3%a9/a+b@2x.png?z=1&a=x+y");
//! assert_eq!(target.as_deref(), Ok("/media/caf%C3%A9/a%2Bb%402x.png?a=x%20y&z=1"));
//! ```

mod credentials;
mod sign;
mod target;

pub use credentials::{Credentials, CredentialsError};
pub use sign::{Content, RequestParts, SignError, sign};
pub use target::{InvalidTarget, bucket_target, is_bucket_itself};
