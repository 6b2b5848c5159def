//! Answers plain requests that are hits. A plain request is a GET or HEAD without conditions, ranges, directives or
//! credentials. The response is written directly to the outbox.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use edgeward_overload::Work;
use edgeward_semantics::content_coding::AcceptedCodings;
use edgeward_semantics::{
    Authority, RequestDirectives, TRACEPARENT, Target, TraceParent, VaryFields,
};
use edgeward_sites::IdFilters;
use edgeward_sites::SiteId;
use edgeward_store::arena::Arena;
use edgeward_store::disk::NonBlockingRead;
use edgeward_types::{KeyHash, Timestamp};
use http::header::USER_AGENT;
use http::{HeaderMap, Version};

use super::head::PlainHead;
use super::head_parts::HeadParts;
use super::outbox::Outbox;
use super::plain_settings::{PlainFields, settings_of};
use super::response::ResponseWriter;
use crate::cache::disk_body::DiskBody;
use crate::cache::push_class;
use crate::cache::stored::{Stored, StoredBody};
use crate::config::watch::SampledText;
use crate::exchange::pieces::PieceMemory;
use crate::exchange::request_settings::{RequestSettings, SettingsCache};
use crate::exchange::{Client, Request};
use crate::observe::access_log::{LogText, RequestFacts, RequestText};
use crate::observe::observation::Observation;
use crate::observe::outcome::ClientProtocol;
use crate::observe::spans::SampledRequest;
use crate::path::body::{EdgeBody, Source};
use crate::path::lookup::{FoundResponse, Hit, Outcome, Query, decide_absent, lookup};
use crate::path::rules::canonical_and_settled;
use crate::path::worker::Worker;

/// The result of [`try_hit`].
pub(super) enum HitResult {
    /// The whole response is in the outbox. The record ends when the socket has accepted it.
    Complete(Observation),
    /// The outbox has the head and perhaps the first bytes of the body. The writer sends the rest.
    Started(Box<ResponseWriter>),
    /// The request path has to answer. Contains the outcome, or `None` without a lookup or for an invalid head.
    NotServed(Option<Outcome>),
}

