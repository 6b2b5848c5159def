//! Rules that would harm, remembered longer than the evidence for their faults.
//!
//! A Bloom filter for each group of rules has the hashes of excluded subjects. It forgets none of them, however many
//! others follow, and takes a fixed memory. If it is full, it also withholds rules that nothing has excluded: a finding
//! less, and never an unsafe one. Each filter has two generations, so that an exclusion ends some time after the
//! origin has changed.

use std::array;
use std::time::Duration;

use edgeward_types::Timestamp;
use edgeward_types::xxh3::xxh3_64_with_seed;

use super::kind::FaultKind;

/// Rules that the same observations exclude.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleGroup {
    /// Lifetimes for a path.
    Lifetime,
    /// Lifetimes for static files that forbid storing or set a cookie.
    StaticLifetime,
    /// Removal of members of `Vary`.
    Vary,
    /// Removal of query parameters.
    Parameter,
}

impl RuleGroup {
    /// Returns the group of the rule that mends a fault. `None` if the rule harms no user.
    pub(super) const fn of(kind: FaultKind) -> Option<Self> {
        match kind {
            FaultKind::NoLifetime | FaultKind::ShortLifetime => Some(Self::Lifetime),
            FaultKind::PrivateStatic | FaultKind::CookieOnStatic => Some(Self::StaticLifetime),
            FaultKind::NeedlessVary => Some(Self::Vary),
            FaultKind::IgnoredParameter | FaultKind::CacheBuster => Some(Self::Parameter),
            FaultKind::ParameterOrder
            | FaultKind::SameOnTwoHosts
            | FaultKind::FinalSlash
            | FaultKind::PassedRanges
            | FaultKind::NoValidator
            | FaultKind::Uncompressed => None,
        }
    }
}

/// The excluded rules.
#[derive(Debug)]
pub(super) struct Exclusions {
    seed: u64,
    current: [Filter; GROUPS],
    /// The exclusions of the time before `began_at`.
    previous: [Filter; GROUPS],
    began_at: Option<Timestamp>,
}

impl Exclusions {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            current: array::from_fn(|_| Filter::default()),
            previous: array::from_fn(|_| Filter::default()),
            began_at: None,
        }
    }

    /// Excludes a rule from now on, at all sites: a reload may change the numbers of sites.
    pub(super) fn exclude(&mut self, group: RuleGroup, subject: &str) {
        let hash = self.hash(subject);
        self.current[group as usize].insert(hash);
    }

    /// Returns true if the rule that mends this fault is excluded.
    pub(super) fn excludes(&self, kind: FaultKind, subject: &str) -> bool {
        let hash = self.hash(subject);
        RuleGroup::of(kind).is_some_and(|group| {
            let group = group as usize;
            self.current[group].has(hash) || self.previous[group].has(hash)
        })
    }

    /// Forgets exclusions that no request has shown for [`EXCLUSION_TIME`] to twice this time.
    pub(super) fn forget_old(&mut self, now: Timestamp) {
        let began_at = *self.began_at.get_or_insert(now);
        if now.since(began_at) >= EXCLUSION_TIME {
            std::mem::swap(&mut self.current, &mut self.previous);
            self.current.iter_mut().for_each(Filter::clear);
            self.began_at = Some(now);
        }
    }

    /// Returns the probability that a rule which nothing has excluded is withheld, in the group with most exclusions.
    pub(super) fn withheld_ratio(&self) -> f64 {
        let filters = self.current.iter().zip(&self.previous);
        let ratios = filters.map(|(current, previous)| {
            1.0 - (1.0 - current.hit_ratio()) * (1.0 - previous.hit_ratio())
        });
        ratios.fold(0.0, f64::max)
    }

    fn hash(&self, subject: &str) -> u64 {
        xxh3_64_with_seed(subject.as_bytes(), self.seed)
    }
}

/// A Bloom filter.
#[derive(Debug)]
struct Filter {
    words: Vec<u64>,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            words: vec![0; FILTER_BITS / 64],
        }
    }
}

