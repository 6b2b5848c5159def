//! Counts the requests of a log by status, hour, method, host, type, machine and size, and records the
//! texts of the most requested URLs.

use edgeward_types::Timestamp;

use crate::hours::TrafficCounts;
use crate::wire::{DecodeError, Reader, Writer};
use crate::{Entry, Hours, Ranking, Sizes, Texts};

/// The counts of a log. Their memory is bounded for any log.
#[derive(Clone, Debug)]
pub struct Tally {
    /// All requests together.
    pub total: TrafficCounts,
    /// Requests by status.
    pub statuses: Statuses,
    /// Requests by hour.
    pub hours: Hours,
    /// Requests by method.
    pub methods: Ranking,
    /// Requests by requested host.
    pub hosts: Ranking,
    /// Requests by media type, or by the extension of the path if the log has no media type.
    pub types: Ranking,
    /// Requests by the machine that wrote the log.
    pub machines: Ranking,
    /// The distribution of the bytes sent per request.
    pub sizes: Sizes,
    /// The times of the first and the last request.
    pub span: Option<TimeSpan>,
    /// The texts of the most requested URLs.
    pub texts: Texts,
}

/// The times of the first and the last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan {
    /// The time of the earliest request.
    pub from: Timestamp,
    /// The time of the latest request.
    pub to: Timestamp,
}

/// Requests by status. The index is the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statuses(Box<[TrafficCounts; 1000]>);

impl Default for Statuses {
    fn default() -> Self {
        Self(Box::new([TrafficCounts::default(); 1000]))
    }
}

impl Statuses {
    /// Yields the statuses with requests, the smallest first.
    pub fn rows(&self) -> impl Iterator<Item = (u16, &TrafficCounts)> {
        (0..).zip(self.0.iter()).filter(|(_, row)| row.requests > 0)
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            total: TrafficCounts::default(),
            statuses: Statuses::default(),
            hours: Hours::default(),
            methods: Ranking::new(METHODS_MAX),
            hosts: Ranking::new(HOSTS_MAX),
            types: Ranking::new(TYPES_MAX),
            machines: Ranking::new(HOSTS_MAX),
            sizes: Sizes::default(),
            span: None,
            texts: Texts::new(TEXTS_MAX),
        }
    }
}

impl Tally {
    /// Counts a request. `url` is the part of its path and query that `fingerprint` covers. The request counts for
    /// `machine`, the machine that wrote the log, unless the line contains the name of another machine.
    pub fn add(&mut self, entry: &Entry<'_>, fingerprint: u64, url: &[u8], machine: &[u8]) {
        self.total.add(entry);
        if let Some(row) = self.statuses.0.get_mut(usize::from(entry.status)) {
            row.add(entry);
        }
        if let Some(time) = entry.time {
            self.hours.add(time, entry);
            let span = self.span.get_or_insert(TimeSpan {
                from: time,
                to: time,
            });
            span.from = span.from.min(time);
            span.to = span.to.max(time);
        }
        self.methods.add(entry.method, entry);
        if !entry.host.is_empty() {
            self.hosts.add(entry.host, entry);
        }
        self.types.add(type_of(entry), entry);
        let machine = if entry.machine.is_empty() {
            machine
        } else {
            entry.machine
        };
        if !machine.is_empty() {
            self.machines.add(machine, entry);
        }
        if let Some(bytes) = entry.bytes {
            self.sizes.add(bytes);
        }
        self.texts.record(fingerprint, entry.host, url);
    }

    /// Adds another tally.
    pub fn merge(&mut self, other: Self) {
        self.total.merge(&other.total);
        for (mine, theirs) in self.statuses.0.iter_mut().zip(other.statuses.0.iter()) {
            mine.merge(theirs);
        }
        self.hours.merge(other.hours);
        self.methods.merge(other.methods);
        self.hosts.merge(other.hosts);
        self.types.merge(other.types);
        self.machines.merge(other.machines);
        self.sizes.merge(&other.sizes);
        self.span = match (self.span, other.span) {
            (Some(a), Some(b)) => Some(TimeSpan {
                from: a.from.min(b.from),
                to: a.to.max(b.to),
            }),
            (a, b) => a.or(b),
        };
        self.texts.merge(other.texts);
    }
}

impl Tally {
    /// Encodes the tally.
    pub fn write_to(&self, out: &mut Writer) {
        self.total.write_to(out);
        out.number(self.statuses.rows().count() as u64);
        for (status, row) in self.statuses.rows() {
            out.number(u64::from(status));
            row.write_to(out);
        }
        self.hours.write_to(out);
        for ranking in [&self.methods, &self.hosts, &self.types, &self.machines] {
            ranking.write_to(out);
        }
        self.sizes.write_to(out);
        out.byte(u8::from(self.span.is_some()));
        if let Some(span) = &self.span {
            out.number(span.from.as_millis());
            out.number(span.to.as_millis());
        }
        self.texts.write_to(out);
    }

