//! Tests of the parser of VCL.

use proptest::prelude::*;

use super::*;
use crate::testing::Files;
use crate::vcl::tree::every;

fn read_files(files: &[(&str, &str)]) -> Result<Vec<Node>, MigrateError> {
    read(&Files::new(files), &["/e/a.vcl".to_owned()], "/e")
}

fn read_text(text: &str) -> Result<Vec<Node>, ParseError> {
    match read_files(&[("/e/a.vcl", text)]) {
        Ok(nodes) => Ok(nodes),
        Err(MigrateError::Syntax(error)) => Err(error),
        Err(other) => panic!("{other}"),
    }
}

fn statement(text: &str) -> Kind {
    let tree = read_text(&format!("sub a {{ {text} }}")).expect(text);
    tree[0].children[0].kind.clone()
}

#[test]
fn declarations_and_statements_have_their_lines_and_texts() {
    let text = "vcl 4.1;\nimport std;\nbackend a {\n .host = \"h\";\n .probe = {\n  .url = \"/\";\n }\n}\n\
                acl b +log { ! \"10.0.0.0\"/8; (\"localhost\"); }\nsub vcl_recv {\n if (!client.ip ~ b) {\n\
                return (synth(405, \"No\"));\n } else if (req.url ~ \"x\") { unset req.http.A; }\n}";
    let tree = read_text(text).expect("valid");
    let found: Vec<_> = every(&tree)
        .iter()
        .map(|node| (node.at.line, node.text.as_str()))
        .collect();
    let expected = [
        (1, "vcl 4.1"),
        (2, "import std"),
        (3, "backend a {…}"),
        (4, ".host = \"h\""),
        (5, ".probe = {…}"),
        (6, ".url = \"/\""),
        (9, "acl b +log {…}"),
        (9, "! \"10.0.0.0\"/8"),
        (9, "(\"localhost\")"),
        (10, "sub vcl_recv {…}"),
        (11, "if (!client.ip ~ b) {…}"),
        (12, "return (synth(405, \"No\"))"),
        (13, "else if (req.url ~ \"x\") {…}"),
        (13, "unset req.http.A"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn operators_bind_as_in_varnish() {
    let name = |name: &str| Expr::Name(name.to_owned());
    let compare =
        |left: Expr, operator, right| Expr::Compare(Box::new(left), operator, Box::new(right));
    let text = |text: &str| Expr::Text(text.to_owned());
    let matches = compare(name("b"), Operator::Match, text("x"));
    assert_eq!(
        statement("if (a || !b ~ \"x\" && c == \"y\" \"z\") {}"),
        Kind::If(Expr::Any(vec![
            name("a"),
            Expr::All(vec![
                Expr::Not(Box::new(matches)),
                compare(
                    name("c"),
                    Operator::Equal,
                    Expr::Sum(vec![text("y"), text("z")])
                ),
            ]),
        ]))
    );
    assert_eq!(
        statement("set beresp.ttl = 1.5 h;"),
        Kind::Set("beresp.ttl".to_owned(), "=", Expr::Duration(5_400_000.0))
    );
    assert_eq!(
        statement("set a = now + 3 * 2;"),
        Kind::Set(
            "a".to_owned(),
            "=",
            Expr::Sum(vec![name("now"), Expr::Arithmetic])
        )
    );
    assert_eq!(
        statement("new d = x.y(key = \"a\", 2);"),
        Kind::New(
            "d".to_owned(),
            Expr::Call(
                "x.y".to_owned(),
                vec![
                    (Some("key".to_owned()), text("a")),
                    (None, Expr::Number(2.0))
                ]
            )
        )
    );
}

#[test]
fn errors_have_the_line_of_their_cause() {
    for (text, line, message) in [
        ("sub a {\n", 1, "has no `}`"),
        ("vcl 4.0;\nsub a { set b; }", 2, "expected =, found ;"),
        ("\nfoo;", 2, "expected a declaration, found foo"),
        ("sub a { return (pass) }", 1, "expected ;, found }"),
        (
            "backend a { host = \"b\"; }",
            1,
            "expected a property, found host",
        ),
        ("acl a { \"b\"/x; }", 1, "expected the length of a network"),
        ("sub a { set b = 3x; }", 1, "expected a unit"),
        ("}", 1, "expected a declaration, found }"),
    ] {
        let error = read_text(text).expect_err(text);
        assert_eq!(error.at.line, line, "{text}");
        assert!(error.to_string().contains(message), "{text}: {error}");
    }
}

#[test]
fn nesting_and_numbers_of_parts_have_limits() {
    let reason = |text: String| read_text(&text).err().map(|error| error.reason);
    let blocks = |depth: usize| {
        let inner = depth - 1;
        format!(
            "sub a {{ {} {} }}",
            "if (b) {".repeat(inner),
            "}".repeat(inner)
        )
    };
    assert_eq!(reason(blocks(NESTING_MAX - 1)), None);
    assert_eq!(
        reason(blocks(NESTING_MAX + 1)),
        Some(ParseErrorReason::Nesting)
    );
    assert_eq!(reason(blocks(10_000)), Some(ParseErrorReason::Nesting));
    for repeated in ["(", "- ", "a("] {
        let text = format!("sub a {{ set b = {}", repeated.repeat(10_000));
        assert_eq!(reason(text), Some(ParseErrorReason::Nesting), "{repeated}");
    }
    let sum = |sign: &str, parts: usize| {
        format!(
            "sub a {{ set b = c{}; }}",
            format!(" {sign} c").repeat(parts - 1)
        )
    };
    for sign in ["+", "&&", "||"] {
        assert_eq!(reason(sum(sign, PARTS_MAX)), None, "{sign}");
        assert_eq!(
            reason(sum(sign, PARTS_MAX + 1)),
            Some(ParseErrorReason::Nesting),
            "{sign}"
        );
    }
    let many = "esi;".repeat(DIRECTIVES_MAX);
    assert_eq!(
        reason(format!("sub a {{ {many} }}")),
        Some(ParseErrorReason::Directives)
    );
}

#[test]
fn files_are_included_at_each_level() {
    let tree = read_files(&[
        (
            "/e/a.vcl",
            "include \"b.vcl\"; sub c { include \"/x/d.vcl\"; } include \"none\";",
        ),
        ("/e/b.vcl", "import std;"),
        ("/x/d.vcl", "unset req.http.A;"),
    ])
    .expect("readable");
    let texts: Vec<_> = every(&tree).iter().map(|node| node.text.clone()).collect();
    let expected = [
        "include \"b.vcl\"",
        "import std",
        "sub c {…}",
        "include \"/x/d.vcl\"",
        "unset req.http.A",
        "include \"none\"",
    ];
    assert_eq!(texts, expected);
    assert!(matches!(&tree[3].kind, Kind::Include(Some(_))));
    let circle = read_files(&[("/e/a.vcl", "include \"a.vcl\";")]).expect_err("a circle");
    assert!(circle.to_string().contains("include itself"), "{circle}");
    let twice = "include \"a.vcl\"; include \"a.vcl\";";
    assert!(read_files(&[("/e/a.vcl", twice)]).is_err());
}

proptest! {
    #[test]
    fn any_text_gives_a_tree_or_an_error_with_a_line_of_it(
        words in prop::collection::vec(prop::sample::select(vec![
            "sub a", "{", "}", "(", ")", ";", "if", "else", "set b", "=", "\"x\"", "\n", "return", "||", "!", "-",
            "backend a", ".host", "acl a", "1s", "/", ",", "{\"", "\"}", "b.c",
        ]), 0..40),
    ) {
        let text = words.join(" ");
        if let Err(error) = read_text(&text) {
            prop_assert!((1..=text.matches('\n').count() + 1).contains(&error.at.line));
        }
    }
}
