//! `edgeward advise`: recommends changes of the configuration, for a running edge or for logs.

mod logs;
mod predictions;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use edgeward_live::advise::{Advice, DiskSetting, NEAR_BEST, Setting, advise, advise_disk};
use edgeward_types::ByteSize;
use serde_json::{Value, json};

use self::logs::LogArgs;
use self::predictions::{described, described_disk, disk_json, expected};
use super::admin_api::{AdminServer, read_token};
use crate::diagnostic::Diagnostic;
use crate::insight::faults;
use crate::output;

/// Recommend settings for a running edge's traffic, or for logs
///
/// With logs, the same caches are simulated with all requests of the logs. The first quarter fills the caches.
///
/// The edge simulates caches of other sizes and policies with a sample of its requests, and finds caching faults in it.
/// This command reads the results from /status.json, and prints the changes that would bring clearly more hits, and the
/// rules that mend the faults.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct AdviseArgs {
    /// The edge's admin server: HOST:PORT, https://HOST:PORT or unix:PATH
    #[arg(
        long,
        value_name = "ADDR",
        required_unless_present = "logs",
        conflicts_with = "logs"
    )]
    admin: Option<String>,

    /// PEM file of the CA of the admin server [default: the system's]
    #[arg(long, value_name = "FILE", requires = "admin", hide_short_help = true)]
    admin_ca: Option<PathBuf>,

    #[command(flatten)]
    log: LogArgs,

    /// File with a token of the edge, if it has admin.require_token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Print the recommendation as JSON
    #[arg(long)]
    json: bool,
}

/// Prints the recommendation. Exit codes: 0 nothing to change, 1 a change is recommended or a fault is found.
pub(crate) fn run(args: &AdviseArgs) -> anyhow::Result<ExitCode> {
    let Some(admin) = &args.admin else {
        return run_logs(args);
    };
    let admin = AdminServer::new(admin.clone(), args.admin_ca.clone());
    let token = args.token_file.as_deref().map(read_token).transpose()?;
    let token = token.as_deref();
    // `/status.json` has URLs, so it may need a token where `/status` needs none.
    let page = admin.get("/status.json", token);
    let page = page.or_else(|_| admin.get("/status", token))?;
    let status: Value = serde_json::from_str(&page).context("the status is not JSON")?;
    let what_if = &status["what_if"];
    let is_complete = what_if["incomplete"] != true;
    let disks = if is_complete {
        disks_of(what_if)
    } else {
        Vec::new()
    };
    let findings = status["faults"]["findings"].as_array();
    let findings = findings.map(Vec::as_slice);
    let advice = advice_of(what_if);
    // Faults are worth a report even if no setting can be recommended.
    let advice = match (advice, findings) {
        (Ok(advice), _) => Ok(advice),
        (Err(error), Some([_, ..])) => Err(error),
        (Err(error), _) => return Err(error),
    };
    if args.json {
        let mut document = advice
            .as_ref()
            .map_or_else(|_| json!({}), |advice| document(advice, what_if));
        document["disk"] = json!(advise_disk(&disks).map(disk_json));
        document["faults"] = json!(findings);
        output::print_json(&document)?;
    } else {
        let mut out = output::stdout();
        match &advice {
            Ok(advice) => write!(out, "{}", text(advice, what_if))?,
            Err(error) => writeln!(out, "no setting is recommended: {error}")?,
        }
        write!(out, "{}{}", disk_text(&disks), faults_text(findings))?;
        out.flush()?;
    }
    let keeps_setting = advice.is_ok_and(|it| it.policy.is_none() && it.memory.is_none());
    Ok(exit_code(keeps_setting, &disks, findings))
}

