//! `Accept-Encoding` (RFC 9110 §12.5.3).

use http::header::{ACCEPT_ENCODING, HeaderMap};

use super::coding::Coding;
use crate::list::{self, Members};

/// The weights that a request gives to codings, in thousandths.
///
/// This departs from the RFC in three points, each on the safe side. Without the field, a request accepts no coding,
/// although the RFC permits any: programs that send no field often cannot decode. A coding with an invalid weight is
/// not accepted. If a coding is listed twice, its lower weight counts. Codings that need a dictionary are only accepted
/// by their name: a `*` of a program that knows no dictionaries does not include them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptedCodings {
    /// By the index in [`Coding::ALL`].
    weights: [Option<u16>; Coding::ALL.len()],
    identity: Option<u16>,
    /// The weight of `*`, for codings that are not listed.
    others: Option<u16>,
}

impl AcceptedCodings {
    /// Parses all lines of `Accept-Encoding`.
    pub fn from_headers(request: &HeaderMap) -> Self {
        let lines = request.get_all(ACCEPT_ENCODING);
        let mut accepted = Self::default();
        lines
            .iter()
            .for_each(|line| accepted.add_line(line.as_bytes()));
        accepted
    }

    /// Parses the value of one line.
    pub fn from_line(line: &[u8]) -> Self {
        let mut accepted = Self::default();
        accepted.add_line(line);
        accepted
    }

    fn add_line(&mut self, line: &[u8]) {
        for member in Members::new(line) {
            let mut parts = member.split(|&byte| byte == b';').map(list::trim);
            let name = parts.next().unwrap_or_default();
            let slot = match Coding::from_name(name) {
                Some(coding) => &mut self.weights[index(coding)],
                None if name.eq_ignore_ascii_case(b"identity") => &mut self.identity,
                None if name == b"*" => &mut self.others,
                None => continue,
            };
            let mut weight = WEIGHT_MAX;
            for parameter in parts {
                if let [b'q' | b'Q', b'=', value @ ..] = parameter {
                    weight = parse_weight(value).unwrap_or(0);
                }
            }
            *slot = Some(slot.map_or(weight, |other| other.min(weight)));
        }
    }

    /// Returns the codings of `preferred` that the request accepts and does not want less than no coding. Higher
    /// weights come first; `preferred` orders codings of equal weight.
    pub fn order(&self, preferred: &[Coding]) -> CodingOrder {
        let mut order = CodingOrder::default();
        let mut weights = [0; Coding::ALL.len()];
        for &coding in preferred {
            let others = self.others.filter(|_| !coding.needs_dictionary());
            let weight = self.weights[index(coding)].or(others).unwrap_or(0);
            if weight == 0 || self.identity.is_some_and(|identity| identity > weight) {
                continue;
            }
            let length = usize::from(order.length);
            if order.iter().any(|other| other == coding) {
                continue;
            }
            let at = (0..length)
                .find(|&at| weights[at] < weight)
                .unwrap_or(length);
            weights.copy_within(at..length, at + 1);
            order.codings.copy_within(at..length, at + 1);
            (weights[at], order.codings[at]) = (weight, coding);
            order.length += 1;
        }
        order
    }
}

/// Codings in the order in which a request prefers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodingOrder {
    codings: [Coding; Coding::ALL.len()],
    length: u8,
}

impl CodingOrder {
    /// Returns the first coding, or `None` if no coding is accepted.
    pub fn first(&self) -> Option<Coding> {
        self.iter().next()
    }

    /// Yields the codings.
    pub fn iter(&self) -> impl Iterator<Item = Coding> + '_ {
        self.codings[..usize::from(self.length)].iter().copied()
    }

    /// Returns true if no coding is accepted.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl Default for CodingOrder {
    fn default() -> Self {
        Self {
            codings: Coding::ALL, // only the first `length` count
            length: 0,
        }
    }
}

fn index(coding: Coding) -> usize {
    match coding {
        Coding::Brotli => 0,
        Coding::Zstd => 1,
        Coding::Gzip => 2,
        Coding::DictionaryZstd => 3,
        Coding::DictionaryBrotli => 4,
    }
}

