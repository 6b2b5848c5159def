//! A connection of HTTP/3, and requests on it.

use std::cell::Cell;
use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use edgeward_h3::{
    ErrorCode, FieldSection, FrameDecoder, FrameEvent, FrameLimits, FrameType, SectionLimits,
    StreamKind, begin_section, push_field, push_frame_head,
};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, ReadError, RecvStream, SendStream,
    TransportConfig, VarInt,
};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

/// A server, and the request that it gets.
pub(crate) struct Target {
    address: SocketAddr,
    config: ClientConfig,
    /// A HEADERS frame.
    request: Bytes,
}

/// A connection whose handshake is complete.
pub(crate) struct Client {
    quic: Connection,
    request: Bytes,
    /// True after a GOAWAY of the server.
    is_ending: Rc<Cell<bool>>,
    /// The control stream, which must stay open.
    _control: SendStream,
}

pub(crate) struct Response {
    /// The bytes of its content.
    pub(crate) bytes: u64,
    /// The longest time in which no byte arrived.
    pub(crate) longest_wait: Duration,
    /// `Ok` if the response is complete and has the status 200.
    pub(crate) end: Result<(), Fault>,
}

/// The reason why a request has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server has not processed the request, because the connection ends.
    Refused,
    /// The server does not know the connection.
    StatelessReset,
    Other(String),
}

impl Target {
    pub(crate) fn new(
        address: SocketAddr,
        certificate: &Path,
        path: &str,
    ) -> Result<Self, Box<dyn Error>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(certificate)?)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        // As browsers do, the client asks whether a silent server still knows the connection.
        let mut transport = TransportConfig::default();
        transport.keep_alive_interval(Some(Duration::from_secs(1)));
        let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
        config.transport_config(Arc::new(transport));
        Ok(Self {
            address,
            config,
            request: request(path),
        })
    }

    /// Opens a socket, which connections may use.
    pub(crate) fn endpoint(&self) -> io::Result<Endpoint> {
        let mut endpoint = Endpoint::client((self.local_address(), 0).into())?;
        endpoint.set_default_client_config(self.config.clone());
        Ok(endpoint)
    }

    /// Gives an endpoint another port.
    pub(crate) fn change_port(&self, endpoint: &Endpoint) -> io::Result<()> {
        endpoint.rebind(UdpSocket::bind((self.local_address(), 0))?)
    }

    pub(crate) async fn connect(&self, endpoint: &Endpoint) -> Result<Client, Fault> {
        let connecting = endpoint.connect(self.address, "localhost");
        let quic = connecting.map_err(other)?.await?;
        let mut control = quic.open_uni().await?;
        control.write_all(PREFACE).await.map_err(other)?;
        let is_ending = Rc::new(Cell::new(false));
        tokio::task::spawn_local(read_control(quic.clone(), Rc::clone(&is_ending)));
        Ok(Client {
            quic,
            request: self.request.clone(),
            is_ending,
            _control: control,
        })
    }

    fn local_address(&self) -> Ipv4Addr {
        match self.address.ip().is_loopback() {
            true => Ipv4Addr::LOCALHOST,
            false => Ipv4Addr::UNSPECIFIED,
        }
    }
}

