//! The nodes of a configuration in VCL, and its expressions.

use crate::ledger;
use crate::source::Position;

/// A declaration or statement with those in its block.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    /// The number of the node, unique within a translation.
    pub(super) id: usize,
    /// The line of the first word.
    pub(super) at: Position,
    /// The text of the source up to `;` or `{`, cut.
    pub(super) text: String,
    pub(super) kind: Kind,
    pub(super) children: Vec<Self>,
}

/// The kind of a [`Node`].
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// `vcl 4.1;`
    Version,
    /// `import std;`
    Import(String),
    /// `include "FILE";`, with the reason why the file was not read.
    Include(Option<String>),
    Backend(String),
    Probe(String),
    Acl(String),
    Sub(String),
    /// `.host = "a";` in a backend or probe. The value is absent if it is a block.
    Property(String, Option<Expr>),
    /// An entry of an ACL: true if it is negated, the address and the length of the network.
    AclEntry(bool, String, Option<u8>),
    If(Expr),
    ElseIf(Expr),
    Else,
    /// A block without a condition.
    Block,
    /// `set TARGET OPERATOR VALUE;`
    Set(String, &'static str, Expr),
    Unset(String),
    Call(String),
    /// `return (ACTION(ARGUMENTS));` The action is empty for `return;`.
    Return(String, Vec<Expr>),
    /// `new NAME = CONSTRUCTOR(…);`
    New(String, Expr),
    /// A call of a function for its effect.
    Action(Expr),
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    Text(String),
    Number(f64),
    /// A duration in milliseconds.
    Duration(f64),
    /// A number of bytes.
    Bytes(f64),
    Bool(bool),
    /// A variable, or the name of a backend, ACL or probe.
    Name(String),
    /// A function with its arguments, each with its name if it has one.
    Call(String, Vec<(Option<String>, Self)>),
    Not(Box<Self>),
    /// All of these hold.
    All(Vec<Self>),
    /// One of these holds.
    Any(Vec<Self>),
    Compare(Box<Self>, Operator, Box<Self>),
    /// The sum of numbers, or texts behind each other.
    Sum(Vec<Self>),
    /// Other arithmetic, which no setting of the edge needs.
    Arithmetic,
}

/// An argument of a function, with its name if it has one.
pub(super) type Argument = (Option<String>, Expr);

/// The operator of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    Unequal,
    Match,
    NoMatch,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Expr {
    /// Returns the text of a string, also of one that is written in parts.
    pub(super) fn as_text(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Sum(parts) => parts.iter().map(Self::as_text).collect(),
            _ => None,
        }
    }

    /// Returns the name of a variable.
    pub(super) fn as_name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            _ => None,
        }
    }

    /// Returns a function with its arguments.
    pub(super) fn as_call(&self) -> Option<(&str, &[Argument])> {
        match self {
            Self::Call(name, arguments) => Some((name, arguments)),
            _ => None,
        }
    }

    /// Calls `visit` for each part of the expression.
    pub(super) fn each(&self, visit: &mut dyn FnMut(&Self)) {
        visit(self);
        match self {
            Self::Call(_, arguments) => arguments.iter().for_each(|(_, part)| part.each(visit)),
            Self::Not(inner) => inner.each(visit),
            Self::All(parts) | Self::Any(parts) | Self::Sum(parts) => {
                parts.iter().for_each(|part| part.each(visit));
            }
            Self::Compare(left, _, right) => {
                left.each(visit);
                right.each(visit);
            }
            _ => {}
        }
    }
}

impl Node {
    /// Returns the name by which the table of constructs knows the node.
    pub(super) fn name(&self) -> String {
        match &self.kind {
            Kind::Version => "vcl".to_owned(),
            Kind::Import(_) => "import".to_owned(),
            Kind::Include(_) => "include".to_owned(),
            Kind::Backend(_) => "backend".to_owned(),
            Kind::Probe(_) => "probe".to_owned(),
            Kind::Acl(_) | Kind::AclEntry(..) => "acl".to_owned(),
            Kind::Sub(name) => name.clone(),
            Kind::Property(name, _) => format!(".{name}"),
            Kind::If(_) | Kind::ElseIf(_) | Kind::Else | Kind::Block => "if".to_owned(),
            Kind::Set(target, ..) | Kind::Unset(target) => target.clone(),
            Kind::Call(_) => "call".to_owned(),
            Kind::Return(action, _) => format!("return ({action})"),
            Kind::New(_, value) => value.as_call().map_or("new", |(name, _)| name).to_owned(),
            Kind::Action(value) => value.as_call().map_or("", |(name, _)| name).to_owned(),
        }
    }

    /// Returns the expressions of the node.
    pub(super) fn expressions(&self) -> Vec<&Expr> {
        match &self.kind {
            Kind::If(value)
            | Kind::ElseIf(value)
            | Kind::Set(_, _, value)
            | Kind::New(_, value)
            | Kind::Action(value)
            | Kind::Property(_, Some(value)) => vec![value],
            Kind::Return(_, values) => values.iter().collect(),
            _ => Vec::new(),
        }
    }
}

impl ledger::Numbered for Node {
    fn id(&self) -> usize {
        self.id
    }
}

impl ledger::Node for Node {
    fn at(&self) -> &Position {
        &self.at
    }

    fn text(&self) -> String {
        self.text.clone()
    }

    fn children(&self) -> &[Self] {
        &self.children
    }
}

/// Returns all nodes, in the order of the input.
pub(super) fn every(tree: &[Node]) -> Vec<&Node> {
    let mut all = Vec::new();
    let mut rest: Vec<&Node> = tree.iter().rev().collect();
    while let Some(node) = rest.pop() {
        all.push(node);
        rest.extend(node.children.iter().rev());
    }
    all
}
