//! The settings that sites and rules state, and how those of several rules combine.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use edgeward_types::{ByteSize, Pattern};
use http::StatusCode;
use http::header::{AGE, EXPIRES, HeaderName, PRAGMA, VARY};

use crate::class::Class;
use crate::query::QueryShape;
use crate::rate::{RateKey, RateLimit};
use crate::replace::Replacements;
use crate::stated::Stated;
use crate::status_map::StatusMap;
use crate::template::Template;

/// The settings of a site or a rule. `None` and empty maps state nothing.
///
/// [`merge`](Self::merge) combines the settings of all rules that apply, in their order: the later rule counts, key by
/// key. In maps (`ttl`, `response.set`), each status and each field is a key of its own. A setting such as `deny` can
/// be switched off ([`Stated`]), so that a later rule can undo an earlier one. Maps have [`StatusMap::clear`] and
/// [`FieldChanges::keep`] for this purpose.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The index of the origin in the configuration.
    pub origin: Option<usize>,
    /// Requests bypass the cache.
    pub pass: Option<bool>,
    /// The edge answers with this status.
    pub deny: Stated<StatusCode>,
    /// The edge answers with a redirect.
    pub redirect: Stated<Arc<Redirect>>,
    /// The edge answers with this response.
    pub answer: Stated<Arc<FixedAnswer>>,
    /// The target that the origin gets. The cache key keeps the target of the client.
    pub rewrite: Stated<Arc<Template>>,
    /// Lifetimes that replace what the origin states. `None`: these responses are not stored.
    pub ttl: StatusMap<Option<Duration>>,
    /// Lifetimes of responses whose origin states none. `None`: these responses are not stored.
    pub default_ttl: StatusMap<Option<Duration>>,
    /// `stale-while-revalidate` of responses with a lifetime from `ttl` or `default_ttl`.
    pub stale_while_revalidate: Option<Duration>,
    /// `stale-if-error` of these responses.
    pub stale_if_error: Option<Duration>,
    /// The longest stale use while the origin cannot be reached.
    pub stale_if_disconnected: Option<Duration>,
    /// Sorts the query parameters.
    pub query_sort: Option<bool>,
    /// Query parameters that stay. Off keeps all.
    pub query_keep: Stated<Arc<[Pattern]>>,
    /// Query parameters that are removed.
    pub query_drop: Option<Arc<[Pattern]>>,
    /// Parts of the cache key beside the URL.
    pub key: Option<Arc<[Class]>>,
    /// The fields of the client's request that the origin gets, in lower case. Off keeps all. [`request`]
    /// applies afterwards.
    ///
    /// [`request`]: Self::request
    pub request_only: Stated<Arc<[Pattern]>>,
    /// Changes of the request that the origin gets.
    pub request: FieldChanges,
    /// Changes of the origin's response before it is stored.
    pub origin_response: FieldChanges,
    /// Changes of each response that a client gets.
    pub response: FieldChanges,
    /// The limit of requests of one client.
    pub rate_limit: Stated<Arc<RateLimit>>,
    /// The largest request body. Off allows any size.
    pub request_body_max: Stated<ByteSize>,
    /// Pages in place of error responses.
    pub error_pages: StatusMap<Arc<Page>>,
    /// Compresses responses that the origin sends plain.
    pub compression: Option<bool>,
    /// Responses are dictionaries, by which clients get later ones as deltas (RFC 9842).
    pub dictionary: Stated<DictionaryScope>,
    /// Strings that are replaced in bodies of the origin before they are stored. An empty list undoes earlier rules.
    pub replace: Option<Arc<Replacements>>,
    /// The media types of these bodies, in lower case. By default [`REPLACE_TYPES`].
    pub replace_types: Option<Arc<[Pattern]>>,
    /// The fields of the origin's response in which the strings are replaced, too.
    pub replace_fields: Option<Arc<[HeaderName]>>,
    /// Responses to requests with `Authorization` are stored for all clients.
    pub share_authorized: Option<bool>,
    /// The origin decides about each use of a stored response.
    pub check_authorization: Option<bool>,
    /// True: a response whose media type contradicts the extension of the path is never stored. False: it may be
    /// stored. By default it is not stored if the origin does not state its lifetime.
    pub check_extension: Option<bool>,
    /// False if bodies are not stored in memory. True: the policy of the memory tier decides.
    pub memory: Option<bool>,
    /// The rule by which bodies are written to disk.
    pub disk: Option<DiskPlacement>,
    /// The id filters that may answer 404.
    pub id_filters: Option<IdFilters>,
}

