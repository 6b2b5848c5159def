//! Values that depend on the request, as lists of conditions: the last condition that holds decides.
//!
//! This is the form of the edge's rules, and it is closed under what programs do: a negation negates the values, and
//! `if` inserts the layers of one list into another ([`Decision::select`]). Two conditions together must be one that a
//! rule can state; if they are not, the operation returns the reason.

use crate::hosts::Reason;
use crate::rule::When;

/// A value for each request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decision<T> {
    /// Conditions with values. The first one always holds, and the last one that holds decides.
    layers: Vec<(When, T)>,
}

/// The most conditions of a value. A site has fewer rules.
const LAYERS_MAX: usize = 256;

impl<T: Clone + PartialEq> Decision<T> {
    /// Returns the same value for all requests.
    pub(crate) fn always(value: T) -> Self {
        Self {
            layers: vec![(When::default(), value)],
        }
    }

    /// Returns the conditions with their values. The last one that holds decides.
    pub(crate) fn layers(&self) -> &[(When, T)] {
        &self.layers
    }

    /// Returns the value if it is the same for all requests.
    pub(crate) fn constant(&self) -> Option<&T> {
        match &self.layers[..] {
            [(_, value)] => Some(value),
            _ => None,
        }
    }

    /// Returns the decision without the conditions for which `is_free` is true: the value does not matter to their
    /// requests.
    pub(crate) fn without(&self, is_free: impl Fn(&When) -> bool) -> Self {
        let layers = self.layers.iter().enumerate();
        let kept = layers.filter(|(position, (when, _))| *position == 0 || !is_free(when));
        Self {
            layers: kept.map(|(_, layer)| layer.clone()).collect(),
        }
        .tidy()
    }

    /// Returns the decision with each value replaced.
    pub(crate) fn map<U: Clone + PartialEq>(&self, f: impl Fn(&T) -> U) -> Decision<U> {
        let layers = self.layers.iter();
        Decision {
            layers: layers
                .map(|(when, value)| (when.clone(), f(value)))
                .collect(),
        }
        .tidy()
    }

    /// Returns the decision in which each value is replaced by another decision.
    pub(crate) fn bind<U: Clone + PartialEq>(
        &self,
        f: impl Fn(&T) -> Result<Decision<U>, Reason>,
    ) -> Result<Decision<U>, Reason> {
        let mut layers: Vec<(When, U)> = Vec::new();
        for (position, (outer, value)) in self.layers.iter().enumerate() {
            let later = &self.layers[position + 1..];
            for (inner, value) in f(value)?.within(outer).layers {
                match meet(outer, &inner) {
                    Meet::Never => {}
                    Meet::Both(when) => layers.push((*when, value)),
                    // The layer changes nothing if all earlier ones have its value.
                    Meet::Unstated if layers.iter().all(|(_, earlier)| *earlier == value) => {}
                    // A later layer decides for all requests with the inner condition.
                    Meet::Unstated if later.iter().any(|(when, _)| covers(when, &inner)) => {}
                    Meet::Unstated => {
                        let text = "one rule cannot state this condition together with an earlier or outer one";
                        return Err(text.to_owned());
                    }
                }
                if layers.len() > 4 * LAYERS_MAX {
                    return Err("the conditions need too many rules".to_owned());
                }
            }
        }
        let decision = Decision { layers }.tidy();
        match decision.layers.len() > LAYERS_MAX {
            true => Err("the conditions need too many rules".to_owned()),
            false => Ok(decision),
        }
    }

    /// Returns one of two decisions for each request.
    pub(crate) fn select(
        condition: &Decision<bool>,
        then: &Self,
        otherwise: &Self,
    ) -> Result<Self, Reason> {
        condition.bind(|holds| Ok(if *holds { then } else { otherwise }.clone()))
    }

    /// Returns the decision for requests for which a condition holds. Its first layer need not always hold.
    fn within(mut self, outer: &When) -> Self {
        let decided = self
            .layers
            .iter()
            .rposition(|(when, _)| covers(when, outer));
        self.layers.drain(..decided.unwrap_or(0));
        self.without_repetitions()
    }

    /// Removes layers that never decide, or that decide as the earlier ones do.
    fn tidy(mut self) -> Self {
        let mut at = self.layers.len();
        while at > 0 {
            at -= 1;
            let (earlier, later) = self.layers.split_at(at + 1);
            if later.iter().any(|(when, _)| covers(when, &earlier[at].0)) {
                self.layers.remove(at);
            }
        }
        self.without_repetitions()
    }

