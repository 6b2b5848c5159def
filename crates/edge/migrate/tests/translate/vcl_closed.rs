//! The translation of VCL fails closed: the edge admits no request that Varnish denies, and stores no response that
//! Varnish does not store, whatever the exit code.
//!
//! Programs are generated from a grammar, with conditions that rules state exactly, more widely, or not at all. An
//! interpreter runs each program for all requests of a small universe, and for both values of the conditions that no
//! rule knows. The written rules are applied to the same requests.

use std::cell::RefCell;
use std::collections::BTreeMap;

use edgeward_migrate::vcl;
use proptest::prelude::*;
use regex::Regex;
use toml::de::{DeTable, DeValue};

use crate::support::Files;
use crate::written::is_glob;

/// A request of the universe, and the values that no rule knows.
#[derive(Clone, Debug, PartialEq)]
struct Request {
    path: &'static str,
    query: &'static str,
    field: Option<&'static str>,
    cookie: Option<&'static str>,
    chance: bool,
    response: Response,
}

/// The response of the origin.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Response {
    status: u16,
    cache_control: &'static str,
    has_cookie: bool,
}

fn universe() -> Vec<Request> {
    let response = |status, cache_control, has_cookie| Response {
        status,
        cache_control,
        has_cookie,
    };
    let responses = [
        response(200, "", false),
        response(200, "max-age=60", false),
        response(200, "max-age=0", false),
        response(200, "private", false),
        response(200, "max-age=60", true),
        response(404, "", false),
    ];
    let fields = [None, Some("1"), Some("s5"), Some("sx"), Some("ONE")];
    let cookies = [None, Some("session=1"), Some("a=2; sess9=1"), Some("a=2")];
    let mut all = Vec::new();
    for path in ["/", "/a", "/a/b", "/c.css", "/old/b"] {
        for query in ["", "x=1"] {
            for field in fields {
                for cookie in cookies {
                    for chance in [false, true] {
                        all.extend(responses.map(|response| Request {
                            path,
                            query,
                            field,
                            cookie,
                            chance,
                            response,
                        }));
                    }
                }
            }
        }
    }
    all
}

