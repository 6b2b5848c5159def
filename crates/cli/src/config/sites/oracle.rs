//! Compares sites with an oracle: random configurations are written as TOML, read by the parser of the file, and
//! evaluated for random requests. The oracle evaluates the same random configuration by a loop over its rules.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use edgeward_sites::{
    DictionaryScope, DiskPlacement, FieldChange, IdFilters, PathReadings, RateKey, RequestView,
    Settings, Stated, StatusMap,
};
use http::Method;
use http::header::{HeaderMap, HeaderValue};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::caching::DURATION_STATUSES;
use super::tests::check_text;

/// A setting of a random rule: its lines in the file, and the keys and values that it states. `None` undoes the values
/// of earlier rules; a key such as `ttl.*` stands for all keys that begin so.
#[derive(Clone, Debug)]
struct DrawnSetting {
    toml: String,
    states: Vec<(String, Option<String>)>,
}

impl DrawnSetting {
    /// The oracle: writes the values of this setting over those of earlier rules.
    fn apply(&self, states: &mut BTreeMap<String, String>) {
        for (key, value) in &self.states {
            match (value, key.strip_suffix('*')) {
                (Some(value), _) => _ = states.insert(key.clone(), value.clone()),
                (None, Some(prefix)) => states.retain(|known, _| !known.starts_with(prefix)),
                (None, None) => _ = states.remove(key),
            }
        }
    }
}

fn setting(toml: String, key: &str, value: impl ToString) -> DrawnSetting {
    DrawnSetting {
        toml,
        states: vec![(key.to_owned(), Some(value.to_string()))],
    }
}

/// The conditions and settings of a random rule. An empty list is no condition.
#[derive(Clone, Debug)]
struct DrawnRule {
    globs: Vec<String>,
    /// Indexes in [`EXPRESSIONS`].
    expressions: Vec<usize>,
    /// Indexes in [`HOST_EXPRESSIONS`].
    host_expressions: Vec<usize>,
    methods: Vec<&'static str>,
    header: Option<Vec<String>>,
    cookies: Vec<String>,
    parameters: Vec<String>,
    /// Indexes in [`NETWORKS`].
    networks: Vec<usize>,
    settings: Vec<DrawnSetting>,
    /// Writes lists with one member as strings.
    plain: bool,
}

#[derive(Clone, Debug)]
struct DrawnRequest {
    method: &'static str,
    host: &'static str,
    path: String,
    parameters: Vec<String>,
    header: Option<String>,
    cookies: Vec<String>,
    client: [u8; 4],
}

