//! Runs a benchmark: starts the servers, sends the loads in rounds and measures.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use edgeward_replay::load::Stop;
use edgeward_replay::monitor::Usage;

use super::command::{Commands, POLL, kill, program, tail, version_flag};
use super::measure::{Measures, parse_output};
use super::plan::{Benchmark, LoadPlan};
use super::server::Server;
use super::summary::{BenchmarkOutcome, LoadRun, ResourceSample, figure};
use super::text::{self, Values};
use super::verdict::verdicts;
use crate::machine;
use crate::process;
use crate::scratch::Scratch;

/// The paths that a benchmark uses.
#[derive(Clone, Debug)]
pub struct BenchmarkPaths {
    /// The `edgeward` binary.
    pub edgeward: PathBuf,
    /// The folder of the plan, which has the files of its servers.
    pub plan: PathBuf,
    /// The folder for files that later runs of the plan use again.
    pub scratch: PathBuf,
    /// The folder for the folders of the servers, which are removed after the run.
    pub temporary: PathBuf,
}

/// Why a benchmark ended early or did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchmarkError {
    /// A folder, a file or a process failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A file of a server cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A program is not installed.
    #[error("{program} is not installed")]
    NotInstalled {
        /// The program.
        program: String,
    },
    /// A server did not start.
    #[error("{server} did not start: {why}")]
    Start {
        /// The server.
        server: String,
        /// The cause.
        why: String,
    },
    /// A server ended during a load.
    #[error("{server} ended during the benchmark, with {why}")]
    Ended {
        /// The server.
        server: String,
        /// The exit status and the last output.
        why: String,
    },
    /// A command of `prepare` or `before` failed.
    #[error("{command} failed: {why}")]
    Command {
        /// The command.
        command: String,
        /// The exit status and the last output.
        why: String,
    },
    /// A counter cannot be read.
    #[error("the counter {name} cannot be read: {why}")]
    Counter {
        /// The name of the counter.
        name: String,
        /// The cause.
        why: String,
    },
    /// A signal ended the benchmark.
    #[error("interrupted")]
    Interrupted,
}

/// Runs a benchmark. `observe` receives a line of text and the results so far after each run.
///
/// # Errors
///
/// Returns an error if a server or a command of the plan failed. A load that failed is an invalid run, and no error.
pub fn run_benchmark(
    plan: &Benchmark,
    paths: &BenchmarkPaths,
    stop: &Stop,
    observe: &mut dyn FnMut(&str, &BenchmarkOutcome),
) -> Result<BenchmarkOutcome, BenchmarkError> {
    fs::create_dir_all(&paths.scratch)?;
    let mut values = plan.set.clone();
    for (name, path) in [
        ("edgeward", &paths.edgeward),
        ("plan", &paths.plan),
        ("scratch", &paths.scratch),
    ] {
        values.insert(
            name.to_owned(),
            fs::canonicalize(path)?.display().to_string(),
        );
    }
    values.insert("nginx_user".to_owned(), nginx_user().to_owned());
    let bench = Bench {
        plan,
        commands: Commands {
            stop,
            folder: Scratch::new(&paths.temporary)?,
        },
        values,
    };
    for command in &plan.prepare {
        bench
            .commands
            .run(&paths.plan, command, &bench.values, None)?;
    }
    let mut outcome = BenchmarkOutcome::new(plan, machine::facts(), &paths.plan);
    let mut servers = bench.servers(paths, &mut outcome)?;
    let result = bench.measure_all(&mut servers, &mut outcome, observe);
    outcome.machine.load_after = machine::load_average();
    match result {
        Err(BenchmarkError::Interrupted) => outcome.unfinished = Some("interrupted".to_owned()),
        result => result?,
    }
    Ok(outcome)
}

/// The parts of a benchmark that do not change during its runs.
struct Bench<'a> {
    plan: &'a Benchmark,
    commands: Commands<'a>,
    /// The values of placeholders, without those of servers.
    values: Values,
}

