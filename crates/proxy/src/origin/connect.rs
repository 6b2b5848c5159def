//! Opens connections to the origin: name resolution, TCP and TLS.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::health::OriginHealth;
use crate::base::config::{OriginConfig, OriginProtocol};
use crate::base::dial::{Dial, DialedStream};
use crate::base::tls;

/// A connection to the origin: TCP, TLS or a dialed stream.
pub(crate) trait OriginStream: AsyncRead + AsyncWrite + Unpin + 'static {
    /// Returns true if a read would wait: no bytes have arrived, and the stream has not ended. After false, the caller
    /// must not use the stream, because a byte may have been read and dropped.
    fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(self)
            .poll_read(&mut cx, &mut ReadBuf::new(&mut byte))
            .is_pending()
    }
}

impl OriginStream for TlsStream<TcpStream> {}

impl OriginStream for Box<dyn DialedStream> {}

impl OriginStream for TcpStream {
    fn is_quiet(&mut self) -> bool {
        // Unlike `poll_read`, `try_read` keeps the registered waker of the task that waits for bytes.
        let read = self.try_read(&mut [0]);
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Opens connections to one origin.
#[derive(Clone)]
pub(crate) struct Connector {
    /// Opens connections in place of TCP and TLS, if set: see [`OriginConfig::dial`].
    dial: Option<Arc<dyn Dial>>,
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    health: Arc<OriginHealth>,
}

/// The reason why the configuration of connections to the origin is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectorError {
    /// The name that the origin's certificate must have is invalid.
    #[error("`{name}` is neither a host name nor an address; set origin.tls.server_name")]
    ServerName {
        /// The configured name.
        name: String,
    },
    /// The trusted roots cannot be used.
    #[error("the certificates to trust for the origin cannot be used")]
    Roots(#[source] Box<tls::TlsError>),
}

impl Connector {
    pub(crate) fn new(config: &OriginConfig) -> Result<Self, ConnectorError> {
        let tls = if config.url.tls {
            let name = config.tls.server_name.as_ref().unwrap_or(&config.url.host);
            let name = ServerName::try_from(name.clone())
                .map_err(|_| ConnectorError::ServerName { name: name.clone() })?;
            let alpn = match config.protocol {
                OriginProtocol::Http1 => tls::ALPN_HTTP1,
                OriginProtocol::Http2 => tls::ALPN_HTTP2,
            };
            let client = tls::client_config(&config.tls, &[alpn])
                .map_err(|error| ConnectorError::Roots(Box::new(error)))?;
            Some((TlsConnector::from(Arc::new(client)), name))
        } else {
            None
        };
        Ok(Self {
            dial: config.dial.clone(),
            host: config.url.host.clone(),
            port: config.url.port,
            tls,
            health: Arc::new(OriginHealth::new(config.url.to_string())),
        })
    }

    /// Returns the origin's health, which all workers share.
    pub(crate) const fn health(&self) -> &Arc<OriginHealth> {
        &self.health
    }

    /// Dials if `dial` is set. Otherwise tries the host's addresses in turn, and returns the first connection.
    pub(crate) async fn connect(&self) -> io::Result<Box<dyn OriginStream>> {
        if let Some(dial) = &self.dial {
            return Ok(Box::new(dial.dial()?));
        }
        let mut last = None;
        for addr in tokio::net::lookup_host((self.host.as_str(), self.port)).await? {
            match self.connect_to(addr).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("{} has no address", self.host),
            )
        }))
    }

    async fn connect_to(&self, addr: SocketAddr) -> io::Result<Box<dyn OriginStream>> {
        let tcp = TcpStream::connect(addr).await?;
        tcp.set_nodelay(true)?;
        match &self.tls {
            None => Ok(Box::new(tcp)),
            Some((connector, name)) => {
                let tls = connector.connect(name.clone(), tcp).await?;
                Ok(Box::new(tls))
            }
        }
    }
}
