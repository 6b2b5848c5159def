//! Filters with as many ids as a large service has: no false negative, the requested false-positive rate and the
//! expected size.
//!
//! The default number of ids is small. `EDGEWARD_FILTER_IDS=100000000 cargo test --release -p edgeward-filter
//! --test at_scale -- --nocapture` is the full test; it takes 2 GB of memory and one or two minutes. Each
//! filter prints a row of JSON. Recorded rows are in `bench/runs/`.

use std::env;
use std::time::Instant;

use edgeward_filter::{
    Construction, Filter, FilterInfo, FilterParams, IdHash, IdHasher, Rate, StaticBuilder,
    UpdatableFilter, bytes_limit,
};
use edgeward_types::mix64;

/// Returns the hash of the n-th id, a UUID in canonical form. `mix64` is a permutation, so all ids are distinct.
fn hash(hasher: IdHasher, n: u64) -> IdHash {
    let number = u128::from(mix64(n)) << 64 | u128::from(mix64(!n));
    hasher.hash_uuid(number.to_be_bytes())
}

fn ids() -> u64 {
    let Ok(count) = env::var("EDGEWARD_FILTER_IDS") else {
        return 200_000;
    };
    count.parse().expect("EDGEWARD_FILTER_IDS is a number")
}

/// Looks up every id in the filter, and the same number of absent ids. Checks the answers and the rate.
fn check_filter(filter: &Filter<&[u8]>, ids: u64, rate: Rate, insert_s: f64, build_s: f64) {
    let hasher = filter.hasher();
    let FilterInfo {
        construction,
        ids: counted_ids,
        bytes,
        ..
    } = filter.info();
    match construction {
        Construction::Static => assert_eq!(counted_ids, ids, "every distinct id counts once"),
        // An id that already gets "maybe" before it is added is not counted.
        Construction::Updatable => {
            assert!(counted_ids <= ids && counted_ids as f64 > ids as f64 * 0.99);
        }
    }
    let began = Instant::now();
    let missed = (0..ids).filter(|n| !filter.contains(hash(hasher, *n)));
    assert_eq!(missed.count(), 0, "inserted ids were answered absent");
    let present_s = began.elapsed().as_secs_f64();
    let began = Instant::now();
    let false_positives = (ids..2 * ids).filter(|n| filter.contains(hash(hasher, *n)));
    let measured_rate = false_positives.count() as f64 / ids as f64;
    let absent_s = began.elapsed().as_secs_f64();
    // The bound is 1 % above the requested rate, plus five standard deviations of the measured rate. The 1 % is for
    // updatable filters, whose expected rate is a mean over blocks with different numbers of ids.
    let p = rate.share();
    let rate_max = p * 1.01 + 5.0 * (p * (1.0 - p) / ids as f64).sqrt();
    assert!(
        measured_rate <= rate_max,
        "the measured rate is {measured_rate}, the requested rate {p}"
    );
    // The limit is the information-theoretic minimum for this rate.
    let times_the_limit = bytes as f64 / bytes_limit(ids, p);
    eprintln!(
        "{{\"construction\":\"{}\",\"ids\":{ids},\"target_rate\":{p},\"measured_rate\":{measured_rate:.6},\
         \"measured_with\":{ids},\"bytes\":{bytes},\"times_the_limit\":{times_the_limit:.4},\"false_negatives\":0,\
         \"insert_seconds\":{insert_s:.2},\"build_seconds\":{build_s:.2},\
         \"ask_present_seconds\":{present_s:.2},\"ask_absent_seconds\":{absent_s:.2}}}",
        construction.name(),
    );
}

/// Method: look up every id in the bytes of the file, and measure the rate with the same number of absent ids.
#[test]
fn a_static_filter_of_any_size_has_no_false_negative() {
    let (ids, rate) = (ids(), Rate::new(0.01).expect("a rate"));
    let params = FilterParams {
        ids_max: ids,
        ..FilterParams::with_rate(rate)
    };
    let began = Instant::now();
    let mut builder = StaticBuilder::new(params);
    for n in 0..ids {
        builder
            .insert(hash(params.hasher, n))
            .expect("the limit is not reached");
    }
    let insert_s = began.elapsed().as_secs_f64();
    let began = Instant::now();
    let filter = builder.finish().expect("random ids are solvable");
    let build_s = began.elapsed().as_secs_f64();
    let opened = Filter::open(filter.bytes()).expect("a built filter is valid");
    let times_the_limit = filter.bytes().len() as f64 / bytes_limit(ids, rate.share());
    assert!(times_the_limit < 1.15, "{times_the_limit} times the limit");
    check_filter(&opened, ids, rate, insert_s, build_s);
}

#[test]
fn an_updatable_filter_of_any_size_has_no_false_negative() {
    let (ids, rate) = (ids(), Rate::new(0.01).expect("a rate"));
    let params = FilterParams {
        ids_max: ids,
        ..FilterParams::with_rate(rate)
    };
    let began = Instant::now();
    let mut filter = UpdatableFilter::new(params, ids).expect("the rate is supported");
    for n in 0..ids {
        filter
            .insert(hash(params.hasher, n))
            .expect("the limit is not reached");
    }
    let insert_s = began.elapsed().as_secs_f64();
    let began = Instant::now();
    let written = filter.to_filter(1);
    let build_s = began.elapsed().as_secs_f64();
    let opened = Filter::open(written.bytes()).expect("a written filter is valid");
    check_filter(&opened, ids, rate, insert_s, build_s);
}
