//! Finds malformed header blocks before the crate h2 decodes them.
//!
//! A malformed request or response ends its stream, and no other stream of the connection (RFC 9113 §8.1.1). The
//! crate h2 ends the connection: its decoder makes checked names and values, and cannot continue after an invalid one.
//! Through a proxy, the request of one client would thereby end the requests of all others.
//!
//! [`BlockScreen`] decodes each block before h2 does. A valid block passes unchanged. A malformed one is replaced by a
//! block that h2 refuses as an error of the stream. Blocks also add fields to the dynamic table of the connection (RFC
//! 7541 §2.3.2), to which later blocks refer, so the replacement adds the same fields. Invalid text is replaced by text
//! of the same length, because lengths decide which fields the table keeps. The screen remembers which fields of the
//! table are invalid. It keeps the text of paths with delimiters only, so it takes at most 128 times 8 bytes of a
//! connection, and the bytes of such paths.
//!
//! A path with delimiters such as quotes is valid for the edge, but not for h2. It is replaced too: see [`paths`].
//!
//! An error of the coding (RFC 7541) is an error of the connection. The screen passes such a block, and h2 ends the
//! connection. It does the same with a field that is added to the table with neither a name nor a value, because h2
//! has no field of that size.

mod paths;

use std::collections::VecDeque;

use http::{HeaderName, Method, StatusCode};

use super::representations::{parse_integer, push_integer, push_text, skip_string};
pub(crate) use paths::take_path;
use paths::{DelimitedPath, Paths, delimited};

/// The dynamic table of one direction of a connection, without its text.
#[derive(Debug)]
pub(super) struct BlockScreen {
    /// The fields in the table, the newest first.
    fields: VecDeque<Field>,
    /// The size of the fields and its limit (RFC 7541 §4.1).
    size: usize,
    size_max: usize,
    paths: Paths,
    /// True after an error of the coding. Further blocks are not checked.
    is_lost: bool,
}

/// The message that a block belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    Request,
    /// A request that h2 must refuse as an error of the stream.
    RefusedRequest,
    /// A response or trailers, which have no path.
    Pathless,
}

/// A field in the dynamic table.
#[derive(Clone, Copy, Debug)]
struct Field {
    name: Name,
    name_bytes: u16,
    value_bytes: u16,
    has_valid_value: bool,
}

/// The class of a field's name, which decides about its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Pseudo(Pseudo),
    /// A field of the connection, which no message may have (RFC 9113 §8.2.2).
    Connection,
    Te,
    Other,
    /// Not a name, or a pseudo-header field that the standards do not define.
    Invalid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pseudo {
    Method,
    Status,
    Scheme,
    Authority,
    Path,
    Protocol,
}

/// An error of the coding, or a field that cannot be replaced.
struct Undecodable;

impl BlockScreen {
    pub(super) const fn new() -> Self {
        Self {
            fields: VecDeque::new(),
            size: 0,
            size_max: TABLE_BYTES_MAX,
            paths: Paths::new(),
            is_lost: false,
        }
    }

    /// Stops checking blocks, because one was not seen completely.
    pub(super) fn lose(&mut self) {
        self.is_lost = true;
        self.fields = VecDeque::new();
        self.paths = Paths::new();
    }

    /// Returns the bytes of the paths with delimiters in the table.
    pub(super) const fn path_bytes(&self) -> usize {
        self.paths.bytes()
    }

    /// Decodes a complete block. Returns the block that replaces it if it is malformed or refused, and the ends of its
    /// representations. h2 ignores pseudo-header fields in trailers, and refuses other blocks of a stream that is
    /// closed. A block whose path has delimiters is replaced by one that h2 accepts.
    pub(super) fn replacement(
        &mut self,
        block: &[u8],
        kind: BlockKind,
    ) -> Option<(Vec<u8>, Vec<usize>)> {
        if self.is_lost {
            return None;
        }
        let mut checked = Checked::new(kind == BlockKind::RefusedRequest);
        let decoded = self.decode(block, &mut checked);
        checked.is_malformed |= kind == BlockKind::Pathless && checked.path.is_some();
        match decoded {
            Ok(()) if checked.is_malformed => Some(self.rewrite(block, &checked)),
            Ok(()) => Some((checked.path?.replace_in(block), Vec::new())),
            Err(Undecodable) => {
                self.lose();
                None
            }
        }
    }