/// Prints the recommendation for logs.
fn run_logs(args: &AdviseArgs) -> anyhow::Result<ExitCode> {
    let found = logs::read(&args.log)?;
    let faults = found.faults.as_ref();
    let withheld_ratio = faults.map(edgeward_live::faults::Faults::withheld_ratio);
    let faults = faults.map(edgeward_live::faults::Faults::findings);
    let faults = faults.map(|findings| faults::json_of(&findings));
    let findings = faults.as_ref().and_then(Value::as_array).map(Vec::as_slice);
    // The present setting is known with `--hot`.
    let advice = advise(&found.results.settings);
    if args.json {
        let mut document = logs::document(&found);
        document["faults"] = json!(findings);
        document["withheld_ratio"] = json!(withheld_ratio);
        document["disk"] = json!(advise_disk(&found.results.disks).map(disk_json));
        if let Some(advice) = &advice {
            let object = document.as_object_mut().context("an object")?;
            object.extend(changes(advice));
        }
        output::print_json(&document)?;
    } else {
        let mut out = output::stdout();
        write!(out, "{}", logs::text(&found))?;
        if let Some(advice) = &advice {
            write!(
                out,
                "\npresent setting: {}\n{}{}",
                described(&advice.present),
                changes_text(advice),
                disk_text(&found.results.disks)
            )?;
        }
        if findings.is_some() {
            let hint = "the log has no bodies: equal sizes are a hint that parameters do not change the body";
            writeln!(out, "{}({hint})", faults_text(findings))?;
            if let Some(ratio) = withheld_ratio.filter(|ratio| *ratio > 0.01) {
                let share = output::percent(ratio);
                writeln!(
                    out,
                    "(the log excludes so many rules that {share} of the other faults are not shown)"
                )?;
            }
        }
        out.flush()?;
    }
    let keeps_setting = advice.is_none_or(|it| it.policy.is_none() && it.memory.is_none());
    Ok(exit_code(keeps_setting, &found.results.disks, findings))
}

/// Returns 1 if a change of the present setting is recommended or a fault is found.
fn exit_code(keeps_setting: bool, disks: &[DiskSetting], findings: Option<&[Value]>) -> ExitCode {
    let has_no_fault = findings.is_none_or(<[Value]>::is_empty);
    let is_good = keeps_setting && advise_disk(disks).is_none() && has_no_fault;
    ExitCode::from(u8::from(!is_good))
}

/// Returns the recommended settings.
fn advice_of(what_if: &Value) -> anyhow::Result<Advice> {
    let settings = settings_of(what_if)?;
    let advice = advise(&settings).ok_or_else(|| {
        let policy = what_if["policy"].as_str().unwrap_or("unknown");
        Diagnostic::new(format!(
            "the edge has the policy {policy}, which it does not simulate"
        ))
        .hint("compare the predictions of `what_if` in /status with the measured hit ratio")
    })?;
    Ok(advice)
}

/// Returns the part of the text about caching faults. `findings` is `None` if the edge does not report them.
fn faults_text(findings: Option<&[Value]>) -> String {
    let Some(findings) = findings else {
        return "\ncaching faults: not known; they need some requests and a token (--token-file) if the admin \
                address is not local\n"
            .to_owned();
    };
    if findings.is_empty() {
        return "\nno caching faults\n".to_owned();
    }
    let mut text = format!("\ncaching faults: {}\n", findings.len());
    for finding in findings {
        let word = |key: &str| finding[key].as_str().unwrap_or_default();
        let percent = |key: &str| 100.0 * finding[key].as_f64().unwrap_or_default();
        // Writing to a string never fails.
        _ = write!(
            text,
            "\n{} [{}]\n  {:.1} % of requests; the rule turns {:.1} % of all requests into hits; example: {}\n",
            word("text"),
            word("fault"),
            percent("request_share"),
            percent("hit_share"),
            word("example"),
        );
        for line in word("rule").lines() {
            _ = writeln!(text, "    {line}");
        }
    }
    text
}

