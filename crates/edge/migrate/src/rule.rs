//! Sites with their rules, before they are written: conditions, settings, and what undoes a setting.
//!
//! nginx applies one `location` to a request. The edge applies every rule whose conditions hold, and the later one
//! counts, key by key. A rule for a location therefore also states the keys that earlier rules for overlapping
//! locations set, with the value that undoes them ([`undo_earlier`]).

use std::collections::BTreeMap;

use crate::source::Position;
use crate::toml::{self, Table};

/// The conditions of a rule. Each part that is not empty must hold; a list holds if one member matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct When {
    pub(crate) paths: Vec<String>,
    pub(crate) regexes: Vec<String>,
    pub(crate) host_regexes: Vec<String>,
    pub(crate) scheme: Option<&'static str>,
    pub(crate) methods: Vec<String>,
    pub(crate) headers: BTreeMap<String, Vec<String>>,
    pub(crate) cookies: Vec<String>,
    pub(crate) parameters: Vec<String>,
    pub(crate) clients: Vec<String>,
}

impl When {
    /// Returns the conditions under which both hold, or `None` if one rule cannot state them.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        fn either(a: &[String], b: &[String]) -> Option<Vec<String>> {
            match (a, b) {
                ([], rest) | (rest, []) => Some(rest.to_vec()),
                _ if a == b => Some(a.to_vec()),
                _ => None,
            }
        }
        let mut headers = self.headers.clone();
        for (name, values) in &other.headers {
            match headers.get(name) {
                Some(known) if known != values => return None,
                _ => _ = headers.insert(name.clone(), values.clone()),
            }
        }
        let scheme = match (self.scheme, other.scheme) {
            (Some(a), Some(b)) if a != b => return None,
            (a, b) => a.or(b),
        };
        let methods = match (&*self.methods, &*other.methods) {
            ([], rest) | (rest, []) => rest.to_vec(),
            (a, b) => {
                let both: Vec<_> = a.iter().filter(|m| b.contains(m)).cloned().collect();
                if both.is_empty() {
                    return None;
                }
                both
            }
        };
        Some(Self {
            paths: narrower(&self.paths, &other.paths)?,
            regexes: either(&self.regexes, &other.regexes)?,
            host_regexes: either(&self.host_regexes, &other.host_regexes)?,
            scheme,
            methods,
            headers,
            cookies: either(&self.cookies, &other.cookies)?,
            parameters: either(&self.parameters, &other.parameters)?,
            clients: either(&self.clients, &other.clients)?,
        })
    }

    fn write(&self, table: &mut Table) {
        let mut set = |key: &str, value: String| table.set(key, value, None);
        let lists = [
            ("path", &self.paths),
            ("path_regex", &self.regexes),
            ("host_regex", &self.host_regexes),
            ("method", &self.methods),
            ("cookie", &self.cookies),
            ("parameter", &self.parameters),
            ("client", &self.clients),
        ];
        for (key, values) in lists {
            if !values.is_empty() {
                set(key, toml::list(values));
            }
        }
        if let Some(scheme) = self.scheme {
            set("scheme", toml::text(scheme));
        }
        for (name, values) in &self.headers {
            set(&format!("header.{}", toml::key(name)), toml::list(values));
        }
    }
}

/// Returns the narrower one of two lists of globs, if one of them is a part of the other.
fn narrower(a: &[String], b: &[String]) -> Option<Vec<String>> {
    let covers = |wide: &str, glob: &str| {
        wide.strip_suffix('*')
            .is_some_and(|prefix| !prefix.contains('*') && glob.starts_with(prefix))
            || wide == glob
    };
    match (a, b) {
        ([], rest) | (rest, []) => Some(rest.to_vec()),
        ([wide], all) if all.iter().all(|glob| covers(wide, glob)) => Some(all.to_vec()),
        (all, [wide]) if all.iter().all(|glob| covers(wide, glob)) => Some(all.to_vec()),
        _ => None,
    }
}