/// A condition in VCL, with what it means.
type Condition = (&'static str, fn(&State) -> bool);

/// Conditions on requests.
const OF_REQUESTS: &[Condition] = &[
    ("req.url ~ \"^/a\"", |s| s.url.starts_with("/a")),
    ("req.url == \"/a\"", |s| s.url == "/a"),
    ("req.url != \"/a\"", |s| s.url != "/a"),
    ("req.url ~ \"^/[a-c]\"", |s| found("^/[a-c]", &s.url)),
    ("req.url ~ \"\\.css$\"", |s| s.url.ends_with(".css")),
    ("req.url !~ \"^/(a|old)\"", |s| !found("^/(a|old)", &s.url)),
    ("req.url ~ \"[?&]x=\"", |s| found("[?&]x=", &s.url)),
    ("req.http.X", |s| s.field.is_some()),
    ("req.http.X == \"1\"", |s| s.field() == "1"),
    ("req.http.X != \"1\"", |s| s.field() != "1"),
    ("req.http.X ~ \"^s[0-9]$\"", |s| {
        found("^s[0-9]$", s.field())
    }),
    ("req.http.X !~ \"^s[0-9]$\"", |s| {
        !found("^s[0-9]$", s.field())
    }),
    ("req.http.X ~ \"(?i)one\"", |s| found("(?i)one", s.field())),
    ("req.http.Cookie", |s| s.cookie.is_some()),
    ("req.http.Cookie ~ \"(^|;\\s*)session=\"", |s| {
        found(r"(^|;\s*)session=", s.cookie())
    }),
    ("req.http.Cookie ~ \"sess[0-9]+=\"", |s| {
        found("sess[0-9]+=", s.cookie())
    }),
    ("std.random(0, 1) < 1", |s| s.chance),
];

/// Conditions on responses.
const OF_RESPONSES: &[Condition] = &[
    ("bereq.url ~ \"^/a\"", |s| s.url.starts_with("/a")),
    ("bereq.http.X", |s| s.field.is_some()),
    ("bereq.http.X ~ \"^s[0-9]$\"", |s| {
        found("^s[0-9]$", s.field())
    }),
    ("beresp.status == 404", |s| s.response.status == 404),
    ("beresp.http.Cache-Control ~ \"private\"", |s| {
        s.cache_control.contains("private")
    }),
    ("beresp.http.Cache-Control ~ \"max-age=6\"", |s| {
        s.cache_control.contains("max-age=6")
    }),
    ("!beresp.http.Cache-Control", |s| s.cache_control.is_empty()),
    ("beresp.http.Set-Cookie", |s| s.has_cookie),
    ("beresp.ttl <= 0s", |s| s.ttl <= 0),
    ("beresp.ttl > 0s", |s| s.ttl > 0),
    ("std.random(0, 1) < 1", |s| s.chance),
];

fn found(pattern: &str, text: &str) -> bool {
    thread_local! {
        /// The compiled expressions of all programs.
        static KNOWN: RefCell<BTreeMap<String, Regex>> = RefCell::default();
    }
    KNOWN.with_borrow_mut(|known| {
        if !known.contains_key(pattern) {
            let regex = Regex::new(pattern).expect("an expression");
            known.insert(pattern.to_owned(), regex);
        }
        known[pattern].is_match(text)
    })
}

/// The state of a request while its subroutines run.
struct State {
    url: String,
    field: Option<String>,
    cookie: Option<String>,
    chance: bool,
    response: Response,
    cache_control: String,
    has_cookie: bool,
    ttl: i64,
    is_uncacheable: bool,
}

impl State {
    fn field(&self) -> &str {
        self.field.as_deref().unwrap_or_default()
    }

    fn cookie(&self) -> &str {
        self.cookie.as_deref().unwrap_or_default()
    }
}

/// A statement that changes the state, with its text.
type Change = (&'static str, fn(&mut State));

const CHANGES_OF_REQUESTS: &[Change] = &[
    ("set req.http.X = \"1\";", |s| {
        s.field = Some("1".to_owned());
    }),
    ("unset req.http.X;", |s| s.field = None),
    ("set req.http.X = regsub(req.http.X, \"s\", \"o\");", |s| {
        s.field = Some(s.field().replacen('s', "o", 1));
    }),
    ("unset req.http.Cookie;", |s| s.cookie = None),
    ("set req.url = regsub(req.url, \"^/old/\", \"/a/\");", |s| {
        if let Some(rest) = s.url.strip_prefix("/old/") {
            s.url = format!("/a/{rest}");
        }
    }),
    ("set req.url = \"/c.css\";", |s| s.url = "/c.css".to_owned()),
    ("set req.url = regsub(req.url, \"\\?.*$\", \"\");", |s| {
        s.url = s.url.split('?').next().unwrap_or_default().to_owned();
    }),
];

const CHANGES_OF_RESPONSES: &[Change] = &[
    ("set beresp.ttl = 0s;", |s| s.ttl = 0),
    ("set beresp.ttl = 1h;", |s| s.ttl = 3600),
    ("set beresp.uncacheable = true;", |s| {
        s.is_uncacheable = true;
    }),
    ("set beresp.http.Cache-Control = \"private\";", |s| {
        s.cache_control = "private".to_owned();
    }),
    ("unset beresp.http.Set-Cookie;", |s| s.has_cookie = false),
    ("set bereq.http.Y = \"1\";", |_| {}),
];

/// How a subroutine ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Denied,
    Passed,
    /// `return (hash)`, `return (deliver)`.
    Done,
    /// `return;`
    Local,
}

#[derive(Clone, Debug)]
enum Statement {
    Change(usize),
    Return(End),
    /// The subroutine of this number.
    Call(usize),
    If(Test, Vec<Self>, Vec<Self>),
}

#[derive(Clone, Debug)]
enum Test {
    One(usize),
    Not(usize),
    Both(usize, usize),
    Either(usize, usize),
}

/// The words of a phase.
struct Words {
    conditions: &'static [Condition],
    changes: &'static [Change],
    done: &'static str,
}

const REQUEST: Words = Words {
    conditions: OF_REQUESTS,
    changes: CHANGES_OF_REQUESTS,
    done: "return (hash);",
};

const RESPONSE: Words = Words {
    conditions: OF_RESPONSES,
    changes: CHANGES_OF_RESPONSES,
    done: "return (deliver);",
};

impl Words {
    fn write(&self, statements: &[Statement], text: &mut String) {
        for statement in statements {
            match statement {
                Statement::Change(at) => text.push_str(self.changes[*at].0),
                Statement::Return(End::Denied) => text.push_str("return (synth(403));"),
                Statement::Return(End::Passed) => text.push_str("return (pass);"),
                Statement::Return(End::Done) => text.push_str(self.done),
                Statement::Return(End::Local) => text.push_str("return;"),
                Statement::Call(number) => text.push_str(&format!("call sub_{number};")),
                Statement::If(test, then, otherwise) => {
                    let name = |at: &usize| self.conditions[*at].0;
                    let condition = match test {
                        Test::One(at) => name(at).to_owned(),
                        Test::Not(at) => format!("!({})", name(at)),
                        Test::Both(a, b) => format!("{} && {}", name(a), name(b)),
                        Test::Either(a, b) => format!("{} || {}", name(a), name(b)),
                    };
                    text.push_str(&format!("if ({condition}) {{\n"));
                    self.write(then, text);
                    text.push('}');
                    if !otherwise.is_empty() {
                        text.push_str(" else {\n");
                        self.write(otherwise, text);
                        text.push('}');
                    }
                }
            }
            text.push('\n');
        }
    }

    fn run(
        &self,
        statements: &[Statement],
        subs: &[Vec<Statement>],
        state: &mut State,
    ) -> Option<End> {
        for statement in statements {
            let end = match statement {
                Statement::Change(at) => {
                    self.changes[*at].1(state);
                    None
                }
                Statement::Return(end) => Some(*end),
                Statement::Call(number) => {
                    let end = self.run(&subs[*number], subs, state);
                    end.filter(|end| *end != End::Local)
                }
                Statement::If(test, then, otherwise) => {
                    let holds = |at: &usize| self.conditions[*at].1(state);
                    let holds = match test {
                        Test::One(at) => holds(at),
                        Test::Not(at) => !holds(at),
                        Test::Both(a, b) => holds(a) && holds(b),
                        Test::Either(a, b) => holds(a) || holds(b),
                    };
                    self.run(if holds { then } else { otherwise }, subs, state)
                }
            };
            if end.is_some() {
                return end;
            }
        }
        None
    }
}

#[derive(Clone, Debug)]
struct Program {
    subs: Vec<Vec<Statement>>,
    recv: Vec<Statement>,
    miss: Vec<Statement>,
    response: Vec<Statement>,
}

/// The result for a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Denied,
    Unstored,
    Stored,
}

