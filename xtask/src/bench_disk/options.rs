//! What was typed: words, and options that each have a value.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, bail};

/// Words and options, not yet understood.
#[derive(Debug)]
pub(crate) struct Options {
    words: Vec<String>,
    values: BTreeMap<String, String>,
}

impl Options {
    /// Takes the line apart; nothing if it asks for help. Options that are not `known` are mistakes.
    pub(crate) fn parse(
        mut arguments: impl Iterator<Item = String>,
        known: &[&str],
    ) -> anyhow::Result<Option<Self>> {
        let (mut words, mut values) = (Vec::new(), BTreeMap::new());
        while let Some(argument) = arguments.next() {
            if matches!(argument.as_str(), "--help" | "-h") {
                return Ok(None);
            }
            let Some(name) = argument.strip_prefix("--") else {
                words.push(argument);
                continue;
            };
            if !known.contains(&name) {
                bail!("no option is called {argument}\n  hint: --help lists them");
            }
            let value = arguments.next();
            let value = value.with_context(|| format!("{argument} needs a value"))?;
            values.insert(name.to_owned(), value);
        }
        Ok(Some(Self { words, values }))
    }

    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }

    pub(crate) fn given(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    pub(crate) fn text(&self, name: &str, default: &str) -> String {
        self.given(name).unwrap_or(default).to_owned()
    }

    pub(crate) fn list(&self, name: &str, default: &str) -> Vec<String> {
        let text = self.given(name).unwrap_or(default);
        let parts = text.split(',').map(str::trim);
        parts
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect()
    }

    pub(crate) fn number<N: FromStr>(&self, name: &str, default: N) -> anyhow::Result<N> {
        self.given(name).map_or(Ok(default), |text| {
            let number = text.parse().ok();
            number.with_context(|| format!("--{name} wants a number, not {text}"))
        })
    }

    pub(crate) fn size(&self, name: &str, default: u64) -> anyhow::Result<u64> {
        self.given(name).map_or(Ok(default), |text| {
            size(text).with_context(|| format!("--{name} {text} is no size; write 64MiB"))
        })
    }

    /// A folder, by default one that is left out of version control, made if it is not there.
    pub(crate) fn folder(&self, name: &str, root: &Path, default: &str) -> anyhow::Result<PathBuf> {
        let path = root.join(self.given(name).unwrap_or(default));
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(path)
    }
}

/// `64MiB`, `16k` and `1000` in bytes.
pub(crate) fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Bytes as `size` reads them, in the largest unit that they fill.
pub(crate) fn written(bytes: u64) -> String {
    match bytes {
        n if n > 0 && n % (1 << 30) == 0 => format!("{}GiB", n >> 30),
        n if n > 0 && n % (1 << 20) == 0 => format!("{}MiB", n >> 20),
        n if n > 0 && n % (1 << 10) == 0 => format!("{}KiB", n >> 10),
        n => n.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> anyhow::Result<Option<Options>> {
        let words = line.split_whitespace().map(str::to_owned);
        Options::parse(words, &["disk", "runs"])
    }

    #[test]
    fn sizes_come_back_as_they_were_written() {
        for text in ["64MiB", "1GiB", "16KiB", "1000", "0"] {
            assert_eq!(size(text).map(written).as_deref(), Some(text));
        }
        assert_eq!(size("16k"), Some(16 << 10));
        for text in ["", "MiB", "1TB", "99999999999GiB", "-1"] {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn words_and_options_may_be_mixed() {
        let options = parse("a --disk 2MiB b").expect("fine").expect("no help");
        assert_eq!(options.words(), ["a", "b"]);
        assert_eq!(options.size("disk", 1).ok(), Some(2 << 20));
        assert_eq!(options.number("runs", 3_u32).ok(), Some(3));
    }

    #[test]
    fn mistakes_are_named_and_help_is_heard() {
        assert!(parse("--disc 1").is_err());
        assert!(parse("--disk").is_err());
        let options = parse("--disk x").expect("read later").expect("no help");
        assert!(options.size("disk", 1).is_err());
        assert!(parse("a --help").expect("fine").is_none());
    }
}
