//! Parses the arguments of a command according to its help text.
//!
//! The help text defines the options. A line that begins with `--runs N` declares an option with a value; a line that
//! begins with `--few` declares a switch. Words in capitals after `usage: cargo xtask <command>` set the number of
//! positional arguments. Every option therefore has a line of help, no line describes an option that does not exist,
//! and the error for an invalid value shows the line of help.
//!
//! The program `edgeward` uses clap for its options. Here clap would add to the compile time of `tidy`, the first step
//! of every check.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};

use crate::say;

/// The parsed positional arguments and options.
#[derive(Debug)]
pub(crate) struct Options {
    help: &'static str,
    words: Vec<String>,
    /// The last value of each option. A switch has an empty value.
    values: BTreeMap<&'static str, String>,
}

/// Runs a command with the arguments, or prints its help.
pub(crate) fn run(
    command: fn(&Path, &Options) -> anyhow::Result<bool>,
    help: &'static str,
    root: &Path,
    arguments: impl Iterator<Item = String>,
) -> anyhow::Result<bool> {
    if let Some(options) = Options::parse(help, arguments)? {
        return command(root, &options);
    }
    say(help);
    Ok(true)
}

impl Options {
    /// Parses the arguments. Returns `None` if help was requested.
    pub(crate) fn parse(
        help: &'static str,
        mut arguments: impl Iterator<Item = String>,
    ) -> anyhow::Result<Option<Self>> {
        let (mut words, mut values) = (Vec::new(), BTreeMap::new());
        while let Some(argument) = arguments.next() {
            if matches!(argument.as_str(), "--help" | "-h") {
                return Ok(None);
            }
            if !argument.starts_with('-') {
                words.push(argument);
                continue;
            }
            let Some(flag) = flags(help).find(|flag| flag.name == argument) else {
                let known: Vec<_> = flags(help).map(|flag| flag.name).collect();
                let hint = match &known[..] {
                    [] => usage(help).to_owned(),
                    known => format!("the options are {}", known.join(", ")),
                };
                bail!("no option is called {argument}\n  hint: {hint}");
            };
            let value = if flag.takes_value {
                let value = arguments.next();
                value.with_context(|| format!("{argument} needs a value\n  hint: {flag}"))?
            } else {
                String::new()
            };
            values.insert(flag.name, value);
        }
        let usage = usage(help);
        if let Some(surplus) = words.get(words_max(usage)) {
            bail!("unexpected argument {surplus}\n  hint: {usage}");
        }
        Ok(Some(Self {
            help,
            words,
            values,
        }))
    }

    pub(crate) fn positional(&self) -> &[String] {
        &self.words
    }