    fn decode(&mut self, block: &[u8], checked: &mut Checked) -> Result<(), Undecodable> {
        let mut rest = block;
        let mut decoded = Vec::new();
        while let Some(&first) = rest.first() {
            let offset = block.len() - rest.len();
            match first {
                0x80.. => {
                    let (index, after) = parse_integer(rest, 7).ok_or(Undecodable)?;
                    let field = self.field(index)?;
                    checked.add(field.name, field.has_valid_value);
                    if let Some(nth) = index.checked_sub(1 + STATIC_NAME_BYTES.len())
                        && let Some(text) = self.paths.get(nth)
                    {
                        let (text, place) = (text.into(), None);
                        checked.path = Some(DelimitedPath { text, place });
                    }
                    rest = after;
                }
                0x20..0x40 => {
                    let (size, after) = parse_integer(rest, 5).ok_or(Undecodable)?;
                    if checked.has_fields || size > TABLE_BYTES_MAX {
                        return Err(Undecodable);
                    }
                    self.size_max = size;
                    checked.size_min = Some(checked.size_min.map_or(size, |min| min.min(size)));
                    self.evict(0);
                    rest = after;
                }
                _ => {
                    let is_added = first >= 0x40;
                    let (field, from_value, after) = self.literal(rest, is_added, &mut decoded)?;
                    checked.add(field.name, field.has_valid_value);
                    let path = match field.name {
                        Name::Pseudo(Pseudo::Path) => {
                            delimited(string(from_value, &mut decoded)?.0)
                        }
                        _ => None,
                    };
                    if is_added {
                        checked.added.push((offset, self.add(field, path)?));
                    }
                    if let Some(path) = path {
                        checked.path = Some(DelimitedPath {
                            text: path.into(),
                            place: Some(block.len() - from_value.len()..block.len() - after.len()),
                        });
                    }
                    rest = after;
                }
            }
        }
        Ok(())
    }

    /// Decodes a literal field (RFC 7541 §6.2). Returns also the bytes from its value on, and those after the field.
    fn literal<'a>(
        &self,
        bytes: &'a [u8],
        is_added: bool,
        decoded: &mut Vec<u8>,
    ) -> Result<(Field, &'a [u8], &'a [u8]), Undecodable> {
        let prefix = if is_added { 6 } else { 4 };
        let (index, rest) = parse_integer(bytes, prefix).ok_or(Undecodable)?;
        let (name, name_bytes, from_value) = if index == 0 {
            let (name, rest) = string(rest, decoded)?;
            (Name::of(name), name.len(), rest)
        } else {
            let field = self.field(index)?;
            (field.name, usize::from(field.name_bytes), rest)
        };
        let (value, rest) = string(from_value, decoded)?;
        let field = Field {
            name,
            // A longer field does not fit into the table.
            name_bytes: u16::try_from(name_bytes).unwrap_or(u16::MAX),
            value_bytes: u16::try_from(value.len()).unwrap_or(u16::MAX),
            has_valid_value: name.allows(value),
        };
        Ok((field, from_value, rest))
    }

    /// Returns the field with this index in the static or the dynamic table (RFC 7541 §2.3.3).
    fn field(&self, index: usize) -> Result<Field, Undecodable> {
        let nth = index.checked_sub(1).ok_or(Undecodable)?;
        let Some(&name_bytes) = STATIC_NAME_BYTES.get(nth) else {
            let field = self.fields.get(nth - STATIC_NAME_BYTES.len());
            return field.copied().ok_or(Undecodable);
        };
        let name = match index {
            1 => Name::Pseudo(Pseudo::Authority),
            2 | 3 => Name::Pseudo(Pseudo::Method),
            4 | 5 => Name::Pseudo(Pseudo::Path),
            6 | 7 => Name::Pseudo(Pseudo::Scheme),
            8..=14 => Name::Pseudo(Pseudo::Status),
            TRANSFER_ENCODING_INDEX => Name::Connection,
            _ => Name::Other,
        };
        Ok(Field {
            name,
            name_bytes: u16::from(name_bytes),
            value_bytes: 0, // is not used: the table gets no copy of this field
            has_valid_value: true,
        })
    }

    /// Adds a field to the table (RFC 7541 §4.4). Returns the text that replaces its text in a malformed block.
    fn add(&mut self, mut field: Field, path: Option<&str>) -> Result<Replacement, Undecodable> {
        let size = field.size();
        self.evict(size);
        if size > self.size_max {
            // The field has evicted all others. Any field that is too large does so.
            return Ok(Replacement::Both(1, TABLE_BYTES_MAX));
        }
        let replacement = match path {
            Some(path) => Replacement::Value(b'/', path.len()),
            None => field.replacement(),
        };
        match replacement {
            Replacement::Both(0, 0) => return Err(Undecodable),
            Replacement::Both(..) => field.name = Name::Invalid,
            Replacement::None | Replacement::Value(..) => {}
        }
        self.size += size;
        self.fields.push_front(field);
        self.paths.push(path);
        Ok(replacement)
    }

    /// Removes the oldest fields until `size` bytes fit.
    fn evict(&mut self, size: usize) {
        while self.size + size > self.size_max
            && let Some(oldest) = self.fields.pop_back()
        {
            self.size -= oldest.size();
        }
        self.paths.keep(self.fields.len());
    }

    /// Returns a malformed block that leaves the table of h2 in the state of this one.
    fn rewrite(&self, block: &[u8], checked: &Checked) -> (Vec<u8>, Vec<usize>) {
        let (mut out, mut ends) = (Vec::new(), Vec::new());
        if let Some(size_min) = checked.size_min {
            push_integer(&mut out, SIZE_UPDATE, 5, size_min);
            push_integer(&mut out, SIZE_UPDATE, 5, self.size_max);
        }
        for (offset, replacement) in &checked.added {
            let representation = &block[*offset..];
            let length = |after: &[u8]| representation.len() - after.len();
            let (name, value) = literal_ends(representation).expect("the field was decoded");
            match *replacement {
                Replacement::None => out.extend_from_slice(&representation[..length(value)]),
                Replacement::Value(byte, value_bytes) => {
                    out.extend_from_slice(&representation[..length(name)]);
                    push_text(&mut out, byte, value_bytes);
                }
                Replacement::Both(name_bytes, value_bytes) => {
                    out.push(ADDED_LITERAL);
                    push_text(&mut out, b'x', name_bytes);
                    push_text(&mut out, b'x', value_bytes);
                }
            }
            ends.push(out.len());
        }
        out.extend_from_slice(&REFUSED_FIELD);
        (out, ends)
    }
}

