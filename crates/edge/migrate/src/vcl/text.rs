//! Expressions that are texts, as templates of the edge.

use regex::Regex;

use super::cookies;
use super::state::{Field, Machine, URL};
use super::tree::Expr;
use crate::decision::Decision;
use crate::hosts::{Host, Reason};

impl Machine<'_, '_> {
    /// Returns the value of an expression.
    pub(super) fn value(&self, expr: &Expr) -> Result<Decision<Field>, Reason> {
        match expr {
            Expr::Text(text) if text.contains("${") => {
                Err("the text has `${`, which begins a variable of the edge".to_owned())
            }
            Expr::Text(text) if text.chars().any(char::is_control) => {
                Err("the text has control characters, which no field may have".to_owned())
            }
            Expr::Text(text) => Ok(constant(text)),
            Expr::Number(number) => Ok(constant(&number.to_string())),
            Expr::Bool(value) => Ok(constant(if *value { "true" } else { "false" })),
            Expr::Sum(parts) => self.joined(parts),
            Expr::Name(name) => self.variable(name),
            Expr::Call(name, arguments) => {
                let arguments: Vec<&Expr> = arguments.iter().map(|(_, value)| value).collect();
                self.called(name, &arguments)
            }
            _ => Err("the expression is not a text that the edge can make".to_owned()),
        }
    }

    /// Returns the template of an expression that has the same one for all requests.
    pub(super) fn template(&self, expr: &Expr) -> Result<String, Reason> {
        let value = self.value(expr)?;
        match value.constant() {
            Some(Field::Text(text)) => Ok(text.clone()),
            Some(Field::Absent) => Ok(String::new()),
            Some(Field::Unknown | Field::Removed) => {
                Err("a part of the text is unknown".to_owned())
            }
            Some(_) => Err("the text consists of cookies that remain".to_owned()),
            None => Err("the text depends on conditions, and a template has none".to_owned()),
        }
    }

    fn joined(&self, parts: &[Expr]) -> Result<Decision<Field>, Reason> {
        let mut joined = constant("");
        for part in parts {
            let value = self.value(part)?;
            joined = joined.bind(|start| {
                let start = plain(start)?;
                value.bind(|part| Ok(constant(&format!("{start}{}", plain(part)?))))
            })?;
        }
        Ok(joined)
    }

    fn variable(&self, name: &str) -> Result<Decision<Field>, Reason> {
        let lower = name.to_ascii_lowercase();
        if let Some(field) = request_field(&lower) {
            if field == "host" {
                return Ok(constant("${host}"));
            }
            let value = self.field(field);
            let name = self
                .fields
                .get(field)
                .map_or_else(|| spelled(name), |known| known.name.clone());
            return Ok(value.map(|value| match value {
                Field::Client => Field::Text(format!("${{header.{name}}}")),
                other => other.clone(),
            }));
        }
        match lower.as_str() {
            "req.url" | "bereq.url" if self.is_without_query => Ok(constant("${path}")),
            "req.url" | "bereq.url" if self.fields.contains_key(URL) => {
                Err("the URL was rewritten, and templates have only that of the client".to_owned())
            }
            "req.url" | "bereq.url" => Ok(constant("${uri}")),
            "client.ip" | "client.identity" => Ok(constant("${client}")),
            "resp.reason" => match &self.reason {
                Some(reason) => Ok(constant(reason)),
                None => Err("the reason of the response is not known to rules".to_owned()),
            },
            "resp.status" | "beresp.status" => match self.status {
                Some(status) => Ok(constant(&status.to_string())),
                None => Err("the status of the response is not known to rules".to_owned()),
            },
            _ => Err(format!("templates have no variable {name}")),
        }
    }

    fn called(&self, name: &str, arguments: &[&Expr]) -> Result<Decision<Field>, Reason> {
        match (name, arguments) {
            ("regsub" | "regsuball", [source, pattern, replacement]) => {
                let (Some(pattern), Some(replacement)) = (pattern.as_text(), replacement.as_text())
                else {
                    return Err("the expression is composed of variables".to_owned());
                };
                self.replaced(source, &pattern, &replacement, name == "regsuball")
            }
            ("std.tolower" | "std.toupper", [source]) => {
                if is_host(source) {
                    return self.value(source);
                }
                let is_lower = name == "std.tolower";
                self.value(source)?.bind(|value| match value {
                    Field::Text(text) if !text.contains("${") => Ok(constant(&match is_lower {
                        true => text.to_lowercase(),
                        false => text.to_uppercase(),
                    })),
                    _ => Err("templates do not change the case of letters".to_owned()),
                })
            }
            ("cookie.get", [cookie]) => {
                let cookie = cookie.as_text().ok_or("the cookie has no fixed name")?;
                Ok(Decision::always(Field::Cookie(cookie)))
            }
            ("cookie.get_string", []) => Ok(self.jar.clone()),
            _ => Err(format!("templates have no function {name}")),
        }
    }

