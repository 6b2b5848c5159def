//! `edgeward shadow` beside nginx and Varnish: planted differences, none without a difference, rotation, restarts.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use edgeward_testkit::client::Client;
use edgeward_testkit::programs::{ServerProcess, find, free_port};
use edgeward_testkit::{Answer, RecordedRequest, ScriptedOrigin};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::run::{Server, edgeward, output, text, until, wait};

/// A shadow that runs until a signal. Dropping it kills the process.
struct Shadow(Child);

impl Shadow {
    fn start(args: &[&str]) -> Self {
        let args = [&["shadow", "--json", "--connections", "1"], args].concat();
        let mut command = edgeward(&args);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().expect("the binary starts"))
    }

    /// Ends the shadow by a signal. Returns its exit code and the JSON.
    fn stop(mut self) -> (Option<i32>, Value) {
        kill_process(Pid::from_child(&self.0), Signal::INT).expect("the process runs");
        let mut printed = String::new();
        let stdout = self.0.stdout.as_mut().expect("stdout is piped");
        stdout.read_to_string(&mut printed).expect("UTF-8");
        let status = wait(&mut self.0);
        let json = serde_json::from_str(&printed);
        (status.code(), json.expect("the output is JSON"))
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Runs a shadow over a whole log. Returns its exit code and the JSON.
fn over_log(log: &Path, args: &[&str]) -> (Option<i32>, Value) {
    let log = log.display().to_string();
    let fixed = ["shadow", &log, "--json", "--from-start", "--until-end"];
    let done = output(&[&fixed, args].concat());
    let json = serde_json::from_slice(&done.stdout);
    let json = json.unwrap_or_else(|_| panic!("no JSON: {}", text(&done.stderr)));
    (done.status.code(), json)
}

/// Returns the causes of all groups with their details.
fn causes(report: &Value) -> BTreeSet<String> {
    let groups = report["groups"].as_array().expect("a list");
    let cause = |group: &Value| {
        let text = |key: &str| group[key].as_str().expect("a text").to_owned();
        match &text("cause")[..] {
            "variant" => format!("variant {}", text("detail")),
            cause => cause.to_owned(),
        }
    };
    groups.iter().map(cause).collect()
}

/// Returns a set of causes.
fn set(causes: &[&str]) -> BTreeSet<String> {
    causes.iter().map(|cause| (*cause).to_owned()).collect()
}

/// The origin of both caches: its answers are the same for both.
fn origin() -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|request: &RecordedRequest| {
        let language = request.header("x-lang").unwrap_or("none");
        let answer = match request.path() {
            "/lang" => Answer::ok(format!("in {language}")),
            "/moved" => Answer::status(301).header("Location", "/new"),
            path => Answer::ok(format!("the body of {path}")),
        };
        let answer = answer.header("Content-Type", "text/html");
        answer.header("Cache-Control", "max-age=3600")
    });
    origin
}

/// Returns the configuration of an nginx with a cache. `rules` has further locations.
fn nginx(
    folder: &Path,
    addr: SocketAddr,
    origin: SocketAddr,
    mirror: u16,
    rules: &[(&str, &str)],
) -> String {
    let here = folder.display();
    let cached = format!(
        "mirror /mirror; proxy_pass http://{origin}; proxy_set_header Host $host; proxy_cache c;\n\
         proxy_cache_key $host$request_uri; add_header X-Cache-Status $upstream_cache_status;"
    );
    let locations: String = rules
        .iter()
        .map(|(path, rule)| match rule.contains("proxy_cache_key") {
            true => format!(
                "location = {path} {{ {} {rule} }}\n",
                cached.replace("proxy_cache_key $host$request_uri;", "")
            ),
            false => format!("location = {path} {{ {cached} {rule} }}\n"),
        })
        .collect();
    format!(
        "log_format cached '$remote_addr - $remote_user [$time_local] \"$request\" $status \
         $body_bytes_sent \"-\" \"$http_user_agent\" $upstream_cache_status';\n\
         access_log {here}/access.log cached;\n\
         proxy_cache_path {here}/cache keys_zone=c:1m;\n\
         absolute_redirect off;\n\
         server {{ listen {addr};\n\
         location / {{ {cached} }}\n{locations}\
         location = /mirror {{ internal; access_log off; proxy_pass http://127.0.0.1:{mirror}$request_uri;\n\
         proxy_set_header Host $host; proxy_pass_request_body off; proxy_set_header Content-Length \"\"; }}\n\
         }}\n"
    )
}