/// Looks a plain request up, and writes a hit to `outbox`. `last_host` and `last_codings` have the host and the codings
/// of the connection's last request.
pub(super) fn try_hit(
    worker: &Rc<Worker>,
    client: &Client,
    plain: &PlainHead<'_, '_>,
    last_host: &mut Option<HostPrefix>,
    last_codings: &mut LastCodings,
    outbox: &mut Outbox,
) -> HitResult {
    let started_at = Instant::now();
    if worker.shared.health.sheds(Work::Hit) {
        *last_host = None; // it may be of another scheme
        return HitResult::NotServed(None); // the request path refuses it
    }
    let settings_cache = worker.settings();
    let fields = PlainFields {
        worker,
        client,
        plain,
    };
    let stated = fields.stated_client();
    let is_of_request = |host: &HostPrefix| {
        *host.text == *plain.host
            && host.version == settings_cache.version
            && host.scheme == stated.scheme
    };
    let host = match last_host {
        Some(host) if is_of_request(host) => host,
        other => {
            *other = HostPrefix::parse(&settings_cache, stated.scheme, plain.host);
            match other {
                Some(host) => host,
                None => return HitResult::NotServed(None),
            }
        }
    };
    let Some(site) = host.site else {
        return HitResult::NotServed(None);
    };
    let by_rules;
    let settings = match settings_cache.of_site_without_rules(site) {
        Some(settings) => settings,
        None => {
            by_rules = settings_of(&settings_cache, &fields, stated, site, &host.authority);
            &by_rules
        }
    };
    let query = PlainQuery {
        settings: &settings_cache,
        client,
        plain,
        host_is_canonical: host.is_canonical,
        request: OnceCell::new(),
    };
    let canonicaliser = &worker.shared.canonicaliser;
    if !settings.is_plain || !canonicaliser.refused_forms(plain.target).is_empty() {
        return HitResult::NotServed(None);
    }
    let Ok(class) = settings.class(&fields) else {
        return HitResult::NotServed(None);
    };
    let key = worker.cache.key(|bytes| {
        bytes.extend_from_slice(&host.key_prefix);
        let target = settings.query.apply(plain.target);
        let target = worker.cache.ignored_parameters.strip(&target);
        bytes.extend_from_slice(target.as_bytes());
        push_class(&class, bytes);
    });
    let mut hit = match lookup(worker, key, &query) {
        _ if query.is_rejected() => return HitResult::NotServed(None),
        Outcome::Hit(hit) if !hit.revalidates => hit,
        outcome => return HitResult::NotServed(Some(outcome)),
    };
    let request = HitRequest {
        worker,
        client,
        plain,
        host,
        settings,
        started_at,
    };
    let encodable = match &hit.found {
        FoundResponse::Stored(stored) => stored.response().generation,
        FoundResponse::Disk(hit) => hit.generation,
    };
    if settings.makes_dictionaries
        && host.scheme == "https"
        && let (FoundResponse::Stored(_), Some(generation)) = (&hit.found, encodable)
        && !worker.cache.dictionaries.is_noted(generation, worker.now())
    {
        return HitResult::NotServed(Some(Outcome::Hit(hit))); // the request path makes it a dictionary
    }
    let coding = encodable.and_then(|_| {
        let config = &settings.compression;
        let accepted = last_codings.accepted(plain.accept_encoding?);
        accepted
            .order(&config.codings)
            .first()
            .filter(|_| config.enabled)
    });
    let FoundResponse::Stored(stored) = &hit.found else {
        return match coding {
            Some(_) => HitResult::NotServed(Some(Outcome::Hit(hit))), // the encoding may be on disk, too
            None => request.write_from_disk(&query, hit, outbox),
        };
    };
    if let (Some(coding), Some(generation)) = (coding, encodable) {
        let seed = worker.cache.hash_seed;
        let find = |hash, key: &[u8]| {
            let encoding = worker.cache.encoding_in_memory(hash, key, coding, stored);
            encoding.map(|encoding| (hash, encoding))
        };
        let found = hit.key.with_encoding(generation, coding, seed, find);
        let Some((hash, encoding)) = found else {
            return HitResult::NotServed(Some(Outcome::Hit(hit))); // the request path makes the encoding
        };
        let StoredBody::Memory(body) = &encoding.response().body else {
            return HitResult::NotServed(Some(Outcome::Hit(hit)));
        };
        // An encoding without a body states that the coding saves too little.
        if !body.is_empty() {
            worker.counters.encoded[coding].increment();
            let observation = request.write_from_memory(&hit, hash, &encoding, body, outbox);
            worker.cache.recycle_key(hit.key);
            return HitResult::Complete(observation);
        }
    }
    let StoredBody::Memory(body) = &stored.response().body else {
        return HitResult::NotServed(Some(Outcome::Hit(hit)));
    };
    let observation = request.write_from_memory(&hit, hit.key.hash, stored, body, outbox);
    worker.cache.recycle_key(hit.key);
    HitResult::Complete(observation)
}

/// A plain request that the cache answers.
struct HitRequest<'q, 'a, 'f> {
    worker: &'q Rc<Worker>,
    client: &'q Client,
    plain: &'q PlainHead<'a, 'f>,
    host: &'q HostPrefix,
    settings: &'q RequestSettings,
    started_at: Instant,
}

impl<'q> HitRequest<'q, '_, '_> {
    /// Writes a response that memory has to the outbox. `stored` is the response of the hit or its encoding, and `body`
    /// is its body.
    fn write_from_memory(
        &self,
        hit: &Hit,
        hash: KeyHash,
        stored: &Arc<Stored>,
        body: &Bytes,
        outbox: &mut Outbox,
    ) -> Observation {
        let Self { worker, plain, .. } = *self;
        let mut observation = self.begin();
        hit.count(worker, &mut observation);
        observation.set_hit(stored.response().status, None);
        if let Some(text) = &mut observation.seen_text {
            text.set_response(&stored.response().headers());
        }
        let sent = (!plain.head_only).then_some(body);
        observation.set_body(sent.map_or(0, |body| body.len() as u64), false);
        outbox.set_closes(plain.closes);
        outbox.push(worker, hash, stored.response(), sent);
        // The copy of a body into a socket without TLS is counted. After some copies the cache moves the body to the
        // arena, from where the kernel sends it without a copy.
        let may_move = Arena::BODY_BYTES_MIN..=Arena::BODY_BYTES_MAX;
        if !self.client.tls && !plain.head_only && may_move.contains(&(body.len() as u64)) {
            worker.cache.record_copied_hit(hash, stored);
        }
        observation
    }