/// The URLs for which a dictionary may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DictionaryScope {
    /// The URLs of other versions, which follow from the URL of the dictionary.
    Versions,
    /// The URLs that this pattern matches.
    Pattern(Arc<str>),
}

/// The rule by which bodies are written to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskPlacement {
    /// The admission of the disk tier decides.
    #[default]
    Normal,
    /// Bodies are not written.
    Never,
    /// Bodies are written at the first request.
    FirstRequest,
}

/// The id filters that may answer requests with 404.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum IdFilters {
    /// All of them.
    #[default]
    All,
    /// None of them.
    Off,
    /// Those with this name.
    Named(Arc<str>),
}

impl IdFilters {
    /// Returns true if these filters include the one with a name.
    pub fn include(&self, name: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Off => false,
            Self::Named(wanted) => name == Some(wanted),
        }
    }
}

/// The media types in whose bodies strings are replaced by default.
pub const REPLACE_TYPES: [&str; 6] = [
    "text/*",
    "application/json",
    "application/javascript",
    "application/xml",
    "*+json",
    "*+xml",
];

/// A redirect.
#[derive(Clone, Debug)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: StatusCode,
    /// The value of `Location`.
    pub location: Template,
}

/// A response of the edge itself, without the cache and the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedAnswer {
    /// 200 to 204.
    pub status: StatusCode,
    /// The body with its type. Empty for 204.
    pub page: Arc<Page>,
}

/// A page that the edge sends in place of a response, or of the body of an error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The value of `Content-Type`.
    pub content_type: Box<str>,
    /// The body. All responses with this page share the allocation.
    pub body: Bytes,
}

/// The largest body of a [`Page`]. A page with inline images has less. The limit bounds the memory and the time of the
/// start if the file is another one than intended.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// Changes of header fields, at most one for each name. A name without a change undoes the changes of earlier rules.
#[derive(Clone, Debug, Default)]
pub struct FieldChanges(Vec<(HeaderName, Option<FieldChange>)>);

/// A change of the lines of one header field.
#[derive(Clone, Debug)]
pub enum FieldChange {
    /// One line with this value replaces all lines.
    Set(Arc<Template>),
    /// A line with this value is added.
    Add(Arc<Template>),
    /// All lines are removed.
    Remove,
}

impl FieldChanges {
    /// Adds a change. It replaces an earlier change of the same field.
    pub fn insert(&mut self, name: HeaderName, change: FieldChange) {
        self.replace(name, Some(change));
    }

    /// Undoes the change of a field by an earlier rule.
    pub fn keep(&mut self, name: HeaderName) {
        self.replace(name, None);
    }

    fn replace(&mut self, name: HeaderName, change: Option<FieldChange>) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = change,
            None => self.0.push((name, change)),
        }
    }

    /// Returns the change of a field.
    pub fn get(&self, name: &HeaderName) -> Option<&FieldChange> {
        let mut changes = self.iter();
        changes.find_map(|(known, change)| (known == name).then_some(change))
    }

    /// Returns true if a field is changed, or if its earlier changes are undone.
    pub fn names(&self, name: &HeaderName) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// Returns all changes. Their order has no effect.
    pub fn iter(&self) -> impl Iterator<Item = (&HeaderName, &FieldChange)> {
        let changes = self.0.iter();
        changes.filter_map(|(name, change)| Some((name, change.as_ref()?)))
    }

    /// Returns true if no field is changed.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Adds the changes of requests that a disputed rule makes. A field that the rule would set is removed: the origin
    /// gets neither the value of the client nor that of the rule.
    fn restrict_request(&mut self, later: &Self) {
        for (name, change) in later.iter() {
            if !matches!(change, FieldChange::Add(_)) {
                self.insert(name.clone(), FieldChange::Remove);
            }
        }
    }

    /// Adds the changes of responses that a disputed rule makes, except those of fields that permit others to store or
    /// read the response.
    fn restrict_response(&mut self, later: &Self) {
        for (name, change) in later.iter() {
            let (text, fields) = (name.as_str(), [EXPIRES, PRAGMA, VARY, AGE]);
            let permits = text.ends_with("-control") || text.starts_with("access-control-");
            if !permits && !fields.contains(name) {
                self.insert(name.clone(), change.clone());
            }
        }
    }

    fn merge(&mut self, later: &Self) {
        for (name, change) in &later.0 {
            self.replace(name.clone(), change.clone());
        }
    }
}

