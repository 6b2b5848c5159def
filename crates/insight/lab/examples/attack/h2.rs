//! Encodes HTTP/2 frames (RFC 9113 §4, RFC 7541). An HTTP/2 library would refuse to send the frames of the attacks.

/// Returns the connection preface and SETTINGS with an initial window of `window` bytes (RFC 9113 §3.4, §6.5.2).
pub(super) fn preface(window: u32) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let mut setting = vec![0x00, 0x04];
    setting.extend_from_slice(&window.to_be_bytes());
    frame(&mut bytes, SETTINGS, 0, 0, &setting);
    bytes
}

/// Appends a frame (RFC 9113 §4.1).
pub(super) fn frame(into: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("the payload is short");
    into.extend_from_slice(&length.to_be_bytes()[1..]);
    into.extend_from_slice(&[kind, flags]);
    into.extend_from_slice(&stream.to_be_bytes());
    into.extend_from_slice(payload);
}

/// Returns the header block of a request for `path` (RFC 7541 §6.2.2: literals without indexing, no Huffman code).
pub(super) fn head(method: Method, path: &str) -> Vec<u8> {
    // Indexes of the static table: 2 and 3 are the methods GET and POST, 6 is the scheme http, 4 is :path, 1 is
    // :authority.
    let mut block = vec![if method == Method::Get { 0x82 } else { 0x83 }, 0x86];
    literal(&mut block, 0x04, path.as_bytes());
    literal(&mut block, 0x01, b"bench");
    block
}

/// Appends a field with an indexed name of the static table and a literal value.
fn literal(block: &mut Vec<u8>, name_index: u8, value: &[u8]) {
    block.push(name_index);
    integer(block, 0, 7, value.len());
    block.extend_from_slice(value);
}

/// Appends a field that the server adds to its dynamic table. Later requests repeat the field with one byte (RFC 7541
/// §6.2.1).
pub(super) fn indexed_field(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0x40);
    integer(block, 0, 7, name.len());
    block.extend_from_slice(name);
    integer(block, 0, 7, value.len());
    block.extend_from_slice(value);
}

/// The encoded field that repeats the newest entry of the dynamic table: an indexed field with index 62 (RFC 7541
/// §2.3.3, §6.1).
pub(super) const NEWEST_FIELD: u8 = 0x80 | 62;

/// Appends an integer with a prefix of `bits` bits (RFC 7541 §5.1). `first` has the bits above the prefix in the first
/// byte.
fn integer(block: &mut Vec<u8>, first: u8, bits: u32, value: usize) {
    let most = (1_usize << bits) - 1;
    if value < most {
        block.push(first | u8::try_from(value).expect("the value fits in the prefix"));
        return;
    }
    block.push(first | u8::try_from(most).expect("the value fits in the prefix"));
    let mut rest = value - most;
    while rest >= 128 {
        block.push(u8::try_from(rest % 128).expect("the value is below 128") | 0x80);
        rest /= 128;
    }
    block.push(u8::try_from(rest).expect("the value is below 128"));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Post,
}

pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
/// The error code CANCEL as the payload of RST_STREAM (RFC 9113 §7).
pub(super) const CANCEL: [u8; 4] = [0, 0, 0, 8];
