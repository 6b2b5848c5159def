//! Shows the stored responses of a URL, for `edgeward cache get` and the admin server. Nothing is counted or changed.

mod freshness;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use edgeward_purge::{Verdict, visit_head_tags};
use edgeward_semantics::content_coding::Coding;
use edgeward_semantics::{Rules, Validators, VaryFields, format_http_date};
use http::header::{ETAG, HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Uri, Version};
use serde::Deserialize;
use serde_json::{Value, json};

use super::fetch::LOOKED_UP_MAX;
use super::lookup::read_path_rule_next;
use super::other_variants::{answers_request, read_other_variant_next};
use super::rules::{NotServed, canonical_and_settled};
use super::worker::Shared;
use crate::cache::disk::DiskEntry;
use crate::cache::disk::head::{self, DiskHead};
use crate::cache::key_parts::coding_of_key;
use crate::cache::slices::Slices;
use crate::cache::stored::{Selector, Stored, StoredKind, StoredResponse, Variants};
use crate::cache::{CacheKey, Tier, push_class, url_of};
use crate::exchange::canonical::RawHead;
use crate::exchange::request_settings::SettingsCache;
use crate::exchange::{ClientFacts, Request};
use crate::origin::as_origin_sees;
use freshness::freshness;

/// A question about a URL: the request that a client would send.
#[derive(Clone, Debug)]
pub(crate) struct InspectedRequest {
    scheme: &'static str,
    head: (Method, Uri, HeaderMap),
    /// True if all variants on disk are listed too, which reads the heads of all objects.
    all: bool,
}

/// The reason why a body is not a question about a URL.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InspectError {
    #[error("the body is not a question about a URL: {0}")]
    Json(#[from] serde_json::Error),
    #[error("`{0}` is not a URL; write for example http://www.example.com/path")]
    Url(String),
    #[error("`{0}` is not a method")]
    Method(String),
    #[error("`{0}` is not a header field; write for example `Accept-Language: de`")]
    Field(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    url: String,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(default)]
    all: bool,
}

impl InspectedRequest {
    /// Parses a JSON body, for example `{"url": "http://a.example/", "headers": [["Accept-Language", "de"]]}`.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, InspectError> {
        let body: Body = serde_json::from_slice(body)?;
        let invalid = || InspectError::Url(body.url.clone());
        let (scheme, rest) = body.url.split_once("://").ok_or_else(invalid)?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => "http",
            "https" => "https",
            _ => return Err(invalid()),
        };
        let rest = rest.split('#').next().unwrap_or(rest);
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let target = match target {
            "" => "/".to_owned(),
            query if query.starts_with('?') => format!("/{query}"),
            target => target.to_owned(),
        };
        let uri: Uri = target.parse().map_err(|_| invalid())?;
        let mut headers = HeaderMap::new();
        headers.insert(
            HOST,
            HeaderValue::from_str(authority).map_err(|_| invalid())?,
        );
        for (name, value) in &body.headers {
            let field = || InspectError::Field(format!("{name}: {value}"));
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| field())?;
            headers.append(name, HeaderValue::from_str(value).map_err(|_| field())?);
        }
        let method = body.method.as_deref().unwrap_or("GET");
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|_| InspectError::Method(method.to_owned()))?;
        Ok(Self {
            scheme,
            head: (method, uri, headers),
            all: body.all,
        })
    }

    /// Returns the canonical request, as if a client on this machine had sent it.
    pub(super) fn canonical(&self, shared: &Shared) -> (Rc<Request>, Result<(), NotServed>) {
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let client = ClientFacts {
            scheme: self.scheme,
            key_exchange: None,
            peer,
            peer_text: &HeaderValue::from_static("127.0.0.1"),
            is_trusted: shared.config.forwarding.trusted_proxies.contains(peer.ip()),
            is_node: false,
        };
        let (method, uri, headers) = self.head.clone();
        let head = RawHead::new(method, uri, Version::HTTP_11, headers);
        let settings =
            SettingsCache::new(&shared.live, shared.generation, &shared.site_counters, 0);
        canonical_and_settled(&shared.canonicaliser, &settings, &client, head)
    }
}

