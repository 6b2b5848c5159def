//! Orders at Pebble, a small authority: all challenges, renewal windows, and kills at each step.
//!
//! If Pebble is not installed, the tests are skipped, or fail with `EDGEWARD_REQUIRE_TOOLS=1`.

mod bed;
mod demand;
mod kill;

use std::fs;

use edgeward_acme_client::{AccountBinding, Acme, report, request_renewal};
use edgeward_testkit::pebble::BINDING;

use bed::{Bed, Kind, until};

/// Names and addresses by HTTP-01, with rejected nonces, and with authorizations that are and are not reused.
#[test]
fn names_and_addresses_are_validated_by_http() {
    for (nonces, reuse) in [("50", "0"), ("0", "100")] {
        let variables = [
            ("PEBBLE_WFE_NONCEREJECT", nonces),
            ("PEBBLE_AUTHZREUSE", reuse),
        ];
        let Some(bed) = Bed::start(&variables) else {
            return;
        };
        let settings = bed.settings(&["a.example", "b.a.example", "127.0.0.1"], Kind::Http);
        let responder = bed.respond();
        let acme = Acme::start(settings.clone()).expect("the thread starts");
        responder.answer_for(&acme);
        bed.wait_for(&acme, 3);
        for name in ["a.example", "b.a.example", "127.0.0.1"] {
            bed.assert_issued(&acme, name);
        }
        assert!(acme.certificates().of_name("c.a.example").is_none());
        // An authorization that is reused needs no challenge. With 0 Pebble reuses one in a hundred.
        let answered = responder.answered();
        request_renewal(&settings, &"a.example".parse().expect("valid")).expect("requested");
        bed.wait_for(&acme, 4);
        if reuse == "100" {
            assert_eq!(responder.answered(), answered);
        }
        bed.assert_issued(&acme, "a.example");
    }
}

#[test]
fn names_and_addresses_are_validated_by_tls_with_several_chains() {
    let variables = [
        ("PEBBLE_ALTERNATE_ROOTS", "2"),
        ("PEBBLE_CHAIN_LENGTH", "2"),
    ];
    let Some(bed) = Bed::start(&variables) else {
        return;
    };
    let mut settings = bed.settings(&["a.example", "127.0.0.1"], Kind::TlsAlpn);
    settings.groups[0].profile = Some("shortlived".to_owned());
    let responder = bed.respond();
    let acme = Acme::start(settings).expect("the thread starts");
    responder.answer_for(&acme);
    bed.wait_for(&acme, 2);
    bed.assert_issued(&acme, "a.example");
    let address = bed.assert_issued(&acme, "127.0.0.1");
    assert!(
        address.cert.len() >= 3,
        "{} certificates",
        address.cert.len()
    );
    until("the facts are published", || {
        let facts = acme.certificates().facts();
        facts.iter().all(|facts| facts.not_after_at.is_some())
    });
    let end = acme.certificates().facts()[0]
        .not_after_at
        .expect("a certificate");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let days = (end - now.expect("after 1970").as_secs()) / 86_400;
    assert!((5..=6).contains(&days), "{days}");
}

#[test]
fn wildcards_are_validated_by_the_hook_of_a_bound_account() {
    let Some(bed) = Bed::start_bound(&[]) else {
        return;
    };
    let mut settings = bed.settings(&["*.a.example", "a.example"], Kind::Dns);
    let acme = Acme::start(settings.clone()).expect("the thread starts");
    until("the account is refused", || {
        acme.certificates().counts().failures().any(|(_, n)| n > 0)
    });
    drop(acme);
    let reports = report(&settings).expect("the folder is readable");
    assert!(reports.iter().all(|report| report.not_after_at.is_none()));
    assert!(
        reports.iter().any(|report| report.last_error.is_some()),
        "{reports:?}"
    );

    let (key_id, key) = BINDING;
    let binding = AccountBinding::parse(key_id, key);
    assert!(binding.is_some() && AccountBinding::parse(key_id, "/").is_none());
    settings.groups[0].issuers[0].binding = binding;
    fs::remove_file(settings.folder.join("ledger.json")).expect("the back-off ends");
    let acme = Acme::start(settings).expect("the thread starts");
    bed.wait_for(&acme, 2);
    bed.assert_issued(&acme, "x.a.example");
    bed.assert_issued(&acme, "a.example");
    let calls = fs::read_to_string(bed.folder().join("calls")).expect("the hook has run");
    let of = |action: &str| {
        calls
            .lines()
            .filter(|line| *line == format!("{action} _acme-challenge.a.example"))
            .count()
    };
    assert_eq!((of("present"), of("cleanup")), (2, 2), "{calls}");
}

