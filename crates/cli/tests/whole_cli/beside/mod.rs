//! nginx and Varnish beside the edge with the translated file: each configuration of the corpus gets the same requests
//! on both sides, and both must answer alike.
//!
//! The configurations are made fit for the test by rules ([`nginx`], [`varnish`]), and the requests from their words
//! ([`requests`]). Each difference must have a reason that the documentation lists ([`Listed`]).

mod expression;
mod listed;
mod nginx;
mod requests;
mod varnish;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use edgeward_testkit::client::{Answer as Received, Client, TIMEOUT};
use edgeward_testkit::{Answer, RecordedRequest, ScriptedOrigin};
use rustls_pki_types::{CertificateDer, ServerName};

use self::listed::Listed;
use self::requests::Request;

/// The origins of one side, by their names in the configuration.
struct Origins(BTreeMap<String, ScriptedOrigin>);

impl Origins {
    fn start(names: &[String]) -> Self {
        let start = |name: &String| {
            let origin = ScriptedOrigin::start();
            let called = name.clone();
            origin.otherwise(move |request| echo(&called, request));
            (name.clone(), origin)
        };
        Self(names.iter().map(start).collect())
    }

    fn addr(&self, name: &str) -> SocketAddr {
        self.0[name].addr()
    }

    fn requests_total(&self) -> usize {
        self.0.values().map(ScriptedOrigin::requests_total).sum()
    }

    /// Returns a text without the addresses of the origins.
    fn without_addresses(&self, text: &str) -> String {
        self.0.values().fold(text.to_owned(), |text, origin| {
            text.replace(&origin.addr().to_string(), "ORIGIN")
        })
    }
}

/// The origin's answer states its name and what it was asked for. Words in the path select status and fields.
fn echo(name: &str, request: &RecordedRequest) -> Answer {
    let host = request.header("host").unwrap_or_default();
    let path = request.path();
    let segment = path.rsplit('/').next().unwrap_or_default();
    let extension = segment.rsplit_once('.').map(|(_, end)| end.to_lowercase());
    let kind = match extension.as_deref() {
        _ if path.contains("html") => "text/html",
        None => "text/html",
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        Some("png") => "image/png",
        Some("txt") => "text/plain",
        Some(_) => "application/octet-stream",
    };
    let status = match path {
        _ if path.contains("missing") => 404,
        _ if path.contains("moved") => 301,
        _ => 200,
    };
    let body = format!("{name}: {} {host} {}", request.method(), request.target());
    let answer = Answer::ok(body)
        .with_status(status)
        .header("Content-Type", kind);
    match path {
        path if path.contains("private") => answer.header("Cache-Control", "private"),
        path if path.contains("cookie") => answer.header("Set-Cookie", "a=b"),
        path if path.contains("minute") => answer.header("Cache-Control", "max-age=3600"),
        path if path.contains("moved") => answer.header("Location", "/to"),
        _ => answer,
    }
}

/// A server with origins of its own, and the connections to it.
struct Side {
    origins: Origins,
    /// The addresses of the listeners in the order of the configuration.
    listeners: Vec<Listener>,
    connections: HashMap<(usize, String), Client<Box<dyn Stream>>>,
}

/// An address at which a server accepts connections, with the certificate if they have TLS.
#[derive(Clone)]
struct Listener {
    addr: SocketAddr,
    certificate: Option<CertificateDer<'static>>,
}

trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

impl Listener {
    fn connect(&self, host: &str) -> Client<Box<dyn Stream>> {
        let socket = TcpStream::connect(self.addr).expect("the server listens");
        for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
            set(&socket, Some(TIMEOUT)).expect("the timeout can be set");
        }
        socket.set_nodelay(true).expect("TCP_NODELAY can be set");
        let Some(certificate) = &self.certificate else {
            return Client::on(Box::new(socket));
        };
        let mut roots = rustls::RootCertStore::empty();
        let added = roots.add(certificate.clone());
        added.expect("the certificate can be a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).expect("a name");
        let connection = rustls::ClientConnection::new(Arc::new(config), name);
        let connection = connection.expect("the settings are valid");
        Client::on(Box::new(rustls::StreamOwned::new(connection, socket)))
    }
}

impl Side {
    fn new(origins: Origins, listeners: Vec<Listener>) -> Self {
        Self {
            origins,
            listeners,
            connections: HashMap::new(),
        }
    }

    /// Sends a request and returns what is compared.
    fn send(&mut self, request: &Request) -> Compared {
        let before = self.origins.requests_total();
        let received = self.exchange(request);
        let has_asked = self.origins.requests_total() > before;
        // The edge states it, because it may revalidate a stale response meanwhile.
        let status = received
            .as_ref()
            .and_then(|answer| answer.header("cache-status"));
        let is_hit = status.map_or(!has_asked, |status| !status.contains("fwd="));
        let Some(answer) = received else {
            return Compared {
                is_hit,
                ..Compared::default()
            };
        };
        let body = String::from_utf8_lossy(&answer.body);
        let has_tls = self.listeners[request.listener].certificate.is_some();
        let scheme = if has_tls { "https" } else { "http" };
        let has_own_page = is_page_of_server(&body);
        let body = match answer.status {
            300..=399 => String::new(),
            _ if has_own_page => String::new(),
            _ => self.origins.without_addresses(&body),
        };
        Compared {
            status: answer.status,
            body,
            location: resolved(answer.field("location"), scheme, &request.host),
            has_cookie: answer.header("set-cookie").is_some(),
            kind: answer.field("content-type").to_owned(),
            cache_status: answer.cache_status().to_owned(),
            has_own_page,
            is_hit,
        }
    }

