//! Tests that every page is complete and self-contained, and that texts cannot change its structure.

use edgeward_report::{Axis, Bars, Column, Page, Plot, Series, Table, Unit};
use proptest::prelude::*;

/// Makes a page with an element of each kind. Every text on it is `word`.
fn page_of(word: &str) -> Page {
    let mut page = Page::new(word);
    page.finding(word)
        .setting(word)
        .fact(word, word)
        .section(word)
        .text(word)
        .code(word);
    let mut table = Table::new([Column::words(word), Column::figures(word)]).caption(word);
    table.row([word, word]);
    page.table(table);
    let mut plot = Plot::new(
        word,
        Axis::new(word, Unit::Count),
        Axis::new(word, Unit::Share),
    )
    .note(word);
    plot.add(Series::line(word, [(0.0, 0.1), (1.0, 0.2)]))
        .add(Series::steps(word, [(0.0, 0.1), (1.0, 0.2)]))
        .add(Series::dots(word, [(0.0, 0.1), (1.0, 0.2)]))
        .add(Series::columns(word, [(0.0, 0.1), (1.0, 0.2)]))
        .add(Series::level(word, 0.15).dashed())
        .mark(0.5, word);
    page.plot(plot);
    let mut bars = Bars::new(word, Axis::new(word, Unit::Bytes), [word, word]).note(word);
    bars.group(word, [1.0, 2.0]);
    page.bars(bars);
    page
}

#[test]
fn the_tags_and_texts_of_a_page_equal_the_snapshot() {
    let outline: Vec<String> = tokens(&page_of("word").render())
        .into_iter()
        .map(|token| match token {
            Token::Tag { name, attributes } => {
                let attributes: Vec<String> = attributes
                    .into_iter()
                    .filter(|(name, _)| name == "class" || name == "role")
                    .map(|(name, value)| format!(" {name}={value}"))
                    .collect();
                format!("<{name}{}>", attributes.concat())
            }
            Token::Text(text) => text.trim().to_owned(),
            Token::Raw(text) if text.starts_with('[') => text,
            Token::Raw(_) => "(code)".to_owned(),
        })
        .filter(|line| !line.is_empty() && !line.starts_with("</"))
        .collect();
    insta::assert_snapshot!(outline.join("\n"));
}

#[test]
fn a_page_loads_nothing() {
    for token in tokens(&page_of("word").render()) {
        let Token::Tag { name, attributes } = token else {
            continue;
        };
        assert!(
            !["link", "img", "iframe", "object", "embed", "base", "form"].contains(&&*name),
            "<{name}>"
        );
        for (attribute, value) in attributes {
            assert!(
                !["src", "href", "xlink:href", "srcset", "action"].contains(&&*attribute)
                    && !attribute.starts_with("on")
                    && !value.contains("url("),
                "<{name} {attribute}={value}>"
            );
        }
    }
    let html = page_of("word").render();
    assert!(!html.contains("://") && !html.contains("@import"));
}

#[test]
fn plots_without_points_show_a_note_and_no_invalid_number() {
    let mut page = Page::new("empty");
    page.plot(Plot::new(
        "no series",
        Axis::new("x", Unit::Count).log(),
        Axis::new("y", Unit::Seconds).log(),
    ));
    let mut plot = Plot::new(
        "no points",
        Axis::new("x", Unit::Count),
        Axis::new("y", Unit::Count),
    );
    plot.add(Series::line(
        "none",
        [(f64::NAN, 1.0), (1.0, f64::INFINITY)],
    ));
    plot.add(Series::level("nowhere", f64::NAN));
    page.plot(plot);
    page.bars(Bars::new("no bars", Axis::new("x", Unit::Bytes), ["a"]));
    let html = page.render();
    assert_eq!(html.matches("nothing to show").count(), 2);
    assert!(!html.contains("NaN") && !html.contains("inf"));
}

/// Ten series have eight colours, so that the last two differ by their pattern. A plot with few series has no legend
/// that scrolls.
#[test]
fn series_with_the_same_colour_have_another_pattern() {
    let page_with = |count: u32| {
        let (x, y) = (Axis::new("x", Unit::Count), Axis::new("y", Unit::Share));
        let mut plot = Plot::new("plot", x, y);
        for n in 0..count {
            let level = f64::from(n) / 20.0;
            plot.add(Series::line(
                format!("run {n}"),
                [(0.0, level), (1.0, level)],
            ));
        }
        let mut page = Page::new("page");
        page.plot(plot);
        page.render()
    };
    let html = page_with(10);
    for slot in 0..8 {
        let repeated = if slot < 2 { 2 } else { 0 };
        // One sample in the legend and one curve.
        assert_eq!(html.matches(&format!("\"line c{slot}\"")).count(), 2);
        assert_eq!(
            html.matches(&format!("\"line second c{slot}\"")).count(),
            repeated
        );
    }
    assert!(html.contains("<figure class=\"plot many\""));
    assert!(page_with(17).contains("\"line third c0\""));
    assert!(page_with(5).contains("<figure class=\"plot\""));
}

