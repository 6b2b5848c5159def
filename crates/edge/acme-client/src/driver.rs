//! The thread that carries out the tasks of the scheduler.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use edgeward_acme::{Ledger, Next, Scheduler, Task};
use edgeward_types::with_causes;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::MissedTickBehavior;

use crate::certificates::Certificates;
use crate::clocks;
use crate::demand::{DemandGate, DemandRequest};
use crate::load::{self, LoadError, StartError};
use crate::settings::AcmeSettings;
use crate::state::State;
use crate::store::{FolderStore, StateStore};
use crate::tasks::TaskId;

/// Keeps certificates. Dropping this value ends the orders under way, which the next process continues.
#[derive(Debug)]
pub struct Acme {
    certificates: Arc<Certificates>,
    stop: watch::Sender<bool>,
    settings: watch::Sender<Arc<AcmeSettings>>,
    gate: DemandGate,
    thread: Option<JoinHandle<()>>,
}

impl Acme {
    /// Loads the certificates of the folder, and starts to order those that are missing or due. Names without a
    /// certificate get a self-signed one until then.
    pub fn start(settings: AcmeSettings) -> Result<Self, StartError> {
        Self::start_with(settings, None)
    }

    /// Like [`start`](Self::start). `on_step` is called after each step of an order: tests end the process there.
    #[doc(hidden)]
    pub fn start_with(
        settings: AcmeSettings,
        on_step: Option<fn(&str)>,
    ) -> Result<Self, StartError> {
        let store: Arc<dyn StateStore> = Arc::new(FolderStore::new(&settings.folder));
        let certificates = Arc::new(Certificates::default());
        // An error of the ledger is reported by the thread.
        let ledger = load::load_ledger(&*store).unwrap_or_default();
        let demanded = load::demanded_names(&Scheduler::view(settings.plan(), ledger));
        load::load_keys(&*store, &settings, &demanded, &certificates)?;
        let timeout = |settings: &AcmeSettings| Some(settings.on_demand.as_ref()?.timeout);
        let (gate, demands) = DemandGate::new(timeout(&settings).unwrap_or_default());
        certificates.set_gate(settings.on_demand.as_ref().map(|_| gate.clone()));
        let (stop, stopping) = watch::channel(false);
        let (settings, changes) = watch::channel(Arc::new(settings));
        let driver = Driver {
            store,
            certificates: Arc::clone(&certificates),
            on_step,
            stopping,
            settings: changes,
            demands,
            seen: None,
        };
        let thread = std::thread::Builder::new()
            .name("edgeward-acme".to_owned())
            .spawn(move || driver.run())
            .map_err(StartError::Thread)?;
        Ok(Self {
            certificates,
            stop,
            settings,
            gate,
            thread: Some(thread),
        })
    }

    /// Returns the certificates, for handshakes.
    pub fn certificates(&self) -> Arc<Certificates> {
        Arc::clone(&self.certificates)
    }

    /// Replaces the settings, except for the folder. Orders under way continue.
    pub fn update(&self, settings: AcmeSettings) -> Result<(), StartError> {
        let store = FolderStore::new(&self.settings.borrow().folder);
        let ledger = load::load_ledger(&store).unwrap_or_default();
        let demanded = load::demanded_names(&Scheduler::view(settings.plan(), ledger));
        load::load_keys(&store, &settings, &demanded, &self.certificates)?;
        let on_demand = settings.on_demand.as_ref();
        let gate = on_demand.map(|on_demand| self.gate.clone().with_timeout(on_demand.timeout));
        self.certificates.set_gate(gate);
        self.settings.send_replace(Arc::new(settings));
        Ok(())
    }
}

