//! `edgeward migrate` for VCL: Varnish and the edge with the same configuration answer alike.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use edgeward_testkit::ScriptedOrigin;
use edgeward_testkit::programs::{ServerProcess, find_or_skip};

use super::migrate::{Listed, ListedTargets, Request, Side, compare, echo, migrate};
use super::run::{Server, text};

/// The configurations of `edgeward-migrate`.
const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../edge/migrate/tests/vcl");

/// Returns the paths of the corpus.
fn corpus() -> Vec<PathBuf> {
    let entries = fs::read_dir(CORPUS).expect("the folder exists");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_file())
        .collect();
    paths.sort();
    paths
}

#[test]
fn each_vcl_of_the_corpus_becomes_a_valid_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let included = format!("{CORPUS}/included");
    let paths = corpus();
    assert!(paths.len() >= 20, "{} configurations", paths.len());
    for path in paths {
        let out = folder.path().join("edge.toml").display().to_string();
        let more = ["--out", &out, "--force", "--prefix", &included];
        let done = migrate(&path, &more);
        let code = done.status.code();
        assert!(
            matches!(code, Some(0 | 1)),
            "{path:?}: {}",
            text(&done.stderr)
        );
    }
}

/// A configuration in VCL is refused with the line of its fault, and C in it too.
#[test]
fn a_vcl_that_cannot_be_read_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("a.vcl");
    for (config, message) in [
        (
            "vcl 4.1;\nsub vcl_recv {",
            "a.vcl:2: the block that begins here has no `}`".to_owned(),
        ),
        ("vcl 4.1;\nC{ int x; }C", "a.vcl:2: inline C".to_owned()),
        ("vcl 4.1;", "no HTTP server".to_owned()),
        (
            &format!("sub a {{ {}", "if (b) {".repeat(10_000)),
            "nested more than".to_owned(),
        ),
        (&" ".repeat(10_000_000), "8 MiB".to_owned()),
    ] {
        fs::write(&input, config).expect("written");
        let done = migrate(&input, &[]);
        assert_eq!(done.status.code(), Some(2));
        assert!(
            text(&done.stderr).contains(&message),
            "{}",
            text(&done.stderr)
        );
    }
}

/// The corpus is valid for Varnish, so its structure is that of configurations that run.
#[test]
fn varnish_accepts_each_vcl_of_the_corpus() {
    let Some(program) = find_or_skip("varnishd") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    for path in corpus() {
        let mut command = Command::new(&program);
        command.arg("-C").arg("-f").arg(&path);
        command.arg("-p").arg(format!("vcl_path={CORPUS}/included"));
        // Only the translation to C is checked: compiling it takes seconds.
        command.args(["-p", "cc_command=true"]);
        command.current_dir(folder.path()).stdin(Stdio::null());
        let output = command.output().expect("varnishd runs");
        let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(printed.contains("vdef.h"), "{path:?}: {printed}");
    }
}

/// A configuration of the corpus, how it is made fit for a test, and the requests.
struct Case<'a> {
    name: &'a str,
    /// Texts that are replaced: addresses, and probes, whose requests would count.
    replaced: &'a [(&'a str, &'a str)],
    listed: ListedTargets<'a>,
    requests: &'a [Request<'a>],
}

