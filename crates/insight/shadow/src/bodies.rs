//! Compares the bodies of one URL.
//!
//! Two bodies may differ for reasons that are no fault of a cache: the origin has a new version, or it writes another
//! body at each request. A difference is therefore reported only in two cases.
//!
//! - The edge answered with the body that the incumbent has for other fields of the request, and the incumbent still
//!   gives that body for those fields afterwards. The edge has then served the wrong variant.
//! - The bodies for equal fields differed twice, neither of them changed in between, and no validator (`ETag`,
//!   `Last-Modified`) shows two versions.

use crate::answer::Answer;
use crate::difference::{Cause, Difference};
use crate::request::Request;

use edgeward_types::xxh3::xxh3_64;

/// The last bodies of one URL, for a few sets of request fields.
#[derive(Debug, Default)]
pub(crate) struct Bodies {
    variants: Vec<Variant>,
}

#[derive(Debug)]
struct Variant {
    /// The hash of the fields of the request.
    fields_hash: u64,
    /// The hashes of names and values of the fields.
    fields: Vec<(u64, u64)>,
    incumbent: u128,
    edge: u128,
    /// True if one of the bodies has changed between two requests.
    is_changing: bool,
    /// The number of requests since the last change whose bodies differed.
    differed: u32,
    /// A difference that may be that of a wrong variant: the number of requests, and the difference.
    suspected: Option<(u64, Difference)>,
}

/// The result of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyResult {
    /// The bodies are equal, or nothing is known yet.
    Equal,
    /// The bodies differ, and the reason is a new version or a body that changes at each request.
    Changing,
    /// The bodies differ by a fault.
    Differs(Vec<(u64, Difference)>),
}

impl Bodies {
    /// Compares the bodies of two answers.
    pub(crate) fn compare(
        &mut self,
        request: &Request,
        incumbent: (&Answer, u128),
        edge: (&Answer, u128),
    ) -> BodyResult {
        let fields_hash = request.fields_hash();
        let mut confirmed = self.confirm(fields_hash, incumbent.1);
        let variant = self.variant(request, fields_hash, incumbent.1, edge.1);
        let is_new = variant.differed == 0;
        if (variant.incumbent, variant.edge) != (incumbent.1, edge.1) {
            variant.is_changing = true;
            (variant.incumbent, variant.edge) = (incumbent.1, edge.1);
            variant.differed = 0;
            variant.suspected = None;
        }
        if incumbent.1 == edge.1 {
            return match confirmed.is_empty() {
                true => BodyResult::Equal,
                false => BodyResult::Differs(confirmed),
            };
        }
        variant.differed = variant.differed.saturating_add(1);
        let (is_changing, differed) = (variant.is_changing, variant.differed);
        if let Some(names) = self.owner_of(request, fields_hash, edge.1) {
            let difference = Difference::new(
                Cause::Variant,
                &names[..],
                format!("the body for this {names}"),
                format!("the body for another {names}"),
            );
            let variant = self.find(fields_hash).expect("the variant was added");
            let count = variant.suspected.take().map_or(1, |(count, _)| count + 1);
            variant.suspected = Some((count, difference));
        } else if has_other_version(incumbent.0, edge.0) || is_changing {
            return match confirmed.is_empty() {
                true => BodyResult::Changing,
                false => BodyResult::Differs(confirmed),
            };
        } else if !is_new && differed > 1 {
            let length = |answer: &Answer| match answer.bytes {
                Some(bytes) => format!("{bytes} bytes"),
                None => "another body".to_owned(),
            };
            let (of_incumbent, of_edge) = (length(incumbent.0), length(edge.0));
            // The first of the two requests is counted with the second one.
            let count = if differed == 2 { 2 } else { 1 };
            confirmed.push((
                count,
                Difference::new(Cause::Body, "", of_incumbent, of_edge),
            ));
        }
        match confirmed.is_empty() {
            true => BodyResult::Equal,
            false => BodyResult::Differs(confirmed),
        }
    }

