//! The state of a request or response while its subroutines run, as values that depend on the request.

use std::collections::BTreeMap;

use super::cookies::Cookies;
use super::requests::{Requests, upper_and, upper_or};
use super::translator::Translator;
use super::tree::Node;
use crate::decision::Decision;
use crate::grouping::Setting;
use crate::hosts::{Host, Reason};
use crate::ledger::Ledger;
use crate::rule::{Key, Value, When};
use crate::source::Position;

/// A field of the request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Field {
    /// The value that the client sent.
    Client,
    Absent,
    /// A template of the edge.
    Text(String),
    /// The cookies of the client without some of them.
    Cookies(Cookies),
    /// The value of a cookie of the client.
    Cookie(String),
    /// A value that a statement without a counterpart makes.
    Unknown,
    /// An unknown value, like [`Field::Unknown`]. The origin does not get the field, since the statement may remove it.
    Removed,
}

/// The name of the URL among the fields. No field has such a name.
pub(super) const URL: &str = ":url";

/// A field with its name as it was written, and the first line that changes it.
#[derive(Clone, Debug)]
pub(super) struct ChangedField {
    pub(super) name: String,
    pub(super) value: Decision<Field>,
    pub(super) from: Position,
}

/// A setting that is a list.
#[derive(Clone, Debug)]
pub(super) struct List {
    pub(super) members: Decision<Vec<String>>,
    pub(super) from: Position,
}

/// The subroutines of a part of the way of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// `vcl_recv`
    Request,
    /// `vcl_hash`
    Hash,
    /// `vcl_backend_fetch`, and `vcl_miss` and `vcl_pass`
    Fetch,
    /// `vcl_backend_response`
    Response,
    /// `vcl_deliver`
    Deliver,
    /// `vcl_synth`
    Synth,
}

/// The state of the subroutines for one host.
pub(super) struct Machine<'e, 't> {
    pub(super) translator: &'e Translator<'t>,
    pub(super) host: &'e Host,
    pub(super) phase: Phase,
    /// Requests for which the subroutine has not ended yet.
    pub(super) running: Requests,
    /// Requests for which the called subroutine has not ended yet.
    pub(super) local: Requests,
    /// Requests that the edge answers itself.
    pub(super) answered: Requests,
    /// By variable (`host`, `method`, `jar` or the name of a field in lower case): requests for which its value may
    /// differ from the one that conditions compare.
    pub(super) unsure: BTreeMap<String, Decision<bool>>,
    pub(super) fields: BTreeMap<String, ChangedField>,
    pub(super) settings: BTreeMap<Key, Decision<Option<Setting>>>,
    pub(super) lists: BTreeMap<&'static str, List>,
    /// True if the URLs of all requests have no query any more.
    pub(super) is_without_query: bool,
    /// The patterns of query parameters that a statement has removed.
    pub(super) dropped: Vec<String>,
    /// The cookies of the vmod `cookie`.
    pub(super) jar: Decision<Field>,
    /// The status of the response, while the subroutines of responses run.
    pub(super) status: Option<u16>,
    /// The text of `synth`.
    pub(super) reason: Option<String>,
    pub(super) response: Response,
    pub(super) synthetic: Synthetic,
    /// The number of subroutines around this statement.
    pub(super) depth: usize,
}

/// The lifetimes of responses.
#[derive(Clone, Debug)]
pub(super) struct Response {
    /// The lifetime in milliseconds. `None` is that of the origin.
    pub(super) ttl: Decision<Option<Lifetime>>,
    /// How long a stale response is used. `None` is the default of Varnish.
    pub(super) grace: Decision<Option<Lifetime>>,
    /// Requests whose responses are not stored.
    pub(super) uncacheable: Decision<bool>,
    /// Requests whose last lifetime may be zero.
    pub(super) zero: Decision<bool>,
    /// The last line that excludes responses.
    pub(super) excluded_from: Option<Position>,
    /// True if the configuration itself excludes responses that the origin does not want to be stored.
    pub(super) checks_origin: bool,
    /// True if the configuration excludes responses with `Set-Cookie`.
    pub(super) refuses_cookies: bool,
    /// The statement that removes `Set-Cookie` from all responses that are stored.
    pub(super) strips_cookies: Option<usize>,
}

