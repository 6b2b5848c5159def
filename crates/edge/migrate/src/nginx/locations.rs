//! Locations of a server as rules.

use super::access;
use super::answers;
use super::caching;
use super::conditions::{Env, exact_path};
use super::draft::Draft;
use super::fields;
use super::origins;
use super::parse::Directive;
use super::precedence::{Candidate, Kind, Rank, order};
use super::scope::Scope;
use crate::ledger::Node as _;
use crate::report::{Effect, Outcome};
use crate::rule::{Rule, Settings, Span, When};
use crate::source::Position;
use crate::toml;
use crate::values;

/// A location with the blocks around it.
struct Location<'t> {
    directive: &'t Directive,
    scope: Scope<'t>,
    candidate: Candidate,
    ignores_case: bool,
}

/// Returns the rules of all locations of a server, from the lowest precedence to the highest.
pub(super) fn rules(env: &Env<'_, '_>) -> Vec<Rule> {
    let locations = collect(env);
    let candidates: Vec<Candidate> = locations.iter().map(|l| l.candidate.clone()).collect();
    let mut ranks = order(&candidates);
    let is_root = |rank: &Rank| {
        let candidate = &candidates[rank.index];
        matches!(candidate.kind, Kind::Prefix | Kind::FinalPrefix) && candidate.pattern == "/"
    };
    let mut rules = Vec::new();
    // The location of all paths overrides all before it.
    if let Some(at) = ranks.iter().position(is_root) {
        ranks.drain(..at);
    } else {
        rules.push(unmatched(env));
    }
    for rank in ranks {
        rules.extend(location(
            env,
            &locations[rank.index],
            rank.within.as_deref(),
        ));
    }
    rules.extend(folders(&locations));
    rules
}

/// Returns the rules for the names of folders without their slash: nginx redirects `/a` to the location `/a/`, if that
/// has an origin and no other location has this path.
fn folders(locations: &[Location<'_>]) -> Vec<Rule> {
    let is_taken = |path: &str| {
        let paths = locations.iter().filter(|l| l.candidate.kind != Kind::Regex);
        paths
            .map(|l| l.candidate.pattern.as_str())
            .any(|known| known == path)
    };
    let mut rules = Vec::new();
    for location in locations {
        let is_prefix = matches!(location.candidate.kind, Kind::Prefix | Kind::FinalPrefix);
        let has_origin = location
            .directive
            .children()
            .iter()
            .any(|d| d.name == "proxy_pass");
        let folder = location.candidate.pattern.as_str();
        let Some(path) = folder
            .strip_suffix('/')
            .filter(|path| !path.is_empty() && !is_taken(path))
        else {
            continue;
        };
        if !is_prefix
            || !has_origin
            || !folder
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"/-._~".contains(&b))
        {
            continue;
        }
        let at = &location.directive.at;
        let mut settings = Settings::default();
        let target = format!("${{scheme}}://${{host}}{folder}?${{query}}");
        settings.set("redirect", toml::text(&target), at);
        settings.set("redirect_status", "301", at);
        rules.push(Rule {
            comment: format!("the folder of {} without its slash", location.directive.at),
            when: exact_path(path),
            span: Span::Exact(path.to_owned()),
            settings,
            is_whole: true,
        });
    }
    rules
}

/// Returns the rule for paths that no location matches. nginx answers them with files.
fn unmatched(env: &Env<'_, '_>) -> Rule {
    let at = env.scope_position();
    let mut settings = Settings::default();
    settings.set("deny", "404", &at);
    for files in env
        .scope
        .here()
        .iter()
        .filter(|d| matches!(d.name.as_str(), "root" | "try_files"))
    {
        let text = "the edge serves no files; an HTTP server must, as an origin";
        env.translator
            .ledger
            .left_out(files, Effect::Response, text);
    }
    Rule {
        comment: "paths without a location".to_owned(),
        when: When::default(),
        span: Span::Any,
        settings,
        is_whole: true,
    }
}