/// A regular expression and its meaning.
type Expression = (&'static str, fn(&str) -> bool);

const EXPRESSIONS: [Expression; 4] = [
    ("^/a", |path| path.starts_with("/a")),
    ("b$", |path| path.ends_with('b')),
    ("/b/", |path| path.contains("/b/")),
    ("^/[ab]$", |path| path == "/a" || path == "/b"),
];

const HOST_EXPRESSIONS: [Expression; 3] = [
    ("^a", |host| host.starts_with('a')),
    (r"^[^.]+\.example$", |host| host.matches('.').count() == 1),
    ("b", |host| host.contains('b')),
];

const HOSTS: [&str; 3] = ["a.example", "b.example", "a.b.example"];

/// A network and its meaning.
type Net = (&'static str, fn([u8; 4]) -> bool);

const NETWORKS: [Net; 4] = [
    ("10.0.0.0/8", |address| address[0] == 10),
    ("10.1.0.0/16", |address| address[..2] == [10, 1]),
    ("192.0.2.1", |address| address == [192, 0, 2, 1]),
    ("0.0.0.0/0", |_| true),
];

impl DrawnRule {
    fn toml(&self) -> String {
        let list = |members: Vec<String>| {
            let quoted: Vec<String> = members.iter().map(|text| format!("'{text}'")).collect();
            match &quoted[..] {
                [one] if self.plain => one.clone(),
                _ => format!("[{}]", quoted.join(", ")),
            }
        };
        let owned = |members: &[&str]| members.iter().map(|&text| text.to_owned()).collect();
        let expressions: Vec<&str> = self.expressions.iter().map(|n| EXPRESSIONS[*n].0).collect();
        let hosts = self.host_expressions.iter();
        let hosts: Vec<&str> = hosts.map(|n| HOST_EXPRESSIONS[*n].0).collect();
        let networks: Vec<&str> = self.networks.iter().map(|n| NETWORKS[*n].0).collect();
        let mut text = String::from("[[site.rule]]\n");
        for (key, members) in [
            ("path", self.globs.clone()),
            ("path_regex", owned(&expressions)),
            ("host_regex", owned(&hosts)),
            ("method", owned(&self.methods)),
            ("cookie", self.cookies.clone()),
            ("parameter", self.parameters.clone()),
            ("client", owned(&networks)),
            ("header.X-A", self.header.clone().unwrap_or_default()),
        ] {
            if !members.is_empty() {
                text.push_str(&format!("{key} = {}\n", list(members)));
            }
        }
        for setting in &self.settings {
            text.push_str(&setting.toml);
            text.push('\n');
        }
        text
    }

    /// The oracle: whether the rule applies.
    fn applies(&self, request: &DrawnRequest) -> bool {
        let any = |patterns: &[String], texts: &[String]| {
            patterns.is_empty()
                || patterns.iter().any(|pattern| {
                    texts
                        .iter()
                        .any(|text| glob_matches(pattern.as_bytes(), text.as_bytes()))
                })
        };
        let path = std::slice::from_ref(&request.path);
        let header: Vec<String> = request.header.iter().cloned().collect();
        any(&self.globs, path)
            && (self.expressions.is_empty()
                || self
                    .expressions
                    .iter()
                    .any(|n| EXPRESSIONS[*n].1(&request.path)))
            && (self.host_expressions.is_empty()
                || self
                    .host_expressions
                    .iter()
                    .any(|n| HOST_EXPRESSIONS[*n].1(request.host)))
            && (self.methods.is_empty() || self.methods.contains(&request.method))
            && self
                .header
                .as_ref()
                .is_none_or(|patterns| any(patterns, &header))
            && any(&self.cookies, &request.cookies)
            && any(&self.parameters, &request.parameters)
            && (self.networks.is_empty()
                || self.networks.iter().any(|n| NETWORKS[*n].1(request.client)))
    }
}

/// The literal definition of a glob.
fn glob_matches(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|taken| glob_matches(rest, &text[taken..])),
        Some((byte, rest)) => text.first() == Some(byte) && glob_matches(rest, &text[1..]),
    }
}

fn names() -> impl Strategy<Value = Vec<String>> {
    vec("[ab]{1,2}\\*?|\\*[ab]", 0..3)
}

fn drawn_rule() -> impl Strategy<Value = DrawnRule> {
    let conditions = (
        vec("/[ab]{0,2}\\*?|/[ab]\\*/?[ab]|\\*[ab]|\\*", 0..3),
        (
            subsequence(vec![0, 1, 2, 3], 0..3),
            subsequence(vec![0, 1, 2], 0..3),
        ),
        subsequence(vec!["GET", "POST", "HEAD"], 0..3),
        of(vec("[ab]{1,2}\\*?|\\*", 1..3)),
        (names(), names()),
        subsequence(vec![0, 1, 2, 3], 0..3),
    );
    (conditions, settings(), any::<bool>()).prop_map(
        |((globs, expressions, methods, header, names, networks), settings, plain)| DrawnRule {
            globs,
            expressions: expressions.0,
            host_expressions: expressions.1,
            methods,
            header,
            cookies: names.0,
            parameters: names.1,
            networks,
            settings,
            plain,
        },
    )
}

