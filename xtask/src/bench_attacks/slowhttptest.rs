//! Attacks by the program slowhttptest, with the attacks that it names slow headers, body, read and range.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::attacks::DURATION_MAX;
use super::cpu_time::CpuTime;
use super::kinds::{Mode, Strength};
use crate::bench_shared::process::{cpu_seconds_of, find};

const POLL: Duration = Duration::from_millis(200);

/// The objects of the hits have keys from 1 to 1,000, and those of the misses from 2^40.
const KEY: u64 = 1 << 32;

/// The program accepts at most 65,539.
const CONNECTIONS_MAX: usize = 60_000;

/// A running slowhttptest, which this value ends if it is dropped.
pub(super) struct SlowHttpTest {
    child: Child,
}

impl SlowHttpTest {
    pub(super) fn start(
        mode: Mode,
        strength: Strength,
        port: u16,
        connections: usize,
        connections_per_second: usize,
    ) -> anyhow::Result<Self> {
        // The default of the program is 10 seconds between two pieces.
        let seconds = match strength {
            Strength::Moderate => 10,
            Strength::Strong => 1,
        };
        let (flags, size) = match mode {
            Mode::Headers => (format!("-H -x 8 -i {seconds}"), 1024),
            Mode::Body => (format!("-B -x 8 -s 8192 -i {seconds}"), 1024),
            Mode::Read => (
                format!("-X -z 32 -w 512 -y 1024 -k 3 -n {seconds}"),
                1 << 20,
            ),
            Mode::Range => ("-R -a 1 -b 3000".to_owned(), 1 << 20),
        };
        // The edge answers ranges at once, so these connections end, and the program opens others.
        let connections = if mode == Mode::Range {
            CONNECTIONS_MAX
        } else {
            connections
        };
        let url = format!("http://127.0.0.1:{port}/o/{KEY}?size={size}");
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "--"])
            .arg(find("slowhttptest")?)
            .args(flags.split(' '))
            .args(["-c", &connections.to_string()])
            .args(["-r", &connections_per_second.to_string()])
            .args(["-l", &DURATION_MAX.as_secs().to_string()])
            .args(["-v", "1", "-u", &url])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("setpriv (util-linux) is needed")?;
        Ok(Self { child })
    }

    /// Waits until the attack is over, and returns the last counts that the program printed.
    pub(super) fn run(mut self, is_over: &AtomicBool, cpu_time: &CpuTime) -> Value {
        let begun = Instant::now();
        let mut ended_early = false;
        while !is_over.load(Ordering::Relaxed) && begun.elapsed() < DURATION_MAX {
            if let Ok(seconds) = cpu_seconds_of(self.child.id()) {
                cpu_time.set_seconds(seconds);
            }
            ended_early = !matches!(self.child.try_wait(), Ok(None));
            thread::sleep(POLL);
        }
        // After SIGINT the program writes the rest of its output.
        _ = Command::new("kill")
            .args(["-INT", &self.child.id().to_string()])
            .status();
        // The program prints about 80 bytes per second, so its output fits in the buffer of the pipe.
        let mut printed = String::new();
        if let Some(output) = &mut self.child.stdout {
            _ = output.read_to_string(&mut printed);
        }
        let count = |name| last_value(&printed, name);
        json!({
            "connected": count("connected:"),
            "pending": count("pending:"),
            "closed": count("closed:"),
            "errors": count("error:"),
            "service_available": count("service available:"),
            "ended_early": ended_early,
            "seconds": begun.elapsed().as_secs_f64(),
            "cpu_seconds": cpu_time.seconds(),
        })
    }
}

impl Drop for SlowHttpTest {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Returns the last value that follows `name`, without the codes for colours.
fn last_value<'a>(printed: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = printed.rsplit_once(name)?;
    let line = after.lines().next()?;
    let mut parts = line.split(['\u{1b}', ' ']).map(|part| {
        // A colour is `ESC [ 1 ; 32 m`.
        let code = part.strip_prefix('[').and_then(|code| code.split_once('m'));
        code.map_or(part, |(_, text)| text)
    });
    parts.rfind(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_counts_are_read_without_colours() {
        let printed = "\u{1b}[1;32mclosed:      \u{1b}[1;32m        3\n\u{1b}[1;32mclosed:  \u{1b}[1;32m   17\n\
                       \u{1b}[1;32mservice available:\u{1b}[1;32m   \u{1b}[1;32mYES\u{1b}[0m\n";
        assert_eq!(last_value(printed, "closed:"), Some("17"));
        assert_eq!(last_value(printed, "service available:"), Some("YES"));
        assert_eq!(last_value(printed, "connected:"), None);
    }
}