    /// Decodes a tally.
    ///
    /// # Errors
    ///
    /// Fails if [`Self::write_to`] did not write these bytes.
    pub fn read_from(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut tally = Self {
            total: TrafficCounts::read_from(from)?,
            ..Self::default()
        };
        // A row is the status and five counts, each of at least one byte.
        for _ in 0..from.count(6)? {
            let status = usize::try_from(from.number()?).map_err(|_| from.decode_error())?;
            let row = TrafficCounts::read_from(from)?;
            let slot = tally
                .statuses
                .0
                .get_mut(status)
                .ok_or_else(|| from.decode_error())?;
            *slot = row;
        }
        tally.hours = Hours::read_from(from)?;
        tally.methods = Ranking::read_from(from)?;
        tally.hosts = Ranking::read_from(from)?;
        tally.types = Ranking::read_from(from)?;
        tally.machines = Ranking::read_from(from)?;
        tally.sizes = Sizes::read_from(from)?;
        tally.span = match from.byte()? {
            0 => None,
            1 => Some(TimeSpan {
                from: Timestamp::from_millis(from.number()?),
                to: Timestamp::from_millis(from.number()?),
            }),
            _ => return Err(from.decode_error()),
        };
        tally.texts = Texts::read_from(from)?;
        Ok(tally)
    }
}

/// Returns the media type without its parameters. If the line has no media type, returns the extension of the
/// path, such as `.png`, or `/` if the path has no extension.
pub fn type_of<'l>(entry: &Entry<'l>) -> &'l [u8] {
    if !entry.media_type.is_empty() {
        let end = memchr::memchr(b';', entry.media_type).unwrap_or(entry.media_type.len());
        return entry.media_type[..end].trim_ascii();
    }
    let path_end = memchr::memchr2(b'?', b'#', entry.url).unwrap_or(entry.url.len());
    let path = &entry.url[..path_end];
    let name = memchr::memrchr(b'/', path).map_or(path, |at| &path[at + 1..]);
    match memchr::memrchr(b'.', name) {
        // A leading dot marks a hidden file, and a long suffix is not an extension.
        Some(at) if at > 0 && (2..=EXTENSION_BYTES_MAX).contains(&(name.len() - at)) => &name[at..],
        _ => b"/",
    }
}

// The `names_max` of each [`Ranking`]: a table drops names when it has more than twice this number.
const METHODS_MAX: usize = 64;
const TYPES_MAX: usize = 512;

/// The `names_max` of the tables of hosts and of machines. Tens of thousands of names would take megabytes, and a
/// report with all of them would be too long.
const HOSTS_MAX: usize = 4096;

/// The maximum number of texts of URLs. Texts have at most 512 bytes, so they take at most 2 MiB.
const TEXTS_MAX: usize = 4096;

/// The maximum length of an extension with its dot, enough for `.jpeg`, `.woff2` and `.manifest`.
const EXTENSION_BYTES_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(url: &'static str) -> Entry<'static> {
        Entry {
            time: Some(Timestamp::from_secs(7)),
            method: b"GET",
            url: url.as_bytes(),
            status: 200,
            bytes: Some(5),
            ..Entry::default()
        }
    }

    #[test]
    fn the_type_is_the_media_type_or_the_extension() {
        for (url, kind) in [
            ("/a/b.png", ".png"),
            ("/a.b/c", "/"),
            ("/a/b.tar.gz?x=y.png", ".gz"),
            ("/.profile", "/"),
            ("/a.", "/"),
            ("/v1.2/a.somethinglong", "/"),
            ("/", "/"),
        ] {
            assert_eq!(type_of(&entry(url)), kind.as_bytes(), "{url}");
        }
        let html = Entry {
            media_type: b"text/html; charset=utf-8",
            ..entry("/a.png")
        };
        assert_eq!(type_of(&html), b"text/html");
    }

    #[test]
    fn two_merged_tallies_equal_one_tally() {
        let (mut one, mut two, mut whole) = Default::default();
        for n in 0..50u64 {
            let entry = Entry {
                time: Some(Timestamp::from_secs(n * 1000)),
                status: if n % 5 == 0 { 404 } else { 200 },
                host: if n % 3 == 0 { b"a" } else { b"b" },
                ..entry("/x.css")
            };
            let half: &mut Tally = if n % 2 == 0 { &mut one } else { &mut two };
            half.add(&entry, n, entry.url, b"edge-1");
            Tally::add(&mut whole, &entry, n, entry.url, b"edge-1");
        }
        // One half is encoded and decoded before the merge.
        let mut wire = Writer::new();
        two.write_to(&mut wire);
        let mut reader = Reader::new(wire.bytes(), "figures");
        two = Tally::read_from(&mut reader).expect("the bytes were written above");
        reader.end().expect("all bytes were decoded");
        one.merge(two);
        assert_eq!(one.total, whole.total);
        assert_eq!(one.statuses, whole.statuses);
        assert_eq!(one.span, whole.span);
        assert_eq!(one.hosts.top(9), whole.hosts.top(9));
        assert_eq!(one.machines.top(9).0[0].counts.requests, 50);
        let statuses: Vec<_> = one
            .statuses
            .rows()
            .map(|(s, row)| (s, row.requests))
            .collect();
        assert_eq!(statuses, [(200, 40), (404, 10)]);
        assert!(one.hours.rows().eq(whole.hours.rows()));
    }
}
