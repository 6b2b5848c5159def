//! The run of one contender: starts its server and origin, replays the trace and takes samples.
//!
//! The thread of the run takes a sample each second; the replay has its own threads. The replay ends early if the
//! server dies, the time limit is reached or a stop is requested. The samples until then are kept.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use edgeward_replay::ReplayReport;
use edgeward_replay::load::{self, LiveCounts, Pacing, ReplayPlan, Stop, Target};
use edgeward_replay::origin::{OriginConfig, Running, SyntheticOrigin};

use crate::janitor::Janitor;
use crate::look::{Sampler, device_of};
use crate::outcome::{ContenderOutcome, Counted, End, Totals, TraceFacts};
use crate::plan::{Contender, DISK_BYTES_MIN, Plan, Server, Setting};
use crate::process::{self, StartError, free_port};
use crate::recipe::{self, Environment, Recipe};
use crate::run::Bench;
use crate::sample::{Sample, SampleLog};
use crate::scratch::Scratch;
use crate::settings;
use crate::source::Source;

/// The inputs of one contender's run.
pub(crate) struct Turn<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) contender: &'a Contender,
    pub(crate) trace: &'a TraceFacts,
    pub(crate) bench: &'a Bench,
    pub(crate) stop: &'a Stop,
    /// Receives the number of answered requests.
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
}

/// A part of the trace that is replayed with one set of settings.
struct Leg {
    from: u64,
    to: u64,
    settings: Vec<Setting>,
}

/// The state of a run, with its results so far.
struct RunState {
    log: SampleLog,
    counted: Counted,
    /// The counters at the end of the previous part of the trace; zero during the first part.
    before: Sample,
    warm_seconds: Option<f64>,
    switched_seconds: Option<f64>,
    outcome: ContenderOutcome,
}

impl Turn<'_> {
    /// Runs the contender and returns its results.
    pub(crate) fn take(&self) -> ContenderOutcome {
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
            Server::Edgeward { .. } => Some(self.bench.edgeward.clone()),
            _ => process::find(name),
        };
        let Some(program) = program else {
            let hint = format!("{name} is not installed; the Debian package is {package}");
            outcome.end = End::Missing { hint };
            return outcome;
        };
        outcome.version = match contender.server {
            Server::Edgeward { .. } => Some(env!("CARGO_PKG_VERSION").to_owned()),
            Server::Nginx { .. } => process::version(&program, "-v"),
            _ => process::version(&program, "-V"),
        };
        let mut state = RunState {
            log: SampleLog::default(),
            counted: Counted::default(),
            before: Sample::default(),
            warm_seconds: None,
            switched_seconds: None,
            outcome,
        };
        let end = self.through(&program, &mut state).unwrap_or_else(|end| end);
        state.finish(end)
    }

    /// Replays all parts of the trace. Returns how the run ended.
    fn through(&self, program: &Path, state: &mut RunState) -> Result<End, End> {
        let failed = |what: &str, why: &dyn std::fmt::Display| End::Failed {
            why: format!("{what}: {why}"),
        };
        let scratch = Scratch::new(&self.bench.folder)
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
                .push("there is no /dev/shm, so its cache in memory is on disk".to_owned());
        }
        let origin = SyntheticOrigin::start(OriginConfig {
            latency: self.plan.origin_round_trip,
            ..OriginConfig::default()
        })
        .map_err(|why| failed("the origin did not start", &why))?;

        let legs = self.legs();
        for (n, leg) in legs.iter().enumerate() {
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
            let recipe = recipe::recipe(self.contender, &leg.settings, &environment);
            let server = self.start(program, &recipe, &environment);
            let mut server = match server {
                Ok(server) => server,
                Err(StartError::Interrupted) => return Err(interrupted()),
                Err(error) if n == 0 => return Err(failed("it did not start", &error)),
                Err(error) => {
                    let why = format!("it did not start again: {error}");
                    return Err(End::Cut { why });
                }
            };
            if n > 0 {
                state.switched_seconds = Some(state.log.last().map_or(0.0, |last| last.seconds));
            }
            let running = RunningLeg {
                turn: self,
                leg,
                environment: &environment,
                recipe: &recipe,
                origin: &origin,
                clock: state.clock(),
            };
            running.send(&mut server, state)?;
        }
        Ok(End::Whole)
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
            environment.port,
            self.stop,
        )
    }

    fn legs(&self) -> Vec<Leg> {
        let all = self.trace.requests;
        let leg = |from, to, settings| Leg { from, to, settings };
        match &self.contender.server {
            Server::Edgeward {
                settings,
                switch: Some(switch),
            } => {
                let at = switch.at.of(all);
                vec![
                    leg(0, at, settings.clone()),
                    leg(at, all, settings::changed(settings, &switch.settings)),
                ]
            }
            Server::Edgeward {
                settings,
                switch: None,
            } => vec![leg(0, all, settings.clone())],
            _ => vec![leg(0, all, Vec::new())],
        }
    }

    fn capacity(&self, size: Option<crate::plan::Size>) -> Option<u64> {
        size.map(|size| size.of(self.trace.footprint_bytes))
    }
}

