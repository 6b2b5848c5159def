//! Reads files in VCL with all that they include as a tree of nodes.
//!
//! The grammar is that of Varnish 4 to 7. `C{ … }C` is an error. The nesting of blocks and parentheses has a limit, so
//! that no file can exhaust the stack.

use std::sync::Arc;

use super::lexer::{Spanned, Token, tokens};
use super::tree::{Expr, Kind, Node, Operator};
use crate::error::MigrateError;
use crate::source::{Position, Sources};
use crate::syntax::{
    DIRECTIVES_MAX, INCLUDES_NESTING_MAX, NESTING_MAX, ParseError, ParseErrorReason,
};

/// The longest text of a node in a message.
const TEXT_CHARS_MAX: usize = 80;

/// The most parts of one sum or chain of `&&` and `||`.
const PARTS_MAX: usize = 1000;

/// Reads the files and all that they include. Relative paths of `include` start at `prefix`.
pub(super) fn read(
    sources: &dyn Sources,
    files: &[String],
    prefix: &str,
) -> Result<Vec<Node>, MigrateError> {
    let mut input = Input {
        sources,
        prefix: prefix.trim_end_matches('/'),
        next_id: 0,
        files: 0,
    };
    let mut nodes = Vec::new();
    for file in files {
        let text = sources
            .read(file)
            .map_err(|reason| MigrateError::Unreadable {
                file: file.clone(),
                reason,
            })?;
        nodes.extend(input.file(file, &text, Level::Declarations, 0)?);
    }
    Ok(nodes)
}

/// The parts of a file that may stand at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Declarations,
    Statements,
}

/// The state of all files together.
struct Input<'a> {
    sources: &'a dyn Sources,
    prefix: &'a str,
    next_id: usize,
    /// The number of included files. Files that include others twice multiply.
    files: usize,
}

/// The most files of a configuration.
const FILES_MAX: usize = 10_000;

impl Input<'_> {
    /// Reads a file. `depth` is the number of files around it.
    fn file(
        &mut self,
        path: &str,
        text: &str,
        level: Level,
        depth: usize,
    ) -> Result<Vec<Node>, ParseError> {
        let file: Arc<str> = Arc::from(path);
        let tokens = tokens(&file, text)?;
        let mut parser = Parser {
            input: self,
            file,
            text,
            tokens,
            next: 0,
            depth,
            nesting: 0,
        };
        let nodes = parser.nodes(level)?;
        match parser.peek() {
            Token::End => Ok(nodes),
            _ => Err(parser.unexpected("a declaration")),
        }
    }
}

struct Parser<'a, 'i> {
    input: &'a mut Input<'i>,
    file: Arc<str>,
    text: &'a str,
    tokens: Vec<Spanned>,
    next: usize,
    depth: usize,
    nesting: usize,
}

