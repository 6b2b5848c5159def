//! The values of `Accept` and `Accept-Encoding` for which responses were fetched. A lookup without a variant for its
//! own values tries the variants for these: browsers of one version send the same values, so a few values cover most
//! requests.

use std::sync::Mutex;

use edgeward_semantics::negotiation::negotiated_lines;

use crate::rt::panics::lock;

/// The most frequent values, each as the negotiated lines of a secondary key.
#[derive(Debug, Default)]
pub(crate) struct RecentOffers(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    offers: Vec<Offer>,
    /// The number of records since the counts were last halved.
    records: u32,
}

#[derive(Debug)]
struct Offer {
    lines: Box<[u8]>,
    fetches: u32,
}

impl RecentOffers {
    /// Records a fetched response by the fields of its secondary key. A new value replaces the least frequent one.
    pub(crate) fn record(&self, secondary: &[u8]) {
        let Some(lines) = negotiated_lines(secondary) else {
            return;
        };
        if lines.len() > LINES_BYTES_MAX {
            return;
        }
        let mut table = lock(&self.0);
        table.records += 1;
        if table.records >= HALVE_AFTER {
            table.records = 0;
            table.offers.iter_mut().for_each(|offer| offer.fetches /= 2);
        }
        let offers = &mut table.offers;
        let at = match offers.iter().position(|offer| *offer.lines == *lines) {
            Some(at) => at,
            None => {
                if offers.len() == OFFERS_MAX {
                    offers.pop();
                }
                let lines = lines.into();
                offers.push(Offer { lines, fetches: 0 });
                offers.len() - 1
            }
        };
        offers[at].fetches += 1;
        // The table stays sorted, the most frequent value first.
        let fetches = offers[at].fetches;
        let place = offers[..at].partition_point(|offer| offer.fetches > fetches);
        offers[place..=at].rotate_right(1);
    }

    /// Calls `visit` with the negotiated lines of each value except `own`, the most frequent first.
    pub(crate) fn visit_others(&self, own: &[u8], mut visit: impl FnMut(&[u8])) {
        let table = lock(&self.0);
        let others = table.offers.iter().filter(|offer| *offer.lines != *own);
        others.for_each(|offer| visit(&offer.lines));
    }
}

/// The most values. A lookup that finds no variant computes a key for each: 16 keys cost about as much CPU time as a
/// tenth of the fetch that follows.
const OFFERS_MAX: usize = 16;

/// The longest lines. The values of browsers have less than 200 bytes.
const LINES_BYTES_MAX: usize = 512;

/// The counts are halved after this many records, so that a new browser replaces an old one.
const HALVE_AFTER: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn offers_of(offers: &RecentOffers) -> Vec<String> {
        let mut lines = Vec::new();
        offers.visit_others(b"", |line| {
            lines.push(String::from_utf8_lossy(line).into_owned());
        });
        lines
    }

    #[test]
    fn the_most_frequent_values_are_kept_and_visited_first() {
        let offers = RecentOffers::default();
        for _ in 0..3 {
            offers.record(b"accept-encoding:br,gzip\ncookie:a\n");
        }
        offers.record(b"accept-encoding:gzip\n");
        offers.record(b"accept-encoding\n"); // without the field
        offers.record(b"accept-encoding:evil\n");
        offers.record(b"cookie:a\n");
        for _ in 0..2 {
            offers.record(b"accept-encoding:zstd\n");
        }
        let lines = ["br,gzip", "zstd", "gzip"].map(|value| format!("accept-encoding:{value}\n"));
        assert_eq!(offers_of(&offers), lines);
        let mut others = Vec::new();
        offers.visit_others(lines[1].as_bytes(), |line| others.push(line.to_vec()));
        assert_eq!(others, [lines[0].as_bytes(), lines[2].as_bytes()]);
    }

    /// Method: a client sends many values once each. A frequent value stays.
    #[test]
    fn the_number_of_values_is_limited() {
        let offers = RecentOffers::default();
        let frequent = "accept-encoding:br,gzip\n";
        for weight in 1..=999 {
            offers.record(frequent.as_bytes());
            offers.record(format!("accept-encoding:gzip;q=0.{weight:03}\n").as_bytes());
        }
        let kept = offers_of(&offers);
        assert_eq!(kept.len(), OFFERS_MAX);
        assert_eq!(kept[0], frequent);
    }
}
