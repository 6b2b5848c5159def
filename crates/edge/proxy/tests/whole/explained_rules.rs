//! `edgeward explain` compared with what requests then do, over random sites and rules.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Answer, Client, TestBed};
use bytes::Bytes;
use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::{OriginConfig, Token};
use edgeward_semantics::ClientDirectives;
use edgeward_sites::{
    Class, Condition, DiskPlacement, FieldChange, FieldCondition, FixedAnswer, HostPattern,
    IdFilters, Page, PathPattern, Redirect, Replacement, Replacements, Rule, Settings, Site, Sites,
    Stated, StatusSet, Template,
};
use edgeward_testkit::{Answer as OriginAnswer, RecordedRequest, ScriptedOrigin};
use edgeward_types::{ByteSize, Pattern, SplitMix64};
use http::{HeaderName, Method, StatusCode};
use serde_json::{Value, json};

const TOKEN: &str = "correct-horse-battery";

/// Method: 40 random configurations, one after the other, in one edge that keeps its stored responses; 60
/// random requests for each, of which half repeat the one before. Before a request, the edge explains it. The
/// explanation must predict
///
/// - the status and the location of each answer that the edge gives itself,
/// - hit or reason of forwarding, and the remaining lifetime of a hit,
/// - the target, the origin and the fields that the origin gets,
/// - the fields and the error page that the client gets.
///
/// The test prints the seed and the case that fails.
#[test]
fn an_explanation_predicts_the_effect_of_rules() {
    let origins = [ScriptedOrigin::start(), ScriptedOrigin::start()];
    for origin in &origins {
        origin.otherwise(origin_answer);
    }
    let [first, second] = origins;
    let url = format!("http://{}", second.addr()).parse().expect("a URL");
    let bed = TestBed::with_origin(first, |config| {
        config.purge.token = Token::new(TOKEN).ok();
        config.caching.rules.client_directives = ClientDirectives::Honour;
        config.compression.enabled = false;
        config.origins[0].name = "first".to_owned();
        let second = OriginConfig::new(url);
        config.origins.push(second);
        config.origins[1].name = "second".to_owned();
    });
    let mut counts = BTreeMap::new();
    for seed in 0..40 {
        let mut random = SplitMix64(seed);
        let reloader = bed.edge.reloader();
        let mut config: EdgeConfig = reloader.config();
        config.sites = Arc::new(random_sites(&mut random));
        reloader
            .reload(&config)
            .expect("the configuration is valid");
        let mut request = RandomRequest::draw(&mut random);
        for case in 0..60 {
            if random.below(2) == 0 {
                request = RandomRequest::draw(&mut random);
            }
            let shown = format!("seed {seed}, case {case}: {request:?}");
            let explained = explain(&bed, &request);
            let before = [bed.origin.requests_total(), second.requests_total()];
            let answer = request.send(&bed);
            let shown = format!("{shown}\n{answer:?}\n{explained:#}\n{:#?}", config.sites);
            let forwarded = [&bed.origin, &second]
                .iter()
                .zip(before)
                .enumerate()
                .find_map(|(n, (origin, before))| {
                    Some((n, origin.recorded().get(before)?.clone()))
                });
            compare(
                &request,
                &Explanation(&explained),
                &answer,
                forwarded,
                &shown,
            );
            let outcome = explained["cache_status"].as_str().unwrap_or("none");
            let outcome = outcome.split("; ").nth(1).unwrap_or(outcome);
            *counts.entry(outcome.to_owned()).or_insert(0) += 1;
            *counts
                .entry(format!("status {}", answer.status))
                .or_insert(0) += 1;
            for step in explained["steps"].as_array().expect("a list") {
                let step = step["step"].as_str().expect("text");
                *counts.entry(format!("step {step}")).or_insert(0) += 1;
            }
            bed.wait_until("no fetch is under way", |status| {
                status["fills"]["under_way"] == 0
            });
        }
    }
    eprintln!("{counts:#?}");
    for expected in [
        "hit",
        "none",
        "fwd=uri-miss",
        "fwd=vary-miss",
        "fwd=stale",
        "fwd=request",
        "fwd=method",
        "fwd=bypass",
        "step class",
        "step rewrite",
        "step answer",
        "step origin field",
        "step answer field",
        "step error page",
        "step body limit",
        "step origin fields",
        "step authorization",
        "step extension",
        "step memory",
        "step replace",
        "status 413",
    ] {
        assert!(counts.contains_key(expected), "{expected} did not occur");
    }
}

