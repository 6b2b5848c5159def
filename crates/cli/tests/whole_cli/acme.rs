//! Certificates that renew themselves, with Pebble as their authority.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use edgeward_testkit::pebble::{Pebble, PebbleOptions};
use edgeward_testkit::programs::free_port;
use edgeward_testkit::{Answer, ScriptedOrigin};
use serde_json::Value;

use super::run::{edgeward, output, text, until};
use super::upgrade::UpgradableEdge;

/// An edge whose certificates come from Pebble.
struct Bed {
    pebble: Pebble,
    edge: UpgradableEdge,
    folder: tempfile::TempDir,
    tls_port: u16,
    origin: ScriptedOrigin,
}

impl Bed {
    /// Starts an edge with `names` in `[[acme]]` and `more` at the end of its file.
    fn start(challenge: &str, names: &str, more: &str) -> Option<Self> {
        let origin = ScriptedOrigin::start();
        Self::start_before(origin, challenge, &format!("names = [{names}]"), more)
    }

    /// Starts an edge before this origin, with the lines `names` in `[[acme]]`.
    fn start_before(
        origin: ScriptedOrigin,
        challenge: &str,
        names: &str,
        more: &str,
    ) -> Option<Self> {
        let (http_port, tls_port) = (free_port(), free_port());
        let pebble = Pebble::start(&PebbleOptions {
            http_port,
            tls_port,
            variables: Vec::new(),
            requires_binding: false,
        })?;
        let folder = tempfile::tempdir().expect("a folder");
        origin.on(
            "/",
            Answer::ok("hello").header("cache-control", "max-age=60"),
        );
        let file = format!(
            "[[listener]]\naddress = \"127.0.0.1:{http_port}\"\n\
             [[listener]]\naddress = \"127.0.0.1:{tls_port}\"\nacme = true\n\
             [[acme]]\n{names}\nchallenge = \"{challenge}\"\n\
             contact = [\"mailto:admin@a.example\"]\ndirectory = \"{}\"\nca = \"{}\"\nstate = \"{}\"\n{more}",
            pebble.directory(),
            pebble.roots().display(),
            folder.path().join("state").display(),
        );
        let edge = UpgradableEdge::start_with(&origin.url(""), &file, |command| {
            command.env(
                "EDGEWARD_LOG",
                "info,edgeward_acme_client=trace,instant_acme=trace",
            );
        });
        Some(Self {
            pebble,
            edge,
            folder,
            tls_port,
            origin,
        })
    }

    fn wait_for_certificates(&self, count: f64) {
        until("the certificates are issued", || {
            let metric = self.edge.metric("edgeward_acme_certificates_total");
            (metric >= count).then_some(())
        });
    }

    /// Requests `https://NAME/` and verifies the certificate. Returns the body and the certificates.
    fn get(&self, name: &str) -> String {
        let output = self.try_get(name);
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    }

    fn try_get(&self, name: &str) -> Output {
        let root = self.pebble.write_issuer_root(self.folder.path());
        let port = self.tls_port;
        Command::new("curl")
            .args(["-sS", "--cacert"])
            .arg(root)
            .args([
                "--resolve",
                &format!("{name}:{port}:127.0.0.1"),
                "-w",
                "\n%{certs}",
            ])
            .arg(format!("https://{name}:{port}/"))
            .output()
            .expect("curl is installed")
    }

    fn config(&self) -> String {
        self.edge.path("edge.toml").display().to_string()
    }

    /// The lines of all private keys in the folder of the state.
    fn secrets(&self) -> Vec<String> {
        let files = files_below(&self.folder.path().join("state"));
        let texts = files
            .iter()
            .map(|file| fs::read_to_string(file).expect("UTF-8"));
        let mut secrets = Vec::new();
        for text in texts {
            if let Ok(account) = serde_json::from_str::<Value>(&text)
                && let Some(key) = account["credentials"]["key_pkcs8"].as_str()
            {
                secrets.push(key.to_owned());
            }
            let mut lines = text
                .lines()
                .skip_while(|line| !line.contains("PRIVATE KEY"));
            lines.next();
            secrets.extend(
                lines
                    .take_while(|line| !line.contains("PRIVATE KEY"))
                    .map(str::to_owned),
            );
        }
        secrets
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("readable").path();
        match path.is_dir() {
            true => files.extend(files_below(&path)),
            false => files.push(path),
        }
    }
    files
}

