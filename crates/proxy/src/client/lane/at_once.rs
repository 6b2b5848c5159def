//! A plain request answered where it was read: from memory, or from a disk that need not be waited for.

use std::borrow::Cow;
use std::rc::Rc;

use edgeward_semantics::{Authority, Target};
use edgeward_types::KeyHash;

use super::glance::Plain;
use super::outbox::Outbox;
use super::own::Own;
use crate::cache::DiskHit;
use crate::cache::disk::Looked;
use crate::exchange::ClientLink;
use crate::exchange::pieces::Memory;
use crate::path;
use crate::path::body::{EdgeBody, Source};
use crate::path::worker::Worker;

/// What a plain request got at once.
pub(super) enum Answer {
    /// All of its response is in the outbox.
    Whole,
    /// The response's head is, and perhaps more; the rest has to be waited for, or is to go to RAM as well.
    Begun(Box<Own>),
    /// Nothing. Its key's hash and what lies under it, if that was looked up.
    None(Option<(KeyHash, Looked)>),
}

/// Answers a plain request into `outbox` if a fresh response to it is in memory, or on a disk that need not be waited for.
pub(super) fn answer(
    worker: &Rc<Worker>,
    link: &ClientLink,
    plain: &Plain<'_, '_>,
    site: &mut Option<Site>,
    outbox: &mut Outbox,
) -> Answer {
    if worker.logs() {
        // A line of the access log wants fields that were not looked at here.
        return Answer::None(None);
    }
    let site = match site {
        Some(site) if *site.host == *plain.host => site,
        other => {
            let Some(next) = Site::of(link.scheme(), plain.host) else {
                return Answer::None(None);
            };
            other.insert(next)
        }
    };
    let now = worker.now();
    let write_key = |key: &mut Vec<u8>| {
        key.extend_from_slice(&site.key);
        key.extend_from_slice(plain.target.as_bytes());
    };
    let sends_files = !link.tls && !plain.head_only;
    let found = path::plain(
        worker,
        write_key,
        now,
        sends_files,
        |key, response, body| {
            let body = (!plain.head_only).then_some(body);
            outbox.set_closes(plain.closes);
            outbox.push(worker, key, response, body, now);
        },
    );
    match found {
        path::Plain::Answered => Answer::Whole,
        path::Plain::Disk(hit) => answer_from_disk(worker, link, &hit, plain, outbox),
        path::Plain::Elsewhere(hash, looked) => Answer::None(Some((hash, looked))),
    }
}

fn answer_from_disk(
    worker: &Rc<Worker>,
    link: &ClientLink,
    hit: &DiskHit,
    plain: &Plain<'_, '_>,
    outbox: &mut Outbox,
) -> Answer {
    let body = if plain.head_only || hit.length() == 0 {
        hit.pass_by(&worker.cache);
        None
    } else {
        // Before anything is sent: what the disk has lost can still be had from the origin.
        match path::disk_hit_body(worker, hit, !link.tls) {
            Ok(body) => Some(body),
            Err(looked) => return Answer::None(Some((hit.hash(), looked))),
        }
    };
    worker.counters.hit.one();
    worker.counters.disk_hit.one();
    outbox.set_closes(plain.closes);
    outbox.push_disk_head(worker, hit);
    let Some((front, rest)) = body else {
        return Answer::Whole;
    };
    if let Some(front) = front {
        outbox.push_piece(front);
        outbox.set_memory(Memory::Own);
    }
    match rest.left() {
        0 => Answer::Whole,
        left => {
            let source = Source::Disk(Box::new(rest));
            let body = EdgeBody::new(source, Rc::clone(worker), link.conn.begin(), None);
            Answer::Begun(Box::new(Own::rest(body, left, plain.closes)))
        }
    }
}

/// A host as clients name it, and what the keys of its resources begin with.
pub(super) struct Site {
    host: Box<str>,
    key: Box<[u8]>,
    is_canonical: bool,
}

impl Site {
    /// Nothing if it cannot be the name of a host.
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