/// An explanation, with functions that read its steps.
struct Explanation<'a>(&'a Value);

impl Explanation<'_> {
    fn decisions<'b>(&'b self, name: &'b str) -> impl Iterator<Item = &'b str> {
        let steps = self.0["steps"].as_array().expect("a list");
        let steps = steps.iter().filter(move |step| step["step"] == name);
        steps.map(|step| step["decision"].as_str().expect("text"))
    }

    fn decision<'b>(&'b self, name: &'b str) -> Option<&'b str> {
        self.decisions(name).next()
    }

    /// Returns true if a list of the fields that remain does not have this one.
    fn removes_from_request(&self, name: &str) -> bool {
        self.decision("origin fields").is_some_and(|text| {
            let mut names = text.trim_start_matches("only ").split(", ");
            !names.any(|pattern| Pattern::new(pattern).matches(name.as_bytes()))
        })
    }

    /// Returns the lines of a field after the predicted changes, if it has these lines before.
    fn changed<'b>(&'b self, step: &'b str, name: &str, before: &[&'b str]) -> Vec<&'b str> {
        let mut lines = before.to_vec();
        for decision in self.decisions(step) {
            let (change, field) = decision.split_once(' ').expect("a change and a field");
            let (changed, value) = field.split_once(": ").unwrap_or((field, ""));
            if changed == name {
                match change {
                    "set" => lines = vec![value],
                    "add" => lines.push(value),
                    _ => lines.clear(),
                }
            }
        }
        lines
    }
}

fn compare(
    request: &RandomRequest,
    explained: &Explanation<'_>,
    answer: &Answer,
    forwarded: Option<(usize, RecordedRequest)>,
    shown: &str,
) {
    let status = explained.0["status"].as_u64();
    if let Some(status) = status {
        assert_eq!(status, u64::from(answer.status), "{shown}");
    }
    // Hit or reason of forwarding, and the remaining lifetime.
    let predicted = explained.0["cache_status"].as_str().unwrap_or_default();
    let actual = answer.cache_status();
    let outcome = |text: &str| {
        let outcome = text.split("; ").nth(1).unwrap_or_default();
        outcome.to_owned()
    };
    if predicted.is_empty() {
        assert!(
            !actual.contains("hit") && !actual.contains("fwd="),
            "{shown}"
        );
    } else {
        assert_eq!(outcome(predicted), outcome(actual), "{shown}");
    }
    let is_hit = outcome(predicted) == "hit";
    if is_hit {
        let ttl = |text: &str| {
            let ttl = text.split("; ").find_map(|part| part.strip_prefix("ttl="));
            ttl.and_then(|ttl| ttl.parse::<i64>().ok())
                .expect("a hit has a ttl")
        };
        assert!((ttl(predicted) - ttl(actual)).abs() <= 2, "{shown}");
    }
    // The location of a redirect.
    let location = explained.decision("answer").and_then(|text| {
        let text = text.strip_prefix("redirect to ")?;
        Some(text.rsplit_once(": ")?.0)
    });
    assert_eq!(answer.header("location"), location, "{shown}");
    // The request that the origin gets.
    let is_forwarded = predicted.contains("fwd=") && status.is_none();
    if is_forwarded {
        let (origin, sent) =
            forwarded.unwrap_or_else(|| panic!("no request was forwarded: {shown}"));
        let name = explained.decision("origin").expect("an origin");
        assert_eq!(name, ["first", "second"][origin], "{shown}");
        let url = explained.decision("request").expect("a request");
        let target = url
            .split_once("://")
            .and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..]));
        let target = explained.decision("rewrite").or(target);
        assert_eq!(Some(sent.target()), target, "{shown}");
        for name in REQUEST_FIELDS {
            let received: Vec<&str> = sent.headers_named(name).collect();
            let mut before = request.lines(name);
            if explained.removes_from_request(name) {
                before.clear();
            }
            assert_eq!(
                received,
                explained.changed("origin field", name, &before),
                "{name}: {shown}"
            );
        }
    } else if status.is_some() && !is_hit {
        assert!(forwarded.is_none(), "{shown}");
    }
    // The response that the client gets.
    let is_of_origin = is_hit || is_forwarded;
    let page = explained.decision("error page");
    for name in RESPONSE_FIELDS {
        let received = answer
            .headers
            .iter()
            .filter(|(key, _)| key.eq_ignore_ascii_case(name));
        let received: Vec<&str> = received.map(|(_, value)| value.as_str()).collect();
        let before: &[&str] = if is_of_origin { &["origin"] } else { &[] };
        let before = explained.changed("stored field", name, before);
        let before = if is_of_origin { before } else { Vec::new() };
        // A stored response has the fields of an earlier configuration, also if the origin fails to validate it.
        if !explained.0["stored"].is_null() || answer.status == 304 {
            if explained
                .decisions("answer field")
                .any(|text| text.contains(name))
            {
                let set = explained.changed("answer field", name, &[]);
                assert!(
                    set.iter().all(|line| received.contains(line)),
                    "{name}: {shown}"
                );
            }
            continue;
        }
        assert_eq!(
            received,
            explained.changed("answer field", name, &before),
            "{name}: {shown}"
        );
    }
    if let Some(page) = page {
        assert!(page.contains(&answer.status.to_string()), "{shown}");
        if request.method != Method::HEAD {
            assert_eq!(answer.text(), "page", "{shown}");
        }
    } else if status.is_some_and(|status| status >= 400) && !is_hit {
        assert_ne!(answer.text(), "page", "{shown}");
    }
}