/// Collects the locations of a server and those within them.
fn collect<'t>(env: &Env<'_, 't>) -> Vec<Location<'t>> {
    let ledger = &env.translator.ledger;
    let mut locations: Vec<Location<'t>> = Vec::new();
    let outer = env
        .scope
        .here()
        .iter()
        .map(|d| (d, env.scope.clone(), None));
    let mut rest: Vec<(&'t Directive, Scope<'t>, Option<usize>)> = outer.rev().collect();
    while let Some((directive, scope, parent)) = rest.pop() {
        if directive.name != "location" {
            continue;
        }
        let (kind, pattern, ignores_case) = match (directive.arg(0), directive.arg(1)) {
            ("=", path) => (Kind::Exact, path, false),
            ("^~", path) => (Kind::FinalPrefix, path, false),
            ("~", regex) => (Kind::Regex, regex, false),
            ("~*", regex) => (Kind::Regex, regex, true),
            (word, "") if word.starts_with('@') => continue,
            (word, "") if word.starts_with('=') => (Kind::Exact, &word[1..], false),
            (word, "") if word.starts_with("^~") => (Kind::FinalPrefix, &word[2..], false),
            (word, "") if word.starts_with("~*") => (Kind::Regex, &word[2..], true),
            (word, "") if word.starts_with('~') => (Kind::Regex, &word[1..], false),
            (path, _) => (Kind::Prefix, path, false),
        };
        let nested: Vec<&'t Directive> = directive
            .children()
            .iter()
            .filter(|d| d.name == "location")
            .collect();
        let can_nest = parent.is_none() && matches!(kind, Kind::Prefix | Kind::FinalPrefix);
        if !can_nest {
            for inner in &nested {
                let text = "locations are nested more deeply than rules can state; write them beside each other";
                ledger.left_out(inner, Effect::Response, text);
                let text = "belongs to a location that was left out";
                ledger.rest_of_block(inner.children(), Outcome::LeftOut, Effect::Operation, text);
            }
        }
        let is_path =
            matches!(kind, Kind::Regex) || (pattern.starts_with('/') && !pattern.contains("//"));
        let checked = match kind {
            Kind::Regex => values::regex(pattern, ignores_case).map(|_| ()),
            _ if !is_path => Err("no path of a request begins so".to_owned()),
            _ => Ok(()),
        };
        if let Err(reason) = checked {
            ledger.left_out(directive, Effect::Response, &reason);
            let text = "belongs to a location that was left out";
            ledger.rest_of_block(
                directive.children(),
                Outcome::LeftOut,
                Effect::Operation,
                text,
            );
            continue;
        }
        let inner = scope.within(directive.children());
        if can_nest {
            let index = locations.len();
            rest.extend(
                nested
                    .into_iter()
                    .rev()
                    .map(|d| (d, inner.clone(), Some(index))),
            );
        }
        locations.push(Location {
            directive,
            scope: inner,
            candidate: Candidate {
                kind,
                pattern: pattern.to_owned(),
                parent,
            },
            ignores_case,
        });
    }
    locations
}

/// Returns the rules of a location. `within` is the prefix that limits an expression.
fn location(env: &Env<'_, '_>, location: &Location<'_>, within: Option<&str>) -> Vec<Rule> {
    let Location {
        directive,
        scope,
        candidate,
        ignores_case,
    } = location;
    let pattern = candidate.pattern.as_str();
    let (mut when, span) = match candidate.kind {
        Kind::Exact => (exact_path(pattern), Span::Exact(pattern.to_owned())),
        Kind::Prefix | Kind::FinalPrefix => (prefix(pattern), Span::Prefix(pattern.to_owned())),
        Kind::Regex => {
            let regex = values::regex(pattern, *ignores_case).unwrap_or_default();
            let when = When {
                regexes: vec![regex],
                ..When::default()
            };
            let span = within.map_or(Span::Any, |prefix| Span::Prefix(prefix.to_owned()));
            (when, span)
        }
    };
    if let Some(around) = within.map(prefix) {
        // A glob and an expression are conditions of their own.
        when = when.and(&around).unwrap_or(when);
    }
    env.translator
        .ledger
        .translated(directive, "rule with path, path_regex");
    let scope = named_target(env, scope).unwrap_or_else(|| scope.clone());
    let env = Env {
        scope: &scope,
        ..*env
    };
    let comment = format!("{} {}", directive.text(), directive.at);
    let mut draft = Draft::new(env, comment, when, span);
    access::access(&mut draft);
    if let Some(internal) = scope.here().iter().find(|d| d.name == "internal") {
        draft.settings.set("deny", "404", &internal.at);
        draft.translated(internal, "deny = 404");
    }
    let answers_itself = answers::in_location(&mut draft);
    let pass = scope
        .here()
        .iter()
        .find(|d| matches!(d.name.as_str(), "proxy_pass" | "grpc_pass"));
    match pass {
        Some(pass) if answers_itself => {
            draft.implied(pass, "never used: the location returns before");
        }
        Some(pass) => proxied(&mut draft, pass, candidate),
        None if answers_itself => {
            let content = scope.here().iter().filter(|d| is_content(d));
            content.for_each(|d| draft.implied(d, "never used: the location returns before"));
        }
        None => files(&mut draft, directive, candidate),
    }
    fields::response(&mut draft);
    answers::error_pages(&mut draft);
    draft.into_rules()
}

