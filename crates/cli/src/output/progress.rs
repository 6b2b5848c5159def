//! Progress on stderr: a bar on a terminal, a line every few seconds in a pipe, no output with `--quiet`.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::figure::{count, duration, per_second};

/// Turns progress off or on. `main` calls this once, before the command runs.
pub(crate) fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// The progress of a task. Several threads may advance it.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The name of the task, as shown to the user.
    what: Cow<'static, str>,
    unit: &'static str,
    /// The number of units to do; 0 while this number is unknown.
    total: AtomicU64,
    done: AtomicU64,
    started: Instant,
    view: ProgressView,
    /// More figures, shown after the number of units done.
    detail: Mutex<String>,
}

/// How progress is shown.
#[derive(Debug)]
enum ProgressView {
    Quiet,
    Bar(ProgressBar),
    /// The time at which the last line was written.
    Lines(Mutex<Instant>),
}

impl Progress {
    /// The progress of the task `what`, counted in `unit`, with `total` units to do if the total is known.
    pub(crate) fn new(
        what: impl Into<Cow<'static, str>>,
        unit: &'static str,
        total: Option<u64>,
    ) -> Self {
        let what = what.into();
        let view = if QUIET.load(Ordering::Relaxed) {
            ProgressView::Quiet
        } else if io::stderr().is_terminal() {
            ProgressView::Bar(bar(what.clone(), unit, total))
        } else {
            ProgressView::Lines(Mutex::new(Instant::now()))
        };
        Self {
            what,
            unit,
            total: AtomicU64::new(total.unwrap_or(0)),
            done: AtomicU64::new(0),
            started: Instant::now(),
            view,
            detail: Mutex::default(),
        }
    }

    /// Adds `more` units.
    pub(crate) fn advance(&self, more: u64) {
        let done = self.done.fetch_add(more, Ordering::Relaxed) + more;
        self.show(done);
    }

    /// Sets the number of units to do, which may be an estimate.
    pub(crate) fn set_total(&self, total: u64) {
        let before = self.total.swap(total, Ordering::Relaxed);
        if let ProgressView::Bar(bar) = &self.view {
            bar.set_length(total);
            if before == 0 {
                bar.set_style(style(self.unit, true));
            }
        }
    }

    /// Sets more figures, which are shown beside the number of units done.
    pub(crate) fn describe(&self, detail: String) {
        if let ProgressView::Bar(bar) = &self.view {
            bar.set_message(format!("{}: {detail};", self.what));
        }
        *self.detail.lock().unwrap_or_else(PoisonError::into_inner) = detail;
    }

    /// Writes a line to stderr, above the bar if a bar is shown. With `--quiet`, writes no line.
    pub(crate) fn note(&self, line: &str) {
        match &self.view {
            ProgressView::Quiet => {}
            ProgressView::Bar(bar) => bar.println(line),
            ProgressView::Lines(_) => write_line(line),
        }
    }

    /// Sets the number of units done.
    pub(crate) fn set(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.show(done);
    }

    fn show(&self, done: u64) {
        match &self.view {
            ProgressView::Quiet => {}
            ProgressView::Bar(bar) => bar.set_position(done),
            ProgressView::Lines(last) => {
                // One thread holds the lock and writes the line. The other threads skip the line instead of waiting.
                let Ok(mut last) = last.try_lock() else {
                    return;
                };
                if last.elapsed() >= LINE_INTERVAL {
                    *last = Instant::now();
                    write_line(&self.line(done, self.started.elapsed()));
                }
            }
        }
    }

    fn line(&self, done: u64, elapsed: Duration) -> String {
        let Self { what, unit, .. } = self;
        let rate = if done > 0 {
            let rate = done as f64 / elapsed.as_secs_f64().max(1e-3);
            format!(", {}", per_second(rate))
        } else {
            String::new()
        };
        match self.total.load(Ordering::Relaxed) {
            total if total > 0 => {
                let share = done as f64 / total as f64;
                let remaining_secs =
                    (elapsed.as_secs_f64() * (1.0 / share - 1.0)).clamp(0.0, ETA_SECS_MAX);
                let remaining = if share > 0.0 {
                    format!(
                        ", {} left",
                        duration(Duration::from_secs_f64(remaining_secs))
                    )
                } else {
                    String::new()
                };
                format!(
                    "{what}: {} of {} {unit} ({:.0} %){rate}{remaining}",
                    count(done),
                    count(total),
                    share * 100.0
                )
            }
            _ => {
                let detail = self.detail.lock().unwrap_or_else(PoisonError::into_inner);
                let comma = if detail.is_empty() { "" } else { ", " };
                format!("{what}: {} {unit}{rate}{comma}{detail}", count(done))
            }
        }
    }
}

/// Removes the bar: only the result remains on screen.
impl Drop for Progress {
    fn drop(&mut self) {
        if let ProgressView::Bar(bar) = &self.view {
            bar.finish_and_clear();
        }
    }
}

fn bar(what: Cow<'static, str>, unit: &str, total: Option<u64>) -> ProgressBar {
    let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    bar.set_style(style(unit, total.is_some()));
    bar.set_message(what);
    bar
}

fn style(unit: &str, has_total: bool) -> ProgressStyle {
    let template = if has_total {
        format!(
            "{{msg}} {{wide_bar}} {{human_pos}} of {{human_len}} {unit}, {{per_sec}}, {{eta}} left"
        )
    } else {
        format!("{{spinner}} {{msg}} {{human_pos}} {unit}, {{per_sec}}")
    };
    let style = ProgressStyle::with_template(&template).expect("the constant template is valid");
    style.progress_chars("█▌░")
}

fn write_line(line: &str) {
    // Progress is optional: errors of stderr are ignored.
    _ = writeln!(io::stderr(), "{line}");
}

static QUIET: AtomicBool = AtomicBool::new(false);

/// The time between two lines: short enough to show that the task runs, long enough to keep the log of a CI job short.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// The longest estimate of the remaining time, in seconds: a century. A longer estimate is meaningless and could
/// overflow a `Duration`.
const ETA_SECS_MAX: f64 = 3.2e9;

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet_progress(total: Option<u64>) -> Progress {
        Progress {
            what: "replay".into(),
            unit: "requests",
            total: AtomicU64::new(total.unwrap_or(0)),
            done: AtomicU64::new(0),
            started: Instant::now(),
            view: ProgressView::Quiet,
            detail: Mutex::default(),
        }
    }

    #[test]
    fn a_line_states_the_done_and_the_remaining_part() {
        let line = quiet_progress(Some(10_000)).line(2_500, Duration::from_secs(10));
        assert_eq!(
            line,
            "replay: 2,500 of 10,000 requests (25 %), 250 /s, 30.0 s left"
        );
    }

    #[test]
    fn a_line_has_no_estimate_before_the_first_unit() {
        let line = quiet_progress(Some(10)).line(0, Duration::from_secs(10));
        assert_eq!(line, "replay: 0 of 10 requests (0 %)");
        let line = quiet_progress(None).line(7, Duration::from_secs(10));
        assert_eq!(line, "replay: 7 requests, 1 /s");
    }

    #[test]
    fn threads_add_to_one_count() {
        let progress = quiet_progress(None);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| progress.advance(1)));
            }
        });
        assert_eq!(progress.done.load(Ordering::Relaxed), 4000);
    }
}
