//! Extracts from a source file the parts that the rules check: the code without tests, the modules, the imports.

use super::tokens::{Kind, Token, tokenize};

/// A `mod name;`, which adds a file to the crate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Module {
    /// The names of the enclosing inline modules, then the name of the module.
    pub(crate) path: Vec<String>,
    /// The path from `#[path = ".."]`.
    pub(crate) file: Option<String>,
    pub(crate) test_only: bool,
}

/// Returns the tokens of `source` without the items under `#[cfg(test)]`.
pub(crate) fn without_tests(source: &str) -> Vec<Token<'_>> {
    let tokens = tokenize(source);
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        match attribute(&tokens[at..]) {
            Some(inside) if is_test_only(inside) => {
                // The attribute also has the tokens `#`, `[` and `]`.
                at += inside.len() + 3;
                at += item_length(&tokens[at..]);
            }
            _ => {
                kept.push(tokens[at]);
                at += 1;
            }
        }
    }
    kept
}

/// Returns every `mod name;` of the file, including those for tests.
pub(crate) fn modules(source: &str) -> Vec<Module> {
    let tokens = tokenize(source);
    let mut found = Vec::new();
    // The stack of open braces. For the brace of an inline module: its name, and true if the module is only for tests.
    let mut open: Vec<Option<(String, bool)>> = Vec::new();
    let (mut file, mut test_only) = (None, false);
    let mut at = 0;
    while at < tokens.len() {
        if let Some(inside) = attribute(&tokens[at..]) {
            test_only |= is_test_only(inside);
            if let [name, equals, literal] = inside
                && (name.text, equals.text) == ("path", "=")
            {
                file = Some(literal.text.trim_matches('"').to_owned());
            }
            at += inside.len() + 3;
            continue;
        }
        match &tokens[at..] {
            [module, name, end, ..] if module.text == "mod" && name.kind == Kind::Word => {
                let for_tests = test_only || open.iter().flatten().any(|(_, for_tests)| *for_tests);
                if end.text == ";" {
                    let around = open.iter().flatten().map(|(name, _)| name.clone());
                    found.push(Module {
                        path: around.chain([name.text.to_owned()]).collect(),
                        file: file.take(),
                        test_only: for_tests,
                    });
                } else {
                    open.push(Some((name.text.to_owned(), for_tests)));
                }
                (file, test_only) = (None, false);
                at += 3;
                continue;
            }
            [brace, ..] if brace.text == "{" => open.push(None),
            [brace, ..] if brace.text == "}" => _ = open.pop(),
            _ => {}
        }
        // An attribute belongs to the next item. A visibility may stand between them.
        if !matches!(
            tokens[at].text,
            "pub" | "(" | "crate" | "super" | "in" | ")"
        ) {
            (file, test_only) = (None, false);
        }
        at += 1;
    }
    found
}

/// Expands each `use a::{b, c::d};` to `a::b` and `a::c::d`, so that the rules find a path in every form of import.
pub(crate) fn with_uses_expanded<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut out = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        out.push(tokens[at]);
        at += 1;
        // `use<'a>` in a type is a capture list, not an import.
        let starts_tree = tokens.get(at).is_some_and(|next| next.text != "<");
        if tokens[at - 1].text == "use" && tokens[at - 1].kind == Kind::Word && starts_tree {
            let end = tokens[at..]
                .iter()
                .position(|t| t.text == ";")
                .map_or(tokens.len(), |n| at + n);
            expand(&tokens[at..end], &[], &mut out);
            at = end;
        }
    }
    out
}

/// Appends every path of a use tree to `out`. Each path has `prefix` before it and a comma after it.
fn expand<'a>(tree: &[Token<'a>], prefix: &[Token<'a>], out: &mut Vec<Token<'a>>) {
    let Some(open) = tree.iter().position(|t| t.text == "{") else {
        out.extend(prefix.iter().chain(tree));
        if let Some(last) = tree.last().or_else(|| prefix.last()) {
            // The comma separates this path from the next one.
            out.push(Token {
                text: ",",
                kind: Kind::Mark,
                ..*last
            });
        }
        return;
    };
    let prefix: Vec<_> = prefix.iter().chain(&tree[..open]).copied().collect();
    let inside = &tree[open + 1..tree.len().saturating_sub(1).max(open + 1)];
    let (mut depth, mut start) = (0_usize, 0);
    for (at, token) in inside.iter().enumerate() {
        match token.text {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            "," if depth == 0 => {
                expand(&inside[start..at], &prefix, out);
                start = at + 1;
            }
            _ => {}
        }
    }
    if start < inside.len() {
        expand(&inside[start..], &prefix, out);
    }
}