impl Case<'_> {
    fn config(&self, origin: &ScriptedOrigin) -> String {
        let path = PathBuf::from(CORPUS).join(self.name);
        let mut config = fs::read_to_string(path).expect("read");
        for (from, to) in self.replaced {
            let addr = origin.addr();
            let to = to.replace(
                "{origin}",
                &format!(".host = \"{}\"; .port = \"{}\";", addr.ip(), addr.port()),
            );
            assert!(config.contains(from), "{} has no {from}", self.name);
            config = config.replace(from, &to);
        }
        config
    }

    /// Sends the requests to Varnish with the configuration, and to the edge with its translation, twice.
    fn compare(&self) {
        let Some(program) = find_or_skip("varnishd") else {
            return;
        };
        let [of_varnish, of_edge] = [(); 2].map(|()| {
            let origin = ScriptedOrigin::start();
            origin.otherwise(echo);
            origin
        });
        let config = self.config(&of_varnish);
        let start = |folder: &Path, addr: SocketAddr| {
            let file = folder.join("test.vcl");
            fs::write(&file, &config).expect("written");
            let mut command = Command::new(&program);
            command.args([
                "-F",
                "-j",
                "none",
                "-s",
                "malloc,64m",
                "-T",
                "none",
                "-S",
                "none",
            ]);
            command.arg("-a").arg(addr.to_string());
            command.arg("-n").arg(folder.join("work"));
            command.arg("-f").arg(file);
            command
        };
        let varnish = ServerProcess::start(&program, start).expect("varnishd starts");
        let folder = tempfile::tempdir().expect("a folder");
        let input = folder.path().join("test.vcl");
        fs::write(&input, self.config(&of_edge)).expect("written");
        let out = folder.path().join("edge.toml");
        let done = migrate(&input, &["--out", &out.display().to_string()]);
        let code = done.status.code();
        assert!(matches!(code, Some(0 | 1)), "{}", text(&done.stderr));
        let toml = fs::read_to_string(&out).expect("read");
        let toml = toml.replace("0.0.0.0:80\"", "127.0.0.1:0\"");
        fs::write(&out, &toml).expect("written");
        let edge = Server::start(&["serve", "--json", "--config", &out.display().to_string()]);
        let varnish_side = Side {
            origin: of_varnish,
            addr: varnish.addr(),
        };
        let edge_side = Side {
            origin: of_edge,
            addr: edge.addr("/listening/0"),
        };
        let sides = (&varnish_side, &edge_side);
        compare(self.name, sides, self.listed, self.requests, &toml);
    }
}

#[test]
fn wordpress_answers_as_by_varnish() {
    const HOST: &str = "blog.example.org";
    let user: &[(&str, &str)] = &[("Cookie", "wordpress_logged_in_1=x")];
    let tracked: &[(&str, &str)] = &[("Cookie", "_ga=1")];
    Case {
        name: "wordpress.vcl",
        replaced: &[
            (".host = \"127.0.0.1\";\n    .port = \"8081\";", "{origin}"),
            (
                "    .probe = {\n        .url = \"/healthz\";\n        .interval = 5s;\n        .timeout = 2s;\n        \
                 .window = 5;\n        .threshold = 3;\n    }\n",
                "",
            ),
        ],
        listed: &[
            ("/2026/post", 1, Listed::Unsafe),
            ("/private", 1, Listed::Private),
        ],
        requests: &[
            ("GET", HOST, "/", &[]),
            ("GET", HOST, "/", tracked),
            ("GET", HOST, "/2026/post", &[]),
            ("GET", HOST, "/2026/post", user),
            ("GET", HOST, "/2026/post?preview=1", &[]),
            ("GET", HOST, "/2026/post?b=1&a=2", &[]),
            ("GET", HOST, "/2026/post?a=2&b=1", &[]),
            ("GET", HOST, "/2026/post?a=2&utm_source=x&b=1", &[]),
            ("GET", HOST, "/private", &[]),
            ("GET", HOST, "/cookie", &[]),
            ("GET", HOST, "/minute", &[]),
            ("GET", HOST, "/missing", &[]),
            ("POST", HOST, "/2026/post", &[("Content-Length", "0")]),
            ("GET", HOST, "/wp-login.php", &[]),
            ("GET", HOST, "/wp-admin/x", user),
            ("GET", HOST, "/style.css", &[]),
            ("GET", HOST, "/style.css?v=1", tracked),
            ("GET", HOST, "/style.css", user),
            ("GET", HOST, "/cookie.css", &[]),
            ("GET", HOST, "/app.js", &[("Authorization", "Basic x")]),
            ("GET", HOST, "/missing.png", &[]),
            ("GET", HOST, "/cart", &[]),
            ("GET", "blog.example.org:80", "/", &[]),
            ("GET", "other.example", "/", &[]),
            ("DELETE", HOST, "/api", &[]),
        ],
    }
    .compare();
}

