//! `edgeward migrate`: exit codes and files, and nginx and the edge with the same configuration answer alike.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;

use edgeward_testkit::client::{Answer as Received, Client};
use edgeward_testkit::programs::ServerProcess;
use edgeward_testkit::{Answer, RecordedRequest, ScriptedOrigin};
use serde_json::Value;

use super::run::{Server, output, text};

/// The configurations of `edgeward-migrate`.
const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../edge/migrate/tests/nginx");

pub(super) fn migrate(input: &Path, more: &[&str]) -> Output {
    let input = input.display().to_string();
    output(&[&["migrate", &input], more].concat())
}

/// Writes a configuration and translates it.
fn translate(folder: &Path, config: &str, more: &[&str]) -> Output {
    let input = folder.join("site.conf");
    fs::write(&input, config).expect("written");
    migrate(&input, more)
}

#[test]
fn each_configuration_of_the_corpus_becomes_a_valid_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut count = 0;
    for entry in fs::read_dir(CORPUS).expect("the folder exists") {
        let path = entry.expect("an entry").path();
        let out = folder.path().join(format!("{count}.toml"));
        let done = migrate(&path, &["--out", &out.display().to_string()]);
        let code = done.status.code();
        assert!(
            matches!(code, Some(0 | 1)),
            "{path:?}: {}",
            text(&done.stderr)
        );
        assert!(out.is_file(), "{path:?}");
        count += 1;
    }
    assert!(count >= 20, "{count} configurations");
}