/// The rules of the site redirect and deny every request without TLS, and those of HTTP-01 are answered nevertheless. A
/// renewed certificate is used without a reload, a new process continues with the state, and no key is in the log.
#[test]
fn certificates_are_obtained_renewed_and_kept_over_an_upgrade() {
    let rules = "[[site]]\nhosts = [\"*\"]\n\
                 [[site.rule]]\nscheme = \"http\"\npath = \"/.well-known/*\"\ndeny = 403\n\
                 [[site.rule]]\nscheme = \"http\"\nredirect = \"https://${host}${uri}\"\n";
    let Some(mut bed) = Bed::start("http-01", "\"a.example\", \"127.0.0.1\"", rules) else {
        return;
    };
    bed.wait_for_certificates(2.0);
    let first = bed.get("a.example");
    assert!(first.starts_with("hello\n"), "{first}");
    assert!(bed.get("127.0.0.1").starts_with("hello\n"));
    let page = super::run::get(bed.edge.admin, "/metrics");
    let expiry = "edgeward_acme_certificate_expiry_timestamp_seconds{name=\"a.example\"}";
    assert!(page.contains(expiry), "{page}");
    let end = bed
        .edge
        .metric("edgeward_certificate_expiry_timestamp_seconds");
    assert!(end > 1e9, "{end}");
    let status = super::run::status(bed.edge.admin);
    assert_eq!(
        status["acme"]["certificates"][0]["name"], "a.example",
        "{}",
        status["acme"]
    );

    let config = bed.config();
    let renewed = output(&["acme", "renew", "--config", &config, "a.example"]);
    assert_eq!(renewed.status.code(), Some(0), "{renewed:?}");
    bed.wait_for_certificates(3.0);
    let second = bed.get("a.example");
    assert_ne!(second, first);
    assert_eq!(
        bed.edge
            .metric("edgeward_reloads_total{result=\"applied\"}"),
        0.0
    );
    let listed = output(&["acme", "status", "--config", &config, "--json"]);
    assert_eq!(listed.status.code(), Some(0), "{listed:?}");
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    assert_eq!(listed[0]["name"], "a.example");
    assert_eq!(listed[0]["failures"], 0);

    bed.edge.upgrade();
    assert_eq!(bed.get("a.example"), second);
    until(
        "the new process has the lease, and it orders nothing",
        || {
            // The old process may answer, too.
            let page = super::run::get(bed.edge.admin, "/metrics");
            let metric = |name| edgeward_testkit::client::metric(&page, name);
            let is_new = metric("edgeward_acme_lease") == 1.0;
            (is_new && metric("edgeward_acme_orders_total") == 0.0).then_some(())
        },
    );

    let secrets = bed.secrets();
    // The key of the account, and three lines of each of the two certificates' keys.
    assert_eq!(secrets.len(), 7);
    let log = bed.edge.end();
    assert!(log.contains("a certificate was issued"), "{log}");
    for secret in secrets {
        assert!(!log.contains(&secret), "a key is in the log");
    }
}

#[test]
fn certificates_are_obtained_by_handshakes_with_the_listener() {
    let Some(bed) = Bed::start("tls-alpn-01", "\"a.example\"", "") else {
        return;
    };
    bed.wait_for_certificates(1.0);
    assert!(bed.get("a.example").starts_with("hello\n"));
}

/// The first handshake for a name waits for its certificate, and other ones do not. The name survives an upgrade
/// without a query, and the limit of new names is reached.
#[test]
fn a_certificate_is_ordered_when_a_client_first_asks_for_its_name() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let origin = ScriptedOrigin::start();
        origin.on_call("/ask", |request| {
            let names = ["a.example", "b.example", "c.example"];
            let mut targets = names.map(|name| format!("/ask?domain={name}")).into_iter();
            Answer::status(match targets.any(|target| target == request.target()) {
                true => 200,
                false => 404,
            })
        });
        let names = format!(
            "on_demand = \"{}\"\non_demand_names_per_hour = 2\non_demand_timeout = \"2min\"",
            origin.url("/ask")
        );
        let Some(mut bed) = Bed::start_before(origin, challenge, &names, "") else {
            return;
        };
        let has_lease = |bed: &Bed| (bed.edge.metric("edgeward_acme_lease") == 1.0).then_some(());
        until("the process orders", || has_lease(&bed));
        let first = bed.get("a.example");
        assert!(first.starts_with("hello\n"), "{first}");
        assert_eq!(bed.get("a.example"), first);
        assert_eq!(bed.origin.requests("/ask"), 1);
        let refused = bed.try_get("stranger.example");
        assert_eq!(refused.status.code(), Some(35), "{refused:?}");
        assert!(bed.get("b.example").starts_with("hello\n"));
        assert_eq!(bed.try_get("c.example").status.code(), Some(35));
        for (result, expected) in [("issued", 2.0), ("refused", 1.0), ("rate-limit", 1.0)] {
            let metric = format!("edgeward_acme_on_demand_total{{result=\"{result}\"}}");
            until("the results are counted", || {
                (bed.edge.metric(&metric) >= expected).then_some(())
            });
            assert_eq!(bed.edge.metric(&metric), expected, "{result}");
        }
        until("both names are known", || {
            (bed.edge.metric("edgeward_acme_on_demand_names") == 2.0).then_some(())
        });
        let config = bed.config();
        let listed = until("the state is written", || {
            let listed = output(&["acme", "status", "--config", &config]);
            (listed.status.code() == Some(0)).then_some(listed)
        });
        assert!(text(&listed.stdout).contains("a.example"), "{listed:?}");

        let asked = bed.origin.requests("/ask");
        bed.edge.upgrade();
        assert_eq!(bed.get("a.example"), first);
        assert_eq!(bed.origin.requests("/ask"), asked);
        until("the new process orders", || has_lease(&bed));
        let renewed = output(&["acme", "renew", "--config", &config, "a.example"]);
        assert_eq!(renewed.status.code(), Some(0), "{renewed:?}");
        until("the new certificate is served", || {
            (bed.get("a.example") != first).then_some(())
        });
        assert_eq!(bed.origin.requests("/ask"), asked + 1);
        bed.edge.end();
    }
}