/// Returns the scope of the named location that `try_files` ends with, if it has an origin: the application answers all
/// requests.
fn named_target<'t>(env: &Env<'_, 't>, scope: &Scope<'t>) -> Option<Scope<'t>> {
    let files = scope.here().iter().find(|d| d.name == "try_files")?;
    let name = files.args.last().filter(|name| name.starts_with('@'))?;
    let is_named = |d: &&&'t Directive| d.name == "location" && d.arg(0) == name;
    let levels = env.scope.levels().iter().flat_map(|level| level.iter());
    let named = levels.collect::<Vec<_>>().iter().find(is_named).copied()?;
    let has_pass = named.children().iter().any(|d| d.name == "proxy_pass");
    if !has_pass {
        return None;
    }
    let ledger = &env.translator.ledger;
    ledger.translated(named, "the origin of the location that names it");
    let text = "the origin must answer requests for files, too";
    ledger.differs(files, Effect::Response, text);
    for root in scope
        .levels()
        .iter()
        .flat_map(|level| level.iter())
        .filter(|d| d.name == "root")
    {
        ledger.differs(root, Effect::Response, text);
    }
    Some(env.scope.within(named.children()))
}

/// Translates a location with an origin.
fn proxied(draft: &mut Draft<'_, '_>, pass: &Directive, candidate: &Candidate) {
    let target = match origins::target(draft, pass) {
        Ok(target) => target,
        Err(reason) => {
            draft.left_out(
                pass,
                Effect::Response,
                &format!("{reason}; these requests get 404"),
            );
            draft.settings.set("deny", "404", &pass.at);
            return;
        }
    };
    draft.env.translator.has_origin.set(true);
    draft
        .settings
        .set("origin", toml::text(&target.origin), &pass.at);
    if let Some(template) = target.template {
        draft
            .settings
            .set("rewrite", toml::text(&template), &pass.at);
    } else if let Some(path) = target.path {
        rewrite(draft, pass, candidate, &path);
    }
    caching::cache(draft);
    fields::request(draft);
}

/// Translates the path of `proxy_pass`, which replaces the path of the location.
fn rewrite(draft: &mut Draft<'_, '_>, pass: &Directive, candidate: &Candidate, path: &str) {
    let location = candidate.pattern.as_str();
    if path == location && matches!(candidate.kind, Kind::Prefix | Kind::FinalPrefix) {
        return;
    }
    let template = match candidate.kind {
        Kind::Exact => format!("{path}?${{query}}"),
        Kind::Prefix | Kind::FinalPrefix => {
            draft.when.paths.clear();
            draft.when.regexes = vec![format!("(?s)^{}(.*)$", values::literal_regex(location))];
            format!("{path}${{1}}?${{query}}")
        }
        Kind::Regex => {
            draft.left_out(
                pass,
                Effect::Response,
                "nginx accepts no path behind the host in such a location",
            );
            return;
        }
    };
    draft
        .settings
        .set("rewrite", toml::text(&template), &pass.at);
}

