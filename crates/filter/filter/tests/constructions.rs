//! Tests static and updatable filters against exact sets of ids, at many rates and sizes, in memory and as files.

use std::collections::HashSet;

use proptest::prelude::*;

use edgeward_filter::{
    BuildWorkspace, Construction, Filter, FilterParams, IdForm, IdHash, IdHasher, Rate,
    StaticBuilder, UpdatableFilter, bytes_limit,
};
use edgeward_types::{Seed, Timestamp};

fn rate(share: f64) -> Rate {
    Rate::new(share).expect("the rate is valid")
}

/// Returns distinct pseudorandom ids. Different series have different ids.
fn ids(count: u64, series: u64) -> impl Iterator<Item = IdHash> {
    let hasher = IdHasher::default();
    (0..count).map(move |n| hasher.hash_integer(i128::from(series << 40 | n)))
}

fn static_filter(ids: impl Iterator<Item = IdHash>, params: FilterParams) -> Filter<Vec<u8>> {
    let mut builder = StaticBuilder::new(params);
    ids.for_each(|id| builder.insert(id).expect("the builder accepts the id"));
    builder.finish().expect("the filter is solvable")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A batch of lookups gives the same answers as single lookups, for any number of ids.
    #[test]
    fn a_batch_of_lookups_equals_single_lookups(
        present in 0u64..3_000, lookups in 0u64..200, share in 1e-6f64..0.5,
    ) {
        let params = FilterParams::with_rate(rate(share));
        let built = static_filter(ids(present, 1), params);
        let mut growing = UpdatableFilter::new(params, present).expect("the filter fits");
        for id in ids(present, 1) {
            growing.insert(id).expect("the filter has space");
        }
        let hashes: Vec<IdHash> = ids(lookups, 1).chain(ids(lookups, 2)).collect();
        let mut answers = vec![false; hashes.len()];
        for filter in [built, growing.to_filter(1)] {
            filter.contains_many(&hashes, &mut answers);
            for (id, answer) in hashes.iter().zip(&answers) {
                prop_assert_eq!(filter.contains(*id), *answer);
            }
        }
    }

    /// A filter never answers "absent" for an inserted id. This holds for both constructions, any rate, any number
    /// of ids and duplicates, and for borrowed and owned bytes.
    #[test]
    fn there_are_no_false_negatives(
        texts in prop::collection::vec("[a-z0-9-]{0,12}", 0..600),
        share in 1e-6f64..0.5,
        seed: u64,
    ) {
        let hasher = IdHasher { form: IdForm::Text, seed };
        let params = FilterParams { hasher, ..FilterParams::with_rate(rate(share)) };
        let distinct: HashSet<&String> = texts.iter().collect();

        let built = static_filter(texts.iter().map(|t| hasher.hash_canonical(t.as_bytes())), params);
        prop_assert_eq!(built.info().ids, distinct.len() as u64);
        let borrowed = Filter::open(built.bytes()).expect("the filter is valid");

        let mut growing = UpdatableFilter::new(params, texts.len() as u64).expect("the filter fits");
        for text in &texts {
            growing.insert(hasher.hash_canonical(text.as_bytes())).expect("the filter has space");
        }
        let written = Filter::open(growing.to_filter(3).into_bytes()).expect("the file is valid");

        for text in &texts {
            prop_assert!(borrowed.contains_spelling(text.as_bytes()));
            prop_assert!(written.contains_spelling(text.as_bytes()));
            prop_assert!(growing.contains(hasher.hash_canonical(text.as_bytes())));
        }
    }

    /// `insert_many` gives the same bytes as one `insert` per id, and fails at the same id.
    #[test]
    fn a_batch_of_inserts_equals_single_inserts(
        numbers in prop::collection::vec(0u64..400, 0..400), capacity in 0u64..400, cut: prop::sample::Index,
    ) {
        let params = FilterParams::with_rate(rate(0.01));
        let all: Vec<IdHash> = ids(400, 1).collect();
        let chosen: Vec<IdHash> = numbers.iter().map(|&n| all[n as usize]).collect();
        let mut each = UpdatableFilter::new(params, capacity).expect("the filter fits");
        let mut many = each.clone();
        let insert_each = |filter: &mut UpdatableFilter, ids: &[IdHash]| {
            ids.iter().try_fold(0, |sum, &id| Ok(sum + u64::from(filter.insert(id)?)))
        };
        let (first, second) = chosen.split_at(cut.index(chosen.len() + 1));
        for part in [first, second] {
            prop_assert_eq!(many.insert_many(part), insert_each(&mut each, part));
            prop_assert_eq!(many.ids(), each.ids());
        }
        let (many, each) = (many.to_filter(1), each.to_filter(1));
        prop_assert_eq!(many.bytes(), each.bytes());
    }

    /// A filter that was saved and resumed between two inserts has the same bytes as a filter that stayed in memory.
    #[test]
    fn a_resumed_filter_equals_an_uninterrupted_one(first in 0u64..500, second in 0u64..500) {
        let params = FilterParams::with_rate(rate(0.01));
        let mut uninterrupted = UpdatableFilter::new(params, 2000).expect("the filter fits");
        let mut resumed = uninterrupted.clone();
        for id in ids(first, 1) {
            uninterrupted.insert(id).expect("the filter has space");
            resumed.insert(id).expect("the filter has space");
        }
        let mut resumed = UpdatableFilter::resume(&resumed.to_filter(0)).expect("the filter is updatable");
        for id in ids(second, 2) {
            uninterrupted.insert(id).expect("the filter has space");
            resumed.insert(id).expect("the filter has space");
        }
        let (resumed, uninterrupted) = (resumed.to_filter(7), uninterrupted.to_filter(7));
        prop_assert_eq!(resumed.bytes(), uninterrupted.bytes());
    }
}

