//! The options of a command: pairs of a name and a value. The help of the command declares the names.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};

/// The given options of a command.
#[derive(Debug, Default)]
pub(crate) struct Options {
    values: BTreeMap<String, String>,
}

impl Options {
    /// Parses arguments such as `--words docs`. `help` is the help of the command: a line that begins with the name
    /// declares an option.
    pub(crate) fn parse(
        help: &str,
        mut arguments: impl Iterator<Item = String>,
    ) -> anyhow::Result<Self> {
        let lines = help.lines().map(str::trim_start);
        let names: Vec<&str> = lines
            .filter(|line| line.starts_with("--"))
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        let mut values = BTreeMap::new();
        while let Some(name) = arguments.next() {
            ensure!(
                names.contains(&name.as_str()),
                "there is no option {name}\n\n{help}"
            );
            let value = arguments.next();
            let value = value.with_context(|| format!("{name} needs a value\n\n{help}"))?;
            values.insert(name, value);
        }
        Ok(Self { values })
    }

    /// Returns the value of an option, if it is given.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_the_help_declares_are_accepted_and_others_are_errors() {
        let help = "Does x.\n\nusage: cargo xtask x\n\n  --out FILE   a file; not --in\n  --n N        a number\n";
        let parse = |line: &str| {
            let words = line.split_whitespace().map(str::to_owned);
            Options::parse(help, words)
        };
        let options = parse("--n 3 --out a").expect("the options are declared");
        assert_eq!(options.value("--out"), Some("a"));
        assert_eq!(options.value("--n"), Some("3"));
        assert_eq!(parse("").expect("none is given").value("--n"), None);
        for line in ["--in a", "out a", "--out"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