impl Settings {
    /// Adds the settings of a later rule.
    pub fn merge(&mut self, later: &Self) {
        // Without `..`, so that a new setting cannot be forgotten here.
        let Self {
            origin,
            pass,
            deny,
            redirect,
            answer,
            rewrite,
            ttl,
            default_ttl,
            stale_while_revalidate,
            stale_if_error,
            stale_if_disconnected,
            query_sort,
            query_keep,
            query_drop,
            key,
            request_only,
            request,
            origin_response,
            response,
            rate_limit,
            request_body_max,
            error_pages,
            compression,
            dictionary,
            replace: replacements,
            replace_types,
            replace_fields,
            share_authorized,
            check_authorization,
            check_extension,
            memory,
            disk,
            id_filters,
        } = later;
        replace(&mut self.origin, origin);
        replace(&mut self.pass, pass);
        self.deny.merge(deny);
        self.redirect.merge(redirect);
        self.answer.merge(answer);
        self.rewrite.merge(rewrite);
        self.ttl.merge(ttl);
        self.default_ttl.merge(default_ttl);
        replace(&mut self.stale_while_revalidate, stale_while_revalidate);
        replace(&mut self.stale_if_error, stale_if_error);
        replace(&mut self.stale_if_disconnected, stale_if_disconnected);
        replace(&mut self.query_sort, query_sort);
        self.query_keep.merge(query_keep);
        replace(&mut self.query_drop, query_drop);
        replace(&mut self.key, key);
        self.request_only.merge(request_only);
        self.request.merge(request);
        self.origin_response.merge(origin_response);
        self.response.merge(response);
        self.rate_limit.merge(rate_limit);
        self.request_body_max.merge(request_body_max);
        self.error_pages.merge(error_pages);
        replace(&mut self.compression, compression);
        self.dictionary.merge(dictionary);
        replace(&mut self.replace, replacements);
        replace(&mut self.replace_types, replace_types);
        replace(&mut self.replace_fields, replace_fields);
        replace(&mut self.share_authorized, share_authorized);
        replace(&mut self.check_authorization, check_authorization);
        replace(&mut self.check_extension, check_extension);
        replace(&mut self.memory, memory);
        replace(&mut self.disk, disk);
        replace(&mut self.id_filters, id_filters);
    }

    /// Adds what a [disputed](crate::site::RuleSet) rule restricts. Settings that permit, and those that undo an earlier
    /// restriction, do not count. Settings about stored responses do not matter, because the request bypasses the
    /// cache.
    ///
    /// `by_form` is true if the rule holds for the path in the form for matching. This form chooses the origin and the
    /// target at the origin, which are no restrictions.
    pub fn restrict(&mut self, later: &Self, by_form: bool) {
        // Without `..`, so that a new setting cannot be forgotten here.
        let Self {
            origin,
            pass: _, // set for each disputed rule
            deny,
            redirect,
            answer,
            rewrite,
            ttl: _,
            default_ttl: _,
            stale_while_revalidate: _,
            stale_if_error: _,
            stale_if_disconnected: _,
            query_sort: _,
            query_keep: _,
            query_drop: _,
            key: _,
            request_only,
            request,
            origin_response,
            response,
            rate_limit,
            request_body_max,
            error_pages: _,
            compression: _,
            dictionary: _,
            replace: _,
            replace_types: _,
            replace_fields: _,
            share_authorized: _,
            check_authorization: _,
            check_extension: _,
            memory: _,
            disk: _,
            id_filters: _,
        } = later;
        if by_form {
            replace(&mut self.origin, origin);
            self.rewrite.merge(rewrite);
        }
        if deny.is_on() {
            self.deny.merge(deny);
        }
        if redirect.is_on() {
            self.redirect.merge(redirect);
        }
        if answer.is_on() {
            self.answer.merge(answer);
        }
        if request_only.is_on() && !self.request_only.is_on() {
            self.request_only.merge(request_only);
        }
        self.request.restrict_request(request);
        self.origin_response.restrict_response(origin_response);
        self.response.restrict_response(response);
        if let Stated::On(limit) = rate_limit {
            let is_stricter = |own: &Arc<RateLimit>| limit.interval() > own.interval();
            if self.rate_limit.value().is_none_or(is_stricter) {
                self.rate_limit.merge(rate_limit);
            }
        }
        if let Stated::On(max) = request_body_max {
            let own = self.request_body_max.value();
            self.request_body_max = Stated::On(own.map_or(*max, |own| *own.min(max)));
        }
    }