/// A key of a rule that a later rule overrides as a whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// A key with one value.
    One(&'static str),
    /// A status in `ttl`, `default_ttl` or `error_page`.
    Status(&'static str, String),
    /// A field in `request`, `origin_response` or `response`. The name is in lower case.
    Field(&'static str, String),
}

/// The value of a [`Key`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// A value in TOML.
    Toml(String),
    /// A field gets this text: its name as written, and the template.
    SetField(String, String),
    /// A line is added to a field.
    AddField(String, String),
    /// A field is removed.
    RemoveField(String),
    /// The changes of a field by earlier rules are undone.
    KeepField(String),
    /// A denial with a page: the status, and the page in TOML. [`grouping`](crate::grouping) writes it as `deny` and
    /// `error_page`.
    DenyWithPage(u16, String),
}

/// The settings of a rule with the lines that they follow from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings(pub(crate) BTreeMap<Key, (Value, Option<Position>)>);

impl Settings {
    /// States a key.
    pub(crate) fn set(&mut self, key: &'static str, value: impl Into<String>, from: &Position) {
        let value = Value::Toml(value.into());
        self.0.insert(Key::One(key), (value, Some(from.clone())));
    }

    /// States the value of a status.
    pub(crate) fn set_status(
        &mut self,
        map: &'static str,
        status: &str,
        value: String,
        from: &Position,
    ) {
        let value = Value::Toml(value);
        let key = Key::Status(map, status.to_owned());
        self.0.insert(key, (value, Some(from.clone())));
    }

    /// States the change of a field.
    pub(crate) fn change(&mut self, group: &'static str, value: Value, from: &Position) {
        let (Value::SetField(name, _)
        | Value::AddField(name, _)
        | Value::RemoveField(name)
        | Value::KeepField(name)) = &value
        else {
            return;
        };
        let key = Key::Field(group, name.to_ascii_lowercase());
        self.0.insert(key, (value, Some(from.clone())));
    }

    /// Returns the value of a key as TOML.
    pub(crate) fn one(&self, key: &'static str) -> Option<&str> {
        match self.0.get(&Key::One(key)) {
            Some((Value::Toml(value), _)) => Some(value),
            _ => None,
        }
    }

    /// Returns true if a key is stated and not switched off.
    pub(crate) fn is_on(&self, key: &'static str) -> bool {
        self.one(key).is_some_and(|value| value != "false")
    }

    /// Returns true if a status has a page.
    pub(crate) fn has_error_page(&self) -> bool {
        let mut keys = self.0.keys();
        keys.any(|key| matches!(key, Key::Status("error_page", _)))
    }

    fn write(&self, table: &mut Table) {
        type Lists = BTreeMap<String, (Vec<String>, Option<Position>)>;
        let mut maps: Lists = BTreeMap::new();
        let mut lists: Lists = BTreeMap::new();
        let add = |lists: &mut Lists, key: String, member: String, from: &Option<Position>| {
            let list = lists
                .entry(key)
                .or_insert_with(|| (Vec::new(), from.clone()));
            list.0.push(member);
        };
        for (key, (value, from)) in &self.0 {
            match (key, value) {
                (Key::One(key), Value::Toml(value)) => table.set(key, value.clone(), from.as_ref()),
                (Key::Status(map, status), Value::Toml(value)) => {
                    add(
                        &mut maps,
                        (*map).to_owned(),
                        format!("{status} = {value}"),
                        from,
                    );
                }
                (Key::Field(group, _), Value::SetField(name, value)) => {
                    let key = format!("{group}.set.{}", toml::key(name));
                    table.set(&key, toml::text(value), from.as_ref());
                }
                (Key::Field(group, _), Value::AddField(name, value)) => {
                    let key = format!("{group}.add.{}", toml::key(name));
                    table.set(&key, toml::text(value), from.as_ref());
                }
                (Key::Field(group, _), Value::RemoveField(name)) => {
                    add(&mut lists, format!("{group}.remove"), name.clone(), from);
                }
                (Key::Field(group, _), Value::KeepField(name)) => {
                    add(&mut lists, format!("{group}.keep"), name.clone(), from);
                }
                _ => {}
            }
        }
        for (key, (members, from)) in maps {
            table.set(&key, format!("{{ {} }}", members.join(", ")), from.as_ref());
        }
        for (key, (members, from)) in lists {
            table.set(&key, toml::array(&members), from.as_ref());
        }
    }
}

/// The paths to which a rule may apply, for the question which rules overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// Each path.
    Any,
    /// Paths that begin so.
    Prefix(String),
    /// One path.
    Exact(String),
}