    /// Removes layers that decide as the earlier ones do, and joins layers with the same value.
    fn without_repetitions(self) -> Self {
        let mut kept: Vec<(When, T)> = Vec::with_capacity(self.layers.len());
        for (when, value) in self.layers {
            let mut is_decided = kept.iter().all(|(_, earlier)| *earlier == value);
            for (known, earlier) in kept.iter().rev() {
                if *earlier == value {
                    if covers(known, &when) {
                        is_decided = true;
                        break;
                    }
                } else if !matches!(meet(known, &when), Meet::Never) {
                    break;
                }
            }
            if is_decided && !kept.is_empty() {
                continue;
            }
            match kept.last_mut().filter(|(_, last)| *last == value) {
                Some((last, _)) => match joined(last, &when) {
                    Some(both) => *last = both,
                    None => kept.push((when, value)),
                },
                None => kept.push((when, value)),
            }
        }
        Self { layers: kept }
    }
}

impl Decision<bool> {
    /// Returns the decision that holds while a condition does.
    pub(crate) fn when(when: When) -> Self {
        Self::any([when])
    }

    /// Returns the decision that holds while one of the conditions does.
    pub(crate) fn any(all: impl IntoIterator<Item = When>) -> Self {
        let layers = all.into_iter().map(|when| (when, true));
        Self {
            layers: [(When::default(), false)]
                .into_iter()
                .chain(layers)
                .collect(),
        }
        .tidy()
    }

    pub(crate) fn not(&self) -> Self {
        self.map(|holds| !holds)
    }

    pub(crate) fn and(&self, other: &Self) -> Result<Self, Reason> {
        // Exceptions of the outer decision need no condition together with those of the inner one.
        Self::select(self, other, &Self::always(false))
            .or_else(|_| Self::select(other, self, &Self::always(false)))
    }

    pub(crate) fn or(&self, other: &Self) -> Result<Self, Reason> {
        Self::select(self, &Self::always(true), other)
            .or_else(|_| Self::select(other, &Self::always(true), self))
    }

    /// Returns the decision that holds for no request whose methods are all among these.
    pub(crate) fn without_methods(&self, methods: &[&str]) -> Self {
        let layers = self.layers.iter().map(|(when, holds)| {
            let is_of_methods = !when.methods.is_empty()
                && when
                    .methods
                    .iter()
                    .all(|method| methods.contains(&method.as_str()));
            (when.clone(), *holds && !is_of_methods)
        });
        Self {
            layers: layers.collect(),
        }
        .tidy()
    }

    /// Returns the decision for requests that need not have one of the parameters.
    pub(crate) fn without_parameters(&self, names: &[String]) -> Self {
        let layers = self.layers.iter().map(|(when, holds)| {
            let mut when = when.clone();
            if *holds && when.parameters.iter().all(|name| names.contains(name)) {
                when.parameters.clear();
            }
            (when, *holds)
        });
        Self {
            layers: layers.collect(),
        }
        .tidy()
    }

    /// Returns a decision that holds for all requests for which this one does, without its exceptions, so that it joins
    /// with any other.
    pub(crate) fn widened(&self) -> Self {
        let holds = self.layers.iter().filter(|(_, holds)| *holds);
        Self::any(holds.map(|(when, _)| when.clone()))
    }

    /// Returns a simpler decision that has no layer for the requests of another layer with a query: these requests
    /// decide as those without a query. With `widens` they do so only if the decision then holds for more requests,
    /// and else the decision holds for all requests of both layers.
    pub(crate) fn without_queries(&self, widens: bool) -> Self {
        let mut layers: Vec<Option<&(When, bool)>> = self.layers.iter().map(Some).collect();
        for at in 1..layers.len() {
            let (when, with_query) = &self.layers[at];
            if when.parameters != ["*"] {
                continue;
            }
            let mut outer = when.clone();
            outer.parameters.clear();
            let of_outer = |(when, holds): &(When, bool)| *when == outer && holds != with_query;
            if let Some(known) = self.layers[1..at].iter().rposition(of_outer) {
                match widens && *with_query {
                    true => layers[known + 1] = None,
                    false => layers[at] = None,
                }
            }
        }
        Self {
            layers: layers.into_iter().flatten().cloned().collect(),
        }
        .tidy()
    }

