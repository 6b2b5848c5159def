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
/// The format has no magic number. In a valid trace, the next access is -1 or greater than the index (from 0) of the
/// record. Time usually does not decrease. If it does, the next accesses must prove the format: all are small enough,
/// and those within the sample are the numbers of records with the same id.
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
        if record.time < latest && !are_next_accesses_exact(records) {
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

/// Returns true if every next access in the sample is -1 or the number, counted from 1, of a later record with the same
/// id. The records behind the sample are not compared.
fn are_next_accesses_exact(records: &[[u8; RECORD_BYTES]]) -> bool {
    let checked = &records[..records.len().min(CHECKED_RECORDS)];
    checked.iter().enumerate().all(|(index, bytes)| {
        let (_, next) = bytes.split_last_chunk().expect("24 bytes are more than 8");
        match i64::from_le_bytes(*next) {
            -1 => true,
            next if next <= index as i64 + 1 || next > NEXT_ACCESS_MAX => false,
            next => {
                let target = usize::try_from(next - 1)
                    .ok()
                    .and_then(|at| records.get(at));
                target.is_none_or(|target| decode(target).key == decode(bytes).key)
            }
        }
    })
}

const CHECKED_RECORDS: usize = 256;

/// The highest next access that [`are_next_accesses_exact`] accepts. No trace has more requests.
const NEXT_ACCESS_MAX: i64 = 1 << 44;

#[cfg(test)]
mod tests {
    use super::*;

    fn record(time: u32, key: u64, next: i64) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&time.to_le_bytes());
        bytes[4..12].copy_from_slice(&key.to_le_bytes());
        bytes[12..16].copy_from_slice(&100u32.to_le_bytes());
        bytes[16..].copy_from_slice(&next.to_le_bytes());
        bytes
    }

    #[test]
    fn a_time_may_decrease_if_the_next_accesses_are_exact() {
        let trace = |times: [u32; 4], next: [i64; 4]| {
            let keys = [7, 8, 7, 9];
            let records: Vec<_> = (0..4)
                .map(|at| record(times[at], keys[at], next[at]))
                .collect();
            check(records.as_flattened(), true)
        };
        assert_eq!(trace([5, 4, 3, 9], [3, -1, 70, -1]), Ok(()));
        assert!(trace([5, 4, 3, 9], [2, -1, -1, -1]).is_err(), "another key");
        assert!(
            trace([5, 4, 3, 9], [i64::MAX, -1, -1, -1]).is_err(),
            "too large"
        );
        assert_eq!(
            trace([3, 4, 5, 9], [2, -1, i64::MAX, -1]),
            Ok(()),
            "times increase"
        );
    }
}
