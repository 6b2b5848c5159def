//! Builds the documentation as a site: copies the pages to a folder, runs mdBook, and checks every link of the built
//! pages.
//!
//! mdBook needs all sources below one folder, with a table of contents. The pages of this repository are in
//! several folders and link to raw results. This command therefore copies the pages of `docs/SUMMARY.md` and
//! all files that they link to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::options::Options;
use crate::say;

pub(crate) const HELP: &str = "\
Builds the documentation as a site and checks its links.

usage: cargo xtask docs-site

  --mdbook PROGRAM   mdBook (default: mdbook)
";

/// The table of contents, maintained by hand.
const CONTENTS: &str = "docs/SUMMARY.md";

/// Builds the site. Returns true if all links of the site resolve.
pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    let source = root.join("target/docs-site-source");
    let site = root.join("target/docs-site");
    for folder in [&source, &site] {
        if folder.exists() {
            fs::remove_dir_all(folder)
                .with_context(|| format!("cannot remove {}", folder.display()))?;
        }
    }
    let pages = copy_pages(root, &source)?;
    let mdbook = options.value("--mdbook").unwrap_or("mdbook");
    let status = Command::new(mdbook)
        .arg("build")
        .arg(&source)
        .arg("--dest-dir")
        .arg(&site)
        .env("RUST_LOG", "warn")
        .status()
        .with_context(|| {
            format!("cannot start {mdbook}; `scripts/ensure-cargo-tool mdbook` builds it")
        })?;
    ensure!(status.success(), "mdbook failed: {status}");
    let broken = broken_links(&site)?;
    for link in &broken {
        say(format!("error: {link}\n"));
    }
    say(format!(
        "{pages} pages in {}, {} broken links\n",
        site.join("index.html").display(),
        broken.len()
    ));
    Ok(broken.is_empty())
}

/// Copies all pages with their linked files to `source`. Returns the number of pages.
fn copy_pages(root: &Path, source: &Path) -> anyhow::Result<usize> {
    let contents = fs::read_to_string(root.join(CONTENTS))
        .with_context(|| format!("cannot read {CONTENTS}"))?;
    let listed = linked_files(Path::new(CONTENTS), &contents);
    for page in markdown_below(root, Path::new("docs"))? {
        if page != Path::new(CONTENTS) && !listed.contains(&page) {
            bail!("{CONTENTS} does not list {}", page.display());
        }
    }

    let mut titles = BTreeMap::new();
    let mut copied = BTreeSet::new();
    let mut pending = listed.clone();
    while let Some(file) = pending.pop() {
        if !copied.insert(file.clone()) {
            continue;
        }
        let is_page = is_markdown(&file);
        let target = source.join("src").join(if is_page {
            site_path(&file)
        } else {
            file.clone()
        });
        fs::create_dir_all(target.parent().context("the path has no parent folder")?)?;
        if !is_page {
            fs::copy(root.join(&file), &target)
                .with_context(|| format!("cannot copy {}", file.display()))?;
            continue;
        }
        let text = fs::read_to_string(root.join(&file))
            .with_context(|| format!("cannot read {}", file.display()))?;
        titles.insert(file.clone(), title(&text, &file));
        let text = map_links(&text, |link| {
            let (path, anchor) = split_anchor(link);
            let there = with_readme(root, resolve(&file, path))?;
            pending.push(there.clone());
            Some(format!(
                "{}{anchor}",
                relative(&site_path(&file), &site_path(&there))
            ))
        });
        fs::write(&target, text)?;
    }

    let mut summary = map_links(&contents, |link| {
        Some(
            site_path(&resolve(Path::new(CONTENTS), link))
                .display()
                .to_string(),
        )
    });
    summary.push_str("\n# More\n\n- [Raw results and other pages]()\n");
    for (file, title) in titles.iter().filter(|(file, _)| !listed.contains(file)) {
        let title = title.replace(['[', ']'], "");
        summary.push_str(&format!("  - [{title}]({})\n", site_path(file).display()));
    }
    fs::write(source.join("src/SUMMARY.md"), summary)?;
    for file in ["book.toml", "site.css"] {
        fs::copy(root.join("docs/site").join(file), source.join(file))
            .with_context(|| format!("cannot copy docs/site/{file}"))?;
    }
    Ok(titles.len())
}

