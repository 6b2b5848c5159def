//! The commands. Each has a file with its arguments and a `run` function. `flag_values` parses values of flags that
//! several commands have.
//!
//! To add a command: write a file with `pub(crate) struct XArgs` (`#[derive(clap::Args)]`) and
//! `pub(crate) fn run(args: XArgs) -> anyhow::Result<ExitCode>`; add a variant and a match arm here.
//! A test in `tests/whole_cli/help.rs` checks that the command's `-h` fits a screen.

#[cfg(not(all(feature = "acme", feature = "filter", feature = "link")))]
mod absent;
#[cfg(feature = "acme")]
mod acme;
pub(crate) mod admin_api;
mod advise;
mod analyze;
#[cfg(feature = "filter")]
mod bench_filter;
mod cache;
mod check_config;
mod demo;
#[cfg(feature = "filter")]
mod demo_filter;
mod explain;
#[cfg(feature = "filter")]
mod filter;
pub(crate) mod flag_values;
mod fleet;
#[cfg(feature = "link")]
mod gateway;
mod generate;
mod init;
mod lab;
#[cfg(feature = "link")]
pub(crate) mod link;
mod migrate;
mod origin;
mod purge;
mod reload;
mod replay;
mod serve;
mod shadow;
mod simulate;
mod status;
mod store;
mod top;
mod trace;
mod upgrade;

use std::process::ExitCode;

use clap::Subcommand;

#[cfg(not(all(feature = "acme", feature = "filter", feature = "link")))]
use absent::absent;

#[cfg(not(feature = "acme"))]
absent!(acme::AcmeArgs, "acme", "acme");
#[cfg(not(feature = "filter"))]
absent!(bench_filter::BenchFilterArgs, "bench-filter", "filter");
#[cfg(not(feature = "filter"))]
absent!(demo_filter::DemoFilterArgs, "demo-filter", "filter");
#[cfg(not(feature = "filter"))]
absent!(filter::FilterArgs, "filter", "filter");
#[cfg(not(feature = "link"))]
absent!(gateway::GatewayArgs, "gateway", "link");
#[cfg(not(feature = "link"))]
absent!(link::LinkArgs, "link", "link");

/// The commands of `edgeward`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    // From a new edge to its operation, then the tools. Hidden commands stand at the end of `--help`, so that the list
    // of `-h` fits a screen.
    Init(init::InitArgs),
    Migrate(migrate::MigrateArgs),
    Serve(serve::ServeArgs),
    CheckConfig(check_config::CheckConfigArgs),
    Status(status::StatusArgs),
    Purge(purge::PurgeArgs),
    Explain(explain::ExplainArgs),
    Advise(advise::AdviseArgs),
    Shadow(shadow::ShadowArgs),
    Gateway(gateway::GatewayArgs),
    Link(link::LinkArgs),
    Filter(filter::FilterArgs),
    Analyze(analyze::AnalyzeArgs),
    Simulate(Box<simulate::SimulateCommand>),
    Replay(replay::ReplayArgs),
    Demo(demo::DemoArgs),
    #[command(hide = true)]
    Acme(acme::AcmeArgs),
    #[command(hide = true)]
    Cache(cache::CacheArgs),
    #[command(hide = true)]
    Fleet(fleet::FleetArgs),
    #[command(hide = true)]
    Reload(reload::ReloadArgs),
    #[command(hide = true)]
    Store(store::StoreArgs),
    #[command(hide = true)]
    Top(top::TopArgs),
    #[command(hide = true)]
    Upgrade(upgrade::UpgradeArgs),
    #[command(hide = true)]
    Lab(lab::LabArgs),
    #[command(hide = true)]
    Origin(origin::OriginArgs),
    #[command(hide = true)]
    Trace(trace::TraceArgs),
    #[command(hide = true)]
    BenchFilter(bench_filter::BenchFilterArgs),
    #[command(hide = true)]
    DemoFilter(demo_filter::DemoFilterArgs),
    #[command(hide = true)]
    Generate(generate::GenerateArgs),
}

impl Command {
    /// Runs the command. `parser` makes the whole command line of `edgeward`.
    pub(crate) fn run(self, parser: fn() -> clap::Command) -> anyhow::Result<ExitCode> {
        match self {
            Self::Init(args) => init::run(&args),
            Self::Serve(args) => serve::run(&args),
            Self::Gateway(args) => gateway::run(&args),
            Self::Analyze(args) => analyze::run(&args),
            Self::Simulate(args) => simulate::run(&args),
            Self::Origin(args) => origin::run(args),
            Self::Replay(args) => replay::run(args),
            Self::Trace(args) => trace::run(args),
            Self::Filter(args) => filter::run(args),
            Self::BenchFilter(args) => bench_filter::run(&args),
            Self::Store(args) => store::run(&args),
            Self::Link(args) => link::run(&args),
            Self::Migrate(args) => migrate::run(&args),
            Self::Shadow(args) => shadow::run(&args),
            Self::Status(args) => status::run(&args),
            Self::Advise(args) => advise::run(&args),
            Self::Top(args) => top::run(&args),
            Self::Purge(args) => purge::run(&args),
            Self::Reload(args) => reload::run(&args),
            Self::Upgrade(args) => upgrade::run(&args),
            Self::Cache(args) => cache::run(&args),
            Self::Acme(args) => acme::run(&args),
            Self::Fleet(args) => fleet::run(&args),
            Self::Explain(args) => explain::run(&args),
            Self::CheckConfig(args) => check_config::run(&args),
            Self::Lab(args) => lab::run(&args),
            Self::Demo(args) => demo::run(&args),
            Self::DemoFilter(args) => demo_filter::run(&args),
            Self::Generate(args) => generate::run(&args, parser()),
        }
    }

    /// The default log filter: servers log at `info`, tools at `warn`.
    pub(crate) fn default_log(&self) -> &'static str {
        match self {
            Self::Serve(_) | Self::Gateway(_) => "info",
            #[cfg(feature = "link")]
            Self::Link(args) => args.default_log(),
            #[cfg(not(feature = "link"))]
            Self::Link(_) => "warn",
            #[cfg(feature = "filter")]
            Self::Filter(args) => args.default_log(),
            #[cfg(not(feature = "filter"))]
            Self::Filter(_) => "warn",
            Self::Init(_)
            | Self::Generate(_)
            | Self::Analyze(_)
            | Self::Simulate(_)
            | Self::Origin(_)
            | Self::Replay(_)
            | Self::Trace(_)
            | Self::BenchFilter(_)
            | Self::Store(_)
            | Self::Migrate(_)
            | Self::Shadow(_)
            | Self::Status(_)
            | Self::Advise(_)
            | Self::Top(_)
            | Self::Purge(_)
            | Self::Reload(_)
            | Self::Upgrade(_)
            | Self::Cache(_)
            | Self::Acme(_)
            | Self::Fleet(_)
            | Self::Explain(_)
            | Self::CheckConfig(_)
            | Self::Lab(_)
            | Self::Demo(_)
            | Self::DemoFilter(_) => "warn",
        }
    }
}