impl Program {
    fn text(&self) -> String {
        let mut text =
            "vcl 4.1;\nimport std;\nbackend default { .host = \"10.0.0.1\"; }\n".to_owned();
        let mut sub = |name: &str, words: &Words, statements: &[Statement]| {
            text.push_str(&format!("sub {name} {{\n"));
            words.write(statements, &mut text);
            text.push_str("}\n");
        };
        for (number, statements) in self.subs.iter().enumerate() {
            sub(&format!("sub_{number}"), &REQUEST, statements);
        }
        sub("vcl_recv", &REQUEST, &self.recv);
        sub("vcl_miss", &REQUEST, &self.miss);
        sub("vcl_backend_response", &RESPONSE, &self.response);
        text
    }

    /// Runs the program as Varnish does, with its own subroutines behind those of the program.
    fn varnish(&self, request: &Request) -> Verdict {
        let response = request.response;
        let lifetime = match response.cache_control {
            "max-age=60" => 60,
            "max-age=0" => 0,
            _ => 120,
        };
        let query = if request.query.is_empty() { "" } else { "?" };
        let mut state = State {
            url: format!("{}{query}{}", request.path, request.query),
            field: request.field.map(str::to_owned),
            cookie: request.cookie.map(str::to_owned),
            chance: request.chance,
            response,
            cache_control: response.cache_control.to_owned(),
            has_cookie: response.has_cookie,
            ttl: lifetime,
            is_uncacheable: false,
        };
        let mut is_passed = match REQUEST.run(&self.recv, &self.subs, &mut state) {
            Some(End::Denied) => return Verdict::Denied,
            Some(End::Passed) => true,
            Some(End::Done) => false,
            Some(End::Local) | None => state.cookie.is_some(),
        };
        if !is_passed {
            match REQUEST.run(&self.miss, &self.subs, &mut state) {
                Some(End::Denied) => return Verdict::Denied,
                Some(End::Passed) => is_passed = true,
                _ => {}
            }
        }
        let end = RESPONSE.run(&self.response, &self.subs, &mut state);
        if matches!(end, Some(End::Local) | None) {
            let is_private = state.cache_control.contains("private");
            state.is_uncacheable |= state.ttl <= 0 || state.has_cookie || is_private;
        }
        match is_passed || state.is_uncacheable || state.ttl <= 0 || end == Some(End::Passed) {
            true => Verdict::Unstored,
            false => Verdict::Stored,
        }
    }
}