/// The false-positive rate measured with random hashes equals `exact_rate` within five standard deviations. The exact
/// rate of an updatable filter follows from its set bits. The rate that the header predicts is at most the requested
/// one.
#[test]
fn the_measured_rate_is_the_exact_rate() {
    for share in [0.3, 0.03, 0.01] {
        let params = FilterParams::with_rate(rate(share));
        let built = static_filter(ids(30_000, 1), params);
        let mut growing = UpdatableFilter::new(params, 30_000).expect("the filter fits");
        for id in ids(30_000, 1) {
            // The filter does not count ids for which it already answered "maybe", so it has space for all ids.
            growing.insert(id).expect("the filter has space");
        }
        let growing = growing.to_filter(0);
        for filter in [built, growing] {
            let info = filter.info();
            assert!(info.expected_rate <= share, "{info:?}");
            let probes = 200_000;
            let measured = filter.measured_rate(probes, Seed(9));
            let deviation = (share / probes as f64).sqrt();
            let exact = filter.exact_rate();
            assert!(
                (measured - exact).abs() < 5.0 * deviation,
                "{measured} {info:?}"
            );
        }
    }
}

/// A static filter of 620,000 ids is at most 15 % larger than the information-theoretic limit, at each tested rate.
#[test]
fn a_static_filter_is_at_most_15_percent_above_the_size_limit() {
    for share in [0.4, 0.38, 0.03, 0.01] {
        let filter = static_filter(ids(620_000, 1), FilterParams::with_rate(rate(share)));
        let limit = bytes_limit(620_000, share);
        let ratio = filter.bytes().len() as f64 / limit;
        assert!(ratio < 1.15, "{share}: {ratio:.3} times the limit");
        // With 3 % false positives, the filter must fit in 440 KiB: 5.8 bits per id.
        if share == 0.03 {
            assert!(
                filter.bytes().len() <= 440 * 1024,
                "{}",
                filter.bytes().len()
            );
        }
    }
}

