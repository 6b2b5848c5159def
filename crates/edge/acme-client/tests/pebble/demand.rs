//! Names that are ordered when a client first asks for them.

use std::sync::Arc;
use std::time::Duration;

use edgeward_acme::Rate;
use edgeward_acme_client::{Acme, AcmeSettings, Certificates, OnDemandSettings};
use edgeward_testkit::{Answer, ScriptedOrigin};

use super::bed::{Bed, Kind, until};

/// Returns settings without configured names. `program` answers at `/ask`.
fn settings(bed: &Bed, program: &ScriptedOrigin) -> AcmeSettings {
    AcmeSettings {
        on_demand: Some(OnDemandSettings {
            group: 0,
            url: program.url("/ask").parse().expect("a URL"),
            new_names: Rate {
                count: 9,
                window: Duration::from_secs(3600),
            },
            queries_per_minute: 60,
            pending_max: 4,
            names_max: 9,
            timeout: Duration::from_secs(60),
        }),
        ..bed.settings(&[], Kind::Http)
    }
}

/// Lets the program answer with these statuses, and with 404 for other names.
fn allow(program: &ScriptedOrigin, statuses: &'static [(&str, u16)]) {
    program.otherwise(|request| {
        let stated = statuses
            .iter()
            .find(|(name, _)| request.target() == format!("/ask?domain={name}"));
        Answer::status(stated.map_or(404, |(_, status)| *status))
    });
}

/// Returns how often the program was queried about a name.
fn queries(program: &ScriptedOrigin, name: &str) -> usize {
    let target = format!("/ask?domain={name}");
    let recorded = program.recorded();
    recorded
        .iter()
        .filter(|request| request.target() == target)
        .count()
}

/// Waits as a handshake does.
fn ask(certificates: &Arc<Certificates>, name: &str) {
    if let Some(wait) = certificates.demand(name) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(wait);
    }
}

fn count(certificates: &Certificates, result: &str) -> u64 {
    let mut counts = certificates.counts().demands();
    counts
        .find(|(label, _)| *label == result)
        .expect("a label")
        .1
}

/// Starts, and waits until names are ordered.
fn start(settings: AcmeSettings) -> Acme {
    let acme = Acme::start(settings).expect("the thread starts");
    until("the process has the lease", || {
        acme.certificates().counts().has_lease()
    });
    acme
}

/// A name that the program no longer knows at its renewal is dropped with its certificate after refusals of days.
#[test]
fn a_name_on_demand_is_ordered_kept_over_a_restart_and_dropped_when_the_program_refuses_it() {
    let Some(bed) = Bed::start(&[]) else {
        return;
    };
    let program = ScriptedOrigin::start();
    allow(&program, &[("a.example", 200)]);
    let settings = settings(&bed, &program);
    let responder = bed.respond();
    let acme = start(settings.clone());
    responder.answer_for(&acme);
    let certificates = acme.certificates();
    ask(&certificates, "a.example");
    bed.assert_issued(&acme, "a.example");
    assert_eq!(count(&certificates, "issued"), 1);
    assert!(certificates.demand("a.example").is_none());
    drop(acme);

    // A new process serves it without the program, which is queried at the renewal.
    let asked = queries(&program, "a.example");
    allow(&program, &[]);
    let file = settings.folder.join("certificates/a.example.pem");
    let mut renew = true;
    for refusals in 1..=3 {
        let acme = Acme::start(settings.clone()).expect("the thread starts");
        assert!(acme.certificates().of_name("a.example").is_some());
        assert!(file.exists());
        if std::mem::take(&mut renew) {
            let name = "a.example".parse().expect("valid");
            edgeward_acme_client::request_renewal(&settings, &name).expect("requested");
        }
        until("the renewal is refused", || {
            queries(&program, "a.example") == asked + refusals
        });
        until("the refusal is persisted", || {
            let failures = &bed.ledger(&settings)["names"]["a.example"]["backoff"]["failures"];
            failures.as_u64() == u64::try_from(refusals).ok()
        });
        if refusals == 3 {
            until("the certificate is removed", || {
                !file.exists() && acme.certificates().of_name("a.example").is_none()
            });
        }
        drop(acme);
        // The back-off ends. Before the last refusal, days have passed.
        bed.edit_ledger(&settings, |ledger| {
            let record = &mut ledger["names"]["a.example"];
            record["backoff"]["delay_seconds"] = 0.into();
            if refusals == 2 {
                record["refused_since"] = 1.into();
            }
        });
    }
    let ledger = bed.ledger(&settings);
    assert!(
        ledger["names"]["a.example"]["demanded_at"].is_null(),
        "{ledger}"
    );
}

#[test]
fn names_without_a_certificate_are_counted_by_the_reason() {
    let Some(bed) = Bed::start(&[]) else {
        return;
    };
    let program = ScriptedOrigin::start();
    allow(&program, &[("blocked.example", 200), ("down.example", 503)]);
    let settings = settings(&bed, &program);
    let responder = bed.respond();
    let acme = start(settings.clone());
    responder.answer_for(&acme);
    let certificates = acme.certificates();
    for (name, result) in [
        ("a_b.example", "invalid"),
        ("example", "invalid"),
        ("1.2.3.300", "invalid"),
        ("stranger.example", "refused"),
        ("stranger.example", "refused"),
        ("down.example", "unanswered"),
        // The issuer refuses the name, which then has a back-off.
        ("blocked.example", "failed"),
        ("blocked.example", "failed"),
    ] {
        let before = count(&certificates, result);
        ask(&certificates, name);
        assert_eq!(count(&certificates, result), before + 1, "{name}");
        assert!(certificates.default_key(Some(name)).is_none());
    }
    assert_eq!(queries(&program, "stranger.example"), 1);
    assert_eq!(queries(&program, "blocked.example"), 1);
    let reports = edgeward_acme_client::report(&settings).expect("the folder is readable");
    assert!(reports.is_empty(), "{reports:?}");

    // Another process with the same folder orders nothing.
    let second = Acme::start(settings.clone()).expect("the thread starts");
    ask(&second.certificates(), "a.example");
    assert_eq!(count(&second.certificates(), "no-lease"), 1);

    // A program that cannot be reached refuses all names.
    let mut unreachable = settings;
    let of_demand = unreachable.on_demand.as_mut().expect("there is one");
    let closed = ScriptedOrigin::unused_addr();
    of_demand.url = format!("http://{closed}/").parse().expect("a URL");
    acme.update(unreachable).expect("the settings are used");
    until("the program is not reached", || {
        // The name before this one may still have been answered by the program of the old settings.
        ask(&certificates, "b.example");
        ask(&certificates, "c.example");
        count(&certificates, "unanswered") >= 2
    });
}

/// The order continues, so that the next client gets the certificate.
#[test]
fn a_client_that_has_waited_long_enough_gets_no_certificate() {
    let Some(bed) = Bed::start(&[]) else {
        return;
    };
    let program = ScriptedOrigin::start();
    allow(&program, &[("a.example", 200)]);
    let mut settings = settings(&bed, &program);
    settings.on_demand.as_mut().expect("there is one").timeout = Duration::ZERO;
    let responder = bed.respond();
    let acme = start(settings);
    responder.answer_for(&acme);
    ask(&acme.certificates(), "a.example");
    assert_eq!(count(&acme.certificates(), "timeout"), 1);
    bed.wait_for(&acme, 1);
    bed.assert_issued(&acme, "a.example");
}
