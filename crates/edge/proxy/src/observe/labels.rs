//! Closed sets of values whose names are the labels of metrics, and counters for each value of a set.
//!
//! `labels!` declares an enum with the label of each variant. The table of `counters` names the set at its metric, so a
//! new variant is counted, logged and exported without further lists.

use std::array;
use std::marker::PhantomData;
use std::ops::Index;

use super::counter::Counter;

/// A value of a closed set.
pub(crate) trait Label: Copy {
    /// The label of each value, in the order of the values.
    const LABELS: &'static [&'static str];

    /// Returns the position of the value in its set.
    fn index(self) -> usize;

    /// Returns the label, which is the word of logs, too.
    fn as_str(self) -> &'static str {
        Self::LABELS[self.index()]
    }
}

/// Declares an enum whose variants are the labels of a metric.
macro_rules! labels {
    ($(#[$doc:meta])* $vis:vis enum $name:ident {
        $( $(#[$variant_doc:meta])* $variant:ident = $label:literal ),+ $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name {
            $( $(#[$variant_doc])* $variant ),+
        }

        impl $crate::observe::labels::Label for $name {
            const LABELS: &'static [&'static str] = &[$( $label ),+];

            #[inline]
            fn index(self) -> usize {
                self as usize
            }
        }
    };
}
pub(crate) use labels;

/// A counter for each value of the set `L`, which has `N` values.
#[derive(Debug)]
pub(crate) struct PerLabel<L, const N: usize> {
    counters: [Counter; N],
    set: PhantomData<fn(L)>,
}

impl<L, const N: usize> PerLabel<L, N> {
    /// Returns counters that several threads may change at the same time.
    pub(crate) fn shared() -> Self {
        Self {
            counters: [const { Counter::shared() }; N],
            set: PhantomData,
        }
    }

    /// Returns the counters in the order of the values.
    pub(crate) const fn all(&self) -> &[Counter; N] {
        &self.counters
    }

    pub(crate) fn total(&self) -> u64 {
        self.counters.iter().map(Counter::value).sum()
    }
}

impl<L, const N: usize> Default for PerLabel<L, N> {
    fn default() -> Self {
        Self {
            counters: array::from_fn(|_| Counter::default()),
            set: PhantomData,
        }
    }
}

impl<L: Label, const N: usize> Index<L> for PerLabel<L, N> {
    type Output = Counter;

    #[inline]
    fn index(&self, value: L) -> &Counter {
        &self.counters[value.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    labels! {
        enum Door {
            Front = "front",
            Back = "back-door",
        }
    }

    #[test]
    fn each_value_has_a_counter_at_the_position_of_its_label() {
        let counters = PerLabel::<Door, { Door::LABELS.len() }>::default();
        counters[Door::Back].increment();
        let values = counters.all().each_ref().map(Counter::value);
        assert_eq!(values, [0, 1]);
        assert_eq!(Door::LABELS, ["front", "back-door"]);
        assert_eq!(Door::Front.as_str(), "front");
    }
}