/// Parses bytes as the body of a question. A parsed question has a target in origin form and a host.
pub fn check_body(bytes: &[u8]) {
    if let Ok(query) = InspectedRequest::parse(bytes) {
        let (_, uri, headers) = &query.head;
        assert!(uri.path().starts_with('/') && headers.contains_key(HOST));
    }
}

/// A stored response or marker, with the tiers that have it.
pub(super) struct FoundEntry {
    pub(super) stored: Arc<Stored>,
    pub(super) in_memory: bool,
    pub(super) on_disk: bool,
}

impl FoundEntry {
    pub(super) fn response(&self) -> Option<&StoredResponse> {
        match &self.stored.kind {
            StoredKind::Response(response) => Some(response),
            StoredKind::Varies(_) => None,
        }
    }

    /// Returns the tier from which a lookup reads the entry.
    pub(super) const fn tier(&self) -> Tier {
        if self.in_memory {
            Tier::Memory
        } else {
            Tier::Disk
        }
    }

    /// Returns the names of the tiers that have the entry.
    fn tiers(&self) -> Vec<&'static str> {
        let tiers = [("memory", self.in_memory), ("disk", self.on_disk)];
        let present = tiers.iter().filter(|(_, has)| *has);
        present.map(|(tier, _)| *tier).collect()
    }

    fn variants(&self) -> Option<&Variants> {
        match &self.stored.kind {
            StoredKind::Varies(variants) => Some(variants),
            StoredKind::Response(_) => None,
        }
    }
}

/// The entries that a lookup of a request finds.
pub(super) struct FoundEntries {
    /// The last key that the lookup reads: the key of the response, if one is stored.
    pub(super) key: CacheKey,
    pub(super) entry: Option<FoundEntry>,
}

impl FoundEntries {
    /// Returns the generation of the marker, and the fields by which the responses vary, if they do.
    fn vary(&self) -> Option<(u64, &VaryFields)> {
        match &self.key.marker.as_ref()?.kind {
            StoredKind::Varies(variants) => match &variants.selector {
                Selector::Fields(fields) => Some((variants.generation, fields)),
                Selector::Query(_) => None,
            },
            StoredKind::Response(_) => None,
        }
    }
}

/// Finds the entries of a request, as [`lookup`](super::lookup::lookup) does. Waits for the disk.
pub(super) fn find(shared: &Shared, request: &Request) -> Option<FoundEntries> {
    let cache = &shared.cache;
    let seed = cache.hash_seed;
    let mut bytes = Vec::new();
    cache.write_target_key(request.target()?, &mut bytes);
    push_class(&request.class, &mut bytes);
    let mut key = CacheKey::primary_of(bytes, seed);
    loop {
        let entry = find_key(shared, &key);
        let marker = entry.as_ref().map(|entry| Arc::clone(&entry.stored));
        let variants = entry.as_ref().and_then(FoundEntry::variants);
        match (marker, variants) {
            (Some(marker), Some(variants)) if key.marker.is_none() => match &variants.selector {
                Selector::Fields(fields) => {
                    let request = as_origin_sees(shared.edge_info(request), request, fields);
                    key.select(&marker, variants, fields, &request, seed);
                }
                Selector::Query(rule) => {
                    key.apply_path_rule(&marker, rule, variants.generation, seed);
                }
            },
            (Some(stored), None) if !answers_request(&key, &stored) => {
                // The key becomes that of the next variant, or of the request's own.
                _ = read_other_variant_next(cache, &mut key);
            }
            (None, _)
                if read_path_rule_next(cache, &mut key)
                    || read_other_variant_next(cache, &mut key) => {}
            _ => {
                let entry = entry.filter(|entry| entry.response().is_some());
                return Some(FoundEntries { key, entry });
            }
        }
    }
}

fn find_key(shared: &Shared, key: &CacheKey) -> Option<FoundEntry> {
    let cache = &shared.cache;
    let in_memory = cache.hot.peek(key.hash);
    let in_memory = in_memory.filter(|stored| stored.has_key(&key.bytes));
    let disk = cache.disk();
    let on_disk = disk.map_or(DiskEntry::Absent, |disk| disk.peek(key.hash, &key.bytes));
    let on_disk = match on_disk {
        DiskEntry::Response(hit) => Some(hit.stored(key)),
        DiskEntry::Marker(entry) | DiskEntry::Sliced(entry) => Some(entry),
        DiskEntry::Absent | DiskEntry::Pending(_) => None,
    };
    let (is_in_memory, is_on_disk) = (in_memory.is_some(), on_disk.is_some());
    Some(FoundEntry {
        // A lookup reads memory first.
        stored: in_memory.or(on_disk)?,
        in_memory: is_in_memory,
        on_disk: is_on_disk,
    })
}

