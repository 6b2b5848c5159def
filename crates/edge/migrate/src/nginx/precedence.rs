//! The order of locations.
//!
//! nginx selects one location: an exact match; else the longest matching prefix, if it has `^~`; else the first
//! expression in the order of the file; else the longest prefix. The edge applies all rules that match, and the later
//! one counts. So locations are listed from the lowest precedence to the highest, and an expression is listed again
//! behind a prefix that stands behind it and yields to expressions.

/// How a location matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `location = /a`.
    Exact,
    /// `location /a`.
    Prefix,
    /// `location ^~ /a`.
    FinalPrefix,
    /// `location ~ a` and `location ~* a`.
    Regex,
}

/// A location, as far as its order needs it.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) kind: Kind,
    /// The path or the expression.
    pub(super) pattern: String,
    /// The index of the prefix location around it.
    pub(super) parent: Option<usize>,
}

/// A position in the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rank {
    /// The index of the location.
    pub(super) index: usize,
    /// The prefix that limits an expression.
    pub(super) within: Option<String>,
}

/// Returns the order, from the lowest precedence to the highest.
pub(super) fn order(locations: &[Candidate]) -> Vec<Rank> {
    // nginx searches the locations in a prefix only if no longer prefix beside it matches.
    let is_covered = |index: usize| {
        let location = &locations[index];
        let Some(parent) = location.parent.filter(|_| location.kind != Kind::Regex) else {
            return false;
        };
        locations.iter().any(|other| {
            matches!(other.kind, Kind::Prefix | Kind::FinalPrefix)
                && other.parent.is_none()
                && other.pattern.len() > locations[parent].pattern.len()
                && location.pattern.starts_with(&other.pattern)
        })
    };
    let of_kind = |kinds: &[Kind]| -> Vec<usize> {
        let is_kind = |index: &usize| kinds.contains(&locations[*index].kind);
        let all = (0..locations.len()).filter(is_kind);
        all.filter(|index| !is_covered(*index)).collect()
    };
    let mut prefixes = of_kind(&[Kind::Prefix, Kind::FinalPrefix]);
    prefixes.sort_by_key(|index| locations[*index].pattern.len());
    let mut regexes = of_kind(&[Kind::Regex]);
    regexes.reverse();
    let inner_regexes = |prefix: usize| -> Vec<usize> {
        let location = &locations[prefix];
        let parents = match (location.parent, &location.kind) {
            // Expressions beside a nested prefix are compared unless it has `^~`.
            (Some(parent), Kind::Prefix) => vec![parent, prefix],
            _ => vec![prefix],
        };
        let is_inner = |index: &usize| {
            locations[*index]
                .parent
                .is_some_and(|p| parents.contains(&p))
        };
        regexes.iter().copied().filter(is_inner).collect()
    };
    let outer_regexes = |prefix: usize| -> Vec<usize> {
        let outermost = locations[prefix].parent.unwrap_or(prefix);
        match locations[outermost].kind {
            Kind::FinalPrefix => Vec::new(),
            _ => regexes
                .iter()
                .copied()
                .filter(|index| locations[*index].parent.is_none())
                .collect(),
        }
    };
    let all_outer = regexes
        .iter()
        .filter(|index| locations[**index].parent.is_none())
        .count();
    let is_special = |prefix: usize| {
        outer_regexes(prefix).len() < all_outer || !inner_regexes(prefix).is_empty()
    };
    let is_behind = |prefix: usize| {
        let is_around = |other: &usize| {
            *other != prefix
                && locations[prefix]
                    .pattern
                    .starts_with(&locations[*other].pattern)
        };
        is_special(prefix)
            || prefixes
                .iter()
                .filter(|other| is_around(other))
                .any(|other| is_special(*other))
    };
    let unlimited = |index: usize| Rank {
        index,
        within: None,
    };
    let (behind, before): (Vec<usize>, Vec<usize>) =
        prefixes.iter().partition(|prefix| is_behind(**prefix));
    let mut ranks: Vec<Rank> = before.into_iter().map(unlimited).collect();
    let outer = regexes
        .iter()
        .filter(|index| locations[**index].parent.is_none());
    ranks.extend(outer.copied().map(unlimited));
    for prefix in behind {
        ranks.push(unlimited(prefix));
        let within = Some(locations[prefix].pattern.clone());
        let limited = |index: usize| Rank {
            index,
            within: within.clone(),
        };
        ranks.extend(outer_regexes(prefix).into_iter().map(limited));
        ranks.extend(inner_regexes(prefix).into_iter().map(limited));
    }
    ranks.extend(of_kind(&[Kind::Exact]).into_iter().map(unlimited));
    ranks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    fn matches(location: &Candidate, path: &str) -> bool {
        match location.kind {
            Kind::Exact => path == location.pattern,
            Kind::Prefix | Kind::FinalPrefix => path.starts_with(&location.pattern),
            Kind::Regex => Regex::new(&location.pattern).expect("valid").is_match(path),
        }
    }

    /// The search of nginx (`ngx_http_core_find_location`), level by level.
    fn search(locations: &[Candidate], level: Option<usize>, path: &str) -> (Option<usize>, bool) {
        let here = || (0..locations.len()).filter(|index| locations[*index].parent == level);
        let of = |kind: Kind| {
            here().filter(move |index| {
                locations[*index].kind == kind && matches(&locations[*index], path)
            })
        };
        if let Some(exact) = of(Kind::Exact).next() {
            return (Some(exact), true);
        }
        let mut best = of(Kind::Prefix)
            .chain(of(Kind::FinalPrefix))
            .max_by_key(|index| locations[*index].pattern.len());
        let is_final = best.is_some_and(|index| locations[index].kind == Kind::FinalPrefix);
        if let Some(prefix) = best {
            let (inner, is_decided) = search(locations, Some(prefix), path);
            if is_decided {
                return (inner, true);
            }
            best = inner.or(best);
        }
        if !is_final && let Some(regex) = of(Kind::Regex).next() {
            return (Some(regex), true);
        }
        (best, false)
    }

    fn last(locations: &[Candidate], path: &str) -> Option<usize> {
        let holds = |rank: &&Rank| {
            let is_within = rank
                .within
                .as_ref()
                .is_none_or(|prefix| path.starts_with(prefix));
            is_within && matches(&locations[rank.index], path)
        };
        order(locations).iter().rfind(holds).map(|rank| rank.index)
    }

    fn top() -> impl Strategy<Value = Vec<Candidate>> {
        let kinds = prop_oneof![
            Just(Kind::Exact),
            Just(Kind::Prefix),
            Just(Kind::Prefix),
            Just(Kind::FinalPrefix),
            Just(Kind::Regex)
        ];
        let one = (
            kinds,
            "/[ab]{0,3}",
            prop::sample::select(vec!["a", "b", "a$", "^/b", "ab"]),
            0..6_usize,
        );
        prop::collection::vec(one, 1..9).prop_map(|drawn| {
            let mut locations: Vec<Candidate> = Vec::new();
            for (kind, path, regex, nested) in drawn {
                let pattern = if kind == Kind::Regex {
                    regex.to_owned()
                } else {
                    path
                };
                // A nested location of nginx lies within the prefix around it.
                let parent = locations.get(nested).and_then(|around| {
                    let holds = matches!(around.kind, Kind::Prefix | Kind::FinalPrefix)
                        && around.parent.is_none();
                    let lies = kind == Kind::Regex || pattern.starts_with(&around.pattern);
                    (holds && lies).then_some(nested)
                });
                let is_double = locations
                    .iter()
                    .any(|l| l.pattern == pattern && kind != Kind::Regex && l.kind != Kind::Regex);
                if !is_double {
                    locations.push(Candidate {
                        kind,
                        pattern,
                        parent,
                    });
                }
            }
            locations
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        /// The last rule that holds is the location that nginx selects.
        #[test]
        fn the_last_rule_is_the_location_of_nginx(locations in top(), path in "/[ab]{0,4}") {
            prop_assert_eq!(last(&locations, &path), search(&locations, None, &path).0);
        }
    }
}