impl Span {
    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) | (_, Self::Any) => true,
            (Self::Prefix(a), Self::Prefix(b)) => {
                a.starts_with(b.as_str()) || b.starts_with(a.as_str())
            }
            (Self::Prefix(prefix), Self::Exact(path))
            | (Self::Exact(path), Self::Prefix(prefix)) => path.starts_with(prefix.as_str()),
            (Self::Exact(a), Self::Exact(b)) => a == b,
        }
    }
}

/// A rule of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) comment: String,
    pub(crate) when: When,
    pub(crate) span: Span,
    pub(crate) settings: Settings,
    /// True for the rule of a location, which replaces all that earlier rules state. False for a rule that only adds
    /// to the rules before it.
    pub(crate) is_whole: bool,
}

impl Rule {
    /// Returns the table of the rule. The rule of a whole site has no conditions: its settings go into the site.
    pub(crate) fn table(&self) -> Table {
        let mut table = Table::new("[[site.rule]]");
        table.comment(&self.comment);
        self.when.write(&mut table);
        self.settings.write(&mut table);
        table
    }

    /// Adds the settings to the table of a site.
    pub(crate) fn write_into_site(&self, table: &mut Table) {
        self.settings.write(table);
    }
}

/// Adds to each whole rule what undoes the settings of earlier rules that may apply to the same requests.
///
/// `body_max` is the limit of request bodies of the whole edge.
pub(crate) fn undo_earlier(rules: Vec<Rule>, body_max: &str) -> Vec<Rule> {
    let mut all: Vec<Rule> = Vec::with_capacity(rules.len());
    let mut rest = rules.into_iter().peekable();
    while let Some(mut rule) = rest.next() {
        // No other setting matters to a request that is denied, except the page.
        if rule.is_whole
            && rule.settings.is_on("deny")
            && rest.peek().is_none_or(|next| next.is_whole)
            && !all.iter().any(|earlier| earlier.settings.has_error_page())
        {
            all.push(rule);
            continue;
        }
        if !rule.is_whole {
            // The edge denies before it redirects, and redirects before it answers. nginx does what its first directive
            // says.
            let (redirects, answers) = (
                rule.settings.is_on("redirect"),
                rule.settings.is_on("answer"),
            );
            for (key, counts) in [("deny", redirects || answers), ("redirect", answers)] {
                let is_stated = |earlier: &Rule| earlier.settings.is_on(key);
                if counts && all.iter().any(is_stated) && rule.settings.one(key).is_none() {
                    let off = (Value::Toml("false".to_owned()), None);
                    rule.settings.0.insert(Key::One(key), off);
                }
            }
            all.push(rule);
            continue;
        }
        let mut before = Settings::default();
        let scheme = rule.when.scheme;
        for earlier in all
            .iter()
            .filter(|earlier| earlier.span.overlaps(&rule.span))
        {
            let is_apart =
                earlier.when.scheme.is_some() && scheme.is_some() && earlier.when.scheme != scheme;
            if is_apart {
                continue;
            }
            for key in earlier.settings.0.keys() {
                // These keys mean nothing without another key, which is undone.
                let is_dependent = |key: &Key| {
                    matches!(
                        key,
                        Key::One(
                            "origin" | "redirect_status" | "rate_limit_burst" | "rate_limit_by"
                        )
                    )
                };
                if rule.settings.0.contains_key(key) || is_dependent(key) {
                    continue;
                }
                let (key, undo) = undo(key, &earlier.settings, body_max);
                // A map is undone as a whole, so a rule that states other statuses of it needs a rule before it.
                let states_map = |known: &Key| matches!((known, &key), (Key::Status(a, _), Key::One(b)) if a == b);
                match rule.settings.0.keys().any(states_map) {
                    true => before.0.insert(key, (undo, None)),
                    false => rule.settings.0.insert(key, (undo, None)),
                };
            }
        }
        if !before.0.is_empty() {
            all.push(Rule {
                comment: format!("{}: what it does not take over", rule.comment),
                when: rule.when.clone(),
                span: rule.span.clone(),
                settings: before,
                is_whole: true,
            });
        }
        all.push(rule);
    }
    all
}