impl Client {
    /// Returns true if the server accepts no further requests.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.get() || self.quic.close_reason().is_some()
    }

    /// Sends the request, and reads the response.
    pub(crate) async fn get(&self) -> Response {
        let mut response = Response {
            bytes: 0,
            longest_wait: Duration::ZERO,
            end: Ok(()),
        };
        let mut waiting_since = Instant::now();
        response.end = self.exchange(&mut response, &mut waiting_since).await;
        response.longest_wait = response.longest_wait.max(waiting_since.elapsed());
        response
    }

    async fn exchange(
        &self,
        response: &mut Response,
        waiting_since: &mut Instant,
    ) -> Result<(), Fault> {
        let (mut sending, mut stream) = self.quic.open_bi().await?;
        sending
            .write_chunk(self.request.clone())
            .await
            .map_err(other)?;
        sending.finish().map_err(other)?;
        let mut frames = FrameDecoder::new(StreamKind::Request, FrameLimits::default());
        while let Some(mut bytes) = read(&mut stream).await? {
            let now = Instant::now();
            response.longest_wait = response.longest_wait.max(now - *waiting_since);
            *waiting_since = now;
            while let Some(event) = frames.decode(&mut bytes).map_err(other)? {
                match event {
                    FrameEvent::Data(piece) => response.bytes += piece.len() as u64,
                    FrameEvent::Frame(FrameType::HEADERS, section) => check_status(&section)?,
                    _ => {}
                }
            }
        }
        frames.finish().map_err(other)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let code = ErrorCode::H3_NO_ERROR.0;
        self.quic
            .close(VarInt::from_u64(code).expect("a code"), b"");
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused => f.write_str("the server ends the connection"),
            Self::StatelessReset => f.write_str("the server does not know the connection"),
            Self::Other(reason) => f.write_str(reason),
        }
    }
}

impl Error for Fault {}

impl From<ConnectionError> for Fault {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::Reset => Self::StatelessReset,
            ConnectionError::ApplicationClosed(close)
                if close.error_code.into_inner() == ErrorCode::H3_NO_ERROR.0 =>
            {
                Self::Refused
            }
            error => other(error),
        }
    }
}

async fn read(stream: &mut RecvStream) -> Result<Option<Bytes>, Fault> {
    match stream.read_chunk(usize::MAX, true).await {
        Ok(chunk) => Ok(chunk.map(|chunk| chunk.bytes)),
        Err(ReadError::Reset(code)) if code.into_inner() == ErrorCode::H3_REQUEST_REJECTED.0 => {
            Err(Fault::Refused)
        }
        Err(ReadError::ConnectionLost(error)) => Err(error.into()),
        Err(error) => Err(other(error)),
    }
}

/// Reads the control stream of the server, until it ends.
async fn read_control(quic: Connection, is_ending: Rc<Cell<bool>>) {
    let Ok(mut stream) = quic.accept_uni().await else {
        return;
    };
    let mut frames = FrameDecoder::new(StreamKind::Control, FrameLimits::default());
    // The server opens no other stream, so the first byte is the type of the control stream.
    let mut stream_type = [0];
    if stream.read_exact(&mut stream_type).await.is_err() {
        return;
    }
    while let Ok(Some(mut bytes)) = read(&mut stream).await {
        while let Ok(Some(event)) = frames.decode(&mut bytes) {
            if matches!(event, FrameEvent::Frame(FrameType::GOAWAY, _)) {
                is_ending.set(true);
            }
        }
    }
}

fn check_status(section: &Bytes) -> Result<(), Fault> {
    let limits = SectionLimits::default();
    let mut lines = FieldSection::new(section, limits).map_err(other)?;
    match lines.next_line().map_err(other)? {
        Some(line) if line.name == b":status" && line.value == b"200" => Ok(()),
        line => Err(Fault::Other(format!("the response begins with {line:?}"))),
    }
}

/// Returns the HEADERS frame of a GET.
fn request(path: &str) -> Bytes {
    let mut section = Vec::new();
    begin_section(&mut section);
    let fields = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", path),
    ];
    for (name, value) in fields {
        push_field(&mut section, name.as_bytes(), value.as_bytes(), false);
    }
    let mut frame = Vec::new();
    push_frame_head(&mut frame, FrameType::HEADERS, section.len() as u64);
    frame.extend_from_slice(&section);
    frame.into()
}

fn other(error: impl ToString) -> Fault {
    Fault::Other(error.to_string())
}

/// The type of the control stream, and an empty SETTINGS frame.
const PREFACE: &[u8] = b"\x00\x04\x00";