/// Returns the predictions of an edge.
fn settings_of(what_if: &Value) -> anyhow::Result<Vec<Setting>> {
    let missing = || {
        Diagnostic::new("the edge has no predictions")
            .hint("predictions need insight.enabled and some requests; see docs/how-to/what-if.md")
    };
    if what_if["incomplete"] == true {
        return Err(Diagnostic::new(format!(
            "{} requests of the sample were lost in the last hour, so the predictions are uncertain",
            what_if["samples_lost"]
        ))
        .hint("ask again an hour after the load; see docs/how-to/what-if.md")
        .into());
    }
    let points = what_if["points"].as_array().ok_or_else(missing)?;
    if points.is_empty() {
        return Err(missing().into());
    }
    let settings = points.iter().map(|point| {
        let number = |key: &str| point[key].as_f64();
        Some(Setting {
            policy: point["policy"].as_str()?.to_owned(),
            capacity_bytes: point["capacity_bytes"].as_u64()?,
            is_present: point["present"].as_bool()?,
            hit_ratio: number("hit_ratio")?,
            hit_ratio_error: number("hit_ratio_error")?,
            byte_hit_ratio: number("byte_hit_ratio")?,
            origin_bytes_per_second: number("origin_bytes_per_second")?,
            is_filling: point["filling"] == true,
        })
    });
    let settings: Option<Vec<_>> = settings.collect();
    settings.context("the predictions in /status have another form than this program reads")
}

fn document(advice: &Advice, what_if: &Value) -> Value {
    let mut document = json!({
        "window_seconds": what_if["window_seconds"],
        "requests": what_if["requests"],
        "requests_sampled": what_if["requests_sampled"],
    });
    if let Some(object) = document.as_object_mut() {
        object.extend(changes(advice));
    }
    document
}

/// Returns the present setting and the changes.
fn changes(advice: &Advice) -> serde_json::Map<String, Value> {
    let change = |setting: &Option<Setting>| {
        setting.as_ref().map(|setting| {
            json!({
                "hot.policy": setting.policy,
                "hot.capacity": setting.capacity_bytes,
                "expected": expected(setting),
                "hit_ratio_gain": setting.hit_ratio - advice.present.hit_ratio,
            })
        })
    };
    let present = json!({
        "hot.policy": advice.present.policy,
        "hot.capacity": advice.present.capacity_bytes,
        "expected": expected(&advice.present),
    });
    let members = [
        ("present", Some(present)),
        ("policy", change(&advice.policy)),
        ("memory", change(&advice.memory)),
        ("less_memory", change(&advice.less_memory)),
    ];
    let named = members.map(|(name, value)| (name.to_owned(), json!(value)));
    named.into_iter().collect()
}

fn text(advice: &Advice, what_if: &Value) -> String {
    let mut text = String::new();
    let minutes = what_if["window_seconds"].as_u64().unwrap_or(0) / 60;
    let (requests, sampled) = (&what_if["requests"], &what_if["requests_sampled"]);
    let present = &advice.present;
    // Writing to a string never fails.
    _ = writeln!(
        text,
        "the last {minutes} min: {requests} requests, {sampled} of them in the simulated caches\n\
         present setting: {}",
        described(present)
    );
    if what_if["uncertain"] == true {
        text += "uncertain: a few objects have most requests of the sample, so errors are larger\n";
    }
    if present.is_filling {
        text += "the present memory is not full yet: all hit ratios are lower bounds, and those of more memory most\n";
    }
    text + &changes_text(advice)
}

/// Returns the text of the changes.
fn changes_text(advice: &Advice) -> String {
    let mut text = String::new();
    let present = &advice.present;
    let changes = [
        (
            &advice.policy,
            "the best policy with the present memory; a reload applies it and keeps the objects",
        ),
        (
            &advice.memory,
            "the least memory within a point of the best of all settings; it needs a restart or an upgrade",
        ),
        (&advice.less_memory, "less memory has nearly as many hits"),
    ];
    for (change, reason) in changes {
        let Some(setting) = change else { continue };
        _ = writeln!(text, "\n{reason}:");
        if setting.policy != present.policy {
            _ = writeln!(text, "  hot.policy = \"{}\"", setting.policy);
        }
        if setting.capacity_bytes != present.capacity_bytes {
            _ = writeln!(
                text,
                "  hot.capacity = \"{}\"",
                ByteSize(setting.capacity_bytes)
            );
        }
        let gain = 100.0 * (setting.hit_ratio - present.hit_ratio);
        _ = writeln!(
            text,
            "  expected: {}, {gain:+.1} points of hit ratio",
            described(setting)
        );
    }
    if changes.iter().all(|(change, _)| change.is_none()) {
        let near = 100.0 * NEAR_BEST;
        _ = writeln!(
            text,
            "\nno change: no simulated setting has clearly more hits, or the best one is within {near:.0} point"
        );
    }
    text
}

