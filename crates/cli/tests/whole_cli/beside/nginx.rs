//! nginx beside the edge: each configuration of the corpus, made fit for a test by rules.

use std::cell::RefCell;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use edgeward_testkit::programs::{ReservedPort, ServerProcess, find_or_skip};
use rustls_pki_types::CertificateDer;

use super::listed::Listed;
use super::requests::{Request, Words};
use super::{Listener, Measured, Origins, Program, Side, measure, passing_everything};
use crate::migrate::{corpus, migrate};
use crate::run::{Server, text};

/// A directive of a configuration, with its words as written.
#[derive(Clone)]
struct Directive {
    words: Vec<String>,
    block: Option<Vec<Self>>,
}

impl Directive {
    fn name(&self) -> &str {
        &self.words[0]
    }

    fn write(&self, out: &mut String) {
        out.push_str(&self.words.join(" "));
        match &self.block {
            None => out.push_str(";\n"),
            Some(block) => {
                out.push_str(" {\n");
                block.iter().for_each(|directive| directive.write(out));
                out.push_str("}\n");
            }
        }
    }
}

/// Reads directives until the end of a block or of the text.
fn parse(rest: &mut &str) -> Vec<Directive> {
    let mut all = Vec::new();
    let mut words: Vec<String> = Vec::new();
    loop {
        *rest = rest.trim_start();
        let Some(first) = rest.chars().next() else {
            return all;
        };
        match first {
            '#' => *rest = rest.split_once('\n').map_or("", |(_, rest)| rest),
            ';' | '{' | '}' => {
                *rest = &rest[1..];
                match first {
                    '}' => return all,
                    _ => all.push(Directive {
                        words: std::mem::take(&mut words),
                        block: (first == '{').then(|| parse(rest)),
                    }),
                }
            }
            quote @ ('"' | '\'') => {
                let length = rest[1..].find(quote).expect("the quote ends") + 2;
                words.push(rest[..length].to_owned());
                *rest = &rest[length..];
            }
            _ => {
                let mut is_escaped = false;
                let ends = |c: char| {
                    let ends = !is_escaped && (c.is_whitespace() || ";{".contains(c));
                    is_escaped = c == '\\' && !is_escaped;
                    ends
                };
                let length = rest.find(ends).unwrap_or(rest.len());
                words.push(rest[..length].to_owned());
                *rest = &rest[length..];
            }
        }
    }
}

/// Returns the directives of the block `http`.
fn read(path: &Path) -> Vec<Directive> {
    let source = fs::read_to_string(path).expect("read");
    let all = parse(&mut source.as_str());
    let http = all.iter().find(|directive| directive.name() == "http");
    http.and_then(|http| http.block.clone()).unwrap_or(all)
}

fn unquoted(word: &str) -> &str {
    word.trim_matches(['"', '\''])
}

/// The parts of a configuration that depend on the machine.
#[derive(Default)]
struct Surroundings {
    /// The ports of the configuration, and true for those with TLS.
    ports: Vec<(String, bool)>,
    /// The names of the origins: upstreams, and hosts of `proxy_pass`.
    origins: Vec<String>,
    upstreams: Vec<String>,
}

/// Returns the port of an argument of `listen`, or `None` for an address of IPv6, which repeats another one.
fn port(listen: &str) -> Option<&str> {
    let port = listen.rsplit(':').next().unwrap_or_default();
    (!listen.starts_with('[')).then_some(port)
}

