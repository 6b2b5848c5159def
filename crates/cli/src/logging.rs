//! Logs: structured events to stderr, as text for people or as JSON for programs.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::diagnostic::Diagnostic;

/// The options of logging.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// Log level: error, warn, info, debug, trace, or per module
    ///
    /// A level, or levels per module as in `info,edgeward_proxy=debug`. The default is the variable EDGEWARD_LOG, or
    /// `info` for servers and `warn` for tools.
    #[arg(long, global = true, value_name = "FILTER", hide_short_help = true)]
    pub(crate) log: Option<String>,

    /// Format of log lines on stderr
    #[arg(
        long,
        global = true,
        value_name = "FORM",
        default_value = "text",
        hide_short_help = true
    )]
    pub(crate) log_format: LogFormat,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Text, coloured on a terminal
    Text,
    /// One JSON object per line
    Json,
}

/// Writes log events to stderr from now on. `main` calls this once.
pub(crate) fn start(args: &LogArgs, default: &str) -> anyhow::Result<()> {
    let variable = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let (source, filter) = match (&args.log, &variable) {
        (Some(flag), _) => ("--log", flag.as_str()),
        (None, Some(variable)) => (VARIABLE, variable.as_str()),
        (None, None) => ("the default", default),
    };
    if let Some(word) = filter
        .split(',')
        .map(str::trim)
        .find(|word| is_unknown_level(word))
    {
        return Err(Diagnostic::new(format!(
            "{source} `{filter}` is not a log filter: unknown level `{word}`"
        ))
        .hint("give a level (error, warn, info, debug, trace, off) or module=level pairs")
        .into());
    }
    let filter = EnvFilter::builder().parse(filter).map_err(|error| {
        Diagnostic::new(format!("{source} `{filter}` is not a log filter: {error}"))
            .hint("give a level (error, warn, info, debug, trace, off) or module=level pairs")
    })?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    let set = match args.log_format {
        LogFormat::Text => subscriber.with_ansi(io::stderr().is_terminal()).try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    };
    set.map_err(|error| anyhow::anyhow!("logging is set up already: {error}"))
}

/// Returns true if `word`, one part of a log filter, is a single word and not a level. The parser of
/// `tracing_subscriber` would accept the word as the name of a module, and then no event would be logged.
fn is_unknown_level(word: &str) -> bool {
    // The parser also accepts the number of a level.
    const LEVELS: [&str; 12] = [
        "off", "error", "warn", "info", "debug", "trace", "0", "1", "2", "3", "4", "5",
    ];
    let is_word = !word.is_empty()
        && word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_word && !LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word))
}

const VARIABLE: &str = "EDGEWARD_LOG";
