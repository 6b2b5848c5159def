//! `edgeward cache get`: shows the stored responses of a URL.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use edgeward_types::ByteSize;
use serde_json::{Value, json};

use super::admin_api::AdminApi;
use super::explain::fields;
use crate::output;

/// Show the stored responses of a URL in a running edge
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Get(GetArgs),
}

/// Show the stored response of a URL: where, since when, how fresh and why
///
/// Exit codes: 0 a response is stored, 1 none is stored, 2 the edge could not be asked.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
struct GetArgs {
    /// The URL, with its scheme
    #[arg(value_name = "URL")]
    url: String,

    /// A request field that selects a variant; repeatable
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,

    /// List other variants on disk too; reads the heads of all objects
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    admin: AdminApi,

    /// Print the response as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(args: &CacheArgs) -> anyhow::Result<ExitCode> {
    let Action::Get(args) = &args.action;
    let body = json!({ "url": args.url, "headers": fields(&args.headers)?, "all": args.all });
    let answer = args.admin.post("/cache", &body, "show the URL")?;
    let mut out = output::stdout();
    if args.json {
        writeln!(out, "{answer}")?;
    } else {
        print(&mut out, &answer)?;
    }
    out.flush()?;
    Ok(match answer["stored"].is_null() {
        true => ExitCode::from(1),
        false => ExitCode::SUCCESS,
    })
}

fn print(out: &mut impl Write, answer: &Value) -> io::Result<()> {
    writeln!(out, "{}", text(&answer["url"]))?;
    let line = |out: &mut dyn Write, name: &str, value: &str| writeln!(out, "  {name:<12} {value}");
    if let Some(rule) = answer["no_vary_search"].as_str() {
        line(out, "shared", &format!("by No-Vary-Search: {rule}"))?;
        line(out, "as", text(&answer["url_under_rule"]))?;
    }
    if let Some(variant) = answer["variant"].as_str() {
        line(out, "variant", variant)?;
    }
    print_stored(out, &answer["stored"])?;
    for other in answer["other_variants"].as_array().into_iter().flatten() {
        let tiers = tiers(&other["where"]);
        line(
            out,
            "also stored",
            &format!("{}, {tiers}", text(&other["variant"])),
        )?;
    }
    Ok(())
}

/// Prints a stored response, as the API describes it.
pub(super) fn print_stored(out: &mut impl Write, stored: &Value) -> io::Result<()> {
    let mut line = |name: &str, value: String| match value.is_empty() {
        true => Ok(()),
        false => writeln!(out, "  {name:<12} {value}"),
    };
    if stored.is_null() {
        return line("stored", "no".to_owned());
    }
    let size = |value: &Value| ByteSize(value.as_u64().unwrap_or(0)).to_string();
    line(
        "stored",
        format!(
            "{}, validated at {}",
            tiers(&stored["where"]),
            text(&stored["validated_at"])
        ),
    )?;
    line(
        "response",
        format!(
            "status {}, body {}, {} in memory",
            stored["status"],
            size(&stored["body_bytes"]),
            size(&stored["memory_bytes"])
        ),
    )?;
    let slices = &stored["slices"];
    if let Some(count) = slices["count"].as_u64() {
        line(
            "slices",
            format!(
                "{count} of {}; of the first {}, {} in memory and {} on disk only",
                size(&slices["slice_bytes"]),
                slices["looked_up"],
                slices["in_memory"],
                slices["on_disk_only"]
            ),
        )?;
    }
    if let Some(encodings) = stored["encodings"].as_array().filter(|all| !all.is_empty()) {
        let describe = |encoding: &Value| {
            let coding = text(&encoding["coding"]);
            match encoding["body_bytes"].is_null() {
                true => format!("{coding} saves too little"),
                false => format!(
                    "{coding} {} ({})",
                    size(&encoding["body_bytes"]),
                    tiers(&encoding["where"])
                ),
            }
        };
        let all: Vec<String> = encodings.iter().map(describe).collect();
        line("encodings", all.join(", "))?;
    }
    let freshness = &stored["freshness"];
    let is_fresh = freshness["is_fresh"].as_bool() == Some(true);
    line(
        if is_fresh { "fresh" } else { "not fresh" },
        format!(
            "age {} s of {} s, ttl {} s",
            freshness["age_seconds"],
            freshness["lifetime_seconds"].as_f64().unwrap_or(0.0),
            freshness["ttl_seconds"]
        ),
    )?;
    line("lifetime", lifetime(freshness))?;
    let stale = [
        (
            "while it is validated until",
            &freshness["stale_while_revalidate_until"],
        ),
        ("on an error until", &freshness["stale_if_error_until"]),
    ];
    let stale = stale.iter().filter(|(_, until)| !until.is_null());
    let stale: Vec<_> = stale
        .map(|(use_, until)| format!("{use_} {}", text(until)))
        .collect();
    line("stale use", stale.join(", "))?;
    for (name, directive) in [
        ("no_cache", "no-cache: every use needs a validation"),
        ("forbids_stale", "it is never used stale"),
    ] {
        if freshness[name].as_bool() == Some(true) {
            line("", directive.to_owned())?;
        }
    }
    let validators = &stored["validators"];
    let validators = [
        ("ETag", &validators["etag"]),
        ("Last-Modified", &validators["last_modified"]),
    ];
    let validators = validators.iter().filter(|(_, value)| !value.is_null());
    let validators: Vec<_> = validators
        .map(|(name, value)| format!("{name} {}", text(value)))
        .collect();
    line("validators", validators.join(", "))?;
    line("tags", list(&stored["tags"], " "))?;
    line("purged", text(&stored["purged"]).to_owned())
}

/// Returns the field that decided the lifetime, with the section of the rule.
fn lifetime(freshness: &Value) -> String {
    let source = text(&freshness["source"]);
    let from = match freshness["field"].as_str() {
        Some(field) if field != source => format!("{source} of {field}"),
        _ => source.to_owned(),
    };
    match freshness["section"].as_str() {
        Some(section) => format!("from {from} ({section})"),
        None => from,
    }
}

/// Returns for example `in memory and on disk`.
fn tiers(names: &Value) -> String {
    let names = names.as_array().into_iter().flatten();
    let names = names.map(|name| match text(name) {
        "memory" => "in memory",
        _ => "on disk",
    });
    names.collect::<Vec<_>>().join(" and ")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(values: &Value, separator: &str) -> String {
    let values = values.as_array().into_iter().flatten();
    values.map(text).collect::<Vec<_>>().join(separator)
}

const EXAMPLES: &str = "\
Example:
  edgeward cache get --admin 127.0.0.1:9101 --token-file token \\
    -H 'Accept-Language: de' https://shop.example/cart";
