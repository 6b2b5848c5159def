//! The run of one contender: starts its server and origin, replays the trace and takes samples.
//!
//! The thread of the run takes a sample each second; the replay has its own threads. The replay ends early if the
//! server dies, the time limit is reached or a stop is requested. The samples up to this time are kept.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use edgeward_replay::ReplayReport;
use edgeward_replay::load::{self, LiveCounts, Pacing, ReplayPlan, Stop, Target};
use edgeward_replay::origin::{OriginConfig, RunningOrigin, SyntheticOrigin};

use crate::nginx_capacity::CapacityEnforcer;
use crate::outcome::{ContenderOutcome, LoadCounts, RunEnd, Totals, TraceFacts};
use crate::plan::{Contender, DISK_BYTES_MIN, Plan, Server, Setting};
use crate::process::{self, Ready, StartError, free_port};
use crate::recipe::{self, Environment, Recipe};
use crate::run::LabPaths;
use crate::sample::{Sample, SampleLog};
use crate::sampler::{Sampler, device_of};
use crate::scratch::Scratch;
use crate::settings;
use crate::source::TraceSource;

/// The inputs of one contender's run.
pub(crate) struct ContenderRun<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) contender: &'a Contender,
    pub(crate) trace: &'a TraceFacts,
    pub(crate) paths: &'a LabPaths,
    pub(crate) stop: &'a Stop,
    /// Receives the number of answered requests.
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
}

/// A part of the trace that is replayed with one set of settings.
struct TracePart {
    /// The number of requests before the part.
    first: u64,
    /// The number of requests up to the end of the part.
    end: u64,
    settings: Vec<Setting>,
}

/// The state of a run, with its results so far.
struct RunState {
    log: SampleLog,
    load_counts: LoadCounts,
    /// The counters at the end of the previous part of the trace; zero during the first part.
    previous_parts: Sample,
    /// The end of the warm-up, in seconds since the load began.
    warm_seconds: Option<f64>,
    /// The time of the switch of settings, in seconds since the load began.
    switched_seconds: Option<f64>,
    outcome: ContenderOutcome,
}