/// Returns the subject of the issuer of the last certificate.
fn issuer_of_chain(key: &rustls::sign::CertifiedKey) -> Vec<u8> {
    use x509_cert::der::{Decode as _, Encode as _};
    let last = key.cert.last().expect("a chain");
    let parsed = x509_cert::Certificate::from_der(last).expect("a certificate");
    parsed.tbs_certificate.issuer.to_der().expect("a name")
}

/// The second and the third root of Pebble, and one that it does not have, so that the default chain is used.
#[test]
fn the_chain_of_the_preferred_root_is_selected() {
    use x509_cert::der::{Decode as _, Encode as _};
    let Some(bed) = Bed::start(&[
        ("PEBBLE_ALTERNATE_ROOTS", "2"),
        ("PEBBLE_WFE_NONCEREJECT", "30"),
    ]) else {
        return;
    };
    let responder = bed.respond();
    let subject = |number: usize| {
        let (name, der) = bed.root(number);
        let root = x509_cert::Certificate::from_der(&der).expect("a certificate");
        (name, root.tbs_certificate.subject.to_der().expect("a name"))
    };
    let (_, default) = subject(0);
    for (number, preferred, expected) in [
        (0, "Unknown Root".to_owned(), default),
        (1, subject(1).0, subject(1).1),
        (2, subject(2).0, subject(2).1),
    ] {
        let name = format!("n{number}.example");
        let mut settings = bed.settings(&[&name], Kind::Http);
        settings.groups[0].preferred_chain = Some(preferred);
        let acme = Acme::start(settings).expect("the thread starts");
        responder.answer_for(&acme);
        bed.wait_for(&acme, 1);
        let key = bed.assert_issued(&acme, &name);
        assert_eq!(issuer_of_chain(&key), expected, "{number}");
    }
}

/// An order that is continued needs its key; one that is given up does not.
#[test]
fn an_order_that_is_given_up_leaves_no_key() {
    let Some(bed) = Bed::start(&[]) else {
        return;
    };
    let settings = bed.settings(&["a.example"], Kind::Http);
    let key = settings.folder.join("orders/a.example.key");
    let stray = settings.folder.join("orders/b.example.key");
    let responder = bed.respond();
    let mut has_key = true;
    for resumes in [0, 2] {
        let on_step = |step: &str| assert_ne!(step, "key stored");
        let acme = Acme::start_with(settings.clone(), Some(on_step)).expect("the thread starts");
        responder.answer_for(&acme);
        until("the order fails", || {
            acme.certificates().counts().failures().any(|(_, n)| n > 0)
        });
        drop(acme);
        assert!(!stray.exists());
        assert_eq!(key.exists(), has_key, "{resumes}");
        if !has_key {
            return;
        }
        // The next continuation is the last one.
        bed.edit_ledger(&settings, |ledger| {
            let record = &mut ledger["names"]["a.example"];
            record["backoff"]["delay_seconds"] = 0.into();
            record["pending"]["resumes"] = 2.into();
            record["pending"]["started_at"] = 0.into();
        });
        fs::write(&stray, "the key of an order of the past").expect("written");
        has_key = false;
    }
}

#[test]
fn a_name_that_is_refused_has_an_error_and_hinders_no_other_name() {
    let Some(bed) = Bed::start(&[]) else {
        return;
    };
    let settings = bed.settings(&["blocked.example", "a.example"], Kind::Http);
    let responder = bed.respond();
    let acme = Acme::start(settings.clone()).expect("the thread starts");
    responder.answer_for(&acme);
    bed.wait_for(&acme, 1);
    until("the name is refused", || {
        acme.certificates().counts().failures().any(|(_, n)| n > 0)
    });
    bed.assert_issued(&acme, "a.example");
    let placeholder = acme
        .certificates()
        .default_key(Some("blocked.example"))
        .expect("self-signed");
    assert_eq!(placeholder.cert.len(), 1);
    until("the ledger is persisted", || {
        let reports = report(&settings).expect("the folder is readable");
        let error = reports[0].last_error.as_deref().unwrap_or_default();
        error.contains("rejectedIdentifier") && reports[0].failures == 1
    });
}