#[test]
fn drupal_answers_as_by_varnish() {
    const HOST: &str = "www.drupal.example";
    let session: &[(&str, &str)] = &[("Cookie", "_ga=1; SESSabc=x")];
    let tracked: &[(&str, &str)] = &[("Cookie", "_ga=1; has_js=1")];
    Case {
        name: "drupal.vcl",
        replaced: &[
            (".host = \"10.0.0.11\"; .port = \"80\"; .probe = health;", "{origin}"),
            (".host = \"10.0.0.12\"; .port = \"80\"; .probe = health;", "{origin}"),
            (
                "probe health {\n    .request =\n        \"GET /core/misc/druplicon.png HTTP/1.1\"\n        \
                 \"Host: www.drupal.example\"\n        \"Connection: close\";\n    .interval = 10s;\n    \
                 .timeout = 5s;\n}\n",
                "",
            ),
        ],
        listed: &[("/a.txt?x=1", 1, Listed::Inexact)],
        requests: &[
            ("GET", HOST, "/", &[]),
            ("GET", HOST, "/", tracked),
            ("GET", HOST, "/node/1", &[]),
            ("GET", HOST, "/node/1", session),
            ("GET", HOST, "/node/1?page=2", &[]),
            ("GET", HOST, "/user", &[]),
            ("GET", HOST, "/user/1", tracked),
            ("GET", HOST, "/admin/x", session),
            ("GET", HOST, "/users", &[]),
            ("GET", HOST, "/update.php", &[]),
            ("GET", HOST, "/views/ajax/x", &[]),
            ("GET", HOST, "/a.css", session),
            ("GET", HOST, "/a.css", &[]),
            ("GET", HOST, "/a.PNG", &[]),
            ("GET", HOST, "/a.txt?x=1", tracked),
            ("GET", HOST, "/missing", &[]),
            ("GET", HOST, "/private", &[]),
            ("GET", HOST, "/minute", &[]),
            ("GET", HOST, "/cookie", &[]),
            ("GET", HOST, "/cookie.css", &[]),
            ("GET", HOST, "/node/2", &[("Authorization", "Basic x")]),
            ("PUT", HOST, "/node/3", &[("Content-Length", "0")]),
            ("GET", "other.example", "/node/1", &[]),
            ("GET", HOST, "/flag/x", &[]),
            ("GET", HOST, "/status.php", &[]),
        ],
    }
    .compare();
}

#[test]
fn a_shop_answers_as_by_varnish() {
    const HOST: &str = "shop.example";
    Case {
        name: "shop.vcl",
        replaced: &[
            (".host = \"10.14.0.1\"; .port = \"80\";", "{origin}"),
            (".host = \"10.14.0.2\"; .port = \"80\";", "{origin}"),
        ],
        listed: &[("/item/2", 1, Listed::Authorization)],
        requests: &[
            ("GET", HOST, "/", &[]),
            ("GET", HOST, "/", &[("Cookie", "currency=eur")]),
            ("GET", HOST, "/", &[("Cookie", "a=b; currency=usd")]),
            ("GET", HOST, "/", &[("Cookie", "a=c; currency=usd")]),
            ("GET", HOST, "/", &[("Cookie", "session=1")]),
            ("GET", HOST, "/item/1", &[("Cookie", "other=1")]),
            ("GET", HOST, "/item/1", &[]),
            ("GET", HOST, "/cart", &[]),
            ("GET", HOST, "/cart", &[("Cookie", "currency=eur")]),
            ("GET", HOST, "/checkout/x", &[]),
            ("GET", HOST, "/account", &[]),
            ("GET", HOST, "/cookie", &[]),
            ("GET", HOST, "/private", &[]),
            ("GET", HOST, "/missing", &[]),
            ("POST", HOST, "/form", &[("Content-Length", "0")]),
            ("GET", "www.shop.example", "/a?b=c", &[]),
            ("GET", "static.shop.example", "/app.js", &[]),
            (
                "GET",
                "static.shop.example",
                "/app.js",
                &[("Cookie", "session=1")],
            ),
            ("GET", "static.shop.example", "/private.js", &[]),
            ("GET", "static.shop.example", "/cookie.js", &[]),
            ("GET", "static.shop.example", "/missing.js", &[]),
            ("GET", "unknown.example", "/", &[]),
            ("GET", HOST, "/item/1?x=1", &[]),
            ("GET", HOST, "/item/2", &[("Authorization", "Basic x")]),
            ("GET", HOST, "/item/3", &[("Accept-Language", "de")]),
        ],
    }
    .compare();
}