/// A random set of settings with different keys.
fn settings() -> impl Strategy<Value = Vec<DrawnSetting>> {
    let switches = subsequence(
        vec![
            "pass",
            "compression",
            "query.sort",
            "share_authorized",
            "check_authorization",
            "check_extension",
        ],
        0..7,
    );
    let switches = (switches, any::<u8>()).prop_map(|(keys, bits)| {
        let on = |n: usize| bits >> n & 1 == 1;
        keys.iter()
            .enumerate()
            .map(|(n, key)| setting(format!("{key} = {}", on(n)), key, on(n)))
            .collect::<Vec<_>>()
    });
    let deny = select(vec![
        ("true", "403"),
        ("false", "off"),
        ("404", "404"),
        ("503", "503"),
    ])
    .prop_map(|(toml, value)| setting(format!("deny = {toml}"), "deny", value));
    let dictionary = select(vec![
        ("true", "versions"),
        ("false", "off"),
        ("'/js/*.js'", "/js/*.js"),
    ])
    .prop_map(|(toml, value)| setting(format!("dictionary = {toml}"), "dictionary", value));
    let redirect = (
        select(vec!["/new", "https://${host}/${query}"]),
        of(select(vec![301, 307])),
    )
        .prop_map(|(location, status)| {
            let line = status.map_or(String::new(), |status| {
                format!("\nredirect_status = {status}")
            });
            let value = format!("{} {location}", status.unwrap_or(302));
            setting(format!("redirect = '{location}'{line}"), "redirect", value)
        });
    let no_redirect = Just(setting("redirect = false".to_owned(), "redirect", "off"));
    let answer = (
        select(vec!["", "a"]),
        select(vec![200u16, 203]),
        select(vec!["text/html", "text/plain; charset=utf-8"]),
    )
        .prop_map(|(body, status, kind)| {
            let toml = format!(
                "answer = {{ status = {status}, body = '{body}', content_type = '{kind}' }}"
            );
            setting(toml, "answer", format!("{status} {kind} {body}"))
        });
    let no_answer = Just(setting("answer = false".to_owned(), "answer", "off"));
    let answer = prop_oneof![answer, no_answer];
    let lists = select(vec!["query.keep", "query.drop", "request.only"]);
    let query = (lists, vec("[ab]{1,2}\\*?", 0..3)).prop_map(|(key, names)| {
        let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
        setting(
            format!("{key} = [{}]", quoted.join(",")),
            key,
            names.join(" "),
        )
    });
    let keep_all = select(vec!["query.keep", "request.only"])
        .prop_map(|key| setting(format!("{key} = \"all\""), key, "off"));
    let key = subsequence(
        vec!["device", "cookie:c", "header:x-b", "language:en,de"],
        0..3,
    )
    .prop_map(|classes| setting(format!("key = {classes:?}"), "key", classes.join(" ")));
    let rate = (
        1u32..200,
        select(vec![("s", 1u32), ("min", 60)]),
        of(1u32..9),
    )
        .prop_map(|(requests, (unit, seconds), burst)| {
            let line = burst.map_or(String::new(), |burst| {
                format!("\nrate_limit_burst = {burst}")
            });
            let burst = burst.unwrap_or_else(|| (requests / seconds).max(1));
            let toml = format!("rate_limit = \"{requests}/{unit}\"{line}");
            setting(
                toml,
                "rate_limit",
                format!("{requests} in {seconds} burst {burst}"),
            )
        });
    let no_rate = Just(setting(
        "rate_limit = false".to_owned(),
        "rate_limit",
        "off",
    ));
    let body = select(vec![
        ("'none'", "off"),
        ("0", "0"),
        ("'1.5KB'", "1500"),
        ("'10MB'", "10000000"),
    ])
    .prop_map(|(toml, value)| {
        setting(
            format!("request_body_max = {toml}"),
            "request_body_max",
            value,
        )
    });
    let replace = vec(("[ab]{1,3}", select(vec!["", "c", "${host}"])), 0..3).prop_map(|pairs| {
        let tables = pairs
            .iter()
            .map(|(from, to)| format!("{{ from = '{from}', to = '{to}' }}"));
        let toml = format!("replace = [{}]", tables.collect::<Vec<_>>().join(", "));
        let pairs = pairs.iter().map(|(from, to)| format!("{from}>{to}"));
        setting(toml, "replace", pairs.collect::<Vec<_>>().join(" "))
    });
    let words = |key: &'static str, words: &[&'static str]| {
        let line = move |word: &str| setting(format!("{key} = '{word}'"), key, word);
        of(select(words.to_vec())).prop_map(move |word| word.map(line))
    };
    let tiers = (
        words("memory", &["normal", "never"]),
        words("disk", &["normal", "never", "first-request"]),
        words("id_filter", &["all", "off", "even"]),
    );
    let places = prop_oneof![
        subsequence(vec!["text/*", "*", "a/b"], 0..3).prop_map(|types| setting(
            format!("replace_types = {types:?}"),
            "replace_types",
            types.join(" ")
        )),
        subsequence(vec!["location", "www-authenticate"], 0..3).prop_map(|names| {
            setting(
                format!("replace_fields = {names:?}"),
                "replace_fields",
                names.join(" "),
            )
        }),
    ];
    (
        switches,
        of(deny),
        of(prop_oneof![redirect, no_redirect, answer]),
        of(lifetimes()),
        of(prop_oneof![query, keep_all]),
        of(key),
        of(prop_oneof![rate, no_rate]),
        of(body),
        of(field_changes()),
        (of(replace), of(places), tiers, of(dictionary)),
    )
        .prop_map(
            |(switches, deny, redirect, ttl, query, key, rate, body, fields, others)| {
                let (replace, places, (memory, placement, filter), dictionary) = others;
                let others = [
                    deny, redirect, ttl, query, key, rate, body, fields, replace, places, memory,
                    placement, filter, dictionary,
                ];
                switches
                    .into_iter()
                    .chain(others.into_iter().flatten())
                    .collect()
            },
        )
}

