//! When the machine itself stood still.
//!
//! A guest's processor is taken away by its host for milliseconds at a time, and a question that is asked meanwhile waits, through whatever it goes. So a process
//! watches each processor: it goes before everything else there (`SCHED_FIFO`), sleeps for a fifth of a millisecond, and where it wakes up later than that it says from when until when nobody
//! could work there. Questions that were under way then say nothing of the link, nor of what it is held against. Beside nothing and beside a
//! download there should be as many pauses; if there are more beside one, they are not the host's.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds that all processes of a machine count alike.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Watches all processors as long as it lives.
pub(crate) struct Watch {
    watchers: Vec<Child>,
    pauses: Arc<Mutex<Vec<[u64; 2]>>>,
}

impl Watch {
    /// None where nobody may go before others (that takes root, or `CAP_SYS_NICE`), or `chrt` and `taskset` are missing.
    pub(crate) fn start() -> io::Result<Option<Self>> {
        let this = std::env::current_exe()?;
        let pauses = Arc::new(Mutex::new(Vec::new()));
        let mut watch = Self {
            watchers: Vec::new(),
            pauses: Arc::clone(&pauses),
        };
        for cpu in 0..thread::available_parallelism()?.get() {
            let mut watcher = Command::new("chrt");
            watcher.args(["--fifo", "1", "taskset", "--cpu-list", &cpu.to_string()]);
            watcher.arg(&this).arg("--watch").arg("pauses");
            let child = watcher.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
            let Ok(mut child) = child else {
                return Ok(None);
            };
            let mut said = BufReader::new(child.stdout.take().expect("it was asked for")).lines();
            watch.watchers.push(child);
            if said.next().transpose()?.is_none() {
                return Ok(None);
            }
            let pauses = Arc::clone(&pauses);
            thread::spawn(move || {
                for line in said.map_while(Result::ok) {
                    let mut times = line.split(' ').map_while(|word| word.parse().ok());
                    if let (Some(from), Some(to)) = (times.next(), times.next()) {
                        pauses
                            .lock()
                            .expect("nobody panics with it")
                            .push([from, to]);
                    }
                }
            });
        }
        Ok(Some(watch))
    }

    /// Pauses that have to do with this time: they may have begun before it.
    pub(crate) fn pauses(&self, from: u64, to: u64) -> Vec<[u64; 2]> {
        let pauses = self.pauses.lock().expect("nobody panics with it");
        let within = pauses
            .iter()
            .filter(|[begun, ended]| *begun < to && from < *ended);
        within.copied().collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for watcher in &mut self.watchers {
            _ = watcher.kill();
            _ = watcher.wait();
        }
    }
}

/// What a watcher does: a line when it is ready, and one for each pause.
pub(crate) fn watch() -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "ready")?;
    loop {
        let due = now() + STEP.as_nanos() as u64;
        thread::sleep(STEP);
        let late = now();
        if late > due + PAUSE.as_nanos() as u64 {
            writeln!(out, "{due} {late}")?;
        }
    }
}

const STEP: Duration = Duration::from_micros(200);

/// What is shorter is not told from a timer that was late.
const PAUSE: Duration = Duration::from_micros(300);
