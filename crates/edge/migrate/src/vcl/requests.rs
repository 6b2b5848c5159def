//! Sets of requests, with bounds where no rule can state them exactly.
//!
//! A condition of VCL may have a wider counterpart alone (`^secret[0-9]{5}$` becomes `secret*`), or none. Its set of
//! requests then has three decisions: `best` for statements that only change a request or a response, `may` for all
//! requests that can be in the set, and `must` for those that surely are. **A statement that denies or passes requests
//! applies to `may`, and a statement that ends a subroutine takes `must` away from those for which it continues.** So a
//! translation never admits a request that Varnish denies, nor stores a response that Varnish passes.

use crate::decision::Decision;
use crate::hosts::Reason;

/// An operation on two decisions.
type Join<T> = fn(&Decision<bool>, &Decision<bool>) -> T;

/// A set of requests.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    best: Decision<bool>,
    /// `None` if `best` is the set.
    bounds: Option<Box<Bounds>>,
}

#[derive(Clone, Debug)]
struct Bounds {
    must: Decision<bool>,
    may: Decision<bool>,
    /// True if requests between `best` and `may` are to be reported.
    is_reported: bool,
}

impl From<Decision<bool>> for Requests {
    fn from(best: Decision<bool>) -> Self {
        Self { best, bounds: None }
    }
}

impl Requests {
    pub(super) fn all() -> Self {
        Decision::always(true).into()
    }

    pub(super) fn none() -> Self {
        Decision::always(false).into()
    }

    /// Returns a set about which is only known that it has no request outside of `may`.
    pub(super) fn within(may: Decision<bool>) -> Self {
        Self::between(Decision::always(false), Decision::always(false), may)
    }

    /// Returns a set that a wider one stands for.
    pub(super) fn wider(best: Decision<bool>) -> Self {
        Self::between(Decision::always(false), best.clone(), best)
    }

    /// Returns a set with its bounds.
    pub(super) fn between(must: Decision<bool>, best: Decision<bool>, may: Decision<bool>) -> Self {
        let is_reported = true;
        let bounds = Bounds {
            must,
            may,
            is_reported,
        };
        Self {
            best,
            bounds: Some(Box::new(bounds)),
        }
    }

    /// Returns the set whose wider bound is used without a report.
    pub(super) fn unreported(mut self) -> Self {
        if let Some(bounds) = &mut self.bounds {
            bounds.is_reported = false;
        }
        self
    }

    /// Returns the set with a wider `best`, which is simpler, if the wider bound is used without a report.
    pub(super) fn simplified(&self) -> Self {
        match &self.bounds {
            Some(bounds) if !bounds.is_reported => Self {
                best: bounds.may.clone(),
                bounds: self.bounds.clone(),
            },
            _ => self.clone(),
        }
    }

    pub(super) fn best(&self) -> &Decision<bool> {
        &self.best
    }

    pub(super) fn must(&self) -> &Decision<bool> {
        self.bounds.as_ref().map_or(&self.best, |b| &b.must)
    }

    pub(super) fn may(&self) -> &Decision<bool> {
        self.bounds.as_ref().map_or(&self.best, |b| &b.may)
    }

    /// Returns true if requests between `best` and `may` are to be reported.
    pub(super) fn is_reported(&self) -> bool {
        let bounds = self.bounds.as_ref();
        bounds.is_some_and(|bounds| bounds.is_reported)
    }

    /// Returns the largest number of layers of the decisions.
    pub(super) fn layers(&self) -> usize {
        let all = [&self.best, self.must(), self.may()];
        let counts = all.map(|decision| decision.layers().len());
        counts.into_iter().max().unwrap_or(0)
    }

    /// Returns true if the set is stated exactly.
    pub(super) fn is_exact(&self) -> bool {
        self.bounds.is_none()
    }

    /// Returns true if all requests of `best` surely are in the set, and further ones need no report.
    pub(super) fn is_sure(&self) -> bool {
        let bounds = self.bounds.as_ref();
        bounds.is_none_or(|bounds| !bounds.is_reported && bounds.must == self.best)
    }

    /// Returns true if no statement that only changes a request runs for a request of the set.
    pub(super) fn is_lost(&self) -> bool {
        self.best.is_never() && !self.is_never()
    }

    /// Returns true if no request can be in the set.
    pub(super) fn is_never(&self) -> bool {
        self.may().is_never()
    }

    /// Returns the requests that are restricted beyond the source's condition, if the report must name them.
    pub(super) fn excess(&self) -> Option<Decision<bool>> {
        let bounds = self.bounds.as_ref().filter(|bounds| bounds.is_reported)?;
        let excess = upper_and(&bounds.may, &self.best.not());
        (!excess.is_never()).then_some(excess)
    }

