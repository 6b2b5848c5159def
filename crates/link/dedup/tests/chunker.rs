//! Tests that the cuts depend only on the content. They must not depend on the implementation of the prefilter, which
//! selects candidates for cuts, or on the lengths of the pieces in which a body arrives.

mod support;

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy;

use edgeward_dedup::chunker::{Chunker, ChunkerError, ChunkerParams, Prefilter};
use support::Random;

fn params(average: u32) -> ChunkerParams {
    ChunkerParams::new(average, 7).expect("the average is valid")
}

/// Returns the lengths of a body's chunks.
fn lengths(mut chunker: Chunker, body: &[u8]) -> Vec<usize> {
    let (mut lengths, mut rest) = (Vec::new(), body);
    while let Some(length) = chunker.next_cut(rest) {
        lengths.push(length);
        rest = &rest[length..];
    }
    lengths.extend((!rest.is_empty()).then_some(rest.len()));
    lengths
}

/// Returns the offsets at which a body's chunks end.
fn ends(lengths: &[usize]) -> Vec<usize> {
    let add = |sum: &mut usize, length: &usize| {
        *sum += length;
        Some(*sum)
    };
    lengths.iter().scan(0, add).collect()
}

/// Generates bodies of four kinds: noise, text, one repeated byte, and a repeated short sequence.
fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let size = 0_usize..150_000;
    prop_oneof![
        (any::<u64>(), size.clone()).prop_map(|(seed, size)| Random(seed).noise(size)),
        (any::<u64>(), size.clone()).prop_map(|(seed, size)| Random(seed).text(size)),
        (any::<u8>(), size.clone()).prop_map(|(byte, size)| vec![byte; size]),
        (vec(any::<u8>(), 1..80), size).prop_map(|(period, size)| period
            .iter()
            .copied()
            .cycle()
            .take(size)
            .collect()),
    ]
}

fn averages() -> impl Strategy<Value = u32> {
    (12_u32..=16).prop_map(|log2| 1 << log2)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The fastest prefilter finds the same cuts as the scalar prefilter, which defines the cuts.
    #[test]
    fn all_prefilters_find_the_same_cuts(body in bodies(), average in averages()) {
        let scalar = Chunker::with_prefilter(params(average), Prefilter::Scalar);
        let fastest = Chunker::with_prefilter(params(average), Prefilter::best());
        prop_assert_eq!(lengths(scalar, &body), lengths(fastest, &body));
    }

    /// Method: pass a body in pieces of random lengths, from one byte to 100 KB. The cuts are those of the
    /// whole body.
    #[test]
    fn the_division_into_pieces_does_not_move_cuts(body in bodies(), average in averages(), seed in any::<u64>()) {
        let whole = lengths(Chunker::new(params(average)), &body);
        let mut random = Random(seed);
        let mut chunker = Chunker::new(params(average));
        let (mut cut_in_pieces, mut rest, mut length) = (Vec::new(), &body[..], 0);
        while !rest.is_empty() {
            let longest = [1, 70, 3000, 100_000][random.below(4)];
            let (mut piece, later) = rest.split_at((1 + random.below(longest)).min(rest.len()));
            rest = later;
            while let Some(taken) = chunker.next_cut(piece) {
                cut_in_pieces.push(length + taken);
                piece = &piece[taken..];
                length = 0;
            }
            length += piece.len();
            prop_assert_eq!(chunker.length(), length);
        }
        cut_in_pieces.extend((length > 0).then_some(length));
        prop_assert_eq!(cut_in_pieces, whole);
    }

    /// `may_end` is true for the chunk that the chunker cuts, and false for all shorter lengths.
    #[test]
    fn a_chunk_may_end_where_it_is_cut_and_not_before(body in bodies(), average in averages()) {
        let mut chunker = Chunker::new(params(average));
        let mut may_end = (1..=body.len()).filter(|&length| chunker.may_end(&body[..length]));
        let first = may_end.next();
        prop_assert_eq!(chunker.next_cut(&body), first);
    }

    /// No chunk is longer than eight times the average. Only the last chunk may be shorter than a quarter of
    /// the average.
    #[test]
    fn chunks_have_lengths_within_the_limits(body in bodies(), average in averages()) {
        let params = params(average);
        let lengths = lengths(Chunker::new(params), &body);
        prop_assert_eq!(lengths.iter().sum::<usize>(), body.len());
        prop_assert!(lengths.iter().all(|&length| length <= params.max()));
        let (_, all_but_last) = lengths.split_last().unwrap_or((&0, &[]));
        prop_assert!(all_but_last.iter().all(|&length| length >= params.min()));
    }

    /// Cuts before an insertion stay at their offsets. Cuts after the insertion keep their distances from the
    /// end of the body, except some cuts near the insertion.
    #[test]
    fn an_insertion_moves_only_the_cuts_around_it(seed in any::<u64>(), inserted in 1_usize..5000) {
        let mut random = Random(seed);
        let body = random.text(600_000);
        let at = random.below(body.len());
        let mut longer = body.clone();
        longer.splice(at..at, random.noise(inserted));

        let before = ends(&lengths(Chunker::new(params(4096)), &body));
        let after = ends(&lengths(Chunker::new(params(4096)), &longer));
        let unmoved = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
        prop_assert!(before.iter().filter(|&&end| end <= at).count() <= unmoved);
        let from_end = before.iter().rev().zip(after.iter().rev());
        let common = from_end.take_while(|&(a, b)| a + inserted == *b).count();
        // The first cut behind the insertion that both bodies have is followed by the same cuts in both. The next test
        // shows that such a cut follows soon. The subtraction saturates: if the inserted bytes are complete chunks,
        // `unmoved` and `common` may both count the same cut.
        let moved = before.len().saturating_sub(unmoved + common);
        prop_assert!(moved <= 30 || body.len() - at < 200_000, "{moved} cuts moved");
    }
}