    /// Returns true if the decision surely holds for all requests for which another does.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let holds_for = |narrow: &When| {
            let decided = self
                .layers
                .iter()
                .rposition(|(when, _)| covers(when, narrow));
            decided.is_some_and(|at| {
                let mut later = self.layers[at..].iter();
                later.all(|(when, holds)| *holds || matches!(meet(when, narrow), Meet::Never))
            })
        };
        let mut narrow = other.layers.iter().filter(|(_, holds)| *holds);
        narrow.all(|(when, _)| holds_for(when))
    }

    /// Returns true if the decision holds for no request.
    pub(crate) fn is_never(&self) -> bool {
        self.constant() == Some(&false)
    }
}

/// Returns the condition that holds while one of two does, if they differ in one list of alternatives.
fn joined(a: &When, b: &When) -> Option<When> {
    type Part = fn(&mut When) -> &mut Vec<String>;
    const PARTS: [Part; 7] = [
        |when| &mut when.paths,
        |when| &mut when.regexes,
        |when| &mut when.host_regexes,
        |when| &mut when.methods,
        |when| &mut when.cookies,
        |when| &mut when.parameters,
        |when| &mut when.clients,
    ];
    PARTS.iter().find_map(|part| {
        let (mut both, mut other) = (a.clone(), b.clone());
        let members = std::mem::take(part(&mut other));
        let known = std::mem::take(part(&mut both));
        let is_only_difference = both == other && !members.is_empty() && !known.is_empty();
        is_only_difference.then(|| {
            let mut all = known;
            let further: Vec<String> = members.into_iter().filter(|m| !all.contains(m)).collect();
            all.extend(further);
            *part(&mut both) = all;
            both
        })
    })
}

/// Two conditions together.
enum Meet {
    Both(Box<When>),
    /// No request has both.
    Never,
    /// A rule cannot state both.
    Unstated,
}

/// Returns the condition under which both hold.
fn meet(a: &When, b: &When) -> Meet {
    if covers(a, b) {
        return Meet::Both(Box::new(b.clone()));
    }
    if covers(b, a) {
        return Meet::Both(Box::new(a.clone()));
    }
    let scheme = match (a.scheme, b.scheme) {
        (Some(a), Some(b)) if a != b => return Meet::Never,
        (a, b) => a.or(b),
    };
    let mut both = When {
        scheme,
        ..When::default()
    };
    match common(&a.methods, &b.methods) {
        Some(methods) => both.methods = methods,
        None => return Meet::Never,
    }
    match common_paths(&a.paths, &b.paths) {
        Some(paths) if paths.is_empty() && !(a.paths.is_empty() && b.paths.is_empty()) => {
            return Meet::Never;
        }
        Some(paths) => both.paths = paths,
        None => return Meet::Unstated,
    }
    for (of_a, of_b, target) in [
        (&a.cookies, &b.cookies, &mut both.cookies),
        (&a.parameters, &b.parameters, &mut both.parameters),
    ] {
        match narrower(of_a, of_b, is_wider) {
            Some(list) => *target = list.to_vec(),
            None => return Meet::Unstated,
        }
    }
    for (of_a, of_b, target) in [
        (&a.regexes, &b.regexes, &mut both.regexes),
        (&a.host_regexes, &b.host_regexes, &mut both.host_regexes),
        (&a.clients, &b.clients, &mut both.clients),
    ] {
        match narrower(of_a, of_b, is_superset) {
            Some(list) => *target = list.to_vec(),
            None => return Meet::Unstated,
        }
    }
    both.headers = a.headers.clone();
    for (name, values) in &b.headers {
        let known = match both.headers.get(name) {
            None => values.clone(),
            Some(known) if is_wider(known, values) => values.clone(),
            Some(known) if is_wider(values, known) => known.clone(),
            Some(known) => {
                let is_literal = |value: &String| !value.contains('*');
                if !known.iter().chain(values).all(is_literal) {
                    return Meet::Unstated;
                }
                match common(known, values) {
                    Some(values) => values,
                    None => return Meet::Never,
                }
            }
        };
        both.headers.insert(name.clone(), known);
    }
    Meet::Both(Box::new(both))
}