impl Field {
    fn size(&self) -> usize {
        usize::from(self.name_bytes) + usize::from(self.value_bytes) + FIELD_OVERHEAD_BYTES
    }

    /// Returns the text that replaces the text of this field if h2 cannot decode it.
    fn replacement(&self) -> Replacement {
        let (name, value) = (usize::from(self.name_bytes), usize::from(self.value_bytes));
        match self.name {
            // No name is empty. The first byte of the value becomes the name.
            Name::Invalid if name == 0 => Replacement::Both(value.min(1), value.saturating_sub(1)),
            Name::Invalid => Replacement::Both(name, value),
            _ if self.has_valid_value => Replacement::None,
            // No value of this length is valid.
            Name::Pseudo(Pseudo::Method) if value == 0 => Replacement::Both(name, value),
            Name::Pseudo(Pseudo::Status) if value != 3 => Replacement::Both(name, value),
            name => Replacement::Value(name.valid_byte(), value),
        }
    }
}

/// The text that replaces the text of a field.
#[derive(Clone, Copy, Debug)]
enum Replacement {
    None,
    /// The byte that the value repeats, and its length.
    Value(u8, usize),
    /// The lengths of the name and the value.
    Both(usize, usize),
}

/// The result of decoding one block.
struct Checked {
    is_malformed: bool,
    has_fields: bool,
    /// True if the block has a field that is no pseudo-header field.
    has_regular_fields: bool,
    /// The pseudo-header fields of the block, one bit each.
    pseudo: u8,
    path: Option<DelimitedPath>,
    /// The fields that this block has added to the table: the offset of the representation, and the replaced text.
    added: Vec<(usize, Replacement)>,
    /// The smallest size of the table in size updates of the block.
    size_min: Option<usize>,
}

impl Checked {
    fn new(is_refused: bool) -> Self {
        Self {
            is_malformed: is_refused,
            has_fields: false,
            has_regular_fields: false,
            pseudo: 0,
            path: None,
            added: Vec::new(),
            size_min: None,
        }
    }

    /// Records a field of the block (RFC 9113 §8.2 and §8.3).
    fn add(&mut self, name: Name, has_valid_value: bool) {
        self.has_fields = true;
        self.is_malformed |= !has_valid_value;
        match name {
            Name::Pseudo(pseudo) => {
                let bit = 1 << pseudo as u8;
                self.is_malformed |= self.has_regular_fields || self.pseudo & bit != 0;
                self.pseudo |= bit;
            }
            Name::Connection | Name::Invalid => self.is_malformed = true,
            Name::Te | Name::Other => self.has_regular_fields = true,
        }
    }
}