/// A request that a test sends.
#[derive(Debug)]
struct RandomRequest {
    method: Method,
    host: &'static str,
    target: String,
    fields: Vec<(&'static str, &'static str)>,
}

impl RandomRequest {
    fn draw(random: &mut SplitMix64) -> Self {
        let method = pick(
            random,
            &[
                Method::GET,
                Method::GET,
                Method::GET,
                Method::GET,
                Method::HEAD,
                Method::POST,
            ],
        );
        let path = pick(random, &PATHS);
        let query = pick(random, &QUERIES);
        let mut fields = Vec::new();
        while random.below(2) == 0 && fields.len() < 4 {
            let field = pick(random, &CLIENT_FIELDS);
            if !fields.iter().any(|(name, _)| *name == field.0) {
                fields.push(field);
            }
        }
        if method == Method::POST {
            fields.push(("content-length", pick(random, &["0", "0", "3", "101"])));
        }
        Self {
            method,
            host: pick(
                random,
                &["a.example", "a.example", "www.b.example", "other.example"],
            ),
            target: format!("{path}{query}"),
            fields,
        }
    }

    fn lines(&self, name: &str) -> Vec<&str> {
        let fields = self.fields.iter().filter(|(field, _)| *field == name);
        fields.map(|(_, value)| *value).collect()
    }

    fn send(&self, bed: &TestBed) -> Answer {
        let mut fields = vec![("host", self.host)];
        fields.extend(&self.fields);
        let length = self.lines("content-length").first().copied();
        let length = length.map_or(0, |text| text.parse().expect("a number"));
        let body = vec![b'a'; length];
        bed.connect()
            .request(self.method.as_str(), &self.target, &fields, &body)
    }
}