impl Filter {
    fn insert(&mut self, hash: u64) {
        for bit in bits_of(hash) {
            self.words[bit / 64] |= 1 << (bit % 64);
        }
    }

    fn has(&self, hash: u64) -> bool {
        bits_of(hash)
            .iter()
            .all(|bit| self.words[bit / 64] & (1 << (bit % 64)) != 0)
    }

    fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Returns the probability that the filter has a hash which was not inserted.
    fn hit_ratio(&self) -> f64 {
        let ones: u32 = self.words.iter().map(|word| word.count_ones()).sum();
        (f64::from(ones) / FILTER_BITS as f64).powi(BITS_PER_HASH as i32)
    }
}

/// Returns the bits of a hash: consecutive parts of it.
fn bits_of(hash: u64) -> [usize; BITS_PER_HASH] {
    array::from_fn(|part| (hash >> (part as u32 * FILTER_BITS_LOG2)) as usize % FILTER_BITS)
}

/// The memory of all filters.
pub(super) const EXCLUSION_BYTES: u64 = (2 * GROUPS * FILTER_BITS / 8) as u64;

/// The time for which an exclusion is kept at least. Responses for one user, and refusals of access, may be rare in a
/// sample.
const EXCLUSION_TIME: Duration = Duration::from_secs(7 * 86_400);

const GROUPS: usize = 4;

/// A filter takes 4 KiB. With 2,000 exclusions in a week it withholds 1 in 450 other rules, with 8,000 one in seven.
const FILTER_BITS_LOG2: u32 = 15;
const FILTER_BITS: usize = 1 << FILTER_BITS_LOG2;

/// The best number for 5,700 exclusions, which is ln 2 · 32,768 / 4.
const BITS_PER_HASH: usize = 4;

const _: () = assert!(BITS_PER_HASH as u32 * FILTER_BITS_LOG2 <= u64::BITS);

#[cfg(test)]
mod tests {
    use super::*;

    /// Method: as many exclusions as the filter is made for, then ten times as many. All of them stay, and the share of
    /// other rules that are withheld is the stated one.
    #[test]
    fn a_full_filter_keeps_all_exclusions_and_states_what_it_withholds() {
        let mut exclusions = Exclusions::new(7);
        for (count, expected) in [(2000_usize, 0.0..0.005), (20_000, 0.5..0.9)] {
            for n in 0..count {
                exclusions.exclude(RuleGroup::Parameter, &n.to_string());
            }
            let excludes = |n: usize, kind| exclusions.excludes(kind, &n.to_string());
            assert!((0..count).all(|n| excludes(n, FaultKind::IgnoredParameter)));
            let others = (count..count + 10_000).filter(|n| excludes(*n, FaultKind::CacheBuster));
            let withheld = others.count() as f64 / 10_000.0;
            assert!(expected.contains(&withheld), "{count}: {withheld}");
            let stated = exclusions.withheld_ratio();
            assert!(
                (stated - withheld).abs() < 0.02,
                "{count}: {withheld} {stated}"
            );
            assert!((0..count).all(|n| !excludes(n, FaultKind::NoLifetime)));
        }
    }

    /// Method: one exclusion that is shown again after six days, and one that is not.
    #[test]
    fn an_exclusion_ends_one_to_two_weeks_after_it_was_shown_last() {
        let day = |days: u64| Timestamp::from_secs(days * 86_400);
        let mut exclusions = Exclusions::new(7);
        let excludes = |exclusions: &Exclusions, subject: &str| {
            exclusions.excludes(FaultKind::ShortLifetime, subject)
        };
        for (days, shown, expected) in [
            (0, Some("/a/*"), [true, false]),
            (6, Some("/b/*"), [true, true]),
            (8, Some("/b/*"), [true, true]),
            (15, None, [false, true]),
            (22, None, [false, false]),
        ] {
            exclusions.forget_old(day(days));
            if let Some(subject) = shown {
                exclusions.exclude(RuleGroup::Lifetime, subject);
            }
            let actual = ["/a/*", "/b/*"].map(|subject| excludes(&exclusions, subject));
            assert_eq!(actual, expected, "{days} days");
        }
    }
}