    /// Adds the names of the request fields that keys, limits and templates read, and of those that change.
    pub(crate) fn add_fields_read(&self, names: &mut Vec<HeaderName>) {
        names.extend(self.request.iter().map(|(name, _)| name.clone()));
        let key = self.key.iter().flat_map(|parts| parts.iter());
        names.extend(key.map(Class::field));
        if let Some(RateKey::Header(name)) = self.rate_limit.value().map(|limit| &limit.by) {
            names.push(name.clone());
        }
        let changes = [&self.request, &self.origin_response, &self.response];
        let changes = changes.into_iter().flat_map(FieldChanges::iter);
        let of_changes = changes.filter_map(|(_, change)| match change {
            FieldChange::Set(value) | FieldChange::Add(value) => Some(&**value),
            FieldChange::Remove => None,
        });
        let redirect = self.redirect.value().map(|redirect| &redirect.location);
        let rewrite = self.rewrite.value().map(|rewrite| &**rewrite);
        let replaced = self.replacements().into_iter().flat_map(Replacements::iter);
        let templates = of_changes.chain(redirect).chain(rewrite);
        for template in templates.chain(replaced.map(|replacement| &replacement.to)) {
            names.extend(template.fields());
        }
    }

    /// Returns true if the origin gets other fields than the client has sent.
    pub fn changes_request_fields(&self) -> bool {
        self.request_only.is_on() || !self.request.is_empty()
    }

    /// Returns the strings to replace, if there are any.
    pub fn replacements(&self) -> Option<&Replacements> {
        self.replace.as_deref().filter(|list| !list.is_empty())
    }

    /// Returns true if strings may be replaced in a body with this `Content-Type`. Without the field, only `*` matches.
    pub fn replaces_type(&self, content_type: &[u8]) -> bool {
        let end = content_type.iter().position(|byte| *byte == b';');
        let media_type = content_type[..end.unwrap_or(content_type.len())].trim_ascii();
        let media_type = media_type.to_ascii_lowercase();
        match &self.replace_types {
            Some(types) => types.iter().any(|pattern| pattern.matches(&media_type)),
            None => REPLACE_TYPES
                .iter()
                .any(|pattern| Pattern::new(pattern).matches(&media_type)),
        }
    }

    /// Returns true if strings are replaced in bodies, of whatever types.
    pub fn replaces_bodies(&self) -> bool {
        self.replacements().is_some()
            && self
                .replace_types
                .as_ref()
                .is_none_or(|types| !types.is_empty())
    }

    /// Returns the shape of queries.
    pub fn query_shape(&self) -> QueryShape {
        QueryShape {
            sorts: self.query_sort.unwrap_or(false),
            keeps: self.query_keep.value().map(|keeps| keeps.to_vec()),
            drops: self.query_drop.as_deref().unwrap_or_default().to_vec(),
        }
    }
}

fn replace<T: Clone>(setting: &mut Option<T>, later: &Option<T>) {
    if later.is_some() {
        setting.clone_from(later);
    }
}

#[cfg(test)]
mod tests {
    use http::header::{SERVER, SET_COOKIE};

    use super::*;

