use std::sync::atomic::AtomicBool;

use edgeward_acme::{Answer, Demand, Failure, Rate, Task};
use rcgen::CertificateParams;

use super::*;
use crate::settings::{Challenge, OnDemandSettings};
use crate::store::{FolderStore, Lease};

/// A folder that has no more descriptors while `is_failing`.
struct FailingStore {
    folder: FolderStore,
    is_failing: AtomicBool,
}

impl FailingStore {
    fn fail(&self, is_failing: bool) {
        self.is_failing.store(is_failing, Ordering::Relaxed);
    }
}

impl StateStore for FailingStore {
    fn load(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match self.is_failing.load(Ordering::Relaxed) && name.starts_with("certificates/") {
            true => Err(rustix::io::Errno::MFILE.into()),
            false => self.folder.load(name),
        }
    }

    fn store(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.folder.store(name, bytes)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.folder.remove(name)
    }

    fn make_folder(&self, folder: &str) -> io::Result<()> {
        self.folder.make_folder(folder)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.folder.list(folder)
    }

    fn remove_parts(&self, folder: &str) -> io::Result<()> {
        self.folder.remove_parts(folder)
    }

    fn lease(&self) -> io::Result<Option<Box<dyn Lease>>> {
        self.folder.lease()
    }
}

struct Bed {
    _folder: tempfile::TempDir,
    store: Arc<FailingStore>,
    settings: Arc<AcmeSettings>,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = AcmeSettings {
            groups: vec![NameGroup {
                names: Vec::new(),
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
            on_demand: Some(OnDemandSettings {
                group: 0,
                url: "http://127.0.0.1:1/".parse().expect("a URL"),
                new_names: Rate {
                    count: 9,
                    window: Duration::from_secs(3600),
                },
                queries_per_minute: 60,
                pending_max: 9,
                names_max: 9,
                timeout: Duration::from_secs(1),
            }),
        };
        let store = FailingStore {
            folder: FolderStore::new(folder.path()),
            is_failing: AtomicBool::new(false),
        };
        Self {
            _folder: folder,
            store: Arc::new(store),
            settings: Arc::new(settings),
        }
    }

    fn load(&self) -> State {
        let store = Arc::clone(&self.store);
        let loaded = State::load(Arc::clone(&self.settings), store, Arc::default(), None);
        loaded.expect("the state is loaded")
    }

    /// Demands a name, and stores its certificate.
    fn issue(&self, state: &State, name: &Name) {
        let now = clocks::read();
        let mut scheduler = state.scheduler.borrow_mut();
        assert_eq!(scheduler.demand(name, now), Demand::Query);
        assert_eq!(scheduler.on_answer(name, Answer::Allowed, now), Ok(()));
        assert!(matches!(
            scheduler.next(now),
            Next::Start(Task::Order { .. })
        ));
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([name.to_string()]).expect("a name");
        let signed = params.self_signed(&key).expect("signed");
        let stored = state.store_certificate(name, &key, &signed.pem());
        let stored = stored.unwrap_or_else(|error| panic!("{}", error.message));
        scheduler.on_stored(name, stored.validity, stored.window_id, now);
        drop(scheduler);
        state.save().expect("persisted");
        state.load_keys();
    }
}

fn name() -> Name {
    "a.example".parse().expect("the name is valid")
}

/// Fails the next renewal, and returns true if the name still has its file and its certificate in handshakes.
fn survives_a_failure(bed: &Bed, state: &State) -> bool {
    let mut scheduler = state.scheduler.borrow_mut();
    scheduler.on_failed(&name(), Failure::Local, "a file", clocks::read());
    drop(scheduler);
    state.remove_dropped();
    bed.store.fail(false);
    let stored = bed.store.load(&certificate_path(&name()));
    stored.expect("readable").is_some() && state.certificates.keys().of_planned(&name()).is_some()
}

#[test]
fn a_read_error_at_a_reload_removes_no_certificate() {
    let bed = Bed::new();
    let state = bed.load();
    bed.issue(&state, &name());
    bed.store.fail(true);
    state.set_settings(Arc::clone(&bed.settings));
    for _ in 0..2 * LOAD_RETRIES_MAX {
        state.load_at.set(Some(Instant::now()));
        assert!(state.load_unreadable());
    }
    assert!(survives_a_failure(&bed, &state));
}

#[test]
fn a_certificate_that_cannot_be_read_at_the_start_is_loaded_later_or_ordered_again() {
    let bed = Bed::new();
    bed.issue(&bed.load(), &name());
    bed.store.fail(true);
    let state = bed.load();
    assert!(state.certificates.keys().of_planned(&name()).is_none());
    assert!(!state.load_unreadable(), "it is not time yet");
    bed.store.fail(false);
    state.load_at.set(Some(Instant::now()));
    assert!(state.load_unreadable());
    assert!(state.load_at.get().is_none());
    assert!(state.certificates.keys().of_planned(&name()).is_some());

    bed.store.fail(true);
    let state = bed.load();
    for attempt in 1..=LOAD_RETRIES_MAX {
        assert!(matches!(state.next(), Next::Wait(_)), "{attempt}");
        state.load_at.set(Some(Instant::now()));
        assert!(state.load_unreadable());
    }
    assert!(matches!(state.next(), Next::Start(Task::Order { .. })));
    assert!(state.load_at.get().is_none());
}

#[test]
fn a_file_that_is_no_certificate_is_ordered_again() {
    let bed = Bed::new();
    let state = bed.load();
    bed.issue(&state, &name());
    let path = certificate_path(&name());
    bed.store.store(&path, b"torn").expect("stored");
    state.set_settings(Arc::clone(&bed.settings));
    assert!(matches!(state.next(), Next::Start(Task::Order { .. })));
}

#[test]
fn keys_that_a_killed_process_left_are_removed_at_the_start() {
    let bed = Bed::new();
    bed.issue(&bed.load(), &name());
    let root = bed.settings.folder.clone();
    let left = [
        "orders/b.example.key",
        "orders/b.example.key.part",
        "certificates/a.example.pem.part",
    ];
    for path in left {
        bed.store.store(path, b"key").expect("stored");
    }
    let state = bed.load();
    for path in left {
        assert!(!root.join(path).exists(), "{path}");
    }
    assert!(state.certificates.keys().of_planned(&name()).is_some());
}

/// Method: the URL answers 403, and a process before this one left the key of an order.
#[tokio::test]
async fn a_refused_renewal_removes_the_key_of_its_order() {
    let program = edgeward_testkit::ScriptedOrigin::start();
    program.otherwise(|_| edgeward_testkit::Answer::status(403));
    let mut bed = Bed::new();
    bed.issue(&bed.load(), &name());
    let mut settings = AcmeSettings::clone(&bed.settings);
    let on_demand = settings.on_demand.as_mut().expect("there is one");
    on_demand.url = program.url("/ask").parse().expect("a URL");
    bed.settings = Arc::new(settings);
    let state = bed.load();
    state.make_pending_key(&name()).expect("persisted");
    assert!(state.scheduler.borrow_mut().request_renewal(&name()));
    let Next::Start(task) = state.next() else {
        panic!("the renewal is due");
    };
    let saved = state.save();
    state.carry_out(task, saved).await;
    assert_eq!(program.recorded().len(), 1);
    let key = bed.store.load(&pending_key_path(&name()));
    assert_eq!(key.expect("readable"), None);
    assert_eq!(
        state.scheduler.borrow().ledger().names()[&name()].refusals,
        1
    );
}
