//! Reads the rules of a result and applies them to requests, as the edge does: the last rule whose conditions hold
//! counts, key by key, and a denial precedes a redirect, and this one the origin.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use regex::Regex;

/// A request: method, path, query, fields and the address of the client.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) client: Ipv4Addr,
}

impl Request {
    /// Reads a request such as `PUT /a?b=c X-Token:x from:10.0.0.1`.
    pub(crate) fn of(text: &str) -> Self {
        let mut request = Self {
            method: "GET".to_owned(),
            path: String::new(),
            query: String::new(),
            fields: Vec::new(),
            client: Ipv4Addr::new(192, 0, 2, 1),
        };
        for word in text.split(' ') {
            if word.starts_with('/') {
                let (path, query) = word.split_once('?').unwrap_or((word, ""));
                (request.path, request.query) = (path.to_owned(), query.to_owned());
            } else if let Some(client) = word.strip_prefix("from:") {
                request.client = client.parse().expect("an address");
            } else if let Some((name, value)) = word.split_once(':') {
                let field = (name.to_ascii_lowercase(), value.to_owned());
                request.fields.push(field);
            } else {
                request.method = word.to_owned();
            }
        }
        request
    }
}

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The origin that gets the request, and the path that it gets. `None` if the edge answers itself.
    pub(crate) origin: Option<(String, String)>,
    /// The response may be stored.
    pub(crate) is_cached: bool,
}

/// The rules of a site. The first one has no conditions.
#[derive(Debug)]
pub(crate) struct Rules(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    /// The values of all keys.
    settings: BTreeMap<String, Vec<String>>,
    /// The expressions of `path_regex`.
    regexes: Vec<Regex>,
}

impl Rules {
    /// Reads the rules of the site with this host.
    pub(crate) fn of(toml: &str, host: &str) -> Self {
        let is_of_host = |part: &&str| {
            let hosts = part.lines().find(|line| line.starts_with("hosts = "));
            hosts.is_some_and(|line| line.contains(&format!("\"{host}\"")))
        };
        let site = toml.split("[[site]]\n").find(is_of_host);
        let tables = site.expect("the site").split("[[site.rule]]\n");
        let rule = |text: &str| {
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            let settings = lines.filter_map(|line| line.split_once(" = "));
            let settings: BTreeMap<_, _> = settings
                .map(|(key, value)| (key.to_owned(), values(value)))
                .collect();
            let regexes = settings.get("path_regex").into_iter().flatten();
            let regexes = regexes.map(|text| Regex::new(text).expect(text)).collect();
            Rule { settings, regexes }
        };
        Self(tables.map(rule).collect())
    }

    /// Returns the answer to a request by http.
    pub(crate) fn answer(&self, request: &Request) -> Answer {
        let mut stated: BTreeMap<&str, (&str, Vec<String>)> = BTreeMap::new();
        for rule in &self.0 {
            let Some(groups) = holds(rule, request) else {
                continue;
            };
            for (key, values) in &rule.settings {
                stated.insert(key, (values.first().map_or("", |v| v), groups.clone()));
            }
        }
        let get = |key: &str| {
            let value = stated.get(key).filter(|(value, _)| *value != "false");
            value.map(|(value, groups)| ((*value).to_owned(), groups.clone()))
        };
        if ["deny", "redirect", "answer"]
            .iter()
            .any(|key| get(key).is_some())
        {
            return Answer::default();
        }
        let path = match get("rewrite") {
            None => request.path.clone(),
            Some((target, groups)) => {
                let path = target.split('?').next().unwrap_or_default();
                let group = groups.get(1).map_or("", String::as_str);
                path.replace("${1}", group)
                    .replace("${path}", &request.path)
            }
        };
        Answer {
            origin: get("origin").map(|(origin, _)| (origin, path)),
            is_cached: get("pass").is_none(),
        }
    }
}

/// Returns the strings of a value, or its only word.
fn values(text: &str) -> Vec<String> {
    let text = text.split("    # from ").next().unwrap_or_default();
    let mut strings = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(['"', '\'']) {
        let quote = &rest[start..=start];
        let inner = &rest[start + 1..];
        let end = inner.find(quote).expect("the end of a string");
        strings.push(inner[..end].to_owned());
        rest = &inner[end + 1..];
    }
    match strings.is_empty() {
        true => vec![text.trim().to_owned()],
        false => strings,
    }
}

/// Returns the groups of the expression of a rule if its conditions hold.
fn holds(rule: &Rule, request: &Request) -> Option<Vec<String>> {
    for (key, values) in &rule.settings {
        let any = |test: &dyn Fn(&str) -> bool| values.iter().any(|value| test(value));
        let is_match = match key.as_str() {
            "path" => any(&|glob| is_glob(glob, &request.path)),
            "path_regex" => rule
                .regexes
                .iter()
                .any(|regex| regex.is_match(&request.path)),
            // A request without a host is one of each host of the site.
            "host_regex" => {
                let mut fields = request.fields.iter();
                fields
                    .find(|(name, _)| name == "host")
                    .is_none_or(|(_, host)| {
                        any(&|regex| Regex::new(regex).expect(regex).is_match(host))
                    })
            }
            "method" => any(&|method| method == request.method),
            "scheme" => any(&|scheme| scheme == "http"),
            "client" => any(&|network| is_in(network, request.client)),
            "parameter" => any(&|name| {
                let parameters = request.query.split('&').filter(|part| !part.is_empty());
                parameters
                    .map(|part| part.split('=').next().unwrap_or_default())
                    .any(|known| is_glob(name, known))
            }),
            key if key.starts_with("header.") => request
                .fields
                .iter()
                .any(|(name, value)| key[7..] == **name && any(&|glob| is_glob(glob, value))),
            _ => true,
        };
        if !is_match {
            return None;
        }
    }
    let [regex] = &rule.regexes[..] else {
        return Some(Vec::new());
    };
    let captures = regex.captures(&request.path).expect("a match");
    let texts = captures
        .iter()
        .map(|group| group.map_or("", |g| g.as_str()));
    Some(texts.map(str::to_owned).collect())
}

fn is_in(network: &str, client: Ipv4Addr) -> bool {
    let (address, length) = network.split_once('/').unwrap_or((network, "32"));
    let Ok(address) = address.parse::<Ipv4Addr>() else {
        return false;
    };
    let shift = 32 - length.parse::<u32>().expect("a length");
    let bits = |address: Ipv4Addr| u32::from(address).checked_shr(shift).unwrap_or(0);
    bits(address) == bits(client)
}

/// Compares a text with a glob, in which `*` stands for any text.
pub(crate) fn is_glob(glob: &str, text: &str) -> bool {
    match glob.split_once('*') {
        None => glob == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            text.char_indices()
                .map(|(at, _)| at)
                .chain([text.len()])
                .any(|at| is_glob(rest, &text[at..]))
        }),
    }
}
