//! A client of HTTP/3 on quinn, which sends frames as a test states them.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use edgeward_h3::{
    FieldSection, FrameDecoder, FrameEvent, FrameLimits, FrameType, SectionLimits, StreamKind,
    begin_section, push_field, push_frame_head,
};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, ReadError, RecvStream, SendStream,
    TransportConfig, VarInt,
};
use rustls_pki_types::pem::PemObject;

use crate::identity::SelfSigned;

/// A connection.
pub(crate) struct H3Client {
    pub(crate) endpoint: Endpoint,
    pub(crate) quic: Connection,
    /// The control stream of the client, which must stay open.
    pub(crate) control: SendStream,
    /// That of the edge.
    pub(crate) edge_control: FrameReader,
}

/// A request stream.
pub(crate) struct H3Stream {
    pub(crate) sending: SendStream,
    pub(crate) frames: FrameReader,
}

/// Reads the frames of a stream of the edge.
pub(crate) struct FrameReader {
    pub(crate) stream: RecvStream,
    decoder: FrameDecoder,
    input: Bytes,
}

/// A response.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct H3Answer {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
}

impl H3Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(field, _)| field == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_hit(&self) -> bool {
        let status = self.field("cache-status").expect("a cache status");
        status.starts_with("edgeward; hit")
    }
}

/// Connects an endpoint of the client, which sends the first bytes of its control stream.
pub(crate) async fn connect(addr: SocketAddr, identity: &SelfSigned) -> H3Client {
    let endpoint = endpoint(identity);
    connect_from(endpoint, addr).await
}

pub(crate) fn endpoint(identity: &SelfSigned) -> Endpoint {
    endpoint_with(identity, |_| {})
}

/// Opens an endpoint of a client whose limits `change` sets.
pub(crate) fn endpoint_with(
    identity: &SelfSigned,
    change: impl FnOnce(&mut TransportConfig),
) -> Endpoint {
    let any_port = "127.0.0.1:0".parse().expect("an address");
    let mut endpoint = Endpoint::client(any_port).expect("a port is free");
    let mut transport = TransportConfig::default();
    change(&mut transport);
    let mut config = client_config(identity);
    config.transport_config(Arc::new(transport));
    endpoint.set_default_client_config(config);
    endpoint
}

pub(crate) async fn connect_from(endpoint: Endpoint, addr: SocketAddr) -> H3Client {
    let quic = connect_quic(&endpoint, addr).await;
    let control = open_uni(&quic, PREFACE).await;
    let mut edge_control = quic
        .accept_uni()
        .await
        .expect("the edge opens its control stream");
    let mut stream_type = [0xff];
    edge_control
        .read_exact(&mut stream_type)
        .await
        .expect("the stream has a type");
    assert_eq!(stream_type, [0], "the type of control streams");
    H3Client {
        endpoint,
        quic,
        control,
        edge_control: FrameReader::new(edge_control, StreamKind::Control),
    }
}

/// Connects the transport alone.
pub(crate) async fn connect_quic(endpoint: &Endpoint, addr: SocketAddr) -> Connection {
    let connecting = endpoint
        .connect(addr, "localhost")
        .expect("the settings are valid");
    connecting.await.expect("the edge accepts the connection")
}

/// Opens a unidirectional stream, and sends its first bytes.
pub(crate) async fn open_uni(quic: &Connection, bytes: &[u8]) -> SendStream {
    let mut stream = quic.open_uni().await.expect("the edge allows a stream");
    stream
        .write_all(bytes)
        .await
        .expect("the edge reads the stream");
    stream
}

/// The type of the control stream, and an empty SETTINGS frame.
pub(crate) const PREFACE: &[u8] = b"\x00\x04\x00";

fn client_config(identity: &SelfSigned) -> ClientConfig {
    let pem = identity.files().certificates;
    let certificate =
        rustls_pki_types::CertificateDer::from_pem_file(pem).expect("the file has a certificate");
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(certificate)
        .expect("the certificate can be a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h3".to_vec()];
    let config = QuicClientConfig::try_from(config).expect("the provider has the first cipher");
    ClientConfig::new(Arc::new(config))
}

impl H3Client {
    /// Opens a stream without sending bytes.
    pub(crate) async fn open(&self) -> H3Stream {
        let (sending, receiving) = self.quic.open_bi().await.expect("the edge allows a stream");
        H3Stream {
            sending,
            frames: FrameReader::new(receiving, StreamKind::Request),
        }
    }

    /// Sends a request without content.
    pub(crate) async fn send(&self, method: &str, path: &str, fields: &[(&str, &str)]) -> H3Stream {
        let mut stream = self.open().await;
        stream.write(&head(method, path, fields)).await;
        stream.finish();
        stream
    }

    pub(crate) async fn get(&self, path: &str) -> H3Answer {
        self.send("GET", path, &[]).await.answer().await
    }

    pub(crate) async fn get_with(&self, path: &str, fields: &[(&str, &str)]) -> H3Answer {
        self.send("GET", path, fields).await.answer().await
    }

    /// Sends a POST with content.
    pub(crate) async fn send_content(
        &self,
        path: &str,
        fields: &[(&str, &str)],
        content: &[u8],
    ) -> H3Answer {
        let mut stream = self.open().await;
        stream.write(&head("POST", path, fields)).await;
        stream.write(&frame(FrameType::DATA, content)).await;
        stream.finish();
        stream.answer().await
    }