    /// Returns the suspected differences that the body of the incumbent confirms: it still gives for these fields the
    /// body that the edge gave for others.
    fn confirm(&mut self, fields_hash: u64, incumbent: u128) -> Vec<(u64, Difference)> {
        let is_unchanged = self
            .find(fields_hash)
            .is_some_and(|variant| variant.incumbent == incumbent);
        if !is_unchanged {
            return Vec::new();
        }
        let others = self.variants.iter_mut();
        let others = others.filter(|variant| variant.fields_hash != fields_hash);
        others
            .filter(|variant| variant.edge == incumbent)
            .filter_map(|variant| variant.suspected.take())
            .collect()
    }

    /// Returns the names of the fields by which the request differs from the one to which the edge's body belongs.
    fn owner_of(&self, request: &Request, fields_hash: u64, edge: u128) -> Option<String> {
        let hashes = hashes_of(request);
        let others = self.variants.iter();
        let others = others.filter(|variant| variant.fields_hash != fields_hash);
        let owners = others.filter(|variant| variant.incumbent == edge && !variant.is_changing);
        // The request with the fewest other fields shows best which of them matter.
        let owner = owners.min_by_key(|variant| {
            let missing = hashes.iter().filter(|pair| !variant.fields.contains(pair));
            missing.count()
        })?;
        let differs = |name: &str, value: &str| {
            let pair = (xxh3_64(name.as_bytes()), xxh3_64(value.as_bytes()));
            !owner.fields.contains(&pair)
        };
        let mut names: Vec<&str> = request
            .fields
            .iter()
            .filter(|(name, value)| differs(name, value))
            .map(|(name, _)| &name[..])
            .collect();
        names.sort_unstable();
        names.dedup();
        names.truncate(NAMES_MAX);
        Some(match names.is_empty() {
            // The other request has a field more.
            true => "fields".to_owned(),
            false => names.join(", "),
        })
    }

    fn find(&mut self, fields_hash: u64) -> Option<&mut Variant> {
        let mut variants = self.variants.iter_mut();
        variants.find(|variant| variant.fields_hash == fields_hash)
    }

    /// Returns the variant for the fields of a request. The oldest variant is dropped if there are too many.
    fn variant(
        &mut self,
        request: &Request,
        fields_hash: u64,
        incumbent: u128,
        edge: u128,
    ) -> &mut Variant {
        let mut variants = self.variants.iter();
        let known = variants.position(|variant| variant.fields_hash == fields_hash);
        let at = known.unwrap_or_else(|| {
            if self.variants.len() == VARIANTS_MAX {
                self.variants.remove(0);
            }
            self.variants.push(Variant {
                fields_hash,
                fields: hashes_of(request),
                incumbent,
                edge,
                is_changing: false,
                differed: 0,
                suspected: None,
            });
            self.variants.len() - 1
        });
        &mut self.variants[at]
    }
}

/// Returns true if a validator shows that the bodies are two versions.
fn has_other_version(incumbent: &Answer, edge: &Answer) -> bool {
    ["etag", "last-modified"].iter().any(|name| {
        let values = (incumbent.field(name), edge.field(name));
        matches!(values, (Some(left), Some(right)) if left != right)
    })
}

fn hashes_of(request: &Request) -> Vec<(u64, u64)> {
    let fields = request.fields.iter().take(FIELDS_MAX);
    fields
        .map(|(name, value)| (xxh3_64(name.as_bytes()), xxh3_64(value.as_bytes())))
        .collect()
}

/// The number of different sets of request fields per URL.
const VARIANTS_MAX: usize = 4;

/// The number of fields by which the requests for a URL are compared.
const FIELDS_MAX: usize = 16;

