//! libCacheSim's oracleGeneral: 24 packed little-endian bytes a request.
//!
//! `u32` time in seconds, `u64` object id, `u32` size in bytes, `i64` number (from 1) of the
//! next request for the same object or -1. The last is passed over: see [`Record`].

use edgeward_types::Timestamp;

use crate::Record;

pub(crate) const RECORD_BYTES: usize = 24;

#[inline]
pub(super) fn decode(bytes: &[u8; RECORD_BYTES]) -> Record {
    let (time, rest) = bytes.split_first_chunk().expect("24 bytes hold 4");
    let (key, rest) = rest.split_first_chunk().expect("20 bytes hold 8");
    let (size, _next) = rest.split_first_chunk().expect("12 bytes hold 4");
    Record {
        time: Timestamp::from_secs(u64::from(u32::from_le_bytes(*time))),
        key: u64::from_le_bytes(*key),
        size: u64::from(u32::from_le_bytes(*size)),
    }
}

/// Whether bytes pass for oracleGeneral, or what speaks against it.
///
/// There is no magic number, so the first records are judged by what must hold of them: time
/// does not run backwards, and the next access is -1, the largest number, or lies ahead.
pub(super) fn judge(sample: &[u8], whole_input: bool) -> Result<(), String> {
    let (records, rest) = sample.as_chunks::<RECORD_BYTES>();
    if records.is_empty() {
        return Err(format!(
            "{} bytes, where one record takes {RECORD_BYTES}",
            sample.len()
        ));
    }
    let mut latest = Timestamp::ZERO;
    for (index, bytes) in records.iter().take(JUDGED_RECORDS).enumerate() {
        let record = decode(bytes);
        let (_, next) = bytes.split_last_chunk().expect("24 bytes hold 8");
        let next = i64::from_le_bytes(*next);
        if record.time < latest {
            return Err(format!("time would run backwards at record {index}"));
        }
        if next != -1 && next <= index as i64 {
            return Err(format!("record {index} would be asked for next at {next}"));
        }
        latest = record.time;
    }
    // One lone record of noise passes the two rules half the time; a tail that does not fit
    // tips the scale.
    if whole_input && records.len() < 4 && !rest.is_empty() {
        return Err(format!("{} bytes are not a multiple of 24", sample.len()));
    }
    Ok(())
}

const JUDGED_RECORDS: usize = 256;
