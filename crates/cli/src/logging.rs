//! Logs: structured events to stderr, as text for people or JSON for machines.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::complaint::Complaint;

/// How much is logged and in what form.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// What to log: error, warn, info, debug, trace, or per module
    ///
    /// A level, or levels per module as in `info,edgeward_proxy=debug`. Without it the variable
    /// EDGEWARD_LOG counts, and without that `info` for servers and `warn` for tools.
    #[arg(long, global = true, value_name = "FILTER", hide_short_help = true)]
    pub(crate) log: Option<String>,

    /// The form of log lines on stderr
    #[arg(
        long,
        global = true,
        value_name = "FORM",
        default_value = "text",
        hide_short_help = true
    )]
    pub(crate) log_format: LogFormat,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// One line for people, coloured on a terminal
    Text,
    /// One JSON object a line
    Json,
}

/// Sends events to stderr from here on. Called once, by `main`.
pub(crate) fn start(args: &LogArgs, default: &str) -> anyhow::Result<()> {
    let variable = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let (source, filter) = match (&args.log, &variable) {
        (Some(flag), _) => ("--log", flag.as_str()),
        (None, Some(variable)) => (VARIABLE, variable.as_str()),
        (None, None) => ("the default", default),
    };
    let filter = EnvFilter::builder().parse(filter).map_err(|error| {
        Complaint::new(format!("{source} `{filter}` is not a log filter: {error}"))
            .hint("write a level (error, warn, info, debug, trace, off) or module=level pairs")
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

const VARIABLE: &str = "EDGEWARD_LOG";