/// A duration in milliseconds with its line.
#[derive(Clone, Debug)]
pub(super) struct Lifetime {
    pub(super) milliseconds: u64,
    pub(super) from: Position,
}

impl Default for Response {
    fn default() -> Self {
        Self {
            ttl: Decision::always(None),
            grace: Decision::always(None),
            uncacheable: Decision::always(false),
            zero: Decision::always(false),
            excluded_from: None,
            checks_origin: false,
            refuses_cookies: false,
            strips_cookies: None,
        }
    }
}

impl PartialEq for Lifetime {
    fn eq(&self, other: &Self) -> bool {
        self.milliseconds == other.milliseconds
    }
}

/// The answer that `vcl_synth` makes.
#[derive(Clone, Debug, Default)]
pub(super) struct Synthetic {
    pub(super) status: u16,
    pub(super) location: Option<String>,
    /// The body, if it is a text without variables.
    pub(super) body: Option<String>,
    pub(super) content_type: Option<String>,
    /// Other fields, with their lines.
    pub(super) fields: Vec<(String, String, Position)>,
}

impl<'e, 't> Machine<'e, 't> {
    pub(super) fn new(translator: &'e Translator<'t>, host: &'e Host) -> Self {
        Self {
            translator,
            host,
            phase: Phase::Request,
            running: Requests::all(),
            local: Requests::all(),
            answered: Requests::none(),
            unsure: BTreeMap::new(),
            fields: BTreeMap::new(),
            settings: BTreeMap::new(),
            lists: BTreeMap::new(),
            is_without_query: false,
            dropped: Vec::new(),
            jar: Decision::always(Field::Client),
            status: None,
            reason: None,
            response: Response::default(),
            synthetic: Synthetic::default(),
            depth: 0,
        }
    }

    /// Returns a field of the request.
    pub(super) fn field(&self, name: &str) -> Decision<Field> {
        let known = self.fields.get(&name.to_ascii_lowercase());
        known.map_or_else(
            || Decision::always(Field::Client),
            |field| field.value.clone(),
        )
    }

    /// States a field of the request for some requests.
    pub(super) fn set_field(
        &mut self,
        name: &str,
        path: &Requests,
        value: &Decision<Field>,
        from: &Node,
    ) -> Result<(), Reason> {
        let value = Decision::select(path.best(), value, &self.field(name))?;
        let lower = name.to_ascii_lowercase();
        self.make_unsure(&lower, path);
        match self.fields.get_mut(&lower) {
            Some(field) => field.value = value,
            None => {
                let changed = ChangedField {
                    name: name.to_owned(),
                    value,
                    from: from.at.clone(),
                };
                self.fields.insert(lower, changed);
            }
        }
        Ok(())
    }

    /// Records that a statement without a counterpart may change a field.
    pub(super) fn lose_field(&mut self, name: &str, path: &Requests, from: &Node) {
        self.lose_value(name, Field::Unknown, path, from);
    }

    /// Records that a statement without a counterpart may remove a field.
    pub(super) fn lose_removed(&mut self, name: &str, path: &Requests, from: &Node) {
        self.lose_value(name, Field::Removed, path, from);
    }

    fn lose_value(&mut self, name: &str, value: Field, path: &Requests, from: &Node) {
        let lower = name.to_ascii_lowercase();
        let unknown = Decision::always(value);
        let value = Decision::select(path.may(), &unknown, &self.field(name)).unwrap_or(unknown);
        let changed = ChangedField {
            name: name.to_owned(),
            value,
            from: from.at.clone(),
        };
        self.fields.insert(lower, changed);
    }

    /// Records that a statement changes a variable for requests of a path: the value is known for those that surely
    /// reach the statement, and unsure for the others.
    pub(super) fn make_unsure(&mut self, variable: &str, path: &Requests) {
        let not_must = path.must().not();
        let known = self.unsure.remove(variable);
        let known = known.map(|known| upper_and(&known, &not_must));
        let further = match path.is_sure() {
            true => Decision::always(false),
            false => upper_and(path.may(), &not_must),
        };
        let further = match path.is_reported() {
            true => further,
            // Without a query, `best` is exact.
            false => {
                let with_query = Decision::when(When {
                    parameters: vec!["*".to_owned()],
                    ..When::default()
                });
                upper_and(&further, &with_query)
            }
        };
        let unsure = known.map_or_else(|| further.clone(), |known| upper_or(&known, &further));
        if !unsure.is_never() {
            self.unsure.insert(variable.to_owned(), unsure);
        }
    }

