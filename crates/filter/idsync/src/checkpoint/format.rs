//! Encodes and decodes checkpoints of a scan. The plan lists the spans, which are parts of the scan that are read
//! independently. Each batch has the hashes of ids that were read from one span.
//!
//! ```text
//! header  8 "edgscan1", 16 identity (XXH3-128), 8 start of the scan (milliseconds since 1970), 8 checksum
//! record  1 kind, 4 length of the payload, the payload, 8 checksum
//!  plan    1 form of the ids, 4 number of spans, for each span: 4 length, bounds
//!  batch   4 index of the span, 1 flags (1: the span ends, 2: a position follows), 8 rows, 8 malformed rows,
//!          [4 length, position], then 8 for each hash
//! ```
//!
//! The number before each field is its length in bytes. A field in brackets is optional. Numbers are little-endian.
//! Only the source can decode bounds and positions. Checksums are XXH3-64. The seed of the header's checksum is 0. The
//! seed of a record's checksum is the checksum before it in the file.

use std::io::{self, Read};

use edgeward_filter::IdForm;
use edgeward_types::xxh3::xxh3_64_with_seed;

use super::{CheckpointError, Identity};
use crate::batch::SpanProgress;
use crate::ledger::Ledger;

/// The kind of a record.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Kind {
    Plan = 1,
    Batch = 2,
}

pub(super) fn header(identity: Identity, began_ms: u64) -> Vec<u8> {
    let mut bytes = [&MAGIC[..], &identity.0, &began_ms.to_le_bytes()].concat();
    let check = xxh3_64_with_seed(&bytes, 0);
    bytes.extend_from_slice(&check.to_le_bytes());
    bytes
}

fn length(length: usize) -> [u8; 4] {
    let length = u32::try_from(length).expect("batches and plans stay far below 4 GiB");
    length.to_le_bytes()
}

/// Returns an encoded record and its checksum. `chain` is the checksum of the previous record.
pub(super) fn record(kind: Kind, payload: &[u8], chain: u64) -> (Vec<u8>, u64) {
    let mut record = Vec::with_capacity(payload.len() + 13);
    record.push(kind as u8);
    record.extend_from_slice(&length(payload.len()));
    record.extend_from_slice(payload);
    let chain = xxh3_64_with_seed(&record, chain);
    record.extend_from_slice(&chain.to_le_bytes());
    (record, chain)
}

pub(super) fn plan_payload(form: IdForm, ledger: &Ledger) -> Vec<u8> {
    let mut payload = vec![form as u8];
    payload.extend_from_slice(&length(ledger.spans().len()));
    for span in ledger.spans() {
        payload.extend_from_slice(&length(span.bounds.len()));
        payload.extend_from_slice(&span.bounds);
    }
    payload
}

pub(super) fn batch_payload(progress: &SpanProgress, hashes: &[u64]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(32 + hashes.len() * 8);
    payload.extend_from_slice(&length(progress.span));
    let position = progress.position.as_deref();
    payload.push(u8::from(progress.ends_span) | u8::from(position.is_some()) << 1);
    payload.extend_from_slice(&progress.rows.to_le_bytes());
    payload.extend_from_slice(&progress.malformed.to_le_bytes());
    if let Some(position) = position {
        payload.extend_from_slice(&length(position.len()));
        payload.extend_from_slice(position);
    }
    for hash in hashes {
        payload.extend_from_slice(&hash.to_le_bytes());
    }
    payload
}

/// The decoded contents of a checkpoint.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) ledger: Ledger,
    /// The form of the ids (text, UUID or integer), or `None` if the file has no plan yet.
    pub(super) form: Option<IdForm>,
    /// The start of the scan, in milliseconds since 1970.
    pub(super) began_ms: u64,
    /// The checksum of the last valid record.
    pub(super) chain: u64,
    /// The offset at which the last valid record ends.
    pub(super) bytes: u64,
}

