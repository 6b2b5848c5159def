//! The resource use of a process and its children, from `/proc`.

use std::fs;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// The resource use of a finished process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) success: bool,
    pub(crate) wall: Duration,
    /// User and system time of the process and of the children that it waited for.
    pub(crate) cpu: Duration,
    /// The peak resident set of the process; `None` for a shell, because the children of a shell use the memory.
    pub(crate) rss_bytes: Option<u64>,
}

/// Runs a command to its end. Returns its output and its resource use.
///
/// A process that has ended stays in `/proc` until its parent waits for it. In this state (`Z`), its CPU times are
/// final. Its memory is released when it ends, so the peak is read every few milliseconds while the process runs.
pub(crate) fn measure(command: &mut Command) -> anyhow::Result<(Vec<u8>, Usage)> {
    let shell = command.get_program() == "sh";
    let begun = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("the program cannot be started")?;
    let mut stdout = child.stdout.take().expect("the output is a pipe");
    let reader = thread::spawn(move || {
        let mut out = Vec::new();
        stdout.read_to_end(&mut out).map(|_| out)
    });
    let folder = format!("/proc/{}", child.id());
    let mut rss_bytes = 0;
    let cpu = loop {
        let stat = fs::read_to_string(format!("{folder}/stat"))?;
        let (state, ticks) = state_and_ticks(&stat).context("/proc/PID/stat has no CPU times")?;
        if state == 'Z' {
            break Duration::from_secs_f64(ticks as f64 / ticks_per_second());
        }
        rss_bytes = rss_bytes.max(highest_rss(&format!("{folder}/status")));
        thread::sleep(Duration::from_millis(5));
    };
    let wall = begun.elapsed();
    let success = child.wait()?.success();
    let out = reader.join().expect("the reader does not panic")?;
    let usage = Usage {
        success,
        wall,
        cpu,
        rss_bytes: (!shell).then_some(rss_bytes),
    };
    Ok((out, usage))
}

/// Returns the state and the sum of utime, stime, cutime and cstime: fields 3 and 14 to 17 of proc(5). The second
/// field is the name in parentheses and may contain any character.
fn state_and_ticks(stat: &str) -> Option<(char, u64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let state = fields.first()?.chars().next()?;
    let ticks = fields
        .get(11..15)?
        .iter()
        .map(|field| field.parse::<u64>().ok());
    Some((state, ticks.sum::<Option<u64>>()?))
}

fn highest_rss(path: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next());
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_times_are_parsed_after_any_process_name() {
        let stat = "7 (a) b) Z 1 7 7 0 -1 4 100 0 0 0 10 20 3 4 20 0 1 0 5";
        assert_eq!(state_and_ticks(stat), Some(('Z', 37)));
        assert_eq!(state_and_ticks("7 (a) R 1"), None);
    }

    #[test]
    fn the_cpu_time_of_a_process_is_measured() {
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done";
        let (out, usage) =
            measure(Command::new("sh").args(["-c", script])).expect("the shell runs");
        assert_eq!(out, b"done\n");
        assert!(usage.success && usage.cpu > Duration::ZERO, "{usage:?}");
        assert!(
            usage.cpu <= usage.wall + Duration::from_millis(50),
            "{usage:?}"
        );
    }
}