/// Returns the stored responses of a URL as JSON, or the reason why the edge would refuse the request.
pub(crate) fn cache_get(shared: &Shared, query: &InspectedRequest) -> Result<Value, String> {
    let (request, checked) = query.canonical(shared);
    match checked {
        Err(NotServed::Refused(refusal)) => return Err(refusal.text.into_owned()),
        Err(NotServed::Answered(_)) => return Err("a rule of the site answers the request".into()),
        Err(NotServed::FinalRecipient) | Ok(()) => {}
    }
    let found = find(shared, &request).ok_or("the request has no target")?;
    let vary = found.vary();
    let names = vary.map(|(_, fields)| fields.names());
    let names = names.map(|names| names.iter().map(HeaderName::as_str).collect::<Vec<_>>());
    let others =
        vary.map(|(generation, _)| other_variants(shared, &found.key, generation, query.all));
    let stored = found.entry.as_ref();
    let rule = found.key.rule();
    Ok(json!({
        "url": String::from_utf8_lossy(found.key.target()),
        "no_vary_search": rule.map(ToString::to_string),
        "url_under_rule": rule.map(|_| String::from_utf8_lossy(url_of(found.key.primary()))),
        "vary": names,
        "variant": vary.map(|_| variant_text(&found.key.bytes)),
        "stored": stored.map(|entry| {
            describe(shared, &request.settings().caching, found.key.primary(), entry)
        }),
        "other_variants": others,
    }))
}

/// The longest list of other variants. Further variants are not listed.
const LISTED_VARIANTS_MAX: usize = 1000;

/// Returns the other variants that memory has, and those on disk if `all` is true.
fn other_variants(shared: &Shared, key: &CacheKey, generation: u64, all: bool) -> Value {
    let mut prefix = key.primary().to_vec();
    prefix.push(b'\n');
    prefix.extend_from_slice(&generation.to_le_bytes());
    prefix.push(b'\n');
    let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut list = |stored_key: &[u8], status, tier| {
        // The keys of a variant's slices and encodings begin with the key of the variant. Only slices have the status
        // 206.
        let is_variant =
            status != StatusCode::PARTIAL_CONTENT && coding_of_key(stored_key).is_none();
        if stored_key == key.bytes || !is_variant {
            return;
        }
        let variant = variant_text(stored_key);
        if found.len() < LISTED_VARIANTS_MAX || found.contains_key(&variant) {
            found.entry(variant).or_default().push(tier);
        }
    };
    shared.cache.hot.for_each(|stored| {
        if let StoredKind::Response(response) = &stored.kind
            && stored.key().starts_with(&prefix)
        {
            list(stored.key(), response.status, "memory");
        }
    });
    if let Some(disk) = shared.cache.disk().filter(|_| all) {
        disk.cache.for_each_head(|stored_key, bytes| {
            if stored_key.starts_with(&prefix)
                && let Ok(DiskHead::Response { status, .. }) = head::parse(bytes)
            {
                list(stored_key, status, "disk");
            }
        });
    }
    let list = found
        .into_iter()
        .map(|(variant, tiers)| json!({ "variant": variant, "where": tiers }));
    list.collect()
}

/// Returns the request fields of a variant, for example `accept-language:de`.
pub(super) fn variant_text(key: &[u8]) -> String {
    let start = memchr::memchr(b'\n', key).map_or(key.len(), |at| at + 1 + size_of::<u64>() + 1);
    let fields = key.get(start..).unwrap_or_default();
    let fields = String::from_utf8_lossy(fields).trim_end().to_owned();
    fields.replace('\n', ", ")
}