    /// Sends a request on a connection that earlier ones with its host have used, if the server has not closed it.
    /// Returns `None` if the server closes the connection without a response.
    fn exchange(&mut self, request: &Request) -> Option<Received> {
        let key = (request.listener, request.host.clone());
        // A proxy may connect a client with an unknown method to the origin, until one of them closes.
        let is_last = !request.is_read();
        if is_last {
            self.connections.remove(&key);
        }
        let mut fields = vec![("Host", request.host.as_str())];
        if let Some((name, value)) = &request.field {
            fields.push((name, value));
        }
        if is_last {
            fields.extend([("Connection", "close"), ("Content-Length", "0")]);
        }
        let lines = fields
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"));
        let (method, target) = (&request.method, &request.target);
        let head = format!(
            "{method} {target} HTTP/1.1\r\n{}\r\n",
            lines.collect::<String>()
        );
        loop {
            let known = self.connections.remove(&key);
            let is_new = known.is_none();
            let mut client = match known {
                Some(client) => client,
                None => self.listeners[key.0].connect(&key.1),
            };
            let is_sent = client.try_send(head.as_bytes());
            let answer = is_sent.then(|| client.try_head()).flatten();
            let Some(mut answer) = answer else {
                match is_new {
                    true => return None,
                    false => continue,
                }
            };
            while answer.status < 200 {
                answer = client.head();
            }
            client.body(method, &mut answer);
            let is_framed = ["content-length", "transfer-encoding"]
                .iter()
                .any(|name| answer.header(name).is_some())
                || method == "HEAD"
                || answer.status == 204;
            let closes = answer.field("connection").eq_ignore_ascii_case("close");
            if is_framed && answer.complete && !closes && !is_last {
                self.connections.insert(key, client);
            }
            return Some(answer);
        }
    }
}

/// Returns true for a page that nginx, Varnish or the edge writes itself for an error.
fn is_page_of_server(body: &str) -> bool {
    let marks = ["<center>nginx", "Guru Meditation"];
    marks.iter().any(|mark| body.contains(mark))
}

/// Returns a location of a response to a request for `host` as a whole URL without the port, which nginx adds because
/// it does not listen at port 80.
fn resolved(location: &str, scheme: &str, host: &str) -> String {
    let Some((scheme, rest)) = location.split_once("://") else {
        let is_path = location.starts_with('/');
        let start = is_path.then(|| format!("{scheme}://{host}"));
        return format!("{}{location}", start.unwrap_or_default());
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = authority.split(':').next().unwrap_or_default();
    format!("{scheme}://{host}/{path}")
}

/// The parts of an answer that must agree. The status is 0 if the server closed the connection without an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Compared {
    status: u16,
    /// Pages that a server writes itself, and bodies of redirects, are left out.
    body: String,
    location: String,
    /// No origin got a request.
    is_hit: bool,
    /// The rest is for the reasons of differences.
    has_cookie: bool,
    kind: String,
    cache_status: String,
    has_own_page: bool,
}

impl Compared {
    /// Returns true if status, body and location agree.
    fn is_same_answer(&self, other: &Self) -> bool {
        (self.status, &self.body, &self.location) == (other.status, &other.body, &other.location)
    }

    /// Returns true for a body that [`echo`] has made.
    fn is_of_origin(&self) -> bool {
        self.body.contains(": GET ")
    }
}

/// The requests so far that change which later ones are hits, by URL.
#[derive(Default)]
struct History {
    unsafe_urls: HashSet<String>,
    /// URLs of which HEAD was the first request.
    head_urls: HashSet<String>,
    authorized_urls: HashSet<String>,
    purged_urls: HashSet<String>,
    /// The fields of the requests for a URL.
    fields: HashMap<String, HashSet<Option<(String, String)>>>,
    /// The hosts of the requests for a target of a listener.
    hosts: HashMap<(usize, String), HashSet<String>>,
}

impl History {
    /// Returns the URL without its query, whose parameters some configurations sort or drop.
    fn url(request: &Request) -> String {
        format!("{} {}{}", request.listener, request.host, request.path())
    }

