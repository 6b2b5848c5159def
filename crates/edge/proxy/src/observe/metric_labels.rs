//! The labels of metrics that the configuration names: sites and origins.
//!
//! Each label has counters for each worker. A reload resolves the labels again, and the names that stay keep their
//! counters. At most `admin.metric_labels_max` names have a label of their own; all others share [`OTHER`]. A reload
//! moves the counters of names that it removes to `other`, so that sums over all labels never fall.

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use crate::rt::panics::lock;

/// The label of all names beyond the bound, and of requests that were refused before their site was known.
pub(crate) const OTHER: &str = "other";

/// Counters that can be added to others.
pub(crate) trait Tally: Default {
    /// Adds the values of `counted`, which nothing changes any more.
    fn add(&self, counted: &Self);
}

/// The counters of one label, one for each worker.
pub(crate) type PerWorker<C> = Arc<[C]>;

/// The counters of one label that a worker changes. A clone costs no atomic operation.
#[derive(Debug)]
pub(crate) struct WorkerTally<C>(Rc<(PerWorker<C>, usize)>);

impl<C> WorkerTally<C> {
    pub(crate) fn new(counters: &PerWorker<C>, worker: usize) -> Self {
        assert!(worker < counters.len(), "each worker has counters");
        Self(Rc::new((Arc::clone(counters), worker)))
    }
}

impl<C> Clone for WorkerTally<C> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<C> Deref for WorkerTally<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.0.0[self.0.1]
    }
}

/// The labels of one kind, which all generations of an edge share.
#[derive(Debug)]
pub(crate) struct MetricLabels<C> {
    labels_max: usize,
    workers: usize,
    table: Mutex<Table<C>>,
}

#[derive(Debug)]
struct Table<C> {
    named: Vec<(Box<str>, PerWorker<C>)>,
    other: PerWorker<C>,
    /// Counters of names that a reload has removed, and that requests of earlier generations may still change.
    draining: Vec<PerWorker<C>>,
    /// The sums of the counters that have drained.
    drained: PerWorker<C>,
}

impl<C: Tally> MetricLabels<C> {
    pub(crate) fn new(labels_max: usize, workers: usize) -> Self {
        Self {
            labels_max,
            workers,
            table: Mutex::new(Table {
                named: Vec::new(),
                other: per_worker(workers),
                draining: Vec::new(),
                drained: per_worker(1),
            }),
        }
    }

    /// Resolves the labels of a new generation, and returns the counters of each name, in this order. Names that had a
    /// label keep it.
    pub(crate) fn resolve(&self, names: &[&str]) -> Vec<PerWorker<C>> {
        let mut table = lock(&self.table);
        let table = &mut *table;
        table.fold_drained();
        let wanted: HashSet<&str> = names.iter().copied().collect();
        let removed = table
            .named
            .extract_if(.., |(name, _)| !wanted.contains(&**name));
        table.draining.extend(removed.map(|(_, counters)| counters));
        let mut index: HashMap<Box<str>, PerWorker<C>> = table.named.iter().cloned().collect();
        let resolved = names.iter().map(|name| {
            if let Some(counters) = index.get(*name) {
                return Arc::clone(counters);
            }
            if *name == OTHER || table.named.len() >= self.labels_max {
                return Arc::clone(&table.other);
            }
            let counters = per_worker(self.workers);
            table.named.push(((*name).into(), Arc::clone(&counters)));
            index.insert((*name).into(), Arc::clone(&counters));
            counters
        });
        resolved.collect()
    }

    /// Returns the counters of [`OTHER`].
    pub(crate) fn other(&self) -> PerWorker<C> {
        Arc::clone(&lock(&self.table).other)
    }

    /// Returns the number of labels, without [`OTHER`].
    pub(crate) fn len(&self) -> usize {
        lock(&self.table).named.len()
    }