/// A value in TOML.
#[derive(Clone, Debug)]
enum Value {
    Text(String),
    Bool(bool),
    Number,
    List(Vec<Self>),
    Table(Table),
}

type Table = BTreeMap<String, Value>;

impl Value {
    fn of(value: &DeValue<'_>) -> Self {
        match value {
            DeValue::String(text) => Self::Text(text.to_string()),
            DeValue::Boolean(value) => Self::Bool(*value),
            DeValue::Array(all) => {
                Self::List(all.iter().map(|one| Self::of(one.get_ref())).collect())
            }
            DeValue::Table(table) => Self::Table(Self::table(table)),
            _ => Self::Number,
        }
    }

    fn table(table: &DeTable<'_>) -> Table {
        let entries = table.iter();
        entries
            .map(|(key, value)| (key.get_ref().to_string(), Self::of(value.get_ref())))
            .collect()
    }

    fn as_table(&self) -> Option<&Table> {
        match self {
            Self::Table(table) => Some(table),
            _ => None,
        }
    }

    fn list(&self) -> &[Self] {
        match self {
            Self::List(all) => all,
            one => std::slice::from_ref(one),
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            other => panic!("no text: {other:?}"),
        }
    }

    fn is_off(&self) -> bool {
        matches!(self, Self::Bool(false))
    }
}

/// The rules of the only site of a translation.
struct Edge {
    /// The site itself, which has no conditions, and its rules.
    rules: Vec<Table>,
    strips_cookies: bool,
}

impl Edge {
    fn of(text: &str) -> Self {
        let parsed = DeTable::parse(text).expect("TOML");
        let tables = Value::table(parsed.get_ref());
        let site = tables["site"].list()[0].as_table().expect("a site");
        let rules = site.get("rule").map_or(&[][..], Value::list);
        let rules = rules.iter().filter_map(Value::as_table);
        let caching = tables["caching"].as_table().expect("a table");
        Self {
            rules: std::iter::once(site).chain(rules).cloned().collect(),
            strips_cookies: caching.get("set_cookie").is_some(),
        }
    }

    fn verdict(&self, request: &Request) -> Verdict {
        let (mut is_denied, mut is_answered) = (false, false);
        let (mut is_passed, mut keeps_cookie) = (false, true);
        let mut lifetimes: [BTreeMap<String, String>; 2] = Default::default();
        for rule in self.rules.iter().filter(|rule| holds(rule, request)) {
            let is_on = |key: &str| rule.get(key).map(|value| !value.is_off());
            is_denied = is_on("deny").unwrap_or(is_denied);
            is_answered = is_on("answer").unwrap_or(is_answered);
            is_passed = is_on("pass").unwrap_or(is_passed);
            for (map, key) in lifetimes.iter_mut().zip(["ttl", "default_ttl"]) {
                match rule.get(key) {
                    Some(Value::Table(values)) => {
                        let entries = values.iter();
                        map.extend(
                            entries.map(|(status, time)| (status.clone(), time.text().to_owned())),
                        );
                    }
                    Some(_) => map.clear(),
                    None => {}
                }
            }
            let of_response = rule.get("origin_response").and_then(Value::as_table);
            let has_member = |key: &str| {
                let members = of_response.and_then(|of_response| of_response.get(key));
                let mut members = members.into_iter().flat_map(Value::list);
                members.any(|name| name.text() == "Set-Cookie")
            };
            keeps_cookie = (keeps_cookie && !has_member("remove")) || has_member("keep");
        }
        let response = &request.response;
        let stated = |map: &BTreeMap<String, String>| {
            let class = format!("{}xx", response.status / 100);
            let time = map
                .get(&response.status.to_string())
                .or_else(|| map.get(&class));
            time.map(|time| time != "0s" && time != "no-store")
        };
        let of_origin = match response.cache_control {
            "private" => Some(false),
            "" => None,
            text => Some(text != "max-age=0"),
        };
        let has_cookie = response.has_cookie && keeps_cookie && !self.strips_cookies;
        let is_stored = stated(&lifetimes[0])
            .or(of_origin)
            .or_else(|| stated(&lifetimes[1]));
        match (
            is_denied || is_answered,
            is_passed || has_cookie || !is_stored.unwrap_or(false),
        ) {
            (true, _) => Verdict::Denied,
            (false, true) => Verdict::Unstored,
            (false, false) => Verdict::Stored,
        }
    }
}