impl Name {
    fn of(name: &[u8]) -> Self {
        match name {
            b":method" => Self::Pseudo(Pseudo::Method),
            b":status" => Self::Pseudo(Pseudo::Status),
            b":scheme" => Self::Pseudo(Pseudo::Scheme),
            b":authority" => Self::Pseudo(Pseudo::Authority),
            b":path" => Self::Pseudo(Pseudo::Path),
            b":protocol" => Self::Pseudo(Pseudo::Protocol),
            b"connection" | b"transfer-encoding" | b"upgrade" | b"keep-alive"
            | b"proxy-connection" => Self::Connection,
            b"te" => Self::Te,
            _ if HeaderName::from_lowercase(name).is_ok() => Self::Other,
            _ => Self::Invalid,
        }
    }

    /// Returns true if h2 accepts this value of a field with this name.
    fn allows(self, value: &[u8]) -> bool {
        match self {
            Self::Pseudo(Pseudo::Method) => Method::from_bytes(value).is_ok(),
            Self::Pseudo(Pseudo::Status) => StatusCode::from_bytes(value).is_ok(),
            Self::Pseudo(_) => std::str::from_utf8(value).is_ok(),
            Self::Te => value == b"trailers",
            // RFC 9110 §5.5: visible characters, spaces, tabs, and bytes above 127.
            Self::Connection | Self::Other | Self::Invalid => value
                .iter()
                .all(|&byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f)),
        }
    }

    /// Returns a byte whose repetition is a valid value.
    const fn valid_byte(self) -> u8 {
        match self {
            Self::Pseudo(Pseudo::Status) => b'9', // the status 999
            _ => b'x',
        }
    }
}

/// Returns the text of a string (RFC 7541 §5.2), and the bytes after it. `decoded` has the text if it is coded.
fn string<'a: 't, 't>(
    bytes: &'a [u8],
    decoded: &'t mut Vec<u8>,
) -> Result<(&'t [u8], &'a [u8]), Undecodable> {
    let (length, rest) = parse_integer(bytes, 7).ok_or(Undecodable)?;
    let (text, rest) = rest.split_at_checked(length).ok_or(Undecodable)?;
    if bytes[0] & HUFFMAN == 0 {
        return Ok((text, rest));
    }
    decoded.clear();
    edgeward_h3::decode_huffman(text, decoded).ok_or(Undecodable)?;
    Ok((decoded, rest))
}

/// Returns the bytes after the name and after the value of a literal field that is added to the table.
fn literal_ends(representation: &[u8]) -> Option<(&[u8], &[u8])> {
    let (index, rest) = parse_integer(representation, 6)?;
    let after_name = if index == 0 { skip_string(rest)? } else { rest };
    Some((after_name, skip_string(after_name)?))
}

/// SETTINGS_HEADER_TABLE_SIZE of hyper: the default of RFC 9113 §6.5.2.
const TABLE_BYTES_MAX: usize = 4096;

/// The size of a field in the table besides its text (RFC 7541 §4.1).
const FIELD_OVERHEAD_BYTES: usize = 32;

/// The bit of a string whose text is in the Huffman code.
const HUFFMAN: u8 = 0x80;

/// The first byte of a literal field with a literal name that is added to the table.
const ADDED_LITERAL: u8 = 0x40;

/// The bits of a size update before its integer.
const SIZE_UPDATE: u8 = 0x20;

const TRANSFER_ENCODING_INDEX: usize = 57;

/// The field `transfer-encoding` with an empty value, which makes a block malformed. It is not added to the table. The
/// index 57 is 15 in the prefix of 4 bits and 42 in the next byte.
const REFUSED_FIELD: [u8; 3] = [0x0f, 42, 0];

/// The lengths of the names in the static table (RFC 7541 appendix A).
#[rustfmt::skip]
const STATIC_NAME_BYTES: [u8; 61] = [
    10, 7, 7, 5, 5, 7, 7, 7, 7, 7, 7, 7, 7, 7, 14, 15, 15, 13, 6, 27, 3,
    5, 13, 13, 19, 16, 16, 14, 16, 13, 12, 6, 4, 4, 6, 7, 4, 4, 8, 17, 13, 8,
    19, 13, 4, 8, 12, 18, 19, 5, 7, 7, 11, 6, 10, 25, 17, 10, 4, 3, 16,
];

#[cfg(test)]
mod tests;
