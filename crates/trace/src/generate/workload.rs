//! What traffic to make.

use super::sizes::Sizes;

/// A description of traffic; with a seed it is a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// How many requests.
    pub requests: u64,
    /// How many distinct objects, one-hit wonders included.
    pub objects: u64,
    /// The share of the objects that is asked for exactly once.
    pub one_hit_share: f64,
    /// The share of the catalogue (the objects asked for more than once) that is born during
    /// the trace, in place of an object that dies. 0 is a fixed catalogue.
    pub churn: f64,
    /// Requests a second, averaged over a day.
    pub requests_per_second: f64,
    /// How far the rate swings around its average over a day: 0 is flat, 1 falls to nothing
    /// at night.
    pub diurnal: f64,
    /// The kinds of traffic.
    pub classes: Vec<Class>,
    /// How they are mixed, and when that changes. The first phase begins at 0.
    pub phases: Vec<Phase>,
}

/// One kind of traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// What it is called in messages.
    pub name: &'static str,
    /// Its part of the catalogue, in proportion to the other classes'.
    pub catalogue_weight: f64,
    /// The exponent of its Zipf popularity.
    pub zipf_exponent: f64,
    /// How large its objects are.
    pub sizes: Sizes,
}

/// From when on the classes are mixed how.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// The share of the trace's requests after which the phase begins, 0 to 1.
    pub from: f64,
    /// For each class its part of the requests, in proportion to the other classes'.
    pub weights: Vec<f64>,
}

impl Workload {
    /// Another length with the same density: objects grow and shrink with the requests.
    #[must_use]
    pub fn scaled_to(mut self, requests: u64) -> Self {
        let objects = u128::from(self.objects) * u128::from(requests);
        let objects = objects / u128::from(self.requests.max(1));
        self.objects = u64::try_from(objects).unwrap_or(u64::MAX).max(1);
        self.requests = requests;
        self
    }

    /// Objects asked for exactly once.
    pub(super) fn one_hit_objects(&self) -> u64 {
        ((self.objects as f64 * self.one_hit_share + 0.5) as u64).min(self.objects)
    }

    /// Finds what cannot be carried out.
    pub(super) fn check(&self) -> Result<(), WorkloadError> {
        let share = |field, value: f64| {
            (0.0..=1.0)
                .contains(&value)
                .then_some(())
                .ok_or(WorkloadError::NotAShare { field, value })
        };
        share("one-hit share", self.one_hit_share)?;
        share("churn", self.churn)?;
        share("diurnal swing", self.diurnal)?;
        if !(self.requests_per_second.is_finite() && self.requests_per_second > 0.0) {
            return Err(WorkloadError::NoRate {
                requests_per_second: self.requests_per_second,
            });
        }
        if self.objects == 0 || self.objects > OBJECTS_MAX {
            return Err(WorkloadError::Objects {
                objects: self.objects,
            });
        }
        let one_hit = self.one_hit_objects();
        let catalogue = self.objects - one_hit;
        let needed = one_hit + 2 * catalogue;
        if self.requests < needed {
            return Err(WorkloadError::TooFewRequests {
                requests: self.requests,
                needed,
            });
        }
        if catalogue == 0 && self.requests > one_hit {
            return Err(WorkloadError::NothingToRepeat {
                requests: self.requests,
                objects: self.objects,
            });
        }
        self.check_mix()
    }

    fn check_mix(&self) -> Result<(), WorkloadError> {
        let weights_fit = |weights: &mut dyn Iterator<Item = f64>| {
            let mut sum = 0.0;
            let mut sound = true;
            for weight in weights {
                sound &= weight.is_finite() && weight >= 0.0;
                sum += weight;
            }
            sound && sum > 0.0
        };
        if !weights_fit(&mut self.classes.iter().map(|class| class.catalogue_weight)) {
            return Err(WorkloadError::Mix {
                reason: "there must be classes, their catalogue weights not negative and one \
                         of them positive",
            });
        }
        for class in &self.classes {
            let exponent = class.zipf_exponent;
            let flaw = if !(0.0..=ZIPF_EXPONENT_MAX).contains(&exponent) {
                Some("its Zipf exponent must be between 0 and 5")
            } else {
                class.sizes.flaw()
            };
            if let Some(reason) = flaw {
                return Err(WorkloadError::Class {
                    class: class.name,
                    reason,
                });
            }
        }
        let ordered = self.phases.is_sorted_by(|a, b| a.from < b.from);
        let from_zero = self.phases.first().is_some_and(|phase| phase.from == 0.0);
        let in_range = self.phases.iter().all(|p| (0.0..=1.0).contains(&p.from));
        if !(ordered && from_zero && in_range) {
            return Err(WorkloadError::Mix {
                reason: "phases must begin at 0 and at ever later shares of the trace",
            });
        }
        for phase in &self.phases {
            let complete = phase.weights.len() == self.classes.len();
            if !complete || !weights_fit(&mut phase.weights.iter().copied()) {
                return Err(WorkloadError::Mix {
                    reason: "each phase needs a weight for each class, none negative and one \
                             of them positive",
                });
            }
        }
        Ok(())
    }
}

/// Why no trace can be made of a workload.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A share outside 0 to 1.
    #[error("{field} is {value}, not between 0 and 1")]
    NotAShare {
        /// Which share.
        field: &'static str,
        /// What it was.
        value: f64,
    },
    /// A rate that makes no time pass, or none but time.
    #[error("{requests_per_second} is not a rate of requests a second; it must be positive")]
    NoRate {
        /// What it was.
        requests_per_second: f64,
    },
    /// No objects, or more than can be told apart.
    #[error("{objects} objects cannot be made; use 1 to {OBJECTS_MAX}")]
    Objects {
        /// What was asked for.
        objects: u64,
    },
    /// Not every object can be asked for as often as it must be.
    #[error(
        "{requests} requests are too few: one-hit wonders are asked for once and all other \
         objects at least twice, which takes {needed}; ask for more requests, fewer objects or a \
         larger one-hit share"
    )]
    TooFewRequests {
        /// What was asked for.
        requests: u64,
        /// The least that would do.
        needed: u64,
    },
    /// All objects are one-hit wonders, and there are more requests than objects.
    #[error(
        "with every object a one-hit wonder {objects} objects make {objects} requests, not \
         {requests}; ask for a smaller one-hit share, or as many objects as requests"
    )]
    NothingToRepeat {
        /// What was asked for.
        requests: u64,
        /// What was asked for.
        objects: u64,
    },
    /// A class that makes no sense.
    #[error("class {class}: {reason}")]
    Class {
        /// Its name.
        class: &'static str,
        /// What is wrong.
        reason: &'static str,
    },
    /// Classes and phases that do not fit together.
    #[error("{reason}")]
    Mix {
        /// What is wrong.
        reason: &'static str,
    },
}

/// Catalogue positions are 32 bits.
const OBJECTS_MAX: u64 = u32::MAX as u64;

/// Beyond it all but the first ranks are never drawn.
const ZIPF_EXPONENT_MAX: f64 = 5.0;
