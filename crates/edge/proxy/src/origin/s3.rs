//! Signs the requests to a bucket.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use edgeward_s3::{Content, Credentials, RequestParts, SignError, bucket_target, sign};
use http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request};

use crate::config::{ReadCredentialsError, S3Config};
use crate::observe::log::ErrorChain;
use crate::rt::clock::Clock;

/// The bucket of an origin with its credentials, which all workers share.
pub(crate) struct Signer {
    config: Arc<S3Config>,
    credentials: RwLock<Arc<Credentials>>,
    /// True after a request could not be signed, so that the warning is logged once.
    has_warned: AtomicBool,
}

impl Signer {
    /// Reads the credentials.
    pub(super) fn new(config: Arc<S3Config>) -> Result<Self, ReadCredentialsError> {
        Ok(Self {
            credentials: RwLock::new(Arc::new(config.credentials.read()?)),
            config,
            has_warned: AtomicBool::new(false),
        })
    }

    /// Reads the credentials again. They are used after [`replace`](Self::replace).
    pub(crate) fn read(&self) -> Result<Credentials, ReadCredentialsError> {
        self.config.credentials.read()
    }

    /// Replaces the credentials. Later requests are signed with them, also the retries of requests under way.
    pub(crate) fn replace(&self, credentials: Credentials) {
        let credentials = Arc::new(credentials);
        *self
            .credentials
            .write()
            .unwrap_or_else(PoisonError::into_inner) = credentials;
    }

    fn credentials(&self) -> Arc<Credentials> {
        let credentials = self.credentials.read();
        Arc::clone(&credentials.unwrap_or_else(PoisonError::into_inner))
    }
}

/// A signer and the clock for the time of signatures.
#[derive(Clone, Copy)]
pub(crate) struct Signing<'a> {
    signer: &'a Signer,
    clock: &'a Clock,
}

impl<'a> Signing<'a> {
    pub(crate) const fn new(signer: &'a Signer, clock: &'a Clock) -> Self {
        Self { signer, clock }
    }

    /// Signs a request with its method, its target and `Host` as they are sent, and all fields `x-amz-…`. A request
    /// that cannot be signed stays without a signature, and the bucket refuses it.
    pub(super) fn sign<B>(&self, request: &mut Request<B>, content: Content) {
        for name in [&AUTHORIZATION, &X_AMZ_DATE, &X_AMZ_CONTENT, &X_AMZ_TOKEN] {
            request.headers_mut().remove(name);
        }
        let host = match request.headers().get(HOST) {
            Some(host) => host.as_bytes(),
            None => request
                .uri()
                .authority()
                .map_or("", |authority| authority.as_str())
                .as_bytes(),
        };
        let target = request.uri().path_and_query();
        let target = target.map_or("/", |target| target.as_str());
        match self.fields(request.method(), host, target, request.headers(), content) {
            Ok(fields) => request.headers_mut().extend(fields),
            Err(error) => {
                if !self.signer.has_warned.swap(true, Ordering::Relaxed) {
                    let error = ErrorChain(&error);
                    tracing::warn!(%error, "a request to a bucket was sent without a signature");
                }
            }
        }
    }

    /// Returns the target of a health check, and the fields that sign it.
    pub(super) fn sign_check(&self, host: &str, path: &str) -> Result<(String, HeaderMap), String> {
        let target = bucket_target(self.signer.config.bucket_in_path(), path)
            .map_err(|error| error.to_string())?;
        let none = HeaderMap::new();
        let fields = self.fields(
            &Method::GET,
            host.as_bytes(),
            &target,
            &none,
            Content::Empty,
        );
        let fields = fields.map_err(|error| ErrorChain(&error).to_string())?;
        Ok((target, fields.into_iter().collect()))
    }

    fn fields(
        &self,
        method: &Method,
        host: &[u8],
        target: &str,
        headers: &HeaderMap,
        content: Content,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, SignError> {
        let mut fields = Vec::new();
        for (name, value) in headers {
            if is_of_amazon(name) {
                let value = std::str::from_utf8(value.as_bytes()).map_err(SignError::new)?;
                fields.push((name.as_str(), value));
            }
        }
        let parts = RequestParts {
            method: method.as_str(),
            host: std::str::from_utf8(host).map_err(SignError::new)?,
            target,
            fields: &fields,
            content,
        };
        let credentials = self.signer.credentials();
        sign(
            &parts,
            &credentials,
            &self.signer.config.region,
            self.clock.wall(),
        )
    }
}

/// Returns true for the fields by which a client of S3 demands an operation. A bucket requires that they are signed.
pub(crate) fn is_of_amazon(name: &HeaderName) -> bool {
    name.as_str().starts_with("x-amz-")
}

const X_AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
const X_AMZ_CONTENT: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const X_AMZ_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
