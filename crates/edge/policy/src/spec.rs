//! A policy: an admission rule and an eviction rule, also as text.

use std::fmt;
use std::str::FromStr;

use edgeward_types::Seed;

use crate::admission::{AdmissionSpec, AdmissionTuner, parse_admission};
use crate::eviction::{EVICTIONS, EvictionSpec, parse_eviction};
use crate::rule_text::{ParsePolicyError, split_argument};
use crate::tier::AnyTier;

/// A policy as written in a flag or a configuration file: an admission rule and an eviction rule.
///
/// The text has the form `EVICTION`, `ADMISSION` or `ADMISSION+EVICTION`. Without an admission rule every object is
/// admitted; without an eviction rule the least recently used object is evicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicySpec {
    /// The rule that admits objects.
    pub admission: AdmissionSpec,
    /// The rule that selects objects to evict.
    pub eviction: EvictionSpec,
}

impl Default for PolicySpec {
    fn default() -> Self {
        Self::DENSITY
    }
}

impl PolicySpec {
    /// Admits every object, evicts the least recently used object.
    pub const LRU: Self = Self::evicting(EvictionSpec::Lru);
    /// Admits by [`AdmissionSpec::AdaptSize`], evicts the least recently used object.
    pub const ADAPTSIZE: Self = Self::admitting(AdmissionSpec::AdaptSize);
    /// Admits by [`AdmissionSpec::AdaptSizeHorizon`], evicts the least recently used object.
    pub const ADAPTSIZE_HORIZON: Self = Self::admitting(AdmissionSpec::AdaptSizeHorizon);
    /// [`EvictionSpec::Gdsf`] alone.
    pub const GDSF: Self = Self::evicting(EvictionSpec::Gdsf);
    /// [`EvictionSpec::GdsfPlain`] alone.
    pub const GDSF_PLAIN: Self = Self::evicting(EvictionSpec::GdsfPlain);
    /// [`EvictionSpec::Density`] alone.
    pub const DENSITY: Self = Self::evicting(EvictionSpec::Density);
    /// Admits every object and evicts none.
    pub const INFINITE: Self = Self::evicting(EvictionSpec::Never);

    /// Returns a policy with this eviction rule that admits every object.
    pub const fn evicting(eviction: EvictionSpec) -> Self {
        Self {
            admission: AdmissionSpec::Always,
            eviction,
        }
    }

    /// Returns a policy with this admission rule that evicts the least recently used object.
    pub const fn admitting(admission: AdmissionSpec) -> Self {
        Self {
            admission,
            eviction: EvictionSpec::Lru,
        }
    }

    /// Parses a policy for an edge. A policy that only the simulator runs is an error that names the others.
    pub fn parse_served(text: &str) -> Result<Self, ParsePolicyError> {
        let policy: Self = text.parse()?;
        if policy.is_served() {
            Ok(policy)
        } else {
            Err(ParsePolicyError::OnlySimulated(text.to_owned()))
        }
    }

    /// Returns true if an edge serves with this policy. The simulator also runs the rules that exist to be compared
    /// with the literature.
    pub fn is_served(&self) -> bool {
        self.admission.is_served() && self.eviction.is_served()
    }

    /// Makes a tier with this policy.
    pub fn tier(&self, capacity_bytes: u64, seed: Seed) -> AnyTier {
        let admission = self.admission.rule(capacity_bytes);
        self.eviction.tier(capacity_bytes, admission, seed)
    }

    /// Returns the tuner of the tier's admission, if the policy has a parameter to tune.
    ///
    /// `window_requests` is the number of requests between two tunings (Δ in the AdaptSize paper); the first windows
    /// may differ. `None` means the default of the rule: 250,000 for AdaptSize, as in the paper. The models of
    /// AdaptSize assume LRU eviction.
    pub fn tuner(
        &self,
        capacity_bytes: u64,
        window_requests: Option<u32>,
    ) -> Option<Box<dyn AdmissionTuner>> {
        self.admission
            .tuner(self.eviction, capacity_bytes, window_requests)
    }

    /// Returns true if the policy weighs objects by the benefit of a hit, so that it follows any
    /// [`Objective`](crate::Objective). Other policies ignore the benefit.
    pub fn weighs_benefits(&self) -> bool {
        self.eviction.weighs_benefits()
    }

    /// Returns true if the decisions depend on the hashes of the keys, because the policy keeps keys in filters or
    /// sketches, or samples them by hash. The same traffic with different keys then leads to slightly different
    /// decisions.
    pub fn depends_on_key_hash(&self) -> bool {
        self.admission.depends_on_key_hash() || self.eviction.depends_on_key_hash()
    }

