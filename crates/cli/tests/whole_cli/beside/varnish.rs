//! Varnish beside the edge: each VCL of the corpus, made fit for a test by rules.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use edgeward_testkit::programs::{ServerProcess, find_or_skip};

use super::listed::Listed;
use super::requests::Words;
use super::{Listener, Measured, Origins, Program, Side, measure, passing_everything};
use crate::migrate::{corpus, migrate};
use crate::run::{Server, text};

/// A token of VCL: a word, a text or a symbol.
#[derive(Clone, Debug)]
struct Token<'s> {
    kind: Kind,
    /// The word or symbol, or the text without its quotes.
    text: &'s str,
    at: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Word,
    Text,
    Symbol,
}

/// Divides a program into tokens, without comments. Names with dots and hyphens, and numbers with units, are one word.
fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut all = Vec::new();
    let mut at = 0;
    while let Some(first) = source[at..].chars().next() {
        let rest = &source[at..];
        let is_word = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let (kind, length, inner) = match first {
            _ if rest.starts_with("/*") => {
                at += rest.find("*/").expect("the comment ends") + 2;
                continue;
            }
            _ if first == '#' || rest.starts_with("//") => {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            '"' => {
                let length = rest[1..].find('"').expect("the text ends") + 2;
                (Kind::Text, length, 1..length - 1)
            }
            '{' if rest.starts_with("{\"") => {
                let length = rest.find("\"}").expect("the text ends") + 2;
                (Kind::Text, length, 2..length - 2)
            }
            c if is_word(c) => {
                let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                (Kind::Word, length, 0..length)
            }
            c if c.is_whitespace() => {
                at += c.len_utf8();
                continue;
            }
            _ => {
                let operators = ["==", "!=", "!~", "&&", "||", "<=", ">="];
                let length = operators.iter().find(|op| rest.starts_with(**op));
                let length = length.map_or(1, |op| op.len());
                (Kind::Symbol, length, 0..length)
            }
        };
        all.push(Token {
            kind,
            text: &rest[inner],
            at: at..at + length,
        });
        at += length;
    }
    all
}

/// Returns the program with what it includes.
fn read(path: &Path) -> String {
    let source = fs::read_to_string(path).expect("read");
    let lines = source
        .lines()
        .map(|line| match line.strip_prefix("include \"") {
            Some(rest) => {
                let name = rest.split('"').next().unwrap_or_default();
                read(&path.with_file_name("included").join(name))
            }
            None => format!("{line}\n"),
        });
    lines.collect()
}

/// Returns the names of the backends, each with that of its director, which balances requests at random.
fn backends(all: &[Token<'_>]) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for three in all.windows(3) {
        let [first, second, third] = three else {
            continue;
        };
        if first.text == "backend" && third.text == "{" {
            names.insert(second.text.to_owned(), second.text.to_owned());
        } else if let Some(director) = first.text.strip_suffix(".add_backend") {
            names.insert(third.text.to_owned(), director.to_owned());
        }
    }
    names
}