impl ContenderRun<'_> {
    /// Runs the contender and returns its results.
    pub(crate) fn run(&self) -> ContenderOutcome {
        let contender = self.contender;
        let mut outcome = ContenderOutcome {
            name: contender.name.clone(),
            group: contender.group.clone(),
            server: contender.server.word().to_owned(),
            settings: settings::lines(contender, self.trace.footprint_bytes),
            ..ContenderOutcome::default()
        };
        let (name, package) = recipe::program(&contender.server);
        let program = match contender.server {
            Server::Edgeward { .. } => Some(self.paths.edgeward.clone()),
            _ => process::find_program(name),
        };
        let Some(program) = program else {
            let hint = format!("{name} is not installed; the Debian package is {package}");
            outcome.end = RunEnd::NotInstalled { hint };
            return outcome;
        };
        outcome.version = match contender.server {
            Server::Edgeward { .. } => Some(env!("CARGO_PKG_VERSION").to_owned()),
            Server::Nginx { .. } => process::version(&program, "-v"),
            _ => process::version(&program, "-V"),
        };
        let mut state = RunState {
            log: SampleLog::default(),
            load_counts: LoadCounts::default(),
            previous_parts: Sample::default(),
            warm_seconds: None,
            switched_seconds: None,
            outcome,
        };
        let end = self
            .replay_parts(&program, &mut state)
            .unwrap_or_else(|end| end);
        state.finish(end)
    }

    /// Replays all parts of the trace. Returns how the run ended, as an error if it did not complete.
    fn replay_parts(&self, program: &Path, state: &mut RunState) -> Result<RunEnd, RunEnd> {
        let failed = |what: &str, why: &dyn std::fmt::Display| RunEnd::NotStarted {
            why: format!("{what}: {why}"),
        };
        let scratch = Scratch::new(&self.paths.folder)
            .map_err(|why| failed("the folder cannot be created", &why))?;
        let in_memory = memory_folder()
            .and_then(|parent| Scratch::new(&parent).ok())
            .filter(|_| matches!(self.contender.server, Server::Nginx { .. }));
        if in_memory.is_none()
            && self.contender.memory.is_some()
            && self.contender.server.word() == "nginx"
        {
            state
                .outcome
                .notes
                .push("there is no /dev/shm, so the memory cache of nginx is on disk".to_owned());
        }
        let origin = SyntheticOrigin::start(OriginConfig {
            latency: self.plan.origin_round_trip,
            ..OriginConfig::default()
        })
        .map_err(|why| failed("the origin did not start", &why))?;

        let parts = self.parts();
        for (n, part) in parts.iter().enumerate() {
            let environment = Environment {
                folder: scratch.path(),
                memory_folder: in_memory
                    .as_ref()
                    .map_or_else(|| scratch.path(), Scratch::path),
                port: free_port().map_err(|why| failed("no port is free", &why))?,
                admin_port: free_port().map_err(|why| failed("no port is free", &why))?,
                origin_port: origin.addr().port(),
                connections: self.plan.load.connections.get(),
                memory_bytes: self.capacity(self.contender.memory),
                disk_bytes: self
                    .capacity(self.contender.disk)
                    .map(|n| n.max(DISK_BYTES_MIN)),
                is_root: rustix::process::geteuid().is_root(),
                program,
            };
            let recipe = recipe::recipe(self.contender, &part.settings, &environment);
            let server = self.start(program, &recipe, &environment);
            let mut server = match server {
                Ok(server) => server,
                Err(StartError::Interrupted) => return Err(interrupted()),
                Err(error) if n == 0 => return Err(failed("it did not start", &error)),
                Err(error) => {
                    let why = format!("it did not start again: {error}");
                    return Err(RunEnd::EndedEarly { why });
                }
            };
            if n > 0 {
                state.switched_seconds = Some(state.log.last().map_or(0.0, |last| last.seconds));
            }
            let running = PartReplay {
                run: self,
                part,
                environment: &environment,
                recipe: &recipe,
                origin: &origin,
                axis_start: state.axis_start(),
            };
            running.send(&mut server, state)?;
        }
        Ok(RunEnd::Completed)
    }

    /// Writes the server's files and starts the server. Does not retry with other ports, because the ports were
    /// free a moment ago.
    fn start(
        &self,
        program: &Path,
        recipe: &Recipe,
        environment: &Environment<'_>,
    ) -> Result<process::Server, StartError> {
        for folder in &recipe.folders {
            std::fs::create_dir_all(folder).map_err(StartError::Spawn)?;
        }
        for (path, text) in &recipe.files {
            std::fs::write(path, text).map_err(StartError::Spawn)?;
        }
        process::Server::start(
            program,
            &recipe.arguments,
            environment.folder,
            None,
            &Ready::Answers(environment.port, Ready::ORIGIN_PATH.to_owned()),
            self.stop,
        )
    }

    fn parts(&self) -> Vec<TracePart> {
        let all = self.trace.requests;
        let part = |first, end, settings| TracePart {
            first,
            end,
            settings,
        };
        match &self.contender.server {
            Server::Edgeward {
                settings,
                settings_switch: Some(settings_switch),
            } => {
                let at = settings_switch.at.of(all);
                vec![
                    part(0, at, settings.clone()),
                    part(
                        at,
                        all,
                        settings::with_changes(settings, &settings_switch.settings),
                    ),
                ]
            }
            Server::Edgeward {
                settings,
                settings_switch: None,
            } => vec![part(0, all, settings.clone())],
            _ => vec![part(0, all, Vec::new())],
        }
    }

    /// Returns a size in bytes; a relative size refers to the footprint of the trace.
    fn capacity(&self, size: Option<crate::plan::Size>) -> Option<u64> {
        size.map(|size| size.of(self.trace.footprint_bytes))
    }
}

/// The inputs for the replay of one part of the trace, after the server has started.
struct PartReplay<'a> {
    run: &'a ContenderRun<'a>,
    part: &'a TracePart,
    /// The folders, ports and limits of the server.
    environment: &'a Environment<'a>,
    /// The folders, files and arguments with which the server was started.
    recipe: &'a Recipe,
    origin: &'a RunningOrigin,
    /// The time at which the time axis of the report begins.
    axis_start: Instant,
}

