//! Lifetimes of responses by status, from runs of `vcl_backend_response` for each status that it distinguishes.

use std::collections::BTreeMap;

use super::requests::{upper_and, upper_or};
use super::state::{Lifetime, Machine, Phase, Response};
use super::tree::{Expr, Node, every};
use crate::decision::Decision;
use crate::grouping::Setting;
use crate::rule::{Key, Value};
use crate::source::Position;
use crate::toml;
use crate::values;

/// Statuses that Varnish stores for its `default_ttl`. 304 is the answer to a validation.
const DEFAULT_STATUSES: [u16; 8] = [200, 203, 204, 300, 301, 404, 410, 414];

/// The default of `default_ttl`.
const DEFAULT_TTL: u64 = 120_000;

/// The default of `default_grace`.
const DEFAULT_GRACE: u64 = 10_000;

/// The most statuses that are listed one by one.
const LISTED_MAX: usize = 20;

/// The registered statuses of responses (IANA, HTTP Status Code Registry).
const REGISTERED: [std::ops::RangeInclusive<u16>; 10] = [
    200..=208,
    226..=226,
    300..=308,
    400..=418,
    421..=426,
    428..=429,
    431..=431,
    451..=451,
    500..=508,
    510..=511,
];

/// Lifetimes in milliseconds by status or class, with their lines. `None`: these responses are not stored.
pub(super) type ByStatus = BTreeMap<String, (Option<u64>, Option<Position>)>;

/// The values of `ttl` and `default_ttl`.
#[derive(Clone, Debug, Default)]
pub(super) struct Lifetimes {
    pub(super) ttl: ByStatus,
    pub(super) default_ttl: ByStatus,
}

impl PartialEq for Lifetimes {
    fn eq(&self, other: &Self) -> bool {
        is_equal(&self.ttl, &other.ttl) && is_equal(&self.default_ttl, &other.default_ttl)
    }
}

/// Returns true if two maps are equal without their lines.
pub(super) fn is_equal(a: &ByStatus, b: &ByStatus) -> bool {
    let values = |map: &ByStatus| -> Vec<(String, Option<u64>)> {
        let entries = map.iter();
        entries
            .map(|(key, (time, _))| (key.clone(), *time))
            .collect()
    };
    values(a) == values(b)
}

/// Statuses for which the subroutines do the same.
struct Interval {
    first: u16,
    last: u16,
}

impl Machine<'_, '_> {
    /// Runs the subroutines of responses, and returns the lifetimes.
    pub(super) fn responses(&mut self) -> Decision<Lifetimes> {
        let before = self.settings.clone();
        let mut of_success = None;
        let mut strips: Vec<Option<usize>> = Vec::new();
        let mut lifetimes = Decision::always(Lifetimes {
            ttl: ByStatus::new(),
            default_ttl: DEFAULT_STATUSES
                .iter()
                .map(|status| (status.to_string(), (Some(DEFAULT_TTL), None)))
                .collect(),
        });
        for class in 2..=5 {
            let intervals = intervals(self.translator.tree, class);
            let length = |interval: &Interval| interval.last - interval.first;
            let largest = intervals.iter().map(length).max();
            // The rest of a class first, because single statuses precede it.
            let (rest, single): (Vec<&Interval>, Vec<&Interval>) = intervals
                .iter()
                .partition(|interval| Some(length(interval)) == largest);
            let mut of_class = Vec::new();
            for interval in rest.into_iter().chain(single) {
                self.settings.clone_from(&before);
                self.status = Some(interval.first);
                let stated = self.lifetime();
                of_class.push((interval, stated, self.response.ttl.clone()));
                if self.response.uncacheable.constant() != Some(&true) {
                    strips.push(self.response.strips_cookies);
                }
                if interval.first == 200 {
                    of_success = Some((self.settings.clone(), self.response.grace.clone()));
                } else {
                    self.lost_settings(&before, of_success.as_ref().map(|(settings, _)| settings));
                }
            }
            // No single status can keep the lifetime of the origin if its class has another.
            let keeps = |stated: &Decision<Option<Stated>>| {
                let mut layers = stated.layers().iter();
                layers.any(|(_, stated)| stated.is_none())
            };
            let mut single = of_class[1..].iter();
            let is_listed = single.any(|(_, stated, _)| stated.as_ref().is_ok_and(keeps));
            for (position, (interval, stated, ttl)) in of_class.into_iter().enumerate() {
                let statuses = interval.first..=interval.last;
                let keys: Vec<String> = match position {
                    0 if !is_listed => vec![format!("{class}xx")],
                    0 => REGISTERED
                        .into_iter()
                        .flatten()
                        .filter(|status| statuses.contains(status))
                        .map(|status| status.to_string())
                        .collect(),
                    _ => statuses
                        .map(|status| status.to_string())
                        .take(LISTED_MAX)
                        .collect(),
                };
                let joined = stated.and_then(|stated| {
                    lifetimes.bind(|known| {
                        stated.bind(|stated| Ok(Decision::always(with(known, &keys, stated))))
                    })
                });
                match joined {
                    Ok(joined) => lifetimes = joined,
                    Err(reason) => self.lost_lifetimes(&ttl, &reason),
                }
            }
        }
        self.status = None;
        self.translator.strips.borrow_mut().extend(strips);
        if let Some((settings, grace)) = of_success {
            self.settings = settings;
            self.state_grace(&grace);
        }
        lifetimes
    }

