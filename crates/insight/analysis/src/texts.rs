//! The texts of the most requested URLs. For all other URLs, only the fingerprints are stored.

use hashbrown::HashMap;

use crate::wire::{DecodeError, Reader, Writer};

/// Texts of the most requested URLs, by fingerprint.
///
/// Every request is recorded until the table is full. Then the half of the URLs with the fewest estimated requests is
/// dropped, and from then on every second request is recorded. When the table is full again, every fourth request is
/// recorded, and so on. If a dropped URL has a noticeable share of the requests, it is soon recorded again, and then
/// stays in the table.
#[derive(Clone, Debug)]
pub struct Texts {
    rows: HashMap<u64, Row>,
    texts_max: usize,
    /// Every `2^skip_log`th request is recorded.
    skip_log: u32,
    /// The number of requests to skip before the next recorded request.
    until_next: u32,
}

#[derive(Clone, Debug)]
struct Row {
    text: Box<[u8]>,
    /// The estimated number of requests. A recorded request also counts for the requests skipped before it.
    weight: u64,
}

impl Texts {
    /// Returns an empty table for `texts_max` texts.
    pub fn new(texts_max: usize) -> Self {
        Self {
            rows: HashMap::new(),
            texts_max: texts_max.max(2),
            skip_log: 0,
            until_next: 0,
        }
    }

    /// Counts a request for the URL with this fingerprint, host and path.
    #[inline]
    pub fn record(&mut self, fingerprint: u64, host: &[u8], path: &[u8]) {
        if self.until_next > 0 {
            self.until_next -= 1;
            return;
        }
        self.until_next = (1 << self.skip_log) - 1;
        self.record_sampled(fingerprint, host, path);
    }

    fn record_sampled(&mut self, fingerprint: u64, host: &[u8], path: &[u8]) {
        let weight = 1 << self.skip_log;
        if let Some(row) = self.rows.get_mut(&fingerprint) {
            row.weight += weight;
            return;
        }
        let mut text = Vec::with_capacity((host.len() + path.len()).min(Self::TEXT_BYTES_MAX));
        for byte in host.iter().chain(path).take(Self::TEXT_BYTES_MAX) {
            text.push(*byte);
        }
        self.insert(fingerprint, text.into(), weight);
    }

    fn insert(&mut self, fingerprint: u64, text: Box<[u8]>, weight: u64) {
        let row = self
            .rows
            .entry(fingerprint)
            .or_insert(Row { text, weight: 0 });
        row.weight += weight;
        if self.rows.len() <= self.texts_max {
            return;
        }
        let mut weights: Vec<u64> = self.rows.values().map(|row| row.weight).collect();
        weights.sort_unstable_by(|a, b| b.cmp(a));
        let keep = self.texts_max / 2;
        let weight_min = weights[keep];
        let mut slots_left = keep;
        self.rows.retain(|_, row| {
            let is_kept = row.weight > weight_min || (row.weight == weight_min && slots_left > 0);
            if is_kept {
                slots_left = slots_left.saturating_sub(1);
            }
            is_kept
        });
        self.skip_log = (self.skip_log + 1).min(SKIP_LOG_MAX);
    }

    /// Adds another table.
    pub fn merge(&mut self, other: Self) {
        self.skip_log = self.skip_log.max(other.skip_log);
        for (fingerprint, row) in other.rows {
            self.insert(fingerprint, row.text, row.weight);
        }
    }

    pub(crate) fn write_to(&self, out: &mut Writer) {
        out.number(self.texts_max as u64);
        out.number(u64::from(self.skip_log));
        out.number(self.rows.len() as u64);
        // The rows are sorted, so that equal tables have equal bytes.
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_unstable_by_key(|(fingerprint, _)| **fingerprint);
        for (fingerprint, row) in rows {
            out.fixed(*fingerprint);
            out.number(row.weight);
            out.text(&row.text);
        }
    }

    pub(crate) fn read_from(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let texts_max = usize::try_from(from.number()?).map_err(|_| from.decode_error())?;
        let skip_log = u32::try_from(from.number()?).map_err(|_| from.decode_error())?;
        // A row takes at least ten bytes: eight for the fingerprint, one for the weight, one for the text's length.
        let count = from.count(10)?;
        if !(2..=TEXTS_MAX).contains(&texts_max) || skip_log > SKIP_LOG_MAX || count > texts_max {
            return Err(from.decode_error());
        }
        let mut texts = Self::new(texts_max);
        texts.skip_log = skip_log;
        for _ in 0..count {
            let fingerprint = from.fixed()?;
            let weight = from.counted()?;
            let text = from.text()?;
            if text.len() > Self::TEXT_BYTES_MAX || texts.rows.contains_key(&fingerprint) {
                return Err(from.decode_error());
            }
            let text = text.into();
            texts.rows.insert(fingerprint, Row { text, weight });
        }
        Ok(texts)
    }

    /// Returns the text of the URL with this fingerprint (at most [`Self::TEXT_BYTES_MAX`] bytes), or `None` if
    /// the text is not in the table.
    pub fn get(&self, fingerprint: u64) -> Option<&[u8]> {
        self.rows.get(&fingerprint).map(|row| &*row.text)
    }

    /// The maximum number of bytes stored per URL.
    pub const TEXT_BYTES_MAX: usize = 512;
}

/// The largest `skip_log`: at least one request in 1024 is recorded. If a URL has ten thousand requests, about ten of
/// them are then still recorded.
const SKIP_LOG_MAX: u32 = 10;

/// The largest `texts_max` that is accepted when a table is decoded.
const TEXTS_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_texts_are_kept_while_there_is_room() {
        let mut texts = Texts::new(10);
        (0..10).for_each(|n| texts.record(n, b"h", b"/a"));
        assert!((0..10).all(|n| texts.get(n) == Some(&b"h/a"[..])));
        assert_eq!(texts.get(10), None);
    }

    /// Method: record requests for three popular URLs among a hundred thousand URLs with one request each.
    #[test]
    fn popular_texts_are_kept_among_any_number_of_others() {
        let (mut left, mut right) = (Texts::new(64), Texts::new(64));
        for n in 0..100_000u64 {
            for texts in [&mut left, &mut right] {
                texts.record(1000 + n, b"", b"/once");
                texts.record(n % 3, b"", b"/often");
            }
        }
        left.merge(right);
        assert!(left.rows.len() <= 64);
        assert!((0..3).all(|n| left.get(n) == Some(&b"/often"[..])));
    }

    #[test]
    fn a_long_text_is_truncated() {
        let mut texts = Texts::new(4);
        texts.record(1, b"host", &[b'x'; 5000]);
        assert_eq!(texts.get(1).map(<[u8]>::len), Some(Texts::TEXT_BYTES_MAX));
    }
}