/// A static filter is built in shards, which threads can solve independently.
#[test]
fn shards_solved_in_any_order_give_the_same_filter() {
    let build = |backwards: bool| {
        let mut builder = StaticBuilder::new(FilterParams::with_rate(rate(0.01)));
        for id in ids(1_200_000, 3) {
            builder.insert(id).expect("the builder accepts the ids");
        }
        let (assembly, mut shards) = builder
            .into_plan()
            .expect("the builder accepts the ids")
            .split();
        assert_eq!(shards.len(), 2);
        if backwards {
            shards.reverse();
        }
        let mut workspace = BuildWorkspace::default();
        let solved = shards
            .into_iter()
            .map(|shard| shard.solve(&mut workspace).expect("the filter is solvable"));
        assembly
            .join(solved.collect())
            .expect("all shards are present")
    };
    let (forwards, backwards) = (build(false), build(true));
    assert_eq!(forwards.bytes(), backwards.bytes());
    assert!(
        ids(1_200_000, 3)
            .step_by(97)
            .all(|id| forwards.contains(id))
    );
}

#[test]
fn a_full_filter_refuses_ids_that_would_exceed_its_rate() {
    let mut filter =
        UpdatableFilter::new(FilterParams::with_rate(rate(0.01)), 100).expect("the filter fits");
    // Up to five of the 200 ids may be false positives of the filter, which need no space.
    let refused = ids(200, 1).filter(|&id| filter.insert(id).is_err()).count();
    assert!(refused >= 95, "{refused}");
    assert_eq!(filter.ids(), 100);
    assert!(filter.expected_rate() <= 0.01);
    // An id that the filter already contains needs no space.
    let first = ids(1, 1).next().expect("the iterator has an id");
    assert_eq!(filter.insert(first), Ok(false));
}

#[test]
fn too_many_ids_are_refused() {
    let params = FilterParams {
        ids_max: 10,
        ..FilterParams::with_rate(rate(0.01))
    };
    let mut builder = StaticBuilder::new(params);
    ids(11, 1).for_each(|id| builder.insert(id).expect("`finish` counts the ids"));
    let error = builder.finish().expect_err("there are too many ids");
    assert_eq!(error.to_string(), "the source has more than 10 ids");
    assert!(UpdatableFilter::new(params, 11).is_err());
    let many = FilterParams {
        ids_max: u64::MAX,
        ..params
    };
    assert!(UpdatableFilter::new(many, u64::MAX).is_err());
}

#[test]
fn an_empty_filter_answers_absent() {
    let filter = static_filter(ids(0, 1), FilterParams::with_rate(rate(0.5)));
    assert_eq!(filter.measured_rate(1000, Seed(1)), 0.0);
    let filter =
        UpdatableFilter::new(FilterParams::with_rate(rate(0.5)), 0).expect("the filter fits");
    assert_eq!(filter.to_filter(0).measured_rate(1000, Seed(1)), 0.0);
}

#[test]
fn the_header_contains_the_parameters() {
    let hasher = IdHasher {
        form: IdForm::Uuid,
        seed: 77,
    };
    let params = FilterParams {
        hasher,
        epoch: 12,
        built: Some(Timestamp::from_secs(1_700_000_000)),
        ..FilterParams::with_rate(rate(0.02))
    };
    let info = static_filter(ids(500, 1), params).info();
    assert_eq!(info.construction, Construction::Static);
    assert_eq!((info.hasher, info.epoch, info.ids), (hasher, 12, 500));
    assert_eq!(info.built, params.built);
    assert_eq!(info.target_rate, 0.02);
}

/// A filter answers from a file that is mapped into memory instead of read.
#[test]
fn a_mapped_file_answers() {
    let built = static_filter(ids(50_000, 1), FilterParams::with_rate(rate(0.01)));
    let file = tempfile::NamedTempFile::new().expect("a temporary file is created");
    std::fs::write(file.path(), built.bytes()).expect("the file is written");
    #[expect(
        unsafe_code,
        reason = "mapping a file is unsafe in every crate that does it"
    )]
    // SAFETY: the file belongs to this test, and no other program writes to it while it is mapped.
    let mapped = unsafe { memmap2::Mmap::map(file.as_file()) }.expect("the file is mapped");
    let filter = Filter::open_trusted(mapped).expect("the file is valid");
    assert!(ids(50_000, 1).all(|id| filter.contains(id)));
}