/// Returns true if all conditions of a rule hold.
fn holds(rule: &Table, request: &Request) -> bool {
    let any = |value: &Value, test: &dyn Fn(&str) -> bool| {
        value.list().iter().any(|one| test(one.text()))
    };
    let cookies = request.cookie.unwrap_or_default();
    let names = |text: &'static str, end: char| {
        let pairs = text
            .split(end)
            .map(str::trim)
            .filter(|pair| !pair.is_empty());
        pairs.map(|pair| pair.split('=').next().unwrap_or_default())
    };
    let value = |name: &str| match name {
        "X" => request.field,
        "Cookie" => request.cookie,
        _ => None,
    };
    rule.iter().all(|(key, expected)| match key.as_str() {
        "path" => any(expected, &|glob| is_glob(glob, request.path)),
        "path_regex" => any(expected, &|pattern| found(pattern, request.path)),
        "cookie" => any(expected, &|glob| {
            names(cookies, ';').any(|name| is_glob(glob, name))
        }),
        "parameter" => any(expected, &|glob| {
            names(request.query, '&').any(|name| is_glob(glob, name))
        }),
        "header" => expected
            .as_table()
            .expect("fields")
            .iter()
            .all(|(name, globs)| {
                value(name).is_some_and(|text| any(globs, &|glob| is_glob(glob, text)))
            }),
        "method" => any(expected, &|method| method == "GET"),
        _ => true,
    })
}

fn statements(words: &Words, subs: usize, is_response: bool) -> BoxedStrategy<Vec<Statement>> {
    let conditions = words.conditions.len();
    let mut ends = vec![End::Passed, End::Done, End::Local];
    if !is_response {
        ends.extend([End::Denied, End::Denied]);
    }
    let leaf = prop_oneof![
        3 => (0..words.changes.len()).prop_map(Statement::Change),
        3 => prop::sample::select(ends).prop_map(Statement::Return),
        1 => match subs {
            0 => (0..words.changes.len()).prop_map(Statement::Change).boxed(),
            _ => (0..subs).prop_map(Statement::Call).boxed(),
        },
    ];
    let test = move || {
        prop_oneof![
            4 => (0..conditions).prop_map(Test::One),
            1 => (0..conditions).prop_map(Test::Not),
            1 => (0..conditions, 0..conditions).prop_map(|(a, b)| Test::Both(a, b)),
            1 => (0..conditions, 0..conditions).prop_map(|(a, b)| Test::Either(a, b)),
        ]
    };
    let one = leaf.prop_recursive(2, 12, 3, move |inner| {
        let block = || prop::collection::vec(inner.clone(), 1..3);
        let otherwise = prop_oneof![2 => Just(Vec::new()), 1 => block()];
        (test(), block(), otherwise)
            .prop_map(|(test, then, otherwise)| Statement::If(test, then, otherwise))
    });
    prop::collection::vec(one, 0..5).boxed()
}

fn programs() -> impl Strategy<Value = Program> {
    (
        statements(&REQUEST, 0, false),
        statements(&REQUEST, 1, false),
        statements(&REQUEST, 2, false),
        statements(&REQUEST, 0, false),
        statements(&RESPONSE, 0, true),
    )
        .prop_map(|(first, second, recv, miss, response)| Program {
            subs: vec![first, second],
            recv,
            miss,
            response,
        })
}

/// Returns a request whose result at the edge is more open than that of Varnish.
fn opened(program: &Program, edge: &Edge) -> Option<(Request, Verdict, Verdict)> {
    universe().into_iter().find_map(|request| {
        let (varnish, edge) = (program.varnish(&request), edge.verdict(&request));
        let is_open = match varnish {
            Verdict::Denied => edge != Verdict::Denied,
            Verdict::Unstored => edge == Verdict::Stored,
            Verdict::Stored => false,
        };
        is_open.then_some((request, varnish, edge))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No program lets the edge admit a request that Varnish denies, or store a response that Varnish does not.
    #[test]
    fn the_translation_of_any_program_fails_closed(program in programs()) {
        let text = program.text();
        let files = Files::of(&[("t", &text)]);
        if let Ok(migration) = vcl(&files, &["t".to_owned()], "/") {
            let edge = Edge::of(&migration.toml);
            if let Some((request, varnish, of_edge)) = opened(&program, &edge) {
                prop_assert!(
                    false,
                    "{request:?}: {varnish:?} by Varnish, {of_edge:?} by the edge\n{text}\n{}",
                    migration.toml
                );
            }
        }
    }
}