#[test]
fn hostile_texts_stay_texts() {
    for word in [
        "</script><script>alert(1)</script>",
        "<!--<script>",
        "\"><img src=x onerror=alert(1)>",
        "' onmouseover='alert(1)",
        "]]><!DOCTYPE x>",
        "&lt;b&gt; &amp;amp;",
        "\u{0}\u{8}\u{1b}[31m",
        "\\\"}];alert(1);//",
        "\u{2028}\u{202e}",
    ] {
        assert_same_structure(word);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No text changes the structure of a page. The page shows the text, with control characters replaced.
    ///
    /// Method: split two pages that differ only in their texts into tokens, with the HTML rules for text,
    /// attributes and scripts. The names of tags and attributes must be equal. The heading, and the name of the
    /// first series in the script, must equal the text.
    #[test]
    fn no_text_changes_the_structure(word in ".{0,40}", marks in "[<>&\"'/\\\\a-z!=;-]{0,40}") {
        assert_same_structure(&word);
        assert_same_structure(&marks);
    }

    /// For any points, all coordinates of the drawing are finite and lie within its frame.
    #[test]
    fn any_points_can_be_drawn(
        points in prop::collection::vec((prop::num::f64::ANY, prop::num::f64::ANY), 0..30),
        log_x: bool,
        log_y: bool,
    ) {
        let (mut x, mut y) = (Axis::new("x", Unit::Count), Axis::new("y", Unit::Bytes));
        if log_x { x = x.log(); }
        if log_y { y = y.log(); }
        let mut plot = Plot::new("any", x, y);
        plot.add(Series::line("a", points.clone()))
            .add(Series::steps("b", points.clone()))
            .add(Series::columns("c", points));
        let mut page = Page::new("any");
        page.plot(plot);
        for token in tokens(&page.render()) {
            if let Token::Tag { name, attributes } = token && name == "path" {
                let path = &attributes.iter().find(|(name, _)| name == "d").expect("a path has its data").1;
                for number in path.split(|c: char| c.is_ascii_alphabetic() || c == ' ').filter(|n| !n.is_empty()) {
                    let value: f64 = number.parse().expect("the value is a number");
                    prop_assert!((0.0..=1000.0).contains(&value), "{number} in {path}");
                }
            }
        }
    }
}

fn assert_same_structure(word: &str) {
    let structure = |html: &str| -> Vec<(String, Vec<String>)> {
        tokens(html)
            .into_iter()
            .filter_map(|token| match token {
                Token::Tag { name, attributes } => {
                    Some((name, attributes.into_iter().map(|(name, _)| name).collect()))
                }
                _ => None,
            })
            .collect()
    };
    let html = page_of(word).render();
    assert_eq!(
        structure(&html),
        structure(&page_of("word").render()),
        "{word:?}"
    );
    let visible_text: String = word
        .chars()
        .map(|c| match c {
            '\n' | '\t' => c,
            c if c.is_control() => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect();
    let tokens = tokens(&html);
    let heading = tokens
        .iter()
        .position(|token| matches!(token, Token::Tag { name, .. } if name == "h1"))
        .expect("a page has a heading");
    match &tokens[heading + 1] {
        Token::Text(text) => assert_eq!(text, &visible_text),
        _ => assert_eq!("", visible_text),
    }
    let json = tokens
        .iter()
        .find_map(|token| match token {
            Token::Raw(text) if text.starts_with('[') => Some(text),
            _ => None,
        })
        .expect("a plot has its data");
    let series: serde_json::Value = serde_json::from_str(json).expect("the figures are JSON");
    assert_eq!(
        series[0]["name"].as_str().expect("the name is valid"),
        visible_text.replace(['\n', '\t'], " ")
    );
}

#[derive(Debug)]
enum Token {
    Tag {
        name: String,
        attributes: Vec<(String, String)>,
    },
    Text(String),
    /// The content of `<style>` and `<script>`.
    Raw(String),
}

/// Splits HTML into tokens, like a browser (WHATWG HTML 13.2.5). It supports only the subset of HTML that a
/// page may use, and panics on other input.
fn tokens(html: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = html
        .strip_prefix("<!doctype html>")
        .expect("the page begins with a doctype");
    while !rest.is_empty() {
        let Some(inside) = rest.strip_prefix('<') else {
            let end = rest.find('<').unwrap_or(rest.len());
            tokens.push(Token::Text(decoded(&rest[..end])));
            rest = &rest[end..];
            continue;
        };
        let name_end = inside
            .find(|c: char| c.is_ascii_whitespace() || c == '>')
            .expect("a tag ends");
        let name = &inside[..name_end];
        let tag_name = name.strip_prefix('/').unwrap_or(name);
        let tag_name = tag_name.strip_suffix('/').unwrap_or(tag_name);
        assert!(
            !tag_name.is_empty() && tag_name.chars().all(|c| c.is_ascii_alphanumeric()),
            "a tag called {name:?}"
        );
        let mut attributes = Vec::new();
        rest = inside[name_end..].trim_start();
        loop {
            if let Some(after) = rest.strip_prefix('>').or_else(|| rest.strip_prefix("/>")) {
                rest = after;
                break;
            }
            let end = rest
                .find(|c: char| c == '=' || c == '>' || c.is_ascii_whitespace())
                .expect("an attribute ends");
            let attribute = rest[..end].to_owned();
            assert!(
                !attribute.is_empty()
                    && attribute
                        .chars()
                        .all(|c| c.is_ascii_alphabetic() || c == '-'),
                "an attribute called {attribute:?}"
            );
            rest = &rest[end..];
            if let Some(value) = rest.strip_prefix("=\"") {
                let end = value.find('"').expect("a value ends");
                attributes.push((attribute, decoded(&value[..end])));
                rest = &value[end + 1..];
            } else {
                attributes.push((attribute, String::new()));
            }
            rest = rest.trim_start();
        }
        let raw = (name == "style" || name == "script").then(|| format!("</{name}"));
        tokens.push(Token::Tag {
            name: name.to_owned(),
            attributes,
        });
        if let Some(end) = raw {
            let end = rest.find(&end).expect("raw text ends");
            // In a script, `<!--` changes the rules by which a browser finds its end. This function lacks them.
            assert!(!rest[..end].contains("<!--"));
            tokens.push(Token::Raw(rest[..end].to_owned()));
            rest = &rest[end..];
        }
    }
    tokens
}

fn decoded(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&amp;", "&")
}
