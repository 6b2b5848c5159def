//! Parses libCacheSim's oracleGeneral: 24 packed little-endian bytes per request.
//!
//! The fields are: `u32` time in seconds, `u64` object id, `u32` size in bytes, and `i64` next access. The next
//! access is the number (from 1) of the next request for the same object, or -1. Only [`check`] reads the next
//! access; a [`Record`] does not contain it.

use edgeward_types::Timestamp;

use crate::Record;

pub(crate) const RECORD_BYTES: usize = 24;

#[inline]
pub(super) fn decode(bytes: &[u8; RECORD_BYTES]) -> Record {
    let (time, rest) = bytes.split_first_chunk().expect("24 bytes are more than 4");
    let (key, rest) = rest.split_first_chunk().expect("20 bytes are more than 8");
    let (size, _next) = rest.split_first_chunk().expect("12 bytes are more than 4");
    Record {
        time: Timestamp::from_secs(u64::from(u32::from_le_bytes(*time))),
        key: u64::from_le_bytes(*key),
        size: u64::from(u32::from_le_bytes(*size)),
    }
}

/// Checks that a sample can be oracleGeneral. Returns the reason if this is impossible. `whole_input` is true if the
/// sample is the whole input and not only its start.
///
/// The format has no magic number. In a valid trace, time does not decrease, and the next access is -1 or
/// greater than the index (from 0) of the record.
pub(super) fn check(sample: &[u8], whole_input: bool) -> Result<(), String> {
    let (records, rest) = sample.as_chunks::<RECORD_BYTES>();
    if records.is_empty() {
        return Err(format!(
            "it has {} bytes and one record has {RECORD_BYTES}",
            sample.len()
        ));
    }
    let mut latest = Timestamp::ZERO;
    for (index, bytes) in records.iter().take(CHECKED_RECORDS).enumerate() {
        let record = decode(bytes);
        let (_, next) = bytes.split_last_chunk().expect("24 bytes are more than 8");
        let next = i64::from_le_bytes(*next);
        if record.time < latest {
            return Err(format!("the time decreases at record {index}"));
        }
        if next != -1 && next <= index as i64 {
            return Err(format!("the next access of record {index} is {next}"));
        }
        latest = record.time;
    }
    // A single random record passes both checks with a probability of one half. If the input has only a few
    // records, its length is therefore checked too.
    if whole_input && records.len() < 4 && !rest.is_empty() {
        return Err(format!(
            "its length of {} bytes is not a multiple of 24",
            sample.len()
        ));
    }
    Ok(())
}

const CHECKED_RECORDS: usize = 256;