/// Lists the relative links of a page, as paths below the root.
fn linked_files(page: &Path, text: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    _ = map_links(text, |link| {
        files.push(resolve(page, split_anchor(link).0));
        None
    });
    files
}

/// Returns `text` with every relative link replaced by the result of `map`. If `map` returns `None`, only the text of
/// the link remains.
///
/// Code, links to other sites and links within the page stay as they are.
fn map_links(text: &str, mut map: impl FnMut(&str) -> Option<String>) -> String {
    let mut fenced = false;
    // Code may begin on one line and end on the next one of the same paragraph.
    let mut backticks = 0;
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            out.push_str(line);
            continue;
        }
        if line.trim().is_empty() {
            backticks = 0;
        }
        let mut rest = line;
        let mut written = String::new();
        while let Some(at) = rest.find("](") {
            let (before, after) = rest.split_at(at);
            written.push_str(before);
            let Some((link, tail)) = after[2..].split_once(')') else {
                break;
            };
            let in_code = (backticks + written.matches('`').count()) % 2 == 1;
            let mapped = if in_code || link.contains("://") || link.starts_with('#') {
                Some(link.to_owned())
            } else {
                map(link)
            };
            match mapped {
                Some(mapped) => written.push_str(&format!("]({mapped})")),
                None => drop_opening_bracket(&mut written),
            }
            rest = tail;
        }
        written.push_str(rest);
        backticks += written.matches('`').count();
        out.push_str(&written);
    }
    out
}

/// Removes the last `[` without a matching `]`: the bracket that opened the text of the link.
fn drop_opening_bracket(text: &mut String) {
    let mut depth = 0_usize;
    for (at, character) in text.char_indices().rev() {
        match character {
            ']' => depth += 1,
            '[' if depth == 0 => {
                _ = text.remove(at);
                return;
            }
            '[' => depth -= 1,
            _ => {}
        }
    }
}

/// Resolves a link of `page` to a path below the root.
fn resolve(page: &Path, link: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or_else(|| Path::new("")).to_path_buf();
    for component in Path::new(link).components() {
        match component {
            Component::ParentDir => _ = path.pop(),
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

/// Returns the file to which a link leads: for a folder its README.md, or `None` if the folder has no README.md.
fn with_readme(root: &Path, path: PathBuf) -> Option<PathBuf> {
    let readme = path.join("README.md");
    match root.join(&path).is_dir() {
        false => Some(path),
        true => root.join(&readme).is_file().then_some(readme),
    }
}

/// Returns the path of a file in the site's source. mdBook creates wrong links to `README.md`, so these pages are
/// renamed to `index.md`.
fn site_path(file: &Path) -> PathBuf {
    match file.file_name().is_some_and(|name| name == "README.md") {
        true => file.with_file_name("index.md"),
        false => file.to_path_buf(),
    }
}

/// Returns the relative link from one file to another.
fn relative(from: &Path, to: &Path) -> String {
    let depth = from.components().count() - 1;
    format!("{}{}", "../".repeat(depth), to.display())
}

fn split_anchor(link: &str) -> (&str, &str) {
    link.split_at(link.find('#').unwrap_or(link.len()))
}

fn is_markdown(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "md")
}

/// Returns the first heading of a page.
fn title(text: &str, file: &Path) -> String {
    let heading = text.lines().find_map(|line| line.strip_prefix("# "));
    heading.map_or_else(|| file.display().to_string(), str::to_owned)
}

/// Lists the Markdown files below a folder.
fn markdown_below(root: &Path, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            pages.extend(markdown_below(root, &path)?);
        } else if is_markdown(&path) {
            pages.push(path);
        }
    }
    Ok(pages)
}