/// The first issuer cannot be reached, so that the name is ordered from the second one, whose account is bound.
#[test]
fn the_account_at_the_second_issuer_may_be_bound() {
    let Some(bed) = Bed::start_bound(&[]) else {
        return;
    };
    let mut settings = bed.settings(&["a.example"], Kind::Http);
    let group = &mut settings.groups[0];
    let (key_id, key) = BINDING;
    group.issuers[0].binding = AccountBinding::parse(key_id, key);
    let mut first = group.issuers[0].clone();
    first.directory = "https://127.0.0.1:1/dir".into();
    first.binding = None;
    group.issuers.insert(0, first);
    let responder = bed.respond();
    for _ in 0..3 {
        let acme = Acme::start(settings.clone()).expect("the thread starts");
        until("the first issuer fails", || {
            acme.certificates().counts().failures().any(|(_, n)| n > 0)
        });
        drop(acme);
        bed.edit_ledger(&settings, |ledger| {
            ledger["names"]["a.example"]["backoff"]["delay_seconds"] = 0.into();
            ledger["issuers"]["https://127.0.0.1:1/dir"]["backoff"]["delay_seconds"] = 0.into();
        });
    }
    let acme = Acme::start(settings).expect("the thread starts");
    responder.answer_for(&acme);
    bed.wait_for(&acme, 1);
    bed.assert_issued(&acme, "a.example");
}

/// Another process with the same folder orders no certificate, and serves those of the holder of the lease. After the
/// holder has ended, it takes over.
#[test]
fn two_processes_never_order_at_once() {
    let Some(bed) = Bed::start(&[]) else {
        return;
    };
    let settings = bed.settings(&["a.example"], Kind::Http);
    let responder = bed.respond();
    let first = Acme::start(settings.clone()).expect("the thread starts");
    responder.answer_for(&first);
    until("the lease is taken", || {
        first.certificates().counts().has_lease()
    });
    let second = Acme::start(settings).expect("the thread starts");
    bed.wait_for(&first, 1);
    let of = |acme: &Acme| {
        acme.certificates()
            .default_key(Some("a.example"))
            .expect("a certificate")
            .cert
            .clone()
    };
    until("the certificate is loaded", || of(&second) == of(&first));
    assert!(!second.certificates().counts().has_lease());
    assert_eq!(second.certificates().counts().orders(), 0);
    drop(first);
    until("the lease is taken over", || {
        second.certificates().counts().has_lease()
    });
    assert_eq!(second.certificates().counts().orders(), 0);
}

/// A window in the past renews a certificate at once, if the issuer has stated it and the least interval is over.
#[test]
fn a_certificate_is_renewed_when_its_issuer_says_so() {
    let Some(bed) = Bed::start(&[]) else {
        return;
    };
    let settings = bed.settings(&["a.example"], Kind::Http);
    let responder = bed.respond();
    let acme = Acme::start(settings.clone()).expect("the thread starts");
    responder.answer_for(&acme);
    bed.wait_for(&acme, 1);
    let old = bed.assert_issued(&acme, "a.example");
    until("the window is persisted", || {
        bed.ledger(&settings)["names"]["a.example"]["certificate"]["window"].is_object()
    });
    drop(acme);
    for (start, end, end_at, renews) in [
        (
            "2000-01-02T00:00:00Z",
            "2000-01-01T00:00:00Z",
            946_684_800_u64,
            false,
        ), // its length is negative
        (
            "2090-01-01T00:00:00Z",
            "2090-01-02T00:00:00Z",
            3_786_998_400,
            false,
        ),
        (
            "2000-01-01T00:00:00Z",
            "2000-01-02T00:00:00Z",
            946_771_200,
            true,
        ),
    ] {
        let response =
            format!("{{\"suggestedWindow\":{{\"start\":\"{start}\",\"end\":\"{end}\"}}}}");
        let pem =
            fs::read_to_string(settings.folder.join("certificates/a.example.pem")).expect("stored");
        bed.set_window(
            &pem[pem.find("-----BEGIN CERTIFICATE").expect("a certificate")..],
            &response,
        );
        // The certificate is old enough, and its window is queried.
        bed.edit_ledger(&settings, |ledger| {
            let certificate = &mut ledger["names"]["a.example"]["certificate"];
            certificate["stored_at"] = 0.into();
            certificate["window_query_at"] = 0.into();
        });
        let acme = Acme::start(settings.clone()).expect("the thread starts");
        responder.answer_for(&acme);
        until("the window is queried", || {
            bed.ledger(&settings)["names"]["a.example"]["certificate"]["window_query_at"] != 0
                && !acme.certificates().facts().is_empty()
        });
        if renews {
            bed.wait_for(&acme, 1);
            assert_ne!(bed.assert_issued(&acme, "a.example").cert, old.cert);
        } else {
            until("the window is persisted", || {
                let window = &bed.ledger(&settings)["names"]["a.example"]["certificate"]["window"];
                window["end_at"] == end_at
            });
            assert_eq!(acme.certificates().counts().orders(), 0);
        }
    }
}