/// The inputs for the replay of one part of the trace, after the server has started.
struct RunningLeg<'a> {
    turn: &'a Turn<'a>,
    leg: &'a Leg,
    environment: &'a Environment<'a>,
    recipe: &'a Recipe,
    origin: &'a Running,
    /// The time at which the time axis of the report begins.
    clock: Instant,
}

impl RunningLeg<'_> {
    /// Sends the requests of the part and takes samples.
    fn send(&self, server: &mut process::Server, state: &mut RunState) -> Result<(), End> {
        let turn = self.turn;
        let load = &turn.plan.load;
        let target = |port: u16, path: &str| -> Target {
            let url = format!("http://127.0.0.1:{port}{path}");
            url.parse()
                .expect("a URL of the loopback interface is a valid target")
        };
        let warmup = load.warmup.of(turn.trace.requests);
        let mut plan = ReplayPlan::new(&turn.trace.label, target(self.environment.port, ""));
        plan.connections = load.connections;
        plan.pacing = load.rate.map_or(Pacing::Closed, Pacing::Rate);
        plan.round_trip = load.round_trip;
        plan.warmup_requests = warmup.saturating_sub(self.leg.from);
        plan.live = Arc::new(LiveCounts::default());
        plan.stop = Stop::default();
        let device = turn
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
            started: self.clock,
            latencies: load::Latencies::default(),
        };
        // Resources used before the server was ready do not count.
        let zero = sampler.look();
        let keep = |sampler: &mut Sampler<'_>, state: &mut RunState, must: bool| {
            let mut sample = sampler.look();
            sample.since(&zero);
            sample.after(&state.before);
            state.log.push(sample, must);
        };
        keep(&mut sampler, state, true);
        let janitor = self
            .recipe
            .tended
            .as_ref()
            .map(|(folder, capacity)| Janitor::new(server.pid(), folder, *capacity));
        let source = Source::new(&turn.plan.trace);
        let (from, to) = (self.leg.from, self.leg.to);
        let mut ended_early = None;
        let over = AtomicBool::new(false);
        let report = thread::scope(|scope| {
            let over = &over;
            let janitor = janitor.map(|janitor| scope.spawn(move || janitor.tend(over)));
            let replay = scope.spawn(|| {
                load::run_from(&plan, |feeder| {
                    let mut at = 0;
                    source.for_each(|record| {
                        at += 1;
                        if at <= from {
                            return ControlFlow::Continue(());
                        }
                        if at > to {
                            return ControlFlow::Break(());
                        }
                        feeder.push(record)
                    })
                })
            });
            let mut next = self.clock.elapsed() + INTERVAL;
            while !replay.is_finished() {
                thread::park_timeout(POLL);
                let requests = from + plan.live.requests();
                (turn.progress)(requests);
                if ended_early.is_none() {
                    ended_early = self.reason_to_end(server);
                    if ended_early.is_some() {
                        plan.stop.ask();
                    }
                }
                if state.warm_seconds.is_none() && requests >= warmup {
                    keep(&mut sampler, state, true);
                    state.warm_seconds = state.log.last().map(|sample| sample.seconds);
                } else if self.clock.elapsed() >= next {
                    keep(&mut sampler, state, false);
                    // The samples that were missed during a slow sample are skipped.
                    next = (next + INTERVAL).max(self.clock.elapsed());
                }
            }
            over.store(true, Ordering::Relaxed);
            if let Some(janitor) = janitor {
                janitor.thread().unpark();
                state.outcome.notes.extend(janitor.join().ok().flatten());
            }
            match replay.join() {
                Ok(report) => report,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
        keep(&mut sampler, state, true);
        state.warm_seconds = state.warm_seconds.or_else(|| {
            // The trace ended before the next check.
            (from + plan.live.requests() >= warmup).then_some(0.0)
        });
        if let Some(last) = state.log.last() {
            state.before = last.clone();
        }
        // The server may have died after the last check.
        let ended_early = ended_early.or_else(|| self.death(server));
        match report {
            Ok(report) => {
                state.count(&report, &plan.live);
                match ended_early {
                    Some(end) => Err(end),
                    None if report.stopped_early => Err(End::Cut {
                        why: "too many requests in a row failed".to_owned(),
                    }),
                    None => Ok(()),
                }
            }
            Err(error) => Err(ended_early.unwrap_or_else(|| End::Cut {
                why: edgeward_types::with_causes(&error),
            })),
        }
    }

    fn reason_to_end(&self, server: &mut process::Server) -> Option<End> {
        if self.turn.stop.is_asked() {
            return Some(interrupted());
        }
        if self.clock.elapsed() > self.turn.plan.load.time_max {
            let time_max = self.turn.plan.load.time_max;
            let why = format!("it exceeded load.time_max, {} s", time_max.as_secs());
            return Some(End::Cut { why });
        }
        self.death(server)
    }

    fn death(&self, server: &mut process::Server) -> Option<End> {
        let status = server.ended()?;
        let said = server.last_words();
        let why = format!("the server died, with {status}{said}");
        Some(End::Cut { why })
    }
}

impl RunState {
    /// The zero of the time axis: the time when the first part began.
    ///
    /// For a later part, the zero is shifted by the duration of the restart. The axis continues at the end of the
    /// previous part, and a restart takes no time on it.
    fn clock(&self) -> Instant {
        let passed = self.log.last().map_or(0.0, |last| last.seconds);
        let now = Instant::now();
        now.checked_sub(Duration::from_secs_f64(passed))
            .unwrap_or(now)
    }

    fn count(&mut self, report: &ReplayReport, live: &LiveCounts) {
        let counted = &mut self.counted;
        counted.requests += report.requests;
        counted.errors += report.errors_total;
        counted.hits += report.hits;
        counted.body_bytes += report.body_bytes;
        counted.hit_bytes += report.hit_bytes;
        counted.send_delay_p50_ms = counted.send_delay_p50_ms.max(report.send_delay_ms.p50);
        counted.latencies.add(&live.counted_latencies());
        let room = ERRORS_MAX.saturating_sub(self.outcome.error_samples.len());
        let samples = report.error_samples.iter().take(room).cloned();
        self.outcome.error_samples.extend(samples);
    }

    fn finish(self, end: End) -> ContenderOutcome {
        let series = self.log.into_samples();
        let totals = self
            .warm_seconds
            .and_then(|warm| Totals::new(&self.counted, &series, warm));
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

fn interrupted() -> End {
    End::Cut {
        why: "interrupted".to_owned(),
    }
}

/// Returns `/dev/shm`, the folder for files in memory, if it exists.
fn memory_folder() -> Option<PathBuf> {
    let folder = Path::new("/dev/shm");
    folder.is_dir().then(|| folder.to_owned())
}

const INTERVAL: Duration = Duration::from_secs(1);

/// The interval between two checks whether the warm-up, the replay or the server has ended.
const POLL: Duration = Duration::from_millis(50);

const ERRORS_MAX: usize = 10;