/// Starts an edge. Returns it and its URL.
fn edge(origin: &ScriptedOrigin) -> (Server, String) {
    let url = origin.url("");
    let edge = Server::start(&[
        "serve",
        "--json",
        "--listen",
        "127.0.0.1:0",
        "--origin",
        &url,
    ]);
    let url = format!("http://{}", edge.addr("/listening/0"));
    (edge, url)
}

fn get(addr: SocketAddr, path: &str, fields: &[(&str, &str)]) -> edgeward_testkit::client::Answer {
    let mut client = Client::connect(addr);
    let fields = [&[("Host", "a.example"), ("Connection", "close")], fields].concat();
    client.request("GET", path, &fields, b"")
}

/// Sends what visitors of a site send.
fn visit(addr: SocketAddr) {
    for _ in 0..3 {
        get(addr, "/", &[]);
        for language in ["de", "en"] {
            get(addr, "/lang", &[("X-Lang", language)]);
        }
        get(addr, "/vary", &[]);
        get(addr, "/moved", &[]);
        get(addr, "/session", &[]);
        get(addr, "/session", &[("Cookie", "session=1")]);
    }
    // The response expires after a second.
    let mut was_hit = false;
    until("nginx fetches a response again that it has served", || {
        let answer = get(addr, "/ttl", &[]);
        was_hit |= answer.field("x-cache-status") == "HIT";
        (was_hit && answer.field("x-cache-status") == "EXPIRED").then_some(())
    });
}

#[test]
fn five_planted_differences_are_found_beside_nginx() {
    let (of_nginx, of_edge) = (origin(), origin());
    let mirror = free_port();
    let rules = [
        (
            "/ttl",
            "proxy_ignore_headers Cache-Control; proxy_cache_valid 1s;",
        ),
        ("/vary", "add_header Vary X-Any;"),
        ("/lang", "proxy_cache_key $host$request_uri$http_x_lang;"),
        ("/moved", "proxy_redirect /new /other;"),
        (
            "/session",
            "proxy_cache_bypass $cookie_session; proxy_no_cache $cookie_session;",
        ),
    ];
    let Some(nginx) =
        ServerProcess::nginx(|folder, addr| nginx(folder, addr, of_nginx.addr(), mirror, &rules))
    else {
        return;
    };
    let (_edge, url) = edge(&of_edge);
    let incumbent = format!("http://{}", nginx.addr());
    let both = [
        "--edge",
        &url,
        "--incumbent",
        &incumbent,
        "--incumbent-rate",
        "none",
    ];
    let free = ["--origin-budget", "none", "--with-credentials"];
    let mirror = format!("127.0.0.1:{mirror}");
    let log = nginx.folder().join("access.log").display().to_string();
    let args = [
        &both[..],
        &free,
        &[&log, "--mirror", &mirror, "--host", "a.example"],
    ]
    .concat();
    let shadow = Shadow::start(&args);
    let mirror: SocketAddr = mirror.parse().expect("an address");
    until("the shadow listens", || {
        std::net::TcpStream::connect(mirror).is_ok().then_some(())
    });
    visit(nginx.addr());
    // One connection sends the requests in their order, so the answers to those before the last one are complete.
    get(nginx.addr(), "/last", &[]);
    of_edge.wait_until("the last request arrives", |origin| {
        origin.requests("/last") == 1
    });
    // nginx writes a line after the response.
    until("each request has a line", || {
        let text = fs::read_to_string(&log).expect("read");
        (text.contains(" EXPIRED") && text.contains(" /last ")).then_some(())
    });
    let (code, report) = shadow.stop();
    let expected = ["variant x-lang", "vary", "redirect", "cookie", "lifetime"];
    assert_eq!(
        (code, causes(&report)),
        (Some(1), set(&expected)),
        "{report:#}"
    );
    let groups = report["groups"].as_array().expect("a list");
    let example = |cause: &str| {
        let group = groups.iter().find(|group| group["cause"] == cause);
        let group = group.expect("the group exists");
        ["url", "incumbent", "edge"].map(|key| group[key].as_str().expect("a text"))
    };
    assert_eq!(example("vary"), ["a.example/vary", "X-Any", "absent"]);
    assert_eq!(example("redirect"), ["a.example/moved", "/other", "/new"]);
    assert_eq!(example("lifetime")[0], "a.example/ttl");
    assert_eq!(example("cookie")[0], "a.example/session");
    // The log has the hits of the clients.
    assert!(
        report["hits"]["incumbent_ratio"].as_f64() > Some(0.5),
        "{report:#}"
    );
}

