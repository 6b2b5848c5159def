//! The evidence for faults, by kind and subject, in a bounded table.

use edgeward_types::xxh3::xxh3_64_with_seed;

use super::kind::FaultKind;
use super::request::Observed;

/// The evidence for one fault.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub(super) kind: FaultKind,
    /// The index of the site.
    pub(super) site: Option<usize>,
    /// The path pattern, parameter or host.
    pub(super) subject: String,
    hash: u64,
    /// Samples that show the fault.
    pub(super) samples: f64,
    /// Samples that contradict it.
    pub(super) against: f64,
    /// Samples that show the fault and are new in a respect that depends on the kind.
    pub(super) fresh: f64,
    /// Requests that show the fault: samples with their weights.
    pub(super) requests: f64,
    /// Requests that the rule would turn into hits.
    pub(super) hits: f64,
    /// The rank of the row that this one has replaced. It keeps a flood of subjects from evicting each other at once.
    inherited: f64,
    /// A URL with the fault.
    pub(super) example: String,
    /// A text of the rule beside the subject.
    pub(super) other: String,
    /// The shortest observed lifetime in milliseconds. 0: none.
    pub(super) lifetime_ms: u64,
}

impl Evidence {
    fn rank(&self) -> f64 {
        self.inherited + self.samples + self.against
    }
}

/// The evidence for at most [`ROWS_MAX`] faults.
#[derive(Debug)]
pub(super) struct EvidenceTable {
    rows: Vec<Evidence>,
    seed: u64,
}

impl EvidenceTable {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rows: Vec::new(),
            seed,
        }
    }

    /// Adds a request that shows a fault, or contradicts it. Returns the row of the fault. `None` if the request
    /// contradicts a fault without other evidence.
    pub(super) fn add(
        &mut self,
        (kind, site, subject): (FaultKind, Option<usize>, &str),
        seen: &Observed<'_>,
        shows: bool,
        is_hit: bool,
    ) -> Option<&mut Evidence> {
        let hash = self.hash(kind, site, subject);
        let known = self.rows.iter().position(|row| row.hash == hash);
        if !shows {
            let row = &mut self.rows[known?];
            row.against += 1.0;
            return Some(row);
        }
        let row = match known {
            Some(at) => &mut self.rows[at],
            None => self.insert(kind, site, subject, hash),
        };
        let weight = f64::from(seen.weight);
        row.samples += 1.0;
        row.requests += weight;
        if is_hit {
            row.hits += weight;
        }
        if row.example.is_empty() {
            row.example = visible(&[seen.host, seen.target]);
        }
        Some(row)
    }

    fn hash(&self, kind: FaultKind, site: Option<usize>, subject: &str) -> u64 {
        let seed = self.seed ^ ((kind as u64) << 32) ^ site.map_or(u64::MAX, |site| site as u64);
        xxh3_64_with_seed(subject.as_bytes(), seed)
    }

    /// Inserts a row. If the table is full, the row replaces the one with the least evidence.
    fn insert(
        &mut self,
        kind: FaultKind,
        site: Option<usize>,
        subject: &str,
        hash: u64,
    ) -> &mut Evidence {
        let mut new = Evidence {
            kind,
            site,
            subject: subject.to_owned(),
            hash,
            samples: 0.0,
            against: 0.0,
            fresh: 0.0,
            requests: 0.0,
            hits: 0.0,
            inherited: 0.0,
            example: String::new(),
            other: String::new(),
            lifetime_ms: 0,
        };
        if self.rows.len() < ROWS_MAX {
            self.rows.push(new);
            return self.rows.last_mut().expect("a row was pushed");
        }
        let rows = self.rows.iter_mut();
        let least = rows.min_by(|a, b| a.rank().total_cmp(&b.rank()));
        let least = least.expect("the table is full");
        new.inherited = least.rank();
        *least = new;
        least
    }

    pub(super) fn rows(&self) -> &[Evidence] {
        &self.rows
    }

    /// Multiplies all counts, so that old evidence counts less.
    pub(super) fn scale(&mut self, factor: f64) {
        for row in &mut self.rows {
            let counts = [
                &mut row.samples,
                &mut row.against,
                &mut row.fresh,
                &mut row.requests,
                &mut row.hits,
                &mut row.inherited,
            ];
            counts.into_iter().for_each(|count| *count *= factor);
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let texts: usize = self
            .rows
            .iter()
            .map(|row| row.subject.capacity() + row.example.capacity() + row.other.capacity())
            .sum();
        (self.rows.capacity() * size_of::<Evidence>() + texts) as u64
    }
}

/// Returns the beginning of a URL with escapes in place of bytes that are not visible ASCII.
fn visible(parts: &[&str]) -> String {
    let mut text = String::new();
    for letter in parts.iter().flat_map(|part| part.chars()) {
        let escape = letter.escape_default();
        let is_plain = letter.is_ascii_graphic();
        if text.len() + escape.len() > EXAMPLE_BYTES_MAX {
            break;
        }
        if is_plain {
            text.push(letter);
        } else {
            text.extend(escape);
        }
    }
    text
}

/// The longest example of a URL.
pub(super) const EXAMPLE_BYTES_MAX: usize = 256;

/// The most faults whose evidence is kept. A row takes less than a kilobyte.
pub(super) const ROWS_MAX: usize = 128;