#[test]
fn the_exit_code_states_if_something_was_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = |inner: &str| {
        format!(
            "server {{ listen 80; server_name a.example;\nlocation / {{ proxy_pass http://10.0.0.1; {inner} }} }}\n"
        )
    };
    let code = |config: &str| translate(folder.path(), config, &[]).status.code();
    assert_eq!(code(&site("")), Some(0));
    assert_eq!(code("server { root /var/www; }"), Some(2));
    assert_eq!(code("server {"), Some(2));
    assert_eq!(
        migrate(Path::new("/nonexistent"), &[]).status.code(),
        Some(2)
    );
    let lost = translate(folder.path(), &site("auth_basic x;"), &[]);
    assert_eq!(lost.status.code(), Some(1));
    let report = text(&lost.stderr);
    assert!(
        report.contains("site.conf:2: auth_basic x (access)"),
        "{report}"
    );
    let json = translate(folder.path(), &site("auth_basic x;"), &["--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["losses"], 1);
    assert_eq!(json["entries"].as_array().map(Vec::len), Some(6));
}

#[test]
fn an_existing_file_is_replaced_only_by_force() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("edge.toml");
    fs::write(&out, "mine").expect("written");
    let config = "server { listen 80; server_name a; location / { proxy_pass http://10.0.0.1; } }";
    let out_text = out.display().to_string();
    let refused = translate(folder.path(), config, &["--out", &out_text]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(fs::read_to_string(&out).expect("read"), "mine");
    let done = translate(folder.path(), config, &["--out", &out_text, "--force"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert_ne!(fs::read_to_string(&out).expect("read"), "mine");
}

/// A file that is too large, or nested too deeply, ends with an error.
#[test]
fn a_hostile_file_ends_with_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let nested = "a {".repeat(10_000);
    for (config, message) in [(nested, "nested"), (" ".repeat(10_000_000), "8 MiB")] {
        let done = translate(folder.path(), &config, &[]);
        assert_eq!(done.status.code(), Some(2));
        assert!(
            text(&done.stderr).contains(message),
            "{}",
            text(&done.stderr)
        );
    }
}

/// A host with more locations than a site has rules is an error of the input, and the way out is stated.
#[test]
fn a_host_with_too_many_locations_is_refused_with_a_way_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let location = |n: usize| format!("location /{n}/ {{ proxy_pass http://10.0.0.1; }}\n");
    let all: String = (0..300).map(location).collect();
    let config = format!("server {{ listen 80; server_name a.example;\n{all}}}");
    let done = translate(folder.path(), &config, &[]);
    assert_eq!(done.status.code(), Some(2));
    assert!(done.stdout.is_empty());
    let message = text(&done.stderr);
    for part in [
        "a.example needs ",
        "at most 256",
        "site.conf:1",
        "location ~ ^/(a|b)/",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

/// A request: method, host, target and fields.
pub(super) type Request<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, &'a str)]);

/// The origin's answer states what it was asked for.
pub(super) fn echo(request: &RecordedRequest) -> Answer {
    let host = request.header("host").unwrap_or_default();
    let extension = request
        .path()
        .rsplit_once('.')
        .map(|(_, end)| end.to_lowercase());
    let kind = match extension.as_deref() {
        _ if request.path().contains("html") => "text/html",
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        Some("png") => "image/png",
        Some("txt") => "text/plain",
        Some("deb" | "udeb" | "xz") => "application/octet-stream",
        _ => "text/html",
    };
    let status = if request.path().contains("missing") {
        404
    } else {
        200
    };
    let body = format!("{} {host} {}", request.method(), request.target());
    let answer = Answer::ok(body)
        .with_status(status)
        .header("Content-Type", kind);
    match request.path() {
        path if path.contains("private") => answer.header("Cache-Control", "private"),
        path if path.contains("cookie") => answer.header("Set-Cookie", "a=b"),
        path if path.contains("minute") => answer.header("Cache-Control", "max-age=60"),
        _ => answer,
    }
}

/// A server with an origin of its own.
pub(super) struct Side {
    pub(super) origin: ScriptedOrigin,
    pub(super) addr: SocketAddr,
}

impl Side {
    /// Sends a request. Returns the answer, and true if it came from the cache.
    fn send(&self, (method, host, target, fields): Request<'_>) -> (Received, bool) {
        let before = self.origin.requests_total();
        let mut client = Client::connect(self.addr);
        let fields = [&[("Host", host), ("Connection", "close")], fields].concat();
        let answer = client.request(method, target, &fields, b"");
        (answer, self.origin.requests_total() == before)
    }
}

/// Returns a location without the port, which nginx adds because it does not listen at port 80.
fn without_port(location: &str) -> String {
    let rest = location.strip_prefix("http://").unwrap_or(location);
    match rest.split_once('/') {
        Some((authority, path)) => {
            let host = authority.split(':').next().unwrap_or_default();
            format!("{host}/{path}")
        }
        None => rest.to_owned(),
    }
}

/// Why the edge asks the origin where the other server answers from its cache. docs/how-to/from-nginx.md and
/// from-varnish.md list these reasons.
#[derive(Clone, Copy, Debug)]
pub(super) enum Listed {
    /// A request with an unsafe method has removed the stored response.
    Unsafe,
    /// HTML for a path that ends like that of a stylesheet is not stored.
    Extension,
    /// Origins and rules may read the path differently, so it bypasses the cache.
    Disputed,
    /// The first HEAD of a URL is forwarded, and Varnish sends a GET whose response it stores.
    Head,
    /// A response with `Set-Cookie` is not stored.
    SetCookie,
    /// A response with `private` is not stored, unless `ttl` says so.
    Private,
    /// A response to a request with `Authorization` is not stored.
    Authorization,
    /// A request is passed because no rule states the conditions around an exception from caching exactly.
    Inexact,
}

/// Targets that the edge requests from the origin more often than the other server, and how many times.
pub(super) type ListedTargets<'a> = &'a [(&'a str, usize, Listed)];

/// Sends the requests to both servers, twice. Status, body, location and the sequence of hits must agree, with the
/// exception of the listed ones.
pub(super) fn compare(
    name: &str,
    (other, edge): (&Side, &Side),
    listed: ListedTargets<'_>,
    requests: &[Request<'_>],
    config: &str,
) {
    let mut rest: BTreeMap<&str, usize> = listed
        .iter()
        .map(|(target, times, _)| (*target, *times))
        .collect();
    let mut differences = Vec::new();
    for request in [requests, requests].concat() {
        let expected = Compared::new(other.send(request), other);
        let found = Compared::new(edge.send(request), edge);
        if expected == found {
            continue;
        }
        let without_hit = Compared {
            is_hit: false,
            ..expected
        };
        match rest.get_mut(request.2) {
            Some(times) if *times > 0 && without_hit == found => *times -= 1,
            _ => differences.push(format!(
                "{request:?}\n  other {without_hit:?}, from the cache: {}\n  edge  {found:?}",
                expected.is_hit
            )),
        }
    }
    rest.retain(|_, times| *times > 0);
    assert!(
        differences.is_empty(),
        "{name}:\n{}\n{config}",
        differences.join("\n")
    );
    assert!(rest.is_empty(), "{name}: listed, but equal: {rest:?}");
}

/// The parts of an answer that must agree.
#[derive(Debug, PartialEq, Eq)]
struct Compared {
    status: u16,
    body: String,
    location: String,
    is_hit: bool,
}

impl Compared {
    /// The bodies of errors and redirects differ, because each server writes its own pages.
    fn new((answer, is_hit): (Received, bool), side: &Side) -> Self {
        let body = match answer.status {
            200 => answer
                .text()
                .replace(&side.origin.addr().to_string(), "ORIGIN"),
            _ => String::new(),
        };
        Self {
            status: answer.status,
            body,
            location: without_port(answer.field("location")),
            is_hit,
        }
    }
}

/// A configuration of the corpus, how it is made fit for a test, and the requests.
struct Case<'a> {
    name: &'a str,
    /// Texts that are replaced: addresses, folders, and lifetimes that could end during the test.
    replaced: &'a [(&'a str, &'a str)],
    /// Targets that the edge requests from the origin more often than nginx, and how many times.
    listed: ListedTargets<'a>,
    requests: &'a [Request<'a>],
}

impl Case<'_> {
    fn config(&self, folder: &Path, addr: SocketAddr, origin: &ScriptedOrigin) -> String {
        let path = PathBuf::from(CORPUS).join(self.name);
        let mut config = fs::read_to_string(path).expect("read");
        for (from, to) in self.replaced {
            let to = to
                .replace("{origin}", &origin.addr().to_string())
                .replace("{addr}", &addr.to_string())
                .replace("{folder}", &folder.display().to_string());
            assert!(config.contains(from), "{} has no {from}", self.name);
            config = config.replace(from, &to);
        }
        config
    }

    /// Sends the requests to nginx with the configuration, and to the edge with its translation, twice. Status, body,
    /// location and the sequence of hits must agree, with the exception of the listed ones.
    fn compare(&self) {
        let [of_nginx, of_edge] = [(); 2].map(|()| {
            let origin = ScriptedOrigin::start();
            origin.otherwise(echo);
            origin
        });
        let Some(nginx) = ServerProcess::nginx(|folder, addr| {
            fs::write(folder.join("htpasswd"), "").expect("written");
            self.config(folder, addr, &of_nginx)
        }) else {
            return;
        };
        let folder = tempfile::tempdir().expect("a folder");
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let input = folder.path().join("nginx.conf");
        let http = self.config(folder.path(), any, &of_edge);
        fs::write(&input, format!("events {{}}\nhttp {{\n{http}\n}}\n")).expect("written");
        let out = folder.path().join("edge.toml").display().to_string();
        let done = migrate(&input, &["--out", &out]);
        let code = done.status.code();
        assert!(matches!(code, Some(0 | 1)), "{}", text(&done.stderr));
        let edge = Server::start(&["serve", "--json", "--config", &out]);
        let nginx_side = Side {
            origin: of_nginx,
            addr: nginx.addr(),
        };
        let edge_side = Side {
            origin: of_edge,
            addr: edge.addr("/listening/0"),
        };
        let file = fs::read_to_string(&out).unwrap_or_default();
        let sides = (&nginx_side, &edge_side);
        compare(self.name, sides, self.listed, self.requests, &file);
    }
}

#[test]
fn wordpress_answers_as_by_nginx() {
    const HOST: &str = "blog.example.org";
    let user: &[(&str, &str)] = &[("Cookie", "wordpress_logged_in_1=x")];
    Case {
        name: "wordpress.conf",
        replaced: &[
            ("127.0.0.1:8081", "{origin}"),
            ("server 127.0.0.1:8082 backup;", ""),
            ("127.0.0.1:9000", "{origin}"),
            ("listen 80 default_server", "listen {addr} default_server"),
            ("/var/cache/nginx/wp", "{folder}/cache"),
            ("max_size=5g", "max_size=64m"),
            ("/etc/nginx/htpasswd", "{folder}/htpasswd"),
        ],
        listed: &[
            ("/2026/post", 1, Listed::Unsafe),
            ("/html.css", 3, Listed::Extension),
        ],
        requests: &[
            ("GET", HOST, "/", &[]),
            ("GET", HOST, "/", &[]),
            ("GET", HOST, "/2026/post", &[]),
            ("GET", HOST, "/2026/post", user),
            ("GET", HOST, "/2026/post?preview=1", &[]),
            ("GET", HOST, "/2026/post?preview=1", &[]),
            ("GET", HOST, "/private", &[]),
            ("GET", HOST, "/cookie", &[]),
            ("GET", HOST, "/minute", &[]),
            ("GET", HOST, "/missing", &[]),
            ("POST", HOST, "/2026/post", &[("Content-Length", "0")]),
            ("GET", HOST, "/feed/", &[]),
            ("GET", HOST, "/wp-login.php", &[]),
            ("GET", HOST, "/style.css", &[]),
            ("GET", HOST, "/style.css", user),
            ("GET", HOST, "/cookie.css", &[]),
            ("GET", HOST, "/app.JS", &[]),
            ("GET", HOST, "/html.css", &[]),
            ("GET", HOST, "/html.css", &[]),
            ("GET", HOST, "/css/missing.css", &[]),
            ("GET", HOST, "/xmlrpc.php", &[]),
            ("GET", HOST, "/wp-admin/", &[]),
            ("GET", HOST, "/wp-admin/a.css", &[]),
            ("GET", HOST, "/api/users/1?x=2", &[]),
            ("GET", HOST, "/api/a.css", &[]),
            ("HEAD", HOST, "/api/users/1", &[]),
            ("GET", "www.blog.example.org", "/a?b=c", &[]),
            ("GET", "unknown.example", "/u", &[]),
        ],
    }
    .compare();
}

#[test]
fn magento_answers_as_by_nginx() {
    const HOST: &str = "shop.example.org";
    Case {
        name: "magento.conf",
        replaced: &[
            ("server unix:/run/magento.sock", "server {origin}"),
            ("listen 80 default_server", "listen {addr} default_server"),
            ("/var/cache/nginx/magento", "{folder}/cache"),
            ("max_size=20g", "max_size=64m"),
        ],
        listed: &[
            ("/", 2, Listed::Unsafe),
            ("/%73tatic/private.css", 1, Listed::Disputed),
        ],
        requests: &[
            ("GET", HOST, "/", &[]),
            ("GET", HOST, "/", &[("Cookie", "store=de")]),
            ("GET", HOST, "/", &[("Cookie", "store=de")]),
            ("GET", HOST, "/", &[("Cookie", "PHPSESSID=1")]),
            ("GET", HOST, "/a?nocache=1", &[]),
            ("GET", HOST, "/a?x=1", &[]),
            ("GET", HOST, "/a?x=1", &[]),
            ("GET", HOST, "/static/private.css", &[]),
            ("GET", HOST, "/static/private.css", &[]),
            ("GET", HOST, "/static/missing", &[]),
            ("GET", HOST, "/media/a.png", &[]),
            ("GET", HOST, "/media/missing.png", &[]),
            ("GET", HOST, "/media/missing.png", &[]),
            ("GET", HOST, "/checkout/cart", &[]),
            ("GET", HOST, "/customer/x", &[]),
            ("GET", HOST, "/customers", &[]),
            ("HEAD", HOST, "/customer/x", &[]),
            ("GET", HOST, "/private", &[]),
            ("GET", HOST, "/minute", &[]),
            ("GET", HOST, "/minute", &[]),
            ("GET", HOST, "/%73tatic/private.css", &[]),
            ("GET", "other.example", "/static/o.css", &[]),
            ("POST", HOST, "/", &[("Content-Length", "0")]),
            ("GET", HOST, "/missing", &[]),
            ("GET", HOST, "/b", &[]),
            ("GET", HOST, "/b", &[]),
        ],
    }
    .compare();
}

#[test]
fn a_newspaper_answers_as_by_nginx() {
    const HOST: &str = "www.news.example";
    Case {
        name: "news.conf",
        replaced: &[
            ("10.0.5.1:80 slow_start=30s", "{origin}"),
            ("server 10.0.5.2:80;", ""),
            ("server 10.0.5.3:80 backup;", ""),
            ("listen 80", "listen {addr}"),
            ("/var/cache/news", "{folder}/cache"),
            ("404 10s", "404 10m"),
            ("max_size=20g", "max_size=64m"),
        ],
        listed: &[("/story", 1, Listed::Unsafe)],
        requests: &[
            ("GET", HOST, "/", &[]),
            ("GET", HOST, "/", &[]),
            ("GET", "news.example", "/n", &[]),
            ("GET", HOST, "/", &[("Cookie", "subscriber=1")]),
            ("GET", HOST, "/story", &[("Cookie", "other=1")]),
            ("GET", HOST, "/story", &[]),
            ("GET", HOST, "/missing", &[]),
            ("GET", HOST, "/missing", &[]),
            ("GET", HOST, "/preview/a", &[]),
            ("GET", HOST, "/preview", &[]),
            ("GET", HOST, "/robots.txt", &[]),
            ("GET", HOST, "/robots.txt", &[]),
            ("GET", HOST, "/robots.txt?x", &[]),
            ("GET", HOST, "/private", &[]),
            ("GET", HOST, "/cookie", &[]),
            ("GET", HOST, "/minute", &[]),
            ("HEAD", HOST, "/story", &[]),
            ("GET", HOST, "/a//b", &[]),
            ("GET", HOST, "/a/../c", &[]),
            ("GET", HOST, "/%61", &[]),
            ("POST", HOST, "/story", &[("Content-Length", "0")]),
            ("GET", HOST, "/d?x=1&y=2", &[]),
            ("GET", HOST, "/d?y=2&x=1", &[]),
            ("GET", HOST, "/d?x=1&y=2", &[]),
            ("GET", HOST, "/e", &[]),
        ],
    }
    .compare();
}

#[test]
fn a_wiki_answers_as_by_nginx() {
    const HOST: &str = "wiki.example.org";
    Case {
        name: "wiki.conf",
        replaced: &[
            ("127.0.0.1:8088", "{origin}"),
            ("listen 80", "listen {addr}"),
            ("/var/cache/wiki", "{folder}/cache"),
            ("max_size=2g", "max_size=64m"),
        ],
        listed: &[],
        requests: &[
            ("GET", HOST, "/wiki/Main_Page", &[]),
            ("GET", HOST, "/wiki/Main_Page", &[]),
            ("GET", HOST, "/wiki/Main_Page?action=raw", &[]),
            (
                "GET",
                HOST,
                "/wiki/Main_Page",
                &[("Cookie", "wikiUserID=1")],
            ),
            ("GET", HOST, "/wiki/", &[]),
            ("GET", HOST, "/images/a.png", &[]),
            ("GET", HOST, "/images/a.png", &[]),
            ("GET", HOST, "/images/missing.png", &[]),
            ("GET", HOST, "/", &[]),
            ("GET", HOST, "/index.php?title=A", &[]),
            ("GET", HOST, "/index.php?title=A", &[]),
            ("GET", HOST, "/private", &[]),
            ("HEAD", HOST, "/images/a.png", &[]),
            ("POST", HOST, "/wiki/A", &[("Content-Length", "0")]),
            ("GET", HOST, "/wiki/private", &[]),
            ("GET", HOST, "/wiki/Talk:A", &[]),
            ("GET", HOST, "/wiki", &[]),
            ("GET", HOST, "/images", &[]),
            ("GET", HOST, "/wiki/A/B", &[]),
            ("GET", HOST, "/wiki/A/B", &[]),
            ("GET", "other.example", "/wiki/C", &[]),
            ("GET", HOST, "/wiki/minute", &[]),
            ("GET", HOST, "/wiki/minute", &[]),
            ("GET", HOST, "/images/cookie.png", &[]),
            ("GET", HOST, "/x", &[]),
        ],
    }
    .compare();
}

#[test]
fn hosts_of_tenants_are_answered_as_by_nginx() {
    const TENANT: &str = "a-1.platform.example";
    Case {
        name: "tenants.conf",
        replaced: &[
            ("listen 80 default_server", "listen {addr} default_server"),
            ("listen 80;", "listen {addr};"),
            ("10.0.8.1", "{origin}"),
            ("/var/cache/nginx/tenants", "{folder}/cache"),
            ("max_size=10g", "max_size=64m"),
        ],
        listed: &[],
        requests: &[
            ("GET", "platform.example", "/a", &[]),
            ("GET", "www.platform.example", "/a", &[]),
            ("GET", "WWW.platform.example", "/a", &[]),
            ("GET", "ww.platform.example", "/a", &[]),
            ("GET", TENANT, "/a", &[]),
            ("GET", TENANT, "/a.css", &[]),
            ("GET", TENANT, "/minute.css", &[]),
            ("GET", "b.a-1.platform.example", "/a", &[]),
            ("GET", "a_1.platform.example", "/a", &[]),
            ("GET", "admin.platform.example", "/a", &[]),
            ("GET", "admin-x.example", "/a", &[]),
            ("GET", "admin.x.y.example", "/login", &[]),
            ("GET", "admin.x.y.example", "/a", &[]),
            ("GET", "admin.example", "/a", &[]),
            ("GET", "shop.example", "/a", &[]),
            ("GET", "shop.platform.example", "/a", &[]),
            ("GET", "shop.a.b", "/", &[]),
            ("GET", "1.shop.example", "/a", &[]),
            ("GET", "12.store.example", "/a", &[]),
            ("GET", "x.store.example", "/a", &[]),
            ("GET", "store.example", "/a", &[]),
            ("GET", "other.example", "/a", &[]),
            ("GET", "127.0.0.1", "/a", &[]),
        ],
    }
    .compare();
}

#[test]
fn an_api_gateway_answers_as_by_nginx() {
    const HOST: &str = "api.example.org";
    let key: &[(&str, &str)] = &[("Authorization", "Bearer x")];
    Case {
        name: "api-gateway.conf",
        replaced: &[
            ("server 10.1.0.1:8000", "server {origin}"),
            ("server 10.1.0.2:8000 max_fails=2 fail_timeout=5s;", ""),
            ("server 10.2.0.1:8000", "server {origin}"),
            ("server 10.2.0.2:8000;", ""),
            ("listen 80", "listen {addr}"),
            ("/var/cache/nginx/api", "{folder}/cache"),
            ("max_size=1g", "max_size=64m"),
            ("burst=20", "burst=2000"),
            ("200 10s", "200 10m"),
        ],
        listed: &[("/v1/users/", 1, Listed::Unsafe)],
        requests: &[
            ("GET", HOST, "/v1/users/1", &[]),
            ("GET", HOST, "/v1/users/1", &[]),
            ("GET", HOST, "/v1/users/1", key),
            ("GET", HOST, "/v1/users/1?fields=a", &[]),
            ("GET", HOST, "/v1/users/", &[]),
            ("GET", HOST, "/v1/users/missing", &[]),
            ("GET", HOST, "/v1/users", &[]),
            ("GET", HOST, "/v1/orders/1", &[]),
            ("GET", HOST, "/v1/orders/1", &[]),
            ("DELETE", HOST, "/v1/orders/1", &[]),
            ("PUT", HOST, "/v1/orders/1", &[("Content-Length", "0")]),
            ("GET", HOST, "/healthz", &[]),
            ("GET", HOST, "/healthz/x", &[]),
            ("GET", HOST, "/", &[]),
            ("GET", HOST, "/v1/users/a%20b", &[]),
            ("GET", HOST, "/v1/users/a/b", &[]),
            ("GET", HOST, "/v1/users/a/b", &[]),
            ("GET", HOST, "/v1/users/private", &[]),
            ("GET", HOST, "/v1/users/minute", &[]),
            ("GET", HOST, "/v1/users/minute", &[]),
            ("HEAD", HOST, "/v1/users/1", &[]),
            ("POST", HOST, "/v1/users/", &[("Content-Length", "0")]),
            ("GET", HOST, "/v2", &[]),
            ("GET", "other.example", "/v1/users/7", &[]),
            ("GET", HOST, "/v1/users/9", &[]),
        ],
    }
    .compare();
}