/// Reads the header and all records up to the end or the first invalid record. Calls `each` with the hashes of each
/// valid record; a plan has no hashes.
pub(super) fn replay(
    mut input: impl Read,
    identity: Identity,
    each: &mut dyn FnMut(&[u64]),
) -> Result<Contents, CheckpointError> {
    let mut header = [0; HEADER_BYTES];
    input.read_exact(&mut header).map_err(header_error)?;
    let mut fields = Fields(&header);
    let magic: [u8; 8] = fields.array().ok_or(CheckpointError::Foreign)?;
    let stored_identity: [u8; 16] = fields.array().ok_or(CheckpointError::Foreign)?;
    let began_ms = fields.u64().ok_or(CheckpointError::Foreign)?;
    let chain = fields.u64().ok_or(CheckpointError::Foreign)?;
    if magic != *MAGIC || chain != xxh3_64_with_seed(&header[..HEADER_BYTES - 8], 0) {
        return Err(CheckpointError::Foreign);
    }
    if stored_identity != identity.0 {
        return Err(CheckpointError::OtherScan);
    }
    let mut read = Contents {
        ledger: Ledger::default(),
        form: None,
        began_ms,
        chain,
        bytes: HEADER_BYTES as u64,
    };
    let (mut record, mut hashes) = (Vec::new(), Vec::new());
    while let Some(chain) = next_record(&mut input, read.chain, &mut record)? {
        hashes.clear();
        let (kind, payload) = (record[0], &record[5..]);
        let decoded = match kind {
            kind if kind == Kind::Plan as u8 => decode_plan(payload).map(|(form, ledger)| {
                read.form = Some(form);
                read.ledger = ledger;
            }),
            kind if kind == Kind::Batch as u8 => decode_batch(payload, &mut hashes)
                .filter(|progress| progress.span < read.ledger.spans().len())
                .map(|progress| read.ledger.record(&progress)),
            _ => None,
        };
        if decoded.is_none() {
            break;
        }
        each(&hashes);
        read.chain = chain;
        read.bytes += record.len() as u64 + 8;
    }
    Ok(read)
}

/// Reads a record, and verifies its checksum. `record` receives all other bytes of the record. `chain` is the checksum
/// of the previous record. Returns the checksum, or `None` at the end of the file or if the record is invalid.
fn next_record(
    input: &mut impl Read,
    chain: u64,
    record: &mut Vec<u8>,
) -> Result<Option<u64>, io::Error> {
    record.clear();
    let head = Read::take(&mut *input, 5).read_to_end(record)?;
    let &[_, a, b, c, d] = &record[..] else {
        debug_assert!(head < 5);
        return Ok(None);
    };
    let payload_bytes = u32::from_le_bytes([a, b, c, d]) as usize;
    if payload_bytes > RECORD_BYTES_MAX {
        return Ok(None);
    }
    // The buffer grows while bytes are read, so a wrong length does not allocate more bytes than the file has.
    Read::take(&mut *input, payload_bytes as u64).read_to_end(record)?;
    let mut check = Vec::with_capacity(8);
    Read::take(&mut *input, 8).read_to_end(&mut check)?;
    let computed = xxh3_64_with_seed(record, chain);
    let is_valid = record.len() == payload_bytes + 5 && check == computed.to_le_bytes();
    Ok(is_valid.then_some(computed))
}

fn decode_plan(payload: &[u8]) -> Option<(IdForm, Ledger)> {
    let mut fields = Fields(payload);
    let [form] = fields.array()?;
    let form = IdForm::ALL
        .into_iter()
        .find(|candidate| *candidate as u8 == form)?;
    let spans = fields.u32()?;
    let bounds: Option<Vec<_>> = (0..spans).map(|_| fields.bytes()).collect();
    fields
        .0
        .is_empty()
        .then_some((form, Ledger::with_spans(bounds?)))
}

fn decode_batch(payload: &[u8], hashes: &mut Vec<u64>) -> Option<SpanProgress> {
    let mut fields = Fields(payload);
    let span = fields.u32()? as usize;
    let [flags] = fields.array()?;
    let (rows, malformed) = (fields.u64()?, fields.u64()?);
    let position = if flags & 2 == 2 {
        Some(fields.bytes()?)
    } else {
        None
    };
    while !fields.0.is_empty() {
        hashes.push(fields.u64()?);
    }
    Some(SpanProgress {
        span,
        rows,
        malformed,
        position,
        ends_span: flags & 1 == 1,
    })
}

/// Reads fields from the start of some bytes.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = self.u32()? as usize;
        let (front, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(front.to_vec())
    }
}

fn header_error(error: io::Error) -> CheckpointError {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        CheckpointError::Foreign
    } else {
        error.into()
    }
}

pub(super) const MAGIC: &[u8; 8] = b"edgscan1";
pub(super) const HEADER_BYTES: usize = 8 + 16 + 8 + 8;

/// The largest payload of a record, far more than a batch of a million hashes (8 MB) or a plan of a hundred
/// thousand token ranges needs.
const RECORD_BYTES_MAX: usize = 1 << 26;