/// Returns the predictions for the disk of an edge. None without a disk.
fn disks_of(what_if: &Value) -> Vec<DiskSetting> {
    let points = what_if["disk"]["points"].as_array();
    let settings = points.into_iter().flatten().map(|point| {
        let number = |key: &str| point[key].as_f64();
        Some(DiskSetting {
            admission: point["admission"].as_str()?.to_owned(),
            capacity_bytes: point["capacity_bytes"].as_u64()?,
            is_present: point["present"].as_bool()?,
            hit_ratio: number("hit_ratio")?,
            hit_ratio_error: number("hit_ratio_error")?,
            origin_bytes_per_second: number("origin_bytes_per_second")?,
            disk_bytes_per_second: number("disk_bytes_per_second")?,
            is_filling: point["filling"] == true,
        })
    });
    settings.collect::<Option<_>>().unwrap_or_default()
}

/// Returns the text about the disk. Empty without predictions for it.
fn disk_text(settings: &[DiskSetting]) -> String {
    let Some(present) = settings.iter().find(|setting| setting.is_present) else {
        return String::new();
    };
    let mut text = format!("\npresent disk: {}\n", described_disk(present));
    let Some(new) = advise_disk(settings) else {
        return text;
    };
    // Writing to a string never fails.
    _ = writeln!(
        text,
        "\nthe least disk within a point of the best of all, with the rule that writes least:"
    );
    if new.admission != present.admission {
        _ = writeln!(text, "  disk.admission = \"{}\"", new.admission);
    }
    if new.capacity_bytes != present.capacity_bytes {
        _ = writeln!(text, "  capacity = \"{}\"", ByteSize(new.capacity_bytes));
    }
    let gain = 100.0 * (new.hit_ratio - present.hit_ratio);
    _ = writeln!(
        text,
        "  expected: {}, {gain:+.1} points of hit ratio",
        described_disk(new)
    );
    text
}

const EXAMPLES: &str = "\
Exit codes: 0 no change is recommended and no caching fault is found, 1 a change of the present setting is recommended
or a fault is found, 2 no reliable predictions. Without --hot, logs have no present setting.
docs/how-to/what-if.md explains the predictions, and docs/how-to/faults.md the caching faults.

Examples:
  The changes that would bring more hits:
    edgeward advise --admin 127.0.0.1:9900
  The memory and policy for the requests of logs:
    edgeward advise /var/log/nginx/access.log*
  For a program:
    edgeward advise --admin 127.0.0.1:9900 --json | jq .policy
  The rules that mend caching faults:
    edgeward advise --admin 127.0.0.1:9900 --json | jq -r '.faults[].rule'";

#[cfg(test)]
mod tests {
    use super::*;

    /// The predictions of an edge with `lru`, as `insight` writes them.
    fn what_if(lru: [f64; 2], density: [f64; 2]) -> Value {
        let points = [("lru", lru), ("density", density)];
        let points = points.iter().flat_map(|(policy, curve)| {
            curve.iter().enumerate().map(move |(at, hit_ratio)| {
                json!({
                    "policy": policy,
                    "size": if at == 0 { "1" } else { "2" },
                    "capacity_bytes": (256_u64 << 20) << at,
                    "present": *policy == "lru" && at == 0,
                    "hit_ratio": hit_ratio,
                    "hit_ratio_error": 0.001,
                    "byte_hit_ratio": 0.25,
                    "origin_bytes_per_second": 2e6,
                })
            })
        });
        json!({
            "window_seconds": 600,
            "requests": 5000,
            "requests_sampled": 100,
            "points": points.collect::<Vec<_>>(),
        })
    }

