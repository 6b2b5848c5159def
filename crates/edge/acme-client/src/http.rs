//! Requests to an issuer: HTTP/1.1 over TLS, bounded in size and time.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, LINK, RETRY_AFTER, USER_AGENT};
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
    /// The newest chain of certificates in a response.
    download: Arc<Mutex<Option<Download>>>,
}

/// A chain of certificates, with the URLs of the alternative ones. `instant-acme` does not return these URLs.
#[derive(Debug)]
pub(crate) struct Download {
    pub(crate) chain: String,
    pub(crate) alternates: Vec<String>,
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
            download: Arc::default(),
        })
    }

    /// Returns the wait that the issuer demanded in its newest refusal.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        *self
            .retry_after
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the newest chain of certificates that was received.
    pub(crate) fn take_download(&self) -> Option<Download> {
        let mut download = self.download.lock().unwrap_or_else(PoisonError::into_inner);
        download.take()
    }

    async fn send(self, request: Request<Bytes>) -> io::Result<Response<Full<Bytes>>> {
        let uri = request.uri().clone();
        let (mut parts, body) = exchange(self.connect(&uri).await?, request)
            .await?
            .into_parts();
        if parts.status.is_success() && is_chain(&parts.headers) {
            let download = Download {
                chain: String::from_utf8_lossy(&body).into_owned(),
                alternates: alternates(&uri, &parts.headers),
            };
            *self.download.lock().unwrap_or_else(PoisonError::into_inner) = Some(download);
        }
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
        let connected = connector.connect(name, stream).await;
        connected.map_err(explain_root)
    }
}

/// Adds the way out to the error of a server whose certificate is a root.
fn explain_root(error: io::Error) -> io::Error {
    match error.to_string().contains("CaUsedAsEndEntity") {
        false => error,
        true => io::Error::new(
            error.kind(),
            "the issuer's server uses its root as its own certificate (CaUsedAsEndEntity): give the server a certificate \
             that the root has signed, as docs/how-to/certificates.md shows",
        ),
    }
}

/// Returns true for a response with a chain of certificates (RFC 8555 §9.1).
fn is_chain(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/pem-certificate-chain"))
}

/// Returns the URLs of alternative chains (RFC 8555 §7.4.2), at most [`ALTERNATES_MAX`]: the `Link` fields with the
/// relation `alternate`. A path is completed by scheme and authority of `base`.
fn alternates(base: &Uri, headers: &HeaderMap) -> Vec<String> {
    let origin = || {
        let authority = base.authority().map_or("", |authority| authority.as_str());
        format!("https://{authority}")
    };
    let fields = headers.get_all(LINK).into_iter();
    let links = fields
        .filter_map(|field| field.to_str().ok())
        .flat_map(|field| field.split(','));
    let urls = links.filter_map(|link| {
        let (url, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        let mut parameters = parameters.split(';').map(str::trim);
        let is_alternate =
            parameters.any(|parameter| matches!(parameter, "rel=\"alternate\"" | "rel=alternate"));
        is_alternate.then(|| match url.starts_with('/') {
            true => origin() + url,
            false => url.to_owned(),
        })
    });
    urls.take(ALTERNATES_MAX).collect()
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

/// The most alternative chains that are downloaded. Issuers have two or three.
const ALTERNATES_MAX: usize = 8;

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
    fn links_with_the_relation_alternate_are_chains() {
        let base: Uri = "https://ca.example:14000/cert/1".parse().expect("a URL");
        let mut headers = HeaderMap::new();
        for field in [
            "<https://ca.example/dir>;rel=\"index\"",
            "<https://ca.example/cert/1/2>; rel=\"alternate\", </cert/1/3>;rel=alternate",
            "<https://ca.example/x>; rel=\"up\"; title=\"alternate\"",
            "https://ca.example/y; rel=\"alternate\"",
        ] {
            headers.append(LINK, HeaderValue::from_static(field));
        }
        let expected = [
            "https://ca.example/cert/1/2",
            "https://ca.example:14000/cert/1/3",
        ];
        assert_eq!(alternates(&base, &headers), expected);
        for n in 0..ALTERNATES_MAX {
            let field = format!("</{n}>;rel=\"alternate\"");
            headers.append(LINK, HeaderValue::try_from(field).expect("a value"));
        }
        assert_eq!(alternates(&base, &headers).len(), ALTERNATES_MAX);
    }

    /// Method: a server whose certificate is self-signed and says that it is an authority.
    #[tokio::test]
    async fn a_server_with_its_root_as_its_certificate_is_explained() {
        use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
        use rustls::ServerConfig;
        use rustls_pki_types::PrivatePkcs8KeyDer;

        let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let root = params.self_signed(&key).expect("signed");
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("root.pem");
        std::fs::write(&file, root.pem()).expect("written");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the versions are supported")
            .with_no_client_auth()
            .with_single_cert(
                vec![root.der().clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )
            .expect("the key belongs to the certificate");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server = async {
            let (stream, _) = listener.accept().await.expect("a client");
            _ = tokio_rustls::TlsAcceptor::from(Arc::new(config))
                .accept(stream)
                .await;
        };
        let url = format!("https://localhost:{port}/").parse().expect("a URL");
        let (error, ()) = tokio::join!(status_of(url, Some(&file)), server);
        let error = error.expect_err("the certificate is refused").to_string();
        assert!(error.contains("that the root has signed"), "{error}");
    }

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
