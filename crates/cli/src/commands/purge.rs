//! `edgeward purge`: sends a request to the purge API of a running edge.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::admin_api::AdminApi;
use crate::diagnostic::Diagnostic;
use crate::output;

/// Remove responses from the cache of a running edge
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct PurgeArgs {
    /// URLs, with all their variants
    #[arg(value_name = "URL")]
    urls: Vec<String>,

    /// A member of Surrogate-Key, xkey, Cache-Tag or Cache-Groups; repeatable
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,

    /// All URLs of a host; repeatable
    #[arg(long = "host", value_name = "HOST[:PORT]")]
    hosts: Vec<String>,

    /// All URLs that start with HOST/PATH; repeatable
    #[arg(long = "prefix", value_name = "PREFIX")]
    prefixes: Vec<String>,

    /// All URLs that match; `*` stands for any text; repeatable
    #[arg(long = "pattern", value_name = "PATTERN")]
    patterns: Vec<String>,

    /// Serve the responses until they are revalidated in the background
    #[arg(long)]
    soft: bool,

    /// Only count the responses that the purge would cover
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    admin: AdminApi,

    /// Print the response as JSON
    #[arg(long)]
    json: bool,
}

/// Sends the request and prints the response.
pub(crate) fn run(args: &PurgeArgs) -> anyhow::Result<ExitCode> {
    let scopes = [
        &args.urls,
        &args.tags,
        &args.hosts,
        &args.prefixes,
        &args.patterns,
    ];
    if scopes.iter().all(|scopes| scopes.is_empty()) {
        return Err(Diagnostic::new("the command does not say what to purge")
            .hint("give a URL, --tag, --host, --prefix or --pattern")
            .into());
    }
    let request = json!({
        "urls": args.urls,
        "tags": args.tags,
        "hosts": args.hosts,
        "prefixes": args.prefixes,
        "patterns": args.patterns,
        "soft": args.soft,
        "dry_run": args.dry_run,
    });
    let answer = args.admin.post("/purge", &request, "purge")?;
    let mut out = output::stdout();
    if args.json {
        writeln!(out, "{answer}")?;
    } else if args.dry_run {
        writeln!(
            out,
            "responses that the purge would cover: {} in memory, {} on disk",
            answer["memory_objects"], answer["disk_objects"]
        )?;
    } else {
        writeln!(out, "purged")?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

const EXAMPLES: &str = "\
Examples:
  edgeward purge --admin 127.0.0.1:9101 --token-file token https://shop.example/cart
  edgeward purge --admin 127.0.0.1:9101 --token-file token --tag product-17 --soft
  edgeward purge --admin 127.0.0.1:9101 --token-file token --pattern '*.example/*.css' --dry-run";