#[test]
fn equal_configurations_have_no_difference_beside_nginx() {
    let (of_nginx, of_edge) = (origin(), origin());
    let mirror = free_port();
    let rules = [("/lang", "proxy_cache_key $host$request_uri;")];
    let Some(nginx) =
        ServerProcess::nginx(|folder, addr| nginx(folder, addr, of_nginx.addr(), mirror, &rules))
    else {
        return;
    };
    let (_edge, url) = edge(&of_edge);
    let incumbent = format!("http://{}", nginx.addr());
    for _ in 0..4 {
        for path in ["/", "/vary", "/moved", "/session", "/a.png"] {
            get(nginx.addr(), path, &[]);
        }
    }
    let log = nginx.folder().join("access.log");
    let lines = || fs::read_to_string(&log).expect("read").lines().count();
    // nginx writes a line after the response.
    until("each request has a line", || (lines() == 20).then_some(()));
    let (code, report) = over_log(
        &log,
        &[
            "--edge",
            &url,
            "--incumbent",
            &incumbent,
            "--host",
            "a.example",
        ],
    );
    assert_eq!((code, causes(&report)), (Some(0), set(&[])), "{report:#}");
    assert_eq!(report["requests"], 20, "{report:#}");
    assert_eq!(report["compared_bodies"], 20, "{report:#}");
    let hit_ratio = 0.75;
    assert_eq!(report["hits"]["incumbent_ratio"], hit_ratio, "{report:#}");
    assert_eq!(report["hits"]["edge_ratio"], hit_ratio, "{report:#}");
    // The requests of the shadow are lines of the log, too, and are not sent again.
    until("each request has a line", || (lines() == 40).then_some(()));
}

/// A log as nginx writes it.
struct Log {
    folder: tempfile::TempDir,
    file: File,
}

impl Log {
    fn create() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = Self::open(folder.path());
        Self { folder, file }
    }

    fn open(folder: &Path) -> File {
        let mut options = File::options();
        let options = options.append(true).create_new(true);
        options.open(folder.join("access.log")).expect("created")
    }

    fn path(&self) -> String {
        self.folder.path().join("access.log").display().to_string()
    }

    fn rotate(&mut self) {
        fs::rename(self.path(), self.folder.path().join("access.log.1")).expect("renamed");
        self.file = Self::open(self.folder.path());
    }

    fn request(&mut self, method: &str, path: &str) {
        let line = format!(
            "192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"{method} {path} HTTP/1.1\" 200 5 \"-\" \"-\" HIT\n"
        );
        self.file.write_all(line.as_bytes()).expect("written");
    }
}

/// The edge is killed and started again, and the log is rotated. Neither is a difference.
#[test]
fn a_restart_of_the_edge_and_a_rotation_of_the_log_are_survived() {
    let (incumbent, of_edge) = (origin(), origin());
    let mut log = Log::create();
    let listen = format!("127.0.0.1:{}", free_port());
    let origin_url = of_edge.url("");
    let serve = [
        "serve",
        "--json",
        "--listen",
        &listen,
        "--origin",
        &origin_url,
    ];
    let edge = Server::start(&serve);
    let url = format!("http://{listen}");
    let incumbent_url = incumbent.url("");
    let position = log.folder.path().join("position").display().to_string();
    let path = log.path();
    let args = [
        &path,
        "--edge",
        &url,
        "--incumbent",
        &incumbent_url,
        "--incumbent-rate",
        "none",
        "--position",
        &position,
        "--from-start",
    ];
    // A line tells the format of the log.
    log.request("POST", "/form");
    let shadow = Shadow::start(&args);
    let arrives = |path: &str| {
        incumbent.wait_until("the request arrives", |origin| origin.requests(path) == 1);
    };
    log.request("GET", "/a");
    arrives("/a");
    log.request("GET", "/b");
    arrives("/b");
    drop(edge);
    log.request("GET", "/c");
    log.request("GET", "/d");
    // The failure of the first one is counted when the second one is sent.
    arrives("/d");
    let edge = Server::start(&serve);
    log.request("GET", "/e");
    log.rotate();
    log.request("GET", "/f");
    arrives("/f");
    log.request("GET", "/g");
    arrives("/g");
    let (code, report) = shadow.stop();
    drop(edge);
    assert_eq!((code, causes(&report)), (Some(0), set(&[])), "{report:#}");
    assert_eq!(report["errors"][0]["side"], "edge", "{report:#}");
    assert_eq!(report["errors"][0]["kind"], "connect", "{report:#}");
    assert_eq!(report["edge_restarts"], 1, "{report:#}");
    assert_eq!(report["skipped"]["method"], 1, "{report:#}");
    assert_eq!(report["log"]["rotations"], 1, "{report:#}");
    // A later process continues after the last line.
    log.request("GET", "/h");
    let before = incumbent.requests_total();
    let (_edge, url) = self::edge(&of_edge);
    let (code, report) = over_log(
        Path::new(&path),
        &[
            "--edge",
            &url,
            "--incumbent",
            &incumbent_url,
            "--position",
            &position,
        ],
    );
    assert_eq!(
        (code, &report["requests"]),
        (Some(0), &1.into()),
        "{report:#}"
    );
    assert_eq!(incumbent.requests_total(), before + 1);
}