/// `ttl` or `default_ttl`, as one duration, as an inline table or by dotted keys.
fn lifetimes() -> impl Strategy<Value = DrawnSetting> {
    let statuses = vec!["200", "404", "301", "4xx", "5xx"];
    // `None` is `"no-store"`.
    let table = btree_map(select(statuses), of(0u64..99), 1..4);
    let keys = select(vec!["ttl", "default_ttl"]);
    let one = of(0u64..99);
    (
        keys,
        prop_oneof![one.prop_map(Err), table.prop_map(Ok)],
        any::<bool>(),
    )
        .prop_map(|(key, lifetimes, dotted)| match lifetimes {
            Err(None) => DrawnSetting {
                toml: format!("{key} = false"),
                states: vec![(format!("{key}.*"), None)],
            },
            Err(Some(seconds)) => DrawnSetting {
                toml: format!("{key} = \"{seconds}s\""),
                states: DURATION_STATUSES
                    .iter()
                    .map(|status| (format!("{key}.{status}"), Some(seconds.to_string())))
                    .collect(),
            },
            Ok(table) => {
                let written = |secs: &Option<u64>| match secs {
                    Some(secs) => format!("\"{secs}s\""),
                    None => "\"no-store\"".to_owned(),
                };
                let entries = table.iter();
                let toml = if dotted {
                    let lines =
                        entries.map(|(status, secs)| format!("{key}.{status} = {}", written(secs)));
                    lines.collect::<Vec<_>>().join("\n")
                } else {
                    let members =
                        entries.map(|(status, secs)| format!("{status} = {}", written(secs)));
                    format!("{key} = {{ {} }}", members.collect::<Vec<_>>().join(", "))
                };
                let state = |(status, secs): (&&str, &Option<u64>)| {
                    let text = secs.map_or("no-store".to_owned(), |secs| secs.to_string());
                    (format!("{key}.{status}"), Some(text))
                };
                DrawnSetting {
                    toml,
                    states: table.iter().map(state).collect(),
                }
            }
        })
}

/// Changes of fields of one message, at most one of each field.
fn field_changes() -> impl Strategy<Value = DrawnSetting> {
    let messages = select(vec!["request", "origin_response", "response"]);
    let names = vec!["x-a", "x-b", "x-c"];
    let changes = btree_map(
        select(names),
        select(vec!["set", "add", "remove", "keep"]),
        1..4,
    );
    (messages, changes, "[a-z]{1,3}").prop_map(|(message, changes, value)| {
        let mut lines = Vec::new();
        let mut lists: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let mut states = Vec::new();
        for (name, change) in &changes {
            let state = match *change {
                list @ ("remove" | "keep") => {
                    let name = format!("\"{}\"", name.to_ascii_uppercase());
                    lists.entry(list).or_default().push(name);
                    (list == "remove").then(|| list.to_owned())
                }
                change => {
                    lines.push(format!(
                        "{message}.{change}.{name} = \"{value}${{scheme}}\""
                    ));
                    Some(format!("{change} {value}${{scheme}}"))
                }
            };
            states.push((format!("{message}.{name}"), state));
        }
        for (list, names) in lists {
            lines.push(format!("{message}.{list} = [{}]", names.join(", ")));
        }
        DrawnSetting {
            toml: lines.join("\n"),
            states,
        }
    })
}