/// The number of names in a message.
const NAMES_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Head;

    fn request(fields: &[(&str, &str)]) -> Request {
        let mut request = Request::new(b"GET", b"a", b"/").expect("the request is valid");
        request.add_fields(fields.iter().copied(), true);
        request
    }

    fn answer(etag: Option<&str>) -> Answer {
        let fields = etag.map(|etag| ("etag".to_owned(), etag.to_owned()));
        Answer {
            head: Some(Head {
                fields: fields.into_iter().collect(),
                body_hash: None,
            }),
            ..Answer::default()
        }
    }

    fn causes(result: &BodyResult) -> Vec<(u64, Cause, &str)> {
        match result {
            BodyResult::Differs(list) => list
                .iter()
                .map(|(count, difference)| (*count, difference.cause, &difference.detail[..]))
                .collect(),
            BodyResult::Equal | BodyResult::Changing => Vec::new(),
        }
    }

    /// Method: the edge ignores a field. The order of the answers is German, English, German.
    #[test]
    fn a_body_of_other_fields_is_a_wrong_variant_once_the_incumbent_confirms_it() {
        let mut bodies = Bodies::default();
        let [german, english] = [
            request(&[("x-lang", "de"), ("accept", "*/*")]),
            request(&[("x-lang", "en"), ("accept", "*/*")]),
        ];
        let plain = answer(None);
        let mut compare = |request, incumbent, edge| {
            let result = bodies.compare(request, (&plain, incumbent), (&plain, edge));
            let causes = causes(&result);
            let owned = causes
                .iter()
                .map(|(n, cause, detail)| (*n, *cause, (*detail).to_owned()));
            owned.collect::<Vec<_>>()
        };
        assert_eq!(compare(&german, 1, 1), []);
        assert_eq!(compare(&english, 2, 1), [], "it may be an old version");
        assert_eq!(compare(&english, 2, 1), []);
        assert_eq!(
            compare(&german, 1, 1),
            [(2, Cause::Variant, "x-lang".to_owned())]
        );
        assert_eq!(compare(&german, 1, 1), [], "once");
    }

    /// Method: the incumbent has a new version, and the edge still serves the old one.
    #[test]
    fn an_old_version_is_no_wrong_variant() {
        let mut bodies = Bodies::default();
        let [german, english] = [request(&[("x-lang", "de")]), request(&[("x-lang", "en")])];
        let plain = answer(None);
        for (request, incumbent, edge) in [
            (&german, 1, 1),
            (&english, 2, 1),
            (&german, 2, 1),
            (&german, 2, 2),
            (&english, 2, 2),
        ] {
            let result = bodies.compare(request, (&plain, incumbent), (&plain, edge));
            assert_eq!(causes(&result), [], "{result:?}");
        }
    }

    #[test]
    fn bodies_differ_if_neither_changes_between_two_requests() {
        let mut bodies = Bodies::default();
        let (request, plain) = (request(&[]), answer(None));
        for (incumbent, edge, expected) in [(1, 2, None), (1, 2, Some(2)), (1, 2, Some(1))] {
            let result = bodies.compare(&request, (&plain, incumbent), (&plain, edge));
            let expected: Vec<_> = expected
                .map(|count| (count, Cause::Body, ""))
                .into_iter()
                .collect();
            assert_eq!(causes(&result), expected);
        }
        // From now on the body changes at each request.
        for (incumbent, edge) in [(3, 2), (3, 2), (3, 4)] {
            let result = bodies.compare(&request, (&plain, incumbent), (&plain, edge));
            assert_eq!(result, BodyResult::Changing);
        }
    }

    #[test]
    fn two_versions_by_their_validators_are_no_difference() {
        let mut bodies = Bodies::default();
        let request = request(&[]);
        let (old, new) = (answer(Some("\"1\"")), answer(Some("\"2\"")));
        for _ in 0..3 {
            let result = bodies.compare(&request, (&new, 2), (&old, 1));
            assert_eq!(result, BodyResult::Changing);
        }
    }

    #[test]
    fn the_variants_of_a_url_are_bounded() {
        let mut bodies = Bodies::default();
        let plain = answer(None);
        for number in 0..100_u32 {
            let request = request(&[("x", &number.to_string()[..])]);
            _ = bodies.compare(&request, (&plain, 1), (&plain, 1));
            assert!(bodies.variants.len() <= VARIANTS_MAX);
        }
    }
}
