//! The state of the holder of the lease: what its tasks read and persist.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use edgeward_acme::{Name, Next, Scheduler};
use instant_acme::Account;
use rcgen::KeyPair;

use crate::account::{self, OrderError};
use crate::answers::Answers;
use crate::certificates::{Certificates, StoredCertificate};
use crate::clocks;
use crate::demand::Waiting;
use crate::http::Client;
use crate::load::{
    CERTIFICATES, LEDGER, LoadError, Loaded, LoadedName, ORDERS, REQUESTS, certificate_path,
    demanded_names, facts, load_keys, load_ledger, pending_key_path,
};
use crate::settings::{AcmeSettings, IssuerSettings, NameGroup};
use crate::store::StateStore;

/// The state that all tasks share. All of them run on one thread.
pub(crate) struct State {
    pub(crate) settings: RefCell<Arc<AcmeSettings>>,
    pub(crate) store: Arc<dyn StateStore>,
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) scheduler: RefCell<Scheduler>,
    pub(crate) waiting: Waiting,
    /// Locked while an account is opened, so that each issuer gets one.
    accounts: tokio::sync::Mutex<()>,
    /// When the result of a query of a window was last persisted.
    pub(crate) window_saved_at: Cell<Option<Instant>>,
    /// When certificates that could not be read are loaded again.
    load_at: Cell<Option<Instant>>,
    /// How often that was tried.
    load_retries: Cell<u32>,
    /// True if the newest attempt to take demanded renewals has failed.
    pub(crate) requests_failed: Cell<bool>,
    on_step: Option<fn(&str)>,
}

impl State {
    pub(crate) fn load(
        settings: Arc<AcmeSettings>,
        store: Arc<dyn StateStore>,
        certificates: Arc<Certificates>,
        on_step: Option<fn(&str)>,
    ) -> Result<Self, LoadError> {
        let ledger = load_ledger(&*store)?;
        let scheduler = Scheduler::new(settings.plan(), ledger, clocks::read());
        let demanded = demanded_names(&scheduler);
        let loaded = load_keys(&*store, &settings, &demanded, &certificates)
            .map_err(LoadError::Placeholder)?;
        let state = Self {
            settings: RefCell::new(settings),
            store,
            certificates,
            scheduler: RefCell::new(scheduler),
            waiting: Waiting::default(),
            accounts: tokio::sync::Mutex::default(),
            window_saved_at: Cell::default(),
            load_at: Cell::default(),
            load_retries: Cell::default(),
            requests_failed: Cell::default(),
            on_step,
        };
        state.adopt(loaded);
        // A command of root would make the folder for root alone.
        state
            .store
            .make_folder(REQUESTS)
            .map_err(LoadError::Write)?;
        state.remove_dropped();
        // The failures of orders that the earlier process did not end.
        state.save().map_err(LoadError::Write)?;
        state.remove_abandoned_keys();
        Ok(state)
    }

    /// Lets the ledger have the certificates that are in the folder, and no others. One that cannot be read stays, and
    /// is loaded again after [`LOAD_INTERVAL`]. If [`LOAD_RETRIES_MAX`] such attempts fail and handshakes lack it, it
    /// is ordered again.
    fn adopt(&self, loaded: Vec<LoadedName>) {
        let reading = clocks::read();
        let mut scheduler = self.scheduler.borrow_mut();
        let is_last = self.load_retries.get() >= LOAD_RETRIES_MAX;
        let mut is_any_unreadable = false;
        for (name, loaded) in loaded {
            match loaded {
                Loaded::Stored(stored) => {
                    scheduler.adopt(&name, stored.validity, stored.window_id, reading);
                }
                Loaded::Absent => scheduler.forget_certificate(&name),
                Loaded::Unreadable { is_in_use: false } if is_last => {
                    tracing::error!(%name, "a certificate cannot be read, and is ordered again");
                    scheduler.forget_certificate(&name);
                }
                Loaded::Unreadable { .. } => is_any_unreadable = true,
            }
        }
        let load_at = is_any_unreadable.then(|| Instant::now() + LOAD_INTERVAL);
        self.load_at.set(load_at);
        if !is_any_unreadable {
            self.load_retries.set(0);
        }
    }

    /// Loads certificates again that could not be read. Returns true if it was time for this.
    pub(crate) fn load_unreadable(&self) -> bool {
        let is_time = self.load_at.get().is_some_and(|at| at <= Instant::now());
        if is_time {
            self.load_retries.set(self.load_retries.get() + 1);
            self.load_keys();
        }
        is_time
    }

    /// Loads the certificates of all names.
    fn load_keys(&self) {
        let settings = Arc::clone(&self.settings.borrow());
        let demanded = demanded_names(&self.scheduler.borrow());
        match load_keys(&*self.store, &settings, &demanded, &self.certificates) {
            Ok(loaded) => self.adopt(loaded),
            Err(error) => tracing::error!(%error, "the certificates of new names cannot be loaded"),
        }
    }