fn drawn_request() -> impl Strategy<Value = DrawnRequest> {
    (
        (
            select(vec!["GET", "POST", "HEAD", "PUT"]),
            select(HOSTS.to_vec()),
        ),
        "/|(/[ab]{1,2}){1,3}",
        vec("[ab]{1,3}", 0..3),
        of("[ab]{1,3}"),
        vec("[ab]{1,3}", 0..3),
        select(vec![
            [10, 1, 2, 3],
            [10, 9, 9, 9],
            [192, 0, 2, 1],
            [203, 0, 113, 5],
        ]),
    )
        .prop_map(
            |((method, host), path, parameters, header, cookies, client)| DrawnRequest {
                method,
                host,
                path,
                parameters,
                header,
                cookies,
                client,
            },
        )
}

/// The settings as keys and values, in the form that the oracle has.
fn states_of(settings: &Settings) -> BTreeMap<String, String> {
    let mut states = BTreeMap::new();
    let mut add = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            states.insert(key.to_owned(), value);
        }
    };
    let switch = |on: Option<bool>| on.map(|on| on.to_string());
    add("pass", switch(settings.pass));
    add("compression", switch(settings.compression));
    add("query.sort", switch(settings.query_sort));
    add("share_authorized", switch(settings.share_authorized));
    add("check_authorization", switch(settings.check_authorization));
    add("check_extension", switch(settings.check_extension));
    let replace = settings.replace.as_ref().map(|list| {
        let pairs = list.iter().map(|pair| format!("{}>{}", pair.from, pair.to));
        pairs.collect::<Vec<_>>().join(" ")
    });
    add("replace", replace);
    let memory = settings.memory;
    add(
        "memory",
        memory.map(|stores| if stores { "normal" } else { "never" }.to_owned()),
    );
    let disk = settings.disk.map(|placement| match placement {
        DiskPlacement::Normal => "normal",
        DiskPlacement::Never => "never",
        DiskPlacement::FirstRequest => "first-request",
    });
    add("disk", disk.map(str::to_owned));
    let filters = settings.id_filters.as_ref().map(|filters| match filters {
        IdFilters::All => "all".to_owned(),
        IdFilters::Off => "off".to_owned(),
        IdFilters::Named(name) => name.to_string(),
    });
    add("id_filter", filters);
    let types = settings.replace_types.as_ref().map(|types| {
        let types: Vec<String> = types.iter().map(ToString::to_string).collect();
        types.join(" ")
    });
    add("replace_types", types);
    let fields = settings.replace_fields.as_ref().map(|names| {
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        names.join(" ")
    });
    add("replace_fields", fields);
    let status = |status: &http::StatusCode| status.as_u16().to_string();
    add("deny", stated_text(&settings.deny, status));
    let scope = |scope: &DictionaryScope| match scope {
        DictionaryScope::Versions => "versions".to_owned(),
        DictionaryScope::Pattern(pattern) => pattern.to_string(),
    };
    add("dictionary", stated_text(&settings.dictionary, scope));
    let redirect = stated_text(&settings.redirect, |redirect| {
        format!("{} {}", redirect.status.as_u16(), redirect.location)
    });
    add("redirect", redirect);
    let answer = stated_text(&settings.answer, |answer| {
        let (page, status) = (&answer.page, answer.status.as_u16());
        let body = String::from_utf8_lossy(&page.body);
        format!("{status} {} {body}", page.content_type)
    });
    add("answer", answer);
    let joined = |names: &[edgeward_types::Pattern]| {
        let names: Vec<&str> = names.iter().map(edgeward_types::Pattern::as_str).collect();
        names.join(" ")
    };
    for (key, keep) in [
        ("query.keep", &settings.query_keep),
        ("request.only", &settings.request_only),
    ] {
        add(key, stated_text(keep, |keep| joined(keep)));
    }
    add("query.drop", settings.query_drop.as_deref().map(joined));
    let key = settings.key.as_ref().map(|classes| {
        let classes: Vec<String> = classes.iter().map(ToString::to_string).collect();
        classes.join(" ")
    });
    add("key", key);
    let rate = stated_text(&settings.rate_limit, |limit| {
        assert_eq!(limit.by, RateKey::Client);
        format!(
            "{} in {} burst {}",
            limit.requests,
            limit.per.as_secs(),
            limit.burst
        )
    });
    add("rate_limit", rate);
    let body = stated_text(&settings.request_body_max, |max| max.bytes().to_string());
    add("request_body_max", body);
    let lifetimes = |map: &StatusMap<Option<std::time::Duration>>| {
        let entries = map.iter();
        entries
            .map(|(set, time)| {
                let text = time.map_or("no-store".to_owned(), |time| time.as_secs().to_string());
                (set.to_string(), text)
            })
            .collect::<Vec<_>>()
    };
    for (key, map) in [
        ("ttl", &settings.ttl),
        ("default_ttl", &settings.default_ttl),
    ] {
        for (status, seconds) in lifetimes(map) {
            add(&format!("{key}.{status}"), Some(seconds));
        }
    }
    for (message, changes) in [
        ("request", &settings.request),
        ("origin_response", &settings.origin_response),
        ("response", &settings.response),
    ] {
        for (name, change) in changes.iter() {
            let change = match change {
                FieldChange::Set(value) => format!("set {value}"),
                FieldChange::Add(value) => format!("add {value}"),
                FieldChange::Remove => "remove".to_owned(),
            };
            add(&format!("{message}.{name}"), Some(change));
        }
    }
    states
}