/// Translates a location without an origin.
fn files(draft: &mut Draft<'_, '_>, location: &Directive, candidate: &Candidate) {
    let status = draft
        .env
        .scope
        .here()
        .iter()
        .find(|d| d.name == "stub_status");
    let is_closed = draft
        .settings
        .one("deny")
        .is_some_and(|value| value != "false");
    if is_closed && draft.patches.is_empty() && status.is_none() {
        let ledger = &draft.env.translator.ledger;
        let content = draft.env.scope.here().iter().filter(|d| is_content(d));
        content.for_each(|d| ledger.implied(d, "never used: all requests are denied"));
        return;
    }
    if candidate.kind == Kind::Exact
        && let Some(file) = draft
            .env
            .file_at(draft.env.scope.levels(), &candidate.pattern)
    {
        draft
            .settings
            .set("answer", toml::text(&file), &location.at);
        let text = "the edge reads the file at its start: answer";
        let levels = draft
            .env
            .scope
            .levels()
            .iter()
            .flat_map(|level| level.iter());
        for directive in levels.filter(|d| matches!(d.name.as_str(), "root" | "alias")) {
            draft.differs(directive, Effect::Response, text);
        }
        return;
    }
    draft.settings.set("deny", "404", &location.at);
    for patch in &mut draft.patches {
        // The clients that may read the files must not reach the origin of another location.
        if patch.settings.one("deny") == Some("false") {
            patch.settings.set("deny", "404", &location.at);
        }
    }
    if let Some(status) = status {
        draft.env.translator.has_status.set(true);
        draft.translated(status, "admin.address: /status and /metrics");
        return;
    }
    if let Some(purge) = draft
        .env
        .scope
        .here()
        .iter()
        .find(|d| d.name == "proxy_cache_purge")
    {
        draft.left_out(
            purge,
            Effect::Caching,
            "purge.allow, and the method PURGE for the URL itself",
        );
        return;
    }
    let other = ["fastcgi_pass", "uwsgi_pass", "scgi_pass", "memcached_pass"];
    let names = |d: &&Directive| other.contains(&d.name.as_str());
    let text = match draft.env.scope.here().iter().find(names) {
        Some(_) => {
            "the edge speaks HTTP to origins: run an HTTP server, such as nginx at another port, in front of the \
                    application; these requests get 404"
        }
        None => {
            "the edge serves no files: an HTTP server, such as nginx at another port, can serve them as an origin; \
                 these requests get 404"
        }
    };
    draft.left_out(location, Effect::Response, text);
    let levels = draft
        .env
        .scope
        .levels()
        .iter()
        .flat_map(|level| level.iter());
    for directive in levels.filter(|d| is_content(d)) {
        draft.left_out(directive, Effect::Response, "see its location");
    }
}

/// Returns true if a directive names the content of a location.
fn is_content(directive: &Directive) -> bool {
    matches!(
        directive.name.as_str(),
        "root"
            | "alias"
            | "try_files"
            | "index"
            | "autoindex"
            | "fastcgi_pass"
            | "uwsgi_pass"
            | "scgi_pass"
            | "memcached_pass"
    )
}

/// Returns the condition for the paths that begin with a prefix.
fn prefix(path: &str) -> When {
    match path {
        "/" => When::default(),
        _ if path.contains('*') => When {
            regexes: vec![format!("^{}", values::literal_regex(path))],
            ..When::default()
        },
        _ => When {
            paths: vec![format!("{path}*")],
            ..When::default()
        },
    }
}

impl Env<'_, '_> {
    /// Returns a line of the innermost block, for a setting that follows from the absence of a directive.
    pub(super) fn scope_position(&self) -> Position {
        let first = self
            .scope
            .levels()
            .iter()
            .rev()
            .find_map(|level| level.first());
        first.map_or_else(Position::unknown, |directive| directive.at.clone())
    }
}

impl Draft<'_, '_> {
    /// Returns true if each path that begins so belongs to this location, as far as its own path states it.
    pub(super) fn holds_path(&self, start: &str) -> bool {
        match &self.span {
            Span::Prefix(prefix) => {
                let inner = self.env.scope.levels().iter().rev().nth(1);
                let others = inner.into_iter().flat_map(|level| level.iter());
                let is_other = others.filter(|d| d.name == "location").any(|d| {
                    matches!(d.arg(0), "~" | "~*") || {
                        let path = d.args.last().map_or("", String::as_str);
                        path.len() > prefix.len()
                            && (path.starts_with(start) || start.starts_with(path))
                    }
                });
                start.starts_with(prefix.as_str()) && !is_other
            }
            _ => false,
        }
    }
}
