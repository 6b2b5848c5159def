//! `edgeward explain`: explains the decisions of a running edge for a request.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::admin_api::AdminApi;
use crate::diagnostic::Diagnostic;
use crate::output;

/// Explain what a running edge would do with a request
///
/// The edge runs its decisions for the request and names the section of each rule. It sends nothing to the origin,
/// and counts and changes nothing.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ExplainArgs {
    /// The URL, with its scheme
    #[arg(value_name = "URL")]
    url: String,

    /// A request field; repeatable
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,

    /// The method
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    method: String,

    #[command(flatten)]
    admin: AdminApi,

    /// Print the explanation as JSON
    #[arg(long)]
    json: bool,
}

/// Sends the request and prints the explanation.
pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let body = json!({
        "url": args.url,
        "method": args.method,
        "headers": fields(&args.headers)?,
    });
    let answer = args.admin.post("/explain", &body, "explain the request")?;
    let mut out = output::stdout();
    if args.json {
        writeln!(out, "{answer}")?;
    } else {
        for step in answer["steps"].as_array().into_iter().flatten() {
            let text = |name: &str| step[name].as_str().unwrap_or_default();
            let (step, decision, section) = (text("step"), text("decision"), text("section"));
            writeln!(out, "{step:<13} {decision} [{section}]")?;
        }
        if let Some(cache_status) = answer["cache_status"].as_str() {
            writeln!(out, "{:<13} {cache_status}", "Cache-Status")?;
        }
        if let Some(status) = answer["status"].as_u64() {
            writeln!(out, "{:<13} {status}", "status")?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Splits header lines at their first colon.
pub(super) fn fields(lines: &[String]) -> Result<Vec<(&str, &str)>, Diagnostic> {
    let fields = lines.iter().map(|line| match line.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim(), value.trim())),
        _ => Err(Diagnostic::new(format!("`{line}` is not a header field"))
            .hint("write for example -H 'Accept-Language: de'")),
    });
    fields.collect()
}

const EXAMPLES: &str = "\
Examples:
  edgeward explain --admin 127.0.0.1:9101 --token-file token https://shop.example/cart
  edgeward explain --admin 127.0.0.1:9101 --token-file token -H 'Cache-Control: no-cache' \\
    --method HEAD https://shop.example/cart";
