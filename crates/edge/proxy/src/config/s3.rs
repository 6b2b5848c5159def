//! An origin that is a bucket of S3.

use std::path::PathBuf;
use std::sync::Arc;

pub use edgeward_s3::{Credentials, CredentialsError};
use edgeward_sites::{QueryShape, Settings};

/// The bucket of an origin. Its requests are signed with AWS Signature Version 4.
#[derive(Clone, Debug)]
pub struct S3Config {
    /// The name of the bucket.
    pub bucket: String,
    /// The region in the scope of signatures.
    pub region: String,
    /// True if the bucket is named by the path, false if it is named by `Host`.
    pub path_style: bool,
    /// Serves the list of the bucket's objects at `/`. Default false: a list shows the names of all objects.
    pub serves_list: bool,
    /// The credentials of the bucket.
    pub credentials: CredentialsSource,
}

/// The source of credentials.
#[derive(Clone, Debug)]
pub enum CredentialsSource {
    /// The variables of the environment, which do not change while the process runs.
    Environment(Credentials),
    /// A file in the format of the AWS tools. It is read at the start, at each reload, and when it changes.
    File {
        /// The path.
        path: PathBuf,
        /// The section of the file.
        profile: String,
    },
}

impl S3Config {
    /// Returns the name of the bucket if it is a part of the path.
    pub(crate) fn bucket_in_path(&self) -> Option<&str> {
        self.path_style.then_some(&*self.bucket)
    }
}

impl CredentialsSource {
    /// Reads the credentials.
    pub fn read(&self) -> Result<Credentials, ReadCredentialsError> {
        let (path, profile) = match self {
            Self::Environment(credentials) => return Ok(credentials.clone()),
            Self::File { path, profile } => (path, profile),
        };
        let too_large = || std::io::Error::other("the file has more than 1 MiB");
        let text = std::fs::metadata(path)
            .and_then(|metadata| match metadata.len() > FILE_BYTES_MAX {
                true => Err(too_large()),
                false => std::fs::read_to_string(path),
            })
            .map_err(|source| ReadCredentialsError::File {
                path: path.clone(),
                source,
            })?;
        Credentials::from_file(&text, profile).map_err(|source| ReadCredentialsError::Content {
            path: path.clone(),
            source,
        })
    }
}

/// The largest file of credentials. A profile has a few hundred bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The reason why credentials cannot be read. Neither the text nor the source has a part of a credential.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadCredentialsError {
    /// The file cannot be read.
    #[error("the file of credentials {path} cannot be read", path = path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file has no usable credentials.
    #[error("the file {path} has no usable credentials", path = path.display())]
    Content {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: CredentialsError,
    },
}

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
    if is_of_bucket && !settings.query_keep.is_stated() {
        shape.keeps = Some(Vec::new());
    }
    shape
}
