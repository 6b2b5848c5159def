//! Answers plain requests that are hits. A plain request is a GET or HEAD without conditions, ranges, directives or
//! credentials. The response is written directly to the outbox.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use edgeward_semantics::content_coding::AcceptedCodings;
use edgeward_semantics::{Authority, RequestDirectives, Target, VaryFields};
use edgeward_store::arena::Arena;
use edgeward_store::disk::NonBlockingRead;
use edgeward_types::KeyHash;
use http::HeaderMap;

use super::head::PlainHead;
use super::head_parts::HeadParts;
use super::outbox::Outbox;
use super::response::ResponseWriter;
use crate::cache::disk_body::DiskBody;
use crate::cache::stored::{Stored, StoredBody};
use crate::exchange::canonical::canonical;
use crate::exchange::pieces::PieceMemory;
use crate::exchange::{Client, Request};
use crate::path::body::{EdgeBody, Source};
use crate::path::encoded::{compression, count};
use crate::path::lookup::{FoundResponse, Hit, Outcome, Query, decide_absent, lookup};
use crate::path::worker::Worker;

/// The result of [`try_hit`].
pub(super) enum HitResult {
    /// The whole response is in the outbox.
    Complete,
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
    if worker.has_log() {
        // The access log needs fields that are not parsed here.
        return HitResult::NotServed(None);
    }
    let host = match last_host {
        Some(host) if *host.text == *plain.host => host,
        other => {
            let Some(new_host) = HostPrefix::parse(client.scheme(), plain.host) else {
                return HitResult::NotServed(None);
            };
            other.insert(new_host)
        }
    };
    let key = worker.cache.key(|bytes| {
        bytes.extend_from_slice(&host.key_prefix);
        let target = worker.cache.ignored_parameters.strip(plain.target);
        bytes.extend_from_slice(target.as_bytes());
    });
    let query = PlainQuery {
        client,
        plain,
        host_is_canonical: host.is_canonical,
        request: OnceCell::new(),
    };
    let mut hit = match lookup(worker, key, &query) {
        _ if query.is_rejected() => return HitResult::NotServed(None),
        Outcome::Hit(hit) if !hit.revalidates => hit,
        outcome => return HitResult::NotServed(Some(outcome)),
    };
    let encodable = match &hit.found {
        FoundResponse::Stored(stored) => stored.response().generation,
        FoundResponse::Disk(hit) => hit.generation,
    };
    let coding = encodable.and_then(|_| {
        let config = compression(worker, &query);
        let accepted = last_codings.accepted(plain.accept_encoding?);
        accepted
            .order(&config.codings)
            .first()
            .filter(|_| config.enabled)
    });
    let FoundResponse::Stored(stored) = &hit.found else {
        return match coding {
            Some(_) => HitResult::NotServed(Some(Outcome::Hit(hit))), // the encoding may be on disk, too
            None => try_disk_hit(worker, client, plain, &query, hit, outbox),
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
            hit.count(worker);
            count(&worker.counters, coding);
            push_hit(worker, client, plain, hash, &encoding, body, outbox);
            worker.cache.recycle_key(hit.key);
            return HitResult::Complete;
        }
    }
    let StoredBody::Memory(body) = &stored.response().body else {
        return HitResult::NotServed(Some(Outcome::Hit(hit)));
    };
    hit.count(worker);
    push_hit(worker, client, plain, hit.key.hash, stored, body, outbox);
    worker.cache.recycle_key(hit.key);
    HitResult::Complete
}

/// Writes a response that memory has to the outbox. `body` is its body.
fn push_hit(
    worker: &Worker,
    client: &Client,
    plain: &PlainHead<'_, '_>,
    hash: KeyHash,
    stored: &Arc<Stored>,
    body: &Bytes,
    outbox: &mut Outbox,
) {
    outbox.set_closes(plain.closes);
    let sent = (!plain.head_only).then_some(body);
    outbox.push(worker, hash, stored.response(), sent);
    if !client.tls && !plain.head_only {
        count_copy(worker, hash, stored, body.len());
    }
}

/// Counts the copy of a body into a socket without TLS. After some copies the cache moves the body to the arena, from
/// where the kernel sends it without a copy.
fn count_copy(worker: &Worker, hash: KeyHash, stored: &Arc<Stored>, body_len: usize) {
    if (Arena::BODY_BYTES_MIN..=Arena::BODY_BYTES_MAX).contains(&(body_len as u64)) {
        worker.cache.record_copied_hit(hash, stored);
    }
}

fn try_disk_hit(
    worker: &Rc<Worker>,
    client: &Client,
    plain: &PlainHead<'_, '_>,
    query: &PlainQuery<'_, '_, '_>,
    hit: Hit,
    outbox: &mut Outbox,
) -> HitResult {
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
        let mut body = DiskBody::of_hit(&worker.cache, &hit.key, on_disk);
        match body.piece_now(&worker.cache, !client.tls) {
            NonBlockingRead::Ready(piece) => Some((Some(piece), body)),
            NonBlockingRead::WouldBlock => Some((None, body)),
            NonBlockingRead::Miss(_) => {
                worker.counters.disk_unreadable.increment();
                return HitResult::NotServed(Some(decide_absent(worker, hit.key, query)));
            }
        }
    };
    hit.count(worker);
    outbox.set_closes(plain.closes);
    outbox.push_disk_head(worker, on_disk);
    worker.cache.recycle_key(hit.key);
    let Some((front, rest)) = body else {
        return HitResult::Complete;
    };
    if let Some(front) = front {
        outbox.push_piece(front);
        outbox.set_memory(PieceMemory::Private);
    }
    match rest.remaining_bytes() {
        0 => HitResult::Complete,
        left => {
            let source = Source::Disk(Box::new(rest));
            let body = EdgeBody::new(source, Rc::clone(worker), client.conn.begin_request(), None);
            HitResult::Started(Box::new(ResponseWriter::resume(body, left, plain.closes)))
        }
    }
}

/// The query of a plain request. Its [`Request`] is built only if the responses of the target vary.
struct PlainQuery<'q, 'a, 'f> {
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
    fn directives(&self, _: &Worker) -> RequestDirectives {
        RequestDirectives::default()
    }

    fn path(&self) -> &str {
        let target = self.plain.target;
        target.split_once('?').map_or(target, |(path, _)| path)
    }

    fn selecting_fields(&self, worker: &Worker, fields: &VaryFields) -> Cow<'_, HeaderMap> {
        let request = self.request.get_or_init(|| {
            let parts = HeadParts::of(self.plain, self.host_is_canonical);
            let head = parts.read(&Bytes::copy_from_slice(self.plain.bytes))?;
            Some(canonical(&worker.shared.canonicaliser, &self.client.facts(), head).0)
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
    key_prefix: Box<[u8]>,
    is_canonical: bool,
}

impl HostPrefix {
    /// Returns `None` if the text is not a valid host.
    fn parse(scheme: &'static str, host: &str) -> Option<Self> {
        let authority = Authority::parse(scheme, host).ok()?;
        let mut key = Target::new(scheme, host, "/").ok()?.key();
        // The slash is removed, because each target that is appended begins with one.
        key.pop();
        Some(Self {
            text: host.into(),
            key_prefix: key.into(),
            is_canonical: matches!(authority.canonical(), Cow::Borrowed(_)),
        })
    }

    /// Returns true if `host` is the canonical form of this host.
    pub(super) fn is_canonical(&self, host: &str) -> bool {
        self.is_canonical && *self.text == *host
    }
}