/// After an insertion, fewer than three chunks are new on average.
#[test]
fn an_insertion_costs_less_than_three_chunks() {
    let mut new_chunks = 0;
    for seed in 0..60 {
        let mut random = Random(seed);
        let body = random.text(300_000);
        let at = 100_000 + random.below(50_000);
        let mut longer = body.clone();
        longer.splice(at..at, random.noise(20));
        let before = ends(&lengths(Chunker::new(params(4096)), &body));
        let known: HashSet<usize> = before.iter().copied().collect();
        let after = ends(&lengths(Chunker::new(params(4096)), &longer));
        // A chunk is new if its end is not known, neither at the same offset nor 20 bytes earlier. One more chunk
        // may be new: it starts at a new cut and ends at a known one.
        let is_new = |end: &&usize| !known.contains(end) && !known.contains(&(**end - 20));
        new_chunks += 1 + after.iter().filter(is_new).count();
    }
    assert!(new_chunks < 3 * 60, "{new_chunks} chunks for 60 insertions");
}

/// The mean length of chunks lies between the average and 1.25 times the average.
#[test]
fn the_mean_length_is_close_to_the_average() {
    let noise = Random(1).noise(16 << 20);
    for average_log2 in 12..=16 {
        let average = 1 << average_log2;
        let mean = noise.len() / lengths(Chunker::new(params(average)), &noise).len();
        let average = average as usize;
        assert!(
            (average..average * 5 / 4).contains(&mean),
            "{mean} for {average}"
        );
    }
}

/// Another seed moves most cuts. The prefilter ignores the seed, so both seeds select their cuts from the same
/// candidates, and some cuts are equal by chance.
#[test]
fn another_seed_moves_most_cuts() {
    let noise = Random(1).noise(1 << 20);
    let ends_with = |seed| {
        let params = ChunkerParams::new(4096, seed).expect("the parameters are valid");
        let ends = ends(&lengths(Chunker::new(params), &noise));
        ends.into_iter().collect::<HashSet<_>>()
    };
    let (one, other) = (ends_with(1), ends_with(2));
    let shared = one.intersection(&other).count();
    assert!(
        shared * 4 < one.len(),
        "{shared} of {} cuts in common",
        one.len()
    );
}

/// Deduplication finds as many duplicates as FastCDC, within 2 %.
///
/// Method: cut forty versions of a text, with twelve edits between two versions, with both chunkers. Compare
/// the total bytes of the distinct chunks. FastCDC is the `fastcdc` crate with the same minimum, average and
/// maximum length.
#[test]
fn deduplication_finds_as_much_as_fastcdc() {
    let mut random = Random(3);
    let mut version = random.text(400_000);
    let (mut ours, mut theirs) = (HashSet::new(), HashSet::new());
    for _ in 0..40 {
        let mut at = 0;
        for length in lengths(Chunker::new(params(8192)), &version) {
            ours.insert(version[at..at + length].to_vec());
            at += length;
        }
        for chunk in fastcdc::v2020::FastCDC::new(&version, 2048, 8192, 65536) {
            theirs.insert(version[chunk.offset..chunk.offset + chunk.length].to_vec());
        }
        version = random.edited(&version, 12);
    }
    let bytes = |set: &HashSet<Vec<u8>>| set.iter().map(Vec::len).sum::<usize>();
    let (ours, theirs) = (bytes(&ours), bytes(&theirs));
    assert!(
        ours * 100 <= theirs * 102,
        "{ours} new bytes, FastCDC {theirs}"
    );
}

/// Averages are powers of two from 4 to 64 KiB.
#[test]
fn invalid_averages_are_refused() {
    for average in [0, 1, 2048, 4095, 4097, 12288, 65535, 131_072, u32::MAX] {
        assert_eq!(
            ChunkerParams::new(average, 0),
            Err(ChunkerError::Average(average))
        );
    }
    for average in [4096, 8192, 16384, 32768, 65536] {
        assert_eq!(params(average).average(), average as usize);
    }
}

/// The cuts equal those of the first release. Peers and stores of older releases need the same cuts.
#[test]
fn the_cuts_are_those_of_the_golden_file() {
    let golden = include_str!("../../../../vectors/link/chunks.txt");
    let mut written = String::from(golden.lines().next().expect("the file has a first line"));
    written.push('\n');
    for average in [4096, 16384, 65536] {
        for (name, body) in [
            ("noise", Random(1).noise(400_000)),
            ("text", Random(1).text(400_000)),
        ] {
            let lengths = lengths(Chunker::new(params(average)), &body);
            let lengths: Vec<_> = lengths.iter().map(usize::to_string).collect();
            written += &format!("{average} {name}: {}\n", lengths.join(" "));
        }
    }
    if std::env::var_os("EDGEWARD_RENEW_VECTORS").is_some() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../vectors/link/chunks.txt"
        );
        std::fs::write(path, &written).expect("the golden file can be written");
    } else {
        assert_eq!(written, golden);
    }
}