/// Returns the members of both lists. An empty list stands for all texts. `None` if no text is in both.
fn common(a: &[String], b: &[String]) -> Option<Vec<String>> {
    if a.is_empty() || b.is_empty() {
        return Some([a, b].concat());
    }
    let both: Vec<String> = a.iter().filter(|text| b.contains(text)).cloned().collect();
    (!both.is_empty()).then_some(both)
}

/// Returns the list whose condition holds less often, if one of them is a part of the other.
fn narrower<'l>(
    a: &'l [String],
    b: &'l [String],
    is_wider: fn(&[String], &[String]) -> bool,
) -> Option<&'l [String]> {
    match (is_wider(a, b), is_wider(b, a)) {
        (true, _) => Some(b),
        (_, true) => Some(a),
        _ => None,
    }
}

/// Returns true if a list of expressions, methods or networks has all members of the other. An empty list stands for
/// all texts. Two texts that differ say nothing about each other: `a*` is no prefix of expressions that begin with `a`.
fn is_superset(wide: &[String], narrow: &[String]) -> bool {
    wide.is_empty() || (!narrow.is_empty() && narrow.iter().all(|text| wide.contains(text)))
}

/// Returns true if the condition of a list of globs holds whenever that of the other does.
fn is_wider(wide: &[String], narrow: &[String]) -> bool {
    let covers_glob = |glob: &String| {
        wide.iter()
            .any(|pattern| pattern == "*" || pattern == glob || covers_prefix(pattern, glob))
    };
    wide.is_empty() || (!narrow.is_empty() && narrow.iter().all(covers_glob))
}

/// Returns true if a glob that ends with its only `*` matches all that another matches.
pub(crate) fn covers_prefix(wide: &str, glob: &str) -> bool {
    wide.strip_suffix('*')
        .is_some_and(|prefix| !prefix.contains('*') && glob.starts_with(prefix))
}

/// Returns globs for the paths that are in both lists. `None` if a list of globs cannot state them.
fn common_paths(a: &[String], b: &[String]) -> Option<Vec<String>> {
    if a.is_empty() || b.is_empty() {
        return Some([a, b].concat());
    }
    let mut both = Vec::new();
    for a in a {
        for b in b {
            let start = |glob: &str| glob.split('*').next().unwrap_or_default().to_owned();
            // Neither covers the other.
            let is_apart = |exact: &str, glob: &str| {
                let stem = glob.strip_suffix('*').unwrap_or(glob);
                !exact.contains('*') && !stem.contains('*')
            };
            if a == b || covers_prefix(a, b) {
                both.push(b.clone());
            } else if covers_prefix(b, a) {
                both.push(a.clone());
            } else if is_apart(a, b) || is_apart(b, a) {
            } else {
                let (a, b) = (start(a), start(b));
                if a.starts_with(&b) || b.starts_with(&a) {
                    return None;
                }
            }
        }
    }
    both.dedup();
    Some(both)
}