/// Returns the tokens between the brackets of an outer attribute at the start of `tokens`.
fn attribute<'s, 'a>(tokens: &'s [Token<'a>]) -> Option<&'s [Token<'a>]> {
    let [hash, open, ..] = tokens else {
        return None;
    };
    if (hash.text, open.text) != ("#", "[") {
        return None;
    }
    let length = balanced_length(&tokens[1..], "[", "]");
    Some(&tokens[2..length])
}

/// Returns true for `cfg(test)` and for `all(..)` that contains it. Code under `any` or `not` may be shipped.
fn is_test_only(attribute: &[Token<'_>]) -> bool {
    let words: Vec<_> = attribute
        .iter()
        .filter(|t| t.kind == Kind::Word)
        .map(|t| t.text)
        .collect();
    words.first() == Some(&"cfg")
        && words.contains(&"test")
        && !words.contains(&"any")
        && !words.contains(&"not")
}

/// Returns the number of tokens of the item at the start of `tokens`: up to its `;` or its closing brace.
fn item_length(tokens: &[Token<'_>]) -> usize {
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].text {
            ";" => return at + 1,
            "{" => return at + balanced_length(&tokens[at..], "{", "}"),
            "(" => at += balanced_length(&tokens[at..], "(", ")"),
            "[" => at += balanced_length(&tokens[at..], "[", "]"),
            _ => at += 1,
        }
    }
    at
}

/// Returns the number of tokens from the opening mark, which is the first token, to its closing mark.
fn balanced_length(tokens: &[Token<'_>], open: &str, close: &str) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        if token.text == open {
            depth += 1;
        } else if token.text == close {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                return at + 1;
            }
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> String {
        without_tests(source)
            .iter()
            .map(|t| t.text)
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn test_items_are_left_out_and_the_next_item_is_kept() {
        let source =
            "fn a() {} #[cfg(test)] #[rustfmt::skip] mod tests { fn b() { {} } } fn c() {}";
        assert_eq!(code(source), "fn a ( ) { } fn c ( ) { }");
        assert_eq!(code("#[cfg(test)] use x; fn c() {}"), "fn c ( ) { }");
        assert_eq!(
            code("#[cfg(test)] static A: [u8; 2] = [0; 2]; use b;"),
            "use b ;"
        );
    }

    #[test]
    fn code_that_may_ship_is_kept() {
        assert!(code("#[cfg(not(test))] use x;").contains("use x"));
        assert!(code("#[cfg(any(test, fuzzing))] use x;").contains("use x"));
    }

    #[test]
    fn modules_are_found_with_their_path_and_whether_they_are_tests() {
        let source = r#"
            pub(crate) mod a;
            mod inline { mod b; fn f() { } }
            #[path = "other.rs"] mod c;
            #[cfg(test)] pub mod d;
            #[cfg(test)] mod tests { mod e; }
            fn last() { }
            mod f;
        "#;
        let found: Vec<_> = modules(source)
            .into_iter()
            .map(|m| (m.path.join("/"), m.file, m.test_only))
            .collect();
        let other = Some("other.rs".to_owned());
        assert_eq!(
            found,
            [
                ("a".to_owned(), None, false),
                ("inline/b".to_owned(), None, false),
                ("c".to_owned(), other, false),
                ("d".to_owned(), None, true),
                ("tests/e".to_owned(), None, true),
                ("f".to_owned(), None, false),
            ]
        );
    }

    #[test]
    fn grouped_imports_are_expanded() {
        let tokens = without_tests("use std::{fs, io::{self, Read}}; x::y();");
        let text: Vec<_> = with_uses_expanded(&tokens).iter().map(|t| t.text).collect();
        assert_eq!(
            text.concat(),
            "usestd::fs,std::io::self,std::io::Read,;x::y();"
        );
    }
}