impl Drop for Acme {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Driver {
    store: Arc<dyn StateStore>,
    certificates: Arc<Certificates>,
    on_step: Option<fn(&str)>,
    stopping: watch::Receiver<bool>,
    settings: watch::Receiver<Arc<AcmeSettings>>,
    demands: mpsc::Receiver<DemandRequest>,
    /// The ledger of the other process when the certificates were loaded.
    seen: Option<Ledger>,
}

impl Driver {
    fn run(self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        match runtime {
            Ok(runtime) => {
                LocalSet::new().block_on(&runtime, self.follow());
                // A look-up of a name that is under way would be awaited.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!(%error, "no certificate can be ordered"),
        }
    }

    /// Orders certificates while this process has the lease. Without it, loads those that the other process orders.
    async fn follow(mut self) {
        let mut last_error = String::new();
        while !*self.stopping.borrow() {
            let leased = match self.store.lease() {
                Ok(Some(lease)) => match self.load() {
                    Ok(state) => {
                        last_error.clear();
                        self.certificates
                            .counts
                            .has_lease
                            .store(true, Ordering::Relaxed);
                        self.keep(Rc::new(state)).await;
                        self.certificates
                            .counts
                            .has_lease
                            .store(false, Ordering::Relaxed);
                        drop(lease);
                        return;
                    }
                    Err(error) => Err(with_causes(&error)),
                },
                Ok(None) => self.reload().map_err(|error| with_causes(&error)),
                Err(error) => Err(with_causes(&error)),
            };
            if let Err(error) = leased
                && error != last_error
            {
                tracing::error!(
                    error,
                    "the folder of the certificates cannot be used; no certificate is ordered"
                );
                last_error = error;
            }
            tokio::select! {
                () = tokio::time::sleep(LEASE_INTERVAL) => {}
                _ = self.stopping.changed() => {}
            }
        }
    }

    /// Loads the certificates again if the other process has changed the ledger, as it does after each renewal.
    fn reload(&mut self) -> Result<(), LoadError> {
        let has_new_settings = self.settings.has_changed().unwrap_or(false);
        let settings = Arc::clone(&self.settings.borrow_and_update());
        let ledger = load::load_ledger(&*self.store)?;
        if !has_new_settings && self.seen.as_ref() == Some(&ledger) {
            return Ok(());
        }
        let scheduler = Scheduler::view(settings.plan(), ledger.clone());
        let demanded = load::demanded_names(&scheduler);
        load::load_keys(&*self.store, &settings, &demanded, &self.certificates)
            .map_err(LoadError::Placeholder)?;
        self.certificates
            .set_facts(load::facts(&scheduler, clocks::read().wall_at));
        self.seen = Some(ledger);
        Ok(())
    }

    /// Loads everything, as the holder of the lease.
    fn load(&mut self) -> Result<State, LoadError> {
        let settings = Arc::clone(&self.settings.borrow_and_update());
        State::load(
            settings,
            Arc::clone(&self.store),
            Arc::clone(&self.certificates),
            self.on_step,
        )
    }

    /// Carries out tasks until the process stops.
    async fn keep(&mut self, state: Rc<State>) {
        let mut tasks = JoinSet::new();
        let mut running = HashMap::new();
        let mut has_changed = true;
        let mut requests = tokio::time::interval(REQUEST_INTERVAL);
        requests.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !*self.stopping.borrow() {
            has_changed |= state.load_unreadable();
            let wait = loop {
                match state.next() {
                    Next::Wait(wait) => break wait,
                    Next::Start(task) => {
                        let saved = match task {
                            Task::Order { .. } => state.save(),
                            Task::QueryWindow { .. } => Ok(()),
                        };
                        let id = TaskId::from(&task);
                        let state = Rc::clone(&state);
                        let spawned =
                            tasks.spawn_local(async move { state.carry_out(task, saved).await });
                        running.insert(spawned.id(), id);
                        has_changed = true;
                    }
                }
            };
            if std::mem::take(&mut has_changed) {
                state.publish_facts();
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = requests.tick() => has_changed |= state.take_requests(),
                Some(ended) = tasks.join_next_with_id() => {
                    let id = match &ended {
                        Ok((id, ())) => *id,
                        Err(error) => error.id(),
                    };
                    let task = running.remove(&id);
                    if let (Err(_), Some(task)) = (ended, task) {
                        state.record_panic(task);
                    }
                    has_changed = true;
                }
                _ = self.stopping.changed() => {}
                Some(request) = self.demands.recv() => {
                    if let Some(name) = state.demand(request) {
                        let id = TaskId::Query { name: name.clone() };
                        let state = Rc::clone(&state);
                        let spawned = tasks.spawn_local(async move { state.query_name(name).await });
                        running.insert(spawned.id(), id);
                    }
                }
                Ok(()) = self.settings.changed() => {
                    state.set_settings(Arc::clone(&self.settings.borrow_and_update()));
                    has_changed = true;
                }
            }
        }
    }
}

/// The time between two attempts to take the lease. After an upgrade the old process has it until it ends.
const LEASE_INTERVAL: Duration = Duration::from_secs(2);

/// The time between two checks of demanded renewals.
const REQUEST_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    use edgeward_testkit::client::until;

    use crate::settings::{Challenge, IssuerSettings, NameGroup};
    use crate::status::{report, request_renewal};

    /// Its name gets a back-off, and the thread carries out the next demand.
    #[test]
    fn an_order_that_panics_has_failed() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = "a.example".parse().expect("the name is valid");
        let settings = AcmeSettings {
            groups: vec![NameGroup {
                names: vec![name],
                issuers: vec![IssuerSettings {
                    directory: "https://127.0.0.1:1/".into(),
                    binding: None,
                }],
                contacts: Vec::new(),
                challenge: Challenge::Http,
                profile: None,
                preferred_chain: None,
                roots: None,
            }],
            folder: folder.path().to_owned(),
            limits: Default::default(),
            on_demand: None,
        };
        let on_step = |step: &str| panic!("{step}");
        let acme = Acme::start_with(settings.clone(), Some(on_step)).expect("the thread starts");
        let failures = || {
            let certificates = acme.certificates();
            certificates
                .counts()
                .failures()
                .map(|(_, n)| n)
                .sum::<u64>()
        };
        until("the order fails", || (failures() == 1).then_some(()));
        // The folder of demands is there, so that the command of another user does not make it.
        assert!(folder.path().join("requests").is_dir());
        request_renewal(&settings, &settings.groups[0].names[0]).expect("requested");
        until("the next order fails", || (failures() == 2).then_some(()));
        drop(acme);
        let reports = report(&settings).expect("the folder is readable");
        assert_eq!(reports[0].failures, 1);
        assert_eq!(
            reports[0].last_error.as_deref(),
            Some("the order has panicked")
        );
        let mut requests = std::fs::read_dir(folder.path().join("requests")).expect("a folder");
        assert!(requests.next().is_none());
    }
}
