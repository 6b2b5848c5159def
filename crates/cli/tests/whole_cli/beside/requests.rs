//! Requests from the words of a configuration: its hosts, paths, parameters, fields, cookies and methods.

use std::collections::BTreeSet;

use super::expression::samples;

/// A request of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Request {
    /// The number of the listener in the order of the configuration.
    pub(super) listener: usize,
    pub(super) method: String,
    pub(super) host: String,
    pub(super) target: String,
    /// One field, if any.
    pub(super) field: Option<(String, String)>,
}

impl Request {
    /// Returns the path without the query.
    pub(super) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Returns true for a method that a cache may answer.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.method.as_str(), "GET" | "HEAD")
    }
}

/// The words of a configuration that requests are made of.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// How many listeners the configuration has. The last one gets most requests.
    pub(super) listeners: usize,
    hosts: Vec<String>,
    paths: Vec<String>,
    /// Queries without the question mark.
    queries: Vec<String>,
    fields: Vec<(String, String)>,
    methods: Vec<String>,
    /// A field of most requests, if the configuration answers others itself.
    pub(super) usual_field: Option<(String, String)>,
}

/// Fields that frame a message or ask for a part of a response: the edge writes them itself.
const NOT_SENT: [&str; 12] = [
    "accept-encoding",
    "connection",
    "content-length",
    "host",
    "if-modified-since",
    "if-none-match",
    "proxy",
    "range",
    "te",
    "transfer-encoding",
    "upgrade",
    "x-forwarded-for",
];

impl Words {
    /// Adds a host. `*.DOMAIN` and `.DOMAIN` have hosts below them, and expressions the hosts that match.
    pub(super) fn host(&mut self, name: &str) {
        let names = match (name.strip_prefix('~'), name.strip_prefix('.')) {
            (Some(pattern), _) => samples(pattern),
            (_, Some(domain)) => vec![domain.to_owned(), format!("www.{domain}")],
            _ => vec![name.replace("*.", "a.").replace(".*", ".example")],
        };
        let is_host = |name: &String| !name.is_empty() && name != "_" && !name.contains(' ');
        names
            .into_iter()
            .filter(is_host)
            .for_each(|name| add(&mut self.hosts, name));
    }

    /// Adds a path.
    pub(super) fn path(&mut self, path: &str) {
        add(&mut self.paths, path.to_owned());
    }

    /// Adds the URLs that an expression matches.
    pub(super) fn url_expression(&mut self, pattern: &str) {
        for sample in samples(pattern) {
            if sample.contains([' ', '#']) || sample.contains("://") {
                continue;
            }
            let (path, query) = match sample.split_once(['?', '&']) {
                Some((path, "")) if path.contains('=') => ("", path),
                Some(parts) => parts,
                None if sample.contains('=') => ("", sample.as_str()),
                None => (sample.as_str(), ""),
            };
            match path.chars().next() {
                // `/.` alone is a segment that means the same as none.
                Some('/') if path.ends_with("/.") => self.path(&format!("{path}x")),
                Some('/') => self.path(path),
                Some('.') => self.path(&format!("/a{path}")),
                Some(_) => self.path(&format!("/{path}")),
                None => {}
            }
            let query = match query.split_once('=') {
                Some((name, "")) => format!("{name}=1"),
                _ => query.to_owned(),
            };
            // The parameter alone, and between others.
            if !query.trim_matches('&').is_empty() {
                add(&mut self.queries, query.clone());
                add(&mut self.queries, format!("a=1&{query}&z=1"));
            }
        }
    }

    /// Adds a parameter.
    pub(super) fn parameter(&mut self, name: &str) {
        add(&mut self.queries, format!("{name}=1"));
    }

    /// Adds a cookie.
    pub(super) fn cookie(&mut self, name: &str) {
        for value in ["1", "de"] {
            self.field("Cookie", &format!("{name}={value}"));
        }
        self.field("Cookie", &format!("first=1; {name}=1"));
    }

    /// Adds cookies that an expression matches.
    pub(super) fn cookie_expression(&mut self, pattern: &str) {
        for sample in samples(pattern) {
            let sample = sample.trim_matches([';', ' ']);
            match sample.contains('=') {
                true if sample.ends_with('=') => self.field("Cookie", &format!("{sample}1")),
                true => self.field("Cookie", sample),
                false => self.field("Cookie", &format!("{sample}=1")),
            }
        }
    }

    /// Adds a field of requests.
    pub(super) fn field(&mut self, name: &str, value: &str) {
        let is_sent = !NOT_SENT.contains(&name.to_ascii_lowercase().as_str());
        if is_sent && !value.trim().is_empty() && !value.starts_with('=') {
            add(&mut self.fields, (name.to_owned(), value.to_owned()));
        }
    }