/// Returns the host of a URL of `proxy_pass`, or of a variable with a host and a port.
fn origin_of(word: &str) -> Option<&str> {
    let rest = unquoted(word);
    let rest = rest.split_once("://").map_or(rest, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or_default();
    (!host.is_empty() && !host.contains('$')).then_some(host)
}

impl Surroundings {
    fn of(all: &[Directive]) -> Self {
        let mut found = Self::default();
        found.collect(all);
        found.ports.sort_by_key(|(_, has_tls)| *has_tls);
        found
    }

    fn collect(&mut self, all: &[Directive]) {
        for directive in all {
            let mut name_of_origin = None;
            match (directive.name(), &directive.words[1..]) {
                ("listen", [address, rest @ ..]) => {
                    let has_tls = rest.iter().any(|word| word == "ssl");
                    if let Some(port) = port(address).map(str::to_owned)
                        && !self.ports.contains(&(port.clone(), has_tls))
                    {
                        self.ports.push((port, has_tls));
                    }
                }
                ("upstream", [name]) => {
                    self.upstreams.push(name.clone());
                    name_of_origin = Some(name.as_str());
                }
                ("proxy_pass", [url]) => name_of_origin = origin_of(url),
                ("set", [_, value]) if value.contains(':') => name_of_origin = origin_of(value),
                _ => {}
            }
            if let Some(name) = name_of_origin
                && !self.origins.iter().any(|known| known == name)
            {
                self.origins.push(name.to_owned());
            }
            self.collect(directive.block.as_deref().unwrap_or_default());
        }
    }

    /// Makes directives fit for a test with these origins and this folder. `listen` gives the address for a port, or
    /// `None` if the directive stays as it is.
    fn fit(
        &self,
        all: &[Directive],
        origins: &Origins,
        folder: &Path,
        listen: &dyn Fn(&str) -> Option<SocketAddr>,
    ) -> Vec<Directive> {
        let mut result = Vec::new();
        for directive in all {
            let mut directive = directive.clone();
            let here = folder.display();
            let words = &mut directive.words;
            match words[0].clone().as_str() {
                // Files, and names of hosts that do not exist here.
                "include" | "access_log" | "resolver" => continue,
                name if name.starts_with("proxy_ssl_") => continue,
                "listen" => match port(&words[1]) {
                    Some(port) => {
                        if let Some(addr) = listen(port) {
                            words[1] = addr.to_string();
                        }
                        words.retain(|word| word != "http2");
                    }
                    None => continue,
                },
                "upstream" => {
                    let addr = origins.addr(&words[1]);
                    let block = directive.block.as_mut().expect("an upstream has a block");
                    // nginx answers 502 to a POST for which it has chosen a connection that the origin closes.
                    block.retain(|inner| !["server", "keepalive"].contains(&inner.name()));
                    let server = Directive {
                        words: vec!["server".to_owned(), addr.to_string()],
                        block: None,
                    };
                    // The method of balancing may follow a server.
                    block.insert(0, server);
                }
                "proxy_pass" | "set" => {
                    let last = words.last_mut().expect("the directive has a value");
                    *last = last.replace("https://", "http://");
                    if let Some(origin) = origin_of(last).map(str::to_owned)
                        && !self.upstreams.contains(&origin)
                        && self.origins.contains(&origin)
                    {
                        *last = last.replace(&origin, &origins.addr(&origin).to_string());
                    }
                }
                "proxy_cache_path" => {
                    let name = words[1].replace('/', "-");
                    words[1] = format!("{here}/cache{name}");
                    words.retain(|word| !word.starts_with("max_size="));
                    words.push("max_size=64m".to_owned());
                }
                "proxy_cache_valid" => {
                    let last = words.last_mut().expect("the directive has a time");
                    if last.ends_with('s') || *last == "1m" {
                        *last = "10m".to_owned();
                    }
                }
                "limit_req_zone" => words.iter_mut().for_each(|word| {
                    if word.starts_with("rate=") {
                        *word = "rate=10000r/s".to_owned();
                    }
                }),
                "ssl_certificate" => words[1] = format!("{here}/cert.pem"),
                "ssl_certificate_key" => words[1] = format!("{here}/key.pem"),
                "auth_basic_user_file" => words[1] = format!("{here}/htpasswd"),
                _ => {}
            }
            if words[0] != "upstream" {
                directive.block = directive
                    .block
                    .map(|block| self.fit(&block, origins, folder, listen));
            }
            result.push(directive);
        }
        result
    }
}

/// Collects the words of a configuration for its requests.
fn collect_words(all: &[Directive], words: &mut Words) {
    for directive in all {
        let arguments: Vec<&str> = directive.words[1..]
            .iter()
            .map(|word| unquoted(word))
            .collect();
        match (directive.name(), &arguments[..]) {
            ("server_name", names) => names.iter().for_each(|name| words.host(name)),
            ("location", ["~" | "~*", pattern]) => words.url_expression(pattern),
            ("location", [.., path]) if path.starts_with('/') => words.path(path),
            ("rewrite", [pattern, ..]) => words.url_expression(pattern),
            ("proxy_cache_methods" | "limit_except", methods) => {
                methods.iter().for_each(|method| words.method(method));
            }
            ("if", arguments) => {
                let condition = arguments.join(" ");
                let condition = condition.trim_matches(['(', ')']);
                let mut parts = condition.splitn(3, ' ');
                if let (Some(variable), Some(operator), Some(value)) =
                    (parts.next(), parts.next(), parts.next())
                {
                    compared(variable, operator.starts_with('~'), unquoted(value), words);
                }
            }
            ("map", [variable, _]) => {
                for entry in directive.block.iter().flatten() {
                    let value = unquoted(entry.name());
                    match value.strip_prefix("~*").or_else(|| value.strip_prefix('~')) {
                        Some(pattern) => compared(variable, true, pattern, words),
                        None if value != "default" => compared(variable, false, value, words),
                        None => {}
                    }
                }
            }
            _ => {}
        }
        for word in &directive.words {
            for variable in word.split('$').skip(1) {
                let end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
                let name = variable.split(end).next().unwrap_or_default();
                if let Some(cookie) = name.strip_prefix("cookie_") {
                    words.cookie(cookie);
                } else if let Some(parameter) = name.strip_prefix("arg_") {
                    words.parameter(parameter);
                } else if let Some(field) = name.strip_prefix("http_")
                    && field != "cookie"
                {
                    words.field(&field.replace('_', "-"), "1");
                }
            }
        }
        collect_words(directive.block.as_deref().unwrap_or_default(), words);
    }
}

/// Collects the words of a comparison.
fn compared(variable: &str, is_expression: bool, value: &str, words: &mut Words) {
    let name = variable.trim_start_matches('$');
    match (name, is_expression) {
        ("request_method", false) => words.method(value),
        ("host", false) => words.host(value),
        ("request_uri" | "uri", true) => words.url_expression(value),
        (name, is_expression) => {
            if let Some(field) = name.strip_prefix("http_") {
                let field = field.replace('_', "-");
                match is_expression {
                    true => words.field_expression(&field, value),
                    false => words.field(&field, value),
                }
            }
        }
    }
}

/// Sends requests to nginx with a configuration, and to the edge with its translation, which `change` changes. Returns
/// `None` without nginx.
fn measure_beside_nginx(program: &Program, change: fn(&str) -> String) -> Option<Measured> {
    let name = program.name;
    find_or_skip("nginx")?;
    let path = corpus("nginx")
        .into_iter()
        .find(|path| path.file_stem().is_some_and(|stem| stem == name))
        .expect("the configuration exists");
    let all = read(&path);
    let surroundings = Surroundings::of(&all);
    let mut words = Words::default();
    words.listeners = surroundings.ports.len();
    collect_words(&all, &mut words);
    let requests = words.requests();
    let certificate = Certificate::of(&requests);
    let listeners = |addrs: Vec<SocketAddr>| -> Vec<Listener> {
        let with_tls = addrs.into_iter().zip(&surroundings.ports);
        let listener = |(addr, (_, has_tls)): (SocketAddr, &(String, bool))| Listener {
            addr,
            certificate: has_tls.then(|| certificate.der.clone()),
        };
        with_tls.map(listener).collect()
    };

    let origins = Origins::start(&surroundings.origins);
    let further: RefCell<Vec<ReservedPort>> = RefCell::default();
    let nginx = ServerProcess::nginx(|folder, addr| {
        certificate.write(folder);
        let reserved = (1..surroundings.ports.len()).map(|_| ReservedPort::any());
        *further.borrow_mut() = reserved.collect();
        let listen = |port: &str| {
            let of_port = |(known, _): &(String, bool)| known == port;
            let position = surroundings.ports.iter().position(of_port)?;
            match position {
                0 => Some(addr),
                further_position => Some(further.borrow()[further_position - 1].addr()),
            }
        };
        written(&surroundings.fit(&all, &origins, folder, &listen))
    });
    let nginx = nginx?;
    let further = further.into_inner();
    let addrs = std::iter::once(nginx.addr()).chain(further.iter().map(ReservedPort::addr));
    let mut of_nginx = Side::new(origins, listeners(addrs.collect()));

    let origins = Origins::start(&surroundings.origins);
    let folder = tempfile::tempdir().expect("a folder");
    certificate.write(folder.path());
    let input = folder.path().join("nginx.conf");
    let http = written(&surroundings.fit(&all, &origins, folder.path(), &|_| None));
    fs::write(&input, format!("events {{}}\nhttp {{\n{http}}}\n")).expect("written");
    let out = folder.path().join("edge.toml");
    let done = migrate(&input, &["--out", &out.display().to_string()]);
    let code = done.status.code();
    assert!(matches!(code, Some(0 | 1)), "{}", text(&done.stderr));
    let toml = fs::read_to_string(&out).expect("read");
    let mut ports = Vec::new();
    let lines = toml.lines().map(|line| {
        let address = line.strip_prefix("address = \"0.0.0.0:");
        match address.and_then(|rest| rest.split_once('"')) {
            Some((port, rest)) => {
                ports.push(port.to_owned());
                format!("address = \"127.0.0.1:0\"{rest}\n")
            }
            None => format!("{line}\n"),
        }
    });
    let toml: String = lines.collect();
    let toml = toml.replace("\"127.0.0.1:9900\"", "\"127.0.0.1:0\"");
    let toml = change(&toml);
    fs::write(&out, &toml).expect("written");
    let edge = Server::start(&["serve", "--json", "--config", &out.display().to_string()]);
    let addr_of = |(port, _): &(String, bool)| {
        let position = ports.iter().position(|known| known == port);
        let position = position.unwrap_or_else(|| panic!("{port} is no listener of\n{toml}"));
        edge.addr(&format!("/listening/{position}"))
    };
    let addrs = surroundings.ports.iter().map(addr_of).collect();
    let mut of_edge = Side::new(origins, listeners(addrs));
    let sides = (&mut of_nginx, &mut of_edge);
    Some(measure(sides, &Listed::NGINX, &requests))
}

/// Compares nginx with a configuration with the edge and its translation.
fn compare_with_nginx(program: &Program) {
    if let Some(measured) = measure_beside_nginx(program, str::to_owned) {
        let result = measured.check(program);
        assert!(result.is_ok(), "{}: {}", program.name, result.unwrap_err());
    }
}

#[test]
fn a_translation_that_passes_everything_lacks_hits() {
    let program = &PROGRAMS[0];
    if let Some(measured) = measure_beside_nginx(program, passing_everything) {
        let error = measured.check(program).expect_err("the hits are too few");
        assert!(error.contains("hits, less than"), "{error}");
    }
}

fn written(all: &[Directive]) -> String {
    let mut out = String::new();
    all.iter().for_each(|directive| directive.write(&mut out));
    out
}

/// A certificate for the hosts of the requests.
struct Certificate {
    der: CertificateDer<'static>,
    pem: String,
    key_pem: String,
}

impl Certificate {
    fn of(requests: &[Request]) -> Self {
        let mut hosts: Vec<String> = requests
            .iter()
            .map(|request| request.host.clone())
            .collect();
        hosts.sort();
        hosts.dedup();
        let made = rcgen::generate_simple_self_signed(hosts).expect("a certificate");
        Self {
            der: made.cert.der().clone(),
            pem: made.cert.pem(),
            key_pem: made.signing_key.serialize_pem(),
        }
    }

    fn write(&self, folder: &Path) {
        let files = [
            ("cert.pem", &*self.pem),
            ("key.pem", &self.key_pem),
            ("htpasswd", ""),
        ];
        for (name, content) in files {
            fs::write(folder.join(name), content).expect("written");
        }
    }
}

/// Makes a test of each configuration with its least percentage of hits, and one that no configuration lacks a test.
macro_rules! configurations {
    ($($test:ident $name:literal $hits:literal)*) => {
        const PROGRAMS: &[Program] = &[$(
            Program { name: $name, usual_field: None, hits_percent: $hits, reasons: &[] },
        )*];

        $(
            #[test]
            fn $test() {
                let program = PROGRAMS.iter().find(|program| program.name == $name);
                compare_with_nginx(program.expect("it is listed"));
            }
        )*

        #[test]
        fn each_configuration_has_a_test() {
            let stems = corpus("nginx").into_iter().map(|path| {
                path.file_stem().expect("a name").display().to_string()
            });
            let names = [$($name),*];
            assert_eq!(stems.collect::<Vec<_>>(), names);
        }
    };
}

configurations! {
    api_gateway_answers_alike "api-gateway" 80
    discourse_answers_alike "discourse" 80
    django_answers_alike "django" 87
    docker_registry_answers_alike "docker-registry" 80
    drupal_answers_alike "drupal" 91
    gitlab_answers_alike "gitlab" 96
    image_resizer_answers_alike "image-resizer" 87
    jenkins_answers_alike "jenkins" 71
    magento_answers_alike "magento" 87
    mastodon_answers_alike "mastodon" 89
    news_answers_alike "news" 90
    nextcloud_answers_alike "nextcloud" 72
    npm_registry_answers_alike "npm-registry" 76
    package_mirror_answers_alike "package-mirror" 91
    rails_answers_alike "rails" 92
    spa_answers_alike "spa" 81
    tenants_answers_alike "tenants" 83
    video_answers_alike "video" 81
    whole_answers_alike "whole" 83
    wiki_answers_alike "wiki" 83
    wordpress_answers_alike "wordpress" 93
}
