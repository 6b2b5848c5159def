//! Crates without examples in their documentation: `cargo test` starts rustdoc for each library whose manifest does not
//! say `doctest = false`, which takes two seconds even if the library has no example.

use super::Finding;

/// The line of a manifest that switches the examples of a library off.
const OFF: &str = "doctest = false";

/// Compares the manifest of a library with its sources. `place` is the path of the manifest, and `sources` are the
/// paths and texts of the library's files.
pub(crate) fn check<'a>(
    place: &str,
    manifest: &str,
    sources: impl Iterator<Item = (&'a str, &'a str)>,
) -> Option<Finding> {
    let is_off = manifest.lines().any(|line| line.trim() == OFF);
    let mut examples = sources.filter_map(|(file, text)| Some((file, example(text)?)));
    match (examples.next(), is_off) {
        (Some((file, line)), true) => Some(Finding::new(
            "examples",
            format!("{file}:{line}"),
            "no test runs this example".to_owned(),
            "remove `doctest = false` from the crate's manifest",
        )),
        (None, false) => Some(Finding::new(
            "examples",
            place,
            "the library has no example, but `cargo test` searches for them".to_owned(),
            "add `doctest = false` to its section `[lib]`",
        )),
        _ => None,
    }
}

/// Returns the line of the first example in the documentation of a file. Blocks of other languages are no examples.
fn example(text: &str) -> Option<usize> {
    let mut is_open = false;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let doc = line
            .strip_prefix("//!")
            .or_else(|| line.strip_prefix("///"));
        let Some(info) = doc.and_then(|doc| doc.trim().strip_prefix("```")) else {
            continue;
        };
        is_open = !is_open;
        let is_rust = info.split(',').all(|word| RUST.contains(&word.trim()));
        if is_open && is_rust {
            return Some(at + 1);
        }
    }
    None
}

/// The words behind the beginning of a block that rustdoc compiles.
const RUST: [&str; 5] = ["", "rust", "no_run", "should_panic", "compile_fail"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_says_whether_its_library_has_examples() {
        let rust = "//! Text:\n//! ```text\n//! a\n//! ```\n/// ```no_run\n/// b();\n/// ```\n";
        let text = "//! ```text\n//! a\n//! ```\n";
        let off = "[lib]\ndoctest = false\n";
        let found = |manifest, source| {
            let sources = [("src/lib.rs", source)];
            let finding = check("Cargo.toml", manifest, sources.into_iter());
            finding.map(|finding| finding.position)
        };
        assert_eq!(found("", rust), None);
        assert_eq!(found(off, text), None);
        assert_eq!(found(off, rust).as_deref(), Some("src/lib.rs:5"));
        assert_eq!(found("", text).as_deref(), Some("Cargo.toml"));
    }
}