/// Returns a stored response as JSON. `primary` is the primary key.
pub(super) fn describe(
    shared: &Shared,
    rules: &Rules,
    primary: &[u8],
    entry: &FoundEntry,
) -> Value {
    let Some(response) = entry.response() else {
        return Value::Null;
    };
    let clock = &shared.clock;
    let headers = response.headers();
    let validators = Validators::from_headers(&headers);
    let mut tags = Vec::new();
    visit_head_tags(&response.head, |tag| {
        tags.push(String::from_utf8_lossy(tag).into_owned());
    });
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let fields = headers
        .iter()
        .map(|(name, value)| json!([name.as_str(), text(value)]));
    json!({
        "where": entry.tiers(),
        "status": response.status.as_u16(),
        "body_bytes": response.body.len(),
        "memory_bytes": entry.stored.charge_bytes(),
        "slices": describe_slices(shared, &entry.stored),
        "encodings": describe_encodings(shared, entry),
        "validated_at": text(&format_http_date(clock.date_of(response.policy.response_time))),
        "freshness": freshness(rules, response, &headers, clock),
        "validators": {
            "etag": headers.get(ETAG).filter(|_| validators.etag.is_some()).map(text),
            "last_modified": validators.last_modified.as_ref().map(text),
        },
        "tags": tags,
        "purged": match verdict(shared, primary, entry) {
            Verdict::Current => "no",
            Verdict::Soft => "soft",
            Verdict::Hard => "hard",
        },
        "fields": fields.collect::<Vec<_>>(),
    })
}

/// Returns the tiers of the first slices that a range of a sliced response needs, in their order. `None` stands for a
/// slice that is not stored.
pub(super) fn slice_tiers<'a>(
    shared: &'a Shared,
    entry: &'a Stored,
    slices: &'a Slices,
    range: &Range<u64>,
) -> impl Iterator<Item = Option<Tier>> + 'a {
    let cache = &shared.cache;
    let indexes = slices.slicing.indexes_of(range);
    let last = indexes.end.min(indexes.start.saturating_add(LOOKED_UP_MAX));
    (indexes.start..last).map(move |index| {
        let key = CacheKey::of_slice(entry.key(), slices.generation, index, cache.hash_seed);
        cache.tier_of_slice(&key)
    })
}

/// Returns the encoding of a response, if it is stored.
pub(super) fn find_encoding(
    shared: &Shared,
    entry: &FoundEntry,
    coding: Coding,
) -> Option<FoundEntry> {
    let generation = entry.response()?.generation?;
    let seed = shared.cache.hash_seed;
    let key = CacheKey::of_encoding(entry.stored.key(), generation, coding, seed);
    find_key(shared, &key)
}

/// Returns the codings in which a response is stored as JSON, or null if the edge does not encode it.
fn describe_encodings(shared: &Shared, entry: &FoundEntry) -> Value {
    if entry
        .response()
        .is_none_or(|response| response.generation.is_none())
    {
        return Value::Null;
    }
    let describe = |coding| {
        let encoding = find_encoding(shared, entry, coding)?;
        let length = encoding.response()?.body.len();
        Some(json!({
            "coding": Coding::name(coding),
            "where": encoding.tiers(),
            "body_bytes": (length > 0).then_some(length), // null: the coding saves too little
        }))
    };
    Coding::GENERAL.into_iter().filter_map(describe).collect()
}

/// Returns the number of slices of a response, and the tiers that have them, as JSON.
fn describe_slices(shared: &Shared, entry: &Stored) -> Value {
    let Some(slices) = entry.slices() else {
        return Value::Null;
    };
    let all = 0..slices.slicing.complete_length;
    let (mut in_memory, mut on_disk_only, mut looked_up) = (0, 0, 0);
    for tier in slice_tiers(shared, entry, slices, &all) {
        looked_up += 1;
        match tier {
            Some(Tier::Memory) => in_memory += 1,
            Some(Tier::Disk) => on_disk_only += 1,
            None => {}
        }
    }
    json!({
        "slice_bytes": slices.slicing.slice_bytes,
        "count": slices.slicing.indexes_of(&all).end,
        "looked_up": looked_up,
        "in_memory": in_memory,
        "on_disk_only": on_disk_only,
    })
}

/// Returns the verdict of the purges, without a change of the response's stamp.
pub(super) fn verdict(shared: &Shared, primary: &[u8], entry: &FoundEntry) -> Verdict {
    let stamp = entry.stored.stamp();
    let purges = &shared.cache.purges;
    match entry.response() {
        Some(response) if stamp != purges.latest() => {
            purges.verdict(url_of(primary), &response.head, stamp).0
        }
        _ => Verdict::Current,
    }
}