#[test]
fn a_package_mirror_answers_as_by_varnish() {
    const HOST: &str = "mirror.example";
    Case {
        name: "package-mirror.vcl",
        replaced: &[
            (".host = \"192.0.2.1\"; .port = \"80\";", "{origin}"),
            (".host = \"192.0.2.2\"; .port = \"80\";", "{origin}"),
        ],
        listed: &[("/debian/dists/sid/head", 1, Listed::Head)],
        requests: &[
            ("GET", HOST, "/debian/pool/a.deb", &[]),
            ("GET", HOST, "/debian/pool/a.deb?x=1", &[]),
            ("GET", HOST, "/debian/pool/a.deb", &[("Cookie", "a=b")]),
            (
                "GET",
                HOST,
                "/debian/pool/a.deb",
                &[("Authorization", "Basic x")],
            ),
            ("GET", HOST, "/debian/dists/sid/InRelease", &[]),
            ("GET", HOST, "/debian/dists/sid/private", &[]),
            ("GET", HOST, "/debian/dists/sid/cookie", &[]),
            ("GET", HOST, "/debian/by-hash/x", &[]),
            ("GET", HOST, "/debian/missing.deb", &[]),
            ("HEAD", HOST, "/debian/dists/sid/head", &[]),
            (
                "POST",
                HOST,
                "/debian/pool/a.deb",
                &[("Content-Length", "0")],
            ),
            ("PUT", HOST, "/x", &[("Content-Length", "0")]),
            ("DELETE", HOST, "/debian/pool/a.deb", &[]),
            ("GET", "security.mirror.example", "/debian/pool/a.deb", &[]),
            ("GET", "security.mirror.example", "/debian/pool/b.deb", &[]),
            ("GET", "security.mirror.example", "/InRelease", &[]),
            ("GET", "other.example", "/debian/pool/c.deb", &[]),
            ("GET", HOST, "/", &[]),
            ("GET", HOST, "/minute", &[]),
            ("GET", HOST, "/Release.gpg", &[]),
            ("GET", HOST, "/x.udeb", &[]),
            ("GET", HOST, "/x.tar.xz", &[]),
            ("GET", HOST, "/a%20b", &[]),
            ("GET", HOST, "/a//b", &[]),
            (
                "GET",
                HOST,
                "/debian/pool/a.deb",
                &[("Accept-Language", "de")],
            ),
        ],
    }
    .compare();
}

#[test]
fn an_api_gateway_answers_as_by_varnish() {
    const HOST: &str = "api.example";
    let key: &[(&str, &str)] = &[("X-API-Key", "k")];
    Case {
        name: "api-gateway.vcl",
        replaced: &[
            (".host = \"10.1.0.1\"; .port = \"8000\";", "{origin}"),
            (".host = \"10.1.0.2\"; .port = \"8000\";", "{origin}"),
            (".host = \"10.2.0.1\"; .port = \"8000\";", "{origin}"),
            ("set beresp.ttl = 1s;", "set beresp.ttl = 10m;"),
        ],
        listed: &[
            ("/v1/users/cookie", 1, Listed::SetCookie),
            ("/v1/users/", 1, Listed::Unsafe),
        ],
        requests: &[
            ("GET", HOST, "/v1/users/1", key),
            ("GET", HOST, "/v1/users/1", key),
            ("GET", HOST, "/v1/users/1", &[("X-API-Key", "other")]),
            ("GET", HOST, "/v1/users/1", &[]),
            (
                "GET",
                HOST,
                "/v1/users/1",
                &[("X-API-Key", "k"), ("Authorization", "Bearer x")],
            ),
            ("GET", HOST, "/v1/users/1?b=1&a=2", key),
            ("GET", HOST, "/v1/users/1?a=2&b=1", key),
            ("GET", HOST, "/v1/users/private", key),
            ("GET", HOST, "/v1/users/cookie", key),
            ("GET", HOST, "/v1/users/missing", key),
            ("GET", HOST, "/v1/users/", key),
            ("GET", HOST, "/v1/users", key),
            ("GET", HOST, "/v1/orders/1", &[]),
            ("GET", HOST, "/v1/orders/1", key),
            ("POST", HOST, "/v1/orders/1", &[("Content-Length", "0")]),
            ("DELETE", HOST, "/v1/orders/1", key),
            ("GET", HOST, "/", &[]),
            ("GET", HOST, "/v2/x", key),
            ("GET", HOST, "/v1/users/minute", key),
            ("GET", HOST, "/v1/users/a%20b", key),
            ("GET", "other.example", "/v1/users/1", key),
            (
                "GET",
                HOST,
                "/v1/users/2",
                &[("X-API-Key", "k"), ("Cookie", "a=b")],
            ),
            ("GET", HOST, "/v1/users/2", key),
            (
                "POST",
                HOST,
                "/v1/users/",
                &[("X-API-Key", "k"), ("Content-Length", "0")],
            ),
            ("GET", HOST, "/v1/users/3", key),
        ],
    }
    .compare();
}
