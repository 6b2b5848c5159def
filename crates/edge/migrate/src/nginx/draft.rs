//! The rules of one location, while they are made.

use super::conditions::{Condition, Env, field_name};
use super::parse::Directive;
use crate::hosts::{Cond, Host};
use crate::report::Effect;
use crate::rule::{Rule, Settings, Span, When};
use crate::source::Position;
use crate::values::{Part, parts};

/// The rule of a location, and the rules for some of its requests behind it.
pub(super) struct Draft<'a, 't> {
    pub(super) env: Env<'a, 't>,
    pub(super) comment: String,
    pub(super) when: When,
    pub(super) span: Span,
    pub(super) settings: Settings,
    pub(super) patches: Vec<Patch>,
}

/// A rule that adds settings for some requests of a location.
pub(super) struct Patch {
    when: When,
    pub(super) settings: Settings,
    from: Position,
}

impl<'a, 't> Draft<'a, 't> {
    pub(super) fn new(env: Env<'a, 't>, comment: String, when: When, span: Span) -> Self {
        Self {
            env,
            comment,
            when,
            span,
            settings: Settings::default(),
            patches: Vec::new(),
        }
    }

    /// Returns the directive that applies in the location.
    pub(super) fn one(&self, name: &str) -> Option<&'t Directive> {
        self.env.scope.one(name, &self.env.translator.ledger)
    }

    /// Returns the directives of a list that apply in the location.
    pub(super) fn all(&self, names: &[&str]) -> Vec<&'t Directive> {
        self.env.scope.nearest(names, &self.env.translator.ledger)
    }

    /// Records that settings have the effect of a directive.
    pub(super) fn translated(&self, directive: &Directive, settings: &str) {
        self.env.translator.ledger.translated(directive, settings);
    }

    /// Records that a directive needs no setting.
    pub(super) fn implied(&self, directive: &Directive, text: &str) {
        self.env.translator.ledger.implied(directive, text);
    }

    /// Records a difference.
    pub(super) fn differs(&self, directive: &Directive, effect: Effect, text: &str) {
        self.env.translator.ledger.differs(directive, effect, text);
    }

    /// Records that a directive was left out.
    pub(super) fn left_out(&self, directive: &Directive, effect: Effect, text: &str) {
        self.env.translator.ledger.left_out(directive, effect, text);
    }

    /// Adds a rule for the requests of the location for which `when` holds. Returns false if one rule cannot state both
    /// conditions.
    pub(super) fn patch(&mut self, from: &Directive, when: &When, settings: Settings) -> bool {
        let Some(when) = self.when.and(when) else {
            return false;
        };
        let from = from.at.clone();
        self.patches.push(Patch {
            when,
            settings,
            from,
        });
        true
    }

    /// Adds the rules that state `on` while a condition holds and `off` while it does not. Returns the reason if rules
    /// cannot state it.
    pub(super) fn switch(
        &mut self,
        from: &Directive,
        condition: &Condition,
        on: &Settings,
        off: &Settings,
    ) -> Result<(), String> {
        const CONFLICT: &str =
            "one rule cannot state this condition together with that of the location";
        let (all, settings) = match &condition.cond {
            Cond::Never => return Ok(()),
            Cond::Always => {
                self.settings.0.extend(on.0.clone());
                return Ok(());
            }
            Cond::Any(all) => (all, on),
            Cond::Not(all) => {
                let is_open = |key| {
                    !self
                        .patches
                        .iter()
                        .any(|patch| patch.settings.0.contains_key(key))
                };
                if !on.0.keys().all(is_open) {
                    return Err(
                        "an earlier condition of the location states the same setting".to_owned(),
                    );
                }
                (all, off)
            }
        };
        if all.iter().any(|when| self.when.and(when).is_none()) {
            return Err(CONFLICT.to_owned());
        }
        if matches!(condition.cond, Cond::Not(_)) {
            self.settings.0.extend(on.0.clone());
        }
        for when in all {
            self.patch(from, when, settings.clone());
        }
        Ok(())
    }

    /// Returns the rules.
    pub(super) fn into_rules(self) -> Vec<Rule> {
        let Self {
            comment,
            when,
            span,
            settings,
            patches,
            ..
        } = self;
        let mut rules = vec![Rule {
            comment,
            when,
            span: span.clone(),
            settings,
            is_whole: true,
        }];
        rules.extend(patches.into_iter().map(|patch| Rule {
            comment: format!("from {}", patch.from),
            when: patch.when,
            span: span.clone(),
            settings: patch.settings,
            is_whole: false,
        }));
        rules
    }
}

impl<'t> Env<'_, 't> {
    /// Returns a text with variables as a template of the edge. `groups` is true if the rule has one expression, whose
    /// groups the text may use.
    pub(super) fn template(&self, text: &str, groups: bool) -> Result<String, String> {
        let mut template = String::new();
        for part in parts(text) {
            let name = match part {
                Part::Text(text) => {
                    template.push_str(&text);
                    continue;
                }
                Part::Variable(name) => name,
            };
            match name.as_str() {
                "host" | "http_host" => template.push_str("${host}"),
                "scheme" => template.push_str("${scheme}"),
                "request_uri" => template.push_str("${uri}"),
                "uri" | "document_uri" => template.push_str("${path}"),
                "args" | "query_string" => template.push_str("${query}"),
                "is_args" => template.push('?'),
                "remote_addr" | "realip_remote_addr" => template.push_str("${client}"),
                "server_name" => match self.host {
                    Host::Exact(name) => template.push_str(name),
                    _ => template.push_str("${host}"),
                },
                digit if digit.parse::<u8>().is_ok() => match groups && digit != "0" {
                    true => template.push_str(&format!("${{{digit}}}")),
                    false => return Err(format!("${digit} is not a group of the same rule")),
                },
                _ => match name.strip_prefix("http_") {
                    Some(field) => template.push_str(&format!("${{header.{}}}", field_name(field))),
                    None => template.push_str(&self.constant(&name)?),
                },
            }
        }
        Ok(template)
    }

    /// Returns the value of a variable that `set` gives one value.
    pub(super) fn constant(&self, name: &str) -> Result<String, String> {
        let is_set = |d: &&Directive| d.name == "set" && d.arg(0).strip_prefix('$') == Some(name);
        let levels = || self.scope.levels().iter().flat_map(|level| level.iter());
        let in_if = levels()
            .filter(|d| d.name == "if")
            .flat_map(Directive::children)
            .any(|d| is_set(&d));
        let unknown = || format!("templates have no variable ${name}");
        let set = levels()
            .rfind(is_set)
            .filter(|_| !in_if)
            .ok_or_else(unknown)?;
        if set.arg(1).contains(&format!("${name}")) {
            return Err(unknown());
        }
        self.translator
            .ledger
            .translated(set, "its value is a part of other settings");
        // A constant that names further constants. The depth is bounded, because a cycle is an error of nginx.
        match parts(set.arg(1))
            .iter()
            .any(|part| matches!(part, Part::Variable(_)))
        {
            true => Err(unknown()),
            false => Ok(set.arg(1).to_owned()),
        }
    }
}