/// A reload adds a name, and the listener then has its certificate too.
#[test]
fn a_reload_adds_and_removes_names() {
    let Some(bed) = Bed::start("http-01", "\"a.example\"", "") else {
        return;
    };
    bed.wait_for_certificates(1.0);
    let file = bed.edge.path("edge.toml");
    let before = fs::read_to_string(&file).expect("readable");
    fs::write(
        &file,
        before.replace("[\"a.example\"]", "[\"a.example\", \"b.example\"]"),
    )
    .expect("written");
    let reloaded = bed.edge.command(&["reload"]);
    assert_eq!(reloaded.status.code(), Some(0), "{reloaded:?}");
    bed.wait_for_certificates(2.0);
    assert!(bed.get("b.example").starts_with("hello\n"));
}

#[test]
fn an_incomplete_group_of_names_lists_its_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("edge.toml");
    let config = "[[listener]]\naddress = \"127.0.0.1:0\"\nacme = true\n\
                  [origin]\nurl = \"http://127.0.0.1:9\"\n[hot]\ncapacity = \"32MiB\"\n";
    let check_with = |config: &str, acme: &str| {
        fs::write(&file, format!("{config}{acme}")).expect("written");
        let mut command = edgeward(&["check-config"]);
        let checked = command.arg(&file).output().expect("the binary runs");
        assert_eq!(checked.status.code(), Some(1), "{acme}: {checked:?}");
        text(&checked.stdout) + &text(&checked.stderr)
    };
    let check = |acme: &str| check_with(config, acme);
    let without = config.replace("acme = true\n", "");
    let printed = check_with(&without, "[[acme]]\non_demand = \"http://a/\"\n");
    assert!(printed.contains("no listener has acme = true"), "{printed}");
    for (acme, error) in [
        ("", "no [[acme]] has certificates for it"),
        ("[[acme]]\nprofile = \"p\"\n", "this [[acme]] has no names"),
        (
            "[[acme]]\nnames = [\"*.a.example\"]\n",
            "only dns-01 validates the wildcard *.a.example",
        ),
        (
            "[[acme]]\nnames = [\"a.example\"]\nchallenge = \"dns-01\"\n",
            "needs a program that sets records",
        ),
        (
            "[[acme]]\nnames = [\"a_b.example\"]\n",
            "has a character other than",
        ),
        (
            "[[acme]]\nnames = [\"a.example\"]\ndirectory = \"http://ca\"\n",
            "is not an https URL",
        ),
        (
            "[[acme]]\nnames = [\"a.example\"]\neab_key_id = \"k\"\n",
            "only one of acme.eab_key_id",
        ),
        (
            "[[acme]]\nnames = [\"a.example\"]\nfallback_eab_key_file = \"/dev/null\"\n",
            "only one of acme.fallback_eab_key_id",
        ),
        (
            "[[acme]]\nnames = [\"a.example\"]\nfallback_eab_key_id = \"k\"\n",
            "is set without acme.fallback_directory",
        ),
        (
            "[[acme]]\nnames = [\"a.example\"]\n[[acme]]\nnames = [\"a.example\"]\nstate = \"/var/lib/other\"\n",
            "the name a.example is in two [[acme]]",
        ),
        (
            "[[acme]]\non_demand = \"http://u:p@a/\"\n",
            "has a user, which would not be sent",
        ),
        (
            "[[acme]]\non_demand = \"ftp://a/\"\n",
            "is not an http or https URL",
        ),
        (
            "[[acme]]\non_demand = \"http://a/\"\n[[acme]]\non_demand = \"http://a/\"\n",
            "two [[acme]] have on_demand",
        ),
        (
            "[[acme]]\nnames = [\"a.example\"]\non_demand_names_max = 5\n",
            "acme.on_demand_names_max is set without acme.on_demand",
        ),
        (
            "[[acme]]\nnames = [\"a.example\"]\n[[acme]]\nnames = [\"b.example\"]\norders_per_hour = 5\n",
            "two [[acme]] have different limits of orders",
        ),
    ] {
        let printed = check(acme);
        assert!(printed.contains(error), "{acme}: {printed}");
    }
}