    #[test]
    fn a_later_rule_can_undo_the_changes_of_maps() {
        let mut settings = Settings::default();
        let mut first = Settings::default();
        first.response.insert(SET_COOKIE, FieldChange::Remove);
        first.response.insert(SERVER, FieldChange::Remove);
        first.ttl.insert(
            crate::status_map::StatusSet::One(200),
            Some(Duration::from_secs(1)),
        );
        first.default_ttl.insert(
            crate::status_map::StatusSet::One(200),
            Some(Duration::from_secs(1)),
        );
        let mut second = Settings::default();
        second.response.keep(SET_COOKIE);
        second.ttl.clear();
        settings.merge(&first);
        settings.merge(&second);
        assert!(settings.response.get(&SET_COOKIE).is_none());
        assert!(settings.response.get(&SERVER).is_some());
        assert_eq!(settings.response.iter().count(), 1);
        assert!(settings.ttl.is_empty());
        assert!(!settings.default_ttl.is_empty());
        settings.merge(&first);
        assert!(settings.response.get(&SET_COOKIE).is_some());
        assert!(!settings.ttl.is_empty());
    }

    /// Method: a disputed rule states each setting, first one that restricts, then one that permits.
    #[test]
    fn a_disputed_rule_restricts_and_permits_nothing() {
        let limit = |per| RateLimit {
            number: 1,
            requests: 1,
            per: Duration::from_secs(per),
            burst: 1,
            by: RateKey::Client,
        };
        let mut later = Settings {
            deny: Stated::On(StatusCode::FORBIDDEN),
            request_only: Stated::On(Arc::new([])),
            rate_limit: Stated::On(Arc::new(limit(60))),
            request_body_max: Stated::On(ByteSize(10)),
            origin: Some(3),
            ..Settings::default()
        };
        let text = |text| Arc::new(Template::new(text, None).expect("a template"));
        let (secret, added) = (
            HeaderName::from_static("x-secret"),
            HeaderName::from_static("x-added"),
        );
        let set = || FieldChange::Set(text("1"));
        later.request.insert(secret.clone(), set());
        later
            .request
            .insert(added.clone(), FieldChange::Add(text("1")));
        later.request.insert(SERVER, FieldChange::Remove);
        later.response.insert(SERVER, FieldChange::Remove);
        later.response.insert(http::header::CACHE_CONTROL, set());
        later
            .response
            .insert(http::header::ACCESS_CONTROL_ALLOW_ORIGIN, set());
        let mut settings = Settings::default();
        settings.restrict(&later, false);
        assert_eq!(settings.deny, Stated::On(StatusCode::FORBIDDEN));
        assert!(settings.request_only.is_on());
        assert!(settings.rate_limit.is_on());
        assert_eq!(settings.request_body_max, Stated::On(ByteSize(10)));
        assert!(matches!(
            settings.request.get(&secret),
            Some(FieldChange::Remove)
        ));
        assert!(matches!(
            settings.request.get(&SERVER),
            Some(FieldChange::Remove)
        ));
        assert!(settings.request.get(&added).is_none());
        assert_eq!(settings.response.iter().count(), 1);
        assert_eq!(settings.origin, None);
        let mut permits = Settings {
            deny: Stated::Off,
            request_only: Stated::Off,
            rate_limit: Stated::On(Arc::new(limit(1))),
            request_body_max: Stated::On(ByteSize(1000)),
            ..Settings::default()
        };
        permits.response.keep(SERVER);
        permits.ttl.insert(
            crate::status_map::StatusSet::One(200),
            Some(Duration::from_secs(1)),
        );
        settings.restrict(&permits, true);
        assert_eq!(settings.deny, Stated::On(StatusCode::FORBIDDEN));
        assert!(settings.request_only.is_on());
        assert_eq!(
            settings.rate_limit.value().map(|limit| limit.per.as_secs()),
            Some(60)
        );
        assert_eq!(settings.request_body_max, Stated::On(ByteSize(10)));
        assert!(settings.response.get(&SERVER).is_some());
        assert!(settings.ttl.is_empty());
        settings.restrict(&later, true);
        assert_eq!(settings.origin, Some(3));
    }
}
