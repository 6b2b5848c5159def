//! Requests to an issuer: HTTP/1.1 over TLS, bounded in size and time.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A client for the requests of one order.
#[derive(Clone)]
pub(crate) struct Client {
    tls: Arc<ClientConfig>,
    /// The newest `Retry-After` of a response that refused a request.
    retry_after: Arc<Mutex<Option<Duration>>>,
}

impl Client {
    /// Trusts the roots in a PEM file, or those of the system.
    pub(crate) fn new(roots: Option<&Path>) -> io::Result<Self> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(read_roots(roots)?)
            .with_no_client_auth();
        Ok(Self {
            tls: Arc::new(config),
            retry_after: Arc::default(),
        })
    }

    /// Returns the wait that the issuer demanded in its newest refusal.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        *self
            .retry_after
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(self, request: Request<Bytes>) -> io::Result<Response<Full<Bytes>>> {
        let (mut parts, body) = exchange(self.connect(request.uri()).await?, request)
            .await?
            .into_parts();
        bound_retry_after(&mut parts.headers);
        if !parts.status.is_success() {
            let seconds = parts
                .headers
                .get(RETRY_AFTER)
                .and_then(|value| value.to_str().ok());
            let wait = seconds
                .and_then(|text| text.trim().parse().ok())
                .map(Duration::from_secs);
            *self
                .retry_after
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = wait;
        }
        Ok(Response::from_parts(parts, Full::new(body)))
    }

    async fn connect(&self, uri: &Uri) -> io::Result<TlsStream<TcpStream>> {
        let (host, port) = target(uri, "https", 443)?;
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        connector.connect(name, stream).await
    }
}

/// Requests a URL of `http` or `https`, and returns the status of the response. `roots` are those of [`Client::new`].
pub(crate) async fn status_of(uri: Uri, roots: Option<&Path>) -> io::Result<StatusCode> {
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = uri.clone();
    let response = match uri.scheme_str() {
        Some("http") => {
            let stream = TcpStream::connect(target(&uri, "http", 80)?).await?;
            exchange(stream, request).await?
        }
        _ => exchange(Client::new(roots)?.connect(&uri).await?, request).await?,
    };
    Ok(response.status())
}

/// Sends a request over a new connection, and returns the response with its whole body.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Bytes>,
) -> io::Result<Response<Bytes>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    // Ends with this request, because the sender is dropped.
    let driving = tokio::spawn(connection);
    let (mut parts, body) = request.into_parts();
    let uri = std::mem::take(&mut parts.uri);
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let authority = HeaderValue::try_from(authority).map_err(io::Error::other)?;
    parts.headers.insert(HOST, authority);
    // RFC 8555 §6.1 demands the name of the program.
    parts
        .headers
        .insert(USER_AGENT, HeaderValue::from_static(AGENT));
    let path = uri.path_and_query().map_or("/", |target| target.as_str());
    parts.uri = path.parse().map_err(io::Error::other)?;
    let request = Request::from_parts(parts, Full::new(body));
    let response = sender
        .send_request(request)
        .await
        .map_err(io::Error::other)?;
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX)
        .collect()
        .await
        .map_err(io::Error::other)?;
    drop(sender);
    driving.abort();
    Ok(Response::from_parts(parts, body.to_bytes()))
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let Ok(body) = body.collect().await;
            let request = Request::from_parts(parts, body.to_bytes());
            let sent = tokio::time::timeout(REQUEST_TIMEOUT, client.send(request)).await;
            let sent = sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            let response = sent.map_err(|error| Error::Other(Box::new(error)))?;
            Ok(BytesResponse::from(response))
        })
    }
}

/// Lowers a number of seconds that `instant-acme` would add to the time with an overflow.
fn bound_retry_after(headers: &mut HeaderMap) {
    let value = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok());
    let seconds = value.and_then(|text| text.trim().parse::<u64>().ok());
    if seconds.is_some_and(|seconds| seconds > RETRY_AFTER_SECONDS_MAX) {
        headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS_MAX));
    }
}

/// Returns host and port of a URL with this scheme. An account key must not be used over an unencrypted connection.
fn target<'u>(uri: &'u Uri, scheme: &str, port: u16) -> io::Result<(&'u str, u16)> {
    let invalid = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
    if uri.scheme_str() != Some(scheme) {
        return Err(invalid(format!("the URL {uri} is not {scheme}")));
    }
    let host = uri
        .host()
        .ok_or_else(|| invalid(format!("the URL {uri} has no host")))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok((host, uri.port_u16().unwrap_or(port)))
}

fn read_roots(file: Option<&Path>) -> io::Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    match file {
        None => {
            // Roots of the system that rustls cannot parse are skipped.
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Some(path) => {
            for certificate in CertificateDer::pem_file_iter(path).map_err(io::Error::other)? {
                let certificate = certificate.map_err(io::Error::other)?;
                store.add(certificate).map_err(io::Error::other)?;
            }
        }
    }
    match store.is_empty() {
        true => Err(io::Error::new(
            io::ErrorKind::NotFound,
            "no root certificate: install ca-certificates, or name a file",
        )),
        false => Ok(store),
    }
}

const AGENT: &str = concat!("edgeward/", env!("CARGO_PKG_VERSION"));

/// Issuers answer within seconds; finalizing may take longer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A chain of certificates has some kilobytes.
const BODY_BYTES_MAX: usize = 1 << 20;

/// The longest wait that an issuer can demand: a week.
const RETRY_AFTER_SECONDS_MAX: u64 = 7 * 24 * 3600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_in_seconds_is_at_most_a_week() {
        for (stated, expected) in [
            ("604800", "604800"),
            (" 604801 ", "604800"),
            ("18446744073709551615", "604800"),
            (
                "Fri, 31 Dec 1999 23:59:59 GMT",
                "Fri, 31 Dec 1999 23:59:59 GMT",
            ),
        ] {
            let stated = HeaderValue::from_static(stated);
            let mut headers = HeaderMap::from_iter([(RETRY_AFTER, stated)]);
            bound_retry_after(&mut headers);
            assert_eq!(headers[RETRY_AFTER], expected);
        }
    }
}
