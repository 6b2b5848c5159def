//! A fixed size threshold: objects up to this size are admitted.
//!
//! Source: LRU-THOLD of Abrams et al., "Caching Proxies: Limitations and Potentials", WWW 1995. Cost: one comparison.
//! Memory: none per object.

use crate::object::Object;

pub(super) fn admits(size_bytes_max: u64, object: &Object) -> bool {
    object.size_bytes <= size_bytes_max
}

#[cfg(test)]
mod tests {
    use crate::admission::{Admission, tests::share_admitted};

    #[test]
    fn a_threshold_admits_up_to_its_size_and_not_beyond() {
        let threshold = Admission::Threshold {
            size_bytes_max: 1000,
        };
        assert_eq!(share_admitted(&threshold, 1000), 1.0);
        assert_eq!(share_admitted(&threshold, 1001), 0.0);
    }
}