    fn write_from_disk(
        &self,
        query: &PlainQuery<'_, '_, '_>,
        hit: Hit,
        outbox: &mut Outbox,
    ) -> HitResult {
        let Self { worker, plain, .. } = *self;
        let FoundResponse::Disk(on_disk) = &hit.found else {
            return HitResult::NotServed(Some(Outcome::Hit(hit)));
        };
        let body = if plain.head_only || on_disk.length() == 0 {
            // The response needs no byte of the body, so the hit does not promote the object to memory.
            let (cache, charge_bytes) = (&worker.cache, on_disk.charge_bytes(hit.key.bytes.len()));
            cache.count_partial_hit(hit.key.hash, on_disk.length(), charge_bytes);
            None
        } else {
            // The first piece is read before the head is written: if the disk has lost it, the origin can still answer.
            let mut body = DiskBody::of_hit(&worker.cache, &hit.key, on_disk, true);
            match body.piece_now(&worker.cache, !self.client.tls) {
                NonBlockingRead::Ready(piece) => Some((Some(piece), body)),
                NonBlockingRead::WouldBlock => Some((None, body)),
                NonBlockingRead::Miss(_) => {
                    worker.counters.disk_unreadable.increment();
                    return HitResult::NotServed(Some(decide_absent(worker, hit.key, query)));
                }
            }
        };
        let mut observation = self.begin();
        hit.count(worker, &mut observation);
        observation.set_hit(on_disk.status, Some("disk"));
        outbox.set_closes(plain.closes);
        outbox.push_disk_head(worker, on_disk);
        worker.cache.recycle_key(hit.key);
        let Some((front, rest)) = body else {
            return HitResult::Complete(observation);
        };
        let mut front_bytes = 0;
        if let Some(front) = front {
            front_bytes = front.len();
            outbox.push_piece(front);
            outbox.set_memory(PieceMemory::Private);
        }
        match rest.remaining_bytes() {
            0 => {
                observation.set_body(front_bytes, false);
                HitResult::Complete(observation)
            }
            left => {
                let source = Source::Disk(Box::new(rest));
                let in_flight = self.client.conn.begin_request();
                let mut body = EdgeBody::new(source, Rc::clone(worker), in_flight, observation);
                body.record_front(front_bytes);
                HitResult::Started(Box::new(ResponseWriter::resume(body, left, plain.closes)))
            }
        }
    }

    /// Begins the record of the request.
    fn begin(&self) -> Observation {
        self.worker.counters.client_requests[ClientProtocol::Http1].increment();
        let counters = &self.settings.counters;
        let mut observation = Observation::begin_at(self.started_at, counters, self.log_text());
        observation.sampled = self.sample();
        if let Some(watch) = &self.worker.watch {
            observation.seen_text = watch.text(|| {
                let site = self.host.site.map(|site| site.0);
                let mut text = SampledText::new(&self.host.authority, self.plain.target, site);
                text.set_request(!self.plain.head_only, |name| self.plain.value(name));
                text
            });
        }
        observation
    }

    /// Returns the text for the access log: that of the [`Request`] which is not built for a hit.
    fn log_text(&self) -> Option<LogText> {
        self.worker.log_text(|queue, now| {
            let filter = &self.worker.shared.canonicaliser.field_filter;
            queue.text(&self.facts(now), |name| {
                if filter.removes_from_plain(name, self.client.is_trusted) {
                    return None;
                }
                self.plain.value(name)
            })
        })
    }

    /// Decides whether the request is sampled.
    fn sample(&self) -> Option<Box<SampledRequest>> {
        let parent = || {
            let mut values = self.plain.values(&TRACEPARENT);
            let value = values.next()?;
            values.next().is_none().then(|| TraceParent::parse(value))?
        };
        let text = || {
            let agent = [self.plain.value(&USER_AGENT)].into_iter();
            RequestText::new(&mut Vec::new(), &self.facts(self.worker.wall()), agent)
        };
        let (sampler, is_trusted) = (self.worker.sampler()?, self.client.is_trusted);
        let mut sampled = sampler.sample(is_trusted, self.started_at, parent, text)?;
        sampled.end_lookup();
        Some(sampled)
    }