/// Returns the key and the value that undo a setting of an earlier rule.
pub(crate) fn undo(key: &Key, earlier: &Settings, body_max: &str) -> (Key, Value) {
    match key {
        Key::One(name) => {
            let value = match *name {
                "key" | "query.drop" => "[]",
                "query.keep" | "request.only" => "\"all\"",
                "stale_while_revalidate" | "stale_if_error" | "stale_if_disconnected" => "\"0s\"",
                "compression" => "true",
                "request_body_max" => body_max,
                _ => "false",
            };
            (key.clone(), Value::Toml(value.to_owned()))
        }
        Key::Status(map, _) => (Key::One(map), Value::Toml("false".to_owned())),
        Key::Field(_, lower) => {
            let name = match earlier.0.get(key) {
                Some((
                    Value::SetField(name, _)
                    | Value::AddField(name, _)
                    | Value::RemoveField(name)
                    | Value::KeepField(name),
                    _,
                )) => name,
                _ => lower,
            };
            (key.clone(), Value::KeepField(name.clone()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at() -> Position {
        Position {
            file: "t".into(),
            line: 1,
        }
    }

    fn rule(prefix: &str, settings: Settings) -> Rule {
        Rule {
            comment: prefix.to_owned(),
            when: When::default(),
            span: Span::Prefix(prefix.to_owned()),
            settings,
            is_whole: true,
        }
    }

    #[test]
    fn a_rule_undoes_what_an_overlapping_rule_before_it_states() {
        let mut first = Settings::default();
        first.set("pass", "true", &at());
        first.set_status("default_ttl", "200", "\"1h\"".to_owned(), &at());
        first.change(
            "response",
            Value::SetField("X-A".to_owned(), "1".to_owned()),
            &at(),
        );
        let mut other = Settings::default();
        other.set_status("default_ttl", "404", "\"1s\"".to_owned(), &at());
        let rules = undo_earlier(
            vec![
                rule("/a/", first),
                rule("/b/", Settings::default()),
                rule("/a/c/", other),
            ],
            "\"1MiB\"",
        );
        assert!(rules[1].settings.0.is_empty(), "the paths do not overlap");
        assert_eq!(rules[2].settings.one("default_ttl"), Some("false"));
        assert_eq!(rules[3].settings.one("pass"), Some("false"));
        let key = Key::Field("response", "x-a".to_owned());
        assert_eq!(
            rules[3].settings.0[&key].0,
            Value::KeepField("X-A".to_owned())
        );
        assert_eq!(rules.len(), 4);
    }

    #[test]
    fn conditions_combine_only_if_one_rule_can_state_them() {
        let of = |paths: &[&str]| When {
            paths: paths.iter().map(|&path| path.to_owned()).collect(),
            ..When::default()
        };
        assert_eq!(of(&["/a/*"]).and(&of(&["/a/b"])), Some(of(&["/a/b"])));
        assert_eq!(of(&["/a/*"]).and(&of(&[])), Some(of(&["/a/*"])));
        assert_eq!(of(&["/a/*"]).and(&of(&["/b"])), None);
        let regex = |text: &str| When {
            regexes: vec![text.to_owned()],
            ..When::default()
        };
        assert_eq!(regex("a").and(&regex("b")), None);
    }
}
