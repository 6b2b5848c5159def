//! `edgeward acme status`: the end of each certificate, its next order, and the last error.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use edgeward_acme_client::{NameReport, report};

use super::config_file::ConfigArgs;
use crate::output::{self, Column, Table};

/// List the certificates: when they end, when they are ordered again, and the last errors
///
/// Reads the folder of the state; no edge needs to run. Exit code 1 if a name has no valid certificate.
#[derive(Args, Debug)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    config: ConfigArgs,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let reports = report(&args.config.settings()?)?;
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)?
        .as_secs();
    if args.json {
        output::print_json(&reports)?;
    } else {
        let mut out = output::stdout();
        write!(out, "{}", table(&reports, now))?;
        for report in &reports {
            if let Some(until) = report.issuer_wait_until {
                let time = time_of_day(until);
                writeln!(out, "{}: waits for the issuer until {time}", report.name)?;
            }
            if let Some(error) = &report.last_error {
                writeln!(out, "{}: {error}", report.name)?;
            }
        }
        out.flush()?;
    }
    let is_valid = |report: &NameReport| report.not_after_at.is_some_and(|end| end > now);
    Ok(match reports.iter().all(is_valid) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}

fn table(reports: &[NameReport], now: u64) -> Table {
    let mut table = Table::new([
        Column::words("name"),
        Column::figures("days left"),
        Column::words("next order"),
        Column::figures("failures"),
    ]);
    for report in reports {
        let days = |end: u64| match end.checked_sub(now) {
            Some(left) => (left / DAY).to_string(),
            None => "expired".to_owned(),
        };
        let next = match report.next_order_at {
            _ if report.is_ordered => "under way".to_owned(),
            None => "never".to_owned(),
            Some(at) if at <= now => "now".to_owned(),
            Some(at) if at - now < 2 * DAY => format!("in {} minutes", (at - now).div_ceil(60)),
            Some(at) => format!("in {} days", (at - now) / DAY),
        };
        table.row([
            report.name.clone(),
            report.not_after_at.map_or_else(|| "none".to_owned(), days),
            next,
            report.failures.to_string(),
        ]);
    }
    table
}

/// Returns a time as `HH:MM UTC`. Waits for an issuer last six hours at most.
fn time_of_day(at: u64) -> String {
    let minutes = at % DAY / 60;
    format!("{:02}:{:02} UTC", minutes / 60, minutes % 60)
}

const DAY: u64 = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_day_has_hours_and_minutes() {
        assert_eq!(time_of_day(1000 * DAY), "00:00 UTC");
        assert_eq!(time_of_day(1001 * DAY - 1), "23:59 UTC");
    }

    #[test]
    fn a_certificate_is_shown_with_its_days_and_its_next_order() {
        let report = |name: &str, not_after_at, next_order_at, is_ordered| NameReport {
            name: name.to_owned(),
            issuer: "https://ca.example/dir".to_owned(),
            not_after_at,
            next_order_at,
            issuer_wait_until: None,
            is_ordered,
            failures: 2,
            last_error: None,
        };
        let now = 1000 * DAY;
        let reports = [
            report(
                "a.example",
                Some(now + 31 * DAY),
                Some(now + 3 * DAY),
                false,
            ),
            report("b.example", None, Some(now + 90), false),
            report("c.example", Some(now - 1), Some(0), false),
            report("d.example", None, None, false),
            report("e.example", None, Some(now), true),
        ];
        assert_eq!(
            table(&reports, now).to_string(),
            "name       days left  next order    failures\n\
             a.example         31  in 3 days            2\n\
             b.example       none  in 2 minutes         2\n\
             c.example    expired  now                  2\n\
             d.example       none  never                2\n\
             e.example       none  under way            2\n"
        );
    }
}