fn explain(bed: &TestBed, request: &RandomRequest) -> Value {
    let question = json!({
        "url": format!("http://{}{}", request.host, request.target),
        "method": request.method.as_str(),
        "headers": request.fields,
    });
    let question = question.to_string();
    let authorization = format!("Bearer {TOKEN}");
    let length = question.len().to_string();
    let fields = [
        ("authorization", &*authorization),
        ("content-length", &*length),
    ];
    let admin = bed.edge.admin_addr().expect("configured");
    let answer = Client::connect(admin).request("POST", "/explain", &fields, question.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_slice(&answer.body).expect("JSON")
}

/// Answers by the path: with or without a lifetime, as an error, or depending on a field.
fn origin_answer(request: &RecordedRequest) -> OriginAnswer {
    let path = request.path();
    let status = match path {
        "/missing" => 404,
        "/broken" => 500,
        _ => 200,
    };
    let mut answer = OriginAnswer::ok(format!("{} {}", request.method(), request.target()))
        .with_status(status)
        .header("etag", "\"a\"");
    for name in RESPONSE_FIELDS {
        answer = answer.header(name, "origin");
    }
    if path.starts_with("/vary") {
        answer = answer.header("vary", "accept-language");
    }
    match path.len() % 3 {
        0 => answer.header("cache-control", "max-age=600"),
        1 => answer,
        _ => answer
            .header("cache-control", "no-cache")
            .header("set-cookie", "a=b"),
    }
}

fn random_sites(random: &mut SplitMix64) -> Sites {
    let mut sites = Sites::default();
    for host in ["a.example", "*.b.example"] {
        let settings = match random.below(3) {
            0 => random_settings(random),
            _ => Settings::default(),
        };
        let rules = (0..random.below(6)).map(|n| Rule {
            condition: random_condition(random),
            settings: random_settings(random),
            line: 10 + n as usize,
        });
        let site = Site::new(host, settings).with_rules(rules.collect());
        let pattern: HostPattern = host.parse().expect("a host");
        sites
            .add(site.expect("few rules"), &[pattern], false)
            .expect("distinct hosts");
    }
    sites
}

fn random_condition(random: &mut SplitMix64) -> Condition {
    let mut condition = Condition::default();
    let glob = |text: &str| PathPattern::glob(text).expect("a glob");
    match random.below(4) {
        0 => condition.paths = vec![glob(pick(random, &GLOBS))],
        1 => condition.paths = vec![glob(pick(random, &GLOBS)), glob(pick(random, &GLOBS))],
        2 => {
            let regex = PathPattern::regex(r"^/(va?r?y?|api)/?(.*)$").expect("a regex");
            condition.path_regexes = vec![regex];
        }
        _ => {}
    }
    match random.below(9) {
        0 => condition.methods = vec![Method::GET],
        1 => condition.methods = vec![Method::POST, Method::HEAD],
        2 => {
            condition.fields = vec![FieldCondition {
                name: HeaderName::from_static("y-1"),
                values: vec![Pattern::new("client*")],
            }];
        }
        3 => condition.cookies = vec![Pattern::new("session*")],
        4 => condition.parameters = vec![Pattern::new("utm_*"), Pattern::new("b")],
        5 => condition.clients = vec!["127.0.0.0/8".parse().expect("a network")],
        6 => condition.schemes = vec!["https".into()],
        7 => {
            let regex = PathPattern::regex(r"^(a|w.*\.b)\.example$").expect("a regex");
            condition.host_regexes = vec![regex];
        }
        _ => {}
    }
    condition
}

fn random_settings(random: &mut SplitMix64) -> Settings {
    let template = |text: &str| Arc::new(Template::new(text, None).expect("a template"));
    let patterns = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| Pattern::new(text))
            .collect::<Arc<[_]>>()
    };
    let mut settings = Settings::default();
    for _ in 0..1 + random.below(4) {
        let lifetime = pick(random, &[None, Some(0), Some(1), Some(600)]).map(Duration::from_secs);
        let status = pick(
            random,
            &[
                StatusSet::One(200),
                StatusSet::One(404),
                StatusSet::Class(5),
            ],
        );
        match random.below(31) {
            0 => settings.origin = Some(random.below(2) as usize),
            1 => settings.pass = Some(random.below(2) == 0),
            2 if random.below(2) == 0 => {
                let status = pick(
                    random,
                    &[
                        None,
                        Some(StatusCode::FORBIDDEN),
                        Some(StatusCode::NOT_FOUND),
                    ],
                );
                settings.deny = status.into();
            }
            3 if random.below(2) == 0 => {
                let location = Template::new("https://${host}/new${uri}?d=${device}", None);
                let redirect = Redirect {
                    status: StatusCode::FOUND,
                    location: location.expect("a template"),
                };
                settings.redirect = (random.below(3) > 0).then(|| Arc::new(redirect)).into();
            }
            4 => {
                let rewrite = template(pick(
                    random,
                    &["/inner${uri}", "/x?${query}", "/d/${device}"],
                ));
                settings.rewrite = (random.below(3) > 0).then_some(rewrite).into();
            }
            5 => settings.ttl.insert(status, lifetime),
            6 => settings.default_ttl.insert(status, lifetime),
            7 => settings.stale_while_revalidate = Some(Duration::from_secs(600)),
            8 => settings.query_sort = Some(random.below(2) == 0),
            9 => {
                let keeps = random.below(2) == 0;
                settings.query_keep = keeps.then(|| patterns(&["a", "b"])).into();
            }
            10 => settings.query_drop = Some(patterns(&["utm_*"])),
            11 => {
                let class = match random.below(6) {
                    0 => Class::Device,
                    1 => Class::ImageFormat,
                    2 => Class::Language(["en".into(), "de".into()].into()),
                    3 => Class::Cookie("session".into()),
                    4 => Class::HasCookie(Pattern::new("sess*")),
                    _ => Class::Header(HeaderName::from_static("y-1")),
                };
                settings.key = Some([class].into());
            }
            12 | 13 => {
                let (name, change) = random_change(random, &REQUEST_FIELDS);
                settings.request.insert(name, change);
            }
            14 => {
                let (name, change) = random_change(random, &RESPONSE_FIELDS);
                settings.origin_response.insert(name, change);
            }
            15 | 16 => {
                let (name, change) = random_change(random, &RESPONSE_FIELDS);
                settings.response.insert(name, change);
            }
            17 => {
                let max = pick(random, &[None, Some(ByteSize(0)), Some(ByteSize(100))]);
                settings.request_body_max = max.into();
            }
            18 | 19 => {
                let names = pick(random, &[&["y-1"][..], &["y-*", "cookie"], &["y-2"], &[]]);
                let keeps = random.below(4) > 0;
                settings.request_only = keeps.then(|| patterns(names)).into();
            }
            20 => settings.memory = Some(random.below(2) == 0),
            21 => {
                let tiers = [
                    DiskPlacement::Normal,
                    DiskPlacement::Never,
                    DiskPlacement::FirstRequest,
                ];
                settings.disk = Some(pick(random, &tiers));
            }
            22 => settings.id_filters = Some(pick(random, &[IdFilters::All, IdFilters::Off])),
            23 => settings.check_extension = Some(random.below(2) == 0),
            24 => match random.below(2) == 0 {
                true => settings.share_authorized = Some(random.below(2) == 0),
                false => settings.check_authorization = Some(random.below(2) == 0),
            },
            25 => {
                let replacement = Replacement {
                    from: "GET".into(),
                    to: template("${host}").as_ref().clone(),
                };
                let lists = [Vec::new(), vec![replacement]];
                let list = Replacements::new(pick(random, &lists));
                settings.replace = Some(Arc::new(list.expect("few strings")));
                settings.replace_types = Some(patterns(&["*"]));
            }
            26 => settings.stale_if_error = lifetime,
            27 => settings.stale_if_disconnected = lifetime,
            28 if random.below(4) == 0 => {
                let page = Page {
                    content_type: "text/plain".into(),
                    body: Bytes::from_static(b"answer"),
                };
                let (status, page) = (StatusCode::OK, Arc::new(page));
                settings.answer = Stated::On(Arc::new(FixedAnswer { status, page }));
            }
            _ => {
                let page = Page {
                    content_type: "text/plain".into(),
                    body: Bytes::from_static(b"page"),
                };
                let status = pick(
                    random,
                    &[
                        StatusSet::One(403),
                        StatusSet::Class(4),
                        StatusSet::Class(5),
                    ],
                );
                settings.error_pages.insert(status, Arc::new(page));
            }
        }
    }
    settings
}