/// Returns true if `wide` holds whenever `narrow` does, as far as their texts show it.
pub(crate) fn covers(wide: &When, narrow: &When) -> bool {
    let has_scheme = wide.scheme.is_none() || wide.scheme == narrow.scheme;
    let globs = [
        (&wide.paths, &narrow.paths),
        (&wide.cookies, &narrow.cookies),
        (&wide.parameters, &narrow.parameters),
    ];
    let texts = [
        (&wide.regexes, &narrow.regexes),
        (&wide.host_regexes, &narrow.host_regexes),
        (&wide.methods, &narrow.methods),
        (&wide.clients, &narrow.clients),
    ];
    let has_headers = wide.headers.iter().all(|(name, values)| {
        let known = narrow.headers.get(name);
        known.is_some_and(|known| is_wider(values, known))
    });
    has_scheme
        && has_headers
        && globs.iter().all(|(wide, narrow)| is_wider(wide, narrow))
        && texts.iter().all(|(wide, narrow)| is_superset(wide, narrow))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A request of the tests: a path below `/a` or `/b`, a method and a cookie.
    type Request = (&'static str, &'static str, bool);

    const REQUESTS: [Request; 12] = [
        ("/a", "GET", false),
        ("/a", "GET", true),
        ("/a", "PUT", false),
        ("/a", "PUT", true),
        ("/a/x", "GET", false),
        ("/a/x", "GET", true),
        ("/a/x", "PUT", false),
        ("/a/x", "PUT", true),
        ("/b", "GET", false),
        ("/b", "GET", true),
        ("/b", "PUT", false),
        ("/b", "PUT", true),
    ];

    fn holds(when: &When, (path, method, cookie): Request) -> bool {
        let is_path = |glob: &String| match glob.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => path == glob,
        };
        (when.paths.is_empty() || when.paths.iter().any(is_path))
            && (when.methods.is_empty() || when.methods.iter().any(|m| m == method))
            && (when.cookies.is_empty() || cookie)
    }

    fn value<T: Clone + PartialEq>(decision: &Decision<T>, request: Request) -> T {
        let last = decision
            .layers
            .iter()
            .rfind(|(when, _)| holds(when, request));
        last.expect("the first layer always holds").1.clone()
    }

    fn conditions() -> impl Strategy<Value = Decision<bool>> {
        let when = (
            prop::sample::select(vec![
                vec![],
                vec!["/a*"],
                vec!["/a/*"],
                vec!["/b"],
                vec!["/a", "/b"],
            ]),
            prop::sample::select(vec![vec![], vec!["GET"], vec!["PUT"]]),
            any::<bool>(),
        );
        let when = when.prop_map(|(paths, methods, cookie)| {
            let texts = |all: Vec<&str>| all.into_iter().map(str::to_owned).collect();
            When {
                paths: texts(paths),
                methods: texts(methods),
                cookies: texts(if cookie { vec!["c"] } else { vec![] }),
                ..When::default()
            }
        });
        (prop::collection::vec(when, 0..3), any::<bool>()).prop_map(|(all, is_negated)| {
            let decision = Decision::any(all);
            if is_negated { decision.not() } else { decision }
        })
    }

    proptest! {
        /// The operations decide for each request as the operations of `bool` do.
        #[test]
        fn operations_are_those_of_each_request(a in conditions(), b in conditions(), c in conditions()) {
            for request in REQUESTS {
                let [a_holds, b_holds, c_holds] = [&a, &b, &c].map(|decision| value(decision, request));
                prop_assert_eq!(value(&a.not(), request), !a_holds);
                if let Ok(both) = a.and(&b) {
                    prop_assert_eq!(value(&both, request), a_holds && b_holds);
                }
                if let Ok(one) = a.or(&b) {
                    prop_assert_eq!(value(&one, request), a_holds || b_holds);
                }
                if let Ok(selected) = Decision::select(&a, &b, &c) {
                    prop_assert_eq!(value(&selected, request), if a_holds { b_holds } else { c_holds });
                }
            }
        }
    }

    #[test]
    fn conditions_that_no_rule_can_state_together_are_refused() {
        let regex = |text: &str| {
            Decision::when(When {
                regexes: vec![text.to_owned()],
                ..When::default()
            })
        };
        assert!(regex("a").and(&regex("b")).is_err());
        assert!(regex("a").or(&regex("b")).is_ok());
        assert_eq!(regex("a").and(&regex("a")), Ok(regex("a")));
        // A `*` at the end of an expression repeats one character, and is no glob.
        let covers = |wide: &str, narrow: &str| {
            let [wide, narrow] = [wide, narrow].map(|text| regex(text).layers()[1].0.clone());
            covers(&wide, &narrow)
        };
        assert!(!covers("^/im[0-9]*", "^/im[0-9]|^/private[0-9]"));
        assert!(!covers("*", "a"));
        assert!(covers("^/a*", "^/a*"));
        let path = |glob: &str| {
            Decision::when(When {
                paths: vec![glob.to_owned()],
                ..When::default()
            })
        };
        assert_eq!(path("/a*").and(&path("/b*")), Ok(Decision::always(false)));
        assert_eq!(path("/a/*").and(&path("/a")), Ok(Decision::always(false)));
        assert!(path("*.css").and(&path("/b*")).is_err());
    }

    #[test]
    fn a_value_with_too_many_conditions_is_refused() {
        let all = |count: usize| {
            (0..count).try_fold(Decision::always(count), |known, n| {
                let when = Decision::when(When {
                    cookies: vec![n.to_string()],
                    ..When::default()
                });
                Decision::select(&when, &Decision::always(n), &known)
            })
        };
        assert!(all(LAYERS_MAX - 1).is_ok());
        assert!(all(LAYERS_MAX).is_err());
    }
}