/// The folder of certbot, as its packages make it.
#[test]
fn certificates_of_certbot_are_imported_and_used_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let live = folder.path().join("letsencrypt/live/a.example");
    fs::create_dir_all(&live).expect("made");
    let certified =
        rcgen::generate_simple_self_signed(["a.example".to_owned()]).expect("a certificate");
    fs::write(live.join("fullchain.pem"), certified.cert.pem()).expect("written");
    fs::write(
        live.join("privkey.pem"),
        certified.signing_key.serialize_pem(),
    )
    .expect("written");
    let file = folder.path().join("edge.toml");
    let config = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\nacme = true\n\
         [origin]\nurl = \"http://127.0.0.1:9\"\n[hot]\ncapacity = \"32MiB\"\n\
         [[acme]]\nnames = [\"a.example\"]\ndirectory = \"https://127.0.0.1:9/dir\"\nstate = \"{}\"\n",
        folder.path().join("state").display()
    );
    fs::write(&file, config).expect("written");
    let config = file.display().to_string();
    let certbot = folder.path().join("letsencrypt").display().to_string();
    let imported = output(&["acme", "import", "--config", &config, &certbot]);
    assert_eq!(imported.status.code(), Some(0), "{imported:?}");
    assert_eq!(
        text(&imported.stdout),
        "a.example: imported from live/a.example\n"
    );
    // The issuer cannot be reached, but the edge starts with the imported certificate.
    let server = super::run::Server::start(&["serve", "--json", "--config", &config]);
    let addr = server.addr("/listening/0");
    let got = Command::new("curl")
        .args(["-sS", "--cacert"])
        .arg(live.join("fullchain.pem"))
        .args([
            "--resolve",
            &format!("a.example:{}:127.0.0.1", addr.port()),
            "-o",
            "/dev/null",
        ])
        .args([
            "-w",
            "%{http_code}",
            &format!("https://a.example:{}/", addr.port()),
        ])
        .output()
        .expect("curl is installed");
    assert_eq!(text(&got.stdout), "502", "{got:?}");
}

/// The file on stdout is the one that `--out` writes, and `check-config` accepts it.
#[test]
fn init_writes_to_stdout() {
    let folder = tempfile::tempdir().expect("a folder");
    let init = |out: &str| {
        let mut command = edgeward(&["init", "http://10.0.0.7", "--hot", "64MiB", "--disk", "0"]);
        command.args(["--name", "a.example", "--listen-https", "127.0.0.1:8443"]);
        command.args(["--out", out]).current_dir(folder.path());
        command.output().expect("the binary runs")
    };
    let on_stdout = init("-");
    assert_eq!(on_stdout.status.code(), Some(0), "{on_stdout:?}");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    let written = init("edgeward.toml");
    assert_eq!(written.status.code(), Some(0), "{written:?}");
    assert!(text(&written.stdout).contains("curl -i https://a.example:8443/"));
    let file = fs::read_to_string(folder.path().join("edgeward.toml")).expect("written");
    // A text for stdout has the places of the packages, whose folders are absent here.
    let printed = text(&on_stdout.stdout);
    for place in [
        "\"unix:/run/edgeward/admin.sock\"",
        "\"/var/lib/edgeward/acme\"",
    ] {
        assert!(printed.contains(place), "{printed}");
    }
    assert_eq!(printed.lines().count(), file.lines().count());
    let both = edgeward(&["init", "--out", "-", "--json"]).output();
    assert_eq!(both.expect("the binary runs").status.code(), Some(2));
    let wrong = edgeward(&["init", "ftp://a", "--out", "-"]).output();
    assert_eq!(wrong.expect("the binary runs").status.code(), Some(2));
}

#[test]
fn without_a_configuration_the_command_names_the_flag() {
    // On a machine with the package, the command reads its file.
    if Path::new("/etc/edgeward/edgeward.toml").exists() {
        return;
    }
    let listed = output(&["acme", "status"]);
    assert_eq!(listed.status.code(), Some(2), "{listed:?}");
    assert!(text(&listed.stderr).contains("--config FILE"), "{listed:?}");
}