    /// Runs the subroutines for the status, and returns the lifetime: `None` is that of the origin.
    fn lifetime(&mut self) -> Result<Decision<Option<Stated>>, String> {
        self.response = Response::default();
        self.run("vcl_backend_response", Phase::Response);
        // Varnish's own subroutine runs for the rest, and obeys `private`, `no-store` and `no-cache`.
        let obeys = match self.response.checks_origin {
            true => Decision::always(true),
            false => self.running.may().clone(),
        };
        let ttl = self.response.ttl.clone();
        // Behind `return (deliver)` a response with a lifetime of zero is stored, for its grace.
        let zero = upper_and(&self.response.zero, &obeys);
        let excluded = upper_or(&self.response.uncacheable, &zero);
        if self.status == Some(200) && !self.response.zero.is_never() {
            let value = Value::Toml("true".to_owned());
            let from = self.response.excluded_from.clone();
            let zero = self.response.zero.clone().into();
            self.restrict_from(Key::One("pass"), &zero, Setting { value, from });
        }
        let stated = ttl.bind(|lifetime| {
            let Some(lifetime) = lifetime.clone() else {
                return Ok(Decision::always(None));
            };
            Ok(obeys.map(|obeys| {
                Some(Stated {
                    is_default: *obeys,
                    time: Some(lifetime.milliseconds),
                    from: lifetime.from.clone(),
                })
            }))
        })?;
        let unstored = Decision::always(match (self.status, &self.response.excluded_from) {
            (Some(200), _) | (_, None) => None,
            // A pass is for requests, whatever the status of their responses.
            (_, Some(from)) => Some(Stated {
                time: None,
                from: from.clone(),
                is_default: false,
            }),
        });
        let exact = excluded.bind(|is_excluded| match is_excluded {
            true => Ok(unstored.clone()),
            false => Ok(stated.clone()),
        });
        exact.or_else(|reason| match unstored.constant() {
            Some(Some(_)) => Ok(unstored.clone()),
            _ => Err(reason),
        })
    }

    fn state_grace(&mut self, grace: &Decision<Option<Lifetime>>) {
        for key in [
            "stale_while_revalidate",
            "stale_if_error",
            "stale_if_disconnected",
        ] {
            let stated = grace.map(|grace| {
                let time = grace
                    .as_ref()
                    .map_or(DEFAULT_GRACE, |grace| grace.milliseconds);
                Some(Setting {
                    value: Value::Toml(values::duration(time)),
                    from: grace.as_ref().map(|grace| grace.from.clone()),
                })
            });
            self.settings.insert(Key::One(key), stated);
        }
    }

