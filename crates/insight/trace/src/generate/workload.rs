//! The description of generated traffic.

use super::sizes::Sizes;

/// A description of traffic. A workload and a seed determine a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The number of requests.
    pub requests: u64,
    /// The number of distinct objects, including one-hit wonders.
    pub objects: u64,
    /// The share of the objects with exactly one request.
    pub one_hit_share: f64,
    /// The share of the catalogue (the objects with two requests or more) that appears during the trace. Each
    /// of these objects replaces an object that gets no further requests. With 0 the catalogue is fixed.
    pub churn: f64,
    /// The number of scans. A scan is a run of consecutive requests for one-hit wonders, as by a crawler; the scans are
    /// evenly spaced and have all one-hit wonders. With 0 the one-hit wonders are spread over the trace.
    pub scans: u32,
    /// The number of days in which the popular objects recur. A day has four parts with different popular objects. They
    /// are popular again in the same part of the next day. With 0 popularity does not depend on the time.
    pub recurring_days: u32,
    /// Requests per second, averaged over a day.
    pub requests_per_second: f64,
    /// The amplitude of the rate over a day, relative to the average rate. With 0 the rate is constant; with 1
    /// it falls to a hundredth of the average at night.
    pub diurnal: f64,
    /// The classes of traffic.
    pub classes: Vec<Class>,
    /// The weights of the classes over the trace. The first phase begins at 0.
    pub phases: Vec<Phase>,
}

/// One class of traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// The name in messages.
    pub name: &'static str,
    /// The class's share of the catalogue is this weight divided by the sum over all classes.
    pub catalogue_weight: f64,
    /// The exponent of the Zipf distribution of the class's requests over its objects.
    pub zipf_exponent: f64,
    /// The sizes of the class's objects.
    pub sizes: Sizes,
}

/// The weights of the classes from a point of the trace on.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// The share of the trace's requests after which the phase begins, 0 to 1.
    pub from: f64,
    /// The weights with which requests are distributed over the classes, in the order of [`Workload::classes`].
    pub weights: Vec<f64>,
}

impl Workload {
    /// Returns a workload with another number of requests. The number of objects changes in proportion.
    #[must_use]
    pub fn scaled_to(mut self, requests: u64) -> Self {
        let objects = u128::from(self.objects) * u128::from(requests);
        let objects = objects / u128::from(self.requests.max(1));
        self.objects = u64::try_from(objects).unwrap_or(u64::MAX).max(1);
        self.requests = requests;
        self
    }

    /// The number of objects with exactly one request.
    pub(super) fn one_hit_objects(&self) -> u64 {
        ((self.objects as f64 * self.one_hit_share + 0.5) as u64).min(self.objects)
    }

    /// Checks that a trace with these properties exists.
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
            let mut are_valid = true;
            for weight in weights {
                are_valid &= weight.is_finite() && weight >= 0.0;
                sum += weight;
            }
            are_valid && sum > 0.0
        };
        if !weights_fit(&mut self.classes.iter().map(|class| class.catalogue_weight)) {
            return Err(WorkloadError::Mix {
                reason: "a workload needs classes; no catalogue weight may be negative, and one \
                         must be positive",
            });
        }
        for class in &self.classes {
            let exponent = class.zipf_exponent;
            let problem = if !(0.0..=ZIPF_EXPONENT_MAX).contains(&exponent) {
                Some("its Zipf exponent must be between 0 and 5")
            } else {
                class.sizes.problem()
            };
            if let Some(reason) = problem {
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
                reason: "the first phase must begin at 0, and each further phase after the one before",
            });
        }
        for phase in &self.phases {
            let complete = phase.weights.len() == self.classes.len();
            if !complete || !weights_fit(&mut phase.weights.iter().copied()) {
                return Err(WorkloadError::Mix {
                    reason: "each phase needs a weight for each class; no weight may be negative, and \
                             one must be positive",
                });
            }
        }
        Ok(())
    }
}

/// The reason why a workload is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A share is not between 0 and 1.
    #[error("{field} is {value}, not between 0 and 1")]
    NotAShare {
        /// The name of the share.
        field: &'static str,
        /// The value of the share.
        value: f64,
    },
    /// The rate is not a positive number.
    #[error("{requests_per_second} is not a rate of requests a second; it must be positive")]
    NoRate {
        /// The rate.
        requests_per_second: f64,
    },
    /// The number of objects is 0 or too large.
    #[error("{objects} objects cannot be generated; use 1 to {OBJECTS_MAX}")]
    Objects {
        /// The number of objects.
        objects: u64,
    },
    /// The workload has too few requests for one request per one-hit wonder and two per other object.
    #[error(
        "{requests} requests are too few: one-hit wonders need one request each and all other \
         objects two, which is {needed} in total; use more requests, fewer objects or a larger \
         one-hit share"
    )]
    TooFewRequests {
        /// The number of requests.
        requests: u64,
        /// The minimum number of requests.
        needed: u64,
    },
    /// All objects are one-hit wonders, but the workload has more requests than objects.
    #[error(
        "if every object is a one-hit wonder, {objects} objects have {objects} requests, not \
         {requests}; use a smaller one-hit share, or as many objects as requests"
    )]
    NothingToRepeat {
        /// The number of requests.
        requests: u64,
        /// The number of objects.
        objects: u64,
    },
    /// A class is inconsistent.
    #[error("class {class}: {reason}")]
    Class {
        /// The name of the class.
        class: &'static str,
        /// The problem.
        reason: &'static str,
    },
    /// Classes and phases are inconsistent.
    #[error("{reason}")]
    Mix {
        /// The problem.
        reason: &'static str,
    },
}

/// The largest number of objects: objects of the catalogue have numbers of 32 bits.
const OBJECTS_MAX: u64 = u32::MAX as u64;

/// The largest exponent. With larger exponents, nearly all requests are for the first ranks.
const ZIPF_EXPONENT_MAX: f64 = 5.0;
