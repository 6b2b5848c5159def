//! HTTP/3 (RFC 9114) for a server, without I/O and without a runtime: bytes of streams become requests, responses
//! become bytes. The driver has QUIC, sockets and tasks.
//!
//! Field sections use the static table of QPACK (RFC 9204) and no dynamic one. The section of a response is therefore
//! the same for every client, and can be stored with the response; a body is passed on as the [`Bytes`] that arrived.
//!
//! # How a driver uses it
//!
//! **Begin.** Make a [`Connection`] when the handshake is complete. Open one unidirectional stream and write
//! [`Connection::push_preface`] to it: this is the control stream. The client must allow it
//! ([`Connection::control_refused`] is the error if it does not), and it must stay open
//! ([`Connection::control_stopped`] is the error if the client stops it). The server opens no other stream.
//!
//! **Unidirectional streams of the client.** Call [`Connection::begin_uni`] for each, and keep a [`UniStream`]. Pass
//! bytes to [`Connection::receive_uni`] until it returns `None`, and the end or reset of the stream to
//! [`Connection::finish_uni`].
//!
//! **Requests.** For each bidirectional stream, call [`Connection::begin_request`]. `None` means that the stream is
//! rejected. Otherwise pass bytes to [`RequestStream::receive`] until it returns `None`, and the end of the stream to
//! [`RequestStream::finish`]; a reset needs neither. [`RequestEvent::Head`] is the request: methods, targets and fields
//! are checked, so the driver makes a request of its own types from it. A priority that the head states
//! ([`Priority::with_field`]) goes to [`Priorities::set_from_request`]. Reading may stop at any event, so that flow
//! control holds the client back. The content is complete only after [`RequestStream::finish`].
//!
//! **Responses.** Make the field section by [`push_response`], or take the stored one and append fields by
//! [`push_header`]. Write a HEADERS frame: [`push_frame_head`] with the length of the section, then the section. Write
//! content as DATA frames: one frame for the whole content if its length is known. This crate makes the frame heads.
//! Trailers ([`push_trailers`]) are a last HEADERS frame. Then finish the stream. Compare [`response_bytes`] with the
//! client's [`Settings`] before the head is sent.
//!
//! **Order.** The transport sends streams with a higher [`Priorities::rank`] first. Look it up again before each write,
//! because a PRIORITY_UPDATE of the control stream changes it.
//!
//! **Errors.** A [`ConnectionError`] closes the connection with its code. A [`StreamError`] ends one request: answer
//! with its status, or reset both directions with its code. Both say which rule was violated.
//!
//! | the driver | code |
//! |---|---|
//! | rejects a request without having processed it | [`ErrorCode::H3_REQUEST_REJECTED`] |
//! | cancels a request or a response that was perhaps processed | [`ErrorCode::H3_REQUEST_CANCELLED`] |
//! | has answered completely and needs no more content | [`ErrorCode::H3_NO_ERROR`], in STOP_SENDING |
//! | cannot complete a response because of its own error | [`ErrorCode::H3_INTERNAL_ERROR`] |
//! | loses the other connection of a tunnel | [`ErrorCode::H3_CONNECT_ERROR`] |
//!
//! **Long requests.** [`Connection::push_keep_alive`] at intervals, or the client's idle timeout ends the connection
//! before a slow response begins.
//!
//! **End of a request.** [`Connection::end_request`] when both directions have ended.
//!
//! **End of a connection.** Write [`Connection::push_first_goaway`] to the control stream, a round trip later
//! [`Connection::push_final_goaway`], and close with [`ErrorCode::H3_NO_ERROR`] when [`Connection::is_drained`].
//!
//! # Example
//!
//! ```
//! use edgeward_h3::{
//!     Connection, ConnectionConfig, FrameType, RequestEvent, StreamId, push_frame_head, push_header, push_response,
//! };
//! use http::{HeaderMap, HeaderValue, StatusCode, header::AGE};
//!
//! let mut connection = Connection::new(ConnectionConfig::default());
//! let mut control = Vec::new();
//! connection.push_preface(&mut control); // the first bytes of the control stream
//!
//! // The first bidirectional stream: GET https://a/ in a HEADERS frame.
//! let mut input = bytes::Bytes::from_static(b"\x01\x08\0\0\xd1\xd7\xc1\x50\x01a");
//! let mut stream = connection.begin_request(StreamId(0)).expect("one request is within all limits");
//! while let Some(event) = stream.receive(&mut input)? {
//!     match event {
//!         RequestEvent::Head(head) => assert_eq!(head.uri, "https://a/"),
//!         RequestEvent::Data(_) | RequestEvent::Trailers(_) => unreachable!("the request has a head alone"),
//!     }
//! }
//! stream.finish()?; // The client has ended the stream.
//!
//! // A hit: the section is stored, the age belongs to this response.
//! let mut section = Vec::new();
//! push_response(&mut section, StatusCode::OK, &HeaderMap::new());
//! push_header(&mut section, &AGE, &HeaderValue::from(7));
//! let mut head = Vec::new();
//! push_frame_head(&mut head, FrameType::HEADERS, section.len() as u64);
//! assert_eq!([head, section].concat(), b"\x01\x06\0\0\xd9\x52\x01\x37");
//! # Ok::<(), edgeward_h3::Error>(())
//! ```
//!
//! # Limits
//!
//! Every buffer, table and rate has a limit in [`ConnectionConfig`] or [`FrameLimits`]. The driver limits the number of
//! streams by the parameters of the transport, and charges [`RequestStream::buffered_bytes`] and the heads of requests
//! to its memory budget. A [`Bytes`] of content keeps the buffer that it is a part of.
//!
//! # Not supported
//!
//! Server push is never used, and datagrams (RFC 9297) are not negotiated. A client's dynamic table is refused by a
//! capacity of 0, which every client must accept (RFC 9204 §3.2.3).
//!
//! [`Bytes`]: bytes::Bytes
#![forbid(unsafe_code)]

mod connection;
mod error;
mod field;
mod frame;
mod priorities;
mod priority;
mod qpack;
mod request;
mod request_stream;
mod response;
mod settings;
mod stream_id;
mod varint;

pub use connection::{Connection, ConnectionConfig, RequestEnd, UniEvent, UniStream, WINDOW_MS};
pub use error::{ConnectionError, Error, ErrorCode, StreamError};
pub use frame::{FrameDecoder, FrameEvent, FrameLimits, FrameType, StreamKind, push_frame_head};
pub use priorities::Priorities;
pub use priority::{PRIORITY, Priority};
pub use qpack::decoder::{FIELD_OVERHEAD_BYTES, FieldLine, FieldSection, SectionLimits};
pub use qpack::encoder::{begin_section, push_field};
pub use qpack::huffman::decode as decode_huffman;
pub use request::{RequestHead, decode_request, decode_trailers};
pub use request_stream::{RequestEvent, RequestLimits, RequestStream};
pub use response::{push_header, push_response, push_trailers, response_bytes};
pub use settings::Settings;
pub use stream_id::StreamId;