    /// Returns all labels with their counters, [`OTHER`] last.
    pub(crate) fn all(&self) -> Vec<(Box<str>, Vec<PerWorker<C>>)> {
        let table = lock(&self.table);
        let named = table.named.iter();
        let mut all: Vec<_> = named
            .map(|(name, counters)| (name.clone(), vec![Arc::clone(counters)]))
            .collect();
        let mut other = vec![Arc::clone(&table.other), Arc::clone(&table.drained)];
        other.extend(table.draining.iter().map(Arc::clone));
        all.push((OTHER.into(), other));
        all
    }
}

impl<C: Tally> Table<C> {
    /// Adds the counters that no request changes any more to the drained ones.
    fn fold_drained(&mut self) {
        let drained = &self.drained[0];
        self.draining.retain_mut(|counters| {
            let Some(counters) = Arc::get_mut(counters) else {
                return true;
            };
            counters.iter().for_each(|counters| drained.add(counters));
            false
        });
    }
}

fn per_worker<C: Default>(workers: usize) -> PerWorker<C> {
    (0..workers).map(|_| C::default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::counter::Counter;

    #[derive(Debug, Default)]
    struct Count(Counter);

    impl Tally for Count {
        fn add(&self, counted: &Self) {
            self.0.add(counted.0.value());
        }
    }

    fn counts(labels: &MetricLabels<Count>) -> Vec<(String, u64)> {
        let sum = |counters: Vec<PerWorker<Count>>| {
            let all = counters.iter().flat_map(|all| all.iter());
            all.map(|count| count.0.value()).sum()
        };
        let all = labels.all().into_iter();
        all.map(|(name, counters)| (name.into(), sum(counters)))
            .collect()
    }

    fn named(counts: &[(&str, u64)]) -> Vec<(String, u64)> {
        let counts = counts.iter();
        counts.map(|(name, n)| ((*name).to_owned(), *n)).collect()
    }

    /// Method: each generation counts one request for each of its names.
    #[test]
    fn names_that_stay_keep_their_counts_and_those_beyond_the_bound_share_other() {
        let labels = MetricLabels::<Count>::new(2, 1);
        let generation = |names: &[&str]| {
            let resolved = labels.resolve(names);
            for counters in &resolved {
                WorkerTally::new(counters, 0).0.0[0].0.increment();
            }
            resolved
        };
        let first = generation(&["a", "b", "c"]);
        assert_eq!(counts(&labels), named(&[("a", 1), ("b", 1), ("other", 1)]));
        generation(&["c", "b", "d"]);
        assert_eq!(
            counts(&labels),
            named(&[("b", 2), ("c", 1), ("other", 3)]),
            "the count of `a` is in `other`, while requests may still change it"
        );
        first[0][0].0.increment();
        drop(first);
        generation(&["a"]);
        let now = counts(&labels);
        assert_eq!(now, named(&[("a", 1), ("other", 7)]));
        generation(&["a"]);
        assert_eq!(lock(&labels.table).draining.len(), 0);
        assert_eq!(counts(&labels), named(&[("a", 2), ("other", 7)]));
    }

    #[test]
    fn many_reloads_never_exceed_the_bound() {
        let labels = MetricLabels::<Count>::new(10, 1);
        for generation in 0..100 {
            let names: Vec<String> = (0..25).map(|n| format!("{}", generation * 7 + n)).collect();
            labels.resolve(&names.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(labels.len(), 10);
            assert_eq!(labels.all().len(), 11);
            assert!(lock(&labels.table).draining.len() <= 10);
        }
    }

    #[test]
    fn a_name_that_is_other_has_no_label_of_its_own() {
        let labels = MetricLabels::<Count>::new(10, 1);
        let resolved = labels.resolve(&["other", "a", "a"]);
        assert!(Arc::ptr_eq(&resolved[0], &labels.other()));
        assert!(Arc::ptr_eq(&resolved[1], &resolved[2]));
        assert_eq!(labels.len(), 1);
    }

    #[test]
    fn without_labels_all_names_share_other() {
        let labels = MetricLabels::<Count>::new(0, 1);
        let resolved = labels.resolve(&["a"]);
        assert!(Arc::ptr_eq(&resolved[0], &labels.other()));
    }
}