impl Bench<'_> {
    /// Returns the servers, without measured ones that are not installed.
    fn servers(
        &self,
        paths: &BenchmarkPaths,
        outcome: &mut BenchmarkOutcome,
    ) -> Result<Vec<Server<'_>>, BenchmarkError> {
        let memory = Path::new("/dev/shm");
        let mut servers = Vec::new();
        for plan in &self.plan.servers {
            let word = plan
                .run
                .first()
                .map(|word| text::expand(word, &self.values));
            let word = word.unwrap_or_default();
            let Some(program) = program(&word) else {
                if !plan.is_measured {
                    return Err(BenchmarkError::NotInstalled { program: word });
                }
                let note = format!("{} is left out: {word} is not installed", plan.name);
                outcome.notes.push(note);
                continue;
            };
            if let Some(version) = process::version(&program, version_flag(&program)) {
                outcome.versions.insert(plan.name.clone(), version);
            }
            let parent = if plan.in_memory && memory.is_dir() {
                memory
            } else {
                &paths.temporary
            };
            let folder = Scratch::new(parent)?;
            servers.push(Server::new(plan, program, paths.plan.clone(), folder)?);
        }
        Ok(servers)
    }

    fn measure_all(
        &self,
        servers: &mut [Server<'_>],
        outcome: &mut BenchmarkOutcome,
        observe: &mut dyn FnMut(&str, &BenchmarkOutcome),
    ) -> Result<(), BenchmarkError> {
        for n in 0..servers.len() {
            if !servers[n].plan.is_fresh {
                self.start(servers, n)?;
            }
        }
        for cell in cells(self.plan, servers, 0) {
            if !cell.is_fresh(servers) {
                self.run_before(servers, cell)?;
            }
        }
        for round in 0..self.plan.rounds {
            for cell in cells(self.plan, servers, round as usize) {
                let fresh = cell.server.filter(|_| cell.is_fresh(servers));
                if let Some(n) = fresh {
                    self.start(servers, n)?;
                    self.run_before(servers, cell)?;
                }
                self.warm_up(servers, cell)?;
                let run = self.measure(servers, cell, round)?;
                if let Some(n) = fresh {
                    servers[n].stop();
                }
                let line = line(self.plan, &run);
                outcome.runs.push(run);
                outcome.verdicts = verdicts(self.plan, &outcome.runs);
                observe(&line, outcome);
            }
        }
        Ok(())
    }

    fn start(&self, servers: &mut [Server<'_>], n: usize) -> Result<(), BenchmarkError> {
        let values = self.server_values(servers, Some(n));
        servers[n].start(&values, self.commands.stop, |command, folder| {
            self.commands.run(folder, command, &values, None)
        })
    }

    /// Returns the values of placeholders for a server: its own without a prefix, and those of all servers with their
    /// names as prefix.
    fn server_values(&self, servers: &[Server<'_>], n: Option<usize>) -> Values {
        let mut values = self.values.clone();
        for server in servers {
            server.add_values(&format!("{}.", server.plan.name), &mut values);
        }
        if let Some(n) = n {
            servers[n].add_values("", &mut values);
            values.extend(servers[n].plan.set.clone());
            values.insert("server".to_owned(), servers[n].plan.name.clone());
        }
        values.insert("tag".to_owned(), tag().to_string());
        values
    }

    fn load_values(&self, servers: &[Server<'_>], cell: Cell<'_>, round: u32) -> Values {
        let mut values = self.server_values(servers, cell.server);
        values.extend(cell.load.set.clone());
        values.insert("round".to_owned(), round.to_string());
        values
    }

    /// Runs the load once without measuring, so that caches, connections and branch predictors are warm.
    fn warm_up(&self, servers: &[Server<'_>], cell: Cell<'_>) -> Result<(), BenchmarkError> {
        let Some(seconds) = cell.load.warmup_seconds else {
            return Ok(());
        };
        let mut values = self.load_values(servers, cell, 0);
        values.insert("seconds".to_owned(), seconds.to_string());
        let folder = self.commands.folder.path();
        self.commands
            .run(folder, &cell.load.run, &values, cell.load.core)
    }

    /// Runs the commands of `before`.
    fn run_before(&self, servers: &[Server<'_>], cell: Cell<'_>) -> Result<(), BenchmarkError> {
        let values = self.load_values(servers, cell, 0);
        let mut commands = cell.load.before.iter();
        let folder = self.commands.folder.path();
        commands.try_for_each(|command| self.commands.run(folder, command, &values, None))
    }

    fn measure(
        &self,
        servers: &mut [Server<'_>],
        cell: Cell<'_>,
        round: u32,
    ) -> Result<LoadRun, BenchmarkError> {
        let commands = &self.commands;
        let values = self.load_values(servers, cell, round);
        let counts_before = counts(servers, cell)?;
        let (stolen_before, ticks_before) = machine::stolen();
        let restarts_before = cell.server.map(|n| servers[n].restarts);
        let usage = |servers: &mut [Server<'_>]| cell.server.and_then(|n| servers[n].usage());
        let started = Instant::now();
        let usage_before = usage(servers).unwrap_or_default();
        let mut series = Vec::new();
        let mut child = commands.spawn(
            commands.folder.path(),
            &cell.load.run,
            &values,
            cell.load.core,
        )?;
        let end = loop {
            if let Some(status) = child.try_wait()? {
                break Ok(status);
            }
            if commands.stop.is_requested() {
                kill(&mut child);
                return Err(BenchmarkError::Interrupted);
            }
            if started.elapsed() > cell.load.time_max {
                kill(&mut child);
                break Err(format!(
                    "the load exceeded {} s",
                    cell.load.time_max.as_secs()
                ));
            }
            for n in 0..servers.len() {
                if servers[n].has_ended()? {
                    let values = self.server_values(servers, Some(n));
                    servers[n].restart(&values, commands.stop)?;
                }
            }
            if started.elapsed().as_secs() as usize >= series.len()
                && let Some(usage) = usage(servers)
            {
                series.push(sample(started, usage_before, usage));
            }
            thread::sleep(POLL);
        };
        let usage = usage(servers);
        let wall_seconds = started.elapsed().as_secs_f64();
        series.extend(usage.map(|usage| sample(started, usage_before, usage)));
        let (stolen, ticks) = machine::stolen();

        let mut run = LoadRun::new(round, &cell.load.name, cell.name);
        let (output, errors) = commands.last_output();
        match parse_output(&output) {
            Some(measures) => run.measures = measures,
            None => run.problem = Some(format!("no measures in the output: {}", tail(&output))),
        }
        match end {
            Ok(status) if status.success() => {}
            Ok(status) => run.problem = Some(format!("{status}: {}", tail(&errors))),
            Err(why) => run.problem = Some(why),
        }
        run.add_resources(&[
            ("seconds", wall_seconds),
            ("wall_seconds", wall_seconds),
            ("load_average", machine::load_average().unwrap_or_default()),
            (
                "stolen_share",
                (stolen - stolen_before) as f64 / (ticks - ticks_before).max(1) as f64,
            ),
        ]);
        if let (Some(usage), Some(n)) = (usage, cell.server) {
            let memory_max = series.iter().map(|sample| sample.memory_bytes).max();
            let read = usage
                .disk_read_bytes
                .saturating_sub(usage_before.disk_read_bytes);
            let written = usage
                .disk_write_bytes
                .saturating_sub(usage_before.disk_write_bytes);
            let restarts = servers[n].restarts - restarts_before.unwrap_or_default();
            run.add_resources(&[
                ("cpu_seconds", usage.cpu_seconds - usage_before.cpu_seconds),
                ("memory_bytes", usage.memory_bytes as f64),
                ("memory_bytes_max", memory_max.unwrap_or_default() as f64),
                ("disk_read_bytes", read as f64),
                ("disk_write_bytes", written as f64),
                ("descriptors", usage.descriptors as f64),
                ("threads", usage.threads as f64),
                ("restarts", restarts as f64),
            ]);
        }
        for (name, count) in counts(servers, cell)? {
            let before = counts_before.get(&name).copied().unwrap_or_default();
            run.measures.insert(name, count - before);
        }
        run.series = series;
        run.check(cell.load, &self.plan.checks);
        Ok(run)
    }
}

/// A load and the server that gets it.
#[derive(Clone, Copy)]
struct Cell<'a> {
    load: &'a LoadPlan,
    /// The index of the server. `None` for a load without a server.
    server: Option<usize>,
    /// The name of the server.
    name: &'a str,
}

impl Cell<'_> {
    fn is_fresh(&self, servers: &[Server<'_>]) -> bool {
        self.server.is_some_and(|n| servers[n].plan.is_fresh)
    }
}

/// Returns the cells in the order of a round. Loads and servers begin one place later in each round, so that no cell is
/// always the first or follows the same cell.
fn cells<'a>(plan: &'a Benchmark, servers: &[Server<'_>], round: usize) -> Vec<Cell<'a>> {
    let mut cells = Vec::new();
    for n in 0..plan.loads.len() {
        let load = &plan.loads[(n + round) % plan.loads.len()];
        // A server that is not installed has no cell.
        let pairs = load.servers.iter().filter_map(|name| {
            let mut all = servers.iter();
            let server = all.position(|server| server.plan.name == *name);
            (server.is_some() || name == LoadPlan::ALONE).then_some((server, name.as_str()))
        });
        let pairs: Vec<_> = pairs.collect();
        for n in 0..pairs.len() {
            let (server, name) = pairs[(n + round) % pairs.len()];
            cells.push(Cell { load, server, name });
        }
    }
    cells
}

/// Returns the counters of the measured server and of all servers that are not measured.
fn counts(servers: &[Server<'_>], cell: Cell<'_>) -> Result<Measures, BenchmarkError> {
    let mut counts = Measures::new();
    for (n, server) in servers.iter().enumerate() {
        if Some(n) == cell.server || !server.plan.is_measured {
            let mut values = Values::new();
            server.add_values("", &mut values);
            server.add_counts(&values, &mut counts)?;
        }
    }
    Ok(counts)
}

fn sample(started: Instant, before: Usage, usage: Usage) -> ResourceSample {
    ResourceSample {
        seconds: started.elapsed().as_secs_f64(),
        cpu_seconds: usage.cpu_seconds - before.cpu_seconds,
        memory_bytes: usage.memory_bytes,
        disk_write_bytes: usage
            .disk_write_bytes
            .saturating_sub(before.disk_write_bytes),
    }
}

fn line(plan: &Benchmark, run: &LoadRun) -> String {
    let shown = plan.show.first().and_then(|measure| {
        let value = measure.of(&run.measures)?;
        Some(format!("{measure} {}", figure(value, measure.is_bytes())))
    });
    let problem = run.problem.as_ref().map(|why| format!("  ! {why}"));
    format!(
        "round {}/{}  {:<24} {:<20} {}{}",
        run.round + 1,
        plan.rounds,
        run.load,
        run.server,
        shown.unwrap_or_default(),
        problem.unwrap_or_default()
    )
}

/// Returns the `user` line of nginx's configuration. Without it, the workers of an nginx that root started would run as
/// `nobody`, who cannot write to the folder.
fn nginx_user() -> &'static str {
    if rustix::process::geteuid().is_root() {
        "user root;"
    } else {
        ""
    }
}

/// Returns a number that no other run on this machine has used, for keys that no run has requested before.
fn tag() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_micros()
}