    /// Returns `regsub(source, pattern, replacement)`.
    fn replaced(
        &self,
        source: &Expr,
        pattern: &str,
        replacement: &str,
        is_all: bool,
    ) -> Result<Decision<Field>, Reason> {
        if is_host(source) {
            return self.replaced_host(pattern, replacement);
        }
        if matches!(source.as_name(), Some("req.url" | "bereq.url"))
            && pattern.starts_with(r"\?")
            && replacement.is_empty()
        {
            return Ok(constant("${path}"));
        }
        if source
            .as_name()
            .and_then(|name| request_field(&name.to_ascii_lowercase()).map(str::to_owned))
            .as_deref()
            == Some("cookie")
            && let Some(cookie) = cookies::selected(pattern, replacement)
        {
            return Ok(Decision::always(Field::Cookie(cookie)));
        }
        self.value(source)?.bind(|value| match value {
            Field::Text(text) if !text.contains("${") => {
                replace(text, pattern, replacement, is_all).map(|text| constant(&text))
            }
            _ => Err(format!(
                "templates do not replace texts by expressions: {pattern}"
            )),
        })
    }

    /// Returns the changed host. The host of a site is known.
    fn replaced_host(&self, pattern: &str, replacement: &str) -> Result<Decision<Field>, Reason> {
        // A port: the edge compares hosts without it.
        if replacement.is_empty() && (pattern.starts_with(':') || pattern.starts_with(r"\:")) {
            return Ok(constant("${host}"));
        }
        let Host::Exact(host) = self.host else {
            return Err(format!(
                "the host is changed by the expression {pattern}; write a site for each host"
            ));
        };
        let changed = replace(host, pattern, replacement, false)?;
        match changed == *host {
            true => Ok(constant("${host}")),
            false => Ok(constant(&changed)),
        }
    }
}

/// Returns a text for all requests.
pub(super) fn constant(text: &str) -> Decision<Field> {
    Decision::always(Field::Text(text.to_owned()))
}

fn plain(value: &Field) -> Result<String, Reason> {
    match value {
        Field::Text(text) => Ok(text.clone()),
        Field::Absent => Ok(String::new()),
        _ => Err("a text with cookies that remain".to_owned()),
    }
}

/// Returns the name of a field in a variable such as `req.http.X-A`, which is in lower case.
pub(super) fn request_field(variable: &str) -> Option<&str> {
    variable
        .strip_prefix("req.http.")
        .or_else(|| variable.strip_prefix("bereq.http."))
}

/// Returns the name of the field as it is written in a variable.
pub(super) fn spelled(variable: &str) -> String {
    let start = variable.match_indices('.').nth(1);
    start
        .map_or(variable, |(at, _)| &variable[at + 1..])
        .to_owned()
}

pub(super) fn is_host(expr: &Expr) -> bool {
    match expr {
        Expr::Name(name) => matches!(
            name.to_ascii_lowercase().as_str(),
            "req.http.host" | "bereq.http.host"
        ),
        Expr::Call(name, arguments) => {
            name == "std.tolower" && matches!(&arguments[..], [(_, source)] if is_host(source))
        }
        _ => false,
    }
}

/// Applies an expression of Varnish to a known text.
fn replace(text: &str, pattern: &str, replacement: &str, is_all: bool) -> Result<String, Reason> {
    let regex = Regex::new(pattern).map_err(|_| format!("the edge has no expression {pattern}"))?;
    let mut template = String::new();
    let mut chars = replacement.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', Some(digit)) if digit.is_ascii_digit() => {
                template.push_str(&format!("${{{digit}}}"));
                chars.next();
            }
            ('$', _) => template.push_str("$$"),
            _ => template.push(c),
        }
    }
    let limit = usize::from(!is_all);
    Ok(regex.replacen(text, limit, template.as_str()).into_owned())
}