    fn facts(&self, now: Timestamp) -> RequestFacts<'q> {
        let plain = self.plain;
        let fields = PlainFields {
            worker: self.worker,
            client: self.client,
            plain,
        };
        RequestFacts {
            time: now,
            peer: fields.stated_client().address,
            is_tls: self.host.scheme == "https",
            key_exchange: self.client.key_exchange,
            method: Some(if plain.head_only { b"HEAD" } else { b"GET" }),
            host: self.host.canonical(),
            target: plain.target.as_bytes(),
            version: Version::HTTP_11,
        }
    }
}

/// The query of a plain request. Its [`Request`] is built only if the responses of the target vary.
struct PlainQuery<'q, 'a, 'f> {
    settings: &'q SettingsCache,
    client: &'q Client,
    plain: &'q PlainHead<'a, 'f>,
    host_is_canonical: bool,
    /// Contains `None` if the crate `http` rejects the head.
    request: OnceCell<Option<Rc<Request>>>,
}

impl PlainQuery<'_, '_, '_> {
    fn is_rejected(&self) -> bool {
        matches!(self.request.get(), Some(None))
    }
}

impl Query for PlainQuery<'_, '_, '_> {
    fn directives(&self) -> RequestDirectives {
        RequestDirectives::default()
    }

    fn path(&self) -> &str {
        let target = self.plain.target;
        target.split_once('?').map_or(target, |(path, _)| path)
    }

    /// The fast path answers no request whose rules state the filters.
    fn id_filters(&self) -> &IdFilters {
        &IdFilters::All
    }

    fn selecting_fields(&self, worker: &Worker, fields: &VaryFields) -> Cow<'_, HeaderMap> {
        let request = self.request.get_or_init(|| {
            let parts = HeadParts::of(self.plain, self.host_is_canonical);
            let head = parts.read(&Bytes::copy_from_slice(self.plain.bytes))?;
            let (canonicaliser, client) = (&worker.shared.canonicaliser, self.client.facts());
            Some(canonical_and_settled(canonicaliser, self.settings, &client, head).0)
        });
        match request {
            Some(request) => request.selecting_fields(worker, fields),
            None => Cow::Owned(HeaderMap::new()),
        }
    }
}

/// The last `Accept-Encoding` of a connection, because consecutive values are usually equal.
#[derive(Default)]
pub(super) struct LastCodings {
    text: Box<[u8]>,
    accepted: AcceptedCodings,
}

impl LastCodings {
    fn accepted(&mut self, text: &[u8]) -> AcceptedCodings {
        if *self.text != *text {
            self.accepted = AcceptedCodings::from_line(text);
            self.text = text.into();
        }
        self.accepted
    }
}

/// A value of `Host`, and the bytes with which the cache keys of its targets begin.
pub(super) struct HostPrefix {
    text: Box<str>,
    /// The scheme of the requests.
    scheme: &'static str,
    key_prefix: Box<[u8]>,
    /// The canonical form of the host.
    authority: Box<str>,
    is_canonical: bool,
    /// The site of the host. `None` if it belongs to no site.
    site: Option<SiteId>,
    /// The version of the configuration that has the site.
    version: u64,
}

impl HostPrefix {
    /// Returns `None` if the text is not a valid host.
    fn parse(settings: &SettingsCache, scheme: &'static str, host: &str) -> Option<Self> {
        let authority = Authority::parse(scheme, host).ok()?;
        let canonical = authority.canonical();
        let mut key = Target::new(scheme, host, "/").ok()?.key();
        // The slash is removed, because each target that is appended begins with one.
        key.pop();
        Some(Self {
            text: host.into(),
            scheme,
            key_prefix: key.into(),
            is_canonical: matches!(canonical, Cow::Borrowed(_)),
            site: settings.site(&canonical),
            version: settings.version,
            authority: canonical.into(),
        })
    }

    /// Returns the canonical form of this host.
    fn canonical(&self) -> &[u8] {
        &self.key_prefix[self.scheme.len() + "://".len()..]
    }

    /// Returns true if `host` is the canonical form of this host.
    pub(super) fn is_canonical(&self, host: &str) -> bool {
        self.is_canonical && *self.text == *host
    }
}