    /// Adds values of a field that an expression matches.
    pub(super) fn field_expression(&mut self, name: &str, pattern: &str) {
        match name.eq_ignore_ascii_case("cookie") {
            true => self.cookie_expression(pattern),
            false => samples(pattern)
                .iter()
                .for_each(|value| self.field(name, value)),
        }
    }

    /// Adds a method.
    pub(super) fn method(&mut self, name: &str) {
        add(&mut self.methods, name.to_owned());
    }

    /// Returns [`DISTINCT`] requests that differ, the same ones in each run.
    pub(super) fn requests(&self) -> Vec<Request> {
        let mut random = Random(1);
        let own_hosts = &self.hosts;
        let hosts = [&own_hosts[..], &["unknown.example".to_owned()]].concat();
        let own = self.paths.iter().cloned();
        let mut first: Vec<String> = own.chain(PATHS.map(str::to_owned)).collect();
        let mut further: Vec<String> = Vec::new();
        for base in self.paths.iter().map(String::as_str).chain([""]) {
            for ending in ENDINGS {
                let base = match ending.starts_with('/') {
                    true => base.trim_end_matches('/'),
                    false => base,
                };
                add(&mut further, format!("{base}{ending}"));
            }
        }
        further.retain(|path| path.starts_with('/') && !first.contains(path));
        random.shuffle(&mut further);
        first.extend(further);
        let paths = first;

        let mut methods = self.methods.clone();
        methods.extend(["HEAD", "HEAD", "POST", "DELETE"].map(str::to_owned));
        let mut queries = self.queries.clone();
        queries.extend(QUERIES.map(str::to_owned));
        let mut fields = self.fields.clone();
        fields.extend(FIELDS.map(|(name, value)| (name.to_owned(), value.to_owned())));

        let last = self.listeners.max(1) - 1;
        let plain = paths.iter().take(DISTINCT * 3 / 5);
        let plain = plain
            .zip(own_hosts.iter().cycle())
            .map(|(path, host)| Request {
                listener: last,
                method: "GET".to_owned(),
                host: host.clone(),
                target: path.clone(),
                field: self.usual_field.clone(),
            });
        let mut all: Vec<Request> = plain.collect();
        let mut known: BTreeSet<Request> = all.iter().cloned().collect();
        // A configuration with few words has few requests without a repetition.
        for _ in 0..100 * DISTINCT {
            if all.len() >= DISTINCT {
                break;
            }
            let mut request = Request {
                listener: last,
                method: "GET".to_owned(),
                host: random.one_of(own_hosts).clone(),
                target: random.one_of(&paths[..paths.len().min(DISTINCT)]).clone(),
                field: self.usual_field.clone(),
            };
            if random.below(5) == 0 {
                request.listener = random.below(last + 1);
            }
            if random.below(6) == 0 {
                request.host = random.one_of(&hosts).clone();
            }
            if random.below(3) == 0 {
                request.target += &format!("?{}", random.one_of(&queries));
            }
            if random.below(3) == 0 {
                request.field = Some(random.one_of(&fields).clone());
            }
            if random.below(8) == 0 {
                request.method = random.one_of(&methods).clone();
            }
            if known.insert(request.clone()) {
                all.push(request);
            }
        }
        all
    }
}

/// How many requests differ.
pub(super) const DISTINCT: usize = 250;

/// Paths that all configurations get.
const PATHS: [&str; 14] = [
    "/",
    "/a",
    "/a/b",
    "/robots.txt",
    "/private",
    "/cookie",
    "/minute",
    "/missing",
    "/moved",
    "/html.css",
    "/%61",
    "/a//b",
    "/a/../b",
    "/a%20b",
];

/// Endings of further paths. [`echo`](super::echo) answers by their words.
const ENDINGS: [&str; 17] = [
    "",
    "/",
    "/x",
    "/x.css",
    "/X.CSS",
    "/x.png",
    "/a.html",
    "/html.css",
    "/private",
    "/private.js",
    "/cookie",
    "/cookie.css",
    "/minute",
    "/missing",
    "/missing.css",
    "/moved",
    "x",
];

const QUERIES: [&str; 5] = ["", "a=1", "b=1&a=2", "a=2&b=1", "a=/x.css"];

const FIELDS: [(&str, &str); 4] = [
    ("Cookie", "other=1"),
    ("Authorization", "Basic eDp5"),
    ("User-Agent", "test"),
    ("Accept-Language", "de"),
];

fn add<T: PartialEq>(list: &mut Vec<T>, member: T) {
    if !list.contains(&member) {
        list.push(member);
    }
}

/// A sequence that looks random and is the same in each run (Knuth's MMIX generator).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn one_of<'l, T>(&mut self, list: &'l [T]) -> &'l T {
        &list[self.below(list.len())]
    }

    fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.below(at + 1));
        }
    }
}