/// Parses a weight (§12.4.2): 0 or 1 with at most three decimals, and at most 1.
fn parse_weight(value: &[u8]) -> Option<u16> {
    let (whole, decimals) = match value {
        [whole @ (b'0' | b'1')] => (whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let mut weight = u16::from(whole - b'0');
    for at in 0..3 {
        let digit = decimals.get(at).copied().unwrap_or(b'0');
        if !digit.is_ascii_digit() {
            return None;
        }
        weight = weight * 10 + u16::from(digit - b'0');
    }
    (weight <= WEIGHT_MAX).then_some(weight)
}

/// The weight 1.
const WEIGHT_MAX: u16 = 1000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::headers;

    fn order(line: &str) -> Vec<Coding> {
        let accepted = AcceptedCodings::from_line(line.as_bytes());
        accepted.order(&Coding::GENERAL).iter().collect()
    }

    #[test]
    fn codings_are_ordered_by_weight_then_by_preference() {
        use Coding::{Brotli, Gzip, Zstd};
        for (line, expected) in [
            ("", &[][..]),
            ("gzip, deflate, br, zstd", &[Brotli, Zstd, Gzip]),
            ("gzip, deflate", &[Gzip]),
            ("x-GZIP", &[Gzip]),
            ("gzip;q=1.0, br;q=0.9, zstd;q=0.95", &[Gzip, Zstd, Brotli]),
            ("br ; q=0.001", &[Brotli]),
            ("br;q=0", &[]),
            ("br;q=0.000, gzip", &[Gzip]),
            ("*", &[Brotli, Zstd, Gzip]),
            ("*;q=0", &[]),
            ("*;q=0, gzip", &[Gzip]),
            ("gzip;q=0, *", &[Brotli, Zstd]),
            ("gzip, *;q=0.5", &[Gzip, Brotli, Zstd]),
            ("identity", &[]),
            ("identity, gzip;q=0.5", &[]),
            ("identity;q=0.5, gzip;q=0.5", &[Gzip]),
            ("identity;q=0, gzip;q=0.1", &[Gzip]),
            // Invalid weights and repeated codings.
            ("gzip;q=2", &[]),
            ("gzip;q=0.1234", &[]),
            ("gzip;q=", &[]),
            ("gzip;q=1.001", &[]),
            ("gzip;q=.5", &[]),
            ("gzip, gzip;q=0", &[]),
            ("gzip;other=1", &[Gzip]),
            ("gzi p, compress, deflate", &[]),
        ] {
            assert_eq!(order(line), expected, "{line}");
        }
    }

    #[test]
    fn all_lines_of_the_field_count() {
        let request = headers("accept-encoding: br\naccept-encoding: gzip;q=0.5, br;q=0");
        let order = AcceptedCodings::from_headers(&request).order(&Coding::GENERAL);
        assert_eq!(order.iter().collect::<Vec<_>>(), [Coding::Gzip]);
    }

    /// Returns the order by the text of the RFC, coding by coding, without the structures of this module.
    fn naive(members: &[(String, Option<u16>)], preferred: &[Coding]) -> Vec<Coding> {
        let weight_of = |wanted: &str| {
            let named = members.iter().filter(|(name, _)| {
                let name = name.to_ascii_lowercase();
                name == wanted || (wanted == "gzip" && name == "x-gzip")
            });
            named.map(|(_, weight)| weight.unwrap_or(1000)).min()
        };
        let identity = weight_of("identity");
        let mut accepted: Vec<(u16, Coding)> = Vec::new();
        for &coding in preferred {
            let others = || weight_of("*").filter(|_| !coding.name().starts_with("dc"));
            let weight = weight_of(coding.name()).or_else(others).unwrap_or(0);
            let is_new = accepted.iter().all(|(_, other)| *other != coding);
            if weight > 0 && identity.unwrap_or(0) <= weight && is_new {
                accepted.push((weight, coding));
            }
        }
        accepted.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight)); // stable
        accepted.into_iter().map(|(_, coding)| coding).collect()
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_a_naive_reading_of_the_rfc(
            members in proptest::collection::vec(
                ("(gzip|x-gzip|GZIP|br|Br|zstd|dcz|dcb|identity|\\*|deflate)", proptest::option::of(0_u16..=1000)),
                0..7,
            ),
            preferred in proptest::sample::subsequence(Coding::ALL.to_vec(), 0..=5).prop_shuffle(),
            spaces in "[ \t]{0,2}",
        ) {
            let texts = members.iter().map(|(name, weight)| match weight {
                None => name.clone(),
                Some(weight) => format!("{name}{spaces};{spaces}q={}.{:03}", weight / 1000, weight % 1000),
            });
            let line = texts.collect::<Vec<_>>().join(&format!("{spaces},{spaces}"));
            let order = AcceptedCodings::from_line(line.as_bytes()).order(&preferred);
            prop_assert_eq!(order.iter().collect::<Vec<_>>(), naive(&members, &preferred), "{}", line);
        }

        #[test]
        fn no_bytes_panic(line in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = AcceptedCodings::from_line(&line).order(&Coding::GENERAL);
        }
    }
}