/// Returns the position behind the block that opens at the token `open`.
fn end_of_block(all: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in all.iter().enumerate().skip(open) {
        match (token.kind, token.text) {
            (Kind::Symbol, "{") => depth += 1,
            (Kind::Symbol, "}") => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    all.len()
}

/// Makes a program fit for a test: backends get the addresses of the origins, and no probe sends requests. No lifetime
/// ends during the test, and no client reaches its rate.
fn fit(source: &str, origins: &Origins) -> String {
    let all = tokens(source);
    let names = backends(&all);
    let mut changes: Vec<(Range<usize>, String)> = Vec::new();
    let mut at = 0;
    while at < all.len() {
        let text = |position: usize| all.get(position).map_or("", |token| token.text);
        match (text(at), text(at + 1)) {
            ("backend", name) if text(at + 2) == "{" => {
                let end = end_of_block(&all, at + 2);
                let addr = origins.addr(&names[name]);
                let open = all[at + 2].at.end;
                let (ip, port) = (addr.ip(), addr.port());
                changes.push((
                    open..open,
                    format!(" .host = \"{ip}\"; .port = \"{port}\";"),
                ));
                let mut part = at + 3;
                while part + 1 < end {
                    let value = part + 2;
                    let next = match all[value].kind == Kind::Symbol && text(value) == "{" {
                        true => end_of_block(&all, value),
                        false => (value..end).find(|at| text(*at) == ";").unwrap_or(end) + 1,
                    };
                    if [".host", ".port", ".path", ".probe"].contains(&text(part)) {
                        changes.push((all[part].at.start..all[next - 1].at.end, String::new()));
                    }
                    part = next;
                }
                at = end;
                continue;
            }
            ("probe", _) if text(at + 2) == "{" => {
                let end = end_of_block(&all, at + 2);
                changes.push((all[at].at.start..all[end - 1].at.end, String::new()));
                at = end;
                continue;
            }
            ("beresp.ttl", "=") => {
                let time = text(at + 2);
                let (digits, unit) = time.split_at(time.len() - 1);
                let is_short = unit == "s" || (unit == "m" && digits.len() == 1);
                if is_short && digits != "0" {
                    changes.push((all[at + 2].at.clone(), "10m".to_owned()));
                }
            }
            ("vsthrottle.is_denied", "(") => {
                changes.push((all[at + 4].at.clone(), "600000".to_owned()));
            }
            _ => {}
        }
        at += 1;
    }
    let mut result = source.to_owned();
    for (range, text) in changes.into_iter().rev() {
        result.replace_range(range, &text);
    }
    result
}

/// Collects the words of a program for its requests.
fn collect_words(all: &[Token<'_>], words: &mut Words) {
    for at in 0..all.len() {
        if all[at].kind != Kind::Word {
            continue;
        }
        let token = |offset: usize| all.get(at + offset);
        let Some(value) = token(2).filter(|token| token.kind == Kind::Text) else {
            let name = all[at].text.to_ascii_lowercase();
            let is_condition = at > 0 && matches!(all[at - 1].text, "(" | "!" | "&&" | "||");
            if let Some(field) = name.strip_prefix("req.http.")
                && is_condition
                && field != "cookie"
            {
                words.field(field, "1");
            }
            continue;
        };
        let name = all[at].text.to_ascii_lowercase();
        let name = name.trim_start_matches("be");
        let operator = token(1).map_or("", |token| token.text);
        let is_expression = matches!(operator, "~" | "!~");
        match (name, operator) {
            ("req.url", "==" | "!=") => words.path(value.text),
            ("req.url", "~" | "!~" | ",") => words.url_expression(value.text),
            ("req.http.host", "==" | "!=") => words.host(value.text),
            ("req.http.host", "~" | "!~") => words.host(&format!("~{}", value.text)),
            ("req.method", "==" | "!=") => words.method(value.text),
            ("req.http.cookie", ",") => words.cookie_expression(value.text),
            ("cookie.isset" | "cookie.get", "(") => words.cookie(value.text),
            (name, "==" | "!=" | "~" | "!~") => {
                if let Some(field) = name.strip_prefix("req.http.") {
                    match is_expression {
                        true => words.field_expression(field, value.text),
                        false => words.field(field, value.text),
                    }
                }
            }
            _ => {}
        }
    }
}

/// Sends requests to Varnish with a program, and to the edge with its translation, which `change` changes. Returns
/// `None` without Varnish.
fn measure_beside_varnish(program: &Program, change: fn(&str) -> String) -> Option<Measured> {
    let name = program.name;
    let varnishd = find_or_skip("varnishd")?;
    let path = corpus("vcl")
        .into_iter()
        .find(|path| path.file_stem().is_some_and(|stem| stem == name))
        .expect("the program exists");
    let source = read(&path);
    let all = tokens(&source);
    let names: Vec<String> = backends(&all).into_values().collect();
    let mut words = Words::default();
    words.usual_field = program
        .usual_field
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    collect_words(&all, &mut words);
    // A host that the program does not name.
    words.host("a.example");
    let requests = words.requests();

    let origins = Origins::start(&names);
    let config = fit(&source, &origins);
    let start = |folder: &Path, addr: SocketAddr| {
        let file = folder.join("test.vcl");
        fs::write(&file, &config).expect("written");
        let mut command = Command::new(&varnishd);
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
        // Optimising the program takes longer than the test.
        command.args(["-p", "cc_command=exec gcc -O0 -fpic -shared -o %o %s"]);
        command.args(["-p", "default_ttl=3600"]);
        command.arg("-a").arg(addr.to_string());
        command.arg("-n").arg(folder.join("work"));
        command.arg("-f").arg(file);
        command
    };
    let varnish = ServerProcess::start(&varnishd, start).expect("varnishd starts");
    let listeners = |addr| {
        let listener = Listener {
            addr,
            certificate: None,
        };
        vec![listener]
    };
    let mut of_varnish = Side::new(origins, listeners(varnish.addr()));

    let origins = Origins::start(&names);
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("test.vcl");
    fs::write(&input, fit(&source, &origins)).expect("written");
    let out = folder.path().join("edge.toml");
    let done = migrate(&input, &["--out", &out.display().to_string()]);
    let code = done.status.code();
    assert!(matches!(code, Some(0 | 1)), "{}", text(&done.stderr));
    let toml = fs::read_to_string(&out).expect("read");
    // The default lifetime of Varnish.
    let toml = toml
        .replace("0.0.0.0:80\"", "127.0.0.1:0\"")
        .replace("\"2min\"", "\"1h\"");
    // Varnish believes the X-Forwarded-Proto of any client.
    let toml = format!("{toml}\n[forwarding]\ntrusted_proxies = [\"127.0.0.1\"]\n");
    fs::write(&out, change(&toml)).expect("written");
    let edge = Server::start(&["serve", "--json", "--config", &out.display().to_string()]);
    let mut of_edge = Side::new(origins, listeners(edge.addr("/listening/0")));
    let known = [&Listed::VARNISH[..], program.reasons].concat();
    let sides = (&mut of_varnish, &mut of_edge);
    Some(measure(sides, &known, &requests))
}

/// Compares Varnish with a program with the edge and its translation.
fn compare_with_varnish(program: &Program) {
    if let Some(measured) = measure_beside_varnish(program, str::to_owned) {
        let result = measured.check(program);
        assert!(result.is_ok(), "{}: {}", program.name, result.unwrap_err());
    }
}

/// The program may have requests that are passed because no rule states a condition exactly.
#[test]
fn a_translation_that_passes_everything_lacks_hits() {
    let of_inexact = |program: &&Program| program.reasons.contains(&Listed::Inexact);
    let program = PROGRAMS.iter().find(of_inexact).expect("such a program");
    if let Some(measured) = measure_beside_varnish(program, passing_everything) {
        let error = measured.check(program).expect_err("the hits are too few");
        assert!(error.contains("hits, less than"), "{error}");
    }
}

/// Makes a test of each program with its least percentage of hits and its reasons, and one that no program lacks a
/// test. A program that answers requests without a field itself has the field beside its name.
macro_rules! programs {
    ($($test:ident $name:literal $hits:literal [$($reason:ident)*] $(($field:literal: $value:literal))?)*) => {
        const PROGRAMS: &[Program] = &[$(
            Program {
                name: $name,
                usual_field: [$(($field, $value))?].first().copied(),
                hits_percent: $hits,
                reasons: &[$(Listed::$reason),*],
            },
        )*];

        $(
            #[test]
            fn $test() {
                let program = PROGRAMS.iter().find(|program| program.name == $name);
                compare_with_varnish(program.expect("it is listed"));
            }
        )*

        #[test]
        fn each_program_has_a_test() {
            let stems = corpus("vcl").into_iter().map(|path| {
                path.file_stem().expect("a name").display().to_string()
            });
            let names = [$($name),*];
            assert_eq!(stems.collect::<Vec<_>>(), names);
        }
    };
}

programs! {
    ab_test_answers_alike "ab-test" 80 [Variant]
    api_gateway_answers_alike "api-gateway" 72 [] ("X-API-Key": "k")
    discourse_answers_alike "discourse" 83 []
    drupal_answers_alike "drupal" 83 [Purge Inexact]
    geo_answers_alike "geo" 76 []
    gitlab_answers_alike "gitlab" 91 []
    image_resizer_answers_alike "image-resizer" 95 [Variant]
    joomla_answers_alike "joomla" 82 [Inexact]
    magento_answers_alike "magento" 84 [Purge Inexact]
    maintenance_answers_alike "maintenance" 0 []
    mastodon_answers_alike "mastodon" 87 []
    news_answers_alike "news" 75 []
    nextcloud_answers_alike "nextcloud" 87 [Inexact] ("X-Forwarded-Proto": "https")
    package_mirror_answers_alike "package-mirror" 94 []
    shop_answers_alike "shop" 91 []
    stale_if_error_answers_alike "stale-if-error" 47 [Inexact Variant]
    typo3_answers_alike "typo3" 86 [Variant]
    video_answers_alike "video" 88 []
    wiki_answers_alike "wiki" 93 []
    wordpress_answers_alike "wordpress" 78 []
}