    fn add(&mut self, request: &Request) {
        let url = Self::url(request);
        if !request.is_read() {
            self.unsafe_urls.insert(url.clone());
        }
        if ["PURGE", "BAN", "URIBAN"].contains(&request.method.as_str()) {
            self.purged_urls.insert(url.clone());
        }
        if request.method == "HEAD" && !self.fields.contains_key(&url) {
            self.head_urls.insert(url.clone());
        }
        let mut name = request.field.iter().map(|(name, _)| name);
        if name.any(|name| name.eq_ignore_ascii_case("authorization")) {
            self.authorized_urls.insert(url.clone());
        }
        self.fields
            .entry(url)
            .or_default()
            .insert(request.field.clone());
        let target = (request.listener, without_empty_query(&request.target));
        self.hosts
            .entry(target)
            .or_default()
            .insert(request.host.clone());
    }
}

/// Returns a target without the question mark of an empty query.
fn without_empty_query(target: &str) -> String {
    target.trim_end_matches('?').to_owned()
}

/// A configuration of the corpus, with what was measured of it.
#[derive(Clone, Copy)]
struct Program {
    name: &'static str,
    /// A field that all requests have, because the configuration answers requests without it itself.
    usual_field: Option<(&'static str, &'static str)>,
    /// The least percentage of the other server's hits that are hits of the edge, too. A translation that passes more
    /// requests than before has less.
    hits_percent: usize,
    /// The reasons of [`Listed::OF_PROGRAMS`] that occur.
    reasons: &'static [Listed],
}

/// The result of a comparison.
struct Measured {
    requests: usize,
    same_answers: usize,
    equal: usize,
    /// Hits of the other server with a response of an origin for the method and host of the request.
    hits: usize,
    /// Those of them that are hits of the edge with the same response, or with one that differs for a listed reason.
    common_hits: usize,
    reasons: BTreeMap<Listed, usize>,
    differences: Vec<String>,
}

impl Measured {
    /// Checks that all differences have reasons, and that the edge has enough hits.
    fn check(&self, program: &Program) -> Result<(), String> {
        let Self {
            requests,
            same_answers,
            equal,
            hits,
            common_hits,
            reasons,
            differences,
        } = self;
        let name = program.name;
        eprintln!(
            "| {name} | {requests} | {same_answers} | {equal} | {common_hits} of {hits} = {} % | {reasons:?} | {} |",
            100 * common_hits / hits.max(&1),
            differences.len()
        );
        // A configuration with hits has a minimum.
        let is_unbounded = program.hits_percent == 0 && *hits > 0;
        if is_unbounded || 100 * common_hits < program.hits_percent * hits {
            let least = program.hits_percent;
            return Err(format!(
                "the edge has {common_hits} of {hits} hits, less than {least} %"
            ));
        }
        if !differences.is_empty() {
            let text = differences.join("\n");
            return Err(format!(
                "{} of {requests} differ without a reason:\n{text}",
                differences.len()
            ));
        }
        match program
            .reasons
            .iter()
            .find(|reason| !reasons.contains_key(reason))
        {
            Some(reason) => Err(format!("{reason:?} does not occur any more: remove it")),
            None => Ok(()),
        }
    }
}

/// Sends the requests to both sides, twice. Status, body, location and the sequence of hits must agree, with the
/// exception of listed differences.
fn measure(
    (other, edge): (&mut Side, &mut Side),
    known: &[Listed],
    requests: &[Request],
) -> Measured {
    let mut history = History::default();
    let mut measured = Measured {
        requests: 2 * requests.len(),
        same_answers: 0,
        equal: 0,
        hits: 0,
        common_hits: 0,
        reasons: BTreeMap::new(),
        differences: Vec::new(),
    };
    for request in [requests, requests].concat() {
        let expected = other.send(&request);
        let mut found = edge.send(&request);
        history.add(&request);
        if expected.has_own_page {
            found.body.clear();
        }
        let is_same = expected.is_same_answer(&found);
        let is_equal = is_same && expected.is_hit == found.is_hit;
        let reason = known
            .iter()
            .find(|reason| !is_equal && reason.explains(&request, &expected, &found, &history));
        measured.same_answers += usize::from(is_same);
        // The page of another host, and the answer to a GET for another method, are no hits that the edge should have.
        let is_wrong = !request.is_read() || (reason == Some(&Listed::Host) && !is_same);
        if expected.is_hit && expected.is_of_origin() && !is_wrong {
            measured.hits += 1;
            let is_listed = is_same || reason.is_some();
            measured.common_hits += usize::from(is_listed && found.is_hit);
        }
        if is_equal {
            measured.equal += 1;
            continue;
        }
        match reason {
            Some(reason) => *measured.reasons.entry(*reason).or_default() += 1,
            None => measured.differences.push(format!(
                "{request:?}\n  other {expected:?}\n  edge  {found:?}"
            )),
        }
    }
    measured
}

/// Returns a configuration of the edge with a last rule in each site that passes all requests.
fn passing_everything(toml: &str) -> String {
    let pass = "[[site.rule]]\npass = true\n";
    let mut sites = toml.split("\n[[site]]");
    let before = sites.next().unwrap_or_default();
    let sites = sites.map(|site| format!("\n[[site]]{site}\n{pass}"));
    format!("{before}{}", sites.collect::<String>())
}