    /// Begins a request and cancels it.
    pub(crate) async fn open_and_cancel(&self) {
        let mut stream = self.open().await;
        stream.write(&head("GET", "/", &[])[..4]).await;
        stream.cancel();
    }

    /// Waits for the end of the connection. Returns the code of the edge.
    pub(crate) async fn close_code(&self) -> u64 {
        close_code(&self.quic).await
    }
}

pub(crate) async fn close_code(quic: &Connection) -> u64 {
    match quic.closed().await {
        ConnectionError::ApplicationClosed(close) => close.error_code.into_inner(),
        other => panic!("the edge does not close the connection: {other}"),
    }
}

impl H3Stream {
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.sending
            .write_all(bytes)
            .await
            .expect("the edge reads the stream");
    }

    pub(crate) fn finish(&mut self) {
        self.sending.finish().expect("the stream is open");
    }

    /// Cancels the upload, but not the response.
    pub(crate) fn reset(&mut self) {
        let code = VarInt::from_u32(0x10c);
        self.sending.reset(code).expect("the stream is open");
    }

    /// Asks the edge to stop sending, as a browser does when it leaves a page.
    pub(crate) fn cancel(mut self) {
        let code = VarInt::from_u32(0x10c);
        _ = self.sending.reset(code);
        self.frames.stream.stop(code).expect("the stream is open");
    }

    pub(crate) async fn answer(mut self) -> H3Answer {
        self.read_all().await.expect("the response is complete")
    }

    /// Reads the response. An error has the code of a reset.
    pub(crate) async fn read_all(&mut self) -> Result<H3Answer, u64> {
        let mut answer = H3Answer::default();
        while let Some(event) = self.frames.next().await? {
            match event {
                FrameEvent::Frame(FrameType::HEADERS, section) if answer.status == 0 => {
                    let mut fields = lines(&section);
                    let (name, status) = fields.remove(0);
                    assert_eq!(name, ":status");
                    answer.status = status.parse().expect("a number");
                    answer.fields = fields;
                }
                FrameEvent::Frame(FrameType::HEADERS, section) => answer.trailers = lines(&section),
                FrameEvent::Data(bytes) => answer.body.extend_from_slice(&bytes),
                FrameEvent::DataBegins(_) => {}
                other => panic!("not a frame of a response: {other:?}"),
            }
        }
        let end = self.frames.decoder.finish();
        end.expect("the last frame is complete");
        Ok(answer)
    }
}

impl FrameReader {
    fn new(stream: RecvStream, kind: StreamKind) -> Self {
        Self {
            stream,
            decoder: FrameDecoder::new(kind, FrameLimits::default()),
            input: Bytes::new(),
        }
    }

    /// Reads the next frame, or a part of a DATA frame. `None` is the end of the stream. An error has the code of a
    /// reset, or of the end of the connection.
    pub(crate) async fn next(&mut self) -> Result<Option<FrameEvent>, u64> {
        loop {
            let event = self.decoder.decode(&mut self.input);
            if let Some(event) = event.expect("the frames of the edge are valid") {
                return Ok(Some(event));
            }
            match self.stream.read_chunk(64 << 10, true).await {
                Ok(Some(chunk)) => self.input = chunk.bytes,
                Ok(None) => return Ok(None),
                Err(ReadError::Reset(code)) => return Err(code.into_inner()),
                Err(ReadError::ConnectionLost(ConnectionError::ApplicationClosed(close))) => {
                    return Err(close.error_code.into_inner());
                }
                Err(error) => panic!("the stream ends: {error}"),
            }
        }
    }

    /// Returns the id of the next GOAWAY of a control stream.
    pub(crate) async fn goaway(&mut self) -> u64 {
        loop {
            match self.next().await {
                Ok(Some(FrameEvent::Frame(FrameType::GOAWAY, id))) => return varint(&id),
                Ok(Some(_)) => {}
                ended => panic!("the control stream ends: {ended:?}"),
            }
        }
    }
}

/// Returns the integer of variable length that `bytes` are (RFC 9000 §16).
fn varint(bytes: &[u8]) -> u64 {
    let (first, rest) = bytes.split_first().expect("an integer");
    assert_eq!(bytes.len(), 1_usize << (first >> 6));
    let first = u64::from(first & 0x3f);
    rest.iter()
        .fold(first, |value, &byte| value << 8 | u64::from(byte))
}

/// Returns a HEADERS frame with the head of a request to `test.example`.
pub(crate) fn head(method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = [
        (":method", method),
        (":scheme", "https"),
        (":authority", "test.example"),
        (":path", path),
    ];
    headers(pseudo.iter().chain(fields))
}

/// Returns a HEADERS frame.
pub(crate) fn headers<'a>(fields: impl IntoIterator<Item = &'a (&'a str, &'a str)>) -> Vec<u8> {
    let mut section = Vec::new();
    begin_section(&mut section);
    for (name, value) in fields {
        push_field(&mut section, name.as_bytes(), value.as_bytes(), false);
    }
    frame(FrameType::HEADERS, &section)
}

pub(crate) fn frame(frame_type: FrameType, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    push_frame_head(&mut frame, frame_type, payload.len() as u64);
    frame.extend_from_slice(payload);
    frame
}

fn lines(section: &[u8]) -> Vec<(String, String)> {
    let mut section =
        FieldSection::new(section, SectionLimits::default()).expect("the section is valid");
    let mut lines = Vec::new();
    while let Some(line) = section.next_line().expect("the section is valid") {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        lines.push((text(line.name), text(line.value)));
    }
    lines
}