impl PartReplay<'_> {
    /// Sends the requests of the part and takes samples.
    fn send(&self, server: &mut process::Server, state: &mut RunState) -> Result<(), RunEnd> {
        let run = self.run;
        let load = &run.plan.load;
        let target = |port: u16, path: &str| -> Target {
            let url = format!("http://127.0.0.1:{port}{path}");
            url.parse()
                .expect("a URL of the loopback interface is a valid target")
        };
        let warmup = load.warmup.of(run.trace.requests);
        let mut plan = ReplayPlan::new(&run.trace.label, target(self.environment.port, ""));
        plan.connections = load.connections;
        plan.pacing = load.rate.map_or(Pacing::Closed, Pacing::Rate);
        plan.round_trip = load.round_trip;
        plan.warmup_requests = warmup.saturating_sub(self.part.first);
        plan.live = Arc::new(LiveCounts::default());
        plan.stop = Stop::default();
        let device = run
            .contender
            .disk
            .and_then(|_| device_of(self.environment.folder));
        let stats = self.origin.stats();
        let mut sampler = Sampler {
            pid: server.pid(),
            status: self
                .recipe
                .has_status
                .then(|| target(self.environment.admin_port, "/status")),
            files_in_memory: self.recipe.files_in_memory.clone(),
            device,
            live: &plan.live,
            origin: &stats,
            started: self.axis_start,
            latencies: load::Latencies::default(),
        };
        // Resources used before the server was ready do not count.
        let sample_at_start = sampler.sample();
        // The log may drop a sample that is not required, because a long run has too many samples.
        let take_sample = |sampler: &mut Sampler<'_>, state: &mut RunState, is_required: bool| {
            let mut sample = sampler.sample();
            sample.subtract(&sample_at_start);
            sample.add(&state.previous_parts);
            state.log.push(sample, is_required);
        };
        take_sample(&mut sampler, state, true);
        // nginx checks the size of its cache too rarely for a fast replay, so a thread makes it evict in time.
        let enforcer = self
            .recipe
            .enforced_capacity
            .as_ref()
            .map(|(folder, capacity)| CapacityEnforcer::new(server.pid(), folder, *capacity));
        let source = TraceSource::new(&run.plan.trace);
        let (first, end) = (self.part.first, self.part.end);
        let mut ended_early = None;
        let is_over = AtomicBool::new(false);
        let report = thread::scope(|scope| {
            let is_over = &is_over;
            let enforcer = enforcer.map(|enforcer| scope.spawn(move || enforcer.enforce(is_over)));
            let replay = scope.spawn(|| {
                load::run_from(&plan, |feeder| {
                    let mut position = 0;
                    source.for_each(|record| {
                        position += 1;
                        if position <= first {
                            return ControlFlow::Continue(());
                        }
                        if position > end {
                            return ControlFlow::Break(());
                        }
                        feeder.push(record)
                    })
                })
            });
            let mut next = self.axis_start.elapsed() + INTERVAL;
            while !replay.is_finished() {
                thread::park_timeout(POLL);
                let requests = first + plan.live.requests();
                (run.progress)(requests);
                if ended_early.is_none() {
                    ended_early = self.reason_to_end(server);
                    if ended_early.is_some() {
                        plan.stop.request();
                    }
                }
                if state.warm_seconds.is_none() && requests >= warmup {
                    take_sample(&mut sampler, state, true);
                    state.warm_seconds = state.log.last().map(|sample| sample.seconds);
                } else if self.axis_start.elapsed() >= next {
                    take_sample(&mut sampler, state, false);
                    // The samples that were missed during a slow sample are skipped.
                    next = (next + INTERVAL).max(self.axis_start.elapsed());
                }
            }
            is_over.store(true, Ordering::Relaxed);
            if let Some(enforcer) = enforcer {
                enforcer.thread().unpark();
                state.outcome.notes.extend(enforcer.join().ok().flatten());
            }
            match replay.join() {
                Ok(report) => report,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
        take_sample(&mut sampler, state, true);
        state.warm_seconds = state.warm_seconds.or_else(|| {
            // The warm-up ended after the last check, so its end was not sampled. The measured interval then
            // begins with the run.
            (first + plan.live.requests() >= warmup).then_some(0.0)
        });
        if let Some(last) = state.log.last() {
            state.previous_parts = last.clone();
        }
        // The server may have died after the last check.
        let ended_early = ended_early.or_else(|| self.server_exit(server));
        match report {
            Ok(report) => {
                state.add_counts(&report, &plan.live);
                match ended_early {
                    Some(end) => Err(end),
                    None if report.stopped_early => Err(RunEnd::EndedEarly {
                        why: "too many requests in a row failed".to_owned(),
                    }),
                    None => Ok(()),
                }
            }
            Err(error) => Err(ended_early.unwrap_or_else(|| RunEnd::EndedEarly {
                why: edgeward_types::with_causes(&error),
            })),
        }
    }

    fn reason_to_end(&self, server: &mut process::Server) -> Option<RunEnd> {
        if self.run.stop.is_requested() {
            return Some(interrupted());
        }
        if self.axis_start.elapsed() > self.run.plan.load.time_max {
            let time_max = self.run.plan.load.time_max;
            let why = format!("it exceeded load.time_max, {} s", time_max.as_secs());
            return Some(RunEnd::EndedEarly { why });
        }
        self.server_exit(server)
    }

    fn server_exit(&self, server: &mut process::Server) -> Option<RunEnd> {
        let status = server.exit_status()?;
        let output = server.last_output();
        let why = format!("the server died, with {status}{output}");
        Some(RunEnd::EndedEarly { why })
    }
}

impl RunState {
    /// Returns the zero of the time axis: the time when the first part began.
    ///
    /// For a later part, the zero is shifted by the duration of the restart. The axis continues at the end of the
    /// previous part, and a restart takes no time on it.
    fn axis_start(&self) -> Instant {
        let passed = self.log.last().map_or(0.0, |last| last.seconds);
        let now = Instant::now();
        now.checked_sub(Duration::from_secs_f64(passed))
            .unwrap_or(now)
    }

    fn add_counts(&mut self, report: &ReplayReport, live: &LiveCounts) {
        let counts = &mut self.load_counts;
        counts.requests += report.requests;
        counts.errors += report.errors_total;
        counts.hits += report.hits;
        counts.body_bytes += report.body_bytes;
        counts.hit_bytes += report.hit_bytes;
        counts.send_delay_p50_ms = counts.send_delay_p50_ms.max(report.send_delay_ms.p50);
        counts.latencies.add(&live.latencies_after_warmup());
        let missing = ERROR_SAMPLES_MAX.saturating_sub(self.outcome.error_samples.len());
        let samples = report.error_samples.iter().take(missing).cloned();
        self.outcome.error_samples.extend(samples);
    }

    fn finish(self, end: RunEnd) -> ContenderOutcome {
        let series = self.log.into_samples();
        let totals = self
            .warm_seconds
            .and_then(|warm| Totals::new(&self.load_counts, &series, warm));
        ContenderOutcome {
            end,
            totals,
            warm_seconds: self.warm_seconds,
            switched_seconds: self.switched_seconds,
            series,
            ..self.outcome
        }
    }
}

fn interrupted() -> RunEnd {
    RunEnd::EndedEarly {
        why: "interrupted".to_owned(),
    }
}

/// Returns `/dev/shm`, the folder for files in memory, if it exists.
fn memory_folder() -> Option<PathBuf> {
    let folder = Path::new("/dev/shm");
    folder.is_dir().then(|| folder.to_owned())
}

/// The time between two samples.
const INTERVAL: Duration = Duration::from_secs(1);

/// The time between two checks. Each check finds out if the warm-up, the replay or the server has ended.
const POLL: Duration = Duration::from_millis(50);

/// The maximum number of failed requests that an outcome describes.
const ERROR_SAMPLES_MAX: usize = 10;