/// Checks every `href` and `src` of the built pages. Returns a message for each broken link.
fn broken_links(site: &Path) -> anyhow::Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    read_pages(site, Path::new(""), &mut pages)?;
    let mut broken = Vec::new();
    for (page, text) in &pages {
        // The links of this page are relative to the address of the published site.
        if page == Path::new("404.html") {
            continue;
        }
        for link in attributes(text, "href").chain(attributes(text, "src")) {
            if link.contains(':') || link.is_empty() {
                continue;
            }
            let (path, anchor) = split_anchor(link);
            let there = if path.is_empty() {
                page.clone()
            } else {
                resolve(page, path)
            };
            let anchor = anchor.trim_start_matches('#');
            let resolves = match pages.get(&there) {
                Some(text) => anchor.is_empty() || attributes(text, "id").any(|id| id == anchor),
                None => site.join(&there).is_file(),
            };
            if !resolves {
                broken.push(format!(
                    "{}: the target of the link to {link} does not exist",
                    page.display()
                ));
            }
        }
    }
    Ok(broken)
}

/// Reads all HTML pages below `folder`.
fn read_pages(
    site: &Path,
    folder: &Path,
    pages: &mut BTreeMap<PathBuf, String>,
) -> anyhow::Result<()> {
    for entry in fs::read_dir(site.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            read_pages(site, &path, pages)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "html")
        {
            let text = fs::read_to_string(site.join(&path))?;
            _ = pages.insert(path, text);
        }
    }
    Ok(())
}

/// Returns the values of an attribute in HTML with double quotes, as mdBook writes it.
fn attributes<'a>(html: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let opening = format!(" {name}=\"");
    let width = opening.len();
    let starts: Vec<usize> = html
        .match_indices(&opening)
        .map(|(at, _)| at + width)
        .collect();
    starts
        .into_iter()
        .filter_map(|at| html[at..].split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_links_are_mapped_and_other_links_stay() {
        let text = "[a](b.md#c) [d](https://e.example) [f](#g) `[h](i)`\n```\n[j](k)\n```\n";
        let mapped = map_links(text, |link| Some(format!("x/{link}")));
        let expected = "[a](x/b.md#c) [d](https://e.example) [f](#g) `[h](i)`\n```\n[j](k)\n```\n";
        assert_eq!(mapped, expected);
    }

    #[test]
    fn a_link_after_code_of_two_lines_is_mapped() {
        let mapped = map_links("`a\nb` [c](d)\n\n`e\n\n[f](g)", |link| {
            Some(format!("x/{link}"))
        });
        assert_eq!(mapped, "`a\nb` [c](x/d)\n\n`e\n\n[f](x/g)");
    }

    #[test]
    fn a_dropped_link_leaves_its_text() {
        let mapped = map_links("see [the [old] files](fixtures), now", |_| None);
        assert_eq!(mapped, "see the [old] files, now");
    }

    #[test]
    fn links_between_pages_are_relative() {
        let page = Path::new("docs/how-to/link.md");
        assert_eq!(resolve(page, "../words.md"), Path::new("docs/words.md"));
        assert_eq!(relative(page, Path::new("README.md")), "../../README.md");
        assert_eq!(
            site_path(Path::new("docs/adr/README.md")),
            Path::new("docs/adr/index.md")
        );
    }

    #[test]
    fn attributes_are_found() {
        let html = "<a href=\"b.html#c\" id=\"d\"><a href=\"e\">";
        assert_eq!(
            attributes(html, "href").collect::<Vec<_>>(),
            ["b.html#c", "e"]
        );
        assert_eq!(attributes(html, "id").collect::<Vec<_>>(), ["d"]);
    }
}