    /// Records the lines of settings that hold for responses with another status alone.
    fn lost_settings(
        &self,
        before: &BTreeMap<Key, Decision<Option<Setting>>>,
        of_success: Option<&BTreeMap<Key, Decision<Option<Setting>>>>,
    ) {
        let Some(of_success) = of_success else {
            return;
        };
        for (key, decision) in &self.settings {
            if before.get(key) == Some(decision) || of_success.get(key) == Some(decision) {
                continue;
            }
            let lines = |decision: Option<&Decision<Option<Setting>>>| -> Vec<Position> {
                let layers = decision.into_iter().flat_map(|decision| decision.layers());
                layers
                    .filter_map(|(_, setting)| setting.as_ref()?.from.clone())
                    .collect()
            };
            let known = lines(of_success.get(key));
            for line in lines(Some(decision)) {
                if !known.contains(&line) && !matches!(key, Key::One("pass")) {
                    self.lost_line(
                        &line,
                        "rules change fields of all responses, whatever their status",
                    );
                }
            }
        }
    }

    /// Records the lines of lifetimes that no rule can state.
    fn lost_lifetimes(&self, ttl: &Decision<Option<Lifetime>>, reason: &str) {
        for (_, lifetime) in ttl.layers() {
            if let Some(lifetime) = lifetime {
                self.lost_line(&lifetime.from, reason);
            }
        }
    }

    fn lost_line(&self, line: &Position, reason: &str) {
        if !self.translator.spend_walk() {
            return;
        }
        for node in every(self.translator.tree) {
            if node.at == *line {
                self.left_out(node, reason);
            }
        }
    }
}

/// A lifetime that a statement sets.
#[derive(Clone, Debug)]
struct Stated {
    /// In milliseconds. `None`: the response is not stored.
    time: Option<u64>,
    from: Position,
    /// True if the origin's own directives count first.
    is_default: bool,
}

impl PartialEq for Stated {
    fn eq(&self, other: &Self) -> bool {
        (self.time, self.is_default) == (other.time, other.is_default)
    }
}

/// Returns lifetimes with that of some statuses.
fn with(known: &Lifetimes, keys: &[String], stated: &Option<Stated>) -> Lifetimes {
    let mut all = known.clone();
    for key in keys {
        let class = key.strip_suffix("xx");
        let is_of_key = |status: &String| match class {
            Some(class) => status.starts_with(class),
            None => status == key,
        };
        let Some(stated) = stated else {
            // A single status whose class has a lifetime keeps that of the origin, which no setting states.
            all.ttl.remove(key);
            continue;
        };
        all.default_ttl.retain(|status, _| !is_of_key(status));
        all.ttl.retain(|status, _| !is_of_key(status));
        let value = (stated.time, Some(stated.from.clone()));
        let map = match stated.is_default {
            true => &mut all.default_ttl,
            false => &mut all.ttl,
        };
        // The class has the lifetime of a single status already.
        let of_class = map.get(&format!("{}xx", &key[..1]));
        if of_class.is_none_or(|(time, _)| *time != value.0) {
            map.insert(key.clone(), value);
        }
    }
    all
}

/// Returns the statuses of a class, divided where a condition compares them.
fn intervals(tree: &[Node], class: u16) -> Vec<Interval> {
    let mut starts = vec![class * 100];
    for node in every(tree) {
        for expr in node.expressions() {
            expr.each(&mut |part| {
                if let Expr::Compare(left, _, right) = part
                    && matches!(left.as_name(), Some("beresp.status"))
                    && let Expr::Number(status) = **right
                    && (200.0..600.0).contains(&status)
                {
                    starts.extend([status as u16, status as u16 + 1]);
                }
            });
        }
    }
    starts.retain(|start| start / 100 == class);
    starts.sort_unstable();
    starts.dedup();
    let ends = starts.iter().skip(1).map(|start| start - 1);
    let ends = ends.chain([class * 100 + 99]);
    let intervals = starts.iter().zip(ends);
    intervals
        .map(|(first, last)| Interval {
            first: *first,
            last,
        })
        .collect()
}

/// Returns a lifetime in TOML. The edge has them in whole seconds.
pub(super) fn in_toml(milliseconds: Option<u64>) -> String {
    match milliseconds {
        None => toml::text("no-store"),
        Some(0) => toml::text("0s"),
        Some(time) => values::duration(time.div_ceil(1000) * 1000),
    }
}