    /// Removes the keys of orders that are not under way any more, and those that a kill left half written.
    fn remove_abandoned_keys(&self) {
        let scheduler = self.scheduler.borrow();
        let names = scheduler.ledger().names();
        let under_way: HashSet<_> = names
            .iter()
            .filter(|(_, record)| record.pending.is_some())
            .map(|(name, _)| pending_key_path(name))
            .collect();
        // A key that cannot be removed hinders no order.
        for folder in [ORDERS, CERTIFICATES] {
            _ = self.store.remove_parts(folder);
        }
        for file in self.store.list(ORDERS).unwrap_or_default() {
            let path = format!("{ORDERS}/{file}");
            if !under_way.contains(&path) {
                _ = self.store.remove(&path);
            }
        }
    }

    /// Reports a step, for tests.
    pub(crate) fn step(&self, step: &str) {
        if let Some(on_step) = self.on_step {
            on_step(step);
        }
    }

    pub(crate) fn store(&self) -> &dyn StateStore {
        &*self.store
    }

    pub(crate) fn answers(&self) -> &Answers {
        &self.certificates.answers
    }

    pub(crate) fn next(&self) -> Next {
        self.scheduler.borrow_mut().next(clocks::read())
    }

    /// Replaces the settings. Certificates of names that are new, and that the folder has, are used.
    pub(crate) fn set_settings(&self, settings: Arc<AcmeSettings>) {
        let plan = settings.plan();
        self.scheduler.borrow_mut().set_plan(plan, clocks::read());
        *self.settings.borrow_mut() = settings;
        self.load_keys();
    }

    /// Persists the ledger.
    pub(crate) fn save(&self) -> io::Result<()> {
        let bytes = self.scheduler.borrow().ledger().to_bytes();
        self.store.store(LEDGER, &bytes)
    }

    /// Publishes the state of each name.
    pub(crate) fn publish_facts(&self) {
        let scheduler = self.scheduler.borrow();
        let facts = facts(&scheduler, clocks::read().wall_at);
        self.certificates.set_facts(facts);
        let on_demand = scheduler.demanded_names().count() as u64;
        let counts = &self.certificates.counts;
        counts.on_demand.store(on_demand, Ordering::Relaxed);
    }

    pub(crate) async fn account(
        &self,
        issuer: &IssuerSettings,
        group: &NameGroup,
        client: &Client,
    ) -> Result<Account, OrderError> {
        let _opening = self.accounts.lock().await;
        account::open(&*self.store, issuer, group, client).await
    }

    /// Records and persists the URL of an order, so that the next process can continue it.
    pub(crate) fn record_order(&self, name: &Name, url: &str) -> Result<(), OrderError> {
        self.scheduler.borrow_mut().on_order(name, url);
        self.save()
            .map_err(|error| OrderError::local("the ledger cannot be persisted", &error))?;
        self.step("order recorded");
        Ok(())
    }

    /// Records and persists that the request for a certificate is about to be sent: a certificate may be issued that
    /// this process does not get.
    pub(crate) fn record_finalize(&self, name: &Name) -> Result<(), OrderError> {
        self.scheduler.borrow_mut().on_finalize(name, true);
        self.save()
            .map_err(|error| OrderError::local("the ledger cannot be persisted", &error))
    }

    /// Records that the issuer has refused the request. The failure of the order is persisted with it.
    pub(crate) fn take_finalize_back(&self, name: &Name) {
        self.scheduler.borrow_mut().on_finalize(name, false);
    }

    /// Returns the key that a process persisted for an order. `None` if it did not get so far.
    pub(crate) fn pending_key(&self, name: &Name) -> Result<Option<KeyPair>, OrderError> {
        let path = pending_key_path(name);
        let local = |error: &dyn std::error::Error| OrderError::local(&path, error);
        let Some(bytes) = self.store.load(&path).map_err(|error| local(&error))? else {
            return Ok(None);
        };
        let pair = KeyPair::from_pem(&String::from_utf8_lossy(&bytes));
        pair.map(Some).map_err(|error| local(&error))
    }

    /// Makes and persists the key of an order.
    pub(crate) fn make_pending_key(&self, name: &Name) -> Result<KeyPair, OrderError> {
        let path = pending_key_path(name);
        let pair = KeyPair::generate().map_err(|error| OrderError::local(&path, &error))?;
        let stored = self.store.store(&path, pair.serialize_pem().as_bytes());
        stored.map_err(|error| OrderError::local(&path, &error))?;
        Ok(pair)
    }

    /// Removes the key of an order.
    pub(crate) fn remove_pending_key(&self, name: &Name) {
        _ = self.store.remove(&pending_key_path(name));
    }

    /// Checks and stores a certificate with its key, in one file.
    pub(crate) fn store_certificate(
        &self,
        name: &Name,
        key: &KeyPair,
        chain: &str,
    ) -> Result<StoredCertificate, OrderError> {
        let path = certificate_path(name);
        let local = |error: io::Error| OrderError::local(&path, &error);
        let pem = format!("{}{chain}", key.serialize_pem());
        let stored = StoredCertificate::parse(pem.as_bytes()).map_err(local)?;
        self.step("certificate downloaded");
        self.store.store(&path, pem.as_bytes()).map_err(local)?;
        self.step("certificate stored");
        Ok(stored)
    }
}

/// The wait before certificates that could not be read are loaded again.
const LOAD_INTERVAL: Duration = Duration::from_secs(60);

/// The attempts after which a certificate that cannot be read counts as absent: ten minutes.
const LOAD_RETRIES_MAX: u32 = 10;

#[cfg(test)]
mod tests;
