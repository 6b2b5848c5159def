//! Partial results of the log analysis: any bytes are read or rejected without a panic. Results that were read can be
//! written and read again, and can be merged with themselves.
//!
//! Run: `cargo +nightly fuzz run partial_result`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_analysis::wire::{Reader, Writer};
use edgeward_analysis::{Sample, Tally};

fuzz_target!(|input: &[u8]| {
    // The checksums of a partial result reject nearly all inputs. Its two parts, a tally and a sample, are therefore
    // also decoded from the input directly.
    _ = edgeward_logs::check(input.to_vec());
    if let Ok(mut tally) = Tally::read_from(&mut Reader::new(input, "figures")) {
        let mut once = Writer::new();
        tally.write_to(&mut once);
        let again = Tally::read_from(&mut Reader::new(once.bytes(), "figures")).expect("written results are valid");
        let mut twice = Writer::new();
        again.write_to(&mut twice);
        assert_eq!(once.bytes(), twice.bytes());
        tally.merge(again);
    }
    if let Ok(mut sample) = Sample::read_from(&mut Reader::new(input, "sample")) {
        let mut once = Writer::new();
        sample.write_to(&mut once);
        let again = Sample::read_from(&mut Reader::new(once.bytes(), "sample")).expect("written results are valid");
        sample.merge(again);
        _ = sample.finish();
    }
});
