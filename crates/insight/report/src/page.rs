//! A report as one HTML page: the findings first, then texts, tables and plots, and the facts at the end.

use std::fmt::{self, Write as _};

use crate::bars::Bars;
use crate::colour;
use crate::plot::Plot;
use crate::table::Table;
use crate::text::Html;

/// A report page. [`render`](Page::render) returns the complete file.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    findings: Vec<String>,
    setting: Option<String>,
    facts: Vec<(String, String)>,
    blocks: Vec<Block>,
}

#[derive(Clone, Debug)]
enum Block {
    Section(String),
    Text(String),
    Code(String),
    Table(Table),
    Plot(Plot),
    Bars(Bars),
}

impl Page {
    /// Makes an empty page. The title should be the topic of the findings, or a question that they answer.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            findings: Vec::new(),
            setting: None,
            facts: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// Adds a finding. Findings are shown at the top in large type, so each one should be a sentence that any
    /// reader understands.
    pub fn finding(&mut self, sentence: impl Into<String>) -> &mut Self {
        self.findings.push(sentence.into());
        self
    }

    /// Sets the lines of a configuration that follow from the findings. They stand below the findings, to be copied.
    pub fn setting(&mut self, lines: impl Into<String>) -> &mut Self {
        self.setting = Some(lines.into());
        self
    }

    /// Adds a fact that a reader needs to repeat the measurement: the trace, the seed, the version, or the
    /// machine.
    pub fn fact(&mut self, name: impl Into<String>, value: impl Into<String>) -> &mut Self {
        self.facts.push((name.into(), value.into()));
        self
    }

    /// Starts a section.
    pub fn section(&mut self, heading: impl Into<String>) -> &mut Self {
        self.blocks.push(Block::Section(heading.into()));
        self
    }

    /// Adds a paragraph.
    pub fn text(&mut self, paragraph: impl Into<String>) -> &mut Self {
        self.blocks.push(Block::Text(paragraph.into()));
        self
    }

    /// Adds preformatted text: settings, or a command to copy.
    pub fn code(&mut self, text: impl Into<String>) -> &mut Self {
        self.blocks.push(Block::Code(text.into()));
        self
    }

    /// Adds a table.
    pub fn table(&mut self, table: Table) -> &mut Self {
        self.blocks.push(Block::Table(table));
        self
    }

    /// Adds a plot.
    pub fn plot(&mut self, plot: Plot) -> &mut Self {
        self.blocks.push(Block::Plot(plot));
        self
    }

    /// Adds a bar chart.
    pub fn bars(&mut self, bars: Bars) -> &mut Self {
        self.blocks.push(Block::Bars(bars));
        self
    }

    /// Returns the complete page as one self-contained HTML file.
    pub fn render(&self) -> String {
        let mut out = String::new();
        self.render_into(&mut out)
            .expect("writing into a String does not fail");
        out
    }

    fn render_into(&self, out: &mut String) -> fmt::Result {
        let title = Html(&self.title);
        write!(
            out,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{title}</title>\n<style>\n:root{{{}}}\n\
             @media screen and (prefers-color-scheme:dark){{:root{{{}}}}}\n{CSS}</style>\n\
             </head>\n<body>\n<main>\n<h1>{title}</h1>\n",
            colour::declarations(&colour::LIGHT),
            colour::declarations(&colour::DARK),
        )?;
        if !self.findings.is_empty() || self.setting.is_some() {
            out.push_str("<div class=\"findings\">\n");
            for sentence in &self.findings {
                writeln!(out, "<p>{}</p>", Html(sentence))?;
            }
            if let Some(lines) = &self.setting {
                let lines = Html(lines.trim_end());
                writeln!(
                    out,
                    "<p class=\"note\">Recommended setting</p>\n<pre>{lines}</pre>"
                )?;
            }
            out.push_str("</div>\n");
        }
        for block in &self.blocks {
            match block {
                Block::Section(heading) => writeln!(out, "<h2>{}</h2>", Html(heading))?,
                Block::Text(paragraph) => writeln!(out, "<p>{}</p>", Html(paragraph))?,
                Block::Code(text) => writeln!(out, "<pre>{}</pre>", Html(text))?,
                Block::Table(table) => table.render(out)?,
                Block::Plot(plot) => plot.render(out)?,
                Block::Bars(bars) => bars.render(out)?,
            }
        }
        if !self.facts.is_empty() {
            out.push_str("<h2>How this was made</h2>\n<dl>\n");
            for (name, value) in &self.facts {
                writeln!(out, "<dt>{}</dt><dd>{}</dd>", Html(name), Html(value))?;
            }
            out.push_str("</dl>\n");
        }
        write!(
            out,
            "</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
        )
    }
}

/// The content security policy of the page. It forbids all resources except inline styles and scripts.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      base-uri 'none'; form-action 'none'";

const CSS: &str = include_str!("page.css");

const SCRIPT: &str = include_str!("page.js");