proptest! {
    /// Method: a random site is written as a file and read by the parser of the file. For random requests, the settings
    /// of the rules that apply must be those of a loop that overwrites a map.
    #[test]
    fn a_file_means_what_a_loop_over_its_rules_says(
        own in settings(),
        rules in vec(drawn_rule(), 0..12),
        requests in vec(drawn_request(), 1..12),
    ) {
        let mut text = String::from(
            "[[listener]]\naddress = '127.0.0.1:0'\n[origin]\nurl = 'http://127.0.0.1:9'\n\
             [[negative]]\nname = 'even'\npath = '/r/{id}'\nfilter = 'https://127.0.0.1:9/sets/even'\n\
             max_staleness = '10s'\n[[site]]\nhosts = '*'\n",
        );
        for setting in &own {
            text.push_str(&setting.toml);
            text.push('\n');
        }
        for rule in &rules {
            text.push_str(&rule.toml());
        }
        let config = check_text(&text, Path::new("")).map_err(|errors| {
            TestCaseError::fail(format!("{errors}\n{text}"))
        })?;
        let sites = &config.edge.sites;
        let site = sites.site(sites.find("any.example").expect("the site serves all hosts"));
        for request in &requests {
            let mut expected = BTreeMap::new();
            let applied = rules.iter().filter(|rule| rule.applies(request));
            let settings = applied.flat_map(|rule| &rule.settings);
            for setting in own.iter().chain(settings) {
                setting.apply(&mut expected);
            }
            let mut fields = HeaderMap::new();
            for (name, value) in [("x-a", request.header.clone()), ("cookie", cookies(request))] {
                if let Some(value) = value {
                    fields.insert(name, HeaderValue::try_from(value).expect("a value"));
                }
            }
            let view = RequestView {
                method: &Method::from_bytes(request.method.as_bytes()).expect("a method"),
                scheme: "https",
                host: request.host,
                path: &PathReadings::of(&request.path),
                sent_path: &request.path,
                query: &request.parameters.join("=1&"),
                fields: &fields,
                client: IpAddr::V4(Ipv4Addr::from(request.client)),
            };
            let settings = site.settings_of(&site.applying(&view));
            prop_assert_eq!(states_of(&settings), expected, "{:?}\n{}", request, text);
        }
    }
}

fn cookies(request: &DrawnRequest) -> Option<String> {
    let pairs: Vec<String> = request
        .cookies
        .iter()
        .map(|name| format!("{name}=1"))
        .collect();
    (!pairs.is_empty()).then(|| pairs.join("; "))
}

/// Returns the text of a setting that a rule states.
fn stated_text<T>(setting: &Stated<T>, text: impl FnOnce(&T) -> String) -> Option<String> {
    match setting {
        Stated::Unstated => None,
        Stated::Off => Some("off".to_owned()),
        Stated::On(value) => Some(text(value)),
    }
}