    /// Returns the value of an option, if it was given.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        assert!(
            flags(self.help).any(|flag| flag.name == name),
            "the code reads {name}, but the help does not declare it"
        );
        self.values.get(name).map(String::as_str)
    }

    pub(crate) fn is_set(&self, switch: &str) -> bool {
        self.value(switch).is_some()
    }

    pub(crate) fn text(&self, name: &str, default: &str) -> String {
        self.value(name).unwrap_or(default).to_owned()
    }

    /// Returns the comma-separated values of an option; at least one.
    pub(crate) fn list(&self, name: &str, default: &str) -> anyhow::Result<Vec<String>> {
        let parts = self.value(name).unwrap_or(default).split(',');
        let named = parts.map(str::trim).filter(|part| !part.is_empty());
        let list: Vec<_> = named.map(str::to_owned).collect();
        ensure!(!list.is_empty(), "{}", self.invalid_value(name));
        Ok(list)
    }

    /// Like `list`, but each value must be the name of an element of `all`. `spelled` returns the name of an element.
    /// Without the option, returns all elements.
    pub(crate) fn choice<T: Copy>(
        &self,
        name: &str,
        all: &[T],
        spelled: impl Fn(T) -> &'static str,
    ) -> anyhow::Result<Vec<T>> {
        if self.value(name).is_none() {
            return Ok(all.to_vec());
        }
        let chosen = self.list(name, "")?.into_iter().map(|part| {
            let found = all.iter().copied().find(|one| spelled(*one) == part);
            found.with_context(|| {
                let known: Vec<_> = all.iter().copied().map(&spelled).collect();
                format!(
                    "{name} {part} is invalid\n  hint: the values are {}",
                    known.join(", ")
                )
            })
        });
        chosen.collect()
    }

    /// Returns the space-separated values of an option.
    pub(crate) fn space_separated(&self, name: &str) -> Vec<String> {
        let words = self.value(name).unwrap_or_default().split_whitespace();
        words.map(str::to_owned).collect()
    }

    pub(crate) fn number<N: FromStr>(&self, name: &str, default: N) -> anyhow::Result<N> {
        Ok(self.number_given(name)?.unwrap_or(default))
    }

    /// Like `number`, but returns `None` if the option was not given.
    pub(crate) fn number_given<N: FromStr>(&self, name: &str) -> anyhow::Result<Option<N>> {
        let number = |text: &str| text.parse().map_err(|_| self.invalid_value(name));
        self.value(name).map(number).transpose()
    }

    /// Like `number`, but rejects zero.
    pub(crate) fn count<N: FromStr + Default + PartialOrd>(
        &self,
        name: &str,
        default: N,
    ) -> anyhow::Result<N> {
        let count = self.number(name, default)?;
        ensure!(count > N::default(), "{name} must be at least 1");
        Ok(count)
    }

    pub(crate) fn numbers<N: FromStr>(&self, name: &str, default: &str) -> anyhow::Result<Vec<N>> {
        let parts = self.list(name, default)?;
        let numbers: Option<_> = parts.iter().map(|part| part.parse().ok()).collect();
        numbers.with_context(|| self.invalid_value(name))
    }

    pub(crate) fn size(&self, name: &str, default: u64) -> anyhow::Result<u64> {
        self.value(name).map_or(Ok(default), |text| {
            size(text).with_context(|| format!("{name} {text} is not a size; write 64MiB"))
        })
    }

    /// Returns comma-separated sizes in bytes, all greater than zero.
    pub(crate) fn sizes(&self, name: &str, default: &str) -> anyhow::Result<Vec<u64>> {
        let parts = self.list(name, default)?;
        let sizes = parts.iter().map(|part| {
            let size = size(part).filter(|size| *size > 0);
            size.with_context(|| format!("{name} {part} is not a size; write 16KiB"))
        });
        sizes.collect()
    }

    /// Returns a path. A relative path is below the workspace.
    pub(crate) fn path(&self, name: &str, root: &Path, default: &str) -> PathBuf {
        root.join(self.value(name).unwrap_or(default))
    }

    /// Like `path`, but creates the folder. Version control ignores the default folders.
    pub(crate) fn folder(&self, name: &str, root: &Path, default: &str) -> anyhow::Result<PathBuf> {
        let path = self.path(name, root, default);
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// Returns the path of the `edgeward` binary to measure.
    pub(crate) fn edgeward(&self, root: &Path, default: &str) -> anyhow::Result<PathBuf> {
        edgeward_binary(self.value("--edgeward").unwrap_or(default), root)
    }

    /// Returns the error for an invalid value, with the option's line of help.
    fn invalid_value(&self, name: &str) -> anyhow::Error {
        let value = self.value(name).unwrap_or_default();
        let flag = flags(self.help).find(|flag| flag.name == name);
        let flag = flag.expect("the help declares the option");
        anyhow::anyhow!("{name} {value} is invalid\n  hint: {flag}")
    }
}

/// Returns the binary for a path or a cargo profile.
pub(crate) fn edgeward_binary(named: &str, root: &Path) -> anyhow::Result<PathBuf> {
    if named.contains('/') {
        let path = PathBuf::from(named);
        ensure!(
            path.is_file(),
            "{named} does not exist\n  hint: --edgeward takes a binary's path or a cargo profile"
        );
        return Ok(path);
    }
    let path = target(root).join(named).join("edgeward");
    ensure!(
        path.is_file(),
        "{} does not exist\n  hint: cargo build --profile {named} -p edgeward-cli",
        path.display()
    );
    Ok(path)
}

/// Returns cargo's target folder.
pub(crate) fn target(root: &Path) -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR");
    root.join(named.map_or_else(|| "target".into(), PathBuf::from))
}

/// Parses `64MiB`, `16k` and `1000` as bytes.
fn size(text: &str) -> Option<u64> {
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

/// Formats a number of bytes for [`size`], in the largest unit that divides the number.
pub(crate) fn format_size(bytes: u64) -> String {
    match bytes {
        n if n > 0 && n % (1 << 30) == 0 => format!("{}GiB", n >> 30),
        n if n > 0 && n % (1 << 20) == 0 => format!("{}MiB", n >> 20),
        n if n > 0 && n % (1 << 10) == 0 => format!("{}KiB", n >> 10),
        n => n.to_string(),
    }
}

/// An option, as a line of the help text declares it.
#[derive(Debug)]
struct Flag {
    name: &'static str,
    takes_value: bool,
    line: &'static str,
}

impl fmt::Display for Flag {
    /// Prints the line with single spaces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.line.split_whitespace().collect();
        f.write_str(&words.join(" "))
    }
}

fn flags(help: &'static str) -> impl Iterator<Item = Flag> {
    // Lines with more indentation continue a description.
    let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
    lines.filter(|line| line.starts_with("--")).map(|line| {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        // `--runs N      how many`: one space and capitals mean a value. `--few   the small ones`: several spaces
        // mean a switch.
        let takes_value = rest.starts_with(|first: char| first.is_ascii_uppercase());
        Flag {
            name,
            takes_value,
            line,
        }
    })
}

