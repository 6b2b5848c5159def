//! A plain request that a stored response answers: the response goes straight to the outbox.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use edgeward_semantics::{Authority, RequestDirectives, Target};
use edgeward_store::arena::Arena;
use edgeward_store::disk::Now;
use http::HeaderMap;

use super::head::PlainHead;
use super::head_parts::HeadParts;
use super::outbox::Outbox;
use super::response::ResponseWriter;
use crate::cache::CacheKey;
use crate::cache::disk_body::DiskBody;
use crate::cache::stored::{Stored, StoredBody, Variants};
use crate::exchange::canonical::canonical;
use crate::exchange::pieces::PieceMemory;
use crate::exchange::{ClientLink, Request};
use crate::path::body::{EdgeBody, Source};
use crate::path::lookup::{FoundResponse, Hit, Outcome, Query, decide_absent, lookup};
use crate::path::worker::Worker;

/// What became of a plain request.
pub(super) enum Answer {
    /// All of its response is in the outbox.
    Whole,
    /// The head of its response is in the outbox, and the rest has to be waited for, or is to go to memory as well.
    Begun(Box<ResponseWriter>),
    /// It is not answered. The outcome of its lookup, if it was looked up.
    Open(Option<Outcome>),
}

/// Looks a plain request up, and answers it into `outbox` if it is a hit.
pub(super) fn answer(
    worker: &Rc<Worker>,
    link: &ClientLink,
    plain: &PlainHead<'_, '_>,
    site: &mut Option<Site>,
    outbox: &mut Outbox,
) -> Answer {
    if worker.has_log() {
        // A line of the access log needs fields that are not read here.
        return Answer::Open(None);
    }
    let site = match site {
        Some(site) if *site.host == *plain.host => site,
        other => {
            let Some(next) = Site::of(link.scheme(), plain.host) else {
                return Answer::Open(None);
            };
            other.insert(next)
        }
    };
    let key = worker.cache.key(|bytes| {
        bytes.extend_from_slice(&site.key);
        bytes.extend_from_slice(plain.target.as_bytes());
    });
    let query = PlainQuery {
        link,
        plain,
        host_is_canonical: site.is_canonical,
        request: OnceCell::new(),
    };
    let hit = match lookup(worker, key, &query) {
        _ if query.is_unreadable() => return Answer::Open(None),
        Outcome::Hit(hit) => hit,
        outcome => return Answer::Open(Some(outcome)),
    };
    let FoundResponse::Stored(stored) = &hit.found else {
        return from_disk(worker, link, plain, &query, hit, outbox);
    };
    let StoredBody::Memory(body) = &stored.response().body else {
        return Answer::Open(Some(Outcome::Hit(hit)));
    };
    hit.count(worker);
    outbox.set_closes(plain.closes);
    let sent = (!plain.head_only).then_some(body);
    outbox.push(worker, hit.key.hash, stored.response(), sent);
    if !link.tls && !plain.head_only {
        may_move(worker, &hit.key, stored, body.len());
    }
    worker.cache.recycle_key(hit.key);
    Answer::Whole
}

/// A large body was copied into a socket that could have been sent a part of a file.
fn may_move(worker: &Worker, key: &CacheKey, stored: &Arc<Stored>, body_len: usize) {
    let sizes = Arena::BODY_BYTES_MIN..=Arena::BODY_BYTES_MAX;
    if sizes.contains(&(body_len as u64)) {
        worker.cache.move_if_worth_it(key.hash, stored);
    }
}

fn from_disk(
    worker: &Rc<Worker>,
    link: &ClientLink,
    plain: &PlainHead<'_, '_>,
    query: &PlainQuery<'_, '_, '_>,
    hit: Hit,
    outbox: &mut Outbox,
) -> Answer {
    let FoundResponse::Disk(on_disk) = &hit.found else {
        return Answer::Open(Some(Outcome::Hit(hit)));
    };
    let body = if plain.head_only || on_disk.length() == 0 {
        on_disk.count_partial_hit(&worker.cache, &hit.key);
        None
    } else {
        // Before anything is sent: the origin still has what the disk has lost.
        let mut body = DiskBody::of_hit(&worker.cache, &hit.key, on_disk);
        match body.piece_now(&worker.cache, !link.tls) {
            Now::Ready(piece) => Some((Some(piece), body)),
            Now::WouldBlock => Some((None, body)),
            Now::Miss(_) => {
                worker.counters.disk_unreadable.increment();
                return Answer::Open(Some(decide_absent(worker, hit.key, query)));
            }
        }
    };
    hit.count(worker);
    outbox.set_closes(plain.closes);
    outbox.push_disk_head(worker, on_disk);
    worker.cache.recycle_key(hit.key);
    let Some((front, rest)) = body else {
        return Answer::Whole;
    };
    if let Some(front) = front {
        outbox.push_piece(front);
        outbox.set_memory(PieceMemory::Private);
    }
    match rest.left() {
        0 => Answer::Whole,
        left => {
            let source = Source::Disk(Box::new(rest));
            let body = EdgeBody::new(source, Rc::clone(worker), link.conn.begin(), None);
            Answer::Begun(Box::new(ResponseWriter::rest(body, left, plain.closes)))
        }
    }
}

/// A plain request as a lookup reads it. The request itself is built only for a target whose responses vary.
struct PlainQuery<'q, 'a, 'f> {
    link: &'q ClientLink,
    plain: &'q PlainHead<'a, 'f>,
    host_is_canonical: bool,
    /// `None` inside if the head is none that `http` takes.
    request: OnceCell<Option<Rc<Request>>>,
}

impl PlainQuery<'_, '_, '_> {
    fn is_unreadable(&self) -> bool {
        matches!(self.request.get(), Some(None))
    }
}

impl Query for PlainQuery<'_, '_, '_> {
    /// A plain request has no directives.
    fn directives(&self, _: &Worker) -> RequestDirectives {
        RequestDirectives::default()
    }

    fn path(&self) -> &str {
        let target = self.plain.target;
        target.split_once('?').map_or(target, |(path, _)| path)
    }

    fn selecting_fields(&self, worker: &Worker, variants: &Variants) -> Cow<'_, HeaderMap> {
        let request = self.request.get_or_init(|| {
            let parts = HeadParts::of(self.plain, self.host_is_canonical);
            let head = parts.read(&Bytes::copy_from_slice(self.plain.bytes))?;
            Some(canonical(&worker.shared.canonicaliser, self.link, head).0)
        });
        match request {
            Some(request) => request.selecting_fields(worker, variants),
            None => Cow::Owned(HeaderMap::new()),
        }
    }
}

/// A host as clients name it, and the start of the keys of its resources.
pub(super) struct Site {
    host: Box<str>,
    key: Box<[u8]>,
    is_canonical: bool,
}

impl Site {
    /// `None` if the text cannot be the name of a host.
    fn of(scheme: &'static str, host: &str) -> Option<Self> {
        let authority = Authority::parse(scheme, host).ok()?;
        let mut key = Target::new(scheme, host, "/").ok()?.key();
        // A target brings its own slash.
        key.pop();
        Some(Self {
            host: host.into(),
            key: key.into(),
            is_canonical: matches!(authority.canonical(), Cow::Borrowed(_)),
        })
    }

    /// Returns true if this is the host of a request, as its canonical form has it.
    pub(super) fn is_canonical(&self, host: &str) -> bool {
        self.is_canonical && *self.host == *host
    }
}