    /// Returns one example of each rule and one combination of two rules, for lists and tests.
    pub fn examples() -> Vec<Self> {
        let mut examples: Vec<Self> = EVICTIONS
            .iter()
            .map(|&(_, eviction)| Self::evicting(eviction))
            .chain(AdmissionSpec::examples().map(Self::admitting))
            .collect();
        examples.push(Self {
            admission: AdmissionSpec::AdaptSizeHorizon,
            eviction: EvictionSpec::GdsfPlain,
        });
        examples
    }
}

impl FromStr for PolicySpec {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('+') {
            Some((admission, eviction)) => Ok(Self {
                admission: parse_admission(admission)?
                    .ok_or_else(|| ParsePolicyError::UnknownAdmission(admission.to_owned()))?,
                eviction: parse_eviction(eviction)?
                    .ok_or_else(|| ParsePolicyError::UnknownEviction(eviction.to_owned()))?,
            }),
            None => match parse_admission(text)? {
                Some(admission) => Ok(Self::admitting(admission)),
                None => parse_eviction(text)?.map(Self::evicting).ok_or_else(|| {
                    let (name, _) = split_argument(text);
                    if OFFLINE_NAMES.contains(&name) {
                        ParsePolicyError::Offline(text.to_owned())
                    } else {
                        ParsePolicyError::Unknown(text.to_owned())
                    }
                }),
            },
        }
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // LRU is implied by a text without an eviction rule.
        let is_implied_eviction = self.eviction == EvictionSpec::Lru;
        match self.admission {
            AdmissionSpec::Always => write!(f, "{}", self.eviction),
            admission if is_implied_eviction => write!(f, "{admission}"),
            admission => write!(f, "{admission}+{}", self.eviction),
        }
    }
}

/// The names of the simulator's offline policies, for error messages.
const OFFLINE_NAMES: [&str; 3] = ["belady", "belady-size", "size-opt"];

#[cfg(test)]
mod tests {
    use edgeward_types::ByteSize;

    use super::*;

    #[test]
    fn a_displayed_policy_parses_to_the_same_policy() {
        let odd = [
            PolicySpec::admitting(AdmissionSpec::Threshold(ByteSize(123_457))),
            PolicySpec::admitting(AdmissionSpec::Exponential(ByteSize(u64::MAX))),
        ];
        for spec in PolicySpec::examples().into_iter().chain(odd) {
            assert_eq!(spec.to_string().parse(), Ok(spec), "{spec}");
        }
    }

    #[test]
    fn an_admission_rule_and_an_eviction_rule_can_be_combined() {
        let spec: PolicySpec = "threshold:1KiB+gds".parse().expect("a valid policy");
        assert_eq!(spec.admission, AdmissionSpec::Threshold(ByteSize::kib(1)));
        assert_eq!(spec.eviction, EvictionSpec::Gds);
        assert_eq!("adaptsize+lru".parse(), Ok(PolicySpec::ADAPTSIZE));
    }

    #[test]
    fn a_rule_for_comparisons_runs_only_in_the_simulator() {
        for text in [
            "sieve",
            "infinite",
            "adaptsize+s3-fifo",
            "hill-climbing+gdsf",
        ] {
            text.parse::<PolicySpec>().expect(text);
            let message = PolicySpec::parse_served(text).expect_err(text).to_string();
            for part in [text, "edgeward simulate", "lru, lfu-da", "nth-hit:N"] {
                assert!(message.contains(part), "{text}: {message}");
            }
        }
        for text in [
            "density",
            "gdsf-plain",
            "exp:1MiB",
            "adaptsize-horizon+gdsf-plain",
        ] {
            assert_eq!(PolicySpec::parse_served(text), text.parse());
        }
    }

    #[test]
    fn an_invalid_policy_is_rejected_with_a_hint() {
        for (text, hint) in [
            ("no-such-rule", "use lru, gdsf"),
            ("lru+gdsf", "before the +; use threshold:SIZE"),
            ("adaptsize+no-such-rule", "after the +; use lru"),
            ("adaptsize+gdsf:2", "write gdsf"),
            ("exp:0+lru", "admit nothing"),
            ("threshold", "threshold:64KiB"),
            ("exp:", "cannot be read"),
            ("exp:0", "admit nothing"),
            ("inverse-size:0", "admit nothing"),
            ("inverse-size", "inverse-size:64KiB"),
            ("nth-hit", "write nth-hit:3"),
            ("nth-hit:1", "from 2 to 8"),
            ("nth-hit:9", "from 2 to 8"),
            ("second-hit:2", "write second-hit"),
            ("threshold-percentile", "write threshold-percentile:90"),
            ("threshold-percentile:0", "from 1 to 99"),
            ("threshold-percentile:100", "from 1 to 99"),
            ("hill-climbing:2", "write hill-climbing"),
            ("adaptsize-code:2", "write adaptsize-code"),
            ("lru:3", "write lru"),
        ] {
            let message = text.parse::<PolicySpec>().expect_err(text).to_string();
            assert!(message.contains(hint), "{text}: {message}");
        }
    }
}