fn usage(help: &'static str) -> &'static str {
    let line = help.lines().find(|line| line.starts_with("usage: "));
    line.expect("the help has a line that begins with usage")
}

/// Returns the number of positional arguments in the usage line, with or without brackets.
fn words_max(usage: &str) -> usize {
    let is_word = |word: &&str| {
        let word = word.trim_matches(['[', ']']);
        !word.is_empty() && word.chars().all(|letter| letter.is_ascii_uppercase())
    };
    usage.split(' ').filter(is_word).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "\
Measures something.

usage: cargo xtask bench-something [TRACE] [options]

  TRACE           the trace to send
  --disk SIZE     size of the disk [1GiB]
  --runs LIST     numbers of runs
                  --many is not an option, because of the indentation
  --few           only the small objects
";

    fn parse(line: &str) -> anyhow::Result<Option<Options>> {
        Options::parse(HELP, line.split_whitespace().map(str::to_owned))
    }

    fn options(line: &str) -> Options {
        parse(line)
            .expect("the line is valid")
            .expect("the line does not ask for help")
    }

    fn error_text(result: anyhow::Result<impl fmt::Debug>) -> String {
        format!("{:#}", result.expect_err("the input is invalid"))
    }

    #[test]
    fn a_formatted_size_is_parsed_again() {
        for text in ["64MiB", "1GiB", "16KiB", "1000", "0"] {
            assert_eq!(size(text).map(format_size).as_deref(), Some(text));
        }
        assert_eq!(size("16k"), Some(16 << 10));
        assert_eq!(size("1m"), Some(1 << 20));
        for text in ["", "MiB", "1TB", "1x", "99999999999GiB", "-1"] {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn the_help_declares_options_and_arguments() {
        let declared: Vec<_> = flags(HELP).map(|f| (f.name, f.takes_value)).collect();
        let expected = [("--disk", true), ("--runs", true), ("--few", false)];
        assert_eq!(declared, expected);
        for (usage, words) in [
            ("usage: cargo xtask x [options]", 0),
            ("usage: cargo xtask x TRACE", 1),
            ("usage: cargo xtask x FROM [TO] [options]", 2),
        ] {
            assert_eq!(words_max(usage), words, "{usage}");
        }
    }

    #[test]
    fn arguments_switches_and_options_may_be_mixed() {
        let options = options("--few a --disk 2MiB --runs 1,3 --disk 4MiB");
        assert_eq!(options.positional(), ["a"]);
        assert!(options.is_set("--few"));
        assert_eq!(options.size("--disk", 1).ok(), Some(4 << 20));
        assert_eq!(options.numbers::<u32>("--runs", "").ok(), Some(vec![1, 3]));
    }

    #[test]
    fn absent_options_have_defaults() {
        let options = options("");
        assert!(!options.is_set("--few"));
        assert_eq!(options.size("--disk", 7).ok(), Some(7));
        assert_eq!(options.count("--runs", 3_u32).ok(), Some(3));
        assert_eq!(
            options.choice("--runs", &["a", "b"], |it| it).ok(),
            Some(vec!["a", "b"])
        );
    }

    /// Each error message contains the invalid input and a hint.
    #[test]
    fn an_error_names_the_invalid_input_and_has_a_hint() {
        let disk = "hint: --disk SIZE size of the disk [1GiB]";
        let runs = "hint: --runs LIST numbers of runs";
        for (message, problem, hint) in [
            (
                error_text(parse("--disc 1")),
                "no option is called --disc",
                "--disk, --runs, --few",
            ),
            (
                error_text(parse("-x")),
                "no option is called -x",
                "--disk, --runs, --few",
            ),
            (error_text(parse("--disk")), "--disk needs a value", disk),
            (
                error_text(parse("a b")),
                "unexpected argument b",
                "usage: cargo xtask bench-something",
            ),
            (
                error_text(options("--disk x").size("--disk", 1)),
                "--disk x",
                "write 64MiB",
            ),
            (
                error_text(options("--runs x").number("--runs", 1)),
                "--runs x is invalid",
                runs,
            ),
            (
                error_text(options("--runs ,").list("--runs", "1")),
                "--runs , is invalid",
                runs,
            ),
            (
                error_text(options("--runs 0").count("--runs", 1)),
                "--runs",
                "at least 1",
            ),
            (
                error_text(options("--runs 0").sizes("--runs", "1")),
                "--runs 0",
                "write 16KiB",
            ),
            (
                error_text(options("--runs c").choice("--runs", &["a", "b"], |it| it)),
                "--runs c",
                "a, b",
            ),
        ] {
            assert!(
                message.contains(problem) && message.contains(hint),
                "{message}"
            );
        }
    }

    #[test]
    fn help_is_recognised_everywhere_except_as_a_value() {
        for line in ["-h", "a --help", "--few -h"] {
            assert!(parse(line).expect("the line is valid").is_none(), "{line}");
        }
        assert!(
            parse("--runs -h")
                .expect("the value is parsed later")
                .is_some()
        );
    }

    #[test]
    #[should_panic(expected = "the help does not declare it")]
    fn an_undeclared_option_cannot_be_read() {
        _ = options("").value("--secret");
    }
}