/// Without an answer there is no verdict.
#[test]
fn a_comparison_without_an_answer_could_not_run() {
    let mut log = Log::create();
    log.request("GET", "/a");
    let url = format!("http://{}", ScriptedOrigin::unused_addr());
    let (code, report) = over_log(Path::new(&log.path()), &["--edge", &url]);
    assert_eq!(
        (code, &report["compared"]),
        (Some(2), &0.into()),
        "{report:#}"
    );
    assert_eq!(report["errors"][0]["count"], 1, "{report:#}");
    let neither = output(&["shadow", "--edge", &url]);
    assert_eq!(neither.status.code(), Some(2));
    fs::write(log.folder.path().join("text"), "no log at all\n").expect("written");
    let text_file = log.folder.path().join("text").display().to_string();
    let unknown = output(&["shadow", &text_file, "--edge", &url]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        text(&unknown.stderr).contains("--format"),
        "{}",
        text(&unknown.stderr)
    );
}

/// Varnish with two planted differences. The log comes from varnishncsa through a pipe.
#[test]
fn planted_differences_are_found_beside_varnish() {
    let (Some(varnishd), Some(varnishncsa)) = (find("varnishd"), find("varnishncsa")) else {
        eprintln!("skipped: Varnish is not installed");
        return;
    };
    let (of_varnish, of_edge) = (origin(), origin());
    let vcl = format!(
        "vcl 4.1;\nbackend default {{ .host = \"127.0.0.1\"; .port = \"{}\"; }}\n\
         sub vcl_recv {{ if (req.url == \"/session\" && req.http.Cookie) {{ return (pass); }}\n\
         unset req.http.Cookie; return (hash); }}\n\
         sub vcl_backend_response {{ if (bereq.url == \"/moved\") {{ set beresp.http.Location = \"/other\"; }} }}\n\
         sub vcl_deliver {{ if (req.url == \"/vary\") {{ set resp.http.Vary = \"X-Any\"; }} }}\n",
        of_varnish.addr().port()
    );
    let varnish = ServerProcess::start(&varnishd, |folder, addr| {
        let file = folder.join("default.vcl");
        fs::write(&file, &vcl).expect("written");
        let mut command = Command::new(&varnishd);
        command.arg("-F").arg("-f").arg(file);
        command.args(["-a", &addr.to_string(), "-s", "malloc,16m", "-j", "none"]);
        command.arg("-n").arg(folder.join("work"));
        command
    });
    let Some(varnish) = varnish else { return };
    for _ in 0..3 {
        for path in ["/", "/vary", "/moved"] {
            get(varnish.addr(), path, &[]);
        }
    }
    let format =
        "%h %l %u %t \"%r\" %s %b \"-\" \"%{User-agent}i\" %{Host}i %{Varnish:hitmiss}x %D";
    let work = varnish.folder().join("work").display().to_string();
    let log = varnish.folder().join("ncsa.log");
    // Varnish writes a record after the response.
    until("each request has a line", || {
        let done = Command::new(&varnishncsa)
            .args(["-d", "-n", &work, "-F", format])
            .output()
            .expect("varnishncsa runs");
        fs::write(&log, &done.stdout).expect("written");
        (text(&done.stdout).matches(" a.example ").count() == 9).then_some(())
    });
    let (_edge, url) = edge(&of_edge);
    let incumbent = format!("http://{}", varnish.addr());
    let mut shadow = edgeward(&[
        "shadow",
        "-",
        "--edge",
        &url,
        "--incumbent",
        &incumbent,
        "--format",
        format,
        "--json",
    ]);
    let done = shadow
        .stdin(File::open(&log).expect("opened"))
        .output()
        .expect("the binary runs");
    let report: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!(causes(&report), set(&["redirect", "vary"]), "{report:#}");
    assert_eq!(report["answered"], 9, "{report:#}");
    assert_eq!(done.status.code(), Some(1));
}
