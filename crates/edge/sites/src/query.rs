//! The form of a query that rules demand: parameters removed and sorted, for the key and the origin alike.

use std::borrow::Cow;

use edgeward_types::Pattern;

use crate::names::{any_reading, decoded};

/// Changes of a query.
#[derive(Clone, Debug, Default)]
pub struct QueryShape {
    /// Sorts the parameters by their bytes as sent. Parameters with equal names keep their order.
    pub sorts: bool,
    /// Patterns of the names that stay. `None` keeps all.
    pub keeps: Option<Vec<Pattern>>,
    /// Patterns of the names that are removed.
    pub drops: Vec<Pattern>,
}

impl QueryShape {
    /// Returns true if no query is changed.
    pub fn is_neutral(&self) -> bool {
        !self.sorts && self.keeps.is_none() && self.drops.is_empty()
    }

    /// Returns a path and query with the shaped query. Empty parameters (`a&&b`) are removed if the query changes. A
    /// query without parameters is removed together with its `?`.
    ///
    /// Origin and key get the same query. A parameter that only the key lacked could change the response that other
    /// clients get.
    pub fn apply<'a>(&self, target: &'a str) -> Cow<'a, str> {
        if self.is_neutral() {
            return Cow::Borrowed(target); // nearly all requests, so the query is not searched for
        }
        let Some((path, query)) = target.split_once('?') else {
            return Cow::Borrowed(target);
        };
        let mut parameters: Vec<&str> = query
            .split('&')
            .filter(|parameter| !parameter.is_empty() && self.retains(name_of(parameter)))
            .collect();
        if self.sorts {
            parameters.sort_by_key(|parameter| name_of(parameter));
        }
        let shaped = parameters.join("&");
        if shaped.is_empty() {
            Cow::Borrowed(path)
        } else if shaped == query {
            Cow::Borrowed(target)
        } else {
            Cow::Owned(format!("{path}?{shaped}"))
        }
    }

    fn retains(&self, name: &str) -> bool {
        let matches = |patterns: &[Pattern], name: &[u8]| patterns.iter().any(|p| p.matches(name));
        // All origins decode names. A name is dropped in any form that some origin reads so.
        let is_kept = |keeps: &Vec<Pattern>| matches(keeps, &decoded(name.as_bytes()));
        self.keeps.as_ref().is_none_or(is_kept)
            && (self.drops.is_empty()
                || !any_reading(name.as_bytes(), |name| matches(&self.drops, name)))
    }
}

/// Returns the name of a parameter. A parameter without `=` is its own name.
pub(crate) fn name_of(parameter: &str) -> &str {
    parameter
        .split_once('=')
        .map_or(parameter, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shape(sorts: bool, keeps: Option<&[&str]>, drops: &[&str]) -> QueryShape {
        let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::new(text)).collect();
        QueryShape {
            sorts,
            keeps: keeps.map(patterns),
            drops: patterns(drops),
        }
    }

    #[test]
    fn parameters_are_kept_dropped_and_sorted_by_name() {
        for (shape, target, shaped) in [
            (
                shape(false, None, &["utm_*"]),
                "/a?b=1&utm_x=2&a=3",
                "/a?b=1&a=3",
            ),
            (
                shape(true, None, &["utm_*"]),
                "/a?b=1&utm_x=2&a=3",
                "/a?a=3&b=1",
            ),
            (shape(true, None, &[]), "/a?b=2&b=1&a", "/a?a&b=2&b=1"),
            (shape(false, Some(&["v"]), &[]), "/a?x=1&v=2", "/a?v=2"),
            (shape(false, Some(&[]), &[]), "/a?x=1&v=2", "/a"),
            (
                shape(false, Some(&["v*"]), &["v2"]),
                "/a?v1=1&v2=2",
                "/a?v1=1",
            ),
            (
                shape(false, None, &["utm_*"]),
                "/a?utm%5Fx=2&utm.y=1&a=3",
                "/a?a=3",
            ),
            (
                shape(false, Some(&["v"]), &[]),
                "/a?%76=1&x.v=2",
                "/a?%76=1",
            ),
            (shape(true, None, &[]), "/a?", "/a"),
            (shape(true, None, &[]), "/a", "/a"),
            (shape(true, None, &[]), "/a?b&&a", "/a?a&b"),
            (shape(false, None, &["x"]), "/a?b?x=1", "/a?b?x=1"),
            (shape(false, None, &[]), "/a?", "/a?"),
        ] {
            assert_eq!(shape.apply(target), shaped, "{target}");
        }
    }

    proptest! {
        #[test]
        fn a_shaped_query_stays_as_it_is(
            query in "[ab=&]{0,12}",
            sorts in any::<bool>(),
            keeps in any::<bool>(),
        ) {
            let shape = shape(sorts, keeps.then_some(&["a*"]), &["b"]);
            let target = format!("/?{query}");
            let once = shape.apply(&target).into_owned();
            prop_assert_eq!(shape.apply(&once), once.as_str());
        }

        /// Queries with the same parameters in another order have one form, if names do not repeat.
        #[test]
        fn a_sorted_query_does_not_depend_on_the_order(
            names in proptest::collection::btree_set("[a-d]{1,3}", 0..6),
            seed in any::<u64>(),
        ) {
            let ordered: Vec<String> = names.iter().map(|name| format!("{name}=1")).collect();
            let mut shuffled = ordered.clone();
            shuffled.sort_by_key(|parameter| edgeward_types::mix64(seed ^ parameter.len() as u64
                ^ u64::from(parameter.as_bytes()[0]) << 8));
            let shape = shape(true, None, &[]);
            let of = |list: &[String]| shape.apply(&format!("/?{}", list.join("&"))).into_owned();
            prop_assert_eq!(of(&ordered), of(&shuffled));
        }
    }
}