fn random_change(random: &mut SplitMix64, names: &[&'static str]) -> (HeaderName, FieldChange) {
    let name = HeaderName::from_static(pick(random, names));
    let text = pick(
        random,
        &["rule", "${path}", "${header.y-1}-${client}", "${device}"],
    );
    let template = Arc::new(Template::new(text, None).expect("a template"));
    let change = match random.below(3) {
        0 => FieldChange::Set(template),
        1 => FieldChange::Add(template),
        _ => FieldChange::Remove,
    };
    (name, change)
}

fn pick<T: Clone>(random: &mut SplitMix64, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize].clone()
}

const PATHS: [&str; 14] = [
    "/",
    "/a",
    "/ab",
    "/abc",
    "/%61",
    "//a",
    "/x/../a",
    "/api/1",
    "/api/%2e%2e/a",
    "/vary",
    "/vary2",
    "/missing",
    "/broken",
    "/static/x.png",
];

const GLOBS: [&str; 7] = ["/*", "/a*", "/api/*", "/vary*", "*.png", "/missing", "/"];

const QUERIES: [&str; 9] = [
    "",
    "",
    "?",
    "?a=1&b=2",
    "?b=2&a=1",
    "?utm_x=1",
    "?a=1&utm_x=1",
    "?b",
    "?c=3",
];

const CLIENT_FIELDS: [(&str, &str); 13] = [
    ("accept-language", "de"),
    ("accept-language", "en"),
    ("y-1", "client"),
    ("y-1", "other"),
    ("y-2", "client"),
    ("cookie", "session=1; a=b"),
    ("cookie", "other=1"),
    ("user-agent", "Mozilla/5.0 (iPhone) Mobile Safari"),
    ("accept", "image/webp,*/*"),
    ("authorization", "Basic QTpC"),
    ("range", "bytes=0-1"),
    ("if-none-match", "\"a\""),
    ("cache-control", "no-cache"),
];

const REQUEST_FIELDS: [&str; 2] = ["y-1", "y-2"];

const RESPONSE_FIELDS: [&str; 2] = ["x-1", "x-2"];
