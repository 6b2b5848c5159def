//! Rules from decisions: settings with the same condition become one rule, in an order in which each key has its values
//! in theirs.

use std::collections::BTreeMap;

use crate::decision::Decision;
use crate::rule::{Key, Rule, Settings, Span, Value, When, undo};
use crate::source::Position;

/// The value of a key of rules, with the line that it follows from.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) value: Value,
    /// `None` for a default of the other server.
    pub(crate) from: Option<Position>,
}

impl PartialEq for Setting {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

/// Settings with one condition.
pub(crate) struct Step {
    pub(crate) when: When,
    pub(crate) settings: BTreeMap<Key, (Value, Option<Position>)>,
}

/// Returns the values of all keys in their orders.
pub(crate) fn sequences(settings: &BTreeMap<Key, Decision<Option<Setting>>>) -> Vec<Vec<Step>> {
    let stated = settings.iter().filter(|(key, _)| !is_dependent(key));
    stated
        .map(|(key, decision)| sequence(key, decision, settings))
        .collect()
}

/// Returns the lines of denials and redirects with exceptions for names of parameters. The edge compares names in all
/// forms in which origins may read them, so that an exception holds for more requests.
pub(crate) fn lenient_answers(
    settings: &BTreeMap<Key, Decision<Option<Setting>>>,
) -> Vec<Position> {
    let answers = ["deny", "redirect"].map(|key| settings.get(&Key::One(key)));
    answers.into_iter().flatten().flat_map(lenient).collect()
}

fn lenient(answer: &Decision<Option<Setting>>) -> Vec<Position> {
    let has_names = |when: &When| {
        !when.parameters.is_empty() && !when.parameters.iter().any(|name| name == "*")
    };
    let layers = answer.layers();
    let is_lenient = |at: usize| {
        let mut later = layers[at + 1..].iter();
        later.any(|(when, setting)| setting.is_none() && has_names(when))
    };
    let answers = layers.iter().enumerate().filter(|(at, _)| is_lenient(*at));
    let lines = answers.filter_map(|(_, (_, setting))| setting.as_ref()?.from.clone());
    lines.collect()
}

/// Joins settings with the same condition to rules. The first rule has no condition.
pub(crate) fn rules(sequences: Vec<Vec<Step>>) -> Vec<Rule> {
    let mut rules = vec![Step {
        when: When::default(),
        settings: BTreeMap::new(),
    }];
    for sequence in sequences {
        let mut next = 0;
        for step in sequence {
            let found = (next..rules.len()).find(|position| rules[*position].when == step.when);
            match found {
                Some(position) => {
                    rules[position].settings.extend(step.settings);
                    next = position + 1;
                }
                None => {
                    rules.push(step);
                    next = rules.len();
                }
            }
        }
    }
    rules.into_iter().map(rule).collect()
}

/// Keys that mean nothing without another key of the same rule.
fn is_dependent(key: &Key) -> bool {
    matches!(
        key,
        Key::One("redirect_status" | "rate_limit_burst" | "rate_limit_by")
    )
}

/// Returns the values of a key in their order.
fn sequence(
    key: &Key,
    decision: &Decision<Option<Setting>>,
    settings: &BTreeMap<Key, Decision<Option<Setting>>>,
) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut earlier = Settings::default();
    let mut has_page = false;
    for (when, setting) in decision.layers() {
        let mut of_step = BTreeMap::new();
        match setting {
            Some(Setting {
                value: Value::DenyWithPage(status, page),
                from,
            }) => {
                has_page = true;
                let page_key = Key::Status("error_page", status.to_string());
                let settings = [(key.clone(), status.to_string()), (page_key, page.clone())];
                let settings = settings.map(|(key, toml)| (key, (Value::Toml(toml), from.clone())));
                earlier.0.extend(settings.clone());
                of_step.extend(settings);
            }
            Some(Setting { value, from }) => {
                earlier.0.insert(key.clone(), (value.clone(), from.clone()));
                of_step.insert(key.clone(), (value.clone(), from.clone()));
            }
            // Requests without an origin are answered, so their rules may have any.
            None if earlier.0.is_empty() || *key == Key::One("origin") => continue,
            None => {
                let (key, value) = undo(key, &earlier, "\"none\"");
                of_step.insert(key, (value, None));
            }
        }
        // The page of an earlier layer would replace the body of the origin, or that of another denial.
        if has_page && !of_step.keys().any(|key| matches!(key, Key::Status(..))) {
            let off = Value::Toml("false".to_owned());
            of_step.insert(Key::One("error_page"), (off, None));
        }
        if setting.is_some() {
            for dependent in dependents(key) {
                let known = settings.get(&Key::One(dependent));
                let layers = known.into_iter().flat_map(|known| known.layers());
                let mut of_layer = layers.filter(|(of_layer, _)| of_layer == when);
                if let Some((_, Some(Setting { value, from }))) = of_layer.next_back() {
                    of_step.insert(Key::One(dependent), (value.clone(), from.clone()));
                }
            }
        }
        steps.push(Step {
            when: when.clone(),
            settings: of_step,
        });
    }
    steps
}

fn dependents(key: &Key) -> &'static [&'static str] {
    match key {
        Key::One("redirect") => &["redirect_status"],
        Key::One("rate_limit") => &["rate_limit_burst", "rate_limit_by"],
        _ => &[],
    }
}

fn rule(step: Step) -> Rule {
    let mut lines: Vec<&Position> = step
        .settings
        .values()
        .filter_map(|(_, from)| from.as_ref())
        .collect();
    lines.sort();
    let comment = match lines.first() {
        Some(line) => format!("from {line}"),
        None => "a default, or an exception from the rules above".to_owned(),
    };
    Rule {
        comment,
        when: step.when,
        span: Span::Any,
        settings: Settings(step.settings),
        is_whole: false,
    }
}