    #[test]
    fn the_text_has_the_disk_that_writes_less() {
        let point = |admission: &str, written: f64| {
            json!({
                "admission": admission,
                "size": "1",
                "capacity_bytes": 1_u64 << 30,
                "present": admission == "always",
                "hit_ratio": 0.5,
                "hit_ratio_error": 0.001,
                "origin_bytes_per_second": 2e6,
                "disk_bytes_per_second": written,
            })
        };
        let what_if =
            json!({ "disk": { "points": [point("always", 9e6), point("second-hit", 3e6)] } });
        let text = disk_text(&disks_of(&what_if));
        for line in [
            "present disk: always with 1 GiB: 50.0 % of requests (±0.2), 2.00 MB/s from the origin, 9.00 MB/s written",
            "  disk.admission = \"second-hit\"",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} in {text}");
        }
        assert!(!text.contains("capacity = "), "{text}");
        assert_eq!(disk_text(&disks_of(&json!({}))), "");
    }

    fn advice(what_if: &Value) -> Advice {
        let settings = settings_of(what_if).expect("predictions");
        advise(&settings).expect("a present setting")
    }

    #[test]
    fn the_text_has_the_settings_to_write_and_what_they_bring() {
        let what_if = what_if([0.5, 0.6], [0.55, 0.7]);
        let text = text(&advice(&what_if), &what_if);
        for line in [
            "the last 10 min: 5000 requests, 100 of them in the simulated caches",
            "present setting: lru with 256 MiB: 50.0 % of requests (±0.2), 25.0 % of bytes, 2.00 MB/s from the origin",
            "  hot.policy = \"density\"",
            "  hot.capacity = \"512 MiB\"",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} in {text}");
        }
        assert!(text.contains("(±0.2), 25.0 % of bytes, 2.00 MB/s from the origin, +20.0 points"));
        let document = document(&advice(&what_if), &what_if);
        assert_eq!(document["memory"]["hot.capacity"], 512_u64 << 20);
        assert_eq!(document["policy"]["hot.policy"], "density");
        assert_eq!(document["less_memory"], Value::Null);
    }

    #[test]
    fn the_text_has_each_fault_with_its_rule() {
        let finding = json!({
            "fault": "ignored-parameter",
            "text": "the query parameter a does not change the body",
            "request_share": 0.25,
            "hit_share": 0.125,
            "example": "shop.example/?a=1",
            "rule": "[[site.rule]]\nquery.drop = [\"a\"]\n",
        });
        let text = faults_text(Some(&[finding]));
        for line in [
            "caching faults: 1",
            "the query parameter a does not change the body [ignored-parameter]",
            "  25.0 % of requests; the rule turns 12.5 % of all requests into hits; example: shop.example/?a=1",
            "    query.drop = [\"a\"]",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} in {text}");
        }
        assert_eq!(faults_text(Some(&[])), "\nno caching faults\n");
        assert!(faults_text(None).contains("--token-file"));
    }

    #[test]
    fn an_edge_that_has_lost_samples_gives_no_advice() {
        let mut what_if = what_if([0.5, 0.6], [0.55, 0.7]);
        what_if["incomplete"] = json!(false);
        assert!(settings_of(&what_if).is_ok());
        (what_if["incomplete"], what_if["samples_lost"]) = (json!(true), json!(70));
        let error = settings_of(&what_if).expect_err("uncertain");
        assert!(error.to_string().starts_with("70 requests"), "{error}");
    }

    #[test]
    fn a_good_setting_and_an_edge_without_predictions_are_named() {
        let what_if = what_if([0.5, 0.505], [0.5, 0.505]);
        let text = text(&advice(&what_if), &what_if);
        assert!(text.contains("no change: "), "{text}");
        for missing in [Value::Null, json!({ "points": [] })] {
            let error = settings_of(&missing).expect_err("no predictions");
            assert!(error.to_string().contains("no predictions"), "{error}");
        }
    }
}
