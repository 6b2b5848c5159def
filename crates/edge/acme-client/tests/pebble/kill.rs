//! A process that is killed at each step of an order, and the next one that continues.

use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::sync::OnceLock;

use edgeward_acme_client::{Acme, AcmeSettings, Challenge, IssuerSettings, NameGroup, report};

use crate::bed::{Bed, Kind, Responder, until};

/// The steps that an order reports, in their order. A kill at the first two leaves it unknown whether an order exists.
const STEPS: [&str; 9] = [
    "task recorded",
    "order opened",
    "order recorded",
    "answer published",
    "issuer informed",
    "key stored",
    "order finalized",
    "certificate downloaded",
    "certificate stored",
];

/// After each kill all files can be read, and the next process gets the certificate: with the same order if its URL was
/// persisted, otherwise after a back-off with a second one.
#[test]
fn a_process_that_is_killed_at_any_step_is_continued() {
    let Some(bed) = Bed::start(&[]) else {
        return;
    };
    for (number, step) in STEPS.iter().enumerate() {
        let name = format!("s{number}.example");
        let mut settings = bed.settings(&[&name], Kind::Http);
        settings.folder = bed.folder().join(format!("state-{number}"));
        let (http_port, tls_port) = bed.ports();
        let group = &settings.groups[0];
        let victim = Command::new(env::current_exe().expect("a path"))
            .args(["--exact", "kill::victim", "--nocapture"])
            .env("VICTIM_STEP", step)
            .env("VICTIM_NAME", &name)
            .env("VICTIM_FOLDER", &settings.folder)
            .env("VICTIM_DIRECTORY", &*group.issuers[0].directory)
            .env("VICTIM_ROOTS", group.roots.as_ref().expect("roots"))
            .env("VICTIM_PORTS", format!("{http_port},{tls_port}"))
            .output()
            .expect("the test binary starts");
        assert_eq!(victim.status.signal(), Some(9), "{step}: {victim:?}");

        let pending = &bed.ledger(&settings)["names"][&name]["pending"];
        let is_known = pending["url"].is_string();
        assert_eq!(is_known, number >= 2, "{step}: {pending}");
        let certificate = fs::read(settings.folder.join(format!("certificates/{name}.pem")));
        assert_eq!(certificate.is_ok(), *step == "certificate stored", "{step}");
        let end_back_off = || {
            bed.edit_ledger(&settings, |ledger| {
                ledger["names"][&name]["backoff"]["delay_seconds"] = 0.into();
            });
        };
        if !is_known {
            assert_waits(&settings);
            end_back_off();
        }
        let responder = bed.respond();
        let mut acme = Acme::start(settings.clone()).expect("the thread starts");
        responder.answer_for(&acme);
        let mut is_second = !is_known;
        if *step == "issuer informed" {
            // Pebble may have asked a process that was killed, and refuses the name.
            let certificates = acme.certificates();
            let counts = certificates.counts();
            until("the order ends", || {
                counts.stored() + counts.failures().map(|(_, n)| n).sum::<u64>() > 0
            });
            is_second = counts.stored() == 0;
        }
        if *step == "issuer informed" && is_second {
            drop(acme);
            end_back_off();
            acme = Acme::start(settings.clone()).expect("the thread starts");
            responder.answer_for(&acme);
        }
        bed.wait_for(&acme, 1);
        bed.assert_issued(&acme, &name);
        drop(acme);
        let ledger = bed.ledger(&settings);
        let issuer = &*settings.groups[0].issuers[0].directory;
        let orders = ledger["issuers"][issuer]["orders"].as_array().map(Vec::len);
        assert_eq!(orders, Some(if is_second { 2 } else { 1 }), "{step}");
        assert!(
            fs::read_dir(settings.folder.join("orders"))
                .expect("a folder")
                .next()
                .is_none()
        );
        responder.stop();
    }
}

/// The next process waits before it orders again.
fn assert_waits(settings: &AcmeSettings) {
    let acme = Acme::start(settings.clone()).expect("the thread starts");
    until("the facts are published", || {
        !acme.certificates().facts().is_empty()
    });
    drop(acme);
    let reports = report(settings).expect("the folder is readable");
    assert_eq!((reports[0].failures, reports[0].is_ordered), (1, false));
}

/// The process that is killed. It orders a certificate until it reaches a step. Without the variables of the test
/// above, which starts it, it does nothing.
#[test]
fn victim() {
    if env::var_os("VICTIM_STEP").is_none() {
        return;
    }
    static STEP: OnceLock<String> = OnceLock::new();
    let variable = |name: &str| env::var(name).expect("the parent sets the variable");
    STEP.get_or_init(|| variable("VICTIM_STEP"));
    let settings = AcmeSettings {
        groups: vec![NameGroup {
            names: vec![variable("VICTIM_NAME").parse().expect("valid")],
            issuers: vec![IssuerSettings {
                directory: variable("VICTIM_DIRECTORY").into(),
                binding: None,
            }],
            contacts: Vec::new(),
            challenge: Challenge::Http,
            profile: None,
            preferred_chain: None,
            roots: Some(variable("VICTIM_ROOTS").into()),
        }],
        folder: variable("VICTIM_FOLDER").into(),
        limits: Default::default(),
        on_demand: None,
    };
    let on_step = |step: &str| {
        if STEP.get().is_some_and(|last| *last == step) {
            let process = rustix::process::getpid();
            _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
    };
    let ports = variable("VICTIM_PORTS");
    let (http_port, tls_port) = ports.split_once(',').expect("two ports");
    let port = |text: &str| text.parse().expect("a port");
    let responder = Responder::start(port(http_port), port(tls_port));
    let acme = Acme::start_with(settings, Some(on_step)).expect("the thread starts");
    responder.answer_for(&acme);
    until("the process is killed", || false);
}