    /// Returns the set with the requests that surely are in it in place of the best ones.
    pub(super) fn surely(mut self) -> Self {
        self.best = self.must().clone();
        self
    }

    /// Returns the set if the conditions of some requests are no longer known, since a statement changed a value.
    pub(super) fn except_unsure(&self, unsure: Option<&Decision<bool>>) -> Self {
        match unsure.filter(|unsure| !unsure.is_never()) {
            None => self.clone(),
            Some(unsure) => Self::between(
                lower_and(self.must(), &unsure.not()),
                self.best.clone(),
                upper_or(self.may(), unsure),
            ),
        }
    }

    /// Returns the set if it is not known which of its requests are in it.
    pub(super) fn unsure(&self) -> Self {
        let never = Decision::always(false);
        Self::between(never, self.best.clone(), self.may().clone())
    }

    /// Returns the requests that are not in another set. If rules cannot state them, `best` keeps all requests, and the
    /// reason is returned.
    pub(super) fn without(&self, other: &Self) -> (Self, Option<Reason>) {
        let (mut rest, reason) = other.not().and(self);
        if reason.is_some() {
            rest.best = self.best.clone();
        }
        (rest, reason)
    }

    pub(super) fn not(&self) -> Self {
        Self {
            best: self.best.not(),
            bounds: self.bounds.as_ref().map(|bounds| {
                Box::new(Bounds {
                    must: bounds.may.not(),
                    may: bounds.must.not(),
                    is_reported: bounds.is_reported,
                })
            }),
        }
    }

    /// Returns the requests of both sets, and the reason why `best` has none of them if rules cannot state them.
    pub(super) fn and(&self, other: &Self) -> (Self, Option<Reason>) {
        self.joined(other, Decision::and, lower_and, upper_and)
    }

    /// Returns the requests of one of the sets, and the reason why `best` has none of them if rules cannot state them.
    pub(super) fn or(&self, other: &Self) -> (Self, Option<Reason>) {
        self.joined(other, Decision::or, lower_or, upper_or)
    }

    fn joined(
        &self,
        other: &Self,
        best: Join<Result<Decision<bool>, Reason>>,
        must: Join<Decision<bool>>,
        may: Join<Decision<bool>>,
    ) -> (Self, Option<Reason>) {
        let (best, lost) = match best(&self.best, &other.best) {
            Ok(best) if self.is_exact() && other.is_exact() => return (best.into(), None),
            Ok(best) => (best, None),
            Err(reason) => {
                let [a, b] = [self, other].map(|set| set.best.without_queries(false));
                match best(&a, &b) {
                    Ok(best) => (best, None),
                    Err(_) => (Decision::always(false), Some(reason)),
                }
            }
        };
        let bounds = Bounds {
            must: must(self.must(), other.must()),
            may: may(self.may(), other.may()),
            is_reported: lost.is_some() || self.is_reported() || other.is_reported(),
        };
        let bounds = Some(Box::new(bounds));
        (Self { best, bounds }, lost)
    }
}

/// Returns a set that has all requests of both sets.
pub(super) fn upper_and(a: &Decision<bool>, b: &Decision<bool>) -> Decision<bool> {
    let wider = |a: &Decision<bool>, b: &Decision<bool>| a.and(b).ok();
    wider(a, b)
        .or_else(|| wider(&a.without_queries(true), &b.without_queries(true)))
        .or_else(|| wider(&a.widened(), b))
        .or_else(|| wider(a, &b.widened()))
        .or_else(|| wider(&a.widened(), &b.widened()))
        .unwrap_or_else(|| match b.constant() {
            Some(true) => a.clone(),
            _ => b.clone(),
        })
}

/// Returns a set that has all requests of one of the sets.
pub(super) fn upper_or(a: &Decision<bool>, b: &Decision<bool>) -> Decision<bool> {
    a.or(b)
        .or_else(|_| a.without_queries(true).or(&b.without_queries(true)))
        .or_else(|_| a.widened().or(&b.widened()))
        .unwrap_or_else(|_| Decision::always(true))
}

/// Returns a set whose requests are in both sets.
pub(super) fn lower_and(a: &Decision<bool>, b: &Decision<bool>) -> Decision<bool> {
    upper_or(&a.not(), &b.not()).not()
}

/// Returns a set whose requests are in one of the sets.
fn lower_or(a: &Decision<bool>, b: &Decision<bool>) -> Decision<bool> {
    upper_and(&a.not(), &b.not()).not()
}