impl Parser<'_, '_> {
    fn spanned(&self) -> &Spanned {
        // The last token is the end, which is never consumed.
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    fn peek(&self) -> &Token {
        &self.spanned().token
    }

    fn advance(&mut self) -> Token {
        let token = self.peek().clone();
        if token != Token::End {
            self.next += 1;
        }
        token
    }

    fn position(&self) -> Position {
        Position {
            file: Arc::clone(&self.file),
            line: self.spanned().line,
        }
    }

    fn error(&self, reason: ParseErrorReason) -> ParseError {
        let at = self.position();
        ParseError { at, reason }
    }

    fn unexpected(&self, expected: &'static str) -> ParseError {
        let found = match self.peek() {
            Token::Word(word) => word.clone(),
            Token::Number(number, unit) => format!("{number}{unit}"),
            Token::Text(_) => "a string".to_owned(),
            Token::Sign(sign) => (*sign).to_owned(),
            Token::End => "the end of the file".to_owned(),
        };
        let found = found.chars().take(TEXT_CHARS_MAX).collect();
        self.error(ParseErrorReason::Expected { expected, found })
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(self.peek(), Token::Sign(found) if *found == sign)
    }

    /// Consumes a sign if it is the next token.
    fn accept(&mut self, sign: &str) -> bool {
        let is_next = self.is_sign(sign);
        if is_next {
            self.next += 1;
        }
        is_next
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), ParseError> {
        match self.accept(sign) {
            true => Ok(()),
            false => Err(self.unexpected(sign)),
        }
    }

    fn word(&mut self, expected: &'static str) -> Result<String, ParseError> {
        match self.peek() {
            Token::Word(word) => {
                let word = word.clone();
                self.next += 1;
                Ok(word)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    fn string(&mut self) -> Result<String, ParseError> {
        match self.peek() {
            Token::Text(text) => {
                let text = text.clone();
                self.next += 1;
                Ok(text)
            }
            _ => Err(self.unexpected("a string")),
        }
    }

    /// Runs `parse` one level deeper.
    fn nested<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        if self.nesting >= NESTING_MAX {
            return Err(self.error(ParseErrorReason::Nesting));
        }
        self.nesting += 1;
        let parsed = parse(self);
        self.nesting -= 1;
        parsed
    }

    /// Returns a node without children for the tokens from `start` up to the next one.
    fn node(&mut self, start: usize, kind: Kind) -> Result<Node, ParseError> {
        let first = &self.tokens[start];
        let end = self.tokens[self.next.saturating_sub(1).max(start)].end;
        let at = Position {
            file: Arc::clone(&self.file),
            line: first.line,
        };
        if self.input.next_id >= DIRECTIVES_MAX {
            let reason = ParseErrorReason::Directives;
            return Err(ParseError { at, reason });
        }
        let id = self.input.next_id;
        self.input.next_id += 1;
        // A long string is cut before its white space is, so that a file of one string costs no more than others.
        let source = self.text[first.start..end].chars().take(4 * TEXT_CHARS_MAX);
        let source: String = source.collect();
        let words: Vec<&str> = source.split_whitespace().collect();
        let mut text: String = words.join(" ").chars().take(TEXT_CHARS_MAX).collect();
        if words.join(" ").chars().count() > TEXT_CHARS_MAX {
            text.push('…');
        }
        Ok(Node {
            id,
            at,
            text,
            kind,
            children: Vec::new(),
        })
    }

    /// Parses the block of a node whose `{` is next.
    fn block(
        &mut self,
        start: usize,
        kind: Kind,
        parse: impl FnOnce(&mut Self) -> Result<Vec<Node>, ParseError>,
    ) -> Result<Node, ParseError> {
        let mut node = self.node(start, kind)?;
        node.text.push_str(" {…}");
        let opened = self.next;
        self.expect("{")?;
        node.children = self.nested(parse)?;
        if *self.peek() == Token::End {
            let at = Position {
                file: Arc::clone(&self.file),
                line: self.tokens[opened].line,
            };
            let reason = ParseErrorReason::UnclosedBlock;
            return Err(ParseError { at, reason });
        }
        self.expect("}")?;
        Ok(node)
    }

    /// Parses declarations or statements up to a `}` or the end.
    fn nodes(&mut self, level: Level) -> Result<Vec<Node>, ParseError> {
        let mut nodes = Vec::new();
        while !self.is_sign("}") && *self.peek() != Token::End {
            match level {
                Level::Declarations => self.declaration(&mut nodes)?,
                Level::Statements => self.statement(&mut nodes)?,
            }
        }
        Ok(nodes)
    }

    fn declaration(&mut self, nodes: &mut Vec<Node>) -> Result<(), ParseError> {
        let start = self.next;
        let word = self.word("a declaration")?;
        let node = match word.as_str() {
            "vcl" => {
                self.advance();
                let node = self.node(start, Kind::Version)?;
                self.expect(";")?;
                node
            }
            "import" => {
                let name = self.word("the name of a module")?;
                if matches!(self.peek(), Token::Word(word) if word == "from") {
                    self.next += 1;
                    self.string()?;
                }
                let node = self.node(start, Kind::Import(name))?;
                self.expect(";")?;
                node
            }
            "include" => return self.include(start, Level::Declarations, nodes),
            "backend" | "director" => {
                let name = self.word("the name of a backend")?;
                if matches!(self.peek(), Token::Word(word) if word == "none") {
                    self.next += 1;
                    let node = self.node(start, Kind::Backend(name))?;
                    self.expect(";")?;
                    node
                } else {
                    self.block(start, Kind::Backend(name), Self::properties)?
                }
            }
            "probe" => {
                let name = self.word("the name of a probe")?;
                self.block(start, Kind::Probe(name), Self::properties)?
            }
            "acl" => {
                let name = self.word("the name of an ACL")?;
                while self.accept("+") || self.accept("-") {
                    self.word("the name of a flag")?;
                    if self.accept("=") {
                        self.advance();
                    }
                }
                self.block(start, Kind::Acl(name), Self::entries)?
            }
            "sub" => {
                let name = self.word("the name of a subroutine")?;
                let parse = |parser: &mut Self| parser.nodes(Level::Statements);
                self.block(start, Kind::Sub(name), parse)?
            }
            _ => {
                self.next = start;
                return Err(self.unexpected("a declaration"));
            }
        };
        nodes.push(node);
        Ok(())
    }

    fn include(
        &mut self,
        start: usize,
        level: Level,
        nodes: &mut Vec<Node>,
    ) -> Result<(), ParseError> {
        let is_pattern = self.accept("+");
        if is_pattern {
            self.word("glob")?;
        }
        let path = self.string()?;
        let mut node = self.node(start, Kind::Include(None))?;
        if self.depth >= INCLUDES_NESTING_MAX {
            return Err(self.error(ParseErrorReason::Includes));
        }
        self.expect(";")?;
        let path = match path.starts_with('/') {
            true => path,
            false => format!(
                "{}/{}",
                self.input.prefix,
                path.strip_prefix("./").unwrap_or(&path)
            ),
        };
        let files = match is_pattern {
            true => self.input.sources.glob(&path),
            false => vec![path],
        };
        let mut included = Vec::new();
        for file in files {
            self.input.files += 1;
            if self.input.files > FILES_MAX {
                return Err(self.error(ParseErrorReason::Includes));
            }
            match self.input.sources.read(&file) {
                Ok(text) => {
                    included.extend(self.input.file(&file, &text, level, self.depth + 1)?);
                }
                Err(reason) => node.kind = Kind::Include(Some(format!("{file}: {reason}"))),
            }
        }
        nodes.push(node);
        nodes.extend(included);
        Ok(())
    }

    /// Parses the properties of a backend or probe.
    fn properties(&mut self) -> Result<Vec<Node>, ParseError> {
        let mut nodes = Vec::new();
        while !self.is_sign("}") && *self.peek() != Token::End {
            let start = self.next;
            let word = self.word("a property")?;
            let Some(name) = word.strip_prefix('.') else {
                self.next = start;
                return Err(self.unexpected("a property"));
            };
            let name = name.to_owned();
            self.expect("=")?;
            if self.is_sign("{") {
                nodes.push(self.block(start, Kind::Property(name, None), Self::properties)?);
                // `.probe = { … }` may have a `;` behind it.
                self.accept(";");
            } else {
                let value = self.expression()?;
                nodes.push(self.node(start, Kind::Property(name, Some(value)))?);
                self.expect(";")?;
            }
        }
        Ok(nodes)
    }

    /// Parses the entries of an ACL.
    fn entries(&mut self) -> Result<Vec<Node>, ParseError> {
        let mut nodes = Vec::new();
        while !self.is_sign("}") && *self.peek() != Token::End {
            let start = self.next;
            let is_negated = self.accept("!");
            let is_bracketed = self.accept("(");
            let address = self.string()?;
            let mut length = None;
            if self.accept("/") {
                length = match self.advance() {
                    Token::Number(number, unit)
                        if unit.is_empty() && (0.0..=128.0).contains(&number) =>
                    {
                        Some(number as u8)
                    }
                    _ => return Err(self.unexpected("the length of a network")),
                };
            }
            if is_bracketed {
                self.expect(")")?;
            }
            nodes.push(self.node(start, Kind::AclEntry(is_negated, address, length))?);
            self.expect(";")?;
        }
        Ok(nodes)
    }

    fn statement(&mut self, nodes: &mut Vec<Node>) -> Result<(), ParseError> {
        let start = self.next;
        let statements = |parser: &mut Self| parser.nodes(Level::Statements);
        if self.is_sign("{") {
            nodes.push(self.block(start, Kind::Block, statements)?);
            return Ok(());
        }
        let word = self.word("a statement")?;
        let kind = match word.as_str() {
            "include" => return self.include(start, Level::Statements, nodes),
            "if" => {
                let condition = self.condition()?;
                nodes.push(self.block(start, Kind::If(condition), statements)?);
                return Ok(());
            }
            "elseif" | "elsif" | "elif" => {
                let condition = self.condition()?;
                nodes.push(self.block(start, Kind::ElseIf(condition), statements)?);
                return Ok(());
            }
            "else" => {
                let is_chain = matches!(self.peek(), Token::Word(word) if word == "if");
                let kind = match is_chain {
                    true => {
                        self.next += 1;
                        Kind::ElseIf(self.condition()?)
                    }
                    false => Kind::Else,
                };
                nodes.push(self.block(start, kind, statements)?);
                return Ok(());
            }
            "set" => {
                let target = self.word("a variable")?;
                let operator = ["=", "+=", "-=", "*=", "/="]
                    .into_iter()
                    .find(|sign| self.is_sign(sign));
                let Some(operator) = operator else {
                    return Err(self.unexpected("="));
                };
                self.next += 1;
                Kind::Set(target, operator, self.expression()?)
            }
            "unset" | "remove" => Kind::Unset(self.word("a variable")?),
            "call" => Kind::Call(self.word("the name of a subroutine")?),
            "return" => self.action()?,
            "new" => {
                let name = self.word("a name")?;
                self.expect("=")?;
                Kind::New(name, self.expression()?)
            }
            _ if self.is_sign("(") => {
                self.next = start;
                Kind::Action(self.expression()?)
            }
            // Statements without arguments in older VCL, such as `esi;`, and `synthetic "TEXT";`.
            _ => {
                let mut arguments = Vec::new();
                while !self.is_sign(";") && *self.peek() != Token::End && !self.is_sign("}") {
                    arguments.push((None, self.expression()?));
                }
                Kind::Action(Expr::Call(word, arguments))
            }
        };
        let node = self.node(start, kind)?;
        self.expect(";")?;
        nodes.push(node);
        Ok(())
    }

    fn condition(&mut self) -> Result<Expr, ParseError> {
        self.expect("(")?;
        let condition = self.expression()?;
        self.expect(")")?;
        Ok(condition)
    }

    /// Parses what stands behind `return`.
    fn action(&mut self) -> Result<Kind, ParseError> {
        if self.is_sign(";") {
            return Ok(Kind::Return(String::new(), Vec::new()));
        }
        self.expect("(")?;
        let action = self.word("an action")?;
        let mut arguments = Vec::new();
        if self.accept("(") {
            while !self.is_sign(")") {
                arguments.push(self.expression()?);
                if !self.accept(",") {
                    break;
                }
            }
            self.expect(")")?;
        }
        self.expect(")")?;
        Ok(Kind::Return(action, arguments))
    }

    fn expression(&mut self) -> Result<Expr, ParseError> {
        self.nested(|parser| {
            parser.chain("||", Expr::Any, |parser| {
                parser.chain("&&", Expr::All, Self::negation)
            })
        })
    }

    /// Parses parts with a sign between them.
    fn chain(
        &mut self,
        sign: &str,
        join: fn(Vec<Expr>) -> Expr,
        part: impl Fn(&mut Self) -> Result<Expr, ParseError>,
    ) -> Result<Expr, ParseError> {
        let mut parts = vec![part(self)?];
        while self.accept(sign) {
            parts.push(part(self)?);
            if parts.len() > PARTS_MAX {
                return Err(self.error(ParseErrorReason::Nesting));
            }
        }
        match parts.len() {
            1 => Ok(parts.remove(0)),
            _ => Ok(join(parts)),
        }
    }

    fn negation(&mut self) -> Result<Expr, ParseError> {
        let mut is_negated = false;
        while self.accept("!") {
            is_negated = !is_negated;
        }
        let inner = self.comparison()?;
        match is_negated {
            true => Ok(Expr::Not(Box::new(inner))),
            false => Ok(inner),
        }
    }

    fn comparison(&mut self) -> Result<Expr, ParseError> {
        const OPERATORS: [(&str, Operator); 8] = [
            ("==", Operator::Equal),
            ("!=", Operator::Unequal),
            ("~", Operator::Match),
            ("!~", Operator::NoMatch),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        let left = self.sum()?;
        let operator = OPERATORS.iter().find(|(sign, _)| self.is_sign(sign));
        let Some((_, operator)) = operator else {
            return Ok(left);
        };
        self.next += 1;
        let right = self.sum()?;
        Ok(Expr::Compare(Box::new(left), *operator, Box::new(right)))
    }

    /// Parses a sum. Strings stand behind each other with or without `+`.
    fn sum(&mut self) -> Result<Expr, ParseError> {
        let mut parts = vec![self.product()?];
        loop {
            let is_behind = matches!(self.peek(), Token::Text(_) | Token::Word(_));
            if self.accept("-") {
                self.product()?;
                parts = vec![Expr::Arithmetic];
            } else if self.accept("+") || is_behind {
                parts.push(self.product()?);
            } else {
                break;
            }
            if parts.len() > PARTS_MAX {
                return Err(self.error(ParseErrorReason::Nesting));
            }
        }
        match parts.len() {
            1 => Ok(parts.remove(0)),
            _ => Ok(Expr::Sum(parts)),
        }
    }

    fn product(&mut self) -> Result<Expr, ParseError> {
        let mut product = self.primary()?;
        while self.accept("*") || self.accept("/") || self.accept("%") {
            self.primary()?;
            product = Expr::Arithmetic;
        }
        Ok(product)
    }

    fn primary(&mut self) -> Result<Expr, ParseError> {
        if self.accept("(") {
            let inner = self.expression()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.accept("-") {
            return Ok(match self.nested(Self::primary)? {
                Expr::Number(number) => Expr::Number(-number),
                Expr::Duration(time) => Expr::Duration(-time),
                _ => Expr::Arithmetic,
            });
        }
        match self.peek().clone() {
            Token::Text(text) => {
                self.next += 1;
                Ok(Expr::Text(text))
            }
            Token::Number(number, unit) => {
                let value = match_unit(number, &unit).ok_or_else(|| self.unexpected("a unit"))?;
                self.next += 1;
                // The unit may stand behind a space.
                if let (Expr::Number(number), Token::Word(word)) = (&value, self.peek())
                    && let Some(value) = match_unit(*number, word)
                {
                    self.next += 1;
                    return Ok(value);
                }
                Ok(value)
            }
            Token::Word(word) => {
                self.next += 1;
                match word.as_str() {
                    "true" => return Ok(Expr::Bool(true)),
                    "false" => return Ok(Expr::Bool(false)),
                    _ => {}
                }
                if !self.accept("(") {
                    return Ok(Expr::Name(word));
                }
                let mut arguments = Vec::new();
                while !self.is_sign(")") {
                    let is_named = matches!(self.peek(), Token::Word(_))
                        && matches!(
                            self.tokens.get(self.next + 1).map(|spanned| &spanned.token),
                            Some(Token::Sign("="))
                        );
                    let name = match is_named {
                        true => Some(self.word("a name")?),
                        false => None,
                    };
                    if is_named {
                        self.expect("=")?;
                    }
                    arguments.push((name, self.expression()?));
                    if !self.accept(",") {
                        break;
                    }
                }
                self.expect(")")?;
                Ok(Expr::Call(word, arguments))
            }
            _ => Err(self.unexpected("a value")),
        }
    }
}

/// Returns a number with its unit. `None` for an unknown unit.
fn match_unit(number: f64, unit: &str) -> Option<Expr> {
    const SECOND: f64 = 1000.0;
    let time = |length: f64| Some(Expr::Duration(number * length));
    let bytes = |length: u64| Some(Expr::Bytes(number * length as f64));
    match unit {
        "" => Some(Expr::Number(number)),
        "ms" => time(1.0),
        "s" => time(SECOND),
        "m" => time(60.0 * SECOND),
        "h" => time(3600.0 * SECOND),
        "d" => time(86_400.0 * SECOND),
        "w" => time(7.0 * 86_400.0 * SECOND),
        "y" => time(365.0 * 86_400.0 * SECOND),
        "B" => bytes(1),
        "KB" => bytes(1 << 10),
        "MB" => bytes(1 << 20),
        "GB" => bytes(1 << 30),
        "TB" => bytes(1 << 40),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