    /// Records that the value of a variable is unknown for all requests that may reach a statement.
    pub(super) fn lose_variable(&mut self, variable: &str, path: &Requests) {
        self.make_unsure(variable, &Requests::within(path.may().clone()));
    }

    /// States a key that restricts requests, for all that may reach a statement. Returns false if no rule can state
    /// these, so that the key is stated for further ones.
    pub(super) fn restrict(
        &mut self,
        key: Key,
        path: &Requests,
        value: Value,
        from: &Node,
    ) -> bool {
        let from = Some(from.at.clone());
        self.restrict_from(key, path, Setting { value, from })
    }

    /// States a key that restricts requests with the line that it follows from.
    pub(super) fn restrict_from(&mut self, key: Key, path: &Requests, setting: Setting) -> bool {
        let stated = Decision::always(Some(setting));
        let known = self.settings.get(&key).cloned();
        let known = known.unwrap_or_else(|| Decision::always(None));
        let exact = Decision::select(path.may(), &stated, &known);
        let is_exact = exact.is_ok();
        let all = exact
            .or_else(|_| Decision::select(&path.may().widened(), &stated, &known))
            .unwrap_or(stated);
        self.settings.insert(key, all);
        is_exact
    }

    /// Returns the requests for which a key is stated.
    pub(super) fn stated(&self, key: &'static str) -> Decision<bool> {
        let known = self.settings.get(&Key::One(key));
        known.map_or_else(
            || Decision::always(false),
            |known| known.map(Option::is_some),
        )
    }

    /// States a key for some requests.
    pub(super) fn set(
        &mut self,
        key: Key,
        path: &Decision<bool>,
        value: Value,
        from: &Node,
    ) -> Result<(), Reason> {
        let from = Some(from.at.clone());
        self.state(key, path, Setting { value, from })
    }

    /// States a key with the line that it follows from.
    pub(super) fn state(
        &mut self,
        key: Key,
        path: &Decision<bool>,
        setting: Setting,
    ) -> Result<(), Reason> {
        let value = Decision::always(Some(setting));
        let known = self.settings.get(&key).cloned();
        let known = known.unwrap_or_else(|| Decision::always(None));
        let stated = Decision::select(path, &value, &known)?;
        self.settings.insert(key, stated);
        Ok(())
    }

    /// States the change of a field of the request or response.
    pub(super) fn change(
        &mut self,
        group: &'static str,
        path: &Decision<bool>,
        value: Value,
        from: &Node,
    ) -> Result<(), Reason> {
        let (Value::SetField(name, _)
        | Value::AddField(name, _)
        | Value::RemoveField(name)
        | Value::KeepField(name)) = &value
        else {
            return Ok(());
        };
        let key = Key::Field(group, name.to_ascii_lowercase());
        self.set(key, path, value, from)
    }

    /// Adds a member to a list for some requests.
    pub(super) fn append(
        &mut self,
        key: &'static str,
        path: &Decision<bool>,
        members: &[String],
        from: &Node,
    ) -> Result<(), Reason> {
        let list = self.lists.entry(key).or_insert_with(|| List {
            members: Decision::always(Vec::new()),
            from: from.at.clone(),
        });
        let with = list.members.map(|known| {
            let mut all = known.clone();
            all.extend(members.iter().filter(|m| !known.contains(m)).cloned());
            all
        });
        list.members = Decision::select(path, &with, &list.members)?;
        Ok(())
    }

    /// Returns the condition for requests with one of these cookies.
    pub(super) fn with_cookies(patterns: &[String]) -> Decision<bool> {
        match patterns.is_empty() {
            true => Decision::always(false),
            false => Decision::when(When {
                cookies: patterns.to_vec(),
                ..When::default()
            }),
        }
    }
}

impl std::fmt::Debug for Machine<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("host", &self.host)
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}

/// Returns the ledger of the translation.
pub(super) fn ledger_of<'m>(machine: &'m Machine<'_, '_>) -> &'m Ledger {
    &machine.translator.ledger
}
